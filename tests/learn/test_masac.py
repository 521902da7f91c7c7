"""MASAC: its losses equal a plain loop's, gradients reach every parameter, infeasible choices get no probability."""

from typing import Any

import numpy as np
import pytest
import torch

from learn.batches import DIMENSIONS, feed, random_batch, random_moment
from noonward.bench.plain_masac import PlainMasac
from noonward.errors import ScenarioError
from noonward.learn.algorithms.masac import Masac, MasacConfig
from noonward.learn.core.masking import with_hold

FIELDS: list[dict[str, Any]] = [
    {},
    {"tune_temperature": True, "temperature": 0.2},
    {"temperature": 0.0},
    {"hidden": (8,)},
]
SMALL: dict[str, Any] = {"hidden": (8, 8), "batch": 16, "precision": "float64", "capacity": 1000}


def small(**more: Any) -> Masac:
    return Masac(DIMENSIONS, MasacConfig(**{**SMALL, **more}), seed=3)


def one_net(net: Any, which: int, x: Any) -> Any:
    """Returns the output of one net for one input, layer by layer."""
    layers = len(net.weights)
    for number in range(layers):
        x = x @ net.weights[number][which] + net.biases[number][which][0]
        x = torch.clamp(x, min=0.0) if number < layers - 1 else x
    return x


def plain_policy(masac: Masac, seen: Any, agent: int, mask: Any) -> dict[int, Any]:
    """Returns the probability of every feasible choice, by the definition of softmax."""
    logits = one_net(masac.actor, agent, torch.tensor(seen, dtype=torch.float64))
    weights = {a: torch.exp(x) for a, x in enumerate(logits) if mask[a]}
    total = sum(weights.values())
    return {a: weight / total for a, weight in weights.items()}


def plain_values(nets: Any, seen: Any, agent: int) -> list[Any]:
    """Returns the values of both twins."""
    return [one_net(nets, twin * 3 + agent, torch.tensor(seen, dtype=torch.float64)) for twin in range(2)]


def plain_losses(masac: Masac, batch: Any) -> tuple[Any, Any, Any]:
    """Returns the losses by loops over agents, samples and choices."""
    config = masac.config
    critic = actor = temperature = torch.zeros((), dtype=torch.float64)
    for n in range(3):
        alpha = config.temperature
        asked = max(1, int(batch.asked_NB[n].sum()))
        for b in range(batch.choice_NB.shape[1]):
            after = batch.next_seen_NBI[n, b], n
            policy = plain_policy(masac, *after, batch.next_mask_NBA[n, b])
            first, second = plain_values(masac.target, *after)
            soft = sum(p * (torch.minimum(first[a], second[a]) - alpha * torch.log(p)) for a, p in policy.items())
            y = batch.reward_NB[n, b] + batch.discount_NB[n, b] * soft
            here = batch.seen_NBI[n, b], n
            twins = plain_values(masac.critic, *here)
            for twin in twins:
                critic = critic + 0.5 * (twin[batch.choice_NB[n, b]] - y.detach()) ** 2 / 16
            if not batch.asked_NB[n, b]:
                continue
            policy = plain_policy(masac, *here, batch.mask_NBA[n, b])
            least = torch.minimum(*twins).detach()
            actor = actor + sum(p * (alpha * torch.log(p) - least[a]) for a, p in policy.items()) / asked
            entropy = -sum(p * torch.log(p) for p in policy.values()).detach()
            aim = config.target_entropy * np.log(batch.mask_NBA[n, b].sum())
            temperature = temperature + masac.log_temperature_N[n] * (entropy - aim) / asked
    return critic, actor, temperature


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_losses_and_gradients_equal_a_plain_loop(fields: dict[str, Any]) -> None:
    masac, batch = small(**fields), random_batch(1)
    with torch.no_grad():  # targets that differ from the critics
        for parameter in masac.target.parameters():
            parameter.mul_(1.3)
    parts = [*masac.actor.parameters(), *masac.critic.parameters(), masac.log_temperature_N]
    losses = masac.losses(batch)
    found = (losses.critic, losses.actor, losses.temperature)
    wanted = plain_losses(masac, batch)
    for mine, plain in zip(found, wanted, strict=True):
        assert mine.item() == pytest.approx(plain.item(), abs=1e-9)
    grads = torch.autograd.grad(sum(found), parts)
    plain_grads = torch.autograd.grad(sum(wanted), parts)
    for mine, plain in zip(grads, plain_grads, strict=True):
        torch.testing.assert_close(mine, plain, rtol=0, atol=1e-9)


def parameters_of(masac: Masac, plain: PlainMasac) -> list[tuple[Any, Any]]:
    """Returns the parameters of the stacked nets, net by net, each with the plain loop's."""
    agents, pairs = masac.dimensions.agents, []
    for n, agent in enumerate(plain.agents):
        stacks = [(masac.actor, n, agent.actor)]
        for twin in range(2):
            stacks.append((masac.critic, twin * agents + n, agent.critics[twin]))
            stacks.append((masac.target, twin * agents + n, agent.targets[twin]))
        for stack, place, net in stacks:
            for layer, linear in enumerate(net[::2]):
                pairs.append((stack.weights[layer].data[place].T, linear.weight.data))
                pairs.append((stack.biases[layer].data[place, 0], linear.bias.data))
    return pairs


def test_updates_equal_a_plain_loop_agent_by_agent() -> None:
    masac = small(precision="float32", critic_rate=1e-2, actor_rate=1e-2, target_rate=0.1)
    feed(masac)
    plain = PlainMasac(masac, critics_first=False)
    with torch.no_grad():
        for mine, its in parameters_of(masac, plain):
            its.copy_(mine)
    before = [mine.clone() for mine, _ in parameters_of(masac, plain)]
    masac.batch_rng = np.random.default_rng(0)  # as the plain loop's
    for _ in range(5):
        masac.update()
        plain.update()
    moved = [mine - old for (mine, _), old in zip(parameters_of(masac, plain), before, strict=True)]
    assert min(each.abs().max().item() for each in moved) > 1e-3
    for mine, its in parameters_of(masac, plain):
        torch.testing.assert_close(mine, its, rtol=0, atol=2e-5)


def test_an_update_moves_every_parameter_of_every_agent() -> None:
    masac = small(critic_rate=1e-3, actor_rate=1e-3, target_rate=0.5)
    feed(masac)
    nets = (masac.actor, masac.critic, masac.target)
    before = [[p.detach().clone() for p in net.parameters()] for net in nets]
    for _ in range(30):
        masac.update()
    for net, olds in zip(nets, before, strict=True):
        for new, old in zip(net.parameters(), olds, strict=True):
            moved = (new != old).flatten(1).float().mean(1)
            assert (moved > 0.8).all()  # but for a unit that ReLU never opens


def test_no_gradient_reaches_targets_and_none_the_critics_through_the_actors_loss() -> None:
    masac, batch = small(), random_batch(2)
    losses = masac.losses(batch)
    through = torch.autograd.grad(losses.actor, list(masac.critic.parameters()), allow_unused=True)
    assert all(each is None for each in through)
    assert not any(p.requires_grad for p in masac.target.parameters())


def test_the_actor_learns_nothing_where_its_agent_is_not_asked() -> None:
    masac, batch = small(), random_batch(3)
    hold = np.arange(4) == 0
    idle = batch._replace(asked_NB=np.zeros_like(batch.asked_NB), mask_NBA=np.broadcast_to(hold, batch.mask_NBA.shape))
    grads = torch.autograd.grad(masac.losses(idle).actor, list(masac.actor.parameters()))
    assert all((grad == 0).all() for grad in grads)


def test_only_feasible_choices_are_made() -> None:
    masac, rng = small(temperature=1.0), np.random.default_rng(5)
    seen: set[int] = set()
    for _ in range(100):
        moment = random_moment(rng)
        allowed = with_hold(moment.mask_BNA, moment.asked_BN)
        for explore in (True, False):
            choice_BN = masac.act(moment, explore=explore)
            assert np.take_along_axis(allowed, choice_BN[..., None], -1).all()
            assert (choice_BN[~moment.asked_BN] == 0).all()
            seen |= set(choice_BN.ravel().tolist())
    assert seen == {0, 1, 2, 3}


def test_exploration_follows_the_policy() -> None:
    masac, rng = small(), np.random.default_rng(6)
    moment = random_moment(rng, rows=1)
    many = moment._make(np.repeat(each, 20_000, 0) for each in moment)
    choice_BN = masac.act(many, explore=True)
    for n in range(3):
        if moment.asked_BN[0, n]:
            seen = np.concatenate([moment.global_BG[0], moment.own_BNO[0, n]])
            policy = plain_policy(masac, seen, n, moment.mask_BNA[0, n])
            for a, p in policy.items():
                assert (choice_BN[:, n] == a).mean() == pytest.approx(p.item(), abs=0.02)


def test_bf16_learns_nearly_what_float32_does() -> None:
    results = []
    for precision in ("float32", "bf16"):
        masac = small(precision=precision, hidden=(64, 64))
        feed(masac)
        results.append([masac.update()["critic_loss"] for _ in range(20)])
        assert all(p.dtype == torch.float32 for p in masac.critic.parameters())
    assert results[0] != results[1]
    np.testing.assert_allclose(results[1], results[0], rtol=0.1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"batch": 0}, "batch is 0"),
        ({"actor_rate": float("nan")}, "actor_rate is nan"),
        ({"hidden": ()}, "hidden is"),
        ({"precision": "fp8"}, "precision is 'fp8'"),
        ({"temperature": 0.0, "tune_temperature": True}, "temperature is 0"),
    ],
)
def test_a_setting_out_of_range_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        MasacConfig(**fields)
