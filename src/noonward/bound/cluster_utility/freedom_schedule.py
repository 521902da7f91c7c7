"""A schedule in which jobs are stopped, resized or capped: unbroken bookings improved, as the bound's lives say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I4, I8
from noonward.bound.cluster_utility.carried_out import carried_capped, carried_out, carried_resized
from noonward.bound.cluster_utility.columns import Options
from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.freedoms import energy_prices, life_plan
from noonward.bound.cluster_utility.kernels_freedoms import CAPPED, RESIZED, FreeOptions, LifePlan, Prices, best_life
from noonward.bound.cluster_utility.primal import BookedSchedule, free_gpus
from noonward.compiled import kernel
from noonward.model.cluster.environment import Environment
from noonward.units import HOUR_S

PASSES: Final = 3
"""Times that every job's life is sought again."""
MOST_SEGMENTS: Final = 400
"""Most segments of a life."""
LEAST_GAIN_USD: Final = 1e-9
"""Gain from which a life counts as better, USD."""
LEAST_SHARE: Final = 1e-6
"""Share of the value that a pass gains at least for another one to follow."""


@kernel(allocates=False)
def _hold(free_T: I4, from_N: I8, until_N: I8, gpus_N: I8, count: int, sign: int) -> None:
    """Takes the GPUs of some segments of slots out of the free ones (sign 1), or gives them back (-1)."""
    for n in range(count):
        for t in range(from_N[n], until_N[n]):
            free_T[t] -= sign * gpus_N[n]


@kernel(allocates=False)
def _fits(free_T: I4, from_N: I8, until_N: I8, gpus_N: I8, count: int) -> bool:
    """Returns whether the GPUs of some segments of slots are free; segments may share a slot."""
    _hold(free_T, from_N, until_N, gpus_N, count, 1)
    good = True
    for n in range(count):
        for t in range(from_N[n], until_N[n]):
            good = good and free_T[t] >= 0
    _hold(free_T, from_N, until_N, gpus_N, count, -1)
    return good


@kernel(allocates=False)
def _room(free_T: I4, slots: int, room_H: F8) -> None:
    """Writes how many GPUs are free in every slot of each hour, at least."""
    for h in range(len(room_H)):
        room_H[h] = np.inf
        for t in range(h * slots, min((h + 1) * slots, len(free_T))):
            room_H[h] = min(room_H[h], free_T[t])


@kernel(allocates=False)
def _rent(price_H: F8, slots: int, from_N: I8, until_N: I8, gpus_N: I8, count: int) -> float:
    """Returns what some segments of slots cost at capacity prices, USD."""
    usd = 0.0
    for n in range(count):
        for t in range(from_N[n], until_N[n]):
            if t // slots < len(price_H):
                usd += price_H[t // slots] * gpus_N[n] / slots
    return usd


class FreeBooks:
    """Bookings of jobs that may be stopped, resized or capped, on the free GPUs of slots.

    Args:
        environment: Environment of the protocol ``each-slot`` without hard capacity curves.
        relaxation: Its dual function without freedoms.
        tables: Options with freedoms; of those of one job the best is taken.
        unbroken: The schedule to begin with.

    Attributes:
        value_J: Value of every job's booking, USD.
    """

    def __init__(
        self,
        environment: Environment,
        relaxation: Relaxation,
        tables: Sequence[FreeOptions],
        unbroken: BookedSchedule,
    ) -> None:
        costs, slot_s = relaxation.costs, environment.slot_s
        self._environment, self._relaxation = environment, relaxation
        self._tables = [table for table in tables if len(table.site_O)]
        self._plans = [life_plan(table, costs.part_s) for table in self._tables]
        self._guesses = [np.zeros(len(table.site_O)) for table in self._tables]
        self._limits = _limits(environment)
        self._prices = energy_prices(environment, relaxation)
        self._room = tuple(np.empty(MOST_SEGMENTS, np.int64) for _ in range(3))
        self._free_ST = free_gpus(environment, relaxation.tables, relaxation.shape[1])
        self.value_J = unbroken.value_usd_J.copy()
        self._held: list[tuple[int, I8, I8, I8]] = []
        for j, run_s in enumerate(_run_s_J(relaxation, unbroken)):
            site, gpus = int(unbroken.site_J[j]), unbroken.gpus_J[j : j + 1].astype(np.int64)
            begin = np.array([round(unbroken.start_s_J[j] / slot_s) if site >= 0 else 0], np.int64)
            end = begin + (int(np.ceil(run_s / slot_s - 1e-9)) if site >= 0 else 0)
            self._held.append((site, begin, end, gpus))
            self._change(j, 1)

    @property
    def free_jobs(self) -> I8:
        """Jobs that have a freedom, in their order."""
        counts = [np.diff(table.first_J) for table in self._tables]
        return np.flatnonzero(np.sum(counts, axis=0)) if counts else np.empty(0, np.int64)

    def _change(self, j: int, sign: int) -> None:
        """Takes a job's GPUs (sign 1), or gives them back (-1)."""
        site, begin, end, gpus = self._held[j]
        if site >= 0:
            _hold(self._free_ST[site], begin, end, gpus, len(begin), sign)

    def take_out(self, j: int) -> None:
        """Unbooks a job."""
        self._change(j, -1)
        none = np.empty(0, np.int64)
        self._held[j] = (-1, none, none, none)
        self.value_J[j] = 0.0

    def improve(self, j: int, price_SH: F8) -> float:
        """Gives a job its best life among the GPUs that are free, if it is worth more than what the job has.

        Args:
            j: Job.
            price_SH: Capacity prices at which its life is sought, USD per GPU-hour; hours in which its gang does not
                fit are left out.

        Returns:
            What it gains, USD.
        """
        slot_s, costs = self._environment.slot_s, self._relaxation.costs
        slots = round(HOUR_S / slot_s)
        had_usd = best_usd = self.value_J[j]
        priced_best = 0.0 if price_SH.any() else had_usd
        self._change(j, -1)
        for table, plan, guess in zip(self._tables, self._plans, self._guesses, strict=True):
            for o in range(table.first_J[j], table.first_J[j + 1]):
                s = int(table.site_O[o])
                room_SH = np.empty_like(price_SH)
                _room(self._free_ST[s], slots, room_SH[s])
                prices = self._prices._replace(capacity_SH=price_SH, room_SH=room_SH)
                hour = int(table.earliest_s_O[o] / HOUR_S)
                use_H = np.zeros(int(table.end_s_O[o] / HOUR_S) - hour + 2)
                life_usd = best_life(table, o, prices, guess, use_H, hour, plan)
                if life_usd <= priced_best + LEAST_GAIN_USD:
                    continue
                end = min(len(use_H), price_SH.shape[1] - hour)
                life_usd += float(use_H[:end] @ price_SH[s, hour : hour + end])
                value, count = self._carried(table, o, prices, costs.weight_cumulative_SP[s], plan, j, life_usd)
                if count == 0 or not _fits(self._free_ST[s], *self._room, count):
                    continue
                priced = value - _rent(price_SH[s], slots, *self._room, count)
                if priced > priced_best:
                    priced_best, best_usd = priced, value
                    begin, end, gpus = (each[:count].copy() for each in self._room)
                    self._held[j] = (s, begin, end, gpus)
        self._change(j, 1)
        self.value_J[j] = best_usd
        return float(best_usd - had_usd)

    def _carried(
        self,
        table: FreeOptions,
        o: int,
        prices: Prices,
        weight_cumulative_P: F8,
        plan: LifePlan,
        j: int,
        life_usd: float,
    ) -> tuple[float, int]:
        """Carries out an option's life, worth so much as planned.

        Returns:
            (value in USD, number of segments; 0 where it cannot be carried out).
        """
        environment = self._environment
        from_N, until_N, gpus_N = self._room
        if table.search_O[o] == CAPPED:
            gpus_N[0] = table.gpus_X[table.mode_O[o]]
            return life_usd - carried_capped(table, o, prices, environment.slot_s, plan, from_N, until_N), 1
        limits = self._limits[int(environment.jobs.class_J[j])].copy()
        told = (table, o, prices, weight_cumulative_P, environment.window_s, environment.slot_s, limits, plan)
        found: tuple[float, int]
        if table.search_O[o] == RESIZED:
            found = carried_resized(*told, from_N, until_N, gpus_N)
        else:
            gpus_N[:] = int(table.gpus_X[table.mode_O[o]])
            found = carried_out(*told, from_N, until_N)
        return found


def improved(
    environment: Environment,
    relaxation: Relaxation,
    tables: Sequence[FreeOptions],
    unbroken: BookedSchedule,
    price_SH: F8,
    priced_J: F8,
    passes: int = PASSES,
) -> float:
    """Returns what the best schedule found adds to the utility of an idle fleet, USD.

    Two are tried: unbroken runs improved, and jobs taken out, booked at capacity prices and improved. To improve is to
    give one job after the other its best life at the prices of energy alone among the GPUs that are free; it is taken
    if, carried out with all overhead, it is worth more. So the value never falls, and a job that did not run may find
    room.

    Args:
        environment: Environment of the protocol ``each-slot`` without hard capacity curves.
        relaxation: Its dual function without freedoms.
        tables: Options with freedoms (``FreeBooks``).
        unbroken: The schedule to begin with.
        price_SH: Capacity prices at which jobs that were taken out are booked, USD per GPU-hour.
        priced_J: The jobs' values after these, USD: who is worth most per GPU-hour is booked first.
        passes: Times that every job is looked at.
    """
    best_usd = unbroken.value_usd
    for emptied in (False, True):
        books = FreeBooks(environment, relaxation, tables, unbroken)
        jobs = books.free_jobs
        if emptied:
            for j in jobs.tolist():
                books.take_out(j)
            hours_J = environment.jobs.gpus_min_J * environment.jobs.work_J
            for j in jobs[np.argsort(-priced_J[jobs] / hours_J[jobs], kind="stable")].tolist():
                books.improve(j, price_SH)
        free_SH = np.zeros_like(price_SH)
        for turn in range(passes):
            gained_usd = sum(books.improve(j, free_SH) for j in (jobs if turn % 2 == 0 else jobs[::-1]).tolist())
            if gained_usd <= LEAST_SHARE * abs(float(books.value_J.sum())):
                break
        best_usd = max(best_usd, float(books.value_J.sum()))
    return best_usd


def _run_s_J(relaxation: Relaxation, unbroken: BookedSchedule) -> F8:
    """Returns the run times of booked jobs, s; 0 of those that do not run."""
    options = relaxation.options
    run_s_J = np.zeros(len(unbroken.site_J))
    taken_O = taken(options, unbroken)
    run_s_J[options.job_O[taken_O]] = options.run_s_O[taken_O]
    return run_s_J


def taken(options: Options, schedule: BookedSchedule) -> NDArray[np.bool_]:
    """Returns which options jobs take in a schedule; of one that may also start late, both."""
    job_O = options.job_O
    taken_O: NDArray[np.bool_] = options.site_O == schedule.site_J[job_O]
    taken_O &= options.gpus_O == schedule.gpus_J[job_O]
    taken_O &= options.level_O == schedule.level_J[job_O]
    return taken_O


def _limits(environment: Environment) -> dict[int, F8]:
    """Returns per class the least seconds dark and of a run, and the most stops."""
    out = {}
    for name, freedom in environment.fleet.freedoms.items():
        most = np.inf if freedom.most_suspensions is None else freedom.most_suspensions
        limits = [freedom.checkpoint.dark_s, freedom.min_run_s, most]
        out[environment.fleet.classes.index(name)] = np.array(limits, np.float64)
    return out
