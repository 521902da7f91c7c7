"""Grid events of an environment: read from files, placed in the window, or drawn; and prices in parts of hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np
from pydantic import ValidationError

from noonward.data.clock import stated_times
from noonward.data.openadr import read_openadr
from noonward.data.text_table import read_text_file
from noonward.errors import DataError, ScenarioError
from noonward.model.cluster.event import ADJUST_FROM_S, SiteEvent, check_events
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.scenario import Scenario
from noonward.model.cluster.site_prices import calendar_of
from noonward.model.cluster.stated_events import DrawnEvents, EventFile, EventTerms, StatedEvent
from noonward.model.signals import Signals
from noonward.seeding import stream
from noonward.units import DAY_S, HOUR_S

PARTS: Final = 12
"""Parts of an hour in which running jobs are asked about where there are events: five minutes each."""
INTERVAL_S: Final = HOUR_S / PARTS
DAYS: Final = 5
"""Days that a measured baseline looks at."""


def with_stated_events(scenario: Scenario) -> Scenario:
    """Returns a scenario in which a file of events is read: its events stand in its place.

    Raises:
        DataError: As ``read_events`` or, of a JSON file, ``read_openadr``.
        ScenarioError: An event is at an unknown site, or at one without a meter and a tariff.
    """
    if not isinstance(scenario.events, EventFile):
        return scenario
    file = scenario.events
    events = read_openadr(file) if file.path.suffix == ".json" else read_events(file)
    try:
        scenario.check_asked(each.site for each in events)
    except ValueError as error:
        raise ScenarioError(f"{scenario.events.path}: {error}") from None
    return scenario.model_copy(update={"events": events})


def read_events(file: EventFile) -> tuple[StatedEvent, ...]:
    """Reads the events of a file: a row each, with the column ``time`` for the begin.

    Raises:
        DataError: The file cannot be read, has an unknown column, or a row states no possible event.
    """
    table = read_text_file(file.path).table()
    time_E = stated_times(table, file.timezone, "the time at which an event begins")
    time = table.column("time")
    found = []
    for row, begin in zip(table.frame.iter_rows(named=True), time_E, strict=True):
        line = row.pop("line")
        said = {name: value for name, value in row.items() if name != time and value not in (None, "")}
        try:
            found.append(StatedEvent(**said, start=begin))
        except ValidationError as error:
            first = error.errors()[0]
            where = f"column {first['loc'][0]!r}: " if first["loc"] else ""
            message = first["msg"].removeprefix("Value error, ")
            raise DataError(f"{table.name}, line {line}: {where}{message}; its columns are those of an event") from None
    return tuple(found)


def events_of(scenario: Scenario, start: datetime, index: int, seed: int) -> tuple[SiteEvent, ...]:
    """Returns the events of an environment, those that lie wholly in its window, by site and begin.

    Args:
        scenario: Scenario, its file of events read.
        start: UTC time of second 0.
        index: Number of the environment.
        seed: Seed; stream ``world`` with ``events`` and the number.

    Raises:
        ScenarioError: Events of a site overlap, one begins a stated number of hours after the window's end, or fewer
            than five days before one can measure its baseline.
    """
    assert not isinstance(scenario.events, EventFile), "files are read where scenarios are loaded"
    window_s = scenario.window_h * HOUR_S
    placed: list[tuple[EventTerms, float]] = []
    if isinstance(scenario.events, DrawnEvents):
        begins_s = drawn_begins(scenario.events, start, window_s, index, seed)
        placed = [(terms, begin_s) for begin_s in begins_s for terms in scenario.events.sites]
    else:
        for each in scenario.events:
            if each.start is not None:
                placed.append((each, (each.start - start).total_seconds()))
                continue
            assert each.start_h is not None, "one of both is given"
            if (each.start_h + each.hours) * HOUR_S > window_s:
                raise ScenarioError(
                    f"the event at {each.site!r} that begins {each.start_h:g} h after the window's begin and lasts "
                    f"{each.hours:g} h does not end in the window of {scenario.window_h} h; begin it earlier"
                )
            placed.append((each, each.start_h * HOUR_S))
    inside = sorted(
        ((terms, begin_s) for terms, begin_s in placed if begin_s >= 0 and begin_s + terms.hours * HOUR_S <= window_s),
        key=lambda each: (each[0].site, each[1]),
    )
    check_events([terms.at(begin_s) for terms, begin_s in inside], scenario.fleet.site_names)
    return tuple(
        terms.at(begin_s, () if terms.baseline == "firm" else past_days(scenario.fleet, start, terms, begin_s, inside))
        for terms, begin_s in inside
    )


def drawn_begins(law: DrawnEvents, start: datetime, window_s: float, index: int, seed: int) -> tuple[float, ...]:
    """Returns when drawn events begin, seconds since the start.

    Args:
        law: The law.
        start: UTC time of second 0.
        window_s: Length of the window, s.
        index: Number of the environment.
        seed: Seed.
    """
    rng = stream(seed, "world", "events", index)
    chance = law.per_week / (5 if law.days == "weekdays" else 7)
    begins_s = []
    for day in range(int(window_s // DAY_S)):
        called, hour = rng.random() < chance, int(rng.integers(law.first_hour, law.last_hour + 1))
        working = (start + timedelta(days=day)).weekday() < 5
        if called and (working or law.days == "all"):
            begins_s.append(day * DAY_S + hour * HOUR_S)
    return tuple(begins_s)


def past_days(
    fleet: Fleet, start: datetime, terms: EventTerms, begin_s: float, events: Sequence[tuple[EventTerms, float]]
) -> tuple[float, ...]:
    """Returns the begins of the same hours on the five days before of the same kind without an event at the site.

    Args:
        fleet: Fleet; the site has a time zone.
        start: UTC time of second 0, a full hour.
        terms: Site and length of the event.
        begin_s: Its begin, s.
        events: Terms and begins of other events.

    Raises:
        ScenarioError: There are fewer such days after second 0.
    """
    s = fleet.site_index(terms.site)
    calendar = calendar_of(fleet, s, start, begin_s + HOUR_S, HOUR_S, int(begin_s // HOUR_S) + 1)
    others = [(other_s, other_s + each.hours * HOUR_S) for each, other_s in events if each.site == terms.site]
    found: list[float] = []
    past_s = begin_s - DAY_S
    while past_s >= ADJUST_FROM_S and len(found) < DAYS:
        same = calendar.weekend_N[int(past_s // HOUR_S)] == calendar.weekend_N[int(begin_s // HOUR_S)]
        end_s = past_s + terms.hours * HOUR_S
        if same and not any(from_s < end_s and past_s < until_s for from_s, until_s in others):
            found.append(past_s)
        past_s -= DAY_S
    if len(found) < DAYS:
        raise ScenarioError(
            f"the baseline of the event at {terms.site!r} at hour {begin_s / HOUR_S:g} is measured on {DAYS} days of "
            f"the same kind before it, without an event; the window holds {len(found)}: let it begin earlier, or state "
            "baseline: firm"
        )
    return tuple(found)


def in_parts(signals: Signals) -> Signals:
    """Returns signals that hold for five minutes each: running jobs are asked about as often; values stay the same."""
    parts = {
        (name, zone): np.repeat(signals.by_part(name, zone, 1)[:, None], PARTS, axis=1)
        if (name, zone) not in signals.parts
        else signals.by_part(name, zone, PARTS).reshape(-1, PARTS)
        for name in signals.value_ZH
        for zone in signals.zones
    }
    return replace(signals, parts=parts)


def check_parts(slot_s: float) -> None:
    """Raises ScenarioError if slots do not fit the five minutes in which running jobs are asked about.

    Args:
        slot_s: Length of a slot, s.
    """
    if INTERVAL_S % slot_s and slot_s % INTERVAL_S:
        raise ScenarioError(
            f"slots last {slot_s:g} s; events are played in slots that divide {INTERVAL_S:g} s, or whole multiples of "
            "it"
        )
