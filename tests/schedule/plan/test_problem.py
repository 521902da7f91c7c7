from dataclasses import replace

import numpy as np
import pytest

from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.schedule.plan import LoadClass, PlanProblem, make_plan
from noonward.schedule.plan.problem import HEADROOM
from schedule.plan.problems import random_problem


def refused(match, **changes):
    problem = random_problem(1)
    with pytest.raises(ScenarioError, match=match):
        replace(problem, **changes)


def test_empty_samples_are_refused():
    refused("give at least one sample", load_NKC=np.empty((0, 2, 2)))
    refused("give at least one sample", load_NKC=np.ones((2, 2)))


def test_a_negative_or_unknown_load_is_refused_by_its_place():
    load = random_problem(1).load_NKC.copy()
    load[1, 0, 1] = -0.5
    refused(r"load_NKC\[1, 0, 1\] is -0.5; it must be finite and at least 0", load_NKC=load)
    load[1, 0, 1] = np.nan
    refused(r"load_NKC\[1, 0, 1\] is nan", load_NKC=load)


def test_a_load_above_the_support_is_refused():
    problem = random_problem(1, support=True)
    load = problem.load_NKC.copy()
    load[0, 1, 0] = problem.load_max_KC[1, 0] * 2
    refused(r"sample 0 has a load of .* of class 'bound' in hour 1, above the largest", load_NKC=load, support=True)


@pytest.mark.parametrize("beta", [0.0, -0.1, 1.01, np.nan])
def test_a_tail_outside_0_to_1_is_refused(beta):
    refused("beta is", beta=beta)


@pytest.mark.parametrize("eps", [-0.1, np.inf, np.nan])
def test_a_radius_below_0_is_refused(eps):
    refused("eps is", eps=eps)


def test_a_class_needs_a_range_and_whole_hours_of_flexibility():
    with pytest.raises(ScenarioError, match="class 'x' has an empty spatial range"):
        LoadClass(name="x", clusters=(), flexibility_h=1)
    with pytest.raises(ScenarioError, match="each once"):
        LoadClass(name="x", clusters=(1, 1), flexibility_h=1)
    with pytest.raises(ScenarioError, match="flexibility of -1 h"):
        LoadClass(name="x", clusters=(0,), flexibility_h=-1)
    refused("may run at cluster 7, but there are 2", classes=(
        LoadClass(name="x", clusters=(7,), flexibility_h=0),
        LoadClass(name="y", clusters=(0,), flexibility_h=random_problem(1).shape[3] - random_problem(1).shape[1]),
    ))  # fmt: skip


def test_no_class_is_refused():
    refused("there is no class", classes=())


@pytest.mark.parametrize("name", ["capacity_TD", "cost_TD", "peak_cost_D", "load_max_KC"])
def test_shapes_that_disagree_are_refused(name):
    refused(f"{name} has shape", **{name: np.ones(5) if name == "peak_cost_D" else np.ones((9, 9))})


def test_infinite_capacity_and_negative_peak_cost_are_refused():
    refused("capacity_TD", capacity_TD=np.full_like(random_problem(1).capacity_TD, np.inf))
    refused("peak_cost_D", peak_cost_D=np.array([-1.0, 0.0]))


def test_a_class_without_any_capacity_is_named():
    problem = random_problem(1)
    with pytest.raises(InfeasiblePlanError, match=r"class 'bound' submitted in hour 0 has a capacity of zero"):
        replace(problem, capacity_TD=np.zeros_like(problem.capacity_TD))


def test_the_largest_load_is_the_largest_sample_with_headroom():
    problem = random_problem(2, load_max_KC=None, support=True, eps=0.2)
    assert problem.largest_KC == pytest.approx(HEADROOM * problem.load_NKC.max(axis=0))
    given = replace(problem, load_max_KC=HEADROOM * problem.load_NKC.max(axis=0))
    assert make_plan(problem).objective == make_plan(given).objective


def test_negative_costs_are_legal():
    problem = random_problem(0, eps=0.0)
    plan = make_plan(replace(problem, cost_TD=problem.cost_TD - 1.5))
    assert plan.objective == pytest.approx(plan.problem.cost_of(plan.curve_TD))
    assert abs(plan.certificate.gap) < 1e-9


def test_a_problem_is_frozen():
    with pytest.raises(AttributeError):
        random_problem(1).beta = 0.5
    assert isinstance(random_problem(1), PlanProblem)
