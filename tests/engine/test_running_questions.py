"""When schedulers are asked about running jobs: hours of signals, freed GPUs, grid events; also under on-arrival."""

from dataclasses import replace

import pytest

from engine.test_suspension import CHECKPOINT, LONG
from noonward.decision.brief import Needs
from noonward.decision.cluster.view import ASK_ALLOCATE, ASK_FINISHED, ASK_ROUTE, ASK_RUNNING
from noonward.decision.scheduler import Scheduler
from noonward.engine.run import run
from noonward.errors import InfeasibleActionError
from noonward.ledger.ledger import settle
from noonward.ledger.segments import OVERDUE, RUN, SEGMENT_NAMES
from noonward.model.cluster.event import GridEvent, SiteEvent
from noonward.units import HOUR_S
from reference import small_worlds, suspension

FREE = suspension.Freedom()
BOTH = ("each-slot", "on-arrival")


class Asked(Scheduler):
    """Starts jobs at once at their home; writes down when it is asked about which running jobs, and suspends some.

    Args:
        stops: By the job's number, at which hour it is suspended and before which it is not to be resumed.
        needs: What it needs beside the lever.
    """

    def __init__(self, stops=None, *, levers=("suspend",), **needs):
        self.needs = Needs(levers=levers, **needs)
        self.stops, self.asked, self.finished, self.allocated = stops or {}, [], [], []

    def decide(self, view, answers):
        if view.kind == ASK_FINISHED:
            self.finished.append(view.now_s / HOUR_S)
            return
        for asker, job in view.asked():
            serial, hour = int(view.job_J["serial"][job]), view.now_s / HOUR_S
            if view.kind == ASK_RUNNING:
                self.asked.append((serial, hour))
                stop_h, until_h = self.stops.get(serial, (None, 0.0))
                if hour == stop_h:
                    answers.suspend(asker, until_h * HOUR_S)
            elif view.kind == ASK_ALLOCATE:
                self.allocated.append((serial, hour))
            else:
                home = asker if view.kind != ASK_ROUTE else int(view.home_I[view.job_J["origin"][job]])
                if view.allowed(asker, home):
                    answers.send(asker, home)


def played(
    protocol, jobs, scheduler, *, gpus=(4,), price=((10.0, 20.0, 30.0, 40.0, 50.0, 60.0),), freedom=FREE, **more
):
    events = more.pop("events", ())
    if price is not None:
        price = [list(row) for row in price]
    world = small_worlds.plain(
        list(gpus), jobs, protocol=protocol, price=price, freedoms={0: freedom}, slot_s=600.0, **more
    )
    return run(replace(world.environment(), events=tuple(events)), scheduler)


SHORT = {"work": 1200.0, "slack_s": 5 * HOUR_S}
WIDE = {"gpus": 2, "work": 2.5 * HOUR_S, "slack_s": 5 * HOUR_S}


@pytest.mark.parametrize("protocol", BOTH)
def test_who_wants_to_know_of_freed_gpus_is_asked_where_and_when_they_are_and_not_in_every_slot(protocol):
    jobs = [WIDE, SHORT, {"arrival_s": 1500.0, **SHORT}]
    played(protocol, jobs, scheduler := Asked())
    assert scheduler.asked == [(0, 1.0), (0, 2.0)]
    played(protocol, jobs, scheduler := Asked(freed=True))
    third_h = {"each-slot": 3000.0, "on-arrival": 2700.0}[protocol]  # under each-slot it starts in the next slot
    assert scheduler.asked == [(0, 1200 / HOUR_S), (0, third_h / HOUR_S), (0, 1.0), (0, 2.0)]


@pytest.mark.parametrize("protocol", BOTH)
def test_only_the_site_where_gpus_were_freed_asks(protocol):
    jobs = [WIDE, {"origin": 1, **WIDE}, {"origin": 1, **SHORT}]
    played(protocol, jobs, scheduler := Asked(freed=True), gpus=(4, 4), price=([10.0], [10.0]))
    assert scheduler.asked == [(1, 1200 / HOUR_S), (0, 1.0), (1, 1.0), (0, 2.0), (1, 2.0)]


def test_running_jobs_are_asked_about_when_a_grid_event_begins_and_ends():
    """At a quarter past one and at ten to two, at its site alone; there are no signals that change."""
    at = {"start_s": 1.25 * HOUR_S, "end_s": HOUR_S * 110 / 60, "baseline_kw": 1.0, "target_kw": 0.5}
    event = SiteEvent(site="site1", event=GridEvent(**at))
    jobs = [WIDE, {"origin": 1, **WIDE}]
    scheduler = Asked()
    played("each-slot", jobs, scheduler, gpus=(4, 4), price=None, events=[event])
    assert scheduler.asked == [(1, 4800 / HOUR_S), (1, 6600 / HOUR_S)]  # slots of ten minutes
    played("each-slot", jobs, rigid := Asked(levers=()), gpus=(4, 4), price=None, events=[event])
    assert rigid.asked == []


def test_on_arrival_a_suspended_job_is_settled_stretch_by_stretch_as_under_each_slot():
    price = [[10.0 * (hour + 1) for hour in range(9)]]
    outcome = played("on-arrival", [LONG], scheduler := Asked({0: (1.0, 3.0)}), price=price, freedom=CHECKPOINT)
    found = [
        (SEGMENT_NAMES[r["kind"]], float(r["from_s"]), float(r["to_s"]), float(r["watts"])) for r in outcome.segment_K
    ]
    assert found == [
        ("run", 0.0, 3600.0, 200.0),
        ("stop", 3600.0, 3720.0, 70.0),
        ("load", 10800.0, 11190.0, 50.0),
        ("run", 11190.0, 18390.0, 200.0),
    ]
    assert scheduler.asked == [(0, 1.0), (0, 4.0), (0, 5.0)]
    ledger = settle(outcome)
    assert ledger.gpu_hours == pytest.approx(6.0)
    assert ledger.interruptions.suspensions == 1
    assert ledger.interruptions.overhead_gpu_hours == pytest.approx(2 * 510 / 3600)
    assert outcome.meters.utility_usd == pytest.approx(ledger.utility_usd)


def test_on_arrival_a_suspended_job_goes_before_those_that_have_not_run():
    """It stops at 1 for an hour; the second job takes its GPUs, and the third waits behind it."""
    second = {"arrival_s": HOUR_S, "gpus": 4, "work": 1.5 * HOUR_S, "slack_s": 9 * HOUR_S}
    third = {"arrival_s": 1.25 * HOUR_S, "gpus": 4, "work": HOUR_S, "slack_s": 9 * HOUR_S}
    outcome = played("on-arrival", [LONG, second, third], Asked({0: (1.0, 2.0)}))
    starts_h = (outcome.job_J["start_s"] / HOUR_S).tolist()
    assert starts_h == [0.0, 1.0, 4.5]
    assert outcome.job_J["finish_s"][0] == 4.5 * HOUR_S  # resumed at 2.5, when the second ends


def test_on_arrival_a_job_that_would_keep_a_suspended_one_out_waits_for_it():
    """The first is due at 6; the second would hold all GPUs until 7."""
    second = {"arrival_s": HOUR_S, "gpus": 4, "work": 6 * HOUR_S, "slack_s": 9 * HOUR_S}
    outcome = played("on-arrival", [LONG, second], Asked({0: (1.0, 6.0)}))
    assert (outcome.job_J["start_s"] / HOUR_S).tolist() == [0.0, 8.0]
    assert outcome.job_J["finish_s"].tolist() == [8 * HOUR_S, 14 * HOUR_S]


def test_on_arrival_work_of_a_job_that_does_not_get_back_is_lost():
    """GPUs that are withheld are not foreseen: it waits beyond its last start, and is dropped."""
    held = {"withheld": [[(0.0, 0), (2 * HOUR_S, 4)]]}
    outcome = played("on-arrival", [LONG], Asked({0: (1.0, 3.0)}), **held)
    assert outcome.job_J["status"].tolist() == [OVERDUE]
    ledger = settle(outcome)
    assert (ledger.gpu_hours, ledger.interruptions.lost_gpu_hours) == (0.0, pytest.approx(2.0))


def test_on_arrival_a_job_is_resized_when_it_is_resumed():
    freedom = suspension.Freedom(elastic=((1, 1.0), (2, 1.8), (4, 3.0)))
    needs = {"levers": ("resize",), "allocate": True, "finished": True}
    outcome = played("on-arrival", [LONG], scheduler := Asked({0: (1.0, 2.0)}, **needs), freedom=freedom)
    runs = [(float(r["from_s"]), float(r["to_s"]), int(r["gpus"])) for r in outcome.segment_K if r["kind"] == RUN]
    assert runs == [(0.0, HOUR_S, 2), (2 * HOUR_S, pytest.approx(HOUR_S * (2 + 2 / (3.0 / 1.8))), 4)]
    assert scheduler.allocated == [(0, 0.0), (0, 2.0)]
    assert scheduler.finished == pytest.approx([2 + 2 / (3.0 / 1.8)])


def test_on_arrival_running_jobs_are_capped():
    class Caps(Asked):
        def decide(self, view, answers):
            super().decide(view, answers)
            if view.kind == ASK_RUNNING:
                answers.cap(0, 1 if view.now_s < 2 * HOUR_S else 0)

    freedom = suspension.Freedom(interruptible=False, caps=((0.5, 0.8),))
    outcome = played("on-arrival", [LONG], Caps(levers=("cap",)), freedom=freedom)
    assert outcome.job_J["finish_s"].tolist() == [pytest.approx(HOUR_S * 3.2)]
    ledger = settle(outcome)
    assert ledger.interruptions.capped_gpu_hours == pytest.approx(2.0)
    assert outcome.meters.utility_usd == pytest.approx(ledger.utility_usd)


def test_on_arrival_an_answer_about_a_running_job_that_the_mask_does_not_hold_is_refused():
    class Wrong(Asked):
        def decide(self, view, answers):
            super().decide(view, answers)
            if view.kind == ASK_RUNNING:
                answers.answer_N["choice"][0] = 2

    with pytest.raises(InfeasibleActionError, match="choice 2"):
        played("on-arrival", [LONG], Wrong(), gpus=(4, 4), price=([10.0], [10.0]))
