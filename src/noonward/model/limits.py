"""Constraints a user sets: latency, queues, power per site, and the latency targets of job classes."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from noonward.errors import nearest
from noonward.model.cluster.fleet import Fleet
from noonward.model.spec import NonNegative, Positive, Spec


class Constraints(Spec):
    """Limits that every policy is held against (CHSAC-AF, Eq. 4); none of them stops a job.

    A learner prices them by multipliers (Eqs. 6 and 7), some rules use the latency targets, and every comparison
    reports what was attained beside the limit.
    """

    mean_latency_s: Positive | None = None
    """Limit of the mean end-to-end latency (arrival to finish: transfer, wait and run) of done jobs, s."""
    p99_latency_s: Positive | None = None
    """Limit of its 99th percentile, s."""
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

    def named(self, sites: Sequence[str]) -> dict[str, float]:
        """Returns the limits that a learner prices, by name: latencies, queues, powers.

        Example:
            >>> Constraints(mean_latency_s=9, queue_max={"b": 2}, power_cap_w={"a": 50}).named(["a", "b"])
            {'mean_latency_s': 9.0, 'queue/b': 2.0, 'power_w/a': 50.0}
        """
        latencies = {"mean_latency_s": self.mean_latency_s, "p99_latency_s": self.p99_latency_s}
        limits = latencies | {f"queue/{site}": self.queue_limit(site) for site in sites}
        limits |= {f"power_w/{site}": self.power_cap_w.get(site) for site in sites}
        return {name: float(limit) for name, limit in limits.items() if limit is not None}

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
