"""Kernels of the job generator: bursts, arrival times, and durations that meet a demand."""

from __future__ import annotations

import itertools
import math
from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.compiled import kernel
from noonward.errors import ScenarioError
from noonward.paging import column, in_file, parts
from noonward.units import HOUR_S

CELL_S: Final = 60.0
"""Length of the cells over which the arrival rate is constant, s."""

DEMAND_TOLERANCE: Final = 0.005
"""Largest excess of the demand, as a share of it, that a floor of one slot per job may cause."""


def burst_factors(period_s_L: F8, cv2_L: F8, cells: int, rng: np.random.Generator) -> F8:
    """Returns the product of nested gamma factors of mean 1, per cell of ``CELL_S``.

    ``G_l ~ Gamma(shape 1 / cv2_l, scale cv2_l)``, one draw per block of ``period_s_l``; a level of cv2 = 0 is 1.

    Args:
        period_s_L: Length of each level's blocks, s, multiples of ``CELL_S``.
        cv2_L: Squared coefficient of variation of each level's factor, at least 0.
        cells: Number of cells.
        rng: Source of randomness.

    Example:
        >>> burst_factors(np.array([3600.0]), np.array([0.0]), 3, np.random.default_rng(0)).tolist()
        [1.0, 1.0, 1.0]
    """
    product = np.ones(cells)
    for period_s, cv2 in zip(period_s_L, cv2_L, strict=True):
        if cv2 > 0:
            width = round(period_s / CELL_S)
            product *= np.repeat(rng.gamma(1 / cv2, cv2, size=-(-cells // width)), width)[:cells]
    return product


def scale_to_demand(duration_s_J: F8, gpus_J: I8, demand_gpu_s: float, slot_s: float) -> F8:
    """Returns durations scaled by one factor, in whole slots, whose GPU time is the demand.

    ``d' = slot x max(1, ceil(factor x d / slot))`` with the factor for which ``sum(gpus x d')`` comes nearest to the
    demand (bisection). It meets the demand within half a slot of the jobs that cross a slot's edge together.

    Args:
        duration_s_J: Durations to scale, s, above 0.
        gpus_J: Gangs, GPUs.
        demand_gpu_s: GPU-seconds to ask for.
        slot_s: Length of a slot, s.

    Raises:
        ScenarioError: One slot per job asks for more than the demand already.

    Example:
        >>> scale_to_demand(np.array([10.0, 30.0]), np.array([1, 2]), 4200.0, 60.0).tolist()
        [600.0, 1800.0]
    """

    def slots(factor: float, duration_s_A: F8) -> F8:
        return column(len(duration_s_A), lambda part: np.maximum(np.ceil(factor * duration_s_A[part] / slot_s), 1))

    def gpu_slots(gpus_A: F8, slots_A: F8) -> float:
        products = (gpus_A[part] @ slots_A[part] for part in parts(len(gpus_A)))
        return float(sum(products))  # of whole numbers: exact in any order

    def excess(factor: float) -> float:
        return slot_s * gpu_slots(all_gpus_J, slots(factor, duration_s_J)) - demand_gpu_s

    each_gpu_s = ((gpus_J[part] * duration_s_J[part]).tolist() for part in parts(len(gpus_J)))
    all_gpus_J: F8 = column(len(gpus_J), lambda part: gpus_J[part].astype(np.float64))
    low, high = 0.0, demand_gpu_s / math.fsum(itertools.chain.from_iterable(each_gpu_s))
    if excess(low) > DEMAND_TOLERANCE * demand_gpu_s:
        raise ScenarioError(
            f"{len(gpus_J)} jobs of at least one slot of {slot_s:g} s ask for "
            f"{(demand_gpu_s + excess(low)) / HOUR_S:.4g} GPU-hours, above the demand of {demand_gpu_s / HOUR_S:.4g}; "
            "raise jobs.demand or lower jobs.count, jobs.gpus_cap or slot_s"
        )
    # Jobs whose slots are the same at both ends of the bracket keep them within it: they are summed once.
    duration_s_A, gpus_A, settled = duration_s_J, all_gpus_J, 0.0
    low_A, high_A = slots(low, duration_s_A), slots(high, duration_s_A)
    for _ in range(60):
        middle = (low + high) / 2
        middle_A = slots(middle, duration_s_A)
        if slot_s * (settled + gpu_slots(gpus_A, middle_A)) - demand_gpu_s < 0:
            low, low_A = middle, middle_A
        else:
            high, high_A = middle, middle_A
        open_A = low_A != high_A
        if 2 * np.count_nonzero(open_A) <= len(open_A):
            settled += gpu_slots(gpus_A, np.where(open_A, 0.0, low_A))
            kept = (in_file(each[open_A]) for each in (duration_s_A, gpus_A, low_A, high_A))
            duration_s_A, gpus_A, low_A, high_A = kept
    slots_J = slots(low if -excess(low) < excess(high) else high, duration_s_J)
    slots_J *= slot_s
    return slots_J


def draw_times(rate_C: F8, count: int, rng: np.random.Generator) -> F8:
    """Draws times in s with a density that is constant over cells of ``CELL_S``, by inversion.

    Args:
        rate_C: Relative rate per cell, at least 0, not all 0.
        count: Number of times.
        rng: Source of randomness.

    Returns:
        Times in s, at least 0 and below the last cell's end, unsorted.
    """
    mass_C = np.concatenate([[0.0], np.cumsum(rate_C)])
    times_s = np.empty(count)
    _invert(rng.random(count) * mass_C[-1], mass_C, times_s, np.zeros(len(rate_C), np.int64))
    return np.asarray(np.minimum(times_s, np.nextafter(len(rate_C) * CELL_S, 0)))


@kernel(allocates=False)
def _invert(mass_J: F8, mass_C: F8, times_s: F8, guide_C: I8) -> None:
    """Writes the times at which a mass that grows evenly within each cell reaches some values.

    ``guide_C`` gets the cell in which each equal part of the whole mass begins: from there the cell is a step away.
    """
    cells, cell = len(guide_C), 0
    part = mass_C[cells] / cells
    for g in range(cells):
        while cell < cells - 1 and mass_C[cell + 1] <= g * part:
            cell += 1
        guide_C[g] = cell
    for j in range(len(mass_J)):
        cell = guide_C[min(int(mass_J[j] / part), cells - 1)]
        while cell > 0 and mass_C[cell] > mass_J[j]:
            cell -= 1
        while cell < cells - 1 and mass_C[cell + 1] <= mass_J[j]:
            cell += 1
        slope = CELL_S / (mass_C[cell + 1] - mass_C[cell])
        times_s[j] = slope * (mass_J[j] - mass_C[cell]) + cell * CELL_S
