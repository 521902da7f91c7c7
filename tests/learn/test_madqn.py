"""MADQN: its loss equals a plain loop's, exploration keeps to feasible choices, epsilon falls with updates."""

from typing import Any

import numpy as np
import pytest
import torch

from learn.batches import DIMENSIONS, feed, random_batch, random_moment
from learn.test_masac import one_net
from noonward.learn.algorithms.madqn import Madqn, MadqnConfig
from noonward.learn.core.masking import with_hold

SMALL: dict[str, Any] = {"hidden": (8, 8), "batch": 16, "precision": "float64", "capacity": 1000}


def small(**more: Any) -> Madqn:
    return Madqn(DIMENSIONS, MadqnConfig(**{**SMALL, **more}), seed=3)


def plain_loss(madqn: Madqn, batch: Any) -> Any:
    """Returns the loss by loops over agents, samples and choices."""
    loss = torch.zeros((), dtype=torch.float64)
    for n in range(3):
        for b in range(16):
            target = one_net(madqn.target, n, torch.tensor(batch.next_seen_NBI[n, b], dtype=torch.float64))
            feasible = np.flatnonzero(batch.next_mask_NBA[n, b]).tolist()
            best = max(feasible, key=lambda a, target=target: target[a].item())
            y = batch.reward_NB[n, b] + batch.discount_NB[n, b] * target[best].detach()
            taken = one_net(madqn.net, n, torch.tensor(batch.seen_NBI[n, b], dtype=torch.float64))[
                batch.choice_NB[n, b]
            ]
            loss = loss + 0.5 * (taken - y) ** 2 / 16
    return loss


@pytest.mark.parametrize("fields", [{}, {"hidden": (8,)}], ids=str)
def test_loss_and_gradients_equal_a_plain_loop(fields: dict[str, Any]) -> None:
    madqn, batch = small(**fields), random_batch(1)
    with torch.no_grad():
        for parameter in madqn.target.parameters():
            parameter.mul_(-1.3)  # other best choices than the net's
    found, wanted = madqn.losses(batch)[0], plain_loss(madqn, batch)
    assert found.item() == pytest.approx(wanted.item(), abs=1e-9)
    parts = list(madqn.net.parameters())
    for mine, plain in zip(torch.autograd.grad(found, parts), torch.autograd.grad(wanted, parts), strict=True):
        torch.testing.assert_close(mine, plain, rtol=0, atol=1e-9)


def test_an_update_moves_every_parameter_of_every_agent() -> None:
    madqn = small(target_rate=0.5)
    feed(madqn)
    olds = [p.detach().clone() for net in (madqn.net, madqn.target) for p in net.parameters()]
    for _ in range(30):
        madqn.update()
    news = [p for net in (madqn.net, madqn.target) for p in net.parameters()]
    for new, old in zip(news, olds, strict=True):
        assert ((new != old).flatten(1).float().mean(1) > 0.8).all()


def test_only_feasible_choices_are_made_and_all_of_them_explored() -> None:
    madqn, rng = small(), np.random.default_rng(5)
    moment = random_moment(rng, rows=4)
    allowed = with_hold(moment.mask_BNA, moment.asked_BN)
    counts = np.zeros(allowed.shape)
    for _ in range(2000):
        choice_BN = madqn.act(moment, explore=True)
        np.add.at(counts, (*np.indices(choice_BN.shape), choice_BN), 1)
    assert (counts[~allowed] == 0).all()
    shares = counts / 2000 * allowed.sum(-1, keepdims=True)
    np.testing.assert_allclose(shares[allowed], 1.0, atol=0.2)


def test_epsilon_falls_in_a_line_with_the_updates() -> None:
    madqn = small(epsilon_first=0.8, epsilon_last=0.2, epsilon_updates=4)
    feed(madqn)
    seen = [madqn.epsilon]
    for _ in range(6):
        madqn.update()
        seen.append(madqn.epsilon)
    np.testing.assert_allclose(seen, [0.8, 0.65, 0.5, 0.35, 0.2, 0.2, 0.2])
