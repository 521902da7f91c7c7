"""The planning LP's constraint families, one function each; the exact compact form of Eq. (14).

With y = x + e, 0 <= x <= lambda, e >= 0 and v = w + placed + sum e s_max (docs/load-shaping.md derives it).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noonward.schedule.plan.program import Active, Program

I8 = NDArray[np.int64]


def define_service(program: Program) -> None:
    """Every load is placed, Eq. (3): ``sum_{t,d} (x + e)_{k,c,t,d} >= 1`` for all k, c."""
    count = program.e
    entry = np.arange(count)
    loads = program.hours * program.classes
    program.add_rows(
        np.concatenate([program.entries.load_M] * 2),
        np.concatenate([program.x + entry, program.e + entry]),
        np.ones(2 * count),
        np.ones(loads),
        np.full(loads, np.inf),
    )


def define_curve(program: Program) -> None:
    """The part of the curve left to x: ``v + g capacity - w - sum_{k,c} e s_max = placed`` for all t, d.

    g is the stretch of all capacities, 0 in a plan; ``0 <= v <= capacity``, Eq. (5), is a bound of the column.
    """
    place = np.arange(program.places)
    entry = np.arange(program.e)
    ones = np.ones(program.places)
    program.add_rows(
        np.concatenate([place, place, place, program.entries.place_M]),
        np.concatenate(
            [program.v + place, np.full(program.places, program.stretch), program.w + place, program.e + entry]
        ),
        np.concatenate([ones, program.capacity_P, -ones, -program.largest_L[program.entries.load_M]]),
        program.placed_P,
        program.placed_P,
    )


def define_peak(program: Program) -> None:
    """A cluster's highest hour, the norm in Eq. (7): ``v_{t,d} <= peak_d`` for all t, d."""
    place = np.arange(program.places)
    ones = np.ones(program.places)
    program.add_rows(
        np.concatenate([place, place]),
        np.concatenate([program.v + place, program.peak + place % program.clusters]),
        np.concatenate([ones, -ones]),
        np.full(program.places, -np.inf),
        np.zeros(program.places),
    )


def define_guarantee(program: Program) -> None:
    """The worst CVaR in the ball is at most 0, Eq. (14): ``lambda eps + (1/N) sum_i p_i <= q beta``."""
    samples, problem = program.samples, program.problem
    program.add_rows(
        np.zeros(samples + 2, dtype=np.int64),
        np.concatenate([program.p + np.arange(samples), [program.q, program.lam]]),
        np.concatenate([np.full(samples, 1.0 / samples), [-problem.beta, problem.eps / program.unit]]),
        np.array([-np.inf]),
        np.zeros(1),
    )


def define_fit(program: Program, sample_R: I8, place_R: I8) -> None:
    """A sample's load fits up to its excess p, Eq. (14): ``q - w_{t,d} + sum_{k,c} x_{k,c,t,d} s^i_{k,c} <= p_i``.

    Args:
        program: Where to.
        sample_R: Samples i of the rows to add.
        place_R: Their places t D + d.
    """
    count = len(sample_R)
    if count == 0:
        return
    order, first = program.entries.by_place
    first = np.concatenate([first, np.full(max(0, program.places + 1 - len(first)), len(order))])
    size_R = first[place_R + 1] - first[place_R]
    row = np.repeat(np.arange(count), size_R)
    within = np.arange(len(row)) - np.repeat(np.cumsum(size_R) - size_R, size_R)
    entry = order[np.repeat(first[place_R], size_R) + within]
    each, ones = np.arange(count), np.ones(count)
    load_R = program.load_NL[np.repeat(sample_R, size_R), program.entries.load_M[entry]]
    program.add_rows(
        np.concatenate([row, each, each, each]),
        np.concatenate([entry, program.w + place_R, program.p + sample_R, np.full(count, program.q)]),
        np.concatenate([load_R, -ones, -ones, ones]),
        np.full(count, -np.inf),
        np.zeros(count),
    )
    program.has_NP[sample_R, place_R] = True


def define_slope(program: Program, entry_R: I8) -> None:
    """The slope in every load is at most lambda, from the dual norm in Eq. (14): ``x_{k,c,t,d} <= lambda``.

    Args:
        program: Where to.
        entry_R: Entries of the rows to add.
    """
    count = len(entry_R)
    if count == 0:
        return
    each, ones = np.arange(count), np.ones(count)
    program.add_rows(
        np.concatenate([each, each]),
        np.concatenate([program.x + entry_R, np.full(count, program.lam)]),
        np.concatenate([ones, -ones]),
        np.full(count, -np.inf),
        np.zeros(count),
    )
    program.bounded_M[entry_R] = True


def define_always(program: Program) -> None:
    """Adds the families that are never generated, in the order service, curve, peak, guarantee."""
    define_service(program)
    define_curve(program)
    define_peak(program)
    define_guarantee(program)


def define_active(program: Program, active: Active) -> None:
    """Adds the rows and columns that were active in an earlier program of the same shape."""
    define_fit(program, active.fit_RX[0], active.fit_RX[1])
    define_slope(program, active.slope_R)
    program.raise_entries(active.raised_M)
