"""Devices in a run: what battery, sun and exports change of a ledger, by hand, and files of sun."""

from datetime import UTC, datetime

import numpy as np
import pytest
from pydantic import ValidationError

from ledger.test_tariffs import billed
from ledger.two_jobs import START, environment, played
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.data.solar import pvwatts_share, solar_hours
from noonward.engine.run import run
from noonward.errors import DataError, ScenarioError, SignalRangeError
from noonward.ledger.ledger import settle
from noonward.ledger.record import environment_digest
from noonward.model.cluster.devices import SolarFile
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.solar import SolarByHour
from noonward.schedule.policies import make_scheduler


def equipped(behind, tariff=None, **meter):
    """The fleet of the two jobs, with devices at site a."""
    said = billed(tariff or {}, **meter).model_dump(mode="json")
    said["sites"][0]["behind_meter"] = behind
    return Fleet.model_validate(said)


SUN = SolarByHour(share_SH=np.array([[0.5, 0.1, 0.0], [0.0, 0.0, 0.0]]))
SOLAR = {"kw": 4.0, "profile": "sun.csv"}


def test_a_battery_moves_energy_from_a_dear_hour():
    # a draws 0.3, 1.65, 1.65, 0.3 kW by half hours, at 100 and 200 USD/MWh; the battery stores 0.5 kWh of hour 0
    fleet = equipped({"battery": {"kw": 1.0, "kwh": 0.5, "round_trip": 1.0, "start": 0.0, "usd_per_mwh_through": 20}})
    lines, plain = settle(played(fleet=fleet)).meters["a"], settle(played(fleet=billed({}))).meters["a"]
    assert (lines.charged_kwh, lines.discharged_kwh) == pytest.approx((0.5, 0.5))
    assert lines.wear_usd == pytest.approx(0.01)
    assert lines.bill_usd == pytest.approx(plain.bill_usd - 0.5 * 0.100)
    assert lines.tariff_usd == pytest.approx(-0.04)
    assert lines.energy_kwh == pytest.approx(plain.energy_kwh)


def test_a_battery_saves_a_demand_charge_and_the_total_says_so():
    tariff = {"demand": [{"usd_per_kw_month": 744.0, "interval_min": 30}]}
    battery = {"battery": {"kw": 1.0, "kwh": 0.4, "round_trip": 1.0, "start": 1.0}}
    with_it, without = (settle(played(fleet=each)) for each in (equipped(battery, tariff), billed(tariff)))
    assert with_it.meters["a"].peak_kw == pytest.approx(1.65 - 0.4)  # 0.2 kWh in each of the two half hours
    saved_usd = 2 * 0.4  # 744 x 2 h of 744
    assert without.total_usd - with_it.total_usd == pytest.approx(saved_usd - 0.0 + 0.2 * 0.1 + 0.2 * 0.2 - 0.4 * 0.2)


def test_sun_serves_the_load_and_the_rest_is_curtailed_or_sold():
    # loads 0.975 kWh an hour: by half hours 0.3, 1.65 | 1.65, 0.3 kW; sun 2.0 and 0.4 kW
    alone = settle(played(fleet=equipped({"solar": SOLAR}), solar=SUN)).meters["a"]
    assert alone.solar_kwh == pytest.approx(0.975 + 0.2 + 0.15)
    assert alone.bill_usd == pytest.approx(0.625 * 0.200)
    sold = equipped({"solar": SOLAR, "export": {"allowed_kw": 1.0, "price": 30}})
    lines = settle(played(fleet=sold, solar=SUN)).meters["a"]
    assert lines.export_kwh == pytest.approx(0.5 * 1.0 + 0.5 * 0.35 + 0.5 * 0.1)
    assert lines.export_usd == pytest.approx(0.03 * 0.725)
    assert lines.tariff_usd == pytest.approx(0.125 - 0.03 * 0.725 - 0.975 * 0.3)


def test_energy_of_jobs_pro_rata_and_at_the_margin():
    lines = settle(played(fleet=equipped({"solar": SOLAR}), solar=SUN)).meters["a"]
    # the job draws 1.5 kW from 0:30 to 1:30; in its first half all is sun, in its second 1.25 of 1.65 kW are bought
    assert lines.job_pro_rata_usd == pytest.approx(1.5 * 0.5 * (1.25 / 1.65) * 0.200)
    assert lines.job_marginal_usd == pytest.approx(1.5 * 0.5 * 0.200)


def test_a_price_of_export_above_that_of_energy_is_refused():
    with pytest.raises(ScenarioError, match="buy and sell at once"):
        settle(played(fleet=equipped({"export": {"allowed_kw": 1.0, "price": 150}})))
    sold = equipped({"export": {"allowed_kw": 1.0, "price": "signal"}}, {"adder_usd_per_mwh": 1})
    assert settle(played(fleet=sold)).meters["a"].export_kwh == pytest.approx(0.0)


def test_devices_without_a_tariff_are_refused():
    said = billed({}).model_dump(mode="json")
    said["sites"][1]["behind_meter"] = {"battery": {"kw": 1, "kwh": 1}}
    with pytest.raises(ValidationError, match="no meter with a tariff"):
        Fleet.model_validate(said)


def test_the_sun_is_part_of_what_a_run_rests_on():
    assert environment_digest(environment(solar=SUN)) != environment_digest(environment())
    assert "behind_meter" not in billed({}).model_dump_json()


def test_a_file_of_shares_and_one_of_weather(tmp_path):
    path = tmp_path / "sun.csv"
    path.write_text("time,share\n2022-03-01T00:00Z,0.25\n2022-03-01T01:00Z,0.5\n")
    first, share_H = solar_hours(SolarFile(path=path))
    assert (first, share_H.tolist()) == (datetime(2022, 3, 1, tzinfo=UTC), [0.25, 0.5])
    path.write_text("time,irradiance_w_per_m2,dry_bulb_c\n2022-03-01 01:00,800,20\n2022-03-01 02:00,0,5\n")
    first, share_H = solar_hours(SolarFile(path=path, timezone="+01:00"))
    assert (first, share_H.tolist()) == (datetime(2022, 3, 1, tzinfo=UTC), [0.622748, 0.0])
    assert pvwatts_share(np.array([800.0]), np.array([20.0]))[0] == pytest.approx(
        0.8 * (1 - 0.0047 * 20) * 0.8592, abs=1e-6
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["time,share", "2022-03-01T00:30Z,0.2"], "full hour"),
        (["time,share", "2022-03-01T00:00Z,0.2", "2022-03-01T02:00Z,0.2"], "without a gap"),
        (["time,share", "2022-03-01T00:00Z,-0.2"], "not allowed"),
        (["time,yield", "2022-03-01T00:00Z,0.2"], "irradiance"),
    ],
)
def test_files_that_say_no_yield_are_refused(tmp_path, rows, words):
    path = tmp_path / "sun.csv"
    path.write_text("\n".join(rows))
    with pytest.raises(DataError, match=words):
        solar_hours(SolarFile(path=path))


def test_a_scenario_with_sun_and_battery_runs(tmp_path):
    content = load_scenario("tiny").model_dump(mode="json")
    day = START.replace(month=1, day=1)
    rows = [f"{day.replace(month=m, day=d, hour=h):%Y-%m-%dT%H:%MZ},{0.5 * (8 <= h <= 16)}" for m in range(1, 3)
            for d in range(1, 29) for h in range(24)]  # fmt: skip
    assert rows[27 * 24 + 23].startswith("2022-01-28T23")
    (tmp_path / "sun.csv").write_text("\n".join(["time,share", *rows[: 28 * 24]]))
    content["start"] = "2022-01-10"
    content["fleet"]["tariffs"] = {"t": {"demand": [{"usd_per_kw_month": 10, "interval_min": 30}]}}
    content["fleet"]["sites"][0] |= {
        "meter": {"interval_min": 30, "tariff": "t"},
        "behind_meter": {"solar": {"kw": 2, "profile": "sun.csv"}, "battery": {"kw": 0.5, "kwh": 2}},
    }
    scenario = scenario_from(content, base=tmp_path)
    ledger = settle(run(build_environment(scenario, 0, 0), make_scheduler("local-fcfs")))
    lines = ledger.meters["north"]
    assert lines.solar_kwh > 0
    assert ledger.utility_usd == pytest.approx(ledger.revenue_usd - ledger.total_usd)
    late = scenario.model_copy(update={"start": datetime(2022, 1, 28, tzinfo=UTC).date()})
    with pytest.raises(SignalRangeError, match="give a longer file"):
        build_environment(late, 0, 0)
