"""Preemption: the compiled engine against the slow oracle on random worlds, and exact worlds by hand."""

import random
from dataclasses import replace

import numpy as np
import pytest

from engine.test_against_oracles import compare_rewards, play
from engine.test_caps import CURVES, compare, compare_ends
from engine.test_resizes import Resizer
from engine.test_suspension import draw as draw_suspension
from engine.test_suspension import grow_signals, replay
from engine.test_tenants import erlang_c
from noonward.decision.brief import Needs
from noonward.engine.run import run
from noonward.evaluate.conformance import check_scheduler
from noonward.ledger.ledger import settle
from noonward.ledger.segments import DONE, SEGMENT_NAMES
from noonward.schedule.policies import make_scheduler
from noonward.units import HOUR_S
from reference import small_worlds
from reference.suspension import Freedom

WORLDS = 420
LEVERS = (("preempt",), ("suspend", "preempt"), ("suspend", "cap", "resize", "preempt"))


class Preempter(Resizer):
    """Answers at random, also about running jobs that jobs which wait may displace."""

    def __init__(self, seed, holds=0.3):
        super().__init__(seed, holds=holds)
        self.needs = Needs(levers=LEVERS[seed % 3])


def draw(seed):
    """A random world in which one class may displace the other, with a checkpoint or without notice."""
    drawn = draw_suspension(seed)
    rng = random.Random(f"{seed} preemption")
    victim = rng.randrange(2)
    base = drawn.freedoms.get(victim) or next(iter(drawn.freedoms.values()))
    caps = rng.choice(((), *CURVES))
    requeue, every_s = rng.random() < 0.6, rng.choice((0.0, 500.0, 1800.0, 3600.0))
    stated = replace(base, interruptible=not requeue, requeue=requeue, every_s=every_s, caps=caps)
    other = drawn.freedoms.get(1 - victim, Freedom(interruptible=False))
    drawn.freedoms = {victim: stated, 1 - victim: replace(other, preempts=(victim,))}
    for row in drawn.rows:
        row["slack_s"] *= rng.choice((1.0, 3.0))
    grow_signals(drawn, rng)
    return drawn


def played(seed):
    scheduler = Preempter(seed, holds=(0.1, 0.3, 0.6)[seed % 3])
    return play(draw(seed), scheduler), scheduler


def compare_whole(world, outcome, scheduler):
    """Asserts that a run's jobs, ledger, rewards and ends are those of the slow oracle under the same answers."""
    jobs, slow = replay(world, scheduler)
    compare(outcome, world, jobs, slow)
    compare_rewards(outcome, world, slow.rewards)
    compare_ends(outcome, world)


@pytest.mark.parametrize("seed", range(WORLDS))
def test_preemption_equals_the_slow_oracle(seed):
    compare_whole(draw(seed), *played(seed))


def test_the_random_worlds_hold_what_there_is_to_test():
    """Jobs killed again and again, work done again, also of runs under caps, and suspensions for jobs that wait."""
    kinds, again, capped = np.zeros(6, int), 0, 0
    for seed in range(0, WORLDS, 2):
        segment_K = played(seed)[0].segment_K
        kinds += np.bincount(segment_K["kind"], minlength=6)
        killed_J = np.bincount(segment_K["job"][segment_K["kind"] == 4])
        again += (killed_J > 1).sum()
        capped += ((segment_K["kind"] == 5) & (segment_K["cap"] > 0)).sum()
    assert (kinds > 10).all()
    assert min(again, capped) > 5


HOURLY = Freedom(interruptible=False, requeue=True, dark_s=240.0, load_s=360.0, load_power=0.25)
"""Stopped without notice; resumed from its last hourly checkpoint."""
WRITES = Freedom(stop_s=120.0, dark_s=240.0, load_s=360.0, stop_power=0.35, load_power=0.25)
"""Stopped with a checkpoint."""
BATCH = {"gpus": 2, "work": 3 * HOUR_S, "slack_s": 9 * HOUR_S}
URGENT = {"gpus": 2, "work": HOUR_S, "slack_s": HOUR_S, "arrival_s": 1.5 * HOUR_S, "class_": 1}


def test_two_priorities_with_preemption_take_as_long_as_theory_says():
    # M/M/c, preemptive-resume, equal service rates: the first class is an M/M/c of its own, and the number in the
    # system is that of an M/M/c of both, whoever is served (Gelenbe and Mitrani 1980): s W = s_1 W_1 + s_2 W_2.
    gpus, load, mean_s, count, slot_s = 3, (0.3, 0.4), 1000.0, 10_000, 4.0
    means = np.array([delays_s(gpus, load, mean_s, count, slot_s, seed) for seed in range(8)])
    first_s = erlang_c(gpus, load[0] * gpus) * mean_s / gpus / (1 - load[0])
    both_s = erlang_c(gpus, sum(load) * gpus) * mean_s / gpus / (1 - sum(load))
    expected = np.array([first_s, (sum(load) * both_s - load[0] * first_s) / load[1]])
    half_C = 5.41 * means.std(axis=0, ddof=1) / np.sqrt(len(means))  # 99.9 % of Student's t with 7 degrees of freedom
    assert (half_C < 0.3 * expected).all(), "the intervals are too wide to show anything"
    assert (np.abs(means.mean(axis=0) - expected) < half_C + 2 * slot_s).all(), (means.mean(axis=0), expected, half_C)


def delays_s(gpus, load, mean_s, count, slot_s, seed):
    """Mean time in the system less the run time, of the jobs that displace others and of those that are displaced."""
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(mean_s / (sum(load) * gpus), count))
    work = rng.exponential(mean_s, count)
    class_J = (rng.random(count) < load[0] / sum(load)).astype(int)
    free = Freedom(stop_s=0.0, dark_s=0.0, load_s=0.0)
    hours = float(np.ceil(arrival_s[-1] / HOUR_S))
    base = world(free, {"slack_s": 1e6, "work": 1e6}, gpus=gpus, window_h=hours + 600, slot_s=slot_s).environment()
    jobs = base.jobs.build(arrival_s=arrival_s, work=work, slack_s=1e6, class_=class_J)
    track = run(replace(base, jobs=jobs, window_s=hours * HOUR_S), make_scheduler("preempt-youngest")).job_J
    delay_s_J = (track["finish_s"] - arrival_s - work)[1000:]
    return [delay_s_J[class_J[1000:] == c].mean() for c in (1, 0)]


def world(victim, *jobs, gpus=2, **options):
    """A site whose jobs of class 1 may displace those of class 0, at 100 W a GPU and a price of 10 USD/MWh."""
    freedoms = {0: victim, 1: Freedom(interruptible=False, preempts=(0,))}
    more = (((0.0, 0.0, 100.0), None),)
    return small_worlds.plain([gpus], jobs, price=[[10.0]], freedoms=freedoms, more=more, **options)


def segments(outcome):
    return [(int(r["job"]), SEGMENT_NAMES[r["kind"]], float(r["from_s"]), float(r["to_s"])) for r in outcome.segment_K]


def test_a_job_that_is_stopped_without_notice_does_again_what_it_did_since_its_last_checkpoint():
    outcome = run(world(HOURLY, BATCH, URGENT).environment(), make_scheduler("preempt-youngest"))
    assert segments(outcome) == [
        (0, "run", 0.0, 3600.0),
        (0, "redo", 3600.0, 5400.0),
        (0, "kill", 5400.0, 5400.0),
        (0, "load", 9000.0, 9360.0),
        (0, "run", 9360.0, 16560.0),
    ]
    assert outcome.job_J["start_s"].tolist() == [0.0, 5400.0]
    assert outcome.job_J["status"].tolist() == [DONE, DONE]
    ledger = settle(outcome)
    assert ledger.gpu_hours == pytest.approx(2 * (3 + 1))  # what was done twice earns once
    taken = ledger.interruptions
    assert (taken.suspensions, taken.requeues) == (1, 1)
    assert taken.lost_gpu_hours == pytest.approx(2 * 0.5)
    assert taken.lost_kwh == pytest.approx(0.2 * 0.5)
    assert taken.overhead_gpu_hours == pytest.approx(2 * 0.1)
    assert taken.suspended_h == pytest.approx(1.0)
    assert ledger.job_kwh == pytest.approx(0.2 * (3 + 0.5 + 1) + 0.25 * 0.2 * 0.1)


def test_a_job_that_writes_a_checkpoint_before_it_stops_loses_nothing():
    outcome = run(world(WRITES, BATCH, URGENT).environment(), make_scheduler("preempt-youngest"))
    assert segments(outcome) == [
        (0, "run", 0.0, 5400.0),
        (0, "stop", 5400.0, 5520.0),
        (0, "load", 9120.0, 9480.0),
        (0, "run", 9480.0, 14880.0),
    ]
    assert outcome.job_J["start_s"][1] == 5520.0  # in the slot in which the checkpoint is written
    assert settle(outcome).interruptions.lost_gpu_hours == 0.0


@pytest.mark.parametrize(
    ("victim", "job", "urgent"),
    [
        pytest.param(replace(HOURLY, min_run_s=3 * HOUR_S), {}, {}, id="it has not run for min_run_s"),
        pytest.param(replace(HOURLY, most_suspensions=0), {}, {}, id="it was stopped as often as it may be"),
        pytest.param(HOURLY, {"slack_s": 0.5 * HOUR_S + 599.0}, {"slack_s": 600.0}, id="it could not be back in time"),
        pytest.param(HOURLY, {"class_": 1}, {}, id="its class may not be displaced"),
        pytest.param(HOURLY, {}, {"class_": 0}, id="the other may displace none"),
        pytest.param(HOURLY, {"gpus": 1}, {"gpus": 1}, id="there is room"),
    ],
)
def test_a_job_runs_on_if(victim, job, urgent):
    outcome = run(world(victim, BATCH | job, URGENT | urgent).environment(), make_scheduler("preempt-youngest"))
    assert len(outcome.segment_K) == 0


def test_a_job_is_stopped_if_it_can_be_back_just_in_time():
    """Half an hour done again, dark for 240 s, until the next slot of 60 s: 240 s; and a load of 360 s."""
    job = BATCH | {"slack_s": 0.5 * HOUR_S + 240.0 + 360.0}
    outcome = run(world(HOURLY, job, URGENT | {"work": 240.0}).environment(), make_scheduler("preempt-youngest"))
    assert [kind for _, kind, *_ in segments(outcome)] == ["run", "redo", "kill", "load", "run"]
    assert outcome.job_J["status"].tolist() == [DONE, DONE]


def test_a_job_that_writes_no_periodic_checkpoints_begins_again():
    outcome = run(world(replace(HOURLY, every_s=0.0), BATCH, URGENT).environment(), make_scheduler("preempt-youngest"))
    assert [(kind, to_s - from_s) for _, kind, from_s, to_s in segments(outcome)] == [
        ("redo", 5400.0), ("kill", 0.0), ("load", 360.0), ("run", 3 * HOUR_S),
    ]  # fmt: skip


def test_the_order_of_victims_is_that_of_the_policy():
    """Job 0 wrote a checkpoint 20 minutes ago, job 1, the younger, 50 minutes ago; each has the GPUs that are asked."""
    jobs = (BATCH, BATCH | {"arrival_s": 1800.0}, URGENT | {"arrival_s": 4800.0})
    victims = {}
    for name in ("preempt", "preempt-youngest"):
        outcome = run(world(HOURLY, *jobs, gpus=4).environment(), make_scheduler(name))
        victims[name] = {job for job, kind, *_ in segments(outcome) if kind == "kill"}
    assert victims == {"preempt": {0}, "preempt-youngest": {1}}


def test_a_job_that_might_not_be_back_in_time_is_stopped_last():
    """Job 0 has run longer without a checkpoint, but job 1 has less slack than the urgent job runs."""
    jobs = (BATCH, BATCH | {"arrival_s": 1800.0, "slack_s": 0.8 * HOUR_S}, URGENT | {"arrival_s": 6600.0})
    slack = [60.0, 9 * HOUR_S]
    for first in (0, 1):
        told = [job | {"slack_s": slack[first] + HOUR_S if n == 1 else 9 * HOUR_S} for n, job in enumerate(jobs[:2])]
        outcome = run(world(HOURLY, *told, jobs[2], gpus=4).environment(), make_scheduler("preempt"))
        assert {job for job, kind, *_ in segments(outcome) if kind == "kill"} == {first}
        assert (outcome.job_J["status"] == DONE).all()


@pytest.mark.parametrize(("run_s", "stopped"), [(0.75 * HOUR_S, True), (0.71 * HOUR_S, False)])
def test_no_job_is_stopped_at_a_cost_above_what_the_other_earns(run_s, stopped):
    """At 1 USD per GPU-hour: half an hour done again, a load of six minutes, and of 1.5 h the share run_s / 8.33 h."""
    made = world(HOURLY, BATCH, URGENT | {"work": run_s, "slack_s": 600.0})
    made.extra["price"] = [[0.0] * len(made.extra["price"][0])]
    outcome = run(made.environment(), make_scheduler("preempt"))
    assert (outcome.suspensions_J[0] == 1) == stopped


def test_no_other_job_takes_the_gpus_that_are_claimed():
    """A job of class 0 that arrived before the urgent one waits while the victim writes its checkpoint."""
    early = BATCH | {"arrival_s": 1.4 * HOUR_S, "work": 600.0}
    outcome = run(world(WRITES, BATCH, early, URGENT).environment(), make_scheduler("preempt-youngest"))
    assert outcome.job_J["start_s"].tolist() == [0.0, 9120.0, 5520.0]


def test_schedulers_without_the_lever_are_not_asked():
    made = world(HOURLY, BATCH, URGENT)
    rigid = replace(made, freedoms={})
    one, other = (run(each.environment(), make_scheduler("local-backfill")) for each in (made, rigid))
    assert one.tobytes() == other.tobytes()


def test_a_step_wise_run_equals_a_compiled_one_and_conforms():
    check_scheduler("preempt", seeds=[0])  # tests/evaluate/test_conformance.py checks preempt-youngest
