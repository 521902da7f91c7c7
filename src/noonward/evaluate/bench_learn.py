"""Benchmarks of learning: joint steps of the environment per CPU-second."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from noonward.data.environments import build_environments
from noonward.data.scenario_file import load_scenario
from noonward.decision.observation import Observation
from noonward.engine.batch import BatchEngine
from noonward.evaluate.bench_engine import cpu_seconds
from noonward.evaluate.figure_list import Figure

ROWS = 10
STEPS = 3000


def bench_environment(progress: Callable[[str], None] | None = None) -> list[Figure]:
    """Times the batch engine on ten two-day ``fine-tuning`` environments with the paper's observation.

    The random feasible choices are drawn beforehand and replayed, so that the environment alone is timed, the call
    from Python included. A joint step is one question to all sites of one environment.

    Args:
        progress: Called once per figure.
    """
    environments = list(build_environments(load_scenario("fine-tuning"), ROWS))
    engine = BatchEngine(environments, Observation(kind="paper"), seeds=range(ROWS))
    start, choices = engine.state(), _random_choices(engine)
    at_start = cpu_seconds(lambda: engine.load_state(start))

    def replay() -> None:
        engine.load_state(start)
        for choice_BN in choices:
            engine.step(choice_BN)

    seconds = cpu_seconds(replay) - at_start
    name = "environment/joint_steps_per_cpu_s"
    if progress is not None:
        progress(name)
    return [Figure.of(name, ROWS * len(choices) / seconds, "joint steps/CPU s")]


def _random_choices(engine: BatchEngine) -> list[NDArray[np.int64]]:
    """Returns the choices of a run under random feasible choices, as long as every row runs."""
    rng = np.random.default_rng(0)
    out: list[NDArray[np.int64]] = []
    while len(out) < STEPS:
        choice_BN = (engine.mask_BNA * rng.random(engine.mask_BNA.shape)).argmax(2)
        engine.step(choice_BN)
        if engine.done_B.any():
            return out
        out.append(choice_BN)
    return out
