"""A good schedule under known signals: jobs booked against the duals, then searched for places of more value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from noonward.arrays import F8, I4, I8
from noonward.bound.cluster_utility.booking import Bookings, book_listed
from noonward.bound.cluster_utility.columns import Market, Options, return_delay_s
from noonward.bound.cluster_utility.search import Room, improve
from noonward.bound.cluster_utility.slots import SlotOptions, departures
from noonward.bound.cluster_utility.starts import Guide, Starts, count_starts, fill_starts
from noonward.model.cluster.environment import LONGEST_RUN_H, Environment
from noonward.model.cluster.fleet import FleetTables
from noonward.model.cluster.power_limit import within_power
from noonward.model.signals import cumulative
from noonward.seeding import stream
from noonward.units import HOUR_S

PRICE_SCALES: Final = (1.0, 0.9)
FIRST_TOLERANCE: Final = 0.6
"""Loss that a try may keep at first, as a share of the mean value of a booked job; it falls to 0."""
TRIES_PER_JOB: Final = 80
"""Tries of the search a job, where none are asked for."""
MOST_TRIES: Final = 140_000
"""Most tries of the search, where none are asked for."""
REBOOKED: Final = 24
"""Jobs that a try books again, about."""
SLICES: Final = 100
"""Parts of the search after which a limited one asks whether time is up."""
MOST_LOOKS: Final = 2e10
"""Slots that all tries may look at, about: some seconds."""


@dataclass(frozen=True, kw_only=True)
class BookedSchedule:
    """A schedule that an ``each-slot`` engine without hard capacity curves can carry out, all GPUs accounted for.

    Attributes:
        site_J: Site, or -1 for a job that does not run.
        gpus_J: Gang, 0 where it does not run.
        level_J: Clock level, -1 where it does not run.
        depart_s_J: Departure of a migrated job from its home, s; NaN for the others.
        start_s_J: Start, a multiple of the slot, s; NaN where it does not run.
        value_usd_J: What the job adds to the utility of an idle fleet, USD.
    """

    site_J: I8
    gpus_J: I8
    level_J: I8
    depart_s_J: F8
    start_s_J: F8
    value_usd_J: F8

    @property
    def value_usd(self) -> float:
        """What the schedule adds to the utility of an idle fleet, USD."""
        return float(self.value_usd_J.sum())


def slot_options(environment: Environment, tables: FleetTables, costs: Market, options: Options) -> SlotOptions:
    """Puts the options on whole slots, as the engine starts jobs.

    A job leaves at a slot boundary at or after its arrival and reaches the other site's queue at the first boundary at
    or after its delay, at least one slot later; its start and its result's return come before arrival + slack (Eq. 7b).
    """
    jobs, links, slot_s = environment.jobs, environment.links, environment.slot_s
    job_O = options.job_O
    spot = (jobs.origin_J[job_O], options.site_O)
    moved_gb_O = jobs.data_gb_J[job_O] + jobs.model_gb_J[job_O]
    delay_O = links.latency_s_IS[spot] + moved_gb_O * links.seconds_per_gb_IS[spot]
    back_O = return_delay_s(links, spot, jobs.result_gb_J[job_O])
    away_O = options.home_O != options.site_O
    ready_O = np.ceil(jobs.arrival_s_J[job_O] / slot_s).astype(np.int64)
    # A direct link may take longer than any run, where a chain of links is in time.
    travel_O = np.where(away_O, np.clip(np.ceil(delay_O / slot_s), 1, LONGEST_RUN_H * HOUR_S), 0).astype(np.int64)
    latest_O = np.floor((environment.deadline_s_J[job_O] - back_O) / slot_s).astype(np.int64)
    return SlotOptions(
        first_J=np.searchsorted(job_O, np.arange(len(jobs) + 1)).astype(np.int64),
        site_O=options.site_O,
        gpus_O=options.gpus_O,
        home_O=options.home_O,
        run_s_O=options.run_s_O,
        slots_O=np.ceil(options.run_s_O / slot_s).astype(np.int64),
        low_O=ready_O + travel_O,
        high_O=np.where(options.late_O, -1, latest_O),  # a schedule of starts in time is a good one, if not the best
        ready_O=ready_O,
        travel_O=travel_O,
        revenue_usd_O=options.revenue_usd_O,
        power_w_O=options.power_w_O,
        saved_w_O=options.saved_w_O,
        fixed_usd_O=options.return_usd_O + np.where(away_O, moved_gb_O * links.usd_per_gb_IS[spot], 0.0),
        move_kwh_O=np.where(away_O, moved_gb_O * links.kwh_per_gb_IS[spot], 0.0),
        return_kwh_O=options.return_kwh_O,
        weight_cumulative_SP=costs.weight_cumulative_SP,
        part_s=costs.part_s,
        carbon_SH=costs.carbon_SH,
        usd_per_g=costs.usd_per_g,
        slot_s=slot_s,
        window_s=environment.window_s,
    )


def least_gpu_hours(options: Options, jobs: int) -> F8:
    """Returns the least GPU-hours of every job over its options; infinite for a job without any."""
    gpu_hours_J = np.full(jobs, np.inf)
    np.minimum.at(gpu_hours_J, options.job_O, options.gpus_O * options.run_s_O / HOUR_S)
    return gpu_hours_J


def guide(table: SlotOptions, environment: Environment, price_SH: F8, priced_usd_J: F8, gpu_hours_J: F8) -> Guide:
    """Reads what the search needs of options and jobs.

    Args:
        table: Options on whole slots.
        environment: Environment of the jobs.
        price_SH: Capacity prices lambda, USD per GPU-hour.
        priced_usd_J: The jobs' best values after these prices, USD.
        gpu_hours_J: Their least GPU-hours.
    """
    count_O, price_cumulative_SH = np.empty(len(table.low_O), dtype=np.int64), cumulative(price_SH)
    count_starts(table, count_O)
    first_O = np.concatenate([[0], np.cumsum(count_O)]).astype(np.int64)
    starts = Starts(first_O, np.empty(first_O[-1], dtype=np.int64), np.empty(first_O[-1]), np.empty(first_O[-1]))
    fill_starts(table, price_cumulative_SH, starts)
    jobs, some = len(table.first_J) - 1, np.flatnonzero(count_O)
    most_usd_O, rent_usd_O = np.full(len(count_O), -np.inf), np.zeros(len(count_O))
    most_usd_J, gpus_J = np.zeros(jobs), environment.jobs.gpus_min_J.astype(np.float64)
    ready_J = np.ceil(environment.jobs.arrival_s_J / table.slot_s).astype(np.int64)
    reach_J = ready_J.copy()
    if len(some):
        most_usd_O[some] = np.maximum.reduceat(starts.value_X, first_O[some])
        rent_usd_O[some] = np.minimum.reduceat(starts.rent_X, first_O[some])
        job_O = np.repeat(np.arange(jobs), np.diff(table.first_J))
        np.maximum.at(most_usd_J, job_O, most_usd_O)
        np.maximum.at(reach_J, job_O[some], (table.high_O + table.slots_O)[some])
    density_J = priced_usd_J / gpu_hours_J
    finite_J = np.where(np.isfinite(gpu_hours_J), gpu_hours_J, 1.0)
    return Guide(
        starts=starts,
        price_cumulative_SH=price_cumulative_SH,
        most_usd_O=most_usd_O,
        rent_usd_O=rent_usd_O,
        most_usd_J=most_usd_J,
        priced_usd_J=priced_usd_J,
        weight_MJ=np.stack([np.ones(jobs), density_J + 0.01 * density_J.max(initial=0.0) + 1e-12, gpus_J, finite_J]),
        ready_J=ready_J,
        reach_J=np.maximum.accumulate(reach_J),
    )


def book(
    environment: Environment,
    tables: FleetTables,
    costs: Market,
    options: Options,
    price_SH: F8,
    priced_usd_J: F8,
    *,
    rounds: int | None,
    seed: int,
    orders: int = 2,
    option_J: I8 | None = None,
    most_usd: float = np.inf,
    late: Callable[[], bool] | None = None,
) -> BookedSchedule:
    """Books jobs against capacity prices: listed in several orders, then searched from the best list or another start.

    Args:
        environment: Environment of the protocol ``each-slot`` without hard capacity curves.
        tables: Its fleet.
        costs: Its prices and intensities.
        options: Its options.
        price_SH: Capacity prices lambda, USD per GPU-hour.
        priced_usd_J: The jobs' best values after these prices, USD, at least 0.
        rounds: Tries of the search (``search.improve``), at least 0; None: ``usual_tries``.
        seed: Seed of the search; the same seed gives the same schedule.
        orders: Orders in which jobs are listed: 1, by arrival at whole prices alone; 2, also by value a GPU-hour, and
            at lower prices.
        option_J: Options that jobs are booked at first, the largest jobs before the others, -1 for none: the search
            begins there. None: at the best list.
        most_usd: Value that no schedule exceeds, USD; the search ends there.
        late: Whether time is up: then the search stops within a hundredth of its tries. None: it never is.

    Returns:
        The schedule of the highest value found.
    """
    table = slot_options(environment, tables, costs, options)
    rounds = usual_tries(table) if rounds is None else rounds
    count = len(environment.jobs)
    gpu_hours_J = least_gpu_hours(options, count)
    known = guide(table, environment, price_SH, priced_usd_J, gpu_hours_J)
    free_ST = free_gpus(environment, tables, costs.carbon_SH.shape[1])
    generator = stream(seed, "policy", "utility-bound")
    by_density_J, any_J = np.argsort(-priced_usd_J / gpu_hours_J, kind="stable"), np.full(count, -1, dtype=np.int64)

    def listed(scale: float, order_J: I8, books: Bookings) -> Bookings:
        for factor in (scale, 0.0):
            book_listed(table, known, factor, order_J, any_J, generator, books)
        return books

    best = Bookings.empty(free_ST, count)
    for order_J in (by_density_J, np.arange(count))[-orders:]:
        for scale in PRICE_SCALES[:orders]:
            books = listed(scale, order_J, Bookings.empty(free_ST, count))
            if books.value_J.sum() > best.value_J.sum():
                best = books
    if rounds and best.value_J.any():
        books = best.copied()
        if option_J is not None:
            books = Bookings.empty(free_ST, count)
            placed_J = np.flatnonzero(option_J >= 0)
            placed_J = placed_J[np.argsort(-gpu_hours_J[placed_J], kind="stable")]
            book_listed(table, known, 1.0, placed_J, option_J, generator, books)
            listed(1.0, by_density_J, books)
        mean_usd = float(best.value_J[best.option_J >= 0].mean())
        found, room = books.copied(), Room.of(count)
        step = rounds if late is None else -(-rounds // SLICES)
        for first in range(0, rounds, step):
            if late is not None and late():
                break
            improve(
                table, known, first, min(first + step, rounds), rounds, FIRST_TOLERANCE * mean_usd, most_usd,
                generator, books, found, room,
            )  # fmt: skip
        if found.value_J.sum() > best.value_J.sum():
            best = found
    return _schedule(table, options, best)


def free_gpus(environment: Environment, tables: FleetTables, hours: int) -> I4:
    """Returns the GPUs that are there throughout each slot, (S, slots), so that no booked job runs on withheld ones.

    The slots are those of some hours, which no run outlasts, and two more: a run covers its slots to the end.

    Of those for which a hard connection leaves power, as many count as run at the most power that a job draws.
    """
    slots = int(np.ceil(hours * HOUR_S / environment.slot_s)) + 2
    free_ST = np.repeat(tables.gpus_S[:, None], slots, axis=1).astype(np.int32)
    steps = within_power(environment, tables, surely=True)
    if steps is not None:
        free_ST -= steps.most(0.0, environment.slot_s, slots).astype(np.int32)
    return free_ST


def usual_tries(table: SlotOptions) -> int:
    """Returns the tries of the search where none are asked for: ``TRIES_PER_JOB``, at most ``MOST_TRIES``.

    There are fewer where a try takes long, because jobs may start in very many slots: as many as look at ``MOST_LOOKS``
    slots.
    """
    jobs = len(table.first_J) - 1
    slots = float(np.maximum(table.high_O - table.low_O + table.slots_O, 0).sum())
    looks = max(MOST_LOOKS * jobs / (REBOOKED * max(slots, 1.0)), 1.0)
    return int(min(MOST_TRIES, TRIES_PER_JOB * jobs, looks))


def _schedule(table: SlotOptions, options: Options, booked: Bookings) -> BookedSchedule:
    runs_J = booked.option_J >= 0

    def column(values_O: I8, otherwise: int) -> I8:
        out_J = np.full(len(runs_J), otherwise, dtype=np.int64)
        out_J[runs_J] = values_O[booked.option_J[runs_J]]
        return out_J

    return BookedSchedule(
        site_J=column(options.site_O, -1),
        gpus_J=column(options.gpus_O, 0),
        level_J=column(options.level_O, -1),
        depart_s_J=departures(table, booked.option_J, booked.slot_J),
        start_s_J=np.where(runs_J, booked.slot_J * table.slot_s, np.nan),
        value_usd_J=booked.value_J,
    )
