"""Kubernetes: Jobs as ``kubectl get jobs -o json`` prints them.

GPUs are those of a pod (the sum over its containers, or the largest of its init containers where that is more) times
the parallelism. A failed Job has no completion time: the time of its condition Failed is taken.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import time_of
from noonward.data.jobs.logs.log import LOG_COLUMNS, LogFormat, LogOptions
from noonward.data.text_table import TextFile
from noonward.errors import DataError

_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu")


def _recognises(file: TextFile) -> bool:
    head = file.text[:20_000]
    return file.start.startswith("{") and '"apiVersion"' in head and '"kind"' in head


def _read(file: TextFile, options: LogOptions, account: Account) -> pl.DataFrame:
    try:
        content: Any = json.loads(file.text)
    except ValueError as error:
        raise DataError(f"{file.name} is not valid JSON ({error}); write it again: kubectl get jobs -o json") from error
    items = content.get("items", [content]) if isinstance(content, dict) else []
    jobs = [item for item in items if isinstance(item, dict) and item.get("kind", "Job") == "Job"]
    account.rows_in = len(items)
    account.add("dropped", len(items) - len(jobs), "objects other than Jobs")
    if not jobs:
        raise DataError(f"{file.name} holds no Job; write it with: kubectl get jobs --all-namespaces -o json")
    rows = [_row(job, file) for job in jobs]
    slices = sum(row.pop("slices") for row in rows)
    account.add("read", slices, "jobs on slices of GPUs (MIG): a slice counts as one GPU")
    return pl.DataFrame(rows, schema=LOG_COLUMNS)


def _row(job: dict[str, Any], file: TextFile) -> dict[str, Any]:
    """Returns the row of a Job."""
    meta, spec, status = (job.get(key) or {} for key in ("metadata", "spec", "status"))
    name = f"{meta.get('namespace', 'default')}/{meta.get('name', '')}"
    try:
        failure: dict[str, Any] = next((c for c in status.get("conditions") or [] if c.get("type") == "Failed"), {})
        failed = failure.get("lastTransitionTime")
        pod = spec["template"]["spec"]
        gpus, slices = _pod_gpus(pod)
        side_by_side = int(spec.get("parallelism", 1))
        return {
            "line": None,
            "job_id": name,
            "submit_time": _instant(meta["creationTimestamp"]),
            "start_time": _instant(status.get("startTime")),
            "end_time": _instant(status.get("completionTime") or failed),
            "duration_s": None,
            "gpus": gpus * side_by_side,
            "origin": None,
            "gpu_type": (pod.get("nodeSelector") or {}).get("nvidia.com/gpu.product"),
            "state": (failure.get("reason") if failure.get("reason") == "DeadlineExceeded" else "FAILED")
            if failed
            else "COMPLETED",
            "team": meta.get("namespace"),
            "name": meta.get("name"),
            "partition": (meta.get("labels") or {}).get("kueue.x-k8s.io/queue-name"),
            "limit_s": spec.get("activeDeadlineSeconds"),
            "slices": slices,
        }
    except (KeyError, TypeError, ValueError, DataError) as error:
        raise DataError(
            f"{file.name}, job {name!r}: {error}; write the file again: kubectl get jobs -o json"
        ) from error


def _pod_gpus(pod: dict[str, Any]) -> tuple[int, bool]:
    """Returns the GPUs of a pod, and whether they are slices."""

    def of(container: dict[str, Any], slices: bool) -> int:
        resources = container.get("resources") or {}
        asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        return sum(
            int(count)
            for name, count in asked.items()
            if (name.startswith("nvidia.com/mig-") if slices else name in _GPUS)
        )

    for slices in (False, True):
        running = sum(of(container, slices) for container in pod["containers"])
        before = max((of(container, slices) for container in pod.get("initContainers") or []), default=0)
        if max(running, before):
            return max(running, before), slices
    return 0, False


def _instant(text: str | None) -> datetime | None:
    return None if text is None else time_of(text).replace(tzinfo=None)


FORMAT = LogFormat(
    name="kubernetes", title="Kubernetes Jobs (kubectl get jobs -o json)", recognises=_recognises, read=_read
)
