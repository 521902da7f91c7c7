"""A simulated day pushed through the service, with and without restarts, decides as the engine does, job by job."""

import numpy as np
import pytest

from noonward.engine.run import run
from noonward.ledger.segments import STOP
from noonward.live.states import from_bytes
from noonward.schedule.policies import make_scheduler

CROWDED = ("jobs.count=60", "jobs.demand=0.9", "slot_s=300")
LATE = (*CROWDED, "lateness.rule=wait", "lateness.usd_per_gpu_hour=2", "lateness.overtime_h=240")
FEWER = ("jobs.classes.inference.rate_per_s=0.002", "jobs.classes.training.rate_per_s=0.002")
SMALL_DAY = ("jobs.cluster_gpus=150", "jobs.mean_gpus=24", "jobs.slack_s=10800", "slot_s=300")
EUROPE = ("fleet.sites.0.zone=DE", "fleet.sites.1.zone=FR")
STOPPABLE = ("fleet.freedoms={fine-tuning: {interruptible: true}}", "jobs.slack_ratio=8", "slot_s=300")
CAPPABLE = ("fleet.freedoms={fine-tuning: {caps: emerald-a100-fine-tuning}}", "jobs.slack_ratio=8", "slot_s=300")
BOTH = (
    "fleet.freedoms={fine-tuning: {interruptible: true, caps: emerald-a100-fine-tuning, elastic: {gpus: [1, 2, 4], "
    "speedup: [1, 1.9, 3.5]}}}",
    "jobs.slack_ratio=8",
    "slot_s=300",
)
STATE = {"done": 4, "overdue": 5}
LONG_SLOTS = ("slot_s=300",)
"""For planners, which are asked in every slot; one of those by published prices plays a day in slots of a minute."""


def assert_as_simulated(service, policy):
    outcome = run(service.environment, make_scheduler(policy))
    rows = service.store.read("SELECT * FROM jobs ORDER BY arrival_s, id")
    assert len(rows) == len(outcome.job_J)
    compared = 0
    for row, job in zip(rows, outcome.job_J, strict=True):
        if row["state"] == "overdue":
            assert job["status"] == STATE["overdue"]
            continue
        if not service.environment.drained and not job["finish_s"] < service.store.now_s():
            continue
        assert row["state"] == "done"
        found = (service.controller.names.site(row["site"]),)
        found += tuple(row[name] for name in ("gpus", "level", "start_s", "ended_s", "power_w", "moves"))
        assert found == tuple(
            job[name].item() for name in ("site", "gpus", "level", "start_s", "finish_s", "power_w", "moves")
        )
        compared += 1
    assert compared > len(rows) / 3


@pytest.mark.parametrize("policy", ["local-fcfs", "random", "booked-persistence", "cheapest-feasible", "patient"])
@pytest.mark.parametrize("restart_every", [0, 25])
def test_each_slot(service, policy, restart_every):
    live = service(policy, *(LONG_SLOTS if policy.startswith("booked") else ()))
    live.play(restart_every)
    assert_as_simulated(live, policy)


@pytest.mark.parametrize("policy", ["bid-price-persistence", "bid-price-regression"])
@pytest.mark.parametrize("restart_every", [0, 25])
def test_plans_with_jobs_to_come(service, policy, restart_every):
    live = service(policy, *LONG_SLOTS)
    live.play(restart_every)
    assert_as_simulated(live, policy)


@pytest.mark.parametrize(("policy", "settings"), [("bid-price-published", ()), ("booked-published", LONG_SLOTS)])
def test_plans_with_published_prices(service, policy, settings):
    live = service(policy, *EUROPE, *settings)
    live.play(100)
    assert_as_simulated(live, policy)


@pytest.mark.parametrize("policy", ["plan-advisory", "plan-hard", "plan-receding"])
def test_day_ahead_plans(service, policy):
    live = service(policy, *SMALL_DAY, scenario="load-shaping")
    live.play(60)
    assert_as_simulated(live, policy)
    curve_SH = np.array([from_bytes(row["value"])["gpus_S"] for row in live.store.read("SELECT value FROM curves")])
    assert curve_SH.min() < live.scenario.fleet.sites[0].gpus


@pytest.mark.parametrize("policy", ["greedy-price", "ucb1"])
@pytest.mark.parametrize("restart_every", [0, 40])
def test_on_arrival(service, policy, restart_every):
    live = service(policy, "window_h=1", *FEWER, scenario="dvfs-mixed")
    live.play(restart_every)
    assert_as_simulated(live, policy)


@pytest.mark.parametrize("policy", ["local-fcfs", "random", "booked-persistence", "bid-price-persistence"])
def test_jobs_that_may_be_late_wait_and_start_when_the_engine_starts_them(service, policy):
    live = service(policy, *LATE)
    live.play(25)
    assert_as_simulated(live, policy)
    rows = live.store.read("SELECT state, start_s - arrival_s - max_delay_s AS late_s FROM jobs")
    assert {row["state"] for row in rows} == {"done"}
    assert sum(row["late_s"] > 0 for row in rows) > 10


@pytest.mark.parametrize("policy", ["local-fcfs", "random", "booked-persistence", "bid-price-persistence"])
def test_announced_gpus_are_withheld_as_in_a_simulation(service, policy):
    north = "[{from: 2022-12-25, gpus: 4}, {from: 2022-12-25T02:10, gpus: 1}, {from: 2022-12-25T06:30, gpus: 3}]"
    live = service(policy, *CROWDED, "start=2022-12-25", f"fleet.sites.0.gpus={north}")
    live.play(25)
    assert live.environment.withheld.from_s_K.tolist() == [0.0, 7800.0, 23400.0]
    assert_as_simulated(live, policy)


@pytest.mark.parametrize(("policy", "restart_every"), [("local-fcfs", 25), ("random", 0), ("booked-persistence", 25)])
def test_hard_connections_mask_starts_as_in_a_simulation(service, policy, restart_every):
    steps = "[{from: 2022-12-25, kw: 0.4}, {from: 2022-12-25T02:10, kw: 0.17}, {from: 2022-12-25T06:30, kw: 0.3}]"
    meter = f"{{hard_connection: true, connection_kw: {steps}}}"
    live = service(policy, *CROWDED, "start=2022-12-25", f"fleet.sites.0.meter={meter}")
    live.play(restart_every)
    assert_as_simulated(live, policy)


def test_a_service_sees_the_price_of_lateness(service):
    live = service("booked-persistence", *LATE)
    needs = make_scheduler("booked-persistence").needs
    assert live.controller.setup.brief(needs).late_usd_per_gpu_hour == 2


def test_a_service_drops_late_jobs_where_its_scenario_does(service):
    live = service("local-fcfs", *CROWDED)
    live.play()
    states = [row["state"] for row in live.store.read("SELECT state FROM jobs")]
    assert states.count("overdue") > 10


def lives(service):
    """What is done with the running jobs of a day, by kind."""
    rows = service.store.read("SELECT kind, count(*) AS n FROM events GROUP BY kind")
    return {row["kind"]: row["n"] for row in rows}


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("suspend-threshold", STOPPABLE),
        ("suspend-threshold", (*STOPPABLE, *CROWDED)),
        ("cap-threshold", CAPPABLE),
        ("suspend-threshold(resizes=true)", BOTH),
    ],
)
def test_running_jobs_bend_as_in_a_simulation(service, policy, settings):
    live = service(policy, *settings)
    live.play(25)
    assert_as_simulated(live, policy)
    kinds_K = run(live.environment, make_scheduler(policy)).segment_K["kind"]
    happened = lives(live)
    assert happened.get("suspended", 0) == happened.get("suspend decided", 0) == (kinds_K == STOP).sum()
    assert happened.get("cap decided" if policy.startswith("cap") else "suspended", 0) > 0
