"""``when`` asked about a time in the past reads what was known then: no later hour but published prices."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import noonward

START = datetime(2024, 1, 1, tzinfo=UTC)
NOON = datetime(2024, 1, 3, 9, tzinfo=UTC)
"""10:00 in Berlin: the next day's prices are not published yet."""


def signals(path: Path, changed_from: datetime | None = None) -> Path:
    """Six days of a zone with a day-ahead market and one without; all hours from a time on are others."""
    rng = np.random.default_rng(1)
    rows = []
    for zone in ("DE", "AU-VIC"):
        hours = [START + timedelta(hours=hour) for hour in range(6 * 24)]
        price, carbon = rng.uniform(20, 80, len(hours)), rng.uniform(100, 500, len(hours))
        if changed_from is not None:
            later = np.array([hour >= changed_from for hour in hours])
            price, carbon = np.where(later, 900 - price, price), np.where(later, 900 - carbon, carbon)
        rows += [(f"{hour:%Y-%m-%dT%H:%M:%SZ}", zone, p, c) for hour, p, c in zip(hours, price, carbon, strict=True)]
    pl.DataFrame(
        rows, schema=["timestamp", "zone", "price_usd_per_mwh", "carbon_intensity_g_per_kwh"], orient="row"
    ).write_csv(path)
    return path


def ask(path: Path, zone: str, now: datetime = NOON) -> Any:
    return noonward.when(
        gpus=8, hours=3, by=NOON + timedelta(hours=40), now=now, zones=[zone], gpu="A30", signals=[path]
    )


@pytest.mark.parametrize(("zone", "known_until"), [("DE", datetime(2024, 1, 3, 23, tzinfo=UTC)), ("AU-VIC", None)])
def test_no_hour_is_read_that_was_not_known_then(tmp_path: Path, zone: str, known_until: datetime | None) -> None:
    told = ask(signals(tmp_path / "a.csv"), zone)
    hour = NOON + timedelta(hours=1)
    other = ask(signals(tmp_path / "b.csv", known_until or hour), zone)
    if known_until is None:
        assert told.advice == other.advice
        np.testing.assert_array_equal(told.outlook.value_KZH, other.outlook.value_KZH)
    np.testing.assert_array_equal(told.outlook.value_KZH[0], other.outlook.value_KZH[0])
    forecast_KH = told.outlook.forecast_KZH[:, 0]
    assert not forecast_KH[:, 0].any()
    assert forecast_KH[1, 1:].all()
    published_h = 14 if known_until else 1
    assert forecast_KH[0].tolist() == [hour >= published_h for hour in range(40)]
    assert any("since they were not known then" in note for note in told.notes)


def test_after_the_day_ahead_prices_are_published_they_are_read(tmp_path: Path) -> None:
    later = ask(signals(tmp_path / "a.csv"), "DE", NOON + timedelta(hours=4))
    assert later.outlook.forecast_KZH[0, 0].sum() < 40 - 4 - 14
