"""The published tables of CHSAC-AF and the controls beside them, seven days of the paper-exact stream."""

import functools
from datetime import UTC, datetime

import numpy as np
import pytest

from noonward.data.jobs.generate import paper_stream_jobs
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.ledger.segments import DONE
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import PaperStreamJobs
from noonward.schedule.policies import make_scheduler
from reference import on_arrival

DAY_S = 86400.0


@functools.cache
def environment(routed, days=7):
    scenario = load_scenario("dvfs-training")
    window_s = days * DAY_S
    return Environment(
        scenario=scenario.name,
        index=0,
        seed=123,
        start=datetime(2022, 1, 1, tzinfo=UTC),
        protocol="on-arrival",
        slot_s=60.0,
        window_s=window_s,
        drained=False,
        fleet=scenario.fleet,
        links=scenario.network.links(scenario.fleet),
        jobs=paper_stream_jobs(PaperStreamJobs(source="paper-stream", routed=routed), scenario.fleet, window_s),
    )


def queued(track, time_s):
    """Jobs that have joined a queue and do not run yet."""
    return int(((track["reach_s"] <= time_s) & ~(track["start_s"] <= time_s)).sum())


@pytest.mark.parametrize(
    ("policy", "completed", "queue_by_day"),
    [
        ("dp", 60595, [9996, 15166, 20271, 25672, 30957, 36083]),
        ("ucb1", 63111, [9401, 14224, 19007, 24055, 28868, 33572]),
        ("jointnf", 67396, [8059, 12228, 16382, 20712, 24889, 28908]),
    ],
)
def test_baselines_complete_and_queue_as_published(policy, completed, queue_by_day):
    track = run(environment(routed=True), make_scheduler(policy)).job_J
    assert (track["status"] == DONE).sum() == completed
    assert [queued(track, day * DAY_S) for day in range(2, 8)] == queue_by_day


@pytest.mark.parametrize(
    ("policy", "routed", "completed", "queue"),
    [
        ("most-free(gpus=1)", False, 96055, 0),
        ("greedy-energy(gpus=1)", False, 96001, 0),
        ("greedy-energy(gpus=8)", False, 96525, 0),
        ("uniform", True, 62810, None),
    ],
)
def test_controls_complete_as_measured(policy, routed, completed, queue):
    track = run(environment(routed), make_scheduler(policy)).job_J
    assert (track["status"] == DONE).sum() == completed
    assert queue in (None, queued(track, 7 * DAY_S))


@pytest.mark.parametrize(
    ("policy", "name"),
    [("dp", "DP"), ("ucb1", "UCB1"), ("jointnf", "JointNF"), ("greedy-energy(gpus=8)", "greedy, n=8")],
)
def test_first_day_equals_the_slow_simulator_job_by_job(policy, name):
    options = on_arrival.policies()[name]
    figures, jobs, _ = on_arrival.run(**options, days=1)
    outcome = run(environment(options["choose"], days=1), make_scheduler(policy))
    for column in ("site", "reach_s", "start_s", "finish_s"):
        np.testing.assert_array_equal(outcome.job_J[column], [getattr(job, column) for job in jobs])
    started = outcome.job_J["start_s"] >= 0
    for column in ("gpus", "level"):
        expected = np.array([getattr(job, column) for job in jobs])[started]
        np.testing.assert_array_equal(outcome.job_J[column][started], expected)
    joules = 3.6e6 * (outcome.meters.busy_kwh_S.sum() + outcome.meters.free_kwh_S.sum())
    assert joules == pytest.approx(figures["energy_j"], rel=1e-9)
