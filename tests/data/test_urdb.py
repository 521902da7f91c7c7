"""Rates of the Utility Rate Database as tariffs: by hand, as SAM reads and bills them, and what is refused."""

import contextlib
import io
import json
import re

import numpy as np
import pytest
import yaml

from command_line import CommandLine
from model.test_tariff import assert_billed_alike, metered
from noonward.data.urdb import read_urdb
from noonward.errors import DataError
from noonward.ledger.bill import bill_of
from noonward.model.cluster.tariff import Tariff


@pytest.fixture
def noonward(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


WEEKDAY = [[1 if 12 <= hour < 18 and 5 <= month <= 8 else 0 for hour in range(24)] for month in range(12)]
WEEKEND = [[0] * 24] * 12
RATE = {
    "label": "a1", "utility": "Valley Power", "name": "LGS-TOU", "sector": "Industrial", "dgrules": "Net Metering",
    "energyratestructure": [[{"rate": 0.04, "adj": 0.005, "unit": "kWh"}], [{"rate": 0.11, "unit": "kWh"}]],
    "energyweekdayschedule": WEEKDAY, "energyweekendschedule": WEEKEND,
    "demandratestructure": [[{"rate": 2.5, "unit": "kW"}], [{"rate": 14.0, "adj": 0.5}]], "demandrateunit": "kW",
    "demandweekdayschedule": WEEKDAY, "demandweekendschedule": WEEKEND,
    "flatdemandstructure": [[{"rate": 6.0}], [{"rate": 9.5, "max": 60}, {"rate": 11.0}]],
    "flatdemandmonths": [0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0], "flatdemandunit": "kW",
    "demandwindow": 60, "fixedchargefirstmeter": 150.0, "fixedchargeunits": "$/month",
}  # fmt: skip
"""A large customer's rate in the database's form; its figures are made up."""


def written(tmp_path, said):
    path = tmp_path / "rate.json"
    path.write_text(json.dumps(said))
    return path


def read(tmp_path, **changes):
    rate = {key: value for key, value in {**RATE, **changes}.items() if value is not None}
    return read_urdb(written(tmp_path, {"items": [rate]}))[1]


def test_a_rate_by_hand(tmp_path):
    name, tariff = read_urdb(written(tmp_path, RATE))
    assert (name, tariff.energy, tariff.usd_per_month) == ("Valley Power LGS-TOU", 45.0, 150.0)
    (fee,) = tariff.fees
    assert (fee.usd_per_mwh, fee.months, fee.hours, fee.days) == (65.0, (6, 7, 8, 9), tuple(range(12, 18)), "weekdays")
    winter, summer, above, *by_period = tariff.demand
    assert (winter.usd_per_kw_month, winter.months) == (6.0, (1, 2, 3, 4, 5, 10, 11, 12))
    assert (summer.usd_per_kw_month, summer.above_kw, above.usd_per_kw_month, above.above_kw) == (9.5, 0, 1.5, 60.0)
    assert {each.interval_min for each in tariff.demand} == {60}
    off_peak = next(each for each in by_period if each.weekend_hours is not None)
    assert (off_peak.months, len(off_peak.hours), len(off_peak.weekend_hours)) == ((6, 7, 8, 9), 18, 24)


def test_a_bill_of_a_month_to_the_cent(tmp_path):
    """June 2022: 22 weekdays of 6 peak hours; 100 kW, and 180 kW for one hour of a weekday's peak."""
    kw_N = np.full(720, 100.0)
    kw_N[13] = 180.0  # Wednesday, 1 June, 13:00
    bill = bill_of(metered(read(tmp_path)), kw_N)
    assert bill.energy_usd == pytest.approx((72_000 + 80) * 0.045 + (22 * 6 * 100 + 80) * 0.065)
    assert bill.demand_usd == pytest.approx(9.5 * 180 + 1.5 * 120 + 14.5 * 180 + 2.5 * 100)
    assert bill.fixed_usd == pytest.approx(150.0)


def test_sam_reads_the_same_rate_and_bills_the_same(tmp_path):
    """NREL's System Advisor Model with its own reader of URDB rates, on random loads; hourly, as its year is."""
    tools = pytest.importorskip("PySAM.UtilityRateTools", reason="NREL-PySAM is missing: extra oracles")
    rng = np.random.default_rng(5)
    for fuel in (None, rng.uniform(0, 0.02, 12).round(4).tolist()):
        tariff = read(tmp_path, fueladjustmentsmonthly=fuel)
        kw_N = rng.gamma(2.0, 40.0, 8760)
        with contextlib.redirect_stdout(io.StringIO()):
            rates = tools.URDBv8_to_ElectricityRates(json.loads(json.dumps(RATE)))
        rates = {key: value for key, value in rates.items() if key.startswith("ur_") and "metering" not in key}
        rates.pop("ur_enable_billing_demand", None)
        if fuel is None:
            assert_billed_alike(tariff, kw_N, rates)
            continue
        # SAM's reader leaves fuel adjustments out: they come on top.
        plain, more = (bill_of(metered(each, hours=8760), kw_N) for each in (read(tmp_path), tariff))
        assert more.energy_usd > plain.energy_usd
        assert more.demand_usd == plain.demand_usd


def test_tiers_of_energy_are_blocks_and_months_have_fuel_adjustments(tmp_path):
    tiers = [[{"max": 1000, "rate": 0.05, "unit": "kWh"}, {"rate": 0.08, "unit": "kWh"}]]
    plain = {"energyweekdayschedule": None, "energyweekendschedule": None, "demandratestructure": None}
    fuel = [0.0] * 5 + [0.01] + [0.0] * 6
    tariff = read(tmp_path, energyratestructure=tiers, fueladjustmentsmonthly=fuel, **plain)
    assert [block.usd_per_mwh for block in tariff.blocks] == [50.0, 80.0]
    assert bill_of(metered(tariff), np.full(720, 2.0)).energy_usd == pytest.approx(50 + 440 * 0.08 + 14.4)


def test_ratchets_of_either_form(tmp_path):
    flat = {"flatdemandstructure": [[{"rate": 6.0}]], "flatdemandmonths": [0] * 12, "demandratestructure": None}
    assert read(tmp_path, **flat, demandratchetpercentage=[0.8] * 12).demand[0].ratchet == 0.8
    assert read(tmp_path, **flat, lookbackPercent=0.5, lookbackRange=11).demand[0].ratchet == 0.5
    assert read(tmp_path, **flat).demand[0].ratchet == 0.0
    year = {"fixedchargefirstmeter": 1200, "fixedchargeunits": "$/year"}
    assert read(tmp_path, **year).usd_per_month == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"energyratestructure": None}, "no energyratestructure"),
        ({"energyweekdayschedule": [[0] * 24] * 11}, "24 hours of 12 months"),
        ({"energyweekdayschedule": [[7] * 24] * 12}, "no period below 2"),
        ({"energyweekdayschedule": None}, "'energyweekdayschedule' is missing"),
        ({"energyratestructure": [[{"rate": 1, "max": 9}, {"rate": 2}], [{"rate": 3}]]}, "tiers and several periods"),
        ({"energyratestructure": [[{"rate": 1, "unit": "kWh daily"}], [{"rate": 3}]]}, "unit 'kWh daily' is not 'kwh'"),
        ({"flatdemandstructure": [[{"rate": 9, "max": 100}, {"rate": 7}]], "flatdemandmonths": [0] * 12},
         "add 200 USD to the fixed charge"),
        ({"demandratestructure": [[{"rate": 1, "unit": "kVA"}], [{"rate": 1}]]}, "unit 'kVA'"),
        ({"demandwindow": 7}, "demandwindow 7 min"),
        ({"demandratchetpercentage": [0.5] * 11 + [0]}, "differs by month"),
        ({"demandratchetpercentage": [0.5] * 12}, "prices of demand that differ by month"),
        ({"lookbackpercent": 0.5, "lookbackmonths": [1] * 3 + [0] * 9}, "some months only"),
        ({"coincidentratestructure": [[{"rate": 3}]]}, "law of their peaks"),
        ({"mincharge": 5}, "mincharge of 5"),
        ({"fixedchargeunits": "$/hour"}, "'\\$/hour' is none of"),
        ({"energyratestructure": 3}, "fields of OpenEI"),
        ({"flatdemandmonths": [9] * 12}, "no period of each of 12 months"),
    ],
)  # fmt: skip
def test_what_no_tariff_states_is_refused(tmp_path, changes, words):
    with pytest.raises(DataError, match=words):
        read(tmp_path, **changes)


def test_files_without_the_rate_are_refused(tmp_path):
    other = {**RATE, "label": "b2"}
    path = written(tmp_path, [RATE, other])
    assert read_urdb(path, "b2")[0] == "Valley Power LGS-TOU"
    for label, words in ((None, "2 rates; choose one"), ("b3", "b2")):
        with pytest.raises(DataError, match=words):
            read_urdb(path, label)
    for said in ([], {"items": []}, [3], "x"):
        with pytest.raises(DataError, match="holds no rate"):
            read_urdb(written(tmp_path, said))


def test_the_command_prints_what_a_scenario_takes(tmp_path, noonward):
    done = noonward("data", "tariff", written(tmp_path, RATE), "--name", "lgs")
    assert done.out.startswith("# Valley Power LGS-TOU\n")
    said = yaml.safe_load(done.out)["tariffs"]["lgs"]
    assert Tariff.model_validate(said) == read(tmp_path)
    assert not re.search(r"null|!!", done.out)
