"""Jobs in sight: slots are taken at arrival, given back at the end and reused, so a long run needs no more room."""

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Needs
from noonward.decision.cluster.view import ASK_FINISHED
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.build import SLOTS
from noonward.engine.cluster.engine import ClusterEngine
from noonward.ledger.segments import OVERDUE
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from reference.small_worlds import draw, plain


def most_in_sight(outcome):
    """Most jobs that were in the system at once; a dropped job counts as long as it could."""
    jobs, track = outcome.environment.jobs, outcome.job_J
    gone_s = np.where(track["status"] == OVERDUE, jobs.arrival_s_J + jobs.slack_s_J, track["finish_s"])
    time_s = np.concatenate([jobs.arrival_s_J, np.minimum(gone_s, outcome.ended_s)])
    change = np.repeat([1, -1], len(jobs))
    order = np.lexsort([-change, time_s])
    return int(np.cumsum(change[order]).max())


@pytest.mark.parametrize(
    ("scenario", "settings", "policy"),
    [
        ("dvfs-training", ["window_h=35"], "greedy-energy(gpus=2)"),
        ("tiny", ["window_h=2400", "jobs.count=1200"], "booked-persistence"),
    ],
)
def test_a_long_run_needs_room_for_the_jobs_in_sight_alone(scenario, settings, policy):
    environment = build_environment(load_scenario(scenario, settings))
    scheduler = make_scheduler(policy)
    engine = ClusterEngine(environment, scheduler)
    scheduler.reset(engine.brief, stream(0, "policy"))
    engine.run_compiled()
    peak, slots = most_in_sight(engine.outcome()), len(engine.view.job_J)
    assert len(environment.jobs) > 25 * peak
    assert slots <= max(SLOTS, 2 * peak)
    assert len(scheduler.memory.serial_J) == slots
    size = sum(array.nbytes for array in scheduler.memory)
    again = make_scheduler(policy)
    ClusterEngine(environment, again)  # books at the start, for as many slots
    again.reset(engine.brief, stream(0, "policy"))
    assert size == sum(array.nbytes for array in again.memory.for_jobs(slots))


class Watches(Scheduler):
    """Starts what fits and checks at every question that the view shows the jobs in sight and no other."""

    needs = Needs(finished=True)

    def __init__(self, jobs):
        self.jobs, self.slot_of, self.reused = jobs, {}, 0

    def decide(self, view, answers):
        shown = view.job_J["serial"]
        for slot, serial in enumerate(shown.tolist()):
            if serial < 0:
                continue
            assert view.job_J["arrival_s"][slot] == self.jobs.arrival_s_J[serial] <= view.now_s
            assert view.job_J["work"][slot] == self.jobs.work_J[serial]
            self.reused += serial not in self.slot_of and slot in self.slot_of.values()
            assert self.slot_of.setdefault(serial, slot) == slot  # a job keeps its slot
        held = shown[shown >= 0].tolist()
        assert len(set(held)) == len(held)
        if view.kind == ASK_FINISHED:
            assert view.serial_N[0] in held
            return
        for asker, slot in view.asked():
            assert view.serial_N[asker] == shown[slot]
            feasible = np.flatnonzero(view.mask_NA[asker])
            answers.send(asker, int(feasible[-1]) - 1) if feasible[-1] else answers.hold(asker)


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
def test_the_view_shows_the_jobs_in_sight_and_no_other(protocol):
    reused = 0
    for seed in range(12):
        environment = draw(seed, protocol).environment()
        scheduler = Watches(environment.jobs)
        engine = ClusterEngine(environment, scheduler)
        while engine.step():
            scheduler.decide(engine.view, engine.answers)
        reused += scheduler.reused
        if environment.drained:
            assert (engine.view.job_J["serial"] == -1).all()
    assert reused > 20


def test_the_table_doubles_when_a_job_arrives_and_no_slot_is_free():
    jobs = [{"arrival_s": 60.0 * (n == SLOTS), "slack_s": 1e5} for n in range(SLOTS + 1)]
    scheduler = make_scheduler("random")
    engine = ClusterEngine(plain([1], jobs).environment(), scheduler)
    seen = []
    while engine.step() and len(seen) <= SLOTS:  # nobody answers: all wait
        seen.append((int((engine.view.job_J["serial"] >= 0).sum()), len(engine.view.job_J)))
    assert (SLOTS, SLOTS) in seen
    assert seen[-1] == (SLOTS + 1, 2 * SLOTS)
