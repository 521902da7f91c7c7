"""Jobs that come after others: they wait, arrive, or are cancelled with what they wait for."""

import pytest

from noonward.errors import DataError
from noonward.live.operator import cancel_job
from noonward.live.requests import JobRequest
from noonward.live.store.dependencies import NEVER_S, let_arrive
from noonward.live.store.retention import _OF_JOBS
from noonward.live.store.submit import submission
from noonward.live.why import why


def submit(live, **given):
    return live.submit(JobRequest(**{"name": "a", "work": 600.0, "origin": "north", **given}))[0]


def states(live):
    return [row["state"] for row in live.store.read("SELECT state FROM jobs ORDER BY id")]


def step(live, seconds):
    live.set_time(seconds)
    live.steps()


def test_a_job_arrives_once_all_that_it_comes_after_are_done(live):
    first, second = submit(live), submit(live, work=1200.0)
    third = submit(live, after=(first, second, first), max_delay_s=120.0)
    step(live, 60.0)
    assert states(live) == ["starting", "starting", "submitted"]
    assert why(live.controller, third).waits_for == f"the end of jobs {first}, {second}"
    step(live, 720.0)
    step(live, 780.0)
    assert states(live)[0] == "done"
    assert why(live.controller, third).waits_for == f"the end of job {second}"
    for seconds in (1320.0, 1380.0):  # beyond its delay since it was submitted
        step(live, seconds)
    row = live.store.read("SELECT arrival_s, submitted_s FROM jobs WHERE id = ?", third)[0]
    assert (row["submitted_s"], row["arrival_s"]) == (0.0, 1320.0)
    assert states(live)[2] == "running"
    assert live.store.read("SELECT * FROM needs") == []
    kinds = [row["kind"] for row in live.store.read("SELECT kind FROM events WHERE job = ? ORDER BY id", third)]
    assert kinds[:2] == ["submitted", "what it comes after is done"]


def test_what_comes_after_a_job_that_is_cancelled_is_cancelled_in_turn(live):
    first = submit(live, held=True)
    second = submit(live, after=(first,))
    submit(live, after=(second,))
    submit(live)
    live.store.do(
        lambda connection, now_s: connection.execute("UPDATE jobs SET state = 'failed' WHERE id = ?", (first,)) and None
    )
    step(live, 60.0)
    assert states(live) == ["failed", "cancelled", "cancelled", "starting"]
    reasons = [row["reason"] for row in live.store.read("SELECT reason FROM jobs ORDER BY id")][1:3]
    assert reasons == [
        f"it comes after job {first}, which is failed",
        f"it comes after job {second}, which is cancelled",
    ]


def test_a_job_that_was_cancelled_by_hand_needs_nothing_any_more(live):
    first = submit(live)
    second = submit(live, after=(first,))
    cancel_job(live.controller, second, "me")
    step(live, 60.0)
    assert states(live) == ["starting", "cancelled"]
    assert live.store.read("SELECT * FROM needs") == []


def test_a_job_comes_after_jobs_that_there_are(live):
    first = submit(live)
    for after in ((first, 9), (2,), (0,)):
        with pytest.raises(DataError, match=r"comes after job .*, which there is not"):
            submit(live, after=after)
    assert states(live) == ["submitted"]  # all or none


def test_a_repeated_submission_stores_its_needs_once(live):
    first = submit(live)
    rows = [live.checker.row(JobRequest(name="a", work=1.0, origin="north", key="k", after=(first,)))]
    assert live.store.do(submission(rows)) == ([2], 1)
    assert live.store.do(submission(rows)) == ([2], 0)
    assert [tuple(row) for row in live.store.read("SELECT * FROM needs")] == [(2, 1)]


def test_waiting_for_others_outlives_a_restart_and_a_clock_that_is_set_back(live):
    first = submit(live)
    second = submit(live, after=(first,))
    step(live, 60.0)
    live.restart()
    live.store.do(
        lambda connection, now_s: (
            connection.execute("UPDATE jobs SET arrival_s = ? WHERE id = ?", (NEVER_S - 86400.0, second)) and None
        )
    )
    step(live, 720.0)
    step(live, 780.0)
    step(live, 840.0)
    assert states(live) == ["done", "running"]


def test_needs_are_deleted_with_their_job_and_cost_nothing_where_there_are_none(live):
    assert "needs" in _OF_JOBS
    submit(live)
    commits = live.store.commits
    let_arrive(live.store)
    assert live.store.commits == commits
