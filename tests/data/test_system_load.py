"""Loads of whole systems: files with gaps, clocks and ends of intervals; the peaks that coincident charges go by."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.data.system_load import system_load, system_peaks
from noonward.errors import DataError
from noonward.model.cluster.meter import SystemLoadFile
from noonward.model.cluster.tariff import Coincident

AEMO = Path(__file__).parents[3] / "shared" / "data" / "flexible" / "aemo_5min_2022h1.parquet"


def written(path, rows, header="time,load_mw"):
    """A file of loads."""
    path.write_text("\n".join([header, *rows]))
    return SystemLoadFile(path=path)


def test_a_file_by_the_half_hour_with_a_gap(tmp_path):
    file = written(tmp_path / "load.csv", ["2022-06-01T01:00Z,3", "2022-06-01T00:00Z,1", "2022-06-01T02:30Z,7"])
    with pytest.raises(DataError, match="grid of 60 min"):
        system_load(file)
    file = written(tmp_path / "load.csv", ["2022-06-01T01:30Z,3", "2022-06-01T00:00Z,1", "2022-06-01T00:30Z,7"])
    start, step_s, mw_X = system_load(file)
    assert (start, step_s) == (datetime(2022, 6, 1, tzinfo=UTC), 1800.0)
    assert np.array_equal(mw_X, [1, 7, np.nan, 3], equal_nan=True)


def test_ends_of_intervals_and_a_clock(tmp_path):
    rows = ["2022-06-01 10:30,1", "2022-06-01 11:00,2"]
    file = written(tmp_path / "load.csv", rows).model_copy(update={"timezone": "+10:00", "times": "end"})
    assert system_load(file)[0] == datetime(2022, 6, 1, 0, 0, tzinfo=UTC)
    with pytest.raises(DataError, match="no time zone"):
        system_load(file.model_copy(update={"timezone": None}))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["2022-06-01T00:00Z,1"], "at least two"),
        (["2022-06-01T00:00Z,1", "2022-06-01T00:00Z,2"], "give each time once"),
        (["2022-06-01T00:00Z,1", "2022-06-01T00:30Z,x"], "load in MW"),
        (["2022-06-01T00:00Z,1", "2022-06-01T00:07Z,2"], "no part of an hour"),
    ],
)
def test_files_that_say_no_load_are_refused(tmp_path, rows, words):
    with pytest.raises(DataError, match=words):
        system_load(written(tmp_path / "load.csv", rows))


def hours(mw_by_hour):
    """Rows of 10 June 2022, UTC."""
    return [f"2022-06-{10 + h // 24:02d}T{h % 24:02d}:00Z,{mw}" for h, mw in enumerate(mw_by_hour)]


def test_one_peak_a_day_and_ties_go_to_the_first(tmp_path):
    mw = np.full(72, 10.0)
    mw[[5, 6, 30, 60]] = (50, 60, 40, 40)
    file = written(tmp_path / "load.csv", hours(mw))

    def of(**law):
        return [(t.day, t.hour) for t in system_peaks(file, Coincident(usd_per_kw_year=1, **law), "UTC")]

    assert of(peaks=2) == [(10, 6), (11, 6)]
    assert of(peaks=2, one_per_day=False) == [(10, 5), (10, 6)]
    assert of(peaks=1, per="month") == [(10, 6)]
    assert of(peaks=1, months=(7,)) == []
    assert of(peaks=1, interval_min=60) == [(10, 6)]


def test_days_are_those_of_the_zone(tmp_path):
    mw = np.full(48, 10.0)
    mw[[22, 23, 26]] = (
        50,
        60,
        55,
    )  # New York: 18:00 and 19:00 of the 10th, 22:00 of the 10th; 0:00 UTC lies on the 9th
    file = written(tmp_path / "load.csv", hours(mw))
    charge = Coincident(usd_per_kw_year=1, peaks=2)
    assert [t.hour for t in system_peaks(file, charge, "America/New_York")] == [0, 23]
    assert [t.hour for t in system_peaks(file, charge, "UTC")] == [23, 2]


def test_a_finer_file_is_averaged(tmp_path):
    rows = [f"2022-06-10T{h:02d}:{m:02d}Z,{mw}" for h, m, mw in [(0, 0, 9), (0, 30, 1), (1, 0, 6), (1, 30, 6)]]
    file = written(tmp_path / "load.csv", rows)
    assert system_peaks(file, Coincident(usd_per_kw_year=1, peaks=1), "UTC")[0].hour == 1
    assert system_peaks(file, Coincident(usd_per_kw_year=1, peaks=1, interval_min=30), "UTC")[0].hour == 0
    with pytest.raises(DataError, match="does not divide"):
        system_peaks(file, Coincident(usd_per_kw_year=1, peaks=1, interval_min=15), "UTC")


def test_a_scenario_finds_the_peaks_of_its_file(tmp_path):
    written(tmp_path / "load.csv", hours(np.arange(48.0)))
    content = load_scenario("tiny").model_dump(mode="json")
    content["fleet"]["tariffs"] = {"t": {"coincident": [{"usd_per_kw_year": 100, "peaks": 1}]}}
    content["fleet"]["sites"][0]["meter"] = {"tariff": "t", "system_load": "load.csv"}
    site = scenario_from(content, base=tmp_path).fleet.sites[0]
    assert site.timezone == "America/Toronto"
    assert site.meter.system_peaks == ((datetime(2022, 6, 11, 23, tzinfo=UTC),),)


@pytest.mark.skipif(not AEMO.is_file(), reason="the data beside the repository are not there")
@pytest.mark.parametrize("region", ["NSW1", "QLD1", "SA1", "TAS1", "VIC1"])
def test_coincident_peaks_of_australia_in_the_first_half_of_2022(region):
    columns = {"time": "interval_end_nem_time", "load": "demand_mw", "zone": "region"}
    file = SystemLoadFile(path=AEMO, columns=columns, zone=region, timezone="+10:00", times="end")
    # Market time is UTC+10 all year round, as the clock of Brisbane is
    charge = Coincident(usd_per_kw_year=100, peaks=1, per="month", interval_min=30)
    found = system_peaks(file, charge, "Australia/Brisbane")
    table = pl.read_parquet(AEMO).filter(pl.col("region") == region)
    by_half_hour = (
        table.with_columns(start=pl.col("interval_end_nem_time") - pl.duration(minutes=5))
        .with_columns(half=pl.col("start").dt.truncate("30m"))
        .group_by("half")
        .agg(pl.col("demand_mw").mean(), pl.len())
        .filter(pl.col("len") == 6)
        .with_columns(month=pl.col("half").dt.month())
        .sort("demand_mw", descending=True)
        .group_by("month", maintain_order=True)
        .first()
        .filter(pl.col("half").dt.year() == 2022)
        .sort("half")
    )
    expected = by_half_hour["half"].dt.offset_by("-10h").to_list()
    assert len(expected) >= 6
    assert [t.replace(tzinfo=None) for t in found] == expected
