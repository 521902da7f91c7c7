"""Persistence forecasts: every hour has the value known for the same hour of the last 24 hours."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I8
from noonward.forecasts.forecaster import Forecaster, require_history
from noonward.units import DAY_H


class PersistenceForecaster(Forecaster):
    """Repeats the last 24 hours.

    Args:
        history_h: Hours that are known before the run's first.

    Raises:
        SignalRangeError: They are fewer than 23.
    """

    def __init__(self, history_h: int) -> None:
        require_history("persistence", DAY_H - 1, history_h)

    def values(self, value_KZH: F8, issue_I: I8, leads: int) -> F8:
        """Returns the values of the last 24 hours, as often as needed."""
        lead_L = np.arange(leads)
        hour_IL = issue_I[:, None] + lead_L - DAY_H * ((lead_L + DAY_H - 1) // DAY_H)
        return value_KZH[:, :, hour_IL].swapaxes(1, 2)
