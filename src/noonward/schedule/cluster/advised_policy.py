"""Advised policies: a trained net that answers beside a rule, whose proposal it is told and may overrule."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from noonward.decision.cluster.view import Answers, ClusterView
from noonward.decision.scheduler import Scheduler
from noonward.errors import DataError
from noonward.model.cluster.environment import Environment, Protocol
from noonward.schedule.cluster.trained_policy import TrainedPolicy, read_policy


class AdvisedPolicy(Scheduler):
    """A net and its adviser: the adviser proposes, the net answers, the adviser hears what was carried out.

    The net's output for the proposed choice is lifted by the file's ``advice_logit``, so that it is followed unless the
    net holds another choice to be better by more than that.

    Args:
        path: File of a net that was trained beside the adviser.
        adviser: A fresh scheduler of the policy that the file names.

    Raises:
        DataError: The file is no policy, or was trained without an adviser.
    """

    protocols: ClassVar[tuple[Protocol, ...]] = ("each-slot",)

    def __init__(self, path: Path | str, adviser: Scheduler) -> None:
        net = read_policy(Path(path))
        if not net.meta.get("adviser"):
            raise DataError(f"{path} was trained without an adviser; run it as TrainedPolicy")
        self.adviser = adviser
        self.policy = TrainedPolicy(path, net)
        if adviser.forecast is not None and net.forecast not in (None, adviser.forecast):
            raise DataError(f"{path} is fed the forecast {net.forecast}, its adviser plans by {adviser.forecast}")
        self.forecast = adviser.forecast or self.policy.forecast
        self.lookahead_h = max(adviser.lookahead_h, self.policy.lookahead_h)
        for need in ("needs_signals", "needs_economics", "needs_samples"):
            setattr(self, need, getattr(adviser, need) or getattr(self.policy, need))

    def remarks(self, environment: Environment) -> tuple[str, ...]:
        """Returns those of adviser and net."""
        return (*self.adviser.remarks(environment), *self.policy.remarks(environment))

    def reset(self, environment: Environment, rng: np.random.Generator) -> None:
        """Prepares adviser and net."""
        self.adviser.reset(environment, rng)
        self.policy.reset(environment, rng)

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Answers by the net, told what the adviser proposes."""
        self.adviser.propose(view, answers)
        self.policy.decide(view, answers)
        self.adviser.heed(view, answers)
