import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from noonward.data.signals.load import load_signals
from noonward.errors import DataError, SignalRangeError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
HEAD = "timestamp,zone,carbon_intensity_g_per_kwh,price_usd_per_mwh\n"
MAPS_HEAD = (
    "Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),"
    "Carbon intensity gCO₂eq/kWh (Life cycle),Data source,Data estimated\n"
)
START = datetime(2022, 1, 1, tzinfo=UTC)
needs_traces = pytest.mark.skipif(
    not (SHARED / "signals.parquet").exists(), reason="the real traces are not beside this checkout"
)


@pytest.fixture
def write(tmp_path):
    def write(text, name="signals.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def stamps(count, dtype=None):
    hours = pl.datetime_range(datetime(2022, 1, 1), datetime(2022, 12, 31), "1h", eager=True).head(count)
    return hours.dt.replace_time_zone("UTC") if dtype is None else hours.cast(dtype)


def parquet(tmp_path, name="signals.parquet", **columns):
    path = tmp_path / name
    pl.DataFrame(columns).write_parquet(path)
    return path


def test_tidy_csv_gives_values_by_zone_and_hour(write):
    path = write(
        HEAD + "2022-01-01T00:00Z,PL,800,100\n2022-01-01 01:00:00+00:00,PL,810.5,-3.5\n"
        "2022-01-01T00:00:00.000Z,SG,490,1e2\n2022-01-01T01:00:00Z,SG, 491 ,120\n"
    )
    signals = load_signals([path])
    assert signals.start == START
    assert signals.zones == ("PL", "SG")
    np.testing.assert_array_equal(signals.carbon_g_per_kwh_ZH, [[800, 810.5], [490, 491]])
    np.testing.assert_array_equal(signals.price_usd_per_mwh_ZH, [[100, -3.5], [100, 120]])
    assert signals.notes == ()


def test_zones_come_in_the_order_asked_and_others_are_not_checked(write):
    path = write(HEAD + "2022-01-01T00:00Z,PL,800,100\n2022-01-01T00:00Z,SG,490,90\nyesterday,XX,-1,much\n")
    signals = load_signals([path], zones=("SG", "PL"))
    np.testing.assert_array_equal(signals.price_usd_per_mwh_ZH, [[90], [100]])


def test_missing_hours_and_values_are_unknown_until_a_run_needs_them(write):
    path = write(HEAD + "2022-01-01T00:00Z,PL,800,\n2022-01-01T02:00Z,PL,NaN,7\n")
    signals = load_signals([path])
    np.testing.assert_array_equal(signals.carbon_g_per_kwh_ZH, [[800, math.nan, math.nan]])
    np.testing.assert_array_equal(signals.price_usd_per_mwh_ZH, [[math.nan, math.nan, 7]])
    with pytest.raises(SignalRangeError, match="unknown"):
        signals.require_known("this run")


def test_a_file_may_lack_carbon_or_price(write):
    carbon = write("timestamp,zone,carbon_intensity_g_per_kwh\n2022-01-01T00:00Z,PL,800\n", "carbon.csv")
    price = write("timestamp,zone,price_usd_per_mwh\n2022-01-01T01:00Z,PL,50\n", "price.csv")
    signals = load_signals([carbon, price])
    np.testing.assert_array_equal(signals.carbon_g_per_kwh_ZH, [[800, math.nan]])
    np.testing.assert_array_equal(signals.price_usd_per_mwh_ZH, [[math.nan, 50]])


def test_columns_may_have_other_names(write):
    path = write("t,area,co2,eur\n2022-01-01T00:00Z,PL,800,50\n")
    names = {"timestamp": "t", "zone": "area", "carbon": "co2", "price": "eur"}
    assert load_signals([path], columns=names).price_usd_per_mwh_ZH[0, 0] == 50
    other = write("t,area,eur\n2022-01-01T01:00Z,PL,60\n", "other.csv")
    assert load_signals([path, other], columns=names).price_usd_per_mwh_ZH[0, 1] == 60


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"prices": "eur"}, "'prices'; did you mean 'price'"),
        ({"price": "prise_usd_per_mwh"}, "in none of signals.csv; did you mean 'price_usd_per_mwh'"),
        ({"zone": "zones"}, "'zones' for zone is missing; .*did you mean 'zone'"),
    ],
)
def test_wrong_column_names_name_the_nearest(write, columns, message):
    with pytest.raises(DataError, match=message):
        load_signals([write(HEAD + "2022-01-01T00:00Z,PL,800,50\n")], columns=columns)


def test_a_price_column_by_another_name_is_not_passed_over(write):
    path = write("timestamp,zone,carbon_intensity_g_per_kwh,price_eur_per_mwh\n2022-01-01T00:00:00Z,PL,700,90\n")
    with pytest.raises(DataError, match="there is no column 'price_usd_per_mwh', but one named 'price_eur_per_mwh'"):
        load_signals([path])


def test_a_later_file_fills_only_unknown_values(write):
    first = write(HEAD + "2022-01-01T00:00Z,PL,800,\n2022-01-01T01:00Z,PL,,20\n", "first.csv")
    later = write(HEAD + "2022-01-01T00:00Z,PL,1,10\n2022-01-01T01:00Z,PL,810,1\n2022-01-01T02:00Z,PL,3,30\n", "b.csv")
    signals = load_signals([first, later])
    np.testing.assert_array_equal(signals.carbon_g_per_kwh_ZH, [[800, 810, 3]])
    np.testing.assert_array_equal(signals.price_usd_per_mwh_ZH, [[10, 20, 30]])


@pytest.mark.parametrize(
    ("row", "column", "message"),
    [
        ("2022-01-01T01:00,PL,1,1", "timestamp", "no time zone; write UTC times with a Z"),
        ("2022-01-01T01:00+01:00,PL,1,1", "timestamp", "non-UTC offset"),
        ("2022-01-01T01:30Z,PL,1,1", "timestamp", "off the full hour"),
        ("2022-01-01T01:00:00.5Z,PL,1,1", "timestamp", "off the full hour"),
        ("2022-02-30T01:00Z,PL,1,1", "timestamp", "not a valid date or time"),
        ("yesterday,PL,1,1", "timestamp", "not a time"),
        ("2022-01-01T01:00 CET,PL,1,1", "timestamp", "does not end in Z"),
        (",PL,1,1", "timestamp", "empty"),
        ("2022-01-01T01:00Z,,1,1", "zone", "empty"),
        ("2022-01-01T01:00Z,PL,-0.1,1", "carbon_intensity_g_per_kwh", "value '-0.1' is negative.*gCO2/kWh"),
        ("2022-01-01T01:00Z,PL,inf,1", "carbon_intensity_g_per_kwh", "infinite"),
        ("2022-01-01T01:00Z,PL,1,-inf", "price_usd_per_mwh", "infinite"),
        ("2022-01-01T01:00Z,PL,1,n/a", "price_usd_per_mwh", "value 'n/a' is not a number.*USD/MWh"),
        ('2022-01-01T01:00Z,PL,1,"1,5"', "price_usd_per_mwh", "not a number"),
    ],
)
def test_a_broken_row_is_named_by_file_line_and_column(write, row, column, message):
    path = write(HEAD + "2022-01-01T00:00Z,PL,1,1\n" + row + "\n")
    with pytest.raises(DataError, match=rf"signals.csv, line 3, column '{column}': .*{message}"):
        load_signals([path])


def test_an_hour_given_twice_is_refused(write):
    path = write(HEAD + "2022-01-01T00:00Z,PL,1,1\n2022-01-01T00:00Z,SG,1,1\n2022-01-01T00:00+00:00,PL,1,2\n")
    with pytest.raises(DataError, match=r"lines 2 and 4.*zone PL has the hour 2022-01-01T00:00Z twice"):
        load_signals([path])


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (pl.Datetime("ms"), r"row 1, column 'timestamp': .*no time zone; store the column with the time zone UTC"),
        (pl.Datetime("us", "Europe/Warsaw"), "non-UTC time zone Europe/Warsaw"),
        (pl.Int64, "of type Int64"),
    ],
)
def test_parquet_times_must_be_utc(tmp_path, dtype, message):
    path = parquet(tmp_path, timestamp=stamps(2, dtype), zone=["PL", "PL"], price_usd_per_mwh=[1.0, 2.0])
    with pytest.raises(DataError, match=message):
        load_signals([path])


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_parquet_with_utc_times_loads_in_any_unit(tmp_path, unit):
    path = parquet(
        tmp_path,
        timestamp=stamps(2).dt.cast_time_unit(unit),
        zone=pl.Series(["PL", "PL"], dtype=pl.Categorical),
        price_usd_per_mwh=pl.Series([1.5, None], dtype=pl.Float32),
        carbon_intensity_g_per_kwh=pl.Series([None, None], dtype=pl.Null),
    )
    signals = load_signals([path])
    assert signals.start == START
    np.testing.assert_array_equal(signals.price_usd_per_mwh_ZH, [[1.5, math.nan]])
    assert np.isnan(signals.carbon_g_per_kwh_ZH).all()


def test_parquet_rows_are_checked_like_csv_rows(tmp_path):
    path = parquet(tmp_path, timestamp=stamps(2), zone=["PL", "PL"], carbon_intensity_g_per_kwh=[1.0, -2.0])
    with pytest.raises(DataError, match=r"signals.parquet, row 2, column 'carbon_intensity_g_per_kwh': the value -2.0"):
        load_signals([path])


def test_unknown_zones_name_the_nearest(write):
    path = write(HEAD + "2022-01-01T00:00Z,AU-SA,1,1\n2022-01-01T00:00Z,PL,1,1\n")
    with pytest.raises(DataError, match=r"zone 'AU-SX' has no row in signals\.csv; did you mean 'AU-SA'"):
        load_signals([path], zones=("PL", "AU-SX"))


def test_only_stand_in_hours_that_were_used_are_counted(write):
    market = write(HEAD + "2022-01-01T00:00Z,PL,1,10\n2022-01-01T01:00Z,PL,1,\n2022-01-01T02:00Z,PL,1,\n", "market.csv")
    fill = write(
        "timestamp,zone,price_usd_per_mwh,is_real\n2022-01-01T00:00Z,PL,1,false\n"
        "2022-01-01T01:00Z,PL,2,False\n2022-01-01T02:00Z,PL,3,true\n",
        "fill.csv",
    )
    note = "PL price: 1 of 3 hours are synthetic, not market data (file fill.csv)"
    assert load_signals([market, fill]).notes == (note,)
    assert load_signals([market]).notes == ()


def test_flags_must_be_true_or_false(write):
    head = "timestamp,zone,price_usd_per_mwh,is_real\n2022-01-01T00:00Z,PL,1,"
    with pytest.raises(DataError, match=r"line 2, column 'is_real': .*neither true nor false"):
        load_signals([write(head + "perhaps\n")])
    with pytest.raises(DataError, match=r"line 2, column 'is_real': .*empty beside a price"):
        load_signals([write(head + "\n")])


def test_estimates_are_noted_beyond_a_fifth(tmp_path):
    def load(estimated):
        flags = pl.Series([True] * estimated + [False] * (9 - estimated) + [None])
        return load_signals(
            [
                parquet(
                    tmp_path,
                    timestamp=stamps(10),
                    zone=["PL"] * 10,
                    carbon_intensity_g_per_kwh=[1.0] * 10,
                    carbon_is_estimated=flags,
                )
            ]
        )

    assert load(2).notes == ()
    note = "PL carbon intensity: 30% of the hours are the publisher's estimates (file signals.parquet)"
    assert load(3).notes == (note,)


def test_electricity_maps_export_gives_life_cycle_carbon_and_no_price(write):
    rows = "2022-01-01 00:00:00,Poland,Poland,PL,700.5,800.5,x,false\n2022-01-01 01:00:00,Poland,Poland,PL,1,2,,true\n"
    path = write(MAPS_HEAD + rows)
    signals = load_signals([path], "electricity-maps")
    assert signals.start == START
    np.testing.assert_array_equal(signals.carbon_g_per_kwh_ZH, [[800.5, 2]])
    assert np.isnan(signals.price_usd_per_mwh_ZH).all()
    assert "50% of the hours are the publisher's estimates" in signals.notes[0]


def test_electricity_maps_names_of_older_exports(write):
    carbon = "Carbon Intensity gCO₂eq/kWh (direct),Carbon Intensity gCO₂eq/kWh (LCA)"
    head = f"Datetime (UTC),Country,Zone Name,Zone Id,{carbon}\n"
    first = write(head + "2022-01-01 00:00:00,Poland,Poland,PL,700,800\n", "PL_2022_hourly.csv")
    second = write(MAPS_HEAD + "2022-01-01 01:00:00,Poland,Poland,PL,700,810,x,false\n", "PL_2023_hourly.csv")
    np.testing.assert_array_equal(load_signals([first, second], "electricity-maps").carbon_g_per_kwh_ZH, [[800, 810]])


def test_a_byte_order_mark_and_windows_line_ends_are_understood(write):
    path = write("\ufeff" + (HEAD + "2022-01-01T00:00Z,PL,800,50\n").replace("\n", "\r\n"))
    assert load_signals([path]).price_usd_per_mwh_ZH[0, 0] == 50


def test_electricity_maps_refuses_direct_intensities_and_short_intervals(write):
    with pytest.raises(DataError, match=r"no column 'carbon intensity gco2eq/kwh \(life cycle\)'"):
        load_signals([write(MAPS_HEAD.replace("(Life cycle)", "(other)"))], "electricity-maps")
    path = write(MAPS_HEAD + "2022-01-01 00:05:00,Poland,Poland,PL,700,800,x,false\n")
    with pytest.raises(DataError, match=r"line 2, column 'Datetime \(UTC\)': .*off the full hour"):
        load_signals([path], "electricity-maps")


def test_wrong_arguments_are_refused(write, tmp_path):
    path = write(HEAD + "2022-01-01T00:00Z,PL,1,1\n")
    for arguments, message in (
        ({"paths": []}, "no signal file"),
        ({"paths": [tmp_path / "none.csv"]}, "does not exist"),
        ({"paths": [write("", "a.xlsx")]}, "'.xlsx'; it must be one of .csv, .parquet"),
        ({"paths": [write("", "empty.csv")]}, "empty.csv: its columns cannot be read"),
        ({"paths": [write(HEAD, "head.csv")]}, "head.csv: no row"),
        ({"paths": [write("a,b\n1,2\n", "other.csv")]}, "other.csv: the column 'timestamp'"),
        ({"paths": [write("timestamp,zone\n", "bare.csv")]}, "neither 'carbon_intensity_g_per_kwh'"),
        ({"paths": [write(HEAD + "2022-01-01T00:00Z,PL,1,1,9\n", "ragged.csv")]}, "ragged.csv: its rows cannot"),
        ({"paths": [write("no parquet", "a.parquet")]}, "a.parquet: its columns cannot be read"),
        ({"paths": [path], "format": "tidi"}, "did you mean 'tidy'"),
        ({"paths": [path], "format": "electricity-maps", "columns": {"zone": "z"}}, "tidy files only"),
        ({"paths": [path], "zones": ()}, "empty"),
        ({"paths": [path], "zones": ("PL", "PL")}, "stands twice"),
    ):
        with pytest.raises(DataError, match=message):
            load_signals(**arguments)


@needs_traces
def test_real_traces_load_with_their_stand_in_noted():
    files = [SHARED / "signals.parquet", SHARED / "standin_auwa_price_2022.parquet"]
    zones = ("AU-SA", "AU-WA", "CA-ON", "PL", "SG")
    signals = load_signals(files, zones=zones)
    assert signals.zones == zones
    assert signals.start == datetime(2021, 1, 1, tzinfo=UTC)
    assert signals.hours == 21864
    assert signals.notes == (
        "AU-WA price: 8209 of 8760 hours are synthetic, not market data (file standin_auwa_price_2022.parquet)",
    )
    year = signals.window(START, 24 * 30).require_known("a run in January 2022")
    assert np.isnan(load_signals(files[:1], zones=("AU-WA",)).price_usd_per_mwh_ZH).sum() == 21864 - 551
    assert year.carbon_g_per_kwh_ZH[3].mean() > 700
