"""What an algorithm is: it acts, observes, updates, and says what its policy consists of.

The trainer knows nothing else of it, so replay and rollouts, values and policies, one agent and many look the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F4, F8, I8, Bools


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """Sizes an algorithm is built for.

    Attributes:
        agents: Agents, N: sites under each-slot, 1 under on-arrival.
        choices: Choices of an agent, A.
        global_size: Width of what all agents see.
        own_size: Width of what each agent sees for itself.
        costs: Names of the constraint costs of a step, K of them.
        gangs: Gangs G of a choice ``site x G + gang - 1`` (on-arrival); 1 elsewhere.
        slot_s: Length of a slot, s; the unit of a discount by elapsed time.
    """

    agents: int
    choices: int
    global_size: int
    own_size: int
    costs: tuple[str, ...] = ()
    gangs: int = 1
    slot_s: float = 60.0


class Moment(NamedTuple):
    """What the agents of B runs see when they are asked.

    An agent that is not asked has no feasible choice in ``mask_BNA``; it answers 0 (hold).
    """

    global_BG: F4
    """What all agents of a run see."""
    own_BNO: F4
    """What each agent sees for itself."""
    mask_BNA: NDArray[np.uint8]
    """1 where a choice is feasible."""
    asked_BN: Bools
    """Whether an agent is asked."""


class Transition(NamedTuple):
    """One decision step of B runs: what was seen, chosen and earned, and what is seen next."""

    before: Moment
    choice_BN: I8
    """Choices, 0 where an agent was not asked."""
    reward_B: F8
    """Growth of the utility until the next question, USD."""
    elapsed_s_B: F8
    """Seconds until the next question."""
    cost_BK: F8
    """Constraint costs until the next question."""
    ended_B: Bools
    """Whether the run ended: nothing follows, and ``after`` says nothing."""
    cut_B: Bools
    """Whether the episode was broken off after this step though the run goes on: ``after`` still has a value."""
    after: Moment


class PolicyArrays(NamedTuple):
    """A policy as arrays: one perceptron per agent."""

    weights: list[F4]
    """Per layer [N, in, out]."""
    biases: list[F4]
    """Per layer [N, out]."""
    meta: dict[str, Any]
    """``algorithm``, ``head`` (logits or values), ``hidden``, and what the algorithm adds."""


class Algorithm(ABC):
    """A learner of N agents with A choices each. Made with (dimensions, config, seed, device)."""

    name: ClassVar[str]
    """Name on the command line."""
    constrained: ClassVar[bool] = False
    """Whether it learns from the costs of constraints too, not from the reward alone."""
    consumes: ClassVar[Literal["replay", "rollout"]]
    """``replay``: the trainer calls ``update`` a fixed number of times an epoch. ``rollout``: every ``rollout_steps``
    decision steps and at the end of an epoch, over all that was observed since the last call, which it then forgets."""
    imitation_loss: ClassVar[Literal["cross-entropy", "margin"] | None] = None
    """Loss by which it is fitted to demonstrations (``imitation.Imitator``); None: it cannot be."""

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

    @abstractmethod
    def update(self) -> dict[str, float]:
        """Learns once; returns losses and other figures by name."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Returns everything that a resumed run needs: nested dictionaries of arrays, tensors and plain values."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state."""

    @abstractmethod
    def policy_arrays(self) -> PolicyArrays:
        """Returns a copy of the policy."""
