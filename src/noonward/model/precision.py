"""Grids that generated and forecast values are rounded to before anyone reads them.

The last bits of a matrix product or of ``exp`` depend on the CPU: each library picks other SIMD instructions. A
schedule compares such numbers, so one bit can move a job. Rounded values are the same on every machine: the grids are
at least a million times coarser than the noise (up to 3e-11 in signals), so that it practically never tips a value over
the edge between two of them.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from noonward.arrays import F8

PRICE_DECIMALS: Final = 2
"""Prices, USD/MWh: markets publish 0.01."""
CARBON_DECIMALS: Final = 1
"""Carbon intensities, gCO2/kWh: 0.1."""
TIME_DECIMALS: Final = 3
"""Drawn arrivals and run times, s: 1 ms."""
WORK_DECIMALS: Final = 6
"""Drawn work, units."""
SHAPE_DECIMALS: Final = 12
"""Sines and cosines of a daily shape. At this grid the cosine of 60 degrees is exactly one half."""


def rounded_signals(value_KZX: F8) -> F8:
    """Returns prices and carbon intensities rounded to what markets and grid operators publish.

    Args:
        value_KZX: Prices, USD/MWh, then carbon intensities, gCO2/kWh, along the first axis, of any further shape.

    Example:
        >>> rounded_signals(np.array([[50.123], [300.123]])).tolist()
        [[50.12], [300.1]]
    """
    price, carbon = value_KZX
    return np.stack([np.round(price, PRICE_DECIMALS), np.round(carbon, CARBON_DECIMALS)])


def range_on_grid(low: float, high: float, decimals: int) -> tuple[float, float]:
    """Returns the least and the largest value of a grid within a range.

    Example:
        >>> range_on_grid(11.93, 300.0, 1)
        (12.0, 300.0)
    """
    steps = 10.0**decimals
    return math.ceil(round(low * steps, 6)) / steps, math.floor(round(high * steps, 6)) / steps
