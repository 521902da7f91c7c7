"""What schedulers are told of jobs in place of their run times: estimates, issued as jobs arrive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noonward.engine.cluster.kernels.world import World
from noonward.engine.cluster.moving import Arrays
from noonward.forecasts.run_times import LearnedRunTimes
from noonward.ledger.segments import DONE, OVERDUE, RUNNING
from noonward.model.cluster import knowledge
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.jobs import TOLD
from noonward.units import HOUR_S


class EstimateIssuer:
    """Learns from what ends in a run, and estimates what arrives.

    Once an hour in which a job arrives, it learns from the jobs that have ended and from how long the others have been
    running, and estimates the jobs that arrive within the hour.

    Args:
        environment: What is run; schedulers are told learned run times.
    """

    def __init__(self, environment: Environment) -> None:
        told = environment.knowledge
        assert told is not None
        self._told, self._past = told, len(told.past_work_P)
        self._model = LearnedRunTimes(told.traits)
        self._model.end(np.arange(self._past), told.past_work_P, told.past_cause_P)
        self._open = np.zeros(0, np.int64)
        self._seen = 0

    def issue(self, world: World) -> None:
        """Estimates the jobs that arrive from the next one to the end of its hour."""
        first = int(world.engine_1["next_arrival"][0])
        arrival_s_R = world.submitted_R["arrival_s"]
        now_s = float(arrival_s_R[first])
        self._learn(world, first, now_s)
        until = int(np.searchsorted(arrival_s_R, (np.floor(now_s / HOUR_S) + 1) * HOUR_S))
        rows = np.arange(first, until)
        mean_J, estimate_JK = self._model.estimates(self._past + rows, self._told.told.quantile, len(TOLD))
        world.submitted_R["expected"][rows] = mean_J
        for k, name in enumerate(TOLD):
            world.submitted_R[name][rows] = estimate_JK[:, k]
        world.engine_1["estimated"] = until

    def state(self) -> Arrays:
        """Returns what it has learned and which jobs it still follows (live)."""
        return {"open": self._open, "seen": np.array(self._seen), **self._model.state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restores from ``state()``, in an issuer of the same environment."""
        self._open, self._seen = np.array(state["open"]), int(state["seen"])
        self._model.load_state(state)

    def _learn(self, world: World, arrived: int, now_s: float) -> None:
        """Learns from the jobs that have arrived before a time and been running by then."""
        self._open = np.concatenate([self._open, np.arange(self._seen, arrived)])
        self._seen = arrived
        outcome = world.outcome_R[self._open]
        done = outcome["status"] == DONE
        started = done | (outcome["status"] == RUNNING)
        rows, outcome_J = self._open[started], outcome[started]
        taken_s, run_s = now_s - outcome_J["start_s"], outcome_J["finish_s"] - outcome_J["start_s"]
        work_J = world.submitted_R["work"][rows] * np.clip(taken_s / run_s, 0.0, 1.0)
        cause_J = np.where(done[started], self._told.cause_J[rows], knowledge.RUNNING)
        self._model.end(self._past + rows, work_J, cause_J)
        self._open = self._open[~done & (outcome["status"] != OVERDUE)]
