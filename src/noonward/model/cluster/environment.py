"""An environment: one concrete draw of a scenario that engines run and policies are compared on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8, Records
from noonward.errors import ScenarioError
from noonward.model.cluster.event import SiteEvent, check_events
from noonward.model.cluster.failures import JobFailures
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import SUBMITTED, TOLD, Jobs
from noonward.model.cluster.knowledge import JobKnowledge
from noonward.model.cluster.setting import FORECAST_H, Setting
from noonward.model.cluster.site_prices import StatedPrices
from noonward.model.cluster.withheld import StandingJobs, Withheld
from noonward.model.signals import Signals, SiteSignals
from noonward.model.spec import LONGEST_WINDOW_H
from noonward.paging import parts
from noonward.units import HOUR_S

if TYPE_CHECKING:
    import polars as pl

LONGEST_RUN_H: Final = 2 * LONGEST_WINDOW_H
"""Longest run, h: the window, and as long again for the jobs to end."""
KEPT_RECORDS: Final = 1_000_000
"""Jobs up to which an environment keeps their SUBMITTED records, 120 bytes per job, from one run to the next."""


@dataclass(frozen=True, kw_only=True)
class GpuCaps:
    """Hourly capacity curves (virtual capacity), GPUs.

    Attributes:
        gpus_SH: GPUs that may be busy per site and hour since the environment's start, at least 0.
        hard: A hard cap lets no job start beyond it (a running job is never stopped); an advisory one only
            has its excess counted.
    """

    gpus_SH: NDArray[np.float64]
    hard: bool = True


@dataclass(frozen=True, kw_only=True)
class Environment(Setting):
    """Setting, jobs and signals of one run.

    Attributes:
        index: Number of the draw.
        seed: Seed of the draw.
        jobs: Jobs.
        signals: Price and carbon intensity of the sites' zones, some hours of history before ``start`` (for
            forecasts) included; None where the scenario has no signals.
        caps: Hourly capacity curves, or None.
        sample_jobs: Draws another table of jobs from the statistics that a planner may know (never from the jobs of
            this environment or the trace they were taken from), or None.
        notes: What a reader of any result must know.
        knowledge: What schedulers are told of the jobs in place of their run times; None: they are told these.
        standing: Jobs that were running before the start, or None. They are no jobs of the run: nobody is asked about
            them, and they hold their GPUs to their end.
        stated_prices: Prices of energy at sites in place of those that follow from signals and tariffs, for bounds and
            planners; None: there are none.
        failures: When running jobs fail (protocol ``each-slot``), or None: none does. No scheduler sees it.
        events: Grid events, those of one site without overlap; a scheduler knows of each from its notice on
            (``Brief.announced``).
        tenant_J: Position in ``tenants`` of the tenant that each job is of; None where no tenants are stated.
        priority_J: Priority of each job; None where the setting states no priorities.
        details: What the table of jobs says of each beyond what it needs, one row per job in their order, in the
            columns ``job_id``, ``user``, ``team``, ``name``, ``partition`` (text), ``limit_s`` (s), ``state`` and
            ``priority`` (docs/data.md; null: it does not say); None where the jobs are from no table. No scheduler
            sees it.

    Raises:
        ScenarioError: A job needs more GPUs than any site has, an index is out of range, signals end before
            the last job could, or the protocol does not fit the ingress points.
    """

    kind: ClassVar[str] = "cluster"
    """Kind of the scenario."""

    index: int
    seed: int
    jobs: Jobs
    signals: Signals | None = None
    caps: GpuCaps | None = None
    sample_jobs: Callable[[np.random.Generator], Jobs] | None = None
    notes: tuple[str, ...] = ()
    details: pl.DataFrame | None = None
    knowledge: JobKnowledge | None = None
    standing: StandingJobs | None = None
    stated_prices: StatedPrices | None = None
    events: tuple[SiteEvent, ...] = ()
    failures: JobFailures | None = None
    tenant_J: I8 | None = None
    priority_J: I8 | None = None

    def __post_init__(self) -> None:
        jobs, fleet = self.jobs, self.fleet
        for name, limit in (
            ("origin_J", len(fleet.ingress_points)),
            ("class_J", len(fleet.classes)),
            ("preset_site_J", len(fleet.sites)),
            ("recorded_site_J", len(fleet.sites)),
        ):
            column = getattr(jobs, name)
            if (column >= limit).any():
                row = int((column >= limit).argmax())
                raise ScenarioError(f"column {name}, row {row}: index {column[row]} is not below {limit}")
        self._check_sizes()
        self._check_tenants()
        check_events(self.events, fleet.site_names)
        if self.failures is not None and (self.protocol != "each-slot" or len(self.failures) != len(jobs)):
            raise ScenarioError(
                f"failures are given for {len(self.failures)} of {len(jobs)} jobs, under protocol {self.protocol}; "
                "give one per job, under protocol each-slot"
            )
        told = self.knowledge
        if told is not None and len(told.traits) != len(told.past_work_P) + len(jobs):
            raise ScenarioError(
                f"{len(told.traits)} jobs are described for {len(told.past_work_P)} past and {len(jobs)} jobs of the "
                "environment; describe each once"
            )
        if self.details is not None and self.details.height != len(jobs):
            raise ScenarioError(
                f"{self.details.height} rows of details stand beside {len(jobs)} jobs; give one per job"
            )
        if self.window_s <= 0 or self.window_s % HOUR_S:
            raise ScenarioError(f"the window is {self.window_s} s; it must be a positive number of whole hours")
        if self.protocol == "each-slot" and (self.slot_s <= 0 or HOUR_S % self.slot_s):
            raise ScenarioError(f"slots last {self.slot_s} s; a slot must divide the hour (3600 s)")
        if self.protocol == "each-slot":
            homes = {point.home for point in fleet.ingress_points}
            missing = [site.name for site in fleet.sites if site.name not in homes]
            if missing or None in homes or len(fleet.ingress_points) != len(fleet.sites):
                raise ScenarioError(
                    "protocol each-slot needs one ingress at home in every site and no other; "
                    f"use 'ingress: sites' (sites without: {missing})"
                )
        require_end(self.latest_end_s)
        if self.signals is not None:
            zones = tuple(dict.fromkeys(site.zone for site in fleet.sites))
            covered = self.signals.select(zones).window(self.start, self.hours)
            covered.require_known(f"environment {self.index} of {self.scenario!r}")
        if self.caps is not None and not (
            self.caps.gpus_SH.ndim == 2 and np.isfinite(self.caps.gpus_SH).all() and (self.caps.gpus_SH >= 0).all()
        ):
            raise ScenarioError(
                "capacity curves are no table (sites x hours), or hold a missing, infinite or negative value (GPUs); "
                "give finite GPUs of at least 0"
            )
        if self.caps is not None and (
            self.caps.gpus_SH.shape[0] != len(fleet.sites) or self.caps.gpus_SH.shape[1] < self.hours
        ):
            raise ScenarioError(
                f"capacity curves have shape {self.caps.gpus_SH.shape}; expected {len(fleet.sites)} sites and at "
                f"least {self.hours} hours"
            )

    @functools.cached_property
    def unavailable(self) -> Withheld | None:
        """GPUs that no job of the run may take: withheld ones, and those of jobs that were running before the start."""
        return self._unavailable(told=False)

    @functools.cached_property
    def expected_unavailable(self) -> Withheld | None:
        """The same as schedulers expect it, who may not know when jobs end."""
        return self._unavailable(told=True)

    def _unavailable(self, *, told: bool) -> Withheld | None:
        gpus_S = np.array([site.gpus for site in self.fleet.sites], dtype=np.int64)
        return self.withheld if self.standing is None else self.standing.withheld(gpus_S, told=told, also=self.withheld)

    def _check_tenants(self) -> None:
        """Raises ScenarioError unless every job has a tenant whose quota it fits into, where tenants are stated."""
        if (self.priorities is None) != (self.priority_J is None):
            raise ScenarioError("priorities and those of jobs (priority_J) go together; give both, or neither")
        if (self.tenants is None) != (self.tenant_J is None):
            raise ScenarioError("tenants and the tenants of jobs (tenant_J) go together; give both, or neither")
        if self.tenants is not None and self.tenant_J is not None:
            known = len(self.tenants.names)
            if self.tenant_J.shape != (len(self.jobs),) or not ((self.tenant_J >= 0) & (self.tenant_J < known)).all():
                raise ScenarioError(f"tenant_J is no column of {len(self.jobs)} positions of {known} tenants")
            self.tenants.check_gangs(self.jobs.gpus_min_J, self.tenant_J)

    def _check_sizes(self) -> None:
        """Raises ScenarioError if a job fits into no site that its class may run at."""
        largest_J = largest_gang_C(self.fleet)[self.jobs.class_J]
        too_large = self.jobs.gpus_min_J > largest_J
        if too_large.any():
            row = int(too_large.argmax())
            name = self.fleet.classes[self.jobs.class_J[row]]
            within = f" of the range of class {name!r}" if name in self.fleet.ranges else ""
            raise ScenarioError(
                f"job in row {row} needs {self.jobs.gpus_min_J[row]} GPUs at once, but the largest site{within} has "
                f"{largest_J[row]}; remove the job, cap its gang or enlarge a site"
            )

    @property
    def latest_end_s(self) -> float:
        """Upper limit of the time at which the last job ends, s: latest start plus longest run time."""
        if not self.drained:
            return self.window_s
        slot_s = self.slot_s if self.protocol == "each-slot" else 0.0
        fails = self.failures is not None
        return latest_end_s(self.jobs, self.fleet, self.window_s, slot_s, self.late_until_s, fails=fails)

    @functools.cached_property
    def site_signals(self) -> SiteSignals:
        """Signals at the sites over the hours of the run, with their integrals; a PUE by the hour is counted in."""
        factor_SH = None if self.pue is None else self.pue.window(self.start, self.hours)
        zones = [site.zone for site in self.fleet.sites]
        prices = self.stated_prices or self.prices
        return SiteSignals.of(self.signals, zones, self.start, self.hours, factor_SH, prices)

    @property
    def job_records(self) -> Records:
        """The jobs as SUBMITTED records, with all that is told of them without learning; read, never write.

        Where jobs may be late until some time, those without a latest start have that time for one: so every run ends.
        Those of up to ``KEPT_RECORDS`` jobs are kept for the next run.
        """
        return self._kept_records if len(self.jobs) <= KEPT_RECORDS else self._records()

    @functools.cached_property
    def _kept_records(self) -> Records:
        return self._records()

    def _records(self) -> Records:
        """Returns new SUBMITTED records of the jobs."""
        records = self.jobs.records(SUBMITTED)
        if self.knowledge is not None:
            for name, told_J in zip(TOLD, self.knowledge.told_JK(len(TOLD)).T, strict=True):
                records[name] = told_J
            records["expected"] = records["told"]
        if self.tenant_J is not None:
            records["tenant"] = self.tenant_J
        if self.priority_J is not None:
            records["priority"] = self.priority_J
        if self.late_until_s > -np.inf:
            records["deadline_s"] = self.deadline_s_J
        return records

    @property
    def deadline_s_J(self) -> F8:
        """Latest start of every job as the engine counts it, s; of one without a limit, until when late ones may start.

        The return of its result is not yet counted.
        """
        deadline_s_J = self.jobs.deadline_s_J
        if self.late_until_s > -np.inf:
            deadline_s_J[np.isinf(deadline_s_J)] = self.late_until_s
        return deadline_s_J

    @property
    def learns_run_times(self) -> bool:
        """Whether schedulers are told run times that are learned as jobs end."""
        return self.knowledge is not None and self.knowledge.told.run_time == "learned"

    @property
    def reach_h(self) -> int:
        """Hours that forecasts reach at least: as stated, or as far as past jobs took, never by the jobs to come."""
        if self.forecast_h is not None:
            return self.forecast_h
        if self.knowledge is None:
            return FORECAST_H
        return int(np.ceil(min(self.knowledge.reach_s / HOUR_S, LONGEST_RUN_H))) + 2

    @functools.cached_property
    def hours(self) -> int:
        """Whole hours from the start that a run may touch."""
        return int(np.ceil(self.latest_end_s / HOUR_S))


def largest_gang_C(fleet: Fleet) -> I8:
    """Returns the GPUs of the largest site that jobs of a class may run at, per class."""
    tables = fleet.tables(1)
    largest_C: I8 = (tables.range_CS * tables.gpus_S).max(axis=1)
    return largest_C


def require_end(end_s: float) -> None:
    """Raises ScenarioError if a run could last longer than ``LONGEST_RUN_H``.

    Args:
        end_s: Upper limit of the run's end, s.
    """
    if not np.isfinite(end_s):
        raise ScenarioError(
            "jobs with infinite slack cannot run until drained; give slack_s, 'end: window', or "
            "'lateness: {rule: wait}', which says until when they may start"
        )
    if end_s > LONGEST_RUN_H * HOUR_S:
        raise ScenarioError(
            f"the last job may end {end_s / HOUR_S:.4g} h after the start; a run may last {LONGEST_RUN_H:,} h (20 "
            "years): shorten the jobs' slack or run time, speed the GPUs up, or use 'end: window'"
        )


def latest_end_s(
    jobs: Jobs, fleet: Fleet, window_s: float, slot_s: float, late_until_s: float = -np.inf, *, fails: bool = False
) -> float:
    """Returns the upper limit of the time at which the last of some jobs ends when run until drained.

    Args:
        jobs: Jobs.
        fleet: Where they run.
        window_s: The run lasts at least this long, s.
        slot_s: Length of a slot, s; 0 where starts are not bound to slots.
        late_until_s: Time until which jobs may start late, s; -inf: none may. No job with an infinite slack then starts
            after it.
        fails: Whether running jobs may fail.
    """
    slowest_C = fleet.tables(int(jobs.gpus_max_J.max())).slowest_s_C
    load_s = max((one.checkpoint.load_s for one in fleet.freedoms.values() if fails or one.stoppable), default=0.0)

    def latest(part: slice) -> float:
        latest_J = jobs.deadline_s(part)
        if late_until_s > -np.inf:
            latest_J = load_s + np.where(np.isinf(latest_J), late_until_s, np.maximum(latest_J, late_until_s))
        return float((latest_J + jobs.work_J[part] * slowest_C[jobs.class_J[part]]).max())

    return max(window_s, max(latest(part) for part in parts(len(jobs))) + slot_s)
