"""Answers the engine cannot carry out, environments it cannot run, and worlds small enough to follow by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from noonward.decision.brief import Needs
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.view import ASK_ALLOCATE, ASK_ROUTE, KEEP, RuleMemory
from noonward.decision.scheduler import CompiledScheduler, Scheduler
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.cluster.kernels.world import arrays_of
from noonward.engine.run import run
from noonward.errors import InfeasibleActionError, ScenarioError
from noonward.ledger.segments import DONE, OVERDUE
from noonward.model.cluster.environment import GpuCaps
from noonward.schedule.policies import make_scheduler
from reference.small_worlds import plain


class Mute(Scheduler):
    """Answers nothing by itself."""

    needs = Needs(allocate=True)

    def decide(self, view, answers):
        raise NotImplementedError


def state(engine):
    """Every array of the engine but the answers, which the scheduler writes."""
    arrays = arrays_of(engine.world)
    return [array.tobytes() for name, array in arrays.items() if name not in ("answer_N", "limit_SH")]


def refused(engine, match):
    before = state(engine)
    with pytest.raises(InfeasibleActionError, match=match):
        engine.step()
    assert state(engine) == before


@pytest.fixture
def slots():
    """Three sites of 2, 4 and 1 GPUs, asked about a job of 2 GPUs at site 0 and one of 2 to 3 GPUs at site 1."""
    jobs = [{"gpus": 2, "slack_s": 120.0}, {"origin": 1, "gpus_min": 2, "gpus_max": 3}]
    network = {"latency_ms": ((0.0, 150e3, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))}
    world = plain([2, 4, 1], jobs, network=network, clocks=(0.5, 1.0))
    engine = ClusterEngine(world.environment(), Mute())
    assert engine.step() == 1
    assert engine.view.asked_N.tolist() == [0, 1, -1]
    return engine


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            (2, 0, -1, 0.0),
            r"Mute answered for job 0 at 0 s \(site site0\): choice 2 \(site1\); feasible now: hold, site0",
        ),
        ((3, 0, -1, 0.0), r"choice 3 \(site2\); feasible now: hold, site0"),
        ((4, 0, -1, 0.0), r"choice 4 \(no such site\)"),
        ((-1, 0, -1, 0.0), r"choice -1 \(no such site\)"),
        ((1, 1, -1, 0.0), r"a gang of 1 GPUs; allowed: 0 \(as many as fit\) or 2 to 2"),
        ((1, 3, -1, 0.0), r"a gang of 3 GPUs"),
        ((1, -2, -1, 0.0), r"a gang of -2 GPUs"),
        ((1, 2, 2, 0.0), r"clock level 2; allowed: -1 \(oracle\) or a level of the site \(\[2, 2, 2\] levels"),
        ((1, 2, -2, 0.0), r"clock level -2"),
    ],
)
def test_infeasible_slot_answer_is_refused_whole(slots, answer, message):
    slots.answers.answer_N[0] = (*answer, KEEP)
    slots.answers.send(1, 1)
    refused(slots, message)
    slots.answers.hold(0)
    assert slots.step() == 1
    assert slots.view.now_s == 60.0
    assert slots.view.free_S.tolist() == [2, 1, 1]


def test_message_names_the_site_that_is_wrong(slots):
    slots.answers.send(0, 0)
    slots.answers.send(1, 2)
    refused(slots, r"job 1 at 0 s \(site site1\): choice 3 \(site2\); feasible now: hold, site0, site1; answer only")


def test_infeasible_answer_of_a_compiled_rule_is_refused_too():
    @rule
    def stubborn(view, answers, memory):
        for s in range(view.site_S.shape[0]):
            answers.answer_N[s].choice = 1 + s

    class Stubborn(CompiledScheduler):
        rule = staticmethod(stubborn)

        def make_memory(self, brief, rng):
            return RuleMemory.make()

    world = plain([1], [{}, {}])
    with pytest.raises(
        InfeasibleActionError, match=r"Stubborn answered for job 1 at 0 s \(site site0\): choice 1 \(site0\)"
    ):
        run(world.environment(), Stubborn())


@pytest.fixture
def arrival():
    """Two sites of 2 and 1 GPUs, asked about a job of 1 to 2 GPUs; site 1 is 5 s away, too far for the job's slack."""
    jobs = [{"gpus_min": 1, "gpus_max": 2, "slack_s": 4.0}]
    network = {"latency_ms": ((0.0, 5000.0), (0.0, 0.0))}
    world = plain([2, 1], jobs, protocol="on-arrival", network=network, clocks=(0.5, 1.0))
    engine = ClusterEngine(world.environment(), Mute())
    assert engine.step() == ASK_ROUTE
    return engine


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((0, 0, -1, 0.0), r"job 0 at 0 s \(the dispatcher\): choice 0 \(hold\); feasible now: site0; answer only"),
        ((2, 0, -1, 0.0), r"choice 2 \(site1\)"),
        ((3, 0, -1, 0.0), r"choice 3 \(no such site\)"),
        ((1, 3, -1, 0.0), r"a gang of 3 GPUs; allowed: 0 \(as many as fit\) or 1 to 2"),
        ((1, 0, 2, 0.0), r"clock level 2"),
        ((1, 0, -1, 4.5), r"an earliest start of 4\.5 s, after the job's latest start \(deadline 4\.0 s"),
        ((1, 0, -1, math.nan), r"an earliest start of nan s"),
    ],
)
def test_infeasible_route_is_refused(arrival, answer, message):
    arrival.answers.answer_N[0] = (*answer, KEEP)
    refused(arrival, message)
    arrival.answers.send(0, 0, earliest_s=4.0)
    assert arrival.step() == ASK_ALLOCATE
    assert arrival.view.now_s == 4.0


def test_infeasible_allocation_is_refused(arrival):
    arrival.answers.send(0, 0, gpus=2, level=0)
    assert arrival.step() == ASK_ALLOCATE
    assert arrival.answers.answer_N[0].tolist() == (0, 2, 0, 0.0, KEEP)
    for gpus, level, message in ((3, 0, "gang of 3"), (2, 2, "clock level 2")):
        arrival.answers.send(0, 0, gpus=gpus, level=level)
        refused(arrival, message)
    arrival.answers.send(0, 0, gpus=1, level=1)
    assert arrival.step() == 0
    assert arrival.outcome().job_J[["gpus", "level", "start_s"]].tolist() == [(1, 1, 0.0)]


def test_job_that_no_site_can_reach_in_time_is_overdue_unasked():
    network = {"latency_ms": ((5000.0,),)}
    world = plain([1], [{"slack_s": 4.0}, {"slack_s": 5.0}], protocol="on-arrival", network=network)
    world.homes = [-1]
    outcome = run(world.environment(), make_scheduler("uniform"))
    assert outcome.job_J["status"].tolist() == [OVERDUE, DONE]
    assert outcome.steps == 1


def test_hard_cap_holds_a_job_until_the_hour_turns_and_leaves_running_jobs_alone():
    jobs = [{"work": 7200.0, "gpus": 2}, {"arrival_s": 3600.0, "slack_s": 7200.0, "gpus": 2}]
    for protocol, policy in (("each-slot", "local-fcfs"), ("on-arrival", "uniform")):
        world = plain([4], jobs, protocol=protocol, caps=[[4, 2, 4]])
        assert run(world.environment(), make_scheduler(policy)).job_J["start_s"].tolist() == [0.0, 7200.0]
        world.hard = False
        outcome = run(world.environment(), make_scheduler(policy))
        assert outcome.job_J["start_s"].tolist() == [0.0, 3600.0]
        assert outcome.over_cap_gpu_s_S.tolist() == [2 * 600.0]


def test_utility_by_hand():
    # 2 GPUs for 1 h at 100 W and PUE 1, 50 USD/MWh and 200 g/kWh, alpha = 1, mu = 100 USD/t:
    # 2 - 0.2 kWh x 0.05 USD/kWh - 0.1 USD/kg x 0.04 kg = 2 - 0.01 - 0.004.
    world = plain([2], [{"gpus": 2, "work": 3600.0}], price=[[50.0]], carbon=[[200.0]], mu=100.0)
    outcome = run(world.environment(), make_scheduler("local-fcfs"))
    assert outcome.meters.utility_usd == pytest.approx(2 - 0.014, rel=1e-12)


def environment(**changes):
    return replace(plain([2, 4], [{"gpus": 2}]).environment(), **changes)


def test_job_larger_than_every_site_is_refused():
    with pytest.raises(ScenarioError, match="job in row 1 needs 5 GPUs at once, but the largest site has 4"):
        plain([2, 4], [{}, {"gpus": 5}]).environment()


def test_infinite_slack_cannot_run_until_drained():
    with pytest.raises(ScenarioError, match="infinite slack"):
        plain([1], [{"slack_s": math.inf}]).environment()
    assert plain([1], [{"slack_s": math.inf}], drained=False).environment().hours == 24


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slot_s": 0.0}, "slots last 0.0 s; a slot must divide the hour"),
        ({"slot_s": 7.0}, "slots last 7.0 s"),
        ({"slot_s": -60.0}, "slots last -60.0 s"),
        ({"window_s": 0.0}, "the window is 0.0 s; it must be a positive number of whole hours"),
        ({"window_s": 5400.0}, "the window is 5400.0 s"),
        ({"caps": GpuCaps(gpus_SH=np.ones((1, 24)))}, r"capacity curves have shape \(1, 24\); expected 2 sites"),
        ({"caps": GpuCaps(gpus_SH=np.ones((2, 23)))}, r"at least 24 hours"),
    ],
)
def test_wrong_environment_is_refused(changes, message):
    with pytest.raises(ScenarioError, match=message):
        environment(**changes)


@pytest.mark.parametrize(("column", "value", "limit"), [("origin", 2, 2), ("class_", 1, 1), ("preset_site", 2, 2)])
def test_index_out_of_range_is_refused(column, value, limit):
    with pytest.raises(
        ScenarioError, match=rf"column {column.rstrip('_')}_J, row 0: index {value} is not below {limit}"
    ):
        plain([1, 1], [{column: value}]).environment()


def test_each_slot_needs_an_ingress_at_home_in_every_site():
    world = plain([1, 1], [{}])
    world.homes = [0, -1]
    with pytest.raises(ScenarioError, match=r"protocol each-slot needs one ingress at home in every site"):
        world.environment()


def test_scheduler_must_fit_the_environment():
    with pytest.raises(
        ScenarioError, match="Router answers the protocols on-arrival, but scenario 'small' asks each-slot"
    ):
        run(plain([1], [{}]).environment(), make_scheduler("uniform"))
    with pytest.raises(
        ScenarioError, match="PriceGreedy reads prices or carbon intensities, but scenario 'small' has no"
    ):
        run(plain([1], [{}]).environment(), make_scheduler("price-greedy"))
    with pytest.raises(ScenarioError, match="Booked reads prices"):
        run(plain([1], [{}]).environment(), make_scheduler("booked-perfect"))
