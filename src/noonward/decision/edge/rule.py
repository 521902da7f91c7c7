"""numba types of the edge view, its answers and memory, and the one signature every compiled edge rule has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import typeof, types

from noonward.compiled import kernel
from noonward.decision.edge.view import ANSWER, EdgeAnswers, EdgeMemory, EdgeView, blank_view

VIEW = typeof(blank_view())
"""numba type of a view."""
ANSWERS = typeof(EdgeAnswers(np.zeros(1, ANSWER)))
"""numba type of the answers."""
MEMORY = typeof(EdgeMemory.make())
"""numba type of a rule's memory."""
RULE = types.void(VIEW, ANSWERS, MEMORY)
"""Signature of a compiled rule: reads the view, writes the answers, may write its memory."""


def edge_rule(function: Callable[[EdgeView, EdgeAnswers, EdgeMemory], None]) -> Any:
    """Compiles a rule, (view, answers, memory) -> None; it must make no arrays.

    Example:
        >>> @edge_rule
        ... def oldest_first(view, answers, memory):
        ...     if view.mask_A[1]:
        ...         answers.answer_1[0].choice = 1
        ...         answers.answer_1[0].steps = 24.0
    """
    return kernel(RULE, allocates=False)(function)
