"""A service that learns run times: it decides as a simulation does, after restarts too, and stated work is not read."""

import json
import math

import numpy as np
import pytest

from live.conftest import Service
from live.test_simulation_equals_live import assert_as_simulated
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.errors import DataError
from noonward.live.journal import replay_journal
from noonward.live.orders import stated_run_s
from noonward.live.requests import JobRequest
from noonward.live.run_times import STATE
from noonward.live.shadow.watcher import facts
from noonward.live.store.submit import submission
from noonward.units import HOUR_S

START_S = 1_672_617_600
"""2023-01-02, a Monday."""
USERS = {"ann": 7200.0, "bob": 900.0, "cat": 2400.0}


def log(path, seed=3, days=6, per_day=24):
    """A log of three users, whose jobs run for about as long each, and whose limits say little."""
    rng = np.random.default_rng(seed)
    rows = ["job_id,submit_time,duration_s,gpus,origin,user,name,limit_s,state"]
    at_s = np.sort(rng.uniform(START_S - (days - 1) * 86400, START_S + 43200, days * per_day)).round()
    for n, submit_s in enumerate(at_s.tolist()):
        user = list(USERS)[int(rng.integers(3))]
        run_s = round(USERS[user] * rng.lognormal(0, 0.4))
        limit_s = 3600 * math.ceil(run_s * rng.uniform(1, 5) / 3600)
        origin = ("north", "south")[int(rng.integers(2))]
        gpus = int(rng.integers(1, 5))
        when = np.datetime64(int(submit_s), "s")
        rows.append(f"{n},{when}Z,{run_s},{gpus},{origin},{user},train-{n},{limit_s},done")
    path.write_text("\n".join(rows) + "\n")
    return path


def own_scenario(path, slot_s=60, **knowledge):
    content = load_scenario("tiny").model_dump(mode="json", by_alias=True, exclude_unset=True)
    content |= {
        "name": "own", "start": "2023-01-02", "window_h": 12, "slot_s": slot_s,
        "lateness": {"rule": "wait", "overtime_h": 240},
        "jobs": {"source": "table", "path": str(path), "slack_h": 6, "knowledge": {"run_time": "learned", **knowledge}},
    }  # fmt: skip
    return scenario_from(content, "test")


class LoggedService(Service):
    """A service whose jobs are submitted by their users, with the name and limit of the log."""

    factor = 1.0
    """What the users say of the run time, over the truth."""

    def request(self, j):
        told = super().request(j)
        row = self.environment.details.row(j, named=True)
        changes = {"name": row["name"], "time_limit_s": row["limit_s"], "work": told.work * self.factor}
        return JobRequest(
            **{
                name: getattr(told, name)
                for name in (
                    "class_",
                    "origin",
                    "gpus_min",
                    "gpus_max",
                    "max_delay_s",
                    "data_gb",
                    "model_gb",
                    "result_gb",
                )
            },
            **changes,
        )

    def submit(self, *requests, owner=""):
        users = self.environment.details["user"].to_list()
        numbers = []
        for request in requests:
            at = self.environment.details["name"].to_list().index(request.name)
            numbers += self.store.do(submission([self.checker.row(request)], owner or users[at]))[0]
        return numbers


@pytest.fixture
def logged(tmp_path):
    made = []

    def make(policy, **changes):
        scenario = own_scenario(log(tmp_path / "log.csv"), **changes)
        made.append(LoggedService(tmp_path / f"live{len(made)}", scenario, policy))
        return made[-1]

    yield make
    for each in made:
        each.store.close()


def told_of(live):
    rows = live.store.read("SELECT told FROM jobs WHERE told IS NOT NULL ORDER BY arrival_s, id")
    return [tuple(json.loads(row["told"])) for row in rows]


def submitted(live, at_s, request=None):
    """Submits a job at a time and takes the steps of the next slot; returns its number."""
    live.set_time(at_s)
    numbers = live.submit(request or JobRequest(name="train", work=50_000.0, origin="north"))
    live.set_time(60.0 * math.ceil(at_s / 60 + 1e-9))
    live.steps()
    return numbers


@pytest.mark.parametrize("policy", ["booked-persistence", "cheapest-feasible", "bid-price-persistence"])
@pytest.mark.parametrize("restart_every", [0, 7])
def test_a_service_decides_as_a_simulation_that_learns_from_the_same_log(logged, policy, restart_every):
    live = logged(policy, slot_s=300)
    live.play(restart_every)
    assert_as_simulated(live, policy)
    assert any(row["run_s"] < row["work"] for row in live.store.read("SELECT run_s, work FROM jobs"))


@pytest.mark.parametrize("run_time", ["limit", "class-mean"])
def test_a_service_that_is_told_limits_or_class_means_decides_as_a_simulation(logged, run_time):
    live = logged("booked-persistence", slot_s=300, run_time=run_time)
    live.play(7)
    assert_as_simulated(live, "booked-persistence")
    told = told_of(live)
    assert len(told) == len(live.environment.jobs)
    limit_J = live.environment.details["limit_s"].to_list()
    assert (run_time == "limit") == ([one[1] for one in told[:9]] == limit_J[:9])


def test_limits_without_a_log_leave_jobs_without_one_as_stated_and_class_means_need_a_log(service):
    live = service("local-fcfs", "jobs.knowledge.run_time=limit", "jobs.knowledge.limit.to=4")
    submitted(live, 10.0, JobRequest(name="train", work=600.0, origin="north"))
    submitted(live, 70.0, JobRequest(name="train", work=600.0, origin="north", time_limit_s=900))
    rows = live.store.read("SELECT told, run_s FROM jobs ORDER BY arrival_s")
    assert [row["told"] is None for row in rows] == [True, False]
    assert [row["run_s"] for row in rows] == [600.0, 900.0]
    with pytest.raises(DataError, match=r"class-mean\), but no job is known that has ended; give a log"):
        service("local-fcfs", "jobs.knowledge.run_time=class-mean")


def test_what_users_state_is_not_told_and_limits_cap_what_is(logged):
    live, padded = logged("local-fcfs"), logged("local-fcfs")
    padded.factor = 3.0
    for each in (live, padded):
        for number in range(5):
            submitted(each, float(each.environment.jobs.arrival_s_J[number]), each.request(number))
    asked = [json.loads(row["request"]) for row in live.store.read("SELECT request FROM jobs ORDER BY arrival_s, id")]
    told = told_of(live)
    assert told[0] == told_of(padded)[0]  # later ones depend on when the first job ended
    assert len(told) == 5
    assert all(max(one[:2]) <= job["time_limit_s"] for one, job in zip(told, asked, strict=True))
    assert all(one[1] != job["work"] for one, job in zip(told, asked, strict=True))
    run_s = [
        row["run_s"] for row in live.store.read("SELECT run_s FROM jobs WHERE told IS NOT NULL ORDER BY arrival_s, id")
    ]
    assert run_s[0] == told[0][1]


def test_what_was_learned_is_kept_over_a_restart(logged):
    live = logged("booked-persistence")
    live.play()
    before = live.controller.teller.known.model
    assert before.score != (0.0, 0.0)
    live.restart()
    after = live.controller.teller.known.model
    assert live.controller.teller is not None
    assert after.score == before.score
    rows = live.controller.teller.known.meet([])
    assert len(rows) == 0
    jobs = np.arange(20)
    for a, b in zip(after.distribution(jobs), before.distribution(jobs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_own_ends_are_learned_without_a_log(service):
    live = service("local-fcfs", "jobs.knowledge.run_time=learned")

    def told(n, at_s):
        submitted(live, at_s)
        return told_of(live)[-1][1]

    first = told(0, 10.0)
    live.store.do(
        lambda connection, now_s: (
            connection.execute("UPDATE jobs SET state = 'done', ended_s = start_s + 600, freed_s = start_s + 600")
            and None
        )
    )
    second = told(1, 2 * HOUR_S)
    assert first < 300 < second < 900


def test_what_is_watched_counts_as_it_happened_at_its_cluster(service):
    live = service("local-fcfs", "jobs.knowledge.run_time=learned")
    (job,) = submitted(live, 10.0)
    row = (
        "INSERT INTO watched (site, number, submit_s, job, gpus, state, start_s, end_s, expected_s) "
        "VALUES ('north', '7', 0, ?, 1, 'done', 60, 1260, 1)"
    )
    live.store.do(lambda connection, now_s: connection.execute(row, (job,)) and None)
    assert job in facts(live.store, [job])
    submitted(live, 2 * HOUR_S)
    assert 900 < told_of(live)[1][1] < 1800


def test_a_job_that_runs_for_longer_than_was_told_is_shown_with_a_longer_time(logged):
    live = logged("local-fcfs")
    submitted(live, float(live.environment.jobs.arrival_s_J[0]), live.request(0))
    world = live.controller.world
    (seat,) = world.seat_of.values()
    told = seat.about.told[1:]
    shown = []
    for later_s in (0.5 * told[0], told[0] + 60, told[1] + 60, 3 * told[3]):
        world.run_to(60.0 * math.ceil((seat.start_s + later_s) / 60))
        shown.append(float(world.view.job_J["work"][seat.slot]))
    assert shown[0] == told[0]
    assert told[0] < shown[1] <= shown[2]
    assert shown[2] > told[1]
    assert shown[3] > 3 * told[3]


def test_a_cluster_is_given_what_was_stated_not_what_was_told(logged):
    live = logged("local-fcfs")
    submitted(live, float(live.environment.jobs.arrival_s_J[0]), live.request(0))
    (row,) = live.store.read("SELECT work, told, run_s FROM jobs")
    assert stated_run_s(row) == row["work"] != row["run_s"]


def test_a_journal_is_replayed_with_what_was_told(logged):
    live = logged("booked-persistence")
    live.play(9)
    found = replay_journal(live.controller.setup, live.store)
    assert found.same
    assert found.compared > 10


def test_nothing_is_learned_where_the_scenario_tells_run_times(service):
    live = service("local-fcfs")
    submitted(live, 10.0, JobRequest(name="train", work=600.0, origin="north"))
    (row,) = live.store.read("SELECT told, run_s FROM jobs")
    assert (row["told"], row["run_s"], live.store.value(STATE)) == (None, 600.0, None)


def test_a_log_that_is_gone_is_one_clear_error(logged, tmp_path):
    live = logged("local-fcfs")
    (tmp_path / "log.csv").unlink()
    with pytest.raises(DataError, match=r"log\.csv"):
        live.restart()
