"""Benchmark of the edge batch engine: questions that a learner is asked per CPU-second, observations included."""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.edge.batch import EdgeBatch
from noonward.evaluate.metrics import Metric

ROWS: Final = 128
STEPS: Final = 400
"""Steps of all rows that are timed."""


def env_questions(rows: int = ROWS, steps: int = STEPS) -> Metric:
    """Times runs side by side that launch the last place that fits; a run that ends begins again.

    Args:
        rows: Runs side by side.
        steps: Steps of all rows that are timed.
    """
    scenario = load_scenario("edge-inference-reference").model_copy(update={"signals": None})
    drawn = [build_edge_environment(scenario, index) for index in range(rows)]
    batch = EdgeBatch(drawn, seeds=[0] * rows, steps=(24.0,), price_of=lambda _: 0.0)

    def step() -> None:
        choice_B = batch.choices - 1 - batch.mask_BNA[:, 0, ::-1].argmax(-1)
        batch.step(choice_B[:, None])
        for row in np.flatnonzero(batch.done_B):
            batch.reset(int(row), drawn[row], 0)

    step()
    began = time.process_time()
    for _ in range(steps):
        step()
    took = time.process_time() - began
    return Metric.of("edge/batch_questions_per_cpu_s", rows * steps / took, "questions/CPU s")
