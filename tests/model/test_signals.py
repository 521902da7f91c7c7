"""Signals: hours in UTC, windows, zones, and the refusal of what is unknown."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from noonward.errors import DataError, SignalRangeError
from noonward.model.signals import Signals

START = datetime(2022, 3, 1, 22, tzinfo=UTC)
NAN = float("nan")


def signals(price=((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)), carbon=((10.0, 20.0, 30.0), (40.0, 50.0, 60.0)), **changes):
    parts = {"start": START, "zones": ("SG", "PL"), "notes": ("SG is a stand-in",)} | changes
    return Signals(value_ZH={"price_usd_per_mwh": np.array(price), "carbon_g_per_kwh": np.array(carbon)}, **parts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": datetime(2022, 3, 1)}, "which is not UTC"),
        ({"start": datetime(2022, 3, 1, tzinfo=timezone(timedelta(hours=1)))}, "which is not UTC"),
        ({"start": START.replace(minute=30)}, "full hour"),
        ({"start": START.replace(microsecond=1)}, "full hour"),
        ({"zones": ("SG", "SG")}, "a zone stands twice"),
        ({"zones": ("SG",)}, r"price_usd_per_mwh has shape \(2, 3\); expected \(zones, hours\) = \(1, 3\)"),
        ({"carbon": ((1.0, 2.0), (1.0, 2.0))}, r"carbon_g_per_kwh has shape \(2, 2\)"),
        (
            {"price": ((1.0, 2.0, 3.0), (4.0, np.inf, 6.0))},
            "price_usd_per_mwh of PL is infinite at 2022-03-01 23:00",
        ),
        (
            {"carbon": ((1.0, 2.0, -3.0), (4.0, 5.0, 6.0))},
            r"carbon intensity of SG is -3\.0 g/kWh at 2022-03-02 00:00.*at least 0",
        ),
    ],
)
def test_wrong_signals_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        signals(**changes)


def test_negative_prices_and_unknown_hours_are_legal():
    assert signals(price=((-50.0, NAN, 3.0), (4.0, 5.0, 6.0))).hours == 3


def test_hours_are_half_open_intervals():
    assert signals().end == datetime(2022, 3, 2, 1, tzinfo=UTC)
    assert signals().hour_of(START) == 0
    assert signals().hour_of(START + timedelta(minutes=59, seconds=59)) == 0
    assert signals().hour_of(START + timedelta(hours=1)) == 1


def test_a_time_of_another_zone_is_the_same_instant():
    tokyo = timezone(timedelta(hours=9))
    assert signals().hour_of(datetime(2022, 3, 2, 9, 30, tzinfo=tokyo)) == 2  # 00:30 UTC


@pytest.mark.parametrize("shift", [timedelta(seconds=-1), timedelta(hours=3)])
def test_a_time_outside_the_hours_is_refused_with_the_hours_covered(shift):
    with pytest.raises(SignalRangeError, match="but cover 2022-03-01 22:00 to 2022-03-02 01:00 UTC"):
        signals().hour_of(START + shift)


def test_a_time_without_zone_is_refused():
    with pytest.raises(DataError, match="has no time zone"):
        signals().hour_of(datetime(2022, 3, 1, 22))


def test_a_window_holds_its_hours_and_copies_nothing():
    whole = signals()
    part = whole.window(START + timedelta(hours=1), 2)
    assert part.start == START + timedelta(hours=1)
    assert part.price_usd_per_mwh_ZH.tolist() == [[2.0, 3.0], [5.0, 6.0]]
    assert part.carbon_g_per_kwh_ZH.tolist() == [[20.0, 30.0], [50.0, 60.0]]
    assert np.shares_memory(part.price_usd_per_mwh_ZH, whole.price_usd_per_mwh_ZH)
    assert part.notes == whole.notes


@pytest.mark.parametrize(("shift_h", "hours"), [(-1, 2), (2, 2), (0, 4), (0, 0)])
def test_a_window_that_leaves_the_hours_is_refused(shift_h, hours):
    with pytest.raises(SignalRangeError):
        signals().window(START + timedelta(hours=shift_h), hours)


def test_select_takes_zones_in_the_order_given():
    assert signals().select(("PL", "SG")).price_usd_per_mwh_ZH[:, 0].tolist() == [4.0, 1.0]
    assert signals().select(("PL",)).zones == ("PL",)


def test_an_unknown_zone_is_refused_with_the_nearest():
    with pytest.raises(DataError, match="zone 'PLX' has no signal; did you mean 'PL'"):
        signals().select(("SG", "PLX"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("price", r"the run needs the price of zone PL at 2022-03-01 23:00 UTC, which is unknown \(2 unknown hours"),
        ("carbon", r"the run needs the carbon intensity of zone PL at 2022-03-01 23:00 UTC, which is unknown \(2"),
    ],
)
def test_an_unknown_hour_is_refused_where_it_is_needed(name, message):
    holed = signals(**{name: ((1.0, 2.0, 3.0), (4.0, NAN, NAN))})
    with pytest.raises(SignalRangeError, match=message):
        holed.require_known("the run")
    known = holed.window(START, 1)
    assert known.require_known("the run") is known
