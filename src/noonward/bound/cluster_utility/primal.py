"""A good schedule under known signals: jobs booked against the duals, then ruined and recreated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.booking import SlotOptions, book_in_order, departures, improve
from noonward.bound.cluster_utility.columns import Market, Options, return_delay_s
from noonward.model.cluster.environment import LONGEST_RUN_H, Environment
from noonward.model.cluster.fleet import FleetTables
from noonward.model.signals import cumulative
from noonward.seeding import stream
from noonward.units import HOUR_S

PRICE_SCALES = (1.0, 0.9)
TEMPERATURE_SHARE = 0.1
"""First temperature of the search as a share of the mean value of a booked job."""
LEAST_ROUNDS: Final = 2000
"""Fewest tries of ruin and recreate, where none are asked for and they take no longer than usual."""
REBOOKED: Final = 24
"""Jobs that a try books anew, about."""
MOST_LOOKS: Final = 2e9
"""Slots that all tries may look at, about: some seconds."""
LOOKS_PER_JOB: Final = 1e6
"""The same a job, where there are so many jobs that it is more."""


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
    due_J = jobs.arrival_s_J + jobs.slack_s_J
    if environment.late_until_s > -np.inf:  # where a job without a limit may start until then at all
        due_J = np.minimum(due_J, environment.late_until_s)
    latest_O = np.floor((due_J[job_O] - back_O) / slot_s).astype(np.int64)
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
        weight_cumulative_SH=costs.weight_cumulative_SH,
        carbon_SH=costs.carbon_SH,
        usd_per_g=costs.usd_per_g,
        slot_s=slot_s,
        window_s=environment.window_s,
    )


@dataclass
class _Book:
    """Bookings under way: free GPUs per site and slot, and per job the option (or -1), slot and value in USD."""

    free_ST: I8
    option_J: I8
    slot_J: I8
    value_J: F8

    @classmethod
    def empty(cls, gpus_S: I8, slots: int, jobs: int) -> _Book:
        """Returns a book without bookings."""
        return cls(
            free_ST=np.repeat(gpus_S[:, None], slots, axis=1),
            option_J=np.full(jobs, -1, dtype=np.int64),
            slot_J=np.zeros(jobs, dtype=np.int64),
            value_J=np.zeros(jobs),
        )

    def copy(self) -> _Book:
        """Returns a book of its own with the same bookings."""
        return _Book(self.free_ST.copy(), self.option_J.copy(), self.slot_J.copy(), self.value_J.copy())

    @property
    def arrays(self) -> tuple[I8, I8, I8, F8]:
        """The arrays in the order kernels take them."""
        return self.free_ST, self.option_J, self.slot_J, self.value_J


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
) -> BookedSchedule:
    """Books jobs against capacity prices: listed in several orders, the best list then ruined and recreated.

    Args:
        environment: Environment of the protocol ``each-slot`` without hard capacity curves.
        tables: Its fleet.
        costs: Its prices and intensities.
        options: Its options.
        price_SH: Capacity prices lambda, USD per GPU-hour.
        priced_usd_J: The jobs' best values after these prices, USD, at least 0.
        rounds: Tries of ruin and recreate, at least 0; None: ``usual_rounds``.
        seed: Seed of the search; the same seed gives the same schedule.
        orders: Orders in which jobs are listed: 1, by arrival at whole prices alone; 2, also by value a GPU-hour, and
            at lower prices.

    Returns:
        The schedule of the highest value found.
    """
    table = slot_options(environment, tables, costs, options)
    rounds = usual_rounds(table) if rounds is None else rounds
    slots = int(np.ceil(costs.carbon_SH.shape[1] * HOUR_S / environment.slot_s)) + 2
    count = len(environment.jobs)
    asked_O = options.gpus_O * options.run_s_O / HOUR_S
    gpu_hours_J = np.full(count, np.inf)
    np.minimum.at(gpu_hours_J, options.job_O, asked_O)
    density_J = priced_usd_J / gpu_hours_J
    price_cumulative_SH = cumulative(price_SH)
    best = _Book.empty(tables.gpus_S, slots, count)
    for order_J in (np.argsort(-density_J, kind="stable"), np.arange(count))[-orders:]:
        for scale in PRICE_SCALES[:orders]:
            listed = _Book.empty(tables.gpus_S, slots, count)
            for factor in (scale, 0.0):
                book_in_order(table, price_cumulative_SH, factor, order_J, *listed.arrays)
            if listed.value_J.sum() > best.value_J.sum():
                best = listed
    if rounds and best.value_J.any():
        searched = best.copy()
        temperature_usd = TEMPERATURE_SHARE * best.value_J[best.option_J >= 0].mean()
        urgency_J = density_J + 0.01 * density_J.max() + 1e-12
        generator = stream(seed, "policy", "utility-bound")
        improve(table, price_cumulative_SH, urgency_J, rounds, temperature_usd, generator, *searched.arrays)
        if searched.value_J.sum() > best.value_J.sum():
            best = searched
    return _schedule(table, options, best)


def usual_rounds(table: SlotOptions) -> int:
    """Returns the tries of ruin and recreate where none are asked for: ``LEAST_ROUNDS``, or one a job if that is more.

    There are fewer where a try takes long, because jobs may start in very many slots: as many as look at ``MOST_LOOKS``
    slots, or at ``LOOKS_PER_JOB`` a job if that is more.
    """
    jobs = len(table.first_J) - 1
    slots = float(np.maximum(table.high_O - table.low_O + table.slots_O, 0).sum())
    looks = max(MOST_LOOKS, LOOKS_PER_JOB * jobs) * jobs / (REBOOKED * max(slots, 1.0))
    return int(min(max(LEAST_ROUNDS, jobs), max(looks, 1.0)))


def _schedule(table: SlotOptions, options: Options, booked: _Book) -> BookedSchedule:
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
