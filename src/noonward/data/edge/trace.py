"""Image requests of a file: when each came, for which model, how many images and steps."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from noonward.data.edge.sessions import Requests
from noonward.data.table_file import open_table
from noonward.errors import ScenarioError
from noonward.model.edge.scenario import TraceTasks
from noonward.units import HOUR_S

COLUMNS: Final = {
    "arrival_s": "arrival_s",
    "model": "base_model",
    "images": "num_images",
    "steps": "num_inference_steps",
    "adapters": "num_lora",
}
"""Columns of a file of requests, as in Alibaba's GenAI trace; the last three may be absent."""


@functools.cache
def load_requests(path: Path) -> Requests:
    """Reads a file of image requests.

    Columns (docs/edge-inference.md): ``arrival_s``, ``base_model``; and, each with its default where the column is
    absent or a value empty: ``num_images`` (1), ``num_inference_steps`` (30), ``num_lora`` (0). Rows are sorted by
    arrival (stable). Models are numbered by how often they are asked for, from 0; requests without one share a number.

    Args:
        path: ``.csv`` or ``.parquet`` file.

    Raises:
        DataError: The file cannot be read, lacks a column or holds a value that is not allowed.
    """
    table = open_table(path, COLUMNS, {}, required=("arrival_s", "model"))
    arrival_s = table.numbers("arrival_s", "give seconds since the trace's start, at least 0", low=0)
    name = table.frame[table.column_of["model"]].cast(pl.String).fill_null("")
    wanted = name.value_counts().sort(["count", name.name], descending=[True, False])[name.name].to_list()
    number_of = {model: number for number, model in enumerate(wanted)}

    def whole(key: str, empty: float, low: float) -> np.ndarray:
        if not table.has(key):
            return np.full(len(table), empty)
        column = table.frame[table.column_of[key]].cast(pl.Float64, strict=False).fill_null(empty).to_numpy()
        table.forbid(key, ~(column >= low) | (column > 1e6), f"give a number of at least {low:g}, or leave it empty")
        return np.asarray(column, dtype=np.float64)

    images, steps, adapters = whole("images", 1, 1), whole("steps", 30, 1), whole("adapters", 0, 0)
    order = np.argsort(arrival_s, kind="stable")
    return Requests(
        arrival_s_K=arrival_s[order],
        model_K=np.array([number_of[model] for model in name.to_list()], dtype=np.int64)[order],
        images_K=images.astype(np.int64)[order],
        steps_K=steps[order],
        adapters_K=adapters.astype(np.int64)[order],
    )


def requests_of(source: TraceTasks, index: int) -> Requests:
    """Returns the requests of an environment: the n-th window of the trace with enough of them, from its first on.

    Args:
        source: File, hours of a window, fewest requests, factor on time.
        index: Number of the environment.

    Raises:
        ScenarioError: The trace has fewer windows with enough requests.
    """
    requests = load_requests(source.path)
    window_K = np.floor(requests.arrival_s_K / (source.hours * HOUR_S)).astype(np.int64)
    window_W, count_W = np.unique(window_K, return_counts=True)
    busy_W = window_W[count_W >= source.least]
    if index >= len(busy_W):
        raise ScenarioError(
            f"{source.path} has {len(busy_W)} windows of {source.hours:g} h with at least {source.least} requests, but "
            f"environment {index} was asked for (they count from 0); ask for fewer, or change tasks.hours, tasks.least"
        )
    some = window_K == busy_W[index]
    begin_s = busy_W[index] * source.hours * HOUR_S
    return Requests(
        arrival_s_K=(requests.arrival_s_K[some] - begin_s) * source.time_scale,
        model_K=requests.model_K[some],
        images_K=requests.images_K[some],
        steps_K=requests.steps_K[some],
        adapters_K=requests.adapters_K[some],
    )
