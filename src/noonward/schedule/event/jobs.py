"""What an event planner knows of a running job, and the plan that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noonward.arrays import F8, Bools
from noonward.errors import ScenarioError

SLACK_W = 1e-6
"""Watts by which rounding may exceed a budget."""


@dataclass(frozen=True, kw_only=True)
class RunningJob:
    """A job that runs while an event comes.

    Attributes:
        name: Its name.
        gpus: GPUs it holds, at least 1.
        power_w: Power of one of its GPUs at each measured cap, W, ascending and above 0; the last is without a cap.
        throughput: Throughput at each, as a share of that without a cap, not falling; the last is 1.
        least: Least throughput that the job accepts on average over the event, as a share, 0 to 1.
        weight: What a GPU of the job at full throughput counts, above 0.
        pausable: Whether all its GPUs may be stopped at once.
        least_gpus: Fewest GPUs that it may be resized to, 0 to ``gpus``.
    """

    name: str
    gpus: int
    power_w: tuple[float, ...]
    throughput: tuple[float, ...]
    least: float = 0.0
    weight: float = 1.0
    pausable: bool = True
    least_gpus: int = 0

    def __post_init__(self) -> None:
        """Refuses curves and shares that are none.

        Raises:
            ScenarioError: A value is out of range.
        """
        power, rate = np.array(self.power_w), np.array(self.throughput)
        if len(power) != len(rate) or not len(power) or power[0] <= 0 or (np.diff(power) <= 0).any():
            raise ScenarioError(
                f"job {self.name}: power {self.power_w} must be above 0 and ascend, with one throughput each"
            )
        if rate[0] < 0 or rate[-1] != 1 or (np.diff(rate) < 0).any():
            raise ScenarioError(f"job {self.name}: throughput {self.throughput} must not fall, from 0 or more to 1")
        if self.gpus < 1 or not 0 <= self.least <= 1 or self.weight <= 0:
            raise ScenarioError(
                f"job {self.name}: {self.gpus} GPUs, least throughput {self.least:g} and weight {self.weight:g} must "
                "be at least 1, from 0 to 1, and above 0"
            )
        if not 0 <= self.least_gpus <= self.gpus:
            raise ScenarioError(
                f"job {self.name}: it may be resized to {self.least_gpus} GPUs at least; that must be from 0 to the "
                f"{self.gpus} that it holds"
            )

    @property
    def full_w(self) -> float:
        """Power of all its GPUs without a cap, W."""
        return self.gpus * self.power_w[-1]

    @property
    def least_w(self) -> float:
        """Power of all its GPUs under the lowest cap that keeps its least throughput, W."""
        return self.gpus * float(np.interp(self.least, self.throughput, self.power_w))

    def throughput_at(self, power_w: F8) -> F8:
        """Returns the throughput, as a share, of all its GPUs under one cap.

        Args:
            power_w: Power of all its GPUs, W; from that of the lowest cap to full power.
        """
        return np.interp(np.asarray(power_w) / self.gpus, self.power_w, self.throughput)


@dataclass(frozen=True, kw_only=True)
class EventPlan:
    """Power and throughput of jobs over the steps of an event.

    Attributes:
        power_w_JT: Power of each job in each step, W, with that of its stopped GPUs.
        throughput_JT: Throughput of each job, as a share of that without an event.
        met_T: Whether all jobs together stay within the budget.
    """

    power_w_JT: F8
    throughput_JT: F8
    met_T: Bools

    @property
    def power_w_T(self) -> F8:
        """Power of all jobs, W."""
        total: F8 = self.power_w_JT.sum(axis=0)
        return total

    def lost(self, jobs: Sequence[RunningJob]) -> float:
        """Returns the share of the jobs' throughput that is lost over the event, GPUs counted by their weights."""
        size_J = np.array([job.gpus * job.weight for job in jobs])
        return float(1 - size_J @ self.throughput_JT.mean(axis=1) / size_J.sum())


def plan_of(power_w_JT: F8, throughput_JT: F8, budget_w_T: F8) -> EventPlan:
    """Returns a plan, with the steps in which it stays within the budget."""
    met_T = power_w_JT.sum(axis=0) <= budget_w_T + SLACK_W
    return EventPlan(power_w_JT=power_w_JT, throughput_JT=throughput_JT, met_T=met_T)


def event_share_least(least_of_run: float, run_steps: float, event_steps: float) -> float:
    """Returns the least throughput inside an event, from that over a whole run.

    All that may be lost in the run, ``(1 - least) run``, may be lost in the event.

    Args:
        least_of_run: Least mean throughput over the run, 0 to 1.
        run_steps: Length of the run.
        event_steps: Length of the event in the same unit, above 0 and no longer than the run.

    Raises:
        ScenarioError: The event is longer than the run, or a value is out of range.

    Example:
        >>> event_share_least(0.9, 400, 200), event_share_least(0.5, 400, 200)
        (0.8, 0.0)
    """
    if not 0 < event_steps <= run_steps or not 0 <= least_of_run <= 1:
        raise ScenarioError(
            f"an event of {event_steps:g} steps in a run of {run_steps:g} with least throughput {least_of_run:g}: the "
            "event must be no longer than the run, the throughput from 0 to 1"
        )
    return float(max(0.0, round(1 - (1 - least_of_run) * run_steps / event_steps, 12)))
