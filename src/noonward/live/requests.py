"""What a job is submitted as, and its check against the fleet."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from typing import Annotated, Any, Final, NamedTuple

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
_NOWHERE: Final[frozenset[int]] = frozenset()


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


class JobRow(NamedTuple):
    """A checked job: the columns of table ``jobs`` that it fills, then whose job it is and what it comes after."""

    key: str | None
    digest: bytes
    """Of what was asked, to know a second request of the key by; empty without a key."""
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
    priority: int
    run_by: str = ""
    """Whose job it is, for what is learned of run times; empty: who submits it."""
    after: tuple[int, ...] = ()


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
        self._sites, self._classes, self._ingress = map(_numbers, (self.sites, self.classes, self.ingress))
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
        if "\x00" in request.name or "\x00" in request.command or "\x00" in (request.key or ""):
            raise DataError(f"job {request.name!r}: its name, command or key holds a NUL character; leave it out")
        class_ = self._index("class", request.class_, self._classes)
        origin = self._index("origin", request.origin, self._ingress)
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
        pinned = -1 if request.site is None else self._index("site", request.site, self._sites)
        vetoed = _NOWHERE
        if request.not_sites:
            vetoed = frozenset(self._index("not_sites", site, self._sites) for site in request.not_sites)
        fitting = self._fitting(request, class_, pinned, vetoed)
        asked = stated(request)
        if asked or request.task is not None:
            require_valid(request, f"job {request.name!r}")
        if asked:
            vetoed |= self._unable(request, asked, fitting)
        stored = request
        if request.key is not None or "\r" in request.command:
            # Browsers and editors of Windows end lines with CR LF, which shells and sbatch refuse.
            command = request.command.replace("\r\n", "\n").replace("\r", "\n")
            stored = msgspec.structs.replace(request, key=None, command=command)
        content = self._encode(stored)
        max_delay_s = request.max_delay_s
        if request.deadline_s is not None:
            max_delay_s = self._max_delay_s(request, request.deadline_s, class_, most, fitting - vetoed)
        return JobRow(
            key=request.key,
            digest=b"" if request.key is None else hashlib.blake2b(content, digest_size=16).digest(),
            name=request.name,
            request=content,
            held=int(request.held),
            pinned=request.site,
            vetoed=msgspec.json.encode([self.sites[s] for s in sorted(vetoed)]).decode() if vetoed else "[]",
            origin=self.ingress[origin],
            class_=self.classes[class_],
            gpus_min=request.gpus_min,
            gpus_max=most,
            work=float(request.work),
            max_delay_s=None if max_delay_s is None else float(max_delay_s),
            move_gb=request.data_gb + request.model_gb,
            result_gb=float(request.result_gb),
            retries=request.retries,
            priority=self._priority(request, self.classes[class_]),
            after=request.after,
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

    def _index(self, what: str, name: str | None, known: Mapping[str, int]) -> int:
        index = known.get(name) if name is not None else 0 if len(known) == 1 else None
        if index is not None:
            return index
        if name is None:
            raise DataError(f"{what} is missing; give one of {', '.join(known)}")
        raise DataError(f"{what} {name!r} is unknown; {nearest(name, tuple(known))}")

    def _unable(self, request: JobRequest, asked: frozenset[str], fitting: Set[int]) -> frozenset[int]:
        """Returns the sites whose executors cannot pass on the terms that a job states.

        Raises:
            DataError: They are all that the job fits into.
        """
        unable = frozenset(s for s, takes in enumerate(self._takes_S) if asked - takes)
        if not fitting - unable:
            lacking = sorted({name for s in fitting for name in asked - self._takes_S[s]})
            raise DataError(
                f"job {request.name!r} states {', '.join(lacking)}, which no cluster that it may run at takes; leave "
                "it out, or allow more sites (docs/live-jobs.md says which executors take what)"
            )
        return unable

    def _max_delay_s(self, request: JobRequest, deadline_s: float, class_: int, most: int, sites: Set[int]) -> float:
        """Returns the longest time from submission to start that keeps a job's delay and its deadline, s.

        Args:
            request: The job.
            deadline_s: Time from submission by which it ends, s.
            class_: Number of its class.
            most: Its largest gang, GPUs.
            sites: Sites that it may run at.

        Raises:
            DataError: It would have to start before it is submitted.
        """
        longest_s = request.work * float(
            np.nanmax(self._seconds_SCGF[sorted(sites), class_, request.gpus_min : most + 1])
        )
        left_s = deadline_s - longest_s
        if left_s < 0:
            raise DataError(
                f"job {request.name!r} has deadline_s {deadline_s:g}, and may run for {longest_s:.0f} s on its "
                "fewest GPUs at the lowest clock of a site that it may run at; give more time or GPUs, or fewer sites"
            )
        return left_s if request.max_delay_s is None else min(left_s, request.max_delay_s)

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


def _numbers(names: Sequence[str]) -> dict[str, int]:
    return {name: n for n, name in enumerate(names)}


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
