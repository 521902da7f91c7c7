"""Small edge scenarios for tests of the batch engine and of learners."""

from typing import Any

from noonward.data.edge.environments import build_edge_environment
from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.scenario import EdgeScenario

SIZES = {1: (1,), 2: (1, 2), 4: (1, 2, 4), 8: (1, 2, 4, 8), 12: (1, 2, 4, 8)}


def scenario_of(servers: int = 4, rate_per_s: float = 0.05, **changes: Any) -> EdgeScenario:
    """Returns a scenario with the public simulator's times."""
    tasks = {"source": "paper", "count": 12, "first": 4, "rate_per_s": rate_per_s, "sizes": SIZES[servers]}
    return EdgeScenario.model_validate(
        {
            "kind": "edge",
            "name": f"small-{servers}",
            "servers": {"count": servers, "zone": "SG", "idle_w": 60, "load_w": 120, "active_w": 300},
            "gang_times": {
                "1": {"load_s": 24, "step_s": 0.315},
                "2": {"load_s": 24, "step_s": 0.15625},
                "4": {"load_s": 32, "step_s": 0.14},
                "8": {"load_s": 30, "step_s": 0.1},
            },
            "tasks": tasks,
            **changes,
        }
    )


def environments(count: int, **changes: Any) -> list[EdgeEnvironment]:
    """Returns draws with 4, 8 and 12 servers in turn."""
    return [build_edge_environment(scenario_of((4, 8, 12)[n % 3], **changes), n, 5) for n in range(count)]
