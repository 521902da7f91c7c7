"""MASAC's update as one would write it first: Algorithm 1 in a loop over agents. The reference of benchmarks."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
import torch
from torch import nn

from noonward.learn.algorithms.masac import Masac, MasacConfig
from noonward.learn.core.experience import Dimensions
from noonward.learn.core.masking import log_policy
from noonward.learn.core.replay import Batch


class PlainAgent:
    """One agent: an actor, twin critics, their targets, default Adam.

    Args:
        dimensions: Sizes.
        config: Settings; the fields of the paper's configuration are read.
        critics_first: Whether the critics make their step before the actor learns from them (Algorithm 1).
    """

    def __init__(self, dimensions: Dimensions, config: MasacConfig, *, critics_first: bool) -> None:
        self.config, self.critics_first = config, critics_first
        sizes = (dimensions.global_size + dimensions.own_size, *config.hidden, dimensions.choices)
        self.actor, *nets = (_perceptron(sizes) for _ in range(5))
        self.critics, self.targets = nets[:2], nets[2:]
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), lr=config.actor_rate)
        self.critic_adam = torch.optim.Adam(
            chain.from_iterable(critic.parameters() for critic in self.critics), lr=config.critic_rate
        )

    def update(self, batch: Batch, n: int) -> None:
        """Makes one step of all nets on the agent's part of a batch (Algorithm 1, lines 17 to 19)."""
        config = self.config
        seen, following = torch.from_numpy(batch.seen_NBI[n]), torch.from_numpy(batch.next_seen_NBI[n])
        mask, next_mask = torch.from_numpy(batch.mask_NBA[n]), torch.from_numpy(batch.next_mask_NBA[n])
        reward, discount = (torch.from_numpy(x[n]).float() for x in (batch.reward_NB, batch.discount_NB))
        choice = torch.from_numpy(batch.choice_NB[n])[:, None]
        asked = torch.from_numpy(batch.asked_NB[n]).float()
        with torch.no_grad():
            log_p = log_policy(self.actor(following), next_mask)
            value = torch.minimum(*(target(following) for target in self.targets))
            y = reward + discount * (log_p.exp() * (value - config.temperature * log_p)).sum(-1)
        values = [critic(seen) for critic in self.critics]
        loss = sum(0.5 * (each.gather(-1, choice)[:, 0] - y).square().mean() for each in values)
        self.critic_adam.zero_grad()
        torch.as_tensor(loss).backward()
        self.critic_adam.step()
        with torch.no_grad():
            if self.critics_first:
                values = [critic(seen) for critic in self.critics]
            value = torch.minimum(*values)
        log_p = log_policy(self.actor(seen), mask)
        each = (log_p.exp() * (config.temperature * log_p - value)).sum(-1)
        self.actor_adam.zero_grad()
        ((asked * each).sum() / asked.sum().clamp(min=1.0)).backward()
        self.actor_adam.step()
        with torch.no_grad():
            for target, critic in zip(self.targets, self.critics, strict=True):
                for old, new in zip(target.parameters(), critic.parameters(), strict=True):
                    old.lerp_(new, config.target_rate)


class PlainMasac:
    """All agents, one after the other, on batches of a trained algorithm's replay.

    Args:
        masac: Whose sizes, settings and replay are taken.
        critics_first: See ``PlainAgent``.
    """

    def __init__(self, masac: Masac, *, critics_first: bool = True) -> None:
        self.replay, self.config = masac.replay, masac.config
        agents = range(masac.dimensions.agents)
        self.agents = [PlainAgent(masac.dimensions, masac.config, critics_first=critics_first) for _ in agents]
        self.rng = np.random.default_rng(0)

    def update(self) -> None:
        """Makes one joint update."""
        batch = self.replay.sample(self.rng, self.config.batch)
        for n, agent in enumerate(self.agents):
            agent.update(batch, n)


def _perceptron(sizes: tuple[int, ...]) -> nn.Sequential:
    """Returns linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
