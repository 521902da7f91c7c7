"""What agents see, choose and earn: the sizes of a task, its actions, moments and transitions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F4, F8, I8, Bools


class Head(NamedTuple):
    """One part of a choice."""

    name: str
    size: int
    """Number of its options."""


@dataclass(frozen=True)
class ActionSpec:
    """What an agent chooses: one option of every head.

    Choices are numbered as the elements of an array [size of the first head, size of the second, ...]: the last head's
    option changes fastest.

    Attributes:
        heads: Parts of a choice.

    Example:
        >>> ActionSpec.of(site=8, gpus=4).choices
        32
    """

    heads: tuple[Head, ...]

    @classmethod
    def of(cls, **sizes: int) -> ActionSpec:
        """Returns the actions of heads by name and size."""
        return cls(tuple(Head(name, size) for name, size in sizes.items()))

    @property
    def choices(self) -> int:
        """Choices of an agent, A."""
        return math.prod(head.size for head in self.heads)


class Tokens(NamedTuple):
    """How what all agents see is laid out: tokens of equal width, kind after kind."""

    counts: tuple[int, ...]
    """Number of tokens of each kind; the last kind are those that can be chosen."""
    width: int
    """Numbers of a token; the first is 1 for a token that stands for something, 0 for an empty one."""


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """Sizes an algorithm is built for.

    Attributes:
        agents: Agents, N.
        actions: What each agent chooses.
        global_size: Width of what all agents see.
        own_size: Width of what each agent sees for itself.
        costs: Names of the constraint costs of a step, in the order of their columns.
        counts: Names of what means of rewards and costs are over, the columns after the costs: the size of what a step
            decided, and the number of decisions. Empty where nothing is counted.
        slot_s: Length of a slot, s; the unit of a discount by elapsed time.
        tokens: How what all agents see is laid out, where it consists of tokens.
        advised: Whether an agent's own part is advice: what its choices lead to, known in training alone, for losses
            and not for policies.
    """

    agents: int
    actions: ActionSpec
    global_size: int
    own_size: int
    costs: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    slot_s: float = 60.0
    tokens: Tokens | None = None
    advised: bool = False

    @property
    def choices(self) -> int:
        """Choices of an agent, A."""
        return self.actions.choices

    @property
    def columns(self) -> int:
        """Columns of a step's costs: constraint costs, then counts."""
        return len(self.costs) + len(self.counts)


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
    """Reward until the next question."""
    elapsed_s_B: F8
    """Seconds until the next question."""
    cost_BK: F8
    """Constraint costs until the next question, then counts (``Dimensions``)."""
    ended_B: Bools
    """Whether the run ended: nothing follows, and ``after`` says nothing."""
    cut_B: Bools
    """Whether the episode was cut after this step though the run continues: ``after`` still has a value."""
    after: Moment


class Credit(NamedTuple):
    """How returns are counted."""

    gamma: float
    """Discount a slot."""
    capacity_price: float
    """Factor on the dual prices of the window, which are taken off for the GPU-hours used."""


class Played(NamedTuple):
    """A run that a policy played: the questions that were kept, and what came of the jobs they were about.

    Returns are shares of revenue: of the job's own, or, for the team's, of the mean job's in the run.
    """

    inputs_QI: F4
    """What the net was shown of the choice taken."""
    own_Q: F8
    """What the job earned in the end, less the price of the capacity it used."""
    team_Q: F8
    """What all jobs earned that started at or after the question, less the price of the capacity they used."""
    gpu_hours_Q: F8
    """GPU-hours of the job."""
    utility_usd: float
    """The run's utility, USD."""
    questions: int
    """Questions that were asked, those that were not kept included."""


class Studied(NamedTuple):
    """What is known of training windows beforehand: capacity duals, and the forecast costs that a price can rest on."""

    inputs_RI: F4
    """What the price net is fed about a site's hour."""
    price_R: F8
    """The hour's dual price, share of the revenue of a GPU-hour."""
