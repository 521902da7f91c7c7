"""Schedulers that answer now and then in Python, and by a compiled rule in between: their own, or another's."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from noonward.decision.cluster.view import Answers, ClusterView
from noonward.decision.scheduler import CompiledScheduler, Scheduler


class PartlyCompiledScheduler(Scheduler):
    """A scheduler for ``each-slot`` that can answer every question by ``decide``, and most of them by a compiled rule.

    An engine asks ``decide`` first and the rule from then on, in one compiled loop, until the rule declines a question;
    that one goes to ``decide`` again. Both answer alike, so a run is the same with and without the rule.
    """

    partial_rule: Any
    """Compiled function of the signature RULE, of whatever its scheduler has noted; where it declines, it has changed
    nothing."""

    @abstractmethod
    def question_address(self, view: ClusterView, answers: Answers) -> int:
        """Returns what the rule is called with; good until the next call of this method or of ``decide``.

        Args:
            view: View.
            answers: Where the rule answers.
        """


class OnTop(Scheduler):
    """A scheduler for ``each-slot`` on top of another one, which at times answers just as that one does.

    An engine asks ``decide``. Where the scheduler then rests, it asks the one below, in one compiled loop, until the
    next grid event is announced. Both answer alike, so a run is the same with and without the loop.
    """

    @abstractmethod
    def resting_on(self, view: ClusterView) -> CompiledScheduler | PartlyCompiledScheduler | None:
        """Returns the scheduler below if until the next announcement it answers all questions alike; else None.

        Args:
            view: View of the question that was answered last.
        """

    @property
    @abstractmethod
    def bends_below(self) -> bool:
        """Whether the scheduler below is asked about running jobs, too; else they run on while this one rests."""

    @abstractmethod
    def shown_below(self, view: ClusterView) -> ClusterView:
        """Returns a view as the scheduler below sees it."""
