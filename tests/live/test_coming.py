"""The jobs to come of a live service: from a file, or from its own past arrivals, for policies that plan with them."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from noonward.errors import ScenarioError
from noonward.live.coming import draw_week, own_past, sampler_of
from noonward.live.requests import JobRequest
from noonward.units import DAY_S, HOUR_S


def week_of(service, days, per_day):
    """Submits some jobs a day, each day at its own hour."""
    for day in range(days):
        service.set_time(day * DAY_S + (day + 1) * HOUR_S)
        service.submit(*[JobRequest(name="a", work=600.0 + day, origin="south", gpus_min=2)] * per_day)


def test_a_service_draws_from_its_own_past_once_that_spans_a_day(service):
    live = service("local-fcfs")
    assert own_past(live.store, live.controller.names) is None
    week_of(live, 1, 5)
    assert own_past(live.store, live.controller.names) is None
    week_of(live, 9, 5)
    past = own_past(live.store, live.controller.names)
    assert len(past) == 50
    drawn = draw_week(past, live.store.start, np.random.default_rng(0))
    assert drawn.arrival_s_J.min() >= 0
    assert drawn.arrival_s_J.max() < 7 * DAY_S
    assert set(drawn.gpus_min_J.tolist()) == {2}
    hour_J = (drawn.arrival_s_J % DAY_S) / HOUR_S
    assert {int(work - 600.0) for work in drawn.work_J} == {int(hour) - 1 for hour in hour_J}


def test_the_days_of_a_week_start_at_the_hour_of_the_service(service):
    live = service("local-fcfs")
    week_of(live, 9, 1)
    past, start = own_past(live.store, live.controller.names), live.store.start + timedelta(hours=7)
    drawn = draw_week(past, start, np.random.default_rng(1))
    clock_h_J = (drawn.arrival_s_J / HOUR_S + 7) % 24
    assert {int(work - 600.0) for work in drawn.work_J} == {round(hour) - 1 for hour in clock_h_J}


def test_a_policy_that_plans_decides_by_the_past_of_the_service_or_is_refused(service):
    live = service("local-fcfs", "window_h=240")
    live.controller.setup.__class__ = live.controller.setup.__class__.__mro__[1]  # the service's own knowledge alone
    with pytest.raises(ScenarioError, match="cannot be sampled"):
        live.controller.use_policy("bid-price-persistence")
    assert live.controller.policy == "local-fcfs"
    week_of(live, 3, 4)
    live.controller.use_policy("bid-price-persistence")
    live.set_time(3 * DAY_S)
    live.steps()
    states = {row["state"] for row in live.store.read("SELECT state FROM jobs")}
    assert states <= {"waiting", "starting", "running", "transit"}
    assert len(live.store.read("SELECT id FROM jobs WHERE serial IS NULL")) == 0


def test_a_file_of_past_jobs_serves_from_the_first_hour_on(service, tmp_path):
    live = service("local-fcfs")
    times = [live.store.start - timedelta(days=day, hours=-3) for day in range(1, 9)]
    table = pl.DataFrame(
        {
            "submit_time": [f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in times], "duration_s": [600.0] * 8,
            "gpus": [2] * 8, "origin": ["north"] * 8,
        }
    )  # fmt: skip
    table.write_csv(tmp_path / "past.csv")
    draw = sampler_of(live.scenario, live.store, tmp_path / "past.csv")
    drawn = draw(np.random.default_rng(0))
    assert len(drawn) == 7
    assert set(drawn.work_J.tolist()) == {600.0}
