"""The store: changes whole or not at all, on the disk before they are answered, also when the process is killed."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pytest

from live.waiting import wait_for
from noonward.data.scenarios.load import load_scenario
from noonward.errors import DataError, FileError
from noonward.live.api.handlers import UNDISPATCHED
from noonward.live.clock import ManualClock
from noonward.live.handover import TO_DELIVER, TO_TAKE_BACK, TO_TRACK
from noonward.live.requests import JobRequest, RequestChecker
from noonward.live.running_agent import TO_ACT, TO_CAP, TO_STOP, TO_UNCAP
from noonward.live.store import store as store_module
from noonward.live.store.database import StoreError
from noonward.live.store.sqlite import NAME, backup, restore, vacuum
from noonward.live.store.store import MOST_READERS, Store
from noonward.live.store.submit import KeyConflictError, submission
from noonward.live.why import WAITING

START = datetime(2026, 3, 1, 10, 30, tzinfo=UTC)


@pytest.fixture
def checker():
    return RequestChecker(load_scenario("tiny").fleet, 8)


def job(**given):
    return JobRequest(**{"name": "a", "work": 60.0, "origin": "north", **given})


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "s", ManualClock(START))
    yield made
    made.close()


def test_second_zero_is_the_full_hour_and_stamps_never_fall(store):
    assert store.start == START.replace(minute=0)
    assert store.do(lambda connection, now_s: now_s) == 1800.0
    store.clock.seconds = -60.0
    assert store.do(lambda connection, now_s: now_s) == 1800.0
    store.clock.seconds = 60.0
    assert store.do(lambda connection, now_s: now_s) == 1860.0


def test_a_change_that_raises_is_undone_alone(store, checker):
    def bad(connection, now_s):
        connection.execute("INSERT INTO events (at_s, kind) VALUES (0, 'half')")
        raise ValueError("no")

    failed = store.write(bad)
    kept = store.write(submission([checker.row(job())]))
    with pytest.raises(ValueError, match="no"):
        failed.result()
    assert kept.result() == ([1], 1)
    assert [row["kind"] for row in store.read("SELECT kind FROM events")] == ["submitted"]


def test_changes_that_wait_together_share_a_commit(store, checker):
    before = store.commits
    pending = [store.write(submission([checker.row(job())])) for _ in range(200)]
    ids = [answer.result()[0][0] for answer in pending]
    assert ids == list(range(1, 201))
    assert store.commits - before < 200


def test_a_commit_waits_for_more_only_after_one_that_submissions_shared(store, checker, monkeypatch):
    rests = []
    monkeypatch.setattr(store_module, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=rests.append))

    def together(changes):
        begun, gate = threading.Event(), threading.Event()
        first = store.write(lambda connection, now_s: begun.set() or gate.wait(30))
        assert begun.wait(30)
        pending = [store.write(change) for change in changes]
        gate.set()
        assert all(answer.result() for answer in (first, *pending))

    one = submission([checker.row(job())])
    together([lambda connection, now_s: 1] * 3)
    together([one])
    store.do(one)
    assert rests == []
    together([one, one])
    store.do(one)
    store.do(one)
    assert rests == [store_module.GATHER_S], "before the next one alone"


def test_many_rows_are_updated_by_few_statements(store, checker):
    store.do(submission([checker.row(job())] * 200))
    ran = []

    def change(connection, now_s):
        connection.set_trace_callback(ran.append)
        rows = [(f"j{n}", None if n % 2 else 0.5 * n, n, 60.0) for n in range(1, 201)]
        changed = connection.update("UPDATE jobs SET name = ?, max_delay_s = ? WHERE id = ? AND work = ?", rows)
        assert connection.update("UPDATE jobs SET name = ? WHERE id = ?", []) == 0
        connection.set_trace_callback(None)
        none = connection.update("UPDATE jobs SET name = ? WHERE id = ? AND work = ?", [("no", 1, 61.0)])
        return changed, none

    assert store.do(change) == (200, 0)
    assert len(ran) == 4, "64 rows each, at most"
    found = [tuple(row) for row in store.read("SELECT name, max_delay_s FROM jobs ORDER BY id")]
    assert found == [(f"j{n}", None if n % 2 else 0.5 * n) for n in range(1, 201)]


def test_a_key_names_one_job_for_ever(store, checker):
    first = store.do(submission([checker.row(job(key="k")), checker.row(job())]))
    again = store.do(submission([checker.row(job(key="k")), checker.row(job(key="new"))]))
    assert first == ([1, 2], 2)
    assert again[0][0] == 1
    assert again[1] == 1
    with pytest.raises(KeyConflictError, match="'k' was used for another job"):
        store.do(submission([checker.row(job()), checker.row(job(key="k", work=61.0))]))
    assert len(store.read("SELECT id FROM jobs")) == 3
    assert len(store.read("SELECT id FROM events WHERE kind = 'submitted'")) == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"origin": "nort"}, "did you mean 'north'"),
        ({"origin": None}, "origin is missing; give one of north, south"),
        ({"class_": "training"}, "class 'training' is unknown"),
        ({"gpus_min": 9}, "gangs of up to 8"),
        ({"gpus_min": 4, "gpus_max": 2}, "gpus_max 2 is below gpus_min 4"),
        ({"not_sites": ("north", "south")}, "no site that it may run at"),
        ({"site": "north", "not_sites": ("north",)}, "no site that it may run at"),
    ],
)
def test_a_job_that_cannot_run_is_refused(checker, given, words):
    with pytest.raises(DataError, match=words):
        checker.row(job(**given))


def test_threads_that_come_and_go_share_a_few_connections(store, monkeypatch):
    opened, reader = [], store.database.reader
    monkeypatch.setattr(store.database, "reader", lambda: opened.append(reader()) or opened[-1])
    for _ in range(30):
        thread = threading.Thread(target=store.value, args=("start",))
        thread.start()
        thread.join()
    assert len(opened) == 1
    gate, begun = threading.Barrier(MOST_READERS + 1), []

    def slow():
        with store._reader() as connection:
            begun.append(connection)
            gate.wait(30)

    threads = [threading.Thread(target=slow) for _ in range(MOST_READERS)]
    others = [threading.Thread(target=store.value, args=("start",)) for _ in range(30)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(begun) == MOST_READERS, "all connections in use")
    for thread in others:
        thread.start()
    assert len(opened) == MOST_READERS
    gate.wait(30)
    for thread in (*threads, *others):
        thread.join()
    assert len(opened) == MOST_READERS


def test_a_closed_store_refuses_changes(tmp_path, checker):
    store = Store(tmp_path, ManualClock(START))
    last = store.write(submission([checker.row(job())]))
    store.close()
    assert last.result(20) == ([1], 1)
    with pytest.raises(StoreError, match="is closed"):
        store.write(submission([checker.row(job())])).result(20)
    store.close()


def test_a_full_disk_is_said_and_nothing_is_half_written(store, checker):
    def fill(connection, now_s):
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    store.do(fill)
    rows = [checker.row(job(command="x" * 4000)) for _ in range(50)]
    with pytest.raises(StoreError, match="full"):
        store.do(submission(rows))
    assert store.read("SELECT id FROM jobs") == []
    store.do(lambda connection, now_s: connection.execute("PRAGMA max_page_count = 1000000") and None)
    assert store.do(submission(rows))[1] == 50


def test_a_store_that_another_program_holds_is_said(store, checker, monkeypatch):
    other = sqlite3.connect(store.path, isolation_level=None)
    store.do(lambda connection, now_s: connection.execute("PRAGMA busy_timeout = 1") and None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        store.do(submission([checker.row(job())]))
    other.execute("ROLLBACK")
    other.close()
    assert store.do(submission([checker.row(job())])) == ([1], 1)


def test_backup_restore_and_vacuum(store, checker, tmp_path):
    store.do(submission([checker.row(job(key=str(n))) for n in range(100)]))
    backup(store.path.parent, tmp_path / "copy.sqlite")
    restore(tmp_path / "copy.sqlite", tmp_path / "other")
    other = Store(tmp_path / "other", ManualClock(START))
    assert other.do(submission([checker.row(job(key="7"))])) == ([8], 0)
    assert other.start == store.start
    other.close()
    before, after = vacuum(tmp_path / "other")
    assert 0 < after <= before + 4096
    with pytest.raises(FileError, match="exists already"):
        restore(tmp_path / "copy.sqlite", tmp_path / "other")
    (tmp_path / "bad.sqlite").write_bytes(b"SQLite format 3\0" + bytes(5000))
    with pytest.raises(FileError):
        restore(tmp_path / "bad.sqlite", tmp_path / "third")
    assert not (tmp_path / "third" / NAME).exists()
    with pytest.raises(FileError, match="holds no store"):
        backup(tmp_path / "nowhere", tmp_path / "copy2.sqlite")


@pytest.mark.parametrize(("version", "words"), [(99, "version 99.*update noonward"), (5, "before the first release")])
def test_a_file_of_another_version_is_refused(tmp_path, version, words):
    Store(tmp_path, ManualClock(START)).close()
    connection = sqlite3.connect(tmp_path / NAME)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(FileError, match=words):
        Store(tmp_path, ManualClock(START))


CHILD = """
import sys
from pathlib import Path
from datetime import UTC, datetime
from noonward.data.scenarios.load import load_scenario
from noonward.live.clock import SystemClock
from noonward.live.requests import JobRequest, RequestChecker
from noonward.live.running_agent import TO_ACT, TO_CAP, TO_STOP, TO_UNCAP
from noonward.live.store.store import Store
from noonward.live.store.submit import submission
checker = RequestChecker(load_scenario("tiny").fleet, 8)
store = Store(Path(sys.argv[1]), SystemClock())
n = int(sys.argv[2])
while True:
    rows = [checker.row(JobRequest(name="a", work=1.0, origin="north", key=f"{n + i}")) for i in range(20)]
    ids, new = store.do(submission(rows))
    print(n, flush=True)
    n += 20
"""


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path):
    acknowledged: set[int] = set()
    begin = 0
    for kill in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), str(begin)], stdout=subprocess.PIPE, env={**os.environ}
        )
        for lines, line in enumerate(process.stdout):
            acknowledged.update(range(int(line), int(line) + 20))
            if lines > 5 + 7 * kill:
                process.send_signal(signal.SIGKILL)
                break
        acknowledged.update(n for line in process.stdout for n in range(int(line), int(line) + 20))
        process.stdout.close()
        process.wait()
        begin = max(acknowledged) + 1
    store = Store(tmp_path, ManualClock(START))
    keys = [int(row["key"]) for row in store.read("SELECT key FROM jobs")]
    store.close()
    assert len(keys) == len(set(keys))
    assert acknowledged <= set(keys)
    assert len(acknowledged) > 4 * 5 * 20


def test_lines_of_a_command_end_as_shells_want_them(checker):
    row = checker.row(job(command="echo one\r\nsleep 2\rtrue\n"))
    assert msgspec.json.decode(row.request, type=JobRequest).command == "echo one\nsleep 2\ntrue\n"


def test_a_request_is_stored_as_it_was_sent(store, checker):
    store.do(submission([checker.row(job(command="echo 1", retries=2))]))
    stored = store.read("SELECT request FROM jobs")[0]["request"]
    assert msgspec.json.decode(stored, type=JobRequest) == job(command="echo 1", retries=2)


def test_what_every_step_reads_is_found_by_an_index(store):
    for query in (TO_DELIVER, TO_TRACK, TO_TAKE_BACK, UNDISPATCHED, TO_ACT, TO_STOP, TO_CAP, TO_UNCAP):
        plan = [row["detail"] for row in store.read(f"EXPLAIN QUERY PLAN {query}", 0)]
        assert all(step.startswith("SEARCH") for step in plan), plan
    assert "outbox_capped" in store.read(f"EXPLAIN QUERY PLAN {TO_UNCAP}", 0)[0]["detail"]


def test_what_the_overview_reads_of_waiting_jobs_is_found_by_the_index_of_open_ones(store):
    (step,) = store.read(f"EXPLAIN QUERY PLAN {WAITING}", 1)
    assert step["detail"] == "SCAN jobs USING INDEX jobs_open"
