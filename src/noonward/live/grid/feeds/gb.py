"""Carbon Intensity API of Great Britain: half hours, actual and forecast, average; no key."""

from __future__ import annotations

from datetime import datetime, timedelta

from noonward.data.account import Account
from noonward.data.signals.readings import Readings
from noonward.data.text_table import TextFile
from noonward.errors import DataError
from noonward.live.grid.feeds.feed import Call, Feed, Get, Rows, json_of


class GreatBritain(Feed):
    """The whole country; the area's name is not used."""

    title = "GB Carbon Intensity, average"
    url = "https://api.carbonintensity.org.uk"
    quantity = "carbon"
    basis = "average"

    def calls(self, area: str, start: datetime, until: datetime, now: datetime, get: Get) -> list[Call]:
        """Returns requests of at most 14 days each."""
        found, begin = [], start
        while begin < until:
            end = min(until, begin + timedelta(days=13))
            found.append(Call(path=f"/intensity/{begin:%Y-%m-%dT%H:%M}Z/{end:%Y-%m-%dT%H:%M}Z"))
            begin = end
        return found

    def readings(self, reply: TextFile, area: str, account: Account) -> Readings:
        """Returns the half hours of a reply: the actual value, or the forecast where that is not known yet."""
        content = json_of(reply)
        data = content.get("data") if isinstance(content, dict) else None
        if not isinstance(data, list):
            raise DataError(f"{reply.name}: the reply holds no list of half hours: {reply.start[:80]!r}")
        rows = Rows(reply, area)
        for each in data:
            try:
                said, time = each["intensity"], each["from"]
                actual, forecast = said["actual"], said["forecast"]
            except (KeyError, TypeError) as error:
                raise DataError(f"{reply.name}: a half hour is {str(each)[:80]!r}") from error
            rows.add(time, forecast if actual is None else actual, estimated=actual is None, minutes=30)
        return rows.readings()
