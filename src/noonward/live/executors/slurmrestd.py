"""An executor for a Slurm cluster by its HTTP interface, slurmrestd (version 0.0.38, Slurm 22.05)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from noonward.live.executors.environment import job_environment
from noonward.live.executors.identity import Users, put_in
from noonward.live.executors.protocol import OVER, ClusterError, Order, RefusedError, Status
from noonward.live.executors.running import PowerCaps, RunningJobs, Stopping
from noonward.live.executors.script import batch_script
from noonward.live.executors.slurm import (
    DOWN,
    PHASES,
    PREFIX,
    gpus_of,
    phase_of,
    takes_of,
    time_limit_min,
    wait_code,
    waiting_reason,
)
from noonward.live.executors.slurm_words import AnsweredError, failure
from noonward.live.executors.web import ClusterWeb

_BASE: Final = "/slurm/v0.0.38"


class SlurmRestExecutor(RunningJobs):
    """Jobs of one Slurm cluster, as ``SlurmExecutor`` without its commands.

    Args:
        second_of: Time of a clock, s since 1970, to s since the service's start.
        web: slurmrestd, by a socket (``rest_auth/local``) or with a token (``rest_auth/jwt``).
        partition: Partition; None: the default one.
        fields: Further fields of a submission, e.g. ``{"account": "ai"}``.
        gpus_per_node: GPUs of a node; larger gangs take as many nodes as they need, each the same number of GPUs.
        time_limit_factor: Time limit over the expected run time, of jobs that state none; None: the partition's limit.
        container: Words of the command that runs a container image; none: jobs that name an image do not run here.
        stopping: How running jobs are told to write a checkpoint; None: they are told nothing. This interface requeues
            no jobs, so a job is cancelled and submitted again.
        power_caps: How their power is limited; None: it is not.
        user_token_file: File with the token of a job's own user, ``{user}`` in its path: jobs are submitted, released
            and cancelled with it, and so are that user's; None: all jobs are of the user that ``web`` asks as.
        users: Whose user is who, for ``user_token_file``.
    """

    at_once = 8
    exact_ends = False

    def __init__(
        self,
        second_of: Callable[[float], float],
        web: ClusterWeb,
        *,
        partition: str | None = None,
        fields: Mapping[str, Any] | None = None,
        gpus_per_node: int = 8,
        time_limit_factor: float | None = None,
        container: Sequence[str] = (),
        stopping: Stopping | None = None,
        power_caps: PowerCaps | None = None,
        user_token_file: str | None = None,
        users: Users | None = None,
    ) -> None:
        self._signal = None if stopping is None else stopping.signal
        self.take(stopping or Stopping(), power_caps)
        self._second_of, self._web = second_of, web
        self._partition, self._fields = partition, dict(fields or {})
        self._gpus_per_node, self._factor = gpus_per_node, time_limit_factor
        self._container, self.takes = tuple(container), takes_of(container)
        self._user_token_file, self._users = user_token_file, users or Users()

    def find(self, order: Order) -> str | None:
        """Returns the number of the oldest job of this token that was not cancelled, or None."""
        found = [each for each in self._jobs() if each["name"] == order.token]
        if self._user_token_file is not None:  # others may give their jobs any name
            found = [each for each in found if each.get("user_name") == self._users.of(order)]
        found = [each for each in found if PHASES.get(each["job_state"]) != "cancelled"] or found
        return str(min(int(each["job_id"]) for each in found)) if found else None

    def submit_held(self, order: Order) -> str:
        """Submits a job that is held; its name and comment are the token."""
        nodes = -(-order.gpus // self._gpus_per_node)
        job: dict[str, Any] = {
            "name": order.token,
            "comment": order.token,
            "hold": True,
            "nodes": nodes,
            "gres": f"gpu:{-(-order.gpus // nodes)}",
            "environment": job_environment(order, of={"PATH": "/usr/local/bin:/usr/bin:/bin"}),
            "current_working_directory": "/tmp",
            "standard_output": f"/tmp/{order.token}.out",
        } | self._fields
        if nodes > 1:
            job["tasks_per_node"] = 1
        terms = order.terms
        own = {
            "partition": terms.partition or self._partition,
            "time_limit": time_limit_min(order, self._factor),
            "current_working_directory": terms.workdir,
            "standard_output": terms.output,
            "qos": terms.qos,
            "account": terms.account,
            "exclusive": "exclusive" if terms.exclusive else None,
        }
        job |= {name: value for name, value in own.items() if value is not None}
        script = batch_script(order, {}, self._container, self._signal)
        try:
            return str(self._call("POST", "/job/submit", {"script": script, "job": job}, order)["job_id"])
        except AnsweredError as error:
            raise RefusedError(str(error)) from error

    def release(self, order: Order) -> None:
        """Releases a held job; one that was released before, or has ended, is left as it is."""
        said = next((each for each in self._jobs() if str(each["job_id"]) == order.handle), None)
        if said is not None and self._status(said).phase == "held":
            self._call("POST", f"/job/{order.handle}", {"hold": False}, order)

    def cancel(self, order: Order) -> None:
        """Cancels a job by its number; one that has ended is left as it is."""
        said = next((each for each in self._jobs() if str(each["job_id"]) == order.handle), None)
        if said is not None and PHASES.get(said["job_state"], "running") in ("queued", "running", "suspended"):
            self._call("DELETE", f"/job/{order.handle}", of=order)

    def signal(self, order: Order) -> None:
        """Sends a job the signal upon which it writes a checkpoint."""
        if self._signal is not None:
            with contextlib.suppress(AnsweredError):  # it has just ended
                self._call("DELETE", f"/job/{order.handle}", of=order, query={"signal": self._signal})

    def nodes_of(self, order: Order) -> str:
        """Returns the nodes that a job runs on, as Slurm writes them."""
        said = next((each for each in self._jobs() if str(each["job_id"]) == order.handle), {})
        return str(said.get("nodes") or "")

    def statuses(self, orders: Sequence[Order]) -> list[Status]:
        """Returns where jobs stand."""
        wanted = {order.handle for order in orders if order.handle is not None}
        return [self._status(each) for each in self._jobs() if str(each["job_id"]) in wanted]

    def strays(self) -> list[Order]:
        """Returns the held jobs whose names are tokens of this product."""
        held = [each for each in map(self._status, self._jobs()) if each.phase == "held"]
        return [
            Order(token=each.token, job=-1, name="", command="", gpus=0, run_s=0.0, start_s=0.0, handle=each.handle,
                  user=each.user)
            for each in held
        ]  # fmt: skip

    def usable_gpus(self, running_gpus: int) -> int | None:
        """Returns the GPUs of nodes that are up, less those that jobs of others hold."""
        total = used = 0
        for node in self._call("GET", "/nodes")["nodes"]:
            used += gpus_of(node.get("gres_used") or "")
            states = " ".join([str(node.get("state", "unknown")), *map(str, node.get("state_flags") or ())]).upper()
            if not DOWN.search(states):
                total += gpus_of(node.get("gres") or "")
        return max(0, total - max(0, used - running_gpus))

    def _jobs(self) -> list[dict[str, Any]]:
        return [each for each in self._call("GET", "/jobs")["jobs"] if str(each.get("name", "")).startswith(PREFIX)]

    def _status(self, said: dict[str, Any]) -> Status:
        reason = str(said.get("state_description") or said.get("state_reason") or "")
        phase = phase_of(said["job_state"], reason)
        over = phase in OVER
        return Status(
            token=said["name"],
            handle=str(said["job_id"]),
            phase=phase,
            began_s=None if phase in ("held", "queued") else self._time(said.get("start_time")),
            ended_s=self._time(said.get("end_time")) if over else None,
            exit_code=wait_code(str(said.get("exit_code"))) if phase in ("done", "failed") else None,
            reason=waiting_reason(phase, said["job_state"], reason),
            user=str(said.get("user_name") or ""),
        )

    def _time(self, posix_s: float | None) -> float | None:
        return self._second_of(float(posix_s)) if posix_s else None

    def _as(self, order: Order | None) -> dict[str, str]:
        """Returns the headers that make a request one of a job's own user.

        Raises:
            RefusedError: There is no token of the user.
        """
        if order is None or self._user_token_file is None:
            return {}
        user = self._users.of(order)
        try:
            token = Path(put_in((self._user_token_file,), user)[0]).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise RefusedError(f"there is no token of the user {user!r}, whom the job is of: {error}") from error
        return {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": token}

    def _call(
        self,
        method: str,
        path: str,
        content: object = None,
        of: Order | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Returns an answer; a request about a job is made as its user, where jobs have users of their own.

        Raises:
            ClusterError: There is none, or Slurm refused.
        """
        own = self._as(of)
        _, found = self._web.call(method, _BASE + path, content, query=query, known=(500,), more=own)
        errors = found.get("errors") if isinstance(found, dict) else None
        if isinstance(found, dict) and found.get("job_id"):
            return found  # it was taken; "errors" may say that it is held
        if not isinstance(found, dict) or errors:
            said = "; ".join(str(each.get("description") or each.get("error") or each) for each in errors or ())
            words = said or "no message"
            error = failure(f"{self._web.title} refused {method} {path}: {words}", words)
            if own and not isinstance(error, AnsweredError):
                about = f"if others get through, the token of the user {own['X-SLURM-USER-NAME']!r} is no longer valid"
                raise ClusterError(f"{error}; {about}: renew it")
            raise error
        return found
