"""A source of signals that asks publishers over HTTP, and keeps what they answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from noonward.data.account import Account
from noonward.data.signals.clean import clean
from noonward.data.signals.readings import ImportOptions
from noonward.errors import DataError, FileError
from noonward.live.clock import Clock
from noonward.live.grid.feeds.catalogue import FEEDS
from noonward.live.grid.feeds.feed import Call, Feed, reply_file
from noonward.live.grid.feeds.settings import SignalFeed
from noonward.live.grid.sources import SignalSource, SourceError
from noonward.live.grid.web import Web
from noonward.live.store.store import Store
from noonward.model.markets import day_ahead_market
from noonward.model.signals import CARBON_NAME, PRICE_NAME, Signals
from noonward.units import DAY_H

AGAIN: Final = timedelta(minutes=5)
"""How long an area is not asked about again while hours of it are missing; doubled while the same ones stay missing."""
SELDOM: Final = timedelta(hours=1)
"""Longest of these pauses."""
AHEAD_H: Final = DAY_H
"""Hours ahead that are asked for, so that an hour is known when it begins."""
FINAL: Final = timedelta(days=3)
"""An estimate that its publisher has not replaced for so long counts as final."""
ZERO_H: Final = 24
"""Hours in a row for which a price, or an intensity that is not an average, may be exactly zero."""
KEPT: Final = timedelta(days=14)
"""How long hours are kept in memory."""


@dataclass
class FeedOfZones:
    """A feed and the zones that it is asked about.

    Attributes:
        feed: The feed.
        web: Its address.
        area_of: Its name of each zone.
        rates: US dollars for a unit of a currency.
    """

    feed: Feed
    web: Web
    area_of: Mapping[str, str]
    rates: Mapping[str, float] = field(default_factory=dict)
    asked: dict[str, _Asked] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """What went wrong when a zone was last asked about."""


@dataclass(frozen=True)
class _Asked:
    """When an area was asked about, what was missing, and how long it is not asked about again."""

    at: datetime
    missing: tuple[datetime, ...]
    pause: timedelta


class FeedSource(SignalSource):
    """Prices and intensities of several publishers. Each hour that is known for good is asked for once.

    Args:
        feeds: Feeds; every zone needs one of prices and one of intensities.
        clock: Clock of the service.
        day_ahead: What the scenario says of zones: whether their price is that of the day-ahead market.
    """

    def __init__(self, feeds: list[FeedOfZones], clock: Clock, day_ahead: Mapping[str, bool] | None = None) -> None:
        self.name = "; ".join(dict.fromkeys(each.feed.title for each in feeds))
        self._feeds, self._clock, self._day_ahead = feeds, clock, day_ahead
        self._final: dict[tuple[str, str], dict[datetime, float]] = {}
        self._expected: dict[tuple[str, str], dict[datetime, float]] = {}

    def refresh(self, zones: tuple[str, ...], start: datetime, hours: int) -> None:
        """Asks for the hours that are not known for good, and for the coming ones.

        Raises:
            SourceError: A publisher did not answer, or answered with what cannot be used; what others said is kept.
        """
        now = self._clock.now()
        until = max(start + timedelta(hours=hours), _hour(now) + timedelta(hours=AHEAD_H))
        for each in self._feeds:
            for zone, area in each.area_of.items():
                if zone in zones:
                    self._refresh(each, zone, area, start, until, now)
        for known in (*self._final.values(), *self._expected.values()):
            for hour in [hour for hour in known if hour < now - KEPT]:
                del known[hour]
        failures = [each.failures[zone] for each in self._feeds for zone in each.failures]
        if failures:
            raise SourceError("; ".join(dict.fromkeys(failures)))

    def _refresh(
        self, each: FeedOfZones, zone: str, area: str, start: datetime, until: datetime, now: datetime
    ) -> None:
        """Asks about an area, unless nothing is missing or it was asked a moment ago."""
        key = zone, each.feed.quantity
        known, ahead = self._final.setdefault(key, {}), _hour(now) + timedelta(hours=1)
        market = day_ahead_market(zone, self._day_ahead) if each.feed.day_ahead else None
        wanted = ahead if market is None else market.known_until(now)
        until = max(until, wanted)
        missing = tuple(hour for hour in _hours(start, wanted) if hour not in known)
        if not missing and (ahead in known or ahead in self._expected.get(key, {})):
            return
        last = each.asked.get(zone)
        same = last is not None and last.missing == missing
        if last is not None and now - last.at < (last.pause if same else AGAIN):
            return
        try:
            each.web.require_ready()
        except SourceError as error:
            each.failures[zone] = str(error)
            return
        pause = min(SELDOM, 2 * last.pause) if last is not None and same else AGAIN
        each.asked[zone] = _Asked(now, missing, pause)
        each.failures.pop(zone, None)
        try:
            # An hour earlier than what is missing: a reply that holds less than half an hour says nothing.
            begin = min([*missing, _hour(now)]) - timedelta(hours=1)
            for call in each.feed.calls(area, begin, until, now, each.web.get):
                self._ask(each, zone, area, call, now)
        except DataError as error:
            each.failures[zone] = str(each.web.failed(str(error)))
        except SourceError as error:
            each.failures[zone] = str(error)

    def _ask(self, each: FeedOfZones, zone: str, area: str, call: Call, now: datetime) -> None:
        """Sends one request and keeps what it gives; a failure leaves the area's other requests alone."""
        try:
            self._keep(each, zone, area, call, now)
            each.web.succeeded()
        except DataError as error:
            each.failures[zone] = str(each.web.failed(str(error)))
        except SourceError as error:
            each.feed.forget()
            each.failures.setdefault(zone, str(error))

    def _keep(self, each: FeedOfZones, zone: str, area: str, call: Call, now: datetime) -> None:
        """Asks once, and keeps the hours of the reply."""
        text = each.web.get(call)
        name = call.path.rsplit("/", 1)[-1]
        account = Account(file=name, format=each.feed.title)
        rates = {code: ((date.min, rate),) for code, rate in each.rates.items()}
        readings = each.feed.readings(reply_file(text, name), area, account)
        if not readings.frame.height:
            return
        hours = clean(readings, ImportOptions(zone=zone, rates=rates), account)
        quantity = each.feed.quantity
        known = hours.filter(pl.col(quantity).is_not_null())
        final, expected = self._final[zone, quantity], self._expected.setdefault((zone, quantity), {})
        new = {time.astimezone(UTC): value for time, value in known.select("timestamp", quantity).iter_rows()}
        _require_believable({**expected, **final, **new}, new, each.feed, zone)
        for time, value, estimated in known.select("timestamp", quantity, "estimated").iter_rows():
            hour = time.astimezone(UTC)
            begun = hour + timedelta(hours=1) > now and not each.feed.day_ahead
            if call.forecast or begun or (estimated and hour > now - FINAL):
                expected[hour] = value
            else:
                final[hour] = value

    def fetch(self, zones: tuple[str, ...], start: datetime, hours: int) -> Signals:
        """Returns what is known for good; asks nobody."""
        return self._part(self._final, zones, start, hours)

    def published(self, zones: tuple[str, ...], start: datetime, hours: int) -> Signals:
        """Returns the prices of hours to come that feeds of day-ahead prices have given; asks nobody."""
        day_ahead = {zone for each in self._feeds if each.feed.day_ahead for zone in each.area_of}
        held = {key: known for key, known in self._final.items() if key[0] in day_ahead and key[1] == "price"}
        return self._part(held, zones, start, hours)

    def expected(self, zones: tuple[str, ...], start: datetime, hours: int) -> Signals:
        """Returns what publishers expected or estimated; asks nobody."""
        return self._part(self._expected, zones, start, hours)

    def _part(
        self, held: Mapping[tuple[str, str], dict[datetime, float]], zones: tuple[str, ...], start: datetime, hours: int
    ) -> Signals:
        value = {}
        for name, quantity in ((PRICE_NAME, "price"), (CARBON_NAME, "carbon")):
            value[name] = np.array(
                [
                    [held.get((zone, quantity), {}).get(start + timedelta(hours=h), np.nan) for h in range(hours)]
                    for zone in zones
                ]
            ).reshape(len(zones), hours)
        return Signals(start=start, zones=zones, value_ZH=value)


def _require_believable(known: Mapping[datetime, float], new: Mapping[datetime, float], feed: Feed, zone: str) -> None:
    """Raises DataError where zeros of a reply are no values: publishers that fail often say zero.

    No grid's average intensity is exactly zero. A price, or the intensity of a marginal plant, can be, but not for
    ``ZERO_H`` hours in a row.

    Args:
        known: Values by hour, with those of the reply.
        new: Values of the reply.
        feed: Who says them.
        zone: Zone that they are of.
    """
    most = 1 if feed.basis == "average" else ZERO_H
    for hour in sorted(new):
        row = 0
        while row < most and known.get(hour - row * timedelta(hours=1)) == 0.0:
            row += 1
        if row == most:
            what = "price" if feed.quantity == "price" else "intensity"
            long = "" if most == 1 else f" for {most} hours in a row"
            raise DataError(
                f"{feed.title} says that the {what} of {zone} is exactly 0{long} at {hour:%Y-%m-%d %H:%M} UTC; that is "
                "no value, so the reply is not used"
            )


def _hour(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def _hours(start: datetime, until: datetime) -> list[datetime]:
    return [start + timedelta(hours=h) for h in range(max(0, (until - start) // timedelta(hours=1)))]


def feed_source(feeds: Sequence[SignalFeed], store: Store, day_ahead: Mapping[str, bool] | None = None) -> FeedSource:
    """Returns the source that feeds make together.

    Args:
        feeds: What a configuration says of each.
        store: Store of the service, for its clock.
        day_ahead: What the scenario says of zones: whether their price is that of the day-ahead market.

    Raises:
        FileError: A key file cannot be read.
        MissingExtraError: The extra ``live`` is not installed.
    """
    made = []
    for feed in feeds:
        kind = FEEDS[feed.source]
        web = Web(kind.title, feed.url or kind.url, store.now_s, feed.quota_per_hour or kind.quota_per_hour)
        key = None if feed.key_file is None else read_key(feed.key_file)
        made.append(FeedOfZones(kind(key), web, feed.zones, feed.usd_per))
    return FeedSource(made, store.clock, day_ahead)


def read_key(path: Path) -> str:
    """Returns the key that stands alone in a file.

    Raises:
        FileError: It cannot be read, or is empty.
    """
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"the key file {path} cannot be read: {error}") from error
    if not key:
        raise FileError(f"the key file {path} is empty; put the publisher's key into it")
    return key
