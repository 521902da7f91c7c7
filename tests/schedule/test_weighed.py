"""Routing by weighed cost, on hand-made views with exact answers and against a plain search."""

import math

import numpy as np
import pytest

from noonward.bound.cluster_energy import environment_energy_bound
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Brief
from noonward.decision.cluster.view import ORACLE
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.ledger.ledger import settle
from noonward.model.limits import Constraints
from noonward.schedule.cluster.weighed import MarketRouter, WeighedRouter
from noonward.schedule.policies import make_scheduler
from reference.views import ask, make_view

# Gangs of 1 to 2 (rows) at two clocks: 60, 80 | 75, 90 J a unit in 6, 4 | 3, 2 s.
TABLE = {"power_w": ((10.0, 20.0), (25.0, 45.0)), "seconds": ((6.0, 4.0), (3.0, 2.0))}
EIGHT = build_environment(load_scenario("dvfs-training", ["window_h=6"]))


def asked(router, view, classes=1):
    """The answer (choice, gpus, level) of a router with the memory it makes for a fleet of some classes."""
    environment = EIGHT if classes == 2 else build_environment(load_scenario("tiny"))
    router.reset(Brief.of(environment, router.needs), np.random.default_rng(0))
    return ask(router, view)[0][:3]


@pytest.mark.parametrize(
    ("second", "gpus", "level"),
    [
        (0.0, 1, 0),  # 60 J
        (4.9, 1, 0),  # 60 + 6 x 4.9 = 89.4 against 75 + 3 x 4.9 = 89.7
        (5.1, 2, 0),
        (14.9, 2, 0),  # 75 + 3 x 14.9 = 119.7 against 90 + 2 x 14.9 = 119.8
        (15.1, 2, 1),
    ],
)
def test_gang_and_clock_of_least_weighed_cost(second, gpus, level):
    view = make_view([{"gpus": 4}], asked=(0,), jobs=({"gpus_max": 2},), **TABLE)
    assert asked(WeighedRouter(second=second), view) == (1, gpus, level)


def test_gangs_stay_within_what_is_free_and_asked():
    view = make_view([{"gpus": 4, "free": 1}], asked=(0,), jobs=({"gpus_max": 2},), **TABLE)
    assert asked(WeighedRouter(second=100.0), view) == (1, 1, 1)
    view.site_S["free"] = 4
    assert asked(WeighedRouter(second=100.0, gpus=1), view) == (1, 1, 1)


@pytest.mark.parametrize(("target_s", "gpus", "level"), [(6.0, 1, 0), (5.9, 2, 0), (2.9, 2, 1), (1.0, 2, 1)])
def test_least_energy_within_the_target_else_the_fastest(target_s, gpus, level):
    view = make_view([{"gpus": 4}], asked=(0,), jobs=({"gpus_max": 2},), **TABLE)
    # 80 J in 4 s on one GPU is not least: 75 J in 3 s keeps any target that it keeps.
    assert asked(WeighedRouter(target_s=target_s), view) == (1, gpus, level)


def test_travel_counts_towards_time_and_target():
    view = make_view([{"gpus": 1}, {"gpus": 1, "free_w": 1.0}], asked=(0,), **TABLE)
    view.link_IS["latency_s"] = [[0.0, 2.0], [0.0, 0.0]]
    assert asked(WeighedRouter(), view)[0] == 2  # 60 - 6 J there
    assert asked(WeighedRouter(second=3.1), view)[0] == 1  # but 2 s of travel at 3.1 J
    assert asked(WeighedRouter(target_s=6.5), view)[0] == 1  # and 8 s in all


def test_full_sites_are_passed_over_and_without_room_the_least_crowded_is_taken():
    sites = [{"gpus": 2, "free": 0, "waiting": 3}, {"gpus": 2, "free": 0, "waiting": 2}, {"gpus": 2, "free": 1}]
    view = make_view(sites, asked=(0,), jobs=({"gpus_max": 2},), **TABLE)
    assert asked(WeighedRouter(), view) == (3, 1, 0)
    view.site_S["free"] = 0
    view.mask_NA[0, 3] = 0
    assert asked(WeighedRouter(), view) == (2, 2, ORACLE)


def test_price_and_carbon_value_the_energy():
    sites = [{"price": 100.0, "carbon": 100.0}, {"price": 50.0, "carbon": 300.0}]
    view = make_view(sites, asked=(0,), **TABLE)
    assert asked(MarketRouter(usd=1.0), view)[0] == 2
    assert asked(MarketRouter(kg=1.0), view)[0] == 1
    assert asked(MarketRouter(usd=1.0, kg=0.2), view)[0] == 2  # 120 against 110
    assert asked(MarketRouter(usd=1.0, kg=0.3), view)[0] == 1  # 130 against 140
    # 60 J at 1e-6 USD/J: a second worth 1.1e-5 USD takes the clock of 80 J that saves 2 s.
    view.site_S["price"] = 3600.0
    assert asked(MarketRouter(usd=1.0, second=0.9e-5), view)[2] == 0
    assert asked(MarketRouter(usd=1.0, second=1.1e-5), view)[2] == 1


def test_stated_targets_come_before_the_routers_own():
    scenario = load_scenario("dvfs-training", ["window_h=6"])
    limited = build_environment(
        scenario.model_copy(update={"constraints": Constraints(latency_target_s={"training": 900.0})})
    )
    own = settle(run(EIGHT, WeighedRouter(target_s=3600.0, use_stated_target=True)))
    stated = settle(run(limited, WeighedRouter(target_s=3600.0, use_stated_target=True)))
    np.testing.assert_equal(vars(stated), vars(settle(run(EIGHT, WeighedRouter(target_s=900.0)))))
    np.testing.assert_equal(vars(own), vars(settle(run(limited, WeighedRouter(target_s=3600.0)))))
    assert stated.joules_per_unit > own.joules_per_unit
    assert stated.p99_time_in_system_s < 905 < own.p99_time_in_system_s


def test_stated_preferences_weigh_the_seconds_of_each_class():
    """One weight for all classes is greedy-tradeoff's; a class of greater weight is served faster, the other slower."""
    scenario = load_scenario("dvfs-mixed", ["window_h=6"])

    def found(training, inference):
        weights = {"training": training, "inference": inference}
        environment = build_environment(scenario.model_copy(update={"latency_weight_w": weights}))
        return settle(run(environment, make_scheduler("greedy-preferences")))

    plain = build_environment(scenario)
    same = settle(run(plain, make_scheduler("greedy-tradeoff(watts=100)")))
    np.testing.assert_equal(vars(found(100.0, 100.0)), vars(same))
    unstated = settle(run(plain, make_scheduler("greedy-preferences")))
    np.testing.assert_equal(vars(unstated), vars(settle(run(plain, make_scheduler("greedy-tradeoff(watts=30)")))))
    hasty = found(10.0, 1000.0)
    assert hasty.joules_per_unit < same.joules_per_unit
    assert hasty.mean_time_in_system_s > same.mean_time_in_system_s


@pytest.mark.parametrize(("weight_w", "gpus", "level"), [(0, 1, 0), (10, 2, 0), (20, 2, 1)])
def test_preferences_take_the_place_of_the_routers_own_weight(weight_w, gpus, level):
    """60, 75, 90 J in 6, 3, 2 s; the other class has another weight."""
    view = make_view([{"gpus": 4}], asked=(0,), jobs=({"gpus_max": 2},), **TABLE)
    classes = load_scenario("dvfs-mixed").fleet.classes
    stated = f"latency_weight_w={{{classes[0]}: {weight_w}, {classes[1]}: 500}}"
    router = WeighedRouter(second=12.0, use_stated_weights=True)
    router.reset(
        Brief.of(build_environment(load_scenario("dvfs-mixed", ["window_h=1", stated])), router.needs),
        np.random.default_rng(0),
    )
    assert ask(router, view)[0][:3] == (1, gpus, level)


def test_preferences_that_do_not_fit_are_refused():
    with pytest.raises(ScenarioError, match=r"latency_weight_w leaves out the class 'inference'"):
        load_scenario("dvfs-mixed", ["latency_weight_w={training: 10}"])
    with pytest.raises(ScenarioError, match=r"latency_weight_w names the unknown class 'infer'.*'inference'"):
        load_scenario("dvfs-mixed", ["latency_weight_w={training: 10, infer: 1}"])
    with pytest.raises(ScenarioError, match=r"latency_weight_w"):
        load_scenario("dvfs-training", ["latency_weight_w={training: -1}"])


def test_more_weight_on_time_means_less_time_and_more_energy_never_below_the_bound():
    found = [settle(run(EIGHT, make_scheduler(f"greedy-tradeoff(watts={weight})"))) for weight in (10, 100, 1000)]
    energies, times = [f.joules_per_unit for f in found], [f.mean_time_so_far_s for f in found]
    assert energies == sorted(energies)
    assert times == sorted(times, reverse=True)
    for one in found:
        assert one.joules_per_unit > environment_energy_bound(EIGHT, one.mean_time_so_far_s)


def test_market_rules_pay_and_emit_less_than_one_that_sees_energy_alone():
    environment = build_environment(load_scenario("dvfs-mixed", ["window_h=24"]))
    found = {
        name: settle(run(environment, make_scheduler(name)))
        for name in ("greedy-tradeoff(watts=100)", "greedy-price", "greedy-carbon")
    }
    plain = found["greedy-tradeoff(watts=100)"]
    assert found["greedy-price"].usd_per_unit < 0.9 * plain.usd_per_unit
    assert found["greedy-carbon"].g_per_unit < 0.9 * plain.g_per_unit


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"second": -1.0}, r"weight second is -1\.0"),
        ({"joule": math.inf}, "weight joule is inf"),
        ({"joule": 0.0}, "all weights are 0"),
        ({"gpus": -1}, "gang of -1 GPUs"),
        ({"target_s": 0.0}, r"target_s is 0\.0 s"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        WeighedRouter(**options)
