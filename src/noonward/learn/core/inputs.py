"""What goes into the nets of N agents: what all see, what each sees, advice, and who is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from noonward.arrays import I8
from noonward.learn.algorithms.algorithm import Dimensions, Moment


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Builds inputs ``[global, own, one-hot advice, one-hot agent]`` and sorts outputs back to agents.

    Attributes:
        dimensions: Sizes.
        shared: Whether one net serves all agents; it is then told which agent it answers for.
        advice: Whether the adviser's choice is an input; no advice: zeros.
        lift: Added to the output for the adviser's choice (``advice_logit``).
        dtype: Type of the inputs.
        device: Where the nets are.
    """

    dimensions: Dimensions
    shared: bool
    advice: bool
    lift: float
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, dimensions: Dimensions, config: Any, dtype: torch.dtype, device: torch.device) -> Inputs:
        """Returns the inputs that settings ask for (``share_parameters``, ``advice_features``, ``advice_logit``)."""
        return cls(
            dimensions=dimensions,
            shared=config.share_parameters,
            advice=config.advice_features,
            lift=config.advice_logit,
            dtype=dtype,
            device=device,
        )

    @property
    def nets(self) -> int:
        """Nets of one kind, M."""
        return 1 if self.shared else self.dimensions.agents

    @property
    def width(self) -> int:
        """Width of an input."""
        d = self.dimensions
        return d.global_size + d.own_size + self.advice * d.choices + self.shared * d.agents

    def build(self, seen_NBI: NDArray[np.float32], advice_NB: I8) -> torch.Tensor:
        """Returns inputs of the nets, [M, N B / M, width].

        Args:
            seen_NBI: What all see and what each sees, joined.
            advice_NB: Adviser's choices, -1 for none.
        """
        d = self.dimensions
        parts = [self.tensor(seen_NBI, self.dtype)]
        if self.advice:
            parts.append(one_hot(self.tensor(advice_NB), d.choices, self.dtype))
        if self.shared:
            who = torch.eye(d.agents, dtype=self.dtype, device=self.device)
            parts.append(who[:, None, :].expand(d.agents, seen_NBI.shape[1], d.agents))
        joined = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
        return joined.reshape(self.nets, -1, self.width)

    def of_moment(self, moment: Moment) -> torch.Tensor:
        """Returns inputs for what B runs see, [M, N B / M, width]."""
        agents = self.dimensions.agents
        global_NBG = np.broadcast_to(moment.global_BG, (agents, *moment.global_BG.shape))
        seen_NBI = np.concatenate([global_NBG, moment.own_BNO.swapaxes(0, 1)], -1)
        return self.build(seen_NBI, np.ascontiguousarray(moment.advice_BN.T))

    def by_agent(self, output: torch.Tensor) -> torch.Tensor:
        """Returns outputs [M, N B / M, A] as [N, B, A], those of k stacked sets of nets as [k, N, B, A]; float32 up."""
        d = self.dimensions
        sets = len(output) // self.nets
        shape = (d.agents, -1, d.choices) if sets == 1 else (sets, d.agents, -1, d.choices)
        return output.reshape(shape).to(self.dtype)

    def lifted(self, output_NBA: torch.Tensor, advice_NB: I8) -> torch.Tensor:
        """Returns outputs, those for the adviser's choices (-1: none) lifted."""
        if not self.lift:
            return output_NBA
        return output_NBA + self.lift * one_hot(self.tensor(advice_NB), self.dimensions.choices, self.dtype)

    def tensor(self, array: NDArray[np.generic], dtype: torch.dtype | None = None) -> torch.Tensor:
        """Returns an array as a tensor where the nets are."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(device=self.device, dtype=dtype)


def one_hot(choice: torch.Tensor, choices: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns one-hot vectors [..., A] of choices; zeros for -1."""
    return (choice[..., None] == torch.arange(choices, device=choice.device)).to(dtype)
