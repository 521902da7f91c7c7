"""What executors do with running jobs: settings that all share, and those that can do nothing."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from noonward.live.executors.commands import ran
from noonward.live.executors.protocol import ClusterError, Order, Phase, RefusedError
from noonward.model.cluster.freedom import Lever

Signal = Literal["USR1", "USR2", "TERM", "INT", "HUP"]
"""Signals upon which commands may write a checkpoint."""
STOPS: Final[frozenset[Lever]] = frozenset({"suspend", "resize", "preempt"})
"""What an executor can do that stops jobs and starts them again."""
EVERY_LEVER: Final[frozenset[Lever]] = frozenset(get_args(Lever))
"""Everything that may be done with running jobs."""
CHECKPOINTED: Final = 85
"""Exit code of a command that wrote its checkpoint when it was told to stop, and is to be run again."""
SIGNALLED: Final = 128
"""Exit codes above this are those of signals."""
TIMEOUT_S: Final = 30.0
"""How long the command that sets a power cap may take, s."""


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """How a site stops running jobs.

    Attributes:
        signal: Signal upon which a command writes its checkpoint; None: it is told nothing.
        grace_s: How long it may take for that before it is stopped, s.
    """

    signal: Signal | None = None
    grace_s: float = 120.0

    @property
    def wait_s(self) -> float:
        """How long a job is waited for, s."""
        return 0.0 if self.signal is None else self.grace_s


@dataclass(frozen=True, kw_only=True)
class PowerCaps:
    """How a site limits the power of a running job's GPUs: by a command on the service's machine.

    Attributes:
        command: Words of the command; ``{watts}`` (per GPU), ``{share}``, ``{nodes}``, ``{job}``, ``{token}`` and
            ``{gpus}`` are filled in.
        full_w: Power limit of a GPU without a cap, W.
    """

    command: tuple[str, ...]
    full_w: float

    def set(self, order: Order, share: float, nodes: str) -> None:
        """Limits the power of a job's GPUs to a share of full power; 1 takes the limit off. It may be repeated.

        Args:
            order: The job.
            share: Share of full power.
            nodes: Nodes that it runs on, as the cluster names them.

        Raises:
            ClusterError: The command failed; it is tried again.
        """
        values = {"watts": f"{share * self.full_w:.0f}", "share": f"{share:g}", "nodes": nodes, "gpus": order.gpus}
        words = [word.format(**values, job=order.handle, token=order.token) for word in self.command]
        try:
            code, printed, complaint = ran(words, "", os.environ, TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ClusterError(f"the power cap of job {order.job} cannot be set: {error}") from error
        if code:
            said = (complaint or printed).strip()[:300]
            raise ClusterError(f"{words[0]} failed to set the power cap of job {order.job}: {said or 'no message'}")


class RunningJobs:
    """The part of an executor that is about running jobs; this one ends jobs to stop them and starts them again.

    It cannot read what they print.

    Attributes:
        levers: What it can do with running jobs.
        stopped_as: Where a job stands that was to be suspended and has stopped.
        fresh: Whether a resumption is a new submission; else the cluster keeps the stopped job.
        keeps_gpus: Whether a stopped job keeps its GPUs.
        grace_s: How long a job is waited for after it was told to stop, s.
    """

    levers: frozenset[Lever] = STOPS
    stopped_as: frozenset[Phase] = frozenset({"cancelled"})
    fresh = True
    keeps_gpus = False
    grace_s = 0.0
    power_caps: PowerCaps | None = None

    def take(self, stopping: Stopping, power_caps: PowerCaps | None) -> None:
        """Takes over how its site stops jobs and limits their power."""
        self.grace_s = stopping.wait_s
        self.power_caps = power_caps
        if power_caps is not None:
            self.levers = self.levers | {"cap"}

    def cancel(self, order: Order) -> None:
        """Ends a job."""
        raise NotImplementedError

    def signal(self, order: Order) -> None:
        """Tells a job to write its checkpoint; it may be told twice after a crash."""

    def stop(self, order: Order) -> None:
        """Stops a job; does nothing if it has stopped or ended.

        Raises:
            RefusedError: The cluster does not stop it.
        """
        self.cancel(order)

    def resume(self, order: Order) -> bool:
        """Lets a stopped job run again; returns False where it has to be submitted again."""
        return False

    def cap(self, order: Order, share: float) -> str:
        """Limits a job's power to a share of full power, 1 for no limit; returns the nodes that it runs on.

        Raises:
            RefusedError: The site has no command for it.
        """
        if self.power_caps is None:
            raise RefusedError("the site states no power_cap command")
        nodes = order.nodes or self.nodes_of(order)
        self.power_caps.set(order, share, nodes)
        return nodes

    def printed(self, order: Order, most: int) -> bytes | None:
        """Returns the end of what a job has printed, ``most`` bytes; None where the service cannot read it."""
        return None

    def nodes_of(self, order: Order) -> str:
        """Returns the nodes that a job runs on, as its cluster names them; empty where it does not say."""
        return ""


def by_request(exit_code: int | None) -> bool:
    """Returns whether a command that was told to stop ended because of it: by its exit code, or by a signal."""
    return exit_code is not None and (exit_code == CHECKPOINTED or exit_code > SIGNALLED)


def end_of_file(path: Path, most: int) -> bytes | None:
    """Returns the last bytes of a plain file; None where it cannot be read.

    A link is not followed: a job may have put it there, and what it may not read itself is not read for it.
    """
    try:
        place = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    about = os.fstat(place)
    if not stat.S_ISREG(about.st_mode):
        os.close(place)
        return None
    with os.fdopen(place, "rb") as file:
        file.seek(max(0, about.st_size - most))
        return file.read(most)


def missing_levers(levers: Sequence[Lever], able: frozenset[Lever]) -> list[Lever]:
    """Returns what is wanted and cannot be done."""
    return [lever for lever in levers if lever not in able]
