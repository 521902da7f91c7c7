"""A service to try out: three local sites, time that runs faster, packaged signals, and jobs that keep coming."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

import numpy as np

from noonward.data.jobs.generate import build_jobs
from noonward.data.scenarios.load import scenario_from
from noonward.errors import NoonwardError
from noonward.live.config import LiveConfig, checked_config
from noonward.live.controller import Controller
from noonward.live.demand.settings import EventSettings
from noonward.live.requests import JobRequest, RequestChecker
from noonward.live.store.submit import submission
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.scenario import Scenario
from noonward.seeding import stream
from noonward.units import DAY_H, DAY_S

SPEED: Final = 600.0
"""Seconds of the demo per real second: a day takes 2.4 minutes."""
POLICY: Final = "booked-persistence"
_SCENARIO: Final = {
    "name": "demo",
    "description": "Three small sites and about 200 fine-tuning jobs a day.",
    "protocol": "each-slot",
    "slot_s": 300,
    "window_h": DAY_H,
    "end": "drained",
    "baseline": "local-fcfs",
    "fleet": {
        "gpu_types": {
            "T4-class": {
                "idle_w": 8,
                "classes": {"fine-tuning": {"power": {"constant_w": 80}, "time": "duration"}},
            }
        },
        "sites": [
            {"name": name, "zone": zone, "gpu_type": "T4-class", "gpus": gpus, "pue": pue, "meter": {"interval_min": 5}}
            for name, zone, gpus, pue in (
                ("toronto", "CA-ON", 24, 1.1),
                ("warsaw", "PL", 32, 1.4),
                ("singapore", "SG", 24, 1.2),
            )
        ],
        "freedoms": {"fine-tuning": {"interruptible": True}},
    },
    "network": {"throughput_gb_per_min": 1, "usd_per_gb": 0.01, "kwh_per_gb": 0.005},
    "signals": {"source": "generated", "year": 2022},
    "jobs": {
        "source": "fine-tuning",
        "count": 200,
        "origin_shares": {"toronto": 1, "warsaw": 2, "singapore": 1},
        "gpus_cap": 8,
        "demand": 0.5,
        "slack_ratio": 10.0,
        "kinds": {
            "text-generation": {
                "share": 1, "data": {"low_gb": 1, "high_gb": 5}, "model": {"low_gb": 0.2, "high_gb": 2},
            }
        },
    },
    "economics": {"revenue_usd_per_gpu_hour": 0.05, "carbon_usd_per_t": 100},
}  # fmt: skip


def demo_config(folder: Path, port: int, policy: str | None = None) -> tuple[LiveConfig, Scenario]:
    """Returns the demo's configuration and scenario.

    Args:
        folder: Folder of its store and jobs.
        port: Port; 0: any that is free.
        policy: Policy; None: the demo's own.
    """
    content = {
        "scenario": "tiny",
        "policy": policy or POLICY,
        "folder": str(folder),
        "sites": {"north": {"executor": "local"}, "south": {"executor": "local"}},
        "largest_gang": 16,
        "poll_s": 120,
    }
    config, _ = checked_config(content, "the demo", Path())
    scenario: Scenario = scenario_from(_SCENARIO, "the demo")
    sites = dict.fromkeys(scenario.fleet.site_names, config.sites["north"])
    changes = {"scenario": "demo", "sites": sites, "port": port, "folder": folder, "events": EventSettings()}
    return config.model_copy(update=changes), scenario


class Submitter:
    """Submits generated jobs as their time comes, day after day; each runs ``sleep`` for its run time.

    Args:
        controller: Controller of the service.
        speed: Speed of its clock.
    """

    def __init__(self, controller: Controller, speed: float) -> None:
        self.controller, self._speed = controller, speed
        scenario = controller.setup.scenario
        self._scenario = scenario
        self._checker = RequestChecker(scenario.fleet, controller.setup.config.largest_gang)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Submits nothing more."""
        self._stop.set()
        self._thread.join()

    def jobs_of(self, day: int) -> Jobs:
        """Returns the jobs of a day, the same each time."""
        scenario = self._scenario
        return build_jobs(
            scenario.jobs,
            scenario.fleet,
            self.controller.setup.start,
            DAY_H,
            scenario.slot_s,
            stream(0, "workload", day),
        )

    def _run(self) -> None:
        store = self.controller.store
        rows = store.read("SELECT coalesce(max(submitted_s), 0) AS last FROM jobs")
        after_s = max(float(rows[0]["last"]), store.now_s())
        day = int(after_s // DAY_S)
        while not self._stop.is_set():
            jobs = self.jobs_of(day)
            for j in range(len(jobs)):
                at_s = day * DAY_S + float(jobs.arrival_s_J[j])
                if at_s <= after_s:
                    continue
                if self._stop.wait(max(0.0, (at_s - store.now_s()) / self._speed)):
                    return
                try:
                    store.do(submission([self._checker.row(self._request(jobs, j, day))]))
                except NoonwardError as error:
                    logging.getLogger("noonward.live").warning("demo: %s", error)
            day += 1

    def _request(self, jobs: Jobs, j: int, day: int) -> JobRequest:
        fleet, run_s = self._scenario.fleet, float(jobs.work_J[j])
        return JobRequest(
            name=f"tune-{day}-{j}",
            command=f"sleep {run_s / self._speed:.4f}",
            work=run_s,
            origin=fleet.ingress_points[int(jobs.origin_J[j])].name,
            gpus_min=int(jobs.gpus_min_J[j]),
            gpus_max=int(jobs.gpus_max_J[j]),
            max_delay_s=None if np.isinf(jobs.slack_s_J[j]) else float(jobs.slack_s_J[j]),
            data_gb=float(jobs.data_gb_J[j]),
            model_gb=float(jobs.model_gb_J[j]),
            result_gb=float(jobs.result_gb_J[j]),
            key=f"demo-{day}-{j}",
        )
