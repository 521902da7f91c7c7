"""Failures: the compiled engine against the slow oracle on random worlds, a closed form, and exact worlds by hand."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from engine.test_against_oracles import play
from engine.test_preemption import compare_whole
from engine.test_preemption import draw as draw_preemption
from engine.test_resizes import Resizer
from engine.test_resizes import draw as draw_resizes
from engine.test_suspension import draw as draw_suspension
from engine.test_suspension import grow_signals
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_files, with_settings
from noonward.decision.brief import Brief, Needs
from noonward.engine.cluster.build import build_world
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.cluster.kernels.world import AT_START
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.evaluate.utility_objective import UtilityObjective
from noonward.ledger.ledger import Ledger, settle
from noonward.ledger.record import write_record
from noonward.ledger.segments import CRASH, DONE, FAILED, OVERDUE, SEGMENT_NAMES
from noonward.model.cluster.failures import Failures
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from noonward.units import HOUR_S
from reference import small_worlds
from reference.suspension import Freedom
from reference.tenants import Tenant

WORLDS = 330
LEVERS = ((), ("suspend",), ("suspend", "cap", "resize", "preempt"))
NEVER = (math.inf, [math.inf])


class Answerer(Resizer):
    """Answers at random; of three, one is never asked about running jobs."""

    def __init__(self, seed, holds=0.3):
        super().__init__(seed, holds=holds)
        self.needs = Needs(levers=LEVERS[seed % 3])


def draw(seed):
    """A random world whose jobs may fail: by their own fault, with their hardware, or both."""
    drawn = (draw_suspension, draw_resizes, draw_preemption)[seed // 3 % 3](seed)
    rng = random.Random(f"{seed} failures")
    if rng.random() < 0.3:
        drawn.freedoms.pop(rng.choice(sorted(drawn.freedoms)))
        drawn.freedoms = {c: replace(freedom, preempts=()) for c, freedom in drawn.freedoms.items()}
    mean_gpu_s, retries = rng.choice((1000.0, 4000.0, 20000.0)), rng.choice((0, 1, 4))
    drawn.failures = []
    for row in drawn.rows:
        row["slack_s"] *= rng.choice((1.0, 1.0, 4.0))
        at = rng.choice((math.inf, math.inf, row["work"], row["work"] * rng.random()))
        gpu_s = [math.ceil(rng.expovariate(1 / mean_gpu_s) / 300) * 300.0 for _ in range(1 + retries)]
        drawn.failures.append((at, gpu_s if rng.random() < 0.8 else [math.inf] * (1 + retries)))
    grow_signals(drawn, rng)
    return drawn


def played(seed):
    scheduler = Answerer(seed, holds=(0.1, 0.3, 0.6)[seed // 9 % 3])
    return play(draw(seed), scheduler), scheduler


@pytest.mark.parametrize("seed", range(WORLDS))
def test_failures_equal_the_slow_oracle(seed):
    compare_whole(draw(seed), *played(seed))


def test_the_random_worlds_hold_what_there_is_to_test():
    """Jobs that fail again and again, for good, under caps, and are done or given up later."""
    again, capped, status, kinds = 0, 0, np.zeros(7, int), np.zeros(8, int)
    for seed in range(0, WORLDS, 8):
        outcome = played(seed)[0]
        segment_K = outcome.segment_K
        crashed_J = np.bincount(segment_K["job"][segment_K["kind"] == CRASH], minlength=len(outcome.job_J))
        kinds += np.bincount(segment_K["kind"], minlength=8)
        again += (crashed_J > 1).sum()
        capped += ((segment_K["kind"] == 5) & (segment_K["cap"] > 0)).sum()
        status += np.bincount(outcome.job_J["status"][crashed_J > 0], minlength=7)
    assert (kinds >= 5).all()
    assert min(again, capped, status[DONE], status[OVERDUE], status[FAILED]) > 5


HOURLY = Freedom(interruptible=False, dark_s=240.0, load_s=360.0, load_power=0.25)
"""Writes a checkpoint every hour; may not be suspended."""
LONG = {"gpus": 2, "work": 3 * HOUR_S, "slack_s": 9 * HOUR_S}


def world(*failures, freedoms=None, job=LONG, gpus=2, **options):
    """A site and a job per entry of failures, at 100 W a GPU and a price of 10 USD/MWh."""
    freedoms = {0: HOURLY} if freedoms is None else freedoms
    made = small_worlds.plain([gpus], [job] * len(failures), price=[[10.0]], freedoms=freedoms, **options)
    made.failures = list(failures)
    return made


def segments(outcome):
    return [(int(r["job"]), SEGMENT_NAMES[r["kind"]], float(r["from_s"]), float(r["to_s"])) for r in outcome.segment_K]


def test_a_job_does_again_what_it_did_since_its_last_checkpoint():
    outcome = run(world((math.inf, [2 * 5400.0, math.inf])).environment(), make_scheduler("local-fcfs"))
    assert segments(outcome) == [
        (0, "run", 0.0, 3600.0),
        (0, "redo", 3600.0, 5400.0),
        (0, "crash", 5400.0, 5400.0),
        (0, "load", 5640.0, 6000.0),
        (0, "run", 6000.0, 13200.0),
    ]
    ledger = settle(outcome)
    assert (ledger.done, ledger.failed, ledger.failures, ledger.unfinished) == (1, 0, 1, 0)
    assert ledger.gpu_hours == 6.0
    assert ledger.interruptions.lost_gpu_hours == 1.0
    assert ledger.interruptions.overhead_gpu_hours == pytest.approx(0.2)
    assert ledger.utility_usd == pytest.approx(6.0 - 0.01 * (0.6 + 0.1 + 0.1 * 0.25 * 0.2))


def test_a_job_without_checkpoints_begins_again_from_its_start():
    outcome = run(world((math.inf, [2 * 5400.0, math.inf]), freedoms={}).environment(), make_scheduler("local-fcfs"))
    assert segments(outcome) == [
        (0, "redo", 0.0, 5400.0),
        (0, "crash", 5400.0, 5400.0),
        (0, "load", 5400.0, 5400.0),
        (0, "run", 5400.0, 16200.0),
    ]


def test_a_job_that_fails_for_good_is_not_work_done():
    """By its own fault, and where its hardware fails more often than it is begun again."""
    failures = (1.5 * HOUR_S, [math.inf] * 2), (math.inf, [2 * HOUR_S, 4 * HOUR_S]), (math.inf, [math.inf] * 2)
    environment = world(*failures, gpus=6).environment()
    outcome = run(environment, make_scheduler("local-fcfs"))
    assert outcome.job_J["status"].tolist() == [FAILED, FAILED, DONE]
    assert outcome.job_J["finish_s"].tolist() == [5400.0, 3600.0 + 600.0 + 7200.0, 3 * HOUR_S]
    ledger = settle(outcome)
    assert (ledger.done, ledger.failed, ledger.failures, ledger.unfinished) == (1, 2, 3, 0)
    assert ledger.gpu_hours == 6.0
    assert ledger.units == 3 * HOUR_S
    assert ledger.failed_gpu_hours == ledger.interruptions.lost_gpu_hours == pytest.approx(3.0 + 6.0)
    assert ledger.failed_kwh == pytest.approx(0.9)
    assert ledger.failed_usd == pytest.approx(0.009)
    assert ledger.mean_time_in_system_s == 3 * HOUR_S
    assert Ledger.from_dict(ledger.as_dict()) == ledger
    assert outcome.meters.utility_usd == pytest.approx(ledger.utility_usd)


@pytest.mark.parametrize(("late", "status", "late_usd"), [(False, OVERDUE, 0.0), (True, DONE, 2 * 3360.0 / HOUR_S)])
def test_time_that_a_failure_takes_counts_as_standing_still(late, status, late_usd):
    """Half an hour done again, half an hour to the next slot, six minutes of load: 66 minutes, ten of them slack."""
    options = {"late_until_s": 24 * HOUR_S, "late_usd": 1.0} if late else {}
    made = world((math.inf, [2 * 5400.0, math.inf]), job={**LONG, "slack_s": 600.0}, slot_s=HOUR_S, **options)
    ledger = settle(outcome := run(made.environment(), make_scheduler("local-fcfs")))
    assert outcome.job_J["status"].tolist() == [status]
    assert ledger.late_usd == pytest.approx(late_usd)
    assert ledger.interruptions.lost_gpu_hours == (1.0 if late else 3.0)


def test_lost_work_is_that_of_the_closed_form():
    """Failures at a rate r take (e^(r t) - 1) / r to get through an interval t, Young's r t^2 / 2 a time at first.

    400 jobs of eight half-hour intervals on two GPUs each; three standard errors of the mean.
    """
    rate, every_s, count = 0.4 / HOUR_S, 1800.0, 400
    law = Failures(per_gpu_hour=rate * HOUR_S / 2, retries=60)
    drawn = law.draw(np.full(count, 8 * every_s), None, np.random.default_rng(5))
    freedom = replace(HOURLY, every_s=every_s, dark_s=0.0, load_s=0.0)
    job = {"gpus": 2, "work": 8 * every_s, "slack_s": 200 * HOUR_S}
    made = world(*[NEVER] * count, freedoms={0: freedom}, job=job, gpus=2 * count, window_h=400)
    outcome = run(replace(made.environment(), failures=drawn), make_scheduler("local-fcfs"))
    assert outcome.count(DONE) == count
    redo = outcome.overhead
    lost_s_J = np.bincount(redo.job_K, redo.to_s_K - redo.from_s_K, minlength=count)
    expected_s = 8 * (math.expm1(rate * every_s) / rate - every_s)
    assert lost_s_J.mean() == pytest.approx(expected_s, abs=3 * lost_s_J.std() / math.sqrt(count))
    assert expected_s == pytest.approx(8 * rate * every_s**2 / 2, rel=0.1)
    crashes_J = np.bincount(outcome.segment_K["job"][outcome.segment_K["kind"] == CRASH], minlength=count)
    expected = 8 * math.expm1(rate * every_s)
    assert crashes_J.mean() == pytest.approx(expected, abs=3 * crashes_J.std() / math.sqrt(count))


STATED = (
    "jobs.failures={per_gpu_hour: 0.05, share: 0.2, at: 0.3, retries: 3}",
    "fleet.freedoms={fine-tuning: {interruptible: true, checkpoint: {every_s: 600}}}",
    "jobs.slack_ratio=4",
)


def first_failures(policy, environment):
    """(Its GPU-seconds, then the kind) of the first failure of every job that fails."""
    outcome, out = run(environment, make_scheduler(policy)), {}
    for record in outcome.segment_K:
        job, kind = int(record["job"]), SEGMENT_NAMES[record["kind"]]
        ran_gpu_s, ended = out.setdefault(job, [0.0, None])
        if ended is None and kind in ("run", "lost", "redo"):
            out[job][0] = ran_gpu_s + record["gpus"] * (record["to_s"] - record["from_s"])
        elif ended is None and kind in ("crash", "fail"):
            out[job][1] = kind
    return {job: (round(gpu_s, 3), ended) for job, (gpu_s, ended) in out.items() if ended}


def test_a_job_fails_after_the_same_work_under_every_policy():
    environment = build_environment(load_scenario("tiny", STATED))
    found = [first_failures(policy, environment) for policy in ("local-fcfs", "patient", "bid-price-perfect")]
    common = set.intersection(*map(set, found))
    assert len(common) >= 5
    for job in common:
        assert len({each[job] for each in found}) == 1
    again = build_environment(load_scenario("tiny", STATED))
    assert (again.failures.table_JX == environment.failures.table_JX).all()
    assert (
        build_environment(load_scenario("tiny", STATED), 1).failures.work_J[:3] != environment.failures.work_J[:3]
    ).any()


@pytest.mark.parametrize("policy", ["bid-price-regression", "booked-persistence", "patient"])
def test_nothing_is_known_of_a_failure_before_it_happens(policy):
    """Starts before the first failure are those of a run in which nobody fails but later."""
    environment = build_environment(load_scenario("tiny", STATED))
    never = replace(
        environment.failures,
        work_J=environment.failures.work_J * math.inf,
        gpu_s_JK=np.full_like(environment.failures.gpu_s_JK, math.inf),
    )
    failing = run(environment, make_scheduler(policy))
    sound = run(replace(environment, failures=never), make_scheduler(policy))
    crash_K = failing.segment_K["kind"] >= CRASH
    first_s = failing.segment_K["from_s"][crash_K].min()
    starts = [
        outcome.job_J[["start_s", "site", "gpus"]][outcome.job_J["start_s"] < first_s] for outcome in (failing, sound)
    ]
    assert len(starts[0]) > 3
    assert (starts[0] == starts[1]).all()
    assert (failing.count(FAILED) > 0, sound.count(FAILED)) == (True, 0)


@pytest.mark.parametrize(
    "policy", ["bid-price-regression", "bid-price(forecast=regression, suspends=yes)", "booked-persistence"]
)
def test_bookers_start_failed_jobs_again(policy):
    """Where jobs may be late, all are done that do not fail for good."""
    settings = ["jobs.failures={per_gpu_hour: 0.05, retries: 99}", STATED[1], "jobs.slack_ratio=8", "jobs.demand=0.3"]
    settings += ["lateness.rule=wait", "lateness.overtime_h=48", "lateness.usd_per_gpu_hour=0.01"]
    scheduler = make_scheduler(policy)
    outcome = run(build_environment(load_scenario("tiny", settings)), scheduler)
    assert (outcome.segment_K["kind"] == CRASH).sum() >= 3
    assert outcome.count(DONE) == len(outcome.job_J)


@pytest.mark.parametrize("own_fault", [True, False])
@pytest.mark.parametrize("policy", ["booked-persistence", "bid-price-regression"])
def test_what_is_left_of_a_failed_jobs_booking_is_given_back(policy, own_fault, tmp_path):
    """A job that could not wait for the end of another one runs where that one fails, for good or for two hours."""
    past, table = tmp_path / "past.csv", tmp_path / "jobs.csv"
    rows = ["2022-10-01T00:00:00Z,21600,8,north,28800", "2022-10-01T00:00:00Z,36000,8,south,0"]
    rows.append("2022-10-01T04:20:00Z,3600,8,north,7200")
    for file, dates in ((past, "2022-09-30"), (table, "2022-10-01")):
        lines = "\n".join(["submit_time,duration_s,gpus,origin,slack_s", *rows])
        file.write_text(lines.replace("2022-10-01", dates))
    settings = [f"jobs.history={past}", "jobs.failures={share: 0.5}", "window_h=16"]
    settings.append("fleet.freedoms={fine-tuning: {checkpoint: {every_s: 600, dark_s: 7200}}}")
    environment = build_environment(with_settings(with_files(load_scenario("tiny"), [], table), settings))
    ended = {}
    for at_s in (math.inf, 900.0):
        work_J, gpu_s_JK = np.full(3, math.inf), np.full_like(environment.failures.gpu_s_JK, math.inf)
        if own_fault:
            work_J[0] = at_s
        else:
            gpu_s_JK[0, 0] = 8 * at_s
        failures = replace(environment.failures, work_J=work_J, gpu_s_JK=gpu_s_JK)
        outcome = run(replace(environment, failures=failures), make_scheduler(policy))
        ended[at_s] = outcome.job_J["status"].tolist()
        assert outcome.job_J["start_s"][0] == 4 * HOUR_S  # the third job arrives 20 minutes later
    assert ended == {math.inf: [DONE, DONE, OVERDUE], 900.0: [FAILED if own_fault else DONE, DONE, DONE]}


def test_the_record_holds_failures(tmp_path):
    outcome = run(build_environment(load_scenario("tiny", STATED)), make_scheduler("patient"))
    record = write_record(outcome, tmp_path / "run", policy="patient", seed=0, scenario_digest="0")
    assert record.ledger == settle(outcome)
    assert (record.jobs["status"] == "failed").sum() == record.ledger.failed > 0
    assert {"crash", "fail"} <= set(record.segments["kind"])


def test_a_step_wise_run_equals_a_compiled_one():
    environment = build_environment(load_scenario("tiny", STATED))
    stepped = ClusterEngine(environment, scheduler := make_scheduler("patient"))
    compiled = run(environment, scheduler)
    scheduler.reset(stepped.brief, stream(0, "policy", 0))
    while stepped.step():
        scheduler.decide(stepped.view, stepped.answers)
    assert stepped.outcome().tobytes() == compiled.tobytes()


def test_what_cannot_fail_is_refused():
    learned = build_environment(load_scenario("tiny", [STATED[0], "jobs.knowledge.run_time=learned"]))
    with pytest.raises(ScenarioError, match="whose jobs fail; its run times are learned"):
        run(learned, make_scheduler("patient"))
    with pytest.raises(ScenarioError, match="protocol each-slot, not on-arrival"):
        load_scenario("tiny", [STATED[0], "protocol=on-arrival"])
    with pytest.raises(ScenarioError, match="no job fails; give per_gpu_hour"):
        load_scenario("tiny", ["jobs.failures={retries: 3}"])
    with pytest.raises(ScenarioError, match="recorded is for jobs from a table"):
        build_environment(load_scenario("tiny", ["jobs.failures={recorded: true}"]))


def test_the_law_is_drawn_as_stated():
    """Shares within three standard errors of 20,000 jobs; another rate changes no draw but its own."""
    law, work_J = Failures(per_gpu_hour=0.5, share=0.4, at=0.2, retries=1), np.full(20_000, 50.0)
    drawn = law.draw(work_J, None, np.random.default_rng(3))
    own = np.isfinite(drawn.work_J)
    assert own.mean() == pytest.approx(0.4, abs=3 * math.sqrt(0.24 / 20_000))
    share_J = drawn.work_J[own] / 50.0
    assert share_J.min() > 0
    assert share_J.max() <= 1
    assert share_J.mean() == pytest.approx(0.2, abs=3 * share_J.std() / math.sqrt(own.sum()))
    assert drawn.gpu_s_JK.mean() == pytest.approx(7200.0, abs=3 * 7200 / math.sqrt(40_000))
    rarer = law.model_copy(update={"per_gpu_hour": 0.25}).draw(work_J, None, np.random.default_rng(3))
    assert (rarer.work_J == drawn.work_J).all()
    np.testing.assert_allclose(rarer.gpu_s_JK, 2 * drawn.gpu_s_JK, atol=2.0)


def test_failed_jobs_of_a_log_are_replayed(tmp_path):
    """A job whose state is failed or node-fail ends as recorded, and is not work done."""
    table = tmp_path / "jobs.csv"
    rows = ["completed", "FAILED", "NODE_FAIL", "CANCELLED", ""]
    lines = [f"2022-10-01T0{i}:00:00Z,{1200 + i},1,north,14400,{state}" for i, state in enumerate(rows)]
    table.write_text("\n".join(["submit_time,duration_s,gpus,origin,slack_s,state", *lines]))
    scenario = with_files(load_scenario("tiny"), [], table)
    recorded = with_settings(scenario, ["jobs.failures.recorded=true"])
    plain, failing = (run(build_environment(each), make_scheduler("local-fcfs")) for each in (scenario, recorded))
    assert plain.count(DONE) == 5
    assert failing.job_J["status"].tolist() == [DONE, FAILED, FAILED, DONE, DONE]
    assert (failing.job_J["finish_s"] == plain.job_J["finish_s"]).all()
    ledger = settle(failing)
    assert ledger.failed_gpu_hours == pytest.approx((1201 + 1202) / 3600)
    assert ledger.gpu_hours == pytest.approx(settle(plain).gpu_hours - ledger.failed_gpu_hours)
    assert ledger.job_kwh == pytest.approx(settle(plain).job_kwh)
    table.write_text("submit_time,duration_s,gpus,origin,slack_s\n2022-10-01T00:00:00Z,600,1,north,600\n")
    with pytest.raises(ScenarioError, match="no column 'state'"):
        build_environment(recorded)


def test_there_is_no_bound():
    environment = build_environment(load_scenario("tiny", STATED))
    with pytest.raises(ScenarioError, match="a utility bound knows no failures"):
        utility_bound(environment)
    assert UtilityObjective().compute_bound(environment) == {}


def test_learners_are_not_rewarded_for_jobs_that_fail_later():
    environment = build_environment(load_scenario("tiny", STATED))
    with pytest.raises(ScenarioError, match="rewards count every job whole"):
        build_world(environment, Needs(), Brief.of(environment, Needs()), rewards=AT_START)


def test_a_job_that_fails_for_good_gives_its_tenants_quota_back():
    """Two jobs on two GPUs each, of a tenant who may hold two of the four."""
    failures = (1.5 * HOUR_S, [math.inf]), (math.inf, [math.inf])
    made = world(*failures, job={**LONG, "tenant": 0}, gpus=4, tenants=[Tenant(2)])
    outcome = run(made.environment(), make_scheduler("local-fcfs"))
    assert outcome.job_J["status"].tolist() == [FAILED, DONE]
    assert outcome.job_J["start_s"].tolist() == [0.0, 5400.0]
