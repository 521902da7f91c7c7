"""Image requests as in a real trace: sessions of users, wanted models, gangs, steps and load times.

The laws and their numbers are in ``data/tables/image_requests.json``; docs/edge-inference.md says what they were fitted
on and how well they fit.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from noonward.arrays import F8, I8, Records
from noonward.data.edge.generate import model_shares
from noonward.model.edge.scenario import EdgeScenario, SessionTasks, TraceTasks
from noonward.model.edge.tasks import NO_DEADLINE_S, TASK
from noonward.units import HOUR_S


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Requests in order of arrival; K requests.

    Attributes:
        arrival_s_K: Seconds since the start.
        model_K: Models, from 0.
        images_K: Images, 1, 2, 4 or 8.
        steps_K: Inference steps asked for.
        adapters_K: Adapters (LoRA) that are loaded beside the model.
    """

    arrival_s_K: F8
    model_K: I8
    images_K: I8
    steps_K: F8
    adapters_K: I8

    def __len__(self) -> int:
        return len(self.arrival_s_K)


@functools.cache
def request_laws() -> dict[str, Any]:
    """Returns the packaged numbers of the laws."""
    text = (resources.files("noonward.data") / "tables" / "image_requests.json").read_text("utf-8")
    laws: dict[str, Any] = json.loads(text)
    return laws


def draw_requests(source: SessionTasks, rng: np.random.Generator) -> Requests:
    """Draws requests: sessions begin by a Poisson process with the trace's profile of the day.

    Sessions have a mean length, so they begin at ``rate / mean length``. The first request of a session draws its model
    and its images; each next one keeps either with a fixed chance, else draws again. Gaps within a session are
    lognormal; requests after the last hour are cut off.

    Args:
        source: Rate, hours and start.
        rng: Random numbers.
    """
    laws = request_laws()
    session, models, images = laws["sessions"], laws["models"], laws["images"]
    end_s = source.hours * HOUR_S
    share_M = model_shares(models["count"], models["exponent"], models["shift"])
    image_C, share_C = np.array(images["count"]), np.cumsum(images["share"])
    rows: list[tuple[float, int, int]] = []
    for begin_s in _session_starts(source, source.rate_per_s / session["mean_length"], rng).tolist():
        length = 1
        if rng.random() >= session["single"]:
            length = max(2, round(math.exp(rng.normal(session["length_log_mean"], session["length_sigma"]))))
        at_s, model, size = begin_s, -1, -1
        for _ in range(length):
            if model < 0 or rng.random() >= models["kept"]:
                model = int(np.searchsorted(share_M, rng.random()))
            if size < 0 or rng.random() >= images["kept"]:
                size = int(image_C[min(int(np.searchsorted(share_C, rng.random())), len(image_C) - 1)])
            if at_s >= end_s:
                break
            rows.append((at_s, model, size))
            at_s += session["gap_median_s"] * math.exp(session["gap_sigma"] * rng.standard_normal())
    rows.sort()
    count = len(rows)
    steps, adapters = laws["steps"], laws["adapters"]
    return Requests(
        arrival_s_K=np.array([row[0] for row in rows], dtype=np.float64),
        model_K=np.array([row[1] for row in rows], dtype=np.int64),
        images_K=np.array([row[2] for row in rows], dtype=np.int64),
        steps_K=rng.choice(np.array(steps["count"], dtype=np.float64), size=count, p=_normalised(steps["share"])),
        adapters_K=rng.choice(
            np.array(adapters["count"], dtype=np.int64), size=count, p=_normalised(adapters["share"])
        ),
    )


def _session_starts(source: SessionTasks, rate_per_s: float, rng: np.random.Generator) -> F8:
    """Returns when sessions begin, s: a Poisson process whose rate follows the hours of the day, by thinning."""
    share_24 = _normalised(request_laws()["share_of_day_by_hour"])
    most_per_s = rate_per_s * 24 * float(share_24.max())
    count = int(rng.poisson(most_per_s * source.hours * HOUR_S))
    at_s = np.sort(rng.uniform(0.0, source.hours * HOUR_S, count))
    hour = (np.floor(source.start_hour + at_s / HOUR_S) % 24).astype(np.int64)
    return np.asarray(at_s[rng.random(count) * share_24.max() < share_24[hour]])


def _normalised(share: list[float]) -> F8:
    """Returns shares that sum to 1."""
    share_C = np.array(share, dtype=np.float64)
    return np.asarray(share_C / share_C.sum())


def tasks_of(
    requests: Requests, scenario: EdgeScenario, source: SessionTasks | TraceTasks, rng: np.random.Generator
) -> Records:
    """Returns the tasks of some requests, TASK records.

    A task's gang is the smallest of the scenario's sizes that has a server an image, at most the largest. Its most
    steps are those asked for, at most the scenario's. It is stamped with the tick in which it arrives and can be
    launched from the next tick on.

    Args:
        requests: Requests.
        scenario: Gang times, steps and ticks.
        source: Gang sizes, law of the load times, deadlines.
        rng: Random numbers of the load times.
    """
    task_K = np.zeros(len(requests), TASK)
    size_C = np.sort(np.array(source.sizes, dtype=np.int64))
    gang_K = size_C[np.minimum(np.searchsorted(size_C, requests.images_K), len(size_C) - 1)]
    tick_K = np.floor(requests.arrival_s_K / scenario.tick_s)
    first_t = round(scenario.first_s / scenario.tick_s)
    task_K["stamp_s"] = tick_K * scenario.tick_s
    task_K["ready_t"] = np.maximum(tick_K.astype(np.int64) + 1, first_t)
    task_K["gang"], task_K["model"] = gang_K, requests.model_K
    task_K["steps_max"] = np.minimum(requests.steps_K, scenario.steps_max)
    promise_s = NO_DEADLINE_S if source.deadline_s is None else source.deadline_s
    task_K["deadline_s"] = np.minimum(task_K["stamp_s"] + promise_s, NO_DEADLINE_S)
    load_s_C = {size: time.load_s for size, time in scenario.gang_times.items()}
    step_s_C = {size: time.step_s for size, time in scenario.gang_times.items()}
    task_K["step_s"] = [step_s_C[size] for size in gang_K.tolist()]
    task_K["load_s"] = [load_s_C[size] for size in gang_K.tolist()]
    if source.loads == "measured":
        task_K["load_s"] = draw_loads(requests.adapters_K, rng)
    return task_K


def draw_loads(adapters_K: I8, rng: np.random.Generator) -> F8:
    """Returns seconds to load a model, from the trace's warm and cold modes, and the adapters on top of it.

    Args:
        adapters_K: Adapters of each request.
        rng: Random numbers.
    """
    laws = request_laws()
    modes = laws["model_load"]
    mode_K = rng.choice(len(modes["share"]), size=len(adapters_K), p=_normalised(modes["share"]))
    median_K, sigma_K = np.array(modes["median_s"])[mode_K], np.array(modes["sigma"])[mode_K]
    load_s_K = median_K * np.exp(sigma_K * rng.standard_normal(len(adapters_K)))
    adapter = laws["adapter_load"]
    for n in range(int(adapters_K.max(initial=0))):
        more_s_K = adapter["median_s"] * np.exp(adapter["sigma"] * rng.standard_normal(len(adapters_K)))
        load_s_K += np.where(adapters_K > n, more_s_K, 0.0)
    return np.asarray(load_s_K)
