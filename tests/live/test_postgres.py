"""The store in PostgreSQL: the same as in SQLite, one leader at a time, and a former one that cannot write."""

import contextlib
import importlib.util
import math
import threading
from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pytest

from live.callers import local_client
from live.postgres_server import MISSING, PostgresServer
from live.test_webhook import Hook
from live.waiting import wait_for
from noonward.data.scenarios.load import load_scenario
from noonward.errors import FileError
from noonward.live.clock import ManualClock
from noonward.live.config import LiveConfig
from noonward.live.demand.events import EventBook, EventCall
from noonward.live.demand.meters import Meters
from noonward.live.demand.settings import EventSettings
from noonward.live.requests import JobRequest, RequestChecker
from noonward.live.store import postgres
from noonward.live.store import store as store_module
from noonward.live.store.database import LeadershipLostError, StoreError
from noonward.live.store.dependencies import let_arrive
from noonward.live.store.postgres import PostgresDatabase
from noonward.live.store.retention import retire
from noonward.live.store.store import Store
from noonward.live.store.submit import KeyConflictError, submission
from noonward.live.tokens import holder_of, make_token, revoke_token

pytestmark = [
    pytest.mark.skipif(MISSING, reason="PostgreSQL is not installed (Debian: postgresql)"),
    pytest.mark.skipif(importlib.util.find_spec("psycopg") is None, reason="psycopg is missing (extra postgres)"),
]
START = datetime(2026, 3, 1, 10, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def server():
    with PostgresServer() as made:
        yield made


@pytest.fixture
def url(server):
    return server.database()


@pytest.fixture(autouse=True)
def no_beat(monkeypatch):
    """Leaders write when they are told to, not in between."""
    monkeypatch.setattr(store_module, "BEAT_S", 1e6)


@pytest.fixture
def opened():
    """Opens stores once they may lead; closes them."""
    made = []

    def open_store(url):
        database = PostgresDatabase(url)
        assert database.wait_to_lead(threading.Event())
        made.append(Store(database, ManualClock(START)))
        return made[-1]

    yield open_store
    for each in made:
        each.close()


@pytest.fixture
def checker():
    return RequestChecker(load_scenario("tiny").fleet, 8)


def job(**given):
    return JobRequest(**{"name": "a", "work": 60.0, "origin": "north", **given})


def add_event(connection, now_s):
    connection.execute("INSERT INTO events (at_s, kind) VALUES (?, 'noted')", (now_s,))


def events(store):
    return len(store.read("SELECT id FROM events WHERE kind = 'noted'"))


def end_sessions(server, url):
    """Breaks every session of a database, as a network would."""
    name = url.split("/")[3].split("?")[0]
    server.run("postgres", f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


def test_rows_are_inserted_and_updated_by_one_statement_whatever_they_hold(opened, url, monkeypatch):
    store, sent = opened(url), []
    texts = ['a "quoted", {part}', "back\\slash", "NULL", "", "\u00e4\n'", "\\N"]  # an array writes them otherwise
    rows = [(0.5 * n, None if n % 2 else n, text, "{}") for n, text in enumerate(texts)]
    secret = ("a", "read", b'\x00\\"\xff', "now", None)

    def change(connection, now_s):
        assert connection.insert("INSERT INTO events (at_s, job, kind, data) VALUES (?, ?, ?, ?)", rows) == len(rows)
        told = "INSERT INTO tokens (name, scope, hash, made_at, expires_at) VALUES (?, ?, ?, ?, ?)"
        assert connection.insert(told + " ON CONFLICT (name) DO NOTHING", [secret, secret]) == 1
        moved = "UPDATE events SET at_s = ?, job = ? WHERE id = ? AND at_s = ?"
        assert connection.update(moved, [(math.inf, True, 1, 0.0), (2**40, None, 2, 0.5), (7.0, 7, 3, 0.5)]) == 2
        assert connection.update(moved, []) == connection.insert(told, []) == 0

    store.do(lambda connection, now_s: [connection._types_of(table) for table in ("events", "tokens")])
    with monkeypatch.context() as counting:
        execute = store._writer._inner.execute
        counted = SimpleNamespace(execute=lambda *given: sent.append(given[0]) or execute(*given), closed=False)
        counting.setattr(store._writer, "_inner", counted)
        store.do(change)
    assert len([sql for sql in sent if "unnest" in sql]) == len(sent) - 2 == 3, "and the transaction's begin and end"
    found = [tuple(row)[1:4] for row in store.read("SELECT * FROM events ORDER BY id")]
    assert found == [(math.inf, 1, texts[0]), (2.0**40, None, texts[1]), *(row[:3] for row in rows[2:])]
    assert [tuple(row) for row in store.read("SELECT * FROM tokens")] == [secret]


def test_jobs_are_found_by_an_index_from_the_first_ones_on(service, url):
    live = service("local-fcfs", database=url)
    scans = "SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname IN ('events', 'jobs')"

    def scanned():
        """Returns the rows that were read without an index. Empty tables are scanned, which reads none."""
        live.store.do(lambda connection, now_s: connection.execute("SELECT pg_stat_force_next_flush()"))
        live.store.read("SELECT pg_stat_force_next_flush()")
        (row,) = live.store.read(scans)
        return row[0]

    before = scanned()
    for n in range(1, 11):
        live.submit(*[job(max_delay_s=1e6)] * 20)
        live.set_time(60.0 * n)
        live.controller.decide()
    assert scanned() == before


def test_jobs_that_come_after_others_are_looked_for_by_an_index_though_statistics_are_old(opened, url, checker):
    """The statistics say that all jobs wait for others; then only the order that is asked for favors an index."""
    store, asked = opened(url), []
    store.do(submission([checker.row(job())] * 5000))
    store.do(lambda connection, now_s: connection.execute("UPDATE jobs SET arrival_s = 1e14"))
    store.do(lambda connection, now_s: connection.execute("ANALYZE jobs"))
    store.do(lambda connection, now_s: connection.execute("UPDATE jobs SET arrival_s = 0"))
    read, store.read = store.read, lambda query, *values: asked.append((query, values)) or read(query, *values)
    let_arrive(store)
    assert len(asked) == 2
    for query, values in asked:
        plan = "\n".join(row[0] for row in read(f"EXPLAIN {query}", *values))
        assert "Seq Scan on jobs" not in plan


def test_changes_keys_and_values_are_those_of_a_file(opened, url, checker):
    store = opened(url)
    assert store.start == START.replace(minute=0)

    def bad(connection, now_s):
        add_event(connection, now_s)
        raise ValueError("no")

    failed, kept = store.write(bad), store.write(submission([checker.row(job(key="k")), checker.row(job(held=True))]))
    with pytest.raises(ValueError, match="no"):
        failed.result()
    assert kept.result() == ([1, 2], 2)
    assert store.do(submission([checker.row(job(key="k")), checker.row(job())])) == ([1, 4], 1)
    with pytest.raises(KeyConflictError):
        store.do(submission([checker.row(job()), checker.row(job(key="k", work=61.0))]))
    assert events(store) == 0
    rows = store.read("SELECT * FROM jobs ORDER BY id")
    assert [(row["id"], row[1], row["held"], row["work"]) for row in rows] == [
        (1, "k", 0, 60.0), (2, None, 1, 60.0), (4, None, 0, 60.0)
    ]  # fmt: skip
    assert dict(rows[0])["state"] == "submitted"
    values = {"a": 7, "b": 0.1 + 0.2, "c": "seven", "d": b"\x00\xff"}
    store.do(lambda connection, now_s: store.keep(connection, values))
    store.do(lambda connection, now_s: store.keep(connection, {"a": 8}))
    assert {name: store.value(name) for name in values} == values | {"a": 8}
    assert store.value("none") is None


def test_tokens(opened, url, noonward):
    store = opened(url)
    token = make_token(store, "ci", "submit")
    assert holder_of(store, token).scope == "submit"
    new = make_token(store, "ci", "read", replace=True)
    assert (holder_of(store, token), holder_of(store, new).scope) == (None, "submit")
    revoke_token(store, "ci")
    assert holder_of(store, new) is None
    made = noonward("live", "token", "add", "me", "--scope", "admin", "--database", url)
    assert made.code == 0, made.err
    assert holder_of(store, made.out.strip()).scope == "admin"
    assert "me" in noonward("live", "token", "list", "--database", url).out


def test_rows_of_the_same_columns_are_of_one_kind(opened, url):
    store = opened(url)
    one, same, other = (store.read(f"SELECT 1 AS {name}")[0] for name in ("a", "a", "b"))
    assert (type(one) is type(same), type(one) is type(other), other["b"]) == (True, False, 1)


def test_one_instance_leads_until_its_session_ends(opened, url):
    first = opened(url)
    with pytest.raises(LeadershipLostError):
        Store(PostgresDatabase(url), ManualClock(START))
    stop = threading.Event()
    stop.set()
    assert not PostgresDatabase(url).wait_to_lead(stop)
    first.close()
    second = opened(url)
    assert second.do(lambda connection, now_s: now_s) == 1800.0


def test_a_former_leader_cannot_write(opened, server, url):
    first, told = opened(url), []
    first.lost = lambda: told.append(True)
    first.do(add_event)
    end_sessions(server, url)
    second = opened(url)
    second.do(add_event)
    with pytest.raises(StoreError):  # it learns that its session is gone
        first.do(add_event)
    with pytest.raises(LeadershipLostError):
        first.do(add_event)
    assert told == [True]
    assert (events(second), events(first)) == (2, 2)


def test_a_former_leader_that_has_its_lock_again_cannot_write_either(opened, server, url):
    first = opened(url)
    end_sessions(server, url)
    second = opened(url)
    second.close()
    with pytest.raises(StoreError):
        first.do(add_event)
    with pytest.raises(LeadershipLostError, match="another instance has taken the lead"):
        first.do(add_event)
    assert events(first) == 0


def test_a_new_leader_waits_for_the_change_that_a_former_one_has_begun(opened, server, url):
    first, begun, go_on = opened(url), threading.Event(), threading.Event()

    def slow(connection, now_s):
        add_event(connection, now_s)
        begun.set()
        go_on.wait(60)

    change = first.write(slow)
    assert begun.wait(60)
    first.database.leads = False  # its lock is gone, its transaction is not: as if the lock had been another session's
    server.run(url.split("/")[3].split("?")[0], "SELECT 1")
    other = PostgresDatabase(url)
    other._locked = lambda connection: True
    found = []
    thread = threading.Thread(target=lambda: found.append(other.writer()))
    thread.start()
    wait_for(
        lambda: server.run("postgres", "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")[0][0],
        "the new leader's wait",
    )
    assert found == []
    go_on.set()
    change.result()
    thread.join(60)
    found[0].close()
    first.database.leads = True
    with pytest.raises(LeadershipLostError):
        first.do(add_event)
    assert events(first) == 1


def test_a_leader_that_has_stopped_in_the_midst_of_its_statements_is_found_too(opened, url, monkeypatch):
    monkeypatch.setattr(postgres, "LOOK_S", 0.05)
    monkeypatch.setattr(postgres, "HUNG_S", 0.2)
    first = opened(url)
    inner = first._writer._inner
    inner.pgconn.enter_pipeline_mode()
    inner.pgconn.send_query_params(b"SELECT 1", None)  # what ends the statements is never sent
    inner.pgconn.send_flush_request()
    inner.pgconn.flush()
    other = PostgresDatabase(url)
    waiting = threading.Thread(target=other.wait_to_lead, args=(threading.Event(),), daemon=True)
    waiting.start()
    waiting.join(60.0)
    assert not waiting.is_alive()
    other.writer().close()


def test_who_stands_by_ends_the_session_of_a_leader_that_has_stopped(opened, url, monkeypatch):
    first = opened(url)
    stop, other = threading.Event(), PostgresDatabase(url)
    monkeypatch.setattr(postgres, "LOOK_S", 0.05)
    monkeypatch.setattr(postgres, "HUNG_S", 1e6)
    waiting = threading.Thread(target=other.wait_to_lead, args=(stop,))
    waiting.start()
    for _ in range(20):
        first.do(add_event)  # it lives: it keeps the lead
    monkeypatch.setattr(postgres, "HUNG_S", 0.2)
    waiting.join(60)  # nothing is written now
    assert not waiting.is_alive()
    second = Store(other, ManualClock(START))
    try:
        with pytest.raises(StoreError):
            first.do(add_event)
        with pytest.raises(LeadershipLostError):
            first.do(add_event)
    finally:
        second.close()


def test_an_idle_leader_learns_that_it_does_not_lead(opened, server, url, monkeypatch):
    monkeypatch.setattr(store_module, "BEAT_S", 0.05)
    first, lost = opened(url), threading.Event()
    first.lost = lost.set
    server.run(url.split("/")[3].split("?")[0], "UPDATE leader SET epoch = epoch + 1")
    assert lost.wait(60)


def test_a_leader_carries_on_where_its_session_broke_and_nobody_led_meanwhile(opened, server, url):
    store = opened(url)
    store.do(add_event)
    server.stop()
    for _ in range(2):
        with pytest.raises(StoreError):
            store.do(add_event)
        with pytest.raises(StoreError):
            store.read("SELECT 1")
    server.start()
    store.do(add_event)
    assert events(store) == 2


def test_a_commit_of_which_nobody_knows_whether_it_is_stored_ends_the_lead(opened, server, url):
    store, told = opened(url), []
    store.lost = lambda: told.append(True)
    connection = store._writer
    execute = connection.execute

    def broken(sql, values=()):
        if sql == "COMMIT":
            end_sessions(server, url)
        return execute(sql, values)

    connection.execute = broken
    with pytest.raises(LeadershipLostError, match="broke in a commit"):
        store.do(add_event)
    assert told == [True]


def test_a_newer_store_and_local_jobs_are_refused(opened, server, url, tmp_path):
    opened(url).close()
    server.run(url.split("/")[3].split("?")[0], "UPDATE leader SET version = 99")
    with pytest.raises(FileError, match="version 99"):
        opened(url)
    with pytest.raises(StoreError, match="does not answer"):
        Store(PostgresDatabase("postgresql:///none?host=/nowhere"), ManualClock(START))
    with pytest.raises(ValueError, match="processes of one machine"):
        LiveConfig(scenario="tiny", policy="random", database=url, sites={"north": {"executor": "local"}})
    assert ":...@" in PostgresDatabase("postgresql://me:secret@host/name").title


@pytest.mark.parametrize(("policy", "restart_every"), [("booked-persistence", 25), ("bid-price-persistence", 0)])
def test_a_day_is_decided_as_with_a_file_and_every_page_answers(service, url, policy, restart_every):
    live, file = (service(policy, "window_h=3", database=at) for at in (url, None))
    for each in (live, file):
        each.play(restart_every)
    columns = "id, state, site, gpus, level, start_s, ended_s, power_w, moves"
    for query in (f"SELECT {columns} FROM jobs ORDER BY id", "SELECT * FROM signals ORDER BY zone, hour",
                  "SELECT at_s, job, choice, gpus, level, candidates, seen FROM decisions ORDER BY id"):  # fmt: skip
        found, expected = ([tuple(row) for row in each.store.read(query)] for each in (live, file))
        assert found == expected
        assert len(found) > 10
    answers = []
    for each in (live, file):
        with local_client(each) as client:
            for path in ("/v1/jobs", "/v1/jobs?state=done", "/v1/jobs/1", "/v1/jobs/1/why", "/v1/sites", "/v1/plans",
                         "/v1/savings", "/v1/decisions?job=1", "/v1/events", "/v1/service", "/readyz"):  # fmt: skip
                answer = client.get(path)
                assert answer.status_code == 200, (path, answer.text)
                found = answer.json()
                if path == "/v1/events":
                    found = [(event["at"], event["job"], event["kind"]) for event in found]
                if not path.startswith("/v1/jobs") or path.endswith("why"):  # tokens are a service's own
                    answers.append((path, found))
            for path in ("/", "/jobs", "/jobs/1", "/plan", "/signals", "/savings", "/decisions", "/sites/north"):
                assert client.get(path).status_code == 200, path
            assert "noonward_jobs_submitted_total" in client.get("/metrics").text
            assert client.post("/v1/jobs", json={"name": "a\x00b", "work": 1, "origin": "north"}).status_code == 422
    half = len(answers) // 2
    assert answers[:half] == answers[half:]


def test_grid_events_and_power_are_stored(opened, url):
    store, fleet = opened(url), load_scenario("tiny", ["fleet.sites.0.meter={interval_min: 5}"]).fleet
    book, meters = EventBook(store, fleet, EventSettings()), Meters(store, fleet, {}, [True, True], str)
    for seconds in (0.0, 300.0):
        store.clock.seconds = seconds
        meters.step(np.array([1.0, 2.0]))
    asked = EventCall(site="north", cut=0.25, notice_min=10.0)
    assert book.call(asked, "me") == 1
    book.cancel(1, "me")
    assert book.call(asked, "me") == 2
    assert [(row["id"], row["baseline_kw"], row["target_kw"]) for row in book.open()] == [(2, 1.0, 0.75)]
    retire(store, 1e6)


def test_a_webhook_tells_of_jobs_in_a_database_too(service, url):
    with contextlib.closing(Hook()) as hook:
        live = service("local-fcfs", database=url, live={"webhook": {"url": hook.url, "states": ["done"]}})
        (job,) = live.submit(JobRequest(name="a", work=600.0, origin="north", gpus_min=1, gpus_max=1))
        for hour in (1, 2):
            live.set_time(1800.0 * hour)
            live.steps()
        live.controller.webhook.step()
        live.restart()
        live.controller.webhook.step()
        assert hook.told == [(job, "done")]
