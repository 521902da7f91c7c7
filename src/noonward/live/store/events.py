"""Events: what happened to jobs and sites, in the order in which it was stored; rows are added and never changed."""

from __future__ import annotations

import json
from collections.abc import Mapping

from noonward.live.store.database import Connection


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
        "INSERT INTO events (at_s, job, kind, data) VALUES (?, ?, ?, ?)", (at_s, job, kind, json.dumps(data))
    )
