"""The bound of freedoms: never below what any schedule of stopped, resized or capped jobs earns, and near it."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.freedom_bounds import freedom_bounds
from noonward.bound.cluster_utility.freedoms import FREEDOMS, FreedomDual, lower
from noonward.errors import ScenarioError
from noonward.model.cluster.freedom import Freedom
from noonward.model.cluster.jobs import Jobs
from reference.bent_jobs import brute_force, brute_force_moving
from reference.cluster_utility import build

SLOT_S = 1800.0
FREE = {
    "interruptible": True,
    "elastic": {"gpus": [1, 2], "speedup": [1, 1.5]},
    "caps": {"power": [0.5, 1], "throughput": [0.75, 1]},
    "checkpoint": {"stop_s": 600, "dark_s": 600, "load_s": 600},
}
AT_ONCE = {"stop_s": 0, "dark_s": 0, "load_s": 0}


def world(seed, freedom, *, count=3, most_slack=4, low=-50.0):
    """A small environment whose jobs have a freedom; works are whole slots."""
    rng = np.random.default_rng(seed)
    sites = int(rng.integers(1, 3))
    jobs = Jobs.build(
        arrival_s=SLOT_S * rng.integers(0, 4, count).astype(float),
        work=SLOT_S * rng.integers(2, 5, count).astype(float),
        origin=rng.integers(0, sites, count),
        gpus=rng.integers(1, 3, count),
        slack_s=SLOT_S * rng.integers(0, most_slack + 1, count).astype(float),
    )
    env = build(
        jobs,
        gpus=tuple(int(n) for n in rng.integers(2, 4, sites)),
        pue=tuple(rng.uniform(1, 1.5, sites)),
        price=rng.uniform(low, 500, (sites, 400)),
        carbon=rng.uniform(0, 900, (sites, 400)),
        window_h=4,
        slot_s=SLOT_S,
        revenue=float(rng.choice([0.02, 0.05, 0.2])),
    )
    fleet = env.fleet.model_copy(update={"freedoms": {"tune": Freedom.model_validate(freedom)}})
    return replace(env, fleet=fleet)


@pytest.mark.parametrize("asked", [("suspend",), ("caps",), ("elastic",), ("suspend", "caps"), FREEDOMS[:3]])
@pytest.mark.parametrize("chunk", range(4))
def test_no_combination_of_lives_earns_more_than_the_bound(chunk, asked):
    for seed in range(100 * chunk, 100 * chunk + (100 if asked == ("suspend",) else 25)):
        # A change of gang takes a stop and a load, which the oracle's lives have none for.
        freedom = FREE | ({"checkpoint": AT_ONCE} if "elastic" in asked else {})
        env = world(seed, freedom, count=3 if len(asked) == 1 else 2, most_slack=4 if len(asked) == 1 else 2)
        optimum = brute_force(env, set(asked))
        relaxation = Relaxation(env)
        dual, rng = FreedomDual(env, relaxation, asked), np.random.default_rng(seed)
        for scale in (0.0, 0.05):
            price_SH = scale * rng.exponential(size=dual.shape) * (rng.random(dual.shape) < 0.7)
            value_usd, _ = dual.value(price_SH)
            assert value_usd >= optimum - 1e-9, seed
            assert value_usd >= relaxation.value(price_SH)[0] - 1e-12, seed
        found = lower(dual, np.zeros(dual.shape), 1e-6)
        assert found.upper_usd >= optimum - 1e-9, seed
        assert dual.value(found.price_SH)[0] == pytest.approx(found.upper_usd, abs=1e-12)


def test_no_combination_of_lives_that_move_earns_more_than_the_bound():
    """60 worlds; in some of them moving earns more than stopping alone."""
    gains = 0
    for seed in range(60):
        freedom = FREE | {"moves": True} | ({"checkpoint": AT_ONCE} if seed % 3 else {})
        env = world(seed, freedom, count=2, most_slack=3)
        optimum = brute_force_moving(env)
        dual, rng = FreedomDual(env, Relaxation(env), ("suspend", "move")), np.random.default_rng(seed)
        for scale in (0.0, 0.05):
            price_SH = scale * rng.exponential(size=dual.shape) * (rng.random(dual.shape) < 0.7)
            value_usd = dual.moved_value(price_SH)
            assert value_usd >= optimum - 1e-9, seed
            assert value_usd >= dual.value(price_SH)[0] - 1e-12, seed
        gains += optimum > brute_force(env, {"suspend"}) + 1e-9
        found = freedom_bounds(env, ("suspend", "move"))
        assert found.worth["move"].upper_usd >= max(optimum, found.worth["suspend"].upper_usd) - 1e-9, seed
        assert found.worth["move"].known_usd <= optimum + 1e-9, seed
    assert gains > 3


def test_the_best_known_schedule_resizes_jobs():
    """Two hours' work on one GPU is done in one cheap hour on two, if a second GPU is as good as the first."""
    freedom = {"elastic": {"gpus": [1, 2], "speedup": [1, 2]}, "checkpoint": AT_ONCE}
    better = 0
    for seed in range(12):
        found = freedom_bounds(world(seed, freedom, count=2), ("elastic",))
        elastic, none = found.worth["elastic"], found.worth["none"]
        assert none.known_usd <= elastic.known_usd + 1e-9 <= elastic.upper_usd + 2e-9
        better += elastic.known_usd > none.known_usd + 1e-6
    assert better > 3


@pytest.mark.parametrize(("checkpoint", "most"), [(AT_ONCE, 1e-9), (FREE["checkpoint"], 0.02)])
def test_one_job_alone_is_bounded_by_its_own_best_life(checkpoint, most):
    gaps = []
    for seed in range(40):
        env = world(seed, FREE | {"checkpoint": checkpoint}, count=1, low=20.0)
        dual = FreedomDual(env, Relaxation(env), ("suspend",))
        optimum = brute_force(env, {"suspend"})
        gaps.append((dual.value(np.zeros(dual.shape))[0] - optimum) / max(abs(optimum), 0.05))
    assert min(gaps) > -1e-9
    assert np.median(gaps) <= most


def test_capacity_taken_by_lives_is_the_slope_of_the_dual_function():
    env = world(5, FREE)
    dual, rng = FreedomDual(env, Relaxation(env), FREEDOMS), np.random.default_rng(1)
    price_SH = 0.02 * rng.exponential(size=dual.shape)
    value_usd, free_SH = dual.value(price_SH)
    lives, use_SH = dual.lives, np.zeros(dual.shape)
    for j in np.flatnonzero(lives.site_J >= 0):
        use_H = lives.use_U[lives.first_J[j] : lives.first_J[j + 1]]
        use_SH[lives.site_J[j], lives.hour_J[j] : lives.hour_J[j] + len(use_H)] += use_H
        assert lives.priced_J[j] == pytest.approx(
            lives.value_J[j] - use_H @ price_SH[lives.site_J[j], lives.hour_J[j] : lives.hour_J[j] + len(use_H)]
        )
    assert use_SH.sum() > 0
    assert free_SH == pytest.approx(dual.relaxation.gpus_S[:, None] - use_SH)
    for step in (1e-5, -1e-5):
        moved_SH = price_SH + step * rng.random(dual.shape)
        assert dual.value(moved_SH)[0] >= value_usd + (free_SH * (moved_SH - price_SH)).sum() - 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_bounds_are_in_order_and_the_schedules_below_them(seed):
    env = world(seed, FREE)
    found = freedom_bounds(env, ("suspend", "elastic", "caps", "all"))
    optimum = brute_force(env, {"suspend"})
    none = found.worth["none"]
    for name in ("suspend", "elastic", "caps"):
        each = found.worth[name]
        assert none.upper_usd <= each.upper_usd + 1e-9 <= found.worth["all"].upper_usd + 2e-9
        assert none.known_usd <= each.known_usd + 1e-9 <= each.upper_usd + 2e-9
    assert found.worth["suspend"].known_usd <= optimum + 1e-9 <= found.worth["suspend"].upper_usd + 2e-9


def test_a_freedom_that_no_class_states_is_refused_with_how_to_state_it():
    env = world(0, {"interruptible": True})
    with pytest.raises(ScenarioError, match=r"freedom caps was asked for, but the fleet states suspend; state it"):
        freedom_bounds(env, ("caps",))
