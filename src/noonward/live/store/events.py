"""Events: what happened to jobs and sites, in the order in which it was stored; rows are added and never changed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from noonward.live.store.database import Connection


def as_json(data: object) -> str:
    """Returns details as JSON text; numbers of arrays are numbers."""
    return msgspec.json.encode(data, enc_hook=_number).decode()


def _number(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"an event holds a {type(value).__name__}; it may hold numbers, text, lists and mappings")


def add_event(connection: Connection, at_s: float, job: int | None, kind: str, data: Mapping[str, object]) -> None:
    """Adds an event, within a change of the store.

    Args:
        connection: The store's, as a change is given it.
        at_s: When it happened, s since the service's start.
        job: Number of the job it is of; None: of none.
        kind: What happened.
        data: Details, as JSON takes them.
    """
    connection.execute(
        "INSERT INTO events (at_s, job, kind, data) VALUES (?, ?, ?, ?)", (at_s, job, kind, as_json(data))
    )
