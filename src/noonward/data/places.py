"""Where sites lie, for maps: their own latitude and longitude, else a place in their electricity zone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from noonward.model.cluster.fleet import Site


@cache
def zone_places() -> Mapping[str, tuple[float, float]]:
    """Returns the packaged table of electricity zones and a place in each, latitude and longitude in degrees.

    Example:
        >>> zone_places()["SG"]
        (1.35, 103.8)
    """
    table = json.loads((files("noonward.data") / "tables/zone_places.json").read_text(encoding="utf-8"))["places"]
    return {zone: (float(lat), float(lon)) for zone, (lat, lon) in table.items()}


def site_place(site: Site) -> tuple[float, float] | None:
    """Returns a site's latitude and longitude, degrees; None where neither it nor its zone has one."""
    if site.lat is not None and site.lon is not None:
        return site.lat, site.lon
    return zone_places().get(site.zone)
