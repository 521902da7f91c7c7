"""Random batches and moments for tests of algorithms."""

from typing import Any

import numpy as np

from noonward.learn.core.experience import ActionSpec, Dimensions, Moment, Transition
from noonward.learn.core.replay import Batch

DIMENSIONS = Dimensions(agents=3, actions=ActionSpec.of(choice=4), global_size=5, own_size=2)


def random_batch(seed: int, size: int = 16, dimensions: Dimensions = DIMENSIONS) -> Batch:
    """Returns a batch with random masks, some agents not asked, and some ends of runs."""
    rng = np.random.default_rng(seed)
    shape, d = (dimensions.agents, size), dimensions

    def mask(asked: Any) -> Any:
        out = rng.random((*shape, d.choices)) < 0.6
        out[..., 0] |= ~out.any(-1)
        out[~asked] = np.arange(d.choices) == 0
        return out

    asked, next_asked = rng.random(shape) < 0.7, rng.random(shape) < 0.7
    mask_NBA = mask(asked)
    return Batch(
        seen_NBI=rng.normal(size=(*shape, d.global_size + d.own_size)).astype(np.float32),
        mask_NBA=mask_NBA,
        asked_NB=asked,
        choice_NB=np.where(mask_NBA, rng.random(mask_NBA.shape), -1).argmax(-1),
        reward_NB=rng.normal(size=shape),
        cost_NBK=np.zeros((*shape, 0)),
        discount_NB=np.where(rng.random(shape) < 0.2, 0.0, 0.9),
        next_seen_NBI=rng.normal(size=(*shape, d.global_size + d.own_size)).astype(np.float32),
        next_mask_NBA=mask(next_asked),
    )


def random_moment(rng: np.random.Generator, rows: int = 6, dimensions: Dimensions = DIMENSIONS) -> Moment:
    """Returns what some runs see, some agents not asked."""
    d = dimensions
    asked = rng.random((rows, d.agents)) < 0.7
    mask = rng.random((rows, d.agents, d.choices)) < 0.5
    mask[..., 1] |= ~mask.any(-1)
    return Moment(
        global_BG=rng.normal(size=(rows, d.global_size)).astype(np.float32),
        own_BNO=rng.normal(size=(rows, d.agents, d.own_size)).astype(np.float32),
        mask_BNA=(mask & asked[..., None]).astype(np.uint8),
        asked_BN=asked,
    )


def feed(algorithm: Any, steps: int = 60, rows: int = 6, seed: int = 0) -> None:
    """Lets an algorithm observe random steps."""
    rng = np.random.default_rng(seed)
    before = random_moment(rng, rows, algorithm.dimensions)
    for _ in range(steps):
        choice_BN = np.where(before.asked_BN, algorithm.act(before, explore=True), 0)
        after = random_moment(rng, rows, algorithm.dimensions)
        ended = rng.random(rows) < 0.05
        cut = rng.random(rows) < 0.05
        reward, elapsed = rng.normal(size=rows), rng.integers(0, 3, rows) * 60.0
        algorithm.observe(Transition(before, choice_BN, reward, elapsed, np.zeros((rows, 0)), ended, cut, after))
        before = after
