"""Contracts for clean energy and carbon books: by hand, in the ledger and in the bound, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from bound.test_metered import world
from ledger.test_tariffs import billed
from ledger.two_jobs import FLEET, SIGNALS, played
from noonward.bound.cluster_utility.metered import metered_bound
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.errors import ScenarioError, SignalRangeError
from noonward.ledger.ledger import Ledger, settle
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.solar import PlantsByHour, SolarByHour
from noonward.model.signals import Signals

PPA = {"kw": 2.0, "profile": "wind.csv", "usd_per_mwh": 120.0}
WIND = SolarByHour(share_SH=np.array([[0.25, 1.0, 0.0], [0.0, 0.0, 0.0]]))


def contracted(tariff=None, **changes):
    """The fleet of the two jobs, with a contract at site a."""
    said = billed(tariff or {}).model_dump(mode="json")
    said["sites"][0]["ppa"] = PPA | changes
    return Fleet.model_validate(said)


def test_books_by_hand():
    # a draws 0.975 kWh in each of two hours, at 100 and 200 USD/MWh, 400 and 600 g/kWh; the plant makes 0.5 and 2 kWh
    with_it, without = settle(played(fleet=contracted(), plants=WIND)), settle(played(fleet=billed({})))
    books = with_it.books["a"]
    assert (books.grid_kwh, books.contracted_kwh, books.matched_kwh) == pytest.approx((1.95, 2.5, 0.5 + 0.975))
    assert books.location_kg == pytest.approx(0.975 * (0.4 + 0.6))
    assert books.market_kg == pytest.approx(0.475 * 0.4)
    assert np.isnan(books.marginal_kg)
    assert books.matched_share == pytest.approx(1.475 / 1.95)
    assert books.ppa_usd == pytest.approx(0.5 * (0.120 - 0.100) + 2.0 * (0.120 - 0.200))
    assert with_it.utility_usd == pytest.approx(without.utility_usd - books.ppa_usd)
    assert without.books == {}
    assert "books" not in without.as_dict()
    assert Ledger.from_dict(with_it.as_dict()).as_dict() == with_it.as_dict()
    assert Ledger.mean([with_it, with_it]).books["a"].matched_kwh == pytest.approx(1.475)


@pytest.mark.parametrize(("delivery", "saved_usd"), [(0.0, 0.4 * 0.050), (30.0, 0.4 * 0.020), (60.0, 0.0)])
def test_energy_of_a_plant_is_taken_where_it_saves(delivery, saved_usd):
    # energy costs 150 USD/MWh by contract; the zone's price is 100, then 200; in the first hour the plant makes 0.5 kW,
    # and a draws 0.3 and 1.65 kW by half hours
    tariff, physical = {"energy": 150}, {"kind": "physical", "delivery_usd_per_mwh": delivery}
    one, other = (
        settle(played(fleet=contracted(tariff, **each), plants=WIND)) for each in ({"kind": "virtual"}, physical)
    )
    assert other.books["a"].ppa_usd == pytest.approx(one.books["a"].ppa_usd - saved_usd)
    assert other.utility_usd == pytest.approx(one.utility_usd + saved_usd)
    assert other.meters["a"].bill_usd == one.meters["a"].bill_usd
    assert other.books["a"].matched_kwh == one.books["a"].matched_kwh


def test_where_energy_costs_the_zones_price_both_kinds_cost_the_same():
    one, other = (settle(played(fleet=contracted(kind=kind), plants=WIND)) for kind in ("virtual", "physical"))
    assert other.total_usd == one.total_usd


def test_a_virtual_contract_delivers_nothing():
    with pytest.raises(ValidationError, match="a virtual contract, which delivers nothing"):
        contracted(delivery_usd_per_mwh=5.0)


def test_no_export_is_paid_more_than_the_plants_energy():
    said = contracted({"energy": 150}, kind="physical").model_dump(mode="json")
    said["sites"][0]["behind_meter"] = {"export": {"allowed_kw": 1, "price": 120}}
    with pytest.raises(ScenarioError, match="it would buy and sell at once"):
        settle(played(fleet=Fleet.model_validate(said), plants=WIND))


def test_residual_and_marginal_intensities_are_signals_of_their_own():
    more = {"residual_carbon_g_per_kwh": 2.0, "marginal_carbon_g_per_kwh": 3.0}
    carbon = SIGNALS.value_ZH["carbon_g_per_kwh"]
    signals = Signals(
        start=SIGNALS.start, zones=SIGNALS.zones,
        value_ZH={**SIGNALS.value_ZH, **{name: factor * carbon for name, factor in more.items()}},
    )  # fmt: skip
    books = settle(played(fleet=contracted(), plants=WIND, signals=signals)).books["a"]
    assert books.market_kg == pytest.approx(2 * 0.475 * 0.4)
    assert books.marginal_kg == pytest.approx(3 * books.location_kg)


@pytest.mark.parametrize(("change", "line"), [({"kw": 1.0}, "matched_kwh"), ({"usd_per_mwh": 60.0}, "ppa_usd")])
def test_every_term_of_a_contract_changes_the_books(change, line):
    one, other = (settle(played(fleet=contracted(**each), plants=WIND)).books["a"] for each in ({}, change))
    assert getattr(one, line) != getattr(other, line)


def test_a_contract_moves_the_bound_by_its_cost():
    made = world(np.random.default_rng(21), jobs=3)
    said = made.fleet.model_dump(mode="json")
    said["sites"][0]["ppa"] = PPA
    plants = SolarByHour(share_SH=np.full((2, made.hours), 0.5))
    under = replace(made, fleet=Fleet.model_validate(said), plants=plants)
    plain, moved = (metered_bound(each, steps=2, iterations=40, rounds=0) for each in (made, under))
    price = made.signals.value_ZH["price_usd_per_mwh"][0, : made.hours]
    usd = float((120.0 - price).sum() * 2.0 * 0.5 / 1000)
    assert moved.upper_usd == pytest.approx(plain.upper_usd - usd, abs=1e-6)
    if not np.isnan(plain.lower_usd):
        assert moved.lower_usd == pytest.approx(plain.lower_usd - usd, abs=1e-6)


def test_a_file_says_what_the_plant_makes(tmp_path):
    content = load_scenario("tiny", ["start=2022-06-14", "window_h=6"]).model_dump(mode="json")
    site = content["fleet"]["sites"][0]
    site["meter"], content["fleet"]["tariffs"] = {"tariff": "t"}, {"t": {}}
    site["ppa"] = {"kw": 3, "profile": "wind.csv", "usd_per_mwh": 50}
    rows = [f"2022-06-{14 + h // 24}T{h % 24:02d}:00Z,{h % 4 / 4}" for h in range(96)]
    (tmp_path / "wind.csv").write_text("\n".join(["time,share", *rows]))
    made = build_environment(scenario_from(content, base=tmp_path))
    assert made.plants.share_SH[0, :5].tolist() == [0.0, 0.25, 0.5, 0.75, 0.0]
    assert not made.plants.share_SH[1].any()
    assert not isinstance(made.plants, PlantsByHour)
    site["ppa"]["kind"] = "physical"
    taken = build_environment(scenario_from(content, base=tmp_path))
    zone = taken.signals.window(taken.start, taken.hours).by_part("price_usd_per_mwh", site["zone"], 1)
    assert taken.plants.resale_usd_per_mwh_SH[0].tolist() == zone.tolist()
    assert np.isnan(taken.plants.resale_usd_per_mwh_SH[1]).all()
    (tmp_path / "wind.csv").write_text("\n".join(["time,share", *rows[:3]]))
    with pytest.raises(SignalRangeError, match="the yield of the ppa of site"):
        build_environment(scenario_from(content, base=tmp_path))


def test_a_contract_needs_a_meter_with_a_tariff():
    said = FLEET.model_dump(mode="json")
    said["sites"][0]["ppa"] = PPA
    with pytest.raises(ValidationError, match="no meter with a tariff to hold"):
        Fleet.model_validate(said)
