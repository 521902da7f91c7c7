"""Row generation: the exact compact LP, of which only the rows that bind are ever built."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from noonward.arrays import I8
from noonward.schedule.plan.constraints import define_active, define_always, define_fit, define_slope, raise_pairs
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.program import Active, Goal, Links, Method, Point, Program

TOLERANCE: Final = 1e-8
"""Violation of a row that is not worth generating it, in units of the largest load."""
PRICE_TOLERANCE: Final = 1e-7
"""Reduced cost at which e of an entry is freed."""
MANY: Final = 1000
"""Violated rows from which another interior-point run beats dual simplex from the last basis."""
MOST_INTERIOR: Final = 4
"""Interior-point runs at most; simplex never drops a row, so it ends."""
LOAD_DECIMALS: Final = 6
"""Decimals, GPUs, to which sampled loads are compared when the first rows are picked."""
MOST_FIRST: Final = 17_000
"""Most sample rows of the first LP."""
FIRST_SPREAD: Final = 3.3
"""Lambda of the first LP over that of every load spread evenly."""
SMALL: Final = 200
"""Entries up to which simplex does all."""
ROUGH_VIOLATION: Final = 1e-3
"""Violation that counts in a solution without a vertex."""
MOST_ROUNDS: Final = 200
"""Rounds after which row generation is taken to fail; each round adds at least one row, 5 are usual."""


@dataclass(frozen=True)
class Solved:
    """A program whose every row holds, generated or not.

    Attributes:
        program: The program.
        point: Its optimum.
        rounds: Times an LP was solved.
        iterations: Iterations in all.
        violation: Largest violation of any row, generated or not, in the program's units.
        bound: What no plan's value is below, in the program's units.
        links: What links its parts, where it was made by parts.
    """

    program: Program
    point: Point
    rounds: int
    iterations: int
    violation: float
    bound: float
    links: Links | None = None

    @property
    def active(self) -> Active:
        """What a program of the same shape starts from."""
        return replace(self.program.active(self.point), links=self.links)


def generate(problem: PlanProblem, active: Active | None = None, goal: Goal = "cost") -> Solved | None:
    """Solves the LP, adding violated rows until none is left; None where it has no solution.

    Interior point comes first: cold, without a vertex, on a few rows for every place at a guessed lambda; then, with a
    vertex, on the rows that nearly bind and those that were violated; from then on dual simplex restarts from the last
    basis. Rows left out can only lower the optimum, and e left out can only raise it; at the end none of
    either would change it.
    """
    method: Method = "crossover"
    solved = iterations = 0
    if active is None and len(problem.entries) < SMALL:
        active, method = _first_active(Program(problem, goal)), "simplex"
    elif active is None:
        active, iterations = _rough(problem, goal)
        solved = 1
    elif len(problem.entries) < SMALL:
        method = "simplex"
    program = blank(problem, goal)
    define_active(program, active)
    return complete(program, method, solved, iterations)


def complete(
    program: Program,
    method: Method,
    solved: int = 0,
    iterations: int = 0,
    *,
    tolerance: float = TOLERANCE,
    most: int | None = None,
) -> Solved | None:
    """Adds violated rows to a program and solves it again until none is left; None where it has no solution.

    Args:
        program: The program, with the rows to begin with.
        method: How it is solved first.
        solved: LPs solved so far.
        iterations: Their iterations.
        tolerance: Violation of a row that is not worth generating it, in units of the largest load.
        most: Sample rows that are added for a place in a round, the most violated ones; None: all.
    """
    problem = program.problem
    for rounds in range(solved + 1, MOST_ROUNDS + 1):
        point = program.run(method)
        if point is None and problem.robust and problem.support and (program.raised_G < 0).any():
            # Without e the worst case may be out of reach though it is not with e.
            raise_pairs(program, np.flatnonzero(program.raised_G < 0))
            continue
        if point is None and method != "simplex":
            method = "simplex"  # which proves it
            continue
        if point is None:
            return None
        iterations += point.iterations
        found, violation = missing(program, point, tolerance, most)
        if found.size == 0:
            return Solved(program, point, rounds, iterations, violation, program.bound(point))
        if method == "simplex" or rounds >= MOST_INTERIOR or found.size < MANY:
            method = "simplex"
        else:
            kept = program.active(point)
            program = blank(problem, program.goal)
            define_active(program, kept)
        define_active(program, found)
    raise AssertionError(f"row generation has not ended after {MOST_ROUNDS} rounds")


def _first_active(program: Program) -> Active:
    """Returns the rows to begin with where nothing is known: the first fit rows, and all slope rows."""
    return Active(
        fit_RX=np.stack(first_rows(program)),
        slope_R=np.arange(program.pairs if program.problem.robust else 0),
        raised_R=np.empty(0, dtype=np.int64),
    )


def _rough(problem: PlanProblem, goal: Goal) -> tuple[Active, int]:
    """Returns rows that are likely to bind, from one LP without a vertex at a guessed lambda, and its iterations.

    With lambda fixed the slope rows become bounds and the LP has half the rows, without their dense column. The guess
    is ``FIRST_SPREAD`` x the least lambda possible, that of every load spread evenly; only the time depends on it.
    """
    program = blank(problem, goal)
    define_fit(program, *first_rows(program))
    if problem.robust:
        define_slope(program, program.fix_slope(FIRST_SPREAD))
    point = program.run("interior")
    if point is None:  # the guess is too low for the capacity
        return _first_active(program), 0
    kept, (found, _) = program.active(point, guessed=True), missing(program, point, ROUGH_VIOLATION)
    return Active(
        fit_RX=np.concatenate([kept.fit_RX, found.fit_RX], axis=1),
        slope_R=np.union1d(kept.slope_R, found.slope_R),
        raised_R=np.empty(0, dtype=np.int64),
    ), point.iterations


def whole(problem: PlanProblem) -> Solved | None:
    """Solves the LP with every row and column from the start, by HiGHS alone: what row generation is held against."""
    program = blank(problem, "cost")
    sample_R, place_R = np.nonzero(program.fit_NP < 0)
    define_fit(program, sample_R, place_R)
    if problem.robust:
        define_slope(program, np.arange(program.pairs))
        raise_pairs(program, np.arange(program.pairs if problem.support else 0))
    point = program.run("choose")
    return None if point is None else Solved(program, point, 1, point.iterations, 0.0, program.bound(point))


def blank(problem: PlanProblem, goal: Goal = "cost", units: tuple[float, float] | None = None) -> Program:
    """Returns the program of a problem without rows that are generated."""
    program = Program(problem, goal, units)
    define_always(program)
    return program


def missing(program: Program, point: Point, tolerance: float, most: int | None = None) -> tuple[Active, float]:
    """Returns the rows a solution violates and the e that would improve it, and the largest violation of any row.

    Args:
        program: The program.
        point: The solution.
        tolerance: Violation that does not count.
        most: Sample rows of a place at most, the most violated ones; None: all.
    """
    excess_NP, over_G = program.excess_NP(point.x), program.over_G(point.x)
    worst = max(0.0, float(excess_NP.max()), float(over_G.max()))
    raised_G = np.zeros(program.pairs, dtype=bool)
    if program.problem.robust and program.problem.support:
        raised_G = (program.reduced_G(point) < -PRICE_TOLERANCE) & (program.raised_G < 0)
    new_NP = np.where(program.fit_NP < 0, excess_NP, -np.inf)
    sample_R, place_R = np.nonzero(new_NP > tolerance)
    if most is not None:
        sample_R = np.argpartition(new_NP, -most, axis=0)[-most:].ravel()
        place_R = np.tile(np.arange(program.places), most)
        kept = new_NP[sample_R, place_R] > tolerance
        sample_R, place_R = sample_R[kept], place_R[kept]
    found = Active(
        fit_RX=np.stack([sample_R, place_R]),
        slope_R=np.flatnonzero((over_G > tolerance) & (program.slope_G < 0)),
        raised_R=np.flatnonzero(raised_G),
    )
    return found, worst


def first_rows(program: Program) -> tuple[I8, I8]:
    """Returns sample rows likely to bind: for each place the samples of most load, were every load spread evenly.

    Half the tail's samples, at least 2, within ``MOST_FIRST`` rows: fewer leave more to find, more make the first LP
    larger.
    """
    # Rounded and sorted stably: a CPU's order of sums, or of equal loads, would lead to another vertex of the LP.
    load_NP = np.round(program.even_load_NP(), LOAD_DECIMALS)
    keep = min(int(np.ceil(program.problem.beta * program.samples / 2)), MOST_FIRST // program.places)
    keep = min(max(keep, 2), program.samples)
    sample_XP = np.argsort(-load_NP, axis=0, kind="stable")[:keep]
    return sample_XP.ravel(), np.tile(np.arange(program.places), keep)
