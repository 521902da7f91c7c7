"""Figures for Prometheus, in its text format."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np

from noonward import __version__
from noonward.live.api.exposition import Exposition, labels
from noonward.live.api.watched import RequestCounts
from noonward.live.controller import Controller
from noonward.live.demand.shown import meter_list
from noonward.live.store.schema import ENDED, IS_OPEN, OPEN
from noonward.live.store.sqlite import SqliteFile

_EVENTS: Final = "SELECT max(id) AS last, kind, count(*) AS n FROM events WHERE id > ? GROUP BY kind"
_HANDOVER: Final = """
SELECT count(*) AS n, min(j.start_s) AS first FROM outbox o JOIN jobs j ON j.token = o.token
WHERE o.site = ? AND o.stage IN ('queued', 'intent', 'placed')
"""
_OF_RUNNING: Final = ("suspended", "suspension refused", "capped", "uncapped", "power cap refused", "resume decided")
"""Events of running jobs that are counted."""
_TO_CONFIRM: Final = """
SELECT count(*) AS n FROM outbox o JOIN jobs j ON j.token = o.token
WHERE o.site = ? AND (o.stage IN ('stopping', 'resuming') OR (o.stage = 'released' AND o.cap <> o.cap_wanted))
"""
_AGAIN, _STRAY = "queued again", "stray cancelled"
_QUANTILES: Final = (0.5, 0.9, 0.99)
"""Of the time of a round of decisions."""


class Figures:
    """What a service tells Prometheus. Counters begin at 0 when it starts.

    Args:
        controller: Controller of the service.
        requests: Requests that were answered.
    """

    def __init__(self, controller: Controller, requests: RequestCounts) -> None:
        self._controller, self._requests = controller, requests
        self._lock = threading.Lock()
        self._happened: Counter[str] = Counter()
        self._last_event = int(controller.store.read("SELECT coalesce(max(id), 0) AS n FROM events")[0]["n"])

    def exposition(self) -> str:
        """Returns the figures as Prometheus reads them."""
        lines = Exposition()
        self._service(lines)
        self._jobs(lines)
        self._sites(lines)
        self._grid(lines)
        self._requests.show(lines)
        self._process(lines)
        return lines.text

    def _service(self, lines: Exposition) -> None:
        controller = self._controller
        mode = "shadow" if controller.setup.runs_nothing else "live"
        said = labels(version=__version__, mode=mode, policy=controller.policy)
        lines.add("info", "gauge", "What runs.", {said: 1.0})
        beats = {labels(loop=name): float(beat.failures) for name, beat in controller.heartbeats.items()}
        lines.add("loop_failures", "gauge", "Failures in a row of each loop.", beats)
        late = 0 if controller.keeper is None else controller.keeper.late_h()
        lines.add("signals_late_hours", "gauge", "Hours of zones that something stands in for.", {"": late})
        if taken := controller.decision_s[-1000:]:
            p99_s = float(np.percentile(taken, 99))
            lines.add("decision_p99_seconds", "gauge", "99th percentile of the last decisions.", {"": p99_s})
            rounds_s = controller.round_s[-1000:]
            by_quantile = {labels(quantile=f"{q:g}"): float(np.quantile(rounds_s, q)) for q in _QUANTILES}
            lines.add("round_seconds", "gauge", "Time of a round of decisions, over the last 1,000.", by_quantile)
        store = controller.store
        lines.add("store_commits_total", "counter", "Commits of the store.", {"": store.commits})
        if isinstance(store.database, SqliteFile):
            size = sum(file.stat().st_size for file in _files(store.path) if file.exists())
            lines.add("store_bytes", "gauge", "Size of the store's files.", {"": size})

    def _jobs(self, lines: Exposition) -> None:
        store, happened = self._controller.store, self._happened_so_far()
        counted = store.read(f"SELECT state, count(*) AS n FROM jobs WHERE {IS_OPEN} GROUP BY state")
        found = {row["state"]: row["n"] for row in counted}
        by_state = {labels(state=state): found.get(state, 0) for state in OPEN}
        lines.add("jobs", "gauge", "Jobs that have not ended, by state.", by_state)
        last = store.read("SELECT coalesce(max(id), 0) AS n FROM jobs")[0]["n"]
        lines.add("jobs_submitted_total", "counter", "Jobs submitted.", {"": last})
        decided = store.read("SELECT coalesce(max(id), 0) AS n FROM decisions")[0]["n"]
        lines.add("decisions_total", "counter", "Decisions stored.", {"": decided})
        ended = {labels(state=state): happened[state] for state in ENDED}
        lines.add("jobs_ended_total", "counter", "Jobs that have ended, by state.", ended)
        bent = {labels(what=kind): happened[kind] for kind in _OF_RUNNING}
        lines.add("running_jobs_total", "counter", "What was done with running jobs.", bent)
        again, strays = {"": happened[_AGAIN]}, {"": happened[_STRAY]}
        lines.add("jobs_again_total", "counter", "Jobs queued again after a site failed under them.", again)
        lines.add("strays_cancelled_total", "counter", "Held jobs of a crash that were cancelled.", strays)

    def _happened_so_far(self) -> Counter[str]:
        """Returns how often what is counted has happened; only events since the last call are read."""
        with self._lock:
            for row in self._controller.store.read(_EVENTS, self._last_event):
                if row["kind"] in (*ENDED, *_OF_RUNNING, _AGAIN, _STRAY):
                    self._happened[row["kind"]] += row["n"]
                self._last_event = max(self._last_event, row["last"])
            return self._happened.copy()

    def _sites(self, lines: Exposition) -> None:
        controller, store = self._controller, self._controller.store
        with controller.lock:
            values_of = {field: controller.world.view.site_S[field].tolist() for field in _OF_SITES}
        for field, words in _OF_SITES.items():
            values = zip(controller.setup.sites, values_of[field], strict=True)
            lines.add(f"site_{field}", "gauge", words, {labels(site=name): v for name, v in values if v == v})
        rows = store.read("SELECT name, reachable, drained, dispatch, withheld FROM sites ORDER BY name")
        for column, name, words in (
            ("reachable", "site_reachable", "1 if the cluster answers."),
            ("drained", "site_drained", "1 if the site is drained."),
            ("dispatch", "site_dispatch", "1 if jobs are handed to the cluster."),
            ("withheld", "site_withheld_gpus", "GPUs not for the service."),
        ):
            lines.add(name, "gauge", words, {labels(site=row["name"]): row[column] for row in rows})
        now_s = store.now_s()
        waiting = {name: store.read(_HANDOVER, name)[0] for name in controller.setup.sites}
        counts = {labels(site=name): row["n"] for name, row in waiting.items()}
        lines.add("site_handover_waiting", "gauge", "Decided jobs that are not handed over yet.", counts)
        wanted = {name: store.read(_TO_CONFIRM, name)[0] for name in controller.setup.sites}
        counts = {labels(site=name): row["n"] for name, row in wanted.items()}
        lines.add(
            "site_actions_waiting", "gauge", "Stops, resumptions and caps that the cluster has not confirmed.", counts
        )
        ages = {
            labels(site=name): 0.0 if row["first"] is None else max(0.0, now_s - row["first"])
            for name, row in waiting.items()
        }
        lines.add("site_handover_oldest_seconds", "gauge", "Time since the first of them was to start.", ages)

    def _grid(self, lines: Exposition) -> None:
        """Adds the power of metered sites, what grid events allow, and how often a target was missed."""
        power: dict[str, float] = {}
        limits: dict[str, float] = {}
        missed: dict[str, float] = {}
        for meter in meter_list(self._controller):
            for by, kw in (("measured", meter.measured_kw), ("estimated", meter.estimated_kw)):
                if kw is not None:
                    power[labels(site=meter.site, by=by)] = kw
            if meter.limit_kw is not None:
                limits[labels(site=meter.site)] = meter.limit_kw
            missed[labels(site=meter.site)] = meter.missed
        lines.add("site_power_kw", "gauge", "Power of the site, measured and estimated from running jobs.", power)
        lines.add("site_target_kw", "gauge", "Power that a grid event allows now; none without one.", limits)
        lines.add("event_missed_total", "counter", "Metering intervals that missed the target of a grid event.", missed)

    def _process(self, lines: Exposition) -> None:
        lines.add("process_cpu_seconds_total", "counter", "CPU time.", {"": time.process_time()})
        status = Path("/proc/self/statm")
        if status.is_file():
            resident = int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            lines.add("process_resident_bytes", "gauge", "Memory of the process.", {"": resident})
            lines.add("process_open_files", "gauge", "Open files.", {"": len(list(Path("/proc/self/fd").iterdir()))})


_OF_SITES: Final = {
    "free": "GPUs free by the books.",
    "waiting": "Jobs that wait.",
    "price": "Price of the hour, USD/MWh.",
    "carbon": "Carbon intensity of the hour, g/kWh.",
}


def _files(path: Path) -> list[Path]:
    """Returns the files of a SQLite database."""
    return [path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")]
