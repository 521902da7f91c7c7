"""What a configuration says of publishers of prices and intensities, and its check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from noonward.errors import ScenarioError, nearest
from noonward.live.grid.feeds.catalogue import FEEDS
from noonward.live.grid.feeds.feed import Basis
from noonward.model.spec import Positive, Spec

URL = r"^https?://[^/]"
"""How an address of a configuration begins."""


class SignalFeed(Spec):
    """A publisher of prices or intensities that is asked over HTTP."""

    source: str
    """Publisher, by its name in ``FEEDS``."""
    zones: dict[str, str] = Field(min_length=1)
    """Its name of each zone, by the zone's name in the fleet."""
    key_file: Path | None = None
    """File that holds its key alone; of WattTime NAME:PASSWORD."""
    url: str | None = Field(default=None, pattern=URL)
    """Its address, where it is not the public one."""
    usd_per: dict[str, Positive] = Field(default_factory=dict)
    """US dollars for a unit of the currency of its prices, by its code."""
    basis: Basis | None = None
    """What the intensities of carbon-aware-sdk are, which depends on its own source."""
    quota_per_hour: Annotated[int, Field(ge=1)] | None = None
    """Requests an hour that are sent at most; none: a number that suits the publisher's free plan."""

    @field_validator("source")
    @classmethod
    def _known(cls, source: str) -> str:
        if source not in FEEDS:
            raise ValueError(f"unknown publisher {source!r}; {nearest(source, FEEDS)}")
        return source


def basis_of(feed: SignalFeed) -> Basis | None:
    """Returns what a feed's intensities are: average or marginal; None of a feed of prices."""
    return FEEDS[feed.source].basis or feed.basis


def require_feeds(feeds: Sequence[SignalFeed], zones: Sequence[str], source: str) -> None:
    """Raises ScenarioError where feeds do not give every zone one price and one intensity; none at all are in order.

    Intensities are all average or all marginal: a difference between two zones would mean nothing otherwise.

    Args:
        feeds: Feeds.
        zones: Zones of the fleet, each once.
        source: Name of the configuration, for messages.
    """
    if not feeds:
        return
    bases: dict[str, str] = {}
    for feed in feeds:
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
        given = [zone for feed in feeds if FEEDS[feed.source].quantity == quantity for zone in feed.zones]
        for zone in zones:
            if given.count(zone) != 1:
                what = {"price": "price", "carbon": "carbon intensity"}[quantity]
                raise ScenarioError(
                    f"{source}: {given.count(zone)} feeds give the {what} of zone {zone}; every zone needs one feed of "
                    f"prices and one of intensities"
                )
