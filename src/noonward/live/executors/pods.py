"""What the pods of a Kubernetes Job say that the Job itself does not: when its command began, and its exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

_INDEX: Final = "batch.kubernetes.io/job-completion-index"


def newest_first_pod(pods: Sequence[dict[str, Any]]) -> str | None:
    """Returns the name of the newest pod; of those of a gang, of the one on its first node. None if there is none."""
    abouts = [pod["metadata"] for pod in pods]
    first = [about for about in abouts if about.get("annotations", {}).get(_INDEX, "0") == "0"]
    return max(first, key=lambda about: str(about.get("creationTimestamp", "")))["name"] if first else None


def began(pods: Sequence[dict[str, Any]]) -> str | None:
    """Returns when the last of the pods began to run its command, as the API server writes it.

    A Job's own ``startTime`` is when it was released; its pods may wait long for GPUs and images after that.

    Example:
        >>> state = {"running": {"startedAt": "2026-03-01T00:10:00Z"}}
        >>> began([{"status": {"containerStatuses": [{"state": state}]}}])
        '2026-03-01T00:10:00Z'
    """
    return max((said["startedAt"] for said in _said(pods) if said.get("startedAt")), default=None)


def exit_code(pods: Sequence[dict[str, Any]]) -> int | None:
    """Returns the exit code of the command that failed; None where none did.

    Example:
        >>> state = {"terminated": {"exitCode": 3}}
        >>> exit_code([{"status": {"containerStatuses": [{"state": state}]}}])
        3
    """
    return next((int(said["exitCode"]) for said in _said(pods) if said.get("exitCode")), None)


def _said(pods: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields what is said about containers that run or have ended."""
    for pod in pods:
        for each in pod.get("status", {}).get("containerStatuses", ()):
            state = each.get("state", {})
            yield state.get("terminated") or state.get("running") or {}
