"""The feeds by name, and the source that a configuration's feeds make together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from noonward.errors import FileError, ScenarioError, nearest
from noonward.live.grid.feed_source import FeedOfZones, FeedSource
from noonward.live.grid.feeds.aemo import Aemo
from noonward.live.grid.feeds.carbon_aware import CarbonAware
from noonward.live.grid.feeds.electricity_maps import ElectricityMaps
from noonward.live.grid.feeds.entsoe import Entsoe
from noonward.live.grid.feeds.feed import Basis, Feed
from noonward.live.grid.feeds.gb import GreatBritain
from noonward.live.grid.feeds.ieso import Ieso
from noonward.live.grid.feeds.watttime import WattTime
from noonward.live.grid.web import Web

if TYPE_CHECKING:
    from noonward.live.config import LiveConfig, SignalFeed
    from noonward.live.store.store import Store
    from noonward.model.cluster.scenario import Scenario

FEEDS: Final[Mapping[str, type[Feed]]] = {
    "electricity-maps": ElectricityMaps,
    "watttime": WattTime,
    "gb-carbon-intensity": GreatBritain,
    "entsoe": Entsoe,
    "aemo": Aemo,
    "ieso": Ieso,
    "carbon-aware-sdk": CarbonAware,
}
"""Feeds by name."""


def basis_of(feed: SignalFeed) -> Basis | None:
    """Returns what a feed's intensities are: average or marginal; None of a feed of prices."""
    return FEEDS[feed.source].basis or feed.basis


def require_feeds(config: LiveConfig, scenario: Scenario, source: str) -> None:
    """Raises ScenarioError where a configuration's feeds do not give every zone one price and one intensity.

    Intensities are all average or all marginal: a difference between two zones would mean nothing otherwise.

    Args:
        config: Configuration.
        scenario: Its scenario.
        source: Its name, for messages.
    """
    if not config.signals:
        return
    zones = tuple(dict.fromkeys(site.zone for site in scenario.fleet.sites))
    bases: dict[str, str] = {}
    for feed in config.signals:
        kind = FEEDS[feed.source]
        for zone in feed.zones:
            if zone not in zones:
                raise ScenarioError(f"{source}: {feed.source} names the unknown zone {zone!r}; {nearest(zone, zones)}")
        if kind.needs_key and feed.key_file is None:
            raise ScenarioError(f"{source}: {feed.source} needs a key; put it into a file and name that by key_file")
        if kind.quantity == "carbon":
            stated = basis_of(feed)
            if stated is None:
                raise ScenarioError(
                    f"{source}: {feed.source} does not say whether its intensities are average or marginal; give basis"
                )
            if feed.basis not in (None, stated):
                raise ScenarioError(f"{source}: the intensities of {feed.source} are {stated}, not {feed.basis}")
            bases[feed.source] = stated
    if len(set(bases.values())) > 1:
        said = ", ".join(f"{name}: {basis}" for name, basis in bases.items())
        raise ScenarioError(
            f"{source}: average and marginal intensities are mixed ({said}), so that a comparison of zones would mean "
            "nothing; use feeds of one kind"
        )
    for quantity in ("price", "carbon"):
        given = [zone for feed in config.signals if FEEDS[feed.source].quantity == quantity for zone in feed.zones]
        for zone in zones:
            if given.count(zone) != 1:
                what = {"price": "price", "carbon": "carbon intensity"}[quantity]
                raise ScenarioError(
                    f"{source}: {given.count(zone)} feeds give the {what} of zone {zone}; every zone needs one feed of "
                    f"prices and one of intensities"
                )


def feed_source(config: LiveConfig, store: Store) -> FeedSource:
    """Returns the source that a configuration's feeds make.

    Raises:
        FileError: A key file cannot be read.
        MissingExtraError: The extra ``live`` is not installed.
    """
    made = []
    for feed in config.signals:
        kind = FEEDS[feed.source]
        web = Web(kind.title, feed.url or kind.url, store.now_s, feed.quota_per_hour or kind.quota_per_hour)
        key = None if feed.key_file is None else _key(feed.key_file)
        made.append(FeedOfZones(kind(key), web, feed.zones, feed.usd_per))
    return FeedSource(made, store.clock)


def _key(path: Path) -> str:
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"the key file {path} cannot be read: {error}") from error
    if not key:
        raise FileError(f"the key file {path} is empty; put the publisher's key into it")
    return key
