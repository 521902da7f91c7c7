"""Plans of many clusters, made by parts: the optimum of the whole LP, on small fleets."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.schedule.plan import LoadClass, Planner, PlanProblem, Queued, parts
from noonward.schedule.plan import program as programs
from noonward.schedule.plan import solve as planning
from noonward.schedule.plan.generate import generate, whole
from noonward.schedule.plan.parts import clusters_of_parts, plan_by_parts

CLUSTERS = 6


def fleet_problem(seed, **changes):
    """Three pairs of clusters: classes of one cluster, of a pair, and two of all clusters, one of which waits, too."""
    rng = np.random.default_rng(seed)
    hours, samples = int(rng.integers(2, 4)), int(rng.integers(3, 7))
    ranges = [(d,) for d in range(CLUSTERS)] + [(0, 1), (2, 3), (4, 5), tuple(range(CLUSTERS)), (1, 2, 5)]
    classes = tuple(
        LoadClass(name=f"class {c}", clusters=r, flexibility_h=int(rng.integers(3)), run_hours=int(rng.integers(1, 3)))
        for c, r in enumerate(ranges)
    )
    span = hours + max(one.reach_h for one in classes)
    load_NKC = rng.uniform(0.2, 1.0, (samples, hours, len(classes)))
    values = {
        "classes": classes,
        "load_NKC": load_NKC,
        "capacity_TD": rng.uniform(6.0, 9.0, (span, CLUSTERS)),
        "cost_TD": rng.uniform(-0.3, 2.0, (span, CLUSTERS)),
        "peak_cost_D": rng.uniform(0.0, 1.0, CLUSTERS),
        "beta": float(rng.uniform(0.15, 0.9)),
        "eps": float(rng.choice([0.0, 0.01, 0.05, 0.3])),
        "load_max_KC": load_NKC.max(axis=0) * rng.uniform(1.0, 1.6),
        "support": bool(rng.integers(4)),
        "placed_TD": rng.uniform(0.0, 0.5, (span, CLUSTERS)),
        "queued": (
            Queued(load_class=9, load=0.7, flexibility_h=int(rng.integers(2))),
            Queued(load_class=0, load=0.3, flexibility_h=0),
        ),
        "peak_before_D": rng.uniform(0.0, 3.0, CLUSTERS),
    }
    return PlanProblem(**(values | changes))


@pytest.fixture(params=[1, 2])
def small_parts(request, monkeypatch):
    """Parts of one cluster, or of two."""
    monkeypatch.setattr(parts, "MOST_CLUSTERS", request.param)


def test_narrow_classes_make_the_parts(monkeypatch):
    problem = fleet_problem(0)
    assert clusters_of_parts(problem) == [list(range(CLUSTERS))]
    monkeypatch.setattr(parts, "MOST_CLUSTERS", 2)
    assert clusters_of_parts(problem) == [[0, 1], [2, 3], [4, 5]]
    monkeypatch.setattr(parts, "MOST_CLUSTERS", 1)
    assert clusters_of_parts(problem) == [[d] for d in range(CLUSTERS)]
    # A cluster that no class may use goes with another.
    fewer = replace(problem, classes=tuple(replace(one, clusters=(1, 2)) for one in problem.classes))
    assert clusters_of_parts(fewer) == [[0, 1, 3, 4, 5], [2]]


@pytest.mark.parametrize("seed", range(16))
def test_a_plan_by_parts_is_the_optimum_of_the_whole(seed, small_parts):
    problem = fleet_problem(seed)
    solved, exact = plan_by_parts(problem), generate(problem)
    scale = max(abs(exact.point.value), 1e-3)
    assert solved.point.value == pytest.approx(exact.point.value, abs=1.1e-6 * scale)
    assert solved.bound <= exact.point.value + 1e-7 * scale
    # The plan keeps to every row of the whole.
    program, x = solved.program, solved.point.x
    entries = problem.entries
    assert program.excess_NP(x).max() <= 1e-7
    assert program.over_G(x).max() <= 1e-7
    assert np.bincount(entries.load_M, x[: program.v]).min() >= 1 - 1e-7
    p_N, q, slope = x[program.p : program.q], x[program.q], x[program.lam]
    assert slope * problem.eps / program.unit + p_N.mean() <= q * problem.beta + 1e-9
    queued_P = np.zeros(program.places)
    load_Z = program.queued_Q[entries.load_M[entries.entry_Z[program.uses :]] - program.uncertain]
    np.add.at(queued_P, entries.place_Z[program.uses :], load_Z * x[entries.entry_Z[program.uses :]])
    above_P = np.zeros(program.places)
    raised = np.flatnonzero(program.raised_G >= 0)
    np.add.at(above_P, entries.place_G[raised], x[program.raised_G[raised]] * program.largest_L[entries.load_G[raised]])
    v_P, w_P = x[program.v : program.w], x[program.w : program.peak]
    assert v_P == pytest.approx(w_P + above_P + program.placed_P + queued_P, abs=1e-7)
    paid = problem.cost_of(program.unit * v_P.reshape(problem.capacity_TD.shape))
    assert paid == pytest.approx(solved.point.value * program.unit * program.money, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_scarce_capacity_has_its_price(seed, small_parts):
    problem = fleet_problem(seed, queued=(), placed_TD=None, peak_before_D=None)
    scarce = replace(problem, capacity_TD=0.1 * problem.capacity_TD)
    enough = 1 + generate(scarce, goal="stretch").point.value
    assert enough > 1
    tight = replace(scarce, capacity_TD=1.02 * enough * scarce.capacity_TD)
    solved, exact = plan_by_parts(tight), generate(tight)
    assert solved.point.value == pytest.approx(exact.point.value, rel=1.1e-6)
    # Its prices are those of the whole: they add up to its bound.
    assert solved.program.bound(solved.point) == pytest.approx(solved.bound, rel=1e-6)
    assert solved.point.reduced[solved.program.v : solved.program.w].min() < 0
    assert plan_by_parts(replace(scarce, capacity_TD=0.98 * enough * scarce.capacity_TD)) is None


def test_loads_at_places_are_the_same_without_the_zeros_between(monkeypatch):
    large = programs.Program(fleet_problem(5))
    weight_G = np.random.default_rng(0).uniform(size=large.pairs)
    dense_NP = large.load_at_NP(weight_G)
    monkeypatch.setattr(programs, "MOST_DENSE", 0)
    assert large.load_at_NP(weight_G) == pytest.approx(dense_NP, rel=1e-12)


def many(problem, monkeypatch):
    monkeypatch.setattr(parts, "MOST_CLUSTERS", 2)
    monkeypatch.setattr(planning, "MANY_ENTRIES", len(problem.entries))


def test_a_large_plan_is_made_by_parts_and_says_its_gap(monkeypatch):
    problem = fleet_problem(1)
    exact = whole(problem)
    many(problem, monkeypatch)
    plan = Planner().plan(problem)
    assert plan.objective == pytest.approx(exact.point.value * exact.program.unit * exact.program.money, rel=1.1e-6)
    assert -1e-8 <= plan.certificate.gap <= parts.GAP
    assert plan.objective == pytest.approx(problem.cost_of(plan.curve_TD), rel=1e-9)
    y = plan.fractions.dense()
    assert y.sum(axis=(2, 3)) == pytest.approx(np.ones(problem.load_NKC.shape[1:]))


def test_a_replan_by_parts_starts_from_the_links_of_the_last(monkeypatch):
    problem = fleet_problem(2, queued=())
    many(problem, monkeypatch)
    planner = Planner()
    first = planner.plan(problem)
    kept = Planner.of_state(planner.state())
    again = planner.replan(first)
    assert again.objective == pytest.approx(first.objective, rel=1.1e-6)
    assert again.certificate.rounds <= first.certificate.rounds / 2
    # A day leaves, and a new one comes: the excesses go with their days.
    moved = np.roll(problem.load_NKC, 1, axis=0)
    moved[0] = 0.9 * moved[-1]
    changed = replace(problem, load_NKC=moved, load_max_KC=None)
    assert kept.plan(changed).objective == pytest.approx(Planner().plan(changed).objective, rel=2.2e-6)
    assert kept.active.links is not None


def test_a_plan_without_parts_is_made_whole(monkeypatch):
    problem = fleet_problem(3)
    monkeypatch.setattr(planning, "MANY_ENTRIES", 0)
    assert plan_by_parts(problem) is None
    plan = Planner().plan(problem)
    assert abs(plan.certificate.gap) < 1e-8
