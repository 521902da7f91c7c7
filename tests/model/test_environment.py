"""Environments refuse what engines could not run, and know how long a run may last."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from noonward.errors import ScenarioError, SignalRangeError
from noonward.model.cluster.environment import Environment, GpuCaps, latest_end_s
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.network import Network
from noonward.model.signals import Signals

START = datetime(2022, 3, 1, tzinfo=UTC)
HOUR_S = 3600.0
FLEET = Fleet.model_validate(
    {
        "gpu_types": {
            "T": {
                "idle_w": 1,
                "clocks": [0.5, 1.0],
                "classes": {"units": {"power": {}, "time": {"per_clock_s": 3}}, "seconds": {"power": {}}},
            }
        },
        "sites": [
            {"name": name, "zone": name.upper(), "gpu_type": "T", "gpus": gpus} for name, gpus in (("a", 2), ("b", 4))
        ],
    }
)


def jobs(**changes):
    return Jobs.build(
        **({"arrival_s": np.array([0.0, 600.0]), "work": np.array([600.0, 600.0]), "slack_s": 600.0} | changes)
    )


def environment(fleet=FLEET, **changes):
    parts = {
        "scenario": "s", "index": 3, "seed": 0, "start": START, "protocol": "each-slot", "slot_s": 60.0,
        "window_s": 2 * HOUR_S, "drained": True, "fleet": fleet, "links": Network().links(fleet),
        "jobs": jobs(class_=1),
    }  # fmt: skip
    return Environment(**(parts | changes))


def signals(hours, zones=("A", "B"), unknown=None):
    price_ZH = np.ones((len(zones), hours))
    if unknown is not None:
        price_ZH[unknown] = np.nan
    return Signals(
        start=START, zones=zones, value_ZH={"price_usd_per_mwh": price_ZH, "carbon_g_per_kwh": np.ones_like(price_ZH)}
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"jobs": jobs(gpus=np.array([1, 5]))}, "job in row 1 needs 5 GPUs at once, but the largest site has 4"),
        ({"jobs": jobs(origin=np.array([0, 2]))}, "column origin_J, row 1: index 2 is not below 2"),
        ({"jobs": jobs(class_=np.array([2, 0]))}, "column class_J, row 0: index 2 is not below 2"),
        ({"jobs": jobs(preset_site=7)}, "column preset_site_J, row 0: index 7 is not below 2"),
        ({"window_s": 5400.0}, "the window is 5400.0 s; it must be a positive number of whole hours"),
        ({"window_s": 0.0}, "positive number of whole hours"),
        ({"slot_s": 7.0}, "slots last 7.0 s; a slot must divide the hour"),
        ({"slot_s": 0.0}, "slots last 0.0 s"),
        ({"jobs": jobs(slack_s=np.inf)}, "infinite slack"),
        (
            {"caps": GpuCaps(gpus_SH=np.ones((2, 1)))},
            r"capacity curves have shape \(2, 1\); expected 2 sites and at least 2",
        ),
        ({"caps": GpuCaps(gpus_SH=np.ones((1, 9)))}, "expected 2 sites"),
    ],
)
def test_an_environment_that_cannot_run_is_refused(changes, message):
    with pytest.raises(ScenarioError, match=message):
        environment(**changes)


@pytest.mark.parametrize("ingress", [[{"name": "x"}, {"name": "a", "home": "a"}], [{"name": "a", "home": "a"}]])
def test_each_slot_needs_an_ingress_at_home_in_every_site(ingress):
    fleet = Fleet.model_validate(FLEET.model_dump() | {"ingress": ingress})
    with pytest.raises(ScenarioError, match=r"use 'ingress: sites' \(sites without: \['b'\]\)"):
        environment(fleet)
    assert environment(fleet, protocol="on-arrival").protocol == "on-arrival"


def test_a_slot_is_not_looked_at_where_jobs_are_asked_on_arrival():
    assert environment(protocol="on-arrival", slot_s=7.0).slot_s == 7.0


def test_a_drained_run_may_last_until_the_slowest_last_job_ends():
    # Job 1 arrives at 600 s, starts within 600 s, runs 600 units of at most 3 / 0.5 = 6 s; slots may add one slot.
    assert latest_end_s(jobs(), FLEET, HOUR_S, 0.0) == 600 + 600 + 3600
    assert environment(window_s=HOUR_S, jobs=jobs()).latest_end_s == 4800 + 60
    assert environment(window_s=HOUR_S, jobs=jobs()).hours == 2
    assert environment(window_s=HOUR_S, jobs=jobs(), protocol="on-arrival").latest_end_s == 4800
    assert environment(window_s=HOUR_S, jobs=jobs(), drained=False).hours == 1
    assert environment(window_s=9 * HOUR_S, jobs=jobs()).hours == 9


def test_jobs_of_fixed_duration_take_their_own_time():
    assert latest_end_s(jobs(class_=1), FLEET, 0.0, 60.0) == 600 + 600 + 600 + 60


def test_signals_must_cover_the_hours_a_run_may_touch():
    assert environment(signals=signals(2)).hours == 2
    with pytest.raises(SignalRangeError, match="cover 2022-03-01 00:00 to 2022-03-01 01:00"):
        environment(signals=signals(1))
    with pytest.raises(
        SignalRangeError, match="environment 3 of 's' needs the price of zone B at 2022-03-01 01:00 UTC"
    ):
        environment(signals=signals(3, unknown=(1, 1)))
    assert environment(signals=signals(3, unknown=(1, 2))).hours == 2  # unknown, but after the run
    assert environment(signals=signals(3, ("A", "C", "B"), unknown=(1, 0))).hours == 2  # unknown, but of no site


def test_history_before_the_start_is_kept_for_forecasts():
    early = replace(signals(30), start=START - timedelta(hours=24))
    assert environment(signals=early).signals.hours == 30


def test_a_job_must_fit_into_its_range():
    narrow = Fleet.model_validate(FLEET.model_dump() | {"ranges": {"seconds": ["a"]}})
    message = "job in row 1 needs 3 GPUs at once, but the largest site of the range of class 'seconds' has 2"
    with pytest.raises(ScenarioError, match=message):
        environment(fleet=narrow, jobs=jobs(class_=1, gpus=np.array([1, 3])))
