"""A schedule of very many jobs, found in memory that does not grow with what they may become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.booking import Bookings, book_listed
from noonward.bound.cluster_utility.columns import Market, build_options
from noonward.bound.cluster_utility.pieces import MapPieces, cut, in_turn
from noonward.bound.cluster_utility.prices import never
from noonward.bound.cluster_utility.primal import free_gpus, guide, slot_options
from noonward.bound.cluster_utility.search import Room, improve
from noonward.bound.cluster_utility.slots import SlotOptions
from noonward.bound.cluster_utility.starts import Guide
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import FleetTables
from noonward.seeding import stream
from noonward.units import HOUR_S

LARGE_SHARE: Final = 0.5
"""The largest jobs, which are searched beside each other first, together ask for this share of all GPU-hours."""
LARGE_TRIES: Final = 1.0
"""Tries of that search, a job."""
TRIES: Final = (0.35, 0.35, 0.35)
"""Tries, a job, of the searches that follow: all stretches of the window, beside each other."""
STRETCH_H: Final = 96
"""Hours of a stretch; in every second search they begin half of it earlier."""


def with_jobs(environment: Environment, rows: I8) -> Environment:
    """Returns an environment of some of the jobs; what the bound does not read of them is left out."""
    return replace(
        environment,
        jobs=environment.jobs.take(rows),
        knowledge=None,
        details=None,
        tenants=None,
        tenant_J=None,
        priorities=None,
        priority_J=None,
        sample_jobs=None,
        events=(),
    )


class ManyJobsSchedule:
    """A schedule under way. Jobs are booked, and searched again, some at a time beside all others.

    Args:
        environment: Environment of the protocol ``each-slot`` without hard capacity curves.
        tables: Its fleet.
        costs: Its prices and intensities.
        price_SH: Capacity prices, USD per GPU-hour.
        priced_usd_J: The jobs' best values after these prices, USD.
        gpu_hours_J: Their least GPU-hours.
        seed: Seed of the search.

    Attributes:
        free_ST: Free GPUs per site and slot instant.
        option_J: Booked option, counted among those of the job, or -1.
        slot_J: Slot of the start.
        end_J: Slot after the last that the run covers.
        value_J: Value of the booking, USD.
    """

    def __init__(
        self,
        environment: Environment,
        tables: FleetTables,
        costs: Market,
        price_SH: F8,
        priced_usd_J: F8,
        gpu_hours_J: F8,
        seed: int,
    ) -> None:
        self._environment, self._tables, self._costs = environment, tables, costs
        self._price_SH, self._priced_usd_J, self._gpu_hours_J = price_SH, priced_usd_J, gpu_hours_J
        self._seed, self._generator = seed, stream(seed, "policy", "many-jobs-schedule")
        self.free_ST = free_gpus(environment, tables, costs.carbon_SH.shape[1])
        jobs = len(environment.jobs)
        self.option_J: I8 = np.full(jobs, -1, dtype=np.int64)
        self.slot_J: I8 = np.zeros(jobs, dtype=np.int64)
        self.end_J: I8 = np.zeros(jobs, dtype=np.int64)
        self.value_J: F8 = np.zeros(jobs)

    @property
    def value_usd(self) -> float:
        """What the jobs add to the utility of an idle fleet, USD."""
        return float(self.value_J.sum())

    def book(self, at_once: int) -> None:
        """Books all jobs, none of which is booked yet, by their value after capacity prices per GPU-hour.

        Args:
            at_once: Jobs that are booked together, at least 1.
        """
        order_J = np.argsort(-self._priced_usd_J / self._gpu_hours_J, kind="stable")
        for first in range(0, len(order_J), at_once):
            self._book(order_J[first : first + at_once])

    def search(self, at_once: int, late: Callable[[], bool] = never, map_pieces: MapPieces = in_turn) -> None:
        """Searches for a better schedule: jobs are ejected for others, and a loss is never kept (``search.improve``).

        The largest jobs are searched beside each other first. Then stretches of the window are searched, each for
        itself: its jobs are those whose runs lie within it, and those that arrive in it and do not run.

        Args:
            at_once: Jobs that are searched together, at least 1.
            late: Whether the search must end; asked before each part of it.
            map_pieces: Carries out the searches of stretches.
        """
        gpu_hours_J = np.where(np.isfinite(self._gpu_hours_J), self._gpu_hours_J, 0.0)
        by_size_J = np.argsort(-gpu_hours_J, kind="stable")
        asked_J = np.cumsum(gpu_hours_J[by_size_J])
        large_J = np.sort(by_size_J[asked_J <= LARGE_SHARE * asked_J[-1]])
        self._search_in_turn(large_J, at_once, LARGE_TRIES, late)
        slots, length = self.free_ST.shape[1], round(STRETCH_H * HOUR_S / self._environment.slot_s)
        for number, tries in enumerate(TRIES):
            pieces = [
                _Stretch(self, first, until, at_once, tries, number, late)
                for first, until in cut(slots, length, shifted=bool(number % 2))
                if len(self._within(first, until))
            ]
            for stretch, found in zip(pieces, map_pieces(pieces), strict=True):
                rows_J, inside = self._within(stretch.first, stretch.until), slice(stretch.first, stretch.until)
                self.option_J[rows_J], self.slot_J[rows_J], self.end_J[rows_J], self.value_J[rows_J] = found[:4]
                self.free_ST[:, inside] = found[4][:, inside]

    def _search_in_turn(self, rows_J: I8, at_once: int, tries: float, late: Callable[[], bool]) -> None:
        """Searches for better bookings of some jobs, those that arrive near each other together."""
        for first in range(0, len(rows_J), at_once):
            if late():
                return
            self._search(rows_J[first : first + at_once], tries)

    def _within(self, first: int, until: int) -> I8:
        """Returns the jobs of a stretch of slots: those that run within it, and those that arrive in it and do not."""
        arrival_J = self._environment.jobs.arrival_s_J / self._environment.slot_s
        runs_J = self.option_J >= 0
        from_J, to_J = np.where(runs_J, self.slot_J, arrival_J), np.where(runs_J, self.end_J, arrival_J)
        return np.flatnonzero((from_J >= first) & (from_J < until) & (to_J <= until))

    def _part(self, first: int, until: int, number: int) -> ManyJobsSchedule:
        """Returns the schedule of the jobs of a stretch alone; no GPU is free before it and after it."""
        rows_J = self._within(first, until)
        part = ManyJobsSchedule(
            with_jobs(self._environment, rows_J), self._tables, self._costs, self._price_SH,
            self._priced_usd_J[rows_J], self._gpu_hours_J[rows_J], self._seed,
        )  # fmt: skip
        part._generator = stream(self._seed, "policy", "many-jobs-schedule", number, first)
        part.free_ST = np.zeros_like(self.free_ST)
        part.free_ST[:, first:until] = self.free_ST[:, first:until]
        for name in ("option_J", "slot_J", "end_J", "value_J"):
            setattr(part, name, getattr(self, name)[rows_J])
        return part

    def _known(self, rows_J: I8) -> tuple[SlotOptions, Guide]:
        """Returns what some jobs may become, and what the search reads of it."""
        part = with_jobs(self._environment, rows_J)
        options = build_options(part, self._tables, self._costs)
        table = slot_options(part, self._tables, self._costs, options)
        return table, guide(table, part, self._price_SH, self._priced_usd_J[rows_J], self._gpu_hours_J[rows_J])

    def _book(self, order_J: I8) -> None:
        """Books some jobs, none of which is booked yet, in an order, beside those that are."""
        rows_J = np.sort(order_J)
        table, known = self._known(rows_J)
        books = Bookings.empty(self.free_ST, len(rows_J))
        any_J = np.full(len(rows_J), -1, dtype=np.int64)
        for scale in (1.0, 0.0):
            book_listed(table, known, scale, np.searchsorted(rows_J, order_J), any_J, self._generator, books)
        self._keep(rows_J, table, books)

    def _search(self, rows_J: I8, tries: float) -> None:
        """Searches for better bookings of some jobs, in so many tries a job, beside those of the others."""
        table, known = self._known(rows_J)
        books = Bookings.empty(self.free_ST, len(rows_J))
        books.slot_J[:], books.value_J[:] = self.slot_J[rows_J], self.value_J[rows_J]
        booked_J = np.flatnonzero(self.option_J[rows_J] >= 0)
        option_O = table.first_J[booked_J] + self.option_J[rows_J[booked_J]]
        books.option_J[booked_J], books.site_J[booked_J] = option_O, table.site_O[option_O]
        books.end_J[:] = self.end_J[rows_J]
        count = int(np.ceil(tries * len(rows_J)))
        best, room = books.copied(), Room.of(len(rows_J))
        improve(table, known, 0, count, count, 0.0, np.inf, self._generator, books, best, room)
        self._keep(rows_J, table, books)  # without a tolerance, the last bookings are the best

    def _keep(self, rows_J: I8, table: SlotOptions, books: Bookings) -> None:
        """Takes over the bookings of some jobs."""
        self.free_ST = books.free_ST
        self.option_J[rows_J] = np.where(books.option_J >= 0, books.option_J - table.first_J[:-1], -1)
        self.slot_J[rows_J], self.end_J[rows_J], self.value_J[rows_J] = books.slot_J, books.end_J, books.value_J


@dataclass(frozen=True)
class _Stretch:
    """A piece of work: the search for better bookings in a stretch of slots.

    Attributes:
        schedule: Schedule before it.
        first: First slot of the stretch.
        until: Slot after its last.
        at_once: Jobs that are searched together.
        tries: Tries, a job.
        number: Number of the search.
        late: Whether it must end.
        apart: Whether the schedule is that of the stretch's jobs alone.
    """

    schedule: ManyJobsSchedule
    first: int
    until: int
    at_once: int
    tries: float
    number: int
    late: Callable[[], bool]
    apart: bool = False

    @property
    def label(self) -> str:
        """Which slots."""
        return f"schedule of slots {self.first} to {self.until - 1}"

    def __getstate__(self) -> dict[str, Any]:
        """Takes along no jobs but the stretch's."""
        return self.__dict__ | {"schedule": self._own(), "apart": True}

    def _own(self) -> ManyJobsSchedule:
        return self.schedule if self.apart else self.schedule._part(self.first, self.until, self.number)

    def found(self) -> tuple[I8, I8, I8, F8, NDArray[np.int32]]:
        """Returns the jobs' options, slots, ends and values, and the GPUs that are free then."""
        own = self._own()
        own._search_in_turn(np.arange(len(own.value_J)), self.at_once, self.tries, self.late)
        return own.option_J, own.slot_J, own.end_J, own.value_J, own.free_ST
