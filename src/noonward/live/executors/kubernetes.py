"""An executor for a Kubernetes cluster: a Job, or a JobSet for a gang of several nodes, suspended until its release."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from noonward.live.executors.identity import Users, put_in
from noonward.live.executors.manifests import MANAGED, QUEUE, USER, WORKERS, manifest
from noonward.live.executors.pods import began, exit_code, lacking, newest_first_pod, not_made
from noonward.live.executors.protocol import ClusterError, Order, Phase, RefusedError, Status
from noonward.live.executors.running import PowerCaps, RunningJobs, Stopping
from noonward.live.executors.web import ClusterWeb

STOPPED: Final = "noonward/stopped"
"""Annotation of an object that is suspended to be resumed later."""
_KUEUE: Final = "apis/kueue.x-k8s.io/v1beta1"
MERGE: Final = "application/merge-patch+json"
_SELECTOR: Final = ",".join(f"{name}={value}" for name, value in MANAGED.items())
_PAGE: Final = "500"
_REFUSALS: Final = (400, 413, 422)
"""Statuses by which an object is refused for what it is: no JSON of that kind, too large, not valid."""
_QUOTA: Final = "exceeded quota"
"""What a refusal holds that will be over once others have ended."""
_TRIES: Final = 5
"""How often an object is changed that something else changes meanwhile."""
_LOG_BYTES: Final = 2**23
"""Most of a log that is read at once."""
_NOT_OVER: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Pods that hold what they ask for, once they are bound to a node: also while their image is fetched."""
_NOT_MADE: Final = "reason=FailedCreate"
"""Events about pods that could not be made."""
_JOBS, _SETS = ("apis/batch/v1", "jobs"), ("apis/jobset.x-k8s.io/v1alpha2", "jobsets")
_POD_OF: Final = {_JOBS: "job-name", _SETS: "jobset.sigs.k8s.io/jobset-name"}
"""Label of the pods of an object, whose value is its name."""


class KubernetesExecutor(RunningJobs):
    """Jobs of one namespace of a cluster.

    The token is the object's name, so that it can be made once (409: it is there). Without Kueue an object is released
    by ``suspend: false``; with Kueue by the label of its queue, upon which Kueue resumes it when it is admitted.

    A job that is suspended has ``spec.suspend: true``: its pods are sent SIGTERM and have their grace period. With
    Kueue its workload is made inactive instead, upon which Kueue suspends the job.

    Args:
        second_of: Time of a clock, s since 1970, to s since the service's start.
        web: The API server.
        namespace: Namespace.
        image: Container image that commands run in which name none.
        queue: Local queue of Kueue; None: Kueue is not used.
        gpu_resource: Name of the GPUs as a resource.
        gpus_per_node: GPUs of a node.
        node_selector: Labels of the nodes that are used.
        requests: Further resources of each container.
        keep_ended_s: Seconds for which the cluster keeps the objects of jobs that have ended; None: for ever.
        power_caps: How the power of running jobs is limited; None: it is not.
        as_user: Name at the cluster of a job's user, ``{user}`` in it, e.g. ``"oidc:{user}"``: objects are made,
            resumed and deleted as that user (impersonation); None: as the service's account.
        users: Whose user is who, for ``as_user``.
    """

    at_once = 8
    takes = frozenset({"time_limit_s", "environment", "workdir", "image"})
    exact_ends = False
    stopped_as = frozenset({"held"})
    fresh = False

    def __init__(
        self,
        second_of: Callable[[float], float],
        web: ClusterWeb,
        *,
        namespace: str,
        image: str,
        queue: str | None = None,
        gpu_resource: str = "nvidia.com/gpu",
        gpus_per_node: int = 8,
        node_selector: dict[str, str] | None = None,
        requests: dict[str, str] | None = None,
        keep_ended_s: float | None = None,
        power_caps: PowerCaps | None = None,
        as_user: str | None = None,
        users: Users | None = None,
    ) -> None:
        self.take(Stopping(), power_caps)
        self._second_of, self._web, self._namespace, self._queue = second_of, web, namespace, queue
        self._gpu_resource, self._gpus_per_node = gpu_resource, gpus_per_node
        self._image, self._node_selector, self._requests = image, node_selector or {}, requests or {}
        self._keep_ended_s = keep_ended_s
        self._cancelled: set[str] = set()
        self._began: dict[str, tuple[str | None, str | None]] = {}
        self._holding: set[tuple[str, str]] = set()
        self._as_user, self._users = as_user, users or Users()

    def find(self, order: Order) -> str | None:
        """Returns the uid of the object of this token, or None."""
        found = self._object(order)
        return None if found is None else str(found["metadata"]["uid"])

    def submit_held(self, order: Order) -> str:
        """Makes the object, suspended; one that is there already is taken."""
        content = manifest(
            order,
            image=self._image,
            gpu_resource=self._gpu_resource,
            gpus_per_node=self._gpus_per_node,
            node_selector=self._node_selector,
            requests=self._requests,
            keep_ended_s=self._keep_ended_s,
        )
        more = self._as(order)
        if more:
            content["metadata"]["annotations"][USER] = self._users.of(order)
        self._require_held(order, content)
        known = (*_REFUSALS, 403, 409) if more else (*_REFUSALS, 409)
        status, made = self._web.call("POST", self._path(self._kind(order.gpus)), content, known=known, more=more)
        if status in (*_REFUSALS, 403):
            said = (made.get("message") if isinstance(made, dict) else None) or f"status {status}"
            if _QUOTA in said:
                raise ClusterError(f"{self._web.title} does not take it now: {said}")
            raise RefusedError(f"{self._web.title} refused it: {said}")
        if status == 409:
            handle = self.find(order)
            if handle is None:
                raise ClusterError(f"{self._web.title} says that {order.token} exists, and does not show it")
            return handle
        return str(made["metadata"]["uid"])

    def _require_held(self, order: Order, content: dict[str, Any]) -> None:
        """Raises ClusterError where the cluster would run objects at once, since it does not know their ``suspend``.

        The first object of each kind is tried without being made; one that is refused says nothing. A gang of several
        nodes is refused (RefusedError) by a cluster without JobSet.
        """
        kind, known = self._kind(order.gpus), (*_REFUSALS, 403, 409)
        if kind in self._holding:
            return
        if kind == _SETS and self._web.call("GET", f"/{_SETS[0]}", known=(403, 404))[0] == 404:
            raise RefusedError(
                f"{self._web.title} has no JobSets, and {order.gpus} GPUs are more than one node has "
                f"({self._gpus_per_node}): install JobSet there, or ask for fewer GPUs"
            )
        query = {"dryRun": "All"}
        status, made = self._web.call("POST", self._path(kind), content, query=query, known=known, more=self._as(order))
        if status in known:
            return
        if made["spec"].get("suspend") is not True:
            raise ClusterError(
                f"{self._web.title} holds no {kind[1]} back (spec.suspend), which Kubernetes does from 1.22 on: none "
                "are made"
            )
        self._holding.add(kind)

    def release(self, order: Order) -> None:
        """Resumes the object, or gives it to its queue; one that was released before is left as it is."""

        def released(found: dict[str, Any]) -> dict[str, Any] | None:
            if found["metadata"]["uid"] != order.handle or self._phase(found)[0] != "held":
                return None
            if self._queue is None:
                return {"spec": {"suspend": False}}
            return {"metadata": {"labels": {QUEUE: self._queue}}}

        self._change(order, released)

    def cancel(self, order: Order) -> None:
        """Deletes the object and its pods."""
        self._cancelled.add(order.token)
        content = {"propagationPolicy": "Background"}
        if order.handle is not None:
            content["preconditions"] = {"uid": order.handle}  # type: ignore[assignment]
        for kind in (_JOBS, _SETS) if order.gpus <= 0 else (self._kind(order.gpus),):
            path = self._path(kind, order.token)
            self._web.call("DELETE", path, content, known=(404, 409), more=self._as(order))

    def stop(self, order: Order) -> None:
        """Suspends the object, or has Kueue do so; one that has ended is left as it is."""

        def stopped(found: dict[str, Any]) -> dict[str, Any] | None:
            over = self._phase(found)[0] in ("held", "done", "failed", "node-failed")
            return None if over else self._activated(order, found, False)

        self._change(order, stopped)

    def resume(self, order: Order) -> bool:
        """Lets a suspended object run again; returns False where it is gone."""

        def resumed(found: dict[str, Any]) -> dict[str, Any] | None:
            over = self._phase(found)[0] in ("done", "failed", "node-failed")
            stopped = STOPPED in found["metadata"].get("annotations", {})
            return self._activated(order, found, True) if stopped and not over else None

        found = self._change(order, resumed)
        return found is not None and self._phase(found)[0] not in ("done", "failed", "node-failed")

    def _change(
        self, order: Order, change_of: Callable[[dict[str, Any]], dict[str, Any] | None]
    ) -> dict[str, Any] | None:
        """Changes an object as it is now, again where something else changed it meanwhile; returns what it was.

        The controller of Jobs writes their status at any moment, above all right after they were made.

        Args:
            order: The job.
            change_of: Returns the change of an object, or None where there is nothing to do.
        """
        path, tried = self._path(self._kind(order.gpus), order.token), 0
        while (found := self._object(order)) is not None and (change := change_of(found)) is not None:
            tried += 1
            metadata = change.get("metadata", {}) | {"resourceVersion": found["metadata"]["resourceVersion"]}
            known = (409,) if tried < _TRIES else ()
            status, _ = self._web.call(
                "PATCH", path, change | {"metadata": metadata}, kind=MERGE, known=known, more=self._as(order)
            )
            if status != 409:
                break
        return found

    def _activated(self, order: Order, found: dict[str, Any], active: bool) -> dict[str, Any]:
        """Returns the change that lets an object run, or stops it; with Kueue, its workload is changed first.

        A note at the object says which, so that a crash in between does no harm.
        """
        change: dict[str, Any] = {"metadata": {"annotations": {STOPPED: None if active else "true"}}}
        if self._queue is None:
            change["spec"] = {"suspend": not active}
        else:
            uid = found["metadata"]["uid"]
            owned = [
                each for each in self._list(f"/{_KUEUE}/namespaces/{self._namespace}/workloads", {})
                if uid in [owner.get("uid") for owner in each["metadata"].get("ownerReferences", ())]
            ]  # fmt: skip
            for each in owned:
                path = f"/{_KUEUE}/namespaces/{self._namespace}/workloads/{each['metadata']['name']}"
                self._web.call("PATCH", path, {"spec": {"active": active}}, kind=MERGE, more=self._as(order))
        return change

    def statuses(self, orders: Sequence[Order]) -> list[Status]:
        """Returns where each job stands; one that was deleted here is cancelled."""
        held = {str(found["metadata"]["name"]): found for found in self._objects()}
        shown: list[Status] = []
        for order in orders:
            found = held.get(order.token)
            if found is not None and order.handle in (None, found["metadata"]["uid"]):
                shown.append(self._status(order, found))
            elif found is None and order.token in self._cancelled:
                shown.append(Status(token=order.token, handle=order.handle or "", phase="cancelled", reason="deleted"))
        waiting = [one.token for one in shown if one.phase == "queued" and not held[one.token]["spec"].get("suspend")]
        lacks = self._lacking(waiting) if waiting else {}
        return [replace(one, reason=lacks[one.token]) if one.token in lacks else one for one in shown]

    def _lacking(self, tokens: Sequence[str]) -> dict[str, str]:
        """Returns what objects that were released lack, by name; those that only wait for room are left out.

        Their pods say it, or, where none could be made, events that the service's account may have no right to read.
        """
        at = f"/api/v1/namespaces/{self._namespace}"
        pods: dict[str, list[dict[str, Any]]] = {token: [] for token in tokens}
        for pod in self._seen(f"{at}/pods", {"labelSelector": _SELECTOR, "fieldSelector": _NOT_OVER}):
            labels = pod["metadata"].get("labels", {})
            pods.get(labels.get(_POD_OF[_SETS]) or labels.get(_POD_OF[_JOBS], ""), []).append(pod)
        lacks = {token: lacking(mine) for token, mine in pods.items() if mine}
        if len(lacks) < len(tokens):
            for event in self._seen(f"{at}/events", {"fieldSelector": _NOT_MADE}):
                name = event["involvedObject"]["name"]
                for token in (name, name.removesuffix(f"-{WORKERS}-0")):  # a JobSet's pods are made by a Job of its own
                    if token in pods and not pods[token]:
                        lacks[token] = not_made(event)
        return {token: words for token, words in lacks.items() if words}

    def strays(self) -> list[Order]:
        """Returns the suspended objects of this product."""
        return [
            Order(token=found["metadata"]["name"], job=-1, name="", command="", gpus=0, run_s=0.0, start_s=0.0,
                  handle=found["metadata"]["uid"], user=found["metadata"].get("annotations", {}).get(USER, ""))
            for found in self._objects()
            if self._phase(found)[0] == "held"
        ]  # fmt: skip

    def printed(self, order: Order, most: int) -> bytes | None:
        """Returns the end of the log of the job's newest pod; of a JobSet, of the pod on its first node.

        None where it has no pod any more, or the service's account may not read logs.
        """
        name = newest_first_pod(self._pods(self._kind(order.gpus), order.token))
        if name is None:
            return None
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}/log"
        lines, known = most, (400, 403, 404)  # its container has not started; logs may not be read; the pod is gone
        while True:
            query = {"tailLines": str(lines), "limitBytes": str(_LOG_BYTES)}
            status, content = self._web.call("GET", path, query=query, known=known, plain=True)
            if status in known:
                return None
            if len(content) < _LOG_BYTES or lines == 1:
                return bytes(content)[-most:]
            lines = max(1, lines // 16)  # of more bytes the API server cuts off the end

    def usable_gpus(self, running_gpus: int) -> int | None:
        """Returns the GPUs of nodes that are ready, less those that pods of others hold; None where it may not ask."""
        selector = ",".join(f"{name}={value}" for name, value in self._node_selector.items())
        try:
            nodes = list(self._list("/api/v1/nodes", {"labelSelector": selector} if selector else {}))
            pods = list(self._list("/api/v1/pods", {"fieldSelector": _NOT_OVER}))
        except _ForbiddenError:
            return None
        total = {n["metadata"]["name"]: self._gpus(n["status"].get("allocatable", {})) for n in nodes if _ready(n)}
        others = 0
        for pod in pods:
            labels, spec = pod["metadata"].get("labels", {}), pod["spec"]
            if spec.get("nodeName") in total and not MANAGED.items() <= labels.items():
                others += sum(self._gpus(each.get("resources", {}).get("limits", {})) for each in spec["containers"])
        return max(0, sum(total.values()) - others)

    def _pods(self, kind: tuple[str, str], token: str) -> list[dict[str, Any]]:
        """Returns the pods of an object; none where the service's account may not read them."""
        return self._seen(f"/api/v1/namespaces/{self._namespace}/pods", {"labelSelector": f"{_POD_OF[kind]}={token}"})

    def _seen(self, path: str, query: dict[str, str]) -> list[dict[str, Any]]:
        """Returns the items of a list; none where the service's account may not read it."""
        try:
            return list(self._list(path, query))
        except _ForbiddenError:
            return []

    def _as(self, order: Order) -> dict[str, str]:
        """Returns the header that a request about a job is made with in the name of its user."""
        if self._as_user is None:
            return {}
        return {"Impersonate-User": put_in((self._as_user,), self._users.of(order))[0]}

    def _gpus(self, resources: dict[str, str]) -> int:
        return int(resources.get(self._gpu_resource, 0))

    def _kind(self, gpus: int) -> tuple[str, str]:
        return _JOBS if gpus <= self._gpus_per_node else _SETS

    def _path(self, kind: tuple[str, str], name: str | None = None) -> str:
        group, plural = kind
        return f"/{group}/namespaces/{self._namespace}/{plural}" + ("" if name is None else f"/{name}")

    def _object(self, order: Order) -> dict[str, Any] | None:
        status, found = self._web.call("GET", self._path(self._kind(order.gpus), order.token), known=(404,))
        return None if status == 404 else found

    def _objects(self) -> Iterator[dict[str, Any]]:
        """Yields all Jobs and JobSets of this product; a cluster without JobSet has none of these."""
        query = {"labelSelector": _SELECTOR}
        for found in self._list(self._path(_JOBS), query):
            if not found["metadata"].get("ownerReferences"):
                yield found
        yield from self._list(self._path(_SETS), query, missing=True)

    def _list(self, path: str, query: dict[str, str], *, missing: bool = False) -> Iterator[dict[str, Any]]:
        """Yields the items of a list, page by page."""
        following = ""
        while True:
            page = query | {"limit": _PAGE} | ({"continue": following} if following else {})
            status, found = self._web.call("GET", path, query=page, known=(403, 404) if missing else (403,))
            if status == 404:
                return
            if status == 403:
                raise _ForbiddenError(f"{self._web.title} does not allow to list {path}")
            yield from found["items"]
            following = found.get("metadata", {}).get("continue") or ""
            if not following:
                return

    def _status(self, order: Order, found: dict[str, Any]) -> Status:
        phase, ended, reason = self._phase(found)
        handle, released = str(found["metadata"]["uid"]), found.get("status", {}).get("startTime")
        if released is None and phase == "running":
            released = found["metadata"].get("creationTimestamp")
        code = 0 if phase == "done" else None
        if phase in ("held", "queued"):
            began_at = None
        elif phase in ("failed", "node-failed") or self._began.get(order.token, ("",))[0] != released:
            pods = self._pods(self._kind(order.gpus), order.token)
            began_at = began(pods) or released
            self._began[order.token] = released, began_at
            code = exit_code(pods) if phase == "failed" else code
        else:
            began_at = self._began[order.token][1]
        if ended is not None:
            self._began.pop(order.token, None)
        return Status(
            token=order.token,
            handle=handle,
            phase=phase,
            began_s=self._time(began_at),
            ended_s=self._time(ended),
            exit_code=code,
            reason=reason,
        )

    def _phase(self, found: dict[str, Any]) -> tuple[Phase, str | None, str]:
        """Returns where an object stands, when it ended, and the reason that the cluster gives."""
        status, spec = found.get("status", {}), found["spec"]
        for one in status.get("conditions", ()):
            if one.get("status") != "True":
                continue
            ended, reason = one.get("lastTransitionTime"), str(one.get("reason", ""))
            if one["type"] in ("Complete", "Completed"):
                return "done", status.get("completionTime") or ended, reason
            if one["type"] == "Failed":
                disrupted = "PodFailurePolicy" in reason or "PodFailurePolicy" in str(one.get("message", ""))
                return ("node-failed" if disrupted else "failed"), ended, f"{reason}: {one.get('message', '')}"
        if spec.get("suspend"):
            stopped = STOPPED in found["metadata"].get("annotations", {})
            if stopped and self._has_pods(found):
                return "running", None, "suspended, its pods are ending"
            queued = QUEUE in found["metadata"].get("labels", {}) and not stopped
            return ("queued" if queued else "held"), None, "suspended"
        return ("running" if self._all_ready(found) else "queued"), None, ""

    def _has_pods(self, found: dict[str, Any]) -> bool:
        """Returns whether an object that is suspended has pods that run or are ending.

        Jobs count those that are ending since Kubernetes 1.29, JobSets do not: the pods themselves are asked for.
        """
        status = found.get("status", {})
        if status.get("active") or any(group.get("active") for group in status.get("replicatedJobsStatus", ())):
            return True
        if "terminating" in status:
            return bool(status["terminating"])
        kind = _SETS if "replicatedJobs" in found["spec"] else _JOBS
        pods = self._pods(kind, found["metadata"]["name"])
        return any(pod.get("status", {}).get("phase") not in ("Succeeded", "Failed") for pod in pods)

    def _all_ready(self, found: dict[str, Any]) -> bool:
        status, spec = found.get("status", {}), found["spec"]
        if "replicatedJobs" not in spec:
            return int(status.get("ready") or 0) + int(status.get("succeeded") or 0) >= int(spec["parallelism"])
        groups = status.get("replicatedJobsStatus", ())
        return bool(groups) and all(int(g.get("ready", 0)) + int(g.get("succeeded", 0)) >= 1 for g in groups)

    def _time(self, text: str | None) -> float | None:
        return None if text is None else self._second_of(datetime.fromisoformat(text).timestamp())


class _ForbiddenError(ClusterError):
    """The service's account may not ask this."""


def _ready(node: dict[str, Any]) -> bool:
    """Returns whether a node takes pods."""
    conditions = node["status"].get("conditions", ())
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and not node["spec"].get("unschedulable", False)
