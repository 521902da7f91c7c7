"""Perfect forecasts: the truth."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I8
from noonward.forecasts.forecaster import Forecaster


class PerfectForecaster(Forecaster):
    """Reads the hours to come. What is not known yet is NaN."""

    def values(self, value_KZH: F8, issue_I: I8, leads: int) -> F8:
        """Returns the truth.

        Example:
            >>> PerfectForecaster().values(np.array([[[1.0, 2.0, 3.0]]]), np.array([1]), 3).tolist()
            [[[[2.0, 3.0, nan]]]]
        """
        hour_IL = issue_I[:, None] + np.arange(leads)
        last = value_KZH.shape[2] - 1
        value_KZIL = value_KZH[:, :, np.minimum(hour_IL, last)]
        value_KZIL[:, :, hour_IL > last] = np.nan
        return value_KZIL.swapaxes(1, 2)
