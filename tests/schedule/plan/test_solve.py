from dataclasses import replace

import numpy as np
import pytest

from noonward.errors import InfeasiblePlanError
from noonward.schedule.plan import LoadClass, Planner, PlanProblem, generate, make_plan, tail_mean
from noonward.schedule.plan.generate import whole
from schedule.plan.printed import printed_optimum, whole_compact_optimum
from schedule.plan.problems import paper_like, random_problem


def two_by_two(**changes):
    """Two clusters, two hours; one class that may wait an hour, load 1 in hour 0."""
    values = {
        "classes": (LoadClass(name="batch", clusters=(0, 1), flexibility_h=1),),
        "load_NKC": np.ones((1, 1, 1)),
        "capacity_TD": np.array([[1.0, 1.0], [1.0, 1.0]]),
        "cost_TD": np.array([[4.0, 3.0], [2.0, 1.0]]),
        "peak_cost_D": np.zeros(2),
        "beta": 1.0,
        "eps": 0.0,
    }
    return PlanProblem(**(values | changes))


def test_all_load_goes_to_the_cheapest_hour_and_cluster():
    plan = make_plan(two_by_two())
    assert plan.curve_TD.tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert plan.objective == 1.0
    assert plan.fractions.dense()[0, 0].tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_capacity_pushes_the_rest_to_the_next_cheapest_and_its_dual_is_the_difference():
    plan = make_plan(two_by_two(capacity_TD=np.array([[1.0, 1.0], [1.0, 0.6]])))
    assert plan.curve_TD == pytest.approx(np.array([[0.0, 0.0], [0.4, 0.6]]))
    assert plan.objective == pytest.approx(0.6 * 1 + 0.4 * 2)
    assert plan.prices.capacity_TD == pytest.approx(np.array([[0.0, 0.0], [0.0, 1.0]]))
    assert plan.prices.place_TD[1] == pytest.approx([2.0, 2.0])
    assert plan.prices.service_KC == pytest.approx(np.array([[2.0]]))


def test_a_peak_cost_spreads_the_load():
    # With peak cost 3 a unit at one place costs 1 + 3; each cluster's two hours share one peak: 2 (or 4) + 2 / ...
    plan = make_plan(two_by_two(cost_TD=np.zeros((2, 2)), peak_cost_D=np.array([3.0, 3.0])))
    assert plan.objective == pytest.approx(3 * 0.5)  # both hours at level 0.5 in one cluster, or any mix


def test_the_radius_buys_room_up_to_the_support():
    # One sample, one place: the worst CVaR is the sample + eps / beta, but never above the largest load.
    one = {
        "classes": (LoadClass(name="only", clusters=(0,), flexibility_h=0),),
        "capacity_TD": np.array([[9.0]]),
        "cost_TD": np.array([[1.0]]),
        "peak_cost_D": np.zeros(1),
        "load_max_KC": np.array([[1.5]]),
    }
    assert make_plan(two_by_two(**one, eps=0.1, beta=0.5)).objective == pytest.approx(1.2)
    assert make_plan(two_by_two(**one, eps=0.4, beta=0.5)).objective == pytest.approx(1.5)
    assert make_plan(two_by_two(**one, eps=0.4, beta=0.5, support=False)).objective == pytest.approx(1.8)


def test_the_tail_is_the_mean_of_the_worst_days():
    # Four days at one place: beta 1/2 asks for the mean of the worst two.
    days = np.array([1.0, 2.0, 3.0, 5.0]).reshape(4, 1, 1)
    one = two_by_two(
        classes=(LoadClass(name="only", clusters=(0,), flexibility_h=0),),
        load_NKC=days,
        capacity_TD=np.array([[9.0]]),
        cost_TD=np.array([[1.0]]),
        peak_cost_D=np.zeros(1),
        beta=0.5,
    )
    assert make_plan(one).objective == pytest.approx(4.0)
    assert make_plan(replace(one, beta=0.25)).objective == pytest.approx(5.0)
    assert make_plan(replace(one, beta=1.0)).objective == pytest.approx(2.75)


@pytest.mark.parametrize("seed", range(16))
def test_the_compact_form_equals_the_printed_one(seed):
    problem = random_problem(seed)
    plan = make_plan(problem)
    assert plan.objective == pytest.approx(printed_optimum(problem), abs=1e-6)
    assert plan.objective == pytest.approx(whole_compact_optimum(problem), abs=1e-6)
    assert plan.objective == pytest.approx(problem.cost_of(plan.curve_TD), abs=1e-6)


@pytest.mark.parametrize("support", [True, False])
@pytest.mark.parametrize("eps", [0.0, 0.02, 0.3])
def test_the_forms_agree_for_every_option(eps, support):
    problem = random_problem(3, eps=eps, support=support)
    assert make_plan(problem).objective == pytest.approx(printed_optimum(problem), abs=1e-6)


@pytest.mark.parametrize("changes", [{}, {"beta": 0.02}, {"eps": 0.0}, {"support": False}, {"beta": 0.7, "eps": 0.05}])
def test_generated_rows_give_the_optimum_of_all_rows(changes):
    problem = paper_like(samples=10, **changes)
    plan = make_plan(problem)
    full = whole(problem)
    assert plan.objective == pytest.approx(full.point.value * full.program.unit * full.program.money, rel=1e-8)
    assert plan.certificate.rows < plan.certificate.rows_whole
    assert plan.certificate.violation < 1e-7
    assert abs(plan.certificate.gap) < 1e-8


def test_a_plan_serves_all_within_range_flexibility_and_capacity():
    problem = paper_like(samples=12)
    plan = make_plan(problem)
    y = plan.fractions.dense()
    assert (y >= 0).all()
    assert y.sum(axis=(2, 3)) == pytest.approx(np.ones((12, 7)))
    allowed = np.zeros_like(y)
    for c, one in enumerate(problem.classes):
        for k in range(12):
            for d in one.clusters:
                allowed[k, c, k : k + one.flexibility_h + 1, d] = 1
    assert (y[allowed == 0] == 0).all()
    assert (plan.curve_TD >= 0).all()
    assert (plan.curve_TD <= problem.capacity_TD).all()
    served = plan.fractions.load(problem.load_NKC).sum(axis=(1, 2))
    assert served == pytest.approx(problem.load_NKC.sum(axis=(1, 2)))


def test_classes_of_different_flexibility_share_one_plan():
    quick = LoadClass(name="q", clusters=(0, 1), flexibility_h=0)
    slow = LoadClass(name="s", clusters=(0,), flexibility_h=3)
    problem = PlanProblem(
        classes=(quick, slow),
        load_NKC=np.ones((1, 2, 2)),
        capacity_TD=np.full((5, 2), 4.0),
        cost_TD=np.arange(10.0, 0.0, -1.0).reshape(5, 2),
        peak_cost_D=np.zeros(2),
        eps=0.0,
    )
    y = make_plan(problem).fractions.dense()
    assert y[:, 0].sum(axis=2).tolist() == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]]  # at once
    assert y[:, 1, :, 0].tolist() == [[0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]  # as late as costs fall


@pytest.mark.parametrize("seed", range(6))
def test_the_guarantee_holds_on_the_samples(seed):
    problem = random_problem(seed, eps=0.0)
    plan = make_plan(problem)
    assert tail_mean(plan.excess(problem.load_NKC), problem.beta) <= 1e-7
    # It binds: any less capacity everywhere breaks it.
    less = plan.fractions.load(problem.load_NKC) - (plan.curve_TD - 1e-3)
    assert tail_mean(less.max(axis=(1, 2)), problem.beta) > 0


@pytest.mark.parametrize("seed", range(4))
def test_cost_falls_with_beta_and_capacity_and_rises_with_the_radius(seed):
    problem = random_problem(seed, support=True)
    by_beta = [make_plan(replace(problem, beta=b)).objective for b in (0.1, 0.3, 0.6, 1.0)]
    by_eps = [make_plan(replace(problem, eps=e)).objective for e in (0.0, 0.01, 0.1, 1.0)]
    by_room = [make_plan(replace(problem, capacity_TD=problem.capacity_TD * r)).objective for r in (1.0, 1.3, 3.0)]
    assert (np.diff(by_beta) <= 1e-9).all()
    assert (np.diff(by_eps) >= -1e-9).all()
    assert (np.diff(by_room) <= 1e-9).all()
    assert by_eps[-1] > by_eps[0]


def test_a_larger_tail_is_cheaper():
    problem = paper_like(samples=10)
    assert make_plan(replace(problem, beta=0.6)).objective < make_plan(replace(problem, beta=0.1)).objective - 1e-3


def test_a_knob_on_capacity_changes_the_plan():
    problem = paper_like(samples=6)
    tight = replace(problem, capacity_TD=np.full((16, 4), 0.75))
    assert make_plan(tight).objective > make_plan(problem).objective + 1e-4


def test_load_that_is_placed_already_takes_its_part_of_the_curve():
    plan = make_plan(two_by_two(placed_TD=np.array([[0.0, 0.0], [0.0, 0.7]])))
    assert plan.curve_TD == pytest.approx(np.array([[0.0, 0.0], [0.7, 1.0]]))
    assert plan.excess(np.ones((1, 1, 1))) == pytest.approx(0.0)


@pytest.mark.parametrize("seed", range(4))
def test_prices_add_up_to_the_objective_and_foretell_a_change(seed):
    problem = random_problem(seed, placed_TD=None)
    tight = replace(problem, capacity_TD=problem.capacity_TD * 0 + 2.2, load_max_KC=None, eps=0.02)
    plan = make_plan(tight)
    prices = plan.prices
    paid = prices.service_KC.sum() - (prices.capacity_TD * tight.capacity_TD).sum()
    assert paid == pytest.approx(plan.objective, rel=1e-8)
    t, d = np.unravel_index(int(plan.curve_TD.argmax()), plan.curve_TD.shape)
    more = np.zeros_like(tight.capacity_TD)
    more[t, d] = 1e-4
    dearer = make_plan(replace(tight, placed_TD=more)).objective - plan.objective
    assert dearer == pytest.approx(1e-4 * prices.place_TD[t, d], rel=0.05, abs=1e-9)


def test_a_replan_is_the_plan_made_afresh():
    problem = paper_like(samples=8)
    planner = Planner()
    first = planner.plan(problem)
    known = problem.load_NKC.copy()
    known[:, 0] = known[2, 0]
    again = planner.replan(first, load_NKC=known)
    assert again.objective == pytest.approx(make_plan(replace(problem, load_NKC=known)).objective, rel=1e-9)
    assert again.certificate.iterations < first.certificate.iterations
    # Another shape starts afresh.
    fewer = planner.plan(replace(problem, load_NKC=known[:4]))
    assert fewer.objective == pytest.approx(make_plan(replace(problem, load_NKC=known[:4])).objective, rel=1e-9)


def test_units_do_not_matter():
    problem = random_problem(5, eps=0.05)
    big = replace(
        problem,
        load_NKC=problem.load_NKC * 5e4,
        capacity_TD=problem.capacity_TD * 5e4,
        load_max_KC=problem.load_max_KC * 5e4,
        eps=problem.eps * 5e4,
        cost_TD=problem.cost_TD * 1e-3,
        peak_cost_D=problem.peak_cost_D * 1e-3,
    )
    assert make_plan(big).objective == pytest.approx(make_plan(problem).objective * 50, rel=1e-8)


def test_same_problem_same_plan_to_the_bit():
    problem = paper_like(samples=5)
    one, two = make_plan(problem), make_plan(problem)
    assert np.array_equal(one.curve_TD, two.curve_TD)
    assert np.array_equal(one.fractions.value_X, two.fractions.value_X)


def test_an_infeasible_problem_says_what_is_short_and_what_would_do():
    problem = two_by_two(capacity_TD=np.array([[0.2, 0.2], [0.2, 0.2]]))
    with pytest.raises(InfeasiblePlanError, match=r"'batch' submitted in hour 0 .* at least 1\.25.*no beta would do"):
        make_plan(problem)
    make_plan(replace(problem, capacity_TD=problem.capacity_TD * 1.2501))


def test_an_infeasible_tail_names_the_smallest_beta():
    # Days of load 1, 2, 3, 5 at capacity 4: the mean of the worst half is 4, of the worst quarter 5.
    problem = two_by_two(
        classes=(LoadClass(name="only", clusters=(0,), flexibility_h=0),),
        load_NKC=np.array([1.0, 2.0, 3.0, 5.0]).reshape(4, 1, 1),
        capacity_TD=np.array([[4.0]]),
        cost_TD=np.array([[1.0]]),
        peak_cost_D=np.zeros(1),
        beta=0.25,
    )
    with pytest.raises(InfeasiblePlanError, match=r"by at least 1\.25.*raise beta from 0\.25 to at least 0\.5"):
        make_plan(problem)
    make_plan(replace(problem, beta=0.5001))
    make_plan(replace(problem, capacity_TD=np.array([[5.001]])))


def test_the_curves_become_capacity_curves_of_the_engine():
    caps = make_plan(two_by_two()).caps(hard=False, unit=8.0)
    assert caps.gpus_SH.tolist() == [[0.0, 0.0], [0.0, 8.0]]
    assert caps.hard is False


def test_rows_are_generated_in_few_rounds():
    assert generate.MOST_ROUNDS >= 100
    assert make_plan(paper_like(samples=20)).certificate.rounds <= 12
