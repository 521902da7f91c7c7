"""What a configuration says of grid events and of where the power of sites is measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from noonward.data.events import check_parts
from noonward.errors import ScenarioError, nearest
from noonward.live.grid.feeds.settings import URL
from noonward.model.cluster.scenario import Scenario
from noonward.model.cluster.stated_events import TargetContract
from noonward.model.spec import Positive, Spec


class MeterFeed(Spec):
    """Where the power of a site is read: a file, or an address that is asked over HTTP."""

    path: Path | None = None
    """CSV file with the columns ``time`` and ``kw``, a row per reading, which holds until the next; it is read again
    when it has changed. Give it or ``url``."""
    url: str | None = Field(default=None, pattern=URL)
    """Address of such a file, or of a Prometheus server."""
    query: str | None = None
    """Query of which Prometheus returns one value, with ``url``, e.g. ``sum(pdu_watts{site="texas"})``; none: the
    address returns a CSV file."""
    unit: Literal["kW", "W", "MW"] = "kW"
    """Unit of the readings."""
    timezone: str | None = None
    """Clock of times without an offset: an IANA name, or an offset such as +01:00; left out: they must have one."""
    key_file: Path | None = None
    """File with a bearer token alone, for ``url``."""
    quota_per_hour: Annotated[int, Field(ge=1)] = 1200
    """Requests an hour that are sent at most."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.url is None):
            raise ValueError("give either path or url")
        if self.path is not None and (self.query is not None or self.key_file is not None):
            raise ValueError("query and key_file go with url; leave them out beside path")
        return self

    @property
    def kw_per_unit(self) -> float:
        """Power of a unit of the readings, kW."""
        return {"kW": 1.0, "W": 0.001, "MW": 1000.0}[self.unit]

    @property
    def title(self) -> str:
        """Where readings come from, for pages and messages."""
        return str(self.path or self.url)


class EventSettings(Spec):
    """Where grid events come from, beside operators, and what contracts say of them."""

    openadr: str | None = Field(default=None, pattern=URL)
    """Base address of a VTN of OpenADR 3 that is asked for events, e.g. ``https://vtn.example.com/openadr3/3.1.0``."""
    client: str | None = None
    """Client id at the VTN; none: it is asked anonymously."""
    secret_file: Path | None = None
    """File with the client's secret alone."""
    token_url: str | None = Field(default=None, pattern=URL)
    """Where tokens are issued; none: the VTN says it."""
    scope: str = ""
    """Scopes to ask for, separated by spaces."""
    program: str | None = None
    """Id of the program whose events are wanted; none: all."""
    targets: tuple[str, ...] = ()
    """Targets that events must name."""
    reports: bool = False
    """Whether the VTN is told what a site drew in its events, half an hour after each has ended."""
    path: Path | None = None
    """File of events, as a scenario takes it (``EventFile``); it is read again when it has changed."""
    timezone: str | None = None
    """Clock of its times without an offset."""
    contracts: tuple[TargetContract, ...] = ()
    """What event objects of OpenADR do not say, and the defaults for events that operators call, by site."""
    poll_s: Positive = 60.0
    """How often they are asked for, s."""
    quota_per_hour: Annotated[int, Field(ge=1)] = 600
    """Requests an hour that are sent to the VTN at most."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.openadr is not None and self.path is not None:
            raise ValueError("give openadr or path, and not both")
        if (self.client is None) != (self.secret_file is None):
            raise ValueError("client and secret_file go together; give both or neither")
        if self.openadr is None and (self.client is not None or self.token_url is not None or self.reports):
            raise ValueError("client, token_url and reports go with openadr; leave them out")
        objects = self.openadr is not None or (self.path is not None and self.path.suffix == ".json")
        if objects and not self.contracts:
            raise ValueError("events of OpenADR need contracts, which say what they do not: one per site")
        twice = [each.site for each in self.contracts]
        for site in twice:
            if twice.count(site) > 1:
                raise ValueError(f"site {site!r} has two contracts; give one")
        return self

    def contract(self, site: str) -> TargetContract | None:
        """Returns the contract of a site, or None."""
        return next((each for each in self.contracts if each.site == site), None)


def check_demand(
    scenario: Scenario, events: EventSettings | None, meters: Mapping[str, MeterFeed], source: str
) -> None:
    """Raises ScenarioError where grid events or meters do not fit a scenario.

    Args:
        scenario: The service's scenario.
        events: What is said of events; None: there are none.
        meters: Feeds by site.
        source: Name of the configuration, for messages.
    """
    known = scenario.fleet.site_names
    named = [("meters", site) for site in meters]
    named += [("events.contracts", each.site) for each in (() if events is None else events.contracts)]
    for key, site in named:
        if site not in known:
            raise ScenarioError(f"{source}: {key} names the unknown site {site!r}; {nearest(site, known)}")
        if scenario.fleet.sites[scenario.fleet.site_index(site)].meter is None:
            raise ScenarioError(
                f"{source}: {key} names {site}, which has no meter in the scenario; give it one, e.g. "
                "meter: {interval_min: 5}"
            )
    if events is None:
        return
    if scenario.protocol != "each-slot":
        raise ScenarioError(
            f"{source}: events need a scenario of protocol each-slot, not {scenario.protocol}; leave events out, or "
            "choose another scenario"
        )
    if all(site.meter is None for site in scenario.fleet.sites):
        raise ScenarioError(
            f"{source}: events are for sites with a meter, and no site of scenario {scenario.name!r} has one; give "
            "a site e.g. meter: {interval_min: 5}"
        )
    check_parts(scenario.slot_s)
