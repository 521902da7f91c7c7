"""Constraints a user sets: limits of latency, queues and power per site, and the latency targets of job classes.

A limit is one object: its name and unit, what a decision costs a learner under it, and what a run attained.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from pydantic import Field

from noonward.arrays import F8, I8, Bools
from noonward.errors import nearest
from noonward.model.cluster.fleet import Fleet
from noonward.model.spec import NonNegative, Positive, Spec

MAY_EXCEED: Final = 0.01
"""Share of jobs that may be later than the limit of the 99th percentile, of decisions that may exceed a power cap."""


class Decisions(Protocol):
    """What costs of decisions are computed from: readings of a step. Axes: B runs side by side, S sites."""

    @property
    def decided_B(self) -> F8:
        """1 if a job was decided on, else 0, as are the readings below."""

    @property
    def latency_B(self) -> F8:
        """End-to-end latency of the job, s."""

    @property
    def late_B(self) -> F8:
        """1 if the job is later than ``Limit.late_after_s``."""

    @property
    def site_B(self) -> F8 | I8:
        """Site it was sent to, or -1."""

    @property
    def waiting_BS(self) -> F8:
        """Jobs that wait at the next decision."""

    @property
    def power_BS(self) -> F8:
        """Facility power at the next decision, W."""


@dataclass(frozen=True)
class Limit(ABC):
    """A limit that policies are held against.

    The cost of a decision is its relative excess: the limit holds where the mean cost is at most 0.

    Attributes:
        limit: Largest value that keeps it, in ``unit``.
        site: Number and name of the site it is for; None: for all sites together.
    """

    limit: float
    site: tuple[int, str] | None = None

    what: ClassVar[str]
    """What is limited, with its unit where that is not jobs."""
    unit: ClassVar[str]
    """Unit of the limit and of what is attained."""

    @property
    def name(self) -> str:
        """What is limited and where: ``mean_latency_s``, ``queue/us-west``.

        Example:
            >>> PowerCap(5000.0, (0, "us-west")).name
            'power_w/us-west'
        """
        return self.what if self.site is None else f"{self.what}/{self.site[1]}"

    @property
    def late_after_s(self) -> float:
        """Latency beyond which a job counts as late for this limit, s; infinite where none does."""
        return math.inf

    @abstractmethod
    def cost(self, found: Decisions) -> F8:
        """Returns the costs of the decisions of a step, [B].

        Args:
            found: Readings of the step.
        """

    @abstractmethod
    def attained(self, record: Any) -> float:
        """Returns what a run attained, in ``unit``.

        Args:
            record: Record of the run, with ``ledger`` and ``service``.
        """

    def exceeded_share(self, record: Any) -> float:
        """Returns the share of the window in which the limit was exceeded; NaN where that is not measured."""
        return math.nan


class MeanLatency(Limit):
    """Mean end-to-end latency of done jobs. Cost: latency of the job / limit - 1."""

    what = "mean_latency_s"
    unit = "s"

    def cost(self, found: Decisions) -> F8:
        """Returns the relative excess of the latencies."""
        return found.latency_B / self.limit - found.decided_B

    def attained(self, record: Any) -> float:
        """Returns the mean latency, s."""
        return float(record.ledger.mean_time_in_system_s)


class TailLatency(Limit):
    """99th percentile of the latency. Cost: (1 if the job is later than the limit) / ``MAY_EXCEED`` - 1."""

    what = "p99_latency_s"
    unit = "s"

    @property
    def late_after_s(self) -> float:
        """The limit, s."""
        return self.limit

    def cost(self, found: Decisions) -> F8:
        """Returns the excess of the share of late jobs."""
        return found.late_B / MAY_EXCEED - found.decided_B

    def attained(self, record: Any) -> float:
        """Returns the 99th percentile, s."""
        return float(record.ledger.p99_time_in_system_s)


class MeanQueue(Limit):
    """Time-mean of the jobs that wait at a site (CHSAC-AF, Eq. 4).

    Cost: jobs that wait at the next decision / limit - 1; for a limit of 0 the jobs that wait.
    """

    what = "queue"
    unit = "jobs"
    site: tuple[int, str]

    def cost(self, found: Decisions) -> F8:
        """Returns the relative excess of the queue."""
        return found.decided_B * (found.waiting_BS[:, self.site[0]] - self.limit) / (self.limit or 1.0)

    def attained(self, record: Any) -> float:
        """Returns the mean queue, jobs."""
        return float(record.service.sites[self.site[1]].mean_queue)


class PowerCap(Limit):
    """Facility power of a site at any time.

    Cost: (1 if the decision sent the job there and the power then exceeds the cap) / ``MAY_EXCEED`` - 1. A decision is
    not charged for a site that it leaves alone: there the power falls as jobs finish, minutes after any choice could
    answer for it, and a cost that comes whatever is chosen teaches nothing.
    """

    what = "power_w"
    unit = "W"
    site: tuple[int, str]

    def cost(self, found: Decisions) -> F8:
        """Returns the excess of the share of decisions above the cap."""
        s = self.site[0]
        over_B: Bools = (found.site_B == s) & (found.power_BS[:, s] > self.limit)
        cost_B: F8 = found.decided_B * (over_B / MAY_EXCEED - 1.0)
        return cost_B

    def attained(self, record: Any) -> float:
        """Returns the highest power, W."""
        return float(record.service.sites[self.site[1]].peak_power_w)

    def exceeded_share(self, record: Any) -> float:
        """Returns the share of the window in which the power lay above the cap."""
        return float(record.service.sites[self.site[1]].over_cap_share)


class Constraints(Spec):
    """Limits that every policy is held against (CHSAC-AF, Eq. 4); none of them stops a job.

    A learner prices them by multipliers (Eqs. 6 and 7), some rules use the latency targets, and every comparison
    reports what was attained beside the limit.
    """

    mean_latency_s: Positive | None = None
    """Limit of the mean end-to-end latency (arrival to finish: transfer, wait and run) of done jobs, s."""
    p99_latency_s: Positive | None = None
    """Limit of the 99th percentile of the end-to-end latency, s."""
    queue_max: NonNegative | dict[str, NonNegative] | None = None
    """Limit of the time-mean number of jobs that wait at a site (Eq. 4): one for all sites, or one per site named."""
    power_cap_w: dict[str, Positive] = Field(default_factory=dict)
    """Limit of a site's facility power at any time, W, per site; exceeding it is measured, not prevented."""
    latency_target_s: dict[str, Positive] = Field(default_factory=dict)
    """End-to-end latency that a job of a class should stay within, s, per class."""

    def queue_limit(self, site: str) -> float | None:
        """Returns the limit of a site's mean queue, jobs, or None.

        Example:
            >>> Constraints(queue_max={"a": 2.0}).queue_limit("a"), Constraints(queue_max=3).queue_limit("b")
            (2.0, 3.0)
        """
        return self.queue_max.get(site) if isinstance(self.queue_max, dict) else self.queue_max

    def limits(self, sites: Sequence[str]) -> tuple[Limit, ...]:
        """Returns the limits that are set: latencies, then queues, then powers, these in the order of the sites.

        Args:
            sites: Names of the fleet's sites.

        Example:
            >>> found = Constraints(mean_latency_s=9, queue_max={"b": 2}, power_cap_w={"a": 50}).limits(["a", "b"])
            >>> {each.name: each.limit for each in found}
            {'mean_latency_s': 9.0, 'queue/b': 2.0, 'power_w/a': 50.0}
        """
        places = list(enumerate(sites))
        found: list[tuple[type[Limit], float | None, tuple[int, str] | None]] = [
            (MeanLatency, self.mean_latency_s, None),
            (TailLatency, self.p99_latency_s, None),
            *((MeanQueue, self.queue_limit(site), (s, site)) for s, site in places),
            *((PowerCap, self.power_cap_w.get(site), (s, site)) for s, site in places),
        ]
        return tuple(kind(float(limit), site) for kind, limit, site in found if limit is not None)

    def check(self, fleet: Fleet) -> None:
        """Raises ValueError if a limit names a site or a class that the fleet does not have."""
        queues = self.queue_max if isinstance(self.queue_max, dict) else {}
        for field, names, known, what in (
            ("queue_max", queues, fleet.site_names, "site"),
            ("power_cap_w", self.power_cap_w, fleet.site_names, "site"),
            ("latency_target_s", self.latency_target_s, fleet.classes, "class"),
        ):
            for name in names:
                if name not in known:
                    raise ValueError(f"constraints.{field} names the unknown {what} {name!r}; {nearest(name, known)}")
