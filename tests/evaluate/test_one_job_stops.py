"""One job that may be suspended: by hand, by search over all schedules, and by the engine."""

import itertools
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from engine.test_suspension import CHECKPOINT, LONG, Script
from noonward.engine.run import run
from noonward.evaluate import one_job_stops
from noonward.evaluate.one_job import Place, advise, choices, outlook
from noonward.evaluate.one_job_stops import interrupted
from noonward.ledger.ledger import settle
from noonward.model.cluster.freedom import Freedom
from noonward.model.signals import Signals
from reference import small_worlds

START = datetime(2022, 5, 1, tzinfo=UTC)
FREE = {"stop_s": 0, "dark_s": 0, "load_s": 0}


def hours(n):
    return timedelta(hours=n)


def asked(price_ZH, need_h, freedom, *, by_h=None, power_w=1e6, free_w=0.0, carbon_ZH=None, weight=0.0):
    """(Cheapest interrupted schedule, cheapest unbroken run) at zones of these prices, from the first hour on."""
    zones = tuple(f"Z{z}" for z in range(len(price_ZH)))
    value = {"price_usd_per_mwh": np.array(price_ZH, float)}
    value["carbon_g_per_kwh"] = np.zeros_like(value["price_usd_per_mwh"]) if carbon_ZH is None else np.array(carbon_ZH)
    by = START + hours(by_h or len(price_ZH[0]))
    seen = outlook(Signals(start=START, zones=zones, value_ZH=value), zones, START, by)
    places = [Place(name=zone, zone=zone, power_w=power_w, free_w=free_w) for zone in zones]
    stops = interrupted(places, seen, START, by, need_h, weight, freedom)
    return stops, advise(choices(places, seen, START, by, need_h, weight), "Z0", START).best


def test_the_cheapest_hours_are_taken_where_stops_are_free():
    freedom = Freedom(interruptible=True, checkpoint=FREE)
    stops, best = asked([[50, 50, 50, 50, 50], [10, 90, 20, 80, 12]], 2, freedom)
    assert stops.site == "Z1"
    assert stops.runs == ((START, START + hours(1)), (START + hours(4), START + hours(5)))
    assert (stops.usd, best.usd) == (pytest.approx(22), pytest.approx(92))


def test_stops_and_loads_are_paid_at_their_shares_of_power_less_what_free_gpus_draw():
    paused = {"stop_s": 1800, "dark_s": 0, "load_s": 900, "stop_power": 0.5, "load_power": 0.4}
    stops, _ = asked([[10, 100, 10]], 2, Freedom(interruptible=True, checkpoint=paused), power_w=0.8e6, free_w=0.2e6)
    assert stops.runs == ((START, START + hours(1)), (START + hours(2), START + hours(3)))
    assert stops.usd == pytest.approx(0.8 * 20 + (0.5 - 0.2) * 0.5 * 100 + (0.4 - 0.2) * 0.25 * 100)


def test_emissions_count_at_their_price():
    freedom = Freedom(interruptible=True, checkpoint=FREE)
    carbon = [[0, 900, 0]]
    stops, _ = asked([[10, 0, 10]], 2, freedom, carbon_ZH=carbon, weight=100)
    assert (stops.usd, stops.kg, stops.weighed_usd) == (pytest.approx(20), 0, pytest.approx(20))
    assert asked([[10, 0, 10]], 2, freedom, carbon_ZH=carbon, weight=0)[0].kg == pytest.approx(900)


@pytest.mark.parametrize(
    ("freedom", "runs"),
    [({"most_suspensions": 1}, 2), ({"most_suspensions": 0}, 1), ({}, 3), ({"min_run_s": 7200}, 1)],
)
def test_limits_of_the_class_hold(freedom, runs):
    price = [[10, 90, 11, 20, 12, 90]]
    stops, _ = asked(price, 3, Freedom.model_validate({"interruptible": True, "checkpoint": FREE, **freedom}))
    assert len(stops.runs) == runs


def test_a_job_without_time_to_spare_is_not_suspended():
    stops, best = asked([[90, 10, 90]], 3, Freedom(interruptible=True))
    assert stops.runs == ((START, START + hours(3)),)
    assert stops.usd == pytest.approx(best.usd)


def by_search(price_H, need, freedom, step_s):
    """Cost of the cheapest schedule among all patterns of steps on and off."""
    steps, paused = int(len(price_H) * 3600 / step_s), freedom.checkpoint

    def usd(from_s, to_s, mw):
        total = 0.0
        for hour, price in enumerate(price_H):
            total += mw * price * max(0.0, min(to_s, 3600.0 * (hour + 1)) - max(from_s, 3600.0 * hour)) / 3600
        return total

    least = math.inf
    away = math.ceil((paused.stop_s + paused.dark_s) / step_s) + math.ceil(paused.load_s / step_s)
    for on in itertools.combinations(range(steps), need):
        runs = []
        for step in on:
            if runs and runs[-1][1] == step:
                runs[-1][1] = step + 1
            else:
                runs.append([step, step + 1])
        short = any((end - begin) * step_s < freedom.min_run_s for begin, end in runs[:-1])
        near = any(two[0] - one[1] < away for one, two in itertools.pairwise(runs))
        if short or near or len(runs) - 1 > (steps if freedom.most_suspensions is None else freedom.most_suspensions):
            continue
        cost = sum(usd(begin * step_s, end * step_s, 1.0) for begin, end in runs)
        cost += sum(usd(end * step_s, end * step_s + paused.stop_s, paused.stop_power) for _, end in runs[:-1])
        cost += sum(usd(begin * step_s - paused.load_s, begin * step_s, paused.load_power) for begin, _ in runs[1:])
        least = min(least, cost)
    return least


@pytest.mark.parametrize("seed", range(60))
def test_no_schedule_is_cheaper(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(one_job_stops, "STEP_S", 1800.0)
    price_H = rng.choice([-5.0, 10.0, 30.0, 90.0], 6) + rng.random(6)
    paused = {name: float(rng.choice([0.0, 600.0, 1800.0, 2400.0])) for name in ("stop_s", "dark_s", "load_s")}
    freedom = Freedom.model_validate(
        {
            "interruptible": True, "checkpoint": paused, "min_run_s": float(rng.choice([0, 0, 3600, 5400])),
            "most_suspensions": rng.choice([None, None, 1, 2]),
        }
    )  # fmt: skip
    need = int(rng.integers(2, 7))
    stops, _ = asked([price_H], need / 2, freedom)
    assert stops.usd == pytest.approx(by_search(price_H, need, freedom, 1800.0))


def test_the_engine_settles_it_alike():
    """Three hours of 2 GPUs of 100 W, stopped for an expensive hour by this search and by hand in the engine."""
    price, checkpoint = [10.0, 90.0, 10.0, 10.0, 90.0], {"stop_s": 120.0, "dark_s": 240.0, "load_s": 300.0}
    freedom = Freedom(interruptible=True, checkpoint=checkpoint)
    stops, _ = asked([price], 3, freedom, by_h=5, power_w=200.0)
    begins_h = [(begin - START) / hours(1) for begin, _ in stops.runs]
    ends_h = [(end - START) / hours(1) for _, end in stops.runs]
    resumed_h = begins_h[1] - 300 / 3600
    assert ends_h[0] == 1.0
    world = small_worlds.plain([4], [LONG], price=[price], freedoms={0: replace(CHECKPOINT, load_s=300.0)})
    outcome = run(world.environment(), Script([0.0, resumed_h], [ends_h[0]]))
    assert settle(outcome).job_energy_usd == pytest.approx(stops.usd)
