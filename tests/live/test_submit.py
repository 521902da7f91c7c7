"""Submissions that wait together: stored by the same statements, as if each came after the one before."""

import asyncio
import importlib.util
import json
import threading
from datetime import UTC, datetime

import pytest

from live.postgres_server import MISSING, PostgresServer
from noonward.data.scenarios.load import load_scenario
from noonward.errors import DataError
from noonward.live.clock import ManualClock
from noonward.live.requests import JobRequest, RequestChecker
from noonward.live.store import store as store_module
from noonward.live.store import submit
from noonward.live.store.database import StoreError
from noonward.live.store.postgres import PostgresDatabase
from noonward.live.store.store import Store
from noonward.live.store.submit import KeyConflictError, submission

START = datetime(2026, 3, 1, 10, tzinfo=UTC)
WITHOUT_POSTGRES = MISSING or importlib.util.find_spec("psycopg") is None


@pytest.fixture(scope="module")
def server():
    with PostgresServer() as made:
        yield made


@pytest.fixture(params=["file", "postgres"])
def store(request, tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "BEAT_S", 1e6)
    if request.param == "postgres" and WITHOUT_POSTGRES:
        pytest.skip("PostgreSQL or psycopg is not installed")
    where = tmp_path
    if request.param == "postgres":
        where = PostgresDatabase(request.getfixturevalue("server").database())
    made = Store(where, ManualClock(START))
    yield made
    made.close()


@pytest.fixture
def groups(monkeypatch):
    """Sizes of the groups that were carried out together, those that were undone included."""
    made, together = [], submit._Submission.together.__func__

    def noted(cls, changes, connection, now_s):
        made.append(len(changes))
        return together(cls, changes, connection, now_s)

    monkeypatch.setattr(submit._Submission, "together", classmethod(noted))
    return made


def row(**given):
    checker = RequestChecker(load_scenario("tiny").fleet, 8)
    return checker.row(JobRequest(**{"name": "a", "work": 60.0, "origin": "north", **given}))


def asked_at_once(store, *changes):
    """Returns what the changes returned or raised, which all waited while an earlier one was carried out."""
    begun, goes_on = threading.Event(), threading.Event()

    def wait(connection, now_s):
        begun.set()
        assert goes_on.wait(60)

    store.write(wait)
    assert begun.wait(60)
    pending = [store.write(change) for change in changes]
    goes_on.set()
    return [answer.exception(60) or answer.result() for answer in pending]


def test_one_group_stores_all_that_wait(store, groups):
    found = asked_at_once(
        store, submission([row(name="a")], "ci"), submission([row(name="b"), row(name="c")], "ci"),
        submission([row(name="d")]), submission([row(name="e")], "ci"),
    )  # fmt: skip
    assert found == [([1], 1), ([2, 3], 2), ([4], 1), ([5], 1)]
    assert groups == [4]
    assert [tuple(one) for one in store.read("SELECT id, name, owner FROM jobs ORDER BY id")] == [
        (1, "a", "ci"), (2, "b", "ci"), (3, "c", "ci"), (4, "d", ""), (5, "e", "ci")
    ]  # fmt: skip
    events = store.read("SELECT job, kind, data FROM events ORDER BY id")
    assert [(one["job"], json.loads(one["data"]).get("by")) for one in events] == [
        (1, "ci"), (2, "ci"), (3, "ci"), (4, None), (5, "ci")
    ]  # fmt: skip
    assert {one["kind"] for one in events} == {"submitted"}


def test_one_that_is_refused_harms_no_neighbour(store, groups):
    def full(connection, new):
        raise DataError(f"{new} would be too many")

    first, refused, wrong, last = asked_at_once(
        store, submission([row(name="a")]), submission([row(name="b")], check=full),
        submission([row(name="c", after=(77,))]), submission([row(name="d")]),
    )  # fmt: skip
    assert (first, last) == (([1], 1), ([2], 1))
    assert isinstance(refused, DataError)
    assert str(refused) == "1 would be too many"
    assert isinstance(wrong, DataError)
    assert "job 77" in str(wrong)
    assert groups == [4, 1, 1, 1, 1]
    assert [one["name"] for one in store.read("SELECT name FROM jobs ORDER BY id")] == ["a", "d"]
    assert [one["job"] for one in store.read("SELECT job FROM events ORDER BY id")] == [1, 2]


def test_a_key_names_one_job_within_a_group_too(store, groups):
    store.do(submission([row(key="old")]))
    found = asked_at_once(
        store, submission([row(key="k")]), submission([row(key="old"), row(key="k"), row()]), submission([row()])
    )
    assert found == [([2], 1), ([1, 2, 5], 1), ([6], 1)]
    assert groups == [1, 3]
    assert [one["job"] for one in store.read("SELECT job FROM events ORDER BY id")] == [1, 2, 5, 6]


def test_a_key_for_another_job_of_the_group_is_refused_alone(store):
    first, other, last = asked_at_once(
        store, submission([row(key="k")]), submission([row(key="k", work=61.0)]), submission([row()])
    )
    assert (first, last) == (([1], 1), ([2], 1))
    assert isinstance(other, KeyConflictError)
    assert [one["work"] for one in store.read("SELECT work FROM jobs ORDER BY id")] == [60.0, 60.0]


def test_a_check_sees_what_came_before_it_in_the_group(store):
    def at_most_two(connection, new):
        if connection.execute("SELECT count(*) FROM jobs").fetchone()[0] > 2:
            raise DataError("two at most")

    found = asked_at_once(store, *[submission([row()], check=at_most_two) for _ in range(3)])
    assert found[:2] == [([1], 1), ([2], 1)]
    assert isinstance(found[2], DataError)


def test_submissions_of_a_group_share_a_check(store):
    called = []
    limit, other = (lambda connection, new: called.append(new)), (lambda connection, new: called.append(-new))
    asked_at_once(
        store, submission([row()], check=limit), submission([row()], check=other), submission([row()]),
        submission([row(), row()], check=limit),
    )  # fmt: skip
    assert called == [3, -1]


def test_another_change_in_between_keeps_its_place(store, groups):
    count = asked_at_once(
        store, submission([row()]), submission([row()]),
        lambda connection, now_s: connection.execute("SELECT count(*) FROM jobs").fetchone()[0], submission([row()]),
    )[2]  # fmt: skip
    assert count == 2
    assert groups == [2, 1]


def test_a_loop_is_woken_once_for_all_that_share_a_commit(store):
    begun, goes_on = threading.Event(), threading.Event()

    def wait(connection, now_s):
        begun.set()
        assert goes_on.wait(60)

    def bad(connection, now_s):
        raise ValueError("no")

    async def ask():
        loop, wakes = asyncio.get_running_loop(), []
        store.write(wait)
        assert await asyncio.to_thread(begun.wait, 60)
        wake = loop.call_soon_threadsafe
        pending = [asyncio.ensure_future(store.written(change)) for change in (*[submission([row()])] * 3, bad)]
        gone = asyncio.ensure_future(store.written(submission([row(name="gone")])))
        await asyncio.sleep(0)
        gone.cancel()
        loop.call_soon_threadsafe = lambda *call: wakes.append(call) or wake(*call)
        goes_on.set()
        *stored, failed = await asyncio.gather(*pending, return_exceptions=True)
        assert stored == [([1], 1), ([2], 1), ([3], 1)]
        assert isinstance(failed, ValueError)
        assert len(wakes) == 1
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(ask())
    assert [one["id"] for one in store.read("SELECT id FROM jobs WHERE name = 'gone'")] == [4]
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        asyncio.run(store.written(submission([row()])))


def test_a_large_batch_is_stored_whole_and_its_known_keys_once(store):
    keys = [f"k{n}" for n in range(150)]
    assert store.do(submission([row(key=key) for key in keys[:3]])) == ([1, 2, 3], 3)
    ids, new = store.do(submission([row(key=key, name=key if n > 2 else "a") for n, key in enumerate(keys)]))
    assert new == 147
    assert ids == [1, 2, 3, *range(7, 154)]
    assert [one["name"] for one in store.read("SELECT name FROM jobs ORDER BY id")] == ["a", "a", "a", *keys[3:]]
