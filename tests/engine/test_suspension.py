"""Suspension: the compiled engine against the slow oracle on random worlds, and exact worlds by hand."""

import random
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from engine.test_against_oracles import Wanderer, compare_jobs, compare_rewards, play
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Needs
from noonward.decision.cluster.view import ASK_RUNNING, LIFE
from noonward.decision.scheduler import Scheduler
from noonward.engine.run import run
from noonward.errors import InfeasibleActionError, ScenarioError
from noonward.evaluate.conformance import check_scheduler
from noonward.ledger.interruptions import Interruptions
from noonward.ledger.ledger import settle
from noonward.ledger.record import write_record
from noonward.ledger.segments import DONE, OVERDUE, SEGMENT_NAMES
from noonward.ledger.service import measure_service
from noonward.model.cluster.freedom import FREEDOM, Lever
from noonward.schedule.policies import make_scheduler
from noonward.units import HOUR_S
from reference import small_worlds, suspension

WORLDS = 420
DOCS = Path(__file__).parents[2] / "docs"
CLOSE = {"rel": 1e-9, "abs": 1e-9}


class Breaker(Wanderer):
    """Answers at random, also about running jobs."""

    def __init__(self, seed, holds=0.3):
        super().__init__(seed, holds=holds)
        self.needs = Needs(levers=("suspend",), freed=seed % 2 == 1)
        self.breaks = self.rng.choice((0.2, 0.5, 0.9))

    def decide(self, view, answers):
        if view.kind != ASK_RUNNING:
            super().decide(view, answers)
            return
        said = [None] * len(view.asked_N)
        for site, _ in view.asked():
            if self.rng.random() < self.breaks:
                said[site] = "suspend"
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
        row["slack_s"] *= rng.choice((1.0, 4.0, 10.0))
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
        for name in ("free", "waiting", "claimed"):
            assert sites[name].tolist() == getattr(question, name), name
        if about_running:
            for s, job in enumerate(asked):
                expected = [0] * len(mask[s])
                if job >= 0:
                    expected[0], expected[1 + s] = 1, int(question.may_suspend[s])
                assert mask[s] == expected
            return answers
        for s, row in enumerate(question.mask):
            assert row is None or mask[s] == [int(good) for good in row], (now_s, s)
        return [(choice, gpus, level, cap) for choice, gpus, level, _, cap in answers]

    jobs = world.jobs()
    ledger = suspension.SegmentLedger(*world.ledger_arguments())
    hours = len(world.price[0]) if world.price is not None else 0
    levers = scheduler.needs.levers
    run = suspension.simulate(
        world.plant(), jobs, answer, ledger, world.freedoms, hours, levers=levers, failures=world.failures,
        freed=scheduler.needs.freed,
    )  # fmt: skip
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
        (x.job.index, x.kind, x.begin_s, x.end_s, x.job.gpus, x.site)
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


@pytest.mark.parametrize("seed", range(40))
def test_meters_equal_the_ledger_where_gpus_are_withheld(seed):
    """Jobs that stop or load hold GPUs that are withheld meanwhile."""
    world = small_worlds.withholding(draw(seed), seed)
    outcome = play(world, Breaker(seed, holds=0.1))
    ledger = settle(outcome)
    assert outcome.meters.busy_kwh_S.sum() == pytest.approx(ledger.job_kwh, **CLOSE)
    assert outcome.meters.free_kwh_S.sum() == pytest.approx(ledger.free_kwh, **CLOSE)
    if world.price is not None:
        assert outcome.meters.utility_usd == pytest.approx(ledger.utility_usd, **CLOSE)


def test_the_random_worlds_hold_what_there_is_to_test():
    """Suspensions again and again, lost work, late resumptions, and every kind of segment."""
    kinds, most, late_h = np.zeros(4, int), 0, 0.0
    for seed in range(0, WORLDS, 8):
        outcome = play(draw(seed), Breaker(seed, holds=(0.1, 0.5, 0.9)[seed % 3]))
        kinds += np.bincount(outcome.segment_K["kind"], minlength=4)
        most = max(most, outcome.suspensions_J.max())
        late_h += settle(outcome).late_gpu_hours
    assert (kinds > (20, 20, 20, 5)).all()  # little is lost, for room is kept
    assert most >= 3
    assert late_h > 0


class Script(Scheduler):
    """Starts and resumes its job at the hours given first, and suspends it at those given second."""

    needs = Needs(protocols=("each-slot",), levers=("suspend",))

    def __init__(self, starts_h, stops_h):
        self.starts_s, self.stops_s = ([hour * HOUR_S for hour in hours] for hours in (starts_h, stops_h))
        self.asked = []

    def decide(self, view, answers):
        if view.kind == ASK_RUNNING:
            self.asked.append(view.now_s / HOUR_S)
            if view.now_s in self.stops_s:
                answers.suspend(0)
        elif view.now_s in self.starts_s:
            answers.send(0, 0)


CHECKPOINT = suspension.Freedom(stop_s=120.0, dark_s=240.0, load_s=390.0, stop_power=0.35, load_power=0.25)
LONG = {"gpus": 2, "work": 3 * HOUR_S, "slack_s": 5 * HOUR_S}


def world(freedom=CHECKPOINT, job=LONG, **options):
    """A site of 4 GPUs of 100 W whose price is 10, 20, 30... USD/MWh in the first hours, and one job of 2 GPUs."""
    price = [[10.0 * (hour + 1) for hour in range(9)]]
    return small_worlds.plain([4], [job], price=price, freedoms={0: freedom}, **options)


def test_a_suspended_job_is_settled_stretch_by_stretch():
    outcome = run(world().environment(), Script([0, 3], [1]))
    found = [
        (SEGMENT_NAMES[r["kind"]], float(r["from_s"]), float(r["to_s"]), float(r["watts"])) for r in outcome.segment_K
    ]
    assert found == [
        ("run", 0.0, 3600.0, 200.0),
        ("stop", 3600.0, 3720.0, 70.0),
        ("load", 10800.0, 11190.0, 50.0),
        ("run", 11190.0, 18390.0, 200.0),
    ]
    assert outcome.job_J["status"].tolist() == [DONE]
    assert (outcome.job_J["start_s"][0], outcome.job_J["finish_s"][0]) == (0.0, 18390.0)
    ledger = settle(outcome)
    assert ledger.gpu_hours == pytest.approx(6.0)  # 2 GPUs for its 3 hours of work
    assert ledger.revenue_usd == pytest.approx(6.0)  # at 1 USD per GPU-hour: stop and load earn nothing
    run_usd = (1 * 10 + (3600 - 390) / 3600 * 40 + 1 * 50 + 390 / 3600 * 60) * 200e-6
    stop_usd, load_usd = 120 / 3600 * 20 * 70e-6, 390 / 3600 * 40 * 50e-6
    assert ledger.job_energy_usd == pytest.approx(run_usd + stop_usd + load_usd)
    taken = ledger.interruptions
    assert (taken.suspensions, taken.suspended_h) == (1, pytest.approx((10800 - 3720) / 3600))
    assert taken.overhead_gpu_hours == pytest.approx(2 * 510 / 3600)
    assert taken.overhead_kwh == pytest.approx((120 * 70 + 390 * 50) / 3.6e6)
    assert taken.overhead_usd == pytest.approx(stop_usd + load_usd)
    assert taken.lost_gpu_hours == taken.lost_kwh == 0.0
    assert ledger.units == pytest.approx(3 * HOUR_S)
    assert measure_service(outcome).sites["site0"].peak_power_w == pytest.approx(200.0)


def test_schedulers_are_asked_when_an_hour_begins_and_as_often_as_the_class_allows():
    freedom = replace(CHECKPOINT, most_suspensions=1)
    scheduler = Script([0, 2], [1])
    run(world(freedom).environment(), scheduler)
    assert scheduler.asked == [1.0]
    scheduler = Script([0.5], [])
    run(world().environment(), scheduler)
    assert scheduler.asked == [1.0, 2.0, 3.0]
    scheduler = Script([0.5], [])
    run(world(replace(CHECKPOINT, min_run_s=1801.0)).environment(), scheduler)
    assert scheduler.asked == [2.0, 3.0]


@pytest.mark.parametrize(("slack_s", "asked"), [(720.0 + 390.0, True), (719.0 + 390.0, False)])
def test_a_job_is_not_suspended_where_it_could_not_be_resumed_in_time(slack_s, asked):
    """Stop, darkness and the wait for the next slot of 360 s take 720 s at most; the load of 390 s counts too."""
    scheduler = Script([0], [1])
    outcome = run(world(job=LONG | {"slack_s": slack_s}, slot_s=720.0).environment(), scheduler)
    assert (1.0 in scheduler.asked) == asked
    assert outcome.suspensions_J.tolist() == [int(asked)]


def test_a_job_that_is_not_resumed_in_time_is_dropped_and_its_work_is_lost():
    outcome = run(world().environment(), Script([0], [1]))
    assert outcome.job_J["status"].tolist() == [OVERDUE]
    ledger = settle(outcome)
    assert (ledger.gpu_hours, ledger.revenue_usd, ledger.units, ledger.overdue) == (0.0, 0.0, 0.0, 1)
    assert ledger.interruptions.lost_gpu_hours == pytest.approx(2.0)
    assert ledger.interruptions.lost_kwh == pytest.approx(0.2)
    assert ledger.job_kwh == pytest.approx(0.2 + 120 * 70 / 3.6e6)


def test_a_late_resumption_pays_what_has_not_been_paid():
    """Slack 1 h, started 2 h after arrival, 1 h late; stopped an hour later, for 3 h."""
    late = {"late_until_s": 20 * HOUR_S, "late_usd": 0.5}
    outcome = run(
        world(replace(CHECKPOINT, load_s=0.0), LONG | {"slack_s": HOUR_S}, **late).environment(), Script([2, 6], [3])
    )
    ledger = settle(outcome)
    assert ledger.late_gpu_hours == pytest.approx(2 * (1 + 3))
    assert ledger.late_usd == outcome.meters.late_usd == pytest.approx(0.5 * 8)


def test_schedulers_that_do_not_ask_for_it_are_not_asked():
    bound, free = world(), world()
    bound.freedoms = {}
    for name in ("local-fcfs", "patient"):
        one, other = (run(each.environment(), make_scheduler(name)) for each in (bound, free))
        assert one.tobytes() == other.tobytes()
        assert other.segment_K is None
        assert "interruptions" not in settle(other).as_dict()


def test_a_scheduler_that_wants_to_be_asked_runs_where_nothing_may_be_suspended():
    rigid = world()
    rigid.freedoms = {}
    outcome = run(rigid.environment(), scheduler := Script([0], [1]))
    assert scheduler.asked == []
    assert outcome.segment_K is None
    assert outcome.job_J["finish_s"].tolist() == [3 * HOUR_S]


def test_only_the_own_site_is_an_answer_about_a_running_job():
    class Sender(Script):
        def decide(self, view, answers):
            answers.send(0, 1 if view.kind == ASK_RUNNING else 0)

    two = small_worlds.plain([4, 4], [LONG], price=[[10.0], [10.0]], freedoms={0: CHECKPOINT})
    with pytest.raises(InfeasibleActionError, match=r"choice 2 \(site1\); feasible now: hold, site0"):
        run(two.environment(), Sender([], []))


def test_a_suspended_job_does_not_move():
    class Seen(Script):
        masks = ()

        def decide(self, view, answers):
            super().decide(view, answers)
            if view.kind != ASK_RUNNING and view.now_s >= 2 * HOUR_S:
                self.masks = (*self.masks, view.mask_NA[0].tolist())

    two = small_worlds.plain([4, 4], [LONG], price=[[10.0], [10.0]], freedoms={0: CHECKPOINT})
    run(two.environment(), scheduler := Seen([0, 3], [1]))
    assert set(map(tuple, scheduler.masks)) == {(1, 1, 0)}


def test_run_times_that_are_not_told_are_done_to_the_end():
    """Jobs run on beyond what is expected of them, also after a suspension: each does its work, no more."""
    settings = [
        "fleet.freedoms={fine-tuning: {interruptible: true}}", "jobs.slack_ratio=8",
        "jobs.knowledge.run_time=class-mean", "window_h=48", "jobs.count=60", "jobs.demand=0.4",
    ]  # fmt: skip
    environment = build_environment(load_scenario("tiny", settings))
    policy = "suspend-threshold(kept=0.1)"
    outcome = run(environment, make_scheduler(policy))
    assert outcome.tobytes() == run(environment, make_scheduler(policy), compiled=False).tobytes()
    done = outcome.job_J["status"] == DONE
    assert (outcome.suspensions_J[done] > 0).sum() > 5
    np.testing.assert_allclose(outcome.units_J[done], environment.jobs.work_J[done], rtol=1e-9)
    run_s_J = np.bincount(outcome.power.job_K, outcome.power.to_s_K - outcome.power.from_s_K, minlength=len(done))
    np.testing.assert_allclose(run_s_J[done], environment.jobs.work_J[done], rtol=1e-9)


def test_what_cannot_be_asked_about_is_refused():
    freedoms = "fleet.freedoms={fine-tuning: {interruptible: true}}"
    told = build_environment(load_scenario("tiny", [freedoms, "jobs.knowledge.run_time=learned", "jobs.count=60"]))
    with pytest.raises(ScenarioError, match="run times are learned as jobs end, from unbroken runs"):
        run(told, Script([0], []))


def test_the_record_holds_segments_and_what_they_took(tmp_path):
    outcome = run(world().environment(), Script([0, 3], [1]))
    record = write_record(outcome, tmp_path / "run", policy="script", seed=0, scenario_digest="0")
    assert record.ledger == settle(outcome)
    assert record.segments["kind"].to_list() == ["run", "stop", "load", "run"]
    row = record.jobs.row(0, named=True)
    assert (row["suspensions"], row["lost_gpu_hours"], row["units_per_s"]) == (1, 0.0, pytest.approx(1.0))
    assert row["overhead_gpu_hours"] == pytest.approx(2 * 510 / 3600)
    assert record.hours["busy_gpu_hours"].sum() == pytest.approx(6.0 + 2 * 510 / 3600)
    rigid = world()
    rigid.freedoms = {}
    plain = write_record(
        run(rigid.environment(), Script([0], [])), tmp_path / "plain", policy="script", seed=0, scenario_digest="0"
    )
    assert plain.segments is None
    assert "suspensions" not in plain.jobs.columns


def test_a_step_wise_run_equals_a_compiled_one_and_conforms():
    check_scheduler("suspend-threshold", seeds=[0])


def test_the_page_names_all_fields():
    """What a scheduler reads of running jobs, what a record holds of them, and the levers."""
    page = DOCS.joinpath("suspension.md").read_text()
    named = [*FREEDOM.names, *LIFE.names, *(one.name for one in fields(Interruptions)), *get_args(Lever)]
    assert [name for name in named if f"`{name}`" not in page] == []
