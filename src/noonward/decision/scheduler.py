"""Schedulers: what answers the engine's questions, in plain Python or as a compiled rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from noonward.decision.cluster.view import Answers, ClusterView, RuleMemory
from noonward.forecasts.forecast import Forecast
from noonward.model.cluster.environment import Environment, Protocol

Curves = Literal["advisory", "hard"]
"""Kinds of capacity curves, see ``GpuCaps``."""


class Scheduler(ABC):
    """Answers questions; never changes the world.

    Write one by giving it ``protocols`` and ``decide``:

    Example:
        >>> class StartHere(Scheduler):
        ...     protocols = ("each-slot",)
        ...     def decide(self, view, answers):
        ...         for site, job in view.asked():
        ...             if view.allowed(site, site):
        ...                 answers.send(site, site)
    """

    protocols: ClassVar[tuple[Protocol, ...]] = ("each-slot", "on-arrival")
    """Protocols it can answer."""
    needs_signals: ClassVar[bool] = False
    """Whether it reads prices or carbon intensities."""
    needs_economics: ClassVar[bool] = False
    """Whether it reads revenue or the carbon price, both 0 in the view of a scenario without economics."""
    needs_samples: ClassVar[bool] = False
    """Whether it plans with jobs drawn from ``environment.sample_jobs``."""
    wants_allocate: ClassVar[bool] = False
    """Whether it is asked again (ASK_ALLOCATE) when a job is about to start (protocol on-arrival)."""
    wants_finished: ClassVar[bool] = False
    """Whether it is told (ASK_FINISHED) when a job finishes (protocol on-arrival)."""
    clairvoyant: ClassVar[bool] = False
    """Whether it reads the environment's jobs beforehand: a yardstick, no policy that one could run."""
    curves: Curves | None = None
    """Whether it sets capacity curves (``answers.limit``), and of which kind; see ``GpuCaps``. They start at the sites'
    GPUs. An environment with curves of its own keeps those instead."""
    forecast: Forecast | None = None
    """Forecast it is given in ``view.forecast_KSL``; None: none."""
    lookahead_h: int = 0
    """Hours its forecast reaches at least; it always reaches as far as any job may run."""

    def reset(self, environment: Environment, rng: np.random.Generator) -> None:  # noqa: B027
        """Prepares for a run.

        Args:
            environment: The run's environment. Decisions may rest on its fleet, links, economics, protocol, slots,
                window and end, and on jobs drawn by ``sample_jobs``. Its jobs may be used for the sizes of arrays
                only (unless it is ``clairvoyant``), and its signals not at all: both lie in the future.
            rng: Stream ``policy`` of the run.
        """

    def remarks(self, environment: Environment) -> tuple[str, ...]:
        """Returns what a reader of its results in an environment must know; they stand among the record's notes."""
        return ()

    @abstractmethod
    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Answers the question in the view.

        Args:
            view: What is asked and what is known.
            answers: To be filled; set to "hold, largest gang, oracle clock, at once" beforehand.
        """

    def propose(self, view: ClusterView, answers: Answers) -> None:
        """Advises: answers like ``decide``, but another may answer otherwise; ``heed`` follows in either case.

        A scheduler that keeps books of what it answered keeps them in ``heed``; by default its proposal is its answer.
        """
        self.decide(view, answers)

    def heed(self, view: ClusterView, answers: Answers) -> None:  # noqa: B027
        """Hears what is carried out after ``propose``."""


class CompiledScheduler(Scheduler):
    """A scheduler whose decisions are one compiled rule, so that engine and rule run as one compiled loop."""

    rule: Any
    """Function compiled with ``@rule``: (view, answers, memory) -> None."""

    @abstractmethod
    def memory(self, environment: Environment, rng: np.random.Generator) -> RuleMemory:
        """Returns the rule's memory at the start of a run; arguments as in ``reset``."""

    def reset(self, environment: Environment, rng: np.random.Generator) -> None:
        """Makes the rule's memory."""
        self.state = self.memory(environment, rng)

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Calls the rule."""
        self.rule(view, answers, self.state)


def months_remarks(what: str, record: Mapping[str, Any], environment: Environment) -> tuple[str, ...]:
    """Returns a note where an environment lies in a month that something was trained on.

    Args:
        what: What was trained.
        record: How; ``months["train"]`` lists the months, if it learned from prices and intensities.
        environment: Environment.
    """
    months = record.get("months", {}).get("train", ())
    if environment.signals is None or environment.start.month not in months:
        return ()
    listed = ", ".join(map(str, months))
    return (
        f"{what} was trained on the months {listed}, in which some of these environments lie (of signal files perhaps "
        "the same hours); noonward reproduce takes other months",
    )
