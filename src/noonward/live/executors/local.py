"""An executor that runs jobs as processes of this machine; they outlive the service."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from noonward.errors import FileError
from noonward.files import write_text
from noonward.live.executors.environment import job_environment
from noonward.live.executors.protocol import ClusterError, Order, Phase, Status
from noonward.live.executors.running import PowerCaps, RunningJobs, Stopping, end_of_file

_RUNNER: Final = """
command -p mkdir "$1/claimed" 2>/dev/null || exit 0
trap : USR1 USR2 TERM INT HUP
echo $$ $3 > "$1/pid.part" && command -p mv "$1/pid.part" "$1/pid"
( cd "$4" && exec /bin/sh -c "$2" ) > "$5" 2>&1
echo $? > "$1/exit.part" && command -p mv "$1/exit.part" "$1/exit"
"""
"""Runs a command once: whoever makes the folder ``claimed`` first runs it, every other runner ends at once.

The PATH is the job's, so the runner finds its own commands by ``command -p``."""
_START: Final = '/bin/sh -c "$1" noonward "$2" "$3" $$ "$4" "$5" < /dev/null > /dev/null 2>&1 &'
"""Starts a runner that is no child of the service; its process group is that of the shell which started it."""
CLAIM_S: Final = 60.0
"""A job that was released so long ago and not claimed, or claimed and named no process, is taken for dead, s."""


class LocalExecutor(RunningJobs):
    """Runs each job in a session of its own, with a folder named for its token.

    Files of a job: ``order.json`` (it is known, and held), ``released``, ``claimed`` (a runner has it), ``pid``,
    ``output`` (unless it names another file), ``exit`` (its exit code), ``cancelled``.

    Args:
        folder: Folder of the jobs' folders; one per site.
        second_of: Time of the machine, s since 1970, to s since the service's start.
        environment: Variables of the service's environment that jobs get beside those of ``PASSED_ON``.
        stopping: How running jobs are told to write a checkpoint; None: they are told nothing.
        power_caps: How their power is limited; None: it is not.
    """

    at_once = 1
    takes = frozenset({"environment", "workdir", "output"})
    exact_ends = False

    def __init__(
        self,
        folder: Path,
        second_of: Callable[[float], float],
        *,
        environment: Sequence[str] = (),
        stopping: Stopping | None = None,
        power_caps: PowerCaps | None = None,
    ) -> None:
        self.folder, self._passed_on = folder, tuple(environment)
        self._signal = None if stopping is None else stopping.signal
        self.take(stopping or Stopping(), power_caps)
        self._second_of = second_of
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, order: Order) -> str | None:
        """Returns the token if the job's order is on the disk."""
        return order.token if (self.folder / order.token / "order.json").is_file() else None

    def submit_held(self, order: Order) -> str:
        """Writes the job's order; nothing runs yet."""
        content = {"job": order.job, "name": order.name, "command": order.command, "gpus": order.gpus}
        try:
            write_text(self.folder / order.token / "order.json", json.dumps(content))
        except FileError as error:
            raise ClusterError(f"the order of job {order.job} cannot be written: {error}") from error
        return order.token

    def release(self, order: Order) -> None:
        """Starts a runner, unless the job was claimed or cancelled before."""
        place, terms = self.folder / order.token, order.terms
        if (place / "claimed").exists() or (place / "cancelled").exists():
            return
        workdir = terms.workdir or "."
        output = place / "output" if terms.output is None else Path(workdir) / terms.output
        try:
            (place / "released").touch()
            subprocess.run(
                ["/bin/sh", "-c", _START, "noonward", _RUNNER, str(place), order.command or ":", workdir, str(output)],
                check=True,
                start_new_session=True,
                env=job_environment(order, self._passed_on),
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise ClusterError(f"job {order.job} could not be started: {error}") from error

    def cancel(self, order: Order) -> None:
        """Ends a job's processes; one that has not been claimed never runs."""
        place = self.folder / order.token
        if (place / "exit").exists() or not place.is_dir():
            return
        (place / "cancelled").touch()
        with contextlib.suppress(FileExistsError):
            (place / "claimed").mkdir()
            return
        with contextlib.suppress(OSError, ValueError):
            os.killpg(int((place / "pid").read_text().split()[1]), signal.SIGKILL)

    def signal(self, order: Order) -> None:
        """Sends a job's processes the signal upon which they write a checkpoint."""
        if self._signal is not None:
            with contextlib.suppress(OSError, ValueError):
                pid = int((self.folder / order.token / "pid").read_text().split()[1])
                os.killpg(pid, getattr(signal, f"SIG{self._signal}"))

    def nodes_of(self, order: Order) -> str:
        """Returns the name of this machine."""
        return "localhost"

    def statuses(self, orders: Sequence[Order]) -> list[Status]:
        """Returns where each job stands by its files."""
        return [self._status(order) for order in orders if (self.folder / order.token / "order.json").is_file()]

    def _status(self, order: Order) -> Status:
        place = self.folder / order.token
        phase: Phase = "held"
        ended_s = exit_code = None
        reason = ""
        began_s = self._time(place / "claimed")
        if (place / "exit").exists():
            exit_code = int((place / "exit").read_text())
            phase, ended_s = "done" if exit_code == 0 else "failed", self._time(place / "exit")
        elif (place / "cancelled").exists():
            phase, ended_s = "cancelled", self._time(place / "cancelled")
        elif (place / "claimed").exists():
            phase = "running" if _lives(place / "pid") else "node-failed"
            if phase == "node-failed" and (place / "exit").exists():
                return self._status(order)  # it ended between both looks
            reason = "its process ended without an exit code" if phase == "node-failed" else ""
        elif (place / "released").exists():
            phase = "queued" if time.time() - (place / "released").stat().st_mtime < CLAIM_S else "node-failed"
            reason = f"no process began to run it within {CLAIM_S:g} s" if phase == "node-failed" else ""
        return Status(
            token=order.token, handle=order.token, phase=phase, began_s=began_s, ended_s=ended_s, exit_code=exit_code,
            reason=reason,
        )  # fmt: skip

    def printed(self, order: Order, most: int) -> bytes | None:
        """Returns the end of the job's output file; None where the job names another one."""
        return end_of_file(self.folder / order.token / "output", most) if order.terms.output is None else None

    def strays(self) -> list[Order]:
        """Returns none: a job that was written and not recorded has the token that is looked up first."""
        return []

    def usable_gpus(self, running_gpus: int) -> int | None:
        """Returns None: all GPUs of the site."""
        return None

    def _time(self, path: Path) -> float | None:
        try:
            return self._second_of(path.stat().st_mtime)
        except FileNotFoundError:
            return None


def _lives(pid_file: Path) -> bool:
    """Returns whether the process that a file names runs; one that has just been claimed has no file yet."""
    try:
        pid = int(pid_file.read_text().split()[0])
    except FileNotFoundError:
        return time.time() - (pid_file.parent / "claimed").stat().st_mtime < CLAIM_S
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, IndexError, ProcessLookupError):
        return False
    return state != "Z"
