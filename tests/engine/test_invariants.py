"""What holds for every run, whatever the world and the answers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonward.decision.brief import Brief
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.cluster.kernels.world import arrays_of
from noonward.engine.run import run
from noonward.ledger.segments import DONE, OVERDUE, RUNNING
from noonward.model.cluster.environment import GpuCaps
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from reference import small_worlds

PROTOCOLS = ("each-slot", "on-arrival")
NAMES = {
    "each-slot": (
        "local-fcfs",
        "price-greedy",
        "random",
        "most-free",
        "cheapest-feasible",
        "patient",
        "booked-persistence",
        "bid-price-persistence",
    ),
    "on-arrival": ("ucb1", "jointnf", "uniform", "random-free", "most-free(gpus=3)", "greedy-energy(gpus=2)"),
}


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compiles all rules before worlds are drawn: Hypothesis takes the time of a draw for slow input."""
    for protocol, names in NAMES.items():
        environment = small_worlds.draw(0, protocol, signals=True, history_h=24).environment()
        for name in names:
            run(environment, make_scheduler(name), rewards=True)


@st.composite
def runs(draw, **options):
    """A random world under a random rule: (world, outcome with rewards)."""
    protocol = draw(st.sampled_from(PROTOCOLS))
    world = small_worlds.draw(draw(st.integers(0, 10**6)), protocol, signals=True, history_h=24, **options)
    name = draw(st.sampled_from(NAMES[protocol]))
    return world, run(world.environment(), make_scheduler(name), rewards=True)


many = settings(max_examples=100, deadline=None, derandomize=True)


def events(track, site):
    """Starts and finishes at a site as (time, finishes first, change of GPUs in use)."""
    mine = track[(track["site"] == site) & (track["start_s"] >= 0)]
    return sorted(
        [(job["start_s"], 1, int(job["gpus"])) for job in mine]
        + [(job["finish_s"], 0, -int(job["gpus"])) for job in mine]
    )


@many
@given(runs())
def test_gpus_in_use_never_exceed_the_sites(played):
    world, outcome = played
    for s, site in enumerate(world.sites):
        busy = 0
        for _, _, change in events(outcome.job_J, s):
            busy += change
            assert 0 <= busy <= site.gpus


@many
@given(runs(caps="hard"))
def test_no_start_exceeds_a_hard_cap(played):
    world, outcome = played
    for s in range(len(world.sites)):
        busy = 0
        for time_s, _, change in events(outcome.job_J, s):
            busy += change
            assert change < 0 or busy <= world.caps[s][int(time_s // 3600)]


@many
@given(st.integers(0, 10**6), st.sampled_from((("each-slot", "most-free"), ("on-arrival", "random-free"))))
def test_advisory_caps_are_metered_and_change_no_job(seed, case):
    protocol, name = case
    environment = small_worlds.draw(seed, protocol, caps="advisory").environment()
    outcome = run(environment, make_scheduler(name))
    without = run(replace(environment, caps=None), make_scheduler(name))
    assert outcome.job_J.tobytes() == without.job_J.tobytes()
    caps_SH = np.zeros_like(environment.caps.gpus_SH)
    nothing = run(replace(environment, caps=GpuCaps(gpus_SH=caps_SH, hard=False)), make_scheduler(name))
    np.testing.assert_allclose(nothing.over_cap_gpu_s_S, without.meters.gpu_s_S, rtol=1e-9)


@many
@given(runs(drained=True))
def test_drained_run_leaves_every_job_done_or_overdue(played):
    _, outcome = played
    track = outcome.job_J
    assert np.isin(track["status"], (DONE, OVERDUE)).all()
    assert ((track["status"] == DONE) == (track["start_s"] >= 0)).all()
    assert (track["finish_s"][track["status"] == DONE] <= outcome.ended_s).all()


@many
@given(runs(drained=False))
def test_run_to_the_window_ends_there(played):
    world, outcome = played
    track, window_s = outcome.job_J, world.window_h * 3600.0
    assert outcome.ended_s == window_s
    assert (track["finish_s"][track["status"] == DONE] <= window_s).all()
    assert (track["finish_s"][track["status"] == RUNNING] > window_s).all()
    assert np.isnan(track["start_s"][~np.isin(track["status"], (DONE, RUNNING))]).all()


@many
@given(runs())
def test_every_start_is_in_time_with_a_gang_in_range(played):
    world, outcome = played
    for record, job in zip(outcome.job_J, world.jobs(), strict=True):
        if not math.isnan(record["start_s"]):
            assert job.arrival_s <= record["reach_s"] <= record["start_s"] <= max(job.deadline_s, world.late_until_s)
            assert job.gpus_min <= record["gpus"] <= min(job.gpus_max, world.sites[record["site"]].gpus)
            assert 0 <= record["level"] < len(world.sites[record["site"]].clocks)


@many
@given(runs())
def test_energy_of_the_jobs_equals_energy_of_the_meters(played):
    world, outcome = played
    track, window_s = outcome.job_J, world.window_h * 3600.0
    meters = outcome.meters
    for s, site in enumerate(world.sites):
        mine = track[(track["site"] == s) & (track["start_s"] >= 0)]
        end_s = np.minimum(mine["finish_s"], outcome.ended_s)
        assert meters.busy_kwh_S[s] * 3.6e6 == pytest.approx(
            (mine["power_w"] * (end_s - mine["start_s"])).sum(), rel=1e-9
        )
        used = np.maximum(np.minimum(end_s, window_s) - mine["start_s"], 0.0) * mine["gpus"]
        free_w = site.free_w * site.pue
        assert meters.free_kwh_S[s] * 3.6e6 == pytest.approx(
            free_w * (site.gpus * window_s - used.sum()), rel=1e-9, abs=1e-6
        )
        assert meters.gpu_s_S[s] == pytest.approx((mine["gpus"] * (end_s - mine["start_s"])).sum(), rel=1e-9)


@many
@given(runs())
def test_rewards_sum_to_the_utility(played):
    _, outcome = played
    scale = np.abs(outcome.rewards_K).sum()
    assert math.fsum(outcome.rewards_K) == pytest.approx(outcome.meters.utility_usd, rel=1e-9, abs=1e-10 * scale)


def test_a_step_after_the_end_changes_nothing():
    for protocol in PROTOCOLS:
        environment = small_worlds.draw(3, protocol, drained=False).environment()
        scheduler = make_scheduler({"each-slot": "local-backfill", "on-arrival": "most-free(gpus=1)"}[protocol])
        engine = ClusterEngine(environment, scheduler)
        scheduler.reset(Brief.of(environment, scheduler.needs), stream(0, "policy"))
        while engine.step():
            scheduler.decide(engine.view, engine.answers)
        before = [part.tobytes() for part in arrays_of(engine.world).values()]
        assert engine.step() == 0
        assert before == [part.tobytes() for part in arrays_of(engine.world).values()]
