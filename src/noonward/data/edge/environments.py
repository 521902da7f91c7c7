"""Edge environments: draws of an edge scenario, the same for every policy."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np

from noonward.data.edge.generate import draw_paper_tasks, model_shares
from noonward.data.edge.sessions import draw_requests, tasks_of
from noonward.data.edge.trace import requests_of
from noonward.data.environments import FIXED_START, HISTORY_H, generated_start
from noonward.data.signals.generate import generate_signals, sinusoidal_signals
from noonward.errors import ScenarioError
from noonward.model.cluster.scenario import GeneratedSignals, SinusoidalSignals
from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.scenario import EdgeScenario, PaperTasks, SessionTasks
from noonward.model.edge.tasks import NO_DEADLINE_S, TASK, ImageTasks
from noonward.model.signals import Signals
from noonward.seeding import stream


def build_edge_environment(scenario: EdgeScenario, index: int = 0, seed: int = 0) -> EdgeEnvironment:
    """Returns one draw of an edge scenario.

    Args:
        scenario: Scenario.
        index: Number of the draw, at least 0.
        seed: Seed; streams ``workload`` and ``world`` with the number of the draw.

    Raises:
        ScenarioError: The scenario's parts do not fit.
    """
    if index < 0 or seed < 0:
        raise ScenarioError(f"environment {index} with seed {seed}: both must be at least 0")
    tasks = draw_tasks(scenario, index, seed)
    source = scenario.signals
    start = generated_start(source, index, seed) if isinstance(source, GeneratedSignals) else FIXED_START
    bare = EdgeEnvironment(setting=scenario, index=index, seed=seed, start=start, tasks=tasks)
    if source is None:
        return bare
    signals = _signals(scenario, start, HISTORY_H + bare.hours, index, seed)
    return EdgeEnvironment(
        setting=scenario, index=index, seed=seed, start=start, tasks=tasks, signals=signals, notes=signals.notes
    )


def describe_edge_environment(environment: EdgeEnvironment) -> str:
    """Returns servers and tasks of an environment, in words."""
    servers, tasks = environment.setting.servers, environment.tasks
    return f"{servers.count} servers, {len(tasks)} tasks, the last submitted at {tasks.stamp_s_K[-1]:,.0f} s."


def draw_tasks(scenario: EdgeScenario, index: int, seed: int) -> ImageTasks:
    """Returns the tasks of a draw."""
    source = scenario.tasks
    rng = stream(seed, "workload", index)
    if isinstance(source, PaperTasks):
        return _paper_tasks(scenario, source, rng)
    requests = draw_requests(source, rng) if isinstance(source, SessionTasks) else requests_of(source, index)
    return ImageTasks(record_K=tasks_of(requests, scenario, source, rng))


def _paper_tasks(scenario: EdgeScenario, source: PaperTasks, rng: np.random.Generator) -> ImageTasks:
    """Draws the paper's arrivals."""
    record_K = np.zeros(source.count, TASK)
    largest = max(scenario.gang_times) + 1
    load_s_G, step_s_G = np.full(largest, np.nan), np.full(largest, np.nan)
    for size, time in scenario.gang_times.items():
        load_s_G[size], step_s_G[size] = time.load_s, time.step_s
    state = rng.integers(2**64, size=1, dtype=np.uint64)
    count = draw_paper_tasks(
        record_K,
        source.first,
        source.rate_per_s,
        source.until_s,
        scenario.tick_s,
        round(scenario.first_s / scenario.tick_s),
        np.array(source.sizes, dtype=np.int64),
        load_s_G,
        step_s_G,
        scenario.steps_max,
        model_shares(source.models.count, source.models.exponent, source.models.shift),
        source.load_sigma,
        NO_DEADLINE_S if source.deadline_s is None else source.deadline_s,
        state,
    )
    return ImageTasks(record_K=record_K[:count])


def _signals(scenario: EdgeScenario, start: datetime, hours: int, index: int, seed: int) -> Signals:
    zones, first = (scenario.servers.zone,), start - timedelta(hours=HISTORY_H)
    source = scenario.signals
    if isinstance(source, GeneratedSignals):
        return generate_signals(zones, first, hours, stream(seed, "world", index), source.calibration)
    assert isinstance(source, SinusoidalSignals)
    return sinusoidal_signals(source, zones, first, hours)
