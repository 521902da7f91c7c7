"""MAPPO: losses and advantages equal plain loops, gradients reach every net, infeasible choices get no probability."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from learn.batches import DIMENSIONS, feed, random_moment
from learn.test_masac import one_net
from noonward.errors import ScenarioError
from noonward.learn.algorithms.mappo import Mappo, MappoConfig
from noonward.learn.core.experience import Transition
from noonward.learn.core.masking import with_hold
from noonward.learn.core.rollout import advantages, join

SMALL: dict[str, Any] = {"hidden": (8, 8), "precision": "float64", "rollout_steps": 10, "passes": 2}
FIELDS: list[dict[str, Any]] = [
    {},
    {"clip": 0.05},
    {"entropy_weight": 0.3, "huber": 0.2},
    {"normalise_values": False, "hidden": (8,)},
]


def small(**more: Any) -> Mappo:
    return Mappo(DIMENSIONS, MappoConfig(**{**SMALL, **more}), seed=3)


def moved(mappo: Mappo, size: float = 0.3, seed: int = 1) -> Mappo:
    """Returns MAPPO with other parameters, so that policies are uneven and ratios differ from 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for net in (mappo.actor, mappo.critic):
            for parameter in net.parameters():
                parameter.add_(size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return mappo


def plain_policy(mappo: Mappo, moment: Any, b: int, n: int) -> dict[int, Any]:
    """Returns the probability of every feasible choice."""
    seen = np.concatenate([moment.global_BG[b], moment.own_BNO[b, n]])
    logits = one_net(mappo.actor, n, torch.tensor(seen, dtype=torch.float64))
    weights = {a: torch.exp(logits[a]) for a in range(4) if moment.mask_BNA[b, n, a]}
    total = sum(weights.values())
    return {a: weight / total for a, weight in weights.items()}


def plain_value(mappo: Mappo, moment: Any, b: int) -> Any:
    seen = np.concatenate([moment.global_BG[b], moment.own_BNO[b].ravel(), moment.asked_BN[b]])
    return one_net(mappo.critic, 0, torch.tensor(seen, dtype=torch.float64))[0]


def plain_huber(error: Any, delta: float) -> Any:
    return 0.5 * error**2 if abs(error.item()) <= delta else delta * (abs(error) - 0.5 * delta)


def plain_losses(mappo: Mappo, rollout: Any, basis: Any, part: Any) -> tuple[Any, Any]:
    """Returns the losses by loops over steps and agents."""
    config = mappo.config
    terms: dict[int, list[Any]] = {}
    critic = torch.zeros((), dtype=torch.float64)
    for b in part.tolist():
        advantage = basis.advantage_B[b].item()
        for n in np.flatnonzero(rollout.before.asked_BN[b]).tolist():
            policy = plain_policy(mappo, rollout.before, b, n)
            ratio = policy[int(rollout.choice_BN[b, n])] / math.exp(basis.log_p_NB[n, b].item())
            near = torch.clamp(ratio, 1 - config.clip, 1 + config.clip)
            spread = -sum(p * torch.log(p) for p in policy.values())
            loss = -torch.minimum(ratio * advantage, near * advantage) - config.entropy_weight * spread
            terms.setdefault(n, []).append(loss)
        error = plain_value(mappo, rollout.before, b) - basis.return_B[b]
        critic = critic + plain_huber(error, config.huber) / len(part)
    actor = sum(sum(each) / len(each) for each in terms.values())
    return actor, critic


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_losses_and_gradients_equal_plain_loops(fields: dict[str, Any]) -> None:
    mappo = moved(small(**fields))
    feed(mappo, steps=12, rows=3)
    rollout = join(mappo.rollout, mappo._discount)
    basis, _ = mappo._basis_of(rollout)
    moved(mappo, 0.3, seed=2)
    part = np.random.default_rng(0).permutation(36)[:20]
    found, wanted = mappo.losses(rollout, basis, part), plain_losses(mappo, rollout, basis, part)
    assert 0.1 < found.clipped.item() < 1.0
    for net, mine, plain in ((mappo.actor, found.actor, wanted[0]), (mappo.critic, found.critic, wanted[1])):
        assert mine.item() == pytest.approx(plain.item(), abs=1e-9)
        parts = list(net.parameters())
        pairs = zip(torch.autograd.grad(mine, parts), torch.autograd.grad(plain, parts), strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def plain_advantages(steps: list[Transition], value: Any, following: Any, config: MappoConfig) -> Any:
    """Returns advantages as sums of discounted errors, each on its own, by their definition."""
    out = np.zeros((len(steps), 3))
    for b in range(3):
        for start in range(len(steps)):
            weight = 1.0
            for k in range(start, len(steps)):
                step = steps[k]
                slots = step.elapsed_s_B[b] / 60.0 if config.per_slot else 1.0
                discount = 0.0 if step.ended_B[b] else config.gamma**slots
                out[start, b] += weight * (step.reward_B[b] + discount * following[k, b] - value[k, b])
                weight *= discount * config.gae_lambda
                if step.ended_B[b] or step.cut_B[b]:
                    break
    return out


@pytest.mark.parametrize("fields", [{}, {"per_slot": True, "gamma": 0.8}, {"gae_lambda": 0.0}, {"gae_lambda": 1.0}])
def test_advantages_equal_their_definition(fields: dict[str, Any]) -> None:
    mappo, rng = small(**fields), np.random.default_rng(2)
    feed(mappo, steps=40, rows=3)
    rollout = join(mappo.rollout, mappo._discount)
    assert rollout.ended_TB.any()
    assert rollout.cut_TB.any()
    value, following = rng.normal(size=(2, 40, 3))
    found = advantages(rollout, value, following, mappo.config.gae_lambda)
    wanted = plain_advantages(mappo.rollout, value, following, mappo.config)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


def test_what_is_learned_from_is_normalised_and_values_stay_when_their_scale_moves() -> None:
    mappo = moved(small(value_memory=0.5))
    for _ in range(3):
        feed(mappo, steps=20, rows=3)
        rollout = join(mappo.rollout, mappo._discount)
        mean, deviation = mappo._scale()
        known = mappo.moments[0] > 0
        with torch.no_grad():
            before_B = mappo._values(rollout.before).numpy() * deviation + mean
        basis, _ = mappo._basis_of(rollout)
        new_mean, new_deviation = mappo._scale()
        if known:
            assert new_deviation != deviation
            with torch.no_grad():
                after_B = mappo._values(rollout.before).numpy() * new_deviation + new_mean
            np.testing.assert_allclose(after_B, before_B, atol=1e-9)
        asked_B = rollout.before.asked_BN.sum(-1)
        mean = np.average(basis.advantage_B.numpy(), weights=asked_B)
        assert mean == pytest.approx(0.0, abs=1e-9)
        assert np.average(basis.advantage_B.numpy() ** 2, weights=asked_B) == pytest.approx(1.0, abs=1e-9)
        mappo.rollout = []


@pytest.mark.parametrize("fields", [{}, {"minibatches": 4}], ids=str)
def test_an_update_moves_every_parameter_of_every_net_and_forgets_the_rollout(fields: dict[str, Any]) -> None:
    mappo = moved(small(**fields))
    olds = [p.detach().clone() for net in (mappo.actor, mappo.critic) for p in net.parameters()]
    for seed in range(4):
        feed(mappo, steps=30, seed=seed)
        mappo.update()
    news = [p for net in (mappo.actor, mappo.critic) for p in net.parameters()]
    for new, old in zip(news, olds, strict=True):
        assert ((new != old).flatten(1).float().mean(1) > 0.8).all()
    with pytest.raises(ScenarioError, match="no step since its last update"):
        mappo.update()


def test_each_gradient_is_shortened_on_its_own() -> None:
    from noonward.learn.core.nets import StackedMLP, shorten_gradients

    net = StackedMLP(3, (2, 2), torch.Generator().manual_seed(0), torch.float64)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
        parameter.grad[0] *= 0.1
        parameter.grad[2] *= 5.0
    shorten_gradients(net, 1.0)
    norms = torch.stack([p.grad.square().sum((1, 2)) for p in net.parameters() if p.grad is not None]).sum(0).sqrt()
    np.testing.assert_allclose(norms.numpy(), [0.1 * math.sqrt(6), 1.0, 1.0], rtol=1e-12)


def test_nets_start_orthogonal_and_the_policy_nearly_even() -> None:
    mappo = small()
    first = mappo.critic.weights[1][0]
    torch.testing.assert_close(first @ first.T, 2.0 * torch.eye(8, dtype=torch.float64))
    moment = random_moment(np.random.default_rng(0))
    assert mappo.preferences(moment).abs().max() < 0.1


def test_only_feasible_choices_are_made_and_all_of_them() -> None:
    mappo, rng = small(), np.random.default_rng(5)
    moment = random_moment(rng, rows=4)
    allowed = with_hold(moment.mask_BNA, moment.asked_BN)
    p_BNA = mappo._log_policy(moment).detach().exp().numpy().swapaxes(0, 1)
    assert (p_BNA[~allowed] == 0.0).all()
    np.testing.assert_allclose(p_BNA.sum(-1), 1.0)
    counts = np.zeros(allowed.shape)
    for _ in range(2000):
        choice_BN = mappo.act(moment, explore=True)
        np.add.at(counts, (*np.indices(choice_BN.shape), choice_BN), 1)
    np.testing.assert_allclose(counts / 2000, p_BNA, atol=0.06)
    greedy_BN = mappo.act(moment, explore=False)
    assert (greedy_BN == np.where(allowed, p_BNA, -1).argmax(-1)).all()


def test_a_state_within_a_rollout_goes_on_to_the_same_bits() -> None:
    one, other = small(), small(actor_rate=5e-4)
    feed(one)
    one.update()
    feed(one, steps=5, seed=1)
    other.load_state(one.state())
    for mappo in (one, other):
        feed(mappo, steps=5, seed=2)
    assert one.update() == other.update()
    for a, b in zip(one.policy_arrays().weights, other.policy_arrays().weights, strict=True):
        assert (a == b).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clip": 0.0}, "clip is 0.0"),
        ({"gae_lambda": 1.5}, r"gae_lambda is 1\.5"),
        ({"rollout_steps": 0}, "rollout_steps is 0"),
        ({"minibatches": 0}, "minibatches is 0"),
        ({"hidden": ()}, "hidden is"),
        ({"precision": "float16"}, "precision"),
        ({"entropy_weight": -1.0}, "entropy_weight is"),
    ],
)
def test_settings_out_of_range_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        MappoConfig(**fields)


def test_more_minibatches_than_steps_are_refused() -> None:
    mappo = small(minibatches=50)
    feed(mappo, steps=4, rows=6)
    with pytest.raises(ScenarioError, match="minibatches is 50, but a rollout has only 24"):
        mappo.update()
