"""PPO over tokens: a masked choice of place and steps, by MAPPO's update for the only agent of an edge scenario."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn.functional import mish

from noonward.arrays import I8
from noonward.errors import ScenarioError
from noonward.learn.algorithms.algorithm import PolicyArrays
from noonward.learn.algorithms.mappo import ADAM_EPSILON, Basis, Losses, Mappo, MappoConfig
from noonward.learn.core.experience import Moment, Tokens
from noonward.learn.core.masking import INFEASIBLE, best, with_hold
from noonward.learn.core.nets import adam
from noonward.learn.core.rollout import Rollout, pick
from noonward.learn.core.settings import at_least
from noonward.learn.core.token_nets import Actor, Drawn, Encoder, Shape


@dataclass(frozen=True, kw_only=True)
class PpoConfig(MappoConfig):
    """Settings of PPO (EAT, Tables VII and VIII), or ours [ours]; the rest as in ``MappoConfig``.

    Attributes:
        hidden: Units of the two layers of the trunk [ours: 128, 128].
        attention: Tokens attend to each other [ours].
        width: Features of a token [ours].
        heads: Heads of the attention [ours].
        context: Units of the layer over the pooled tokens [ours].
        rollout_steps: Decision steps of each environment between two updates [ours: 64].
        passes: Passes over a rollout [ours: 3].
        minibatches: Parts of a rollout in a pass [ours: 8].
        actor_rate: Adam's step of the actor (3e-4).
        critic_rate: Adam's step of the critic (3e-4).
        gamma: Discount of a second [ours]: 1 - 1/400.
        per_slot: Discount by elapsed time [ours].
        gae_lambda: Weight of longer estimates [ours: 0.97].
        gradient_norm: Longest gradient (0.5).
        imitation_updates: First updates in which the actor imitates the cheapest choice by the tasks known now, and
            the critic alone learns from rewards [ours]; 0: from scratch.
    """

    hidden: tuple[int, ...] = (128, 128)
    attention: bool = True
    width: int = 32
    heads: int = 4
    context: int = 128
    rollout_steps: int = 64
    passes: int = 3
    minibatches: int = 8
    actor_rate: float = 3e-4
    critic_rate: float = 3e-4
    gamma: float = 1.0 - 1.0 / 400.0
    per_slot: bool = True
    gae_lambda: float = 0.97
    gradient_norm: float = 0.5
    imitation_updates: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "imitation_updates")
        if len(self.hidden) != 2:
            raise ScenarioError(f"hidden is {self.hidden}; the trunk has two layers, as [128, 128]")
        if self.width < 1 or self.heads < 1 or self.width % self.heads:
            raise ScenarioError(f"width is {self.width}, which {self.heads} heads do not divide; choose another")

    @property
    def shape(self) -> Shape:
        """Sizes of the actor."""
        first, second = self.hidden
        return Shape(self.width, self.heads, self.context, first, second, 64, self.attention, 0)


class ValueNet(torch.nn.Module):
    """Encoder and a layer: the value of what is seen."""

    def __init__(self, tokens: Tokens, shape: Shape, drawn: Drawn) -> None:
        super().__init__()
        self.encoder = Encoder(tokens, shape, drawn)
        self.first_w, self.first_b = drawn(shape.context, shape.context, shape.first), drawn(shape.context, shape.first)
        self.last_w, self.last_b = drawn(shape.first, shape.first, 1), drawn(shape.first, 1)

    def forward(self, token_BTW: torch.Tensor) -> torch.Tensor:
        """Returns the values, [B]."""
        _, context = self.encoder(token_BTW)
        return (mish(context @ self.first_w + self.first_b) @ self.last_w + self.last_b)[:, 0]

    @property
    def weights(self) -> list[torch.Tensor]:
        """The last layer, which follows the returns' scale."""
        return [self.last_w]

    @property
    def biases(self) -> list[torch.Tensor]:
        """Its bias."""
        return [self.last_b]


class Ppo(Mappo):
    """Proximal policy optimisation of one agent that chooses a place and a level of steps.

    ``p(place, level) = p(place) p(level)``: the place by softmax over the wait and the feasible places, the level by
    softmax over the levels; a wait has no level. Losses and advantages are MAPPO's with one agent and a critic that
    sees the tokens. While it imitates, the actor learns by ``-log p`` of the cheapest place and, if that is a launch,
    of the cheapest level, by the advice on the question.
    """

    name: ClassVar[str] = "ppo"
    config: PpoConfig
    actor: Any
    critic: Any

    def _make_nets(self, generator: torch.Generator) -> None:
        config, d = self.config, self.dimensions
        if d.tokens is None or d.agents != 1 or len(d.actions.heads) != 2:
            raise ScenarioError(
                "ppo is for one agent that sees tokens and chooses a place and a level, as in edge scenarios; train "
                "mappo here"
            )
        if config.imitation_updates and not d.advised:
            raise ScenarioError("imitation needs advice; set advice=patient, or imitation_updates=0")
        self.tokens, (place, level) = d.tokens, d.actions.heads
        self.places, self.levels = place.size - 1, level.size
        drawn = Drawn(generator, self.dtype)
        self.actor = Actor(self.tokens, config.shape, 1 + self.levels, drawn).to(self.device)
        self.critic = ValueNet(self.tokens, config.shape, drawn).to(self.device)
        self.actor_adam = adam(self.actor.parameters(), config.actor_rate, ADAM_EPSILON)
        self.critic_adam = adam(self.critic.parameters(), config.critic_rate, ADAM_EPSILON)
        self.moments = np.zeros(3)
        self.rollout = []

    def _tokens_of(self, moment: Moment) -> torch.Tensor:
        tokens = self.tensor(moment.global_BG, self.dtype)
        return tokens.reshape(-1, sum(self.tokens.counts), self.tokens.width)

    def preferences(self, moment: Moment) -> torch.Tensor:
        """Returns the logits of all choices, [1, B, (1 + Q) L]."""
        out, _ = self.actor(self.actor.features(self._tokens_of(moment)))
        wait, level, score = out.split([1, self.levels, self.places], -1)
        launch = score[..., None] + level.log_softmax(-1)[:, None]
        waits = wait[..., None].expand(-1, 1, self.levels)
        return torch.cat([waits, launch], 1).reshape(1, len(out), -1)

    def act(self, moment: Moment, *, explore: bool) -> I8:
        """Returns choices drawn from ``p`` (exploring), or the likeliest place and the likeliest level, [B, 1]."""
        if explore:
            return super().act(moment, explore=True)
        with torch.no_grad():
            out, _ = self.actor(self.actor.features(self._tokens_of(moment)))
        wait, level, score = (each.cpu().numpy() for each in out.split([1, self.levels, self.places], -1))
        mask_BA = with_hold(moment.mask_BNA, moment.asked_BN)[:, 0]
        fits = np.asarray(mask_BA.reshape(len(wait), 1 + self.places, -1).any(-1))
        place = best(np.concatenate([wait, score], -1), fits)
        return (place * self.levels + np.where(place > 0, level.argmax(-1), 0))[:, None]

    def losses(self, rollout: Rollout, basis: Basis, part: I8) -> Losses:
        """Returns the losses of some steps; that of the actor is the imitation's in the first updates."""
        if self.updates >= self.config.imitation_updates:
            return super().losses(rollout, basis, part)
        moment = pick(rollout.before, part)
        returns_B = basis.return_B[torch.from_numpy(part).to(self.device)]
        critic = torch.nn.functional.huber_loss(self._values(moment), returns_B, delta=self.config.huber)
        none = torch.zeros((), dtype=self.dtype)
        return Losses(self._imitation(moment), critic, none, none, none)

    def _imitation(self, moment: Moment) -> torch.Tensor:
        """Returns ``-log p`` of what the advice finds cheapest by the tasks known now, over the questions."""
        asked_B, places = self.tensor(moment.asked_BN[:, 0], self.dtype), 1 + self.places
        fits_BP = self.tensor(moment.mask_BNA[:, 0] != 0).reshape(len(asked_B), places, self.levels).any(-1)
        known_B = self.tensor(moment.own_BNO[:, 0], self.dtype)
        place_B = known_B[:, :places].masked_fill(~fits_BP, torch.inf).argmin(-1)
        level_B = known_B[:, places : places + self.levels].argmin(-1)
        out, _ = self.actor(self.actor.features(self._tokens_of(moment)))
        wait, level, score = out.split([1, self.levels, self.places], -1)
        log_p_BP = torch.cat([wait, score], -1).masked_fill(~fits_BP, INFEASIBLE).log_softmax(-1)
        taught_B = log_p_BP.gather(-1, place_B[:, None])[:, 0]
        taught_B = taught_B + level.log_softmax(-1).gather(-1, level_B[:, None])[:, 0] * (place_B > 0)
        return -(asked_B * taught_B).sum() / asked_B.sum().clamp(min=1.0)

    def _values(self, moment: Moment) -> torch.Tensor:
        return self.critic(self._tokens_of(moment))

    def _step(self, losses: Losses) -> None:
        """Makes a step of critic and actor, the gradient of each shortened as a whole."""
        self.actor_adam.zero_grad()
        self.critic_adam.zero_grad()
        (losses.actor + losses.critic).backward()
        for net, optimizer in ((self.critic, self.critic_adam), (self.actor, self.actor_adam)):
            torch.nn.utils.clip_grad_norm_(net.parameters(), self.config.gradient_norm)
            optimizer.step()

    def policy_arrays(self) -> PolicyArrays:
        """Returns a copy of the actor."""
        net: dict[str, Any] = {
            **self.config.shape._asdict(),
            "noise_is_predicted": False,
            "tanh": False,
            "limit": 0.0,
            "noisy": False,
        }
        arrays = self.actor.arrays(np.zeros(0), np.zeros(0))
        return PolicyArrays(arrays, [], {"algorithm": self.name, "head": "choice", "net": net})
