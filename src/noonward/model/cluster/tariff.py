"""Tariffs: energy by signal or contract, fees by hour, demand charges with ratchets, coincident peaks.

Every charge states its sum for metered power (``settle``) and its rows and costs for planners and bounds (``convex``).
All of them are convex in the power that is drawn, so a bill is never below what its program says.
"""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from noonward.arrays import F8, I8, Bools
from noonward.model.cluster.calendar import Calendar
from noonward.model.cluster.meter import IntervalMin, Kilowatts
from noonward.model.cluster.program import Program
from noonward.model.spec import LARGEST, NonNegative, Positive, Share, Spec, without_defaults
from noonward.units import MINUTE_S

Month = Annotated[int, Field(ge=1, le=12)]
LocalHour = Annotated[int, Field(ge=0, le=23)]
UsdPerMwh = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
YEAR_MONTHS = tuple(range(1, 13))
DAY_HOURS = tuple(range(24))


class Times(Spec):
    """Hours of some days and months, on the site's local clock."""

    months: tuple[Month, ...] = Field(default=YEAR_MONTHS, min_length=1)
    """Months, 1 to 12."""
    days: Literal["all", "weekdays", "weekends"] = "all"
    """Days of the week; holidays count as the weekday they fall on."""
    hours: tuple[LocalHour, ...] = Field(default=DAY_HOURS, min_length=1)
    """Hours by the number they begin with, 0 to 23."""
    weekend_hours: Annotated[tuple[LocalHour, ...], Field(min_length=1)] | None = None
    """Hours of Saturdays and Sundays, with ``days: all``; none: the same hours."""

    @model_validator(mode="after")
    def _weekends_count(self) -> Self:
        if self.weekend_hours is not None and self.days != "all":
            raise ValueError(f"weekend_hours with days: {self.days}; leave days out, or give hours alone")
        return self

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, *type(self).model_fields)

    def holds(self, calendar: Calendar) -> Bools:
        """Returns which intervals are within, [N]."""
        within = np.isin(calendar.hour_N, self.hours)
        if self.weekend_hours is not None:
            within = np.where(calendar.weekend_N, np.isin(calendar.hour_N, self.weekend_hours), within)
        if self.days != "all":
            within &= calendar.weekend_N == (self.days == "weekends")
        return np.asarray(within & np.isin(calendar.number_M[calendar.month_N], self.months))


class Fee(Times):
    """A price added to that of energy at some times: grid fees, taxes, the prices of a time-of-use contract."""

    usd_per_mwh: UsdPerMwh
    """Price, USD/MWh."""


class Block(Spec):
    """A block of a month's energy at a price of its own."""

    up_to_kwh: Positive | None = None
    """Energy of the month up to which it holds, kWh; none: without end. A part of a month has its part of it."""
    usd_per_mwh: UsdPerMwh
    """Price, USD/MWh."""


class Demand(Times):
    """A charge for the largest mean power of an interval, month by month.

    The power charged is the largest of the month's own peak at the times stated, a share of the highest of the eleven
    months before (ratchet), and a share of the contract's power; of it, the part above ``above_kw``. A part of a month
    costs its part.
    """

    usd_per_kw_month: NonNegative
    """Price, USD per kW and month."""
    interval_min: IntervalMin = 15
    """Interval over which power is averaged, min: a multiple of the meter's."""
    ratchet: Share = 0.0
    """Share of the highest peak of the eleven months before, those before the window included (``past_peak_kw``)."""
    least_share: Share = 0.0
    """Share of ``contract_kw`` that is charged at least."""
    above_kw: NonNegative = 0.0
    """Power that costs nothing, kW: the part above it is charged. Several charges make a price that rises in steps."""

    def floors_kw(self, calendar: Calendar, contract_kw: float, past_peak_kw: float) -> F8:
        """Returns the power below which a peak changes nothing, by billing month, kW."""
        least_kw = max(self.least_share * contract_kw, self.ratchet * past_peak_kw, self.above_kw)
        return np.full(calendar.months, least_kw)

    def step(self, peak_kw_M: F8, month: int, kw: float) -> F8:
        """Returns the months' peaks after another interval, kW."""
        after = peak_kw_M.copy()
        after[month] = max(after[month], kw)
        return after

    def settle(self, kw_N: F8, calendar: Calendar, contract_kw: float, past_peak_kw: float) -> F8:
        """Returns the charge by billing month, USD.

        Args:
            kw_N: Power drawn by interval of the calendar, kW.
            calendar: Calendar.
            contract_kw: Power of the contract, kW.
            past_peak_kw: Highest peak of the eleven months before the window, kW.
        """
        mean_kw_X, month_X = self.averaged(kw_N, calendar)
        peak_kw_M = np.zeros(calendar.months)
        np.maximum.at(peak_kw_M, month_X, mean_kw_X)
        charged_kw_M = np.maximum(peak_kw_M, self.floors_kw(calendar, contract_kw, past_peak_kw))
        for month, before in itertools.product(range(calendar.months), repeat=2):
            if before < month <= before + 11:
                charged_kw_M[month] = max(charged_kw_M[month], self.ratchet * peak_kw_M[before])
        return self.rate_M(calendar) * (charged_kw_M - self.above_kw)

    def rate_M(self, calendar: Calendar) -> F8:
        """Returns the price by billing month, USD/kW; 0 in months that are not charged."""
        return self.usd_per_kw_month * calendar.share_M * np.isin(calendar.number_M, self.months)

    def averaged(self, kw_N: F8, calendar: Calendar) -> tuple[F8, I8]:
        """Returns mean power by interval of the charge where it counts, kW, and the billing months of these."""
        first_X, each = self._first(calendar)
        return kw_N.reshape(-1, each).mean(axis=1)[first_X // each], calendar.month_N[first_X]

    def _first(self, calendar: Calendar) -> tuple[I8, int]:
        """Returns the first calendar interval of each interval of the charge that counts, and how many it holds."""
        each = round(self.interval_min * MINUTE_S / calendar.step_s)
        first_X = np.arange(0, len(calendar), each)
        return first_X[self.holds(calendar)[first_X]], each

    def convex(
        self, program: Program, draw_N: I8, calendar: Calendar, contract_kw: float, past_peak_kw: float
    ) -> tuple[I8, I8]:
        """Adds the charged power p_m of every month and p_m >= mean power, p_m >= ratchet p_m' to a program.

        Args:
            program: Program.
            draw_N: Columns of the power drawn, kW.
            calendar: Calendar.
            contract_kw: Power of the contract, kW.
            past_peak_kw: Highest peak of the eleven months before the window, kW.

        Returns:
            Columns of the peaks by month; rows that hold them above each interval's mean power.
        """
        floors = self.floors_kw(calendar, contract_kw, past_peak_kw)
        charged_M = program.columns(calendar.months, self.rate_M(calendar), lower=floors)
        program.constant -= float(self.rate_M(calendar).sum()) * self.above_kw
        peak_M = program.columns(calendar.months)
        program.rows(calendar.months, [(charged_M, 1.0), (peak_M, -1.0)], lower=0.0)
        for month, before in itertools.product(range(calendar.months), repeat=2):
            if before < month <= before + 11 and self.ratchet:
                program.rows(1, [(charged_M[[month]], 1.0), (peak_M[[before]], -self.ratchet)], lower=0.0)
        first_X, each = self._first(calendar)
        inside_XE = draw_N[first_X[:, None] + np.arange(each)]
        rows = program.rows(
            len(first_X), [(peak_M[calendar.month_N[first_X]], 1.0), (inside_XE, -1.0 / each)], lower=0.0
        )
        return charged_M, rows


class Coincident(Spec):
    """A charge for the mean power in the intervals in which a whole system's load peaks: PJM's 5CP, ERCOT's 4CP.

    A site pays ``usd_per_kw_year`` for its mean power over all peaks of a year; each peak in the window costs its part.
    """

    usd_per_kw_year: NonNegative
    """Price, USD per kW and year."""
    peaks: Annotated[int, Field(ge=1, le=100)] = 5
    """Peaks of a year, or of each month."""
    per: Literal["year", "month"] = "year"
    """Whether the peaks are those of the year's months stated, or of each of these months: 5CP is 5 a year, 4CP 1 a
    month from June to September, 12CP 1 a month."""
    months: tuple[Month, ...] = Field(default=YEAR_MONTHS, min_length=1)
    """Months that peaks may lie in."""
    interval_min: IntervalMin = 60
    """Interval over which load and power are averaged, min: a multiple of the meter's."""
    one_per_day: bool = True
    """Whether a day has one peak at most, as in PJM."""

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "per", "months", "interval_min", "one_per_day")

    @property
    def usd_per_kw_peak(self) -> float:
        """Price of a kW in one peak, USD."""
        return self.usd_per_kw_year / (self.peaks * (len(self.months) if self.per == "month" else 1))

    def peaks_of(self, mw_X: F8, start: datetime, calendar: Calendar) -> tuple[datetime, ...]:
        """Returns the starts of the intervals in which a system's load peaks, in the order of time.

        Args:
            mw_X: Load of the system by interval of the charge; NaN where it is unknown.
            start: UTC start of the first one.
            calendar: Calendar of these intervals.
        """
        from datetime import timedelta

        number_X = calendar.number_M[calendar.month_N]
        month_X = (calendar.day_N.astype("datetime64[D]")).astype("datetime64[M]").astype(np.int64)
        group_X = month_X if self.per == "month" else month_X // 12
        kept_X = np.isin(number_X, self.months) & np.isfinite(mw_X)
        found: list[int] = []
        for group in np.unique(group_X[kept_X]):
            inside = np.flatnonzero(kept_X & (group_X == group))
            taken: list[int] = []
            days: set[int] = set()
            for x in inside[np.argsort(-mw_X[inside], kind="stable")].tolist():
                day = int(calendar.day_N[x])
                if len(taken) < self.peaks and not (self.one_per_day and day in days):
                    taken.append(x)
                    days.add(day)
            found += taken
        return tuple(start + timedelta(seconds=x * calendar.step_s) for x in sorted(found))

    def settle(self, kw_N: F8, calendar: Calendar, peaks: tuple[datetime, ...]) -> float:
        """Returns the charge, USD: that of the peaks within the run.

        Args:
            kw_N: Power drawn by interval of the calendar, kW.
            calendar: Calendar.
            peaks: UTC starts of the system's peaks.
        """
        each = round(self.interval_min * MINUTE_S / calendar.step_s)
        at_X = calendar.positions(peaks, self.interval_min * MINUTE_S)
        return float(self.usd_per_kw_peak * kw_N.reshape(-1, each).mean(axis=1)[at_X].sum())

    def convex(self, program: Program, draw_N: I8, calendar: Calendar, peaks: tuple[datetime, ...]) -> None:
        """Adds the price of power in the system's peaks to a program: the peaks are known, as after the fact."""
        program.add_cost(draw_N, self.price_N(calendar, peaks))

    def price_N(self, calendar: Calendar, peaks: tuple[datetime, ...]) -> F8:
        """Returns what a kW in each interval costs, USD/kW."""
        each = round(self.interval_min * MINUTE_S / calendar.step_s)
        price_X = np.zeros(len(calendar) // each)
        np.add.at(price_X, calendar.positions(peaks, self.interval_min * MINUTE_S), self.usd_per_kw_peak / each)
        return np.repeat(price_X, each)


class Tariff(Spec):
    """What a site pays for the power it draws."""

    energy: Literal["signal"] | UsdPerMwh | tuple[Block, ...] = "signal"
    """Price of energy: that of the site's zone (``signal``), a contract's USD/MWh, or blocks of a month's energy at
    rising prices."""
    adder_usd_per_mwh: UsdPerMwh = 0.0
    """Added to every MWh: taxes, losses, the supplier's margin."""
    fees: tuple[Fee, ...] = ()
    """Prices added at some hours."""
    demand: tuple[Demand, ...] = ()
    """Charges for the peaks of months."""
    coincident: tuple[Coincident, ...] = ()
    """Charges for power while the whole system peaks."""
    contract_kw: Kilowatts | None = None
    """Power of the contract, kW, which ``least_share`` of a demand charge refers to."""
    usd_per_month: NonNegative = 0.0
    """Fixed charge, USD a month."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if isinstance(self.energy, tuple):
            if not self.energy:
                raise ValueError("energy holds no block; give a price in USD/MWh, 'signal' or at least one block")
            ends = [block.up_to_kwh for block in self.energy]
            limits = [end for end in ends[:-1] if end is not None]
            if ends[-1] is not None or len(limits) < len(ends) - 1 or sorted(set(limits)) != limits:
                raise ValueError("blocks of energy end at rising up_to_kwh, and the last one has none; order them so")
            prices = [block.usd_per_mwh for block in self.energy]
            if sorted(prices) != prices:
                raise ValueError(
                    f"blocks of energy have the prices {prices} USD/MWh; they must rise: a bill whose prices fall with "
                    "use has no bound by linear programming"
                )
        if self.contract_kw is None and any(charge.least_share for charge in self.demand):
            raise ValueError("a demand charge has a least_share, but the tariff no contract_kw; give contract_kw in kW")
        return self

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, *type(self).model_fields)

    @property
    def by_signal(self) -> bool:
        """Whether energy costs what it does in the site's zone, before what is added."""
        return self.energy == "signal"

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Blocks of a month's energy; none where it has one price."""
        return self.energy if isinstance(self.energy, tuple) else ()

    def added_usd_per_mwh(self, calendar: Calendar) -> F8:
        """Returns what is added to the signal, or stands in its place, by interval, USD/MWh; of blocks the first's."""
        base = self.blocks[0].usd_per_mwh if self.blocks else 0.0 if self.by_signal else float(self.energy)  # type: ignore[arg-type]
        added_N = np.full(len(calendar), base + self.adder_usd_per_mwh)
        for fee in self.fees:
            added_N += np.where(fee.holds(calendar), fee.usd_per_mwh, 0.0)
        return added_N

    def block_rises(self, calendar: Calendar) -> list[tuple[F8, float]]:
        """Returns where in each billing month a block ends, kWh, and by how much the next one is dearer, USD/kWh."""
        return [
            (block.up_to_kwh * calendar.share_M, (after.usd_per_mwh - block.usd_per_mwh) / 1000.0)
            for block, after in itertools.pairwise(self.blocks)
            if block.up_to_kwh is not None
        ]

    def settle_blocks(self, kw_N: F8, calendar: Calendar) -> float:
        """Returns what energy beyond the first block costs more than in it, USD."""
        kwh_M = np.bincount(calendar.month_N, kw_N * calendar.step_h, minlength=calendar.months)
        return float(sum((rise * np.maximum(0.0, kwh_M - end_M)).sum() for end_M, rise in self.block_rises(calendar)))

    def convex_blocks(self, program: Program, draw_N: I8, calendar: Calendar) -> None:
        """Adds energy beyond the blocks' ends to a program: over_m >= energy_m - end_m at the rise of the price."""
        for end_M, rise in self.block_rises(calendar):
            over_M = program.columns(calendar.months, rise)
            for month in range(calendar.months):
                inside = draw_N[calendar.month_N == month]
                program.rows(1, [(over_M[[month]], 1.0), (inside[None], -calendar.step_h)], lower=-float(end_M[month]))
