"""Means and ratios with 95% confidence intervals, over environments and paired."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

_T975: Final = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
"""0.975 quantiles of Student's t for 1 to 30 degrees of freedom."""


def size_told(share: float, places: int = 0) -> str:
    """Returns the size of a share as a percentage: one that would be rounded to 0 with a decimal, or in words.

    Args:
        share: Share, of either sign.
        places: Decimals of the percentage.

    Example:
        >>> size_told(-0.27), size_told(0.0031), size_told(-0.0002), size_told(0.0)
        ('27%', '0.3%', 'less than 0.1%', '0%')
    """
    size = abs(share)
    if size == 0 or round(100 * size, places) > 0:
        return f"{size:.{places}%}"
    return f"{size:.1%}" if round(100 * size, 1) > 0 else "less than 0.1%"


@dataclass(frozen=True, repr=False)
class Estimate:
    """A value with its 95% confidence interval.

    ``str`` rounds it to two digits of the interval's half width: ``159 ± 32 [127, 192]``; the attributes are exact.

    Attributes:
        value: Estimate; NaN if it is not defined.
        low: Lower end, or None without a spread.
        high: Upper end, or None.
        spread: Standard deviation over environments, or None.
    """

    value: float
    low: float | None = None
    high: float | None = None
    spread: float | None = None

    def __str__(self) -> str:
        """Returns value, half width and interval; only the value without an interval.

        Example:
            >>> print(Estimate(0.3674, 0.2815, 0.4533), Estimate(1590.4, 1270.0, 1910.8), Estimate(12.3456), sep="; ")
            0.367 ± 0.086 [0.281, 0.453]; 1,590 ± 320 [1,270, 1,911]; 12.35
        """
        if math.isnan(self.value):
            return "not defined"
        if self.low is None or self.high is None:
            return f"{self.value:,.{_places(self.value, 4)}f}"
        half = max(self.high - self.value, self.value - self.low)
        places = _places(half or self.value, 2 if half else 4)
        value, half_width, low, high = (
            f"{round(each, places) + 0.0:,.{places}f}" for each in (self.value, half, self.low, self.high)
        )
        return f"{value} ± {half_width} [{low}, {high}]"

    def __repr__(self) -> str:
        """Returns the same, with the name of the class."""
        return f"Estimate({self})"

    def __neg__(self) -> Estimate:
        """Returns the estimate of the value with the other sign.

        Example:
            >>> -Estimate(2.0, 1.0, 4.0)
            Estimate(-2.0 ± 2.0 [-4.0, -1.0])
        """
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return Estimate(-self.value, low, high, self.spread)

    def over(self, size: float) -> Estimate:
        """Returns the estimate in a unit that is so many of its own, above 0.

        Example:
            >>> Estimate(2000.0, 1000.0, 3000.0).over(1000.0)
            Estimate(2.0 ± 1.0 [1.0, 3.0])
        """
        low, high, spread = (None if end is None else end / size for end in (self.low, self.high, self.spread))
        return Estimate(self.value / size, low, high, spread)

    def within(self, least: float, most: float = math.inf) -> Estimate:
        """Returns the estimate with its interval cut to what is possible, such as 0 to 1 for a share.

        Example:
            >>> Estimate(0.95, 0.8, 1.1).within(0.0, 1.0)
            Estimate(0.95 ± 0.15 [0.80, 1.00])
        """
        if self.low is None or self.high is None:
            return self
        return replace(self, low=max(self.low, least), high=min(self.high, most))


def _places(size: float, digits: int) -> int:
    """Returns the decimals that show so many significant digits of a number, at most 12."""
    return 0 if size == 0 else min(12, max(0, digits - 1 - math.floor(math.log10(abs(size)))))


def t_quantile(degrees: int) -> float:
    """Returns the 0.975 quantile of Student's t; beyond 30 degrees by expansion (error below 1e-4).

    Raises:
        ValueError: Fewer than 1 degree of freedom.

    Example:
        >>> round(t_quantile(9), 4), round(t_quantile(120), 4)
        (2.2622, 1.9799)
    """
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom; at least 1 is needed")
    if degrees <= len(_T975):
        return _T975[degrees - 1]
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def mean(values: ArrayLike) -> Estimate:
    """Returns the mean over independent environments with its t interval.

    Example:
        >>> e = mean([1.0, 2.0, 3.0])
        >>> e.value, round(e.low, 3), round(e.high, 3)
        (2.0, -0.484, 4.484)
    """
    sample = np.asarray(values, dtype=np.float64)
    value = float(sample.mean())
    if len(sample) < 2 or math.isnan(value):
        return Estimate(value)
    spread = float(sample.std(ddof=1))
    half = t_quantile(len(sample) - 1) * spread / math.sqrt(len(sample))
    return Estimate(value, value - half, value + half, spread)


def ratio(numerators: ArrayLike, denominators: ArrayLike) -> Estimate:
    """Returns sum(numerators) / sum(denominators) over paired environments, interval by linearization.

    The residuals n_i - R d_i have mean 0; the interval is R +- t s / (sqrt(N) mean d). NaN where the denominators' mean
    is not positive: a share of nothing, or of a loss, says nothing.

    Example:
        >>> ratio([1.0, 2.0], [2.0, 4.0])
        Estimate(0.5000 ± 0.0000 [0.5000, 0.5000])
    """
    top, bottom = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    base = float(bottom.mean())
    if not base > 0:
        return Estimate(float("nan"))
    value = float(top.mean()) / base
    if len(top) < 2 or math.isnan(value):
        return Estimate(value)
    spread = float((top - value * bottom).std(ddof=1)) / base
    half = t_quantile(len(top) - 1) * spread / math.sqrt(len(top))
    return Estimate(value, value - half, value + half, spread)
