"""What the algorithms' parts have in common: how they are seeded, kept in checkpoints and exported."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from noonward.learn.algorithms.algorithm import PolicyArrays
from noonward.learn.core.nets import (
    StackedMLP,
    load_module_state,
    load_optimizer_state,
    module_state,
    optimizer_state,
)
from noonward.seeding import stream


class Parted(Protocol):
    """A learner that names its parts; each name is an attribute and the key of the part's state."""

    @property
    def NETS(self) -> tuple[str, ...]:
        """Modules."""

    @property
    def ADAMS(self) -> tuple[str, ...]:
        """Optimizers."""

    @property
    def STREAMS(self) -> tuple[str, ...]:
        """Generators of numpy."""


def net_generator(seed: int) -> torch.Generator:
    """Returns the source of a learner's initial nets: stream ``learner`` of the seed."""
    return torch.Generator().manual_seed(int(stream(seed, "learner", "nets").integers(2**62)))


def parts_state(learner: Parted) -> dict[str, Any]:
    """Returns the states of a learner's nets, optimizers and random streams by name."""
    return {
        **{name: module_state(getattr(learner, name)) for name in learner.NETS},
        **{name: optimizer_state(getattr(learner, name)) for name in learner.ADAMS},
        **{name: getattr(learner, name).bit_generator.state for name in learner.STREAMS},
    }


def load_parts(learner: Parted, state: dict[str, Any]) -> None:
    """Goes on from what ``parts_state`` returned."""
    for name in learner.NETS:
        load_module_state(getattr(learner, name), state[name])
    for name in learner.ADAMS:
        load_optimizer_state(getattr(learner, name), state[name])
    for name in learner.STREAMS:
        getattr(learner, name).bit_generator.state = state[name]


def exported(algorithm: str, head: str, net: StackedMLP, config: Any) -> PolicyArrays:
    """Returns the policy of agents' nets.

    Args:
        algorithm: Name of the algorithm.
        head: ``logits`` or ``values``.
        net: Nets of the agents.
        config: Settings with ``share_parameters``, ``advice_features`` and ``advice_logit``.
    """
    weights, biases = net.arrays()
    meta = {"algorithm": algorithm, "head": head, "hidden": "relu", "agent_one_hot": config.share_parameters}
    if config.advice_features or config.advice_logit:
        meta |= {"advice_features": config.advice_features, "advice_logit": config.advice_logit}
    return PolicyArrays(weights, biases, meta)
