"""The state of a service in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from typing import Any

from noonward.live.api.exposition import Exposition, labels
from noonward.live.api.watched import RequestCounts


def metrics(status: dict[str, Any], requests: RequestCounts) -> str:
    """Returns the metrics of a service.

    Args:
        status: ``noonward.live.edge.status.status``.
        requests: Requests that were answered.
    """
    states = Counter(server["state"] for server in status["servers"])
    starts = {labels(server=str(server["server"])): server["starts"] for server in status["servers"]}
    lines = Exposition("noonward_edge_")
    by_state = {labels(state=state): count for state, count in status["counts"].items()}
    lines.add("tasks", "gauge", "Tasks that are kept, by state.", by_state)
    lines.add("workers", "gauge", "Workers by state.", {labels(state=name): n for name, n in sorted(states.items())})
    lines.add("worker_starts", "gauge", "Starts of a server's worker.", starts)
    for name, words, value in (
        ("mean_response_seconds", "Mean seconds from submission to image.", status["mean_response_s"]),
        ("reload_share", "Share of the images for which a gang was formed.", status["reload_rate"]),
        ("energy_joules", "Energy of the kept tasks, estimated, not metered.", status["energy_j"]),
    ):
        lines.add(name, "gauge", words, {} if value is None else {"": value})
    for name, words in (("load", "Expected load by gang size."), ("step", "Expected step by gang size.")):
        values = {labels(gang=str(each["gang"])): each[f"{name}_s"] for each in status["expected"]}
        lines.add(f"expected_{name}_seconds", "gauge", words, values)
    requests.show(lines)
    return lines.text
