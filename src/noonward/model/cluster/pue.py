"""PUE that changes by the hour: where a site's file is, and the factor by which its loads count in each hour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import numpy as np

from noonward.arrays import F8, I8
from noonward.model.spec import Spec
from noonward.units import DAY_H

Cooling = Literal["air-economizer", "water-economizer", "chiller"]
"""Cooling systems whose PUE follows from the weather (``noonward.data.cooling``)."""


class PueFile(Spec):
    """A file with a PUE for every hour, or with the weather that it follows from."""

    path: Path
    """CSV file with the columns ``time`` and ``pue``, or, with ``cooling``, ``time`` and the temperatures it needs."""
    cooling: Cooling | None = None
    """Cooling system of the site, for a file of weather."""
    timezone: str | None = None
    """Time zone of times without an offset: an IANA name, or an offset such as +01:00; left out: they must have one."""


@dataclass(frozen=True, kw_only=True)
class PueByHour:
    """PUE of the sites by the hour, over the one number that their fleet states (``Site.pue``).

    Powers are reckoned with the number. Their energy, cost and emissions in an hour are those of the number times the
    factor here: ``SiteSignals`` holds prices and intensities times the factor, so rules, engines, ledger and bounds
    follow a PUE by the hour without knowing of it.

    Attributes:
        start: UTC start of the first hour.
        factor_SH: PUE of the hour over the site's number, above 0.
    """

    start: datetime
    factor_SH: F8

    def window(self, start: datetime, hours: int) -> F8:
        """Returns the factors of some hours, (sites, hours).

        Hours after the last known one have that of the same hour of the last known day: a live service whose file ends
        goes on so. Whoever builds a simulation checks that its file reaches far enough.

        Args:
            start: UTC start of the first hour, at or after the first known one.
            hours: Number of hours.
        """
        first = (start - self.start) // timedelta(hours=1)
        assert first >= 0, "the first hour asked for is known"
        return np.asarray(self.factor_SH[:, same_hour_known(first + np.arange(hours), self.factor_SH.shape[1])])


def same_hour_known(hour_X: I8, known: int) -> I8:
    """Returns hours, those from ``known`` on replaced by the last known hour that is whole days earlier.

    Example:
        >>> same_hour_known(np.array([3, 29, 30, 54]), 30).tolist()
        [3, 29, 6, 6]
    """
    days = np.maximum(0, -((known - 1 - hour_X) // DAY_H))
    return np.asarray(hour_X - DAY_H * days)
