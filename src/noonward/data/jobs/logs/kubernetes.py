"""Kubernetes: Jobs, Workloads of Kueue, or Pods, as ``kubectl get ... -o json`` prints them.

GPUs are those of a pod (the sum over its containers, or the largest of its init containers where that is more) times
the number of pods. A failed Job has no completion time: the time of its condition Failed is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import time_of
from noonward.data.jobs.logs.log import LOG_COLUMNS, SLICES, LogFormat, LogOptions, gpus_of_slices
from noonward.data.text_table import TextFile
from noonward.errors import DataError

_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu")
_SLICES: Final = "nvidia.com/mig-"


def _recognises(file: TextFile) -> bool:
    head = file.text[:20_000]
    return file.start.startswith("{") and '"apiVersion"' in head and '"kind"' in head


def _read(file: TextFile, options: LogOptions, account: Account) -> pl.DataFrame:
    content = file.json("write it again: kubectl get jobs -o json")
    items = content.get("items", [content]) if isinstance(content, dict) else []
    items = [item for item in items if isinstance(item, dict)]
    kind = next((kind for kind in _ROWS if any(item.get("kind", "Job") == kind for item in items)), None)
    if kind is None:
        raise DataError(
            f"{file.name} holds no Job, Workload or Pod; write it with: kubectl get jobs --all-namespaces -o json"
        )
    taken = [item for item in items if item.get("kind", "Job") == kind]
    account.rows_in = len(items)
    account.add("dropped", len(items) - len(taken), f"objects other than {kind}s")
    rows = [_row(item, _ROWS[kind], file) for item in taken]
    account.add("read", sum(row.pop("slices") for row in rows), SLICES)
    return pl.DataFrame(rows, schema=dict(LOG_COLUMNS))


def _row(item: dict[str, Any], read: Callable[[dict[str, Any]], dict[str, Any]], file: TextFile) -> dict[str, Any]:
    """Returns the row of an object."""
    meta = item.get("metadata") or {}
    name = f"{meta.get('namespace', 'default')}/{meta.get('name', '')}"
    labels = meta.get("labels") or {}
    try:
        return {
            "line": None,
            "job_id": name,
            "submit_time": _instant(meta["creationTimestamp"]),
            "duration_s": None,
            "origin": None,
            "team": meta.get("namespace"),
            "name": meta.get("name"),
            "partition": labels.get("kueue.x-k8s.io/queue-name"),
            **read(item),
        }
    except (KeyError, TypeError, ValueError, AttributeError, DataError) as error:
        raise DataError(
            f"{file.name}, job {name!r}: {error}; write the file again: kubectl get jobs -o json"
        ) from error


def _of_job(item: dict[str, Any]) -> dict[str, Any]:
    """Returns what a Job says of itself."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    failure = _condition(status, "Failed")
    failed = failure.get("lastTransitionTime")
    late = failure.get("reason") == "DeadlineExceeded"
    gpus, sliced = _gpus([(spec["template"]["spec"], int(spec.get("parallelism", 1)))])
    return {
        "start_time": _instant(status.get("startTime")),
        "end_time": _instant(status.get("completionTime") or failed),
        "gpus": gpus,
        "gpu_type": _product(spec["template"]["spec"]),
        "state": ("timeout" if late else "failed") if failed else "done",
        "limit_s": spec.get("activeDeadlineSeconds"),
        "slices": sliced,
    }


def _of_workload(item: dict[str, Any]) -> dict[str, Any]:
    """Returns what a Workload of Kueue says of itself: it holds its GPUs from its admission to its end."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    sets = [(each["template"]["spec"], int(each.get("count", 1))) for each in spec["podSets"]]
    gpus, sliced = _gpus(sets)
    admitted, finished = _condition(status, "Admitted"), _condition(status, "Finished")
    return {
        "start_time": _instant(admitted.get("lastTransitionTime")),
        "end_time": _instant(finished.get("lastTransitionTime")),
        "gpus": gpus,
        "gpu_type": _product(sets[0][0]) if sets else None,
        "state": "failed" if "fail" in str(finished.get("reason", "")).lower() else "done",
        "partition": spec.get("queueName"),
        "limit_s": spec.get("maximumExecutionTimeSeconds"),
        "slices": sliced,
    }


def _of_pod(item: dict[str, Any]) -> dict[str, Any]:
    """Returns what a Pod says of itself: it holds its GPUs from its first container's start to its last one's end."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    gpus, sliced = _gpus([(spec, 1)])
    ends = [(each.get("state") or {}).get("terminated") or {} for each in status.get("containerStatuses") or []]
    ended = status.get("phase") in ("Succeeded", "Failed")
    last = max((end["finishedAt"] for end in ends if end.get("finishedAt")), default=None)
    owner: dict[str, Any] = next(iter((item.get("metadata") or {}).get("ownerReferences") or []), {})
    return {
        "start_time": _instant(status.get("startTime")),
        "end_time": _instant(last) if ended else None,
        "gpus": gpus,
        "gpu_type": _product(spec),
        "state": _POD_ENDS.get(str(status.get("reason")), str(status.get("phase", ""))),
        "limit_s": spec.get("activeDeadlineSeconds"),
        "slices": sliced,
        **({"name": owner["name"]} if "name" in owner else {}),
    }


_ROWS: Final[Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "Job": _of_job, "Workload": _of_workload, "Pod": _of_pod,
}  # fmt: skip
"""Readers by kind; of a file with several kinds the first is taken, since the others stand for the same work."""
_POD_ENDS: Final = {"DeadlineExceeded": "timeout", "Evicted": "cancelled", "NodeLost": "node-fail",
                    "NodeShutdown": "node-fail", "Terminated": "node-fail"}  # fmt: skip


def _condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    """Returns a condition that holds; empty where it does not."""
    held = (c for c in status.get("conditions") or [] if c.get("type") == kind and c.get("status", "True") == "True")
    return next(held, {})


def _product(pod: dict[str, Any]) -> str | None:
    return (pod.get("nodeSelector") or {}).get("nvidia.com/gpu.product")


def _gpus(pods: Sequence[tuple[dict[str, Any], int]]) -> tuple[int, bool]:
    """Returns the GPUs of some pods, each with its number, and whether they are on slices of GPUs.

    The GPUs of a pod are the sum over its containers, or the largest of its init containers where that is more.
    """

    def of(container: dict[str, Any], slices: bool) -> dict[str, int]:
        resources = container.get("resources") or {}
        asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        gpus = {
            name: int(count) for name, count in asked.items() if (name.startswith(_SLICES) if slices else name in _GPUS)
        }
        for name, count in gpus.items():
            if count < 0:
                raise ValueError(f"{name} is {count}, but a number of GPUs is at least 0")
        return gpus

    whole = 0
    slices: Counter[str] = Counter()
    for pod, count in pods:
        running = sum(sum(of(each, False).values()) for each in pod["containers"])
        before = max((sum(of(each, False).values()) for each in pod.get("initContainers") or []), default=0)
        whole += count * max(running, before)
        for each in pod["containers"]:
            for name, number in of(each, True).items():
                slices[name.removeprefix(_SLICES)] += count * number
    return whole + (gpus_of_slices(slices) if slices else 0), bool(slices)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else time_of(text).replace(tzinfo=None)


FORMAT = LogFormat(
    name="kubernetes",
    title="Kubernetes Jobs, Kueue Workloads or Pods (kubectl get ... -o json)",
    recognises=_recognises,
    read=_read,
)
