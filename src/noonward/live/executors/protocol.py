"""What every executor does: jobs are submitted held, released, cancelled and listed; a token names each attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from noonward.errors import NoonwardError
from noonward.live.terms import NONE, Terms
from noonward.model.cluster.freedom import Lever

Phase = Literal["held", "queued", "running", "done", "failed", "cancelled", "node-failed", "suspended", "unknown"]
"""Where a job stands at its cluster; ``node-failed``: the cluster failed under it, not the job itself; ``unknown``: the
cluster cannot say now, and may say later; ``suspended``: its processes are stopped and keep their memory."""
OVER: Final[tuple[Phase, ...]] = ("done", "failed", "cancelled", "node-failed")
"""Phases of a job that has ended."""


class ClusterError(NoonwardError):
    """A cluster did not answer or refused; nothing is known to have changed there."""


class RefusedError(ClusterError):
    """A cluster answered that it does not take a job, and would not later: the job has failed, the site has not."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a cluster is asked to run.

    Attributes:
        token: Unique name of this attempt; the cluster keeps it with the job.
        job: Number of the job.
        name: Its name.
        command: What is run, by a POSIX shell.
        gpus: Gang, GPUs.
        run_s: Run time that the model expects by the work that was stated, s.
        start_s: Start that was decided, s since the service's start.
        handle: The cluster's own name of the job, once it is known.
        terms: What else it asks of its cluster.
        finish_s: When its present run ends by the model, where it may be suspended or capped, s; None:
            ``start_s + run_s``.
        gpus_before: GPUs that the cluster was asked for; None: not known.
        nodes: Nodes whose power was limited for it, as the cluster names them.
        owner: Name of the token that it was submitted with; empty: none.
        user: User that the cluster says it is of; empty: as its owner's (``noonward.live.executors.identity``).
    """

    token: str
    job: int
    name: str
    command: str
    gpus: int
    run_s: float
    start_s: float
    handle: str | None = None
    terms: Terms = NONE
    finish_s: float | None = None
    gpus_before: int | None = None
    nodes: str = ""
    owner: str = ""
    user: str = ""


@dataclass(frozen=True, kw_only=True)
class Status:
    """What a cluster says about a job.

    Attributes:
        token: Token of the attempt.
        handle: The cluster's own name of the job.
        phase: Where it stands.
        began_s: When it began to run, s since the service's start, by the cluster's clock; None: not yet or unknown.
        ended_s: When it ended.
        exit_code: Exit code of its command, if known.
        reason: Reason that the cluster gives; empty for a job that waits for its turn there.
        user: User that it is of there; empty: not known.
    """

    token: str
    handle: str
    phase: Phase
    began_s: float | None = None
    ended_s: float | None = None
    exit_code: int | None = None
    reason: str = ""
    user: str = ""


class Executor(Protocol):
    """Runs jobs at one site. Every method may be called again after a crash, and raises ClusterError.

    A job passes on without loss or doubling by five steps: the token is stored; after a crash it is looked up with
    ``find``; ``submit_held``; the handle is stored; ``release``.
    """

    at_once: int
    """Jobs that it may hand over side by side."""
    takes: frozenset[str]
    """Terms of jobs that it can pass on (``noonward.live.terms``); jobs that state others do not run there."""
    levers: frozenset[Lever]
    """What it can do with running jobs; ``executors.running.RunningJobs`` says what the rest is."""
    stopped_as: frozenset[Phase]
    fresh: bool
    keeps_gpus: bool
    grace_s: float
    exact_ends: bool
    """Whether its times of ending are those of the model, so that they may lie before they are noticed."""

    def find(self, order: Order) -> str | None:
        """Returns the handle of a job of this token, held or not, or None."""

    def submit_held(self, order: Order) -> str:
        """Submits a job that does not run before its release; returns its handle.

        Raises:
            RefusedError: The cluster does not take this job, for a reason of its own.
        """

    def release(self, order: Order) -> None:
        """Lets a job run; does nothing if that was done before.

        Raises:
            RefusedError: The cluster takes jobs by their release alone, and does not take this one.
        """

    def cancel(self, order: Order) -> None:
        """Ends a job, or keeps it from starting; does nothing if it has ended."""

    def signal(self, order: Order) -> None:
        """Tells a job to write its checkpoint."""

    def stop(self, order: Order) -> None:
        """Stops a job so that it can be resumed; does nothing if it has stopped or ended."""

    def resume(self, order: Order) -> bool:
        """Lets a stopped job run again; returns False where it has to be submitted again."""

    def cap(self, order: Order, share: float) -> str:
        """Limits a job's power to a share of full power; returns the nodes that it runs on."""

    def statuses(self, orders: Sequence[Order]) -> list[Status]:
        """Returns what is known about jobs; one that the cluster does not know is left out."""

    def printed(self, order: Order, most: int) -> bytes | None:
        """Returns the end of what a job has printed; None where the service cannot read it.

        Args:
            order: The job.
            most: How much, bytes.
        """

    def strays(self) -> list[Order]:
        """Returns the held jobs of this service at the cluster, whether or not it knows them."""

    def usable_gpus(self, running_gpus: int) -> int | None:
        """Returns the GPUs that the service may use now; None: all that are configured.

        Args:
            running_gpus: GPUs that its own jobs hold there by its books; the answer includes them.
        """
