"""Running jobs are suspended, resumed and capped; a crash at any call loses, doubles and strands none."""

import threading

import pytest

from live.test_handover import Cluster, CrashError
from noonward import ASK_RUNNING, Needs, Scheduler
from noonward.errors import ScenarioError
from noonward.live import setup as live_setup
from noonward.live.executors.protocol import ClusterError, RefusedError, Status
from noonward.live.executors.running import EVERY_LEVER
from noonward.live.journal import replay_journal
from noonward.live.operator import cancel_job
from noonward.live.requests import JobRequest
from noonward.live.running_agent import IN_A_ROW
from noonward.live.segments import stored_segments
from noonward.live.why import why

HOUR_S = 3600.0
FREE = (
    "fleet.freedoms={fine-tuning: {interruptible: true, caps: {power: [0.5, 1], throughput: [0.8, 1]}, checkpoint: "
    "{stop_s: 60, dark_s: 60, load_s: 60}}}",
)


class Tides(Scheduler):
    """Runs jobs where they are; suspends them in odd hours, or caps them there."""

    needs = Needs(protocols=("each-slot",), signals=True, levers=("suspend", "cap"))
    caps = False

    def decide(self, view, answers):
        odd = int(view.now_s // HOUR_S) % 2 == 1
        for site, _ in view.asked():
            if view.kind != ASK_RUNNING:
                if view.allowed(site, site) and not (odd and not self.caps):
                    answers.send(site, site)
            elif self.caps:
                answers.cap(site, int(odd))
            elif odd and view.allowed(site, site):
                answers.suspend(site)


class Bending(Cluster):
    """A cluster that stops running jobs, keeps them and lets them run again; every call may be the last."""

    levers = EVERY_LEVER
    stopped_as = frozenset({"held"})
    fresh = keeps_gpus = False
    grace_s = 0.0

    def __init__(self):
        super().__init__()
        self.signals, self.caps, self.starts = {}, {}, {}
        self.refuses = ""

    def release(self, order):
        def work():
            if self.jobs[order.handle]["phase"] == "held":
                self.jobs[order.handle]["phase"] = "running"
                self.starts.setdefault(order.job, []).append(order.handle)

        self._called(work)

    def signal(self, order):
        self._called(lambda: self.signals.update({order.handle: self.signals.get(order.handle, 0) + 1}))

    def stop(self, order):
        def work():
            if self.refuses:
                raise RefusedError(self.refuses)
            if self.jobs[order.handle]["phase"] == "running":
                self.jobs[order.handle]["phase"] = "cancelled" if self.fresh else "held"

        self._called(work)

    def resume(self, order):
        if self.fresh:
            return False
        self.release(order)
        return True

    def cap(self, order, share):
        if self.refuses:
            raise RefusedError(self.refuses)
        self._called(lambda: self.caps.update({order.handle: share}))
        return "node1"

    def statuses(self, orders):
        return [
            Status(
                token=order.token,
                handle=order.handle,
                phase=self.jobs[order.handle]["phase"],
                exit_code=self.jobs[order.handle].get("code"),
            )
            for order in orders
            if order.handle in self.jobs
        ]

    def running(self):
        """Jobs that run, each as often as it does."""
        return sorted(one["job"] for one in self.jobs.values() if one["phase"] == "running")


@pytest.fixture(params=["kept", "fresh"])
def live(service, request, monkeypatch):
    """A service whose cluster at the first site stops jobs; it keeps them, or takes them anew."""
    monkeypatch.setattr(live_setup, "make_scheduler", lambda policy: Tides())
    cluster = Bending()
    if request.param == "fresh":
        cluster.fresh, cluster.stopped_as = True, frozenset({"cancelled"})
    made = service("local-fcfs", *FREE, executors={"north": cluster})
    made.cluster = cluster
    return made


def submit(live, count=1):
    return [
        live.submit(JobRequest(name="a", work=4 * HOUR_S, origin="north", class_="fine-tuning", max_delay_s=9e5))[0]
        for _ in range(count)
    ]


def to(live, until_s, every_s=60.0):
    """Lets time pass, slot by slot, and starts the service again whenever it is killed."""
    while live.clock.seconds < until_s:
        live.set_time(live.clock.seconds + every_s)
        while True:
            try:
                for s in range(len(live.controller.setup.sites)):
                    live.controller.reconcile(s)
                    live.controller.track(s)
                live.controller.decide()
                for s in range(len(live.controller.setup.sites)):
                    live.controller.deliver(s)
            except CrashError:
                live.restart()
                continue
            break


def row(live, job):
    return live.store.read("SELECT * FROM jobs WHERE id = ?", job)[0]


def kinds(live, job):
    return [one["kind"] for one in live.store.read("SELECT kind FROM events WHERE job = ? ORDER BY id", job)]


def test_a_job_is_suspended_and_resumed_as_its_cluster_says(live):
    (job,) = submit(live)
    to(live, HOUR_S)
    assert (row(live, job)["state"], live.controller.world.view.site_S["free"][0]) == ("running", 7)
    to(live, HOUR_S + 60)
    assert (row(live, job)["state"], live.cluster.running()) == ("suspended", [])
    to(live, HOUR_S + 120)
    assert live.controller.world.view.site_S["free"][0] == 8
    assert why(live.controller, job).reason == "policy"
    to(live, 2 * HOUR_S + 180)
    assert (row(live, job)["state"], live.cluster.running()) == ("running", [job])
    assert [one.kind for one in stored_segments(live.store, job, False)] == ["run", "stop", "dark", "load", "run"]
    assert kinds(live, job).count("suspended") == 1


@pytest.mark.parametrize("when", ["crash_at", "crash_after"])
@pytest.mark.parametrize("call", range(1, 11))
def test_a_crash_at_any_call_loses_doubles_and_strands_none(live, when, call):
    jobs = submit(live, 2)
    to(live, HOUR_S - 60)
    assert live.cluster.running() == jobs
    live.cluster.calls = 0
    setattr(live.cluster, when, call)
    to(live, HOUR_S + 300)
    assert [row(live, job)["state"] for job in jobs] == ["suspended"] * 2
    assert live.cluster.running() == []
    to(live, 2 * HOUR_S + 300)
    assert live.cluster.calls >= (call if live.cluster.fresh else min(call, 6))
    assert [row(live, job)["state"] for job in jobs] == ["running"] * 2
    assert live.cluster.running() == jobs
    assert all(len(live.cluster.starts[job]) == 2 for job in jobs)
    assert live.controller.world.view.site_S["free"][0] == 6


def test_a_job_that_ends_while_it_is_to_stop_is_done(live):
    (job,) = submit(live)
    to(live, HOUR_S - 60)
    live.cluster.grace_s = 600.0
    to(live, HOUR_S)
    assert live.store.read("SELECT stage FROM outbox")[0]["stage"] == "stopping"
    live.cluster.jobs["1"]["phase"] = "done"
    to(live, HOUR_S + 120)
    assert row(live, job)["state"] == "done"
    assert live.controller.world.view.site_S["free"][0] == 8
    assert not live.controller.world.seat_of


def test_a_job_that_writes_its_checkpoint_at_once_is_not_waited_for(live):
    (job,) = submit(live)
    to(live, HOUR_S - 60)
    live.cluster.grace_s = 6000.0
    to(live, HOUR_S)
    live.cluster.jobs["1"] |= {"phase": "failed", "code": 85}
    if not live.cluster.fresh:
        live.cluster.stop = lambda order: live.cluster.jobs["1"].update(phase="held")
    to(live, HOUR_S + 180)
    assert row(live, job)["state"] == "suspended"
    assert live.cluster.signals == {"1": 1}


def test_a_job_runs_on_where_its_cluster_does_not_stop_it(live):
    (job,) = submit(live)
    to(live, HOUR_S - 60)
    live.cluster.refuses = "not allowed"
    to(live, HOUR_S + 180)
    assert (row(live, job)["state"], live.cluster.running()) == ("running", [job])
    assert live.controller.world.view.site_S["free"][0] == 7
    assert "suspension refused" in kinds(live, job)
    assert live.store.read("SELECT stage FROM outbox")[0]["stage"] == "released"


def test_a_suspended_job_that_is_cancelled_ends_at_its_cluster_too(live):
    (job,) = submit(live)
    to(live, HOUR_S + 300)
    assert row(live, job)["state"] == "suspended"
    cancel_job(live.controller, job, "root")
    to(live, HOUR_S + 420)
    assert (row(live, job)["state"], live.cluster.jobs["1"]["phase"]) == ("cancelled", "cancelled")
    assert not live.controller.world.seat_of
    live.restart()
    assert not live.controller.world.seat_of


def test_nothing_is_told_of_a_job_while_its_cluster_is_silent(live):
    (job,) = submit(live)
    to(live, HOUR_S)
    live.cluster.statuses = silent
    with pytest.raises(ClusterError):
        live.controller.track(0)
    live.controller.decide()
    assert row(live, job)["state"] == "running"
    assert live.controller.world.view.site_S["free"][0] == 7


def begun_in_turn(live, monkeypatch, action):
    """Six jobs whose cluster does nothing for the first ones; returns all, and those for which it does nothing yet."""
    jobs = submit(live, 6)
    to(live, HOUR_S)
    asked, stuck = [], set(jobs[:IN_A_ROW])
    does = getattr(live.cluster, action)

    def act(order, *more):
        asked.append(order.job)
        if order.job in stuck:
            raise ClusterError("no answer")
        return does(order, *more)

    monkeypatch.setattr(live.cluster, action, act)
    live.controller.track(0)
    assert asked == jobs[:IN_A_ROW]
    asked.clear()
    live.controller.track(0)
    assert asked == jobs[IN_A_ROW:] + jobs[:IN_A_ROW]
    return jobs, stuck


def test_a_cluster_that_stops_no_job_now_is_not_asked_about_every_job(live, monkeypatch):
    """It may be away, and each call may take half a minute; those behind come first in the next step."""
    jobs, stuck = begun_in_turn(live, monkeypatch, "stop")
    stuck.clear()
    live.controller.track(0)
    live.controller.decide()
    assert {row(live, job)["state"] for job in jobs} == {"suspended"}


def test_a_cluster_that_sets_no_cap_now_is_not_asked_about_every_job(live, monkeypatch):
    monkeypatch.setattr(Tides, "caps", True)
    begun_in_turn(live, monkeypatch, "cap")


def test_a_signal_that_the_cluster_does_not_pass_on_holds_nothing_else_up(live):
    (job,) = submit(live)
    to(live, HOUR_S - 60)
    passed_on, told = threading.Event(), threading.Event()

    def signal(order, signal=live.cluster.signal):
        told.set()
        passed_on.wait()
        signal(order)

    live.cluster.signal = signal
    acting = live.controller.agents[0].running._acting
    acting.wait_s = 0.0
    to(live, HOUR_S)
    assert told.wait(60.0)
    other = live.submit(JobRequest(name="b", work=60.0, origin="north", class_="fine-tuning", max_delay_s=9e5))[0]
    live.store.do(lambda connection, now_s: start_at_once(connection, other))
    live.controller.deliver(0)
    live.controller.track(0)
    assert (row(live, other)["state"], live.cluster.running()) == ("running", [job, other])
    assert live.store.read("SELECT signalled_s FROM outbox WHERE job = ?", job)[0]["signalled_s"] is None
    passed_on.set()
    acting._last.result(60.0)
    acting.wait_s = 60.0
    to(live, HOUR_S + 120)
    assert (row(live, job)["state"], live.cluster.signals) == ("suspended", {"1": 1})


def start_at_once(connection, job):
    """Has a job handed over, as if it had been decided."""
    connection.execute(
        "UPDATE jobs SET state = 'starting', token = 'nw-x', gpus = 1, run_s = 60, start_s = 0, serial = 99, "
        "site = 'north' WHERE id = ?",
        (job,),
    )
    connection.execute(
        "INSERT INTO outbox (token, job, site, stage, gpus) VALUES ('nw-x', ?, 'north', 'queued', 1)", (job,)
    )


def test_a_job_that_ends_upon_a_late_signal_is_run_again_once(live):
    (job,) = submit(live)
    to(live, 2 * HOUR_S + 300)
    assert row(live, job)["state"] == "running"
    last = list(live.cluster.jobs)[-1]
    told = live.store.read("SELECT signalled_s FROM outbox WHERE job = ? AND stage = 'released'", job)[0]["signalled_s"]
    live.cluster.resume = lambda order: False  # it has ended there
    live.cluster.jobs[last] |= {"phase": "failed", "code": 85}
    to(live, 2 * HOUR_S + 420)
    if told is None:  # a resumption that is a new submission has a new handle: nobody told that one to stop
        assert row(live, job)["state"] == "failed"
        return
    assert (row(live, job)["state"], live.cluster.running()) == ("running", [job])
    assert kinds(live, job).count("ended upon a late signal") == 1
    live.cluster.jobs[list(live.cluster.jobs)[-1]] |= {"phase": "failed", "code": 85}
    to(live, 2 * HOUR_S + 540)
    assert row(live, job)["state"] == "failed"


def test_a_held_job_that_is_to_stop_and_is_not_recorded_is_no_stray(live):
    submit(live)
    to(live, 60.0)
    live.cluster.jobs["1"]["phase"] = "held"
    live.store.do(lambda connection, now_s: connection.execute("UPDATE outbox SET stage = 'stopping', handle = NULL"))
    live.controller.reconcile(0)
    assert live.cluster.jobs["1"]["phase"] == "held"
    live.store.do(lambda connection, now_s: connection.execute("UPDATE outbox SET stage = 'withdrawn'"))
    live.controller.reconcile(0)
    assert live.cluster.jobs["1"]["phase"] == "cancelled"


def silent(orders):
    raise ClusterError("no answer")


@pytest.mark.parametrize("refuses", ["", "no right to"])
def test_a_cap_holds_once_the_cluster_has_set_it_and_is_taken_off_at_the_end(live, monkeypatch, refuses):
    monkeypatch.setattr(Tides, "caps", True)
    (job,) = submit(live)
    to(live, HOUR_S)
    world = live.controller.world
    life = world.view.life_J[world.seat_of[0].slot]
    assert (life["cap"], live.cluster.caps) == (0, {})
    live.cluster.refuses = refuses
    live.controller.track(0)
    to(live, HOUR_S + 60)
    assert (life["cap"], row(live, job)["cap"]) == ((0, 0) if refuses else (1, 1))
    assert live.cluster.caps == ({} if refuses else {"1": 0.5})
    live.restart()
    world = live.controller.world
    assert world.view.life_J["cap"][world.seat_of[0].slot] == (0 if refuses else 1)
    live.cluster.jobs["1"]["phase"] = "done"
    to(live, HOUR_S + 180)
    assert live.cluster.caps == ({} if refuses else {"1": 1.0})


def test_a_policy_that_does_what_a_site_cannot_is_refused(service, monkeypatch):
    monkeypatch.setattr(live_setup, "make_scheduler", lambda policy: Tides())
    cluster = Bending()
    cluster.levers = frozenset({"suspend"})
    with pytest.raises(ScenarioError, match=r"local-fcfs wants to cap running jobs, which site north .* power_cap"):
        service("local-fcfs", *FREE, executors={"north": cluster})


def test_a_replay_decides_the_same(live):
    (job,) = submit(live)
    to(live, 3 * HOUR_S + 120)
    assert row(live, job)["state"] == "suspended"
    replayed = replay_journal(live.controller.setup, live.store)
    assert replayed.same
    assert replayed.compared > 3
