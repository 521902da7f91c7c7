"""Suspension: the compiled engine against the slow oracle on random worlds, and exact worlds by hand."""

import random

import pytest

from engine.test_against_oracles import Wanderer, compare_jobs, compare_rewards, play
from noonward.decision.brief import Needs
from noonward.decision.cluster.view import ASK_RUNNING
from noonward.ledger.ledger import settle
from noonward.ledger.segments import SEGMENT_NAMES
from reference import small_worlds, suspension

WORLDS = 420
CLOSE = {"rel": 1e-9, "abs": 1e-9}


class Breaker(Wanderer):
    """Answers at random, also about running jobs."""

    def __init__(self, seed, holds=0.3):
        super().__init__(seed, holds=holds)
        self.needs = Needs(running=True)
        self.breaks = self.rng.choice((0.2, 0.5, 0.9))

    def decide(self, view, answers):
        if view.kind != ASK_RUNNING:
            super().decide(view, answers)
            return
        said = [False] * len(view.asked_N)
        for site, _ in view.asked():
            said[site] = self.rng.random() < self.breaks
            if said[site]:
                answers.suspend(site)
        mask = view.mask_NA.tolist()
        self.log.append((view.kind, view.now_s, view.serial_N.tolist(), mask, view.site_S.copy(), said))


def draw(seed):
    """A random world whose classes, one or both, may be suspended."""
    world = small_worlds.draw(seed, "each-slot", signals=random.Random(f"{seed} signals").random() < 0.9 or None)
    rng = random.Random(f"{seed} freedoms")
    for c in rng.choice(((0,), (1,), (0, 1))):
        world.freedoms[c] = suspension.Freedom(
            stop_s=rng.choice((0.0, 60.0, 300.0, 430.0)),
            dark_s=rng.choice((0.0, 100.0, 900.0)),
            load_s=rng.choice((0.0, 200.0, 600.0)),
            stop_power=rng.choice((0.0, 0.35, 1.0)),
            load_power=rng.choice((0.0, 0.25, 1.0)),
            min_run_s=rng.choice((0.0, 0.0, 700.0)),
            most_suspensions=rng.choice((None, None, 0, 1, 2)),
        )
    for row in world.rows:  # long enough to meet a turn of the hour
        row["work"] *= rng.choice((1.0, 4.0, 10.0))
    grow_signals(world, rng)
    return world


def grow_signals(world, rng):
    """Signals and curves over the longer run."""
    if world.price is not None:
        small_worlds.add_signals(world, rng, True)
    if world.caps is not None:
        hours = world.hours() + 1
        world.caps = [
            [rng.randint(0, site.gpus + 1) + rng.choice((0.0, 0.5)) for _ in range(hours)] for site in world.sites
        ]


def replay(world, scheduler):
    """Runs the oracle with the recorded answers, each question compared with the recorded one."""
    log = iter(scheduler.log)

    def answer(question):
        kind, now_s, asked, mask, sites, answers = next(log)
        about_running = isinstance(question, suspension.Question)
        assert (now_s, asked, kind == ASK_RUNNING) == (question.now_s, question.asked, about_running)
        for name in ("free", "waiting"):
            assert sites[name].tolist() == getattr(question, name), name
        if about_running:
            for s, job in enumerate(asked):
                expected = [0] * len(mask[s])
                if job >= 0:
                    expected[0] = expected[1 + s] = 1
                assert mask[s] == expected
            return answers
        for s, row in enumerate(question.mask):
            assert row is None or mask[s] == [int(good) for good in row], (now_s, s)
        return [(choice, gpus, level) for choice, gpus, level, _ in answers]

    jobs = world.jobs()
    ledger = suspension.SegmentLedger(*world.ledger_arguments())
    hours = len(world.price[0]) if world.price is not None else 0
    run = suspension.simulate(world.plant(), jobs, answer, ledger, world.freedoms, hours)
    assert next(log, None) is None
    return jobs, run


def compare_segments(outcome, run):
    """Every stretch that begins within the run, exactly."""
    found = [
        (int(r["job"]), SEGMENT_NAMES[r["kind"]], float(r["from_s"]), float(r["to_s"]), int(r["gpus"]), int(r["site"]))
        for r in outcome.segment_K
        if r["from_s"] < outcome.ended_s
    ]
    expected = [
        (x.job.index, x.kind, x.begin_s, x.end_s, x.job.gpus, x.job.site)
        for x in run.stretches
        if run.lives[x.job.index].suspensions > 0 and x.begin_s < outcome.ended_s
    ]
    assert sorted(found) == sorted(expected)


def compare_meters(outcome, world, run):
    """The engine's meters with the oracle's and with the ledger's (double entry)."""
    meters, ledger, settled = outcome.meters, run.ledger, settle(outcome)
    kinds = ("kwh", "usd", "kg") if world.price is not None else ("kwh",)
    taken = settled.interruptions
    for s in range(len(world.sites)):
        assert meters.overhead_gpu_s_S[s] == pytest.approx(ledger.overhead[s]["gpu_s"], **CLOSE)
        for kind in kinds:
            assert getattr(meters, f"busy_{kind}_S")[s] == pytest.approx(ledger.busy[s][kind], **CLOSE)
            assert getattr(meters, f"free_{kind}_S")[s] == pytest.approx(ledger.free[s][kind], **CLOSE)
            assert getattr(meters, f"overhead_{kind}_S")[s] == pytest.approx(ledger.overhead[s][kind], **CLOSE)
    useful_gpu_s = sum(account["gpu_s"] for account in ledger.busy)
    assert meters.gpu_s_S.sum() - meters.lost_gpu_s == pytest.approx(useful_gpu_s, **CLOSE)
    assert settled.gpu_hours == pytest.approx(useful_gpu_s / 3600, **CLOSE)
    assert meters.lost_gpu_s / 3600 == pytest.approx(taken.lost_gpu_hours, **CLOSE)
    assert meters.overhead_gpu_s_S.sum() / 3600 == pytest.approx(taken.overhead_gpu_hours, **CLOSE)
    assert meters.busy_kwh_S.sum() == pytest.approx(settled.job_kwh, **CLOSE)
    assert meters.overhead_kwh_S.sum() == pytest.approx(taken.overhead_kwh, **CLOSE)
    assert settled.late_gpu_hours == pytest.approx(ledger.late_gpu_h, **CLOSE)
    if world.price is not None:
        assert meters.overhead_usd_S.sum() == pytest.approx(taken.overhead_usd, **CLOSE)
        assert meters.overhead_kg_S.sum() == pytest.approx(taken.overhead_kg, **CLOSE)
        assert meters.utility_usd == pytest.approx(settled.utility_usd, **CLOSE)
        assert meters.late_usd == pytest.approx(world.late_usd * ledger.late_gpu_h, **CLOSE)


@pytest.mark.parametrize("seed", range(WORLDS))
def test_suspension_equals_the_slow_oracle(seed):
    world = draw(seed)
    scheduler = Breaker(seed, holds=(0.1, 0.5, 0.9)[seed % 3])
    outcome = play(world, scheduler)
    jobs, run = replay(world, scheduler)
    compare_jobs(outcome, jobs)
    assert outcome.ended_s == run.ended_s
    compare_segments(outcome, run)
    compare_meters(outcome, world, run)
    compare_rewards(outcome, world, run.rewards)
