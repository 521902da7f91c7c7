"""The bound with meters: no policy and no schedule is above it; a tariff without charges leaves it as it was."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from ledger.two_jobs import HOUR_S, NETWORK, START, Script
from noonward.bound.cluster_utility.freedom_bounds import freedom_bounds
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.metered import metered_bound, scheduled_power
from noonward.bound.cluster_utility.nonclairvoyant import nonclairvoyant_bound
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.evaluate.utility_objective import UtilityObjective
from noonward.ledger.ledger import settle
from noonward.ledger.meters import interval_kw, power_kw
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.solar import SolarByHour
from noonward.model.economics import Economics
from noonward.model.signals import Signals
from noonward.schedule.policies import make_scheduler


def world(rng, jobs=4, hours=4):
    """A small random world: two sites, a few jobs, random tariffs and devices."""

    def tariff():
        return {
            "energy": "signal" if rng.random() < 0.6 else float(rng.uniform(20, 200)),
            "adder_usd_per_mwh": float(rng.uniform(0, 20)),
            "fees": [{"usd_per_mwh": float(rng.uniform(0, 80)), "hours": [1, 2]}] if rng.random() < 0.3 else [],
            "demand": [{"usd_per_kw_month": float(rng.uniform(0, 900)), "interval_min": int(rng.choice([30, 60]))}],
            "coincident": [{"usd_per_kw_year": float(rng.uniform(0, 5)), "peaks": 2, "interval_min": 60}],
            "usd_per_month": 10.0,
        }

    def devices():
        behind = {}
        if rng.random() < 0.5:
            behind["battery"] = {"kw": float(rng.uniform(0.2, 2)), "kwh": float(rng.uniform(0.2, 3))}
        if rng.random() < 0.4:
            behind["solar"] = {"kw": float(rng.uniform(0.5, 3)), "profile": "sun.csv"}
        if rng.random() < 0.3:
            behind["export"] = {"allowed_kw": 2.0, "price": -25.0}
        return behind or None

    meter = {
        "interval_min": 30, "tariff": "t", "base_kw": float(rng.uniform(0, 1)), "connection_kw": 2.0,
        "over_connection_usd_per_kwh": float(rng.choice([0.0, 0.2])), "system_peaks": [["2022-03-01T01:00Z"]],
    }  # fmt: skip
    sites = [
        {"name": "a", "zone": "A", "gpu_type": "T", "gpus": 2, "pue": 1.5, "timezone": "UTC", "meter": meter,
         "behind_meter": devices()},
        {"name": "b", "zone": "B", "gpu_type": "T", "gpus": 1, "pue": 2.0, "timezone": "UTC"},
    ]  # fmt: skip
    if rng.random() < 0.5:
        sites[1] |= {"meter": meter | {"interval_min": 15}, "behind_meter": devices()}
    fleet = Fleet.model_validate(
        {
            "gpu_types": {"T": {"idle_w": 100, "classes": {"c": {"power": {"constant_w": 1000}}}}},
            "sites": sites,
            "tariffs": {"t": tariff()},
        }
    )
    table = Jobs.build(
        arrival_s=np.sort(rng.integers(0, 3, jobs)) * HOUR_S / 2,
        work=rng.choice([0.5, 1.0, 1.5], jobs) * HOUR_S,
        slack_s=rng.choice([0.5, 1.0, 2.0], jobs) * HOUR_S,
        origin=rng.integers(0, 2, jobs),
        data_gb=1.0,
        model_gb=0.5,
        result_gb=0.5,
    )
    value_ZH = {
        "price_usd_per_mwh": rng.uniform(-20, 250, (2, 8)).round(1),
        "carbon_g_per_kwh": rng.uniform(50, 700, (2, 8)).round(),
    }
    return Environment(
        scenario="metered", index=0, seed=0, start=START, protocol="each-slot", slot_s=1800.0, window_s=hours * HOUR_S,
        drained=True, fleet=fleet, links=NETWORK.links(fleet), jobs=table,
        signals=Signals(start=START, zones=("A", "B"), value_ZH=value_ZH),
        economics=Economics(revenue_usd_per_gpu_hour=float(rng.uniform(0.1, 2)), carbon_usd_per_t=100.0),
        solar=SolarByHour(share_SH=rng.uniform(0, 1, (2, 12))),
    )  # fmt: skip


def with_plant(made, rng):
    """The same with a physical contract for a plant's output at the first site."""
    said = made.fleet.model_dump(mode="json")
    said["sites"][0]["ppa"] = {
        "kw": float(rng.uniform(0.5, 3)), "profile": "wind.csv", "usd_per_mwh": 60.0, "kind": "physical",
        "delivery_usd_per_mwh": float(rng.choice([0, 15])),
    }  # fmt: skip
    plants = SolarByHour(share_SH=rng.uniform(0, 1, (2, 12)))
    return replace(made, fleet=Fleet.model_validate(said), plants=plants)


def utility(environment, plan):
    """What a plan earns: job -> (site, start s)."""
    return settle(run(environment, Script(plan))).utility_usd


def test_no_policy_is_above_the_bound_in_100_worlds():
    rng = np.random.default_rng(4)
    worst = np.inf
    for number in range(100):
        made = world(rng, jobs=int(rng.integers(1, 7)))
        made = with_plant(made, rng) if number % 3 == 0 else made
        bound = metered_bound(made, steps=3, iterations=40, rounds=0)
        for policy in ("local-fcfs", "cheapest-feasible", "random"):
            earned = settle(run(made, make_scheduler(policy), seed=number)).utility_usd
            worst = min(worst, bound.upper_usd - earned)
        if not np.isnan(bound.lower_usd):
            assert bound.lower_usd <= bound.upper_usd + 1e-6
    assert worst >= -1e-6


def test_the_best_of_all_schedules_lies_below_the_bound_and_often_at_it():
    """Brute force over every site and half hour of two jobs."""
    rng = np.random.default_rng(8)
    gaps = []
    for _ in range(2):
        made = with_plant(world(rng, jobs=2), rng)
        starts = [(site, t * 1800.0) for site in (0, 1) for t in range(7)] + [(0, np.inf)]
        best = max(utility(made, dict(enumerate(plan))) for plan in itertools.product(starts, repeat=2))
        bound = metered_bound(made, steps=8)
        assert bound.upper_usd >= best - 1e-6
        gaps.append(bound.upper_usd - best)
    assert min(gaps) < 0.25


def test_the_schedule_found_earns_what_the_engine_settles():
    rng = np.random.default_rng(3)
    for _ in range(5):
        made = world(rng)
        found = utility_bound(made)
        plan = {
            j: (int(found.schedule.site_J[j]), float(found.schedule.start_s_J[j]))
            for j in range(len(made.jobs))
            if found.schedule.site_J[j] >= 0
        }
        outcome = run(made, Script(plan))
        if not np.allclose(np.nan_to_num(outcome.job_J["start_s"]), np.nan_to_num(found.schedule.start_s_J)):
            continue
        power = scheduled_power(made, found.schedule)
        assert power_kw(made, power, 900.0) == pytest.approx(interval_kw(outcome, 900.0))


def test_a_tariff_that_adds_nothing_leaves_the_bound_as_it_was():
    content = load_scenario("tiny").model_dump(mode="json")
    plain = build_environment(scenario_from(content), 0, 0)
    content["fleet"]["tariffs"] = {"t": {}}
    content["fleet"]["sites"][0]["meter"] = {"tariff": "t", "interval_min": 60}
    metered = build_environment(scenario_from(content), 0, 0)
    old, new = utility_bound(plain), metered_bound(metered, steps=1)
    assert new.upper_usd == pytest.approx(old.upper_usd, abs=1e-6)
    assert new.lower_usd == pytest.approx(old.lower_usd, abs=1e-6)
    with pytest.raises(ScenarioError, match="site with a tariff"):
        metered_bound(plain)


def test_further_prices_never_loosen_the_bound_that_comparisons_show():
    content = load_scenario("tiny").model_dump(mode="json")
    content["fleet"]["tariffs"] = {"t": {"demand": [{"usd_per_kw_month": 20, "interval_min": 60}]}}
    for site in content["fleet"]["sites"]:
        site["meter"] = {"tariff": "t", "interval_min": 60}
    made = build_environment(scenario_from(content), 0, 0)
    one, more = metered_bound(made, steps=1), metered_bound(made)
    assert one.lower_usd <= more.lower_usd <= more.upper_usd <= one.upper_usd
    told = UtilityObjective().compute_bound(made)
    assert told["utility_usd"] == pytest.approx(more.upper_usd)
    assert told["best_known_usd"] == pytest.approx(more.lower_usd)
    assert settle(run(made, make_scheduler("local-fcfs"))).utility_usd <= more.upper_usd


def test_bounds_that_know_no_tariffs_are_refused():
    made = world(np.random.default_rng(0))
    with pytest.raises(ScenarioError, match="with freedoms does not know tariffs"):
        freedom_bounds(made, ["none"])
    with pytest.raises(ScenarioError, match="non-clairvoyant bound does not know tariffs"):
        nonclairvoyant_bound(made, np.zeros((2, made.hours, 2, made.hours)))
