"""Retention: what ended long ago is deleted with all that was kept of it, and the rest is replayed as before."""

from dataclasses import replace

import pytest

from noonward.live.decided import seen_sites
from noonward.live.journal import replay_journal
from noonward.live.store.retention import retire
from noonward.live.store.sqlite import vacuum
from noonward.units import HOUR_S

CROWDED = ("jobs.count=60", "jobs.demand=0.9")
OF_JOB = ("events", "decisions", "outbox")
PLANNED = ("jobs.cluster_gpus=150", "jobs.mean_gpus=24", "jobs.slack_s=10800")


def keep(live, days):
    config = live.controller.setup.config.model_copy(update={"retention_days": days})
    live.controller.setup = replace(live.controller.setup, config=config)


def count(live, table, where="1 = 1"):
    return live.store.read(f"SELECT count(*) AS n FROM {table} WHERE {where}")[0]["n"]


def play_until(live, hours, step_s=60.0):
    """Plays the environment's jobs, a step at a time, from where it stands."""
    jobs = live.environment.jobs
    coming = count(live, "jobs")
    while live.store.now_s() < hours * HOUR_S:
        live.set_time(live.store.now_s() + step_s)
        while coming < len(jobs) and jobs.arrival_s_J[coming] <= live.store.now_s():
            live.submit(live.request(coming))
            coming += 1
        live.steps()


@pytest.mark.parametrize(
    ("policy", "settings", "scenario", "step_s"),
    [("booked-persistence", CROWDED, "tiny", 60.0), ("plan-hard", PLANNED, "load-shaping", 600.0)],
)
def test_what_ended_before_is_deleted_and_the_rest_is_replayed(service, policy, settings, scenario, step_s):
    live = service(policy, *settings, scenario=scenario)
    play_until(live, 6, step_s)
    live.restart()
    play_until(live, 20, step_s)
    last_s = live.store.read("SELECT max(opened_s) AS s FROM journal")[0]["s"]
    assert last_s == 6 * HOUR_S
    open_ = [row["id"] for row in live.store.read("SELECT id FROM jobs WHERE ended_s IS NULL")]
    all_ = count(live, "jobs")
    texts = count(live, "seen")
    deleted = retire(live.store, 7 * HOUR_S)
    unnamed = "id NOT IN (SELECT seen FROM decisions) AND id NOT IN (SELECT base FROM seen WHERE base IS NOT NULL)"
    assert 0 < count(live, "seen") < texts
    assert count(live, "seen", f"{unnamed} AND at_s < {7 * HOUR_S}") == 0
    assert count(live, "decisions", "seen NOT IN (SELECT id FROM seen)") == 0
    assert count(live, "seen", "base NOT IN (SELECT id FROM seen)") == 0
    named = [row["seen"] for row in live.store.read("SELECT DISTINCT seen FROM decisions")]
    names = [site.name for site in live.controller.setup.scenario.fleet.sites]
    assert all([row["site"] for row in rows] == names for rows in seen_sites(live.store, named).values())
    assert (count(live, "seen", "base IS NOT NULL") > 0) == (scenario != "tiny"), "of few sites all are noted"
    assert 0 < deleted == all_ - count(live, "jobs") < all_
    assert count(live, "jobs", f"ended_s < {6 * HOUR_S}") == 0
    for table in OF_JOB:
        assert count(live, table, "job IS NOT NULL AND job NOT IN (SELECT id FROM jobs)") == 0, table
    assert count(live, "forecasts", "hour < 7") == count(live, "curves", "hour < 7") == 0
    assert [row["id"] for row in live.store.read("SELECT id FROM jobs WHERE ended_s IS NULL")] == open_
    found = replay_journal(live.controller.setup, live.store)
    assert found.same, (found.recorded, found.replayed)
    assert found.since_s == last_s
    assert found.compared > 10
    live.restart()
    play_until(live, 22, step_s)
    assert replay_journal(live.controller.setup, live.store).same


def test_numbers_go_on_when_all_jobs_were_deleted(service):
    live = service("local-fcfs")
    play_until(live, 1)
    live.set_time(30 * HOUR_S)
    live.steps()
    live.steps()
    live.restart()
    last = count(live, "jobs")
    assert retire(live.store, 31 * HOUR_S) == last - 1
    assert live.submit(live.request(0)) == [last + 1]


def test_books_of_a_service_that_runs_for_long_are_opened_again(service):
    live = service("local-fcfs", *CROWDED)
    keep(live, 1.0)
    play_until(live, 2)
    live.controller.retain()
    assert count(live, "journal", "opened_s IS NOT NULL") == 1
    play_until(live, 4)
    before = live.controller.books
    live.controller.retain()
    assert live.controller.books is not before
    play_until(live, 8)
    assert [row["opened_s"] for row in live.store.read("SELECT opened_s FROM journal WHERE opened_s IS NOT NULL")] == [
        0.0, 4 * HOUR_S
    ]  # fmt: skip
    assert replay_journal(live.controller.setup, live.store).same
    ended = count(live, "jobs", f"ended_s < {4 * HOUR_S}")
    assert ended > 0
    play_until(live, 29)
    live.controller.retain()
    assert count(live, "jobs", f"ended_s < {4 * HOUR_S}") == 0
    found = replay_journal(live.controller.setup, live.store)
    assert (found.same, found.since_s) == (True, 4 * HOUR_S)


def test_vacuum_frees_what_was_deleted(service):
    live = service("local-fcfs")
    play_until(live, 1)
    live.restart()
    big = live.checker.row(live.request(0))

    def fill(connection, now_s):
        connection.executemany(
            "INSERT INTO jobs (digest, name, request, state, origin, class, gpus_min, gpus_max, work, move_gb, "
            "result_gb, retries, submitted_s, arrival_s, ended_s) VALUES (x'00', 'a', ?, 'done', ?, ?, 1, 1, 1, 0, 0, "
            "0, 0, 0, 1)",
            [(b"x" * 4000, big.origin, big.class_) for _ in range(2000)],
        )

    live.store.do(fill)
    live.set_time(live.store.now_s() + 60.0)
    live.submit(live.request(0))
    live.steps()
    assert retire(live.store, live.store.now_s()) >= 2000
    live.store.close()
    before, after = vacuum(live.folder)
    assert after < before / 4
    live.open()
