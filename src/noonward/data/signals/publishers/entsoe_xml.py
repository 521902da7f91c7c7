"""ENTSO-E Transparency: day-ahead prices as the XML documents (A44) that its interface returns.

A curve of type A01 names every position; one of type A03 leaves out a position whose value is that of the one before,
also at the end of a period: such positions are filled, which is what the publisher means, and counted.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import polars as pl

from noonward.data.account import Account
from noonward.data.signals.publishers.entsoe_areas import zone_of_area
from noonward.data.signals.readings import ImportOptions, Readings, SignalFormat
from noonward.data.text_table import TextFile
from noonward.errors import DataError


def _recognises(file: TextFile) -> bool:
    return file.start.startswith("<") and "publicationdocument" in file.start.lower().replace("_market", "")


def _acknowledges(file: TextFile) -> bool:
    return file.start.startswith("<") and "acknowledgement" in file.start.lower()


def _read(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    if "<!DOCTYPE" in file.text or "<!ENTITY" in file.text:
        raise DataError(f"{file.name} defines a document type, which ENTSO-E's documents do not; export it again")
    try:
        root = ElementTree.fromstring(file.text)
    except ElementTree.ParseError as error:
        raise DataError(f"{file.name} is not valid XML ({error}); download it again") from error
    if _tag(root).startswith("Acknowledgement"):
        raise DataError(f"{file.name} is ENTSO-E's answer that it has no data for the request; ask for another period")
    series = [each for each in root.iter() if _tag(each) == "TimeSeries"]
    if not series:
        raise DataError(f"{file.name} holds no TimeSeries; download the day-ahead prices (document type A44)")
    rows: list[dict[str, Any]] = []
    filled = dropped = 0
    for each in series:
        sequence = _text(each, "classificationSequence_AttributeInstanceComponent.position") or "1"
        points = [point for point in each.iter() if _tag(point) == "Point"]
        if sequence != "1":
            dropped += len(points)
            continue
        found, more = _series_rows(each, file)
        rows += found
        filled += more
        account.rows_in += len(points)
    account.rows_in += dropped
    account.add("dropped", dropped, "prices of a second auction (sequence 2 and above)")
    account.add("filled", filled, "positions that an A03 curve leaves out: they repeat the value before")
    if not rows:
        raise DataError(f"{file.name} holds no price of the coupled auction (sequence 1); download another document")
    frame = pl.DataFrame(rows).with_columns(
        line=pl.lit(None, dtype=pl.Int64),
        carbon=pl.lit(None, dtype=pl.Float64),
        estimated=pl.lit(None, dtype=pl.Boolean),
    )
    account.add("read", frame.height, "day-ahead prices, UTC")
    return Readings(frame=frame, zone_of={area: zone_of_area(area) for area in frame["area"].unique()})


def _series_rows(series: ElementTree.Element, file: TextFile) -> tuple[list[dict[str, Any]], int]:
    """Returns the readings of a series and how many of them its curve leaves out."""
    area = _text(series, "out_Domain.mRID") or _text(series, "in_Domain.mRID") or ""
    currency = _text(series, "currency_Unit.name") or "EUR"
    unit = _text(series, "price_Measure_Unit.name") or "MWH"
    if unit != "MWH":
        raise DataError(f"{file.name}: prices per {unit!r}; documents with prices per MWH are read")
    curve = _text(series, "curveType") or "A01"
    rows: list[dict[str, Any]] = []
    filled = 0
    for period in (each for each in series.iter() if _tag(each) == "Period"):
        start, end = _instant(period, "start", file), _instant(period, "end", file)
        minutes = _minutes(_text(period, "resolution"), file)
        count = (end - start) // timedelta(minutes=minutes)
        given = _points(period, count, file)
        value = None
        for position in range(1, count + 1):
            if position in given:
                value = given[position]
            elif curve != "A03" or value is None:
                continue
            else:
                filled += 1
            stamp = start + timedelta(minutes=minutes * (position - 1))
            rows.append(
                {"stamp": stamp.replace(tzinfo=None), "area": area, "price": value, "currency": currency,
                 "minutes": minutes}
            )  # fmt: skip
    return rows, filled


def _points(period: ElementTree.Element, count: int, file: TextFile) -> dict[int, float]:
    """Returns the prices of a period by position."""
    given: dict[int, float] = {}
    for point in (each for each in period.iter() if _tag(each) == "Point"):
        position, amount = _text(point, "position"), _text(point, "price.amount")
        try:
            at, price = int(position or ""), float(amount or "")
        except ValueError:
            raise DataError(
                f"{file.name}: a point has position {position!r} and price {amount!r}; both must be numbers"
            ) from None
        if not 1 <= at <= count or at in given:
            raise DataError(f"{file.name}: position {at} stands twice or outside its period of {count}; download again")
        given[at] = price
    return given


def _tag(element: ElementTree.Element) -> str:
    """Returns an element's name without its name space, which differs between versions."""
    return element.tag.rpartition("}")[2]


def _text(element: ElementTree.Element, name: str) -> str | None:
    """Returns the text of the first element below of some name."""
    return next((each.text.strip() for each in element.iter() if _tag(each) == name and each.text), None)


def _instant(period: ElementTree.Element, name: str, file: TextFile) -> datetime:
    """Returns the start or end of a period."""
    interval = next((each for each in period.iter() if _tag(each) == "timeInterval"), None)
    text = None if interval is None else _text(interval, name)
    try:
        return datetime.strptime((text or "").rstrip("Z")[:16], "%Y-%m-%dT%H:%M").replace(tzinfo=UTC)
    except ValueError:
        raise DataError(
            f"{file.name}: a period has the {name} {text!r}; expected a time such as 2024-03-30T23:00Z"
        ) from None


def _minutes(resolution: str | None, file: TextFile) -> int:
    """Returns the length of a period's intervals."""
    match = re.fullmatch(r"PT(\d+)M", resolution or "")
    if match is None or int(match[1]) not in (5, 10, 15, 20, 30, 60):
        raise DataError(f"{file.name}: resolution {resolution!r}; expected PT60M, PT30M or PT15M")
    return int(match[1])


FORMAT = SignalFormat(
    name="entsoe-xml",
    title="ENTSO-E Transparency, day-ahead prices (XML, A44)",
    recognises=lambda file: _recognises(file) or _acknowledges(file),
    read=_read,
)
