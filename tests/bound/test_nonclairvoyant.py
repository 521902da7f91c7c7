"""The bound without foresight: by hand on two hours, against the optimum on small trees, and on drawn signals."""

import itertools
from datetime import UTC, datetime

import numpy as np
import pytest

from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.nonclairvoyant import nonclairvoyant_bound
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.data.signals.expected import expected_signals
from noonward.errors import ScenarioError
from noonward.evaluate.nonclairvoyant import NonclairvoyantRun, nonclairvoyant_metrics
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import Fleet, Site
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.power import ClassProfile, GpuType, PowerCurve
from noonward.model.economics import Economics
from noonward.model.network import Network
from noonward.model.signals import Signals

START = datetime(2022, 1, 1, tzinfo=UTC)
SIGNAL_H = 60


def world(price_H, *, jobs=1, gpus=1, revenue=1.5, slack_h=1.0):
    """Jobs of an hour and 1 MW on one site, there from the start: 1.5 USD each, a price in USD/MWh is one in USD."""
    kind = GpuType(idle_w=0.0, classes={"tune": ClassProfile(power=PowerCurve(constant_w=1e6))})
    fleet = Fleet(gpu_types={"t": kind}, sites=(Site(name="a", zone="a", gpu_type="t", gpus=gpus, pue=1.0),))
    price_ZH = np.full((1, SIGNAL_H), 100.0)
    price_ZH[0, : len(price_H)] = price_H
    return Environment(
        scenario="test", index=0, seed=0, start=START, protocol="each-slot", slot_s=3600.0, window_s=7200.0,
        drained=True, fleet=fleet, links=Network(throughput_gb_per_min=1.0).links(fleet),
        jobs=Jobs.build(arrival_s=np.zeros(jobs), work=3600.0, origin=0, slack_s=slack_h * 3600.0),
        signals=Signals(
            start=START, zones=("a",), value_ZH={"price_usd_per_mwh": price_ZH, "carbon_g_per_kwh": 0.0 * price_ZH}
        ),
        economics=Economics(revenue_usd_per_gpu_hour=revenue, carbon_usd_per_t=0.0),
    )  # fmt: skip


def expectations(environment, paths, chances, own):
    """What is expected in every hour on a tree: the mean over the paths that agree with the own one so far."""
    hours = environment.hours
    price_NH = np.full((len(paths), hours), 100.0)
    price_NH[:, : len(paths[0])] = np.array(paths)[:, :hours]
    out = np.zeros((2, hours, 1, hours))
    for t in range(hours):
        alike_N = (price_NH[:, : t + 1] == price_NH[own, : t + 1]).all(axis=1)
        out[0, t, 0] = np.average(price_NH[alike_N], axis=0, weights=np.array(chances)[alike_N])
        out[0, t, 0, : t + 1] = price_NH[own, : t + 1]  # their mean, without its rounding
    return out


def mean_bound(paths, chances, strength=1.0, **options):
    """The bound: the mean over the paths by their chances; and that of the clairvoyant one."""
    total = np.zeros(2)
    for own, chance in enumerate(chances):
        env = world(paths[own], **options)
        found = nonclairvoyant_bound(env, expectations(env, paths, chances, own), strength=strength, tolerance=1e-9)
        total += chance * np.array([found.penalised_usd, found.clairvoyant_usd])
    return total


def best_policy(paths, chances, revenue):
    """The stochastic optimum of one job by backward induction over the tree: start, wait, or never run."""
    paths = np.array(paths)

    def value(t, alike):
        if t == paths.shape[1]:
            return 0.0
        weight = sum(chances[n] for n in alike)
        now = revenue - paths[alike[0], t]
        later = 0.0
        if t + 1 < paths.shape[1]:
            for _, group in itertools.groupby(sorted(alike, key=lambda n: paths[n, t + 1]), lambda n: paths[n, t + 1]):
                members = list(group)
                later += sum(chances[n] for n in members) / weight * value(t + 1, members)
        return max(now, later, 0.0)

    return value(0, list(range(len(paths))))


def test_two_hours_and_two_outcomes_by_hand():
    """Hour 0 costs 1, hour 1 nothing or 2. To start at once earns 0.5; to wait 0.5 x 1.5 + 0.5 x 0, the optimum.

    With foresight one waits or starts: (1.5 + 0.5) / 2 = 1. The penalty of waiting is +1 on the cheap path and -1 on
    the dear one: (0.5 + 1) / 2 = 0.75, the optimum.
    """
    paths, chances = [[1.0, 0.0], [1.0, 2.0]], [0.5, 0.5]
    assert best_policy(paths, chances, 1.5) == 0.75
    penalised, clairvoyant = mean_bound(paths, chances)
    assert clairvoyant == pytest.approx(1.0)
    assert penalised == pytest.approx(0.75)
    assert mean_bound(paths, chances, strength=0.0)[0] == pytest.approx(1.0)
    assert mean_bound(paths, chances, strength=0.25)[0] == pytest.approx((1.25 + 0.5) / 2)


def test_capacity_is_shared_under_penalties():
    """Two such jobs on one GPU: one starts at once, the other waits, 0.5 + 0.75; foresight adds nothing."""
    paths, chances = [[1.0, 0.0], [1.0, 2.0]], [0.5, 0.5]
    penalised, clairvoyant = mean_bound(paths, chances, jobs=2)
    assert clairvoyant == pytest.approx(1.25)
    assert penalised >= 1.25 - 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_no_policy_on_a_random_tree_earns_more(seed):
    """Three hours, two outcomes each: between the stochastic optimum and the bound with foresight, on average."""
    rng = np.random.default_rng(seed)
    first, second = rng.uniform(0, 3, 2), rng.uniform(0, 3, (2, 2))
    chance, chances_2 = rng.uniform(0.2, 0.8), rng.uniform(0.2, 0.8, 2)
    paths = [[1.0, first[i], second[i, k]] for i in range(2) for k in range(2)]
    chances = [abs(1 - i - chance) * abs(1 - k - chances_2[i]) for i in range(2) for k in range(2)]
    assert sum(chances) == pytest.approx(1.0)
    optimum = best_policy(paths, chances, 1.5)
    penalised, clairvoyant = mean_bound(paths, chances, slack_h=2.0)
    assert optimum - 1e-9 <= penalised
    assert optimum <= clairvoyant + 1e-9
    assert mean_bound(paths, chances, strength=0.5, slack_h=2.0)[0] >= optimum - 1e-9


@pytest.fixture(scope="module")
def scenario():
    return load_scenario("fine-tuning", ["jobs.count=40", "window_h=12", "jobs.demand=0.1"])


def test_without_penalties_it_is_the_clairvoyant_bound(scenario):
    env = build_environment(scenario, 0, 3)
    found = nonclairvoyant_bound(env, expected_signals(env, scenario.signals), strength=0.0)
    assert found.penalised_usd == pytest.approx(found.clairvoyant_usd, abs=0.02)
    assert found.clairvoyant_usd == utility_bound(env, schedule=False).upper_usd


def test_known_signals_leave_nothing_to_penalise(scenario):
    """Where every hour is known from the start, all penalties are 0."""
    env = build_environment(scenario, 1, 3)
    real_QSH = np.stack([env.site_signals.price_SH, env.site_signals.carbon_SH])[:, :, : env.hours]
    found = nonclairvoyant_bound(env, np.repeat(real_QSH[:, None], env.hours, axis=1))
    assert found.penalised_usd == pytest.approx(found.clairvoyant_usd, abs=0.02)


def test_an_environment_of_another_kind_is_refused(scenario):
    env = build_environment(scenario, 0, 3)
    expected = expected_signals(env, scenario.signals)
    with pytest.raises(ScenarioError, match="give \\(2, "):
        nonclairvoyant_bound(env, expected[:, :-1])
    with pytest.raises(ScenarioError, match="take its own draw"):
        nonclairvoyant_bound(env, expected + 1.0)
    on_arrival = load_scenario("load-shaping", ["window_h=24"])
    env = build_environment(on_arrival, 0, 0)
    with pytest.raises(ScenarioError, match="needs the protocol each-slot"):
        nonclairvoyant_bound(env, expected)


def test_runs_give_means_and_their_difference(scenario):
    found = [NonclairvoyantRun(scenario, index, 3).run() for index in range(2)]
    usd = {metric.name: metric.value for metric in nonclairvoyant_metrics(found)}
    assert usd["nonclairvoyant_bound_usd"] == pytest.approx(np.mean([each.penalised_usd for each in found]))
    assert usd["foresight_usd"] == pytest.approx(usd["clairvoyant_bound_usd"] - usd["nonclairvoyant_bound_usd"])
    with pytest.raises(ScenarioError, match="no generated signals"):
        NonclairvoyantRun(load_scenario("load-shaping"), 0, 0).run()
