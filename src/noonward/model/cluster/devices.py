"""Devices behind a site's meter: battery, solar, export. Each states its physics, its lines and its linear program.

Order of settlement: solar serves the load first, then the battery, and the rest is exported or curtailed; the battery
serves what is left of the load, and the grid the remainder. The meter reads what the grid delivers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from noonward.arrays import F8, I8
from noonward.errors import InfeasiblePlanError
from noonward.model.cluster.meter import Kilowatts
from noonward.model.cluster.program import Program
from noonward.model.spec import LARGEST, NonNegative, Share, Spec, without_defaults

TOLERANCE_KWH = 1e-6
"""Energy, kWh, or power, kW, by which a dispatch may be off: what a linear solver leaves."""


class Battery(Spec):
    """A battery: power, energy, efficiency, reserve and wear.

    It is dispatched with foresight: the least bill for the load that a run came to. Within an interval it may charge
    for a part of the time and discharge for another, so the mean powers of both together stay within its power.
    """

    kw: Kilowatts
    """Largest power of charging or discharging, at its terminals, kW."""
    kwh: Kilowatts
    """Energy that it stores, kWh."""
    round_trip: Annotated[float, Field(gt=0, le=1)] = 0.85
    """Energy that comes out per energy put in; both ways lose the same share."""
    reserve: Share = 0.0
    """Share of its energy that stays in it."""
    start: Share = 0.5
    """Share of its energy in it when a run begins; it ends with at least as much."""
    usd_per_mwh_through: NonNegative = 0.0
    """Wear: price of a MWh discharged, USD."""

    @model_validator(mode="after")
    def _above_reserve(self) -> Self:
        if self.start < self.reserve:
            raise ValueError(f"a battery starts at {self.start:g} of its energy, below its reserve of {self.reserve:g}")
        return self

    @property
    def efficiency(self) -> float:
        """Share that is kept each way."""
        return float(np.sqrt(self.round_trip))

    def step(self, stored_kwh: float, charge_kw: float, discharge_kw: float, hours: float) -> float:
        """Returns the energy stored after an interval: E + eta c dt - d dt / eta, kWh.

        Args:
            stored_kwh: Energy stored before, kWh.
            charge_kw: Mean power of charging, kW.
            discharge_kw: Mean power of discharging, kW.
            hours: Length of the interval, h.

        Raises:
            InfeasiblePlanError: The battery cannot do this.

        Example:
            >>> Battery(kw=10, kwh=40, round_trip=0.81).step(20.0, 10.0, 0.0, 1.0)
            29.0
        """
        after = stored_kwh + hours * (self.efficiency * charge_kw - discharge_kw / self.efficiency)
        powers = min(charge_kw, discharge_kw), charge_kw + discharge_kw
        if powers[0] < -TOLERANCE_KWH or powers[1] > self.kw + TOLERANCE_KWH:
            raise InfeasiblePlanError(
                f"a battery of {self.kw:g} kW cannot charge with {charge_kw:g} kW and discharge with "
                f"{discharge_kw:g} kW"
            )
        if not self.reserve * self.kwh - TOLERANCE_KWH <= after <= self.kwh + TOLERANCE_KWH:
            raise InfeasiblePlanError(
                f"a battery would store {after:g} kWh; it must hold {self.reserve * self.kwh:g} to {self.kwh:g} kWh"
            )
        return after

    def stored_kwh(self, charge_kw_N: F8, discharge_kw_N: F8, hours: float) -> F8:
        """Returns the energy stored before every interval and at the end, kWh, by ``step``.

        Raises:
            InfeasiblePlanError: The battery cannot do this, or ends with less than it began with.
        """
        stored = [self.start * self.kwh]
        for charge, discharge in zip(charge_kw_N.tolist(), discharge_kw_N.tolist(), strict=True):
            stored.append(self.step(stored[-1], charge, discharge, hours))
        if stored[-1] < stored[0] - TOLERANCE_KWH:
            raise InfeasiblePlanError(
                f"a battery ends with {stored[-1]:g} kWh, below the {stored[0]:g} kWh it began with"
            )
        return np.array(stored)

    def settle(self, discharge_kw_N: F8, hours: float) -> float:
        """Returns the wear of a run, USD."""
        return float(self.usd_per_mwh_through * discharge_kw_N.sum() * hours / 1000.0)

    def convex(self, program: Program, intervals: int, hours: float) -> tuple[I8, I8]:
        """Adds the battery to a program: E_n+1 = E_n + eta c dt - d dt / eta, c + d <= P, E within its limits.

        Returns:
            Columns of the power of charging and of discharging, kW.
        """
        charge_N = program.columns(intervals, upper=self.kw)
        discharge_N = program.columns(intervals, self.usd_per_mwh_through * hours / 1000.0, upper=self.kw)
        lower_N = np.full(intervals, self.reserve * self.kwh)
        lower_N[-1] = self.start * self.kwh
        stored_N = program.columns(intervals, lower=lower_N, upper=self.kwh)
        program.rows(intervals, [(charge_N, 1.0), (discharge_N, 1.0)], upper=self.kw)
        before_N = np.concatenate([[-1], stored_N[:-1]])
        begin_N = np.zeros(intervals)
        begin_N[0] = self.start * self.kwh
        program.rows(
            intervals,
            [
                (stored_N, 1.0), (before_N, -1.0), (charge_N, -self.efficiency * hours),
                (discharge_N, hours / self.efficiency),
            ],
            lower=begin_N,
            upper=begin_N,
        )  # fmt: skip
        return charge_N, discharge_N


class SolarFile(Spec):
    """A file with what solar cells yield by the hour, or with the weather that it follows from."""

    path: Path
    """CSV file with the columns ``time`` and ``share`` (of the rated power), or ``time``, ``irradiance_w_per_m2`` (in
    the plane of the cells) and ``dry_bulb_c``."""
    timezone: str | None = None
    """Time zone of times without an offset: an IANA name, or an offset such as +01:00; left out: they must have one."""


class Solar(Spec):
    """Solar cells behind the meter. What is neither used nor exported is curtailed."""

    kw: Kilowatts
    """Rated power, kW."""
    profile: SolarFile
    """Its yield by the hour, or the path of the file."""

    @field_validator("profile", mode="before")
    @classmethod
    def _by_path(cls, said: Any) -> Any:
        return {"path": said} if isinstance(said, str | Path) else said

    def step(self, share: float, used_kw: float) -> float:
        """Returns the power that is curtailed, kW.

        Raises:
            InfeasiblePlanError: More is used than the cells yield.
        """
        curtailed_kw = self.kw * share - used_kw
        if curtailed_kw < -TOLERANCE_KWH or used_kw < -TOLERANCE_KWH:
            raise InfeasiblePlanError(f"solar cells that yield {self.kw * share:g} kW cannot deliver {used_kw:g} kW")
        return max(curtailed_kw, 0.0)

    def settle(self, used_kw_N: F8, hours: float) -> float:
        """Returns the energy used or exported, kWh: it costs nothing."""
        return float(used_kw_N.sum() * hours)

    def convex(self, program: Program, share_N: F8) -> I8:
        """Adds the power used or exported to a program: at most what the cells yield. Returns its columns, kW."""
        return program.columns(len(share_N), upper=self.kw * share_N)


class Export(Spec):
    """Power that a site may deliver to the grid."""

    allowed_kw: Kilowatts
    """Largest power, kW."""
    price: Literal["signal"] | Annotated[float, Field(ge=-LARGEST, le=LARGEST)] = "signal"
    """What is paid for it: the zone's price, or USD/MWh."""

    def step(self, export_kw: float) -> float:
        """Returns the power delivered, kW.

        Raises:
            InfeasiblePlanError: It is below 0, or above what is allowed.
        """
        if not -TOLERANCE_KWH <= export_kw <= self.allowed_kw + TOLERANCE_KWH:
            raise InfeasiblePlanError(f"a site that may export {self.allowed_kw:g} kW cannot deliver {export_kw:g} kW")
        return export_kw

    def settle(self, export_kw_N: F8, price_N: F8, hours: float) -> float:
        """Returns what is paid for it, USD."""
        return float((export_kw_N * price_N).sum() * hours / 1000.0)

    def convex(self, program: Program, price_N: F8, hours: float) -> I8:
        """Adds the power delivered to a program, at its price. Returns its columns, kW."""
        return program.columns(len(price_N), -price_N * hours / 1000.0, upper=self.allowed_kw)


class BehindMeter(Spec):
    """What a site has behind its meter."""

    battery: Battery | None = None
    """Battery."""
    solar: Solar | None = None
    """Solar cells."""
    export: Export | None = None
    """Whether surplus may be delivered to the grid; none: it is curtailed."""

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "battery", "solar", "export")


class Flows(NamedTuple):
    """Mean powers at a site by interval, kW.

    Attributes:
        load_N: Load.
        grid_N: Power drawn from the grid, what the meter reads.
        export_N: Power delivered to it.
        charge_N: Charging of the battery.
        discharge_N: Discharging.
        solar_N: Power of the cells that is used or exported.
    """

    load_N: F8
    grid_N: F8
    export_N: F8
    charge_N: F8
    discharge_N: F8
    solar_N: F8

    @property
    def unbalanced_kw(self) -> float:
        """Largest amount by which grid + solar + discharge differs from load + charge + export, kW."""
        into = self.grid_N + self.solar_N + self.discharge_N
        return float(np.abs(into - self.load_N - self.charge_N - self.export_N).max(initial=0.0))

    @property
    def sources_kw(self) -> tuple[F8, F8, F8]:
        """Power that solar, battery and grid deliver to the load, in the order of settlement."""
        solar_N = np.minimum(self.load_N, self.solar_N)
        battery_N = np.minimum(self.load_N - solar_N, self.discharge_N)
        return solar_N, battery_N, self.load_N - solar_N - battery_N
