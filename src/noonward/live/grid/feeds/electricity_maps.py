"""Electricity Maps, version 3: average life-cycle intensity of a zone, past hours and forecast."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from noonward.data.account import Account
from noonward.data.signals.readings import Readings
from noonward.data.text_table import TextFile
from noonward.errors import DataError
from noonward.live.grid.feeds.feed import Call, Feed, Get, Rows, json_of


class ElectricityMaps(Feed):
    """``auth-token`` in the header; ``history`` reaches back 24 hours, ``past-range`` further. Zones are this
    package's.
    """

    title = "Electricity Maps, average"
    url = "https://api.electricitymaps.com"
    quantity = "carbon"
    basis = "average"
    quota_per_hour = 50
    needs_key = True

    def calls(self, area: str, start: datetime, until: datetime, now: datetime, get: Get) -> list[Call]:
        """Returns at most three requests: older hours, the last day, the coming hours."""
        headers, base = {"auth-token": self.key}, "/v3/carbon-intensity"
        found = []
        day_ago = now - timedelta(hours=24)
        if start < day_ago:
            query = {"zone": area, "start": _time(start), "end": _time(day_ago + timedelta(hours=1))}
            found.append(Call(path=f"{base}/past-range", query=query, headers=headers))
        found.append(Call(path=f"{base}/history", query={"zone": area}, headers=headers))
        if until > now:
            found.append(Call(path=f"{base}/forecast", query={"zone": area}, headers=headers, forecast=True))
        return found

    def readings(self, reply: TextFile, area: str, account: Account) -> Readings:
        """Returns the points of a reply."""
        content = json_of(reply)
        rows = Rows(reply, area)
        for point in _points(content, reply):
            rows.add(str(point.get("datetime")), point.get("carbonIntensity"), estimated=bool(point.get("isEstimated")))
        return rows.readings()


def _points(content: Any, reply: TextFile) -> list[dict[str, Any]]:
    held = content if isinstance(content, dict) else {}
    found = next((held[key] for key in ("history", "data", "forecast") if key in held), None)
    if not isinstance(found, list) or not all(isinstance(point, dict) for point in found):
        raise DataError(f"{reply.name}: the reply holds no list of hours: {reply.start[:80]!r}")
    return found


def _time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
