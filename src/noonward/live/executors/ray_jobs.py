"""An executor for a Ray cluster, by its jobs interface over HTTP."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any, Final

from noonward.live.executors.environment import own_variables
from noonward.live.executors.protocol import Order, Phase, RefusedError, Status
from noonward.live.executors.running import PowerCaps, RunningJobs, Stopping
from noonward.live.executors.web import ClusterWeb

_PHASES: Final[dict[str, Phase]] = {
    "PENDING": "queued",
    "RUNNING": "running",
    "SUCCEEDED": "done",
    "STOPPED": "cancelled",
    "FAILED": "failed",
}


class RayExecutor(RunningJobs):
    """Jobs of one Ray cluster.

    Ray holds nothing back, and takes a ``submission_id`` once: the token. So a job is submitted by its release, and a
    second release is refused by Ray, which is as good as done. A job that is suspended is stopped, by which Ray sends
    its entry point SIGTERM, and submitted again under another token.

    Args:
        second_of: Time of a clock, s since 1970, to s since the service's start.
        web: The dashboard's address.
        gpus_per_node: GPUs of a node. A gang of one node is reserved for the entry point; of a larger one the command
            reserves what it needs itself, e.g. by a placement group (``NOONWARD_GPUS`` says how many GPUs it has).
        gpu_resource: Name of the GPUs as a custom resource; None: Ray's own GPUs.
        power_caps: How the power of running jobs is limited; None: it is not.
    """

    at_once = 8
    takes = frozenset({"environment", "workdir"})
    exact_ends = False

    def __init__(
        self,
        second_of: Callable[[float], float],
        web: ClusterWeb,
        *,
        gpus_per_node: int = 8,
        gpu_resource: str | None = None,
        power_caps: PowerCaps | None = None,
    ) -> None:
        self.take(Stopping(), power_caps)
        self._second_of, self._web = second_of, web
        self._gpus_per_node, self._resource = gpus_per_node, gpu_resource

    def find(self, order: Order) -> str | None:
        """Returns the token if Ray knows it."""
        status, _ = self._web.call("GET", f"/api/jobs/{order.token}", known=(404,))
        return None if status == 404 else order.token

    def submit_held(self, order: Order) -> str:
        """Returns the token; the job is submitted by its release."""
        return order.token

    def release(self, order: Order) -> None:
        """Submits the job; does nothing if Ray knows its token."""
        command, workdir = order.command or ":", order.terms.workdir
        content: dict[str, Any] = {
            "entrypoint": command if workdir is None else f"cd {shlex.quote(workdir)} && {{\n{command}\n}}",
            "submission_id": order.token,
            "metadata": {"noonward": order.token, "name": order.name},
            "runtime_env": {"env_vars": own_variables(order)},
        }
        if order.gpus <= self._gpus_per_node and self._resource is None:
            content["entrypoint_num_gpus"] = order.gpus
        elif order.gpus <= self._gpus_per_node:
            content["entrypoint_resources"] = {self._resource: order.gpus}
        if self.find(order) is None:
            status, _ = self._web.call("POST", "/api/jobs/", content, known=(400, 500))
            if status in (400, 500) and self.find(order) is None:
                status, said = self._web.call("POST", "/api/jobs/", content, known=(400,))
                if status == 400:
                    raise RefusedError(f"{self._web.title} refused it: {str(said)[:500]}")

    def cancel(self, order: Order) -> None:
        """Stops a job; one that Ray does not know is left."""
        self._web.call("POST", f"/api/jobs/{order.token}/stop", known=(404,))

    def statuses(self, orders: Sequence[Order]) -> list[Status]:
        """Returns where each job stands."""
        _, found = self._web.call("GET", "/api/jobs/")
        held = {str(each.get("submission_id")): each for each in found}
        return [self._status(order, held[order.token]) for order in orders if order.token in held]

    def _status(self, order: Order, said: dict[str, Any]) -> Status:
        phase = _PHASES.get(str(said.get("status")), "running")
        code = said.get("driver_exit_code")
        if phase == "failed" and code is None:
            phase = "node-failed"  # its command did not end: the node or Ray itself did
        return Status(
            token=order.token,
            handle=order.token,
            phase=phase,
            began_s=None if phase == "queued" else self._time(said.get("start_time")),
            ended_s=self._time(said.get("end_time")),
            exit_code=code if isinstance(code, int) else None,
            reason=str(said.get("message") or ""),
        )

    def _time(self, milliseconds: float | None) -> float | None:
        return None if milliseconds is None else self._second_of(milliseconds / 1000.0)

    def printed(self, order: Order, most: int) -> bytes | None:
        """Returns the end of the job's log, as Ray keeps it."""
        status, found = self._web.call("GET", f"/api/jobs/{order.token}/logs", known=(404,))
        return None if status == 404 else str(found["logs"]).encode()[-most:]

    def strays(self) -> list[Order]:
        """Returns none: nothing is held at Ray."""
        return []

    def usable_gpus(self, running_gpus: int) -> int | None:
        """Returns the GPUs of Ray's nodes, less those that others hold; None where Ray does not say."""
        _, found = self._web.call("GET", "/api/cluster_status")
        report = (((found or {}).get("data") or {}).get("clusterStatus") or {}).get("loadMetricsReport") or {}
        used, total = (report.get("usage") or {}).get(self._resource or "GPU") or (None, None)
        if used is None or total is None:
            return None
        return max(0, int(total) - max(0, int(used) - running_gpus))
