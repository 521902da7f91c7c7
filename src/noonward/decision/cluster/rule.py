"""numba types of the view, the answers and a rule's memory, and the one signature every compiled rule has.

A rule is passed to the engine's compiled loop as a first-class function: the loop is compiled once for all rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import typeof, types

from noonward.compiled import kernel
from noonward.decision.cluster.view import ANSWER, JOB, LINK, RUN, SITE, Answers, ClusterView, RuleMemory


def blank_view(sites: int = 1, askers: int = 1, jobs: int = 1, ingress: int = 1, classes: int = 1) -> dict[str, Any]:
    """Returns the structured parts of a view, all zero; jobs may run anywhere."""
    return {
        "run_1": np.zeros(1, RUN),
        "site_S": np.zeros(sites, SITE),
        "job_J": np.zeros(jobs, JOB),
        "asked_N": np.full(askers, -1, np.int64),
        "mask_NA": np.zeros((askers, 1 + sites), np.uint8),
        "link_IS": np.zeros((ingress, sites), LINK),
        "home_I": np.full(ingress, -1, np.int64),
        "range_CS": np.ones((classes, sites), np.uint8),
    }


EXAMPLE_VIEW = ClusterView(
    **blank_view(),
    forecast_KSL=np.zeros((2, 1, 2)),
    speed_KSCGF=np.zeros((2, 1, 1, 1, 1)),
    oracle_SCG=np.zeros((1, 1, 1), np.int64),
    clock_SF=np.zeros((1, 1)),
)
"""A view with the element types and axes of every view."""
EXAMPLE_ANSWERS = Answers(np.zeros(1, ANSWER), np.zeros((1, 1)))
"""Answers with the element type of all answers."""
VIEW = typeof(EXAMPLE_VIEW)
"""numba type of a view."""
ANSWERS = typeof(EXAMPLE_ANSWERS)
"""numba type of the answers."""
MEMORY = typeof(RuleMemory.make())
"""numba type of a rule's memory."""
RULE = types.void(VIEW, ANSWERS, MEMORY)
"""Signature of a compiled rule: reads the view, writes the answers, may write its memory."""


def rule(function: Callable[[ClusterView, Answers, RuleMemory], None]) -> Any:
    """Compiles a rule, (view, answers, memory) -> None; it must make no arrays.

    Example:
        >>> @rule
        ... def start_here(view, answers, memory):
        ...     for s in range(view.site_S.shape[0]):
        ...         if view.asked_N[s] >= 0 and view.mask_NA[s, 1 + s]:
        ...             answers.answer_N[s].choice = 1 + s
    """
    return kernel(RULE, allocates=False)(function)
