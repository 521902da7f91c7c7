"""The marginal greedy of one elastic job, held to a search of all schedules."""

import itertools

import numpy as np
import pytest

from noonward.errors import ScenarioError
from noonward.schedule.cluster.marginal_greedy import marginal_greedy


@pytest.mark.parametrize("seed", range(60))
def test_no_schedule_that_does_as_much_costs_less(seed):
    rng = np.random.default_rng(seed)
    hours, most = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    cost_H = rng.uniform(1, 10, hours).round(1)
    power_N = np.concatenate([[0.0], np.cumsum(rng.uniform(1, 2, most))])
    per_power_N = np.sort(rng.uniform(0.5, 2, most))[::-1]  # the work of a further node per its power falls
    work_N = np.concatenate([[0.0], np.cumsum(per_power_N * np.diff(power_N))])
    work = rng.uniform(0.1, 1.0) * hours * work_N[-1]
    nodes_H = marginal_greedy(cost_H, work_N, power_N, work)
    done = work_N[nodes_H].sum()
    assert done >= work - 1e-9
    every = [np.array(each) for each in itertools.product(range(most + 1), repeat=hours)]
    least = min(power_N[each] @ cost_H for each in every if work_N[each].sum() >= done - 1e-9)
    assert power_N[nodes_H] @ cost_H == pytest.approx(least)


def test_a_profile_or_window_that_does_not_do_is_refused():
    work_N, power_N, cost_H = np.array([0.0, 1.0]), np.array([0.0, 2.0]), np.ones(3)
    assert marginal_greedy(cost_H, work_N, power_N, 2.0).tolist() == [1, 1, 0]
    with pytest.raises(ScenarioError, match="3 hours at 1 nodes do 3 of 4 units of work"):
        marginal_greedy(cost_H, work_N, power_N, 4.0)
    with pytest.raises(ScenarioError, match="must rise from 0"):
        marginal_greedy(cost_H, np.array([0.0, 1.0, 1.0]), np.array([0.0, 1.0, 2.0]), 1.0)
    with pytest.raises(ScenarioError, match="cost of hour 1 is not above 0"):
        marginal_greedy(np.array([1.0, 0.0]), work_N, power_N, 1.0)
