"""Grid events from OpenADR 3: the event objects that a VTN returns, as JSON, with a site's contract beside them.

An event states ``intervals`` with ``payloads``; of those, ``IMPORT_CAPACITY_LIMIT`` is the power that a site may draw,
kW. A start and a duration are those of the interval's ``intervalPeriod``, or follow from the event's. An event is known
from its ``createdDateTime`` on. It is for the sites that its ``targets`` name, or for all where it names none.
Objects of OpenADR 3.0 (targets with type and values) and 3.1 (names) are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import ValidationError

from noonward.data.text_table import read_text_file
from noonward.errors import DataError
from noonward.model.cluster.stated_events import EventFile, StatedEvent, TargetContract

LIMIT: Final = "IMPORT_CAPACITY_LIMIT"
"""Type of the payload that is read: power that may be imported, kW."""
_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def duration_of(text: str) -> timedelta:
    """Returns an ISO 8601 duration of weeks, days, hours, minutes and seconds.

    Raises:
        ValueError: It is none, is 0, or counts months or years, whose length is not fixed.

    Example:
        >>> duration_of("PT1H30M").total_seconds()
        5400.0
    """
    found = _DURATION.fullmatch(text)
    length = timedelta(**{unit: float(value) for unit, value in found.groupdict(default="0").items()} if found else {})
    if length <= timedelta(0):
        raise ValueError(f"duration {text!r} is none of weeks, days, hours, minutes or seconds, such as PT3H")
    return length


def read_openadr(file: EventFile) -> tuple[StatedEvent, ...]:
    """Reads the events of an OpenADR file for the sites whose contracts it is given with.

    Args:
        file: A JSON file with an event object or a list of them, as ``GET /events`` of a VTN returns it, and contracts.

    Raises:
        DataError: The file is no such JSON, a time, duration or limit is none, or no event limits power.
    """
    text = read_text_file(file.path)
    said = text.json("save what GET /events of a VTN returns: a list of event objects")
    found = tuple(stated_objects(said if isinstance(said, list) else [said], file.contracts, text.name).values())
    if not found:
        names = ", ".join(each.target for each in file.contracts)
        raise DataError(
            f"{text.name}: no event states {LIMIT} for {names}; give events with that payload, or name the target of a "
            "site's contract"
        )
    return found


def stated_objects(
    objects: Sequence[Any], contracts: Sequence[TargetContract], name: str, *, created: bool = True
) -> dict[tuple[str, int, str], StatedEvent]:
    """Returns the events that event objects state, by the object's id, the number of the interval, and the site.

    Args:
        objects: What ``GET /events`` of a VTN returned.
        contracts: Contracts of the sites that they may be for.
        name: Where they are from, for messages.
        created: Whether an event's notice follows from when it was created; otherwise it has that of the contract.

    Raises:
        DataError: One is no event object, or a time, duration or limit is none.
    """
    found: dict[tuple[str, int, str], StatedEvent] = {}
    for number, each in enumerate(objects):
        where = f"{name}, event {number}"
        if not isinstance(each, Mapping):
            raise DataError(f"{where} is {type(each).__name__}, no event object; give a list of event objects")
        where += f" ({each.get('eventName') or each.get('id') or 'without a name'})"
        try:
            for interval, event in _events(each, contracts, created=created):
                found[str(each.get("id", number)), interval, event.site] = event
        except ValidationError as error:
            message = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise DataError(f"{where}: {message}") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            said_wrong = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise DataError(f"{where}: {said_wrong}; see the event object of OpenADR 3") from None
    return found


def _events(
    said: Mapping[str, Any], contracts: Sequence[TargetContract], *, created: bool
) -> list[tuple[int, StatedEvent]]:
    """Returns the events that one object states: one for each of its intervals with a limit, and each site.

    Each comes with the number of its interval, of those with a limit.
    """
    targets = _targets(said.get("targets") or [])
    mine = [each for each in contracts if not targets or each.target in targets]
    found = []
    for interval, (start, length, limit_kw) in enumerate(_limits(said)):
        known = said.get("createdDateTime") if created else None
        for contract in mine:
            terms = contract.model_dump(exclude={"openadr_target"})
            if known is not None:
                terms["notice_min"] = max((start - _time(known)).total_seconds() / 60, 0.0)
            hours = length.total_seconds() / 3600
            found.append((interval, StatedEvent(**terms, start=start, hours=hours, target_kw=limit_kw)))
    return found


def _limits(said: Mapping[str, Any]) -> list[tuple[datetime, timedelta, float]]:
    """Returns begin, length and limit, kW, of each interval of an event that limits power."""
    scale = _kw_per_unit(said.get("payloadDescriptors") or [])
    whole = {key: value for key, value in (said.get("intervalPeriod") or {}).items() if value is not None}
    begin = _time(whole["start"]) if "start" in whole else None
    found = []
    for interval in said["intervals"]:
        own = {key: value for key, value in (interval.get("intervalPeriod") or {}).items() if value is not None}
        period = {**whole, **own}
        start = _time(period["start"]) if begin is None or "start" in own else begin
        length = duration_of(period["duration"])
        limits = [float(each["values"][0]) for each in interval["payloads"] if each["type"] == LIMIT]
        if limits:
            found.append((start, length, scale * limits[0]))
        begin = start + length
    return found


def _targets(said: Sequence[Any]) -> set[str]:
    """Returns the names that targets hold: texts (3.1), or mappings with values (3.0)."""
    return {str(name) for each in said for name in (each["values"] if isinstance(each, Mapping) else [each])}


def _kw_per_unit(descriptors: Sequence[Mapping[str, Any]]) -> float:
    """Returns how many kW the unit of limits is; kW where an event states none."""
    known = {"KW": 1.0, "W": 0.001, "MW": 1000.0}
    units = [str(each.get("units") or "KW") for each in descriptors if each.get("payloadType") == LIMIT]
    unit = units[0].upper() if units else "KW"
    if unit not in known:
        raise ValueError(f"the unit of {LIMIT} is {unit!r}, not one of {', '.join(known)}")
    return known[unit]


def _time(text: str) -> datetime:
    """Returns a time in UTC.

    Raises:
        ValueError: It is none, or has no offset.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"time {text!r} has no offset; OpenADR's times are such as 2025-05-03T23:00:00Z")
    return time.astimezone(UTC)
