"""The ledger of a service: that of a simulated day is the engine's, and savings are the difference to the reference."""

import math

import pytest

from noonward.engine.run import run
from noonward.ledger.ledger import settle
from noonward.live.accounts import outcome_of, savings, simulated_fates, stored_fates, watched_fates
from noonward.live.grid.keeper import HISTORY_H
from noonward.schedule.policies import make_scheduler

JOB_ACCOUNTS = (
    "done", "overdue", "moves", "gpu_hours", "job_kwh", "revenue_usd", "job_energy_usd", "job_kg", "move_kwh",
    "move_usd", "move_kg", "result_usd", "result_kg",
)  # fmt: skip


@pytest.mark.parametrize("policy", ["local-fcfs", "cheapest-feasible", "booked-persistence"])
def test_a_simulated_day_earns_the_engine_s_ledger(service, policy):
    live = service(policy, "slot_s=300")
    live.play()
    hours = math.ceil(live.store.now_s() / 3600.0) + 1
    live.controller.keeper.update(hours - 1)
    fates = stored_fates(live.controller, 0.0, math.inf)
    found = settle(outcome_of(live.controller.setup, live.controller.keeper.settled(0, hours), fates, hours))
    simulated = settle(run(live.environment, make_scheduler(policy)))
    for name in JOB_ACCOUNTS:
        assert getattr(found, name) == pytest.approx(getattr(simulated, name), rel=1e-12), name
    assert found.done > 0


def test_the_reference_is_what_the_engine_would_have_done(service):
    live = service("booked-persistence", "slot_s=300")
    live.play()
    hours = live.controller.world.hours.known_h
    arrivals = [fate.about for fate in stored_fates(live.controller, 0.0, math.inf)]
    known = live.controller.keeper.signals(-HISTORY_H, hours)
    played = simulated_fates(live.controller.setup, known, arrivals, math.inf, "local-fcfs")
    outcome = run(live.environment, make_scheduler("local-fcfs"))
    assert [fate.status for fate in played] == outcome.job_J["status"].tolist()
    started = [fate.start_s for fate in played if fate.gpus]
    assert started == [start for start in outcome.job_J["start_s"].tolist() if start == start]


def test_savings_compare_the_same_jobs(service):
    live = service("cheapest-feasible")
    live.play()
    found = savings(live.controller, 3)
    assert found.reference == "local-fcfs"
    assert found.left_out + sum(day.jobs for day in found.days) == len(live.environment.jobs)
    day = found.days[0]
    saved = sum(one.reference_usd - one.energy_usd for one in found.days) / len(found.days)
    assert found.saved_usd_a_day.mean == pytest.approx(saved)
    assert day.energy_kwh > 0
    assert found.saved_usd_a_day.low is None


def test_a_service_under_its_reference_saves_nothing(service):
    live = service("local-fcfs")
    live.play()
    found = savings(live.controller, 3)
    assert found.days
    assert found.saved_usd_a_day.mean == pytest.approx(0.0, abs=1e-12)
    assert found.saved_kg_a_day.mean == pytest.approx(0.0, abs=1e-12)


def test_without_jobs_there_is_nothing_to_save(service):
    found = savings(service("local-fcfs").controller, 3)
    assert (found.days, found.left_out) == ([], 0)


def test_what_happened_to_a_watched_job_has_the_clock_that_its_power_is_of(service):
    live = service("greedy-price", "window_h=1", scenario="dvfs-mixed")
    live.submit(live.request(0))
    live.set_time(60.0)
    live.steps()
    own = stored_fates(live.controller, 0.0, math.inf)
    view = live.controller.world.view
    level = int(view.oracle_SCG[0, own[0].about.class_, 2])
    assert 0 < level < int(view.site_S["levels"][0]) - 1
    site = live.controller.setup.sites[0]
    watched = f"INSERT INTO watched VALUES ('{site}', '7', 0.0, 1, 2, 'done', 10.0, 50.0, 100.0, 99.0)"
    live.store.do(lambda connection, now_s: connection.execute(watched) and None)
    own, happened = watched_fates(live.controller, own)
    assert [(fate.site, fate.gpus, fate.level, fate.power_w) for fate in happened] == [(0, 2, level, 99.0)]
