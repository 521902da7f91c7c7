"""Tariffs in a run: prices at sites, what bills add, and what schedulers and forecasts are shown."""

from datetime import timedelta

import numpy as np
import pytest

from ledger.test_pue_by_hour import PUE
from ledger.two_jobs import FLEET, HOUR_S, START, environment, played
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.data.signals.generate import generate_signals
from noonward.decision.cluster.forecasts import ForecastIssuer
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import Ledger, settle
from noonward.live.world.hours import Hours
from noonward.model.cluster.fleet import Fleet
from noonward.schedule.policies import make_scheduler


def billed(tariff, *, timezone="UTC", site=0, **meter):
    """The fleet of the two jobs, a site with a tariff."""
    said = FLEET.model_dump(mode="json")
    said["sites"][site] |= {"timezone": timezone, "meter": {"interval_min": 30, "tariff": "t", **meter}}
    said["tariffs"] = {"t": tariff}
    return Fleet.model_validate(said)


MARCH_H = 31 * 24


def test_a_bill_by_hand_and_what_it_adds():
    # a draws 1.0, 2.35, 2.35, 1.0 kW by half hours, 0.7 kW of it base load; prices 100 and 200 USD/MWh
    demand = [{"usd_per_kw_month": 744.0, "interval_min": 30}]
    fleet = billed({"adder_usd_per_mwh": 10, "usd_per_month": 37.2, "demand": demand}, base_kw=0.7)
    ledger, plain = settle(played(fleet=fleet)), settle(played())
    lines = ledger.meters["a"]
    assert lines.energy_usd == pytest.approx(1.675 * 0.110 + 1.675 * 0.210)
    assert lines.demand_usd == pytest.approx(2.35 * 744 * 2 / MARCH_H)
    assert lines.monthly_usd == pytest.approx(0.1)
    assert lines.bill_usd == pytest.approx(lines.energy_usd + lines.demand_usd + 0.1)
    base_usd = 0.7 * (0.110 + 0.210)
    assert lines.tariff_usd == pytest.approx(base_usd + lines.demand_usd + 0.1)
    assert ledger.tariff_usd == lines.tariff_usd
    # the adder is in the price of energy of a's GPUs: 0.6 kWh free less 0.15 displaced, 1.5 kWh of the job
    assert ledger.energy_usd == pytest.approx(plain.energy_usd + 0.010 * (0.6 - 0.15 + 1.5))
    assert ledger.utility_usd == pytest.approx(plain.utility_usd - 0.010 * 1.95 - ledger.tariff_usd)
    assert ledger.total_usd == pytest.approx(plain.total_usd + 0.010 * 1.95 + ledger.tariff_usd)


def test_a_contract_stands_in_the_signals_place():
    fleet = billed({"energy": 80, "fees": [{"usd_per_mwh": 40, "hours": [1]}]})
    shown = environment(fleet=fleet).site_signals
    assert shown.price_SH[0].tolist() == [80, 120, 80]
    assert shown.price_SH[1].tolist() == environment().site_signals.price_SH[1].tolist()
    ledger = settle(played(fleet=fleet))
    assert ledger.meters["a"].bill_usd == pytest.approx(0.975 * 0.080 + 0.975 * 0.120)
    assert ledger.tariff_usd == pytest.approx(0.0)


def test_the_pue_multiplies_a_price_with_its_adders():
    fleet = billed({"adder_usd_per_mwh": 10})
    assert environment(fleet=fleet, pue=PUE).site_signals.price_SH[0, 1] == pytest.approx(1.2 * 210)
    ledger = settle(played(fleet=fleet, pue=PUE))
    assert ledger.tariff_usd == pytest.approx(0.0)
    kwh = np.array([0.975, 1.17])
    assert ledger.meters["a"].bill_usd == pytest.approx(float(kwh @ [0.110, 0.210]))


def test_fees_begin_with_local_hours_also_where_these_are_half_an_hour_off():
    fleet = billed({"fees": [{"usd_per_mwh": 60, "hours": [11]}]}, timezone="Asia/Kolkata")  # 11:00 is 5:30 UTC
    shown = environment(fleet=fleet).site_signals
    assert shown.part_s == HOUR_S  # 5:30 UTC lies beyond the three hours
    fleet = billed({"fees": [{"usd_per_mwh": 60, "hours": [7]}]}, timezone="Asia/Kolkata")  # 1:30 to 2:30 UTC
    shown = environment(fleet=fleet).site_signals
    assert shown.part_s == HOUR_S / 2
    assert shown.price_SP[0].tolist() == [100, 100, 200, 260, 360, 300]


def test_system_peaks_are_billed_by_the_power_in_them():
    charge = {"usd_per_kw_year": 50, "peaks": 5, "interval_min": 60}
    fleet = billed({"coincident": [charge]}, system_peaks=[["2022-03-01T01:00Z", "2022-03-02T01:00Z"]])
    assert settle(played(fleet=fleet)).meters["a"].coincident_usd == pytest.approx(10 * 0.975)


def test_a_tariff_that_says_nothing_adds_nothing():
    ledger, plain = settle(played(fleet=billed({}))), settle(played())
    assert ledger.tariff_usd == pytest.approx(0.0)
    assert ledger.energy_usd == plain.energy_usd
    assert ledger.meters["a"].bill_usd == pytest.approx(0.975 * 0.3)
    assert Ledger.from_dict(ledger.as_dict()).as_dict() == ledger.as_dict()


def test_a_tariff_needs_a_clock():
    with pytest.raises(ScenarioError, match="give an IANA time zone"):
        settle(played(fleet=billed({}, timezone=None)))


@pytest.mark.parametrize("kind", ["perfect", "persistence"])
def test_forecasts_and_a_live_service_know_contracts_and_fees(kind):
    fleet = billed({"energy": 80, "fees": [{"usd_per_mwh": 40, "hours": [3]}]})
    made = environment(fleet=fleet)
    known = generate_signals(("SG", "PL"), START - timedelta(hours=48), 96, np.random.default_rng(0))
    out, without = np.empty((2, 2, 2, 2, 13))
    for room, prices in ((out, made.prices), (without, None)):
        issuer = ForecastIssuer(Forecast(kind), known, START, ["SG", "PL"], np.random.default_rng(0), None, prices)
        assert issuer.issue(0, room) == 2
    price_L = np.diff(out[0, 0, 0]) / HOUR_S
    assert price_L[:5] == pytest.approx([80, 80, 80, 120, 80])
    assert np.diff(out[0, 1, 0])[:4] / HOUR_S == pytest.approx([80, 80, 120, 80])
    assert np.array_equal(out[0, :, 1], without[0, :, 1])
    assert np.array_equal(out[1], without[1])
    hours = Hours(known, START, ["SG", "PL"], None, np.random.default_rng(0), prices=made.prices)

    class Seen:
        site_S = np.zeros(2, dtype=[("price", "f8"), ("carbon", "f8")])

    hours.show(Seen, 3)
    assert Seen.site_S["price"].tolist() == [120, known.price_usd_per_mwh_ZH[1, 51]]


def test_jobs_go_where_the_contract_is_cheap():
    """A rule that knows nothing of tariffs follows them, for it reads the sites' prices."""

    def hours_at_south(usd_per_mwh):
        content = load_scenario("tiny").model_dump(mode="json")
        content["fleet"]["tariffs"] = {"t": {"energy": usd_per_mwh}}
        content["fleet"]["sites"][1]["meter"] = {"tariff": "t"}
        found = build_environment(scenario_from(content), 0, 0)
        outcome = run(found, make_scheduler("cheapest-feasible"))
        at = outcome.occupied
        return float(((at.to_s_K - at.from_s_K) * at.gpus_K)[at.site_K == 1].sum())

    assert hours_at_south(-500.0) > hours_at_south(2000.0)
