"""The ledger: every term by hand, what is unknown, and agreement with the engine's own meters."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ledger.two_jobs import FLEET, HOUR_S, PLAN, environment, played
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.ledger.ledger import Ledger, settle
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.network import Network
from noonward.schedule.policies import make_scheduler

MONEY = {
    "revenue_usd", "job_energy_usd", "free_energy_usd", "job_kg", "free_kg", "move_kg", "result_kg",
    "carbon_usd", "utility_usd", "fixed_usd", "fixed_kg", "late_usd",
}  # fmt: skip


@pytest.fixture(scope="module")
def ledger():
    """The ledger of the two jobs."""
    return settle(played())


def test_gpu_profit_is_revenue_less_energy(ledger):
    """U1."""
    assert ledger.gpu_hours == pytest.approx(2.0)
    assert ledger.revenue_usd == pytest.approx(2.0)
    # Job 0: 1.5 kW, half an hour at 100, half at 200. Job 1: 2 kW, half an hour at -50, half at 10.
    assert ledger.job_kwh == pytest.approx(1.5 + 2.0)
    assert ledger.job_energy_usd == pytest.approx(0.225 - 0.04)


def test_free_gpus_are_charged_within_the_window_only(ledger):
    """U2."""
    # Free all through: a 0.3 kW and b 0.2 kW for two hours. Job 0 takes 0.15 kW for an hour off, job 1 0.2 kW for the
    # half hour within the window, at a price of -50.
    assert ledger.free_kwh == pytest.approx(1.0 - 0.15 - 0.1)
    assert ledger.free_energy_usd == pytest.approx(0.09 - 0.0225 + 0.005)


def test_carbon_of_used_and_of_free_gpus(ledger):
    """U3."""
    assert ledger.job_kg == pytest.approx(1.5 * 0.5 + 2.0 * 0.3)
    assert ledger.free_kg == pytest.approx(0.36 - 0.15 * 0.5 - 0.1 * 0.2)


def test_a_migration_costs_and_emits_at_the_hour_it_leaves(ledger):
    """U4."""
    assert ledger.moves == 1
    assert ledger.move_usd == pytest.approx(0.10)  # 10 GB at 0.01
    assert ledger.move_kg == pytest.approx(0.05)  # 0.2 kWh at (400 + 100) / 2


def test_a_result_costs_and_emits_at_the_hour_the_job_ends(ledger):
    """U5."""
    assert ledger.result_usd == pytest.approx(0.05)  # 5 GB; the result of job 0 is at home
    assert ledger.result_kg == pytest.approx(0.06)  # 0.1 kWh at (800 + 400) / 2
    assert ledger.move_kwh == pytest.approx(0.2 + 0.1)


def test_the_utility_is_u1_less_the_rest(ledger):
    u1, u2 = 2.0 - 0.185, 0.0725
    u3 = 0.1 * (1.35 + 0.265)  # 0.1 USD/kg
    u4, u5 = 0.10 + 0.1 * 0.05, 0.05 + 0.1 * 0.06
    assert ledger.utility_usd == pytest.approx(u1 - u2 - u3 - u4 - u5)
    assert ledger.utility_usd == pytest.approx(1.42)
    assert ledger.carbon_usd == pytest.approx(0.1 * (1.35 + 0.265 + 0.05 + 0.06))


def test_what_no_policy_can_change_stands_apart(ledger):
    assert (ledger.fixed_kwh, ledger.fixed_kg) == pytest.approx((1.0, 0.36))
    assert ledger.fixed_usd == pytest.approx(0.09 + 0.1 * 0.36)
    assert ledger.controllable_usd == pytest.approx(1.42 + 0.126)
    idle = settle(played({}))
    assert idle.controllable_usd == pytest.approx(0.0, abs=1e-12)
    assert (idle.fixed_usd, idle.fixed_kwh) == (ledger.fixed_usd, ledger.fixed_kwh)


def test_sums_and_shares_follow_from_the_terms(ledger):
    assert ledger.energy_kwh == pytest.approx(3.5 + 0.75)
    assert ledger.energy_usd == pytest.approx(0.185 + 0.0725)
    assert ledger.carbon_kg == pytest.approx(1.35 + 0.265 + 0.05 + 0.06)
    assert ledger.usd_per_gpu_hour == pytest.approx(0.185 / 2)
    assert ledger.g_per_gpu_hour == pytest.approx(1350 / 2)
    assert ledger.units == pytest.approx(7200.0)
    assert ledger.joules_per_unit == pytest.approx(4.25 * 3.6e6 / 7200)


def test_times_are_those_of_done_jobs(ledger):
    assert (ledger.jobs, ledger.done, ledger.overdue, ledger.unfinished) == (2, 2, 0, 0)
    assert ledger.mean_wait_s == pytest.approx((0.5 + 1.5) / 2 * HOUR_S)
    assert ledger.mean_time_in_system_s == pytest.approx((1.5 + 2.5) / 2 * HOUR_S)
    assert ledger.p99_time_in_system_s == pytest.approx((1.5 + 0.99) * HOUR_S)
    assert ledger.mean_time_so_far_s == ledger.mean_time_in_system_s


def test_power_usage_effectiveness_scales_the_energy_of_used_and_free_gpus(ledger):
    sites = [site | {"pue": 2 * site["pue"]} for site in FLEET.model_dump()["sites"]]
    double = settle(played(fleet=Fleet.model_validate(FLEET.model_dump() | {"sites": sites})))
    for name in ("job_kwh", "free_kwh", "job_energy_usd", "free_energy_usd", "job_kg", "free_kg", "fixed_kwh"):
        assert getattr(double, name) == pytest.approx(2 * getattr(ledger, name)), name
    assert double.move_kg == ledger.move_kg


def test_an_overdue_job_is_counted_and_earns_nothing():
    one = settle(played({0: PLAN[0]}))
    assert (one.jobs, one.done, one.overdue, one.unfinished) == (2, 1, 1, 0)
    assert one.revenue_usd == pytest.approx(1.0)
    assert one.mean_wait_s == pytest.approx(0.5 * HOUR_S)
    assert one.mean_time_so_far_s == pytest.approx(1.5 * HOUR_S)
    none = settle(played({}))
    assert (none.done, none.overdue, none.gpu_hours, none.job_kwh) == (0, 2, 0.0, 0.0)
    assert none.job_energy_usd == 0.0
    assert math.isnan(none.mean_wait_s)
    assert math.isnan(none.usd_per_gpu_hour)
    assert math.isnan(none.joules_per_unit)
    assert math.isnan(none.mean_time_so_far_s)


def test_a_run_to_the_window_counts_what_has_run_by_then():
    cut = settle(played(drained=False))
    assert (cut.done, cut.overdue, cut.unfinished) == (1, 0, 1)
    assert cut.gpu_hours == pytest.approx(1.5)
    assert cut.units == pytest.approx(3600 + 1800)  # pro rata
    assert cut.job_kwh == pytest.approx(1.5 + 1.0)
    assert cut.job_energy_usd == pytest.approx(0.225 + 1.0 * -0.05)
    assert cut.free_kwh == pytest.approx(0.75)
    assert cut.result_usd == 0.0
    assert cut.move_usd == pytest.approx(0.10)
    assert cut.mean_time_in_system_s == pytest.approx(1.5 * HOUR_S)
    assert cut.mean_time_so_far_s == pytest.approx((1.5 + 2.0) / 2 * HOUR_S)


def test_without_signals_money_and_carbon_are_unknown(ledger):
    bare = settle(played(signals=None, economics=None))
    for name in ("job_kwh", "free_kwh", "fixed_kwh", "move_kwh", "gpu_hours", "units", "move_usd", "result_usd"):
        assert getattr(bare, name) == pytest.approx(getattr(ledger, name)), name
    assert {name for name, value in vars(bare).items() if isinstance(value, float) and math.isnan(value)} == MONEY
    assert math.isnan(bare.carbon_kg)
    assert math.isnan(settle(played({}, signals=None, economics=None)).job_energy_usd)


def test_without_economics_utility_is_unknown_but_energy_is_paid(ledger):
    bare = settle(played(economics=None))
    unknown = {"revenue_usd", "carbon_usd", "utility_usd", "fixed_usd", "late_usd"}
    assert {name for name, value in vars(bare).items() if isinstance(value, float) and math.isnan(value)} == unknown
    assert bare.energy_usd == ledger.energy_usd
    assert bare.carbon_kg == ledger.carbon_kg


def test_a_ledger_survives_its_own_dictionary(ledger):
    for one in (ledger, settle(played({}, signals=None, economics=None))):
        content = one.as_dict()
        assert content["energy_kwh"] == one.energy_kwh
        assert all(value is None or math.isfinite(value) for value in content.values())
        np.testing.assert_equal(vars(Ledger.from_dict(content)), vars(one))


def test_a_job_without_data_moves_without_a_journey():
    jobs = environment().jobs
    light = replace(jobs, data_gb_J=np.zeros(2), model_gb_J=np.zeros(2), result_gb_J=np.zeros(2))
    got = settle(played(jobs=light))
    assert (got.done, got.moves, got.move_usd, got.result_usd, got.move_kwh) == (2, 0, 0.0, 0.0, 0.0)


def test_a_result_for_a_region_without_gpus_emits_at_the_site_alone():
    fleet = Fleet.model_validate(FLEET.model_dump() | {"ingress": [{"name": "region"}]})
    jobs = Jobs.build(arrival_s=np.zeros(1), work=np.full(1, HOUR_S), slack_s=0.0, result_gb=5.0)
    world = environment(
        fleet=fleet, links=Network(usd_per_gb=0.01, kwh_per_gb=0.02).links(fleet), jobs=jobs, protocol="on-arrival"
    )
    got = settle(run(world, make_scheduler("most-free(gpus=1)")))
    assert got.done == 1
    assert got.result_usd == pytest.approx(0.05)
    assert got.result_kg == pytest.approx(0.1 * 0.6)  # ends at 1:00 at site a


@pytest.mark.parametrize(
    ("scenario", "settings", "policy", "index"),
    [
        ("tiny", [], "random", 0),
        ("tiny", [], "booked-perfect", 1),
        ("tiny", ["end=window"], "most-free", 2),
        ("tiny", ["fleet.gpu_types.T4-class.sleep_w=2", "fleet.free_gpus=sleep"], "random", 3),
        ("fine-tuning", [], "random", 0),
        ("fine-tuning", ["end=window"], "cheapest-feasible", 1),
    ],
)
def test_the_ledger_equals_the_engines_own_meters(scenario, settings, policy, index):
    environment = build_environment(load_scenario(scenario, settings), index)
    outcome = run(environment, make_scheduler(policy), rewards=True)
    ledger, meters = settle(outcome), outcome.meters
    metered = {
        "gpu_hours": meters.gpu_s_S.sum() / HOUR_S,
        "job_kwh": meters.busy_kwh_S.sum(),
        "free_kwh": meters.free_kwh_S.sum(),
        "job_energy_usd": meters.busy_usd_S.sum(),
        "free_energy_usd": meters.free_usd_S.sum(),
        "job_kg": meters.busy_kg_S.sum(),
        "free_kg": meters.free_kg_S.sum(),
        "move_kwh": meters.move_kwh + meters.result_kwh,
        **{name: getattr(meters, name) for name in ("move_usd", "move_kg", "result_usd", "result_kg", "utility_usd")},
    }
    assert ledger.moves > 0
    for name, value in metered.items():
        assert getattr(ledger, name) == pytest.approx(value, rel=1e-9), name
    assert math.fsum(outcome.rewards_K) == pytest.approx(ledger.utility_usd, rel=1e-9)
    assert len(outcome.rewards_K) == ledger.steps + 1


def test_waiting_is_settled_at_its_price_for_every_job(ledger):
    outcome = played()
    waited_h = (outcome.job_J["start_s"] - outcome.environment.jobs.arrival_s_J) / HOUR_S
    assert waited_h.sum() > 0
    economics = outcome.environment.economics.model_copy(update={"waiting_usd_per_hour": 3.0})
    priced = settle(played(economics=economics))
    assert priced.waiting_usd == pytest.approx(3.0 * waited_h.sum())
    assert priced.utility_usd == pytest.approx(ledger.utility_usd - priced.waiting_usd)
    assert priced.total_usd == pytest.approx(ledger.total_usd + priced.waiting_usd)
    assert priced.as_dict()["waiting_usd"] == priced.waiting_usd
    assert Ledger.from_dict(priced.as_dict()) == priced


def test_the_total_is_all_that_is_paid(ledger):
    paid = ledger.energy_usd + ledger.move_usd + ledger.result_usd + ledger.carbon_usd + ledger.late_usd
    assert ledger.total_usd == pytest.approx(paid)
    assert ledger.utility_usd == pytest.approx(ledger.revenue_usd - ledger.total_usd)


def test_a_scenario_without_a_price_of_waiting_keeps_its_bytes(ledger):
    economics = played().environment.economics
    assert "waiting_usd_per_hour" not in economics.model_dump_json()
    assert not {"waiting_usd", "total_usd"} & set(ledger.as_dict())
    assert load_scenario("tiny").digest == load_scenario("tiny", ["economics.waiting_usd_per_hour=0"]).digest
    assert load_scenario("tiny").digest != load_scenario("tiny", ["economics.waiting_usd_per_hour=1"]).digest
