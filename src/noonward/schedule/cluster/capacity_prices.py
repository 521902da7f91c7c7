"""Prices of capacity: the dual of a plan of the coming hours, for jobs that wait and jobs to come.

Times are leads: hours after the start of the current hour.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from noonward.arrays import F8, I8, U1, Records
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
GOLDEN: Final = 0.6180339887498949
ROOT_3: Final = 1.7320508075688772

OPTION: Final = np.dtype(
    [
        ("earliest_h", "f8"),  # for a job to come: in the stretch that is sampled; so is latest_h
        ("latest_h", "f8"),  # below earliest_h where the job cannot run at the site in time; equal where it is late
        ("run_h", "f8"),
        ("gpus", "i8"),
        ("power_w", "f8"),  # facility power it adds
        ("net_usd", "f8"),  # revenue less what its journeys cost
        ("usd_per_intensity", "f8"),  # what they cost more per g/kWh of mean intensity at home and at the site
        ("site", "i8"),  # the site, or one of those of a kind, which are alike to the job; -1: none
        ("most_usd", "f8"),  # most it earns whatever the room, while a start is looked for
        ("class_", "i8"),  # of the job: its power caps
    ]
)
"""What running a job at a site, or at any of a kind of sites, takes and earns (``kinds``)."""
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
    """Room for the jobs to come of some hours, one entry for every time a sampled job repeats."""

    job_M: I8
    """Which of the sampled jobs."""
    shift_h_M: F8
    """Added to its times."""
    before_M: F8
    """Its ``before`` in the units of its lead (``_use_of_coming``)."""
    until_M: F8
    """The same for ``until``."""
    taken_M: U1
    """Whether it stands for others in a round."""

    @classmethod
    def of(cls, jobs: int, hours: float, stretch_h: float) -> Ahead:
        """Returns room for the jobs of some hours.

        Args:
            jobs: Sampled jobs.
            hours: Hours ahead.
            stretch_h: Length of the stretch that is sampled, h; it repeats.
        """
        most = jobs * (int(np.ceil(hours / stretch_h)) + 1)
        shift_h_M, before_M, until_M = np.zeros((3, most))
        return cls(np.zeros(most, np.int64), shift_h_M, before_M, until_M, np.zeros(most, np.uint8))


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


@kernel(allocates=False)
def best_start(
    site_S: Records, hours: int, paid_SR: F8, energy_SR: F8, option_X: Records, home: int, shift_h: float
) -> tuple[float, int, float]:
    """Returns (value USD, option, start h) of a job's best start, whatever the room; option -1 where none pays.

    Args:
        site_S: ``site_S`` of the view; handing over a whole view for every job takes a third of the time.
        hours: Hours that are priced.
        paid_SR: Running integral of the prices, as in ``Prices``.
        energy_SR: Running integral of the cost of energy and carbon, as in ``Prices``.
        option_X: What the job takes and earns per site, or kind of sites.
        home: Home of a job to come.
        shift_h: Added to the times of the options.
    """
    best, best_x, best_h = 0.0, -1, 0.0
    for x in range(option_X.shape[0]):
        if option_X[x].earliest_h > option_X[x].latest_h:
            continue
        value, start_h = best_at(site_S, hours, paid_SR, energy_SR, option_X[x], home, shift_h, best)
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


@kernel(allocates=False)
def _see(
    coming_C: Records, ahead: Ahead, first: int, hour_h: float, stretch_h: float, end_h: float, jobs_per_hour: float
) -> int:
    """Writes the jobs to come by arrival, up to a lead, and returns how many there are; arguments as in ``improve``."""
    job, shift_h, seen = first, -hour_h, 0
    while coming_C.shape[0] > 0:
        if job == coming_C.shape[0]:
            job, shift_h = 0, shift_h + stretch_h
        record = coming_C[job]
        lead_h = record.arrival_h + shift_h
        if lead_h >= end_h:
            return seen
        unit = _unit(lead_h, jobs_per_hour)
        ahead.job_M[seen], ahead.shift_h_M[seen] = job, shift_h
        ahead.before_M[seen], ahead.until_M[seen] = record.before / unit, record.until / unit
        seen += 1
        job += 1
    return seen


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
    seen: int,
    turn: float,
    jobs_per_hour: float,
    load_w_SH: F8,
) -> None:
    """Adds what the jobs to come take, by those of them that stand for all in this round.

    Jobs are taken with probability min(1, GPU-hours / unit) and count as many times more (sampling in proportion to
    size, by a comb whose teeth are one unit apart and lie elsewhere in every round). The unit grows with the lead.
    """
    hours = prices.price_SH.shape[1]
    for k in range(seen):
        ahead.taken_M[k] = np.floor(ahead.until_M[k] + turn) > np.floor(ahead.before_M[k] + turn)
    for k in range(seen):
        if ahead.taken_M[k]:
            job, shift_h = ahead.job_M[k], ahead.shift_h_M[k]
            record = coming_C[job]
            _, x, start_h = best_start(
                view.site_S, hours, prices.paid_SR, prices.energy_SR, option_CX[job], record.home, shift_h
            )
            if x >= 0:
                unit = _unit(record.arrival_h + shift_h, jobs_per_hour)
                weight = record.weight * max(1.0, unit / (record.until - record.before))
                option = option_CX[job, x]
                _use(view, prices, option, start_h, option.latest_h + shift_h, weight, load_w_SH)


@kernel(allocates=False)
def _step(site_S: Records, kinds: Kinds, x: int, prices: Prices, step: float, rounds: int) -> None:
    """Moves the prices of a kind of sites by one AdaGrad step; arguments as in ``improve``."""
    price_SH, square_SH, mean_SH = prices.price_SH, prices.square_SH, prices.mean_SH
    begin, until = kinds.kind_X[x].begin, kinds.kind_X[x].begin + kinds.kind_X[x].sites
    first = kinds.site_M[begin]
    for hour in range(price_SH.shape[1]):
        free, gpus = 0.0, 0
        for m in range(begin, until):
            s = kinds.site_M[m]
            free += prices.capacity_SH[s, hour] - prices.use_SH[s, hour]
            gpus += site_S[s].gpus
        slope = free / gpus
        square, price = square_SH[first, hour] + slope * slope, price_SH[first, hour]
        if square > 0.0:
            price = max(0.0, price - step * slope / np.sqrt(square))
        for m in range(begin, until):
            s = kinds.site_M[m]
            square_SH[s, hour], price_SH[s, hour] = square, price
            mean_SH[s, hour] += price / rounds


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
    price_SH, mean_SH, use_SH = prices.price_SH, prices.mean_SH, prices.use_SH
    hours = price_SH.shape[1]
    seen = _see(coming_C, ahead, first, hour_h, stretch_h, end_h, jobs_per_hour)
    if rounds > 0:
        mean_SH[:] = 0.0
    for k in range(rounds):
        sum_up(price_SH, prices.paid_SR)
        use_SH[:] = 0.0
        load_w_SH[:] = 0.0
        for w in range(option_WX.shape[0]):
            _, x, start_h = best_start(view.site_S, hours, prices.paid_SR, prices.energy_SR, option_WX[w], 0, 0.0)
            if x >= 0:
                _use(view, prices, option_WX[w, x], start_h, option_WX[w, x].latest_h, 1.0, load_w_SH)
        turn = (GOLDEN * (first_round + k) + ROOT_3 * hour_h) % 1.0
        _use_of_coming(view, prices, coming_C, option_CX, ahead, seen, turn, jobs_per_hour, load_w_SH)
        for x in range(kinds.kind_X.shape[0]):
            _step(view.site_S, kinds, x, prices, step, rounds)
    sum_up(mean_SH, prices.paid_SR)
