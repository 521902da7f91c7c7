"""What the interface answers with: typed, so that its page of documentation follows from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from noonward.live.segments import Segment
from noonward.live.store.database import Row
from noonward.live.world.candidates import candidates_of


class Submitted(msgspec.Struct, kw_only=True):
    """Answer to a submission: every job is on the disk."""

    ids: list[int]
    """Number of each job, in the order submitted."""
    new: int
    """How many are new; the others were known by their idempotency keys."""


class JobShown(msgspec.Struct, kw_only=True):
    """A job and where it stands. Times are UTC."""

    id: int
    name: str
    state: str
    """submitted, transit, waiting, starting, running, suspended, done, failed, cancelled, overdue, lost."""
    held: bool
    cancelling: bool
    class_: str = msgspec.field(name="class")
    owner: str
    """Whose token submitted it; empty for one that was seen in a watched cluster."""
    origin: str
    gpus_min: int
    gpus_max: int
    work: float
    max_delay_s: float | None
    priority: int
    pinned: str | None
    """Site it must run at."""
    not_sites: list[str]
    attempt: int
    site: str | None
    """Site it waits at, travels to or runs at."""
    gpus: int
    """GPUs it was given; 0 before its start."""
    submitted: str
    decided_start: str | None
    """Start that was decided."""
    began: str | None
    ended: str | None
    expected_run_s: float | None
    exit_code: int | None
    reason: str | None
    handle: str | None
    """The cluster's own name of the job."""
    cap: int
    """Power cap that was decided for it, as its class lists them; 0: full power."""
    segments: list[SegmentShown]
    """When it ran, stopped, was suspended and loaded, in its last attempt; of one job, not in lists."""


class SegmentShown(msgspec.Struct, kw_only=True):
    """A part of a job's life."""

    kind: str
    """run, stop (it was told to stop and holds its GPUs), dark (suspended, it holds none), load (it was resumed)."""
    gpus: int
    power: float
    """Share of full power under its power cap."""
    begins: str
    ends: str | None


class AuditShown(msgspec.Struct, kw_only=True):
    """What an operator changed."""

    id: int
    at: str
    who: str
    """Whose token; empty: a service without tokens, or the command line at its store."""
    action: str
    detail: str


class JobList(msgspec.Struct, kw_only=True):
    """Some jobs, newest first."""

    jobs: list[JobShown]
    next: int | None
    """Value of ``before`` for the next page, or none."""


class SiteShown(msgspec.Struct, kw_only=True):
    """A site now."""

    name: str
    zone: str
    executor: str
    gpus: int
    free: int
    """GPUs free for the service by its books."""
    withheld: int
    """GPUs that are not for the service: of nodes that are down, or held by jobs of others."""
    waiting: int
    waiting_gpus: int
    drained: bool
    dispatch: bool
    """Whether jobs that are decided for it are handed to its cluster."""
    undispatched: int
    """Jobs that are decided for it and not handed over yet."""
    reachable: bool
    seen: str | None
    """When its cluster last answered."""
    remark: str
    price_usd_per_mwh: float | None
    carbon_g_per_kwh: float | None
    signal_source: str | None


class Change(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What an operator changes about a job."""

    site: str | msgspec.UnsetType | None = msgspec.UNSET
    """Site it must run at; null: the policy chooses again."""
    not_sites: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Sites it must not run at."""


class SiteChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What an operator changes about a site."""

    drained: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether nothing more is started there or sent there."""
    dispatch: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether jobs that are decided for it are handed to its cluster; where not, they wait until it is on."""


class PolicyChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The policy that decides from now on."""

    policy: str


class ServiceShown(msgspec.Struct, kw_only=True):
    """The service."""

    version: str
    mode: str
    """``live``, or ``shadow``: it decides and runs nothing."""
    policy: str
    protocol: str
    start: str
    now: str
    speed: float
    """Seconds of the service per real second."""
    open_jobs: int
    problems: dict[str, str]
    """Loops that failed last or are late, with what is wrong."""
    late_signal_hours: int
    """Hours of zones whose prices and intensities are not known yet; something stands in for them."""
    next_slot: str | None = None
    """When the service decides next, in its time, under the protocol each-slot; None: when a job arrives."""


class Event(msgspec.Struct, kw_only=True):
    """Something that happened."""

    id: int
    at: str
    job: int | None
    kind: str
    data: dict[str, Any]


class DecisionShown(msgspec.Struct, kw_only=True):
    """A decision with what was known when it was made."""

    id: int
    at: str
    job: int
    attempt: int
    policy: str
    asked_at: str
    """Site that was asked, or the dispatcher."""
    choice: str
    """``hold`` or the site chosen."""
    gpus: int
    """Largest gang answered; 0: as many as fit."""
    clock_level: int
    """-1: the clock of least energy."""
    earliest_start: str | None
    candidates: list[dict[str, Any]]
    """A row per site: feasible, free GPUs, waiting jobs, price and intensity of the hour."""


JOB_COLUMNS = "SELECT j.*, (SELECT handle FROM outbox o WHERE o.token = j.token) AS handle FROM jobs j "


class Shower:
    """Turns rows of the store into what is shown.

    Args:
        sites: Names of the sites.
        time_of: Seconds since the service's start to UTC text.
    """

    def __init__(self, sites: tuple[str, ...], time_of: Callable[[float], str]) -> None:
        self.sites, self._time_of = sites, time_of

    def time(self, seconds: float | None) -> str | None:
        """Returns a time as text, or None."""
        return None if seconds is None else self._time_of(seconds)

    def job(self, row: Row, segments: Sequence[Segment] = ()) -> JobShown:
        """Returns a job, with its segments where they are known."""
        return JobShown(
            id=row["id"], name=row["name"], state=row["state"], held=bool(row["held"]),
            cancelling=bool(row["cancelling"]), class_=row["class"], owner=row["owner"], origin=row["origin"],
            gpus_min=row["gpus_min"], gpus_max=row["gpus_max"], work=row["work"], max_delay_s=row["max_delay_s"],
            priority=row["priority"], pinned=row["pinned"], not_sites=json.loads(row["vetoed"]),
            attempt=row["attempt"], site=row["site"], gpus=row["gpus"] if row["start_s"] is not None else 0,
            submitted=self._time_of(row["submitted_s"]), decided_start=self.time(row["start_s"]),
            began=self.time(row["began_s"]), ended=self.time(row["ended_s"]), expected_run_s=row["run_s"],
            exit_code=row["exit_code"], reason=row["reason"], handle=row["handle"], cap=row["cap"],
            segments=[
                SegmentShown(kind=one.kind, gpus=one.gpus, power=one.power, begins=self._time_of(one.from_s),
                             ends=self.time(one.to_s))
                for one in segments
            ],
        )  # fmt: skip

    def event(self, row: Row) -> Event:
        """Returns an event."""
        return Event(
            id=row["id"], at=self._time_of(row["at_s"]), job=row["job"], kind=row["kind"], data=json.loads(row["data"])
        )

    def decision(self, row: Row, rows_of: Mapping[str, list[dict[str, Any]]]) -> DecisionShown:
        """Returns a decision.

        Args:
            row: Row of the table ``decisions``.
            rows_of: What it saw of the sites, by digest.
        """
        return DecisionShown(
            id=row["id"], at=self._time_of(row["at_s"]), job=row["job"], attempt=row["attempt"], policy=row["policy"],
            asked_at=row["asker"] or "dispatcher",
            choice=row["choice"] or "hold", gpus=row["gpus"],
            clock_level=row["level"], earliest_start=self.time(row["earliest_s"] or None),
            candidates=json.loads(row["candidates"])
            if row["seen"] is None
            else candidates_of(rows_of[row["seen"]], row["candidates"]),
        )  # fmt: skip
