"""numba types of the view, the answers and a rule's memory, and the one signature every compiled rule has.

A rule is passed to the engine's compiled loop as a first-class function: the loop is compiled once for all rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import typeof, types

from noonward.compiled import kernel
from noonward.decision.cluster.layout import ANSWER_PARTS, VIEW_PARTS, blank
from noonward.decision.cluster.view import Answers, ClusterView, RuleMemory

EXAMPLE_VIEW = ClusterView(**blank(VIEW_PARTS))
"""A view with the element types and axes of every view."""
EXAMPLE_ANSWERS = Answers(**blank(ANSWER_PARTS))
"""Answers with the element types and axes of all answers."""
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
