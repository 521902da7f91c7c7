"""Hand-over by the held protocol: whatever step a crash hits, no job is lost and none runs twice."""

import json
import threading

import pytest

from noonward.live.executors.protocol import ClusterError, Order, RefusedError, Status
from noonward.live.handover import IN_A_ROW, LOST_POLLS, UNREACHABLE
from noonward.live.requests import JobRequest
from noonward.live.service_name import rename_restored
from noonward.live.store.sqlite import backup, restore
from noonward.live.terms import EVERY
from noonward.live.why import why


class CrashError(Exception):
    """The service is killed here."""


class Cluster:
    """A cluster that keeps its jobs when the service dies, and kills the service at a chosen call."""

    takes = EVERY
    exact_ends = False
    at_once = 1

    def __init__(self):
        self.jobs, self.ran, self.calls = {}, [], 0
        self.crash_at = self.crash_after = None
        self.broken = False
        self.refused, self.stuck = {}, set()
        self.usable = None

    def _called(self, work):
        self.calls += 1
        if self.broken:
            raise ClusterError("no answer")
        if self.calls == self.crash_at:
            raise CrashError
        found = work()
        if self.calls == self.crash_after:
            raise CrashError
        return found

    def find(self, order):
        def work():
            return next((handle for handle, one in self.jobs.items() if one["token"] == order.token), None)

        return self._called(work)

    def submit_held(self, order):
        def work():
            if order.job in self.refused:
                raise RefusedError(self.refused[order.job])
            if order.job in self.stuck:
                raise ClusterError("no answer to this one")
            handle = str(len(self.jobs) + 1)
            self.jobs[handle] = {"token": order.token, "phase": "held", "job": order.job}
            return handle

        return self._called(work)

    def release(self, order):
        def work():
            one = self.jobs[order.handle]
            if one["phase"] == "held":
                one["phase"] = "running"
                self.ran.append(one["job"])

        self._called(work)

    def cancel(self, order):
        def work():
            if self.jobs[order.handle]["phase"] in ("held", "running", "node-failed"):
                self.jobs[order.handle]["phase"] = "cancelled"

        self._called(work)

    def statuses(self, orders):
        if self.broken:
            raise ClusterError("no answer")
        return [
            Status(
                token=order.token,
                handle=order.handle,
                phase=self.jobs[order.handle]["phase"],
                reason=self.jobs[order.handle].get("reason", ""),
            )
            for order in orders
            if order.handle in self.jobs
        ]

    def strays(self):
        return [
            Order(token=one["token"], job=-1, name="", command="", gpus=0, run_s=0.0, start_s=0.0, handle=handle)
            for handle, one in self.jobs.items()
            if one["phase"] == "held"
        ]

    def usable_gpus(self, running_gpus):
        return self.usable


@pytest.fixture
def live(service):
    """A service of two sites, and the cluster of the first."""
    made = service("local-fcfs")
    made.cluster = Cluster()
    agents = made.controller.agents

    def plug():
        made.controller.agents[0].executor = made.cluster

    plug()
    restart = made.restart

    def restarted():
        restart()
        plug()

    made.restart = restarted
    assert agents[0].name == "north"
    return made


def submit(live, **given):
    fields = {"name": "a", "work": 600.0, "origin": "north", **given}
    return live.submit(JobRequest(**fields))[0]


def state(live, job):
    return live.store.read("SELECT state FROM jobs WHERE id = ?", job)[0]["state"]


@pytest.mark.parametrize("asked", [True, False])
def test_a_command_that_fails_is_run_again_if_its_job_asks_for_it(live, asked):
    free = int(live.controller.world.view.site_S["free"][0])
    job = run_one(live, retries=1, retry_failed=asked)
    live.cluster.jobs["1"]["phase"] = "failed"
    for minute in range(2, 6):
        live.set_time(60.0 * minute)
        live.steps()
    assert live.cluster.ran == [job, job][: 1 + asked]
    assert int(live.controller.world.view.site_S["free"][0]) == free - asked
    if asked:
        live.cluster.jobs["2"]["phase"] = "failed"
        live.controller.track(0)
    assert state(live, job) == "failed"
    kinds = [row["kind"] for row in live.store.read("SELECT kind FROM events WHERE job = ? ORDER BY id", job)]
    assert kinds.count("queued again") == asked


@pytest.mark.parametrize("when", ["crash_at", "crash_after"])
@pytest.mark.parametrize("call", range(1, 9))
def test_a_crash_at_any_call_neither_loses_nor_doubles(live, when, call):
    jobs = [submit(live) for _ in range(4)]
    live.set_time(60.0)
    live.controller.decide()
    setattr(live.cluster, when, call)
    for _ in range(6):
        try:
            live.controller.reconcile(0)
            live.controller.deliver(0)
            live.controller.track(0)
        except CrashError:
            live.restart()
    assert live.cluster.calls >= call
    assert sorted(live.cluster.ran) == jobs
    live.controller.reconcile(0)
    assert all(one["phase"] != "held" for one in live.cluster.jobs.values())
    assert [state(live, job) for job in jobs] == ["running"] * 4


def run_one(live, **given):
    job = submit(live, **given)
    live.set_time(live.store.now_s() + 60.0)
    live.controller.decide()
    live.controller.deliver(0)
    live.controller.track(0)
    return job


def test_a_stray_that_was_not_recorded_is_cancelled(live):
    job = run_one(live)
    token = live.store.read("SELECT token FROM jobs WHERE id = ?", job)[0]["token"]
    live.cluster.jobs["99"] = {"token": token, "phase": "held", "job": job}
    live.cluster.jobs["98"] = {"token": "nw-another-1-0", "phase": "held", "job": 1}
    live.controller.reconcile(0)
    assert live.cluster.jobs["99"]["phase"] == "cancelled"
    assert live.cluster.jobs["98"]["phase"] == "held"


@pytest.mark.parametrize(("phase", "ends"), [("done", "done"), ("failed", "failed"), ("cancelled", "cancelled")])
def test_an_end_at_the_cluster_frees_the_gpus(live, phase, ends):
    job = run_one(live, gpus_min=8)
    waits = submit(live, gpus_min=8)
    live.set_time(120.0)
    live.steps()
    assert state(live, waits) == "waiting"
    live.cluster.jobs["1"]["phase"] = phase
    live.set_time(180.0)
    live.steps()
    live.set_time(240.0)
    live.steps()
    assert state(live, job) == ends
    assert state(live, waits) in ("starting", "running")


def test_a_node_failure_queues_the_job_again_as_often_as_it_allows(live):
    job = run_one(live, retries=1)
    live.cluster.jobs["1"]["phase"] = "node-failed"
    for minute in range(2, 6):
        live.set_time(60.0 * minute)
        live.steps()
    assert live.cluster.ran == [job, job]
    live.cluster.jobs["2"]["phase"] = "node-failed"
    live.controller.track(0)
    assert state(live, job) == "failed"
    kinds = [row["kind"] for row in live.store.read("SELECT kind FROM events WHERE job = ? ORDER BY id", job)]
    assert kinds.count("queued again") == 1


@pytest.mark.parametrize("when", ["crash_at", "crash_after"])
def test_a_job_that_its_cluster_failed_is_ended_there_before_it_is_queued_again(live, when):
    job = run_one(live, retries=1)
    live.cluster.jobs["1"] |= {"phase": "node-failed", "reason": "launch failed"}
    setattr(live.cluster, when, live.cluster.calls + 1)  # in the middle of ending it
    with pytest.raises(CrashError):
        live.controller.track(0)
    assert state(live, job) == "running"
    live.restart()
    live.cluster.broken = True
    with pytest.raises(ClusterError):
        live.controller.track(0)
    assert state(live, job) == "running"  # it might still run there
    live.cluster.broken = False
    live.controller.track(0)
    assert (live.cluster.jobs["1"]["phase"], state(live, job)) == ("cancelled", "submitted")
    for minute in (2, 3):
        live.set_time(60.0 * minute)
        live.steps()
    assert live.cluster.ran == [job, job]
    live.cluster.jobs["2"] |= {"phase": "node-failed", "reason": "launch failed"}
    live.controller.track(0)
    row = live.store.read("SELECT state, reason FROM jobs WHERE id = ?", job)[0]
    assert tuple(row) == ("failed", "launch failed")
    assert live.cluster.jobs["2"]["phase"] == "cancelled"


def test_a_hold_by_the_cluster_is_told_until_it_runs(live):
    job = run_one(live)
    live.cluster.jobs["1"] |= {"phase": "held", "reason": "JobHeldAdmin"}
    for _ in range(3):
        live.controller.track(0)
    assert why(live.controller, job).waits_for == "north, whose cluster holds it: JobHeldAdmin"
    kinds = [row["kind"] for row in live.store.read("SELECT kind FROM events WHERE job = ? ORDER BY id", job)]
    assert kinds[-2:] == ["running", "requeued"]
    live.cluster.jobs["1"] |= {"phase": "queued", "reason": ""}  # its administrator has released it
    for _ in range(2):
        live.controller.track(0)
    assert why(live.controller, job).waits_for == "its end; it was started at north"
    live.cluster.jobs["1"] |= {"phase": "held", "reason": "JobHeldUser"}
    live.controller.track(0)
    live.cluster.jobs["1"] |= {"phase": "running", "reason": ""}
    live.controller.track(0)
    assert why(live.controller, job).waits_for == "its end; it was started at north"
    kinds = [row["kind"] for row in live.store.read("SELECT kind FROM events WHERE job = ? ORDER BY id", job)]
    assert kinds[-2:] == ["held by its cluster", "running"]


def test_a_requeue_by_the_cluster_keeps_the_gpus(live):
    job = run_one(live)
    live.cluster.jobs["1"]["phase"] = "queued"
    live.controller.track(0)
    assert state(live, job) == "starting"
    live.cluster.jobs["1"]["phase"] = "running"
    live.controller.track(0)
    assert state(live, job) == "running"


def test_a_job_that_its_cluster_forgot_is_lost_and_not_run_again(live):
    job = run_one(live, retries=3)
    del live.cluster.jobs["1"]
    for _ in range(LOST_POLLS - 1):
        live.controller.track(0)
    assert state(live, job) == "running"
    live.controller.track(0)
    assert state(live, job) == "lost"
    assert live.cluster.ran == [job]


def test_a_job_of_which_the_cluster_cannot_say_anything_now_is_not_lost(live):
    job = run_one(live)
    live.cluster.jobs["1"]["phase"] = "unknown"
    for _ in range(LOST_POLLS + 1):
        live.controller.track(0)
    assert state(live, job) == "running"
    live.cluster.jobs["1"]["phase"] = "done"
    live.controller.track(0)
    assert state(live, job) == "done"


def test_a_site_that_does_not_answer_is_left_out_until_it_is_back(live):
    job = run_one(live)
    live.cluster.broken = True
    for _ in range(UNREACHABLE):
        with pytest.raises(ClusterError):
            live.controller.track(0)
    other = submit(live)
    live.set_time(180.0)
    live.controller.decide()
    assert live.controller.world.drained == {0}
    assert state(live, other) == "waiting"
    live.cluster.broken = False
    live.controller.track(0)
    live.set_time(240.0)
    live.controller.decide()
    live.controller.deliver(0)
    assert sorted(live.cluster.ran) == [job, other]


def test_gpus_that_others_hold_are_withheld(live):
    live.cluster.usable = 3
    live.controller.track(0)
    live.set_time(60.0)
    live.controller.decide()
    assert int(live.controller.world.view.site_S["free"][0]) == 3
    assert live.store.read("SELECT withheld FROM sites WHERE name = 'north'")[0]["withheld"] == 5


def test_a_cancelled_job_ends_at_its_cluster_or_never_starts(live):
    from noonward.live.operator import cancel_job

    running = run_one(live)
    waiting = submit(live, gpus_min=8)
    live.set_time(120.0)
    live.controller.decide()
    cancel_job(live.controller, running, "me")
    cancel_job(live.controller, waiting, "me")
    for minute in (3, 4):
        live.set_time(60.0 * minute)
        live.steps()
    assert [state(live, job) for job in (running, waiting)] == ["cancelled", "cancelled"]
    assert live.cluster.ran == [running]
    assert live.controller.world.seat_of == {}


def test_a_job_cancelled_between_decision_and_hand_over_never_runs(live):
    from noonward.live.operator import cancel_job

    job = submit(live)
    live.set_time(60.0)
    live.controller.decide()
    cancel_job(live.controller, job, "me")
    live.controller.deliver(0)
    live.set_time(120.0)
    live.controller.decide()
    assert state(live, job) == "cancelled"
    assert live.cluster.jobs == {}
    assert live.controller.world.engine.taken_S.tolist() == [0, 0]


def test_a_job_that_its_cluster_refuses_fails_alone_with_the_clusters_words(live):
    running = run_one(live)
    jobs = [submit(live, retries=3) for _ in range(5)]
    live.cluster.refused[jobs[0]] = live.cluster.refused[jobs[2]] = "no such option"
    live.set_time(120.0)
    live.controller.decide()
    live.controller.deliver(0)
    live.cluster.jobs["1"]["phase"] = "done"
    live.controller.track(0)
    assert [state(live, job) for job in jobs] == ["failed", "running", "failed", "running", "running"]
    assert state(live, running) == "done"
    assert live.store.read("SELECT reason FROM jobs WHERE id = ?", jobs[0])[0]["reason"] == "no such option"
    live.set_time(180.0)
    live.controller.decide()
    assert int(live.controller.world.view.site_S["free"][0]) == 8 - 3
    assert live.store.read("SELECT reachable FROM sites WHERE name = 'north'")[0]["reachable"]
    live.restart()
    live.controller.deliver(0)
    assert len(live.cluster.ran) == 4


def test_jobs_that_cannot_be_handed_over_now_are_passed_over_and_say_why(live):
    jobs = [submit(live) for _ in range(6)]
    live.cluster.stuck = {jobs[0], jobs[1], jobs[2]}
    live.set_time(60.0)
    live.controller.decide()
    for _ in range(UNREACHABLE + 1):
        with pytest.raises(ClusterError, match="no answer to this one"):
            live.controller.deliver(0)
        live.controller.track(0)
    assert [state(live, job) for job in jobs] == ["starting"] * 3 + ["running"] * 3
    said = why(live.controller, jobs[1]).waits_for
    assert said == "its hand-over to north, which is tried again: not handed over yet: no answer to this one"
    assert live.store.read("SELECT reachable FROM sites WHERE name = 'north'")[0]["reachable"]
    live.cluster.stuck.clear()
    live.controller.deliver(0)
    live.controller.track(0)
    assert [state(live, job) for job in jobs] == ["running"] * 6
    assert sorted(live.cluster.ran) == jobs
    assert live.store.read("SELECT count(*) AS n FROM jobs WHERE reason IS NOT NULL")[0]["n"] == 0


def test_a_cluster_that_does_not_answer_is_not_asked_about_every_job(live):
    jobs = [submit(live) for _ in range(6)]
    live.set_time(60.0)
    live.controller.decide()
    live.cluster.broken = True
    calls = live.cluster.calls
    with pytest.raises(ClusterError, match="no answer"):
        live.controller.deliver(0)
    assert live.cluster.calls - calls == IN_A_ROW
    live.cluster.broken = False
    live.controller.deliver(0)
    assert sorted(live.cluster.ran) == jobs


def test_jobs_are_handed_over_side_by_side(live):
    live.cluster.at_once = 4
    together, taken = threading.Barrier(4), live.cluster.submit_held

    def submit_held(order):
        together.wait(30)  # breaks unless four are there at once
        return taken(order)

    live.cluster.submit_held = submit_held
    jobs = [submit(live) for _ in range(8)]
    live.set_time(60.0)
    live.controller.decide()
    live.controller.deliver(0)
    assert sorted(live.cluster.ran) == jobs


def test_after_a_restore_what_ran_meanwhile_is_found_and_not_run_again(live):
    jobs = [submit(live) for _ in range(3)] + [submit(live, origin="south") for _ in range(2)]
    copy, later = live.folder / "copy.sqlite", live.folder.parent / "later"
    backup(live.folder, copy)
    live.set_time(60.0)
    live.steps()
    late = run_one(live)  # nobody knows it any more
    assert sorted(live.cluster.ran) == [*jobs[:3], late]
    live.store.close()
    restore(copy, later)
    live.folder, south = later, Cluster()
    live.open()
    rename_restored(live.store)
    live.restart()
    south.jobs["7"] = {"token": live.controller.books.token(jobs[0], 0), "phase": "done", "job": jobs[0]}
    live.cluster.jobs["1"]["token"] = "none"  # the first job ran at the other site
    live.controller.agents[1].executor = south
    live.set_time(120.0)
    new = submit(live)
    live.controller.decide()
    for s in range(2):
        live.controller.deliver(s)
        live.controller.track(s)
    assert new == late == 6
    assert sorted(live.cluster.ran) == [*jobs[:3], late, new]
    assert sorted(south.ran) == jobs[3:]
    assert [state(live, job) for job in jobs] == ["lost", *["running"] * 4]
    reason = live.store.read("SELECT reason FROM jobs WHERE id = ?", jobs[0])[0]["reason"]
    assert reason.startswith("lost: south was given it as 7 before the store was restored")
    assert live.controller.books.token(new, 0) != live.cluster.jobs["4"]["token"]


def test_a_job_that_was_steered_to_a_site_that_cannot_give_what_it_asks_fails(live):
    live.cluster.takes = EVERY - {"image"}
    job, good = submit(live, image="a.sif"), submit(live)
    live.set_time(60.0)
    live.controller.decide()
    live.controller.deliver(0)
    assert (state(live, job), live.cluster.ran) == ("failed", [good])
    row = live.store.read("SELECT reason FROM jobs WHERE id = ?", job)[0]
    assert row["reason"] == "the cluster of north cannot be told image of a job"


def test_an_order_is_what_was_submitted(live):
    seen = []
    live.cluster.submit_held = lambda order: (seen.append(order), "7")[1]
    live.cluster.release = lambda order: None
    submit(live, command="python train.py", gpus_min=2)
    live.set_time(60.0)
    live.controller.decide()
    live.controller.deliver(0)
    assert (seen[0].command, seen[0].gpus, seen[0].run_s) == ("python train.py", 2, 600.0)
    data = json.loads(live.store.read("SELECT data FROM events WHERE kind = 'released'")[0]["data"])
    assert data == {"site": "north", "handle": "7"}
