"""Advised policies: a trained net that answers beside a rule, whose proposal it is told and may overrule."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.view import Answers, ClusterView
from noonward.decision.scheduler import Scheduler, State, checked_state
from noonward.errors import DataError
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

    def __init__(self, path: Path | str, adviser: Scheduler) -> None:
        net = read_policy(Path(path))
        if not net.meta.get("adviser"):
            raise DataError(f"{path} was trained without an adviser; run it as TrainedPolicy")
        self.adviser = adviser
        self.policy = TrainedPolicy(path, net)
        mine, its = self.policy.needs, adviser.needs
        if its.forecast is not None and net.forecast not in (None, its.forecast):
            raise DataError(f"{path} is fed the forecast {net.forecast}, its adviser plans by {its.forecast}")
        self.needs = Needs(
            protocols=("each-slot",),
            signals=its.signals or mine.signals,
            economics=its.economics or mine.economics,
            forecast=its.forecast or mine.forecast,
            lookahead_h=max(its.lookahead_h, mine.lookahead_h),
            samples=its.samples or mine.samples,
        )

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns those of adviser and net."""
        return (*self.adviser.remarks(brief), *self.policy.remarks(brief))

    def reset(self, brief: Brief, rng: np.random.Generator) -> None:
        """Prepares adviser and net."""
        self.adviser.reset(brief, rng)
        self.policy.reset(brief, rng)

    def state(self) -> State:
        """Returns what adviser and net remember."""
        return {"adviser": self.adviser.state(), "policy": self.policy.state()}

    def load_state(self, state: State) -> None:
        """Restores adviser and net."""
        state = checked_state(self, state, {"adviser": {}, "policy": {}})
        self.adviser.load_state(state["adviser"])
        self.policy.load_state(state["policy"])

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Answers by the net, told what the adviser proposes."""
        self.adviser.propose(view, answers)
        self.policy.decide(view, answers)
        self.adviser.heed(view, answers)
