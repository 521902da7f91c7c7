"""What a service tells about itself: servers, queue, tasks and expected times, as plain values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from noonward.live.edge.controller import Controller
from noonward.live.edge.plan import gang_sizes
from noonward.live.edge.server import Server

NOTES: Final = 20
"""Notes that are shown, the newest."""


def status(controller: Controller) -> dict[str, Any]:
    """Returns the state of a service, for the terminal, the page and ``--json``. Times of day are Unix seconds."""
    tasks, predictor, setting = list(controller.tasks.values()), controller.predictor, controller.plan.setting
    done = [task for task in tasks if task.state == "done"]
    attempts = [attempt for task in done for attempt in task.attempts[-1:]]
    return {
        "scenario": setting.name,
        "policy": controller.plan.policy,
        "models": [{"name": model.name, "text": model.text} for model in controller.plan.models],
        "parallelism": controller.plan.drawing.parallelism,
        "load_policy": controller.plan.load_policy,
        "now_unix_s": controller.now_unix_s,
        "counts": {
            state: sum(task.state == state for task in tasks) for state in ("queued", "running", "done", "failed")
        },
        "mean_response_s": float(np.mean([task.response_s for task in done])) if done else None,
        "reload_rate": float(np.mean([attempt.formed for attempt in attempts])) if attempts else None,
        "energy_j": sum(task.energy_j for task in tasks),
        "servers": [_server(n, server) for n, server in enumerate(controller.servers)],
        "expected": [
            {
                "gang": size,
                "load_s": float(predictor.load_s_G[size]),
                "loads": int(predictor.loads_G[size]),
                "step_s": float(predictor.step_s_G[size]),
                "runs": int(predictor.runs_G[size]),
            }
            for size in gang_sizes(setting)
        ],
        "tasks": [task.as_dict() for task in tasks],
        "progress": {
            task.id: _progress(controller, run.members) for run in controller.runs.values() for task in run.wanted
        },
        "notes": controller.notes.texts[-NOTES:],
    }


def _server(n: int, server: Server) -> dict[str, Any]:
    beat, run, facts = server.beat, server.run, server.facts
    return {
        "server": n,
        "state": server.state if run is None else run.phase,
        "task": None if run is None else run.first.id,
        "pid": None if facts is None else facts.pid,
        "host": None if facts is None else facts.host,
        "device": None if facts is None else facts.device,
        "model": "" if beat is None else beat.model.rsplit("/", 1)[-1],
        "rss_mb": None if beat is None else round(beat.rss_mb, 1),
        "descriptors": None if beat is None else beat.descriptors,
        "groups": None if beat is None else beat.groups,
        "starts": server.life,
        "reason": server.reason,
    }


def _progress(controller: Controller, members: tuple[int, ...]) -> int:
    """Returns the steps that a run has done at the last health check of its first member."""
    server = controller.servers[members[0]]
    if server.beat is None or server.run is None or server.beat.attempt != server.run.number:
        return 0
    return server.beat.step
