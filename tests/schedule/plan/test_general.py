"""Runs of several hours and known load: against Eq. (14), by hand, and by property."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.schedule.plan import LoadClass, PlanProblem, Queued, make_plan, tail_mean
from noonward.schedule.plan.baselines import greedy, perfect_forecast, run_at_once, spread_evenly
from noonward.schedule.plan.generate import whole
from schedule.plan.printed import printed_optimum, whole_compact_optimum
from schedule.plan.problems import general_problem, paper_like


@pytest.mark.parametrize("support", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_the_compact_form_is_the_printed_one(seed, support):
    problem = general_problem(seed, support=support)
    plan = make_plan(problem)
    assert plan.objective == pytest.approx(printed_optimum(problem), abs=1e-6)
    assert plan.objective == pytest.approx(whole_compact_optimum(problem), abs=1e-6)
    assert plan.objective == pytest.approx(problem.cost_of(plan.curve_TD), abs=1e-6)
    assert abs(plan.certificate.gap) < 1e-8


@pytest.mark.parametrize("eps", [0.02, 0.3, 2.0])
def test_the_forms_agree_where_the_radius_is_large(eps):
    problem = general_problem(4, eps=eps, support=True)
    assert make_plan(problem).objective == pytest.approx(printed_optimum(problem), abs=1e-6)


def general_paper_like(samples=8, **changes):
    """The paper's form with runs of one to three hours; large enough for interior point."""
    plain = paper_like(samples=samples)
    classes = tuple(replace(one, run_hours=1 + i % 3) for i, one in enumerate(plain.classes))
    span = 12 + max(one.reach_h for one in classes)
    hour_T = np.arange(span)[:, None]
    values = {
        "classes": classes,
        "capacity_TD": np.full((span, 4), 3.0),
        "cost_TD": 1 + 0.2 * np.cos(2 * np.pi * (hour_T - np.arange(4)) / 12),
        "peak_cost_D": np.full(4, 0.2),
    }
    return replace(plain, **(values | changes))


@pytest.mark.parametrize("changes", [{}, {"eps": 0.0}, {"support": False}, {"beta": 0.5, "eps": 0.1}])
def test_generated_rows_give_the_optimum_of_all_rows(changes):
    problem = general_paper_like(**changes)
    plan, full = make_plan(problem), whole(problem)
    assert plan.objective == pytest.approx(full.point.value * full.program.unit * full.program.money, rel=1e-8)
    assert plan.certificate.rows < plan.certificate.rows_whole
    assert plan.certificate.violation < 1e-7


def known(**changes):
    """Two clusters, three hours; one class of load 1 in hour 0, which may wait an hour and runs for two."""
    values = {
        "classes": (LoadClass(name="long", clusters=(0, 1), flexibility_h=1, run_hours=2),),
        "load_NKC": np.ones((1, 1, 1)),
        "capacity_TD": np.full((3, 2), 5.0),
        "cost_TD": np.array([[1.0, 4.0], [6.0, 2.0], [1.0, 3.0]]),
        "peak_cost_D": np.zeros(2),
        "beta": 1.0,
        "eps": 0.0,
    }
    return PlanProblem(**(values | changes))


def test_a_run_of_two_hours_takes_the_cheapest_pair_of_hours_without_interruption():
    # Cluster 0: 1 + 6 or 6 + 1 (its cheap hours do not touch). Cluster 1: 4 + 2 or 2 + 3.
    plan = make_plan(known())
    assert plan.objective == pytest.approx(5.0)
    assert plan.curve_TD == pytest.approx(np.array([[0, 0], [0, 1], [0, 1]]))
    assert plan.fractions.dense()[0, 0].tolist() == [[0, 0], [0, 1], [0, 0]]  # the start
    # Half of it fits there, the rest takes the next best: hours 0 and 1 at cluster 1 are full in hour 1, too.
    tight = make_plan(known(capacity_TD=np.array([[5.0, 5.0], [5.0, 0.5], [5.0, 5.0]])))
    assert tight.objective == pytest.approx(0.5 * 5 + 0.5 * 7)


def test_queued_load_starts_within_its_remaining_delay():
    waiting = known(load_NKC=np.zeros((1, 1, 1)), queued=(Queued(load_class=0, load=2.0, flexibility_h=1),))
    plan = make_plan(waiting)
    assert plan.objective == pytest.approx(10.0)
    assert plan.known_load() == pytest.approx(np.array([[0, 0], [0, 2], [0, 2]]))
    now = make_plan(replace(waiting, queued=(Queued(load_class=0, load=2.0, flexibility_h=0),)))
    assert now.objective == pytest.approx(2 * 6.0)
    assert plan.prices.queued_Q == pytest.approx([10.0])


def test_known_load_pays_no_radius():
    # Queued load is certain: its curve does not grow with the radius, that of load to come does.
    problem = known(load_NKC=np.zeros((2, 1, 1)), load_max_KC=np.zeros((1, 1)))
    queued = replace(problem, queued=(Queued(load_class=0, load=1.0, flexibility_h=1),))
    assert make_plan(replace(queued, eps=0.5)).objective == pytest.approx(5.0)
    sampled = known(load_NKC=np.ones((2, 1, 1)), load_max_KC=np.full((1, 1), 3.0), eps=0.5)
    assert make_plan(sampled).objective > 5.5


def test_an_earlier_peak_is_paid_for():
    problem = known(peak_cost_D=np.array([10.0, 10.0]))
    free = make_plan(replace(problem, peak_before_D=np.array([1.0, 0.0])))
    assert free.curve_TD[:, 0].max() == pytest.approx(1.0)
    assert free.objective == pytest.approx(7 + 10)
    assert make_plan(problem).objective == pytest.approx(5 + 10)
    assert abs(free.certificate.gap) < 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_serves_all_within_range_window_and_capacity(seed):
    problem = general_problem(seed)
    plan = make_plan(problem)
    y = plan.fractions.dense()
    assert (y >= 0).all()
    assert y.sum(axis=(2, 3)) == pytest.approx(np.ones(y.shape[:2]))
    for k in range(y.shape[0]):
        for c, one in enumerate(problem.classes):
            inside = np.zeros(y.shape[2:], dtype=bool)
            inside[k : k + one.flexibility_h + 1, list(one.clusters)] = True
            assert (y[k, c][~inside] == 0).all()
    assert (plan.curve_TD >= 0).all()
    assert (plan.curve_TD <= problem.capacity_TD).all()
    # Every unit runs for its hours.
    run_hours_C = np.array([one.run_hours for one in problem.classes])
    served = plan.fractions.load(problem.load_NKC).sum(axis=(1, 2))
    assert served == pytest.approx(problem.load_NKC.sum(axis=1) @ run_hours_C)
    queue = plan.known_load().sum() - problem.placed_TD.sum()
    assert queue == pytest.approx(problem.queued[0].load * run_hours_C[1])


@pytest.mark.parametrize("seed", range(6))
def test_the_guarantee_holds_on_the_samples(seed):
    problem = general_problem(seed)
    plan = make_plan(problem)
    assert tail_mean(plan.excess(problem.load_NKC), problem.beta) <= 1e-7


@pytest.mark.parametrize("seed", range(4))
def test_cost_falls_with_beta_and_capacity_and_rises_with_the_radius(seed):
    problem = general_problem(seed, support=True)
    by_beta = [make_plan(replace(problem, beta=b)).objective for b in (0.1, 0.3, 0.6, 1.0)]
    by_eps = [make_plan(replace(problem, eps=e)).objective for e in (0.0, 0.01, 0.1, 1.0)]
    by_room = [make_plan(replace(problem, capacity_TD=problem.capacity_TD * r)).objective for r in (1.0, 1.3, 3.0)]
    assert (np.diff(by_beta) <= 1e-9).all()
    assert (np.diff(by_eps) >= -1e-9).all()
    assert (np.diff(by_room) <= 1e-9).all()
    assert by_eps[-1] > by_eps[0]


def test_prices_foretell_what_more_placed_load_costs():
    problem = general_problem(2, support=True, eps=0.01)
    plan = make_plan(problem)
    place = np.unravel_index(int(plan.prices.place_TD.argmax()), plan.curve_TD.shape)
    more = problem.placed_TD.copy()
    more[place] += 1e-4
    dearer = make_plan(replace(problem, placed_TD=more)).objective - plan.objective
    assert dearer == pytest.approx(1e-4 * plan.prices.place_TD[place], rel=0.05, abs=1e-9)


def test_baselines_run_units_whole():
    day = np.ones((1, 1))
    # The cheapest two hours from hour 0: cluster 1 for 6 (cluster 0 costs 7); only 0.4 fit there in hour 1.
    tight = known(capacity_TD=np.array([[5.0, 5.0], [5.0, 0.4], [5.0, 5.0]]))
    placed = greedy(tight, day)
    assert placed.load_TD == pytest.approx(np.array([[0.6, 0.4], [0.6, 0.4], [0, 0]]))
    taken = np.array([[0.0, 0.0], [5.0, 5.0], [0.0, 0.0]])
    full = greedy(known(placed_TD=taken), day)
    assert (full.load_TD.sum(), full.left) == pytest.approx((0.0, 1.0))  # no two hours in a row
    assert run_at_once(known()).load(day) == pytest.approx(np.array([[0.5, 0.5], [0.5, 0.5], [0, 0]]))
    assert spread_evenly(known()).load(day) == pytest.approx(np.array([[0.25] * 2, [0.5] * 2, [0.25] * 2]))
    assert perfect_forecast(known(), day).objective == pytest.approx(5.0)


def test_greedy_keeps_long_runs_within_capacity():
    problem = general_paper_like(samples=2)
    tight = replace(problem, capacity_TD=problem.capacity_TD * 0.5)
    placed = greedy(tight, problem.load_NKC[0])
    assert placed.load_TD.shape == problem.capacity_TD.shape
    assert (placed.load_TD <= tight.capacity_TD + 1e-9).all()
    assert placed.late > 0


@pytest.mark.parametrize("hours", [0, -1, 1.5])
def test_a_run_is_whole_hours_from_one_on(hours):
    with pytest.raises(ScenarioError, match=r"class 'x' runs for .* h; run_hours must be whole hours, at least 1"):
        LoadClass(name="x", clusters=(0,), flexibility_h=0, run_hours=hours)


def test_a_run_past_the_horizon_names_its_class():
    longer = (LoadClass(name="weeks", clusters=(0,), flexibility_h=1, run_hours=200),)
    with pytest.raises(ScenarioError, match=r"expected \(201, 2\).*class 'weeks' starts up to 1 h late and runs 200 h"):
        known(classes=longer)


def test_a_queue_must_fit_classes_and_horizon():
    for wait, match in (
        (Queued(load_class=1, load=1.0, flexibility_h=0), "is of class 1; classes are 0 to 0"),
        (Queued(load_class=0, load=-1.0, flexibility_h=0), "has a load of -1.0"),
        (Queued(load_class=0, load=1.0, flexibility_h=2), "runs 2 h and the horizon has 3 h, so give .* from 0 to 1"),
        (Queued(load_class=0, load=1.0, flexibility_h=-1), "may start -1 h from now"),
    ):
        with pytest.raises(ScenarioError, match=match):
            known(queued=(wait,))


def test_what_is_short_is_named_with_its_queue():
    def big(capacity, **changes):
        return known(
            classes=(LoadClass(name="big", clusters=(0, 1), flexibility_h=0),),
            capacity_TD=np.array(capacity),
            cost_TD=np.ones((1, 2)),
            **changes,
        )

    with pytest.raises(InfeasiblePlanError, match=r"capacity is shortest .* at least 2\.0+"):
        make_plan(big([[0.25, 0.25]]))
    queue = {"load_NKC": np.zeros((1, 1, 1)), "queued": (Queued(load_class=0, load=1.0, flexibility_h=0),)}
    with pytest.raises(
        InfeasiblePlanError, match=r"class 'big' queued \(queued\[0\]\) cannot be served within hours 0"
    ):
        make_plan(big([[0.25, 0.25]], **queue))
    with pytest.raises(InfeasiblePlanError, match=r"class 'big' queued \(queued\[0\]\) has a capacity of zero"):
        big([[0.0, 0.0]], **queue)
