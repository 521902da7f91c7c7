"""Running jobs under protocol on-arrival: the compiled engine against the slow oracle on random worlds."""

import random

import numpy as np
import pytest

from engine.test_against_oracles import Wanderer, compare_rewards, play
from engine.test_caps import compare, compare_ends
from engine.test_suspension import grow_signals
from noonward.decision.brief import Needs
from noonward.decision.cluster.lives import may_cap
from noonward.decision.cluster.view import ASK_ALLOCATE, ASK_FINISHED, ASK_ROUTE, ASK_RUNNING
from noonward.ledger.ledger import settle
from noonward.ledger.segments import DONE
from reference import small_worlds, suspension, suspension_on_arrival

WORLDS = 420


class Breaker(Wanderer):
    """Answers at random, also about running jobs."""

    def __init__(self, seed):
        super().__init__(seed)
        levers = ("suspend", "cap", "resize") if seed % 3 else ("suspend",)
        self.needs = Needs(allocate=seed % 2 == 1, finished=seed % 4 > 1, levers=levers, freed=seed % 5 < 2)
        self.breaks = self.rng.choice((0.2, 0.5, 0.9))

    def gang(self, view, job):
        suspended = len(view.life_J) > 1 and view.life_J["suspensions"][job] > 0
        return 0 if suspended else super().gang(view, job)

    def decide(self, view, answers):
        if view.kind != ASK_RUNNING:
            super().decide(view, answers)
            return
        job, said = view.job, None
        caps = int(view.freedom_C["caps"][view.job_J["class_"][job]])
        if view.allowed(0, 0) and self.rng.random() < self.breaks:
            said = "suspend", view.now_s + self.rng.choice((-view.now_s, 0.0, 900.0, 7200.0, 1e9))
            answers.suspend(0, said[1])
        elif caps and may_cap(view, job) and self.rng.random() < 0.5:
            said = "cap", self.rng.randint(0, caps)
            answers.cap(0, said[1])
        where = int(view.run_1["site"][0])
        self.log.append(
            (view.kind, view.now_s, view.serial_N.tolist(), where, view.mask_NA[0].tolist(), view.site_S.copy(), said)
        )


def draw(seed):
    """A random world whose classes, one or both, may be suspended, resized or capped."""
    signals = random.Random(f"{seed} signals").random() < 0.9 or None
    world = small_worlds.draw(seed, "on-arrival", signals=signals)
    rng = random.Random(f"{seed} freedoms")
    for c in rng.choice(((0,), (1,), (0, 1))):
        world.freedoms[c] = suspension.Freedom(
            stop_s=rng.choice((0.0, 60.0, 300.0, 430.0)),
            dark_s=rng.choice((0.0, 100.0, 900.0)),
            load_s=rng.choice((0.0, 200.0, 600.0)),
            stop_power=rng.choice((0.0, 0.35, 1.0)),
            load_power=rng.choice((0.0, 0.25, 1.0)),
            min_run_s=rng.choice((0.0, 0.0, 700.0)),
            most_suspensions=rng.choice((None, None, 1, 2)),
            elastic=rng.choice(((), ((1, 1.0), (2, 1.8), (4, 3.0)))),
            caps=rng.choice(((), ((0.7, 0.9), (0.5, 0.8)))),
        )
    for row in world.rows:  # long enough to meet a turn of the hour
        row["work"] *= rng.choice((1.0, 4.0, 10.0))
        row["slack_s"] *= rng.choice((1.0, 4.0, 10.0))
    grow_signals(world, rng)
    return world


def replay(world, scheduler):
    """Runs the oracle with the recorded answers, each question compared with the recorded one."""
    log = iter(scheduler.log)

    def ask(run, kind, job, s, mask):
        entry = next(log)
        assert entry[:2] == (kind, pytest.approx(run.now_s, rel=1e-12))
        if kind == ASK_FINISHED:
            assert entry[2:] == (job.index, job.site, job.level)
            return None
        sites = entry[-2]
        assert entry[2] == [job.index]
        assert sites["free"].tolist() == [run.free(site) for site in range(len(world.sites))]
        assert sites["waiting"].tolist() == [len(queue) for queue in run.queues]
        if kind == ASK_RUNNING:
            assert entry[3] == s
            assert entry[4] == [int(good) for good in mask] + [0] * (len(world.sites) - 1)
            return entry[-1]
        choice, gpus, level, earliest_s, _ = entry[-1][0]
        if kind == ASK_ROUTE:
            assert entry[3] == [[int(good) for good in mask]]
            return choice, gpus, level, earliest_s
        assert (kind, entry[3]) == (ASK_ALLOCATE, s)
        return gpus, level

    jobs, needs = world.jobs(), scheduler.needs
    wants = [name for name in ("allocate", "finished") if getattr(needs, name)]
    run = suspension_on_arrival.simulate(
        world.plant(), jobs, ask, suspension.SegmentLedger(*world.ledger_arguments()), world.freedoms,
        len(world.price[0]) if world.price is not None else 0, levers=needs.levers, wants=wants, freed=needs.freed,
    )  # fmt: skip
    assert next(log, None) is None
    return jobs, run


@pytest.mark.parametrize("seed", range(WORLDS))
def test_running_jobs_on_arrival_equal_the_slow_oracle(seed):
    world = draw(seed)
    scheduler = Breaker(seed)
    outcome = play(world, scheduler)
    jobs, run = replay(world, scheduler)
    compare(outcome, world, jobs, run)
    assert outcome.ended_s == pytest.approx(run.ended_s, rel=1e-12)
    compare_rewards(outcome, world, run.rewards)
    compare_ends(outcome, world)
    done = outcome.job_J["status"] == DONE
    np.testing.assert_allclose(outcome.units_J[done], outcome.environment.jobs.work_J[done], rtol=1e-9)


def test_the_random_worlds_hold_what_there_is_to_test():
    """Suspensions again and again, resizes, caps, lost work, and questions when GPUs are freed."""
    kinds, suspensions, resizes, capped_h, most, between = np.zeros(4, int), 0, 0, 0.0, 0, 0
    for seed in range(0, WORLDS, 2):
        outcome = play(draw(seed), scheduler := Breaker(seed))
        kinds += np.bincount(outcome.segment_K["kind"], minlength=4)
        suspensions += int(outcome.suspensions_J.sum())
        taken = settle(outcome).interruptions
        resizes, capped_h = resizes + taken.resizes, capped_h + taken.capped_gpu_hours
        most = max(most, int(outcome.suspensions_J.max(initial=0)))
        between += sum(entry[0] == ASK_RUNNING and entry[1] % 3600 > 0 for entry in scheduler.log)
    assert suspensions > 100
    assert resizes > 5
    assert capped_h > 1.0
    assert most >= 3
    assert (kinds > (20, 20, 20, 5)).all()  # little is lost, for room is kept
    assert between > 20
