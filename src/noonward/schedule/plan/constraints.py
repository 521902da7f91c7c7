"""The planning LP's constraint families, one function each; the exact compact form of Eq. (14).

A load j at a place P weighs ``a_jP = sum_m A_mP y_m`` over its entries m that use P; of that ``e_jP`` is above lambda,
and ``v = w + placed + queued + sum_j e_jP s_max_j`` (docs/load-shaping.md derives it).
"""

from __future__ import annotations

import numpy as np

from noonward.arrays import I8
from noonward.schedule.plan.program import Active, Program


def _ranges(first_R: I8, size_R: I8) -> tuple[I8, I8]:
    """Returns the row of every position and the positions ``first, first + 1, ...`` of rows of given sizes."""
    row = np.repeat(np.arange(len(size_R)), size_R)
    within = np.arange(len(row)) - np.repeat(np.cumsum(size_R) - size_R, size_R)
    return row, np.repeat(first_R, size_R) + within


def define_service(program: Program) -> None:
    """Every load is placed, Eq. (3): ``sum_{t,d} y_{k,c,t,d} >= 1`` for all k, c and all queued loads."""
    count = len(program.entries)
    program.add_rows(
        program.entries.load_M,
        np.arange(count),
        np.ones(count),
        np.ones(program.loads),
        np.full(program.loads, np.inf),
    )


def define_curve(program: Program) -> None:
    """The part of the curve left to uncertain load: ``v + g capacity - w - queued - sum e s_max = placed``.

    For all t, d. g is the stretch of all capacities, 0 in a plan; ``0 <= v <= capacity``, Eq. (5), is a bound of the
    column; the queued load there is ``sum_m A y`` x its load; columns e are added when they are raised.
    """
    place = np.arange(program.places)
    ones = np.ones(program.places)
    entries, uses = program.entries, program.uses
    entry_Z = entries.entry_Z[uses:]
    queued_Z = program.queued_Q[entries.load_M[entry_Z] - program.uncertain]
    program.add_rows(
        np.concatenate([place, place, place, entries.place_Z[uses:]]),
        np.concatenate([program.v + place, np.full(program.places, program.stretch), program.w + place, entry_Z]),
        np.concatenate([ones, program.capacity_P, -ones, -queued_Z]),
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
    """A sample's load fits up to its excess p, Eq. (14): ``q - w_P + sum_j (a_jP - e_jP) s^i_j <= p_i``.

    Args:
        program: Where to.
        sample_R: Samples i of the rows to add.
        place_R: Their places P.
    """
    count = len(sample_R)
    if count == 0:
        return
    order, first_P = program.uses_by_place
    row, position = _ranges(first_P[place_R], first_P[place_R + 1] - first_P[place_R])
    use = order[position]
    load_V = program.load_NL[sample_R[row], program.entries.load_M[program.entries.entry_Z[use]]]
    raised_row, raised = _raised_at(program, place_R)
    raised_V = program.load_NL[sample_R[raised_row], program.entries.load_G[raised]]
    each, ones = np.arange(count), np.ones(count)
    program.fit_NP[sample_R, place_R] = program.rows + each
    program.add_rows(
        np.concatenate([row, raised_row, each, each, each]),
        np.concatenate(
            [
                program.entries.entry_Z[use],
                program.raised_G[raised],
                program.w + place_R,
                program.p + sample_R,
                np.full(count, program.q),
            ]
        ),
        np.concatenate([load_V, -raised_V, -ones, -ones, ones]),
        np.full(count, -np.inf),
        np.zeros(count),
    )


def _raised_at(program: Program, place_R: I8) -> tuple[I8, I8]:
    """Returns the pairs whose e has a column at the places of rows: row and pair of each."""
    raised = np.flatnonzero(program.raised_G >= 0)
    raised = raised[np.argsort(program.entries.place_G[raised], kind="stable")]
    place = program.entries.place_G[raised]
    first_R, end_R = np.searchsorted(place, place_R), np.searchsorted(place, place_R, side="right")
    row, position = _ranges(first_R, end_R - first_R)
    return row, raised[position]


def define_slope(program: Program, pair_R: I8) -> None:
    """The slope in every load is at most lambda, from the dual norm in Eq. (14): ``a_jP - e_jP <= lambda``.

    Args:
        program: Where to.
        pair_R: Pairs (j, P) of the rows to add.
    """
    count = len(pair_R)
    if count == 0:
        return
    first_G = program.entries.first_G
    row, use = _ranges(first_G[pair_R], first_G[pair_R + 1] - first_G[pair_R])
    raised_row = np.flatnonzero(program.raised_G[pair_R] >= 0)
    each, ones = np.arange(count), np.ones(count)
    program.slope_G[pair_R] = program.rows + each
    program.add_rows(
        np.concatenate([row, raised_row, each]),
        np.concatenate(
            [program.entries.entry_Z[use], program.raised_G[pair_R[raised_row]], np.full(count, program.lam)]
        ),
        np.concatenate([np.ones(len(use)), -np.ones(len(raised_row)), -ones]),
        np.full(count, -np.inf),
        np.zeros(count),
    )


def raise_pairs(program: Program, pair_R: I8) -> None:
    """Adds columns e, the slope above lambda, of pairs that have none yet.

    Args:
        program: Where to.
        pair_R: Pairs (j, P).
    """
    count = len(pair_R)
    if count == 0:
        return
    load_R, place_R = program.entries.load_G[pair_R], program.entries.place_G[pair_R]
    program.raised_G[pair_R] = program.solver.getNumCol() + np.arange(count)
    sample, column = np.nonzero(program.fit_NP[:, place_R] >= 0)
    sloped = np.flatnonzero(program.slope_G[pair_R] >= 0)
    program.add_columns(
        np.concatenate([np.arange(count), column, sloped]),
        np.concatenate(
            [
                program.loads + place_R,
                program.fit_NP[sample, place_R[column]],
                program.slope_G[pair_R[sloped]],
            ]
        ),
        np.concatenate([-program.largest_L[load_R], -program.load_NL[sample, load_R[column]], -np.ones(len(sloped))]),
        count,
    )


def define_always(program: Program) -> None:
    """Adds the families that are never generated, in the order service, curve, peak, guarantee."""
    define_service(program)
    define_curve(program)
    define_peak(program)
    define_guarantee(program)


def define_active(program: Program, active: Active) -> None:
    """Adds the rows and columns that were active in an earlier program of the same shape."""
    raise_pairs(program, active.raised_R)
    define_fit(program, active.fit_RX[0], active.fit_RX[1])
    define_slope(program, active.slope_R)
