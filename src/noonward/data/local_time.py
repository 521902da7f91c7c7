"""Local time of ingress points: whose clock the daily rhythm of arrivals follows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache, lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from noonward.arrays import F8
from noonward.errors import ScenarioError
from noonward.model.cluster.fleet import Fleet, Ingress, Site
from noonward.units import DAY_S


@cache
def zone_timezones() -> Mapping[str, str]:
    """Returns the packaged table of electricity zones and their IANA time zones.

    Example:
        >>> zone_timezones()["AU-SA"]
        'Australia/Adelaide'
    """
    table: dict[str, str] = json.loads((files("noonward.data") / "tables/zone_timezones.json").read_text())["timezones"]
    return table


def site_timezone(site: Site) -> ZoneInfo:
    """Returns a site's time zone: its own, or that of its electricity zone.

    Raises:
        ScenarioError: The time zone is not an IANA name, or the site has none and its zone is not in the table.
    """
    name = site.timezone or zone_timezones().get(site.zone)
    if name is None:
        raise ScenarioError(
            f"site {site.name!r} has no timezone, and the electricity zone {site.zone!r} has none in the packaged "
            "table; give the site an IANA time zone, e.g. timezone: Europe/Warsaw"
        )
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScenarioError(
            f"site {site.name!r} has the timezone {name!r}, which this machine's time zone data does not know; give an "
            "IANA name, e.g. Europe/Warsaw (systems without time zone data: pip install tzdata)"
        ) from error


def ingress_timezone(fleet: Fleet, point: Ingress) -> ZoneInfo:
    """Returns the time zone of an ingress point: that of its home.

    Raises:
        ScenarioError: It has no home, or its home has no time zone.
    """
    if point.home is None:
        raise ScenarioError(
            f"ingress {point.name!r} has no home site and therefore no local time, but its jobs follow one; give it a "
            "home or the share 0 in jobs.origin_shares"
        )
    return site_timezone(fleet.sites[fleet.site_index(point.home)])


@lru_cache(maxsize=64)
def local_week_s(zone: ZoneInfo, start: datetime, step_s: float, count: int) -> F8:
    """Returns the local time of equally spaced instants, seconds since the local week's Monday midnight (read-only).

    Args:
        zone: Time zone; a change of its clock within the span is followed.
        start: First instant, timezone-aware.
        step_s: Spacing, s.
        count: Number of instants.

    Example:
        >>> from datetime import UTC
        >>> monday = datetime(2022, 1, 3, tzinfo=UTC)
        >>> (local_week_s(ZoneInfo("Asia/Singapore"), monday, 3600, 2) / 3600).tolist()
        [8.0, 9.0]
    """
    local = [(start + timedelta(seconds=step_s * index)).astimezone(zone) for index in range(count)]
    clock = [time.weekday() * DAY_S + time.hour * 3600.0 + time.minute * 60.0 + time.second for time in local]
    week_s = np.array(clock)
    week_s.setflags(write=False)
    return week_s
