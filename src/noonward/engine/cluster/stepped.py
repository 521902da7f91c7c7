"""What the two cluster engines share: a world, what it shows, and what it is provided with as it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noonward.decision.cluster.addresses import Place
from noonward.decision.cluster.view import Answers, ClusterView
from noonward.engine.cluster.build import with_more_journeys, with_more_segments, with_more_slots
from noonward.engine.cluster.kernels import loops
from noonward.engine.cluster.kernels.world import (
    FULL,
    NO_SEGMENT,
    NO_SLOT,
    PARTS,
    UNESTIMATED,
    UNISSUED,
    World,
    note_world,
)
from noonward.model.cluster.setting import Protocol

STOPS: Final = (FULL, NO_SLOT, NO_SEGMENT, UNESTIMATED, UNISSUED)
"""What a loop stops for until it is provided."""


class SteppedEngine:
    """An engine over one world, which it steps from question to question.

    Args:
        world: State at second 0.
        protocol: Protocol by which it asks.

    Attributes:
        world: The state; another object once it has grown.
    """

    def __init__(self, world: World, protocol: Protocol) -> None:
        self.world = world
        self.each_slot = protocol == "each-slot"
        self._place = Place(PARTS, note_world)
        self._compiled_step = loops.step_each_slot if self.each_slot else loops.step_on_arrival

    @property
    def view(self) -> ClusterView:
        """What the scheduler sees; another object once the jobs in sight have outgrown the last one."""
        return self.world.shown

    @property
    def answers(self) -> Answers:
        """Where it answers; overwritten by ``step``."""
        return self.world.answers

    def _step(self) -> int:
        """Carries out the answers to the last question and runs to the next, 0 at the end, or to what is wrong."""
        kind: int = self._compiled_step(self._address())
        while kind < 0 and kind in STOPS:
            self._provide(kind)
            kind = self._compiled_step(self._address())
        return kind

    def _address(self) -> int:
        """Returns the address of the record of where the world's arrays lie now."""
        if not self._place.holds(self.world):
            self._place.note(self.world)
        return self._place.address

    def _provided(self, loop: Callable[[], int]) -> int:
        """Runs a loop, again whenever it stops for what can be provided, and returns what it returns at last."""
        code = loop()
        while code in STOPS:
            self._provide(code)
            code = loop()
        return code

    def _provide(self, what: int) -> None:
        """Provides what a loop stopped for: room for journeys (FULL), segments (NO_SEGMENT) or jobs (NO_SLOT)."""
        more = {FULL: with_more_journeys, NO_SEGMENT: with_more_segments, NO_SLOT: with_more_slots}
        self.world = more[what](self.world)
