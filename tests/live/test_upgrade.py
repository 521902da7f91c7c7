"""Stores of an older version are copied and brought up to date; copies made under load are whole."""

import contextlib
import sqlite3
import threading

import pytest

from live.postgres_server import MISSING, PostgresServer
from live.test_running_jobs import Bending
from noonward.errors import FileError
from noonward.live.orders import ORDERS, order_of
from noonward.live.requests import JobRequest
from noonward.live.store import schema
from noonward.live.store.postgres import PostgresDatabase
from noonward.live.store.sqlite import NAME, backup, restore
from noonward.live.store.store import Store
from noonward.live.store.submit import submission

OF_JOBS = ("run_by", "told", "resumed_s", "finish_s", "running_place", "cap", "life", "priority")
OF_OUTBOX = ("gpus", "wish_s", "signalled_s", "stopped_s", "cap", "cap_wanted", "nodes")
OLD = "; ".join(
    [
        "DROP TABLE needs",
        "DROP TABLE published",
        "DROP TABLE images",
        "DROP TABLE grid_events",
        "DROP TABLE power",
        "DROP TABLE seen",
        "ALTER TABLE decisions DROP COLUMN seen",
        "DROP INDEX jobs_open",
        "DROP INDEX outbox_capped",
        *(f"ALTER TABLE jobs DROP COLUMN {name}" for name in OF_JOBS),
        *(f"ALTER TABLE outbox DROP COLUMN {name}" for name in OF_OUTBOX),
        "CREATE INDEX jobs_open ON jobs (id) WHERE state IN ('submitted', 'transit', 'waiting', 'starting', 'running')",
    ]
)
"""What makes tables of version 8 of today's."""


@pytest.fixture
def old(service):
    """A service whose store, with a job that runs and one that waits, is of version 8."""
    live = service("local-fcfs")
    for _ in range(2):
        live.submit(JobRequest(name="a", work=600.0, origin="north", gpus_min=8))
    live.set_time(60.0)
    live.steps()
    live.store.close()
    with contextlib.closing(sqlite3.connect(live.folder / NAME)) as connection:
        connection.executescript(f"{OLD}; PRAGMA user_version = 8")
    return live


def version(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def test_a_store_of_version_8_is_copied_and_goes_on(old):
    old.open()
    old.submit(JobRequest(name="b", work=600.0, origin="south", after=(1,)))
    for seconds in (720.0, 780.0, 1380.0, 1440.0, 2100.0, 2160.0):
        old.set_time(seconds)
        old.steps()
    assert [row["state"] for row in old.store.read("SELECT state FROM jobs ORDER BY id")] == ["done"] * 3
    assert version(old.folder / NAME) == schema.VERSION
    copy = old.folder / f"{NAME}.v8"
    assert (version(copy), copy.stat().st_mode & 0o777) == (8, 0o600)
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM jobs").fetchone()[0] == 2


def test_a_step_that_fails_leaves_the_old_store(old, monkeypatch):
    failing = {8: schema.NEEDS + "CREATE TABLE jobs (id INTEGER);"}
    monkeypatch.setattr(schema, "UPGRADES", {**schema.UPGRADES, **failing})
    with pytest.raises(FileError, match="table jobs already exists"):
        old.open()
    assert version(old.folder / NAME) == 8
    monkeypatch.undo()
    old.open()
    assert version(old.folder / NAME) == schema.VERSION


def test_a_store_that_was_left_in_the_midst_of_a_decision_is_not_brought_up_to_date(old):
    with contextlib.closing(sqlite3.connect(old.folder / NAME)) as connection:
        connection.execute("INSERT INTO meta VALUES ('part.last', x'90')")
        connection.commit()
    with pytest.raises(FileError, match=r"store has version 8, had not written .* nothing was changed"):
        old.open()
    assert (version(old.folder / NAME), (old.folder / f"{NAME}.v8").exists()) == (8, False)
    with contextlib.closing(sqlite3.connect(old.folder / NAME)) as connection:
        connection.execute("DELETE FROM meta WHERE name = 'part.last'")
        connection.commit()
    old.open()
    assert version(old.folder / NAME) == schema.VERSION


@pytest.mark.parametrize(
    ("stage", "landed"), [("queued", False), ("intent", False), ("intent", True), ("placed", True)]
)
def test_a_hand_over_that_an_older_version_began_is_completed_once(service, stage, landed):
    cluster = Bending()
    live = service("local-fcfs", executors={"north": cluster})
    live.submit(JobRequest(name="a", work=600.0, origin="north"))
    live.set_time(60.0)
    live.controller.decide()
    order = order_of(live.store.read(f"{ORDERS}")[0])
    handle = cluster.submit_held(order) if landed else None
    kept = handle if stage == "placed" else None
    live.store.do(
        lambda connection, now_s: connection.execute("UPDATE outbox SET stage = ?, handle = ?", (stage, kept))
    )
    live.store.close()
    with contextlib.closing(sqlite3.connect(live.folder / NAME)) as connection:
        connection.executescript(f"{OLD}; PRAGMA user_version = 8")
    live.open()
    live.controller.reconcile(0)
    live.controller.deliver(0)
    live.controller.track(0)
    assert (cluster.running(), len(cluster.jobs), cluster.starts) == ([1], 1, {1: ["1"]})
    assert live.store.read("SELECT state FROM jobs")[0]["state"] == "running"


def test_a_copy_of_version_8_can_be_restored(old, tmp_path):
    old.open()
    restore(old.folder / f"{NAME}.v8", tmp_path / "other")
    store = Store(tmp_path / "other", old.clock)
    assert store.read("SELECT count(*) AS n FROM jobs")[0]["n"] == 2
    store.close()


@pytest.mark.skipif(MISSING, reason="PostgreSQL is not installed")
def test_tables_of_version_8_in_a_postgresql_are_brought_up_to_date(service):
    with PostgresServer() as server:
        url = server.database()
        live = service("local-fcfs", database=url)
        live.submit(JobRequest(name="a", work=600.0, origin="north"))
        live.store.close()
        writer = PostgresDatabase(url, leads=False).writer()
        writer.execute(OLD)
        writer.execute("UPDATE leader SET version = 8")
        writer.execute("INSERT INTO meta VALUES ('part.last', '0')")
        with pytest.raises(FileError, match="store has version 8, had not written"):
            live.open()
        writer.execute("DELETE FROM meta WHERE name = 'part.last'")
        writer.close()
        live.open()
        live.submit(JobRequest(name="b", work=600.0, origin="north", after=(1,)))
        for seconds in (60.0, 720.0, 780.0, 840.0):
            live.set_time(seconds)
            live.steps()
        assert [row["state"] for row in live.store.read("SELECT state FROM jobs ORDER BY id")] == ["done", "running"]
        assert live.store.read("SELECT version FROM leader")[0]["version"] == schema.VERSION
        live.store.close()


def test_a_copy_made_under_load_holds_all_that_was_acknowledged_before(service, tmp_path):
    live = service("local-fcfs")
    row = live.checker.row(JobRequest(name="a", work=600.0, origin="north"))
    acknowledged, stop = [0], threading.Event()

    def load():
        while not stop.is_set():
            acknowledged[0] = live.store.do(submission([row] * 20))[0][-1]

    loader = threading.Thread(target=load)
    loader.start()
    try:
        copies = []
        for n in range(4):
            while acknowledged[0] < 200 * (n + 1):
                loader.join(0.001)
            before = acknowledged[0]
            backup(live.folder, tmp_path / f"{n}.sqlite")
            copies.append((before, acknowledged[0] + 20))
    finally:
        stop.set()
        loader.join()
    for n, (before, after) in enumerate(copies):
        restore(tmp_path / f"{n}.sqlite", tmp_path / str(n))
        store = Store(tmp_path / str(n), live.clock)
        jobs = [each["id"] for each in store.read("SELECT id FROM jobs ORDER BY id")]
        events = [each["job"] for each in store.read("SELECT job FROM events WHERE kind = 'submitted' ORDER BY job")]
        store.close()
        assert jobs == events == list(range(1, len(jobs) + 1))
        assert len(jobs) % 20 == 0  # batches are whole
        assert before <= len(jobs) <= after
