"""The utility bound of very many jobs: prices found with few that stand for all, then paid by every single one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.columns import market, require_bounded
from noonward.bound.cluster_utility.dual import Dual
from noonward.bound.cluster_utility.many_jobs_schedule import ManyJobsSchedule
from noonward.bound.cluster_utility.merged_sites import fleet_part, merged_sites, parts_of_fleet
from noonward.bound.cluster_utility.pieces import MapPieces, in_turn
from noonward.bound.cluster_utility.prices import STEP_USD, descend_by_draws, never
from noonward.bound.cluster_utility.standing_for_all import Draws
from noonward.bound.cluster_utility.stretches import Listing, priced, refined, starts_per_job
from noonward.errors import ScenarioError
from noonward.model.cluster.environment import Environment
from noonward.notices import tell
from noonward.seeding import stream
from noonward.units import HOUR_S

PER_SITE_HOUR: Final = 0.4
"""Jobs that stand for all at a step of the first search for prices, per site and hour of the window, unless said
otherwise; others at every step."""
FIRST_STARTS: Final = 20_000_000
"""Their candidate starts, at most: some 120 bytes each."""
TIMES_DRAWN: Final = 4.0
"""How often a job is drawn at most, on average over candidate starts: listing them takes most of the time."""
EXACT_SITES: Final = 64
"""Sites up to which each has prices of its own, unless said otherwise; beyond, those of one kind are merged."""
ROUNDS: Final = 120
"""Steps of a search for prices."""
STEP_SHARE: Final = 0.14
"""First step of the first search, as a share of the revenue per GPU-hour."""
REFINING: Final = 0.05
"""First step of the second search, by stretches, as a share of that of the first."""


@dataclass(frozen=True, kw_only=True)
class ManyJobsBound:
    """What no scheduler can exceed in an environment of very many jobs.

    Attributes:
        upper_usd: As ``UtilityBound.upper_usd``.
        idle_usd: As there.
        lower_usd: Utility of a schedule that was found, USD; NaN where none was looked for.
        price_usd_per_gpu_hour_SH: Capacity prices that give the bound; where sites were merged, by kind of sites.
        jobs: Jobs with which the prices were refined; fewer than all where memory did not allow for more.
        cut: Whether time ran out before the searches for prices and a schedule were over.
    """

    upper_usd: float
    idle_usd: float
    lower_usd: float
    price_usd_per_gpu_hour_SH: F8
    jobs: int
    cut: bool


def many_jobs_bound(
    environment: Environment,
    *,
    jobs: int | None = None,
    rounds: int = ROUNDS,
    schedule: bool = True,
    exact_sites: int = EXACT_SITES,
    seed: int = 0,
    late: Callable[[], bool] = never,
    map_pieces: MapPieces = in_turn,
) -> ManyJobsBound:
    """Bounds the utility any scheduler can reach, in memory that does not grow with what jobs may become.

    Every price of capacity gives a bound (``Relaxation``). So the prices may be found with few jobs, each of which
    counts as often as the jobs that it stands for: they are drawn with chances in proportion to their GPU-hours, evenly
    over ingress points and time, and at every step others are drawn (``descend_by_draws``). Then the prices are refined
    by stretches of one to four days (``stretches``), while the prices of all other hours stay: with all jobs that may
    run near the stretch, or with as many of them as memory allows, and with those starts of each that are likely at the
    prices found before. At the prices found last every job of the environment takes the best of all its starts, some
    jobs at a time. The result is a bound without any error of sampling, and is looser than ``utility_bound`` by what
    the prices lack.

    Of a fleet of more than ``exact_sites``, sites of one kind are merged (``merged_sites``): that is a bound too. The
    first search is that of all kinds. Then every part of the fleet (``fleet_part``) is by itself: its prices are
    refined with its own jobs, more of which memory holds than of all, and its schedule is one in which no job leaves
    it. What the bound charges for a kind is the mean of what the parts found for its sites.

    The second search, the pricing of all jobs and the search for a schedule are cut into pieces of work that other
    processes can carry out, each with its own jobs alone; the schedule of a part of the fleet is one piece. The
    result is the same, byte for byte, wherever that is.

    Args:
        environment: As ``Relaxation`` takes it.
        jobs: Jobs that stand for all at a step of the first search, at least 1; None: ``PER_SITE_HOUR``, within
            ``FIRST_STARTS`` and ``TIMES_DRAWN``.
        rounds: Steps of each of the searches for prices, at least 2.
        schedule: Whether to look for a schedule (``many_jobs_schedule``), for ``each-slot`` without hard capacity
            curves.
        exact_sites: Sites up to which each has prices of its own, at least 1.
        seed: Seed of the draws.
        late: Whether the searches for prices and for a schedule must end; asked after every step. Other processes
            need one that can be pickled (``pieces.Deadline``).
        map_pieces: Carries out pieces of work; by default in this process, one after the other.

    Raises:
        ScenarioError: As ``utility_bound``.
    """
    if (jobs is not None and jobs < 1) or rounds < 2:
        raise ScenarioError(f"jobs {jobs} and rounds {rounds} were asked of a bound; they must be at least 1 and 2")
    require_bounded(environment)
    if exact_sites < 1:
        raise ScenarioError(f"exact_sites {exact_sites} were asked of a bound; it must be at least 1")
    whole, kind_S = environment, np.arange(len(environment.sites))
    if len(kind_S) > exact_sites:
        environment, kind_S = merged_sites(environment)
    every = Listing.of(environment)
    step_usd = STEP_SHARE * every.costs.revenue_usd_per_gpu_hour or STEP_USD
    generator = stream(seed, "policy", "many-jobs-bound")
    first_SH = _first_prices(every, jobs, rounds, step_usd, generator, late)
    part_S = np.zeros(len(kind_S), np.int64) if whole is environment else parts_of_fleet(kind_S, exact_sites)
    numbers = np.unique(part_S[whole.fleet.tables(1).home_I[whole.jobs.origin_J]]).tolist()
    by_site_SH, considered = first_SH[kind_S], 0
    for part in numbers:
        if late():
            break
        mine = part_S == part
        their = every if whole is environment else Listing.of(fleet_part(whole, part_S, part))
        before_SH = np.ascontiguousarray(by_site_SH[mine, : their.capacity_SH.shape[1]])  # its runs may end earlier
        after_SH, held = refined(
            their, before_SH, rounds=rounds, step_usd=REFINING * step_usd, seed=seed, map_pieces=map_pieces, late=late
        )
        few = their.dual(*_draws(their, jobs, rounds, 1, generator).next())
        if few.value(after_SH)[0] <= few.value(before_SH)[0]:  # else refining led away, as far as few jobs tell
            by_site_SH[mine, : after_SH.shape[1]] = after_SH
        considered += held
        del their, few
    price_SH = _mean_by_kind(whole, kind_S, by_site_SH)
    upper_usd, priced_usd_J, gpu_hours_J = priced(every, price_SH, map_pieces)
    lower_usd = math.nan
    if schedule and whole.protocol == "each-slot" and not (whole.caps is not None and whole.caps.hard):
        if whole is environment:
            usd = [_scheduled_usd(every, price_SH, priced_usd_J, gpu_hours_J, seed, late, map_pieces)]
        else:
            usd = map_pieces([_Part(whole, part_S, part, by_site_SH, seed, late) for part in numbers])
        lower_usd = every.costs.idle_usd + math.fsum(usd)
    return ManyJobsBound(
        upper_usd=upper_usd,
        idle_usd=every.costs.idle_usd,
        lower_usd=lower_usd,
        price_usd_per_gpu_hour_SH=price_SH,
        jobs=considered or len(environment.jobs),
        cut=late(),
    )


def _draws(every: Listing, jobs: int | None, rounds: int, draws: int, generator: np.random.Generator) -> Draws:
    """Returns draws of jobs that stand for all; the other arguments as above."""
    environment = every.environment

    def of(count: int) -> Draws:
        return Draws(environment.jobs, every.tables, count, draws, generator)

    if jobs is not None:
        return of(jobs)
    count = math.ceil(PER_SITE_HOUR * len(environment.sites) * environment.window_s / HOUR_S)
    few = every.some(of(count).next()[0])
    most = min(FIRST_STARTS, TIMES_DRAWN / rounds * every.starts())
    return of(max(1, int(count * min(1.0, most / few.starts()))))


def _first_prices(
    every: Listing,
    jobs: int | None,
    rounds: int,
    step_usd: float,
    generator: np.random.Generator,
    late: Callable[[], bool],
) -> F8:
    """Returns prices found with jobs that stand for all, each with all its starts; arguments as above."""
    draws = _draws(every, jobs, rounds, rounds, generator)

    def step(k: int) -> Dual:
        tell("within", f"first prices, step {k + 1} of {rounds}")
        return every.dual(*draws.next())

    return descend_by_draws(step, rounds, step_usd, np.zeros(every.capacity_SH.shape), late)


def _mean_by_kind(environment: Environment, kind_S: I8, by_site_SH: F8) -> F8:
    """Returns the mean prices, over the GPUs of every kind of sites, USD per GPU-hour."""
    gpus_S = np.array([site.gpus for site in environment.fleet.sites], dtype=np.float64)
    share_S = gpus_S / np.bincount(kind_S, weights=gpus_S)[kind_S]
    mean_SH = np.zeros((kind_S.max() + 1, by_site_SH.shape[1]))
    np.add.at(mean_SH, kind_S, share_S[:, None] * by_site_SH)
    return mean_SH


@dataclass(frozen=True)
class _Part:
    """A piece of work: a schedule of a part of the fleet.

    Attributes:
        environment: Environment.
        part_S: Part that every site is in; all 0: the part is by itself.
        part: Number of the part.
        price_SH: Capacity prices by site, USD per GPU-hour.
        seed: Seed of the search.
        late: Whether it must end.
    """

    environment: Environment
    part_S: I8
    part: int
    price_SH: F8
    seed: int
    late: Callable[[], bool]

    @property
    def label(self) -> str:
        """Which part."""
        return f"schedule of part {self.part + 1} of the fleet"

    def __reduce__(self) -> tuple[Any, ...]:
        """Takes along no other sites, and no other jobs."""
        return _Part, tuple(self._own().__dict__.values())

    def _own(self) -> _Part:
        """Returns the part by itself."""
        if not self.part_S.any():  # it is
            return self
        mine = np.flatnonzero(self.part_S == self.part)
        return replace(
            self,
            environment=fleet_part(self.environment, self.part_S, self.part),
            part_S=np.zeros(len(mine), np.int64),
            price_SH=self.price_SH[mine],
        )

    def found(self) -> float:
        """Returns what the jobs of a schedule add to the utility of an idle fleet, USD."""
        own = self._own()
        every = Listing.of(own.environment)
        price_SH = np.ascontiguousarray(own.price_SH[:, : every.capacity_SH.shape[1]])
        _, priced_usd_J, gpu_hours_J = priced(every, price_SH, in_turn)
        return _scheduled_usd(every, price_SH, priced_usd_J, gpu_hours_J, self.seed, self.late, in_turn)


def _scheduled_usd(
    every: Listing,
    price_SH: F8,
    priced_usd_J: F8,
    gpu_hours_J: F8,
    seed: int,
    late: Callable[[], bool],
    map_pieces: MapPieces,
) -> float:
    """Returns what the jobs of a schedule that was looked for add to the utility of an idle fleet, USD."""
    schedule = ManyJobsSchedule(every.environment, every.tables, every.costs, price_SH, priced_usd_J, gpu_hours_J, seed)
    schedule.book(every.at_once)
    schedule.search(every.at_once, late, map_pieces)
    return schedule.value_usd


def candidate_starts(environment: Environment) -> float:
    """Returns about how many candidate starts the jobs of an environment have: the memory of ``utility_bound``.

    They grow with sites and slack: a job that may wait for a day has some hundreds at each site.

    Raises:
        ScenarioError: As ``utility_bound``.
    """
    require_bounded(environment)
    tables = environment.fleet.tables(int(environment.jobs.gpus_max_J.max()))
    return len(environment.jobs) * starts_per_job(environment, tables, market(environment, tables))
