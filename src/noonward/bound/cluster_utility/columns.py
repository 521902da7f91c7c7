"""Candidate columns of the utility bound: every (job, site, gang, clock level, start) that can be best."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.kernels import TIME_TOLERANCE_S, count_candidates, fill_columns, least_moves
from noonward.errors import ScenarioError
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import FleetTables
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.power_limit import within_power
from noonward.model.cluster.withheld import Withheld
from noonward.model.economics import Economics
from noonward.model.network import Links
from noonward.model.signals import Signals, cumulative
from noonward.units import HOUR_S, KG_PER_TONNE, WATT_SECONDS_PER_MWH

GRAMS_PER_TONNE = 1e6
MOST_LATE = 2_000_000
"""Most late starts that are all columns of their own."""
LATE_H = 48.0
"""Hours of lateness whose starts are columns of their own where there are more."""


@dataclass(frozen=True, kw_only=True)
class Market:
    """What energy and carbon cost, as the bound reads them.

    Attributes:
        weight_cumulative_SP: Running integral of ``price + mu carbon``, USD/MWh x s, one more than there are parts.
        part_s: How long a price holds: an hour, or a part of one, s.
        carbon_SH: Carbon intensity by hour, g/kWh.
        usd_per_g: Carbon price mu, USD per gram.
        revenue_usd_per_gpu_hour: Revenue alpha.
        idle_usd: Utility of a fleet that runs nothing: the cost of all free GPUs over the window, negated, USD.
        run_on_usd: What jobs that run on withheld GPUs can earn beyond their values at most, USD (``market``).
    """

    weight_cumulative_SP: F8
    part_s: float
    carbon_SH: F8
    usd_per_g: float
    revenue_usd_per_gpu_hour: float
    idle_usd: float
    run_on_usd: float


@dataclass(frozen=True, kw_only=True)
class Travel:
    """Least effort of moving a job from its ingress to a site over any chain of links, ingress points x sites.

    Latency, seconds, USD and kWh are each the shortest path of their own, so that together they bound any chain.

    Attributes:
        latency_s_IS: Latency, s.
        seconds_per_gb_IS: s per GB.
        relay_usd_per_gb_IS: Cheapest chain of two links or more, carbon at the least intensities included, USD per GB.
    """

    latency_s_IS: F8
    seconds_per_gb_IS: F8
    relay_usd_per_gb_IS: F8


@dataclass(frozen=True, kw_only=True)
class Options:
    """A job at a site on a gang and a clock level, sorted by job; only those that can start in time.

    Attributes:
        job_O: Job.
        site_O: Site.
        gpus_O: Gang, GPUs.
        level_O: Clock level.
        home_O: Site of the job's ingress, or -1.
        run_s_O: Run time, s.
        earliest_s_O: First start, s.
        latest_s_O: Last start, s.
        revenue_usd_O: Revenue, USD.
        power_w_O: Facility power of the running gang, W.
        saved_w_O: Facility power the gang's GPUs would draw free, W.
        return_usd_O: USD of the result's return.
        return_kwh_O: kWh of the result's return, emitted at the intensities of the end's hour.
        move_usd_O: Least USD of travelling here, carbon included.
        due_s_O: Arrival + slack, s, from which lateness counts.
        late_usd_per_s_O: Price of a second of lateness, USD.
        late_O: Whether its starts are late ones; a job that may be late has options of both kinds.
    """

    job_O: I8
    site_O: I8
    gpus_O: I8
    level_O: I8
    home_O: I8
    run_s_O: F8
    earliest_s_O: F8
    latest_s_O: F8
    revenue_usd_O: F8
    power_w_O: F8
    saved_w_O: F8
    return_usd_O: F8
    return_kwh_O: F8
    move_usd_O: F8
    due_s_O: F8
    late_usd_per_s_O: F8
    late_O: NDArray[np.bool_]

    def take(self, rows_O: NDArray[np.bool_] | I8) -> Options:
        """Returns some of the options."""
        return Options(**{each.name: getattr(self, each.name)[rows_O] for each in fields(self)})


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Candidate columns, grouped by job.

    Attributes:
        first_J: First column of every job, one more than there are jobs.
        option_K: Option.
        start_s_K: Start, s.
        value_K: Value before capacity prices, USD (see ``kernels.fill_columns``).
        gpus_K: Gang as a float.
        from_K: Position ``site (P + 1) + period`` of the period in which it starts; periods are hours unless stated.
        from_share_K: Share of that period gone at the start.
        to_K: Position of the period in which it ends.
        to_share_K: Share of that period gone at the end.
    """

    first_J: I8
    option_K: I8
    start_s_K: F8
    value_K: F8
    gpus_K: F8
    from_K: I8
    from_share_K: F8
    to_K: I8
    to_share_K: F8


def require_bounded(environment: Environment) -> tuple[Signals, Economics]:
    """Returns signals and economics of an environment whose utility can be bounded.

    Raises:
        ScenarioError: It has no economics or signals, its runs end before its jobs do, or its jobs fail: a job that is
            begun again in a cheap hour is no unbroken run.
    """
    if environment.failures is not None:
        raise ScenarioError("a utility bound knows no failures; leave jobs.failures out (--set jobs.failures=null)")
    if environment.economics is None or environment.signals is None:
        raise ScenarioError("a utility bound needs economics and signals; the scenario has none, give both")
    if not environment.drained:
        raise ScenarioError(
            "a utility bound needs runs that last until all jobs are done or overdue; use 'end: drained'"
        )
    return environment.signals, environment.economics


def market(environment: Environment, tables: FleetTables) -> Market:
    """Reads prices and intensities over the environment's hours.

    A withheld GPU draws nothing, so that nothing is saved where a job runs on one that was withheld after its start;
    its value counts what it would save. Where energy has a price below 0, that is less than the job earns: at most by
    what all withheld GPUs would draw free in those hours (``run_on_usd``).
    """
    _, economics = require_bounded(environment)
    signals = environment.site_signals
    weight_SP = signals.price_SP + economics.carbon_usd_per_t / KG_PER_TONNE * signals.carbon_SP
    weight_cumulative_SP = cumulative(weight_SP, signals.part_s)
    window = int(environment.window_s / HOUR_S) * signals.parts
    free_w_S = tables.free_w_S * tables.pue_S
    idle_usd = -float((tables.gpus_S * free_w_S) @ weight_cumulative_SP[:, window]) / WATT_SECONDS_PER_MWH
    run_on_usd, steps = 0.0, environment.unavailable
    if steps is not None:
        edge_s_P = signals.part_s * np.arange(window + 1)
        for s, free_w in enumerate(free_w_S.tolist()):
            edge_s = np.unique(np.concatenate([edge_s_P, steps.from_s_K[steps.from_s_K < edge_s_P[-1]]]))
            part = (edge_s[:-1] / signals.part_s).astype(np.int64)
            usd = steps.at(edge_s[:-1])[:, s] * free_w * np.diff(edge_s) * weight_SP[s, part] / WATT_SECONDS_PER_MWH
            idle_usd += float(usd.sum())
            run_on_usd -= float(np.minimum(usd, 0.0).sum())
    return Market(
        weight_cumulative_SP=weight_cumulative_SP,
        part_s=signals.part_s,
        carbon_SH=signals.carbon_SH,
        usd_per_g=economics.carbon_usd_per_t / GRAMS_PER_TONNE,
        revenue_usd_per_gpu_hour=economics.revenue_usd_per_gpu_hour,
        idle_usd=idle_usd,
        run_on_usd=run_on_usd,
    )


def capacity(environment: Environment, tables: FleetTables, longest_s_S: F8, hours: int) -> F8:
    """Returns GPUs that jobs take at most at once in some hours, (S, hours).

    A GPU counts in an hour if it may be taken in any part of it, and a hard connection may leave it power. Jobs run on
    when GPUs are withheld, or the connection carries less: what runs at a time has not begun to run longer ago than
    the longest run at its site, and when the last of it began, all of it was within what was there. So an hour has the
    most GPUs of any hour from so long before it up to it.

    Args:
        environment: Environment.
        tables: Tables of its fleet.
        longest_s_S: What no run exceeds at each site, s.
        hours: Number of hours.
    """
    gpus_SH = np.repeat(tables.gpus_S[:, None], hours, axis=1).astype(np.float64)
    steps = within_power(environment, tables, surely=False)
    if steps is None:
        return gpus_SH
    gpus_SH += Withheld(from_s_K=steps.from_s_K, gpus_KS=-steps.gpus_KS).most(0.0, HOUR_S, hours)
    for s in range(len(gpus_SH)):
        reach_h = math.ceil(float(longest_s_S[s]) / HOUR_S)
        before_H = np.concatenate([np.zeros(reach_h), gpus_SH[s]])
        gpus_SH[s] = np.lib.stride_tricks.sliding_window_view(before_H, reach_h + 1).max(axis=1)
    return gpus_SH


def _shortest(first_IS: F8, hop_SS: F8) -> F8:
    """Returns the least sum over chains: one step ``first_IS``, then any number of hops (Floyd-Warshall)."""
    reach_SS = hop_SS.copy()
    np.fill_diagonal(reach_SS, 0.0)
    for via in range(len(reach_SS)):
        np.minimum(reach_SS, reach_SS[:, via : via + 1] + reach_SS[via : via + 1], out=reach_SS)
    return np.asarray((first_IS[:, :, None] + reach_SS[None]).min(axis=1))


def travel(links: Links, home_I: I8, usd_per_g: float, carbon_SH: F8) -> Travel:
    """Returns the least effort of moving jobs over any chain of links (hops start at the sites' own ingress points)."""
    sites = carbon_SH.shape[0]
    at_home_IS = home_I[:, None] == np.arange(sites)[None]

    def hops(link_IS: F8) -> F8:
        hop_SS = np.full((sites, sites), np.inf)
        for ingress, home in enumerate(home_I):
            if home >= 0:
                hop_SS[home] = np.minimum(hop_SS[home], link_IS[ingress])
        return hop_SS

    def chain(link_IS: F8) -> F8:
        return _shortest(np.where(at_home_IS, 0.0, link_IS), hops(link_IS))

    least_S = carbon_SH.min(axis=1)
    least_I = np.where(home_I >= 0, least_S[home_I], 0.0)
    mean_IS = 0.5 * (least_I[:, None] + least_S[None])
    usd_IS = links.usd_per_gb_IS + usd_per_g * links.kwh_per_gb_IS * mean_IS
    step_IS = np.where(at_home_IS, np.inf, usd_IS)
    hop_SS = hops(usd_IS)
    np.fill_diagonal(hop_SS, np.inf)
    relay_IS = (_shortest(step_IS, hop_SS)[:, :, None] + hop_SS[None]).min(axis=1)
    return Travel(
        latency_s_IS=chain(links.latency_s_IS),
        seconds_per_gb_IS=chain(links.seconds_per_gb_IS),
        relay_usd_per_gb_IS=relay_IS,
    )


def ceil_to(time_s: F8, slot_s: float) -> F8:
    """Returns the first slot boundary at or after a time (within the tolerance); the time itself for slot 0."""
    if slot_s == 0:
        return time_s
    return np.asarray(np.ceil((time_s - TIME_TOLERANCE_S) / slot_s) * slot_s)


def floor_to(time_s: F8, slot_s: float) -> F8:
    """Returns the last slot boundary at or before a time (within the tolerance); the time itself for slot 0."""
    if slot_s == 0:
        return time_s
    return np.asarray(np.floor((time_s + TIME_TOLERANCE_S) / slot_s) * slot_s)


def slot_of(environment: Environment) -> float:
    """Returns the grid of starts, s: the slot, or 0 where jobs start at any time."""
    return environment.slot_s if environment.protocol == "each-slot" else 0.0


def return_delay_s(links: Links, origin_X: I8 | tuple[I8, I8], result_gb_X: F8) -> F8:
    """Returns how long results travel home, s, at the spots ``origin_X`` of the links; 0 where there is no result."""
    delay_X = links.latency_s_IS[origin_X] + result_gb_X * links.seconds_per_gb_IS[origin_X]
    return np.where(result_gb_X == 0, 0.0, delay_X)


def _alternatives(jobs: Jobs, tables: FleetTables, in_time_JS: NDArray[np.bool_]) -> tuple[I8, I8, I8, I8]:
    """Returns job, site, gang and level of every way to run a job where it can start in time, sorted in this order.

    Every level of the site counts: engines take any, and a slow clock earns revenue for more GPU-hours.
    """
    parts = []
    for extra in range(int((jobs.gpus_max_J - jobs.gpus_min_J).max()) + 1):
        gpus_J = jobs.gpus_min_J + extra
        fits_JS = (gpus_J[:, None] <= tables.gpus_S[None]) & (gpus_J <= jobs.gpus_max_J)[:, None]
        fits_JS &= tables.range_CS[jobs.class_J] == 1
        j, s = np.nonzero(fits_JS & in_time_JS)
        n = gpus_J[j]
        for level in range(tables.clock_SF.shape[1]):
            keep = tables.levels_S[s] > level
            parts.append((j[keep], s[keep], n[keep], np.full(int(keep.sum()), level)))
    job_O, site_O, gpus_O, level_O = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((level_O, gpus_O, site_O, job_O))
    return job_O[order], site_O[order], gpus_O[order], level_O[order]


def build_options(environment: Environment, tables: FleetTables, costs: Market) -> Options:
    """Lists what every job may become: site x gang x level, with the starts the delays and the deadline leave it.

    Where jobs may be late, a further option holds the late starts, up to those whose price exceeds all that the job can
    be worth. Gangs run from ``gpus_min`` to ``gpus_max``, levels over all of the site. Capacity curves (``caps``) bind
    starts, not running jobs, and are relaxed.
    """
    jobs, links, slot_s = environment.jobs, environment.links, slot_of(environment)
    home_J = tables.home_I[jobs.origin_J]
    moves = travel(links, tables.home_I, costs.usd_per_g, costs.carbon_SH)
    moved_gb_J = (jobs.data_gb_J + jobs.model_gb_J)[:, None]
    delay_JS = moves.latency_s_IS[jobs.origin_J] + moved_gb_J * moves.seconds_per_gb_IS[jobs.origin_J]
    back_JS = return_delay_s(links, jobs.origin_J, jobs.result_gb_J[:, None])
    ready_J = ceil_to(jobs.arrival_s_J, slot_s)[:, None]
    earliest_JS = ceil_to(ready_J + delay_JS, slot_s)
    due_J = environment.deadline_s_J
    waits = environment.late_until_s > -np.inf
    if waits:  # late starts are options of their own; the result's return makes no start late
        last_JS = floor_to(np.maximum(due_J[:, None] - back_JS, environment.late_until_s), slot_s)
        last_JS = np.broadcast_to(last_JS, earliest_JS.shape)
        latest_JS = np.minimum(floor_to(due_J[:, None], slot_s), last_JS)
    else:
        last_JS = latest_JS = floor_to(due_J[:, None] - back_JS, slot_s)
    move_JS = least_moves(
        jobs.arrival_s_J, last_JS - delay_JS, moved_gb_J[:, 0], jobs.origin_J, home_J, links.usd_per_gb_IS,
        links.kwh_per_gb_IS, moves.relay_usd_per_gb_IS, costs.usd_per_g, costs.carbon_SH,
    )  # fmt: skip
    in_time_JS = earliest_JS <= last_JS + (TIME_TOLERANCE_S if slot_s == 0 else 0.0)
    job_O, site_O, gpus_O, level_O = _alternatives(jobs, tables, in_time_JS)
    spot = (site_O, jobs.class_J[job_O], gpus_O, level_O)
    run_s_O = jobs.work_J[job_O] * tables.seconds_per_unit_SCGF[spot]
    origin_O = jobs.origin_J[job_O]
    latest_O = latest_JS[job_O, site_O]
    options = Options(
        job_O=job_O,
        site_O=site_O,
        gpus_O=gpus_O,
        level_O=level_O,
        home_O=home_J[job_O],
        run_s_O=run_s_O,
        earliest_s_O=np.minimum(earliest_JS[job_O, site_O], latest_O),
        latest_s_O=latest_O,
        revenue_usd_O=costs.revenue_usd_per_gpu_hour * gpus_O * run_s_O / HOUR_S,
        power_w_O=tables.pue_S[site_O] * tables.power_w_SCGF[spot],
        saved_w_O=tables.pue_S[site_O] * tables.free_w_S[site_O] * gpus_O,
        return_usd_O=jobs.result_gb_J[job_O] * links.usd_per_gb_IS[origin_O, site_O],
        return_kwh_O=jobs.result_gb_J[job_O] * links.kwh_per_gb_IS[origin_O, site_O],
        move_usd_O=move_JS[job_O, site_O],
        due_s_O=due_J[job_O],
        late_usd_per_s_O=np.asarray(environment.late_usd_per_gpu_hour / HOUR_S * jobs.gpus_min_J[job_O]),
        late_O=np.zeros(len(job_O), dtype=bool),
    )
    if not waits:
        return options
    earliest_O = earliest_JS[job_O, site_O]
    return _with_late_starts(replace(options, earliest_s_O=earliest_O), costs, last_JS[job_O, site_O], slot_s)


def _with_late_starts(options: Options, costs: Market, last_O: F8, slot_s: float) -> Options:
    """Returns the options that can start in time, and beside them, as options of their own, the late starts.

    Args:
        options: Options whose earliest start may be after their latest.
        costs: Prices and intensities.
        last_O: Last start of any, s.
        slot_s: Grid of starts, s.
    """
    in_time = options.take(options.earliest_s_O <= options.latest_s_O)
    most_O = most_usd(options, costs, np.zeros(len(last_O), dtype=np.int64))
    worth_s_O = np.full(len(most_O), -np.inf)
    with np.errstate(divide="ignore"):
        np.divide(most_O, options.late_usd_per_s_O, out=worth_s_O, where=most_O > 0)
    until_O = floor_to(np.minimum(last_O, options.due_s_O + worth_s_O), slot_s)
    after_O = options.latest_s_O + slot_s if slot_s else options.due_s_O
    late = replace(
        options,
        earliest_s_O=np.maximum(options.earliest_s_O, after_O),
        latest_s_O=until_O,
        late_O=np.ones(len(last_O), dtype=bool),
    )
    late = late.take(late.earliest_s_O <= late.latest_s_O)
    names = [each.name for each in fields(Options)]
    both = Options(**{name: np.concatenate([getattr(in_time, name), getattr(late, name)]) for name in names})
    return both.take(np.argsort(both.job_O, kind="stable"))


def most_usd(options: Options, costs: Market, from_hour_O: I8) -> F8:
    """Returns what options are worth at most, whenever they start from an hour on, USD; the price of lateness apart.

    The run is taken to lie in that later hour, or part of one, in which it costs least, or earns most.
    """
    weight_SP = np.diff(costs.weight_cumulative_SP, axis=1) / costs.part_s
    least_SP, largest_SP = (
        np.asarray(pick.accumulate(weight_SP[:, ::-1], axis=1)[:, ::-1]) for pick in (np.minimum, np.maximum)
    )
    part_O = np.minimum(from_hour_O * round(HOUR_S / costs.part_s), weight_SP.shape[1] - 1)
    least_O, largest_O = (each[options.site_O, part_O] for each in (least_SP, largest_SP))
    power_O, saved_O = options.power_w_O, options.saved_w_O
    rates = [(saved - power_O) * weight for saved in (0.0, saved_O) for weight in (least_O, largest_O)]
    earned_O = np.max(rates, axis=0) * options.run_s_O / WATT_SECONDS_PER_MWH
    return np.asarray(options.revenue_usd_O + earned_O - options.return_usd_O - options.move_usd_O)


def build_columns(environment: Environment, options: Options, costs: Market, period_s: float = HOUR_S) -> Columns:
    """Lists the candidate starts of all options with their values, under capacity priced by period.

    Where there would be more than ``MOST_LATE`` late starts, those from two days of lateness on are replaced by one
    column an option, which is worth what the option is worth at most and takes no GPU: so the bound holds, and is
    looser.
    """
    slot_s, periods = slot_of(environment), round(costs.carbon_SH.shape[1] * HOUR_S / period_s)
    options, cut_O = _without_latest(options, slot_s)
    kink_s = float(math.gcd(round(period_s), round(costs.part_s)))  # prices of capacity or of energy change at these
    count_O = count_candidates(options.earliest_s_O, options.latest_s_O, options.run_s_O, slot_s, kink_s)
    first_O = np.concatenate([[0], np.cumsum(count_O + cut_O)]).astype(np.int64)
    start_s_K, value_K = np.empty(first_O[-1]), np.empty(first_O[-1])
    option_K = np.empty(first_O[-1], dtype=np.int64)
    if len(option_K):
        fill_columns(
            first_O, options.earliest_s_O, options.latest_s_O, options.run_s_O, options.revenue_usd_O,
            options.power_w_O, options.saved_w_O, options.return_usd_O + options.move_usd_O, options.return_kwh_O,
            options.home_O, options.site_O, int(count_O.max()), slot_s, kink_s, environment.window_s, costs.usd_per_g,
            costs.part_s, costs.weight_cumulative_SP, costs.carbon_SH, options.due_s_O, options.late_usd_per_s_O,
            start_s_K, value_K, option_K,
        )  # fmt: skip
    cut_X = np.flatnonzero(cut_O)
    rest_X = first_O[cut_X + 1] - 1
    start_s_K[rest_X], option_K[rest_X] = options.latest_s_O[cut_X], cut_X
    value_K[rest_X] = _worth_of_rest(options.take(cut_X), costs)
    run_s_K, gpus_K = options.run_s_O[option_K], options.gpus_O[option_K].astype(np.float64)
    run_s_K[rest_X] = gpus_K[rest_X] = 0.0
    end_s_K = start_s_K + run_s_K
    from_period_K = np.minimum((start_s_K / period_s).astype(np.int64), periods - 1)
    to_period_K = np.minimum((end_s_K / period_s).astype(np.int64), periods - 1)
    offset_K = options.site_O[option_K] * (periods + 1)
    per_job = np.bincount(options.job_O[option_K], minlength=len(environment.jobs))
    return Columns(
        first_J=np.concatenate([[0], np.cumsum(per_job)]).astype(np.int64),
        option_K=option_K,
        start_s_K=start_s_K,
        value_K=value_K,
        gpus_K=gpus_K,
        from_K=offset_K + from_period_K,
        from_share_K=start_s_K / period_s - from_period_K,
        to_K=offset_K + to_period_K,
        to_share_K=end_s_K / period_s - to_period_K,
    )


def _without_latest(options: Options, slot_s: float) -> tuple[Options, NDArray[np.bool_]]:
    """Returns options whose late starts are cut where there are many, and which of them were cut."""
    latest_O = options.latest_s_O
    late_starts = 2 * float((latest_O - options.earliest_s_O)[options.late_O].sum()) / HOUR_S
    if late_starts <= MOST_LATE:
        return options, np.zeros(len(latest_O), dtype=bool)
    until_O = np.maximum(floor_to(options.due_s_O + LATE_H * HOUR_S, slot_s), options.earliest_s_O)
    cut_O = options.late_O & (until_O < latest_O)
    return replace(options, latest_s_O=np.where(cut_O, until_O, latest_O)), cut_O


def _worth_of_rest(options: Options, costs: Market) -> F8:
    """Returns what options that were cut are worth at most from their latest start on, USD."""
    late_usd_O = options.late_usd_per_s_O * np.maximum(0.0, options.latest_s_O - options.due_s_O)
    return np.asarray(most_usd(options, costs, (options.latest_s_O / HOUR_S).astype(np.int64)) - late_usd_O)
