"""Prices of capacity: the dual of a plan of the coming hours, for jobs that wait and jobs to come.

Times are leads: hours after the start of the current hour.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from noonward.arrays import F8, I8, Records
from noonward.compiled import kernel
from noonward.decision.cluster.lives import bound_elsewhere
from noonward.decision.cluster.value import (
    energy_usd,
    expected_share,
    extra_power_w,
    gang_at,
    revenue_usd,
    run_seconds,
    travel_cost_usd,
)
from noonward.decision.cluster.view import CARBON, PRICE, ClusterView, delay_s, fits, return_delay_s
from noonward.schedule.cluster.caps import at, best_cap, capped_power_w
from noonward.schedule.cluster.kinds import Kinds, option_site
from noonward.units import HOUR_S, KG_PER_TONNE
from noonward.vectorised import item, positive_order

PRICED_H: Final = 240
"""Hours ahead that have a price of their own, and within which starts are planned."""
DAY_H: Final = 24
"""Hours after which prices and forecasts repeat where they are not known."""
LONGEST_H: Final = 2400
"""Longest run that is planned for, h; of a longer one the first hours are planned."""
JOBS_PER_HOUR: Final = 64.0
"""Jobs to come that stand for the fleet's GPU-hours of the current hour in one round, unless said otherwise."""
THINNING_H: Final = 24.0
"""Lead at which half as many stand for an hour's, h; at lead L their number is 1 / (1 + L / this) of it."""
ROUNDS_AT_ONCE: Final = 62
"""Rounds for which the jobs that stand for all are looked up together: bits of a whole number."""
PHASES: Final = 128
"""Parts of the distance of two teeth by which it is looked up whether one lies in a job's share (``_see``)."""
NEAR: Final = 1e-9
"""Differences of positions on the comb below this count as none where a job is passed over unseen."""
NEAR_USD: Final = 1e-6
"""What an option must lack to the best value to be passed over by what it earns at most, USD: sums are rounded."""
GOLDEN: Final = 0.6180339887498949
ROOT_3: Final = 1.7320508075688772

OPTION: Final = np.dtype(
    [
        ("earliest_h", "f8"),  # for a job to come: in the stretch that is sampled; so is latest_h
        ("latest_h", "f8"),  # below earliest_h where the job cannot run at the site in time; equal where it is late
        ("run_h", "f8"),
        ("power_w", "f8"),  # facility power it adds
        ("net_usd", "f8"),  # revenue less what its journeys cost
        ("usd_per_intensity", "f8"),  # what they cost more per g/kWh of mean intensity at home and at the site
        ("most_usd", "f8"),  # most it earns whatever the room, while a start is looked for
        ("gpus", "i4"),
        ("site", "i2"),  # the site, or one of those of a kind, which are alike to the job; -1: none
        ("class_", "i2"),  # of the job: its power caps
    ]
)
"""What running a job at a site, or at any of a kind of sites, takes and earns (``kinds``), in 64 bytes: of jobs to come
at many sites there are millions."""
COMING: Final = np.dtype(
    [
        ("arrival_h", "f8"),  # in the stretch that is sampled
        ("home", "i8"),
        ("weight", "f8"),  # how many jobs of a draw it stands for: 1 / draws, or what its sampler says
        ("before", "f8"),  # GPU-hours of all that arrive earlier, times their weight, over the GPUs of the fleet
        ("until", "f8"),  # the same with its own
    ]
)
"""A job to come."""


class Prices(NamedTuple):
    """Prices of GPUs and what they rest on. Axes: S sites, H hours that are priced, R turns of hours within reach.

    Sites of one kind have the same prices.
    """

    price_SH: F8
    """Price after the last round, USD per GPU-hour."""
    square_SH: F8
    """Sum of the squares of the slopes so far."""
    mean_SH: F8
    """Mean of the prices over the rounds of this hour, by which jobs are booked."""
    capacity_SH: F8
    """GPU-hours that running and travelling jobs leave."""
    use_SH: F8
    """GPU-hours that the plan takes."""
    paid_SR: F8
    """Running integral of the prices, USD per GPU."""
    energy_SR: F8
    """Running integral of the forecast cost of energy and carbon, USD per W."""


class Ahead(NamedTuple):
    """Room for the jobs to come that stand for all in some rounds, and for what best starts are looked up by."""

    job_M: I8
    """Which of the sampled jobs; one entry for every time that it repeats."""
    shift_h_M: F8
    """Added to its times."""
    rounds_M: I8
    """The rounds in which it stands for others, as bits."""
    turn_R: F8
    """How far the teeth of each round lie to the left of 1, 2, 3..."""
    tooth_P: F8
    """First position of a tooth in any of the rounds from each phase on."""
    least_2S: F8
    """Least price of a GPU-hour, USD, and least cost of a watt in an hour, USD, per site."""

    @classmethod
    def of(cls, jobs: int, hours: float, stretch_h: float, sites: int) -> Ahead:
        """Returns room for the jobs of some hours.

        Args:
            jobs: Sampled jobs.
            hours: Hours ahead.
            stretch_h: Length of the stretch that is sampled, h; it repeats.
            sites: Sites.
        """
        most = jobs * (int(np.ceil(hours / stretch_h)) + 1)
        job_M, rounds_M = np.zeros((2, most), np.int64)
        turn_R, tooth_P = np.zeros(ROUNDS_AT_ONCE), np.zeros(PHASES)
        return cls(job_M, np.zeros(most), rounds_M, turn_R, tooth_P, np.zeros((2, sites)))


@kernel(inline=True, allocates=False)
def start_usd(option: Any, paid_SR: F8, energy_SR: F8, site: int, start_h: float) -> float:
    """Returns what a start earns over the energy and the GPUs of the run, USD; integrals as in ``Prices``."""
    end_h = start_h + option.run_h
    energy = at(energy_SR, site, end_h) - at(energy_SR, site, start_h)
    paid = at(paid_SR, site, end_h) - at(paid_SR, site, start_h)
    return option.net_usd - option.power_w * energy - option.gpus * paid


@kernel(inline=True, allocates=False)
def _journeys_usd(view: ClusterView, job: int, home: int, d: int) -> tuple[float, float]:
    """Returns what the journeys of a job from home to a site and of its result back cost, USD and USD per g/kWh."""
    if home == d:
        return 0.0, 0.0
    record = view.job_J[job]
    out, back = view.link_IS[view.site_S[home].ingress, d], view.link_IS[record.origin, d]
    usd_per_g = view.run_1[0].carbon_usd_per_t / KG_PER_TONNE / 1000.0
    kwh = record.move_gb * out.kwh_per_gb + record.result_gb * back.kwh_per_gb
    return record.move_gb * out.usd_per_gb + record.result_gb * back.usd_per_gb, usd_per_g * kwh


@kernel(inline=True, allocates=False)
def start_range_s(
    view: ClusterView, job: int, s: int, d: int, from_s: float, last_s: float, reserve: float
) -> tuple[float, float]:
    """Returns earliest and latest start to plan with, at site d, of a job that is at site s from a time on, s.

    Of a job whose run time is an estimate, the last part of its slack, ``reserve``, is not planned with: runs that go
    on for longer than was booked may have taken the room by then.
    """
    earliest_s = from_s if s == d else from_s + delay_s(view, job, view.site_S[s].ingress, d)
    record = view.job_J[job]
    latest_s = min(record.deadline_s, last_s)
    if record.expected < record.work:
        latest_s -= reserve * max(0.0, latest_s - record.arrival_s)
    return earliest_s, latest_s - return_delay_s(view, job, d)


@kernel(inline=True, allocates=False)
def is_due(view: ClusterView, job: int, s: int, from_s: float, last_s: float, reserve: float) -> bool:
    """Returns whether a job is to start as soon as it can: nowhere in the range to plan with, but still later.

    Arguments as in ``start_range_s``.
    """
    if view.run_1[0].late_until_s == -np.inf and reserve == 0.0:
        return False
    for d in range(view.site_S.shape[0]):
        earliest_s, latest_s = start_range_s(view, job, s, d, from_s, last_s, reserve)
        if fits(view, job, d) and earliest_s <= latest_s and not bound_elsewhere(view, job, d):
            return False
    return True


@kernel(inline=True, allocates=False)
def end_of_starts_s(view: ClusterView, job: int, d: int, last_s: float) -> float:
    """Returns until when a job may start at a site, late or not, s."""
    in_time_s = min(view.job_J[job].deadline_s, last_s) - return_delay_s(view, job, d)
    return max(in_time_s, min(view.run_1[0].late_until_s, last_s))


@kernel(allocates=False)
def describe(
    view: ClusterView,
    kinds: Kinds,
    job: int,
    s: int,
    from_s: float,
    zero_s: float,
    last_s: float,
    reserve: float,
    coming: bool,
    option_X: Records,
) -> None:
    """Writes what running a job at every site, or kind of sites, takes and earns.

    A job that is due (``is_due``) starts at the earliest free slot. Of a job whose run
    time is learned, what it earns, takes and costs is reckoned with what it is expected to take of the time told.

    Args:
        view: View.
        kinds: Kinds of the sites.
        job: Job.
        s: Site it waits at, or its home.
        from_s: Earliest start there, s.
        zero_s: Time from which leads count, s.
        last_s: Latest start of any job, s.
        reserve: Share of its slack that is not planned with.
        coming: Whether the job is to come: its journeys are paid at the intensities of a later hour.
        option_X: Written.
    """
    due = not coming and is_due(view, job, s, from_s, last_s, reserve)
    expected, home = expected_share(view, job), view.home_I[view.job_J[job].origin]
    for x in range(option_X.shape[0]):
        option = option_X[x]
        option.earliest_h, option.latest_h = 0.0, -1.0
        d = option_site(kinds, x, s, home)
        option.site = d
        if d < 0:
            continue
        if not fits(view, job, d) or (not coming and bound_elsewhere(view, job, d)):
            continue
        earliest_s, latest_s = start_range_s(view, job, s, d, from_s, last_s, reserve)
        if due and earliest_s <= end_of_starts_s(view, job, d, last_s):
            latest_s = earliest_s
        if not earliest_s <= latest_s:  # nor if the latest start is unknown: no deadline, and an endless way back
            continue
        option.earliest_h, option.latest_h = (earliest_s - zero_s) / HOUR_S, (latest_s - zero_s) / HOUR_S
        seconds = run_seconds(view, job, d) * expected
        option.run_h = min(seconds / HOUR_S, float(LONGEST_H))
        option.gpus = gang_at(view, job, d)
        option.power_w = extra_power_w(view, job, d)
        option.class_ = view.job_J[job].class_
        option.net_usd = expected * revenue_usd(view, job, d) * min(1.0, LONGEST_H * HOUR_S / seconds)
        option.usd_per_intensity = 0.0
        if coming:
            usd, option.usd_per_intensity = _journeys_usd(view, job, s, d)
            option.net_usd -= usd
        else:
            option.net_usd -= travel_cost_usd(view, job, s, d)


@kernel(allocates=False)
def describe_all(
    view: ClusterView,
    kinds: Kinds,
    jobs: I8,
    site_J: I8,
    from_s_J: F8,
    zero_s: float,
    last_s: float,
    reserve: float,
    coming: bool,
    option_JX: Records,
) -> None:
    """Writes what running some jobs takes and earns; arguments as in ``describe``."""
    for i in range(jobs.shape[0]):
        describe(view, kinds, jobs[i], site_J[i], from_s_J[i], zero_s, last_s, reserve, coming, option_JX[i])


@kernel(inline=True, allocates=False)
def _from_turn_usd(
    paid_SR: F8, energy_SR: F8, d: int, hour: int, whole: int, part: float, net: float, power: float, gpus: float
) -> float:
    """Returns what a run of some whole hours and a part of one earns from the turn of an hour, USD."""
    end = hour + whole
    last = item(energy_SR, d, end)
    energy = last + part * (item(energy_SR, d, end + 1) - last) - item(energy_SR, d, hour)
    last = item(paid_SR, d, end)
    paid = last + part * (item(paid_SR, d, end + 1) - last) - item(paid_SR, d, hour)
    return net - power * energy - gpus * paid


@kernel(inline=True, allocates=False)
def _to_turn_usd(
    paid_SR: F8, energy_SR: F8, d: int, end: int, whole: int, part: float, net: float, power: float, gpus: float
) -> float:
    """Returns what a run of some whole hours and 1 less a part of one earns up to the turn of an hour, USD."""
    hour = end - whole - 1
    first = item(energy_SR, d, hour)
    energy = first + part * (item(energy_SR, d, hour + 1) - first)
    first = item(paid_SR, d, hour)
    paid = first + part * (item(paid_SR, d, hour + 1) - first)
    return net - power * (item(energy_SR, d, end) - energy) - gpus * (item(paid_SR, d, end) - paid)


@kernel(inline=True, allocates=False)
def best_at(
    site_S: Records, hours: int, paid_SR: F8, energy_SR: F8, option: Any, home: int, shift_h: float, least: float
) -> tuple[float, float]:
    """Returns (value USD, start h) of an option's best start, whatever the room; NaN where none exceeds the least.

    At fixed prices the value is linear in the start between hours' turns of start or end, so those suffice. Between
    two turns of the start the end lies at the same part of an hour, and the other way round. The most that a loop finds
    comes first, several hours at once; its hour is looked for only where it is the best so far. Arguments as in
    ``best_start``; ``least`` is at least 0.
    """
    best, best_h, d = least, np.nan, option.site
    first, last = option.earliest_h + shift_h, min(option.latest_h + shift_h, float(hours))
    if option.earliest_h > option.latest_h or first > last:
        return np.nan, np.nan
    journeys = 0.5 * option.usd_per_intensity * (site_S[home].carbon + site_S[d].carbon)
    net, power, gpus, run = option.net_usd - journeys, option.power_w, option.gpus, option.run_h
    for end in range(2):
        start = last if end else first
        value = start_usd(option, paid_SR, energy_SR, d, start) - journeys
        if value > best:
            best, best_h = value, start
    whole = int(run)
    part = run - whole
    turn, until = int(first) + 1, int(np.ceil(last))
    most: int = positive_order(best)
    for hour in range(turn, until):
        most = max(most, positive_order(_from_turn_usd(paid_SR, energy_SR, d, hour, whole, part, net, power, gpus)))
    if most > positive_order(best):
        for hour in range(turn, until):
            value = _from_turn_usd(paid_SR, energy_SR, d, hour, whole, part, net, power, gpus)
            if value > best and positive_order(value) == most:
                best, best_h = value, float(hour)
    part = 1.0 - part
    turn, until = int(first + run) + 1, int(np.ceil(last + run))
    for end in range(turn, until):
        most = max(most, positive_order(_to_turn_usd(paid_SR, energy_SR, d, end, whole, part, net, power, gpus)))
    if most > positive_order(best):
        for end in range(turn, until):
            value = _to_turn_usd(paid_SR, energy_SR, d, end, whole, part, net, power, gpus)
            if value > best and positive_order(value) == most:
                best, best_h = value, end - whole - 1 + part
    return (best, best_h) if best > least else (np.nan, np.nan)


@kernel(inline=True, allocates=False)
def _most_usd(site_S: Records, least_2S: F8, option: Any, home: int) -> float:
    """Returns what an option earns at most: a run through hours that all cost as little as the cheapest, USD."""
    if option.power_w < 0.0:
        return np.inf
    d = option.site
    journeys = 0.5 * option.usd_per_intensity * (site_S[home].carbon + site_S[d].carbon)
    hour_usd = option.gpus * least_2S[0, d] + option.power_w * least_2S[1, d]
    return float(option.net_usd - journeys - option.run_h * hour_usd)


@kernel(allocates=False)
def best_start(
    site_S: Records, hours: int, paid_SR: F8, energy_SR: F8, least_2S: F8, option_X: Records, home: int, shift_h: float
) -> tuple[float, int, float]:
    """Returns (value USD, option, start h) of a job's best start, whatever the room; option -1 where none pays.

    Options that earn less at most than what was found are passed over.

    Args:
        site_S: ``site_S`` of the view; handing over a whole view for every job takes a third of the time.
        hours: Hours that are priced.
        paid_SR: Running integral of the prices, as in ``Prices``.
        energy_SR: Running integral of the cost of energy and carbon, as in ``Prices``.
        least_2S: Least price and least cost of an hour per site, as in ``Ahead``.
        option_X: What the job takes and earns per site, or kind of sites.
        home: Home of a job to come.
        shift_h: Added to the times of the options.
    """
    best, best_x, best_h = 0.0, -1, 0.0
    for x in range(option_X.shape[0]):
        option = option_X[x]
        if option.earliest_h > option.latest_h or _most_usd(site_S, least_2S, option, home) < best - NEAR_USD:
            continue
        value, start_h = best_at(site_S, hours, paid_SR, energy_SR, option, home, shift_h, best)
        if value > best:
            best, best_x, best_h = value, x, start_h
    return best, best_x, best_h


@kernel(inline=True, allocates=False)
def _use(
    view: ClusterView, prices: Prices, option: Any, start_h: float, latest_h: float, weight: float, load_w_SH: F8
) -> None:
    """Adds the GPU-hours of a run to the hours that are priced, and its power where that is asked for.

    The run is under the cap that costs least from its start on (``best_cap``) within the slack that is left then.
    """
    site, hour, use_SH = option.site, int(start_h), prices.use_SH
    most_h = option.run_h + latest_h - start_h
    cap = best_cap(view, prices.paid_SR, prices.energy_SR, option, site, start_h, most_h)
    power_w, run_h = capped_power_w(view, option, site, cap), option.run_h
    if cap > 0:
        run_h /= view.freedom_C[option.class_].cap_rate[cap]
    until, gpus = start_h + run_h, weight * option.gpus
    while start_h < until and hour < use_SH.shape[1]:
        end = min(until, hour + 1.0)
        use_SH[site, hour] += gpus * (end - start_h)
        if hour < load_w_SH.shape[1]:
            load_w_SH[site, hour] += weight * power_w * (end - start_h)
        start_h = end
        hour += 1


@kernel(allocates=False)
def sum_up(price_SH: F8, paid_SR: F8) -> None:
    """Writes the running integrals of prices; hours behind those that are priced repeat the last day's."""
    hours = price_SH.shape[1]
    for s in range(price_SH.shape[0]):
        total = 0.0
        for hour in range(paid_SR.shape[1]):
            paid_SR[s, hour] = total
            total += price_SH[s, hour if hour < hours else hours - DAY_H + (hour - hours) % DAY_H]


@kernel(allocates=False)
def sum_up_energy(view: ClusterView, energy_SR: F8) -> None:
    """Writes the running integrals of the forecast cost; hours that are not forecast repeat the last day's."""
    forecast_KSL = view.forecast_KSL
    for s in range(energy_SR.shape[0]):
        known = 0
        while known < forecast_KSL.shape[2] - 1 and np.isfinite(
            forecast_KSL[PRICE, s, known + 1] + forecast_KSL[CARBON, s, known + 1]
        ):
            known += 1
        day = min(DAY_H, known)
        total = 0.0
        for hour in range(energy_SR.shape[1]):
            energy_SR[s, hour] = total
            lead = hour if hour < known else known - day + (hour - known) % day
            price = forecast_KSL[PRICE, s, lead + 1] - forecast_KSL[PRICE, s, lead]
            carbon = forecast_KSL[CARBON, s, lead + 1] - forecast_KSL[CARBON, s, lead]
            total += energy_usd(view, price, carbon)


@kernel(inline=True, allocates=False)
def _set_teeth(ahead: Ahead, hour_h: float, first_round: int, rounds: int) -> None:
    """Writes where the teeth of some rounds' combs lie, one apart; arguments as in ``_see``."""
    for r in range(rounds):
        ahead.turn_R[r] = (GOLDEN * (first_round + r) + ROOT_3 * hour_h) % 1.0
    for p in range(PHASES):
        ahead.tooth_P[p] = np.inf
        for r in range(rounds):
            at = 1.0 - ahead.turn_R[r]
            ahead.tooth_P[p] = min(ahead.tooth_P[p], at if at >= p / PHASES - NEAR else at + 1.0)


@kernel(allocates=False)
def _see(
    coming_C: Records,
    ahead: Ahead,
    first: int,
    hour_h: float,
    stretch_h: float,
    end_h: float,
    jobs_per_hour: float,
    first_round: int,
    rounds: int,
) -> int:
    """Notes the jobs to come up to a lead that stand for all in one of some rounds at least, by arrival.

    Jobs are taken with probability min(1, GPU-hours / unit) and count as many times more (sampling in proportion to
    size, by a comb whose teeth are one unit apart and lie elsewhere in every round). The unit grows with the lead. Few
    jobs hold a tooth of any round: one is looked at round by round only where the first tooth from its beginning on
    lies before its end.

    Args:
        coming_C: Sampled jobs by arrival.
        ahead: Written.
        first: The first of them that arrives after now.
        hour_h: The current hour in the stretch that is sampled.
        stretch_h: Length of the stretch, h; it repeats.
        end_h: Lead from which none arrives.
        jobs_per_hour: Jobs to come that stand for the fleet's GPU-hours of the current hour in one round.
        first_round: Number of the first round.
        rounds: Rounds, ``ROUNDS_AT_ONCE`` at most.

    Returns:
        How many jobs are noted.
    """
    job, shift_h, noted = first, -hour_h, 0
    _set_teeth(ahead, hour_h, first_round, rounds)
    while coming_C.shape[0] > 0:
        if job == coming_C.shape[0]:
            job, shift_h = 0, shift_h + stretch_h
        record = coming_C[job]
        lead_h = record.arrival_h + shift_h
        if lead_h >= end_h:
            return noted
        unit = _unit(lead_h, jobs_per_hour)
        before, until = record.before / unit, record.until / unit
        begin = before - np.floor(before)
        if ahead.tooth_P[int(begin * PHASES)] <= begin + (until - before) + NEAR:
            taken = 0
            for r in range(rounds):
                if np.floor(until + ahead.turn_R[r]) > np.floor(before + ahead.turn_R[r]):
                    taken |= 1 << r
            if taken != 0:
                ahead.job_M[noted], ahead.shift_h_M[noted], ahead.rounds_M[noted] = job, shift_h, taken
                noted += 1
        job += 1
    return noted


@kernel(allocates=False)
def most_gpu_hours(option_CX: Records, size_C: F8) -> None:
    """Writes the GPU-hours that jobs take at the site where they take most; 0 where they cannot run."""
    for c in range(option_CX.shape[0]):
        size_C[c] = 0.0
        for x in range(option_CX.shape[1]):
            if option_CX[c, x].earliest_h <= option_CX[c, x].latest_h:
                size_C[c] = max(size_C[c], option_CX[c, x].gpus * option_CX[c, x].run_h)


@kernel(inline=True, allocates=False)
def _unit(lead_h: float, jobs_per_hour: float) -> float:
    """Returns the GPU-hours, over the GPUs of the fleet, that one job to come stands for at a lead."""
    return (1.0 + lead_h / THINNING_H) / jobs_per_hour


@kernel(allocates=False)
def _use_of_coming(
    view: ClusterView,
    prices: Prices,
    coming_C: Records,
    option_CX: Records,
    ahead: Ahead,
    noted: int,
    bit: int,
    jobs_per_hour: float,
    load_w_SH: F8,
) -> None:
    """Adds what the jobs to come take, by those of them that stand for all in this round (``_see``)."""
    hours = prices.price_SH.shape[1]
    for k in range(noted):
        if ahead.rounds_M[k] & bit:
            job, shift_h = ahead.job_M[k], ahead.shift_h_M[k]
            record = coming_C[job]
            _, x, start_h = best_start(
                view.site_S, hours, prices.paid_SR, prices.energy_SR, ahead.least_2S, option_CX[job], record.home,
                shift_h,
            )  # fmt: skip
            if x >= 0:
                unit = _unit(record.arrival_h + shift_h, jobs_per_hour)
                weight = record.weight * max(1.0, unit / (record.until - record.before))
                option = option_CX[job, x]
                _use(view, prices, option, start_h, option.latest_h + shift_h, weight, load_w_SH)


@kernel(inline=True, allocates=False)
def _note_least(value_SR: F8, hours: int, least_S: F8) -> None:
    """Writes the least growth of a running integral within one of the first hours, per site."""
    for s in range(value_SR.shape[0]):
        least_S[s] = np.inf
        for hour in range(hours):
            least_S[s] = min(least_S[s], value_SR[s, hour + 1] - value_SR[s, hour])


@kernel(allocates=False)
def _step(site_S: Records, kinds: Kinds, x: int, prices: Prices, step: float, rounds: int) -> None:
    """Moves the prices of a kind of sites by one AdaGrad step; arguments as in ``improve``.

    The use of its first site is written over. Loops go along rows, and each writes one: several hours at once.
    """
    price_SH, square_SH, mean_SH = prices.price_SH, prices.square_SH, prices.mean_SH
    begin, until, hours = kinds.kind_X[x].begin, kinds.kind_X[x].begin + kinds.kind_X[x].sites, price_SH.shape[1]
    first, gpus = kinds.site_M[begin], 0
    slope_H, square_H, price_H = prices.use_SH[first], square_SH[first], price_SH[first]
    for m in range(begin, until):
        s = kinds.site_M[m]
        gpus += site_S[s].gpus
        capacity_H, use_H = prices.capacity_SH[s], prices.use_SH[s]
        for hour in range(hours):
            slope_H[hour] = (0.0 if s == first else slope_H[hour]) + (capacity_H[hour] - use_H[hour])
    for hour in range(hours):
        slope_H[hour] /= gpus
    for hour in range(hours):
        square_H[hour] += slope_H[hour] * slope_H[hour]
    for hour in range(hours):
        price = price_H[hour] - step * slope_H[hour] / np.sqrt(square_H[hour])
        price_H[hour] = price_H[hour] if square_H[hour] == 0.0 else price if price > 0.0 else 0.0
    for m in range(begin, until):
        s = kinds.site_M[m]
        mean_H = mean_SH[s]
        for hour in range(hours):
            mean_H[hour] += price_H[hour] / rounds
        if s != first:
            for hour in range(hours):
                square_SH[s, hour], price_SH[s, hour] = square_H[hour], price_H[hour]


@kernel(allocates=False)
def improve(
    view: ClusterView,
    kinds: Kinds,
    prices: Prices,
    option_WX: Records,
    coming_C: Records,
    option_CX: Records,
    ahead: Ahead,
    first: int,
    hour_h: float,
    stretch_h: float,
    end_h: float,
    step: float,
    rounds: int,
    jobs_per_hour: float,
    load_w_SH: F8,
    first_round: int,
) -> None:
    """Improves the prices by AdaGrad steps on the dual of the plan of the coming hours.

    The plan: known jobs that wait, each worth its best start less what its GPUs cost at the prices, plus jobs to come,
    sampled and weighted, within the GPU-hours that running and travelling jobs leave. The dual's subgradient in a
    price is that hour's capacity less its use (MASAC's capacity, Eq. 7c, priced). Sites of one kind share prices, and
    the capacity of all of them is priced as one.

    Args:
        view: View.
        kinds: Kinds of the sites.
        prices: Improved.
        option_WX: What the jobs that wait take and earn.
        coming_C: Sampled jobs by arrival.
        option_CX: What they take and earn.
        ahead: Room for those up to ``end_h``.
        first: The first of them that arrives after now.
        hour_h: The current hour in the stretch that is sampled.
        stretch_h: Length of the stretch, h; it repeats.
        end_h: Lead from which none arrives.
        step: AdaGrad step, USD per GPU-hour.
        rounds: Steps.
        jobs_per_hour: Jobs to come that stand for the fleet's GPU-hours of the current hour in one step.
        load_w_SH: Written: facility power that the plan of the last step adds, W; with no hours: it is not asked for.
        first_round: Steps before these in this hour.
    """
    price_SH, mean_SH, use_SH, least_2S = prices.price_SH, prices.mean_SH, prices.use_SH, ahead.least_2S
    hours, noted = price_SH.shape[1], 0
    if rounds > 0:
        mean_SH[:] = 0.0
        _note_least(prices.energy_SR, prices.energy_SR.shape[1] - 1, least_2S[1])
    for k in range(rounds):
        sum_up(price_SH, prices.paid_SR)
        _note_least(prices.paid_SR, hours, least_2S[0])  # hours behind these repeat some of them
        use_SH[:] = 0.0
        load_w_SH[:] = 0.0
        for w in range(option_WX.shape[0]):
            _, x, start_h = best_start(
                view.site_S, hours, prices.paid_SR, prices.energy_SR, least_2S, option_WX[w], 0, 0.0
            )
            if x >= 0:
                _use(view, prices, option_WX[w, x], start_h, option_WX[w, x].latest_h, 1.0, load_w_SH)
        bit = k % ROUNDS_AT_ONCE
        if bit == 0:
            some = min(ROUNDS_AT_ONCE, rounds - k)
            noted = _see(coming_C, ahead, first, hour_h, stretch_h, end_h, jobs_per_hour, first_round + k, some)
        _use_of_coming(view, prices, coming_C, option_CX, ahead, noted, 1 << bit, jobs_per_hour, load_w_SH)
        for x in range(kinds.kind_X.shape[0]):
            _step(view.site_S, kinds, x, prices, step, rounds)
    sum_up(mean_SH, prices.paid_SR)
