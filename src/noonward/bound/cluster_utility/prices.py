"""Search for capacity prices at which the dual function of the utility bound is least."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.columns import Columns
from noonward.bound.cluster_utility.dual import Dual
from noonward.bound.cluster_utility.master import Master

FIRST_TARGET_SHARE: Final = 0.1
TARGET_SHRINK: Final = 0.7
PATIENCE: Final = 15
MASTER_ROUNDS: Final = 40
STEP_USD: Final = 0.03
"""Step of ``descend_evenly``, USD per GPU-hour."""
SEEN: Final = 4
"""Last evaluations whose choices it hands on."""
MEMORY: Final = 0.9
"""Share of the mean slope, and of the mean of its square, that steps with momentum keep from one to the next."""
LEAST_SLOPE: Final = 1e-3
"""Added to the root of the mean square, so that prices of hours that are full do not move with every small change."""
MEAN_OF_DRAWS: Final = 3.0
"""How much more the last prices weigh in the mean of ``descend_by_draws``; at 0, all weigh the same."""
AVERAGED: Final = 0.25
"""Share of the steps, the last of them, whose mean prices it tries too."""


def never() -> bool:
    """Returns that no time limit is there."""
    return False


class Priced(Protocol):
    """A dual function that can be evaluated at capacity prices (``Dual`` states what each is)."""

    idle_usd: float
    best_J: I8

    @property
    def shape(self) -> tuple[int, int]:
        """Sites and periods."""

    def value(self, price_SH: F8) -> tuple[float, F8]:
        """Returns D in USD and a subgradient."""


def descend(
    dual: Priced,
    iterations: int,
    late: Callable[[], bool] = never,
    price_SH: F8 | None = None,
    target_share: float = FIRST_TARGET_SHARE,
) -> tuple[float, F8, I8]:
    """Lowers the dual function by projected subgradient steps of Polyak's length towards a moving target.

    ``lambda <- max(0, lambda - (D - D_best + delta) / |g|^2 g)``; after 15 steps without a lower D, delta shrinks by
    0.7 and the search restarts from the best prices (Bertsekas 1999, Nonlinear Programming, Sec. 6.3.1).

    Args:
        dual: The dual function.
        iterations: Most evaluations, at least 1.
        late: Whether no further evaluation may begin; asked after each.
        price_SH: Prices to begin at, USD; None: 0.
        target_share: First distance of the target, as a share of what D exceeds an idle fleet by.

    Returns:
        (least D in USD, its prices, the columns jobs chose in the later half of the search).
    """
    price_SH = np.zeros(dual.shape) if price_SH is None else price_SH
    best_usd, best_SH = math.inf, price_SH
    delta_usd, fails = 0.0, 0
    seen: list[I8] = []
    for step in range(iterations):
        value_usd, free_SH = dual.value(price_SH)
        if step == 0:
            delta_usd = target_share * (value_usd - dual.idle_usd)
        if value_usd < best_usd:
            best_usd, best_SH, fails = value_usd, price_SH, 0
        else:
            fails += 1
        ended = late()
        if (2 * step >= iterations and step % 4 == 0) or step == iterations - 1 or ended:
            seen.append(dual.best_J.copy())
        if ended:
            break
        if fails > PATIENCE:
            delta_usd, fails, price_SH = TARGET_SHRINK * delta_usd, 0, best_SH
            _, free_SH = dual.value(price_SH)
            value_usd = best_usd
        slope_SH = np.where((price_SH <= 0) & (free_SH > 0), 0.0, free_SH)
        norm = float((slope_SH**2).sum())
        if norm == 0.0:
            seen.append(dual.best_J.copy())
            break
        price_SH = np.maximum(0.0, price_SH - (value_usd - best_usd + delta_usd) / norm * slope_SH)
    columns = np.unique(np.concatenate(seen))
    return best_usd, best_SH, columns[columns >= 0]


def descend_evenly(
    dual: Dual, rounds: int, step_usd: float = STEP_USD, late: Callable[[], bool] = never
) -> tuple[float, F8, I8]:
    """Lowers the dual function by subgradient steps of AdaGrad's length, one for each price; for long windows.

    ``lambda <- max(0, lambda - step g / sqrt(sum of g^2 so far))`` with g the share of a site's GPUs left free in an
    hour (Duchi et al. 2011). A price moves as far in a window of any length, so a bound of some gap takes no more
    rounds in a longer one. The mean of the prices of the later half is tried too.

    Args:
        dual: The dual function.
        rounds: Most evaluations, but one; at least 2.
        step_usd: Step, USD per GPU-hour.
        late: Whether no further evaluation may begin; asked after each.

    Returns:
        As ``descend``; the columns are those chosen at the last evaluations.
    """
    square_SH = np.zeros(dual.shape)

    def moved_SH(k: int, slope_SH: F8) -> F8:
        square_SH[:] += slope_SH**2
        move_SH = np.divide(slope_SH, np.sqrt(square_SH), out=np.zeros(dual.shape), where=square_SH > 0)
        return step_usd * move_SH

    best_usd, best_SH, seen = _stepped(dual, np.zeros(dual.shape), rounds, math.ceil(rounds / 2), moved_SH, late)
    columns = np.unique(np.concatenate(seen or [dual.best_J]))
    return best_usd, best_SH, columns[columns >= 0]


class _Momentum:
    """Steps of Adam's kind (Kingma and Ba 2015), one for each price, that shrink with the root of their number.

    As those of ``descend_evenly``, with means of slopes and of their squares that forget, so that prices which swing
    are damped and prices which lag are not.

    Args:
        shape: Sites and periods.
        step_usd: First step, USD per GPU-hour.
    """

    def __init__(self, shape: tuple[int, int], step_usd: float) -> None:
        self._step_usd = step_usd
        self._mean_SH, self._square_SH = np.zeros(shape), np.zeros(shape)

    def moved_SH(self, k: int, slope_SH: F8) -> F8:
        """Returns what prices fall by at a step, given its number and the slopes."""
        self._mean_SH = MEMORY * self._mean_SH + (1.0 - MEMORY) * slope_SH
        self._square_SH = MEMORY * self._square_SH + (1.0 - MEMORY) * slope_SH**2
        counted = 1.0 - MEMORY ** (k + 1)
        move_SH = self._mean_SH / counted / (np.sqrt(self._square_SH / counted) + LEAST_SLOPE)
        return np.asarray(self._step_usd / math.sqrt(k + 1) * move_SH)


def descend_with_momentum(
    dual: Dual, rounds: int, step_usd: float, price_SH: F8 | None = None, late: Callable[[], bool] = never
) -> tuple[float, F8]:
    """Lowers the dual function by steps of Adam's kind (Kingma and Ba 2015), for many jobs.

    Args:
        dual: The dual function.
        rounds: Most evaluations, but one; at least 2.
        step_usd: First step, USD per GPU-hour.
        price_SH: Prices to begin at, USD per GPU-hour; None: 0.
        late: Whether no further evaluation may begin; asked after each.

    Returns:
        (least D in USD, its prices).
    """
    begin_SH = np.zeros(dual.shape) if price_SH is None else price_SH
    moved_SH = _Momentum(dual.shape, step_usd).moved_SH
    return _stepped(dual, begin_SH, rounds, int((1.0 - AVERAGED) * rounds), moved_SH, late)[:2]


def descend_by_draws(
    drawn: Callable[[int], Dual], rounds: int, step_usd: float, price_SH: F8, late: Callable[[], bool] = never
) -> F8:
    """Lowers the mean of dual functions that are drawn, another one at every step; for more jobs than memory holds.

    Prices that are best for a few jobs are not the best for all: one draw alone would be fitted. Steps are those of
    ``descend_with_momentum``. The last prices still follow the last draws, so a mean of the prices of all steps is
    returned in which later ones weigh more (Shamir and Zhang 2013, with eta = 3).

    Args:
        drawn: Draws a dual function, given the number of the step from 0; all have the same shape.
        rounds: Draws.
        step_usd: First step, USD per GPU-hour.
        price_SH: Prices to begin at, USD per GPU-hour.
        late: Whether no further draw may be made; asked before each.

    Returns:
        The prices.
    """
    mean_SH, moved_SH = price_SH.copy(), _Momentum((len(price_SH), price_SH.shape[1]), step_usd).moved_SH
    for k in range(rounds):
        if late():
            break
        dual = drawn(k)
        price_SH = _stepped_SH(dual, price_SH, dual.value(price_SH)[1], k, moved_SH)
        mean_SH += (MEAN_OF_DRAWS + 1.0) / (k + 1.0 + MEAN_OF_DRAWS) * (price_SH - mean_SH)
    return mean_SH


def _stepped_SH(dual: Dual, price_SH: F8, free_SH: F8, k: int, moved_SH: Callable[[int, F8], F8]) -> F8:
    """Returns prices after a step, given what they leave free; the other arguments are those of ``_stepped``."""
    slope_SH = np.where((price_SH <= 0) & (free_SH > 0), 0.0, free_SH / dual.gpus_S[:, None])
    return np.maximum(0.0, price_SH - moved_SH(k, slope_SH))


def _stepped(
    dual: Dual,
    price_SH: F8,
    rounds: int,
    averaged_from: int,
    moved_SH: Callable[[int, F8], F8],
    late: Callable[[], bool],
) -> tuple[float, F8, list[I8]]:
    """Takes subgradient steps, and tries the mean of the last prices too.

    Args:
        dual: The dual function.
        price_SH: Prices to begin at.
        rounds: Evaluations, but one.
        averaged_from: First evaluation whose prices count in the mean.
        moved_SH: Returns what prices fall by, given the number of the step and the slopes: the share of each site's
            GPUs left free by the hour, 0 where a price of 0 cannot fall.
        late: Whether no further evaluation may begin.

    Returns:
        (least D in USD, its prices, what jobs chose at the last evaluations).
    """
    best_usd, best_SH, sum_SH, summed = math.inf, price_SH, np.zeros(dual.shape), 0
    seen: list[I8] = []
    for k in range(rounds):
        value_usd, free_SH = dual.value(price_SH)
        if value_usd < best_usd:
            best_usd, best_SH = value_usd, price_SH
        if k >= rounds - SEEN:
            seen.append(dual.best_J.copy())
        if k >= averaged_from:
            sum_SH += price_SH
            summed += 1
        if late():
            break
        price_SH = _stepped_SH(dual, price_SH, free_SH, k, moved_SH)
    if summed:
        value_usd, _ = dual.value(sum_SH / summed)
        seen.append(dual.best_J.copy())
        if value_usd < best_usd:
            best_usd, best_SH = value_usd, sum_SH / summed
    return best_usd, best_SH, seen


def polish(
    dual: Dual,
    price_SH: F8,
    columns: I8,
    tolerance: float,
    rounds: int = MASTER_ROUNDS,
    late: Callable[[], bool] = never,
    master: Master | None = None,
) -> tuple[float, F8, float]:
    """Lowers the dual function to its minimum by column generation (Dantzig-Wolfe; HiGHS solves the masters).

    Master: ``max sum_k v_k x_k`` s.t. ``sum_(k of j) x_k <= 1`` and GPU-hours <= R in every hour. Its optimum is at
    most the linear relaxation's, D at its duals at least; columns best at the duals (and at points between them
    and the best prices so far, against swings) enter until both meet.

    Args:
        dual: The dual function.
        price_SH: Prices to begin at.
        columns: Columns to begin with.
        tolerance: Relative excess of D over the master at which to stop.
        rounds: Most masters solved.
        late: Whether no further master may be solved.
        master: Master without columns, for callers that read its last optimum; None: one of its own.

    Returns:
        (least D in USD, its prices, excess over the last master in USD).
    """
    idle_usd = dual.idle_usd
    master = Master(dual) if master is None else master
    best_usd, best_SH = dual.value(price_SH)[0], price_SH
    wanted = [columns, dual.best_J]
    excess_usd = math.inf
    for _ in range(rounds):
        if late():
            break
        if not master.add(np.concatenate(wanted)) and math.isfinite(excess_usd):
            break
        master_usd = master.solve().value if len(master.columns) else 0.0
        duals_SH = master.prices()
        wanted = []
        for share in (0.0, 0.5, 0.8):
            trial_SH = share * best_SH + (1 - share) * duals_SH
            value_usd, _ = dual.value(trial_SH)
            wanted.append(dual.best_J.copy())
            if value_usd < best_usd:
                best_usd, best_SH = value_usd, trial_SH
        excess_usd = max(0.0, best_usd - idle_usd - master_usd)
        if excess_usd <= tolerance * max(abs(best_usd - idle_usd), 1e-12):
            break
    return best_usd, best_SH, excess_usd


def polish_in_pieces(
    dual: Dual,
    price_SH: F8,
    columns: I8,
    tolerance: float,
    jobs: int,
    progress: Callable[[int, int], None] | None = None,
    late: Callable[[], bool] = never,
) -> tuple[float, F8]:
    """Lowers the dual function over one stretch of hours after the other, the prices elsewhere as they stand.

    In a stretch, D is a dual function of its own: that of the jobs that may run there, each way to run worth its value
    less what it pays elsewhere. So D falls with every stretch, and at the end it is evaluated whole: the result is a
    bound like any other. Stretches overlap by half; time and memory grow in proportion to the number of jobs.

    Args:
        dual: The dual function.
        price_SH: Prices to begin at.
        columns: Columns to begin with.
        tolerance: As in ``polish``, for every stretch.
        jobs: Jobs that may start in a stretch, about.
        progress: Called after every stretch with its number and how many there are.
        late: Whether the rest of the stretches keeps the prices that it has.

    Returns:
        (D in USD, its prices).
    """
    price_SH = price_SH.copy()
    hours = dual.shape[1]
    length = max(2, min(hours, math.ceil(jobs / len(dual.best_J) * hours)))
    firsts = range(0, max(1, hours - length // 2), length // 2)
    for number, first in enumerate(firsts, 1):
        if late():
            break
        until = min(hours, first + length)
        found = piece(dual, price_SH, first, until)
        if found is not None:
            part, offset = found
            known = columns[(columns >= offset) & (columns < offset + len(part.columns.value_K))] - offset
            _, price_SH[:, first:until], _ = polish(
                part, np.ascontiguousarray(price_SH[:, first:until]), known, tolerance, late=late
            )
        if progress is not None:
            progress(number, len(firsts))
    return dual.value(price_SH)[0], price_SH


def refine(
    coarse: Dual,
    columns: Columns,
    periods: int,
    price_SH: F8,
    tolerance: float,
    pieces: int | None = None,
    late: Callable[[], bool] = never,
) -> tuple[float, float, int]:
    """Lowers the dual function further by prices of shorter periods.

    A schedule within capacity uses at most R GPUs at every instant, so capacity may be priced by any division of time.
    Prices that are the same in all periods of an hour give the hour's D: so refining never raises it, and the least D
    falls, or stays, as periods get shorter.

    Args:
        coarse: The dual function with a price an hour.
        columns: The same jobs' candidate starts for shorter periods.
        periods: Periods an hour.
        price_SH: Prices by hour to begin at, USD per GPU-hour.
        tolerance: As in ``polish``.
        pieces: Jobs that may start in a stretch (``polish_in_pieces``); None: all periods at once.
        late: Whether no further step may begin.

    Returns:
        (least D in USD, excess over the last master in USD, evaluations).
    """
    fine = Dual(columns, np.repeat(coarse.capacity_SH, periods, axis=1), coarse.idle_usd)
    price_SP = np.repeat(price_SH / periods, periods, axis=1)
    fine.value(price_SP)
    chosen = fine.best_J[fine.best_J >= 0]
    excess_usd = math.inf
    if pieces is None:
        upper_usd, _, excess_usd = polish(fine, price_SP, chosen, tolerance, late=late)
    else:
        upper_usd, _ = polish_in_pieces(fine, price_SP, chosen, tolerance, pieces, late=late)
    return upper_usd, excess_usd, fine.evaluations


def piece(dual: Dual, price_SH: F8, first: int, until: int) -> tuple[Dual, int] | None:
    """Returns the dual function of a stretch of hours, the prices elsewhere given.

    ``D(lambda) = D_piece(lambda in the stretch) + what the stretch does not change``.

    Args:
        dual: The dual function.
        price_SH: Prices; those of the stretch do not matter.
        first: First hour of the stretch.
        until: Hour after its last.

    Returns:
        (its dual function, the number of its first column in the whole), or None where no job may run in the stretch.
    """
    c, hours = dual.columns, dual.shape[1]
    site_K, from_h_K = np.divmod(c.from_K, hours + 1)
    to_h_K = c.to_K - site_K * (hours + 1)
    touching = np.flatnonzero((from_h_K < until) & (to_h_K >= first))
    if not len(touching):
        return None
    one, other = np.searchsorted(c.first_J, touching[[0, -1]], side="right") - 1
    first_J = c.first_J[one : other + 2]
    mine = slice(first_J[0], first_J[-1])
    elsewhere_SH = np.zeros((dual.shape[0], hours + 1))
    elsewhere_SH[:, 1:] = price_SH
    elsewhere_SH[:, first + 1 : until + 1] = 0.0
    total_P = np.cumsum(elsewhere_SH, axis=1).ravel()

    def paid_until(position_K: I8, share_K: F8) -> F8:
        return np.asarray(total_P[position_K] + share_K * (total_P[position_K + 1] - total_P[position_K]))

    def within(hour_K: I8, share_K: F8) -> tuple[I8, F8]:
        """Returns times (position, share of the hour) cut to the stretch."""
        cut_K = np.clip(hour_K, first, until - 1)
        share_K = np.where(hour_K < first, 0.0, np.where(hour_K >= until, 1.0, share_K))
        return site_K[mine] * (until - first + 1) + cut_K - first, share_K

    paid_K = paid_until(c.to_K[mine], c.to_share_K[mine]) - paid_until(c.from_K[mine], c.from_share_K[mine])
    from_K, from_share_K = within(from_h_K[mine], c.from_share_K[mine])
    to_K, to_share_K = within(to_h_K[mine], c.to_share_K[mine])
    part = Columns(
        first_J=first_J - first_J[0],
        option_K=c.option_K[mine],
        start_s_K=c.start_s_K[mine],
        value_K=c.value_K[mine] - c.gpus_K[mine] * paid_K,
        gpus_K=c.gpus_K[mine],
        from_K=from_K,
        from_share_K=from_share_K,
        to_K=to_K,
        to_share_K=to_share_K,
    )
    return Dual(part, dual.capacity_SH[:, first:until], 0.0), int(first_J[0])
