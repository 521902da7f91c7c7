"""Jobs that are held: a compiled rule holds them slot after slot without a question in Python.

With many jobs waiting, nearly all questions of a slot end as those of the slot before: all sites hold. Such a question
is asked and answered in compiled code. The rule is called once per question, in the same order as otherwise, so that
it decides and remembers the same. The first time that a job is held is a decision: compiled code lists it, where its
asker sees what it saw at the last question in Python.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeGuard

import numpy as np
from numba import typeof, types
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.compiled import address_of, call_at, kernel
from noonward.decision.cluster.addresses import Place, reader, writer
from noonward.decision.cluster.layout import ANSWER_PARTS, VIEW_PARTS, Part, blank
from noonward.decision.cluster.rule import ANSWERS, RULE, VIEW
from noonward.decision.cluster.view import ASK_SLOT, HOLD, KEEP, ORACLE
from noonward.decision.scheduler import CompiledScheduler, Scheduler
from noonward.engine.cluster.told import ToldEngine

SEEN: Final = ("free", "waiting", "price", "carbon")
"""Fields of a site that a decision notes (``CandidateTexts``)."""
FIRST: Final = np.dtype([("at_s", np.float64), ("serial", np.int64), ("asker", np.int64)])
"""A job that was held for the first time: when, number of its arrival, and who was asked."""
_HELD_PARTS: Final = (
    Part("plain_J", np.uint8, ("slots",), moves=True),
    Part("inner_X", np.int64, ("inner",), moves=True),
    Part("first_J", FIRST, ("slots",), moves=True),
    Part("seen_NA", np.uint8, ("askers", "choices"), moves=True),
    Part("seen_NSX", np.float64, ("askers", "sites", "seen"), moves=True),
)
_PARTS: Final = (*VIEW_PARTS, *ANSWER_PARTS, *_HELD_PARTS)
_RULE, _QUESTION, _ANSWERED, _FIRSTS = 0, 1, 2, 3
"""What stands in ``inner_X``: address of the rule, address of its question, whether it has answered, and how many jobs
are listed that were held for the first time."""
_LIMITED, _ASKED_BEFORE, _NEW = 0, 1, 2
"""What a job is to compiled code: an operator limits where it may go; it was asked about before; it was not."""


class _Held(NamedTuple):
    plain_J: NDArray[np.uint8]
    """What the job of a slot is (``_LIMITED``, ...)."""
    inner_X: I8
    first_J: NDArray[np.void]
    """List of the jobs that were held for the first time: FIRST records."""
    seen_NA: NDArray[np.uint8]
    """Mask that each asker saw at the last question in Python; before it 255, which is none."""
    seen_NSX: F8
    """What it saw of each site: ``SEEN``."""


_ASKED: Final = types.Tuple([VIEW, ANSWERS, typeof(_Held(**blank(_HELD_PARTS)))])
_given: Any = reader(_ASKED, _PARTS)
_noted: Any = writer(_ASKED, _PARTS)


@kernel(types.int64(_ASKED, types.int64), allocates=False)
def note_asked(asked: Any, address: int) -> int:
    """Writes where view, answers and ``_Held`` lie to a record; see ``writer``."""
    return _noted(asked, address)


@kernel(inline=True, allocates=False)
def _sees_the_same(view: Any, held: Any, n: int) -> bool:
    """Returns whether an asker sees what it saw at the last question in Python, as far as a decision notes it."""
    for a in range(view.mask_NA.shape[1]):
        if view.mask_NA[n, a] != held.seen_NA[n, a]:
            return False
    for s in range(view.site_S.shape[0]):
        site, seen_X = view.site_S[s], held.seen_NSX[n, s]
        if site.free != seen_X[0] or site.waiting != seen_X[1]:
            return False
        if not (site.price == seen_X[2] or (site.price != site.price and seen_X[2] != seen_X[2])):
            return False
        if not (site.carbon == seen_X[3] or (site.carbon != site.carbon and seen_X[3] != seen_X[3])):
            return False
    return True


@kernel(RULE, allocates=False)
def hold_on(address: int) -> int:
    """Asks a rule about jobs that nobody limits; returns 1 where it holds all of them.

    Otherwise, 0: what it has answered, if it was asked (``_ANSWERED``), is for Python to take.
    """
    view, answers, held = _given(address)
    held.inner_X[_ANSWERED] = 0
    if view.run_1[0].kind != ASK_SLOT:
        return 0
    for s in range(view.asked_N.shape[0]):
        if view.asked_N[s] >= 0:
            plain = held.plain_J[view.asked_N[s]]
            if plain == _LIMITED or (plain == _NEW and not _sees_the_same(view, held, s)):
                return 0
    call_at(held.inner_X[_RULE], held.inner_X[_QUESTION])
    for s in range(view.asked_N.shape[0]):
        one = answers.answer_N[s]
        if view.asked_N[s] >= 0 and (one.choice != HOLD or one.gpus != 0 or one.level != ORACLE or one.cap != KEEP):
            held.inner_X[_ANSWERED] = 1
            return 0
    for s in range(view.asked_N.shape[0]):
        answers.answer_N[s].earliest_s = 0.0  # a service asks in every slot
        slot = view.asked_N[s]
        if slot >= 0 and held.plain_J[slot] == _NEW:
            held.plain_J[slot] = _ASKED_BEFORE
            first = held.first_J[held.inner_X[_FIRSTS]]
            first.at_s, first.serial, first.asker = view.run_1[0].now_s, view.job_J[slot].serial, s
            held.inner_X[_FIRSTS] += 1
    return 1


class First(NamedTuple):
    """A job that was held for the first time."""

    at_s: float
    serial: int
    asker: int


class HeldJobs:
    """Which jobs are held without a question in Python, and the steps in which they are (protocol each-slot).

    Args:
        engine: The engine.
        scheduler: Scheduler with a compiled rule; see ``can_hold``.
    """

    def __init__(self, engine: ToldEngine, scheduler: CompiledScheduler) -> None:
        self._engine, self._scheduler = engine, scheduler
        shape = engine.view.mask_NA.shape
        self._held = _Held(
            np.zeros(0, np.uint8),
            np.zeros(4, np.int64),
            np.zeros(0, FIRST),
            np.full(shape, 255, np.uint8),
            np.zeros((shape[0], len(engine.view.site_S), len(SEEN))),
        )
        self._place = Place(_PARTS, note_asked)

    def note(self, slot: int, asked: bool, limited: bool) -> None:
        """Notes whether the job of a slot was asked about before, and whether an operator limits where it may go."""
        if slot >= len(self._held.plain_J):
            self._grow()
        self._held.plain_J[slot] = _LIMITED if limited else _ASKED_BEFORE if asked else _NEW

    def see(self, asker: int, seen_SX: F8) -> None:
        """Notes what an asker sees in a question that Python answers.

        Args:
            asker: Number of the asker.
            seen_SX: Fields ``SEEN`` of the sites.
        """
        self._held.seen_NA[asker] = self._engine.view.mask_NA[asker]
        self._held.seen_NSX[asker] = seen_SX

    def take_firsts(self) -> list[First]:
        """Returns the jobs that the last ``step`` has held for the first time, in that order; says so once."""
        count = int(self._held.inner_X[_FIRSTS])
        self._held.inner_X[_FIRSTS] = 0
        return [First(*row) for row in self._held.first_J[:count].tolist()]

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
            self._held = self._held._replace(plain_J=plain_J, first_J=np.zeros(slots, FIRST))


def can_hold(scheduler: Scheduler, engine: ToldEngine) -> TypeGuard[CompiledScheduler]:
    """Returns whether a scheduler answers by a compiled rule alone, and about waiting jobs alone, slot by slot."""
    return (
        engine.each_slot
        and not engine.bends
        and scheduler.needs.curves is None
        and isinstance(scheduler, CompiledScheduler)
        and type(scheduler).decide is CompiledScheduler.decide
    )
