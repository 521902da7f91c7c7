"""What a service tells its scheduler of run times, in place of those that users state: limits, means, or learned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from noonward.live.known_jobs import KnownJobs, MetJob, StatedTimes
from noonward.live.names import Names, told_of
from noonward.live.shadow.watcher import facts
from noonward.live.store.database import Connection, Row
from noonward.live.store.store import Store
from noonward.live.world.seats import Arrival
from noonward.model.cluster.knowledge import CANCELLED, DONE, FAILED, RUNNING
from noonward.units import HOUR_S

STATE: Final = "run times"
"""Name of the table ``meta`` under which stands when was learned last, and what is learned of the order of ends."""
_CAUSE_OF: Final = {
    "done": DONE, "gone": DONE, "failed": FAILED, "lost": FAILED, "node-failed": FAILED, "cancelled": CANCELLED,
}  # fmt: skip
"""How a job ended, by its state here or at a cluster that is watched."""
_AT_ONCE: Final = 500
"""Numbers of jobs that one query names."""


def _met(row: Row, names: Names) -> MetJob:
    """Returns what is known of a job of the store when it arrives."""
    asked = json.loads(row["request"])
    class_ = names.classes.index(row["class"])
    return MetJob(class_, row["gpus_max"], row["run_by"], row["name"], asked.get("time_limit_s"))


class RunTimeTeller:
    """Tells limits or class means of what arrives.

    Args:
        stated: What says them.
        names: Names of the fleet.
    """

    def __init__(self, stated: StatedTimes, names: Names) -> None:
        self._stated, self._names = stated, names

    def tell(self, rows: Sequence[Row], arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Returns jobs that arrive, each with what the scheduler is told of its work.

        Args:
            rows: Their rows in the store.
            arrivals: The jobs, in the order of their arrival.
        """
        told = self._stated.told([_met(row, self._names) for row in rows])
        return [one if one.told else one._replace(told=each) for one, each in zip(arrivals, told, strict=True)]


class RunTimeLearner:
    """Learns from what ends in a service, and estimates what arrives, as a simulation does (``EstimateIssuer``).

    Once an hour in which a job arrives, it learns from the jobs that have ended by then and from how long the others
    have been running. Of a watched job, what counts is what happened at its cluster. After a restart the same is
    learned again from the store.

    Args:
        known: Jobs of the log; those of the service are added.
        store: Store.
        names: Names of the fleet.
    """

    def __init__(self, known: KnownJobs, store: Store, names: Names) -> None:
        self.known, self.store, self.names = known, store, names
        self._row_of: dict[int, int] = {}
        self._told: dict[int, tuple[float, ...]] = {}
        self._hour = -1.0
        met = store.read("SELECT * FROM jobs WHERE told IS NOT NULL ORDER BY arrival_s, id")
        self._meet([row for row in met if names.know(row)])
        learned = store.value(STATE)
        if learned is not None:
            at_s, *score = json.loads(learned)
            self._hour = at_s // HOUR_S
            self._learn(at_s)
            known.model.score = (score[0], score[1], score[2])

    def tell(self, rows: Sequence[Row], arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Does the same as ``RunTimeTeller.tell``."""
        out = []
        for row, one in zip(rows, arrivals, strict=True):
            if not one.told and one.job not in self._told:
                hour = one.arrival_s // HOUR_S
                if hour != self._hour:
                    self._hour = hour
                    self._learn(one.arrival_s)
                    self._keep(one.arrival_s)
                (self._told[one.job],) = self.known.told(self._meet([row]))
            out.append(one if one.told else one._replace(told=self._told[one.job]))
        return out

    def _meet(self, rows: Sequence[Row]) -> Any:
        """Returns the rows of jobs of the store that are met for the first time."""
        met = []
        for row in rows:
            met.append(_met(row, self.names))
            if told := told_of(row):
                self._told[row["id"]] = told
        places = self.known.meet(met)
        self._row_of |= {row["id"]: place for row, place in zip(rows, places.tolist(), strict=True)}
        return places

    def _learn(self, now_s: float) -> None:
        """Learns from the jobs that have been running by a time; those that have ended are not looked at again."""
        places, works, causes = [], [], []
        for row in self._open_rows():
            start_s, end_s, state, unit_s = self._ran(row)
            over = row["ended_s"] is not None if start_s is None else end_s is not None and end_s <= now_s
            if start_s is not None and start_s <= now_s:
                places.append(self._row_of[row["id"]])
                works.append((min(now_s, end_s or now_s) - start_s) / unit_s)
                causes.append(_CAUSE_OF.get(state, DONE) if over else RUNNING)
            if over:
                del self._row_of[row["id"]]
                self._told.pop(row["id"], None)
        if places:
            self.known.model.end(np.array(places), np.array(works), np.array(causes))

    def _open_rows(self) -> list[Row]:
        """Returns the jobs that have not been learned from to their ends, in the order of their arrival."""
        numbers = list(self._row_of)
        rows: list[Row] = []
        for first in range(0, len(numbers), _AT_ONCE):
            part = numbers[first : first + _AT_ONCE]
            marks = ", ".join("?" * len(part))
            rows += self.store.read(f"SELECT * FROM jobs WHERE id IN ({marks})", *part)
        self._facts = facts(self.store, numbers)
        found = {row["id"] for row in rows}
        for gone in [number for number in numbers if number not in found]:
            del self._row_of[gone]  # it was deleted with what is kept no longer
        return sorted(rows, key=lambda row: (row["arrival_s"], row["id"]))

    def _ran(self, row: Row) -> tuple[float | None, float | None, str, float]:
        """Returns when a job began and ended (None: not yet), its last state, and how long a unit of work took, s."""
        fact = self._facts.get(row["id"])
        class_ = self.names.classes.index(row["class"])
        if fact is not None:
            unit_s = self.known.unit_s(self.names.site(fact["site"]), class_, fact["gpus"], None)
            return fact["start_s"], fact["end_s"], fact["state"], unit_s
        if row["start_s"] is None or not self.names.know(row):
            return None, None, row["state"], 1.0
        begin_s = row["start_s"] if row["began_s"] is None else row["began_s"]
        unit_s = self.known.unit_s(self.names.site(row["site"]), class_, row["gpus"], row["level"])
        return begin_s, row["ended_s"], row["state"], unit_s

    def _keep(self, at_s: float) -> None:
        """Stores when was learned last, before anything is told that rests on it."""
        learned = json.dumps([at_s, *self.known.model.score])

        def change(connection: Connection, now_s: float) -> None:
            self.store.keep(connection, {STATE: learned})

        self.store.do(change)
