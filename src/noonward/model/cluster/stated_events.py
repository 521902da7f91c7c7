"""Grid events as a scenario states them: a list, a file of them, or a distribution to draw them from."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from noonward.model.cluster.event import GridEvent, SiteEvent
from noonward.model.cluster.meter import Kilowatts
from noonward.model.spec import LARGEST, NonNegative, Share, Spec
from noonward.units import HOUR_S, MINUTE_S

LONGEST_H = 24.0
"""Longest event, h: a measured baseline looks at the same hours of other days."""


def _in_utc(time: datetime) -> datetime:
    """Returns a time in UTC; one without an offset is taken for UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


class Contract(Spec):
    """What holds for every event at a site's meter."""

    site: str
    """Site, which needs a meter with a tariff."""
    notice_min: Annotated[float, Field(ge=0, le=14 * 1440)] = 0.0
    """How long before its begin it is announced, min; no policy knows of it before."""
    baseline_kw: Kilowatts
    """Power that the site is expected to draw, kW: the limit falls from it."""
    baseline: Literal["firm", "high-4-of-5"] = "firm"
    """What the energy that is left out counts from: ``firm``: ``baseline_kw``; ``high-4-of-5``: the mean power in the
    same hours of the four highest of the five days before of the same kind (weekdays or weekend) without an event,
    adjusted by what the day itself drew more in the hours from 4 to 1 before."""
    ramp_min: NonNegative = 15.0
    """Time over which the limit falls from the baseline to the target, min."""
    usd_per_mwh: NonNegative = 0.0
    """Payment for a MWh that is left out."""
    penalty_usd_per_mwh: NonNegative = 0.0
    """Penalty for a MWh that was asked and is drawn."""


class EventTerms(Contract):
    """What an event asks of a site's meter and what it pays."""

    hours: Annotated[float, Field(gt=0, le=LONGEST_H)] = 3.0
    """Length, h."""
    target_kw: Annotated[float, Field(ge=0, le=LARGEST)] | None = None
    """Power to stay at or below, kW; give it or ``cut``."""
    cut: Share | None = None
    """The same as the share of ``baseline_kw`` that is left out."""

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.target_kw is None) == (self.cut is None):
            raise ValueError(f"an event at {self.site!r} needs target_kw or cut, and not both")
        if self.target_kw is not None and self.target_kw > self.baseline_kw:
            raise ValueError(
                f"target_kw {self.target_kw:g} of an event at {self.site!r} is above its baseline_kw, "
                f"{self.baseline_kw:g}; give at most that"
            )
        if self.ramp_min >= 60 * self.hours:
            raise ValueError(
                f"ramp_min {self.ramp_min:g} of an event at {self.site!r} is not shorter than its {self.hours:g} h; "
                "give less"
            )
        return self

    def at(self, start_s: float, past_s: tuple[float, ...] = ()) -> SiteEvent:
        """Returns the event that begins at a time.

        Args:
            start_s: Its begin, seconds since the run's.
            past_s: Begins of the same hours on the days that its baseline is measured on; none: it is firm.
        """
        target_kw = self.target_kw if self.cut is None else (1.0 - self.cut) * self.baseline_kw
        assert target_kw is not None, "one of both is given"
        return SiteEvent(
            site=self.site,
            event=GridEvent(
                start_s=start_s,
                end_s=start_s + self.hours * HOUR_S,
                notice_s=self.notice_min * MINUTE_S,
                baseline_kw=self.baseline_kw,
                target_kw=target_kw,
                ramp_s=self.ramp_min * MINUTE_S,
                usd_per_mwh=self.usd_per_mwh,
                penalty_usd_per_mwh=self.penalty_usd_per_mwh,
                past_s=past_s,
            ),
        )


class StatedEvent(EventTerms):
    """An event with its time."""

    start: Annotated[datetime, AfterValidator(_in_utc)] | None = None
    """Begin, UTC unless it has an offset; events outside a window are left out of it. Give it or ``start_h``."""
    start_h: NonNegative | None = None
    """Begin, hours after that of every window."""

    @model_validator(mode="after")
    def _one_begin(self) -> Self:
        if (self.start is None) == (self.start_h is None):
            raise ValueError(f"an event at {self.site!r} needs start or start_h, and not both")
        return self


class TargetContract(Contract):
    """The contract of a site whose events are told by OpenADR."""

    openadr_target: str | None = None
    """Name by which the events' targets mean the site; none: the site's own."""

    @property
    def target(self) -> str:
        """Name by which targets mean the site."""
        return self.openadr_target or self.site


class EventFile(Spec):
    """A file of events."""

    path: Path
    """CSV file with a row per event: ``site``, ``time`` (its begin) and any other key of an event as a column. Or a
    JSON file with the event objects of OpenADR 3, as a VTN returns them, beside ``contracts``."""
    timezone: str | None = None
    """Clock of times without an offset: an IANA name, or an offset such as +01:00; left out: they must have one."""
    contracts: tuple[TargetContract, ...] = ()
    """What OpenADR events do not say, per site that they may be for."""

    @model_validator(mode="after")
    def _contracts_beside_objects(self) -> Self:
        if (self.path.suffix == ".json") != bool(self.contracts):
            raise ValueError(
                f"{self.path} {'needs' if self.path.suffix == '.json' else 'takes no'} contracts: they say what event "
                "objects of OpenADR (.json) do not"
            )
        return self


class DrawnEvents(Spec):
    """A law that events are drawn by: at most one a day, on each day with the same probability.

    The draw depends on the seed and the environment's number alone, never on the policy.
    """

    per_week: Annotated[float, Field(gt=0, le=7)]
    """Mean number of days with an event per week; at most 5 with ``days: weekdays``."""
    days: Literal["all", "weekdays"] = "all"
    """Days that may have one."""
    first_hour: Annotated[int, Field(ge=0, le=23)] = 14
    """Earliest hour, UTC, that an event begins in."""
    last_hour: Annotated[int, Field(ge=0, le=23)] = 20
    """Latest hour, UTC; every hour from the first to it is equally likely."""
    sites: tuple[EventTerms, ...] = Field(min_length=1)
    """What is asked, of all these sites at once."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.last_hour < self.first_hour:
            raise ValueError(f"last_hour {self.last_hour} is before first_hour {self.first_hour}; swap them")
        if self.days == "weekdays" and self.per_week > 5:
            raise ValueError(f"per_week {self.per_week:g} with days: weekdays; there are 5 of them")
        return self


def _form(said: object) -> str:
    """Returns which form of events is stated, so that an error is about that form alone."""
    if isinstance(said, EventFile) or (isinstance(said, dict) and "path" in said):
        return "file"
    return "drawn" if isinstance(said, dict | DrawnEvents) else "listed"


Events = Annotated[
    Annotated[tuple[StatedEvent, ...], Tag("listed")]
    | Annotated[EventFile, Tag("file")]
    | Annotated[DrawnEvents, Tag("drawn")],
    Discriminator(_form),
]


def asked_sites(events: Events) -> tuple[str, ...]:
    """Returns the sites that a scenario's events name; none for a file, which is not read here."""
    listed = events.sites if isinstance(events, DrawnEvents) else () if isinstance(events, EventFile) else events
    return tuple(dict.fromkeys(each.site for each in listed))
