"""What every feed says: which calls give the hours of an area, and how their replies are read."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

import polars as pl

from noonward.data.account import Account
from noonward.data.signals.readings import ImportOptions, Readings, SignalFormat
from noonward.data.text_table import TextFile
from noonward.errors import DataError

Basis = Literal["average", "marginal"]
"""What an intensity says: of all plants that run, or of those that would run more."""
Get = Callable[["Call"], str]
"""Asks a publisher and returns the text of its reply."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request to a publisher.

    Attributes:
        path: Path after the address.
        query: Its parameters.
        headers: Its headers.
        user: Name and password, where they are asked for.
        forecast: Whether the reply holds what the publisher expects, not what was.
        form: Fields that are posted; None: the address is only read.
        content: Text that is posted; None: none is.
    """

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    user: tuple[str, str] | None = None
    forecast: bool = False
    form: Mapping[str, str] | None = None
    content: str | None = None


class Feed(ABC):
    """A publisher.

    Args:
        key: Its key, or None where it needs none; ``NAME:PASSWORD`` where it asks for both.
    """

    title: ClassVar[str]
    """What it is, as it is shown beside its values."""
    url: ClassVar[str]
    """Its public address."""
    quantity: ClassVar[Literal["price", "carbon"]]
    basis: ClassVar[Basis | None] = None
    """Of intensities: average or marginal; None where it depends on how the publisher is set up."""
    quota_per_hour: ClassVar[int] = 600
    """Requests an hour that are sent at most."""
    needs_key: ClassVar[bool] = False
    day_ahead: ClassVar[bool] = False
    """Whether its hours are known for good before they begin."""

    def __init__(self, key: str | None = None) -> None:
        self.key = key or ""

    @abstractmethod
    def calls(self, area: str, start: datetime, until: datetime, now: datetime, get: Get) -> list[Call]:
        """Returns the requests for the hours of an area.

        Args:
            area: Its name at the publisher.
            start: First hour, UTC.
            until: End of the last hour; it may lie ahead.
            now: Current time, UTC.
            get: Asks the publisher, where a request needs what another one answers.
        """

    def forget(self) -> None:  # noqa: B027
        """Throws away what an earlier reply gave for later requests, such as a token: a request was refused."""

    @abstractmethod
    def readings(self, reply: TextFile, area: str, account: Account) -> Readings:
        """Returns what a reply says.

        Raises:
            DataError: It cannot be read.
        """


def imported(kind: SignalFormat, reply: TextFile, account: Account) -> Readings:
    """Returns what a reply says that has the shape of a file which ``noonward import`` reads."""
    if not kind.recognises(reply):
        raise DataError(f"{reply.name}: the reply is no {kind.title}: {reply.start[:80]!r}")
    return kind.read(reply, ImportOptions(), account)


def json_of(reply: TextFile) -> Any:
    """Returns the JSON of a reply.

    Raises:
        DataError: It is none.
    """
    try:
        return json.loads(reply.text)
    except ValueError as error:
        raise DataError(f"{reply.name}: the reply is not JSON ({error}): {reply.start[:80]!r}") from error


@dataclass
class Rows:
    """Readings of a reply in JSON or XML, one after another.

    Args:
        reply: The reply, for messages.
        area: Area that all of them are of.
    """

    reply: TextFile
    area: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self, time: str, value: object, *, price: str | None = None, estimated: bool = False, minutes: int | None = 60
    ) -> None:
        """Adds a reading; one without a value is unknown and left out.

        Args:
            time: Start of its interval, ISO 8601 with its zone.
            value: Price (currency/MWh) or carbon intensity (g/kWh).
            price: Currency; None: the value is a carbon intensity.
            estimated: Whether the publisher may still correct it.
            minutes: Length of its interval.

        Raises:
            DataError: Time or value are none, or an intensity is negative.
        """
        if value is None:
            return
        try:
            stamp = datetime.fromisoformat(str(time))
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise DataError(f"{self.reply.name}: {time!r} has the value {value!r}; expected a time and a number") from (
                error
            )
        if stamp.tzinfo is None:
            raise DataError(f"{self.reply.name}: the time {time!r} has no zone")
        if number != number or abs(number) > 1e6 or (price is None and number < 0):
            raise DataError(f"{self.reply.name}: the value {value!r} at {time} is impossible")
        utc = (stamp - stamp.utcoffset()).replace(tzinfo=None)  # type: ignore[operator]
        self.rows.append(
            {
                "line": None, "area": self.area, "stamp": utc, "price": number if price else None,
                "carbon": None if price else number, "currency": price or "USD", "estimated": estimated,
                "minutes": minutes,
            }
        )  # fmt: skip

    def readings(self) -> Readings:
        """Returns the readings, as the cleaner of imported files takes them."""
        frame = pl.DataFrame(
            self.rows,
            schema={
                "line": pl.Int64, "area": pl.String, "stamp": pl.Datetime("us"), "price": pl.Float64,
                "carbon": pl.Float64, "currency": pl.String, "estimated": pl.Boolean, "minutes": pl.Int64,
            },
        )  # fmt: skip
        if frame["minutes"].is_null().all():
            frame = frame.drop("minutes")
        return Readings(frame=frame)


def reply_file(text: str, name: str) -> TextFile:
    """Returns a reply as the readers of imported files take it."""
    return TextFile(path=Path(name), text=text.removeprefix("\ufeff"), encoding="utf-8")
