"""Nets over tokens: an encoder with or without attention, an actor with a score per place, critics of an action.

Token tensors end in their axes: B batch, T tokens, W numbers of a token, D width of a token's features, C context,
Q places, A numbers of an action. ``schedule.edge.trained_policy`` computes the same without torch.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import mish

from noonward.learn.core.experience import Tokens

TIME: Final = 16
"""Numbers of the embedding of a round of denoising."""
EPSILON: Final = 1e-5
"""Added to the variance where tokens are normalised."""


class Shape(NamedTuple):
    """Sizes of a net over tokens."""

    width: int = 32
    """Features of a token."""
    heads: int = 4
    context: int = 128
    first: int = 256
    """Units of the trunk's first layer."""
    second: int = 256
    slot: int = 64
    """Units of the layer that scores a place."""
    attention: bool = True
    rounds: int = 0
    """Rounds of denoising; 0: the trunk answers at once."""


class Drawn:
    """Draws initial values, uniform on (-1/sqrt(in), 1/sqrt(in)) as ``torch.nn.Linear`` does."""

    def __init__(self, generator: torch.Generator, dtype: torch.dtype) -> None:
        self.generator, self.dtype = generator, dtype

    def __call__(self, ins: int, *shape: int, gain: float = 1.0) -> nn.Parameter:
        """Returns a parameter for so many inputs."""
        reach = gain / math.sqrt(ins)
        return nn.Parameter(torch.empty(shape, dtype=self.dtype).uniform_(-reach, reach, generator=self.generator))


class Encoder(nn.Module):
    """Tokens to features: embedding by kind, one layer of attention or of each token alone, pooling.

    ``h = mish(x E_kind + b)``; ``h <- norm(h + softmax(q k / sqrt(size)) v W + b)`` over the tokens that are present,
    or without attention ``norm(h + h W + b)``; context ``mish([mean h, max h, h_0] P + b)``.
    """

    def __init__(self, tokens: Tokens, shape: Shape, drawn: Drawn) -> None:
        super().__init__()
        d, kinds = shape.width, len(tokens.counts)
        self.shape = shape
        self.embed_w, self.embed_b = drawn(tokens.width, kinds, tokens.width, d), drawn(tokens.width, kinds, d)
        if shape.attention:
            self.mix_w, self.mix_b = drawn(d, d, 3 * d), drawn(d, 3 * d)
        self.after_w, self.after_b = drawn(d, d, d), drawn(d, d)
        self.norm_w = nn.Parameter(torch.ones(d, dtype=drawn.dtype))
        self.norm_b = nn.Parameter(torch.zeros(d, dtype=drawn.dtype))
        self.pool_w, self.pool_b = drawn(3 * d, 3 * d, shape.context), drawn(3 * d, shape.context)
        self.counts = tokens.counts

    def forward(self, token_BTW: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns features of the tokens [B, T, D], 0 where absent, and the context [B, C].

        The first token counts as present in any case: where a run has ended all tokens are 0, and what follows from
        them is not used, but must be a number.
        """
        present_BT1 = (token_BTW[..., :1] != 0).to(token_BTW.dtype)
        present_BT1[:, 0] = 1.0
        parts, first = [], 0
        for kind, count in enumerate(self.counts):
            part_BTW = token_BTW[:, first : first + count]
            parts.append(part_BTW @ self.embed_w[kind] + self.embed_b[kind])
            first += count
        hidden = mish(torch.cat(parts, 1)) * present_BT1
        gathered = self._attended(hidden, present_BT1) if self.shape.attention else hidden
        hidden = hidden + gathered @ self.after_w + self.after_b
        hidden = nn.functional.layer_norm(hidden, (self.shape.width,), self.norm_w, self.norm_b, EPSILON) * present_BT1
        mean = hidden.sum(1) / present_BT1.sum(1)
        most = hidden.masked_fill(present_BT1 == 0, -math.inf).amax(1)
        pooled = torch.cat([mean, most, hidden[:, 0]], -1)
        return hidden, mish(pooled @ self.pool_w + self.pool_b)

    def _attended(self, hidden: torch.Tensor, present_BT1: torch.Tensor) -> torch.Tensor:
        """Returns what the heads gather, [B, T, D]."""
        batch, tokens, width = hidden.shape
        mixed = (hidden @ self.mix_w + self.mix_b).reshape(batch, tokens, 3, self.shape.heads, -1)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        weight = query @ key.transpose(-1, -2) / math.sqrt(width // self.shape.heads)
        weight = weight.masked_fill(present_BT1[:, None, None, :, 0] == 0, -math.inf).softmax(-1)
        return (weight @ value).transpose(1, 2).reshape(batch, tokens, width)


class Features(NamedTuple):
    """What an actor makes of a question once, whatever the rounds of denoising."""

    seen_BF: torch.Tensor
    """The context's part of the trunk's first layer."""
    slot_BQS: torch.Tensor
    """The tokens' part of the layer that scores places."""


class Actor(nn.Module):
    """Encoder and trunk: numbers of the whole, a score per place, and a spread of each.

    The trunk is fed the context and, in a diffusion actor, a noisy action and the round: ``z = mish(mish(..) ..)``. The
    score of place q is ``v mish(z U + h_q H + x_q c + b)``, one function for all places.
    """

    time_TE: torch.Tensor

    def __init__(self, tokens: Tokens, shape: Shape, whole: int, drawn: Drawn) -> None:
        super().__init__()
        self.shape, self.whole, self.places = shape, whole, tokens.counts[-1]
        self.encoder = Encoder(tokens, shape, drawn)
        size, noisy = whole + self.places, shape.rounds > 0
        ins = shape.context + (size + TIME if noisy else 0)
        self.seen_w = drawn(ins, shape.context, shape.first)
        self.noisy_w = drawn(ins, size if noisy else 0, shape.first)
        self.time_w = drawn(ins, TIME if noisy else 0, shape.first)
        self.first_b = drawn(ins, shape.first)
        self.second_w, self.second_b = drawn(shape.first, shape.first, shape.second), drawn(shape.first, shape.second)
        self.whole_w, self.whole_b = drawn(shape.second, shape.second, whole), drawn(shape.second, whole)
        ins = shape.second + shape.width + noisy
        self.slot_whole_w = drawn(ins, shape.second, shape.slot)
        self.slot_token_w = drawn(ins, shape.width, shape.slot)
        self.slot_noisy_w = drawn(ins, shape.slot if noisy else 0)
        self.slot_b = drawn(ins, shape.slot)
        self.score_w, self.score_b = drawn(shape.slot, shape.slot), drawn(shape.slot, 1)
        self.spread_w, self.spread_b = drawn(shape.second, shape.second, size, gain=0.1), drawn(shape.second, size)
        dtype = drawn.dtype
        self.register_buffer("time_TE", torch.from_numpy(time_embedding(max(shape.rounds, 1))).to(dtype), False)

    def features(self, token_BTW: torch.Tensor) -> Features:
        """Returns what is computed once a question."""
        hidden, context = self.encoder(token_BTW)
        return Features(context @ self.seen_w, hidden[:, -self.places :] @ self.slot_token_w)

    def forward(
        self, seen: Features, noisy_BA: torch.Tensor | None = None, round_B: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns numbers of the whole and scores of the places [B, A], and the logarithms of their spreads.

        Args:
            seen: Features.
            noisy_BA: Noisy action, of a diffusion actor.
            round_B: Round of denoising from 0, of a diffusion actor.
        """
        first = seen.seen_BF + self.first_b
        if noisy_BA is not None:
            first = first + noisy_BA @ self.noisy_w + self.time_TE[round_B] @ self.time_w
        trunk = mish(mish(first) @ self.second_w + self.second_b)
        slot = seen.slot_BQS + (trunk @ self.slot_whole_w + self.slot_b)[:, None]
        if noisy_BA is not None:
            slot = slot + noisy_BA[:, self.whole :, None] * self.slot_noisy_w
        score = mish(slot) @ self.score_w + self.score_b
        out = torch.cat([trunk @ self.whole_w + self.whole_b, score], -1)
        return out, (trunk @ self.spread_w + self.spread_b).clamp(-4.0, 0.5)

    def arrays(self, keep_T: NDArray[np.float64], signal_T: NDArray[np.float64]) -> list[NDArray[Any]]:
        """Returns the arrays of a policy's file (``schedule.edge.trained_policy.PARTS``).

        Args:
            keep_T: What each round of noising keeps.
            signal_T: What is left of the signal after each.
        """
        e, dtype = self.encoder, self.seen_w.dtype
        none = torch.zeros(0, dtype=dtype)
        time_b = self.time_TE @ self.time_w + self.first_b if self.shape.rounds else self.first_b[None]
        mix = (e.mix_w, e.mix_b) if self.shape.attention else (none.reshape(0, 0), none)
        parts = (
            *(e.embed_w, e.embed_b, *mix, e.after_w, e.after_b, e.norm_w, e.norm_b, e.pool_w, e.pool_b),
            *(self.seen_w, self.noisy_w, time_b, self.second_w, self.second_b, self.whole_w, self.whole_b),
            *(self.slot_whole_w, self.slot_token_w, self.slot_noisy_w, self.slot_b, self.score_w, self.score_b),
        )
        arrays = [each.detach().cpu().numpy().copy() for each in parts]
        return [*arrays, keep_T.astype(arrays[0].dtype), signal_T.astype(arrays[0].dtype)]


class Critic(nn.Module):
    """Values of an action by nets of their own over an encoder of their own: Mish, two hidden layers.

    The action is shown as the place (its features, weighed), the numbers of the whole, and the weights of the places.
    """

    def __init__(self, tokens: Tokens, shape: Shape, whole: int, twins: int, drawn: Drawn) -> None:
        super().__init__()
        self.places = tokens.counts[-1]
        self.encoder = Encoder(tokens, shape, drawn)
        ins = shape.context + shape.width + whole + self.places
        self.first_w, self.first_b = drawn(ins, twins, ins, shape.first), drawn(ins, twins, 1, shape.first)
        self.second_w = drawn(shape.first, twins, shape.first, shape.second)
        self.second_b = drawn(shape.first, twins, 1, shape.second)
        self.last_w = drawn(shape.second, twins, shape.second, 1)
        self.last_b = drawn(shape.second, twins, 1, 1)

    def forward(self, token_BTW: torch.Tensor, action_BA: torch.Tensor) -> torch.Tensor:
        """Returns the values of an action, [twins, B].

        Args:
            token_BTW: Tokens.
            action_BA: Numbers of the whole, then weights of the places.
        """
        hidden, context = self.encoder(token_BTW)
        chosen = (action_BA[:, -self.places :, None] * hidden[:, -self.places :]).sum(1)
        seen = torch.cat([context, chosen, action_BA], -1)
        one = mish(torch.matmul(seen, self.first_w) + self.first_b)
        two = mish(torch.matmul(one, self.second_w) + self.second_b)
        return (torch.matmul(two, self.last_w) + self.last_b)[..., 0]


def time_embedding(rounds: int) -> NDArray[np.float64]:
    """Returns sines and cosines of the round at 8 frequencies from 1 to 1e-4, [rounds, 16]."""
    frequency_F = np.exp(-math.log(1e4) * np.arange(TIME // 2) / (TIME // 2 - 1))
    angle_TF = np.arange(1, rounds + 1)[:, None] * frequency_F
    return np.concatenate([np.sin(angle_TF), np.cos(angle_TF)], -1)


def noise_schedule(kind: str, rounds: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns what each of T rounds of noising keeps, and what is left of the signal after each.

    ``preserving``: ``exp(-0.1 / T - 9.9 (2 i - 1) / (2 T^2))`` for i = 1 to T (Song et al. 2021, variance preserving;
    0.006 of the signal is left for T = 10). ``linear``: 1 less 1e-4 to 2e-2 (Ho et al. 2020, made for T = 1,000; 0.90
    is left for T = 10).
    """
    i_T = np.arange(1, rounds + 1)
    if kind == "linear":
        keep_T = 1.0 - np.linspace(1e-4, 2e-2, rounds)
    else:
        keep_T = np.exp(-(0.1 * rounds + 0.5 * 9.9 * (2 * i_T - 1)) / max(rounds, 1) ** 2)
    return keep_T, np.asarray(np.cumprod(keep_T), np.float64)
