"""The map of the overview: sites where they lie, coloured by carbon intensity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from markupsafe import Markup

from noonward.data.places import site_place
from noonward.data.site_map import Spot, site_map
from noonward.live.api.shown import SiteShown
from noonward.model.cluster.fleet import Fleet

CARBON_STEPS: Final = (
    ("#1a9850", "below 100"), ("#91cf60", "below 250"), ("#fdd35e", "below 450"), ("#fc8d59", "below 700"),
    ("#b2182b", "700 and more"), ("#8a929e", "unknown"),
)  # fmt: skip
"""Colours of carbon intensities, and what each stands for."""
_LIMITS: Final = (100.0, 250.0, 450.0, 700.0)


def places(fleet: Fleet) -> dict[str, tuple[float, float]]:
    """Returns latitude and longitude of the sites that have a place, or whose zone has one."""
    found = {site.name: site_place(site) for site in fleet.sites}
    return {name: place for name, place in found.items() if place is not None}


def colour(carbon_g_per_kwh: float | None) -> str:
    """Returns the colour of a carbon intensity.

    Example:
        >>> colour(35.0), colour(100.0), colour(None)
        ('#1a9850', '#91cf60', '#8a929e')
    """
    if carbon_g_per_kwh is None:
        return CARBON_STEPS[-1][0]
    return CARBON_STEPS[sum(carbon_g_per_kwh >= limit for limit in _LIMITS)][0]


def world_map(sites: Sequence[SiteShown], at: Mapping[str, tuple[float, float]]) -> Markup:
    """Returns the map, once for wide and once for narrow screens."""
    largest = max(site.gpus for site in sites)
    spots = [
        Spot(
            name=site.name, lat=at[site.name][0], lon=at[site.name][1], size=site.gpus / largest,
            color=colour(site.carbon_g_per_kwh), tip=_tip(site),
        )
        for site in sites
        if site.name in at
    ]  # fmt: skip
    drawn = (site_map(spots, width=width) for width in (920, 380))
    wide, narrow = (
        svg.replace("<svg", f'<svg class="{name}" aria-label="map of the sites"', 1)
        for name, svg in zip(("wide", "narrow"), drawn, strict=True)
    )
    return Markup(wide + narrow)


def _tip(site: SiteShown) -> str:
    price = "unknown" if site.price_usd_per_mwh is None else f"{site.price_usd_per_mwh:,.0f} USD/MWh"
    carbon = "unknown" if site.carbon_g_per_kwh is None else f"{site.carbon_g_per_kwh:,.0f} g/kWh"
    state = "does not answer" if not site.reachable else "drained" if site.drained else "open"
    busy = site.gpus - site.free - site.withheld
    return f"{site.name}: {price}, {carbon}, {busy} of {site.gpus} GPUs busy, {site.waiting} jobs wait, {state}"
