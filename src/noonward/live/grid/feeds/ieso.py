"""IESO: day-ahead zonal price of Ontario, one XML document a day (since the market's renewal on 1 May 2025)."""

from __future__ import annotations

from datetime import datetime, timedelta
from xml.etree import ElementTree

from noonward.data.account import Account
from noonward.data.signals.readings import Readings
from noonward.data.text_table import TextFile
from noonward.errors import DataError
from noonward.live.grid.feeds.feed import Call, Feed, Get, Rows

_MARKET = timedelta(hours=-5)
"""The market's clock: Eastern Standard Time, all year."""


class Ieso(Feed):
    """No key; CAD; hours 1 to 24 are ends of intervals. The area's name is not used."""

    title = "IESO, day-ahead"
    url = "https://reports-public.ieso.ca"
    quantity = "price"
    day_ahead = True
    quota_per_hour = 200

    def calls(self, area: str, start: datetime, until: datetime, now: datetime, get: Get) -> list[Call]:
        """Returns one request a day; the day ahead is published at 13:30."""
        day, last = (start + _MARKET).date(), (until + _MARKET - timedelta(seconds=1)).date()
        market = now + _MARKET
        last = min(last, market.date() + timedelta(days=1 if (market.hour, market.minute) >= (13, 30) else 0))
        base = "/public/DAHourlyOntarioZonalPrice/PUB_DAHourlyOntarioZonalPrice"
        found = []
        while day <= last:
            found.append(Call(path=f"{base}_{day:%Y%m%d}.xml"))
            day += timedelta(days=1)
        return found

    def readings(self, reply: TextFile, area: str, account: Account) -> Readings:
        """Returns the hours of a document."""
        if "<!DOCTYPE" in reply.text or "<!ENTITY" in reply.text:
            raise DataError(f"{reply.name} defines a document type, which IESO's documents do not")
        try:
            root = ElementTree.fromstring(reply.text)
        except ElementTree.ParseError as error:
            raise DataError(f"{reply.name}: the reply is not XML ({error}): {reply.start[:80]!r}") from error
        day = _text(root, "DeliveryDate")
        rows = Rows(reply, area)
        for each in root.iter():
            if each.tag.rpartition("}")[2] != "HourlyPriceComponents":
                continue
            hour = _text(each, "PricingHour")
            if not (day and hour and hour.isdigit() and 1 <= int(hour) <= 24):
                raise DataError(f"{reply.name}: hour {hour!r} of the day {day!r}; expected 1 to 24 of a day")
            rows.add(f"{day}T{int(hour) - 1:02}:00:00-05:00", _text(each, "ZonalPrice"), price="CAD")
        if not rows.rows:
            raise DataError(f"{reply.name}: the document holds no hourly price")
        return rows.readings()


def _text(element: ElementTree.Element, name: str) -> str | None:
    """Returns the text of the first element below of some name."""
    return next(
        (each.text.strip() for each in element.iter() if each.tag.rpartition("}")[2] == name and each.text), None
    )
