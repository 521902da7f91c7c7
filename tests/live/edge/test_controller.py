"""The controller with fake workers and a fake clock: launches, leases, deaths, retries, deadlines, restarts."""

import json
from dataclasses import replace

import pytest

from live.edge.fakes import PART, Bench
from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.errors import DataError, FileError, ScenarioError
from noonward.live.edge.orders import Facts, Limits
from noonward.live.edge.status import status
from noonward.live.edge.workers import WorkerDiedError
from noonward.schedule.edge.lookahead import Lookahead
from noonward.schedule.edge.rules import FirstFit, PatientReuse


@pytest.fixture
def bench(tmp_path):
    """Four workers that are ready."""
    return Bench(tmp_path).ready()


def test_a_gang_loads_then_meets_at_its_first_member_then_generates(bench):
    bench.submit(gang=2, seed=7)
    assert bench.workers.calls("load", "meet", "generate") == [(0, "load"), (1, "load")]
    bench.workers.answer(1, "load", 0.0)
    assert bench.workers.calls("meet") == []
    bench.workers.answer(0, "load", 0.0)
    assert bench.workers.calls("load", "meet", "generate") == [(0, "meet")]
    bench.workers.answer(0, "meet", ("127.0.0.1", 5))
    assert bench.workers.calls("load", "meet", "generate") == [(0, "generate"), (1, "generate")]
    (order, rank), _ = bench.workers.take(1, "generate")
    assert (order.pictures[0].seed, order.steps, order.size, order.address, rank) == (7, 20, 2, ("127.0.0.1", 5), 1)


def test_an_image_is_kept_with_its_record(bench, tmp_path):
    task = bench.submit(gang=2)
    bench.now_s = 2.0
    bench.load(0, 1, seconds=1.5)
    bench.now_s = 6.0
    bench.draw(0, 1)
    assert (task.state, task.response_s, task.quality) == ("done", 6.0, pytest.approx(0.2475, abs=1e-4))
    kept = bench.store.read()[0][task.id].as_dict()
    (attempt,) = kept["attempts"]
    assert (attempt["servers"], attempt["formed"], attempt["load_s"], attempt["run_s"]) == ([0, 1], True, 1.5, 3.0)
    assert kept["energy_j"] == pytest.approx(2 * (2.0 * 100 + 4.0 * 300))
    assert (tmp_path / "images" / f"{task.id}.png").read_bytes() == b"png"
    assert bench.idle() == [0, 1, 2, 3]


def test_measured_times_replace_those_of_the_scenario(bench):
    bench.submit(gang=2)
    bench.now_s = 2.0
    bench.load(0, 1)
    bench.now_s = 6.0
    bench.draw(0, 1)
    predictor = bench.controller.predictor
    assert (predictor.load_s_G[2], predictor.step_s_G[2]) == (2.0, 4.0 / 20)
    assert predictor.load_s_G[1] == 10
    bench.beats()
    bench.submit(gang=2)
    bench.load(0, 1)
    bench.now_s = 16.0
    bench.draw(0, 1)
    assert predictor.load_s_G[2] == 2.0, "a gang that is reused says nothing about loads"
    assert predictor.step_s_G[2] == pytest.approx(0.7 * 0.2 + 0.3 * 0.5)


@pytest.mark.parametrize(("policy", "again"), [("keep", False), ("reload-on-regroup", True)])
def test_only_a_new_gang_loads_again_and_only_where_that_is_asked_for(tmp_path, policy, again):
    bench = Bench(tmp_path, load_policy=policy).ready()
    for formed in (True, False):
        task = bench.submit(gang=2)
        orders = [bench.workers.take(n, "load") for n in (0, 1)]
        assert {given for given, _ in orders} == {("/models/tiny", again and formed)}
        assert task.attempts[0].formed == formed
        for _, reply in orders:
            reply(0.0)
        bench.load()
        bench.draw(0, 1)


def test_a_task_names_its_model(bench):
    bench.submit(model="other")
    assert bench.workers.take(0, "load")[0] == ("/models/other", False)


def test_a_dead_member_frees_its_gang_at_once_and_the_task_is_tried_again(bench):
    task = bench.submit(gang=4)
    bench.load(0, 1, 2, 3)
    bench.workers.die(2)
    assert bench.workers.calls("leave") == [(0, "leave"), (1, "leave"), (3, "leave")]
    for n in (0, 1, 3):
        bench.workers.answer(n, "generate", RuntimeError("connection closed"))
    assert bench.idle() == [0, 1, 3]
    assert (task.state, task.attempts[0].error) == ("queued", "the worker of server 2 died")
    assert bench.workers.started == [0, 1, 2, 3, 2]
    bench.ready()
    bench.load(0, 1, 2, 3)
    bench.draw(0, 1, 2, 3)
    assert (task.state, len(task.attempts)) == ("done", 2)


def test_a_hung_member_is_killed_first_and_its_gang_told_to_leave_within_the_lease(bench):
    task = bench.submit(gang=4)
    bench.load(0, 1, 2, 3)
    bench.pass_s(1.0)
    bench.workers.silent.add(1)
    heard_s = bench.controller.servers[1].heard_s
    while not bench.workers.killed:
        bench.pass_until_due()
    assert bench.workers.killed == [1]
    assert bench.now_s <= heard_s + 4.0  # half a lease of 8 s
    assert bench.workers.calls("leave") == [(0, "leave"), (2, "leave"), (3, "leave")]
    assert "did not answer for 4.0 s (lease 8 s) and was killed" in task.attempts[0].error
    bench.workers.answer(0, "generate", RuntimeError("connection closed"))
    while len(bench.workers.killed) < 3:  # two members do not leave
        bench.pass_until_due()
    assert bench.workers.killed == [1, 2, 3]
    assert bench.now_s <= heard_s + 8.0
    assert bench.idle() == [0]
    assert bench.controller.runs == {}


def test_a_health_check_that_has_just_been_sent_is_not_overdue_however_long_ago_the_last_one_was(bench):
    bench.now_s = 60.0
    bench.controller.tick()
    bench.now_s = 61.0
    bench.controller.tick()
    assert bench.workers.killed == []


def test_a_member_that_does_not_leave_is_killed_too(bench):
    bench.submit(gang=2)
    bench.load(0, 1)
    bench.workers.die(1)
    bench.pass_s(4.0)
    assert bench.workers.killed == [0]


def test_answers_of_a_dead_worker_change_nothing(bench):
    task = bench.submit(gang=1)
    reply = next(call[3] for call in bench.workers.pending if call[:2] == (0, "load"))
    bench.workers.die(0)
    bench.ready()
    for late in (0.5, WorkerDiedError("died"), RuntimeError("late")):
        reply(late)
    assert (task.state, len(task.attempts), bench.workers.started) == ("running", 2, [0, 1, 2, 3, 0])


def test_a_task_fails_with_its_reason_after_its_tries(bench):
    task = bench.submit(gang=1)
    for n in (0, 0):
        bench.workers.answer(n, "load", OSError("no such folder"))
        bench.controller.tick()
    assert (task.state, len(task.attempts)) == ("failed", 2)
    assert task.reason == "server 0: OSError: no such folder (attempt 2 of 2)"
    assert bench.idle() == [0, 1, 2, 3]


def test_a_wrong_task_is_not_tried_again(bench):
    task = bench.submit(gang=1)
    bench.load(0)
    bench.workers.answer(0, "generate", DataError("the prompt has 200 tokens"))
    assert (task.state, task.reason) == ("failed", "the prompt has 200 tokens")


def test_a_run_that_takes_too_long_is_ended(tmp_path):
    bench = Bench(tmp_path, limits=Limits(task_s=5, join_s=2), tries=1).ready()
    task = bench.submit(gang=1)
    bench.load(0)
    bench.pass_s(201.0)
    assert task.state == "running", "ten times the expected 20 s have not passed"
    bench.pass_s(2.0)
    assert task.state == "failed"
    assert "server 0 was still running 202 s after the launch" in task.reason
    bench.workers.answer(0, "generate", RuntimeError("stopped"))
    assert bench.idle() == [0, 1, 2, 3]


def test_deadlines_hold_for_tasks_that_wait_and_that_run(bench):
    runs = bench.submit(gang=4, deadline_s=30)
    waits = bench.submit(gang=4, deadline_s=20)
    bench.load(0, 1, 2, 3)
    bench.pass_s(21.0)
    assert (runs.state, waits.state, waits.reason) == ("running", "failed", "the deadline passed while it waited")
    bench.pass_s(10.0)
    assert (runs.state, runs.reason) == ("failed", "the deadline passed while it was generated")
    assert len(bench.workers.calls("leave")) == 4


def test_a_worker_that_never_starts_is_given_up_and_tasks_that_need_it_fail(tmp_path):
    bench = Bench(tmp_path, limits=Limits(start_s=10, starts=2))
    for n in (0, 1, 2):
        bench.workers.answer(n, "facts", Facts(pid=1, host="", node="", device="cpu"))
    large, small = bench.submit(gang=4), bench.submit(gang=2)
    bench.pass_s(25.0)
    assert bench.workers.killed == [3, 3]
    assert (large.state, large.reason) == ("failed", "it needs 4 servers, and 3 can be started")
    assert small.state == "running"
    assert bench.controller.servers[3].state == "lost"


def test_tasks_of_an_earlier_service_are_queued_again(bench, tmp_path):
    done, runs, waits = bench.submit(gang=1), bench.submit(gang=4), bench.submit(gang=4)
    bench.load(0)
    bench.draw(0)
    bench.controller.stop()
    assert bench.workers.closed
    again = Bench(tmp_path)
    assert [task.id for task in again.controller.queue] == [runs.id, waits.id]
    assert again.controller.tasks[done.id].state == "done"
    assert again.submit().id == "image-000004"


def test_launches_that_a_stopped_or_killed_service_ended_do_not_count_as_tries(bench, tmp_path):
    task = bench.submit()
    bench.controller.stop()
    again = Bench(tmp_path).ready()
    killed = Bench(tmp_path).ready()
    assert len(killed.controller.tasks[task.id].attempts) == 3
    killed.workers.answer(0, "load", OSError("no such folder"))
    killed.controller.tick()
    found = killed.controller.tasks[task.id]
    assert [attempt.error for attempt in found.attempts[:2]] == ["the service was stopped", "the service was killed"]
    assert (found.state, len(found.attempts)) == ("running", 4)
    assert again.controller.tasks[task.id].state == "running"


def test_a_full_disk_fails_the_task_and_stops_nothing(bench, monkeypatch):
    task = bench.submit()
    bench.load(0)

    def full(*_):
        raise FileError("the disk is full")

    monkeypatch.setattr(bench.store, "keep_image", full)
    bench.draw(0)
    assert (task.state, task.reason, bench.idle()) == ("failed", "the disk is full", [0, 1, 2, 3])


def test_a_gang_keeps_its_process_group_until_it_changes(bench):
    def group(*members):
        given = [bench.workers.take(n, "generate") for n in members]
        for rank, (_, reply) in enumerate(given):
            reply(replace(PART, pngs=() if rank else (b"png",)))
        bench.controller.tick()
        (order, _), _ = given[0]
        return order.group, order.address

    for address in (("127.0.0.1", 5), None):
        bench.submit(gang=2)
        bench.load(0, 1)
        assert group(0, 1) == (1, address)
    bench.submit(gang=4)
    bench.load(0, 1, 2, 3)
    assert group(0, 1, 2, 3) == (2, ("127.0.0.1", 5))
    bench.submit(gang=2)
    bench.load(0, 1)
    assert group(0, 1) == (3, ("127.0.0.1", 5))


def test_a_gang_that_failed_forms_its_process_group_anew(tmp_path):
    bench = Bench(tmp_path, tries=3).ready()
    for meets in (1, 0, 1):
        if not bench.controller.runs:
            bench.submit(gang=2)
        for n in (0, 1):
            bench.workers.answer(n, "load", 0.0)
        assert len(bench.workers.calls("meet")) == meets
        bench.load()
        if meets:
            bench.draw(0, 1)
        else:
            for n in (0, 1):
                bench.workers.answer(n, "generate", RuntimeError("out of memory"))
            bench.controller.tick()


def test_a_new_gang_is_formed_of_workers_that_have_the_model(bench):
    for model in ("tiny", "other"):
        bench.submit(gang=2, model=model)
    bench.load(0, 1)
    bench.load(2, 3)
    bench.draw(0, 1)
    bench.draw(2, 3)
    one = bench.submit(gang=1, model="other")
    assert one.attempts[0].servers == [2]
    bench.load(2)
    bench.draw(2)
    two = bench.submit(gang=1, model="tiny")
    assert two.attempts[0].servers == [0]
    assert bench.controller.predictor.loads_G.tolist() == [0, 0, 2, 0, 0], "nothing was loaded, so no load is measured"


@pytest.mark.parametrize(("policy", "expected_s"), [("keep", 0.0), ("reload-on-regroup", 2.0)])
def test_the_scheduler_is_told_that_a_new_gang_loads_nothing_where_enough_workers_have_the_model(
    tmp_path, policy, expected_s
):
    seen = []

    class Looks(FirstFit):
        def decide(self, view, answers):
            seen.append(view.load_s_G.tolist())
            super().decide(view, answers)

    bench = Bench(tmp_path, Looks(), load_policy=policy).ready()
    bench.submit(gang=2)
    bench.now_s = 2.0
    bench.load(0, 1)
    bench.draw(0, 1)
    bench.submit(gang=1)
    bench.load(0)
    bench.draw(0)
    bench.submit(gang=2)
    bench.submit(gang=2, model="other")
    assert [seen[0][2], seen[1][1], seen[2][2], seen[3][2]] == [10.0, expected_s and 10.0, expected_s, 2.0]


def test_a_lost_worker_is_no_try_of_a_task(bench):
    task = bench.submit(gang=1)
    for _ in range(4):
        bench.workers.die(bench.controller.runs[max(bench.controller.runs)].members[0])
        bench.ready()
    assert (task.state, [attempt.fault for attempt in task.attempts[:4]]) == ("running", ["worker"] * 4)


def test_a_task_in_which_every_worker_is_lost_fails_in_the_end(tmp_path):
    bench = Bench(tmp_path, losses=3).ready()
    task = bench.submit(gang=1)
    for _ in range(3):
        bench.workers.die(bench.controller.runs[max(bench.controller.runs)].members[0])
        bench.ready()
    assert task.state == "failed"
    assert task.reason == "the worker of server 0 died; 3 launches of it lost a worker: it may be what ends them"


def test_a_member_that_hears_of_a_death_before_the_service_does_not_make_it_a_try(tmp_path):
    bench = Bench(tmp_path, tries=1).ready()
    task = bench.submit(gang=4)
    bench.load(0, 1, 2, 3)
    for n in (0, 1, 3):
        bench.workers.answer(n, "generate", RuntimeError("connection closed by peer"))
    assert task.state == "running"
    bench.workers.die(2)
    assert (task.state, task.attempts[0].fault) == ("queued", "worker")
    assert "connection closed by peer; the worker of server 2 died" in task.attempts[0].error


def test_members_that_fail_without_a_death_make_a_try(tmp_path):
    bench = Bench(tmp_path, tries=1).ready()
    task = bench.submit(gang=2)
    bench.load(0, 1)
    for n in (0, 1):
        bench.workers.answer(n, "generate", RuntimeError("out of memory"))
    assert (task.state, task.reason) == ("failed", "server 0: RuntimeError: out of memory")


def test_a_worker_that_is_slow_but_uses_the_processor_is_not_killed(bench):
    bench.submit(gang=1)
    bench.load(0)
    bench.workers.silent.add(0)
    for second in range(60):
        bench.workers.used_s[0] = 0.01 * second
        bench.pass_s(1.0)
    assert bench.workers.killed == []
    bench.pass_s(8.0)
    assert bench.workers.killed == [0]


def test_a_worker_that_starts_slowly_but_uses_the_processor_is_not_killed(tmp_path):
    bench = Bench(tmp_path, limits=Limits(start_s=10, starts=1))
    for n in (0, 1, 2):
        bench.workers.answer(n, "facts", Facts(pid=1, host="", node="", device="cpu"))
    for second in range(60):
        bench.workers.used_s[3] = 0.01 * second
        bench.pass_s(1.0)
    assert bench.workers.killed == []
    bench.pass_s(22.0)
    assert bench.workers.killed == [3]
    assert "was not ready within" in bench.controller.servers[3].reason


def test_a_run_that_goes_on_step_by_step_is_not_ended_however_long_it_takes(tmp_path):
    bench = Bench(tmp_path, limits=Limits(task_s=5, join_s=2), tries=1).ready()
    task = bench.submit(gang=1)
    bench.load(0)
    for step in range(1, 11):
        bench.now_s += 150.0
        bench.controller.tick()
        bench.beats(attempt=1, step=step)
    assert task.state == "running"
    bench.pass_s(201.0)
    assert task.state == "failed"


def test_a_ray_that_is_gone_is_started_again_and_no_task_fails_for_it(bench):
    runs, waits = bench.submit(gang=4), bench.submit(gang=4)
    bench.load(0, 1, 2, 3)
    late = bench.workers.take(0, "generate")[1]
    for attempt in range(5):
        bench.workers.gone = "Ray's raylet is gone"
        bench.controller.tick()
        assert [task.state for task in (runs, waits)] == ["queued", "queued"]
        assert {server.state for server in bench.controller.servers} == {"waiting"}
        late(RuntimeError("late"))
        bench.now_s += 400.0
        asked = bench.submit(gang=1)
        assert asked.state == "queued", "tasks are accepted meanwhile"
        reply = bench.workers.restarts.pop()
        assert bench.workers.restarts == []
        reply(OSError("no room"))
        bench.now_s += 9.0
        bench.controller.tick()
        assert bench.workers.restarts == []
        bench.now_s += 1.0
        bench.controller.tick()
        bench.workers.gone = None
        bench.workers.restarts.pop()(None)
        bench.ready()
        assert (runs.state, runs.attempts[attempt].fault) == ("running", "service")
    assert "Ray's raylet is gone; it is started again, tasks wait meanwhile" in bench.controller.notes.texts
    bench.load(0, 1, 2, 3)
    bench.draw(0, 1, 2, 3)
    assert runs.state == "done"


def test_tasks_are_forgotten_once_they_have_been_kept_long_enough(tmp_path):
    bench = Bench(tmp_path, retain_s=1000.0).ready()
    done, waits = bench.submit(), bench.submit(gang=4)
    bench.load(0)
    bench.draw(0)
    bench.now_s = 990.0
    bench.controller.tick()
    assert list(bench.controller.tasks) == [done.id, waits.id]
    bench.now_s = 1061.0
    bench.controller.tick()
    assert list(bench.controller.tasks) == [waits.id]
    assert not list((tmp_path / "images").iterdir())
    assert Bench(tmp_path).submit().id == "image-000003"


class Silly(EdgeScheduler):
    """Launches what is not there."""

    def decide(self, view, answers):
        answers.launch(5, steps=3.0)


class Never(EdgeScheduler):
    """Waits for ever."""

    def decide(self, view, answers):
        answers.wait()


class Broken(EdgeScheduler):
    """Raises."""

    def decide(self, view, answers):
        raise ZeroDivisionError("oh")


@pytest.mark.parametrize(
    ("scheduler", "words"), [(Silly, "choice 6"), (Never, "nothing would ever happen"), (Broken, "ZeroDivisionError")]
)
def test_a_scheduler_that_fails_is_noted_and_the_oldest_task_launched(tmp_path, scheduler, words):
    bench = Bench(tmp_path, scheduler()).ready()
    task = bench.submit(gang=2)
    assert task.state == "running"
    assert words in status(bench.controller)["notes"][0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"gang": 3}, "--gang 3; allowed: 1, 2, 4"),
        ({"model": "tinny"}, "did you mean 'tiny'"),
        ({"steps_max": 31}, "allowed: 1 to 30"),
        ({"deadline_s": -1.0}, "above 0"),
        ({"seed": -1}, "--seed -1"),
        ({"prompt": " "}, "the prompt is empty"),
        ({"prompt": "a \ud800 boat"}, "lone surrogate, '.ud800', at character 3"),
        ({"prompt": "x" * 4001}, "has 4001 characters; allowed: 4000"),
        ({"prompt": 3}, "the prompt is 3; give a text"),
        ({"prompt": {"a": ["b"]}}, "give a text"),
        ({"gang": True}, "--gang is True; give a whole number"),
        ({"gang": 2.0}, "--gang is 2.0; give a whole number"),
        ({"gang": None}, "--gang is None"),
        ({"seed": True}, "--seed is True"),
        ({"seed": "1"}, "--seed is '1'"),
        ({"model": 1}, "--model is 1"),
        ({"model": "\udfff"}, "lone surrogate"),
        ({"steps_max": True}, "--steps-max is True; give a number"),
        ({"steps_max": "9"}, "--steps-max is '9'"),
        ({"steps_max": float("nan")}, "--steps-max nan"),
        ({"deadline_s": [[1]]}, "--deadline is"),
        ({"deadline_s": float("nan")}, "--deadline nan"),
    ],
)
def test_wrong_tasks_are_refused(bench, given, words):
    with pytest.raises(ScenarioError, match=words):
        bench.controller.submit(**{"prompt": "a boat", "gang": 1, **given})
    assert bench.controller.tasks == {}


def test_status_tells_servers_tasks_and_expected_times(bench):
    bench.submit(gang=2)
    bench.load(0, 1)
    found = status(bench.controller)
    assert [server["state"] for server in found["servers"]] == ["running", "running", "ready", "ready"]
    assert found["counts"] == {"queued": 0, "running": 1, "done": 0, "failed": 0}
    assert [row["gang"] for row in found["expected"]] == [1, 2, 4]
    json.dumps(found)


def test_live_decisions_are_those_of_the_simulation(tmp_path):
    """The engine's run, carried out by workers that take as long as the engine says: the same launches."""
    from live.edge.replay import launches_live, launches_simulated

    for scheduler in (PatientReuse, Lookahead, FirstFit):
        simulated = launches_simulated(scheduler())
        assert len(simulated) == 24
        assert launches_live(tmp_path / scheduler.__name__, scheduler()) == simulated
