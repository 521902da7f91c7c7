"""A job that its site holds until a time is not asked about before: the same run, with fewer questions."""

import random

import numpy as np
import pytest

from noonward.decision.brief import Needs
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.engine import ClusterEngine
from reference import small_worlds


class Punctual(Scheduler):
    """Starts every job where it waits, at the first slot with room from a time of its own on."""

    needs = Needs(protocols=("each-slot",))

    def __init__(self, seed, *, rests):
        self.seed, self.rests = seed, rests

    def decide(self, view, answers):
        for asker, job in view.asked():
            record = view.job_J[job]
            rng = random.Random(f"{self.seed} {record['serial']}")
            at_s = float(record["arrival_s"]) + rng.choice((0.0, 500.0, 5000.0, 50000.0, np.inf)) * rng.random()
            if view.now_s >= at_s and view.allowed(asker, asker):
                answers.send(asker, asker)
            else:
                answers.hold(asker, at_s if self.rests else 0.0)


def played(world, scheduler):
    engine = ClusterEngine(world.environment(), scheduler, rewards=True)
    earned = 0.0
    while engine.step():
        earned += engine.reward_usd
        scheduler.decide(engine.view, engine.answers)
    return engine.outcome(), earned + engine.reward_usd


@pytest.mark.parametrize("seed", range(40))
def test_resting_changes_no_run(seed):
    world = small_worlds.withholding(small_worlds.draw(seed, "each-slot"), seed)
    asked, asked_usd = played(world, Punctual(seed, rests=False))
    rested, rested_usd = played(world, Punctual(seed, rests=True))
    for name in ("status", "site", "gpus", "start_s", "finish_s"):
        np.testing.assert_array_equal(rested.job_J[name], asked.job_J[name], err_msg=name)
    assert rested.steps <= asked.steps
    if world.price is not None:
        assert rested_usd == pytest.approx(asked_usd, rel=1e-9, abs=1e-9)


def test_resting_asks_less():
    steps = np.zeros(2)
    for seed in range(20):
        world = small_worlds.draw(seed, "each-slot")
        steps += [played(world, Punctual(seed, rests=rests))[0].steps for rests in (False, True)]
    assert steps[1] < 0.5 * steps[0]
