"""A grid event at a meter: what it asks, what it pays, and its rows for bounds and planners."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from noonward.arrays import F8, I8, Bools
from noonward.errors import ScenarioError
from noonward.model.cluster.program import Program
from noonward.units import HOUR_S

KW_PER_MW = 1000.0
HIGHEST: Final = 4
"""Days with the highest power, of those that a measured baseline looks at, that it takes the mean of."""
ADJUST_FROM_S: Final = 4 * HOUR_S
"""Begin of the hours that adjust a measured baseline to the day, before the event's begin, s."""
ADJUST_UNTIL_S: Final = HOUR_S
"""Their end, before the event's begin, s."""
KEPT: Final = 1e-5
"""Share of what is asked by which an interval may fall short and still counts as kept."""


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
        missed: Intervals in which less was delivered than asked.
    """

    asked_mwh: float
    delivered_mwh: float
    compliance: float
    least_compliance: float
    payment_usd: float
    penalty_usd: float
    missed: int


@dataclass(frozen=True, kw_only=True)
class GridEvent:
    """A request to keep a meter's power at or below a target for some time.

    Its three faces: ``step`` is the limit at a time, ``settle`` its lines in the ledger, ``convex`` a cost that is
    linear in the power above the limit and never above the settled one.

    Attributes:
        start_s: Begin, seconds since the run's start.
        end_s: End, s.
        notice_s: How long before its begin it is known, s.
        baseline_kw: Power that would have been drawn, kW: a firm level; where ``past_s`` is given, what is expected,
            from which the limit falls.
        target_kw: Power to stay at or below, kW, at most the baseline.
        ramp_s: Time after the begin over which the limit falls from baseline to target, s.
        usd_per_mwh: Payment for a MWh that is left out.
        penalty_usd_per_mwh: Penalty for a MWh that was asked and is drawn.
        past_s: Begins of the same hours on earlier days, at least four, s: what is delivered then counts from a
            baseline measured on them (``measured``); none: from the firm level.

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
    past_s: tuple[float, ...] = ()

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
        past = self.past_s
        if past and (len(past) < HIGHEST or min(past) < ADJUST_FROM_S or max(past) >= self.start_s):
            raise ScenarioError(
                f"an event's baseline is measured in the hours that begin at {past} s; give at least {HIGHEST} times "
                f"before its own begin, {ADJUST_FROM_S:g} s or later"
            )

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

    def measured_in(self, adjusted: bool = True) -> list[tuple[float, float]]:
        """Returns begins and ends of the times whose power a measured baseline depends on, s.

        Args:
            adjusted: Whether the hours that adjust it to the day are among them.
        """
        length_s = self.end_s - self.start_s
        found = [(begin_s, begin_s + length_s) for begin_s in self.past_s]
        if adjusted:
            found += [(each_s - ADJUST_FROM_S, each_s - ADJUST_UNTIL_S) for each_s in (*self.past_s, self.start_s)]
        return found

    def measured(self, kw_N: F8, interval_s: float, *, adjusted: bool = True) -> Self:
        """Returns the event with the firm level that its rule measures: high 4 of 5 with an adjustment of the day.

        It is the mean power in the same hours of those four of the earlier days on which it was highest, plus what the
        day itself drew more than they in the hours from 4 to 1 before the event (PJM's symmetric additive adjustment),
        at least the target. One level for the whole event, where PJM's has one per hour.

        Args:
            kw_N: Mean power by interval from the run's start on, kW; NaN where it is unknown.
            interval_s: Length of an interval, s.
            adjusted: Whether what the day itself drew is known and counts.
        """
        if not self.past_s:
            return self

        def mean_kw(from_s: float, until_s: float) -> float:
            return float(np.nanmean(kw_N[int(from_s // interval_s) : int(-(-until_s // interval_s))]))

        days = len(self.past_s)
        level_D = np.array([mean_kw(*each) for each in self.measured_in(adjusted=False)])
        highest = np.argsort(-level_D, kind="stable")[:HIGHEST]
        level_kw = float(level_D[highest].mean())
        if adjusted:
            *before, today = (mean_kw(*each) for each in self.measured_in()[days:])
            level_kw = level_kw + today - float(np.mean([before[d] for d in highest]))
        return replace(self, baseline_kw=max(level_kw, self.target_kw), past_s=())

    def delivered(self, kw_N: F8, interval_s: float) -> tuple[F8, F8, F8]:
        """Returns hours, mean asked power (kW) and mean power left out (kW) of each metering interval.

        Left out is what lies between the meter's power and the firm level, at most what is asked; NaN where power is.

        Args:
            kw_N: Mean power by interval from the run's start on, kW.
            interval_s: Length of an interval, s.
        """
        hours, asked_kw = self.intervals(interval_s, len(kw_N))
        return hours, asked_kw, np.clip(self.baseline_kw - kw_N, 0.0, asked_kw)

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
        if self.past_s:
            return self.measured(kw_N, interval_s).settle(kw_N, interval_s)
        hours, asked_kw, delivered_kw = self.delivered(kw_N, interval_s)
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
            missed=int(missed_intervals(asked_kw, delivered_kw).sum()),
        )

    def convex(self, interval_s: float, count: int, most_kw: float) -> tuple[F8, F8, float]:
        """Returns a convex cost of power: ``constant + sum_n slope_n max(0, kw_n - limit_n)``, USD.

        Settled, a kW above the limit costs payment and penalty until all that was asked is missed, and nothing more
        from there on, which is not convex. The slope is that of the least convex function below it up to ``most_kw``:

            slope_n = hours_n (payment + penalty) asked_n / (max(most, baseline) - limit_n).

        A measured baseline depends on the power of earlier days, at most ``most_kw``: then the cost is the constant
        alone, the payment for all that lies between that and the target, which no run is paid more than.

        Args:
            interval_s: Length of an interval, s.
            count: Intervals from the run's start on.
            most_kw: Most power that the site can draw, kW.

        Returns:
            Limits, kW (infinite outside the event), slopes, USD per kW, and the constant, USD.
        """
        if self.past_s:
            # The adjustment adds at most once more what the site can draw.
            at_most = replace(self, baseline_kw=max(2 * most_kw, self.target_kw), past_s=())
            limit_kw, _, constant = at_most.convex(interval_s, count, most_kw)
            return limit_kw, np.zeros(count), constant
        hours, asked_kw = self.intervals(interval_s, count)
        inside = asked_kw > 0
        limit_kw = np.where(inside, self.baseline_kw - asked_kw, np.inf)
        reach_kw = np.where(inside, max(most_kw, self.baseline_kw) - limit_kw, 1.0)
        per_mwh = self.usd_per_mwh + self.penalty_usd_per_mwh
        slope = np.where(inside, hours * per_mwh * asked_kw / reach_kw / KW_PER_MW, 0.0)
        return limit_kw, slope, -self.usd_per_mwh * float(asked_kw @ hours) / KW_PER_MW

    def add_to(self, program: Program, draw_N: I8, step_s: float, interval_s: float, most_kw: float) -> None:
        """Adds the convex cost to a program: over_k >= mean power of k - limit_k, at its slope, and the constant.

        Args:
            program: Program.
            draw_N: Columns of the power drawn by interval, kW.
            step_s: Length of these intervals, s, a divisor of the meter's.
            interval_s: Length of the meter's intervals, s.
            most_kw: Most power that the site can draw, kW.
        """
        each = round(interval_s / step_s)
        count = len(draw_N) // each
        limit_kw, slope, constant = self.convex(interval_s, count, most_kw)
        program.constant += constant
        at_X = np.flatnonzero(slope)
        over_X = program.columns(len(at_X), slope[at_X])
        terms: list[tuple[I8, F8 | float]] = [(over_X, 1.0), (draw_N.reshape(count, each)[at_X], -1.0 / each)]
        program.rows(len(at_X), terms, lower=-limit_kw[at_X])


def missed_intervals(asked_kw: F8, delivered_kw: F8) -> Bools:
    """Returns in which intervals less was left out than asked; not in those whose power is unknown (NaN)."""
    return np.asarray((asked_kw > 0) & (delivered_kw < (1 - KEPT) * asked_kw))


@dataclass(frozen=True, kw_only=True)
class SiteEvent:
    """An event at a site.

    Attributes:
        site: Its name.
        event: What is asked of its meter.
    """

    site: str
    event: GridEvent


def check_events(events: Sequence[SiteEvent], sites: Iterable[str]) -> None:
    """Raises ScenarioError if an event is at an unknown site, or two of a site overlap.

    Args:
        events: Events.
        sites: Names of the fleet's sites.
    """
    known = tuple(sites)
    for each in events:
        if each.site not in known:
            raise ScenarioError(f"an event is at {each.site!r}; the fleet's sites are {', '.join(known)}")
    ordered = sorted(events, key=lambda each: (each.site, each.event.start_s))
    for one, other in itertools.pairwise(ordered):
        if one.site == other.site and other.event.start_s < one.event.end_s:
            raise ScenarioError(
                f"two events at {one.site} overlap: one ends at {one.event.end_s:g} s, the next begins at "
                f"{other.event.start_s:g} s; move one of them"
            )


@dataclass(frozen=True, kw_only=True)
class EventTotals:
    """What the ledger says of all events at a site.

    Attributes:
        events: Number of events.
        asked_mwh: Energy that was to be left out, MWh.
        delivered_mwh: Energy below the baselines, in each interval at most what was asked, MWh.
        missed_intervals: Metering intervals in which less was delivered than asked.
        payment_usd: Payments, USD.
        penalty_usd: Penalties, USD.
    """

    events: float
    asked_mwh: float
    delivered_mwh: float
    missed_intervals: float
    payment_usd: float
    penalty_usd: float

    @classmethod
    def of(cls, lines: Sequence[EventLines]) -> EventTotals:
        """Returns the sums of the lines of some events."""
        return cls(
            events=len(lines),
            asked_mwh=sum(line.asked_mwh for line in lines),
            delivered_mwh=sum(line.delivered_mwh for line in lines),
            missed_intervals=sum(line.missed for line in lines),
            payment_usd=sum(line.payment_usd for line in lines),
            penalty_usd=sum(line.penalty_usd for line in lines),
        )
