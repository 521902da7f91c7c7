"""Jobs that wait on: a compiled rule holds them slot after slot without a question in Python.

With many jobs waiting, nearly all questions of a slot end as those of the slot before: all sites hold. Such a question
is asked and answered in compiled code. The rule is called once per question, in the same order as otherwise, so that
it decides and remembers the same.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeGuard

import numpy as np
from numba import typeof, types
from numpy.typing import NDArray

from noonward.arrays import I8
from noonward.compiled import address_of, call_at, kernel
from noonward.decision.cluster.addresses import Place, reader, writer
from noonward.decision.cluster.layout import ANSWER_PARTS, VIEW_PARTS, Part, blank
from noonward.decision.cluster.rule import ANSWERS, RULE, VIEW
from noonward.decision.cluster.view import ASK_SLOT, HOLD, KEEP, ORACLE
from noonward.decision.scheduler import CompiledScheduler, Scheduler
from noonward.engine.cluster.told import ToldEngine

_HELD_PARTS: Final = (
    Part("plain_J", np.uint8, ("slots",), moves=True),
    Part("inner_X", np.int64, ("inner",), moves=True),
)
_PARTS: Final = (*VIEW_PARTS, *ANSWER_PARTS, *_HELD_PARTS)
_RULE, _QUESTION, _ANSWERED = 0, 1, 2
"""What stands in ``inner_X``: address of the rule, address of its question, and whether it has answered."""


class _Held(NamedTuple):
    plain_J: NDArray[np.uint8]
    """Whether the job of a slot was asked about before, and no operator limits where it may go."""
    inner_X: I8


_ASKED: Final = types.Tuple([VIEW, ANSWERS, typeof(_Held(**blank(_HELD_PARTS)))])
_given: Any = reader(_ASKED, _PARTS)
_noted: Any = writer(_ASKED, _PARTS)


@kernel(types.int64(_ASKED, types.int64), allocates=False)
def note_asked(asked: Any, address: int) -> int:
    """Writes where view, answers and ``_Held`` lie to a record; see ``writer``."""
    return _noted(asked, address)


@kernel(RULE, allocates=False)
def hold_on(address: int) -> int:
    """Asks a rule about jobs that were asked about before; returns 1 where it holds all of them.

    Otherwise, 0: what it has answered, if it was asked (``_ANSWERED``), is for Python to take.
    """
    view, answers, held = _given(address)
    held.inner_X[_ANSWERED] = 0
    if view.run_1[0].kind != ASK_SLOT:
        return 0
    for s in range(view.asked_N.shape[0]):
        if view.asked_N[s] >= 0 and not held.plain_J[view.asked_N[s]]:
            return 0
    call_at(held.inner_X[_RULE], held.inner_X[_QUESTION])
    for s in range(view.asked_N.shape[0]):
        one = answers.answer_N[s]
        if view.asked_N[s] >= 0 and (one.choice != HOLD or one.gpus != 0 or one.level != ORACLE or one.cap != KEEP):
            held.inner_X[_ANSWERED] = 1
            return 0
    for s in range(view.asked_N.shape[0]):
        answers.answer_N[s].earliest_s = 0.0  # a service asks in every slot
    return 1


class HeldJobs:
    """Which jobs are held without a question in Python, and the steps in which they are (protocol each-slot).

    Args:
        engine: The engine.
        scheduler: Scheduler with a compiled rule; see ``can_hold``.
    """

    def __init__(self, engine: ToldEngine, scheduler: CompiledScheduler) -> None:
        self._engine, self._scheduler = engine, scheduler
        self._held = _Held(np.zeros(0, np.uint8), np.zeros(3, np.int64))
        self._place = Place(_PARTS, note_asked)

    def note(self, slot: int, plain: bool) -> None:
        """Notes whether the job of a slot was asked about before, and no operator limits where it may go."""
        if slot >= len(self._held.plain_J):
            self._grow()
        self._held.plain_J[slot] = plain

    def take_answered(self) -> bool:
        """Returns whether the rule has answered the question that ``step`` returned; says so once."""
        answered = bool(self._held.inner_X[_ANSWERED])
        self._held.inner_X[_ANSWERED] = 0
        return answered

    def step(self) -> tuple[int, int]:
        """Carries out the last answers and runs to the next question at which not all that is asked about is held.

        Returns:
            Kind of the question, or 0 when the slot is over; how many questions were passed over.
        """
        return self._engine.step_under(address_of(hold_on), self._address)

    def _address(self) -> int:
        self._grow()
        view, answers = self._engine.view, self._engine.answers
        self._held.inner_X[_RULE] = address_of(self._scheduler.rule)
        self._held.inner_X[_QUESTION] = self._scheduler.question_address(view, answers)
        asked = view, answers, self._held
        if not self._place.holds(asked):
            self._place.note(asked)
        return self._place.address

    def _grow(self) -> None:
        """Has a row for each job that the engine has room for."""
        slots = len(self._engine.view.job_J)
        if slots > len(self._held.plain_J):
            plain_J = np.zeros(slots, np.uint8)
            plain_J[: len(self._held.plain_J)] = self._held.plain_J
            self._held = self._held._replace(plain_J=plain_J)


def can_hold(scheduler: Scheduler, engine: ToldEngine) -> TypeGuard[CompiledScheduler]:
    """Returns whether a scheduler answers by a compiled rule alone, and about waiting jobs alone, slot by slot."""
    return (
        engine.each_slot
        and not engine.bends
        and scheduler.needs.curves is None
        and isinstance(scheduler, CompiledScheduler)
        and type(scheduler).decide is CompiledScheduler.decide
    )
