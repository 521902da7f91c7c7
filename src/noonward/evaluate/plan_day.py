"""A scenario's day-ahead plan: made as ``plan-advisory`` makes it, with its tables, metrics and figure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noonward.arrays import F8
from noonward.decision.brief import Brief, check_fit
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.evaluate.frames import with_times
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import mean
from noonward.files import write_table
from noonward.ledger.record import hour_table, job_table
from noonward.ledger.segments import OVERDUE, Outcome
from noonward.model.cluster.environment import Environment
from noonward.schedule.plan.classes import run_hours_of
from noonward.schedule.plan.follow import FollowPlan
from noonward.schedule.plan.result import Plan
from noonward.schedule.plan.solve import make_plan
from noonward.schedule.plan.workload import Workload
from noonward.seeding import stream
from noonward.units import HOUR_S

if TYPE_CHECKING:
    import polars as pl


FRESH_DAYS = 200
"""Sampled days the plan has not seen, on which its promise is tried."""


@dataclass(frozen=True, kw_only=True)
class PlannedDay:
    """A plan of an environment's first day, and what became of it.

    Attributes:
        environment: Environment.
        plan: Plan; loads and curves in GPUs, costs in USD.
        first_hour: Hour of the run that the plan begins in.
        promise: Share of days that are to stay within the curves.
        margin: Share by which the sampled days were inflated to keep it.
        excess_N: Per fresh sampled day, the largest load above the curve, GPUs.
        ran_SH: GPU-hours that ran per site and hour of the plan when the environment's own jobs followed it.
        over_cap_gpu_hours: GPU-hours of that run above the curves.
        overdue: Jobs of that run that could not start in time.
        jobs: One row a job of that run that came in the plan's submission hours: where and when it ran.
    """

    environment: Environment
    plan: Plan
    first_hour: int
    promise: float
    margin: float
    excess_N: F8
    ran_SH: F8
    over_cap_gpu_hours: float
    overdue: int
    jobs: pl.DataFrame

    @property
    def _gpu_hours_KC(self) -> F8:
        """GPU-hours that are expected to come, by submission hour and class: the mean of the sampled days."""
        problem = self.plan.problem
        mean_KC: F8 = problem.load_NKC.mean(axis=0)
        return mean_KC * run_hours_of(problem.classes)

    def metrics(self) -> list[Metric]:
        """Returns the metrics for ``--json``."""
        plan = self.plan
        proof = plan.certificate
        moved = plan.fractions.run_hour_X > plan.fractions.row_X // plan.fractions.classes
        load_L = self._gpu_hours_KC.ravel()
        share_X = plan.fractions.value_X * load_L[plan.fractions.row_X]
        held = mean((self.excess_N <= 1e-6).astype(float)).within(0.0, 1.0)
        return [
            Metric.of("planned_cost_usd", plan.objective, "USD"),
            Metric.of("certificate_gap", proof.gap, "fraction"),
            Metric.of("certificate_violation", proof.violation, "GPU"),
            Metric.of("rows_generated", proof.rows, "rows"),
            Metric.of("rows_whole", proof.rows_whole, "rows"),
            Metric.of("expected_load", float(load_L.sum()), "GPU h"),
            Metric.of("delayed_share", float(share_X[moved].sum() / load_L.sum()), "fraction"),
            Metric.of("reserved", float(plan.curve_TD.sum()), "GPU h"),
            Metric.of("guarantee_held_share", held, "fraction", self.promise),
            Metric.of("margin", self.margin, "fraction"),
            Metric.of("largest_excess", mean(np.maximum(self.excess_N, 0.0)), "GPU"),
            Metric.of("over_cap_gpu_hours", self.over_cap_gpu_hours, "GPU h"),
            Metric.of("overdue_jobs", self.overdue, "jobs"),
        ]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Returns the plan as tables: ``curves``, ``fractions``, ``prices`` and ``jobs`` (docs/load-shaping.md).

        Hours count from the run's start; the columns ``time``, ``submitted`` and ``runs`` are their starts in UTC.
        """
        import polars as pl

        plan, sites = self.plan, np.array(self.environment.sites, dtype=object)
        span, count = plan.curve_TD.shape
        hour = np.repeat(np.arange(span) + self.first_hour, count)
        at = np.tile(sites, span).tolist()
        curves = {
            "hour": hour, "site": at, "curve_gpus": plan.curve_TD.ravel(),
            "capacity_gpus": plan.problem.capacity_TD.ravel(), "cost_usd_per_gpu_hour": plan.problem.cost_TD.ravel(),
            "capacity_price_usd": plan.prices.capacity_TD.ravel(), "place_price_usd": plan.prices.place_TD.ravel(),
        }  # fmt: skip
        fractions, names = plan.fractions, np.array([one.name for one in plan.problem.classes], dtype=object)
        k, c = np.divmod(fractions.row_X, fractions.classes)
        shares = {
            "submission_hour": k + self.first_hour, "class": names[c].tolist(),
            "run_hour": fractions.run_hour_X + self.first_hour, "site": sites[fractions.cluster_X].tolist(),
            "fraction": fractions.value_X,
        }  # fmt: skip
        hours = fractions.hours
        prices = {
            "submission_hour": np.repeat(np.arange(hours) + self.first_hour, fractions.classes),
            "class": np.tile(names, hours).tolist(),
            "service_price_usd": plan.prices.service_KC.ravel(),
            "expected_gpu_hours": self._gpu_hours_KC.ravel(),
        }
        begin = pl.lit(self.environment.start).dt.cast_time_unit("us").dt.convert_time_zone("UTC")

        def dated(columns: dict[str, Any], **times: str) -> pl.DataFrame:
            at = {name: begin + pl.duration(hours=pl.col(hour)) for name, hour in times.items()}
            return pl.DataFrame(columns).with_columns(**at)

        return {
            "curves": dated(curves, time="hour"),
            "fractions": dated(shares, submitted="submission_hour", runs="run_hour"),
            "prices": dated(prices, time="submission_hour"),
            "jobs": self.jobs,
        }

    def write(self, folder: Path) -> dict[str, Path]:
        """Writes the tables as Parquet files; returns their paths."""
        tables = self.tables()
        paths = {name: folder / f"{name}.parquet" for name in tables}
        for name, table in tables.items():
            write_table(paths[name], table)
        return paths


def plan_day(environment: Environment, scheduler: FollowPlan, *, seed: int = 0) -> PlannedDay:
    """Plans an environment's first day, tries the plan on fresh days, and lets the environment's jobs follow it.

    Jobs are asked about on arrival, whatever the scenario's own protocol.

    Args:
        environment: Environment with signals, whose jobs can be sampled.
        scheduler: How to plan.
        seed: Seed of the sampled days.

    Raises:
        ScenarioError: Jobs cannot be sampled, or there are no signals.
        InfeasiblePlanError: The expected load does not fit the machines.
    """
    environment = replace(environment, protocol="on-arrival")
    brief = Brief.of(environment, scheduler.needs)
    check_fit(brief, scheduler.needs, "'noonward capacity-plan'")
    engine = ClusterEngine(environment, scheduler, seed=seed)
    scheduler.reset(brief, stream(seed, "policy", environment.index))
    engine.step()
    scheduler.decide(engine.view, engine.answers)
    plan, first, margin = scheduler.plan, scheduler.first, scheduler.margin
    if not scheduler.whole:
        make_plan(plan.problem)  # raises, and says what does not fit
    sample, rng = environment.sample_jobs, stream(seed, "policy", environment.index, "fresh")
    assert sample is not None  # check_fit
    fresh = Workload.of(brief, [sample(each) for each in rng.spawn(FRESH_DAYS)], scheduler.workload)
    excess_N = plan.excess(fresh.days(first, plan.fractions.hours))
    outcome = run(environment, scheduler, seed=seed)
    sites = len(environment.sites)
    busy_SH = hour_table(outcome)["busy_gpu_hours"].to_numpy().reshape(sites, -1)[:, first:]
    ran_SH = np.zeros((sites, len(plan.curve_TD)))
    until = min(ran_SH.shape[1], busy_SH.shape[1])
    ran_SH[:, :until] = busy_SH[:, :until]
    return PlannedDay(
        environment=environment,
        plan=plan,
        first_hour=first,
        promise=scheduler.promise or 1 - scheduler.beta,
        margin=margin,
        excess_N=excess_N,
        ran_SH=ran_SH,
        over_cap_gpu_hours=float(outcome.over_cap_gpu_s_S.sum() / HOUR_S),
        overdue=int((outcome.job_J["status"] == OVERDUE).sum()),
        jobs=_placed(outcome, first, plan.fractions.hours),
    )


def _placed(outcome: Outcome, first: int, hours: int) -> pl.DataFrame:
    """Returns where and when the jobs ran that came in some hours; ``job`` is the row in the table of jobs."""
    import polars as pl

    came = pl.col("arrival_s").is_between(first * HOUR_S, (first + hours) * HOUR_S, closed="left")
    table = with_times(job_table(outcome), outcome.environment.start).with_row_index("job")
    names = ("job", "class", "arrival", "origin", "status", "site", "gpus", "start", "finish")
    return table.filter(came).select(names)
