"""How long an edge scheduler takes for a decision."""

from __future__ import annotations

import math
import time

from noonward.decision.edge.brief import EdgeBrief
from noonward.engine.edge.engine import EdgeEngine
from noonward.model.edge.scenario import EdgeScenario
from noonward.runtime.by_kind import build_environment
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream


def decision_ms(scenario: EdgeScenario, name: str, seed: int, episodes: int = 3) -> float:
    """Returns the CPU time of one decision in Python, ms: the least of some episodes' means.

    Args:
        scenario: Scenario of the episodes.
        name: Policy.
        seed: Seed of the episodes.
        episodes: Episodes; one more is run before them and not counted, as it may compile.
    """
    least = math.inf
    for index in range(episodes + 1):
        environment = build_environment(scenario, index, seed)
        scheduler = make_scheduler(name, scenario.kind)
        scheduler.reset(EdgeBrief.of(environment, scheduler.forecast, seed), stream(seed, "policy", index))
        engine, spent_s, questions = EdgeEngine(environment, scheduler), 0.0, 0
        while engine.step():
            began = time.process_time()
            scheduler.decide(engine.view, engine.answers)
            spent_s += time.process_time() - began
            questions += 1
        if index:
            least = min(least, 1000 * spent_s / questions)
    return float(least)
