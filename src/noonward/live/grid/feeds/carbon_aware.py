"""Web API of the Green Software Foundation's carbon-aware-sdk: intensities of a location, past and forecast."""

from __future__ import annotations

from datetime import datetime

from noonward.data.account import Account
from noonward.data.signals.readings import Readings
from noonward.data.text_table import TextFile
from noonward.errors import DataError
from noonward.live.grid.feeds.feed import Call, Feed, Get, Rows, json_of


class CarbonAware(Feed):
    """Whether its intensities are average or marginal depends on its own source, so the configuration says it."""

    title = "carbon-aware-sdk"
    url = "http://127.0.0.1:8090"
    quantity = "carbon"

    def calls(self, area: str, start: datetime, until: datetime, now: datetime, get: Get) -> list[Call]:
        """Returns the requests for past and coming hours."""
        span = {"time": f"{start:%Y-%m-%dT%H:%M:%S}Z", "toTime": f"{min(until, now):%Y-%m-%dT%H:%M:%S}Z"}
        found = [Call(path="/emissions/bylocation", query={"location": area, **span})]
        if until > now:
            found.append(Call(path="/emissions/forecasts/current", query={"location": area}, forecast=True))
        return found

    def readings(self, reply: TextFile, area: str, account: Account) -> Readings:
        """Returns the points of a reply: ratings of the past, or the points of a forecast."""
        content = json_of(reply)
        if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
            raise DataError(f"{reply.name}: the reply is no list: {reply.start[:80]!r}")
        rows = Rows(reply, area)
        for each in content:
            for point in each.get("forecastData") or [each]:
                time = str(point.get("timestamp", point.get("time")))
                rows.add(time, point.get("value", point.get("rating")), minutes=None)
        return rows.readings()
