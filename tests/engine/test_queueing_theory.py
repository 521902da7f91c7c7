"""Mean waits of the on-arrival protocol against queueing theory."""

import math

import numpy as np
import pytest

from noonward.engine.run import run
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.network import Network
from noonward.schedule.cluster.routing import Router
from reference.small_worlds import START

JOBS, WARM_UP = 150_000, 5_000
SEEDS = range(8)
T_999 = 5.41
"""Two-sided 99.9 % quantile of Student's t with 7 degrees of freedom."""


def waits_s(gpus, arrival_s, work_s):
    """Waits of jobs of one GPU at a single site."""
    kind = {"idle_w": 0.0, "classes": {"job": {"power": {"constant_w": 1.0}}}}
    fleet = Fleet.model_validate(
        {"gpu_types": {"gpu": kind}, "sites": ({"name": "site", "zone": "Z", "gpu_type": "gpu", "gpus": gpus},)}
    )
    environment = Environment(
        scenario="queue",
        index=0,
        seed=0,
        start=START,
        protocol="on-arrival",
        slot_s=60.0,
        window_s=3600.0 * math.ceil(2 * arrival_s[-1] / 3600.0),
        drained=False,
        fleet=fleet,
        links=Network().links(fleet),
        jobs=Jobs.build(arrival_s=arrival_s, work=work_s),
    )
    track = run(environment, Router("uniform")).job_J
    return track["start_s"] - arrival_s


def check_mean_wait(gpus, rate_per_s, draw_work_s, expected_s):
    means = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        arrival_s = np.cumsum(rng.exponential(1 / rate_per_s, JOBS))
        means.append(waits_s(gpus, arrival_s, draw_work_s(rng))[WARM_UP:].mean())
    half_width_s = T_999 * np.std(means, ddof=1) / math.sqrt(len(means))
    assert half_width_s < 0.1 * expected_s, "the interval is too wide to show anything"
    assert np.mean(means) == pytest.approx(expected_s, abs=half_width_s)


def erlang_c(servers, load):
    """Probability to wait in M/M/c, with load = arrival rate x mean service time."""
    below = sum(load**k / math.factorial(k) for k in range(servers))
    above = load**servers / math.factorial(servers) * servers / (servers - load)
    return above / (below + above)


@pytest.mark.parametrize(("gpus", "utilisation"), [(1, 0.7), (3, 0.8), (10, 0.8)])
def test_mean_wait_of_m_m_c_is_erlang_c(gpus, utilisation):
    # W = C(c, a) / (c mu - lambda), with mu = 1 / 100 s.
    rate = utilisation * gpus / 100
    expected = erlang_c(gpus, utilisation * gpus) / (gpus / 100 - rate)
    check_mean_wait(gpus, rate, lambda rng: rng.exponential(100.0, JOBS), expected)


def test_mean_wait_of_m_d_1_is_pollaczek_khinchine():
    # W = rho D / (2 (1 - rho)) with D = 100 s and rho = 0.8: 200 s.
    check_mean_wait(1, 0.008, lambda rng: np.full(JOBS, 100.0), 200.0)
