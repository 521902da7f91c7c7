"""A grid event at a meter: what it asks, what it pays, and its rows for bounds and planners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noonward.arrays import F8
from noonward.errors import ScenarioError
from noonward.units import HOUR_S

KW_PER_MW = 1000.0


@dataclass(frozen=True, kw_only=True)
class EventLines:
    """What the ledger says of an event.

    Attributes:
        asked_mwh: Energy that was to be left out, MWh.
        delivered_mwh: Energy below the baseline, in each interval at most what was asked, MWh.
        compliance: Delivered over asked energy.
        least_compliance: The same in the interval where it is least.
        payment_usd: Payment for what was delivered, USD.
        penalty_usd: Penalty for what was not, USD.
    """

    asked_mwh: float
    delivered_mwh: float
    compliance: float
    least_compliance: float
    payment_usd: float
    penalty_usd: float


@dataclass(frozen=True, kw_only=True)
class GridEvent:
    """A request to keep a meter's power at or below a target for some time.

    Its three faces: ``step`` is the limit at a time, ``settle`` its lines in the ledger, ``convex`` a cost that is
    linear in the power above the limit and never above the settled one.

    Attributes:
        start_s: Begin, seconds since the run's start.
        end_s: End, s.
        notice_s: How long before its begin it is known, s.
        baseline_kw: Power that would have been drawn, by the contract's rule, kW: a firm level or a measured mean.
        target_kw: Power to stay at or below, kW, at most the baseline.
        ramp_s: Time after the begin over which the limit falls from baseline to target, s.
        usd_per_mwh: Payment for a MWh that is left out.
        penalty_usd_per_mwh: Penalty for a MWh that was asked and is drawn.

    Raises:
        ScenarioError: A value is out of its range.
    """

    start_s: float
    end_s: float
    baseline_kw: float
    target_kw: float
    notice_s: float = 0.0
    ramp_s: float = 0.0
    usd_per_mwh: float = 0.0
    penalty_usd_per_mwh: float = 0.0

    def __post_init__(self) -> None:
        if not self.start_s + self.ramp_s < self.end_s:
            raise ScenarioError(
                f"an event from {self.start_s:g} s to {self.end_s:g} s with a ramp of {self.ramp_s:g} s asks for "
                "nothing; let it end after its ramp"
            )
        if not 0 <= self.target_kw <= self.baseline_kw:
            raise ScenarioError(
                f"an event's target is {self.target_kw:g} kW; it must be from 0 to its baseline, "
                f"{self.baseline_kw:g} kW"
            )
        for name in ("notice_s", "ramp_s", "usd_per_mwh", "penalty_usd_per_mwh"):
            if getattr(self, name) < 0:
                raise ScenarioError(f"{name} of an event is {getattr(self, name):g}; give 0 or more")

    @property
    def known_s(self) -> float:
        """When it becomes known, s."""
        return self.start_s - self.notice_s

    def step(self, time_s: F8) -> F8:
        """Returns the limit of power at some times, kW; infinite outside the event.

        Example:
            >>> event = GridEvent(start_s=0, end_s=3600, baseline_kw=100, target_kw=75, ramp_s=900)
            >>> event.step(np.array([-1.0, 450.0, 900.0, 3600.0])).tolist()
            [inf, 87.5, 75.0, inf]
        """
        at = np.asarray(time_s, dtype=np.float64)
        part = np.minimum((at - self.start_s) / self.ramp_s, 1.0) if self.ramp_s else np.ones_like(at)
        limit_kw = self.baseline_kw - part * (self.baseline_kw - self.target_kw)
        return np.where((at >= self.start_s) & (at < self.end_s), limit_kw, np.inf)

    def intervals(self, interval_s: float, count: int) -> tuple[F8, F8]:
        """Returns hours and mean asked power (kW) of each metering interval that lies in the event.

        Args:
            interval_s: Length of an interval, s.
            count: Intervals from the run's start on.
        """
        edges_s = np.clip(np.arange(count + 1) * interval_s, self.start_s, self.end_s)
        asked_kwh = np.diff(self._asked_kwh(edges_s))
        hours = np.diff(edges_s) / HOUR_S
        asked_kw = np.divide(asked_kwh, hours, out=np.zeros(count), where=hours > 0)
        return hours, asked_kw

    def _asked_kwh(self, time_s: F8) -> F8:
        """Returns the energy asked from the begin to some times within the event, kWh."""
        since_s = time_s - self.start_s
        ramp_s = np.minimum(since_s, self.ramp_s)
        full_s = since_s - ramp_s / 2 * (2 - ramp_s / self.ramp_s) if self.ramp_s else since_s
        return np.asarray((self.baseline_kw - self.target_kw) * full_s / HOUR_S)

    def settle(self, kw_N: F8, interval_s: float) -> EventLines:
        """Returns the event's lines from metered power.

        Args:
            kw_N: Mean power by interval from the run's start on, kW; where the event cuts an interval, the mean of the
                whole interval stands for its part.
            interval_s: Length of an interval, s.

        Raises:
            ScenarioError: The readings end before the event.
        """
        if len(kw_N) * interval_s < self.end_s:
            raise ScenarioError(
                f"an event ends at {self.end_s:g} s and its meter's readings at {len(kw_N) * interval_s:g} s; shorten "
                "it, or lengthen the window"
            )
        hours, asked_kw = self.intervals(interval_s, len(kw_N))
        delivered_kw = np.clip(self.baseline_kw - kw_N, 0.0, asked_kw)
        inside = asked_kw > 0
        asked_mwh = float(asked_kw @ hours) / KW_PER_MW
        delivered_mwh = float(delivered_kw @ hours) / KW_PER_MW
        return EventLines(
            asked_mwh=asked_mwh,
            delivered_mwh=delivered_mwh,
            compliance=delivered_mwh / asked_mwh if asked_mwh > 0 else 1.0,
            least_compliance=float((delivered_kw[inside] / asked_kw[inside]).min()) if inside.any() else 1.0,
            payment_usd=self.usd_per_mwh * delivered_mwh,
            penalty_usd=self.penalty_usd_per_mwh * (asked_mwh - delivered_mwh),
        )

    def convex(self, interval_s: float, count: int, most_kw: float) -> tuple[F8, F8, float]:
        """Returns a convex cost of power: ``constant + sum_n slope_n max(0, kw_n - limit_n)``, USD.

        Settled, a kW above the limit costs payment and penalty until all that was asked is missed, and nothing more
        from there on, which is not convex. The slope is that of the least convex function below it up to ``most_kw``:

            slope_n = hours_n (payment + penalty) asked_n / (max(most, baseline) - limit_n).

        Args:
            interval_s: Length of an interval, s.
            count: Intervals from the run's start on.
            most_kw: Most power that the site can draw, kW.

        Returns:
            Limits, kW (infinite outside the event), slopes, USD per kW, and the constant, USD.
        """
        hours, asked_kw = self.intervals(interval_s, count)
        inside = asked_kw > 0
        limit_kw = np.where(inside, self.baseline_kw - asked_kw, np.inf)
        reach_kw = np.where(inside, max(most_kw, self.baseline_kw) - limit_kw, 1.0)
        per_mwh = self.usd_per_mwh + self.penalty_usd_per_mwh
        slope = np.where(inside, hours * per_mwh * asked_kw / reach_kw / KW_PER_MW, 0.0)
        return limit_kw, slope, -self.usd_per_mwh * float(asked_kw @ hours) / KW_PER_MW
