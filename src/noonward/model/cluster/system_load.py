"""Load of the systems that sites lie in, by the hour: what forecasts of coincident peaks read."""

from __future__ import annotations

from dataclasses import dataclass

from noonward.arrays import F8


@dataclass(frozen=True, kw_only=True)
class SystemLoadByHour:
    """Load of the systems of the sites over the hours of a run, and before it.

    Attributes:
        mw_SH: Load of the highest interval of each hour, MW; NaN where it is unknown, and at sites without such a file.
        before_h: How many of these hours lie before the run.
    """

    mw_SH: F8
    before_h: int

    def until(self, s: int, hour: int) -> F8:
        """Returns the load of a site's system before the begin of an hour of the run, MW."""
        return self.mw_SH[s, : self.before_h + hour]
