"""What a day-ahead plan may know of the jobs to come: classes and hourly load, from sampled tables of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.decision.brief import Brief
from noonward.model.cluster.fleet import FleetTables
from noonward.model.cluster.jobs import Jobs
from noonward.schedule.plan.classes import LoadClass
from noonward.units import HOUR_S

DAY_H: Final = 24
"""Submission hours of a plan, unless the window is shorter; also the longest flexibility a plan uses, h."""

WEEK_H: Final = 7 * DAY_H
"""Hours that a service's samples cover, h; they repeat."""
ROUNDING_H: Final = 1e-9
"""A run longer than whole hours by less than this takes those hours."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Sampled load of a run's job classes. Axes: N samples, H hours of arrival, C classes, S sites.

    Attributes:
        classes: The fleet's job classes: range, the whole hours that every sampled job may be delayed, and the hours
            that the longest of them runs, rounded up.
        load_NHC: GPUs that arrive in each hour, each for the hours its class runs: GPU-hours over those hours.
        watts_S: Facility power that a GPU at work adds to a free one, W, the mean over the load.
        shortest_h_C: Shortest run time of a sampled job, h.
        repeats: Whether the samples are weeks that come again and again: those of a service, which has no last hour.
    """

    classes: tuple[LoadClass, ...]
    load_NHC: F8
    watts_S: F8
    shortest_h_C: F8
    repeats: bool = False

    @classmethod
    def of(cls, brief: Brief, drawn: Sequence[Jobs]) -> Workload:
        """Returns the workload of sampled tables of jobs.

        A job's GPU-hours and run time are the means over the sites it may run at, with its largest gang and the clock
        of least energy.

        Args:
            brief: Where they run.
            drawn: Tables of jobs, one a sample; of a service (infinite window) a week each.
        """
        fleet = brief.fleet
        tables = fleet.tables(max(int(jobs.gpus_max_J.max()) for jobs in drawn))
        count, repeats = len(fleet.classes), bool(np.isinf(brief.window_s))
        last_s = max(brief.window_s, *(float(jobs.arrival_s_J[-1]) + 1.0 for jobs in drawn))
        hours = WEEK_H if repeats else int(np.ceil(last_s / HOUR_S))
        load_NHC = np.zeros((len(drawn), hours, count))
        slack_s_C, shortest_h_C, longest_h_C = np.full(count, np.inf), np.full(count, np.inf), np.zeros(count)
        watts_S, total = np.zeros(len(fleet.sites)), 0.0
        for n, jobs in enumerate(drawn):
            gpu_hours_J, run_h_J, watts_JS = footprint(jobs, tables)
            np.add.at(load_NHC[n], ((jobs.arrival_s_J / HOUR_S).astype(np.int64), jobs.class_J), gpu_hours_J)
            np.minimum.at(slack_s_C, jobs.class_J, jobs.slack_s_J)
            np.maximum.at(longest_h_C, jobs.class_J, run_h_J)
            np.minimum.at(shortest_h_C, jobs.class_J, run_h_J)
            watts_S += gpu_hours_J @ watts_JS
            total += float(gpu_hours_J.sum())
        flexibility_C = np.minimum(np.floor(slack_s_C / HOUR_S), DAY_H).astype(np.int64)
        run_h_C = np.maximum(np.ceil(longest_h_C - ROUNDING_H), 1.0).astype(np.int64)
        classes = tuple(
            LoadClass(
                name=name,
                clusters=tuple(np.flatnonzero(row).tolist()),
                flexibility_h=int(flexibility),
                run_hours=int(run_hours),
            )
            for name, row, flexibility, run_hours in zip(
                fleet.classes, tables.range_CS, flexibility_C, run_h_C, strict=True
            )
        )
        return cls(
            classes=classes,
            load_NHC=load_NHC / run_h_C,
            watts_S=watts_S / total,
            shortest_h_C=shortest_h_C,
            repeats=repeats,
        )

    def state(self) -> dict[str, Any]:
        """Returns the workload as plain data, for ``of_state``."""
        return {
            "classes": [[c.name, list(c.clusters), c.flexibility_h, c.run_hours] for c in self.classes],
            "load_NHC": self.load_NHC.copy(),
            "watts_S": self.watts_S.copy(),
            "shortest_h_C": self.shortest_h_C.copy(),
            "repeats": self.repeats,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Workload:
        """Returns the workload of a ``state``."""
        classes = (
            LoadClass(name=name, clusters=tuple(clusters), flexibility_h=flexibility_h, run_hours=run_hours)
            for name, clusters, flexibility_h, run_hours in state["classes"]
        )
        arrays = {name: np.array(state[name]) for name in ("load_NHC", "watts_S", "shortest_h_C")}
        return cls(classes=tuple(classes), repeats=bool(state["repeats"]), **arrays)

    @property
    def reach_h(self) -> int:
        """Hours after its hour of arrival in which load may still run."""
        return max(one.reach_h for one in self.classes)

    def days(self, first_hour: int, hours: int) -> F8:
        """Returns the samples of some hours, (N, hours, C); nothing arrives after the last one, unless they repeat."""
        if self.repeats:
            return self.load_NHC[:, (first_hour + np.arange(hours)) % self.load_NHC.shape[1]]
        known = self.load_NHC[:, first_hour : first_hour + hours]
        out: F8 = np.zeros((len(known), hours, known.shape[2]))
        out[:, : known.shape[1]] = known
        return out


def footprint(jobs: Jobs, tables: FleetTables) -> tuple[F8, F8, F8]:
    """Returns GPU-hours and run time of jobs, h, and the power a GPU at work adds at every site, W, (J, S).

    Args:
        jobs: Jobs.
        tables: The fleet, with gangs of all sizes the jobs may have.
    """
    site_S = np.arange(len(tables.gpus_S))
    gang_JS = np.minimum(jobs.gpus_max_J[:, None], tables.gpus_S)
    class_JS = np.broadcast_to(jobs.class_J[:, None], gang_JS.shape)
    level_JS = tables.oracle_level_SCG[site_S, class_JS, gang_JS]
    spot = (site_S, class_JS, gang_JS, level_JS)
    run_h_JS = jobs.work_J[:, None] * tables.seconds_per_unit_SCGF[spot] / HOUR_S
    fits_JS = (tables.range_CS[jobs.class_J] == 1) & (jobs.gpus_min_J[:, None] <= tables.gpus_S)
    places_J = fits_JS.sum(axis=1)
    run_h_J: F8 = (run_h_JS * fits_JS).sum(axis=1) / places_J
    gpu_hours_J: F8 = (gang_JS * run_h_JS * fits_JS).sum(axis=1) / places_J
    watts_JS: F8 = tables.pue_S * (tables.power_w_SCGF[spot] / gang_JS - tables.free_w_S)
    return gpu_hours_J, run_h_J, watts_JS
