"""Water of sites: from the weather, stated, in the ledger, and against the ranges of Lei and Masanet."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from data.test_cooling import FIRST, stamp
from noonward.data.cooling import SYSTEMS, wet_bulb_c
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.data.water import tower_l_per_kwh
from noonward.engine.run import run
from noonward.errors import DataError, ScenarioError, SignalRangeError
from noonward.ledger.ledger import Ledger, settle
from noonward.ledger.record import environment_digest
from noonward.model.signals import Signals
from noonward.schedule.policies import make_scheduler

SHARED = Path(__file__).parents[3] / "shared" / "data" / "flexible"
CLIMATES = {"AU-NSW": "3A", "CA-ON": "6A", "DE-LU": "5A", "SG": "1A", "US-TEX-ERCO": "2A", "US-CAL-CISO": "3B"}
"""Climate zones (ASHRAE 169) of the places whose weather is at hand."""
HOURS = 24 * 16


def weather(folder):
    """A file of a cold week and a warm one."""
    rows = [f"{stamp(hour)},{5.0 if hour < HOURS // 2 else 24.0}" for hour in range(HOURS)]
    (folder / "w.csv").write_text("\n".join(["time,wet_bulb_c", *rows]))
    return folder / "w.csv"


def scenario(water, *, pue=1.25, meter=None):
    """The scenario tiny in a fixed window, with water at its first site."""
    content = load_scenario("tiny", ["start=2022-03-01"]).model_dump(mode="json")
    content["fleet"]["sites"][0] |= {"meter": {} if meter is None else meter, "water": water, "pue": pue}
    return scenario_from(content)


def played(made):
    environment = build_environment(made)
    return settle(run(environment, make_scheduler("local-fcfs")))


def test_a_tower_by_hand():
    # 10 degrees: no chiller; h = 2500.5 - 23.097 - 0.13 kJ/kg; 20: all heat and a chiller of COP 7
    cold, warm = 3600 / (2500.5 - 23.097 - 0.13), 3600 * (1 + 1 / 7) / (2500.5 - 46.194 - 0.52)
    assert tower_l_per_kwh(np.array([10.0, 20.0]), 5.0) == pytest.approx([1.25 * cold, 1.25 * warm], abs=1e-4)
    assert tower_l_per_kwh(np.array([10.0]), 3.0) == pytest.approx(1.5 * cold, abs=1e-4)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the data beside the repository are not there")
@pytest.mark.parametrize(("zone", "climate"), CLIMATES.items())
def test_means_of_a_year_lie_in_the_ranges_of_lei_and_masanet(zone, climate):
    """Large sites with a tower and a water-side economizer: PUE and WUE between the 5th and the 95th percentile."""
    year = pl.read_parquet(SHARED / "weather_2022.parquet").filter(pl.col("zone") == zone)
    bulb_c_H = wet_bulb_c(*(year[name].cast(float).to_numpy() for name in ("temperature_c", "relative_humidity_pct")))
    published = pl.read_csv(SHARED / "pue_wue_by_climate_zone.csv", infer_schema_length=None).filter(
        (pl.col("Climate Zone") == climate) & (pl.col("Case").cast(int) == 2)
    )
    for name, mean in (
        ("WUE", tower_l_per_kwh(bulb_c_H, 5.0).mean()),
        ("PUE", SYSTEMS["water-economizer"].pue(bulb_c_H).mean()),
    ):
        low, high = sorted(published[name].cast(float).to_list())
        assert low <= mean <= high, (name, low, mean, high)


def test_water_in_the_ledger_by_hand():
    meter = {"base_kw": 0.5, "interval_min": 15}
    ledger = played(scenario({"l_per_kwh": 1.5, "grid_l_per_kwh": 2.0}, meter=meter))
    (name, water), lines = next(iter(ledger.water.items())), next(iter(ledger.meters.values()))
    assert water.grid_kwh == pytest.approx(lines.energy_kwh)
    assert water.it_kwh == pytest.approx((lines.energy_kwh - lines.base_kwh) / 1.25)
    assert water.onsite_l == pytest.approx(1.5 * water.it_kwh)
    assert water.offsite_l == pytest.approx(2.0 * lines.energy_kwh)
    assert water.wue_l_per_kwh == pytest.approx(1.5)
    assert list(ledger.water) == [name] == list(ledger.meters)
    assert Ledger.from_dict(ledger.as_dict()).as_dict() == ledger.as_dict()  # without a tariff some lines are NaN
    assert Ledger.mean([ledger, ledger]).water == ledger.water
    assert "water" not in played(load_scenario("tiny", ["start=2022-03-01"])).as_dict()


def test_water_follows_the_weather_and_system_of_the_pue(tmp_path):
    path, days = weather(tmp_path), {}
    for cooling in ("water-economizer", "chiller"):
        if cooling == "chiller":
            path.write_text(path.read_text().replace("wet_bulb_c", "dry_bulb_c"))
        made = scenario({}, pue={"path": str(path), "cooling": cooling})
        environment = build_environment(made)
        days[cooling] = environment.water.l_per_kwh_SH[0]
        (use,) = settle(run(environment, make_scheduler("local-fcfs"))).water.values()
        assert np.isnan(use.offsite_l)
        assert use.onsite_l == pytest.approx(use.wue_l_per_kwh * use.it_kwh)
    assert (days["chiller"] == 0).all()
    assert days["water-economizer"][0] == tower_l_per_kwh(np.array([5.0]), 5.0)[0]
    drier = scenario({"cycles": 3}, pue={"path": str(path), "cooling": "chiller"})
    assert environment_digest(build_environment(drier)) != environment_digest(environment)


def test_cycles_and_files_of_hours_change_the_water(tmp_path):
    pue = {"path": str(weather(tmp_path)), "cooling": "water-economizer"}
    five, three = (next(iter(played(scenario({"cycles": c}, pue=pue)).water.values())) for c in (5, 3))
    assert three.onsite_l == pytest.approx(five.onsite_l * 1.5 / 1.25, rel=1e-4)
    path = tmp_path / "water.csv"
    path.write_text("\n".join(["time,water_l_per_kwh", *(f"{stamp(h)},{0.5 + h // 120}" for h in range(HOURS))]))
    hours = build_environment(scenario({"l_per_kwh": str(path)})).water.l_per_kwh_SH[0]
    assert hours[0] == 0.5  # 1 March is hour 96 of the file
    assert hours[120 - 96] == 1.5
    local = [f"{FIRST + timedelta(hours=h + 1):%Y-%m-%d %H:%M},{0.5 + h // 120}" for h in range(HOURS)]
    path.write_text("\n".join(["time,water_l_per_kwh", *local]))
    told = {"l_per_kwh": {"path": str(path), "timezone": "+01:00"}}
    assert (build_environment(scenario(told)).water.l_per_kwh_SH[0] == hours).all()


def test_a_signal_of_the_grids_water_is_taken_by_the_hour():
    environment = build_environment(scenario({"l_per_kwh": 0}))
    signals = environment.signals
    assert isinstance(signals, Signals)
    rising = np.tile(np.arange(signals.hours, dtype=float), (len(signals.zones), 1))
    wet = replace(environment, signals=replace(signals, value_ZH={**signals.value_ZH, "water_l_per_kwh": rising}))
    (use,) = settle(run(wet, make_scheduler("local-fcfs"))).water.values()
    first = signals.hour_of(environment.start)
    assert first <= use.offsite_l / use.grid_kwh <= first + environment.hours


def test_what_cannot_be_reckoned_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match="has no l_per_kwh, and its pue is no file of weather"):
        build_environment(scenario({}))
    content = scenario({"l_per_kwh": 1}).model_dump(mode="json")
    del content["fleet"]["sites"][0]["meter"]
    with pytest.raises(ScenarioError, match="no meter to reckon it by"):
        scenario_from(content)
    path = tmp_path / "water.csv"
    path.write_text("time,water_l_per_kwh\n2022-03-01T00:00Z,-1\n")
    with pytest.raises(DataError, match="'-1' is not allowed"):
        build_environment(scenario({"l_per_kwh": str(path)}))
    path.write_text("time,water_l_per_kwh\n2022-03-01T00:00Z,1\n")
    with pytest.raises(SignalRangeError, match="water of site 'north' is needed"):
        build_environment(scenario({"l_per_kwh": str(path)}))
