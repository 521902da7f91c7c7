"""The conformance check over the whole registry, and on schedulers that break its rules one by one."""

import itertools
import sys

import numpy as np
import pytest

from noonward.compiled import kernel
from noonward.decision.brief import Needs
from noonward.decision.cluster.rule import RULE, rule
from noonward.decision.cluster.view import HOLD, RuleMemory
from noonward.decision.partly_compiled import PartlyCompiledScheduler
from noonward.decision.scheduler import CompiledScheduler, Scheduler
from noonward.errors import InfeasibleActionError, ScenarioError
from noonward.evaluate import conformance
from noonward.evaluate.conformance import ConformanceError, check_scheduler
from noonward.forecasts.forecast import Forecast
from noonward.notices import listening
from noonward.schedule.plan.follow import FollowPlan
from noonward.schedule.policies import make_scheduler, policies


@pytest.mark.parametrize("name", [policy.name for policy in policies(trained=False, kind="cluster")])
def test_every_registered_policy_conforms(name, monkeypatch):
    if name == "what-happened":  # it is asked every second in which a job waits
        monkeypatch.setattr(conformance, "JOBS", 12)
    scheduler = make_scheduler(name)
    if isinstance(scheduler, FollowPlan):  # its rules are the same for a plan from few sampled days
        scheduler.samples = min(scheduler.samples, 6)
    assert check_scheduler(scheduler, seeds=[0])


@pytest.mark.parametrize("name", ["bid-price-learned", "bid-price-neural"])
def test_policies_with_learned_forecasts_conform(name):
    assert check_scheduler(name, seeds=[0])


class StartHere(Scheduler):
    needs = Needs(protocols=("each-slot",))

    def decide(self, view, answers):
        for site, _ in view.asked():
            if view.allowed(site, site):
                answers.send(site, site)


class WritesView(StartHere):
    def decide(self, view, answers):
        view.site_S["free"][0] = 0


class WritesForecast(StartHere):
    def decide(self, view, answers):
        view.forecast_KSL[0] = 1.0


class OwnDice(StartHere):
    def decide(self, view, answers):
        for site, _ in view.asked():
            if view.allowed(site, site) and np.random.default_rng().random() < 0.5:
                answers.send(site, site)


class NeverForgets(StartHere):
    """Keeps a counter that reset does not set back."""

    def __init__(self):
        self.count = itertools.count()

    def decide(self, view, answers):
        if next(self.count) % 7:
            super().decide(view, answers)


class IgnoresMask(StartHere):
    def decide(self, view, answers):
        for site, _ in view.asked():
            answers.send(site, site)


def engine_behind():
    """The engine of the run that asks, from the stack: no view and no brief leads there."""
    frame = sys._getframe(1)
    while "engine" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["engine"]


class LooksAhead(StartHere):
    def decide(self, view, answers):
        if engine_behind().environment.jobs.work_J.sum() > 50_000:
            super().decide(view, answers)


class CountsJobsToCome(StartHere):
    def decide(self, view, answers):
        if len(engine_behind().environment.jobs) == 60:
            super().decide(view, answers)


class ReadsTheReach(StartHere):
    """Decides by how far forecasts reach, which tells nothing of the jobs to come."""

    needs = Needs(protocols=("each-slot",), forecast=Forecast("persistence"))

    def reset(self, brief, rng):
        self.starts = brief.lookahead_h < 12

    def decide(self, view, answers):
        if self.starts:
            super().decide(view, answers)


class AwaitsLongJobs(StartHere):
    def decide(self, view, answers):
        if engine_behind().environment.jobs.work_J.max() < 5_000:
            super().decide(view, answers)


class AwaitsPatientJobs(StartHere):
    def decide(self, view, answers):
        slack_s_J = engine_behind().environment.jobs.slack_s_J
        if slack_s_J[np.isfinite(slack_s_J)].max() < 20_000:
            super().decide(view, answers)


class KnowsPrices(StartHere):
    def decide(self, view, answers):
        hour = int(view.now_s // 3600)
        if engine_behind().world.signal_KSH[0, 0, hour] >= engine_behind().world.signal_KSH[0, 0, hour + 1]:
            super().decide(view, answers)


class KnowsPricesBeyondItsForecast(StartHere):
    """Is given the truth of the hours that its forecast reaches, and reads a later one."""

    needs = Needs(protocols=("each-slot",), signals=True, forecast=Forecast("perfect"))

    def reset(self, brief, rng):
        self.reach_h = brief.lookahead_h

    def decide(self, view, answers):
        price_H = engine_behind().environment.signals.price_usd_per_mwh_ZH[0]
        beyond = 24 + int(view.now_s // 3600) + self.reach_h + 1  # after a day of history
        if price_H[beyond] >= price_H[beyond + 1]:
            super().decide(view, answers)


class KnowsRunTimes(StartHere):
    """Holds some jobs by their exact run times, though nobody told it these where run times are learned."""

    def decide(self, view, answers):
        engine = engine_behind()
        for site, slot in view.asked():
            if view.allowed(site, site):
                row = engine.world.track_J[slot]["row"]
                if int(engine.environment.jobs.work_J[row]) % 2 or view.now_s > 20_000:
                    answers.send(site, site)


class TakesSlotsForJobs(StartHere):
    """Starts a job when it is asked about it again, but takes a job in a slot it knows for the one it met there."""

    def reset(self, brief, rng):
        self.met = set()

    def decide(self, view, answers):
        for site, slot in view.asked():
            if slot in self.met and view.allowed(site, site):
                answers.send(site, site)
            self.met.add(slot)

    def state(self):
        return {"met": sorted(self.met)}

    def load_state(self, state):
        self.met = set(state["met"])


class Forgetful(StartHere):
    """Starts jobs at every other question, and forgets in a restart which one it is at."""

    def reset(self, brief, rng):
        self.questions = 0

    def decide(self, view, answers):
        self.questions += 1
        if self.questions % 2:
            super().decide(view, answers)


class KeepsNoCopy(Forgetful):
    """Hands its own list out as its state, which changes as the run continues."""

    def reset(self, brief, rng):
        self.seen = [0]

    def decide(self, view, answers):
        self.seen[0] += 1
        if self.seen[0] % 2:
            StartHere.decide(self, view, answers)

    def state(self):
        return {"seen": self.seen}

    def load_state(self, state):
        self.seen = list(state["seen"])


class CountsItsStates(Forgetful):
    """Takes the taking of its state for a question."""

    def state(self):
        kept = {"questions": self.questions}
        self.questions += 1
        return kept

    def load_state(self, state):
        self.questions = state["questions"]


class Fails(StartHere):
    def decide(self, view, answers):
        raise KeyError("no such thing")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (WritesView, r"WritesView writes view\.site_S at .* s .*write to answers only"),
        (WritesForecast, r"writes view\.forecast_KSL"),
        (OwnDice, r"OwnDice answers differently when run again with the same seed"),
        (NeverForgets, r"answers differently when run again"),
        (LooksAhead, r"LooksAhead answers differently before .* s when only jobs that arrive later are changed"),
        (CountsJobsToCome, r"answers differently before .* s when only jobs that arrive later are changed"),
        (AwaitsLongJobs, r"before .* s when only the run times and slacks of jobs that arrive later are changed"),
        (AwaitsPatientJobs, r"before .* s when only the run times and slacks of jobs that arrive later are changed"),
        (KnowsPrices, r"before .* s when only prices and carbon intensities of later hours are changed"),
        (
            KnowsPricesBeyondItsForecast,
            r"when only prices .* of hours beyond its forecast, which reaches \d+ h, are chan",
        ),
        (KnowsRunTimes, r"when only the run times, which it is not told, of jobs that have not ended are changed"),
        (TakesSlotsForJobs, r"TakesSlotsForJobs answers differently when jobs take other slots of view\.job_J"),
        (Forgetful, r"Forgetful answers differently when it is restored from its state after \d+ questions"),
        (KeepsNoCopy, r"KeepsNoCopy answers differently when it is restored"),
        (CountsItsStates, r"CountsItsStates answers differently when run again .* let state\(\) change nothing"),
        (Fails, r"Fails fails at .* s with KeyError: 'no such thing'"),
    ],
)
def test_broken_rule_is_named(broken, message):
    with pytest.raises(ConformanceError, match=message):
        check_scheduler(broken(), seeds=[0])


def test_how_far_forecasts_reach_may_be_read():
    check_scheduler(ReadsTheReach(), seeds=[0])


def test_infeasible_answer_is_named():
    with pytest.raises(InfeasibleActionError, match="IgnoresMask answered for job"):
        check_scheduler(IgnoresMask(), seeds=[0])


@rule
def _hold_all(view, answers, memory):
    for s in range(view.site_S.shape[0]):
        answers.answer_N[s].choice = HOLD


class TwoFaced(CompiledScheduler):
    """Its compiled rule holds; its decide starts."""

    needs = Needs(protocols=("each-slot",))
    rule = staticmethod(_hold_all)

    def make_memory(self, brief, rng):
        return RuleMemory.make()

    def decide(self, view, answers):
        StartHere.decide(self, view, answers)


@kernel(RULE, allocates=False)
def _answers_without_a_choice(address):
    return address


class PartlyTwoFaced(PartlyCompiledScheduler):
    """Its partial rule leaves every question after the first one at hold; its decide starts."""

    needs = Needs(protocols=("each-slot",))
    partial_rule = staticmethod(_answers_without_a_choice)

    def decide(self, view, answers):
        StartHere.decide(self, view, answers)

    def question_address(self, view, answers):
        return 1


class AlwaysDeclines(PartlyTwoFaced):
    """Its partial rule answers nothing."""

    def question_address(self, view, answers):
        return 0


@pytest.mark.parametrize("scheduler", [TwoFaced(), PartlyTwoFaced()])
def test_compiled_rule_that_differs_is_named(scheduler):
    with pytest.raises(ConformanceError, match="TwoFaced does something else in the compiled loop"):
        check_scheduler(scheduler, seeds=[0])


def test_a_partial_rule_may_decline_every_question():
    assert check_scheduler(AlwaysDeclines(), seeds=[0])


def test_conforming_scheduler_of_ones_own_passes():
    assert check_scheduler(StartHere())


def test_protocol_it_does_not_answer_is_refused():
    with pytest.raises(ScenarioError, match=r"StartHere answers the protocols each-slot, but .* asks on-arrival"):
        check_scheduler(StartHere(), "on-arrival")


def test_unknown_name_is_refused():
    with pytest.raises(ScenarioError, match="did you mean 'local-fcfs'"):
        check_scheduler("local-fcsf")


class LoopsToTheDeadline(StartHere):
    """Looks at every start up to the deadline, which is infinite for some jobs of runs that are cut off."""

    def decide(self, view, answers):
        for _site, job in view.asked():
            start_s = float(view.now_s)
            while start_s < view.job_J["deadline_s"][job]:
                start_s += 600.0
        super().decide(view, answers)


def test_a_decide_that_does_not_come_back_is_named_with_its_world():
    heard = []
    with (
        listening(lambda kind, about: heard.append((kind, about))),
        pytest.raises(
            ConformanceError,
            match=r"LoopsToTheDeadline did not come back from decide\(\) in 5 s when asked at .* s "
            r"\(check each-slot, cut off at the window, seed 0\); .* infinite",
        ),
    ):
        check_scheduler(LoopsToTheDeadline(), "each-slot", seeds=[0], decide_s=5.0)
    assert ("progress", "LoopsToTheDeadline: check each-slot, cut off at the window, seed 0") in heard
