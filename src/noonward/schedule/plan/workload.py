"""What a day-ahead plan may know of the jobs to come: classes and hourly load, from sampled tables of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from noonward.arrays import F8, I8
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
RUN_STEPS_H: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 36, 48, 72, 96, 144, 192, 288, 384, 576, 768)
"""Run times of the parts that a class of mixed run times is planned in, h; a job counts with the next one up."""
SLACK_STEPS_H: Final = (0, 1, 2, 4, 8, 16, 24)
"""Delays of these parts, h; a job counts with the next one down."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Sampled load of a run's job classes. Axes: N samples, H hours of arrival, C planned classes, S sites.

    A class of the fleet is planned as one, unless its jobs run for different numbers of whole hours. Then it is planned
    in parts, by run time and by the delay that jobs allow (``RUN_STEPS_H``, ``SLACK_STEPS_H``).

    Attributes:
        classes: What is planned: range, the whole hours that every sampled job may be delayed, and the hours that the
            longest of them runs, rounded up.
        load_NHC: GPUs that arrive in each hour, each for the hours its class runs: GPU-hours over those hours.
        watts_S: Facility power that a GPU at work adds to a free one, W, the mean over the load.
        fleet_class_C: Class of the fleet that each is, or is a part of.
        repeats: Whether the samples are weeks that come again and again: those of a service, which has no last hour.
    """

    classes: tuple[LoadClass, ...]
    load_NHC: F8
    watts_S: F8
    fleet_class_C: I8
    repeats: bool = False

    @classmethod
    def of(cls, brief: Brief, drawn: Sequence[Jobs], like: Workload | None = None) -> Workload:
        """Returns the workload of sampled tables of jobs.

        A job's GPU-hours and run time are the means over the sites it may run at, with its largest gang and the clock
        of least energy.

        Args:
            brief: Where they run.
            drawn: Tables of jobs, one a sample; of a service (infinite window) a week each.
            like: Workload whose classes the jobs are counted in; by default their own.
        """
        fleet = brief.fleet
        tables = fleet.tables(max(int(jobs.gpus_max_J.max()) for jobs in drawn))
        repeats = bool(np.isinf(brief.window_s))
        last_s = max(brief.window_s, *(float(jobs.arrival_s_J[-1]) + 1.0 for jobs in drawn))
        hours = WEEK_H if repeats else int(np.ceil(last_s / HOUR_S))
        prints = [footprint(jobs, tables) for jobs in drawn]
        if like is None:
            ranges = [tuple(np.flatnonzero(row).tolist()) for row in tables.range_CS]
            classes, fleet_class_C = _classes(
                fleet.classes,
                ranges,
                np.concatenate([jobs.class_J for jobs in drawn]),
                np.concatenate([run_h_J for _, run_h_J, _ in prints]),
                np.concatenate([jobs.slack_s_J for jobs in drawn]) / HOUR_S,
            )
            like = cls(classes=classes, load_NHC=np.zeros((0, 0, 0)), watts_S=np.zeros(0), fleet_class_C=fleet_class_C)
        load_NHC = np.zeros((len(drawn), hours, len(like.classes)))
        watts_S, total = np.zeros(len(fleet.sites)), 0.0
        for n, (jobs, (gpu_hours_J, run_h_J, watts_JS)) in enumerate(zip(drawn, prints, strict=True)):
            planned_J = like.planned_as(jobs.class_J, run_h_J, jobs.slack_s_J / HOUR_S)
            np.add.at(load_NHC[n], ((jobs.arrival_s_J / HOUR_S).astype(np.int64), planned_J), gpu_hours_J)
            watts_S += gpu_hours_J @ watts_JS
            total += float(gpu_hours_J.sum())
        return cls(
            classes=like.classes,
            load_NHC=load_NHC / np.array([one.run_hours for one in like.classes]),
            watts_S=watts_S / total,
            fleet_class_C=like.fleet_class_C,
            repeats=repeats,
        )

    def planned_as(self, class_J: I8, run_h_J: F8, slack_h_J: F8) -> I8:
        """Returns the planned class of jobs.

        In a class planned in parts, it is the part of the least run time that covers the job's (else of the longest),
        and of this the one of the longest delay that the job allows (else of the shortest).

        Args:
            class_J: Class of the fleet.
            run_h_J: Run time, h.
            slack_h_J: Slack, h.
        """
        out_J = np.empty(len(class_J), dtype=np.int64)
        run_C = np.array([one.run_hours for one in self.classes])
        slack_C = np.array([one.flexibility_h for one in self.classes])
        for index in np.unique(class_J):
            mine, parts = np.flatnonzero(class_J == index), np.flatnonzero(self.fleet_class_C == index)
            out_J[mine] = parts[0]
            if len(parts) == 1:
                continue
            runs = np.unique(run_C[parts])
            nth = np.minimum(np.searchsorted(runs, run_h_J[mine] - ROUNDING_H), len(runs) - 1)
            for n, hours in enumerate(runs):
                alike, jobs = parts[run_C[parts] == hours], mine[nth == n]
                alike = alike[np.argsort(slack_C[alike])]
                at = np.searchsorted(slack_C[alike], slack_h_J[jobs], side="right") - 1
                out_J[jobs] = alike[np.maximum(at, 0)]
        return out_J

    def state(self) -> dict[str, Any]:
        """Returns the workload as plain data, for ``of_state``."""
        return {
            "classes": [[c.name, list(c.clusters), c.flexibility_h, c.run_hours] for c in self.classes],
            "load_NHC": self.load_NHC.copy(),
            "watts_S": self.watts_S.copy(),
            "fleet_class_C": self.fleet_class_C.copy(),
            "repeats": self.repeats,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Workload:
        """Returns the workload of a ``state``."""
        classes = (
            LoadClass(name=name, clusters=tuple(clusters), flexibility_h=flexibility_h, run_hours=run_hours)
            for name, clusters, flexibility_h, run_hours in state["classes"]
        )
        arrays = {name: np.array(state[name]) for name in ("load_NHC", "watts_S", "fleet_class_C")}
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


def _classes(
    names: Sequence[str], ranges: Sequence[tuple[int, ...]], class_J: I8, run_h_J: F8, slack_h_J: F8
) -> tuple[tuple[LoadClass, ...], I8]:
    """Returns what is planned, and the class of the fleet that each is a part of.

    Args:
        names: The fleet's classes.
        ranges: Sites each may use.
        class_J: Classes of all sampled jobs.
        run_h_J: Run times, h.
        slack_h_J: Slack, h.
    """
    made: list[LoadClass] = []
    of: list[int] = []
    for index, (name, clusters) in enumerate(zip(names, ranges, strict=True)):
        run_h, slack_h = run_h_J[class_J == index], slack_h_J[class_J == index]
        longest = int(max(np.ceil(run_h.max(initial=0.0) - ROUNDING_H), 1.0))
        if longest == 1 or run_h.min() > longest - 1:
            whole = LoadClass(
                name=name,
                clusters=clusters,
                flexibility_h=int(min(np.floor(slack_h.min(initial=np.inf)), DAY_H)),
                run_hours=longest,
            )
            parts = [whole]
        else:
            steps = np.array([*RUN_STEPS_H, max(longest, RUN_STEPS_H[-1])])
            run = steps[np.searchsorted(steps, run_h - ROUNDING_H)]
            slack = np.array(SLACK_STEPS_H)[np.searchsorted(SLACK_STEPS_H, slack_h, side="right") - 1]
            parts = [
                LoadClass(
                    name=f"{name}, run {hours} h, slack {wait} h",
                    clusters=clusters,
                    flexibility_h=wait,
                    run_hours=hours,
                )
                for hours, wait in sorted(set(zip(run.tolist(), slack.tolist(), strict=True)))
            ]
        made += parts
        of += [index] * len(parts)
    return tuple(made), np.array(of, dtype=np.int64)


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
