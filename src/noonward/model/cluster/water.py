"""Water of a site: what cooling evaporates there, and what generating its electricity took."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, field_validator

from noonward.arrays import F8
from noonward.model.spec import NonNegative, Spec

WATER_NAME = "water_l_per_kwh"
"""Signal: water that generating a kWh took, in a zone."""


class WaterFile(Spec):
    """A file with the water use of every hour."""

    path: Path
    """CSV file with the columns ``time`` and ``water_l_per_kwh`` (per kWh of IT)."""
    timezone: str | None = None
    """Time zone of times without an offset: an IANA name, or an offset such as +01:00; left out: they must have one."""


class Water(Spec):
    """Water that a metered site uses."""

    l_per_kwh: NonNegative | WaterFile | None = None
    """Water that cooling uses at the site (on-site), liters per kWh of IT: a number, or a file of hours (``WaterFile``,
    or its path); none: it follows from the weather and the cooling system of the site's ``pue``."""
    cycles: Annotated[float, Field(ge=1.5, le=20)] = 5.0
    """Cycles of concentration of a cooling tower: how many times its water is richer in salts than what is added."""
    grid_l_per_kwh: NonNegative | None = None
    """Water that generating a kWh drawn from the grid took (off-site), liters; none: the zone's signal
    ``water_l_per_kwh`` where files state it, otherwise unknown."""

    @field_validator("l_per_kwh", mode="before")
    @classmethod
    def _by_path(cls, said: Any) -> Any:
        return {"path": said} if isinstance(said, str | Path) else said


@dataclass(frozen=True, kw_only=True)
class WaterByHour:
    """Water that cooling uses at the sites in each hour of a run.

    Attributes:
        l_per_kwh_SH: Liters per kWh of IT; 0 at sites that state no water.
    """

    l_per_kwh_SH: F8


@dataclass(frozen=True, kw_only=True)
class WaterUse:
    """What water a metered site used.

    Attributes:
        it_kwh: Energy of its IT, kWh.
        onsite_l: Water that cooling used, liters.
        grid_kwh: Energy drawn from the grid, base load included, kWh.
        offsite_l: Water that generating it took, liters; NaN where that is unknown.
    """

    it_kwh: float
    onsite_l: float
    grid_kwh: float
    offsite_l: float

    @classmethod
    def of(cls, it_kwh_H: F8, grid_kwh_H: F8, onsite_l_per_kwh_H: F8, offsite_l_per_kwh_H: F8) -> WaterUse:
        """Returns the water of a site by its energy in each hour.

        Example:
            >>> two = np.array([2.0, 4.0])
            >>> WaterUse.of(two, 1.5 * two, np.array([2.0, 1.0]), np.full(2, 2.0)).onsite_l
            8.0
        """
        return cls(
            it_kwh=float(it_kwh_H.sum()),
            onsite_l=float(it_kwh_H @ onsite_l_per_kwh_H),
            grid_kwh=float(grid_kwh_H.sum()),
            offsite_l=float(grid_kwh_H @ offsite_l_per_kwh_H),
        )

    @property
    def wue_l_per_kwh(self) -> float:
        """Water usage effectiveness: on-site water over the energy of IT, L/kWh; NaN where none is drawn."""
        return self.onsite_l / self.it_kwh if self.it_kwh else float(np.nan)
