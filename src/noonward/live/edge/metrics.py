"""The state of a service in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any


def metrics(status: dict[str, Any]) -> str:
    """Returns the metrics of a service.

    Args:
        status: ``noonward.live.edge.status.status``.
    """
    states = Counter(server["state"] for server in status["servers"])
    mean_s, reloads = status["mean_response_s"], status["reload_rate"]
    lines = [
        *_gauge("tasks", "Tasks that are kept, by state.", "state", status["counts"].items()),
        *_gauge("workers", "Workers by state.", "state", sorted(states.items())),
        *_gauge(
            "worker_starts",
            "Starts of a server's worker.",
            "server",
            ((server["server"], server["starts"]) for server in status["servers"]),
        ),
        *_gauge("mean_response_seconds", "Mean seconds from submission to image.", "", [("", mean_s)]),
        *_gauge("reload_share", "Share of the images for which a gang was formed.", "", [("", reloads)]),
        *_gauge("energy_joules", "Energy of the kept tasks, estimated, not metered.", "", [("", status["energy_j"])]),
        *_gauge(
            "expected_load_seconds",
            "Expected load by gang size.",
            "gang",
            ((each["gang"], each["load_s"]) for each in status["expected"]),
        ),
        *_gauge(
            "expected_step_seconds",
            "Expected step by gang size.",
            "gang",
            ((each["gang"], each["step_s"]) for each in status["expected"]),
        ),
    ]
    return "\n".join(lines) + "\n"


def _gauge(name: str, words: str, label: str, values: Iterable[tuple[Any, float | None]]) -> list[str]:
    """Returns the lines of a metric; a value that is not known is left out."""
    whole = f"noonward_edge_{name}"
    rows = [
        f'{whole}{{{label}="{key}"}} {value}' if label else f"{whole} {value}"
        for key, value in values
        if value is not None
    ]
    return [f"# HELP {whole} {words}", f"# TYPE {whole} gauge", *rows] if rows else []
