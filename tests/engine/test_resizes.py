"""Resizes: the compiled engine against the slow oracle on random worlds, and exact worlds by hand."""

import random
from dataclasses import replace

import pytest

from engine.test_against_oracles import compare_rewards, play
from engine.test_caps import CURVES, Capper, compare, compare_ends
from engine.test_suspension import CHECKPOINT, LONG, Script, grow_signals, replay, world
from engine.test_suspension import draw as draw_suspension
from noonward.decision.brief import Needs
from noonward.decision.cluster.feasibility import is_suspended
from noonward.decision.cluster.lives import resume_gang
from noonward.decision.cluster.view import ASK_RUNNING
from noonward.engine.run import run
from noonward.errors import InfeasibleActionError
from noonward.evaluate.conformance import check_scheduler
from noonward.ledger.ledger import settle
from noonward.ledger.segments import SEGMENT_NAMES
from noonward.schedule.policies import make_scheduler
from noonward.units import HOUR_S
from reference.suspension import Freedom

WORLDS = 300
SPEEDUPS = (
    ((1, 1.0), (2, 1.9), (4, 3.4), (8, 5.5)),
    ((2, 1.0), (4, 1.3)),
    ((1, 1.0), (3, 2.5), (4, 4.0)),
)


class Resizer(Capper):
    """Answers at random, also on which gang a suspended job is resumed."""

    def __init__(self, seed, holds=0.3):
        super().__init__(seed, holds=holds)
        self.needs = Needs(levers=("suspend", "cap", "resize"))

    def gang(self, view, job):
        asked = super().gang(view, job)
        return 0 if is_suspended(view, job) and resume_gang(view, job, asked) == 0 else int(asked)


def draw(seed):
    """A random world whose classes, one or both, are elastic; some may be suspended and capped, too."""
    drawn = draw_suspension(seed)
    rng = random.Random(f"{seed} resizes")
    for c in rng.choice(((0,), (1,), (0, 1))):
        base = drawn.freedoms.get(c, Freedom(interruptible=False))
        caps = rng.choice(((), *CURVES))
        drawn.freedoms[c] = replace(base, elastic=rng.choice(SPEEDUPS), caps=caps)
    for row in drawn.rows:
        listed = [gpus for gpus, _ in drawn.freedoms[row["class_"]].elastic] if row["class_"] in drawn.freedoms else []
        listed = [gpus for gpus in listed if gpus <= row["gpus_max"]]
        if listed and rng.random() < 0.9:
            row["gpus_min"] = row["gpus_max"] = rng.choice(listed)
        row["slack_s"] *= rng.choice((1.0, 3.0))
    grow_signals(drawn, rng)
    return drawn


@pytest.mark.parametrize("seed", range(WORLDS))
def test_resizes_equal_the_slow_oracle(seed):
    world = draw(seed)
    scheduler = Resizer(seed, holds=(0.1, 0.5, 0.9)[seed % 3])
    outcome = play(world, scheduler)
    jobs, slow = replay(world, scheduler)
    compare(outcome, world, jobs, slow)
    compare_rewards(outcome, world, slow.rewards)
    compare_ends(outcome, world)


def test_the_random_worlds_hold_what_there_is_to_test():
    """Resizes to larger and smaller gangs, again and again, and caps on them."""
    grown = shrunk = capped = 0
    for seed in range(0, WORLDS, 4):
        segment_K = play(draw(seed), Resizer(seed, holds=(0.1, 0.5, 0.9)[seed % 3])).segment_K
        loads = (segment_K["kind"][1:] == 2).nonzero()[0]
        grown += (segment_K["gpus"][1:][loads] > segment_K["gpus"][loads]).sum()
        shrunk += (segment_K["gpus"][1:][loads] < segment_K["gpus"][loads]).sum()
        other = segment_K["gpus"] != segment_K["own_gpus"]
        capped += (other & (segment_K["cap"] > 0)).sum()
    assert min(grown, shrunk, capped) > 5


class Grow(Script):
    """Resumes its job on the gang given."""

    needs = Needs(protocols=("each-slot",), levers=("resize",))

    def __init__(self, gpus):
        super().__init__([0, 3], [1])
        self.gpus, self.masks = gpus, []

    def decide(self, view, answers):
        super().decide(view, answers)
        if view.kind != ASK_RUNNING and view.now_s == 3 * HOUR_S:
            self.masks.append(view.job_J[["gpus_min", "gpus_max"]][view.asked_N[0]].tolist())
            answers.send(0, 0, gpus=self.gpus)


ELASTIC = replace(CHECKPOINT, interruptible=False, elastic=((1, 1.0), (2, 1.6), (4, 2.4)))


def runs(outcome):
    names = ("from_s", "to_s", "watts", "gpus")
    kinds = [(SEGMENT_NAMES[row["kind"]], *(float(row[name]) for name in names)) for row in outcome.segment_K]
    return [kind for kind in kinds if kind[0] in ("run", "load")]


@pytest.mark.parametrize(
    ("gpus", "taken", "speed"), [(0, 4, 1.5), (4, 4, 1.5), (3, 2, 1.0), (2, 2, 1.0), (1, 1, 0.625)]
)
def test_a_job_is_resumed_on_the_largest_gang_asked_for_that_fits(gpus, taken, speed):
    """2 of its 3 hours are left; 4 GPUs run 1.5 times as fast as its own 2, one GPU 0.625 times."""
    outcome = run(world(ELASTIC).environment(), scheduler := Grow(gpus))
    assert scheduler.masks == [(1, 4)]
    ends_s = 11190.0 + 7200.0 / speed
    assert runs(outcome) == [
        ("run", 0.0, 3600.0, 200.0, 2.0),
        ("load", 10800.0, 11190.0, pytest.approx(25.0 * taken), taken),
        ("run", 11190.0, pytest.approx(ends_s), 100.0 * taken, taken),
    ]
    ledger = settle(outcome)
    assert ledger.gpu_hours == ledger.revenue_usd == pytest.approx(6.0)  # it earns its 3 hours on 2 GPUs
    assert ledger.units == pytest.approx(3 * HOUR_S)
    bent = ledger.interruptions
    assert bent.resizes == (taken != 2)
    assert bent.slowed_gpu_hours == pytest.approx((taken / speed - 2) * 2)
    assert bent.overhead_gpu_hours == pytest.approx((2 * 120 + taken * 390) / 3600)


def test_a_smaller_gang_needs_the_slack_to_end_in_time():
    """Two hours of work take 1.2 hours longer on one GPU; 5 hours of slack leave 2 after a pause until hour 3."""
    for slack_h, fits in ((3.5, True), (3.2, False)):
        short = world(ELASTIC, LONG | {"slack_s": slack_h * HOUR_S + 390.0}).environment()
        if fits:
            assert run(short, Grow(1)).segment_K["gpus"][-1] == 1
        else:
            with pytest.raises(InfeasibleActionError, match="a gang of 1 GPUs"):
                run(short, Grow(1))


def test_only_jobs_of_one_gang_that_their_class_lists_are_resized():
    unlisted = replace(ELASTIC, interruptible=True, elastic=((1, 1.0), (4, 2.4)))
    run(world(unlisted).environment(), scheduler := Grow(0))
    assert scheduler.masks == [(2, 2)]
    run(world(ELASTIC, LONG | {"gpus_min": 1, "gpus_max": 2}).environment(), scheduler := Grow(0))
    assert scheduler.masks == [(2, 2)]


def test_schedulers_that_do_not_resize_keep_the_gang():
    class Keep(Grow):
        needs = Needs(protocols=("each-slot",), levers=("suspend",))

    run(world(replace(ELASTIC, interruptible=True)).environment(), scheduler := Keep(0))
    assert scheduler.masks == [(2, 2)]
    outcome = run(world(ELASTIC).environment(), Keep(0))
    assert outcome.segment_K is None


def test_the_rule_resumes_elastic_jobs_on_the_largest_gang():
    drawn = draw_suspension(2)
    drawn.freedoms = dict.fromkeys((0, 1), replace(ELASTIC, stop_s=0.0, dark_s=0.0, load_s=0.0))
    for row in drawn.rows:
        row["gpus_min"] = row["gpus_max"] = 1
        row["slack_s"] *= 3
    rules = (f"suspend-threshold(forecast=perfect,kept=0{more})" for more in ("", ",resizes=true"))
    resizes = [settle(run(drawn.environment(), make_scheduler(rule))).interruptions for rule in rules]
    assert resizes[0] is None
    assert resizes[1].resizes > 0


def test_a_step_wise_run_equals_a_compiled_one_and_conforms():
    check_scheduler(make_scheduler("suspend-threshold(resizes=true)"), seeds=[0])
