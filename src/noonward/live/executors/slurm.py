"""An executor for a Slurm cluster, by its commands: sbatch, squeue, scontrol, scancel, and sacct where there is one."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from noonward.live.executors.commands import ran
from noonward.live.executors.environment import passed_on, working_folder
from noonward.live.executors.identity import Account, Users, put_in
from noonward.live.executors.protocol import OVER, ClusterError, Order, Phase, RefusedError, Status
from noonward.live.executors.running import PowerCaps, RunningJobs, Stopping, by_request, end_of_file
from noonward.live.executors.script import batch_script
from noonward.live.executors.slurm_words import AnsweredError, failure
from noonward.live.terms import EVERY
from noonward.units import MINUTE_S

PREFIX: Final = "nw-"
"""How the tokens of this product begin; they are the names of its jobs."""
TIMEOUT_S: Final = 30.0
"""How long a command may take, s."""
AFTER_REQUEUE_S: Final = 5
"""How long a job waits after its requeue, s. A node refuses a run whose credential is not younger, by the node's clock,
than the end of the job's last run there, and Slurm then fails the job. Slurm itself waits for two minutes."""
PHASES: Final[dict[str, Phase]] = {
    "PENDING": "queued",
    "REQUEUED": "queued",
    "REQUEUE_FED": "queued",
    "REQUEUE_HOLD": "queued",
    "SPECIAL_EXIT": "queued",
    "RESV_DEL_HOLD": "queued",
    "RUNNING": "running",
    "CONFIGURING": "running",
    "COMPLETING": "running",
    "SUSPENDED": "suspended",
    "STOPPED": "running",
    "STAGE_OUT": "running",
    "SIGNALING": "running",
    "RESIZING": "running",
    "COMPLETED": "done",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "failed",
    "TIMEOUT": "failed",
    "DEADLINE": "failed",
    "NODE_FAIL": "node-failed",
    "BOOT_FAIL": "node-failed",
    "PREEMPTED": "node-failed",
}
"""Where a job stands by Slurm's word for its state."""
DOWN: Final = re.compile(r"DOWN|DRAIN|FAIL|MAINT|UNKNOWN|NOT_RESPONDING|REBOOT|POWERED_DOWN")
"""States of nodes that run nothing new."""
GIVEN_UP: Final = ("launch failed", "JobHoldMaxRequeue")
"""How Slurm's reason begins for a job that it could not launch, or launched too often, and holds for ever."""
NEVER: Final = frozenset({"BadConstraints", "PartitionTimeLimit", "InvalidAccount", "InvalidQOS"})
"""Slurm's reasons for a job that cannot start whatever ends: no nodes are as it asks, or its limits exceed others."""
COMPLETING: Final = re.compile("completing|ending or|pending or being|transition", re.IGNORECASE)
"""Words of scontrol about a job that is just ending."""
ORDINARY: Final = frozenset({"", "None", "Resources", "Priority", "BeginTime", "Cleaning"})
"""Slurm's reasons for a job that waits for its turn."""
_log: Final = logging.getLogger("noonward.live")
NO_ACCOUNTING: Final = re.compile(r"AccountingStorageType\s*=\s*(accounting_storage/none|\(null\))")
"""What ``scontrol show config`` says where nothing keeps accounts."""
_OF_SBATCH: Final = ("SBATCH_", "SLURM_CONF")
"""How variables begin that sbatch reads itself."""
_FIELDS: Final = ("JobID", "Name", "State", "StartTime", "EndTime", "exit_code", "UserName", "Reason")


class SlurmExecutor(RunningJobs):
    """Jobs of one Slurm cluster.

    Args:
        second_of: Time of a clock, s since 1970, to s since the service's start.
        conf: Path of the cluster's ``slurm.conf``; None: as the environment says.
        clusters: Value of ``--clusters``, where one command line serves several clusters; None: the default one.
        partition: Partition; None: the default one.
        options: Further options of sbatch, e.g. ``("--account=ai", "--mem=0")``.
        chdir: Folder in which jobs run; None: the home of the user that they are of, or /tmp where it has none.
        output: File for what a job prints, as sbatch takes it; None: one named for the job's token in ``chdir``.
        environment: Variables of the service's environment that jobs get beside those of ``PASSED_ON``.
        gpus_per_node: GPUs of a node; larger gangs take as many whole nodes as they need.
        time_limit_factor: Time limit over the expected run time, of jobs that state none; None: the partition's limit.
        container: Words of the command that runs a container image, e.g. ``("apptainer", "exec", "--nv")``; none: jobs
            that name an image do not run here.
        commands: Folder of the commands; None: from the search path.
        stopping: How running jobs are told to write a checkpoint; None: they are told nothing.
        suspend_by: ``requeue``: a suspended job is put back into Slurm's queue and held there, and its GPUs are free.
            ``pause``: its processes are stopped where they are (``scontrol suspend``), and it keeps its GPUs.
        power_caps: How the power of running jobs is limited; None: it is not.
        as_user: Words before a command that is run as a job's own user, ``{user}`` among them, e.g. ``("sudo", "-n",
            "-u", "{user}", "--")``; none: all jobs are of the service's user.
        users: Whose user is who, for ``as_user``.

    Raises:
        ClusterError: sbatch is not installed.
    """

    at_once = 8
    exact_ends = False
    stopped_as = frozenset({"held"})
    fresh = False

    def __init__(
        self,
        second_of: Callable[[float], float],
        *,
        conf: Path | None = None,
        clusters: str | None = None,
        partition: str | None = None,
        options: Sequence[str] = (),
        chdir: Path | None = None,
        output: str | None = None,
        environment: Sequence[str] = (),
        gpus_per_node: int = 8,
        time_limit_factor: float | None = None,
        container: Sequence[str] = (),
        commands: Path | None = None,
        stopping: Stopping | None = None,
        suspend_by: Literal["requeue", "pause"] = "requeue",
        power_caps: PowerCaps | None = None,
        as_user: Sequence[str] = (),
        users: Users | None = None,
    ) -> None:
        self._signal = None if stopping is None else stopping.signal
        self._pauses = self.keeps_gpus = suspend_by == "pause"
        if self._pauses:
            self.stopped_as, self.levers = frozenset({"suspended"}), frozenset({"suspend"})
        self.take(stopping or Stopping(), power_caps)
        self._second_of = second_of
        self._clusters = () if clusters is None else (f"--clusters={clusters}",)
        self._partition, self._options, self._container = partition, tuple(options), tuple(container)
        self._chdir, self._output, self._as_user, self._users = chdir, output, tuple(as_user), users or Users()
        self.takes = takes_of(container)
        self._passed_on = tuple(environment)
        self._gpus_per_node = gpus_per_node
        self._factor = time_limit_factor
        self._commands = commands
        self._environment = {**os.environ, "TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}
        if conf is not None:
            self._environment["SLURM_CONF"] = str(conf)
        if commands is None and shutil.which("sbatch") is None:
            raise ClusterError(
                "sbatch is not installed here; install the Slurm client (Debian: slurm-client), or choose another "
                "executor for the site"
            )

    def find(self, order: Order) -> str | None:
        """Returns the number of the oldest job of this token that has not ended badly, or None.

        Raises:
            ClusterError: The controller, or an accounting that there is, does not answer.
        """
        found = [status for status in self._listed((order.token,)) if status.token == order.token]
        found = found or self._accounted(f"--name={order.token}", "--starttime=1970-01-02")
        if self._as_user:  # others may give their jobs any name
            found = [status for status in found if status.user == self._users.of(order)]
        found = [status for status in found if status.phase != "cancelled"] or found
        return min((status.handle for status in found), key=int, default=None)

    def submit_held(self, order: Order) -> str:
        """Submits a job with ``--hold``; its name and comment are the token."""
        script = batch_script(order, container=self._container, checkpoint_signal=self._signal)
        account = Account.of(self._users.of(order)) if self._as_user else None
        given = passed_on(self._passed_on) | dict({} if account is None else account.variables)
        folder = working_folder() if account is None else account.home
        given |= {name: value for name, value in self._environment.items() if name.startswith(_OF_SBATCH)}
        arguments = [
            "--parsable", "--hold", *(("--requeue",) if self._signal and not self._pauses else ()),
            f"--job-name={order.token}", f"--comment={order.token}", *self._clusters,
            *self._gang(order.gpus), *self._of_terms(order, self._chdir or folder),
        ]  # fmt: skip
        try:
            printed = self._call("sbatch", *arguments, given=script, environment=given, of=order)
        except AnsweredError as error:
            raise RefusedError(f"sbatch refused it: {error.words}") from error
        handle = printed.strip().split(";")[0]
        if not handle.isdigit():
            raise RefusedError(f"sbatch took it and gave it no number, but printed {printed.strip()[:200]!r}")
        return handle

    def _of_terms(self, order: Order, folder: Path) -> tuple[str, ...]:
        """Returns the options that the site states, and those of a job, which come last and so hold."""
        terms, limit = order.terms, time_limit_min(order, self._factor)
        said = {
            "partition": terms.partition or self._partition,
            "chdir": terms.workdir or folder,
            "output": terms.output or self._output or f"{folder}/%x.out",
        }
        own = {"qos": terms.qos, "account": terms.account, "time": limit}
        return (
            *(f"--{name}={value}" for name, value in said.items() if value is not None),
            *self._options,
            *(f"--{name}={value}" for name, value in own.items() if value is not None),
            *(("--exclusive",) if terms.exclusive else ()),
        )

    def printed(self, order: Order, most: int) -> bytes | None:
        """Returns the end of the file that the job prints to, where that is on a file system of this machine too.

        Files that jobs name, and those of jobs that run as other users, are not read: the service may be allowed to
        read what these are not.
        """
        if self._as_user or order.terms.output is not None:
            return None
        folder = self._chdir or working_folder()
        name = (self._output or f"{folder}/%x.out").replace("%x", order.token).replace("%j", str(order.handle))
        if "%" in name or (order.terms.workdir is not None and not Path(name).is_absolute()):
            return None
        return end_of_file(folder / name, most)

    def _gang(self, gpus: int) -> tuple[str, ...]:
        """Returns the options that ask for a gang."""
        if gpus <= self._gpus_per_node:
            return (f"--gres=gpu:{gpus}", "--nodes=1")
        nodes = -(-gpus // self._gpus_per_node)
        if gpus % self._gpus_per_node == 0:
            return (f"--nodes={nodes}", "--ntasks-per-node=1", f"--gres=gpu:{self._gpus_per_node}")
        return (f"--nodes={nodes}", f"--gpus={gpus}")

    def release(self, order: Order) -> None:
        """Releases a held job; one that was released before, or has ended, is left as it is."""
        status = self._of(order)
        if status is not None and status.phase == "held":
            self._call("scontrol", *self._clusters, "release", str(order.handle), of=order)

    def cancel(self, order: Order) -> None:
        """Cancels a job by its number."""
        if order.handle is not None:
            self._call("scancel", *self._clusters, order.handle, of=order)

    def signal(self, order: Order) -> None:
        """Sends a job's processes the signal upon which they write a checkpoint; one that waits is held instead.

        ``scancel --signal`` tries again for a minute and a half while a job waits.
        """
        if self._signal is None or self._pauses:
            return
        status = self._of(order)
        if status is not None and status.phase == "queued":
            self.stop(order)
            status = self._of(order)
        if status is not None and status.phase == "running":
            with contextlib.suppress(AnsweredError):  # it has just ended
                self._call(
                    "scancel", *self._clusters, f"--signal={self._signal}", "--full", str(order.handle), of=order
                )

    def stop(self, order: Order) -> None:
        """Puts a job back into the queue and holds it there, or stops its processes where they are.

        One that has ended stays so, unless it ended because it was told to stop; also where it ends while this is asked
        (``Incomplete``).
        """
        status = self._of(order)
        if status is None or status.phase in self.stopped_as:
            return
        told = status.phase == "failed" and by_request(status.exit_code)
        if status.phase in OVER and not told:
            return
        if self._pauses and status.phase != "running":
            return
        if self._pauses:
            how = ["suspend"]
        elif status.phase == "queued":
            how = ["hold"]
        else:
            how = ["requeuehold"] if told else ["requeuehold", "Incomplete"]
        try:
            own = None if self._pauses else order  # a pause takes an operator's rights
            self._call("scontrol", *self._clusters, *how, str(order.handle), of=own)
        except AnsweredError as error:
            after = self._of(order)
            if COMPLETING.search(error.words):
                raise
            if after is not None and after.phase != "running":
                return  # it has ended or stopped meanwhile
            raise RefusedError(f"scontrol {how[0]} refused it: {error.words}") from error

    def resume(self, order: Order) -> bool:
        """Releases a held job, or lets a stopped one run on; returns False where Slurm does not know it any more."""
        status = self._of(order)
        if status is None or status.phase in OVER:
            return False
        if status.phase == "suspended":
            self._call("scontrol", *self._clusters, "resume", str(order.handle))
        if status.phase == "held":  # a job that was requeued would wait for two minutes
            start = f"StartTime=now+{AFTER_REQUEUE_S}"
            self._call("scontrol", *self._clusters, "update", f"JobId={order.handle}", start, of=order)
        self.release(order)
        return True

    def nodes_of(self, order: Order) -> str:
        """Returns the nodes that a job runs on, as Slurm writes them."""
        text = self._call("squeue", "--noheader", *self._clusters, f"--jobs={order.handle}", "-O", "NodeList:|")
        return text.strip().rstrip("|").strip()

    def statuses(self, orders: Sequence[Order]) -> list[Status]:
        """Returns where jobs stand; of those that the controller has forgotten, what the accounting keeps.

        While the accounting does not answer, these are ``unknown``.
        """
        wanted = {order.handle: order for order in orders if order.handle is not None}
        if not wanted:
            return []
        listed = [each for each in self._listed(tuple(order.token for order in orders)) if each.handle in wanted]
        missing = [handle for handle in wanted if handle not in {each.handle for each in listed}]
        # The accounting may have lost the job's name, which is the token; the number is the job's own.
        try:
            kept = [replace(each, token=wanted[each.handle].token) for each in self.accounted(missing)]
        except ClusterError as error:
            _log.warning("%d jobs that the controller has forgotten stay open: %s", len(missing), error)
            kept = [
                Status(token=wanted[handle].token, handle=handle, phase="unknown", reason=str(error))
                for handle in missing
            ]
        return listed + kept

    def strays(self) -> list[Order]:
        """Returns the held jobs whose names are tokens of this product."""
        return [
            Order(token=each.token, job=-1, name="", command="", gpus=0, run_s=0.0, start_s=0.0, handle=each.handle,
                  user=each.user)
            for each in self._listed(())
            if each.phase == "held"
        ]  # fmt: skip

    def usable_gpus(self, running_gpus: int) -> int | None:
        """Returns the GPUs of nodes that are up, less those that jobs of others hold."""
        nodes = self._nodes()
        used = sum(gpus_of(fields.get("GresUsed", "")) for fields in nodes)
        total = sum(gpus_of(fields.get("Gres", "")) for fields in nodes if not _is_down(fields))
        return max(0, total - max(0, used - running_gpus))

    def up_gpus(self) -> int:
        """Returns the GPUs of nodes that are up."""
        return sum(gpus_of(fields.get("Gres", "")) for fields in self._nodes() if not _is_down(fields))

    def listing(self, fields: Sequence[str]) -> str:
        """Returns the jobs that the controller knows, of all owners, ended ones included, as ``squeue -O`` lists them.

        Times are in s since 1970; tasks of arrays have rows of their own.
        """
        wanted = ",".join(f"{field}:|" for field in fields)
        return self._call("squeue", "--states=all", "--array", *self._clusters, "-O", wanted)

    def _nodes(self) -> list[dict[str, str]]:
        text = self._call("scontrol", *self._clusters, "--oneliner", "--details", "show", "node")
        return [dict(part.split("=", 1) for part in line.split() if "=" in part) for line in text.splitlines()]

    def _of(self, order: Order) -> Status | None:
        return next((each for each in self._listed((order.token,)) if each.handle == order.handle), None)

    def _listed(self, tokens: tuple[str, ...]) -> list[Status]:
        """Returns the jobs that the controller knows, all of this product or those of some tokens."""
        named = (f"--name={','.join(tokens)}",) if 0 < len(tokens) <= 500 else ()
        fields = ",".join(f"{field}:|" for field in _FIELDS)
        text = self._call("squeue", "--noheader", "--states=all", *self._clusters, *named, "-O", fields)
        rows = (line.rstrip("|").split("|", 7) for line in text.splitlines() if f"|{PREFIX}" in line)
        return [
            self._status(handle, token, state, began, ended, wait_code(code), user, reason)
            for handle, token, state, began, ended, code, user, reason in rows
        ]

    def _status(
        self, handle: str, token: str, state: str, began: str, ended: str, code: int | None, user: str, reason: str
    ) -> Status:
        phase = phase_of(state, reason)
        over = phase in OVER
        return Status(
            token=token,
            handle=handle,
            phase=phase,
            began_s=None if phase in ("held", "queued") else self._time(began),
            ended_s=self._time(ended) if over else None,
            exit_code=code if phase in ("done", "failed") else None,
            reason=waiting_reason(phase, state, reason),
            user=user,
        )

    def accounted(self, handles: Sequence[str]) -> list[Status]:
        """Returns what the accounting says of jobs by their numbers; none where there is no accounting.

        Raises:
            ClusterError: It does not answer.
        """
        return self._accounted(f"--jobs={','.join(handles)}") if handles else []

    def _accounted(self, *which: str) -> list[Status]:
        """Returns what the accounting says of some jobs; none where there is no accounting."""
        try:
            text = self._call(
                "sacct", "-n", "-P", "-X", *self._clusters, *which,
                "--format=JobIDRaw,JobName,State,Start,End,ExitCode,User",
            )  # fmt: skip
        except ClusterError:
            if NO_ACCOUNTING.search(self._call("scontrol", *self._clusters, "show", "config")):
                return []
            raise
        rows = (line.split("|") for line in text.splitlines() if line.count("|") == 6)
        return [
            self._status(handle, name, state.split()[0], began, ended, colon_code(code), user, f"exit code {code}")
            for handle, name, state, began, ended, code, user in rows
        ]

    def _time(self, text: str) -> float | None:
        if not re.fullmatch(r"\d+", text):
            return None
        return self._second_of(float(text))

    def _call(
        self,
        command: str,
        *arguments: str,
        given: str = "",
        environment: Mapping[str, str] | None = None,
        of: Order | None = None,
    ) -> str:
        """Runs a command of Slurm and returns what it printed.

        Args:
            command: Its name.
            arguments: Its arguments.
            given: What it reads.
            environment: Its environment; None: that of all commands.
            of: Job that it is about: it is run as the job's user, where jobs have users of their own.

        Raises:
            ClusterError: It is missing, failed or took too long.
        """
        path = command if self._commands is None else str(self._commands / command)
        before = put_in(self._as_user, self._users.of(of)) if of is not None and self._as_user else ()
        try:
            code, printed, complaint = ran(
                [*before, path, *arguments], given, environment or self._environment, TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ClusterError(f"{command} did not answer: {error}") from error
        if code:
            words = _words_of(command, complaint or printed)
            raise failure(f"{command} failed with exit code {code}: {words}", words)
        return printed


def _words_of(command: str, printed: str) -> str:
    """Returns what a command said of its failure, without its name, on one line."""
    lines = (line.removeprefix(f"{command}: ").removeprefix("error: ") for line in printed.splitlines())
    return "; ".join(line.strip() for line in lines if line.strip())[:500] or "no message"


def _is_down(fields: Mapping[str, str]) -> bool:
    """Returns whether a node runs nothing new."""
    return DOWN.search(fields.get("State", "UNKNOWN")) is not None


def phase_of(state: str, reason: str) -> Phase:
    """Returns where a job stands by Slurm's words for its state and the reason why it waits.

    Example:
        >>> phase_of("PENDING", "Resources"), phase_of("PENDING", "JobHeldUser"), phase_of("RUNNING", "None")
        ('queued', 'held', 'running')
        >>> phase_of("PENDING", "launch failed requeued held"), phase_of("PENDING", "job requeued in held state")
        ('node-failed', 'held')
        >>> phase_of("PENDING", "BadConstraints")
        'node-failed'
    """
    phase = PHASES.get(state, "running")
    if phase != "queued":
        return phase
    if reason.startswith(GIVEN_UP) or reason in NEVER:
        return "node-failed"
    return "held" if reason.startswith("JobHeld") or reason.endswith("held state") else "queued"


def waiting_reason(phase: Phase, state: str, reason: str) -> str:
    """Returns the reason that is shown of a job; none of one that waits for its turn.

    Example:
        >>> waiting_reason("queued", "PENDING", "Priority"), waiting_reason("queued", "PENDING", "QOSMaxGRESPerUser")
        ('', 'QOSMaxGRESPerUser')
        >>> waiting_reason("done", "COMPLETED", "None")
        'COMPLETED'
    """
    if phase == "queued" and reason in ORDINARY:
        return ""
    return reason if reason != "None" else state


def time_limit_min(order: Order, factor: float | None) -> int | None:
    """Returns the time limit that Slurm is told, whole minutes; None: the partition's.

    Args:
        order: The job; a limit that it states itself goes first.
        factor: Time limit over the expected run time; None: none.
    """
    limit_s = order.terms.time_limit_s
    if limit_s is None and factor is not None:
        limit_s = order.run_s * factor
    return None if limit_s is None else max(1, int(-(-limit_s // MINUTE_S)))


def takes_of(container: Sequence[str]) -> frozenset[str]:
    """Returns the terms that a Slurm cluster takes: images where it has a command that runs them."""
    return EVERY if container else EVERY - {"image"}


def wait_code(text: str) -> int | None:
    """Returns the exit code in a status as ``wait`` gives it; 128 and its number for a signal, None for no number.

    Example:
        >>> wait_code("768"), wait_code("9"), wait_code("0"), wait_code("N/A")
        (3, 137, 0, None)
    """
    if not text.isdigit():
        return None
    status = int(text)
    return 128 + status % 128 if status % 128 else status // 256


def colon_code(text: str) -> int | None:
    """Returns the exit code that sacct writes as CODE:SIGNAL; 128 and its number for a signal.

    Example:
        >>> colon_code("3:0"), colon_code("0:9"), colon_code("")
        (3, 137, None)
    """
    found = re.fullmatch(r"(\d+):(\d+)", text)
    if found is None:
        return None
    return 128 + int(found[2]) if int(found[2]) else int(found[1])


def gpus_of(text: str) -> int:
    """Returns the GPUs that a value of Gres or GresUsed names.

    Example:
        >>> gpus_of("gpu:h100:8(S:0-1)"), gpus_of("gpu:h100:2(IDX:0-1),shard:0"), gpus_of("(null)")
        (8, 2, 0)
    """
    return sum(int(count) for count in re.findall(r"gpu(?::[^:,(]+)?:(\d+)", text))
