"""CHSAC-AF's update as one would write it first: a loop over choices and sites, default Adam. For benchmarks."""

from __future__ import annotations

from itertools import chain, pairwise

import torch
from torch import nn

from noonward.learn.algorithms.chsac import Chsac, quantile_huber
from noonward.learn.core.masking import entropy, log_policy
from noonward.learn.core.replay import Batch


class PlainChsac:
    """The corrected update of a ``Chsac``, from its replay, with nets of the same sizes.

    Args:
        like: Whose settings and replay are taken; it must have ``gang_head`` site and the gradient by expectation.
    """

    def __init__(self, like: Chsac) -> None:
        self.like, config, d = like, like.config, like.dimensions
        width, heads = config.hidden[-1], like.firsts + d.choices
        sizes = (d.global_size, *config.hidden)
        layers = [(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(sizes)]
        self.encoder = nn.Sequential(*chain.from_iterable(layers))
        self.actor = nn.Linear(width, heads)
        self.critics, self.targets = (
            [nn.Linear(width, d.choices * config.quantiles) for _ in range(2)] for _ in range(2)
        )
        everything = [self.encoder, self.actor, *self.critics]
        self.adam = torch.optim.Adam(chain.from_iterable(net.parameters() for net in everything), lr=config.rate)

    def _quantiles(self, critic: nn.Linear, h_BH: torch.Tensor) -> torch.Tensor:
        """Returns the quantiles of every choice, [B, A, Q]."""
        return critic(h_BH).reshape(len(h_BH), -1, self.like.config.quantiles)

    def _log_policy(self, h_BH: torch.Tensor, mask_BA: torch.Tensor) -> torch.Tensor:
        """Returns the log-probability of every choice, [B, A]."""
        sites, gangs = self.like.firsts, self.like.seconds
        logits, mask_BSG = self.actor(h_BH), mask_BA.reshape(-1, sites, gangs)
        site_BS = log_policy(logits[:, :sites], mask_BSG.any(2))
        parts = []
        for s in range(sites):
            own = logits[:, sites + s * gangs : sites + (s + 1) * gangs]
            parts.append(site_BS[:, s : s + 1] + log_policy(own, mask_BSG[:, s]))
        return torch.cat(parts, 1)

    def update(self) -> None:
        """Makes one step of all nets."""
        like = self.like
        batch = like.replay.sample(like.batch_rng, like.config.batch)
        critic, actor = self._losses(batch)
        self.adam.zero_grad()
        (critic + actor).backward()
        self.adam.step()
        with torch.no_grad():
            for target, source in zip(self.targets, self.critics, strict=True):
                for old, new in zip(target.parameters(), source.parameters(), strict=True):
                    old.mul_(1 - like.config.target_rate).add_(like.config.target_rate * new)

    def _losses(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the critics' and the actor's loss."""
        like, choices = self.like, range(self.like.dimensions.choices)
        mask, following = torch.from_numpy(batch.mask_NBA[0]), torch.from_numpy(batch.next_mask_NBA[0])
        with torch.no_grad():
            h_BH = self.encoder(torch.from_numpy(batch.next_seen_NBI[0]))
            log_p_BA = self._log_policy(h_BH, following)
            means: list[torch.Tensor] = []
            for target in self.targets:
                value_BAQ, mixed = self._quantiles(target, h_BH), torch.zeros((len(h_BH), like.config.quantiles))
                for a in choices:
                    mixed += log_p_BA[:, a : a + 1].exp() * value_BAQ[:, a]
                means.append(mixed)
            smaller = torch.where((means[0].mean(1) <= means[1].mean(1))[:, None], means[0], means[1])
            discount = torch.from_numpy(batch.discount_NB[0]).float()[:, None]
            y_BQ = like._effective(batch)[:, None] + discount * (
                smaller + like.temperature * entropy(log_p_BA)[:, None]
            )
        h_BH = self.encoder(torch.from_numpy(batch.seen_NBI[0]))
        choice_B, row_B = torch.from_numpy(batch.choice_NB[0]), torch.arange(len(h_BH))
        critics = [self._quantiles(critic, h_BH) for critic in self.critics]
        taken = torch.stack([value[row_B, choice_B] for value in critics])
        log_p_BA = self._log_policy(h_BH, mask)
        values = [torch.stack([value[:, a].mean(1) for a in choices], 1).detach() for value in critics]
        value_B = (log_p_BA.exp() * torch.minimum(values[0], values[1])).sum(1)
        actor = (-value_B - like.temperature * entropy(log_p_BA)).mean()
        return quantile_huber(taken, y_BQ, like.config.kappa), actor
