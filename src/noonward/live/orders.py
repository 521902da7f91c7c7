"""Rows of the store that say what clusters are asked to run, and how an attempt ends there."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from noonward.live.executors.protocol import Order
from noonward.live.names import told_of
from noonward.live.store.database import Connection, Row
from noonward.live.store.events import add_event
from noonward.live.terms import Terms

ORDERS: Final = """
SELECT o.token, o.stage, o.handle, o.tries, j.id, j.name, j.request, j.gpus, j.run_s, j.start_s, j.state, j.cancelling,
       j.attempt, j.retries, j.began_s, j.serial, j.reason, j.work, j.told, j.resumed_s, j.finish_s, j.class, j.owner,
       o.gpus AS gpus_before, o.wish_s, o.signalled_s, o.cap, o.cap_wanted, o.nodes
FROM outbox o JOIN jobs j ON j.token = o.token
"""


def order_of(row: Row, handle: str | None = None) -> Order:
    """Returns what a site's cluster is asked to run, of a row of ``ORDERS``; its handle, where that is newer."""
    asked = json.loads(row["request"])
    return Order(
        token=row["token"],
        job=row["id"],
        name=row["name"],
        command=asked.get("command", ""),
        gpus=row["gpus"],
        run_s=stated_run_s(row),
        start_s=row["start_s"] if row["resumed_s"] is None else row["resumed_s"],
        finish_s=row["finish_s"],
        gpus_before=row["gpus_before"],
        nodes=row["nodes"] or "",
        handle=row["handle"] if handle is None else handle,
        terms=msgspec.convert(asked, Terms),
        owner=row["owner"],
    )


def stated_run_s(row: Row) -> float:
    """Returns how long a started job runs by the work that was stated for it, whatever its scheduler was told, s."""
    told = told_of(row)
    return float(row["work"] * (row["run_s"] / told[1]) if told else row["run_s"])


def end(
    connection: Connection, now_s: float, job: int, state: str, ended_s: float, code: int | None, reason: str
) -> None:
    """Ends a job."""
    connection.execute(
        "UPDATE jobs SET state = ?, ended_s = ?, exit_code = ?, reason = ? WHERE id = ?",
        (state, ended_s, code, reason, job),
    )
    add_event(connection, now_s, job, state, {"ended_s": ended_s, "exit_code": code, "reason": reason})


def set_stage(connection: Connection, token: str, stage: str) -> None:
    """Sets where an attempt stands."""
    connection.execute("UPDATE outbox SET stage = ? WHERE token = ?", (stage, token))
