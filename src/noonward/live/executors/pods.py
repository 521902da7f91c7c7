"""What pods and events say of a Kubernetes Job: when its command began, its exit code, what keeps it from running."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_IMAGE: Final = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable")
"""Why a container waits whose image cannot be had: two of them take turns."""
_CONTAINER: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
"""Why one waits that its node cannot make."""
_CHANGING: Final = re.compile(r"Error creating: |, requested: .*")
"""What a message holds that says nothing, or is another one at every try."""


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


def lacking(pods: Iterable[dict[str, Any]]) -> str:
    """Returns what keeps the containers of pods from being made; nothing where they only wait for their turn.

    Example:
        >>> waits = {"image": "pyhton:3", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
        >>> lacking([{"status": {"containerStatuses": [waits]}}])
        'the image pyhton:3 cannot be fetched'
    """
    for pod in pods:
        for each in pod.get("status", {}).get("containerStatuses", ()):
            waits = each.get("state", {}).get("waiting") or {}
            if waits.get("reason") in _IMAGE:
                return f"the image {each.get('image')} cannot be fetched"
            if waits.get("reason") in _CONTAINER:
                return f"its container cannot be made: {waits.get('message') or waits['reason']}"
    return ""


def not_made(event: dict[str, Any]) -> str:
    """Returns why pods could not be made, as an event of the reason ``FailedCreate`` says.

    Example:
        >>> words = 'Error creating: pods "nw-1-0-x7k2p" is forbidden: exceeded quota: q, requested: cpu=4, used: cpu=9'
        >>> not_made({"message": words})
        'its pods cannot be made: exceeded quota: q'
    """
    words = re.sub(r'pods "[^"]*" is forbidden: ', "", _CHANGING.sub("", str(event.get("message", ""))))
    return f"its pods cannot be made: {words}"


def _said(pods: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields what is said about containers that run or have ended."""
    for pod in pods:
        for each in pod.get("status", {}).get("containerStatuses", ()):
            state = each.get("state", {})
            yield state.get("terminated") or state.get("running") or {}
