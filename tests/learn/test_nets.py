"""Stacked nets: each equals a net of its own, starts by torch.nn.Linear's law, and is reproducible."""

import numpy as np
import pytest
import torch

from noonward.learn.core.masking import INFEASIBLE, best, entropy, log_policy, sample, with_hold
from noonward.learn.core.nets import (
    StackedMLP,
    adam,
    follow,
    load_module_state,
    load_optimizer_state,
    module_state,
    optimizer_state,
)


def made(seed: int = 0, nets: int = 3) -> StackedMLP:
    return StackedMLP(nets, (4, 16, 2), torch.Generator().manual_seed(seed), torch.float64)


def test_each_net_equals_linear_layers_of_its_own() -> None:
    stack, x = made(), torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weights, biases = stack.arrays()
    for n in range(3):
        layers = [torch.nn.Linear(4, 16, dtype=torch.float64), torch.nn.Linear(16, 2, dtype=torch.float64)]
        with torch.no_grad():
            for layer, weight, bias in zip(layers, stack.weights, stack.biases, strict=True):
                layer.weight.copy_(weight[n].T)
                layer.bias.copy_(bias[n, 0])
        plain = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
        torch.testing.assert_close(stack(x)[n], plain(x[n]), rtol=0, atol=1e-12)
    assert [w.shape for w in weights] == [(3, 4, 16), (3, 16, 2)]
    assert [b.shape for b in biases] == [(3, 16), (3, 2)]


def test_initial_values_follow_the_law_of_linear_layers() -> None:
    stack = StackedMLP(2, (100, 200, 5), torch.Generator().manual_seed(0))
    linear = torch.nn.Linear(100, 200)
    for n in range(2):
        for mine, its in ((stack.weights[0][n], linear.weight), (stack.biases[0][n], linear.bias)):
            assert mine.abs().max() <= 0.1
            assert mine.abs().max().item() == pytest.approx(its.abs().max().item(), abs=0.005)
            assert mine.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.1)
    assert not torch.equal(stack.weights[0][0], stack.weights[0][1])


def test_a_seed_gives_the_same_nets_and_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = made(0), made(0), made(1)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(one.weights[0], same.weights[0])
    assert not torch.equal(one.weights[0], other.weights[0])


def test_targets_follow_by_their_rate() -> None:
    one, other = made(0), made(1)
    wanted = 0.75 * one.weights[0] + 0.25 * other.weights[0]
    follow(one.parameters(), other.parameters(), 0.25)
    torch.testing.assert_close(one.weights[0], wanted)


def test_optimizer_and_module_go_on_from_a_state() -> None:
    x = torch.ones(3, 5, 4, dtype=torch.float64)
    runs = []
    for stop in (None, 2):
        net = made()
        optimizer = adam(net.parameters(), 0.1)
        for step in range(4):
            if step == stop:
                kept, remembered = module_state(net), optimizer_state(optimizer)
                net = made(9)
                optimizer = adam(net.parameters(), 0.1)
                load_module_state(net, kept)
                load_optimizer_state(optimizer, remembered)
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
        runs.append(net)
    assert all(torch.equal(a, b) for a, b in zip(runs[0].parameters(), runs[1].parameters(), strict=True))


def test_infeasible_choices_have_no_probability_and_no_gradient_becomes_nan() -> None:
    logits = torch.tensor([[1.0, 50.0, 2.0], [0.0, 3.0, 1.0]], requires_grad=True)
    mask = torch.tensor([[True, False, True], [True, False, False]])
    log_p = log_policy(logits, mask)
    assert (log_p.exp()[~mask] == 0).all()
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2))
    assert log_p.exp()[0, 0].item() == pytest.approx(1 / (1 + np.e), rel=1e-5)
    assert entropy(log_p)[1].item() == 0.0
    entropy(log_p).sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[~mask] == 0).all()
    assert log_p[0, 1] < INFEASIBLE / 2


def test_an_agent_that_is_not_asked_may_only_hold() -> None:
    mask = with_hold(np.array([[[1, 1], [0, 1], [1, 1]]], np.uint8), np.array([[True, True, False]]))
    assert mask.tolist() == [[[True, True], [False, True], [True, False]]]
    logits = np.array([[[0.0, 9.0]] * 3])
    assert best(logits, mask).tolist() == [[1, 1, 0]]
    assert sample(logits, mask, np.random.default_rng(0))[0, 2] == 0
