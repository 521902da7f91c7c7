"""What the learners share: settings, random streams, state, and one net per agent that answers with its outputs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from noonward.arrays import I8
from noonward.learn.algorithms.algorithm import Algorithm, PolicyArrays
from noonward.learn.core.experience import Dimensions, Moment
from noonward.learn.core.masking import best, sample, with_hold
from noonward.learn.core.nets import (
    StackedMLP,
    arithmetic,
    dtype_of,
    load_module_state,
    load_optimizer_state,
    module_state,
    optimizer_state,
)
from noonward.seeding import stream

STREAMS = ("explore_rng", "batch_rng")


class Learner(Algorithm):
    """A learner with settings, nets, optimizers and random streams.

    A subclass makes its nets in ``_make_nets`` and names the attributes of which its state consists.

    Args:
        dimensions: Sizes.
        config: Settings; ``precision`` is read here.
        seed: Seed; streams ``learner``.
        device: Where the nets are.
    """

    NETS: ClassVar[tuple[str, ...]]
    """Attributes that are modules."""
    ADAMS: ClassVar[tuple[str, ...]]
    """Attributes that are optimizers."""
    TENSORS: ClassVar[tuple[str, ...]] = ()
    """Attributes that are tensors which learn beside the nets."""
    ARRAYS: ClassVar[tuple[str, ...]] = ()
    """Attributes that are arrays."""
    PARTS: ClassVar[tuple[str, ...]] = ()
    """Attributes that have ``state`` and ``load_state`` of their own."""

    config: Any

    def __init__(self, dimensions: Dimensions, config: Any, seed: int, device: str = "cpu") -> None:
        self.config, self.dimensions = config, dimensions
        self.dtype, self.device = dtype_of(config.precision), torch.device(device)
        self.explore_rng = stream(seed, "learner", "explore")
        self.batch_rng = stream(seed, "learner", "batch")
        self.updates = 0
        self._make_nets(torch.Generator().manual_seed(int(stream(seed, "learner", "nets").integers(2**62))))

    @abstractmethod
    def _make_nets(self, generator: torch.Generator) -> None:
        """Makes nets and optimizers; the initial values are drawn from the generator."""

    def tensor(self, array: NDArray[np.generic], dtype: torch.dtype | None = None) -> torch.Tensor:
        """Returns an array as a tensor on the learner's device."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(device=self.device, dtype=dtype)

    def state(self) -> dict[str, Any]:
        """Returns nets, optimizers, random streams and all else that changes, by the attribute's name."""
        return {
            **{name: module_state(getattr(self, name)) for name in self.NETS},
            **{name: optimizer_state(getattr(self, name)) for name in self.ADAMS},
            **{name: getattr(self, name).detach() for name in self.TENSORS},
            **{name: getattr(self, name).copy() for name in self.ARRAYS},
            **{name: getattr(self, name).state() for name in self.PARTS},
            **{name: getattr(self, name).bit_generator.state for name in STREAMS},
            "updates": self.updates,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores from ``state()``."""
        for name in self.NETS:
            load_module_state(getattr(self, name), state[name])
        for name in self.ADAMS:
            load_optimizer_state(getattr(self, name), state[name])
        with torch.no_grad():
            for name in self.TENSORS:
                getattr(self, name).copy_(torch.as_tensor(state[name]))
        for name in self.ARRAYS:
            setattr(self, name, np.array(state[name]))
        for name in self.PARTS:
            getattr(self, name).load_state(state[name])
        for name in STREAMS:
            getattr(self, name).bit_generator.state = state[name]
        self.updates = state["updates"]


class AgentLearner(Learner):
    """A learner with one net per agent, whose outputs for the feasible choices say what the agent does."""

    head: ClassVar[str] = "logits"
    """What the outputs are: ``logits`` of choices or ``values`` of choices."""

    @property
    @abstractmethod
    def deciding_net(self) -> StackedMLP:
        """The net that decides and is exported: actors, or values of choices."""

    @property
    def width(self) -> int:
        """Width of an agent's input: what all agents see, and what it sees for itself."""
        return self.dimensions.global_size + self.dimensions.own_size

    def _agent_nets(self, generator: torch.Generator, *, sets: int = 1) -> StackedMLP:
        """Returns so many nets per agent, of the settings' hidden layers, with an output per choice."""
        sizes = (self.width, *self.config.hidden, self.dimensions.choices)
        return StackedMLP(sets * self.dimensions.agents, sizes, generator, self.dtype).to(self.device)

    def inputs_of(self, moment: Moment) -> torch.Tensor:
        """Returns the inputs of all agents for what B runs see, [N, B, width]."""
        agents = self.dimensions.agents
        global_NBG = np.broadcast_to(moment.global_BG, (agents, *moment.global_BG.shape))
        return self.tensor(np.concatenate([global_NBG, moment.own_BNO.swapaxes(0, 1)], -1), self.dtype)

    def evaluated(self, net: StackedMLP, seen: torch.Tensor) -> torch.Tensor:
        """Returns a net's outputs under the settings' precision, in the parameters' type."""
        with arithmetic(self.config.precision, self.device):
            return net(seen).to(self.dtype)

    def preferences(self, moment: Moment) -> torch.Tensor:
        """Returns the outputs of which the largest is the best choice, for what B runs see, [N, B, A]."""
        return self.evaluated(self.deciding_net, self.inputs_of(moment))

    def act(self, moment: Moment, *, explore: bool) -> I8:
        """Returns choices drawn from the softmax of the outputs (exploring), or those of largest output, [B, N]."""
        with torch.no_grad():
            output_BNA = self.preferences(moment).transpose(0, 1).cpu().numpy()
        mask_BNA = with_hold(moment.mask_BNA, moment.asked_BN)
        return sample(output_BNA, mask_BNA, self.explore_rng) if explore else best(output_BNA, mask_BNA)

    def policy_arrays(self) -> PolicyArrays:
        """Returns a copy of the nets that decide."""
        weights, biases = self.deciding_net.arrays()
        return PolicyArrays(weights, biases, {"algorithm": self.name, "head": self.head})
