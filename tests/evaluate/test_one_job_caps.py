"""One job that may run under power caps: by hand, and against a linear program over all its runs."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from noonward.bound.highs import minimise
from noonward.errors import InfeasiblePlanError
from noonward.evaluate.one_job import Place, advise, choices, outlook
from noonward.evaluate.one_job_caps import capped
from noonward.model.cluster.power_caps import CapCurve
from noonward.model.signals import Signals

START = datetime(2022, 5, 1, tzinfo=UTC)
HALF = CapCurve(power=(0.5, 1.0), throughput=(0.8, 1.0))


def hours(n):
    return timedelta(hours=n)


def asked(price_ZH, need_h, curve=HALF, *, now_h=0.0, by_h=None, free_w=0.0, carbon_ZH=None, weight=0.0):
    """(Cheapest run under caps, cheapest run at full power) of a job of 1 MW at zones of these prices."""
    zones = tuple(f"Z{z}" for z in range(len(price_ZH)))
    value = {"price_usd_per_mwh": np.array(price_ZH, float)}
    value["carbon_g_per_kwh"] = np.zeros_like(value["price_usd_per_mwh"]) if carbon_ZH is None else np.array(carbon_ZH)
    now, by = START + hours(now_h), START + hours(by_h or len(price_ZH[0]))
    seen = outlook(Signals(start=START, zones=zones, value_ZH=value), zones, now, by)
    places = [Place(name=zone, zone=zone, power_w=1e6, free_w=free_w) for zone in zones]
    caps = capped(places, seen, now, by, need_h, weight, curve)
    return caps, advise(choices(places, seen, now, by, need_h, weight), "Z0", now).best


def test_the_dear_hours_are_capped():
    """1.8 hours of work: half power in the expensive hour, full power in the cheap one."""
    caps, best = asked([[100, 20]], 1.8)
    assert (caps.start, caps.end) == (START, START + hours(2))
    assert caps.power == ((START, pytest.approx(0.5)), (START + hours(1), pytest.approx(1.0)))
    assert (caps.usd, best.usd) == (pytest.approx(0.5 * 100 + 20), pytest.approx(80 + 20))


def test_a_run_begins_within_an_hour_and_at_the_cheaper_site():
    caps, _ = asked([[50, 50, 50, 50], [90, 30, 30, 90]], 1.6)
    assert (caps.site, caps.start, caps.end) == ("Z1", START + hours(1), START + hours(3))
    assert caps.usd == pytest.approx(0.5 * 60)
    caps, _ = asked([[100, 10, 10]], 2.1, CapCurve(power=(0.9, 1.0), throughput=(0.5, 1.0)))
    assert (caps.start, caps.end) == (START + hours(0.9), START + hours(3))
    assert caps.usd == pytest.approx(0.1 * 100 + 20)


def test_idle_power_and_emissions_count():
    """Half of 1.25 MW less the 0.25 MW that free GPUs draw: 0.375 MW."""
    carbon = [[100, 100]]
    caps, _ = asked([[10, 10]], 1.6, free_w=0.25e6, carbon_ZH=carbon, weight=50)
    assert (caps.usd, caps.kg) == (pytest.approx(0.375 * 20), pytest.approx(0.375 * 200))
    assert caps.weighed_usd == pytest.approx(7.5 + 50 * 0.075)


def test_a_job_that_does_not_fit_has_no_run():
    curve = CapCurve(power=(0.5, 1.0), throughput=(0.8, 1.0))
    price = [[10.0, 10.0, 10.0]]
    value = {"price_usd_per_mwh": np.array(price), "carbon_g_per_kwh": np.zeros((1, 3))}
    seen = outlook(Signals(start=START, zones=("Z0",), value_ZH=value), ("Z0",), START, START + hours(3))
    place = Place(name="Z0", zone="Z0", power_w=1e6)
    assert capped([place], seen, START, START + hours(3), 3.5, 0.0, curve) is None


@pytest.mark.parametrize("seed", range(40))
def test_no_run_over_whole_windows_costs_less(seed):
    """A linear program for every pair of first and last hour: the job runs throughout, in any mix of the caps."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 8))
    price_H = rng.uniform(-20.0, 100.0, count)
    curve = CapCurve(power=(0.4, 0.7, 1.0), throughput=(0.5, float(rng.uniform(0.6, 0.9)), 1.0))
    need_h, free_w = float(rng.uniform(0.3, 0.7 * count)), float(rng.choice([0.0, 0.2e6]))
    caps, _ = asked([price_H.tolist()], need_h, curve, free_w=free_w)
    extra_M = np.array(curve.power) * (1.0 + free_w / 1e6) - free_w / 1e6
    best = np.inf
    for first in range(count):
        for last in range(first, count):
            span = list(range(first, last + 1))
            cost_X = np.concatenate([price_H[h] * extra_M for h in span])
            rows = [np.tile(curve.throughput, len(span))]
            lower, upper = [need_h], [need_h]
            for n, h in enumerate(span):
                row = np.zeros(len(cost_X))
                row[3 * n : 3 * n + 3] = 1.0
                rows.append(row)
                lower.append(1.0 if first < h < last else 0.0)
                upper.append(1.0)
            found = solved(cost_X, np.array(rows), np.array(lower), np.array(upper))
            best = min(best, found)
    assert caps.usd == pytest.approx(best, abs=1e-6)


def solved(cost_X, rows_RX, lower_R, upper_R):
    """Least cost of a small linear program over variables of at least 0; infinite where there is none."""
    try:
        return minimise(cost_X, rows_RX, lower_R, upper_R, "test").value
    except InfeasiblePlanError:
        return np.inf
