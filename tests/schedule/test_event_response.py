"""EventResponse: limits are kept by holding, capping and suspending; without an event nothing changes."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.events import INTERVAL_S
from noonward.data.scenarios.load import load_scenario
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.evaluate.events.play import playable, work_gpu_hours
from noonward.ledger.meters import interval_kw
from noonward.ledger.segments import DONE
from noonward.model.cluster.event import GridEvent, SiteEvent
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.meter import Meter
from noonward.schedule.cluster.event_response import EventResponse
from noonward.schedule.cluster.slot_rules import LocalFcfs
from noonward.schedule.policies import _packaged, make_scheduler, register, registered_policies, using
from noonward.seeding import stream

FREE = "{interruptible: true, caps: zeus-v100-bert}"
SETTINGS = (f"fleet.freedoms={{fine-tuning: {FREE}}}", "jobs.slack_ratio=8", "jobs.count=80")
BASE = "cheapest-feasible"


def environment(*settings):
    return playable(build_environment(load_scenario("tiny", [*SETTINGS, *settings])))


@pytest.fixture(scope="module")
def world():
    return environment()


@pytest.fixture(scope="module")
def ride(world):
    return interval_kw(run(world, make_scheduler(BASE)), INTERVAL_S)


def event(world, ride, *, cut=0.3, start_h=4.0, hours=2.0, notice_h=0.0, site=0):
    """An event that cuts a share of the mean power without it."""
    rows = slice(round(start_h * 12), round((start_h + hours) * 12))
    baseline = float(ride[site, rows].mean())
    return SiteEvent(
        site=world.sites[site],
        event=GridEvent(
            start_s=3600 * start_h,
            end_s=3600 * (start_h + hours),
            notice_s=3600 * notice_h,
            baseline_kw=baseline,
            target_kw=(1 - cut) * baseline,
            ramp_s=900.0,
        ),
    )


def played(world, events, levers, order="least-loss"):
    outcome = run(replace(world, events=tuple(events)), EventResponse(make_scheduler(BASE), levers, order))
    return outcome, interval_kw(outcome, INTERVAL_S)


def test_without_an_event_nothing_changes(world):
    alone = run(world, make_scheduler(BASE))
    below = run(world, EventResponse(make_scheduler(BASE)))
    assert alone.job_J.tobytes() == below.job_J.tobytes()


def test_parts_of_an_hour_change_no_run_of_a_policy_that_is_not_asked_about_running_jobs(world):
    hourly = build_environment(load_scenario("tiny", SETTINGS))
    one, other = (run(each, make_scheduler(BASE)).job_J for each in (hourly, world))
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("base", ["cheapest-feasible", "bid-price(forecast=regression)", "suspend-threshold"])
def test_the_base_answers_in_one_loop_while_no_event_is_known(world, ride, base, monkeypatch):
    called = tuple(event(world, ride, start_h=h, notice_h=0.5, hours=1.0, site=s) for h, s in ((3.0, 0), (9.0, 1)))
    noisy, asked = replace(world, events=called), []
    decide = EventResponse.decide
    monkeypatch.setattr(EventResponse, "decide", lambda self, *about: (asked.append(0), decide(self, *about)))
    one_by_one = run(noisy, EventResponse(make_scheduler(base)), compiled=False)
    count = len(asked)
    assert run(noisy, EventResponse(make_scheduler(base))).tobytes() == one_by_one.tobytes()
    assert len(asked) - count < 0.6 * count


@pytest.mark.parametrize("levers", [("hold", "cap"), ("hold", "suspend"), ("hold", "cap", "suspend")])
def test_a_site_stays_within_its_limit_after_the_ramp(world, ride, levers):
    one = event(world, ride)
    assert ride[0, 51:72].max() > one.event.target_kw
    _, kw = played(world, [one], levers)
    above = kw[0, 51:72] > one.event.target_kw * (1 + 1e-9)
    assert kw[0, 51:72].mean() <= one.event.target_kw
    # A job without slack is started all the same, until running jobs are asked about five minutes later.
    assert above.sum() <= 1


def test_suspended_jobs_are_resumed_where_late_jobs_wait_behind_others():
    late = environment("lateness.rule=wait", "jobs.slack_ratio=1", "jobs.count=30")
    scheduler = make_scheduler("local-fcfs")
    without = interval_kw(run(late, scheduler), INTERVAL_S)
    called = [event(late, without, cut=0.5, hours=4.0, site=site) for site in (0, 1)]
    followed = EventResponse(scheduler, ("hold", "suspend"))
    outcome = run(replace(late, events=tuple(called)), followed)
    assert outcome.count(DONE) == len(late.jobs)


def test_caps_lose_less_work_than_suspensions(world, ride):
    one = event(world, ride)
    (_, capped), (_, stopped) = (played(world, [one], ("hold", lever)) for lever in ("cap", "suspend"))
    assert stopped[0, 51:72].mean() < capped[0, 51:72].mean() < ride[0, 51:72].mean()


def test_emeralds_rules_keep_the_limit_too_and_lose_no_less_work(world, ride):
    one = event(world, ride)
    done = {}
    for order in ("least-loss", "dvfs-fair", "dvfs-pause-fair", "pause-greedy"):
        outcome, kw = played(world, [one], ("hold", "cap", "suspend"), order)
        assert kw[0, 51:72].mean() <= one.event.target_kw
        done[order] = work_gpu_hours(outcome, [(4 * 3600.0, 6 * 3600.0)])
        bent = outcome.segment_K is not None and len(outcome.segment_K) > 0
        assert bent or order != "pause-greedy"
    assert done["least-loss"] > done["dvfs-pause-fair"] > done["pause-greedy"]
    assert done["dvfs-fair"] != done["pause-greedy"]


ELASTIC = "{interruptible: true, elastic: {gpus: [1, 2, 4], speedup: [1, 1.9, 3.6]}}"


@pytest.fixture(scope="module")
def elastic():
    """A fleet whose jobs of 4 GPUs may be resized, and its power without an event."""
    world = environment(f"fleet.freedoms={{fine-tuning: {ELASTIC}}}", "jobs.slack_ratio=20")
    return world, interval_kw(run(world, make_scheduler(BASE)), INTERVAL_S)


def test_pause_resize_fair_takes_gpus_for_the_event_and_gives_them_back(elastic):
    """Two jobs of four GPUs run for six hours; an event pauses one, and the other one loses two GPUs."""
    world, _ = elastic
    jobs = Jobs.build(arrival_s=np.zeros(2), work=np.full(2, 6 * 3600.0), slack_s=43200.0, gpus=4, origin=0)
    world = replace(world, jobs=jobs, events=())
    ride = interval_kw(run(world, make_scheduler("local-fcfs")), INTERVAL_S)
    one = event(world, ride, cut=0.5, start_h=2.0, hours=1.5)
    scheduler = EventResponse(make_scheduler("local-fcfs"), ("hold", "suspend"), "pause-resize-fair")
    outcome = run(replace(world, events=(one,)), scheduler)
    power = outcome.power
    gangs = {job: power.gpus_K[power.job_K == job].tolist() for job in (0, 1)}
    assert all(each[0] == each[-1] == 4 for each in gangs.values())
    small = power.gpus_K == 2
    assert len(set(power.job_K[small].tolist())) == 1
    assert power.from_s_K[small].min() >= one.event.start_s
    assert one.event.end_s <= power.to_s_K[small].max() <= one.event.end_s + 1800
    kw = interval_kw(outcome, INTERVAL_S)
    assert kw[0, 30:42].max() <= one.event.target_kw


@pytest.mark.parametrize("order", ["dvfs-pause-fair", "pause-resize-fair"])
def test_a_restored_response_answers_as_the_one_that_was_stored(elastic, order):
    world, ride = elastic
    caps = "{interruptible: true, caps: zeus-v100-bert, elastic: {gpus: [1, 2, 4], speedup: [1, 1.9, 3.6]}}"
    world = replace(environment(f"fleet.freedoms={{fine-tuning: {caps}}}", "jobs.slack_ratio=20"))
    world = replace(world, events=(event(world, ride, start_h=5.0),))
    answers, states = {}, []
    for restart in (False, True):
        scheduler = EventResponse(make_scheduler(BASE), order=order)
        engine = ClusterEngine(world, scheduler, seed=3)
        scheduler.reset(engine.brief, stream(3, "policy", 0))
        answers[restart], stored = [], False
        while engine.step():
            state = scheduler.state()
            if restart and not stored and (len(state["turns"]) or len(state["gangs"])):
                stored = True
                states.append(state)
                scheduler = EventResponse(make_scheduler(BASE), order=order)
                scheduler.reset(engine.brief, stream(8, "policy", 0))
                scheduler.load_state(state)
            scheduler.decide(engine.view, engine.answers)
            answers[restart].append(engine.answers.answer_N.tobytes())
    assert states
    assert answers[True] == answers[False]


MOVING = "{interruptible: true, caps: zeus-v100-bert, moves: true, checkpoint: {gb: 1}}"


@pytest.fixture(scope="module")
def moving():
    """A fleet whose running jobs may be resumed at the other site, and its power without an event."""
    world = environment(f"fleet.freedoms={{fine-tuning: {MOVING}}}", "jobs.count=25", "fleet.sites.1.pue=1.1")
    return world, interval_kw(run(world, make_scheduler(LOCAL)), INTERVAL_S)


LOCAL = "local-fcfs"
ALL = ("hold", "cap", "suspend")


def moved(world, events, levers):
    outcome = run(replace(world, events=tuple(events)), EventResponse(make_scheduler(LOCAL), levers))
    return outcome, interval_kw(outcome, INTERVAL_S)


def sites_of(outcome):
    """The sites at which each job ran, by job."""
    power, found = outcome.power, {}
    for job, site in zip(power.job_K.tolist(), power.site_K.tolist(), strict=True):
        found.setdefault(job, []).append(site)
    return found


def test_running_jobs_go_to_a_site_without_an_event_and_waiting_ones_follow(moving):
    """A job that runs at the site is resumed at the other one, and one that comes in the event starts there."""
    world, _ = moving
    jobs = Jobs.build(
        arrival_s=np.array([0.0, 9000.0]), work=np.array([21600.0, 3600.0]), slack_s=43200.0, gpus=4, origin=1
    )
    world = replace(world, jobs=jobs, events=())
    ride = interval_kw(run(world, make_scheduler(LOCAL)), INTERVAL_S)
    one = event(world, ride, cut=0.9, start_h=2.0, site=1)
    stayed, _ = moved(world, [one], ALL)
    outcome, kw = moved(world, [one], (*ALL, "move"))
    assert set(sites_of(stayed)[0]) == set(sites_of(stayed)[1]) == {1}
    assert sites_of(outcome)[0][0] == 1
    assert sites_of(outcome)[0][-1] == 0
    assert set(sites_of(outcome)[1]) == {0}
    assert kw[1, 27:48] == pytest.approx(8 * 8 * 1.1 / 1000)
    span = [(2 * 3600.0, 4 * 3600.0)]
    assert work_gpu_hours(outcome, span) > work_gpu_hours(stayed, span) + 4


def test_no_job_goes_to_a_site_that_is_in_an_event_or_told_of_one(moving):
    world, ride = moving
    both = [event(world, ride, cut=0.9, site=1), event(world, ride, cut=0.9, site=0)]
    outcome, _ = moved(world, both, (*ALL, "move"))
    stayed, _ = moved(world, both, ALL)
    assert outcome.job_J.tobytes() == stayed.job_J.tobytes()


def test_a_journey_that_costs_more_than_the_work_is_not_made(moving):
    world, ride = moving
    dear = replace(world, links=replace(world.links, usd_per_gb_IS=world.links.usd_per_gb_IS + 1e3))
    one = event(world, ride, cut=0.9, site=1)
    outcome, _ = moved(dear, [one], (*ALL, "move"))
    stayed, _ = moved(dear, [one], ALL)
    assert outcome.job_J["site"].tolist() == stayed.job_J["site"].tolist()


def test_an_event_changes_nothing_before_its_notice(world, ride):
    """What is announced is known from the notice on: two events that differ lead to the same run until then."""
    runs = []
    for cut, notice_h in ((0.9, 1.0), (0.3, 1.0), (0.9, 0.0)):
        one = event(world, ride, cut=cut, notice_h=notice_h)
        runs.append(played(world, [one], ("hold", "cap", "suspend"))[0].job_J)
    alone = run(world, make_scheduler(BASE)).job_J
    for job_J in runs:
        early = (alone["start_s"] < 3 * 3600) | (job_J["start_s"] < 3 * 3600)
        assert early.any()
        assert (alone["start_s"][early] == job_J["start_s"][early]).all()
    assert (runs[0]["start_s"] != runs[2]["start_s"]).any()


def test_a_base_load_counts_into_the_limit(world, ride):
    meters = [{"interval_min": 5, "base_kw": kw} for kw in (0.0, 0.1)]
    drawn = []
    for meter in meters:
        sites = list(world.fleet.sites)
        sites[0] = sites[0].model_copy(update={"meter": Meter(**meter)})
        metered = replace(world, fleet=world.fleet.model_copy(update={"sites": tuple(sites)}))
        drawn.append(played(metered, [event(world, ride)], ("hold", "cap", "suspend"))[1][0, 51:72])
    target = event(world, ride).event.target_kw
    assert drawn[0].mean() <= target
    assert drawn[1].mean() <= target
    assert drawn[1].mean() > drawn[0].mean() - 0.1


def test_the_registry_makes_it_by_name():
    one = make_scheduler(
        "event-response(base=bid-price(forecast=regression, rounds=2), levers=hold-cap, order=dvfs-fair)"
    )
    assert one.needs.samples
    assert "cap" in one.needs.levers
    with pytest.raises(ScenarioError, match="does not cap jobs itself"):
        make_scheduler("event-response(base=cap-threshold)")
    with pytest.raises(ScenarioError, match="unknown policy"):
        make_scheduler("event-response(base=hope)")


def test_it_rests_on_any_policy_that_a_user_can_name(tmp_path, monkeypatch):
    (tmp_path / "mine_of_events.py").write_text("from noonward.schedule.cluster.slot_rules import LocalFcfs as Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    name = "event-response(base=mine_of_events:Mine)"
    with using(_packaged().copy()):
        register("my-own", LocalFcfs)
        assert isinstance(make_scheduler("event-response(base=my-own)")._base, LocalFcfs)
        assert isinstance(make_scheduler(name)._base, LocalFcfs)
        sys.modules.pop("mine_of_events")
        with pytest.raises(ScenarioError, match="a file may name registered policies only"):
            registered_policies([name], "policies")
        assert "mine_of_events" not in sys.modules


def test_caps_are_lifted_after_the_event(world, ride):
    outcome, _ = played(world, [event(world, ride)], ("hold", "cap"))
    full_w = outcome.job_J["power_w"][outcome.power.job_K]
    capped = outcome.power.watts_K < full_w * (1 - 1e-9)
    assert capped.any()
    assert outcome.power.from_s_K[capped].min() >= 4 * 3600
    assert outcome.power.to_s_K[capped].max() <= 6 * 3600


def test_suspended_jobs_come_back_and_none_is_lost(world, ride):
    outcome, _ = played(world, [event(world, ride)], ("hold", "suspend"))
    assert outcome.segment_K is not None
    assert len(outcome.segment_K)
    bent = np.unique(outcome.segment_K["job"])
    assert (outcome.job_J["status"][bent] == run(world, make_scheduler(BASE)).job_J["status"][bent]).all()


def test_held_starts_wait_for_the_end_of_the_event(world, ride):
    alone = run(world, make_scheduler(BASE)).job_J
    one = event(world, ride, cut=0.9)
    outcome, kw = played(world, [one], ("hold",))
    inside = (alone["site"] == 0) & (alone["start_s"] >= 4 * 3600) & (alone["start_s"] < 6 * 3600)
    moved = inside & (outcome.job_J["start_s"] >= 6 * 3600)
    assert moved.any()
    assert kw[0, 51:72].mean() < ride[0, 51:72].mean()


def test_notice_holds_starts_before_the_event(world, ride):
    late, told = (
        played(world, [event(world, ride, cut=0.9, notice_h=notice)], ("hold",))[0].job_J["start_s"]
        for notice in (0.0, 1.0)
    )
    before = (late >= 3 * 3600) & (late < 4 * 3600)
    assert (told[before] >= 6 * 3600).any()


def test_the_other_site_goes_on(world, ride):
    _, kw = played(world, [event(world, ride, site=1)], ("cap",))
    assert np.array_equal(kw[0, :48], ride[0, :48])
    assert (kw[1, 51:72].mean() < ride[1, 51:72].mean()) or not ride[1, 51:72].max() > 0


def test_what_it_remembers_can_be_restored(world):
    one = EventResponse(make_scheduler(BASE))
    run(world, one)
    other = EventResponse(make_scheduler(BASE))
    run(world, other)
    other.load_state(one.state())
    assert other.state()["planned_s"] == one.state()["planned_s"]
    with pytest.raises(ScenarioError, match="made in the same way"):
        other.load_state({"x": 1})


def test_what_cannot_be_is_refused(world, ride):
    one = event(world, ride)
    with pytest.raises(ScenarioError, match="overlap"):
        replace(world, events=(one, one))
    with pytest.raises(ScenarioError, match="unknown lever"):
        EventResponse(make_scheduler(BASE), ("hope",))
    with pytest.raises(ScenarioError, match="unknown order"):
        EventResponse(make_scheduler(BASE), order="best")
    with pytest.raises(ScenarioError, match="the fleet's sites are"):
        replace(world, events=(SiteEvent(site="nowhere", event=one.event),))
    with pytest.raises(ScenarioError, match="does not cap jobs itself"):
        EventResponse(make_scheduler("cap-threshold"))
