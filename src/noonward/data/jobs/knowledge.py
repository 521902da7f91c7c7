"""What schedulers are told of a scenario's jobs in place of their run times: limits, and a past to learn from."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.data.jobs.dated import job_rows
from noonward.data.jobs.generate import build_jobs
from noonward.data.jobs.history import MONDAY_S
from noonward.errors import DataError
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.knowledge import CANCELLED, DONE, FAILED, RUNNING, JobKnowledge, JobTraits, Knowledge
from noonward.model.cluster.scenario import FineTuningJobs, JobTable, PaperStreamJobs, PoissonJobs, Scenario
from noonward.model.cluster.setting import FORECAST_H
from noonward.model.precision import TIME_DECIMALS
from noonward.seeding import stream
from noonward.units import DAY_S, HOUR_S

CAUSE_OF: Final = {"done": DONE, "failed": FAILED, "timeout": FAILED, "node-fail": FAILED, "cancelled": CANCELLED}
"""How a job ended, by the states of job tables."""
NAMED: Final = ("user", "name")
"""Columns of job tables whose values are groups of jobs, from broad to narrow."""
REACH: Final = 1.5
"""Times the longest past run with its slack that forecasts reach."""
ENOUGH: Final = 4
"""Past jobs of a group from which on they say whether its jobs are short."""
LONGEST_FORECAST_H: Final = 8760
"""How far forecasts reach at most by what past jobs took, h."""
FIRST_REACH_S: Final = 10 * DAY_S
"""How far forecasts reach where no past job is known, s."""


def job_knowledge(
    scenario: Scenario, start: datetime, jobs: Jobs, past: Jobs | None, index: int, seed: int
) -> JobKnowledge | None:
    """Returns what schedulers are told of the jobs of an environment; None where they are told the run times.

    Of a job table's past, those that may still run at the start are known to have run until then. Generated jobs have
    a past of their own: another draw of the same law, of the window before the start.

    Args:
        scenario: Scenario.
        start: Start of the window.
        jobs: Jobs of the environment.
        past: A job table's earlier jobs, as ``history.history_of`` returns them, or None; later ones are left out.
        index: Number of the draw.
        seed: Seed; stream ``workload``.

    Raises:
        DataError: No past job is known where class means are told, or no limit where limits are told.
    """
    told, source, fleet = scenario.jobs.knowledge, scenario.jobs, scenario.fleet
    if told.run_time == "known":
        return None
    limit_rng, past_rng, past_limit_rng = stream(seed, "workload", "knowledge", index).spawn(3)
    details = past_details = None
    if isinstance(source, JobTable):
        details = job_rows(source).details[jobs.row_J]
        known = job_rows(source if source.history is None else source.model_copy(update={"path": source.history}))
        past, past_work_P, running_P = _table_past(past, known.start_s_J, fleet, start)
        if past is not None:
            past_details = known.details[past.row_J]
    else:
        if isinstance(source, FineTuningJobs):  # a trace may give the same jobs again; its statistics are packaged
            source = source.model_copy(update={"trace": "calibrated", "columns": {}})
        if isinstance(source, PaperStreamJobs):  # there is one such stream alone; the law it was drawn by is this
            law = source.model_dump(include={"rate_per_s", "median_work", "sigma", "gpus_max"})
            source = PoissonJobs(source="poisson", **law)
        before = start - timedelta(hours=scenario.window_h)
        past = build_jobs(source, fleet, before, scenario.window_h, scenario.slot_s, past_rng)
        past_work_P, running_P = past.work_J, np.zeros(len(past), bool)
    limit_J = _limits(told, fleet, jobs, details, limit_rng)
    if told.run_time == "limit" and np.isinf(limit_J).any() and (past is None or np.isinf(limit_J).all()):
        raise DataError(
            f"schedulers are told limits (run_time: limit), but {int(np.isinf(limit_J).sum())} of {len(jobs)} jobs "
            "have none; give a job table with a column limit_s, or a law: --set jobs.knowledge.limit.to=4"
        )
    if past is None:
        if told.run_time == "class-mean":
            raise DataError(
                "schedulers are told class means of past jobs (run_time: class-mean), but no job of before the window "
                "is known; begin the window later (--from), or give earlier jobs by --history FILE"
            )
        return JobKnowledge(
            told=told,
            traits=JobTraits.build(_levels(fleet, [(jobs, details)]), limit_J=limit_J),
            past_work_P=np.zeros(0),
            past_cause_P=np.zeros(0, np.int64),
            cause_J=_causes(details, len(jobs)),
            reach_s=FIRST_REACH_S,
        )
    limit_P = _limits(told, fleet, past, past_details, past_limit_rng)
    return JobKnowledge(
        told=told,
        traits=JobTraits.build(
            _levels(fleet, [(past, past_details), (jobs, details)]), limit_J=np.concatenate([limit_P, limit_J])
        ),
        past_work_P=past_work_P,
        past_cause_P=np.where(running_P, RUNNING, _causes(past_details, len(past))),
        cause_J=_causes(details, len(jobs)),
        reach_s=_reach_s(fleet, past, np.where(np.isfinite(limit_P), limit_P, past_work_P)),
    )


def longer_forecast_h(fleet: Fleet, source: JobTable, past: Jobs | None, start: datetime) -> int | None:
    """Returns how far forecasts reach where a table's past holds longer jobs than they are made for, h; else None.

    Of jobs that may still run at the start, what they had done by then counts.

    Args:
        fleet: The fleet.
        source: The table, or one with a history, which is then read in its place.
        past: Its jobs, as ``history.history_of`` returns them; None: there are none.
        start: Start of the window.
    """
    known = job_rows(source if source.history is None else source.model_copy(update={"path": source.history}))
    past, work_P, _ = _table_past(past, known.start_s_J, fleet, start)
    if past is None:
        return None
    longest_h = int(np.ceil(min(_reach_s(fleet, past, work_P) / HOUR_S, LONGEST_FORECAST_H)))
    return longest_h if longest_h > FORECAST_H else None


def _table_past(
    past: Jobs | None, start_s_R: F8 | None, fleet: Fleet, start: datetime
) -> tuple[Jobs | None, F8, NDArray[np.bool_]]:
    """Returns the jobs of before a start, the work that each has done by then, and which may still run.

    Args:
        past: Jobs, as ``history.history_of`` returns them.
        start_s_R: Recorded start of the rows of their table, seconds since 1970-01-01 UTC, NaN where there is none; a
            job without one is taken to have started when it was submitted. None: no row has one.
        fleet: The fleet.
        start: Start of the window.
    """
    if past is None or not (past.arrival_s_J + MONDAY_S < start.timestamp()).any():
        return None, np.zeros(0), np.zeros(0, bool)
    before_P = past.arrival_s_J + MONDAY_S < start.timestamp()
    past = Jobs(**{each.name: getattr(past, each.name)[before_P] for each in fields(past)})
    began_s_P = past.arrival_s_J + MONDAY_S
    if start_s_R is not None:
        began_s_P = np.fmax(began_s_P, start_s_R[past.row_J])
    since_s_P = np.maximum(start.timestamp() - began_s_P, 0.0)
    running_P = fixed_C(fleet)[past.class_J] & (past.work_J > since_s_P)
    return past, np.where(running_P, since_s_P, past.work_J), running_P


@dataclass(frozen=True, kw_only=True)
class PastJobs:
    """What a table says of the jobs of before a time, for predictions of the run times of later ones.

    Attributes:
        level_PL: Values of each job on the levels of groups, as ``levels_of`` returns them for one.
        limit_P: Limit, units; infinite for none.
        work_P: Work, units: all of it, or what was done before that time.
        cause_P: DONE, FAILED, CANCELLED or RUNNING.
    """

    level_PL: list[tuple[str, ...]]
    limit_P: F8
    work_P: F8
    cause_P: I8


def known_past(fleet: Fleet, source: JobTable, past: Jobs | None, start: datetime) -> PastJobs | None:
    """Returns what a table says of the jobs of before a time; None where it has none.

    Args:
        fleet: The fleet.
        source: The table, or one with a history, which is then read in its place.
        past: Its jobs, as ``history.history_of`` returns them.
        start: The time.
    """
    known = job_rows(source if source.history is None else source.model_copy(update={"path": source.history}))
    past, work_P, running_P = _table_past(past, known.start_s_J, fleet, start)
    if past is None:
        return None
    details = known.details[past.row_J]
    columns = [column.tolist() for column in _levels(fleet, [(past, details)])]
    limit_P = np.where(fixed_C(fleet)[past.class_J], details["limit_s"].fill_null(np.inf).to_numpy(), np.inf)
    return PastJobs(
        level_PL=list(zip(*columns, strict=True)),
        limit_P=limit_P,
        work_P=work_P,
        cause_P=np.where(running_P, RUNNING, _causes(details, len(past))),
    )


def levels_of(fleet: Fleet, class_: int, gpus_max: int, user: str, name: str) -> tuple[str, ...]:
    """Returns the values of a job on the levels of groups, from broad to narrow: class, gang, user, name.

    Args:
        fleet: The fleet.
        class_: Number of its class.
        gpus_max: Its largest gang, GPUs.
        user: Who runs it; empty: unknown.
        name: Its name; numbers within it count as one.

    Example:
        >>> from noonward.data.scenarios.load import load_scenario
        >>> levels_of(load_scenario("tiny").fleet, 0, 8, "ann", "train-17")[1:]
        ('3', 'ann', 'train-#')
    """
    pattern = re.sub(r"\d+", "#", name) if re.search(r"[^\d]", name) else name
    return fleet.classes[class_], str(gpus_max.bit_length() - 1), user, pattern


def left_alone(jobs: Jobs, knowledge: JobKnowledge, fleet: Fleet, alone_s: float, slot_s: float) -> Jobs:
    """Returns jobs of which those that are told to be short have no slack but that to the first slot.

    A job is short by its limit or, where run times are learned, if so many (``quantile``) of the past jobs of the
    narrowest of its groups with at least ``ENOUGH`` were; under ``class-mean`` by that mean. The job's own run time is
    not read.

    Args:
        jobs: Jobs.
        knowledge: What is told of them.
        fleet: The fleet; only jobs whose work is a run time can be short.
        alone_s: Run time below which a job is short, s.
        slot_s: Length of a slot, s; 0: there are none.
    """
    limit_J = knowledge.traits.limit_J[len(knowledge.past_work_P) :]
    if knowledge.told.run_time == "class-mean":
        expected_s_J = knowledge.class_mean_J()
    elif knowledge.told.run_time == "learned":
        expected_s_J = np.minimum(limit_J, _usual_work_J(knowledge))
    else:
        expected_s_J = limit_J
    short_J = (expected_s_J < alone_s) & fixed_C(fleet)[jobs.class_J]
    first_s_J = np.ceil(jobs.arrival_s_J / slot_s) * slot_s - jobs.arrival_s_J if slot_s else np.zeros(len(jobs))
    return replace(jobs, slack_s_J=np.where(short_J, first_s_J, jobs.slack_s_J))


def _usual_work_J(knowledge: JobKnowledge) -> F8:
    """Returns the work that so many (``quantile``) past jobs like each did not exceed; infinite without such jobs."""
    past, key_JL = len(knowledge.past_work_P), knowledge.traits.key_JL
    ended_P = knowledge.past_cause_P != RUNNING
    out_J = np.full(len(key_JL) - past, np.inf)
    for level in range(key_JL.shape[1]):
        table = pl.DataFrame({"key": key_JL[:past, level][ended_P], "work": knowledge.past_work_P[ended_P]})
        usual = (
            table.filter(pl.col("key") >= 0)
            .group_by("key")
            .agg(pl.len().alias("jobs"), pl.col("work").quantile(knowledge.told.quantile, "linear"))
            .filter(pl.col("jobs") >= ENOUGH)
        )
        found = pl.DataFrame({"key": key_JL[past:, level]}).join(usual, on="key", how="left", maintain_order="left")
        work_J = found["work"].fill_null(np.nan).to_numpy()
        out_J = np.where(np.isnan(work_J), out_J, work_J)
    return out_J


def table_traits(details: pl.DataFrame, gpus_J: I8) -> tuple[JobTraits, I8]:
    """Returns what is known of a table's jobs when they arrive, and how they end, whatever their class.

    Args:
        details: What the table says of each beyond what it needs (``details.DETAILS``).
        gpus_J: Their largest gangs.
    """
    levels = [_doublings(gpus_J), *(_texts(details, column) for column in NAMED)]
    limit_J = details["limit_s"].fill_null(np.inf).to_numpy()
    return JobTraits.build(levels, limit_J=limit_J), _causes(details, len(gpus_J))


def _levels(fleet: Fleet, tables: list[tuple[Jobs, pl.DataFrame | None]]) -> list[NDArray[np.str_]]:
    """Returns the groups of jobs of one or two tables, from broad to narrow: class, gang, user, name."""
    levels = [
        np.concatenate([np.array(fleet.classes)[jobs.class_J] for jobs, _ in tables]),
        np.concatenate([_doublings(jobs.gpus_max_J) for jobs, _ in tables]),
    ]
    if all(details is not None for _, details in tables):
        levels += [np.concatenate([_texts(details, column) for _, details in tables]) for column in NAMED]
    return levels


def fixed_C(fleet: Fleet) -> NDArray[np.bool_]:
    """Returns per class whether its work is a run time in s."""
    kinds = fleet.gpu_types.values()
    return np.array([all(kind.classes[name].time == "duration" for kind in kinds) for name in fleet.classes])


def _limits(told: Knowledge, fleet: Fleet, jobs: Jobs, details: pl.DataFrame | None, rng: np.random.Generator) -> F8:
    """Returns the limits of jobs, units of work; infinite for none."""
    if told.limit is not None:
        factor_J = told.limit.draw(rng, len(jobs))
        return np.maximum(np.round(jobs.work_J * factor_J, TIME_DECIMALS), jobs.work_J)
    if details is None:
        return np.full(len(jobs), np.inf)
    limit_J = details["limit_s"].fill_null(np.inf).to_numpy()
    return np.where(fixed_C(fleet)[jobs.class_J], limit_J, np.inf)


def _doublings(gpus_J: I8) -> NDArray[np.str_]:
    """Returns how often gangs double, in whole times, as words."""
    return np.floor(np.log2(gpus_J)).astype(np.int64).astype(str)


def _texts(details: pl.DataFrame | None, column: str) -> NDArray[np.str_]:
    """Returns a column of names, empty where a job has none; numbers within a job's name count as one."""
    assert details is not None
    text = pl.col(column).fill_null("")
    if column == "name":
        text = pl.when(text.str.contains(r"[^\d]")).then(text.str.replace_all(r"\d+", "#")).otherwise(text)
    return details.select(text).to_series().to_numpy().astype(str)


def _causes(details: pl.DataFrame | None, count: int) -> I8:
    """Returns how jobs ended; done where nothing is said."""
    if details is None:
        return np.full(count, DONE)
    return details["state"].replace_strict(CAUSE_OF, default=DONE, return_dtype=pl.Int64).to_numpy()


def _reach_s(fleet: Fleet, past: Jobs, work_P: F8) -> float:
    """Returns a time from arrival to end that jobs hardly exceed, s."""
    slowest_C = fleet.tables(int(past.gpus_max_J.max())).slowest_s_C
    span_s_P = work_P * slowest_C[past.class_J] + np.where(np.isinf(past.slack_s_J), 0.0, past.slack_s_J)
    return REACH * max(float(span_s_P.max()), HOUR_S)
