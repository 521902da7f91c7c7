"""Edge schedulers: what answers the edge engine's questions, in plain Python or as a compiled rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.view import EdgeAnswers, EdgeMemory, EdgeView
from noonward.forecasts.forecast import Forecast


class EdgeScheduler(ABC):
    """Answers questions about image tasks; never changes the world.

    Example:
        >>> class OldestFirst(EdgeScheduler):
        ...     def decide(self, view, answers):
        ...         if view.allowed(0):
        ...             answers.launch(0, steps=24.0)
    """

    forecast: Forecast | None = None
    """Forecast of price and carbon intensity that it asks for; ``brief.issue`` then issues it."""

    def reset(self, brief: EdgeBrief, rng: np.random.Generator) -> None:  # noqa: B027
        """Prepares for a run.

        Args:
            brief: What is known before the first task.
            rng: Stream ``policy`` of the run.
        """

    @abstractmethod
    def decide(self, view: EdgeView, answers: EdgeAnswers) -> None:
        """Answers the question in the view; the answer is set to a wait for the next event beforehand."""

    def state(self) -> dict[str, Any]:
        """Returns all that changes during a run."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Restores from ``state()``."""


class CompiledEdgeScheduler(EdgeScheduler):
    """An edge scheduler whose decisions are one compiled rule, so that engine and rule run as one compiled loop."""

    rule: Any
    """Function compiled with ``@edge_rule``: (view, answers, memory) -> None."""
    memory: EdgeMemory
    """The rule's memory; made by ``reset``."""

    @abstractmethod
    def make_memory(self, brief: EdgeBrief, rng: np.random.Generator) -> EdgeMemory:
        """Returns the rule's memory at the start of a run; arguments as in ``reset``."""

    def reset(self, brief: EdgeBrief, rng: np.random.Generator) -> None:
        """Makes the rule's memory."""
        self.memory = self.make_memory(brief, rng)

    def decide(self, view: EdgeView, answers: EdgeAnswers) -> None:
        """Calls the rule."""
        self.rule(view, answers, self.memory)

    def state(self) -> dict[str, Any]:
        """Returns a copy of the memory."""
        return {name: array.copy() for name, array in self.memory._asdict().items()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores the memory."""
        self.memory = EdgeMemory(**{name: np.array(state[name]) for name in EdgeMemory._fields})
