"""Power caps: the compiled engine against the slow oracle on random worlds, and exact worlds by hand."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from engine.test_against_oracles import STATUS, compare_rewards, play
from engine.test_suspension import CLOSE, LONG, Breaker, replay, world
from engine.test_suspension import draw as draw_suspension
from noonward.decision.brief import Needs
from noonward.decision.cluster.feasibility import is_suspended
from noonward.decision.cluster.lives import may_cap, may_start_capped
from noonward.decision.cluster.view import ASK_RUNNING
from noonward.decision.scheduler import Scheduler
from noonward.engine.run import run
from noonward.errors import InfeasibleActionError, ScenarioError
from noonward.evaluate.conformance import check_scheduler
from noonward.ledger.ledger import settle
from noonward.ledger.record import read_record, write_record
from noonward.ledger.segments import SEGMENT_NAMES
from noonward.schedule.policies import make_scheduler
from noonward.units import HOUR_S
from reference.suspension import Freedom

WORLDS = 420
CURVES = (
    ((0.7, 0.85), (0.4, 0.5)),
    ((0.5, 0.8),),
    ((0.9, 1.0), (0.6, 0.75), (0.3, 0.1)),
)


class Capper(Breaker):
    """Answers at random, also about running jobs: suspends, caps, lifts or keeps."""

    def __init__(self, seed, holds=0.3):
        super().__init__(seed, holds=holds)
        self.needs = Needs(levers=("suspend", "cap"))

    def decide(self, view, answers):
        if view.kind != ASK_RUNNING:
            super().decide(view, answers)
            for site, job in view.asked():
                own = answers.answer_N[site]["choice"] == 1 + site
                resized = is_suspended(view, job) and view.freedom_C["gangs"][view.job_J["class_"][job]] > 0
                if own and not resized and may_start_capped(view, job, site, 8) and self.rng.random() < 0.5:
                    answers.answer_N[site]["cap"] = self.some_cap(view, job)
            entry = list(self.log[-1])
            entry[5] = [tuple(answer.tolist()) for answer in answers.answer_N]
            self.log[-1] = tuple(entry)
            return
        said = [None] * len(view.asked_N)
        for site, job in view.asked():
            choices = [
                None,
                *(["suspend"] if view.allowed(site, site) else []),
                *(["cap"] if may_cap(view, job) else []),
            ]
            said[site] = self.rng.choice(choices[1:]) if self.rng.random() < self.breaks else None
            if said[site] == "suspend":
                answers.suspend(site)
            elif said[site] == "cap":
                said[site] = self.some_cap(view, job)
                answers.cap(site, said[site])
        mask = view.mask_NA.tolist()
        self.log.append((view.kind, view.now_s, view.serial_N.tolist(), mask, view.site_S.copy(), said))

    def some_cap(self, view, job):
        return self.rng.randint(0, int(view.freedom_C["caps"][view.job_J["class_"][job]]))


def draw(seed):
    """A random world whose classes, one or both, may be capped; some may be suspended, too."""
    drawn = draw_suspension(seed)
    rng = random.Random(f"{seed} caps")
    for c in (0, 1):
        base = drawn.freedoms.get(c, Freedom(interruptible=False))
        if rng.random() < 0.8:
            drawn.freedoms[c] = replace(base, caps=rng.choice(CURVES))
    return drawn


def compare(outcome, world, jobs, run):
    """All jobs, stretches and meters; caps make times that two ways of adding up differ in by their last digits."""
    assert [STATUS[status] for status in outcome.job_J["status"]] == [job.status for job in jobs]
    for name in ("reach_s", "start_s", "finish_s"):
        np.testing.assert_allclose(outcome.job_J[name], [getattr(job, name) for job in jobs], rtol=1e-12, err_msg=name)
    noted = set(outcome.segment_K["job"].tolist())
    found = {
        (int(r["job"]), SEGMENT_NAMES[r["kind"]], round(float(r["from_s"]), 5)): (
            round(float(r["to_s"]), 5),
            int(r["gpus"]),
            pytest.approx(float(r["rate"])),
            pytest.approx(float(r["watts"])),
        )
        for r in outcome.segment_K
        if r["from_s"] < outcome.ended_s
    }
    expected = {
        (x.job.index, x.kind, round(x.begin_s, 5)): (
            round(x.end_s, 5),
            x.gpus,
            x.rate,
            x.watts * world.sites[x.site].pue,
        )
        for x in run.stretches
        if x.job.index in noted and x.begin_s < outcome.ended_s
    }
    assert found == expected
    bent = {
        x.job.index for x in run.stretches if x.capped or x.kind in ("stop", "load", "lost", "kill", "crash", "fail")
    }
    assert bent <= noted
    compare_meters(outcome, world, run)


def compare_meters(outcome, world, run):
    """The engine's meters with the oracle's and with the ledger's (double entry)."""
    meters, ledger, settled = outcome.meters, run.ledger, settle(outcome)
    taken, kinds = settled.interruptions, ("kwh", "usd", "kg") if world.price is not None else ("kwh",)
    for s in range(len(world.sites)):
        for kind in kinds:
            assert getattr(meters, f"busy_{kind}_S")[s] == pytest.approx(ledger.busy[s][kind], **CLOSE)
            assert getattr(meters, f"free_{kind}_S")[s] == pytest.approx(ledger.free[s][kind], **CLOSE)
            assert getattr(meters, f"overhead_{kind}_S")[s] == pytest.approx(ledger.overhead[s][kind], **CLOSE)
    useful_gpu_s = sum(account["gpu_s"] for account in ledger.busy)
    assert meters.gpu_s_S.sum() - meters.lost_gpu_s == pytest.approx(useful_gpu_s, **CLOSE)
    assert settled.gpu_hours * 3600 == pytest.approx(useful_gpu_s, **CLOSE)
    assert meters.busy_kwh_S.sum() == pytest.approx(settled.job_kwh, **CLOSE)
    assert meters.lost_gpu_s == pytest.approx(3600 * taken.lost_gpu_hours, **CLOSE)
    for name in ("capped_gpu_s", "slowed_gpu_s"):
        assert getattr(meters, f"{name}_S").sum() == pytest.approx(getattr(ledger, name), **CLOSE)
        assert 3600 * getattr(taken, name.replace("gpu_s", "gpu_hours")) == pytest.approx(
            getattr(ledger, name), **CLOSE
        )
    assert settled.late_gpu_hours == pytest.approx(ledger.late_gpu_h, **CLOSE)
    if world.price is not None:
        assert meters.utility_usd == pytest.approx(settled.utility_usd, **CLOSE)


def compare_ends(outcome, world):
    """No job that is capped or suspended, and not allowed to be late, ends later than it may."""
    environment, job_J = outcome.environment, outcome.job_J
    tables, own_J = environment.fleet.tables(8), job_J["gpus"].copy()
    own_J[outcome.segment_K["job"]] = outcome.segment_K["own_gpus"]
    for j in sorted(set(outcome.segment_K["job"].tolist())):
        if world.late_until_s > -math.inf or math.isnan(job_J["finish_s"][j]):
            continue
        s, c = job_J["site"][j], environment.jobs.class_J[j]
        run_s = environment.jobs.work_J[j] * tables.seconds_per_unit_SCGF[s, c, own_J[j], job_J["level"][j]]
        latest_s = environment.jobs.arrival_s_J[j] + environment.jobs.slack_s_J[j] + run_s
        assert job_J["finish_s"][j] <= latest_s + 1e-6


@pytest.mark.parametrize("seed", range(WORLDS))
def test_caps_equal_the_slow_oracle(seed):
    world = draw(seed)
    scheduler = Capper(seed, holds=(0.1, 0.5, 0.9)[seed % 3])
    outcome = play(world, scheduler)
    jobs, slow = replay(world, scheduler)
    compare(outcome, world, jobs, slow)
    compare_rewards(outcome, world, slow.rewards)
    compare_ends(outcome, world)


def test_the_random_worlds_hold_what_there_is_to_test():
    """Caps at starts, of running jobs and after resumptions, changes of caps, lifts, and capped runs that are lost."""
    capped = lifted = lost = suspended = changed = 0
    for seed in range(0, WORLDS, 2):  # capped runs are lost in few worlds: room is kept
        segment_K = play(draw(seed), Capper(seed, holds=(0.1, 0.5, 0.9)[seed % 3])).segment_K
        follows = (segment_K["job"][1:] == segment_K["job"][:-1]) & (segment_K["from_s"][1:] == segment_K["to_s"][:-1])
        before, after = segment_K[:-1][follows], segment_K[1:][follows]
        capped += (segment_K["cap"] > 0).sum()
        changed += ((before["cap"] > 0) & (after["cap"] > 0)).sum()
        lifted += ((before["cap"] > 0) & (after["cap"] == 0) & (after["from_s"] % 60 > 0)).sum()
        lost += ((segment_K["kind"] == 3) & (segment_K["cap"] > 0)).sum()
        suspended += ((before["cap"] > 0) & (after["kind"] == 1)).sum()
    assert min(capped, lifted, suspended, changed) > 20
    assert lost > 0


class Caps(Scheduler):
    """Starts its job at once under the cap of hour 0, and runs it on under the cap given for each later hour."""

    needs = Needs(protocols=("each-slot",), levers=("cap",))

    def __init__(self, **caps_h):
        self.caps_h = {int(name[1:]): cap for name, cap in caps_h.items()}
        self.asked = []

    def decide(self, view, answers):
        hour = int(view.now_s // HOUR_S)
        if view.kind != ASK_RUNNING:
            answers.send(0, 0, cap=self.caps_h.get(0, -1))
            return
        self.asked.append((hour, int(view.mask_NA[0, 1])))
        if hour in self.caps_h:
            answers.cap(0, self.caps_h[hour])


CAPPED = Freedom(interruptible=False, caps=((0.7, 0.8), (0.4, 0.5)))


def segments(outcome):
    names = ("from_s", "to_s", "watts", "rate", "units")
    return [tuple(float(row[name]) for name in names) for row in outcome.segment_K]


def test_a_capped_job_is_settled_stretch_by_stretch():
    """3 hours of work: an hour at full power, two at half speed, the last hour at full power again."""
    outcome = run(world(CAPPED).environment(), scheduler := Caps(h1=2, h3=0))
    assert scheduler.asked == [(1, 0), (2, 0), (3, 0)]
    assert segments(outcome) == [
        (0.0, 3600.0, 200.0, 1.0, 3600.0),
        (3600.0, 10800.0, 80.0, 0.5, 3600.0),
        (10800.0, 14400.0, 200.0, 1.0, 3600.0),
    ]
    assert outcome.job_J["finish_s"].tolist() == [14400.0]
    ledger = settle(outcome)
    assert ledger.gpu_hours == ledger.revenue_usd == pytest.approx(6.0)  # it earns its 3 hours on 2 GPUs
    assert ledger.job_energy_usd == pytest.approx((10 * 200 + (20 + 30) * 80 + 40 * 200) * 1e-6)
    assert ledger.units == pytest.approx(3 * HOUR_S)
    taken = ledger.interruptions
    assert (taken.suspensions, taken.overhead_gpu_hours) == (0, 0.0)
    assert (taken.capped_gpu_hours, taken.slowed_gpu_hours) == (pytest.approx(4.0), pytest.approx(2.0))


def test_a_job_may_start_under_a_cap():
    outcome = run(world(CAPPED).environment(), Caps(h0=1))
    assert segments(outcome) == [(0.0, 13500.0, pytest.approx(140.0), 0.8, 10800.0)]


def test_a_cap_is_lifted_when_the_slack_is_used_up():
    """Half an hour of slack lasts for an hour at half speed; no later cap is then asked about."""
    outcome = run(world(CAPPED, LONG | {"slack_s": 1800.0}).environment(), scheduler := Caps(h1=2))
    assert segments(outcome) == [
        (0.0, 3600.0, 200.0, 1.0, 3600.0),
        (3600.0, 7200.0, 80.0, 0.5, 1800.0),
        (7200.0, 12600.0, 200.0, 1.0, 5400.0),
    ]
    assert scheduler.asked == [(1, 0)]


def test_where_a_cap_takes_no_throughput_it_lasts():
    free = Freedom(interruptible=False, caps=((0.9, 1.0),))
    outcome = run(world(free, LONG | {"slack_s": 2.0}).environment(), Caps(h0=1))
    assert segments(outcome) == [(0.0, 10800.0, pytest.approx(180.0), 1.0, 10800.0)]
    taken = settle(outcome).interruptions
    assert (taken.capped_gpu_hours, taken.slowed_gpu_hours) == (pytest.approx(6.0), 0.0)


@pytest.mark.parametrize(
    ("caps", "slack_s", "message"),
    [
        ({"h1": 3}, 5 * HOUR_S, r"power cap 3; its class has caps 0 \(full power\) to 2"),
        ({"h0": 3}, 5 * HOUR_S, "power cap 3"),
        ({"h0": 1}, 0.0, "power cap 1"),
        ({"h0": -2}, 5 * HOUR_S, "power cap -2"),
        ({"h1": -2}, 5 * HOUR_S, "power cap -2"),
    ],
)
def test_only_caps_of_the_class_for_jobs_with_slack_are_answers(caps, slack_s, message):
    with pytest.raises(InfeasibleActionError, match=message):
        run(world(CAPPED, LONG | {"slack_s": slack_s}).environment(), Caps(**caps))


def test_a_suspension_takes_no_cap_and_protocol_on_arrival_none():
    class Both(Caps):
        needs = Needs(protocols=("each-slot",), levers=("suspend", "cap"))

        def decide(self, view, answers):
            answers.send(0, 0, cap=1)

    freedom = replace(CAPPED, interruptible=True)
    with pytest.raises(InfeasibleActionError, match="power cap 1"):
        run(world(freedom).environment(), Both())

    class Arrival(Caps):
        needs = Needs(protocols=("on-arrival",))

    with pytest.raises(InfeasibleActionError, match="power cap 1"):
        run(world(Freedom(), protocol="on-arrival").environment(), Arrival(h0=1))
    displaces = type("A", (Caps,), {"needs": Needs(levers=("preempt",))})()
    with pytest.raises(ScenarioError, match="would preempt running jobs, which protocol on-arrival has no answer for"):
        run(world(CAPPED, protocol="on-arrival").environment(), displaces)


def test_schedulers_are_asked_about_what_they_want_alone():
    """Who only caps never sees a job that may only be suspended, and the other way round."""

    class Asked(Breaker):
        def __init__(self, *levers):
            super().__init__(0, holds=0.1)
            self.needs, self.classes = Needs(levers=levers), set()

        def decide(self, view, answers):
            if view.kind == ASK_RUNNING:
                self.classes |= {int(view.job_J["class_"][job]) for _, job in view.asked()}
            else:
                super().decide(view, answers)

    for levers, classes in ((("cap",), {1}), (("suspend",), {0}), (("cap", "suspend"), {0, 1})):
        scheduler = Asked(*levers)
        for seed in range(6):
            drawn = draw_suspension(seed)
            drawn.freedoms = {0: Freedom(), 1: CAPPED}
            run(drawn.environment(), scheduler)
        assert scheduler.classes == classes


def test_run_times_that_are_not_told_are_done_to_the_end():
    """Jobs run on beyond what is expected of them, also under caps: each does its work, no more."""
    outcome, environment = _guessed()
    done = outcome.job_J["status"] == 4
    capped = np.isin(np.arange(len(done)), outcome.segment_K["job"][outcome.segment_K["cap"] > 0])
    assert (done & capped).sum() > 5
    np.testing.assert_allclose(outcome.units_J[done], environment.jobs.work_J[done], rtol=1e-9)
    useful_s_J = np.bincount(
        outcome.power.job_K, (outcome.power.to_s_K - outcome.power.from_s_K) * outcome.power.rate_K, minlength=len(done)
    )
    np.testing.assert_allclose(useful_s_J[done], environment.jobs.work_J[done], rtol=1e-9)


def _guessed():
    from noonward.data.environments import build_environment
    from noonward.data.scenarios.load import load_scenario

    settings = [
        "fleet.freedoms={fine-tuning: {caps: emerald-a100-fine-tuning}}", "jobs.slack_ratio=2",
        "jobs.knowledge.run_time=class-mean", "window_h=48", "jobs.count=60", "jobs.demand=0.4",
    ]  # fmt: skip
    environment = build_environment(load_scenario("tiny", settings))
    policy = "cap-threshold(kept=0)"
    outcome = run(environment, make_scheduler(policy))
    assert outcome.tobytes() == run(environment, make_scheduler(policy), compiled=False).tobytes()
    return outcome, environment


def test_the_record_holds_what_caps_took(tmp_path):
    outcome = run(world(CAPPED).environment(), Caps(h1=2, h3=0))
    record = write_record(outcome, tmp_path / "run", policy="caps", seed=0, scenario_digest="0")
    assert read_record(tmp_path / "run").ledger == record.ledger == settle(outcome)
    assert record.segments["throughput"].to_list() == [1.0, 0.5, 1.0]
    row = record.jobs.row(0, named=True)
    assert (row["suspensions"], row["slowed_gpu_hours"]) == (0, pytest.approx(2.0))
    assert row["units_per_s"] == pytest.approx(0.75)
    assert record.hours["busy_gpu_hours"].sum() == pytest.approx(8.0)  # GPUs are held for all 4 hours


def test_a_step_wise_run_equals_a_compiled_one_and_conforms():
    check_scheduler("cap-threshold", seeds=[0])


def test_the_least_power_says_which_cap_the_rule_uses():
    def caps(arguments):
        drawn = draw_suspension(2)
        drawn.freedoms = dict.fromkeys((0, 1), replace(CAPPED, caps=((0.7, 0.8), (0.4, 0.5))))
        outcome = run(drawn.environment(), make_scheduler(f"cap-threshold(forecast=perfect,kept=0{arguments})"))
        return set(outcome.segment_K["cap"].tolist())

    assert caps(",power=0.9") == set()
    assert caps("") == {0, 1}
    assert caps(",power=0.4") == {0, 2}
