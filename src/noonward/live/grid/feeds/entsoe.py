"""ENTSO-E Transparency: day-ahead prices (document A44) of a bidding zone; known a day ahead."""

from __future__ import annotations

from datetime import datetime

from noonward.data.account import Account
from noonward.data.signals.publishers import entsoe_xml
from noonward.data.signals.readings import Readings
from noonward.data.text_table import TextFile
from noonward.live.grid.feeds.feed import Call, Feed, Get, imported


class Entsoe(Feed):
    """``securityToken`` in the query. Areas are energy identification codes, such as 10Y1001A1001A82H; EUR."""

    title = "ENTSO-E, day-ahead"
    url = "https://web-api.tp.entsoe.eu"
    quantity = "price"
    day_ahead = True
    quota_per_hour = 2000
    needs_key = True

    def calls(self, area: str, start: datetime, until: datetime, now: datetime, get: Get) -> list[Call]:
        """Returns one request."""
        query = {
            "securityToken": self.key, "documentType": "A44", "in_Domain": area, "out_Domain": area,
            "periodStart": f"{start:%Y%m%d%H%M}", "periodEnd": f"{until:%Y%m%d%H%M}",
        }  # fmt: skip
        return [Call(path="/api", query=query)]

    def readings(self, reply: TextFile, area: str, account: Account) -> Readings:
        """Returns the prices of a document, read as those of a saved one are."""
        return imported(entsoe_xml.FORMAT, reply, account)
