"""``noonward data peaks``: a system's peaks, how well they are forecast, and what is refused."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

FIRST = datetime(2022, 1, 1, tzinfo=UTC)
HOURS = 24 * 70


@pytest.fixture
def loads(noonward):
    """Ten weeks of load that is highest at 17 h; three days are higher than all others."""
    high = {10: 30.0, 30: 50.0, 60: 40.0}
    rows = [
        f"{FIRST + timedelta(hours=hour):%Y-%m-%dT%H:%M:%SZ},{100 + (hour % 24 == 17) * (20 + high.get(hour // 24, 0))}"
        for hour in range(HOURS)
    ]
    Path("load.csv").write_text("\n".join(["time,load_mw", *rows]) + "\n")
    return noonward


def test_peaks_are_shown_in_the_order_of_time_with_a_score_of_their_forecast(loads):
    found = loads("data", "peaks", "load.csv", "--clock", "UTC", "--peaks", 3, "--json")
    assert found.code == 0, found.err
    said = json.loads(found.out)
    assert said["peaks"] == [f"{FIRST + timedelta(days=day, hours=17):%Y-%m-%dT%H:%M:%S+00:00}" for day in (10, 30, 60)]
    assert set(said["forecast"]) == {"brier", "base", "skill", "caught", "watched"}
    shown = loads("data", "peaks", "load.csv", "--clock", "UTC", "--peaks", 3).out
    assert "2022-01-31 17:00" in shown
    assert "whose chance was above 5%" in shown


def test_days_are_those_of_the_clock(loads):
    """17 h UTC lies in the next day in Brisbane; the month of the last hour of January there is February's."""
    argv = ("data", "peaks", "load.csv", "--peaks", 1, "--per", "month", "--json")
    here, there = (json.loads(loads(*argv, "--clock", clock).out)["peaks"] for clock in ("UTC", "Australia/Brisbane"))
    assert here != there


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--clock", "Mars/Base"), "time zone 'Mars/Base' is unknown"),
        (("--clock", "+10:00"), "give an IANA time zone, or UTC"),
        (("--clock", "UTC", "--columns", "load"), "write it as time=T,load=L"),
        (("--clock", "UTC", "--columns", "mw=load_mw"), "unknown key 'mw'"),
        (("--clock", "UTC", "--columns", "load=mw"), "no column 'mw'"),
        (("--clock", "UTC", "--months", "13"), "less than or equal to 12"),
        (("--clock", "UTC", "--months", "June"), "(value: 'June')"),
        (("--clock", "UTC", "--interval", 7), "interval_min"),
    ],
)
def test_bad_input_is_one_clear_error(loads, options, said):
    found = loads("data", "peaks", "load.csv", *options)
    assert found.code == 2
    assert said in found.err
    assert "Traceback" not in found.err
