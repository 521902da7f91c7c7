"""A job's segments: when it ran, stopped, was suspended and loaded, read from what is stored of it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from noonward.live.store.database import Row
from noonward.live.store.store import Store
from noonward.live.world.bending import CAP_DECIDED, RESUME_DECIDED, SUSPEND_DECIDED

KINDS = (
    "start decided", "running", SUSPEND_DECIDED, "suspended", "suspension refused", RESUME_DECIDED, CAP_DECIDED,
    "capped", "uncapped", "queued again",
)  # fmt: skip
"""Events that begin or end a segment."""


class Segment(msgspec.Struct, kw_only=True):
    """A part of a job's life. Times are s since the service's start."""

    kind: str
    """``run``; ``stop``: it was told to stop and holds its GPUs; ``dark``: it is suspended and holds none; ``load``: it
    was resumed and has not begun."""
    site: str | None
    gpus: int
    power: float
    """Share of full power under its cap; 1 without one."""
    from_s: float
    to_s: float | None
    """None: it lasts."""


def segments_of(row: Row, events: Sequence[Row], modelled: bool) -> list[Segment]:
    """Returns the segments of a job's last attempt, in the order of time; none before it is started.

    Args:
        row: The stored job.
        events: Its events in the order of their numbers.
        modelled: Whether nothing runs, so that what is decided happens.
    """
    found: list[Segment] = []

    def turn(kind: str, at_s: float, **other: int | float) -> None:
        """Ends the last segment and begins another."""
        last = found[-1] if found else None
        if last is not None:
            if last.to_s is None:
                last.to_s = max(at_s, last.from_s)
            if last.to_s == last.from_s:
                found.pop()
        gpus = int(other.get("gpus", last.gpus if last else row["gpus"]))
        power = float(other.get("power", last.power if last and kind == last.kind else 1.0))
        found.append(Segment(kind=kind, site=row["site"], gpus=gpus, power=power, from_s=at_s, to_s=None))

    for event in events:
        said, kind, at_s = json.loads(event["data"]), event["kind"], event["at_s"]
        if kind == "queued again":
            found.clear()
        elif kind == "start decided":
            turn("run", at_s, gpus=said["gpus"])
        elif kind == SUSPEND_DECIDED:
            turn("stop", at_s)
        elif kind == "suspended" and found:
            turn("dark", at_s)
        elif kind == RESUME_DECIDED:
            turn("load", at_s, gpus=said["gpus"])
        elif (kind == "running" and found and found[-1].kind == "load") or (kind == "suspension refused" and found):
            turn("run", max(said.get("began_s", at_s), found[-1].from_s))
        elif kind == (CAP_DECIDED if modelled else "capped") and found and found[-1].kind == "run":
            turn("run", at_s, power=said["power"])
        elif kind == "uncapped" and found and found[-1].kind == "run" and not modelled:
            turn("run", at_s, power=1.0)
    if found and row["ended_s"] is not None:
        found[-1].to_s = max(row["ended_s"], found[-1].from_s)
    return found


BENT = (SUSPEND_DECIDED, CAP_DECIDED)
"""Events that only jobs have of which something was done while they ran."""


def bent_jobs(store: Store, from_s: float) -> set[int]:
    """Returns the jobs that were suspended or capped since a time."""
    marks = ", ".join("?" * len(BENT))
    rows = store.read(f"SELECT DISTINCT job FROM events WHERE at_s >= ? AND kind IN ({marks})", from_s, *BENT)
    return {row["job"] for row in rows}


def stored_segments(store: Store, job: int, modelled: bool) -> list[Segment]:
    """Returns the segments of a stored job."""
    marks = ", ".join("?" * len(KINDS))
    (row,) = store.read("SELECT * FROM jobs WHERE id = ?", job)
    events = store.read(f"SELECT * FROM events WHERE job = ? AND kind IN ({marks}) ORDER BY id", job, *KINDS)
    return segments_of(row, events, modelled)
