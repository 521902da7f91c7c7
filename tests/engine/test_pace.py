"""A long run tells how far it is."""

import itertools
import re

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


def test_a_run_tells_how_many_jobs_have_arrived(monkeypatch):
    found = told(monkeypatch, "booked-persistence")
    arrived = [int(line.split()[0]) for line in found]
    assert len(found) > 3
    assert arrived == sorted(arrived)
    assert arrived[0] < arrived[-1]
    assert all(re.fullmatch(r"\d+ of \d+ jobs", line) for line in found)


def test_a_short_run_tells_nothing(monkeypatch):
    assert told(monkeypatch, "booked-persistence", seconds=0.0) == []
