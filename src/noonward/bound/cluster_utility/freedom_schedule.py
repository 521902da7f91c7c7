"""A schedule in which jobs are stopped or capped: unbroken bookings improved one by one, as the bound's lives say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I4, I8
from noonward.bound.cluster_utility.columns import Options
from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.freedoms import energy_prices, life_plan
from noonward.bound.cluster_utility.kernels import least_intensity, run_value
from noonward.bound.cluster_utility.kernels_freedoms import CAPPED, RESIZED, FreeOptions, LifePlan, Prices, best_life
from noonward.bound.cluster_utility.primal import BookedSchedule, free_gpus
from noonward.compiled import kernel
from noonward.model.cluster.environment import Environment
from noonward.units import HOUR_S, WATT_SECONDS_PER_MWH

BLOCKED_USD: Final = 1e7
"""Price of a GPU-hour in an hour in which a gang does not fit, USD."""
PASSES: Final = 3
"""Times that every job's life is sought again."""
MOST_SEGMENTS: Final = 400
"""Most segments of a life."""
LEAST_GAIN_USD: Final = 1e-9
"""Gain from which a life counts as better, USD."""
LEAST_SHARE: Final = 1e-6
"""Share of the value that a pass gains at least for another one to follow."""


@kernel()
def _hold(free_T: I4, from_T: I8, until_T: I8, count: int, gpus: int) -> None:
    """Takes a gang out of the free GPUs over some segments of slots."""
    for n in range(count):
        for t in range(from_T[n], until_T[n]):
            free_T[t] -= gpus


@kernel()
def _fits(free_T: I4, from_T: I8, until_T: I8, count: int, gpus: int) -> bool:
    """Returns whether a gang is free over some segments of slots, which may share a slot."""
    _hold(free_T, from_T, until_T, count, gpus)
    good = True
    for n in range(count):
        for t in range(from_T[n], until_T[n]):
            good = good and free_T[t] >= 0
    _hold(free_T, from_T, until_T, count, -gpus)
    return good


@kernel()
def _blocked(free_T: I4, gpus: int, slots: int, price_H: F8) -> None:
    """Adds a prohibitive price to the hours in one of whose slots a gang does not fit."""
    for h in range(len(price_H)):
        for t in range(h * slots, min((h + 1) * slots, len(free_T))):
            if free_T[t] < gpus:
                price_H[h] += BLOCKED_USD
                break


@kernel()
def carried_out(
    options: FreeOptions,
    o: int,
    prices: Prices,
    weight_cumulative_P: F8,
    window_s: float,
    slot_s: float,
    limits: F8,
    plan: LifePlan,
    from_N: I8,
    until_N: I8,
) -> tuple[float, int]:
    """Carries out the life of a job that is stopped and resumed, on whole slots, with all that both take.

    A checkpoint is written after useful time, a load ends where useful time begins, and the last run ends when the work
    is done.

    Args:
        options: Options with a freedom.
        o: Option.
        prices: Prices; those of capacity are not read.
        weight_cumulative_P: Running integral of price + mu carbon at its site, USD/MWh x s.
        window_s: Window over which free GPUs are charged, s.
        slot_s: Slot, s.
        limits: Least seconds without GPUs between a stop and a load, least seconds of a run before a stop, most stops.
        plan: The life.
        from_N: Receives the first slot of each segment that holds the GPUs.
        until_N: Receives the slot after its last.

    Returns:
        (value in USD, -inf where it cannot be carried out; number of segments).
    """
    part_s, mode = prices.part_s, options.mode_O[o]
    first = int(options.earliest_s_O[o] / part_s)
    periods = int(np.ceil(options.end_s_O[o] / part_s - 1e-9)) - first
    saved_w = options.saved_w_X[mode]
    usd, count, left_s, p, stopped_s = options.worth_usd_O[o], 0, options.run_s_O[o], 0, -np.inf
    for _ in range(periods):
        while p < periods and plan.used_P[p] <= 0.0:
            p += 1
        if p >= periods or count + 3 > len(from_N):
            break
        q = p  # a run: from the end of part p, or within it, to part q
        while q + 1 < periods and plan.used_P[q + 1] > 0.0 and plan.stopped_P[q] == 0 and plan.resumed_P[q + 1] == 0:
            q += 1
        begin_s = max(options.earliest_s_O[o], (first + p) * part_s)
        if q > p:
            begin_s = max(begin_s, np.floor((first + p + 1 - plan.used_P[p]) * part_s / slot_s + 1e-9) * slot_s)
            end_s = (first + q + plan.used_P[q]) * part_s
        else:
            end_s = begin_s + plan.used_P[p] * part_s
        end_s = np.ceil(end_s / slot_s - 1e-9) * slot_s
        last = end_s - begin_s >= left_s - 1e-6
        if last:
            end_s = begin_s + left_s
        if count > 0:
            load_from_s = begin_s - options.load_s_O[o]
            if load_from_s < stopped_s + limits[0]:
                return -np.inf, 0
            usd += run_value(
                weight_cumulative_P, load_from_s, begin_s, window_s, 0.0, options.load_w_X[mode], saved_w, part_s
            )
            from_N[count], until_N[count] = int(np.floor(load_from_s / slot_s)), int(np.rint(begin_s / slot_s))
            count += 1
        usd += run_value(weight_cumulative_P, begin_s, end_s, window_s, 0.0, options.power_w_X[mode], saved_w, part_s)
        from_N[count], until_N[count] = int(np.rint(begin_s / slot_s)), int(np.ceil(end_s / slot_s - 1e-9))
        count += 1
        left_s -= end_s - begin_s
        if last:
            if end_s > options.end_s_O[o] + 1e-6:
                return -np.inf, 0
            return usd - ended_usd(options, o, prices, end_s), count
        if end_s - begin_s < limits[1] or limits[2] < 1:
            return -np.inf, 0
        limits[2] -= 1
        stopped_s = end_s + options.stop_s_O[o]
        usd += run_value(weight_cumulative_P, end_s, stopped_s, window_s, 0.0, options.stop_w_X[mode], saved_w, part_s)
        from_N[count], until_N[count] = int(np.rint(end_s / slot_s)), int(np.ceil(stopped_s / slot_s - 1e-9))
        count += 1
        p = q + 1
    return -np.inf, 0


@kernel()
def ended_usd(options: FreeOptions, o: int, prices: Prices, end_s: float) -> float:
    """Returns what the emissions of a result's return cost after an end, USD."""
    if options.return_kwh_O[o] <= 0.0:
        return 0.0
    hour_s = np.floor(end_s / HOUR_S) * HOUR_S
    grams = options.return_kwh_O[o] * least_intensity(
        prices.carbon_SH, options.home_O[o], options.site_O[o], hour_s, hour_s
    )
    return float(prices.usd_per_g * grams)


@kernel()
def carried_capped(
    options: FreeOptions,
    o: int,
    prices: Prices,
    slot_s: float,
    plan: LifePlan,
    from_N: I8,
    until_N: I8,
) -> float:
    """Carries out the life of an unbroken job under caps, from the slot at or before its begin.

    Returns:
        What begins earlier by a part of a slot cost at most, USD; infinite for a life of no part.
    """
    part_s = prices.part_s
    first = int(options.earliest_s_O[o] / part_s)
    periods = int(np.ceil(options.end_s_O[o] / part_s - 1e-9)) - first
    a, b = 0, periods - 1
    while a < periods and plan.used_P[a] <= 0.0:
        a += 1
    if a == periods:
        return np.inf
    while plan.used_P[b] <= 0.0:
        b -= 1
    begin_s = max(options.earliest_s_O[o], (first + a) * part_s)
    if b > a:
        begin_s = max(begin_s, (first + a + 1 - plan.used_P[a]) * part_s)
    end_s = (first + b + plan.used_P[b]) * part_s if b > a else begin_s + plan.used_P[a] * part_s
    slot = int(np.floor(begin_s / slot_s + 1e-9))
    from_N[0], until_N[0] = slot, int(np.ceil(end_s / slot_s - 1e-9))
    most = 0.0
    for x in range(options.mode_O[o], options.mode_O[o + 1]):
        hour_usd = options.power_w_X[x] * prices.weight_SP[options.site_O[o], first + a] / WATT_SECONDS_PER_MWH
        most = max(most, abs(hour_usd))
    return float((begin_s - slot * slot_s) / part_s * most)


class FreeBooks:
    """Bookings of jobs that may be stopped or capped, on the free GPUs of slots.

    Args:
        environment: Environment of the protocol ``each-slot`` without hard capacity curves.
        relaxation: Its dual function without freedoms.
        tables: Options with freedoms; of those of one job the best is taken. RESIZED ones are passed over.
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
        self._room = np.empty(MOST_SEGMENTS, np.int64), np.empty(MOST_SEGMENTS, np.int64)
        slots = int(np.ceil(relaxation.shape[1] * HOUR_S / slot_s)) + 2
        self._free_ST = free_gpus(environment, relaxation.tables, slots)
        self.value_J = unbroken.value_usd_J.copy()
        self._held: list[tuple[int, I8, I8, int]] = []
        for j, run_s in enumerate(_run_s_J(relaxation, unbroken)):
            site, gpus = int(unbroken.site_J[j]), int(unbroken.gpus_J[j])
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
            _hold(self._free_ST[site], begin, end, len(begin), sign * gpus)

    def take_out(self, j: int) -> None:
        """Unbooks a job."""
        self._change(j, -1)
        none = np.empty(0, np.int64)
        self._held[j] = (-1, none, none, 0)
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
        had_usd = best_usd = self.value_J[j]
        priced_best = 0.0 if price_SH.any() else had_usd
        self._change(j, -1)
        for table, plan, guess in zip(self._tables, self._plans, self._guesses, strict=True):
            for o in range(table.first_J[j], table.first_J[j + 1]):
                if table.search_O[o] == RESIZED:
                    continue
                s, gang = int(table.site_O[o]), int(table.gpus_X[table.mode_O[o]])
                blocked_SH = price_SH.copy()
                _blocked(self._free_ST[s], gang, round(HOUR_S / slot_s), blocked_SH[s])
                prices = self._prices._replace(capacity_SH=blocked_SH)
                hour = int(table.earliest_s_O[o] / HOUR_S)
                use_H = np.zeros(int(table.end_s_O[o] / HOUR_S) - hour + 2)
                priced = best_life(table, o, prices, guess, use_H, hour, plan)
                if priced <= priced_best + LEAST_GAIN_USD:
                    continue
                end = min(len(use_H), price_SH.shape[1] - hour)
                rent_usd = float(use_H[:end] @ price_SH[s, hour : hour + end])
                if table.search_O[o] == CAPPED:
                    value = priced + rent_usd - carried_capped(table, o, prices, slot_s, plan, *self._room)
                    count = 1
                else:
                    limits = self._limits[int(self._environment.jobs.class_J[j])].copy()
                    value, count = carried_out(
                        table, o, prices, costs.weight_cumulative_SP[s], self._environment.window_s, slot_s, limits,
                        plan, *self._room,
                    )  # fmt: skip
                if value - rent_usd <= priced_best or not _fits(self._free_ST[s], *self._room, count, gang):
                    continue
                priced_best, best_usd = value - rent_usd, value
                self._held[j] = (s, self._room[0][:count].copy(), self._room[1][:count].copy(), gang)
        self._change(j, 1)
        self.value_J[j] = best_usd
        return float(best_usd - had_usd)


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
