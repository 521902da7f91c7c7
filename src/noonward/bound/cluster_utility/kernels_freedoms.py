"""Compiled: every job's best life at given capacity prices, and the GPU-hours it uses.

Axes: J jobs, O options with a freedom (a job at a site on its own gang and clock), X modes (an option's gang under a
cap), L lanes (an option's gang), S sites, H hours, P parts of hours, in which prices of energy hold; U positions of the
jobs' use by hour.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noonward.arrays import F8, I8, U1
from noonward.bound.cluster_utility.kernels import least_intensity
from noonward.bound.cluster_utility.life_capped import capped_life
from noonward.bound.cluster_utility.life_resized import resized_life
from noonward.compiled import kernel
from noonward.schedule.cluster.life_suspended import suspended_life
from noonward.units import HOUR_S, WATT_SECONDS_PER_MWH

BLOCKED_USD = 1e7
"""Cost of a part of an hour in which a gang does not fit, USD."""
SUSPENDED, CAPPED, RESIZED = 0, 1, 2
"""Which search an option's life takes."""


class FreeOptions(NamedTuple):
    """Options of jobs that have a freedom, sorted by job.

    Attributes:
        first_J: First option of every job, one more than there are jobs.
        search_O: SUSPENDED, CAPPED or RESIZED.
        site_O: Site.
        home_O: Site of the job's ingress, or -1.
        earliest_s_O: First start, s.
        latest_s_O: Last start, s.
        end_s_O: Last end, s.
        run_s_O: Run time on the own gang at full power, s.
        own_O: Own gang, GPUs.
        level_O: Clock level.
        moves_O: 1 where the job may be resumed at other sites.
        move_usd_O: Cost of moving there, USD.
        return_usd_O: Fixed cost of the result's return, USD.
        worth_usd_O: Revenue less the fixed cost of moving and of the result's return, USD.
        return_kwh_O: kWh of the result's return.
        load_s_O: Seconds that a resume holds the GPUs.
        stop_s_O: Seconds that a stop holds them.
        mode_O: First mode of every option, one more than there are options.
        rate_X: Speed over that of the own gang at full power.
        power_w_X: Facility power, W.
        saved_w_X: Facility power that the gang's GPUs would draw free, W.
        gpus_X: GPUs.
        lane_X: Number of the gang within the option, ascending.
        load_w_X: Facility power while loading, of the gang at any cap, W.
        stop_w_X: Facility power while a checkpoint is written, W.
    """

    first_J: I8
    search_O: I8
    site_O: I8
    home_O: I8
    earliest_s_O: F8
    latest_s_O: F8
    end_s_O: F8
    run_s_O: F8
    own_O: I8
    level_O: I8
    moves_O: I8
    move_usd_O: F8
    return_usd_O: F8
    worth_usd_O: F8
    return_kwh_O: F8
    load_s_O: F8
    stop_s_O: F8
    mode_O: I8
    rate_X: F8
    power_w_X: F8
    saved_w_X: F8
    gpus_X: F8
    lane_X: I8
    load_w_X: F8
    stop_w_X: F8


class Prices(NamedTuple):
    """Prices that lives are reckoned at.

    Attributes:
        weight_SP: Integral of price + mu carbon over each part, USD/MWh x s.
        window_parts: Parts inside the window, over which free GPUs are charged.
        part_s: Length of a part, s.
        carbon_SH: Carbon intensity, g/kWh.
        usd_per_g: Carbon price, USD per gram.
        capacity_SH: Capacity prices lambda, USD per GPU-hour.
        room_SH: Most GPUs that a gang may have in each hour; infinite where capacity has its price alone.
    """

    weight_SP: F8
    window_parts: int
    part_s: float
    carbon_SH: F8
    usd_per_g: float
    capacity_SH: F8
    room_SH: F8


class LifePlan(NamedTuple):
    """A life by parts from that of the earliest start on.

    Attributes:
        used_P: Share of each part in which it runs.
        work_P: Work done in it by a capped life, parts at rate 1.
        resumed_P: 1 where a resume comes before its useful time.
        stopped_P: 1 where a stop follows that.
        mode_P: Mode that a RESIZED life runs in, counted from the option's first, or -1 where it is off. Where it is a
            mean of two, that of the one that does at least the work.
    """

    used_P: F8
    work_P: F8
    resumed_P: U1
    stopped_P: U1
    mode_P: I8


class Lives(NamedTuple):
    """The lives that jobs chose; one of no use where a job does not run.

    Attributes:
        value_J: Value before capacity prices, USD.
        priced_J: Value after them, USD, at least 0.
        option_J: Option with a freedom that it took, or -1.
        site_J: Site, or -1 where it does not run.
        hour_J: First hour of its use.
        first_J: First position of its use in ``use_U``, one more than there are jobs.
        use_U: GPU-hours by hour, from its first hour on.
    """

    value_J: F8
    priced_J: F8
    option_J: I8
    site_J: I8
    hour_J: I8
    first_J: I8
    use_U: F8


@kernel(allocates=False)
def part_cost(prices: Prices, site: int, part: int, power_w: float, saved_w: float, gpus: float) -> float:
    """Returns what a gang costs over a whole part, capacity included, USD."""
    drawn_w = power_w - (saved_w if part < prices.window_parts else 0.0)
    hour = int(part * prices.part_s / HOUR_S)
    energy = drawn_w * prices.weight_SP[site, part] / WATT_SECONDS_PER_MWH
    if gpus > prices.room_SH[site, hour]:
        energy += BLOCKED_USD
    return float(energy + gpus * prices.capacity_SH[site, hour] * prices.part_s / HOUR_S)


@kernel(allocates=False)
def _cheapest(
    prices: Prices,
    site: int,
    first: int,
    low: int,
    high: int,
    power_w: float,
    saved_w: float,
    gpus: float,
    held_s: float,
) -> tuple[float, int]:
    """Returns the least cost of holding a gang for some seconds in one of the parts ``first + low .. high``, and which.

    Seconds that lie in several of them cost at least as much.
    """
    best, at = np.inf, low
    for p in range(low, high + 1):
        usd = part_cost(prices, site, first + p, power_w, saved_w, gpus) * held_s / prices.part_s
        if usd < best:
            best, at = usd, p
    return best, at


@kernel(allocates=False)
def overhead_costs(
    options: FreeOptions,
    o: int,
    x: int,
    prices: Prices,
    first: int,
    lane: int,
    resume_PL: F8,
    stop_PL: F8,
    resume_at_PL: I8,
    stop_at_PL: I8,
) -> None:
    """Writes what a resume before each part and a stop after it cost an option's gang at least, USD, and where.

    Args:
        options: Options with a freedom.
        o: Option.
        x: A mode on the gang.
        prices: Prices.
        first: First part.
        lane: Position of the gang.
        resume_PL: Written at the position.
        stop_PL: Written.
        resume_at_PL: Written, parts from the first one on.
        stop_at_PL: Written.
    """
    part_s, site, periods = prices.part_s, options.site_O[o], len(resume_PL)
    load_s, stop_s = options.load_s_O[o], options.stop_s_O[o]
    before, after = 1 + int(np.ceil(load_s / part_s)), 1 + int(np.ceil(stop_s / part_s))
    saved_w, gpus = options.saved_w_X[x], options.gpus_X[x]
    for p in range(periods):
        resume_PL[p, lane], resume_at_PL[p, lane] = _cheapest(
            prices, site, first, max(0, p - before), p, options.load_w_X[x], saved_w, gpus, load_s
        )
        stop_PL[p, lane], stop_at_PL[p, lane] = _cheapest(
            prices, site, first, p, min(periods - 1, p + after), options.stop_w_X[x], saved_w, gpus, stop_s
        )


@kernel(allocates=False)
def overhead_bonus(options: FreeOptions, o: int, x: int, prices: Prices, first: int, bonus_P: F8) -> None:
    """Raises what overhead can earn in each part at most, USD, to what that of an option's gang can."""
    for p in range(len(bonus_P)):
        idle_w = options.saved_w_X[x] if first + p < prices.window_parts else 0.0
        for held_w, held_s in ((options.load_w_X[x], options.load_s_O[o]), (options.stop_w_X[x], options.stop_s_O[o])):
            earned = (idle_w - held_w) * prices.weight_SP[options.site_O[o], first + p] / WATT_SECONDS_PER_MWH
            if held_s > 0.0 and earned > bonus_P[p]:
                bonus_P[p] = earned


@kernel(allocates=False)
def _spread(use_H: F8, hour: int, part_s: float, part: int, gpu_s: float) -> None:
    """Adds GPU-seconds in a part to a job's use by hour, which begins at ``hour``."""
    use_H[int(part * part_s / HOUR_S) - hour] += gpu_s / HOUR_S


@kernel(apart=True)
def best_life(options: FreeOptions, o: int, prices: Prices, guess: F8, use_H: F8, hour: int, plan: LifePlan) -> float:
    """Finds an option's best life at given prices.

    Args:
        options: Options with a freedom.
        o: Option.
        prices: Prices.
        guess: Per option the price of work to begin at, USD a part; renewed.
        use_H: Receives its GPU-hours by hour from ``hour`` on.
        hour: Hour in which the use begins, at most that of the earliest start.
        plan: Receives the life by parts; of a RESIZED one its modes alone.

    Returns:
        Value after capacity prices, USD; -inf where the job cannot end in time.
    """
    part_s, site = prices.part_s, options.site_O[o]
    first = int(options.earliest_s_O[o] / part_s)
    until = max(first + 1, int(np.ceil(options.end_s_O[o] / part_s - 1e-9)))
    periods, one, other = until - first, options.mode_O[o], options.mode_O[o + 1]
    modes = other - one
    share_P = np.ones(periods)
    if periods == 1:
        share_P[0] = (options.end_s_O[o] - options.earliest_s_O[o]) / part_s
    else:
        share_P[0] = first + 1 - options.earliest_s_O[o] / part_s
        share_P[-1] = min(1.0, options.end_s_O[o] / part_s - (until - 1))
    units = options.run_s_O[o] / part_s
    cost_PX = np.empty((periods, modes))
    for p in range(periods):
        for x in range(modes):
            cost_PX[p, x] = part_cost(
                prices, site, first + p, options.power_w_X[one + x], options.saved_w_X[one + x], options.gpus_X[one + x]
            )
    end_P = np.zeros(periods)
    if options.return_kwh_O[o] > 0.0:
        for p in range(periods):
            grams = options.return_kwh_O[o] * least_intensity(
                prices.carbon_SH, options.home_O[o], site, (first + p) * part_s, (first + p + 1) * part_s
            )
            end_P[p] = prices.usd_per_g * grams
    use_H[:] = 0.0
    if options.search_O[o] == CAPPED:
        used_P, work_P = plan.used_P[:periods], plan.work_P[:periods]
        plan.resumed_P[:], plan.stopped_P[:] = 0, 0
        usd = capped_life(options.rate_X[one:other], cost_PX, end_P, share_P, units, used_P, work_P)
        for p in range(periods):
            _spread(use_H, hour, part_s, first + p, options.gpus_X[one] * used_P[p] * part_s)
        return float(options.worth_usd_O[o] - usd)
    lanes = options.lane_X[other - 1] + 1
    resume_PL, stop_PL = np.empty((periods, lanes)), np.empty((periods, lanes))
    resume_at_PL = np.empty((periods, lanes), dtype=np.int64)
    stop_at_PL = np.empty((periods, lanes), dtype=np.int64)
    bonus_P, gpus_L = np.zeros(periods), np.zeros(lanes)
    load_s, stop_s = options.load_s_O[o], options.stop_s_O[o]
    for x in range(one, other):
        lane = options.lane_X[x]
        if x > one and options.lane_X[x - 1] == lane:
            continue
        gpus_L[lane] = options.gpus_X[x]
        overhead_costs(options, o, x, prices, first, lane, resume_PL, stop_PL, resume_at_PL, stop_at_PL)
        overhead_bonus(options, o, x, prices, first, bonus_P)
    if options.search_O[o] == SUSPENDED:
        used_P, resumed_P, stopped_P = plan.used_P[:periods], plan.resumed_P[:periods], plan.stopped_P[:periods]
        usd = suspended_life(
            cost_PX[:, 0].copy(), resume_PL[:, 0].copy(), stop_PL[:, 0].copy(), bonus_P, end_P, share_P, units, np.inf,
            used_P, resumed_P, stopped_P,
        )  # fmt: skip
        gpus = gpus_L[0]
        for p in range(periods):
            _spread(use_H, hour, part_s, first + p, gpus * used_P[p] * part_s)
            if resumed_P[p]:
                _spread(use_H, hour, part_s, first + resume_at_PL[p, 0], gpus * load_s)
            if stopped_P[p]:
                _spread(use_H, hour, part_s, first + stop_at_PL[p, 0], gpus * stop_s)
        return float(options.worth_usd_O[o] - usd)
    begin_until = min(periods, int(options.latest_s_O[o] / part_s) - first + 2)
    mode_P, other_P = plan.mode_P[:periods], np.full(periods, -1, dtype=np.int64)
    mode_P[:] = -1
    weight = np.ones(1)
    usd, guess[o] = resized_life(
        options.rate_X[one:other], options.lane_X[one:other], cost_PX, resume_PL, stop_PL, bonus_P, end_P, share_P,
        begin_until, units, guess[o], mode_P, weight, other_P,
    )  # fmt: skip
    for which in range(2):
        share = weight[0] if which == 0 else 1.0 - weight[0]
        path_P, lane, alive = mode_P if which == 0 else other_P, -1, False
        for p in range(periods):
            now = options.lane_X[one + path_P[p]] if path_P[p] >= 0 else -1
            if now >= 0:
                _spread(use_H, hour, part_s, first + p, share * gpus_L[now] * share_P[p] * part_s)
            if alive and now != lane:
                if lane >= 0:
                    last, stopping = p - 1, lane
                    later = False
                    for q in range(p, periods):
                        later = later or path_P[q] >= 0
                    if later:
                        at = first + stop_at_PL[last, stopping]
                        _spread(use_H, hour, part_s, at, share * gpus_L[stopping] * stop_s)
                if now >= 0:
                    _spread(use_H, hour, part_s, first + resume_at_PL[p, now], share * gpus_L[now] * load_s)
            alive = alive or now >= 0
            lane = now
    return float(options.worth_usd_O[o] - usd)


@kernel()
def choose_lives(
    options: FreeOptions,
    prices: Prices,
    best_K_J: I8,
    value_K: F8,
    gpus_K: F8,
    from_K: I8,
    from_share_K: F8,
    to_K: I8,
    to_share_K: F8,
    guess: F8,
    lives: Lives,
    plan: LifePlan,
) -> None:
    """Lets every job take the better of its best unbroken run and its best life with freedoms.

    Args:
        options: Options with a freedom.
        prices: Prices.
        best_K_J: Column of the best unbroken run, or -1 (``kernels.dual_step``).
        value_K: Value of the columns, USD.
        gpus_K: Gang.
        from_K: Position of the start's hour, ``site (H + 1) + hour``.
        from_share_K: Share of that hour gone at the start.
        to_K: Position of the end's hour.
        to_share_K: Share of that hour gone at the end.
        guess: Per option the price of work to begin at; renewed.
        lives: Receives the lives; its ``hour_J`` and ``first_J`` are read.
        plan: Room for one life.
    """
    hours = prices.capacity_SH.shape[1]
    for j in range(len(best_K_J)):
        use_H = lives.use_U[lives.first_J[j] : lives.first_J[j + 1]]
        use_H[:] = 0.0
        lives.value_J[j], lives.priced_J[j], lives.option_J[j], lives.site_J[j] = 0.0, 0.0, -1, -1
        k = best_K_J[j]
        if k >= 0:
            site = from_K[k] // (hours + 1)
            paid = 0.0
            for position in range(from_K[k], to_K[k] + 1):
                hour, share = position - site * (hours + 1), 1.0
                if position == from_K[k]:
                    share -= from_share_K[k]
                if position == to_K[k]:
                    share -= 1.0 - to_share_K[k]
                if share > 0.0:
                    use_H[hour - lives.hour_J[j]] = gpus_K[k] * share
                    paid += gpus_K[k] * share * prices.capacity_SH[site, hour]
            lives.value_J[j], lives.priced_J[j], lives.site_J[j] = value_K[k], value_K[k] - paid, site
        room_H = np.zeros(len(use_H))
        for o in range(options.first_J[j], options.first_J[j + 1]):
            priced = best_life(options, o, prices, guess, room_H, lives.hour_J[j], plan)
            if priced > lives.priced_J[j] + 1e-12:
                site, paid = options.site_O[o], 0.0
                for h in range(len(use_H)):  # a copy as a whole would compile messages about shapes for two seconds
                    use_H[h] = room_H[h]
                    if use_H[h] > 0.0:
                        paid += use_H[h] * prices.capacity_SH[site, lives.hour_J[j] + h]
                lives.value_J[j], lives.priced_J[j] = priced + paid, priced
                lives.option_J[j], lives.site_J[j] = o, site


@kernel(allocates=False)
def take_use(lives: Lives, free_SH: F8) -> None:
    """Takes what the lives use out of the GPU-hours that are free."""
    for j in range(len(lives.site_J)):
        if lives.site_J[j] >= 0:
            for n in range(lives.first_J[j], lives.first_J[j + 1]):
                if lives.use_U[n] > 0.0:
                    free_SH[lives.site_J[j], lives.hour_J[j] + n - lives.first_J[j]] -= lives.use_U[n]
