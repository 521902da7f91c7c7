"""Training seeds as one policy, and what is read off training curves; by hand."""

import dataclasses
import math

import numpy as np
import pytest

from noonward.evaluate.learned import (
    Learned,
    change_over_training,
    converged_epoch,
    fluctuation,
    last_level,
    pooled,
    seed_gains,
)

NAN = math.nan


def learned(*curves, name="masac", members=("a", "b")):
    records = tuple({"curve": [{"reward_per_step": value} for value in curve]} for curve in curves)
    return Learned(name=name, members=members[: len(records)], records=records)


@pytest.fixture
def two_seeds(money):
    """A comparison in which two rules stand for two seeds of a learned policy."""
    return Learned(name="pair", members=("price-greedy", "booked-perfect"), records=({}, {}))


def test_a_pooled_policy_has_the_mean_over_its_seeds_in_every_environment(money, two_seeds):
    found = pooled(money, {"pair": two_seeds})
    assert list(found.records) == ["pair", "local-fcfs", "random"]
    for name in ("utility_usd", "gpu_hours", "overdue", "move_usd"):
        both = [money.values(member, name) for member in two_seeds.members]
        assert found.values("pair", name) == pytest.approx(np.mean(both, axis=0))
    assert found.records["random"][0] is money.records["random"][0]
    assert found.records["pair"][1].hours.equals(money.records["price-greedy"][1].hours)
    between = sorted(money.gain(member).value for member in two_seeds.members)
    assert between[0] < found.gain("pair").value < between[1]
    assert found.gain("pair").value == pytest.approx(np.mean(between))


def test_seeds_are_compared_each_by_itself(money, two_seeds):
    assert seed_gains(money, two_seeds) == pytest.approx([money.gain(member).value for member in two_seeds.members])
    alone = dataclasses.replace(two_seeds, members=("random",), records=({},))
    assert pooled(money, {"pair": alone}).records["pair"] == money.records["random"]


def test_curves_are_cut_to_the_shortest_seed_and_absent_where_none_was_logged():
    each = learned([1.0, 2.0, None], [3.0, 4.0, 5.0, 6.0])
    np.testing.assert_array_equal(each.curve("reward_per_step"), [[1.0, 2.0, NAN], [3.0, 4.0, 5.0]])
    assert each.curve("migration_usd_per_step").size == 0
    assert Learned(name="x", members=("x",), records=({},)).curve("reward_per_step").size == 0


def test_converged_is_where_five_epochs_are_near_the_end():
    step = np.array([0.0] * 9 + [1.0] * 31)
    assert converged_epoch(step) == 10
    assert converged_epoch(np.concatenate([step, [NAN]])) == 10
    spike = step.copy()
    spike[3] = 5.0 * 0.9
    assert converged_epoch(spike) == 10
    assert converged_epoch(np.arange(100.0)) == 89
    assert math.isnan(converged_epoch(-step))
    assert math.isnan(converged_epoch(np.ones(40)))
    assert math.isnan(converged_epoch(np.array([0.0, 1.0])))


def test_level_fluctuation_and_change():
    values = np.array([4.0, *[9.0] * 10, *[1.0, 3.0] * 10])
    assert last_level(values) == pytest.approx(7 / 3)
    assert fluctuation(values) == pytest.approx(np.std([1.0, 3.0] * 3, ddof=1) / 2)
    assert fluctuation(np.array([9.0, NAN, 1.0, 3.0])) == pytest.approx(np.std([1.0, 3.0], ddof=1) / 2)
    assert change_over_training(values) == pytest.approx(7 / 12 - 1)
    assert change_over_training(np.array([NAN, 4.0, NAN, 1.0])) == -0.75
    assert math.isnan(change_over_training(np.array([0.0, 1.0])))
    assert math.isnan(fluctuation(np.array([NAN, 1.0])))
