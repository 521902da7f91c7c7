"""Schedulers: what answers the engine's questions, in plain Python or as a compiled rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.addresses import Place
from noonward.decision.cluster.rule import QUESTION_PARTS, note_question
from noonward.decision.cluster.view import PER_JOB, Answers, ClusterView, RuleMemory
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.forecasts.learned import find_net

State = dict[str, Any]
"""What a scheduler keeps: arrays, numbers, strings, None, and lists and dicts of such, by name."""


class Scheduler(ABC):
    """Answers questions; never changes the world.

    Write one by giving it ``needs`` and ``decide``; one that remembers anything between questions also has ``reset``,
    ``state`` and ``load_state``.

    Example:
        >>> class StartHere(Scheduler):
        ...     needs = Needs(protocols=("each-slot",))
        ...     def decide(self, view, answers):
        ...         for site, job in view.asked():
        ...             if view.allowed(site, site):
        ...                 answers.send(site, site)
    """

    needs: Needs = Needs()
    """What it can answer and what it must be given; an instance may replace its class'."""

    def reset(self, brief: Brief, rng: np.random.Generator) -> None:  # noqa: B027
        """Prepares for a run; forgets all that was before.

        Args:
            brief: What is known before the first job.
            rng: Stream ``policy`` of the run.
        """

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns what a reader of its results in a run must know; they stand among the record's notes."""
        return ()

    @abstractmethod
    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Answers the question in the view.

        Args:
            view: What is asked and what is known.
            answers: To be filled; set to "hold, largest gang, oracle clock, at once" beforehand.
        """

    def state(self) -> State:
        """Returns a copy of all it remembers; empty for a scheduler that remembers nothing."""
        return {}

    def load_state(self, state: State) -> None:
        """Restores from ``state()``, after a ``reset`` with the same brief; answers then continue bit for bit.

        Args:
            state: What ``state()`` of a scheduler made in the same way returned. Whatever ``reset`` drew from its
                generator is replaced.

        Raises:
            ScenarioError: The state is of another scheduler.
        """
        if state:
            raise ScenarioError(
                f"the state holds {', '.join(sorted(state))}, but {type(self).__name__} remembers nothing; restore "
                "the state of a scheduler that was made in the same way"
            )


class CompiledScheduler(Scheduler):
    """A scheduler whose decisions are one compiled rule, so that engine and rule run as one compiled loop.

    Attributes:
        memory: What the rule remembers, since ``reset``.
    """

    rule: Any
    """Function compiled with ``@rule``: (view, answers, memory) -> None."""
    memory: RuleMemory
    _place: Place | None = None

    @abstractmethod
    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns the rule's memory at the start of a run; arguments as in ``reset``."""

    def reset(self, brief: Brief, rng: np.random.Generator) -> None:
        """Makes the rule's memory."""
        self.memory = self.make_memory(brief, rng)

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Calls the rule."""
        self.rule(self.question_address(view, answers))

    def question_address(self, view: ClusterView, answers: Answers) -> int:
        """Returns what the rule is called with; its memory gets a row for each row of ``view.job_J`` first."""
        self.memory = self.memory.for_jobs(len(view.job_J))
        if self._place is None:
            self._place = Place(QUESTION_PARTS, note_question)
        asked = view, answers, self.memory
        if not self._place.holds(asked):
            self._place.note(asked)
        return self._place.address

    def state(self) -> State:
        """Returns a copy of the rule's memory."""
        return {name: array.copy() for name, array in self.memory._asdict().items()}

    def load_state(self, state: State) -> None:
        """Restores the rule's memory.

        Raises:
            ScenarioError: The state is of another scheduler.
        """
        checked = checked_state(self, state, self.memory._asdict(), grows=PER_JOB)
        self.memory = RuleMemory(**{name: np.array(array, order="C") for name, array in checked.items()})


def checked_state(scheduler: Scheduler, state: State, like: Mapping[str, Any], *, grows: tuple[str, ...] = ()) -> State:
    """Returns a state if it could be of this scheduler.

    Args:
        scheduler: Who is to restore it.
        state: What is to be restored.
        like: The same names; where a value is an array, the array restored must have its type and shape.
        grows: Names of arrays whose first axis may have another length.

    Raises:
        ScenarioError: It has other names, or an array of another type or shape.
    """
    if set(state) != set(like):
        raise ScenarioError(
            f"a state of {type(scheduler).__name__} holds {', '.join(sorted(like))}, but the one given holds "
            f"{', '.join(sorted(state)) or 'nothing'}; restore the state of a scheduler that was made in the same way"
        )
    for name, mine in like.items():
        if not isinstance(mine, np.ndarray):
            continue
        first = 1 if name in grows else 0
        given = np.asarray(state[name])
        if given.dtype != mine.dtype or given.ndim != mine.ndim or given.shape[first:] != mine.shape[first:]:
            raise ScenarioError(
                f"{name} of the state of {type(scheduler).__name__} has shape {given.shape} and type {given.dtype}; "
                f"expected {mine.shape} and {mine.dtype}; restore the state of a scheduler that was made in the same "
                "way, for the same sites"
            )
    return state


def forecast_remarks(forecast: Forecast | None, brief: Brief) -> tuple[str, ...]:
    """Returns a note where a run lies in hours, or in months, that its learned forecast was trained on."""
    if forecast is None or not forecast.by_net:
        return ()
    record = find_net(forecast.net).record
    if "fitted_until" not in record:
        return months_remarks("the net of the learned forecast", record, brief)
    until = datetime.fromisoformat(record["fitted_until"])
    if not brief.signals or brief.start >= until:
        return ()
    return (
        f"the forecast {forecast.net!r} was fitted on hours up to {until:%Y-%m-%d}, and some windows begin before "
        "that: it knows them better than it will know hours to come",
    )


def months_remarks(what: str, record: Mapping[str, Any], brief: Brief) -> tuple[str, ...]:
    """Returns a note where a run lies in a month that something was trained on.

    Args:
        what: What was trained.
        record: How; ``months["train"]`` lists the months, if it learned from prices and intensities.
        brief: Brief of the run.
    """
    months = record.get("months", {}).get("train", ())
    if not brief.signals or brief.start.month not in months:
        return ()
    listed = ", ".join(map(str, months))
    return (
        f"{what} was trained on the months {listed}, in which some of these environments lie (of signal files perhaps "
        "the same hours); noonward reproduce takes other months",
    )
