"""Day-ahead markets: what is published when, over changes of the clock, and for which zones."""

from datetime import UTC, datetime, timedelta

import pytest

from noonward.data.local_time import zone_timezones
from noonward.errors import ScenarioError
from noonward.model.markets import day_ahead_market, day_ahead_markets, require_markets


def hours_known(zone, *now, stated=None):
    """Hours ahead of a UTC time whose prices are known."""
    time = datetime(*now, tzinfo=UTC)
    return (day_ahead_market(zone, stated).known_until(time) - time) / timedelta(hours=1)


@pytest.mark.parametrize(
    ("zone", "now", "hours"),
    [
        ("DE", (2022, 1, 3, 11), 12),  # 12:00 in Brussels: to midnight
        ("DE", (2022, 1, 3, 12), 35),  # 13:00: to the next midnight
        ("DE", (2022, 1, 3, 23), 24),  # midnight: the whole day
        ("DE", (2022, 7, 3, 10), 12),
        ("DE", (2022, 7, 3, 11), 35),
        ("FI", (2022, 1, 3, 12), 35),  # the market's day, not that of Helsinki
        ("GB", (2022, 1, 3, 9), 14),
        ("GB", (2022, 1, 3, 10), 37),  # 10:00 in London; its day ends at 23:00 there
        ("CH", (2022, 1, 3, 11), 36),
        ("US-NY-NYIS", (2022, 1, 3, 15), 14),
        ("US-NY-NYIS", (2022, 1, 3, 16), 37),
        ("US-CAL-CISO", (2022, 7, 3, 19), 12),
        ("US-CAL-CISO", (2022, 7, 3, 20), 35),
    ],
)
def test_prices_are_known_to_midnight_and_once_published_to_the_next(zone, now, hours):
    assert hours_known(zone, *now) == hours


def test_days_on_which_the_clock_changes_have_23_and_25_hours():
    assert hours_known("DE", 2022, 3, 26, 23) == 23  # 27 March, from midnight to midnight
    assert hours_known("DE", 2022, 3, 26, 12) == 34
    assert hours_known("DE", 2022, 10, 29, 22) == 25
    assert hours_known("DE", 2022, 10, 29, 11) == 36
    assert hours_known("US-NY-NYIS", 2022, 11, 6, 4) == 25


def test_half_past_an_hour_is_published_from_the_next_full_hour():
    pjm = {"US-MIDA-PJM": True}
    assert hours_known("US-MIDA-PJM", 2022, 1, 3, 18, stated=pjm) == 11  # 13:00 in New York
    assert hours_known("US-MIDA-PJM", 2022, 1, 3, 19, stated=pjm) == 34


@pytest.mark.parametrize("zone", ["AU-SA", "AU-WA", "CA-ON", "SG", "KR", "US-TEX-ERCO", "US-MIDA-PJM", "A"])
def test_zones_of_other_markets_have_no_published_price(zone):
    assert day_ahead_market(zone) is None


def test_a_scenario_says_which_price_a_zone_has():
    assert day_ahead_market("US-TEX-ERCO", {"US-TEX-ERCO": True}).name == "ercot"
    assert day_ahead_market("DE", {"DE": False}) is None
    assert day_ahead_market("DE", {"FR": False}).name == "sdac"
    require_markets({"US-TEX-ERCO": True, "AU-SA": False})
    with pytest.raises(ScenarioError, match="no day-ahead market is known for the zones AU-SA, A; known are those of"):
        require_markets({"AU-SA": True, "DE": True, "A": True})


def test_every_zone_of_the_table_is_a_zone_of_one_market_alone_and_every_market_has_a_source():
    zones = [zone for market in day_ahead_markets() for zone in market.zones | market.stated]
    assert len(zones) == len(set(zones))
    assert set(zones) <= set(zone_timezones())
    assert all(len(market.source) > 20 for market in day_ahead_markets())
