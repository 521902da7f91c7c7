"""Contracts for clean energy, and the three carbon books of a metered site, which are never summed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from noonward.arrays import F8, I8
from noonward.model.cluster.devices import SolarFile
from noonward.model.cluster.program import Program
from noonward.model.spec import LARGEST, Spec, without_defaults

RESIDUAL_NAME: Final = "residual_carbon_g_per_kwh"
"""Signal: carbon intensity of what is left of a zone's generation once contracts are taken out."""
MARGINAL_NAME: Final = "marginal_carbon_g_per_kwh"
"""Signal: emissions of a further kWh in a zone."""
G_PER_KG: Final = 1000.0


class Ppa(Spec):
    """A power purchase agreement: the output of a plant in the site's zone, at a price agreed on.

    A virtual one is a contract for differences: the site pays the agreed price and is paid the zone's for every MWh of
    the plant. The plant's output is given, so it changes no dispatch and no policy. Under a physical one the site may
    also take energy of the plant as it is produced, up to what its meter reads: it is not paid the zone's price for
    that, and pays what delivery costs in place of the whole price of energy. It takes what saves by that; where the
    price of energy is the zone's, nothing does, and both kinds cost the same. Demand charges and blocks count all that
    the meter reads.
    """

    kw: Annotated[float, Field(gt=0, le=LARGEST)]
    """Rated power of the plant, kW."""
    profile: SolarFile
    """Its output by the hour, as that of solar cells is stated, or the path of the file."""
    usd_per_mwh: Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
    """Price agreed on, USD/MWh."""
    kind: Literal["virtual", "physical"] = "virtual"
    """Whether it is settled in money alone, or the site may take the plant's energy."""
    delivery_usd_per_mwh: Annotated[float, Field(ge=0, le=LARGEST)] = 0.0
    """What the delivery of energy taken costs, USD/MWh: grid fees and taxes; with ``physical`` alone."""

    @model_validator(mode="after")
    def _delivered(self) -> Self:
        if self.delivery_usd_per_mwh and self.kind == "virtual":
            raise ValueError(
                "delivery_usd_per_mwh is stated for a virtual contract, which delivers nothing; leave it out, or state "
                "kind: physical"
            )
        return self

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "kind", "delivery_usd_per_mwh")

    @field_validator("profile", mode="before")
    @classmethod
    def _by_path(cls, said: Any) -> Any:
        return {"path": said} if isinstance(said, str | Path) else said

    def step(self, share: float) -> float:
        """Returns the plant's output, kW."""
        return self.kw * share

    def saved_usd_per_mwh(self, price_N: F8, zone_price_N: F8) -> F8:
        """Returns what taking a MWh of the plant saves, USD/MWh; 0 where nothing is taken.

        Args:
            price_N: Price of energy at the site, USD/MWh.
            zone_price_N: Price in the zone, which energy that is not taken is sold at, USD/MWh.
        """
        if self.kind == "virtual":
            return np.zeros(len(price_N))
        return np.asarray(np.maximum(0.0, price_N - self.delivery_usd_per_mwh - zone_price_N))

    def settle(self, share_N: F8, grid_kw_N: F8, price_N: F8, zone_price_N: F8, hours: float) -> float:
        """Returns what the contract costs, USD, beside the bill for all energy drawn; below 0 where it earns.

        Args:
            share_N: Output by interval, share of the rated power.
            grid_kw_N: Power drawn, kW.
            price_N: Price of energy at the site, USD/MWh.
            zone_price_N: Price in the zone, USD/MWh.
            hours: Length of an interval, h.
        """
        made_kw_N = self.kw * share_N
        sold_usd = (made_kw_N * (self.usd_per_mwh - zone_price_N)).sum()
        saved_usd = (np.minimum(grid_kw_N, made_kw_N) * self.saved_usd_per_mwh(price_N, zone_price_N)).sum()
        return float((sold_usd - saved_usd) * hours / 1000.0)

    def convex(self, program: Program, grid_N: I8, share_N: F8, price_N: F8, zone_price_N: F8, hours: float) -> None:
        """Adds the contract to a program: a constant, and what is taken, at most the output and the power drawn.

        Args:
            program: Program.
            grid_N: Columns of the power drawn, whose cost is the price of energy.
            share_N: Output by interval, share of the rated power.
            price_N: Price of energy at the site, USD/MWh.
            zone_price_N: Price in the zone, USD/MWh.
            hours: Length of an interval, h.
        """
        program.constant += self.settle(share_N, np.zeros(len(share_N)), price_N, zone_price_N, hours)
        saved_N = self.saved_usd_per_mwh(price_N, zone_price_N)
        at_N = np.flatnonzero(saved_N > 0.0)
        if len(at_N):
            taken_X = program.columns(len(at_N), -saved_N[at_N] * hours / 1000.0, upper=self.kw * share_N[at_N])
            program.rows(len(at_N), [(grid_N[at_N], 1.0), (taken_X, -1.0)], lower=0.0)


@dataclass(frozen=True, kw_only=True)
class CarbonBooks:
    """What a metered site emitted, by three ways to count; they answer different questions and are never summed.

    Attributes:
        grid_kwh: Energy drawn from the grid, kWh.
        contracted_kwh: Output of the plant under contract, kWh.
        matched_kwh: Energy drawn in the hours in which the plant delivered it, at most its output of the hour, kWh.
        location_kg: Location-based: all energy drawn at the zone's average intensity, kgCO2.
        market_kg: Market-based with hourly matching: energy that is not matched, at the intensity of the zone's
            residual mix (of its average where no signal states that), kgCO2.
        marginal_kg: What the energy drawn caused at the margin, kgCO2; NaN without a signal of that.
        ppa_usd: Cost of the contract, USD.
    """

    grid_kwh: float
    contracted_kwh: float
    matched_kwh: float
    location_kg: float
    market_kg: float
    marginal_kg: float
    ppa_usd: float

    @classmethod
    def of(
        cls, grid_kw_HP: F8, plant_kw_HP: F8, hours: float, intensity: tuple[F8, F8, F8], ppa_usd: float
    ) -> CarbonBooks:
        """Returns the books of power by hour H and part P of the hour.

        Args:
            grid_kw_HP: Power drawn, kW.
            plant_kw_HP: Output of the plant, kW.
            hours: Length of a part, h.
            intensity: Average, residual and marginal intensity (H, P), g/kWh.
            ppa_usd: Cost of the contract, USD.

        Example:
            >>> half = np.array([[2.0, 2.0], [4.0, 4.0]])
            >>> plant, flat = np.array([[3.0, 3.0], [1.0, 1.0]]), np.full((2, 2), 100.0)
            >>> books = CarbonBooks.of(half, plant, 0.5, (flat, 2 * flat, flat), 0.0)
            >>> [round(each, 6) for each in (books.matched_kwh, books.location_kg, books.market_kg)]
            [3.0, 0.6, 0.6]
        """
        average, residual, marginal = intensity
        drawn_H, made_H = (each.sum(axis=1) * hours for each in (grid_kw_HP, plant_kw_HP))
        matched_H = np.minimum(drawn_H, made_H)
        left_H = 1.0 - np.divide(matched_H, drawn_H, out=np.zeros(len(drawn_H)), where=drawn_H > 0)
        g_HP = grid_kw_HP * hours / G_PER_KG
        return cls(
            grid_kwh=float(drawn_H.sum()),
            contracted_kwh=float(made_H.sum()),
            matched_kwh=float(matched_H.sum()),
            location_kg=float((g_HP * average).sum()),
            market_kg=float(left_H @ (g_HP * residual).sum(axis=1)),
            marginal_kg=float((g_HP * marginal).sum()),
            ppa_usd=ppa_usd,
        )

    @property
    def matched_share(self) -> float:
        """Share of the energy drawn that is matched by the hour; NaN where none is drawn."""
        return self.matched_kwh / self.grid_kwh if self.grid_kwh else float("nan")
