"""Energy and latency per decision sum to what the jobs took; nothing degenerates where every GPU is busy."""

from typing import Any

import numpy as np
import pytest

from noonward import build_environment, load_scenario
from noonward.decision.cluster.observation import Observation
from noonward.engine.cluster.batch import BatchEngine
from noonward.engine.cluster.service_meter import PLACES, EnergyMix, ServiceMeter
from noonward.ledger.settle import settle_segment
from noonward.model.limits import MAY_EXCEED, Constraints

LIMITS = Constraints(
    mean_latency_s=1000.0, p99_latency_s=2000.0, queue_max={"us-east": 0.5}, power_cap_w={"eu-west": 9000.0}
).limits(load_scenario("dvfs-training").fleet.site_names)


def engine_of(*settings: str, rows: int = 2, name: str = "dvfs-training", pue: float = 1.0) -> BatchEngine:
    scenario = load_scenario(name, ["window_h=2", *settings])
    sites = [site.model_copy(update={"pue": pue}) for site in scenario.fleet.sites]
    scenario = scenario.model_copy(update={"fleet": scenario.fleet.model_copy(update={"sites": sites})})
    environments = [build_environment(scenario, row, 0) for row in range(rows)]
    return BatchEngine(environments, Observation(kind="paper", protocol="on-arrival"), seeds=[0] * rows)


def play(engine: BatchEngine, meter: ServiceMeter, seed: int = 0) -> tuple[Any, Any]:
    """Plays random feasible choices to the end; returns the sums of rewards and costs."""
    rng = np.random.default_rng(seed)
    reward_B, cost_BK = 0.0, 0.0
    while not engine.done_B.all():
        engine.step((engine.mask_BNA * rng.random(engine.mask_BNA.shape)).argmax(2))
        step_B, step_BK = meter.read()
        assert np.isfinite(step_B).all()
        assert np.isfinite(step_BK).all()
        reward_B, cost_BK = reward_B + step_B, cost_BK + step_BK
    return reward_B, cost_BK


@pytest.mark.parametrize("settings", [(), ("jobs.rate_per_s=0.3", "window_h=1")], ids=("room", "overloaded"))
def test_credits_sum_to_what_the_jobs_took(settings: tuple[str, ...]) -> None:
    engine = engine_of(*settings)
    meter = ServiceMeter(engine, LIMITS, 100.0)
    reward_B, cost_BK = play(engine, meter)
    free_w = np.array([28.0, 28.0, 25.0, 35.0, 8.0, 35.0, 12.0, 10.0])
    for row in range(2):
        outcome = engine.outcome(row)
        track, jobs = outcome.job_J, outcome.environment.jobs
        decided = np.flatnonzero(track["site"] >= 0)
        started = decided[~np.isnan(track["start_s"][decided])]
        run_s = track["finish_s"] - track["start_s"]
        joules = ((track["power_w"] - track["gpus"] * free_w[track["site"]]) * run_s)[started].sum()
        latency_s = (track["finish_s"] - jobs.arrival_s_J)[started]
        waiting = len(decided) - len(started)
        assert bool(waiting > PLACES) == bool(settings)
        if not settings:
            assert -reward_B[row] * 100.0 == pytest.approx(joules, rel=1e-9)
            assert (cost_BK[row, 0] + len(decided)) * 1000.0 == pytest.approx(latency_s.sum(), rel=1e-9)
            late = (latency_s > 2000.0).sum()
            assert (cost_BK[row, 1] + len(decided)) * MAY_EXCEED == pytest.approx(late, abs=1e-6)
        else:
            assert (cost_BK[row, 0] + len(decided)) * 1000.0 > latency_s.sum()
        assert cost_BK[row, -2] * 100.0 == pytest.approx(jobs.work_J[decided].sum(), rel=1e-9)
        assert cost_BK[row, -1] == len(decided)


@pytest.mark.parametrize(
    ("mix", "weight_3"),
    [
        (EnergyMix(), (1.0, 0.0, 0.0)),
        (EnergyMix(energy=0.0, usd=1.0), (0.0, 3.6e9 / 100, 0.0)),
        (EnergyMix(energy=0.0, carbon=2.0), (0.0, 0.0, 2 * 3.6e9 / 500)),
        (EnergyMix(energy=0.5, usd=0.25, carbon=1.0), (0.5, 0.25 * 3.6e9 / 100, 3.6e9 / 500)),
    ],
    ids=("energy", "usd", "carbon", "all"),
)
def test_weighed_energy_is_what_the_ledger_settles(mix: EnergyMix, weight_3: Any) -> None:
    engine = engine_of(rows=1, name="dvfs-mixed", pue=1.3)
    meter = ServiceMeter(engine, (), 100.0, mix)
    reward_B, _ = play(engine, meter)
    outcome = engine.outcome(0)
    track, market = outcome.job_J, outcome.environment.site_signals
    free_w = np.array([28.0, 28.0, 25.0, 35.0, 8.0, 35.0, 12.0, 10.0])
    total = 0.0
    for job in np.flatnonzero(~np.isnan(track["start_s"])):
        one = track[job]
        watts = float(one["power_w"] - one["gpus"] * free_w[one["site"]] * 1.3)
        sums = tuple(market.cumulative_QSP)
        kwh, usd, kg = settle_segment(*sums, int(one["site"]), one["start_s"], one["finish_s"], watts, market.part_s)
        total += weight_3[0] * 3.6e6 * kwh + weight_3[1] * usd + weight_3[2] * kg
    assert -reward_B[0] * 100.0 == pytest.approx(total, rel=1e-9)


def test_preferences_charge_the_time_in_system_of_each_class() -> None:
    weights = "latency_weight_w={training: 3, inference: 500}"
    engine, plain = engine_of(weights, rows=1, name="dvfs-mixed"), engine_of(rows=1, name="dvfs-mixed")
    reward_B, cost_BK = play(engine, ServiceMeter(engine, LIMITS, 100.0))
    plain_B, plain_BK = play(plain, ServiceMeter(plain, LIMITS, 100.0))
    outcome = engine.outcome(0)
    jobs, track = outcome.environment.jobs, outcome.job_J
    decided_J = track["site"] >= 0
    assert not np.isnan(track["start_s"][decided_J]).any()
    latency_s_J = (track["finish_s"] - jobs.arrival_s_J)[decided_J]
    names = outcome.environment.fleet.classes
    second_J = np.array([{"training": 3.0, "inference": 500.0}[names[c]] for c in jobs.class_J[decided_J]])
    assert (plain_B - reward_B)[0] * 100.0 == pytest.approx((second_J * latency_s_J).sum(), rel=1e-9)
    np.testing.assert_array_equal(cost_BK, plain_BK)


def test_queues_and_powers_are_those_of_the_next_question() -> None:
    """A power cap is charged to the decisions that sent a job to the site alone."""
    engine = engine_of("jobs.rate_per_s=0.2", "window_h=1", rows=1)
    meter = ServiceMeter(engine, LIMITS, 100.0)
    rng, seen, waited = np.random.default_rng(1), set(), set()
    while not engine.done_B.all():
        choice_BN = (engine.mask_BNA * rng.random(engine.mask_BNA.shape)).argmax(2)
        engine.step(choice_BN)
        _, cost_BK = meter.read()
        view, there = engine.row_view(0), choice_BN[0, 0] // 8 == 2
        assert cost_BK[0, 2] == (view.waiting_S[1] - 0.5) / 0.5
        power_w = engine._worlds[0].state_S["busy_w"][2] + view.site_S["free"][2] * 25.0
        over = bool(there and power_w > 9000.0)
        assert cost_BK[0, 3] == (1.0 / MAY_EXCEED if over else 0.0) - 1.0
        seen.add((bool(there), bool(power_w > 9000.0)))
        waited.add(bool(view.waiting_S[1]))
    assert len(seen) == 4
    assert len(waited) == 2


def test_names_follow_the_columns() -> None:
    engine = engine_of(rows=1)
    names = tuple(limit.name for limit in LIMITS)
    assert names == ("mean_latency_s", "p99_latency_s", "queue/us-east", "power_w/eu-west")
    assert ServiceMeter(engine, LIMITS, 1.0).read()[1].shape == (1, len(names) + 2)
    assert ServiceMeter(engine, (), 1.0).read()[1].shape == (1, 2)


def test_a_meter_goes_on_from_a_state_and_forgets_a_row() -> None:
    engine = engine_of("jobs.rate_per_s=0.3")
    meter = ServiceMeter(engine, LIMITS, 100.0)
    rng = np.random.default_rng(0)
    for _ in range(1500):
        engine.step((engine.mask_BNA * rng.random(engine.mask_BNA.shape)).argmax(2))
        meter.read()
    other = ServiceMeter(engine, LIMITS, 100.0)
    other.load_state(meter.state())
    engine.step((engine.mask_BNA * rng.random(engine.mask_BNA.shape)).argmax(2))
    for one, two in zip(meter.read(), other.read(), strict=True):
        assert one.tobytes() == two.tobytes()
    engine.reset(0, engine.environments[0], 0)
    meter.begin(0)
    engine.step(engine.mask_BNA.argmax(2))
    assert meter.read()[1][0, -1] == 1.0
    assert meter.state()["count_B"][0] <= 1
