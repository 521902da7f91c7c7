"""Schedulers that are not told run times: what they see, what the engine runs, and that nothing of the future shows."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Needs
from noonward.decision.cluster.observation import Observation
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.batch import BatchEngine
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.model.cluster.knowledge import DONE, JobKnowledge, JobTraits, Knowledge
from noonward.schedule.policies import make_scheduler, policies
from reference.small_worlds import plain

HOUR_S = 3600.0
LIMITS = "jobs.knowledge.limit={law: uniform, from: 1, to: 4}"
WAYS = {
    "limit": ["jobs.knowledge.run_time=limit", LIMITS],
    "class-mean": ["jobs.knowledge.run_time=class-mean"],
    "learned": ["jobs.knowledge.run_time=learned", LIMITS],
}


class Watch(Scheduler):
    """Starts every job where it is, and notes what run time each is shown with, and when that changes."""

    needs = Needs(protocols=("each-slot",))

    def __init__(self):
        self.shown_h = {}

    def decide(self, view, answers):
        for job in view.job_J[view.job_J["serial"] >= 0]:
            seen = self.shown_h.setdefault(int(job["serial"]), [])
            if not seen or seen[-1] != job["work"] / HOUR_S:
                seen.append(float(job["work"] / HOUR_S))
        for asker, _ in view.asked():
            if view.allowed(asker, asker):
                answers.send(asker, asker)


def told(jobs, run_time, *, limit_h=None, past_h=()):
    """An environment whose schedulers are told something else than run times."""
    environment = plain([1], jobs).environment()
    limit_J = np.concatenate([np.full(len(past_h), np.inf), np.multiply(limit_h or [np.inf] * len(jobs), HOUR_S)])
    knowledge = JobKnowledge(
        told=Knowledge(run_time=run_time),
        traits=JobTraits.build([np.full(len(limit_J), "a")], limit_J=limit_J),
        past_work_P=np.multiply(past_h, HOUR_S),
        past_cause_P=np.full(len(past_h), DONE),
        cause_J=np.full(len(jobs), DONE),
        reach_s=24 * HOUR_S,
    )
    return replace(environment, knowledge=knowledge)


def watched(environment):
    """What was shown of each job, h, and the hours that each took."""
    scheduler = Watch()
    jobs = run(environment, scheduler, compiled=False).job_J
    return scheduler.shown_h, ((jobs["finish_s"] - jobs["start_s"]) / HOUR_S).tolist()


WAITING = [{"work": 3 * HOUR_S}, {"arrival_s": HOUR_S, "work": 2 * HOUR_S, "slack_s": 90 * HOUR_S}]
"""One job, and another that waits for its GPU, about which the scheduler is asked in every slot."""


def test_limits_are_shown_and_the_truth_is_run():
    shown_h, took_h = watched(told(WAITING, "limit", limit_h=[8.0, 5.0]))
    assert took_h == [3.0, 2.0]
    assert shown_h == {0: [8.0], 1: [5.0]}


def test_a_job_that_outlives_the_class_mean_is_shown_with_longer_run_times():
    shown_h, took_h = watched(told([{"work": 3.5 * HOUR_S}, WAITING[1]], "class-mean", past_h=[0.5, 1.5]))
    assert took_h == [3.5, 2.0]
    assert shown_h[0] == [1.0, 2.0, 3.0, 4.0]
    assert shown_h[1][0] == 1.0


def test_a_job_beyond_all_estimates_is_shown_a_quarter_longer_each_time():
    shown_h, took_h = watched(told(WAITING, "limit", limit_h=[1.0, 5.0]))
    assert took_h == [3.0, 2.0]
    assert shown_h[0] == pytest.approx([1.25**k for k in range(6)], abs=2e-3)  # 1.25^5 = 3.05


def test_a_job_is_never_shown_shorter_than_it_has_run():
    environment = build_environment(load_scenario("tiny", WAYS["learned"]))

    class Check(Watch):
        def __init__(self):
            super().__init__()
            self.started_s = {}

        def decide(self, view, answers):
            super().decide(view, answers)
            for job in view.job_J[view.job_J["serial"] >= 0]:
                age_s = view.now_s - self.started_s.get(int(job["serial"]), view.now_s)
                assert job["work"] >= age_s - 1e-6
            for asker, slot in view.asked():
                if answers.answer_N["choice"][asker] == 1 + asker:
                    self.started_s[int(view.job_J["serial"][slot])] = view.now_s

    assert (run(environment, Check(), compiled=False).job_J["status"] >= 0).all()


@pytest.mark.parametrize("name", ["local-fcfs", "cheapest-feasible", "patient", "most-free"])
def test_limits_of_the_run_times_themselves_change_nothing_for_rules(name):
    known = run(build_environment(load_scenario("tiny")), make_scheduler(name))
    settings = ["jobs.knowledge.run_time=limit", "jobs.knowledge.limit={law: uniform, from: 1, to: 1}"]
    assert (
        known.job_J.tobytes()
        == run(build_environment(load_scenario("tiny", settings)), make_scheduler(name)).job_J.tobytes()
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["cheapest-feasible", "booked-regression", "bid-price-persistence"])
def test_both_loops_give_the_same_bytes(name, way):
    environment = build_environment(load_scenario("tiny", WAYS[way]))
    first = run(environment, make_scheduler(name))
    assert first.tobytes() == run(environment, make_scheduler(name), compiled=False).tobytes()


def cut_short(environment, outcome, time_s):
    """The same environment, but what has not ended by a time takes half of what it still would."""
    jobs = outcome.job_J
    ran_s = np.where(jobs["start_s"] < time_s, time_s - jobs["start_s"], 0.0)  # false where it has not started
    share = np.where(np.nan_to_num(jobs["finish_s"], nan=np.inf) <= time_s, 1.0, 0.5)
    work = environment.jobs.work_J
    return replace(environment, jobs=replace(environment.jobs, work_J=ran_s + (work - ran_s) * share))


UNTOLD = [p.name for p in policies("each-slot", trained=False) if not {"clairvoyant", "recorded"} & p.roles]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", UNTOLD)
def test_run_times_of_the_future_change_no_decision(name, way):
    environment = build_environment(load_scenario("tiny", [*WAYS[way], "jobs.demand=0.6"]))
    time_s = 5 * HOUR_S
    first = run(environment, make_scheduler(name))
    second = run(cut_short(environment, first, time_s), make_scheduler(name))
    assert (first.job_J["finish_s"] != second.job_J["finish_s"]).sum() > 5
    for column in ("site", "start_s"):
        one, other = first.job_J[column].copy(), second.job_J[column].copy()
        early = (first.job_J["start_s"] <= time_s) | (second.job_J["start_s"] <= time_s)
        assert early.sum() > 3
        assert one[early].tolist() == other[early].tolist()


def longest_to_come(drawn, times, patience):
    """An environment of jobs of two hours at most, and one in which the fifth last runs longer or may wait longer.

    Signals reach as far in both: forecasts from the truth know them.
    """
    further = {key: np.tile(value_ZH, (1, 12)) for key, value_ZH in drawn.signals.value_ZH.items()}
    drawn = replace(drawn, signals=replace(drawn.signals, value_ZH=further))
    jobs, last = drawn.jobs, len(drawn.jobs) - 5
    slowest_C = np.nanmax(drawn.fleet.tables(4).seconds_per_unit_SCGF[:, :, 1:], (0, 2, 3))
    work_J = np.minimum(jobs.work_J, 2 * HOUR_S / slowest_C[jobs.class_J])
    short = replace(jobs, work_J=work_J, slack_s_J=np.minimum(jobs.slack_s_J, 3 * HOUR_S))
    last_J = np.arange(len(jobs)) == last
    work_J, slack_s_J = (np.where(last_J, x * y, y) for x, y in ((times, work_J), (patience, short.slack_s_J)))
    long = replace(short, work_J=work_J, slack_s_J=slack_s_J)
    return replace(drawn, jobs=short), replace(drawn, jobs=long), float(jobs.arrival_s_J[last])


@pytest.mark.parametrize(("times", "patience"), [(250, 1), (1, 250)], ids=["longer", "more patient"])
@pytest.mark.parametrize("name", [*UNTOLD, "bid-price-neural", "masac-credit", "bid-price-learned"])
def test_the_longest_job_to_come_changes_no_decision_before_it_arrives(name, times, patience):
    """Nothing that a policy is told, forecasts and their reach included, tells how long later jobs run or may wait."""
    short, long, arrival_s = longest_to_come(build_environment(load_scenario("tiny"), 1), times, patience)
    before, after = (run(each, make_scheduler(name)).job_J for each in (short, long))
    early = np.minimum(before["start_s"], after["start_s"]) < arrival_s
    assert early.sum() > 3
    for column in ("site", "start_s"):
        assert before[column][early].tolist() == after[column][early].tolist()


def test_training_refuses_what_is_learned_in_a_run():
    environment = build_environment(load_scenario("tiny", WAYS["learned"]))
    with pytest.raises(ScenarioError, match="known, limit or class-mean"):
        BatchEngine([environment], Observation(kind="paper"), seeds=[0])


def test_a_larger_quantile_shows_longer_run_times():
    def first_h(quantile):
        settings = [*WAYS["learned"], f"jobs.knowledge.quantile={quantile}"]
        shown_h, _ = watched(build_environment(load_scenario("tiny", settings)))
        return np.array([each[0] for each in shown_h.values()])

    low, high = first_h(0.3), first_h(0.9)
    assert (low <= high).all()
    assert low.sum() < 0.8 * high.sum()
