"""Run times learned from jobs that have ended: a discrete hazard over log-time, shrunk from broad to narrow groups.

For a group g of jobs (all, a class, a user, a name) and a bin b of the logarithm of time, the hazard is the chance that
a job that has reached the bin ends in it. It is estimated from ``d`` ends among ``n`` jobs that have reached the bin,
and drawn towards the next broader group's (gamma-Poisson, prior weight ``SHRINKAGE``)::

    h_g[b] = (d_g[b] + SHRINKAGE h_broader[b]) / (n_g[b] + SHRINKAGE)

Jobs end as done, failed or cancelled; the hazards of these competing risks add up. Two clocks are kept, one in units of
work and one in shares of the job's limit. A job with a limit is predicted by the first clock, by the second, and by
both (Bayes: a prior p of the work w, and a limit whose share w / limit has the density q whatever w is)::

    p(w | limit)  is in proportion to  p(w) q(w / limit)        on the logarithm of w

Each of the three counts with a weight that its past predictions have earned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.errors import DataError
from noonward.model.cluster.knowledge import CANCELLED, DONE, FAILED, RUNNING, JobTraits
from noonward.model.precision import TIME_DECIMALS

BINS: Final = 104
"""Bins of each clock."""
PER_OCTAVE: Final = (4.0, 8.0)
"""Bins per doubling: of the work, and of its share of the limit."""
LOWEST_LOG2: Final = (-1.0, -12.0)
"""Binary logarithm at which each clock's first bin begins; it also takes what is less."""
SHRINKAGE: Final = 4.0
"""Jobs that the broader group counts for."""
FIRST_HAZARD: Final = 0.05
"""Hazard of every bin where nothing is known."""
MEMORY: Final = 0.99
"""Share of a prediction's score that is kept from job to job: how well it has done lately."""
BY_WORK, BY_SHARE, BY_BOTH = range(3)
"""Predictions of a job with a limit: by the work, by its share of the limit, and by both."""
NO_MASS: Final = 1e-12
"""Where the densities by work and by share meet in no more than this, the share alone predicts."""
CHUNK: Final = 512
"""Jobs that are learned at once from a history."""
GROWTH: Final = 1.05
"""Least factor from an estimate to the next one."""
CAUSES: Final = (DONE, FAILED, CANCELLED)


@dataclass
class _Clock:
    """Counts of one clock, per group (rows, grown as groups are met) and bin."""

    ends_GCB: F8
    """Ends by cause."""
    enters_GB: F8
    """Differences from bin to bin of the jobs that have reached it."""

    @classmethod
    def blank(cls, groups: int) -> _Clock:
        return cls(np.zeros((groups, len(CAUSES), BINS)), np.zeros((groups, BINS + 1)))

    def grow(self, groups: int) -> None:
        more = max(groups, 2 * len(self.ends_GCB)) - len(self.ends_GCB)
        self.ends_GCB = np.concatenate([self.ends_GCB, np.zeros((more, len(CAUSES), BINS))])
        self.enters_GB = np.concatenate([self.enters_GB, np.zeros((more, BINS + 1))])

    def hazards_JCB(self, row_JL: I8) -> F8:
        """Returns the hazards by cause of jobs whose groups are some rows, broadest first; -1: not known."""
        shape = (len(row_JL), len(CAUSES), BINS)
        hazard_JCB = np.full(shape, FIRST_HAZARD / len(CAUSES))
        for row_J in row_JL.T:
            found = np.flatnonzero(row_J >= 0)
            ends = self.ends_GCB[row_J[found]]
            reached = self.enters_GB[row_J[found], :BINS].cumsum(axis=1)[:, None]
            hazard_JCB[found] = (ends + SHRINKAGE * hazard_JCB[found]) / (reached + SHRINKAGE)
        return hazard_JCB


class LearnedRunTimes:
    """What the ends of jobs so far say of the run times of others.

    Args:
        traits: What is known of jobs when they arrive; all methods name jobs by their rows in it.

    Example:
        >>> traits = JobTraits.build([np.array(["ann"] * 51)], limit_J=np.full(51, np.inf))
        >>> model = LearnedRunTimes(traits)
        >>> model.end(np.arange(50), np.full(50, 100.0), np.full(50, DONE))
        >>> bool(90 < model.quantile(np.array([50]), 0.5)[0] < 120)
        True
    """

    def __init__(self, traits: JobTraits) -> None:
        self.traits = traits
        self._row_of: dict[int, int] = {}
        self._clocks = tuple(_Clock.blank(64) for _ in PER_OCTAVE)
        self._reached_KJ = np.zeros((len(PER_OCTAVE), len(traits)), np.int64)
        self._score_3 = np.zeros(3)

    def meet(self, traits: JobTraits) -> None:
        """Takes longer traits, of which the first rows are those known so far."""
        more = len(traits) - len(self.traits)
        self._reached_KJ = np.pad(self._reached_KJ, ((0, 0), (0, more)))
        self.traits = traits

    @property
    def score(self) -> tuple[float, float, float]:
        """How well each prediction has done lately: the part of what was learned that depends on the order of ends."""
        return float(self._score_3[0]), float(self._score_3[1]), float(self._score_3[2])

    @score.setter
    def score(self, score: tuple[float, float, float]) -> None:
        self._score_3 = np.array(score)

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns all that was learned (live); the traits are not in it."""
        clocks = {
            f"{name}_{kind}": getattr(clock, name) for kind, clock in enumerate(self._clocks) for name in vars(clock)
        }
        groups = np.array(list(self._row_of), np.int64)
        return {"groups": groups, "reached_KJ": self._reached_KJ, "score_3": self._score_3, **clocks}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restores from ``state()``, in a model of the same traits."""
        self._row_of = {key: row for row, key in enumerate(state["groups"].tolist())}
        self._reached_KJ, self._score_3 = np.array(state["reached_KJ"]), np.array(state["score_3"])
        for kind, clock in enumerate(self._clocks):
            for name in vars(clock):
                setattr(clock, name, np.array(state[f"{name}_{kind}"]))

    def end(self, jobs: I8, work_J: F8, cause_J: I8) -> None:
        """Learns from jobs that have ended, or (cause RUNNING) that have been running for so long.

        Args:
            jobs: Rows of the jobs; those that have ended are not named again.
            work_J: Work done until then, units (s for classes of fixed duration), at least 0.
            cause_J: DONE, FAILED, CANCELLED or RUNNING.

        Raises:
            DataError: A cause is unknown, or the work is negative or missing.
        """
        if not np.isin(cause_J, (*CAUSES, RUNNING)).all():
            raise DataError(f"jobs end by the causes {sorted(set(cause_J.tolist()))}; known are {CAUSES} and {RUNNING}")
        if not (work_J >= 0).all():
            raise DataError(f"jobs have done {work_J.min()} units of work; give numbers of at least 0")
        for first in range(0, len(jobs), CHUNK):
            part = slice(first, first + CHUNK)
            self._end(jobs[part], np.asarray(work_J[part], np.float64), cause_J[part])

    def _end(self, jobs: I8, work_J: F8, cause_J: I8) -> None:
        ended = cause_J != RUNNING
        limited = ended & np.isfinite(self.traits.limit_J[jobs])
        if limited.any():
            self._score(jobs[limited], work_J[limited])
        row_JL = self._rows(jobs)
        for kind, clock in enumerate(self._clocks):
            on_J = np.ones(len(jobs), bool) if kind == 0 else np.isfinite(self.traits.limit_J[jobs])
            bin_J = _bin(self._log2(kind, jobs, work_J), kind)
            from_J = self._reached_KJ[kind, jobs]
            until_J = np.where(ended, bin_J + 1, np.maximum(bin_J, from_J))
            from_J = np.minimum(from_J, until_J)
            for row_J in row_JL.T:
                some = on_J & (row_J >= 0)
                np.add.at(clock.enters_GB, (row_J[some], from_J[some]), 1.0)
                np.add.at(clock.enters_GB, (row_J[some], until_J[some]), -1.0)
                over = some & ended
                np.add.at(clock.ends_GCB, (row_J[over], cause_J[over], bin_J[over]), 1.0)
            self._reached_KJ[kind, jobs] = until_J

    def _rows(self, jobs: I8) -> I8:
        """Returns the rows of the jobs' groups; groups that are met for the first time get one."""
        key_JL = self.traits.key_JL[jobs]
        for key in np.unique(key_JL[key_JL >= 0]).tolist():
            self._row_of.setdefault(key, len(self._row_of))
        for clock in self._clocks:
            if len(self._row_of) > len(clock.ends_GCB):
                clock.grow(len(self._row_of))
        return self._known_rows(jobs)

    def _known_rows(self, jobs: I8) -> I8:
        """Returns the rows of the jobs' groups, -1 for those not met yet."""
        key_JL = self.traits.key_JL[jobs]
        keys, place = np.unique(key_JL, return_inverse=True)
        return np.array([self._row_of.get(key, -1) for key in keys.tolist()], np.int64)[place].reshape(key_JL.shape)

    def _log2(self, kind: int, jobs: I8, work_J: F8) -> F8:
        """Returns the binary logarithm of work on a clock; minus infinity on the second one without a limit."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log2(work_J) - (0.0 if kind == 0 else np.log2(self.traits.limit_J[jobs])))

    def _score(self, jobs: I8, work_J: F8) -> None:
        """Adds the logarithm of the density that each prediction gave to what happened, older jobs counting less."""
        left_3JB, each = self._left_3JB(jobs), np.arange(len(jobs))
        bin_J = _bin(self._log2(0, jobs, work_J), 0)
        density_3J = PER_OCTAVE[0] * (left_3JB[:, each, bin_J] - left_3JB[:, each, bin_J + 1])
        kept_J = MEMORY ** np.arange(len(jobs) - 1, -1, -1)
        self._score_3 = MEMORY ** len(jobs) * self._score_3 + np.log(density_3J + 1e-12) @ kept_J

    @property
    def weight_3(self) -> F8:
        """Weights of the predictions BY_WORK, BY_SHARE and BY_BOTH of jobs with a limit; they add up to 1."""
        share_3 = np.exp(np.maximum(self._score_3 - self._score_3.max(), -500.0))
        return np.asarray(share_3 / share_3.sum())

    def _left_3JB(self, jobs: I8) -> F8:
        """Returns the share of jobs with a limit that reaches each edge by each prediction, (3, J, BINS + 1)."""
        row_JL = self._known_rows(jobs)
        out = np.empty((3, len(jobs), BINS + 1))
        out[BY_WORK] = _survival(self._clocks[0].hazards_JCB(row_JL).sum(axis=1))
        share_JB = _survival(self._clocks[1].hazards_JCB(row_JL).sum(axis=1))
        at_JB = (_EDGE_LOG2 - np.log2(self.traits.limit_J[jobs])[:, None] - LOWEST_LOG2[1]) * PER_OCTAVE[1]
        at_JB = np.clip(at_JB, 0.0, float(BINS))
        low_JB = np.minimum(at_JB.astype(np.int64), BINS - 1)
        below, above = (np.take_along_axis(share_JB, low_JB + next_, axis=1) for next_ in (0, 1))
        out[BY_SHARE] = below + (above - below) * (at_JB - low_JB)
        out[:BY_BOTH, :, 0], out[:BY_BOTH, :, -1] = 1.0, 0.0
        mass_JB = np.diff(out[BY_WORK]) * np.diff(out[BY_SHARE])
        total_J1 = mass_JB.sum(axis=1, keepdims=True)
        both_JB = 1.0 - mass_JB.cumsum(axis=1) / np.maximum(total_J1, NO_MASS)
        out[BY_BOTH, :, 0] = 1.0
        out[BY_BOTH, :, 1:] = np.where(total_J1 > NO_MASS, both_JB, out[BY_SHARE, :, 1:])
        out[BY_BOTH, :, -1] = 0.0
        return out

    def distribution(self, jobs: I8) -> tuple[F8, F8]:
        """Returns the predicted distribution of the work of some jobs.

        Args:
            jobs: Rows of the jobs.

        Returns:
            Edges of the bins, units, (BINS + 1,), and the share of the jobs below each, (J, BINS + 1), from 0 to 1;
            between edges it grows with the logarithm. Limits are not applied.
        """
        left_JB = _survival(self._clocks[0].hazards_JCB(self._known_rows(jobs)).sum(axis=1))
        limited = np.flatnonzero(np.isfinite(self.traits.limit_J[jobs]))
        if len(limited):
            left_JB[limited] = (self.weight_3[:, None, None] * self._left_3JB(jobs[limited])).sum(axis=0)
        left_JB[:, 0], left_JB[:, -1] = 1.0, 0.0
        return _EDGES, 1.0 - left_JB

    def chance_J(self, jobs: I8, cause: int) -> F8:
        """Returns how likely some jobs are to end by a cause (DONE, FAILED, CANCELLED), 0 to 1."""
        hazard_JCB = self._clocks[0].hazards_JCB(self._known_rows(jobs))
        left_JB = _survival(hazard_JCB.sum(axis=1))
        total_JB = np.maximum(hazard_JCB.sum(axis=1), 1e-300)
        share_JB = hazard_JCB[:, CAUSES.index(cause)] / total_JB
        return np.asarray((share_JB * (left_JB[:, :-1] - left_JB[:, 1:])).sum(axis=1))

    def quantile(self, jobs: I8, share: float, age_J: F8 | None = None) -> F8:
        """Returns the work that a share of jobs like some does not exceed, given what they have done.

        Args:
            jobs: Rows of the jobs.
            share: The share, above 0 and below 1.
            age_J: Work done so far, units; None: none.

        Returns:
            Work in all, units, at least a twentieth above the age; at most the limit, where the age is below it.
        """
        _, below_JB = self.distribution(jobs)
        limit_J = self.traits.limit_J[jobs]
        age_J = np.zeros(len(jobs)) if age_J is None else age_J
        return _estimates_J(below_JB, share, np.asarray(age_J, np.float64), limit_J)

    def estimates(self, jobs: I8, share: float, count: int) -> tuple[F8, F8]:
        """Returns what is expected of some jobs when they arrive, and then each time one outlives what was expected.

        Args:
            jobs: Rows of the jobs.
            share: Share of jobs that an estimate is to cover, above 0 and below 1.
            count: Estimates per job.

        Returns:
            The mean of the work up to the first estimate, units, by job: what of a booking for so long is expected to
            be used. The estimates: work in all, units, (jobs, count), ascending.
        """
        _, below_JB = self.distribution(jobs)
        limit_J = self.traits.limit_J[jobs]
        out = np.empty((len(jobs), count))
        age_J = np.zeros(len(jobs))
        for k in range(count):
            age_J = out[:, k] = _estimates_J(below_JB, share, age_J, limit_J)
        mean_J = np.round(_mean_J(below_JB, out[:, 0]), TIME_DECIMALS)
        return np.maximum(mean_J, 10.0**-TIME_DECIMALS), out


_EDGE_LOG2: Final = LOWEST_LOG2[0] + np.arange(BINS + 1) / PER_OCTAVE[0]
_EDGES: Final = np.concatenate([[0.0], np.exp2(_EDGE_LOG2[1:])])


def _bin(log2_J: F8, kind: int) -> I8:
    """Returns the bins of logarithms on a clock."""
    place_J = np.floor((log2_J - LOWEST_LOG2[kind]) * PER_OCTAVE[kind])
    return np.clip(place_J, 0, BINS - 1).astype(np.int64)


def _survival(hazard_JB: F8) -> F8:
    """Returns the share of the jobs that reach each bin, (J, BINS + 1), from 1 on."""
    out = np.ones((len(hazard_JB), BINS + 1))
    np.cumprod(1.0 - np.minimum(hazard_JB, 1.0), axis=1, out=out[:, 1:])
    return out


def _mean_J(below_JB: F8, limit_J: F8) -> F8:
    """Returns the means of predicted distributions of work, of which what is above some limits counts as these.

    Within a bin from a to b the work's logarithm is uniform, so ``E min(w, L) = (L - a + L ln(b / L)) / ln(b / a)`` for
    a limit L within it; the first bin, which begins at 0, counts as its upper edge.
    """
    low_B, high_B, limit_J1 = _EDGES[1:-1], _EDGES[2:], limit_J[:, None]
    cut_JB = np.clip(limit_J1, low_B, high_B)
    mean_JB = (cut_JB - low_B + cut_JB * np.log(high_B / cut_JB)) / np.log(high_B / low_B)
    mass_JB = np.diff(below_JB)
    first_J = mass_JB[:, 0] * np.minimum(_EDGES[1], limit_J)
    return np.asarray(first_J + (mass_JB[:, 1:] * np.minimum(mean_JB, limit_J1)).sum(axis=1))


def _estimates_J(below_JB: F8, share: float, age_J: F8, limit_J: F8) -> F8:
    """Returns quantiles of the work in all, given the ages; see ``LearnedRunTimes.quantile``."""
    each = np.arange(len(age_J))
    with np.errstate(divide="ignore"):
        log2_age_J = np.log2(age_J)
    at_J = np.clip(np.searchsorted(_EDGE_LOG2, log2_age_J, side="right") - 1, 0, BINS - 1)
    slope_J = (below_JB[each, at_J + 1] - below_JB[each, at_J]) / (_EDGE_LOG2[at_J + 1] - _EDGE_LOG2[at_J])
    within_J = np.clip(log2_age_J, _EDGE_LOG2[0], _EDGE_LOG2[-1])
    passed_J = np.where(age_J > 0, slope_J * (within_J - _EDGE_LOG2[at_J]) + below_JB[each, at_J], 0.0)
    wanted_J = passed_J + share * (1.0 - passed_J)
    bin_J = np.minimum((below_JB < wanted_J[:, None]).sum(axis=1), BINS)
    before_J = np.maximum(bin_J - 1, 0)
    low_J, high_J = below_JB[each, before_J], below_JB[each, bin_J]
    rises_J = high_J > low_J
    part_J = np.where(rises_J, (wanted_J - low_J) / np.where(rises_J, high_J - low_J, 1.0), 1.0)
    work_J = np.maximum(np.exp2(_EDGE_LOG2[before_J] + part_J / PER_OCTAVE[0]), GROWTH * age_J)
    work_J = np.where(age_J < limit_J, np.minimum(work_J, limit_J), work_J)
    rounded_J = np.array([round(work, TIME_DECIMALS) for work in work_J.tolist()])
    return np.asarray(np.maximum(rounded_J, 10.0**-TIME_DECIMALS))


def crps_J(edges_B: F8, below_JB: F8, work_J: F8) -> F8:
    """Returns the continuous ranked probability score of predicted distributions, units; the less the better.

    ``integral (F(x) - 1{x >= y})^2 dx``, F linear between the edges (Gneiting and Raftery 2007). For a single predicted
    value it is the absolute error.

    Args:
        edges_B: Edges, units, ascending.
        below_JB: F at the edges, per job; 0 at the first and 1 at the last.
        work_J: What happened, units, within the edges.

    Example:
        >>> edges, certain = np.array([0.0, 1.0, 2.0]), np.array([[0.0, 0.5, 1.0]])
        >>> float(crps_J(edges, certain, np.array([1.0]))[0])  # uniform on 0 to 2: 2 (1/24 + ...) = 1/6
        0.16666666666666666
    """
    out = np.empty(len(work_J))
    for j, (below_B, work) in enumerate(zip(below_JB, work_J.tolist(), strict=True)):
        at = int(np.searchsorted(edges_B, work))
        edges = np.insert(edges_B, at, work)
        below = np.insert(below_B, at, np.interp(work, edges_B, below_B))
        left, right = below[:-1] - (edges[:-1] >= work), below[1:] - (edges[:-1] >= work)
        out[j] = float((np.diff(edges) * (left * left + left * right + right * right) / 3.0).sum())
    return out
