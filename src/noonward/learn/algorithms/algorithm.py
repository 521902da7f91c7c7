"""What an algorithm is: it acts, observes, updates, and says what its policy consists of.

The trainer knows nothing else of it, so replay and rollouts, values and policies, one agent and many look the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

from noonward.arrays import F4, I8
from noonward.learn.core.experience import Credit, Moment, Played, Studied, Transition


class PolicyArrays(NamedTuple):
    """A policy as arrays: one perceptron per agent."""

    weights: list[F4]
    """Per layer [N, in, out]."""
    biases: list[F4]
    """Per layer [N, out]."""
    meta: dict[str, Any]
    """``algorithm``, ``head`` (logits or values), and what the algorithm adds."""


class Learner(ABC):
    """What every algorithm has: a name, an update, a state, a policy."""

    name: ClassVar[str]
    """Name on the command line."""
    constrained: ClassVar[bool] = False
    """Whether it learns from the costs of constraints too, not from the reward alone."""

    @abstractmethod
    def update(self) -> dict[str, float]:
        """Learns once; returns losses and other figures by name."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Returns everything that a resumed run needs: nested dictionaries of arrays, tensors and plain values."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Restores from ``state()``."""

    @abstractmethod
    def policy_arrays(self) -> PolicyArrays:
        """Returns a copy of the policy."""


class Algorithm(Learner):
    """A learner of N agents with A choices each. Made with (dimensions, config, seed, device)."""

    consumes: ClassVar[Literal["replay", "rollout"]]
    """``replay``: the trainer calls ``update`` a fixed number of times an epoch. ``rollout``: every ``rollout_steps``
    decision steps and at the end of an epoch, over all that was observed since the last call, which it then forgets."""

    @property
    def rollout_steps(self) -> int | None:
        """Decision steps of each run between two updates of an algorithm that consumes rollouts; None: an epoch's."""
        return None

    @abstractmethod
    def act(self, moment: Moment, *, explore: bool) -> I8:
        """Returns choices, [B, N].

        Args:
            moment: What the agents see.
            explore: Whether to explore (training) or to take the best choice (validation).
        """

    @abstractmethod
    def observe(self, transition: Transition) -> None:
        """Takes in a decision step; its arrays may be overwritten afterwards."""


class RunAlgorithm(Learner):
    """A learner that plays whole runs and learns from what became of every job. Made with (config, seed).

    The trainer draws windows, lets ``scheduler`` run them in the compiled loop, hands over what was noted, and calls
    ``update`` once an epoch.
    """

    consumes: ClassVar[Literal["runs"]] = "runs"
    """It learns from whole runs."""

    @property
    @abstractmethod
    def windows(self) -> int:
        """Training windows that runs are drawn from, and that are studied beforehand."""

    @property
    @abstractmethod
    def credit(self) -> Credit:
        """How the returns that it observes are counted."""

    @abstractmethod
    def study(self, studied: Studied) -> dict[str, float]:
        """Learns from the training windows before the first run; returns figures by name."""

    @abstractmethod
    def scheduler(self, *, explore: bool) -> Any:
        """Returns the policy as it stands, as a scheduler: exploring and noting questions, or greedy."""

    @abstractmethod
    def observe(self, played: Played) -> None:
        """Takes in a run."""
