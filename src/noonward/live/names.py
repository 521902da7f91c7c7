"""Between the store, whose rows name sites, classes and ingress points, and the books, which number them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Final, Self

import msgspec

from noonward.errors import ScenarioError
from noonward.live.states import STATES
from noonward.live.store.database import Connection, Row
from noonward.live.store.schema import IS_OPEN
from noonward.live.store.store import Store
from noonward.live.world.seats import Arrival
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.tenant import Tenants


def told_of(row: Row) -> tuple[float, ...]:
    """Returns what the scheduler is told of a stored job's work (``Arrival.told``)."""
    return tuple(json.loads(row["told"])) if row["told"] else ()


_names: Final = msgspec.json.Decoder(list[str])
_OPEN_JOBS = f"""
SELECT site, pinned, origin, class, min(id) AS first, count(*) AS n FROM jobs
WHERE {IS_OPEN} GROUP BY site, pinned, origin, class
"""


@dataclass(frozen=True)
class Names:
    """The names of a fleet, in the order of its numbers.

    Attributes:
        sites: Sites.
        classes: Classes of jobs.
        ingress: Ingress points.
        tenants: Tenants; None where none are stated.
    """

    sites: tuple[str, ...]
    classes: tuple[str, ...]
    ingress: tuple[str, ...]
    tenants: Tenants | None = None

    @classmethod
    def of(cls, fleet: Fleet, tenants: Tenants | None = None) -> Self:
        """Returns the names of a fleet and of its tenants."""
        return cls(fleet.site_names, fleet.classes, tuple(point.name for point in fleet.ingress_points), tenants)

    def site(self, name: str | None) -> int:
        """Returns the number of a site; -1 for none, and for one that the fleet does not have."""
        return self.sites.index(name) if name in self.sites else -1

    def know(self, row: Row) -> bool:
        """Returns whether the fleet has all that a stored job names: where it is, where it came from, its class."""
        at_home = row["site"] is None or row["site"] in self.sites
        return at_home and row["origin"] in self.ingress and row["class"] in self.classes

    def arrival(self, row: Row) -> Arrival:
        """Returns a stored job, whose names the fleet has, as an arrival."""
        return Arrival(
            job=row["id"],
            attempt=row["attempt"],
            arrival_s=row["arrival_s"],
            origin=self.ingress.index(row["origin"]),
            class_=self.classes.index(row["class"]),
            gpus_min=row["gpus_min"],
            gpus_max=row["gpus_max"],
            work=row["work"],
            max_delay_s=math.inf if row["max_delay_s"] is None else row["max_delay_s"],
            move_gb=row["move_gb"],
            result_gb=row["result_gb"],
            held=bool(row["held"]),
            pinned=self.site(row["pinned"]),
            vetoed=frozenset(self.site(name) for name in _names.decode(row["vetoed"]) if name in self.sites),
            told=told_of(row),
            tenant=self.tenant(row["run_by"]),
            priority=row["priority"],
        )

    def tenant(self, user: str) -> int:
        """Returns the number of a user's tenant; 0 where no tenants are stated."""
        return 0 if self.tenants is None else self.tenants.index(user or None)

    def as_text(self) -> str:
        """Returns the names as text, equal for fleets whose numbers mean the same."""
        tenants = [] if self.tenants is None else [self.tenants.names]
        return json.dumps([self.sites, self.classes, self.ingress, *tenants])


def take_fleet(store: Store, names: Names) -> None:
    """Notes the fleet that a service has from now on; forgets what earlier ones left that is kept by number.

    The state of a scheduler, capacity curves and forecasts are of the fleet they were made for.

    Args:
        store: Store.
        names: Names of the fleet.

    Raises:
        ScenarioError: A job that has not ended names a site, a class or an ingress point that the fleet lacks.
    """
    known = (("site", names.sites), ("pinned", names.sites), ("origin", names.ingress), ("class", names.classes))
    for row in store.read(_OPEN_JOBS):
        for what, allowed in known:
            if row[what] is not None and row[what] not in allowed:
                words = {"site": "are at site", "pinned": "are pinned to site", "origin": "come from ingress point",
                         "class": "are of class"}[what]  # fmt: skip
                raise ScenarioError(
                    f"{row['n']} jobs that have not ended, such as {row['first']}, {words} {row[what]!r}, which the "
                    "scenario does not have any more; put it back (drain a site to have its jobs leave it) until they "
                    "have ended or are cancelled"
                )
    if store.value("fleet") == names.as_text():
        return
    marks = ", ".join("?" * len(names.sites))

    def change(connection: Connection, now_s: float) -> None:
        connection.execute(f"DELETE FROM sites WHERE name NOT IN ({marks})", names.sites)
        connection.execute(f"DELETE FROM meta WHERE {STATES}")
        for table in ("curves", "forecasts"):
            connection.execute(f"DELETE FROM {table}")
        store.keep(connection, {"fleet": names.as_text()})

    store.do(change)
