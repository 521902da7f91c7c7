from dataclasses import replace

import numpy as np
import pytest

from noonward.errors import ScenarioError
from noonward.schedule.plan import LoadClass, Planner, PlanProblem, Queued, load_of_starts, make_plan, remaining
from noonward.schedule.plan.placement import Tracker
from schedule.plan.problems import general_problem


def day_problem(**changes):
    """Four hours; classes with no delay, two hours of delay and a run of three hours."""
    rng = np.random.default_rng(7)
    values = {
        "classes": (
            LoadClass(name="now", clusters=(0, 1), flexibility_h=0),
            LoadClass(name="later", clusters=(0, 1), flexibility_h=2),
            LoadClass(name="long", clusters=(1,), flexibility_h=1, run_hours=3),
        ),
        "load_NKC": rng.uniform(0.5, 1.0, (5, 4, 3)),
        "capacity_TD": np.full((7, 2), 6.0),
        "cost_TD": rng.uniform(0.5, 2.0, (7, 2)),
        "peak_cost_D": np.array([0.4, 0.3]),
        "eps": 0.02,
    }
    return PlanProblem(**(values | changes))


def first_hour(plan, load_C):
    """What Eq. (15) does with the load of hour 0 in ten jobs a class: starts now, and what waits with its delay."""
    tracker = Tracker(plan.fractions)
    starts, waiting = [], []
    for c, one in enumerate(plan.problem.classes):
        for _ in range(10):
            t, d = tracker.place(0, c, load_C[c] / 10)
            if t == 0:
                starts.append((c, 0, d, load_C[c] / 10))
            else:
                waiting.append(Queued(load_class=c, load=load_C[c] / 10, flexibility_h=one.flexibility_h - 1))
    return starts, tuple(waiting)


def test_a_replan_with_what_runs_and_waits_is_the_plan_made_afresh():
    problem = day_problem()
    planner = Planner()
    plan = planner.plan(problem)
    starts, waiting = first_hour(plan, problem.load_NKC[0, 0])
    assert starts
    assert waiting
    running_TD = load_of_starts(problem, *map(np.array, zip(*starts, strict=True)))
    again = planner.plan(remaining(plan, running_TD=running_TD, queued=waiting))
    by_hand = PlanProblem(
        classes=problem.classes,
        load_NKC=problem.load_NKC[:, 1:],
        capacity_TD=np.full((6, 2), 6.0),
        cost_TD=problem.cost_TD[1:],
        peak_cost_D=problem.peak_cost_D,
        eps=0.02,
        placed_TD=running_TD[1:],
        queued=waiting,
        peak_before_D=plan.curve_TD[0],
    )
    assert again.objective == pytest.approx(make_plan(by_hand).objective, rel=1e-9)
    # A unit of three hours that starts in hour 0 still runs in the next two.
    long = sum(volume for c, _, _, volume in starts if c == 2)
    assert running_TD[1:, 1] == pytest.approx([long, long, 0, 0, 0, 0])


@pytest.mark.parametrize("seed", range(4))
def test_what_remains_of_an_optimal_day_costs_what_the_plan_said(seed):
    # A known day: following the plan for an hour and planning again changes nothing (the principle of optimality).
    problem = general_problem(seed, eps=0.0, beta=1.0)
    problem = replace(problem, load_NKC=problem.load_NKC[:1])
    plan = make_plan(problem)
    queue_L = [wait.load for wait in problem.queued]
    fractions, hours = plan.fractions, problem.shape[1]
    starts, waiting = [], []
    volume_L = np.concatenate([problem.load_NKC[0].ravel(), queue_L])
    class_L = [*np.tile(np.arange(2), hours), *(wait.load_class for wait in problem.queued)]
    last_L = [k + problem.classes[c].flexibility_h for k in range(hours) for c in range(2)]
    last_L += [wait.flexibility_h for wait in problem.queued]
    for row, t, d, share in zip(
        fractions.row_X, fractions.run_hour_X, fractions.cluster_X, fractions.value_X, strict=True
    ):
        if 2 <= row < 2 * hours:
            continue  # submitted later
        if t == 0:
            starts.append((class_L[row], 0, d, share * volume_L[row]))
        else:
            waiting.append(
                Queued(load_class=int(class_L[row]), load=share * volume_L[row], flexibility_h=int(last_L[row]) - 1)
            )
    running = load_of_starts(problem, *map(np.array, zip(*starts, strict=True))) if starts else None
    rest = make_plan(remaining(plan, running_TD=running, queued=waiting))
    assert (problem.cost_TD[0] * plan.curve_TD[0]).sum() + rest.objective == pytest.approx(plan.objective, abs=1e-6)


def test_several_hours_may_pass_at_once():
    problem = day_problem()
    plan = make_plan(problem)
    two = remaining(plan, 2)
    assert two.shape == (5, 2, 3, 5, 2)
    assert two.peak_before_D == pytest.approx(plan.curve_TD[:2].max(axis=0))
    again = remaining(make_plan(remaining(plan)), 1)
    assert (again.peak_before_D >= plan.curve_TD[0] - 1e-12).all()


def test_queues_of_the_same_form_start_warm():
    planner = Planner()
    plan = planner.plan(day_problem(queued=(Queued(load_class=1, load=0.4, flexibility_h=1),)))
    again = planner.replan(plan, queued=(Queued(load_class=1, load=0.5, flexibility_h=1),))
    assert again.objective == pytest.approx(make_plan(again.problem).objective, rel=1e-9)
    other = planner.replan(plan, queued=(Queued(load_class=2, load=0.5, flexibility_h=1),) * 2)
    assert other.objective == pytest.approx(make_plan(other.problem).objective, rel=1e-9)


def test_hours_and_shapes_that_do_not_fit_are_refused():
    plan = make_plan(day_problem())
    for hours in (0, 4):
        with pytest.raises(ScenarioError, match="give 1 to 3"):
            remaining(plan, hours)
    with pytest.raises(ScenarioError, match=r"running_TD has shape \(6, 2\); expected the plan's \(7, 2\)"):
        remaining(plan, running_TD=np.zeros((6, 2)))
    problem = plan.problem
    for start in ([3, 0, 0, 1.0], [0, 0, 2, 1.0], [2, 5, 1, 1.0], [0, -1, 0, 1.0], [0, 0, 0, -1.0]):
        with pytest.raises(ScenarioError, match="start 0 has volume"):
            load_of_starts(problem, *([value] for value in start))
    with pytest.raises(ScenarioError, match="four lists of one length"):
        load_of_starts(problem, [0, 1], [0], [0], [1.0])
