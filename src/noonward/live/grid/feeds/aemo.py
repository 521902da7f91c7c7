"""AEMO: prices of a region of Australia's market, one file a month."""

from __future__ import annotations

from datetime import datetime, timedelta

from noonward.data.account import Account
from noonward.data.signals.publishers import aemo
from noonward.data.signals.readings import Readings
from noonward.data.text_table import TextFile
from noonward.live.grid.feeds.feed import Call, Feed, Get, imported

_MARKET = timedelta(hours=10)
"""The market's clock, all year."""


class Aemo(Feed):
    """No key. Areas are regions, such as NSW1; AUD; times are ends of intervals, UTC+10."""

    title = "AEMO, dispatch"
    url = "https://aemo.com.au"
    quantity = "price"
    quota_per_hour = 60

    def calls(self, area: str, start: datetime, until: datetime, now: datetime, get: Get) -> list[Call]:
        """Returns one request a month; the month of the market's clock."""
        first, last = start + _MARKET, min(until, now) + _MARKET
        months = range(first.year * 12 + first.month - 1, last.year * 12 + last.month)
        base = "/aemo/data/nem/priceanddemand/PRICE_AND_DEMAND"
        return [Call(path=f"{base}_{month // 12}{month % 12 + 1:02}_{area}.csv") for month in months]

    def readings(self, reply: TextFile, area: str, account: Account) -> Readings:
        """Returns the prices of a file, read as those of a saved one are."""
        return imported(aemo.FORMAT, reply, account)
