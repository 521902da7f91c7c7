"""Publishers' signal files, made small with their warts: hours, units, clocks and the account of what was done."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from noonward.data.clock import Clock
from noonward.data.signals.formats import FORMATS, ImportedSignals, format_of, import_signals
from noonward.data.signals.load import load_signals
from noonward.data.signals.readings import ImportOptions
from noonward.data.text_table import read_text_file
from noonward.errors import DataError
from noonward.model.cluster.scenario import SignalFile

EURO = {"EUR": ((date.min, 2.0),)}
Read = Callable[..., ImportedSignals]
MAPS_HEAD = (
    "Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),"
    "Carbon Intensity gCO₂eq/kWh (LCA),Data Source,Data Estimated\r\n"
)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Writes a file and reads it; options by name."""

    def read(text: str | bytes, name: str = "file.csv", **options: Any) -> ImportedSignals:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return import_signals(path, ImportOptions(**options))

    return read


def prices(found: ImportedSignals) -> dict[str, float]:
    """Returns the prices by UTC hour."""
    return {f"{time:%m-%dT%H}": price for time, price in found.hours.select("timestamp", "price").iter_rows()}


def account(found: ImportedSignals) -> str:
    """Returns the account as one text."""
    return "\n".join(found.account.lines())


def old_entsoe(*rows: tuple[str, str]) -> str:
    lines = [f'"{start} - later","{price}","{"EUR" if price else ""}"' for start, price in rows]
    return "\n".join(['"MTU (CET/CEST)","Day-ahead Price [EUR/MWh]","Currency","BZN|DE-LU"', *lines]) + "\n"


def new_entsoe(*rows: tuple[str, str, str], area: str = "BZN|SE3") -> str:
    head = '"MTU (CET/CEST)","Area","Sequence","Day-ahead Price (EUR/MWh)","Intraday Period (CET/CEST)","x"'
    return "\n".join([head, *(f'"{mtu}","{area}","{seq}","{price}","",""' for mtu, seq, price in rows)]) + "\n"


def test_electricity_maps_gives_life_cycle_carbon(read: Read) -> None:
    first = "2022-01-01 00:00:00,Germany,Germany,DE,1,213.79,a;  b,false"
    rows = first + "\r\n2022-01-01 01:00:00,Germany,Germany,DE,1,,a,true"
    found = read(MAPS_HEAD + rows)
    assert found.hours.select("zone", "carbon", "estimated").rows() == [("DE", 213.79, False)]
    assert found.account.rows_in == 2
    assert "1: rows without a value: unknown (first in line 3)" in account(found)


def test_years_of_two_digits_are_of_this_century_and_said_so(read: Read) -> None:
    head = "Time Stamp,Name,PTID,LBMP ($/MWHr)\n"
    found = read(head + "6/1/24 0:00,N.Y.C.,61761,22.21\n6/1/24 1:00,N.Y.C.,61761,20.66\n")
    assert found.hours.select("timestamp", "price").rows() == [
        (datetime(2024, 6, 1, 4, tzinfo=UTC), 22.21), (datetime(2024, 6, 1, 5, tzinfo=UTC), 20.66),
    ]  # fmt: skip
    assert "read 2: years of two digits are of this century (24 is 2024) (first in line 2)" in account(found)


@pytest.mark.parametrize("stamp", ["6-1-24 0:00", "24-06-01 0:00", "6/1/124 0:00", "6/1/4 0:00"])
def test_other_short_years_are_refused(read: Read, stamp: str) -> None:
    with pytest.raises(DataError, match=r"line 2, column 'Time Stamp': .* is not a valid date or time"):
        read(f"Time Stamp,Name,PTID,LBMP ($/MWHr)\n{stamp},N.Y.C.,61761,22.21\n")


def test_times_before_2000_are_refused_with_their_line(read: Read, tmp_path: Path) -> None:
    row = "1994-06-01T00:00Z,DE,50\n"
    with pytest.raises(DataError, match="line 2, column 'timestamp': the value '1994-06-01T00:00Z' lies before 2000"):
        read("timestamp,zone,price_usd_per_mwh\n" + row)
    path = tmp_path / "tidy.csv"
    path.write_text("timestamp,zone,price_usd_per_mwh\n" + row)
    with pytest.raises(DataError, match="line 2, column 'timestamp': the value '1994-06-01T00:00Z' lies before 2000"):
        load_signals([path])


NYISO_HEAD = (
    "Eastern Date Hour,Eastern Date Hour Time Zone,Zone Name,Zone PTID,DAM Zonal LBMP,DAM Zonal Losses,"
    "DAM Zonal Congestion,DAM Zonal Price Version\n"
)


def test_exports_of_nyiso_oasis_mark_the_repeated_hour_and_have_versions(read: Read) -> None:
    rows = [("11/3/24 0:00", "EDT", 20, 1), ("11/3/24 1:00", "EST", 30, 1), ("11/3/24 1:00", "EDT", 25, 1),
            ("11/3/24 2:00", "EST", 99, 1), ("11/3/24 2:00", "EST", 40, 2)]  # fmt: skip
    text = NYISO_HEAD + "".join(f"{time},{mark},N.Y.C.,61761,{price},1,0,{v}\n" for time, mark, price, v in rows)
    found = read(text)
    assert prices(found) == {"11-03T04": 20.0, "11-03T05": 25.0, "11-03T06": 30.0, "11-03T07": 40.0}
    assert found.hours["zone"].unique().to_list() == ["US-NY-NYIS"]
    assert "dropped 1: prices that a later version replaced" in account(found)


def iso_ne(*rows: tuple[str, str, float]) -> str:
    head = '"C","Day-Ahead Energy Market Hourly LMP Report"\n"C","Report for: 11/02/2025 - 11/02/2025"\n'
    places = ["Location ID", "Location Name", "Location Type"]
    names = ["Date", "Hour Ending", *places, "Locational Marginal Price", "Energy Component"]
    lines = [["H", *names], ["H", "Date", "HE", *["String"] * 3, *["Number"] * 2]]
    lines += [["D", day, hour, "4000", ".H.INTERNAL_HUB", "HUB", str(price), "1"] for day, hour, price in rows]
    return head + "".join(",".join(f'"{field}"' for field in line) + "\n" for line in [*lines, ["T", str(len(rows))]])


def test_iso_new_england_names_hours_by_their_end_and_marks_the_repeated_one(read: Read) -> None:
    day = "11/02/2025"
    found = read(iso_ne((day, "01", 10), (day, "02", 20), (day, "02X", 30), (day, "03", 40), (day, "24", 50)))
    assert prices(found) == {"11-02T04": 10, "11-02T05": 20, "11-02T06": 30, "11-02T07": 40, "11-03T04": 50}
    assert found.hours["zone"].unique().to_list() == ["US-NE-ISNE"]
    assert found.account.rows_in == 5
    with pytest.raises(DataError, match=r"column 'Hour Ending': the value '25' is no hour ending"):
        read(iso_ne((day, "25", 10)))


def test_electricity_maps_saved_in_another_encoding_is_recognised(read: Read) -> None:
    broken = MAPS_HEAD.replace("₂", "â‚‚").encode("cp1252")
    assert read(broken + b"2022-01-01 00:00:00,G,G,DE,1,5,a,false\n").hours["carbon"].to_list() == [5.0]


def test_entsoe_of_the_old_platform_repeats_an_hour_in_autumn_and_keeps_an_empty_one_in_spring(read: Read) -> None:
    autumn = read(
        old_entsoe(
            ("29.10.2023 01:00", "1"), ("29.10.2023 02:00", "2"), ("29.10.2023 02:00", "3"), ("29.10.2023 03:00", "4")
        ),
        rates=EURO,
    )
    assert prices(autumn) == {"10-28T23": 2.0, "10-29T00": 4.0, "10-29T01": 6.0, "10-29T02": 8.0}
    assert autumn.hours["zone"].unique().to_list() == ["DE"]
    assert "changed 2: times of the hour that the clock repeats in autumn" in account(autumn)
    spring = read(
        old_entsoe(("26.03.2023 01:00", "1"), ("26.03.2023 02:00", ""), ("26.03.2023 03:00", "3")), rates=EURO
    )
    assert prices(spring) == {"03-26T00": 2.0, "03-26T01": 6.0}


def test_a_price_in_the_hour_that_the_clock_skips_is_refused(read: Read) -> None:
    with pytest.raises(DataError, match=r"line 3, column 'MTU \(CET/CEST\)'.* skips that hour in spring.*--timezone"):
        read(old_entsoe(("26.03.2023 01:00", "1"), ("26.03.2023 02:00", "2"), ("26.03.2023 03:00", "3")), rates=EURO)


def test_entsoe_of_the_new_platform_marks_the_change_and_has_two_auctions(read: Read) -> None:
    quarters = [
        (f"26/10/2025 02:{m:02d}:00 ({mark}) - later", "Sequence 1", str(price))
        for mark, price in (("CEST", 10), ("CET", 20))
        for m in (0, 15, 30, 45)
    ]
    second = [(mtu, "Sequence 2", "999") for mtu, _, _ in quarters]
    found = read(new_entsoe(*second, *quarters), rates=EURO)
    assert prices(found) == {"10-26T00": 20.0, "10-26T01": 40.0}
    assert found.hours["zone"].to_list() == ["SE-SE3"] * 2
    assert "dropped 8: prices of a second auction" in account(found)
    assert "averaged to hours" in account(found)


def test_an_entsoe_file_may_change_its_resolution_within(read: Read) -> None:
    hours = [(f"30/09/2025 {h:02d}:00:00 - later", "Without sequence", "4") for h in (21, 22, 23)]
    quarters = [(f"01/10/2025 00:{m:02d}:00 - later", "Without Sequence", str(m)) for m in (0, 15, 30, 45)]
    assert prices(read(new_entsoe(*hours, *quarters), rates=EURO)) == {
        "09-30T19": 8.0, "09-30T20": 8.0, "09-30T21": 8.0, "09-30T22": 45.0,
    }  # fmt: skip


def test_the_file_library_of_entsoe_takes_the_finest_series_of_the_coupled_auction(read: Read) -> None:
    names = "DateTime(UTC) ResolutionCode AreaTypeCode MapCode ContractType Sequence Price[Currency/MWh] Currency"
    head = names.replace(" ", "\t")
    rows = [f"2025-10-01 00:{m:02d}:00\tPT15M\tBZN\tDE_LU\tDay-ahead\t1\t{m}\tEUR" for m in (0, 15, 30, 45)]
    rows += ["2025-10-01 00:00:00\tPT60M\tBZN\tDE_LU\tDay-ahead\t1\t7\tEUR"]
    rows += ["2025-10-01 00:00:00\tPT15M\tBZN\tDE_LU\tIntraday\t1\t8\tEUR"]
    rows += ["2025-10-01 00:00:00\tPT60M\tBZN\tGB\tDay-ahead\t\t9\tGBP"]
    found = read("\ufeff" + "\n".join([head, *rows]) + "\n", rates={**EURO, "GBP": ((date.min, 3.0),)})
    assert dict(found.hours.select("zone", "price").iter_rows()) == {"DE": 45.0, "GB": 27.0}


def a44(points: str, curve: str = "A03", sequence: str = "1") -> str:
    return (
        '<?xml version="1.0"?><Publication_MarketDocument xmlns="urn:x:451-3:publicationdocument:7:3">'
        f"<TimeSeries><out_Domain.mRID>10YPL-AREA-----S</out_Domain.mRID><currency_Unit.name>EUR</currency_Unit.name>"
        f"<price_Measure_Unit.name>MWH</price_Measure_Unit.name><curveType>{curve}</curveType>"
        "<classificationSequence_AttributeInstanceComponent.position>"
        f"{sequence}</classificationSequence_AttributeInstanceComponent.position><Period><timeInterval>"
        "<start>2024-03-30T23:00Z</start><end>2024-03-31T03:00Z</end></timeInterval><resolution>PT60M</resolution>"
        f"{points}</Period></TimeSeries></Publication_MarketDocument>"
    )


POINTS = "".join(
    f"<Point><position>{n}</position><price.amount>{price}</price.amount></Point>" for n, price in ((1, 10), (3, 30))
)


def test_an_xml_curve_a03_repeats_what_it_leaves_out_also_at_the_end(read: Read) -> None:
    found = read(a44(POINTS), "a.xml", rates=EURO)
    assert prices(found) == {"03-30T23": 20.0, "03-31T00": 20.0, "03-31T01": 60.0, "03-31T02": 60.0}
    assert "filled 2: positions that an A03 curve leaves out" in account(found)
    assert prices(read(a44(POINTS, curve="A01"), "a.xml", rates=EURO)) == {"03-30T23": 20.0, "03-31T01": 60.0}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<Acknowledgement_MarketDocument><Reason/></Acknowledgement_MarketDocument>", "has no data for the request"),
        (a44(POINTS)[:-20], "not valid XML"),
        (a44(POINTS, sequence="2"), "no price of the coupled auction"),
        (a44(POINTS).replace("PT60M", "P1D"), "resolution 'P1D'"),
        (a44(POINTS).replace("<position>3", "<position>9"), "position 9"),
        (a44(POINTS).replace('?>', '?><!DOCTYPE a [<!ENTITY b "c">]>', 1), "defines a document type"),
    ],
)  # fmt: skip
def test_an_xml_document_that_is_of_no_use_is_refused(read: Read, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read(text, "a.xml", rates=EURO, format="entsoe-xml")


def test_aemo_states_ends_of_intervals_on_a_clock_without_summer_time(read: Read) -> None:
    rows = [
        f"NSW1,2026/01/01 {h:02d}:{m:02d}:00,1,{h},TRADE" for h in (0, 1) for m in range(0, 60, 5) if (h, m) != (0, 0)
    ]
    text = "REGION,SETTLEMENTDATE,TOTALDEMAND,RRP,PERIODTYPE\n" + "\n".join(
        [*rows, "NSW1,2026/01/01 02:00:00,1,1,TRADE"]
    )
    found = read(text, rates={"AUD": ((date.min, 0.5),)})
    # The interval that ends at 01:00 belongs to the first hour: (11 x 0 + 1) / 12 AUD.
    assert prices(found) == pytest.approx({"12-31T14": 0.5 / 12, "12-31T15": 0.5})
    assert found.hours["zone"].to_list() == ["AU-NSW"] * 2


def test_aemo_dispatch_reports_hold_several_tables(read: Read) -> None:
    text = (
        'C,NEMP.WORLD,DISPATCHIS\nI,DISPATCH,REGIONSUM,1,A\nD,DISPATCH,REGIONSUM,1,5\n'
        "I,DISPATCH,PRICE,5,SETTLEMENTDATE,RUNNO,REGIONID,DISPATCHINTERVAL,INTERVENTION,RRP\n"
        'D,DISPATCH,PRICE,5,"2026/07/31 03:00:00",1,SA1,1,0,50\n'
        'D,DISPATCH,PRICE,5,"2026/07/31 03:00:00",1,SA1,1,1,999\n'
        'C,"END OF REPORT",6\n'
    )  # fmt: skip
    with pytest.raises(DataError, match="no hour"):
        read(text, rates={"AUD": ((date.min, 1.0),)})
    more = "".join(f'D,DISPATCH,PRICE,5,"2026/07/31 02:{m:02d}:00",1,SA1,1,0,50\n' for m in range(5, 60, 5))
    found = read(text.replace('C,"END', more + 'C,"END'), rates={"AUD": ((date.min, 1.0),)})
    assert prices(found) == {"07-30T16": 50.0}
    assert "dropped 1: rows of other tables" in account(found)
    assert "dropped 1: prices of an intervention" in account(found)


def test_caiso_keeps_the_price_and_not_its_components(read: Read) -> None:
    head = "INTERVALSTARTTIME_GMT,INTERVALENDTIME_GMT,OPR_DT,OPR_HR,NODE,MARKET_RUN_ID,LMP_TYPE,MW\n"
    rows = "".join(
        f"2026-07-14T{h:02d}:00:00-00:00,x,2026-07-14,{h},TH_NP15,DAM,{kind},{price}\n"
        for h in (8, 7)
        for kind, price in (("MCC", 1), ("LMP", 40 + h))
    )
    found = read(head + rows)
    assert prices(found) == {"07-14T07": 47.0, "07-14T08": 48.0}
    assert found.hours["zone"].unique().to_list() == ["US-CAL-CISO"]
    assert "dropped 2: components" in account(found)


def test_ercot_names_hours_by_their_end_and_flags_the_repeated_one(read: Read) -> None:
    head = "DeliveryDate,HourEnding,SettlementPoint,SettlementPointPrice,DSTFlag \n"
    rows = [("01:00", 1, "N"), ("02:00", 3, "Y"), ("02:00", 2, "N"), ("03:00", 4, "N"), ("24:00", 9, "N")]
    text = head + "".join(f"11/02/2025,{end},HB_NORTH, {price},{flag}\n" for end, price, flag in rows)
    assert prices(read(text)) == {"11-02T05": 1, "11-02T06": 2, "11-02T07": 3, "11-02T08": 4, "11-03T05": 9}


def test_pjm_takes_current_rows_by_utc(read: Read) -> None:
    head = "datetime_beginning_utc,datetime_beginning_ept,pnode_id,pnode_name,type,total_lmp_da,row_is_current\n"
    rows = "1/15/2024 5:00:00 AM,x,1,PJM-RTO,ZONE,30,TRUE\n1/15/2024 5:00:00 AM,x,1,PJM-RTO,ZONE,99,FALSE\n"
    rows += "1/15/2024 6:00:00 PM,x,1,PJM-RTO,ZONE,31,TRUE\n"
    assert prices(read(head + rows)) == {"01-15T05": 30.0, "01-15T18": 31.0}


NYISO = (
    '"Time Stamp","Name","PTID","LBMP ($/MWHr)"\n'
    '"11/01/2026 00:00","WEST",1,"5"\n"11/01/2026 00:00","N.Y.C.",2,"50"\n'
    '"11/01/2026 01:00","WEST",1,"6"\n"11/01/2026 01:00","N.Y.C.",2,"60"\n'
    '"11/01/2026 01:00","WEST",1,"7"\n"11/01/2026 01:00","N.Y.C.",2,"70"\n'
)


def test_nyiso_resolves_the_repeated_hour_by_the_files_order_zone_by_zone(read: Read) -> None:
    found = read(NYISO, zones={"N.Y.C.": "US-NY-NYIS"})
    assert prices(found) == {"11-01T04": 50.0, "11-01T05": 60.0, "11-01T06": 70.0}
    with pytest.raises(DataError, match=r"2 areas or locations \(N.Y.C., WEST\).*--zone 'N.Y.C.=US-NY-NYIS'"):
        read(NYISO)


def test_watttime_becomes_grams_per_kwh(read: Read) -> None:
    rows = "".join(f"2022-01-01 00:{m:02d}:00+00:00,1000\n" for m in range(0, 60, 5))
    found = read("point_time,value\n" + rows, "CAISO_NORTH_co2_moer_2022-01-01_2022-01-07.csv")
    assert found.hours.select("zone", "carbon").rows() == [("US-CAL-CISO", pytest.approx(453.59237))]
    with pytest.raises(DataError, match="says neither region nor signal inside; give the file its name back"):
        read("point_time,value\n" + rows, "history.csv")
    reply = '{"data":[{"point_time":"2022-07-15T00:00:00Z","value":870}],"meta":{"region":"PJM","signal_type":"%s"}}'
    assert read(reply % "co2_moer", "a.json").hours["carbon"].to_list() == pytest.approx([870 * 0.45359237])
    with pytest.raises(DataError, match="'health_damage'"):
        read(reply % "health_damage", "a.json")


GERMAN = "Zeit;Preis [€/kWh];CO2 (kg/kWh)\n01.02.2024 00:00;0,0801;0,3\n01.02.2024 01:00;-0,091;\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252", "utf-16"])
def test_plain_files_with_semicolons_commas_and_local_time(read: Read, encoding: str) -> None:
    found = read(GERMAN.encode(encoding), zone="DE", clock=Clock("Europe/Berlin"), rates=EURO)
    assert prices(found) == pytest.approx({"01-31T23": 160.2, "02-01T00": -182.0})
    assert found.hours["carbon"].to_list() == [300.0, None]


def test_thousands_are_understood_where_the_sign_is_clear(read: Read) -> None:
    text = "timestamp;price EUR/MWh\n2024-01-01T00:00Z;1.022,27\n2024-01-01T01:00Z;5\n"
    assert prices(read(text, zone="DE", rates=EURO)) == pytest.approx({"01-01T00": 2044.54, "01-01T01": 10.0})
    unclear = "timestamp;price EUR/MWh\n2024-01-01T00:00Z;1,022\n2024-01-01T01:00Z;5\n"
    with pytest.raises(DataError, match=r"line 2, .*'1,022' may be a decimal comma or a thousands comma.*--decimal"):
        read(unclear, zone="DE", rates=EURO)
    assert prices(read(unclear, zone="DE", rates=EURO, decimal=","))["01-01T00"] == pytest.approx(2.044)
    assert prices(read(unclear, zone="DE", rates=EURO, decimal="."))["01-01T00"] == 2044.0


def test_a_half_hour_offset_splits_hourly_values_between_two_hours(read: Read) -> None:
    text = "time,price USD/MWh\n" + "".join(f"2024-01-01 {h:02d}:00,{h * 10}\n" for h in (6, 7, 8))
    found = read(text, zone="IN", clock=Clock("Asia/Kolkata"))
    assert prices(found) == {"01-01T00": 60.0, "01-01T01": 65.0, "01-01T02": 75.0, "01-01T03": 80.0}
    assert "were split between two" in account(found)


def hourly(*values: object, unit: str = "price USD/MWh") -> str:
    return f"timestamp,{unit}\n" + "".join(f"2024-01-01T{h:02d}:00Z,{value}\n" for h, value in enumerate(values))


def test_gaps_are_filled_only_where_a_longest_one_is_told(read: Read) -> None:
    text = hourly(10, "", 30, "", "", 60)
    assert prices(read(text, zone="DE")) == {"01-01T00": 10, "01-01T02": 30, "01-01T05": 60}
    filled = read(text, zone="DE", fill_gaps_h=1)
    assert prices(filled) == {"01-01T00": 10, "01-01T01": 20, "01-01T02": 30, "01-01T05": 60}
    assert "filled 1: hours of unknown price, along a straight line" in account(filled)
    assert "read 2: hours between the first and the last have no price" in account(filled)


def test_the_same_row_twice_counts_once_and_two_that_differ_are_refused(read: Read) -> None:
    text = hourly(10, 20) + "2024-01-01T01:00Z,20\n"
    assert "dropped 1: the same zone and time" in account(read(text, zone="DE"))
    with pytest.raises(DataError, match=r"lines 3 and 4: zone DE has two values at 2024-01-01 01:00 UTC"):
        read(hourly(10, 20) + "2024-01-01T01:00Z,21\n", zone="DE")


def test_rates_may_change_from_day_to_day(read: Read) -> None:
    hours = ("2024-01-01T00:00Z,10", "2024-01-01T01:00Z,10", "2024-01-02T00:00Z,10", "2024-01-02T01:00Z,1")
    text = "timestamp,price EUR/MWh\n" + "\n".join(hours)
    rates = {"EUR": ((date(2024, 1, 1), 2.0), (date(2024, 1, 2), 3.0))}
    assert prices(read(text, zone="DE", rates=rates)) == {
        "01-01T00": 20.0, "01-01T01": 20.0, "01-02T00": 30.0, "01-02T01": 3.0,
    }  # fmt: skip
    with pytest.raises(DataError, match="2024-01-01 is before the first rate of EUR"):
        read(text, zone="DE", rates={"EUR": ((date(2024, 1, 2), 2.0),)})


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (hourly(1, 2), {}, "no column of zones.*--zone DE"),
        (hourly(1, 2, unit="price"), {"zone": "DE"}, "states no unit.*--price-unit"),
        (hourly(1, 2, unit="carbon"), {"zone": "DE"}, "states no unit.*--carbon-unit"),
        (hourly(1, 2, unit="price EUR/MWh"), {"zone": "DE"}, "no exchange rate.*--fx EUR=RATE"),
        (hourly(1, "much"), {"zone": "DE"}, "line 3, column 'price USD/MWh': the value 'much' is not a number"),
        (hourly(1, -2, unit="carbon g/kWh"), {"zone": "DE"}, "line 3: the carbon intensity -2 g/kWh is negative"),
        (hourly(1, 2).replace("Z,", ","), {"zone": "DE"}, "line 2, column 'timestamp'.*no time zone.*--timezone"),
        (hourly(1, 2).replace("-01T", "-41T"), {"zone": "DE"}, "line 2.*not a valid date or time"),
        (hourly(1, 2).replace("Z,", ","), {"zone": "DE", "clock": Clock("Europe/Berlyn")}, "mean 'Europe/Berlin'"),
        ("timestamp,price USD/MWh\n2024-01-01,1\n2024-01-02,1\n2024-01-03,1\n", {"zone": "DE", "clock": Clock("UTC")},
         "1440 minutes apart"),
        ("timestamp,price USD/MWh\n2024-01-01T00:00Z,1\n2024-01-01T00:07Z,1\n", {"zone": "DE"}, "7 minutes apart"),
        ("time,price USD/MWh\n01/02/2024 00:00,1\n", {"zone": "DE", "clock": Clock("UTC")}, "--date-order dmy or"),
        ("when,price USD/MWh\n2024,1\n", {"zone": "DE"}, "--column 'timestamp=NAME'"),
        ("time,value\n2024,1\n", {"zone": "DE"}, "--column 'price=NAME'"),
        ("time,price a,price b\n2024,1,2\n", {"zone": "DE"}, "several columns.*--column 'price=price a'"),
        ("time,time,price\n2024,1,2\n", {"zone": "DE"}, "'time' stands twice"),
        ("time,price\n2024-01-01T00:00Z,1,2,3\n", {"zone": "DE"}, "line 2: 4 fields, but the header has 2"),
        ("time,price\n", {"zone": "DE"}, "no row of data"),
        ("", {}, "is empty"),
        (b"PK\x03\x04 a workbook", {}, "packed file or a workbook"),
        ("time\x00,price", {}, "is not text"),
        (hourly(1), {"format": "entso"}, "did you mean 'entsoe'"),
        (hourly(1), {"columns": {"prise": "a"}, "format": "plain"}, "did you mean 'price'"),
        (hourly("", ""), {"zone": "DE"}, "no row holds a value"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused_with_a_remedy(
    read: Read, text: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(DataError, match=says):
        read(text, **options)


def test_every_format_but_the_plain_one_recognises_no_tidy_file(tmp_path: Path) -> None:
    path = tmp_path / "signals.csv"
    path.write_text("timestamp,zone,price_usd_per_mwh\n2022-01-01T00:00Z,PL,1\n")
    assert not any(each.recognises(read_text_file(path)) for each in FORMATS.values())
    assert format_of(read_text_file(path)).name == "plain"


def test_files_of_several_formats_serve_one_scenario(tmp_path: Path) -> None:
    maps, price = tmp_path / "DE_2023_hourly.csv", tmp_path / "prices.csv"
    maps.write_text(MAPS_HEAD + "2023-10-28 23:00:00,G,G,DE,1,300,a,false\n2023-10-29 00:00:00,G,G,DE,1,310,a,false\n")
    price.write_text(old_entsoe(("29.10.2023 01:00", "1"), ("29.10.2023 02:00", "2")))
    signals = load_signals([maps, SignalFile(path=price, usd_per={"EUR": 2.0})], zones=("DE",))
    assert signals.start == datetime(2023, 10, 28, 23, tzinfo=UTC)
    assert signals.price_usd_per_mwh_ZH.tolist() == [[2.0, 4.0]]
    assert signals.carbon_g_per_kwh_ZH.tolist() == [[300.0, 310.0]]
    assert any("became USD at 2 USD for one EUR" in note for note in signals.notes)
    with pytest.raises(DataError, match="no exchange rate"):
        load_signals([maps, price])


PLAIN = "stamp,power,heat,price,co2\n" + "".join(
    f"2024-01-01 {h:02d}:00,{'' if h == 2 else h},{h},{h + 5},{h + 9}\n" for h in range(5)
)
TOLD = {
    "columns": {"timestamp": "stamp", "price": "power", "carbon": "co2"}, "zone": "DE", "timezone": "UTC",
    "price_unit": "EUR/MWh", "carbon_unit": "g/kWh", "usd_per": {"EUR": 2.0, "GBP": 3.0},
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("columns", {"timestamp": "stamp", "price": "heat", "carbon": "co2"}),
        ("zone", "FR"),
        ("timezone", "Europe/Berlin"),
        ("price_unit", "EUR/kWh"),
        ("carbon_unit", "kg/kWh"),
        ("usd_per", {"EUR": 4.0}),
        ("currency", "GBP"),
        ("fill_gaps_h", 1),
    ],
)
def test_whatever_a_scenario_tells_about_a_file_changes_what_is_read(tmp_path: Path, field: str, other: object) -> None:
    path = tmp_path / "plain.csv"
    path.write_text(PLAIN)

    def told(**more: object) -> tuple[object, ...]:
        signals = load_signals([SignalFile.model_validate({"path": path, **TOLD, **more})])
        return (
            signals.start,
            signals.zones,
            signals.price_usd_per_mwh_ZH.tobytes(),
            signals.carbon_g_per_kwh_ZH.tobytes(),
        )

    assert told() == told()
    assert told() != told(**{field: other})


def test_a_scenario_may_tell_the_format_and_the_zones_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "nyiso.csv"
    path.write_text(NYISO)
    west = SignalFile(path=path, zones={"WEST": "US-NY-NYIS"})
    assert load_signals([west]).price_usd_per_mwh_ZH.tolist() == [[5.0, 6.0, 7.0]]
    with pytest.raises(DataError, match="no column 'SETTLEMENTDATE'"):
        load_signals([SignalFile(path=path, format="aemo")])


def test_a_column_of_times_in_a_frame_keeps_its_line(read: Read) -> None:
    text = "timestamp,price USD/MWh\n2024-01-01T00:00Z,1\n\n\n2024-01-01T01:00Z,x\n"
    with pytest.raises(DataError, match="line 5"):
        read(text, zone="DE")


def test_hours_are_sorted_by_zone_and_time(read: Read) -> None:
    text = "timestamp,zone,price USD/MWh\n" + "".join(
        f"2024-01-01T{h:02d}:00Z,{zone},{h}\n" for h in (2, 1, 0) for zone in ("FR", "DE")
    )
    hours = read(text).hours
    assert hours.equals(hours.sort("zone", "timestamp"))
    assert isinstance(hours.schema["timestamp"], pl.Datetime)
