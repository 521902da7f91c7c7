"""What a job is submitted as, and its check against the fleet."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from noonward.errors import DataError, nearest
from noonward.live.terms import EVERY, Terms, require_valid, stated
from noonward.model.cluster.environment import LONGEST_RUN_H
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.tenant import MOST_PRIORITY
from noonward.model.spec import LARGEST, LARGEST_GANG
from noonward.units import HOUR_S

Gpus = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_GANG, description="GPUs")]
Size = Annotated[float, msgspec.Meta(ge=0, le=LARGEST, description="GB")]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
MOST_JOBS: Final = 10_000
"""Jobs in a batch, at most."""


class JobRequest(Terms, forbid_unknown_fields=True, kw_only=True, frozen=True, omit_defaults=True):
    """A job as it is submitted; what it asks of its cluster stands in ``Terms``."""

    name: Name
    """Name, for people."""
    command: Annotated[str, msgspec.Meta(max_length=65_536)] = ""
    """What is run, by a POSIX shell at the site."""
    work: Annotated[float, msgspec.Meta(gt=0, le=LARGEST)]
    """Work, units of its class; for a class of fixed duration the run time, s."""
    class_: str | None = msgspec.field(default=None, name="class")
    """Class of the fleet; may be left out where there is one."""
    origin: str | None = None
    """Ingress point; may be left out where there is one."""
    gpus_min: Gpus = 1
    """Smallest gang."""
    gpus_max: Gpus | None = None
    """Largest gang; the smallest where it is left out."""
    max_delay_s: Annotated[float, msgspec.Meta(ge=0, le=LARGEST)] | None = None
    """Longest time from submission to start, s; the scenario's rule of lateness says what becomes of a job that cannot
    start by then. None: it waits."""
    deadline_s: Annotated[float, msgspec.Meta(gt=0, le=LARGEST)] | None = None
    """Time from submission by which it ends, s, if runs take what is expected: it may start so late that it ends by
    then wherever it runs, on however few of its GPUs and at whichever clock. None: any."""
    data_gb: Size = 0.0
    """Data that travels with it to another site, GB."""
    model_gb: Size = 0.0
    """Model that travels with it, GB."""
    result_gb: Size = 0.0
    """Result that returns, GB."""
    site: str | None = None
    """Site it must run at; None: the policy chooses."""
    not_sites: tuple[str, ...] = ()
    """Sites it must not run at."""
    held: bool = False
    """Whether it waits for its release before it is decided about."""
    retries: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    """How often it is queued again after a site failed under it."""
    retry_failed: bool = False
    """Whether it is queued again, as often, after its own command failed too."""
    priority: Annotated[int, msgspec.Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY)] | None = None
    """Jobs of a higher one come first, where the scenario states priorities; None: that of its class."""
    after: Annotated[tuple[int, ...], msgspec.Meta(max_length=1000)] = ()
    """Numbers of jobs that are done before it arrives; if one of them ends otherwise, it is cancelled."""
    key: Key | None = None
    """Idempotency key: a second request of the same key and content is answered with the first one's job."""


class JobRow(msgspec.Struct, frozen=True):
    """A checked job; the columns of table ``jobs`` that a submission fills."""

    key: str | None
    digest: bytes
    name: str
    request: bytes
    held: int
    pinned: str | None
    vetoed: str
    origin: str
    class_: str
    gpus_min: int
    gpus_max: int
    work: float
    max_delay_s: float | None
    move_gb: float
    result_gb: float
    retries: int
    after: tuple[int, ...] = ()
    priority: int = 0
    run_by: str = ""
    """Whose job it is, for what is learned of run times; empty: who submits it."""


class RequestChecker:
    """Checks jobs against a fleet.

    Args:
        fleet: The fleet.
        largest_gang: Largest gang that the service's tables of power and speed are made for, GPUs.
        takes: Terms that each site's executor can pass on; None: every site takes all of them.
        priorities: Priorities of the classes; None: jobs have none.
    """

    def __init__(
        self,
        fleet: Fleet,
        largest_gang: int,
        takes: Sequence[frozenset[str]] | None = None,
        priorities: Mapping[str, int] | None = None,
    ) -> None:
        self.priorities = priorities
        tables = fleet.tables(1)
        self.sites, self.classes = fleet.site_names, fleet.classes
        self.ingress = tuple(point.name for point in fleet.ingress_points)
        self.largest_gang = largest_gang
        tables_of_gangs = fleet.tables(largest_gang)
        # The quickest run per unit of work, s: of a site's largest gang at its highest clock.
        self._least_s_C = np.nanmin(tables_of_gangs.seconds_per_unit_SCGF, axis=(0, 2, 3)).tolist()
        self._seconds_SCGF = tables_of_gangs.seconds_per_unit_SCGF
        self._takes_S = [EVERY] * len(self.sites) if takes is None else list(takes)
        self._gpus_S = tables.gpus_S.tolist()
        self._range_CS = tables.range_CS.tolist()
        self._large_enough: dict[tuple[int, int], frozenset[int]] = {}
        self._encode = msgspec.json.Encoder(order="deterministic").encode

    def row(self, request: JobRequest) -> JobRow:
        """Returns a job as it is stored.

        Raises:
            DataError: A name is unknown, a text holds a NUL character, or the job fits into no site it may run at.
        """
        for what, text in (("name", request.name), ("command", request.command), ("key", request.key)):
            if text is not None and "\x00" in text:
                raise DataError(f"job {request.name!r}: {what} holds a NUL character; leave it out")
        class_ = self._index("class", request.class_, self.classes)
        origin = self._index("origin", request.origin, self.ingress)
        most = request.gpus_min if request.gpus_max is None else request.gpus_max
        if most < request.gpus_min:
            raise DataError(f"job {request.name!r}: gpus_max {most} is below gpus_min {request.gpus_min}")
        if most > self.largest_gang:
            raise DataError(
                f"job {request.name!r} asks for a gang of up to {most} GPUs; the service takes gangs of up to "
                f"{self.largest_gang} (largest_gang of its configuration)"
            )
        least_s = request.work * self._least_s_C[class_]
        if least_s > LONGEST_RUN_H * HOUR_S:
            raise DataError(
                f"job {request.name!r} has work {request.work:g}: it would run for {least_s:.3g} s at least, and a run "
                f"may last {LONGEST_RUN_H * HOUR_S:.3g} s; give less"
            )
        pinned = -1 if request.site is None else self._index("site", request.site, self.sites)
        unwanted = {self._index("not_sites", site, self.sites) for site in request.not_sites}
        fitting = self._fitting(request, class_, pinned, unwanted)
        require_valid(request, f"job {request.name!r}")
        unable = self._unable(request, fitting)
        vetoed = sorted(unwanted | unable)
        # Browsers and editors of Windows end lines with CR LF, which shells and sbatch refuse.
        command = request.command.replace("\r\n", "\n").replace("\r", "\n")
        stored = request
        if request.key is not None or command != request.command:
            stored = msgspec.structs.replace(request, key=None, command=command)
        content = self._encode(stored)
        return JobRow(
            key=request.key,
            digest=hashlib.blake2b(content, digest_size=16).digest(),
            name=request.name,
            request=content,
            held=int(request.held),
            pinned=request.site,
            vetoed=msgspec.json.encode([self.sites[s] for s in vetoed]).decode() if vetoed else "[]",
            origin=self.ingress[origin],
            class_=self.classes[class_],
            gpus_min=request.gpus_min,
            gpus_max=most,
            work=float(request.work),
            max_delay_s=self._max_delay_s(request, class_, most, fitting - unable),
            move_gb=request.data_gb + request.model_gb,
            result_gb=float(request.result_gb),
            retries=request.retries,
            after=request.after,
            priority=self._priority(request, self.classes[class_]),
        )

    def _priority(self, request: JobRequest, class_: str) -> int:
        """Returns a job's priority.

        Raises:
            DataError: It states one, and the scenario none.
        """
        if request.priority is None:
            return (self.priorities or {}).get(class_, 0)
        if self.priorities is None:
            raise DataError(
                f"job {request.name!r} has priority {request.priority}, and the service's scenario states no "
                "priorities; leave it out, or have them stated (priorities: {} is enough)"
            )
        return request.priority

    def _index(self, what: str, name: str | None, known: tuple[str, ...]) -> int:
        if name is None and len(known) == 1:
            return 0
        if name is None:
            raise DataError(f"{what} is missing; give one of {', '.join(known)}")
        if name not in known:
            raise DataError(f"{what} {name!r} is unknown; {nearest(name, known)}")
        return known.index(name)

    def _unable(self, request: JobRequest, fitting: Set[int]) -> Set[int]:
        """Returns the sites whose executors cannot pass on what a job asks of its cluster.

        Raises:
            DataError: They are all that the job fits into.
        """
        asked = stated(request)
        if not asked:
            return frozenset()
        unable = {s for s, takes in enumerate(self._takes_S) if asked - takes}
        if not fitting - unable:
            lacking = sorted({name for s in fitting for name in asked - self._takes_S[s]})
            raise DataError(
                f"job {request.name!r} states {', '.join(lacking)}, which no cluster that it may run at takes; leave "
                "it out, or allow more sites (docs/live-jobs.md says which executors take what)"
            )
        return unable

    def _max_delay_s(self, request: JobRequest, class_: int, most: int, sites: Set[int]) -> float | None:
        """Returns the longest time from submission to start that keeps a job's delay and its deadline, s.

        Args:
            request: The job.
            class_: Number of its class.
            most: Its largest gang, GPUs.
            sites: Sites that it may run at.

        Raises:
            DataError: It would have to start before it is submitted.
        """
        if request.deadline_s is None:
            return None if request.max_delay_s is None else float(request.max_delay_s)
        longest_s = request.work * float(
            np.nanmax(self._seconds_SCGF[sorted(sites), class_, request.gpus_min : most + 1])
        )
        left_s = request.deadline_s - longest_s
        if left_s < 0:
            raise DataError(
                f"job {request.name!r} has deadline_s {request.deadline_s:g}, and may run for {longest_s:.0f} s on its "
                "fewest GPUs at the lowest clock of a site that it may run at; give more time or GPUs, or fewer sites"
            )
        return left_s if request.max_delay_s is None else min(left_s, float(request.max_delay_s))

    def _fitting(self, request: JobRequest, class_: int, pinned: int, vetoed: Set[int]) -> Set[int]:
        """Returns the sites that a job may run at and fits into.

        Raises:
            DataError: There are none.
        """
        key = (class_, request.gpus_min)
        if key not in self._large_enough:
            self._large_enough[key] = frozenset(
                s for s, gpus in enumerate(self._gpus_S) if self._range_CS[class_][s] and gpus >= request.gpus_min
            )
        fitting = self._large_enough[key]
        if pinned != -1:
            fitting = fitting & {pinned}
        if vetoed:
            fitting = fitting - vetoed
        if not fitting:
            raise DataError(
                f"job {request.name!r} needs {request.gpus_min} GPUs at once, and no site that it may run at has as "
                "many; ask for fewer, or allow more sites"
            )
        return fitting


def expanded(requests: Sequence[JobRequest]) -> list[JobRequest]:
    """Returns requests with a job for each task of those that are arrays.

    Raises:
        DataError: They are more than ``MOST_JOBS`` then.

    Example:
        >>> [each.name for each in expanded([JobRequest(name="a", work=1, tasks=2), JobRequest(name="b", work=1)])]
        ['a[0]', 'a[1]', 'b']
    """
    count = sum(1 if request.task is not None else request.tasks or 1 for request in requests)
    if count > MOST_JOBS:
        raise DataError(f"the batch has {count} jobs and tasks; it must hold 1 to {MOST_JOBS}")
    return [
        each
        for request in requests
        for each in ([request] if request.tasks is None or request.task is not None else _tasks(request, request.tasks))
    ]


def _tasks(request: JobRequest, tasks: int) -> list[JobRequest]:
    return [
        msgspec.structs.replace(
            request,
            task=n,
            name=f"{request.name[:190]}[{n}]",
            key=None if request.key is None else f"{request.key[:190]}/{n}",
        )
        for n in range(tasks)
    ]


def request_of(content: Any) -> JobRequest:
    """Returns a job from decoded JSON.

    Raises:
        DataError: A field is missing, unknown or out of range; the message names it.
    """
    try:
        return msgspec.convert(content, JobRequest)
    except msgspec.ValidationError as error:
        raise DataError(f"the job is not valid: {error}") from None
