"""Row generation: the exact compact LP, of which only the rows that bind are ever built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from noonward.schedule.plan.constraints import define_active, define_always, define_fit, define_slope
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.program import Active, Goal, Method, Point, Program

I8 = NDArray[np.int64]

TOLERANCE: Final = 1e-8
"""Violation of a row that is not worth generating it, in units of the largest load."""
PRICE_TOLERANCE: Final = 1e-7
"""Reduced cost at which e of an entry is freed."""
MANY: Final = 1000
"""Violated rows from which another interior-point run beats dual simplex from the last basis."""
MOST_INTERIOR: Final = 4
"""Interior-point runs at most; simplex never drops a row, so it ends."""
MOST_FIRST: Final = 17_000
"""Most sample rows of the first LP."""
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
    """

    program: Program
    point: Point
    rounds: int
    iterations: int
    violation: float


def generate(problem: PlanProblem, active: Active | None = None, goal: Goal = "cost") -> Solved | None:
    """Solves the LP, adding violated rows until none is left; None where it has no solution.

    Interior point comes first: cold, without a vertex, on a few rows for every place and all slopes; then, with a
    vertex, on the rows that nearly bind and those that were violated; from then on dual simplex goes on from the last
    basis. Rows left out can only lower the optimum, and e left out can only raise it; at the end none of
    either would change it.
    """
    program = _blank(problem, goal)
    if active is None:
        define_fit(program, *first_rows(program))
        if problem.robust:
            define_slope(program, np.arange(program.e))
    else:
        define_active(program, active)
    method: Method = "simplex" if program.e < SMALL else "interior" if active is None else "crossover"
    iterations = 0
    for rounds in range(1, MOST_ROUNDS + 1):
        point = program.run(method)
        if point is None and problem.robust and problem.support and not program.raised_M.all():
            # Without e the worst case may be out of reach though it is not with e.
            program.raise_entries(~program.raised_M)
            continue
        if point is None and method != "simplex":
            method = "simplex"  # which proves it
            continue
        if point is None:
            return None
        iterations += point.iterations
        found, violation = missing(program, point)
        if found.size == 0 and point.vertex:
            return Solved(program, point, rounds, iterations, violation)
        if method == "simplex" or rounds >= MOST_INTERIOR or (point.vertex and found.size < MANY):
            method = "simplex"
        else:
            method = "crossover"
            kept = program.active(point)
            program = _blank(problem, goal)
            define_active(program, kept)
        define_active(program, found)
    raise AssertionError(f"row generation has not ended after {MOST_ROUNDS} rounds")


def whole(problem: PlanProblem) -> Solved | None:
    """Solves the LP with every row and column from the start, by HiGHS alone: what row generation is held against."""
    program = _blank(problem, "cost")
    sample_R, place_R = np.nonzero(~program.has_NP)
    define_fit(program, sample_R, place_R)
    if problem.robust:
        define_slope(program, np.arange(program.e))
        program.raise_entries(np.full(program.e, problem.support))
    point = program.run("choose")
    return None if point is None else Solved(program, point, 1, point.iterations, 0.0)


def _blank(problem: PlanProblem, goal: Goal) -> Program:
    program = Program(problem, goal)
    define_always(program)
    return program


def missing(program: Program, point: Point) -> tuple[Active, float]:
    """Returns the rows a solution violates and the e that would improve it, and the largest violation of any row."""
    tolerance = TOLERANCE if point.vertex else ROUGH_VIOLATION
    excess_NP, over_M = program.excess_NP(point.x), program.over_M(point.x)
    worst = max(0.0, float(excess_NP.max()), float(over_M.max()))
    raised_M = np.zeros(program.e, dtype=bool)
    if program.problem.robust and program.problem.support:
        raised_M = (point.reduced[program.e : program.v] < -PRICE_TOLERANCE) & ~program.raised_M
    found = Active(
        fit_RX=np.stack(np.nonzero((excess_NP > tolerance) & ~program.has_NP)),
        slope_R=np.flatnonzero((over_M > tolerance) & ~program.bounded_M),
        raised_M=raised_M,
    )
    return found, worst


def first_rows(program: Program) -> tuple[I8, I8]:
    """Returns sample rows likely to bind: for each place the samples of most load, were every load spread evenly.

    Half the tail's samples, at least 2, within ``MOST_FIRST`` rows: fewer leave more to find, more make the first LP
    larger.
    """
    entries = program.entries
    count_L = np.bincount(entries.load_M, minlength=program.load_NL.shape[1])
    even_LP = np.zeros((len(count_L), program.places))
    even_LP[entries.load_M, entries.place_M] = 1.0 / count_L[entries.load_M]
    load_NP = program.load_NL @ even_LP
    keep = min(int(np.ceil(program.problem.beta * program.samples / 2)), MOST_FIRST // program.places)
    keep = min(max(keep, 2), program.samples)
    sample_XP = np.argpartition(-load_NP, keep - 1, axis=0)[:keep]
    return sample_XP.ravel(), np.tile(np.arange(program.places), keep)
