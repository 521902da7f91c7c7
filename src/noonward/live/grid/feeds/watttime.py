"""WattTime, version 3: marginal emission rates in lb/MWh every five minutes, past and forecast."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from noonward.data.account import Account
from noonward.data.signals.publishers import watttime
from noonward.data.signals.readings import Readings
from noonward.data.text_table import TextFile
from noonward.errors import DataError
from noonward.live.grid.feeds.feed import Call, Feed, Get, imported, json_of, reply_file

TOKEN: Final = timedelta(minutes=25)
"""How long a token is used; it is valid for 30 minutes."""


class WattTime(Feed):
    """``login`` gives a bearer token for name and password. Areas are WattTime's regions, such as CAISO_NORTH."""

    title = "WattTime, marginal"
    url = "https://api.watttime.org"
    quantity = "carbon"
    basis = "marginal"
    quota_per_hour = 600
    needs_key = True

    def __init__(self, key: str | None = None) -> None:
        super().__init__(key)
        self._token: tuple[datetime, str] | None = None

    def calls(self, area: str, start: datetime, until: datetime, now: datetime, get: Get) -> list[Call]:
        """Returns the requests for past and coming hours; asks for a token first where there is none."""
        headers = {"Authorization": f"Bearer {self._valid_token(now, get)}"}
        query = {"region": area, "signal_type": "co2_moer"}
        span = {"start": f"{start:%Y-%m-%dT%H:%M}Z", "end": f"{min(until, now):%Y-%m-%dT%H:%M}Z"}
        found = [Call(path="/v3/historical", query=query | span, headers=headers)]
        if until > now:
            hours = {"horizon_hours": str(min(72, -(-int((until - now).total_seconds()) // 3600)))}
            found.append(Call(path="/v3/forecast", query=query | hours, headers=headers, forecast=True))
        return found

    def _valid_token(self, now: datetime, get: Get) -> str:
        if self._token is None or now >= self._token[0] + TOKEN:
            name, _, password = self.key.partition(":")
            said = json_of(reply_file(get(Call(path="/login", user=(name, password))), "login"))
            if not isinstance(said, dict) or not isinstance(said.get("token"), str):
                raise DataError("login: the reply holds no token")
            self._token = now, said["token"]
        return self._token[1]

    def readings(self, reply: TextFile, area: str, account: Account) -> Readings:
        """Returns the points of a reply, read as those of a saved one are."""
        return imported(watttime.FORMAT, reply, account)

    def forget(self) -> None:
        """Throws the token away: it was refused."""
        self._token = None
