"""Signals that change within the hour: as files hold them, imported and read again, filled and refused."""

from pathlib import Path

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.import_files import import_files
from noonward.data.scenarios.load import load_scenario
from noonward.data.signals.load import load_signals
from noonward.errors import DataError
from noonward.ledger.record import environment_digest
from noonward.model.signals import CARBON_NAME, PRICE_NAME, Signals

HEAD = "timestamp,zone,carbon_intensity_g_per_kwh,price_usd_per_mwh\n"


def tidy(path: Path, *rows: tuple[str, object, object], zone: str = "PL") -> Path:
    """A tidy file of one zone: rows of time in the day, carbon and price."""
    path.write_text(HEAD + "".join(f"2022-01-01T{time}Z,{zone},{carbon},{price}\n" for time, carbon, price in rows))
    return path


def quarters(hour: int, *prices: object, carbon: object = "") -> list[tuple[str, object, object]]:
    return [(f"{hour:02d}:{15 * n:02d}", carbon if n == 0 else "", price) for n, price in enumerate(prices)]


def test_a_file_may_hold_hours_and_their_parts(tmp_path: Path) -> None:
    rows = [*quarters(0, 10, 20, 30, 40, carbon=7), *quarters(1, 5, 5, 5, 5, carbon=8), ("02:00", 9, 7)]
    signals = load_signals([tidy(tmp_path / "a.csv", *rows)])
    assert signals.price_usd_per_mwh_ZH.tolist() == [[25.0, 5.0, 7.0]]
    assert signals.carbon_g_per_kwh_ZH.tolist() == [[7.0, 8.0, 9.0]]
    assert list(signals.parts) == [(PRICE_NAME, "PL")]  # the carbon intensity holds for the hour
    assert signals.parts[PRICE_NAME, "PL"].tolist() == [[10.0, 20.0, 30.0, 40.0], [5.0] * 4, [7.0] * 4]


def test_every_zone_and_quantity_has_its_own_resolution(tmp_path: Path) -> None:
    five = [(f"00:{minute:02d}", minute, minute if minute % 30 == 0 else "") for minute in range(0, 60, 5)]
    a, b = tidy(tmp_path / "a.csv", *five), tidy(tmp_path / "b.csv", ("00:00", 1, 2), zone="SG")
    signals = load_signals([a, b])
    assert signals.parts[CARBON_NAME, "PL"].tolist() == [list(range(0, 60, 5))]
    assert signals.parts[PRICE_NAME, "PL"].tolist() == [[0.0, 30.0]]
    assert signals.select(("SG",)).parts == {}


@pytest.mark.parametrize("price", [0.1, 33.37, -7.7])
def test_parts_that_are_constant_are_the_hour_bit_for_bit(tmp_path: Path, price: float) -> None:
    rows = [(f"{hour:02d}:{minute:02d}", 3.3, price) for hour in range(3) for minute in range(0, 60, 5)]
    fine = load_signals([tidy(tmp_path / "a.csv", *rows)])
    hourly = load_signals([tidy(tmp_path / "b.csv", *((f"{hour:02d}:00", 3.3, price) for hour in range(3)))])
    assert fine.parts == {}
    assert fine.price_usd_per_mwh_ZH.tolist() == hourly.price_usd_per_mwh_ZH.tolist()
    assert fine.carbon_g_per_kwh_ZH.tolist() == hourly.carbon_g_per_kwh_ZH.tolist()


def test_an_environment_of_constant_parts_is_that_of_its_hours(tmp_path: Path) -> None:
    stamps = [f"2022-03-{day:02d}T{hour:02d}" for day in range(1, 9) for hour in range(24)]
    environments = []
    for minutes in ((0,), (0, 15, 30, 45)):
        path = tmp_path / f"{len(minutes)}.csv"
        rows = [
            f"{stamp}:{minute:02d}Z,{zone},{100 + n % 7},{0.1 * (n % 24)!r}"
            for zone in ("CA-ON", "SG")
            for n, stamp in enumerate(stamps)
            for minute in minutes
        ]
        path.write_text(HEAD + "\n".join(rows))
        source = f"signals={{source: files, paths: [{path}]}}"
        environments.append(build_environment(load_scenario("tiny", [source, "start=2022-03-03"])))
    assert environment_digest(environments[0]) == environment_digest(environments[1])


def test_a_part_that_is_unknown_has_the_mean_of_the_rest(tmp_path: Path) -> None:
    rows = [*quarters(0, 10, "", 30, 50), *quarters(1, 1, "", "", 2), *quarters(2, "", "", "", 2)]
    signals = load_signals([tidy(tmp_path / "a.csv", *rows)])
    assert signals.parts[PRICE_NAME, "PL"][0].tolist() == [10.0, 30.0, 30.0, 50.0]
    assert signals.price_usd_per_mwh_ZH[0, :2].tolist() == [30.0, 1.5]
    assert np.isnan(signals.price_usd_per_mwh_ZH[0, 2])  # a quarter is less than half


def test_a_later_file_fills_whole_hours_alone(tmp_path: Path) -> None:
    first = tidy(tmp_path / "a.csv", ("00:00", 1, 5), ("01:00", 1, ""))
    later = tidy(tmp_path / "b.csv", *quarters(0, 1, 2, 3, 4), *quarters(1, 1, 2, 3, 4))
    signals = load_signals([first, later])
    assert signals.parts[PRICE_NAME, "PL"].tolist() == [[5.0] * 4, [1.0, 2.0, 3.0, 4.0]]


def test_an_import_keeps_what_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "spot.csv"
    rows = ["2025-10-01T00:00Z,9"]
    rows += [f"2025-10-01T{hour:02d}:{minute:02d}Z,{hour + minute}" for hour in (1, 2) for minute in (0, 15, 30, 45)]
    path.write_text("\n".join(["timestamp,price USD/MWh", *rows]))
    imported = import_files([path], zones="DE")
    assert imported.signals is not None
    assert imported.signals.height == 9
    assert imported.zones["known"].to_list() == [3]
    assert imported.zones["missing"].to_list() == [0]
    imported.write(tmp_path / "out")
    again = load_signals([tmp_path / "out" / "signals.csv"])
    assert again.parts[PRICE_NAME, "DE"].tolist() == [[9.0] * 4, [1.0, 16.0, 31.0, 46.0], [2.0, 17.0, 32.0, 47.0]]
    assert again.price_usd_per_mwh_ZH.tolist() == [[9.0, 23.5, 24.5]]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("00:00", 1, 1), ("00:07", 1, 1)], "off the full hour, and off its parts of 5 minutes"),
        ([("00:00", 1, 1), ("01:30", 1, 1)], "off the full hour, and alone in it"),
        ([("00:15", 1, 1), ("00:15", 1, 1)], "twice"),
    ],
)
def test_times_that_are_refused(tmp_path: Path, rows: list[tuple[str, object, object]], says: str) -> None:
    with pytest.raises(DataError, match=says):
        load_signals([tidy(tmp_path / "a.csv", *rows)])


def test_parts_of_another_shape_or_unknown_are_refused(tmp_path: Path) -> None:
    signals = load_signals([tidy(tmp_path / "a.csv", ("00:00", 1, 5), ("01:00", 1, 6))])
    for parts, says in (
        (np.ones((2, 5)), "within hours has shape"),
        (np.ones((1, 4)), "within hours has shape"),
        (np.array([[1.0, np.nan], [1.0, 1.0]]), "must be known and finite"),
    ):
        with pytest.raises(DataError, match=says):
            Signals(
                start=signals.start, zones=signals.zones, value_ZH=signals.value_ZH, parts={(PRICE_NAME, "PL"): parts}
            )
