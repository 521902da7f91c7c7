"""Reports of what sites drew in grid events: report objects of OpenADR 3 for the VTN that told of the events."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from noonward.live.demand.settings import EventSettings
from noonward.live.demand.vtn import NAME, Vtn
from noonward.live.grid.sources import SourceError
from noonward.live.store.database import Connection, Row
from noonward.live.store.events import add_event
from noonward.live.store.store import Store
from noonward.model.cluster.fleet import Fleet
from noonward.units import DAY_S, MINUTE_S

REPORTED: Final = "grid event reported"
"""Kind of the service's event that says that a grid event was reported."""
LATE_S: Final = 1800.0
"""Time after an event's end after which it is reported: readings of its last intervals may come late."""
GIVEN_UP_S: Final = 2 * DAY_S
"""Time after an event's end after which it is not reported any more."""
_OVER: Final = """
SELECT * FROM grid_events WHERE cancelled_s IS NULL AND key LIKE ? AND end_s <= ? AND end_s > ? AND id NOT IN
(SELECT json_extract(data, '$.number') FROM events WHERE job IS NULL AND at_s > ? AND kind = ?) ORDER BY id
"""
_POWER: Final = "SELECT * FROM power WHERE site = ? AND from_s >= ? AND from_s < ? ORDER BY from_s"


class EventReports:
    """Reports the events of a VTN that are over, once each.

    Args:
        settings: What the configuration says, with ``openadr``.
        store: Store.
        fleet: Fleet of the scenario.
        modelled: Says whether nothing runs at a site; there, nothing that could be reported is drawn.

    Raises:
        ScenarioError: The VTN's address is neither HTTPS nor on this machine.
        FileError: The file with the secret cannot be read.
        MissingExtraError: The extra ``live`` is not installed.
    """

    def __init__(
        self, settings: EventSettings, store: Store, fleet: Fleet, modelled: Callable[[str | None], bool]
    ) -> None:
        self._settings, self._store, self._fleet, self._modelled = settings, store, fleet, modelled
        self._vtn = Vtn(settings, store.now_s, "reports of grid events")
        self._refused: set[int] = set()

    def step(self) -> None:
        """Sends the reports that are due; those that were refused before come last.

        Raises:
            SourceError: The VTN does not take one; it is sent again.
        """
        self._vtn.require_ready()
        store = self._store
        latest_s, earliest_s = store.now_s() - LATE_S, store.now_s() - GIVEN_UP_S
        over = store.read(_OVER, f"{NAME} %", latest_s, earliest_s, earliest_s, REPORTED)
        for row in sorted(over, key=lambda each: each["id"] in self._refused):
            if self._modelled(row["site"]):
                continue
            try:
                self._vtn.report(self.report(row))
            except SourceError:
                self._refused.add(row["id"])
                raise
            store.do(functools.partial(_note, row))

    def report(self, row: Row) -> dict[str, Any]:
        """Returns the report of an event: mean power of the site in each metering interval, and the baseline, kW."""
        site = self._fleet.sites[self._fleet.site_index(row["site"])]
        contract = self._settings.contract(site.name)
        assert site.meter is not None, "events are at sites with meters"
        interval_s = site.meter.interval_s
        begin_s = row["start_s"] // interval_s * interval_s
        kind = "MEAN"
        intervals: list[dict[str, Any]] = []
        for each in self._store.read(_POWER, site.name, begin_s, row["end_s"]):
            kw = each["measured_kw"]
            if kw is None:
                kind, kw = "ESTIMATED", each["estimated_kw"]
            if kw is not None:
                payloads = [{"type": "DEMAND", "values": [round(kw, 4)]}]
                payloads.append({"type": "BASELINE", "values": [round(row["baseline_kw"], 4)]})
                begin = (self._store.start + timedelta(seconds=each["from_s"])).strftime("%Y-%m-%dT%H:%M:%SZ")
                period = {"start": begin, "duration": f"PT{interval_s / MINUTE_S:g}M"}
                intervals.append({"id": len(intervals), "intervalPeriod": period, "payloads": payloads})
        return {
            "objectType": "REPORT",
            "eventID": row["key"].removeprefix(f"{NAME} ").removesuffix(f" {site.name}").rsplit(" ", 1)[0],
            "clientName": self._settings.client or "noonward",
            "reportName": f"{site.name}-{row['id']}",
            "payloadDescriptors": [
                {"objectType": "REPORT_PAYLOAD_DESCRIPTOR", "payloadType": each, "readingType": how, "units": "KW"}
                for each, how in (("DEMAND", kind), ("BASELINE", "MEAN"))
            ],
            "resources": [{"resourceName": site.name if contract is None else contract.target, "intervals": intervals}],
        }


def _note(row: Row, connection: Connection, now_s: float) -> None:
    """Notes that an event was reported, so that it is not again."""
    add_event(connection, now_s, None, REPORTED, {"site": row["site"], "number": row["id"]})
