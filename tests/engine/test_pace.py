"""A long run tells how far it is, with an estimate that moves."""

import itertools

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.cluster import pace
from noonward.engine.run import run
from noonward.notices import listening
from noonward.schedule.policies import make_scheduler


def told(monkeypatch, policy, *settings, seconds=2.0):
    """What a run tells on a clock that passes some seconds each time it is looked at."""
    ticks = itertools.count(0.0, seconds)
    monkeypatch.setattr(pace.time, "monotonic", lambda: next(ticks))
    found = []
    with listening(lambda kind, about: found.append(about) if kind == "within" else None):
        run(build_environment(load_scenario("tiny", settings)), make_scheduler(policy), compiled=False)
    return found


def test_a_run_tells_how_many_jobs_have_arrived_and_how_long_the_rest_takes(monkeypatch):
    found = told(monkeypatch, "booked-persistence")
    arrived = [int(line.split()[0]) for line in found]
    assert len(found) > 3
    assert arrived == sorted(arrived)
    assert arrived[0] < arrived[-1]
    for line, jobs in zip(found, arrived, strict=True):
        assert line.endswith(" left" if jobs > arrived[0] else " jobs")


def test_the_estimate_is_the_pace_since_the_first_notice(monkeypatch):
    """An hour passes before the second job, as when functions are compiled; then a job a second."""
    clock = [0.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: clock[0])
    found, one = [], pace.Pace(400)
    with listening(lambda kind, about: found.append((kind, about))):
        for clock[0], arrived in ((3600.0, 2), (3602.0, 4), (3698.0, 100), (3699.0, 101)):
            one.note(arrived)
    assert found == [("within", "2 of 400 jobs"), ("within", "100 of 400 jobs, about 5 min left")]


def test_a_short_run_tells_nothing(monkeypatch):
    assert told(monkeypatch, "booked-persistence", seconds=0.0) == []
