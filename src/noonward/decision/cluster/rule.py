"""Compiled rules: what they are given, and the one signature they all have.

A rule is passed to the engine's compiled loop as a first-class function: the loop is compiled once for all rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba import typeof, types

from noonward.compiled import kernel
from noonward.decision.cluster.addresses import note_place, place_dtype, reader
from noonward.decision.cluster.layout import ANSWER_PARTS, MEMORY_PARTS, VIEW_PARTS, blank
from noonward.decision.cluster.view import Answers, ClusterView, RuleMemory

VIEW = typeof(ClusterView(**blank(VIEW_PARTS)))
"""numba type of a view."""
ANSWERS = typeof(Answers(**blank(ANSWER_PARTS)))
"""numba type of the answers."""
MEMORY = typeof(RuleMemory(**blank(MEMORY_PARTS)))
"""numba type of a rule's memory."""
QUESTION_PARTS: Final = (*VIEW_PARTS, *ANSWER_PARTS, *MEMORY_PARTS)
"""All arrays that a rule is given."""
QUESTION: Final = place_dtype(QUESTION_PARTS)
"""Where they lie."""
RULE = types.void(types.int64)
"""Signature of a compiled rule: the address of a QUESTION record."""
_given: Any = reader(types.Tuple([VIEW, ANSWERS, MEMORY]), QUESTION_PARTS)


class Question:
    """A rule's view, answers and memory as one record of addresses, which a compiled rule is called with.

    Args:
        view: View.
        answers: Answers.
        memory: The rule's memory.

    Attributes:
        address: Address of the QUESTION record; good as long as this object lives.
    """

    def __init__(self, view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
        self._of = view, answers, memory
        self._place_1 = np.zeros(1, QUESTION)
        note_place(QUESTION_PARTS, {**view._asdict(), **answers._asdict(), **memory._asdict()}, self._place_1[0])
        self.address: int = self._place_1.__array_interface__["data"][0]

    def holds(self, view: ClusterView, answers: Answers, memory: RuleMemory) -> bool:
        """Returns whether it is about these very arrays."""
        return self._of[0] is view and self._of[1] is answers and self._of[2] is memory


def rule(function: Callable[[ClusterView, Answers, RuleMemory], None]) -> Any:
    """Compiles a rule, (view, answers, memory) -> None; it must make no arrays.

    Example:
        >>> @rule
        ... def start_here(view, answers, memory):
        ...     for s in range(view.site_S.shape[0]):
        ...         if view.asked_N[s] >= 0 and view.mask_NA[s, 1 + s]:
        ...             answers.answer_N[s].choice = 1 + s
    """
    pasted = kernel(inline=True, allocates=False)(function)

    def asked(address: int) -> None:
        view, answers, memory = _given(address)
        pasted(view, answers, memory)

    return kernel(RULE, allocates=False, stands_for=function)(asked)
