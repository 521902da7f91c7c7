"""Replay: every transition equals the one a plain walk over the recorded steps finds; the ring forgets the oldest."""

from typing import Any

import numpy as np
import pytest

from learn.batches import random_moment
from noonward.errors import ScenarioError
from noonward.learn.core.experience import ActionSpec, Dimensions, Transition
from noonward.learn.core.masking import with_hold
from noonward.learn.core.replay import Replay

SIZES = Dimensions(agents=2, actions=ActionSpec.of(choice=3), global_size=2, own_size=1, costs=("price",))
ROWS = 3


def record(steps: int, seed: int = 0) -> list[Transition]:
    """Returns random decision steps of runs side by side that end and are cut now and then."""
    rng = np.random.default_rng(seed)
    out, before = [], random_moment(rng, ROWS, SIZES)
    for _ in range(steps):
        ended = rng.random(ROWS) < 0.1
        cut = (rng.random(ROWS) < 0.1) & ~ended
        after = random_moment(rng, ROWS, SIZES)
        choice = np.where(before.asked_BN, rng.integers(0, 3, (ROWS, 2)), 0)
        elapsed = rng.integers(0, 3, ROWS) * 60.0
        out.append(Transition(before, choice, rng.normal(size=ROWS), elapsed, rng.random((ROWS, 1)), ended, cut, after))
        fresh = random_moment(rng, ROWS, SIZES)
        over = ended | cut
        before = fresh._make(
            np.where(over.reshape(-1, *[1] * (new.ndim - 1)), new, old) for new, old in zip(fresh, after, strict=True)
        )
    return out


def plain_transitions(steps: list[Transition], n: int, *, per_slot: bool) -> dict[Any, Any]:
    """Returns what each transition of agent n must be, by what it saw at its start."""
    found = {}
    for step in steps:
        for row in range(ROWS):
            discount = 0.9 ** (step.elapsed_s_B[row] / 60.0) if per_slot else 0.9
            seen = (*step.before.global_BG[row], *step.before.own_BNO[row, n])
            following: Any = (*step.after.global_BG[row], *step.after.own_BNO[row, n])
            if step.ended_B[row]:
                discount, following = 0.0, None
            found[seen] = (step.choice_BN[row, n], step.reward_B[row], step.cost_BK[row, 0], discount, following)
    return found


@pytest.mark.parametrize("per_slot", [False, True])
def test_transitions_equal_those_of_a_plain_walk(per_slot: bool) -> None:
    replay = Replay(SIZES, capacity=500, gamma=0.9, per_slot=per_slot)
    steps = record(60)
    for step in steps:
        replay.observe(step)
    for n in range(2):
        wanted = plain_transitions(steps, n, per_slot=per_slot)
        slots = np.flatnonzero(replay.valid_C)
        assert len(slots) == len(wanted)
        batch = replay._gather(np.stack([slots, slots]))
        for k in range(len(slots)):
            choice, reward, cost, discount, following = wanted[tuple(batch.seen_NBI[n, k])]
            assert batch.choice_NB[n, k] == choice
            assert batch.reward_NB[n, k] == pytest.approx(reward, abs=1e-12)
            assert batch.cost_NBK[n, k, 0] == pytest.approx(cost, abs=1e-12)
            assert batch.discount_NB[n, k] == pytest.approx(discount, abs=1e-12)
            assert following is None or tuple(batch.next_seen_NBI[n, k]) == following
            assert (following is None) == (discount == 0.0)


def test_masks_of_agents_that_are_not_asked_hold() -> None:
    replay = Replay(SIZES, capacity=500, gamma=0.9)
    steps = record(20)
    for step in steps:
        replay.observe(step)
    first = steps[0].before
    assert (replay.mask_CNA[:ROWS] == with_hold(first.mask_BNA, first.asked_BN)).all()
    idle = ~replay.asked_CN[: len(replay)]
    assert idle.any()
    assert (replay.mask_CNA[: len(replay)][idle] == (np.arange(3) == 0)).all()


def test_a_full_ring_forgets_the_oldest_and_samples_only_what_it_holds() -> None:
    replay = Replay(SIZES, capacity=32, gamma=0.9)
    steps, rng = record(80), np.random.default_rng(1)
    for step in steps:
        replay.observe(step)
        batch = replay.sample(rng, 8)
        held = {tuple(row) for row in replay.global_CG[: len(replay)]}
        assert {tuple(row) for row in batch.seen_NBI[..., :2].reshape(-1, 2)} <= held
    assert len(replay) == 32
    recent = {tuple(row) for step in steps[-16:] for part in (step.before, step.after) for row in part.global_BG}
    assert {tuple(row) for row in replay.global_CG} <= recent


def test_every_transition_is_as_likely_as_any_other() -> None:
    replay = Replay(SIZES, capacity=64, gamma=0.9)
    for step in record(10):
        replay.observe(step)
    slots = np.flatnonzero(replay.valid_C)
    batch = replay.sample(np.random.default_rng(0), 20_000)
    seen = {tuple(row): slot for slot, row in enumerate(replay._seen(np.stack([slots, slots]))[0])}
    counts = np.bincount([seen[tuple(row)] for row in batch.seen_NBI[0]], minlength=len(slots))
    np.testing.assert_allclose(counts / 20_000, 1 / len(slots), atol=0.01)


def test_a_replay_without_transitions_is_an_error() -> None:
    replay = Replay(SIZES, capacity=64, gamma=0.9)
    with pytest.raises(ScenarioError, match="no transition yet"):
        replay.sample(np.random.default_rng(0), 4)


def test_a_state_goes_on_to_the_same_bits() -> None:
    one, other = (Replay(SIZES, capacity=32, gamma=0.9) for _ in range(2))
    steps = record(40)
    for step in steps[:25]:
        one.observe(step)
    other.load_state(one.state())
    for step in steps[25:]:
        one.observe(step)
        other.observe(step)
    batches = [replay.sample(np.random.default_rng(2), 16) for replay in (one, other)]
    for mine, its in zip(*batches, strict=True):
        assert (mine == its).all()
