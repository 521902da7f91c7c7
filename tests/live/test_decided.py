"""Decisions that are written in parts: whole whatever happens between two of them."""

import gc
import itertools
import queue
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from noonward.engine.run import run
from noonward.errors import FileError
from noonward.live import books, decided, turns
from noonward.live.journal import replay_journal
from noonward.live.operator import cancel_job
from noonward.live.requests import JobRequest
from noonward.live.store.database import StoreError
from noonward.schedule.policies import make_scheduler

POLICIES = [("booked-persistence", "each-slot"), ("local-fcfs", "each-slot"), ("dp-max-clock", "on-arrival")]
JOB = JobRequest(name="a", work=600.0, class_="fine-tuning", origin="north", gpus_min=1, gpus_max=1)
COUNTS = {
    "outbox": "SELECT job, count(*) AS n FROM outbox GROUP BY job",
    "starts": "SELECT job, count(*) AS n FROM events WHERE kind = 'start decided' GROUP BY job",
}


class KilledError(BaseException):
    """The service ends here."""


def left(live):
    return [row["name"] for row in live.store.read("SELECT name FROM meta WHERE name LIKE 'part.%' ORDER BY name")]


def counts(live):
    decisions = live.store.read("SELECT at_s, job, attempt, choice FROM decisions ORDER BY at_s, job, id")
    return [tuple(row) for row in decisions], {
        name: {row["job"]: row["n"] for row in live.store.read(query)} for name, query in COUNTS.items()
    }


def saw(live):
    """What every decision saw, and of how many texts each decision names one."""
    rows = live.store.read(
        "SELECT d.at_s, d.job, d.attempt, d.candidates, s.sites FROM decisions d LEFT JOIN seen s ON s.id = d.seen "
        "ORDER BY d.at_s, d.job, d.id"
    )
    return [tuple(row) for row in rows], live.store.read("SELECT count(*) AS n FROM seen")[0]["n"]


def test_jobs_that_wait_share_what_was_seen_when_they_were_held(live, monkeypatch):
    monkeypatch.setattr(decided, "PART", 2)
    large = JobRequest(name="a", work=6e5, class_="fine-tuning", origin="north", gpus_min=8, gpus_max=8)
    live.submit(*[large] * 6)
    live.set_time(60.0)
    live.controller.decide()
    rows, texts = saw(live)
    assert len(rows) == 6
    assert all(sites is not None for *_, sites in rows)
    assert len({sites for *_, sites in rows}) == texts < 6


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize(("policy", "protocol"), POLICIES)
def test_a_service_that_is_killed_between_parts_decides_as_if_it_had_not_been(
    service, monkeypatch, policy, protocol, written
):
    crowded = f"protocol={protocol}", "slot_s=900", "jobs.count=90", "fleet.sites.0.gpus=2", "fleet.sites.1.gpus=2"
    whole = service(policy, *crowded, "jobs.gpus_cap=2")
    whole.play()
    monkeypatch.setattr(decided, "PART", 1)
    monkeypatch.setattr(books, "ENTRY", 2)
    live, calls, kills = service(policy, *crowded, "jobs.gpus_cap=2"), 0, []
    write, steps = books.write_part, live.steps

    def killed(store, name, part):
        nonlocal calls
        calls += 1
        if calls % 2 == 0:
            if written:
                write(store, name, part)
            kills.append(len(left(live)))
            raise KilledError
        return write(store, name, part)

    def steps_again():
        try:
            steps()
        except KilledError:
            live.restart()
            assert left(live) == []
            steps()

    monkeypatch.setattr(books, "write_part", killed)
    live.steps = steps_again
    live.play()
    assert len(kills) > 10
    assert max(kills) > 1, "more than one part was left"
    start_s_J = run(live.environment, make_scheduler(policy)).job_J["start_s"]
    rows = live.store.read("SELECT * FROM jobs ORDER BY arrival_s, id")
    found = [np.nan if row["start_s"] is None else row["start_s"] for row in rows]
    np.testing.assert_array_equal(found, start_s_J)
    assert counts(live) == counts(whole)
    assert set(counts(live)[1]["outbox"].values()) == {1}
    assert saw(live) == saw(whole)
    assert replay_journal(live.controller.setup, live.store).same


def test_parts_that_cannot_be_written_are_written_once_by_the_next_decision(live, monkeypatch):
    monkeypatch.setattr(decided, "PART", 2)
    write, fails = books.write_part, iter([False, True, True])

    def failing(store, name, part):
        if next(fails, False):
            raise StoreError("the disk is full")
        return write(store, name, part)

    monkeypatch.setattr(books, "write_part", failing)
    live.submit(*[JOB] * 5)
    live.set_time(60.0)
    for _ in range(2):
        with pytest.raises(StoreError):
            live.controller.decide()
        assert len(left(live)) == 10, "3 parts of events, 3 of decisions, 5 of jobs; one is written"
        live.set_time(live.clock.seconds + 60.0)
    live.controller.decide()
    assert left(live) == []
    assert counts(live)[1] == {"outbox": dict.fromkeys(range(1, 6), 1), "starts": dict.fromkeys(range(1, 6), 1)}
    assert {row["state"] for row in live.store.read("SELECT state FROM jobs")} == {"starting"}


@pytest.mark.parametrize(
    ("packed", "by"),
    [
        (lambda part: msgspec.msgpack.encode(("form", "0.0.9", part)), "another build of noonward, of version 0.0.9"),
        (msgspec.msgpack.encode, "an older build of noonward"),
        (lambda part: msgspec.msgpack.encode((decided.FORM, "0.1.0", [1.0, "jobs"])), "an older build of noonward"),
    ],
)
def test_a_decision_that_another_build_did_not_write_to_the_end_is_left_to_it(live, monkeypatch, packed, by):
    monkeypatch.setattr(decided, "PART", 2)

    def killed(store, name, part):
        raise KilledError

    with monkeypatch.context() as other:
        for module in (decided, books):
            other.setattr(module, "packed", packed)
        other.setattr(books, "kept_part", lambda store, name: None)
        other.setattr(books, "write_part", killed)
        live.submit(*[JOB] * 5)
        live.set_time(60.0)
        with pytest.raises(KilledError):
            live.controller.decide()
    before = live.store.read("SELECT * FROM meta ORDER BY name"), left(live)
    with pytest.raises(FileError, match=f"{by}.* nothing was changed. Start that one"):
        live.restart()
    assert ([*map(tuple, live.store.read("SELECT * FROM meta ORDER BY name"))], left(live)) == (
        [*map(tuple, before[0])],
        before[1],
    )
    assert len(before[1]) == 11


def test_jobs_are_submitted_and_cancelled_between_parts(live, monkeypatch):
    monkeypatch.setattr(decided, "PART", 2)
    write, between = books.write_part, []

    def interrupted(store, name, part):
        if part.jobs and not between:
            between.append(live.submit(JOB)[0])
            cancel_job(live.controller, 4, "me")
        return write(store, name, part)

    monkeypatch.setattr(books, "write_part", interrupted)
    live.submit(*[JOB] * 5)
    live.set_time(60.0)
    free = int(live.controller.world.view.site_S["free"].sum())
    live.controller.decide()
    assert between == [6]
    states = {row["id"]: row["state"] for row in live.store.read("SELECT id, state FROM jobs")}
    assert states == dict.fromkeys((1, 2, 3, 5), "starting") | {4: "cancelled", 6: "submitted"}
    assert set(counts(live)[1]["outbox"]) == {1, 2, 3, 5}
    live.set_time(120.0)
    live.controller.decide()
    assert int(live.controller.world.view.site_S["free"].sum()) == free - 5, "the cancelled job gave its GPU back"


def test_what_names_a_site_is_named_before_it_is_kept(live, monkeypatch):
    monkeypatch.setattr(decided, "PART", 1)
    kept = []
    monkeypatch.setattr(books, "write_part", lambda store, name, part: kept.append(part) or [])
    live.submit(JOB, JOB)
    live.set_time(60.0)
    live.controller.decide()
    assert [part.jobs[0][2] for part in kept if part.jobs] == ["north", "north"]
    assert [part.decisions[0][6] for part in kept if part.decisions] == ["north", "north"]


@pytest.fixture
def rests(live, monkeypatch):
    """What is done at each rest of a long computation; every turn is over at once."""
    done = []
    clock = SimpleNamespace(
        perf_counter=itertools.count().__next__, process_time=lambda: 0.0, sleep=lambda _: [one() for one in done]
    )
    monkeypatch.setattr(turns, "time", clock)
    return done


def test_jobs_are_submitted_between_the_questions_of_one_decision(live, rests):
    live.submit(*[JOB] * 5)
    live.set_time(90.0)  # what comes now is of the next slot
    world, asked = live.controller.world, []

    def submit():
        asked.append(world.asks)
        live.submit(JOB)

    rests.append(submit)
    with turns.in_turns():
        live.controller.decide()
    assert set(asked) >= set(range(5)), "it rests before each question"
    rows = live.store.read("SELECT id, state FROM jobs ORDER BY id")
    assert [row["state"] for row in rows] == ["starting"] * 5 + ["submitted"] * len(asked)


def test_jobs_are_submitted_while_new_ones_are_read_and_parts_are_kept(live, rests, monkeypatch):
    monkeypatch.setattr(decided, "PART", 1)
    live.submit(*[JOB] * 3)
    live.set_time(90.0)  # what comes now is of the next slot
    at, ids = [], []

    def submit():
        at.append((live.controller.world.serial, len(left(live))))
        ids.extend(live.submit(JOB))

    rests.append(submit)
    with turns.in_turns():
        live.controller.decide()
    assert (0, 0) in at, "while jobs are read"
    assert {(3, n) for n in range(9)} <= set(at), "between parts, as they are kept and as they are written"
    assert set(counts(live)[1]["outbox"]) == {1, 2, 3}
    assert ids == list(range(4, 4 + len(at)))


def test_a_thread_that_does_not_work_in_turns_never_rests(live, rests):
    rests.append(lambda: pytest.fail("it rests"))
    live.submit(JOB)
    live.set_time(60.0)
    live.controller.decide()


def test_the_loop_that_decides_works_in_turns(live, monkeypatch):
    seen = queue.SimpleQueue()
    monkeypatch.setattr(live.controller, "decide", lambda: seen.put(gc.get_threshold()))
    usual = gc.get_threshold()
    live.controller.run()
    try:
        assert seen.get(timeout=60.0)[2] > usual[2], "garbage collection passes over old objects meanwhile"
    finally:
        live.controller.stop()
    assert gc.get_threshold() == usual


@pytest.mark.parametrize(("size", "changes"), [(1, 14), (decided.KEPT_BYTES, 1)])
def test_parts_are_kept_together_as_far_as_they_are_small(live, monkeypatch, size, changes):
    monkeypatch.setattr(decided, "PART", 1)
    monkeypatch.setattr(decided, "KEPT_BYTES", size)
    changes_of, do = [0], live.store.do

    def counted(change):
        changes_of[-1] += 1
        return do(change)

    def finished(store, name, part):
        changes_of.append(0)
        return decided.write_part(store, name, part)

    live.submit(*[JOB] * 5)
    live.set_time(60.0)
    monkeypatch.setattr(live.store, "do", counted)
    monkeypatch.setattr(books, "keep_parts", lambda *given: changes_of.append(0) or decided.keep_parts(*given))
    monkeypatch.setattr(books, "write_part", finished)
    live.controller.decide()
    _, kept, *_ = changes_of
    assert kept == changes + 1, "and one that makes the decision"
    assert counts(live)[1]["starts"] == dict.fromkeys(range(1, 6), 1)


def test_a_decision_whose_last_part_was_not_kept_is_made_anew(live, monkeypatch):
    monkeypatch.setattr(decided, "PART", 1)
    keep = books.keep_parts

    def killed(store, parts):
        keep(store, itertools.islice(parts, 4))
        raise KilledError

    monkeypatch.setattr(books, "keep_parts", killed)
    live.submit(*[JOB] * 3)
    live.set_time(60.0)
    with pytest.raises(KilledError):
        live.controller.decide()
    assert len(left(live)) == 4
    monkeypatch.setattr(books, "keep_parts", keep)
    live.restart()
    assert left(live) == []
    assert {row["state"] for row in live.store.read("SELECT state FROM jobs")} == {"submitted"}
    live.set_time(120.0)
    live.controller.decide()
    assert counts(live)[1] == {"outbox": dict.fromkeys(range(1, 4), 1), "starts": dict.fromkeys(range(1, 4), 1)}


def test_parts_that_could_not_all_be_kept_are_kept_anew(live, monkeypatch):
    monkeypatch.setattr(decided, "PART", 1)
    keep = books.keep_parts

    def failing(store, parts):
        keep(store, itertools.islice(parts, 4))
        monkeypatch.setattr(books, "keep_parts", keep)
        raise StoreError("the disk is full")

    monkeypatch.setattr(books, "keep_parts", failing)
    live.submit(*[JOB] * 3)
    live.set_time(60.0)
    with pytest.raises(StoreError):
        live.controller.decide()
    live.set_time(120.0)
    live.controller.decide()
    assert left(live) == []
    assert counts(live)[1] == {"outbox": dict.fromkeys(range(1, 4), 1), "starts": dict.fromkeys(range(1, 4), 1)}


def test_a_journal_of_many_entries_is_written_in_parts_and_replayed(live, monkeypatch):
    monkeypatch.setattr(books, "ENTRY", 2)
    monkeypatch.setattr(books, "PAGE", 2)
    live.submit(*[JOB] * 5)
    live.set_time(60.0)
    written, do = [], live.store.do

    def counted(change):
        before = live.store.read("SELECT count(*) AS n FROM journal")[0]["n"]
        done = do(change)
        written.append(live.store.read("SELECT count(*) AS n FROM journal")[0]["n"] - before)
        return done

    monkeypatch.setattr(live.store, "do", counted)
    live.controller.decide()
    assert sum(written) == 4, "5 arrivals, the opening and the run, two at a time"
    assert max(written) == 1
    assert live.controller.world.journal == []
    assert replay_journal(live.controller.setup, live.store).same
