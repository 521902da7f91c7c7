"""What every forecaster does: say at some hours of issue what prices and carbon intensities the next hours have."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from noonward.arrays import F8, I8
from noonward.compiled import kernel
from noonward.errors import SignalRangeError
from noonward.model.signals import Signals
from noonward.units import HOUR_S


class Forecaster(ABC):
    """Forecasts of one run's signals. Axes: K prices and carbon intensities, Z zones, H hours, I hours of issue."""

    @abstractmethod
    def values(self, value_KZH: F8, issue_I: I8, leads: int) -> F8:
        """Returns what is forecast at some hours of issue.

        What an hour of issue gets does not depend on which others are asked for with it, nor on the number of leads.

        Args:
            value_KZH: Prices, USD/MWh, and carbon intensities, g/kWh, as far as they are known. Only a forecaster that
                says so reads hours after the hour of issue.
            issue_I: Hours of issue, positions in the last axis.
            leads: Number of leads, at least 1; lead 0 is the hour of issue, which is known.

        Returns:
            Shape (2, hours of issue, zones, leads). Values that are computed, not copied, are rounded to what markets
            publish (:mod:`noonward.model.precision`).
        """


def price_and_carbon(signals: Signals) -> F8:
    """Returns the signals that are forecast, shape (2, zones, hours)."""
    return np.stack([signals.price_usd_per_mwh_ZH, signals.carbon_g_per_kwh_ZH])


@kernel(allocates=False)
def integrate(value_KIZL: F8, row_S: I8, out_KISL: F8) -> None:
    """Writes running integrals over the leads of hourly values, value x s, from 0: a column more than there are leads.

    Args:
        value_KIZL: Values by kind, hour of issue, zone and lead, contiguous.
        row_S: Zone of each site.
        out_KISL: Room for as many kinds, at least as many hours of issue, the sites, and leads + 1.
    """
    for k in range(value_KIZL.shape[0]):
        for i in range(value_KIZL.shape[1]):
            for s in range(row_S.shape[0]):
                sum_so_far = 0.0
                out_KISL[k, i, s, 0] = 0.0
                for lead in range(value_KIZL.shape[3]):
                    sum_so_far += value_KIZL[k, i, row_S[s], lead] * HOUR_S
                    out_KISL[k, i, s, lead + 1] = sum_so_far


def require_history(kind: str, needed_h: int, known_h: int) -> None:
    """Raises SignalRangeError if too few hours before the run's first are known."""
    if known_h < needed_h:
        raise SignalRangeError(
            f"a {kind} forecast needs {needed_h} hours of signals before the window, but there are {known_h}; start "
            "the window later or use another forecast"
        )


def known_to_the_end(history_KZH: F8) -> int:
    """Returns how many hours up to the end of a history are known in every zone without a break."""
    unknown = np.flatnonzero(np.isnan(history_KZH).any(axis=(0, 1)))
    return int(history_KZH.shape[2] - (unknown[-1] + 1 if len(unknown) else 0))
