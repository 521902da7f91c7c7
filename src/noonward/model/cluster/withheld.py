"""GPUs that no job may take, by time: maintenance, broken GPUs, growth, and jobs that were running before a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field

from noonward.arrays import F8, I8
from noonward.model.spec import MOST, Spec
from noonward.units import HOUR_S

STEPS: Final = 200_000
"""Most steps of a site's GPUs."""


def _in_utc(time: datetime) -> datetime:
    """Returns a time in UTC; one without an offset is taken for UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


class GpuStep(Spec):
    """How many GPUs of a site there are from a time on."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    from_: Annotated[datetime, AfterValidator(_in_utc), Field(alias="from")]
    """Time from which they are there: a day or a time, UTC unless it has an offset."""
    gpus: Annotated[int, Field(ge=0, le=MOST)]
    """GPUs that jobs may take; those that run then run on."""


class GpuFile(Spec):
    """A file of such steps."""

    path: Path
    """CSV file with the columns ``time`` and ``gpus``: from each time on there are that many GPUs."""
    timezone: str | None = None
    """Time zone of times without an offset: an IANA name, or an offset such as +01:00; left out: they must have one."""


@dataclass(frozen=True, kw_only=True)
class Withheld:
    """GPUs of the sites that no job may take, as steps of time. Axes: K steps, S sites.

    Jobs that run when GPUs are withheld run on; at a site, jobs start while those that run take at most its GPUs less
    the withheld ones. A withheld GPU on which no job runs draws nothing.

    Attributes:
        from_s_K: When the steps begin, seconds since a run's start, ascending, the first at 0.
        gpus_KS: GPUs withheld from then on, at least 0 and at most the site's.
    """

    from_s_K: F8
    gpus_KS: I8

    @classmethod
    def of(cls, changes: list[tuple[float, int, int]], gpus_S: I8) -> Withheld | None:
        """Returns the sum of some changes; None where nothing is ever withheld.

        Args:
            changes: Time, s, site, and GPUs that are withheld more from then on, or less (negative). What is before
                second 0 counts from there on.
            gpus_S: GPUs of the sites; more are never withheld.

        Example:
            >>> Withheld.of([(0.0, 0, 3), (60.0, 0, -3)], np.array([4])).gpus_KS.tolist()
            [[3], [0]]
        """
        times_s = np.unique([0.0, *(max(time_s, 0.0) for time_s, _, _ in changes)])
        change_KS = np.zeros((len(times_s), len(gpus_S)), np.int64)
        for time_s, site, gpus in changes:
            change_KS[np.searchsorted(times_s, max(time_s, 0.0)), site] += gpus
        gpus_KS = np.clip(change_KS.cumsum(axis=0), 0, gpus_S)
        new_K = np.concatenate([[True], (np.diff(gpus_KS, axis=0) != 0).any(axis=1)])
        return cls(from_s_K=times_s[new_K], gpus_KS=gpus_KS[new_K]) if gpus_KS.any() else None

    @property
    def changes(self) -> list[tuple[float, int, int]]:
        """The steps as ``of`` takes them."""
        step_KS = np.diff(self.gpus_KS, axis=0, prepend=0)
        return [(float(self.from_s_K[k]), int(s), int(step_KS[k, s])) for k, s in np.argwhere(step_KS)]

    def at(self, time_s_X: F8) -> I8:
        """Returns the GPUs that are withheld at some times of at least 0 s, (X, S)."""
        return np.asarray(self.gpus_KS[np.searchsorted(self.from_s_K, time_s_X, side="right") - 1])

    def most(self, from_s: float, part_s: float, parts: int) -> I8:
        """Returns the most GPUs that are withheld at any time of some successive parts of time, (S, parts).

        Args:
            from_s: Begin of the first part, s.
            part_s: Length of a part, s.
            parts: Number of parts.
        """
        begin_s_P = from_s + part_s * np.arange(parts, dtype=np.float64)
        most_PS = self.at(begin_s_P)
        part_K = np.floor((self.from_s_K - from_s) / part_s).astype(np.int64)
        inside_K = (part_K >= 0) & (part_K < parts)
        np.maximum.at(most_PS, part_K[inside_K], self.gpus_KS[inside_K])
        return np.ascontiguousarray(most_PS.T)

    def mean_SH(self, from_h: int, hours: int) -> F8:
        """Returns the GPUs that are withheld in some hours on average, (S, H).

        Args:
            from_h: First hour since the run's start.
            hours: Number of hours.
        """
        edges_s = HOUR_S * (from_h + np.arange(hours + 1, dtype=np.float64))
        return np.diff(self.integral(edges_s), axis=1) / HOUR_S

    def integral(self, time_s_X: F8) -> F8:
        """Returns the GPU-seconds that are withheld from second 0 to some times, (S, X)."""
        k_X = np.searchsorted(self.from_s_K, time_s_X, side="right") - 1
        whole_KS = np.diff(self.from_s_K)[:, None] * self.gpus_KS[:-1]
        before_KS = np.concatenate([np.zeros((1, self.gpus_KS.shape[1])), np.cumsum(whole_KS, axis=0)])
        return np.asarray((before_KS[k_X] + (time_s_X - self.from_s_K[k_X])[:, None] * self.gpus_KS[k_X]).T)


@dataclass(frozen=True, kw_only=True)
class StandingJobs:
    """Jobs that were running before a run's start: no policy decides about them, and they hold their GPUs to their end.

    Axis J: standing jobs.

    Attributes:
        site_J: Site.
        gpus_J: GPUs.
        end_s_J: When they end, seconds since the run's start, above 0.
        told_end_s_J: When schedulers expect them to end, s.
        power_w_J: Facility power of the whole gang, W.
    """

    site_J: I8
    gpus_J: I8
    end_s_J: F8
    told_end_s_J: F8
    power_w_J: F8

    def withheld(self, gpus_S: I8, *, told: bool, also: Withheld | None = None) -> Withheld | None:
        """Returns the GPUs that no job of the run may take: theirs, and those that are withheld for other reasons.

        Args:
            gpus_S: GPUs of the sites.
            told: Whether they end when schedulers expect it, instead of when they do.
            also: GPUs that are withheld for other reasons, or None.
        """
        end_s_J = self.told_end_s_J if told else self.end_s_J
        rows = list(zip(self.site_J.tolist(), self.gpus_J.tolist(), end_s_J.tolist(), strict=True))
        held = [change for site, gpus, end_s in rows for change in ((0.0, site, gpus), (end_s, site, -gpus))]
        return Withheld.of([*held, *([] if also is None else also.changes)], gpus_S)
