"""Receding horizon: what remains of a plan's day after some hours, with what runs and what waits as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from noonward.arrays import F8, I8
from noonward.errors import ScenarioError
from noonward.schedule.plan.classes import Queued, places_of
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.result import Plan


def load_of_starts(problem: PlanProblem, class_J: I8, start_J: I8, cluster_J: I8, volume_J: F8) -> F8:
    """Returns the load of units that start at given hours and clusters, over all hours they run, (T, D) or (T, D, R).

    Args:
        problem: Whose classes and horizon.
        class_J: Classes.
        start_J: Hours they start in.
        cluster_J: Clusters.
        volume_J: Volumes, at least 0.

    Raises:
        ScenarioError: The arrays' lengths differ, a class or cluster is unknown, or a unit runs past the horizon.
    """
    class_J, start_J, cluster_J = (np.asarray(each, dtype=np.int64) for each in (class_J, start_J, cluster_J))
    volume_J = np.asarray(volume_J, dtype=np.float64)
    if not class_J.shape == start_J.shape == cluster_J.shape == volume_J.shape or class_J.ndim != 1:
        raise ScenarioError("starts need one class, hour, cluster and volume each; give four lists of one length")
    _, _, classes, span, clusters = problem.shape
    bad = (class_J < 0) | (class_J >= classes) | (cluster_J < 0) | (cluster_J >= clusters) | (start_J < 0)
    bad |= ~(np.isfinite(volume_J) & (volume_J >= 0))
    bad |= start_J + problem.run_hours_C[np.clip(class_J, 0, classes - 1)] > span
    if bad.any():
        j = int(bad.argmax())
        raise ScenarioError(
            f"start {j} has volume {volume_J[j]:g} of class {class_J[j]} at cluster {cluster_J[j]} in hour "
            f"{start_J[j]}; volumes are at least 0, classes 0 to {classes - 1}, clusters 0 to {clusters - 1}, and it "
            f"must end within the horizon of {span} h"
        )
    index, place = places_of(problem.run_hours_C, class_J, start_J, cluster_J, clusters)
    load_P: F8 = np.bincount(place, volume_J[index], minlength=problem.capacity_TD.size).astype(np.float64)
    return load_P.reshape(problem.capacity_TD.shape)


def remaining(
    plan: Plan,
    hours: int = 1,
    *,
    running_TD: F8 | None = None,
    queued: Sequence[Queued] = (),
    load_NKC: F8 | None = None,
) -> PlanProblem:
    """Returns the problem that remains of a plan's day: its hours from ``hours`` on.

    The peaks of the curves so far are paid for; load that was placed before the plan stays placed.

    Args:
        plan: Plan that was followed so far.
        hours: Hours that have passed, 1 to K - 1; hour ``hours`` becomes hour 0.
        running_TD: Load started or promised since the plan was made, in all hours of the plan's horizon, (T, D) or
            (T, D, R): ``load_of_starts``. Units of several hours still occupy coming ones.
        queued: Load that was submitted and has not been placed, with the delay it still tolerates.
        load_NKC: Samples of the hours to come, (N, K - hours, C); by default the plan's own.

    Raises:
        ScenarioError: The hours are out of range, or the new problem's values are.
        InfeasiblePlanError: As for a ``PlanProblem``.
    """
    problem = plan.problem
    _, to_come, _, _, _ = problem.shape
    if not 1 <= hours < to_come:
        raise ScenarioError(
            f"{hours} hours have passed; give 1 to {to_come - 1}, so that an hour of submissions is left"
        )
    shape = problem.capacity_TD.shape
    placed_TD = np.zeros(shape) if problem.placed_TD is None else problem.placed_TD
    if running_TD is not None:
        running = np.asarray(running_TD, dtype=np.float64)
        if running.shape != shape:
            raise ScenarioError(f"running_TD has shape {running.shape}; expected the plan's {shape}")
        placed_TD = placed_TD + running
    peak_D = plan.curve_TD[:hours].max(axis=0)
    if problem.peak_before_D is not None:
        peak_D = np.maximum(peak_D, problem.peak_before_D)
    return replace(
        problem,
        load_NKC=problem.load_NKC[:, hours:] if load_NKC is None else load_NKC,
        load_max_KC=None if problem.load_max_KC is None else problem.load_max_KC[hours:],
        capacity_TD=problem.capacity_TD[hours:],
        cost_TD=problem.cost_TD[hours:],
        placed_TD=placed_TD[hours:],
        queued=tuple(queued),
        peak_before_D=peak_D,
    )
