"""One job: the best site and start by hand, by search over every minute, by the engine, and at forecast hours."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from noonward import run, settle
from noonward.data.scenarios.load import load_scenario
from noonward.errors import ScenarioError, SignalRangeError
from noonward.evaluate.one_job import (
    FARTHEST_H,
    Place,
    advise,
    choices,
    fleet_places,
    latest_start,
    library_gpu,
    outlook,
    zone_places,
)
from noonward.forecasts.regression import RegressionForecaster
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.jobs import Jobs
from noonward.model.signals import Signals
from noonward.schedule.policies import make_scheduler

START = datetime(2022, 5, 1, tzinfo=UTC)


def signals(price, carbon, zones=("A", "B"), start=START):
    value = {"price_usd_per_mwh": np.array(price, float), "carbon_g_per_kwh": np.array(carbon, float)}
    return Signals(start=start, zones=zones, value_ZH=value)


def places(power_w=1e6):
    return [Place(name=zone, zone=zone, power_w=power_w) for zone in ("A", "B")]


def advice(known, now, by, hours, weight=0.0, here="A", at=None):
    at = at or places()
    seen = outlook(known, ("A", "B"), now, by)
    return advise(choices(at, seen, now, by, hours, weight), here, now)


def test_the_best_hours_of_four_by_hand():
    known = signals([[50, 40, 10, 20], [30, 30, 30, 5]], [[100] * 4, [900] * 4])
    found = advice(known, START, START + timedelta(hours=4), 2)
    assert (found.best.site, found.best.start) == ("A", START + timedelta(hours=2))
    assert (found.best.usd, found.best.kg) == (30.0, 200.0)  # 1 MW for two hours
    assert (found.now.usd, found.now.kg) == (90.0, 200.0)
    assert (found.worst.usd, found.cleanest.kg) == (90.0, 200.0)


def test_carbon_price_changes_the_best():
    known = signals([[50] * 4, [30] * 4], [[100] * 4, [900] * 4])
    by = START + timedelta(hours=4)
    assert [advice(known, START, by, 2, weight).best.site for weight in (0.0, 20.0, 30.0)] == ["B", "B", "A"]
    found = advice(known, START, by, 2, 30.0)
    assert (found.cheapest.site, found.cleanest.site) == ("B", "A")


def test_of_equal_choices_the_earliest_is_taken():
    known = signals(np.full((2, 9), 20.0), np.full((2, 9), 100.0))
    assert advice(known, START, START + timedelta(hours=9), 2).best.start == START


@pytest.mark.parametrize("seed", range(6))
def test_no_start_at_any_minute_is_better_or_worse(seed):
    rng = np.random.default_rng(seed)
    known = signals(rng.normal(50, 40, (2, 30)), rng.uniform(10, 500, (2, 30)))
    now = START + timedelta(minutes=int(rng.integers(0, 200)))
    by = START + timedelta(minutes=int(rng.integers(1400, 1800)))
    hours = float(rng.integers(30, 600)) / 60
    found = advice(known, now, by, hours, 40.0)
    costs = []
    for z in range(2):
        weighed_H = known.price_usd_per_mwh_ZH[z] + 0.04 * known.carbon_g_per_kwh_ZH[z]
        minute_M = np.repeat(weighed_H, 60) / 60
        first, length = int((now - START) / timedelta(minutes=1)), round(hours * 60)
        last = int((by - START) / timedelta(minutes=1)) - length
        costs += [minute_M[m : m + length].sum() for m in range(first, last + 1)]
    assert found.best.weighed_usd == pytest.approx(min(costs), rel=1e-9)
    assert found.worst.weighed_usd == pytest.approx(max(costs), rel=1e-9)


def test_a_job_that_cannot_end_in_time_is_refused():
    with pytest.raises(ScenarioError, match=r"takes 5 h, but .* there are 4 h"):
        latest_start(START, START + timedelta(hours=4), 5)


def test_hours_after_the_file_are_the_regressions_forecast():
    rng = np.random.default_rng(1)
    known = signals(rng.normal(50, 20, (2, 200)), rng.uniform(100, 500, (2, 200)))
    seen = outlook(known, ("A", "B"), START + timedelta(hours=190), START + timedelta(hours=230))
    told = np.stack([known.price_usd_per_mwh_ZH, known.carbon_g_per_kwh_ZH])
    issued = RegressionForecaster(told[..., :199]).values(told, np.array([199]), 31)[:, 0]
    np.testing.assert_array_equal(seen.value_KZH[..., :10], told[..., 190:])
    np.testing.assert_array_equal(seen.value_KZH[..., 10:], issued[..., 1:])
    np.testing.assert_array_equal(seen.forecast_KZH, np.broadcast_to(np.arange(40) >= 10, (2, 2, 40)))


def test_a_window_that_begins_after_the_file_is_forecast_throughout():
    rng = np.random.default_rng(2)
    known = signals(rng.normal(50, 20, (2, 192)), rng.uniform(100, 500, (2, 192)))
    late = outlook(known, ("A", "B"), START + timedelta(hours=200), START + timedelta(hours=210))
    early = outlook(known, ("A", "B"), START + timedelta(hours=190), START + timedelta(hours=210))
    assert late.forecast_KZH.all()
    np.testing.assert_array_equal(late.value_KZH, early.value_KZH[..., 10:])


def test_only_the_run_counts_as_forecast():
    known = signals(np.full((2, 48), 20.0), np.full((2, 48), 100.0))
    now = START + timedelta(hours=46)
    seen = outlook(known, ("A", "B"), now, now + timedelta(hours=8))
    by_start = {c.start: c.forecast_h for c in choices(places(), seen, now, now + timedelta(hours=8), 4, 0.0)}
    assert by_start[now] == 2.0
    assert by_start[now + timedelta(hours=4)] == 4.0


@pytest.mark.parametrize(
    ("change", "now_h", "by_h", "says"),
    [
        (None, -2, 4, "begin after"),
        (None, 40, 49 + FARTHEST_H, "169 h before the end of the window"),
        ((0, 44), 40, 60, "price of A is unknown at 2022-05-02 20:00"),
        ((1, 30), 46, 60, "needs 24 hours"),
        ((1, slice(None)), 40, 44, "carbon intensity of A is unknown throughout"),
    ],
)
def test_hours_that_nothing_may_fill_are_refused(change, now_h, by_h, says):
    value = np.full((2, 2, 48), 50.0)
    if change is not None:
        value[change[0], 0, change[1]] = np.nan
    known = signals(*value)
    with pytest.raises(SignalRangeError, match=says):
        outlook(known, ("A", "B"), START + timedelta(hours=now_h), START + timedelta(hours=by_h))


def test_of_several_cards_the_hungriest_is_taken_and_said():
    gpu, note = library_gpu("a100")
    assert gpu.active_w == max(
        library_gpu(name)[0].active_w for name in note.split(" may be ")[1].split(":")[0].split(" or ")
    )
    assert library_gpu("L4")[1] is None
    with pytest.raises(ScenarioError, match="not in the library"):
        library_gpu("Z9")


def test_zones_draw_the_whole_power_of_their_cards():
    gpu, _ = library_gpu("T4")
    assert [place.power_w for place in zone_places(["A"], gpu, 4, 1.5)] == [4 * 70 * 1.5]


def test_a_fleets_saving_is_what_the_ledger_says():
    """The engine runs the job at either site: the bills differ by what the choices say."""
    scenario = load_scenario("tiny")
    rng = np.random.default_rng(5)
    known = signals(rng.normal(60, 30, (2, 72)), rng.uniform(50, 500, (2, 72)), ("CA-ON", "SG"), START)
    now = START + timedelta(hours=48)
    bills = []
    for origin in (0, 1):
        environment = Environment(
            scenario="one", index=0, seed=0, start=now, protocol="each-slot", slot_s=60.0, window_s=12 * 3600.0,
            drained=False, fleet=scenario.fleet, links=scenario.network.links(scenario.fleet), signals=known,
            economics=scenario.economics,
            jobs=Jobs.build(
                arrival_s=np.array([0.0]), work=np.array([5400.0]), origin=origin, gpus=4, slack_s=np.array([60.0])
            ),
        )  # fmt: skip
        ledger = settle(run(environment, make_scheduler("local-fcfs")))
        bills.append((ledger.energy_usd, ledger.carbon_kg))
    at = fleet_places(scenario.fleet, 4, None, None)
    seen = outlook(known, ("CA-ON", "SG"), now, now + timedelta(hours=12))
    found = [c for c in choices(at, seen, now, now + timedelta(hours=12), 1.5, 0.0) if c.start == now]
    assert [c.site for c in found] == ["north", "south"]
    assert found[0].usd - found[1].usd == pytest.approx(bills[0][0] - bills[1][0], rel=1e-9)
    assert found[0].kg - found[1].kg == pytest.approx(bills[0][1] - bills[1][1], rel=1e-9)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"gpus": 9}, "no site has 9 GPUs of type T4-class; the largest has 8"),
        ({"gpu": "H100"}, "no GPU of type 'H100'"),
        ({"job_class": "inference"}, "no class of jobs 'inference'"),
    ],
)
def test_what_a_fleet_cannot_do_is_refused(asked, says):
    told = {"gpus": 2, "gpu": None, "job_class": None} | asked
    with pytest.raises(ScenarioError, match=says):
        fleet_places(load_scenario("tiny").fleet, **told)


def test_types_and_classes_that_differ_must_be_named():
    fleet = load_scenario("dvfs-mixed").fleet
    types = {site.gpu_type for site in fleet.sites}
    if len(types) > 1:
        with pytest.raises(ScenarioError, match="a job's hours hold for one of them"):
            fleet_places(fleet, 1, None, None)
    with pytest.raises(ScenarioError, match=r"draw different power .* --class"):
        fleet_places(fleet, 1, next(iter(types)), None)
    assert fleet_places(fleet, 1, next(iter(types)), fleet.classes[0])
