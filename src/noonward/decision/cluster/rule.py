"""Compiled rules: what they are given, and the one signature they all have.

The engine's compiled loop is given a rule's address: the loop is compiled once for all rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from numba import typeof, types

from noonward.compiled import kernel
from noonward.decision.cluster.addresses import reader, writer
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
RULE = types.int64(types.int64)
"""Signature of a compiled rule: the address of a record of where its arrays lie -> 1 where it has answered, else 0."""
ASKED = types.Tuple([VIEW, ANSWERS, MEMORY])
"""numba type of what a rule is given."""
_given: Any = reader(ASKED, QUESTION_PARTS)
_noted: Any = writer(ASKED, QUESTION_PARTS)


@kernel(types.int64(ASKED, types.int64), allocates=False)
def note_question(asked: Any, address: int) -> int:
    """Writes where view, answers and memory lie to a record; see ``writer``."""
    return _noted(asked, address)


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

    def asked(address: int) -> int:
        view, answers, memory = _given(address)
        pasted(view, answers, memory)
        return 1

    return kernel(RULE, allocates=False, stands_for=function)(asked)
