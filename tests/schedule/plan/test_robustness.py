from dataclasses import replace

import numpy as np
import pytest

from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.schedule.plan import LoadClass, PlanProblem, choose_robustness, make_plan


def one_place(days, beta=0.25, capacity=20.0):
    """One hour, one cluster, one class: the curve is all there is to choose."""
    return PlanProblem(
        classes=(LoadClass(name="only", clusters=(0,), flexibility_h=0),),
        load_NKC=np.asarray(days, dtype=float).reshape(-1, 1, 1),
        capacity_TD=np.array([[capacity]]),
        cost_TD=np.array([[1.0]]),
        peak_cost_D=np.zeros(1),
        beta=beta,
        support=False,
    )


DAYS = [1.0, 1.1, 2.0, 1.2, 1.3, 1.1, 3.0, 1.0]
"""Two folds; each half's worst day is the tail of 1/4: the curve is 2 (or 3) + 4 eps."""


def test_the_cheapest_radius_that_keeps_the_promise_is_chosen():
    # Planned on the first half the curve is 2 + 4 eps, on the second 3 + 4 eps: one of eight days (3.0) is missed
    # until eps is 0.25; a share of 7/8 keeps the promise of 3/4.
    found = choose_robustness(one_place(DAYS), (0.1, 0.0, 0.3), folds=2)
    assert found.kept
    assert found.chosen.eps == 0.0
    assert [trial.held_share for trial in found.trials] == [7 / 8, 7 / 8, 1.0]
    assert [trial.planned_cost for trial in found.trials] == pytest.approx([2.5, 2.9, 3.7])
    assert found.chosen.violations == 1 / 8
    assert found.chosen.excess == pytest.approx(1 / 8)
    assert found.chosen.load_cost == pytest.approx(np.mean(DAYS))
    # Pooled, the worst two days of eight have excess 3 - 2 and 1.3 - 2.
    assert found.chosen.tail == pytest.approx((1.0 - 0.7) / 2)


def test_the_tail_criterion_asks_for_the_mean_of_the_worst_days():
    days = [1.0, 1.1, 2.0, 1.2, 1.3, 2.9, 3.0, 1.0]
    # Curve 2 + 4 eps on the second half: excess 1 and 0.9 at eps 0.
    by_days = choose_robustness(one_place(days), (0.0, 0.2, 0.3), folds=2)
    assert (by_days.chosen.eps, by_days.chosen.held_share) == (0.0, 0.75)
    by_tail = choose_robustness(one_place(days), (0.0, 0.2, 0.3), folds=2, criterion="tail")
    assert [trial.tail for trial in by_tail.trials] == pytest.approx([0.95, 0.15, -0.25])
    assert (by_tail.chosen.eps, by_tail.kept) == (0.3, True)
    assert [trial.folds_held for trial in by_tail.trials] == [0.5, 0.5, 1.0]


def test_folds_are_contiguous_blocks_of_days():
    # Winter then summer: every other day held out would fit; a season held out does not.
    seasons = one_place([1.0, 1.1, 1.2, 1.3, 3.0, 3.1, 3.2, 3.3])
    found = choose_robustness(seasons, (0.0,), folds=2)
    assert found.chosen.held_share == 0.5
    assert not found.kept


def test_where_no_radius_keeps_the_promise_the_least_miss_is_chosen_and_said():
    # Without the second half the curve is 1 + 10 eps: all of it is missed, or all but 3.2, where 9 of 10 are promised.
    promising = one_place([1, 1, 1, 1, 3, 3, 3, 3.2], beta=0.1)
    found = choose_robustness(promising, (0.0, 0.01, 0.21), folds=2)
    assert not found.kept
    assert (found.chosen.eps, found.chosen.held_share) == (0.21, 0.875)
    missed = choose_robustness(promising, (0.0, 0.01), folds=2)
    assert missed.chosen.eps == 0.0  # both miss alike: the cheaper
    assert "none tried keeps the promise" in str(missed)


def test_tails_are_tried_against_the_problems_promise():
    found = choose_robustness(one_place(DAYS, beta=0.25), (0.0,), (0.25, 1.0), folds=2)
    assert [trial.beta for trial in found.trials] == [0.25, 1.0]
    assert found.promise == 0.75
    # The mean as curve misses more than a quarter of days.
    assert found.trials[1].planned_cost < found.trials[0].planned_cost
    assert found.trials[1].held_share < found.trials[0].held_share


def test_progress_counts_plans_and_trials_are_made_of_the_other_days():
    told = []
    problem = one_place(DAYS)
    found = choose_robustness(problem, (0.0, 0.1), folds=4, progress=told.append)
    assert len(told) == 8
    assert told[0] == "eps 0, beta 0.25, fold 1 of 4"
    curves = [
        make_plan(replace(problem, load_NKC=np.delete(problem.load_NKC, [2 * f, 2 * f + 1], axis=0), eps=0.1)).objective
        for f in range(4)
    ]
    assert found.trials[1].planned_cost == pytest.approx(np.mean(curves))


def test_radii_without_a_plan_are_passed_over():
    found = choose_robustness(one_place(DAYS, capacity=3.0), (0.0, 0.3), folds=2)
    assert [trial.failed for trial in found.trials] == [0, 2]
    assert found.chosen.eps == 0.0
    with pytest.raises(InfeasiblePlanError, match="has a plan in every fold"):
        choose_robustness(one_place(DAYS, capacity=1.5), (0.0, 0.3), folds=2)


def test_what_cannot_be_tried_is_refused():
    problem = one_place(DAYS)
    for folds in (1, 9):
        with pytest.raises(ScenarioError, match=r"and 8 samples; give 2 to 8 folds"):
            choose_robustness(problem, (0.0,), folds=folds)
    with pytest.raises(ScenarioError, match="no radius or no tail"):
        choose_robustness(problem, ())
    with pytest.raises(ScenarioError, match="eps is -1"):
        choose_robustness(problem, (-1.0,))
    with pytest.raises(ScenarioError, match="the criterion is 'luck'"):
        choose_robustness(problem, (0.0,), criterion="luck")
