"""Environments: draws of a scenario, the same for every policy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Final

import numpy as np

from noonward.arrays import I8
from noonward.blas import one_thread
from noonward.data.cooling import pue_by_hour
from noonward.data.events import check_parts, events_of, in_parts
from noonward.data.gpus_by_time import withheld_gpus
from noonward.data.jobs.dated import job_rows, jobs_that_fit
from noonward.data.jobs.details import FAILED_STATES
from noonward.data.jobs.expected import FineTuningSampler
from noonward.data.jobs.generate import build_jobs
from noonward.data.jobs.history import history_of, sample_history
from noonward.data.jobs.knowledge import job_knowledge, left_alone, longer_forecast_h
from noonward.data.jobs.load import jobs_of_table
from noonward.data.jobs.standing import at_start, waiting_rows, words_at_start
from noonward.data.sanity import scenario_warnings
from noonward.data.signals.generate import generate_signals, sinusoidal_signals
from noonward.data.signals.load import load_signals
from noonward.data.solar import plants_by_hour, solar_by_hour
from noonward.data.system_load import system_load_by_hour
from noonward.data.water import water_by_hour
from noonward.errors import DataError, ScenarioError, SignalRangeError
from noonward.model.cluster.environment import Environment, latest_end_s, require_end
from noonward.model.cluster.failures import JobFailures
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.scenario import (
    FineTuningJobs,
    GeneratedSignals,
    JobTable,
    MixedJobs,
    PoissonJobs,
    Scenario,
    ShapedJobs,
    SignalFile,
    SignalFiles,
    SinusoidalSignals,
)
from noonward.model.signals import Signals
from noonward.seeding import stream
from noonward.units import DAY_H, DAY_S, HOUR_S, MINUTE_S

HISTORY_H: Final = 48
"""Hours of signals before the window, for forecasts."""
UNBROKEN: Final = (
    "the scenario states freedoms of jobs, but only policies that are asked about running jobs use them "
    "(docs/suspension.md); 'noonward bound --freedom' says what the freedoms can be worth at most"
)
"""Note of an environment whose jobs may be stopped, resized or capped."""
FIXED_START: Final = datetime(2022, 1, 3, tzinfo=UTC)
"""Start of environments without signals, or with the same signals every day: a Monday."""
REPLAY_S: Final = HOUR_S
"""How long after the latest recorded start of its jobs a run still starts late ones, s: slots, and queues for room, may
put the replay of a log behind its record."""


@one_thread()
def build_environment(scenario: Scenario, index: int = 0, seed: int = 0) -> Environment:
    """Returns one draw of a scenario.

    Windows start at 00:00 UTC on the scenario's ``start``; without it on random days (on a fixed one without signals,
    or if they are the same every day), or, where a job table has dates and there are no signal files, on its first day;
    consecutive environments take their months in turn from a shuffled list, so that ten environments see ten different
    months. Of signal files, only windows whose hours (and a day of history) are all known are taken.

    Args:
        scenario: Scenario.
        index: Number of the draw, at least 0.
        seed: Seed; streams ``workload`` and ``world`` with the number of the draw.

    Raises:
        ScenarioError: The scenario's parts do not fit.
        SignalRangeError: The signal files hold no window that is long enough and known, or a file of PUE does not cover
            the window.
        DataError: A file's content is wrong.
    """
    if index < 0 or seed < 0:
        raise ScenarioError(f"environment {index} with seed {seed}: both must be at least 0")
    source = scenario.signals
    signals: Signals | None
    told = stated_start(scenario)
    if source is None:
        start, signals = told or FIXED_START, None
        jobs = _jobs(scenario, start, index, seed)
    elif isinstance(source, GeneratedSignals):
        start = told or generated_start(source, index, seed)
        jobs = _jobs(scenario, start, index, seed)
        signals = generate_signals(
            _zones(scenario),
            start - timedelta(hours=HISTORY_H),
            HISTORY_H + _hours(scenario, jobs),
            stream(seed, "world", index),
            source.calibration,
        )
    elif isinstance(source, SinusoidalSignals):
        start = told or FIXED_START
        jobs = _jobs(scenario, start, index, seed)
        signals = sinusoidal_signals(
            source, _zones(scenario), start - timedelta(hours=HISTORY_H), HISTORY_H + _hours(scenario, jobs)
        )
    else:
        signals = _loaded(source, _zones(scenario))
        start, jobs = _known_window(scenario, source, signals, index, seed)
    if signals is not None and scenario.day_ahead:
        signals = replace(signals, day_ahead=scenario.day_ahead)
    if scenario.events and signals is not None and scenario.protocol == "each-slot":
        check_parts(scenario.slot_s)
        signals = in_parts(signals)
    past = past_jobs(scenario, scenario.jobs, start) if isinstance(scenario.jobs, JobTable) else None
    setting = scenario.setting(
        start,
        window_s=scenario.window_h * HOUR_S,
        drained=scenario.end == "drained",
        late_until_s=_late_until_s(scenario, jobs),
    )
    found = at_start(scenario, scenario.jobs, start) if isinstance(scenario.jobs, JobTable) else None
    before_h = 0 if signals is None else DAY_H
    pue = pue_by_hour(scenario.fleet, start - timedelta(hours=before_h), before_h + _hours(scenario, jobs))
    knowledge = job_knowledge(scenario, start, jobs, past, index, seed)
    forecast_h = scenario.forecast_h
    if forecast_h is None and knowledge is None and isinstance(scenario.jobs, JobTable):
        forecast_h = longer_forecast_h(scenario.fleet, scenario.jobs, past, start)
    alone_s = MINUTE_S * scenario.jobs.leave_alone_min if isinstance(scenario.jobs, JobTable) else 0.0
    if knowledge is not None and alone_s:
        slot_s = scenario.slot_s if scenario.protocol == "each-slot" else 0.0
        jobs = left_alone(jobs, knowledge, scenario.fleet, alone_s, slot_s)
    return Environment(
        **replace(
            setting,
            pue=pue,
            withheld=withheld_gpus(scenario.fleet, start),
            solar=solar_by_hour(scenario.fleet, start, _hours(scenario, jobs)),
            plants=plants_by_hour(scenario.fleet, signals, start, _hours(scenario, jobs)),
            water=water_by_hour(scenario.fleet, start, _hours(scenario, jobs)),
            system_load=system_load_by_hour(scenario.fleet, start, _hours(scenario, jobs)),
            forecast_h=forecast_h,
        ).stated,
        index=index,
        seed=seed,
        jobs=jobs,
        signals=signals,
        standing=None if found is None else found.standing,
        sample_jobs=_sampler(scenario, start, past),
        knowledge=knowledge,
        failures=_failures(scenario, jobs, index, seed),
        events=events_of(scenario, start, index, seed) if scenario.events else (),
        tenant_J=_tenants(scenario, jobs, index, seed),
        priority_J=_priorities(scenario, jobs),
        notes=(
            *([UNBROKEN] if scenario.fleet.freedoms else []),
            *scenario_warnings(scenario, signals if isinstance(source, SignalFiles) else None),
            *(() if signals is None else signals.notes),
            *_window_notes(scenario, start, jobs),
            *(() if found is None else words_at_start(found, scenario.fleet)),
        ),
        details=job_rows(scenario.jobs).details[jobs.row_J] if isinstance(scenario.jobs, JobTable) else None,
    )


def describe_environment(environment: Environment) -> str:
    """Returns what an environment holds, in words."""
    sites = environment.fleet.sites
    gpus = sum(site.gpus for site in sites)
    return (
        f"{len(sites)} sites, {gpus} GPUs, protocol {environment.protocol}\n"
        f"environment {environment.index} (seed {environment.seed}): {len(environment.jobs)} jobs from "
        f"{environment.start:%Y-%m-%d %H:%M} UTC over {environment.window_s / HOUR_S:.0f} h, last possible end after "
        f"{environment.hours} h"
    )


def stated_start(scenario: Scenario) -> datetime | None:
    """Returns the start of every window, where the scenario or the dates of its jobs leave one only."""
    day = scenario.start
    if day is None and isinstance(scenario.jobs, JobTable) and not isinstance(scenario.signals, SignalFiles):
        days = job_rows(scenario.jobs).days
        day = None if days is None else days[0]
    return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)


def records_starts(scenario: Scenario) -> bool:
    """Returns whether the jobs of a scenario come from a table that says when any of them started."""
    jobs = getattr(scenario, "jobs", None)
    if not isinstance(jobs, JobTable) or scenario.protocol != "each-slot":
        return False
    starts_s_J = job_rows(jobs).start_s_J
    return starts_s_J is not None and not np.isnan(starts_s_J).all()


def past_days(first: date, last: date) -> int:
    """Returns the days at the beginning of a job table that are left as the past of its windows.

    Example:
        >>> past_days(date(2024, 5, 1), date(2024, 5, 30)), past_days(date(2024, 5, 1), date(2024, 5, 2))
        (7, 0)
    """
    span = (last - first).days + 1
    return 7 if span >= 21 else 1 if span >= 3 else 0


def one_window_only(scenario: Scenario) -> bool:
    """Returns whether every environment of a scenario is the same: one window, and jobs and signals from files."""
    fixed = scenario.signals is None or isinstance(scenario.signals, SignalFiles | SinusoidalSignals)
    return isinstance(scenario.jobs, JobTable) and fixed and stated_start(scenario) is not None


def _window_notes(scenario: Scenario, start: datetime, jobs: Jobs) -> tuple[str, ...]:
    """Returns what must be known about the window of an environment whose jobs come from a table."""
    if not isinstance(scenario.jobs, JobTable):
        return ()
    rows = job_rows(scenario.jobs)
    name = scenario.jobs.path.name
    notes = (
        []
        if rows.account is None
        else [f"{name}: {entry}" for entry in rows.account.entries if entry.what == "dropped"]
    )
    end = start + timedelta(hours=scenario.window_h)
    if rows.submit_s_J is None:
        if scenario.signals is not None:
            notes.append(f"{name} has no dates (column submit_time): its jobs run on the day each window starts on")
    else:
        inside = int(rows.arrivals_s(start, scenario.window_h)[1].sum())
        taken = inside + int(waiting_rows(scenario.jobs, start).sum())
        if inside < len(rows.table) and scenario.windows is None:
            notes.append(
                f"{inside:,} of the {len(rows.table):,} jobs of {name} are submitted between {start:%Y-%m-%d} and "
                f"{end:%Y-%m-%d %H:%M} UTC; the others are left out"
            )
        assert rows.days is not None
        last = rows.days[1]
        if (end - timedelta(seconds=1)).date() > last:
            without = ((end - timedelta(seconds=1)).date() - last).days
            days = "day" if without == 1 else f"{without} days"
            notes.append(
                f"{name} ends on {last}: no job arrives in the last {days} of the window, which ends on "
                f"{end:%Y-%m-%d %H:%M} UTC; end it earlier with --to"
            )
        late_until_s, window_s = _late_until_s(scenario, jobs), scenario.window_h * HOUR_S
        if scenario.lateness.overtime_h is None and late_until_s > _due_until_s(window_s, jobs):
            notes.append(
                f"late jobs may start until {(late_until_s - window_s) / HOUR_S:.0f} h after the window, under every "
                f"policy: {name} records starts up to then"
            )
        if len(jobs) < taken:
            notes.append(
                f"{taken - len(jobs):,} of {taken:,} jobs of {name} need more GPUs at once than any site has; they "
                "are left out"
            )
    return tuple(notes)


def _tenants(scenario: Scenario, jobs: Jobs, index: int, seed: int) -> I8 | None:
    """Returns whose each job is: as its table says, else drawn by the tenants' shares (stream ``tenants``)."""
    tenants = scenario.tenants
    if tenants is None:
        return None
    if not isinstance(scenario.jobs, JobTable):
        return tenants.drawn(len(jobs), stream(seed, "tenants", index))
    names = job_rows(scenario.jobs).details[tenants.by].to_list()
    path = scenario.jobs.path.name
    index_of = {name: tenants.index(name, f"{path}: a job") for name in {names[row] for row in jobs.row_J}}
    return np.array([index_of[names[row]] for row in jobs.row_J], np.int64)


def _priorities(scenario: Scenario, jobs: Jobs) -> I8 | None:
    """Returns the priority of each job: its own as its table says, else that of its class."""
    if scenario.priorities is None:
        return None
    of_C = np.array([scenario.priorities.get(name, 0) for name in scenario.fleet.classes], np.int64)
    priority_J: I8 = of_C[jobs.class_J]
    if isinstance(scenario.jobs, JobTable):
        own_J = job_rows(scenario.jobs).details["priority"][jobs.row_J]
        priority_J = np.where(own_J.is_null().to_numpy(), priority_J, own_J.fill_null(0).to_numpy())
    return priority_J


def _zones(scenario: Scenario) -> tuple[str, ...]:
    return tuple(dict.fromkeys(site.zone for site in scenario.fleet.sites))


def _jobs(scenario: Scenario, start: datetime, index: int, seed: int) -> Jobs:
    rng = stream(seed, "workload", index)
    jobs = build_jobs(scenario.jobs, scenario.fleet, start, scenario.window_h, scenario.slot_s, rng)
    if isinstance(scenario.jobs, JobTable) and scenario.protocol == "each-slot":
        return _to_first_slot(jobs, scenario.slot_s)
    return jobs


def _failures(scenario: Scenario, jobs: Jobs, index: int, seed: int) -> JobFailures | None:
    """Returns when the jobs fail, or None where the scenario states no failures.

    Raises:
        ScenarioError: Recorded failures are asked for, and no table says how jobs ended.
    """
    law, source, failed_J = scenario.jobs.failures, scenario.jobs, None
    if law is None:
        return None
    if isinstance(source, JobTable):
        state = job_rows(source).details["state"][jobs.row_J]
        failed_J = None if state.is_null().all() else state.is_in(FAILED_STATES).fill_null(value=False).to_numpy()
    elif law.recorded:
        raise ScenarioError("jobs.failures.recorded is for jobs from a table (source: table); state a law instead")
    try:
        return law.draw(jobs.work_J, failed_J, stream(seed, "world", "failures", index))
    except ValueError as error:
        raise ScenarioError(f"jobs.failures.recorded: {error}; add it, or state a law of failures instead") from None


def _to_first_slot(jobs: Jobs, slot_s: float) -> Jobs:
    """Returns jobs that may all start at the first slot after their arrival, whatever their slack."""
    until_slot_s_J = np.ceil(jobs.arrival_s_J / slot_s) * slot_s - jobs.arrival_s_J
    return replace(jobs, slack_s_J=np.maximum(jobs.slack_s_J, until_slot_s_J))


def _sampler(scenario: Scenario, start: datetime, past: Jobs | None) -> Callable[[np.random.Generator], Jobs] | None:
    """Returns a draw from the job statistics a planner may know: for a trace, the packaged ones; a table's past."""
    source = scenario.jobs
    if isinstance(source, JobTable):
        return None if past is None else functools.partial(sample_history, past, start, scenario.window_h)
    if isinstance(source, FineTuningJobs):
        source = source.model_copy(update={"trace": "calibrated", "columns": {}})
        return FineTuningSampler(source, scenario.fleet, start, scenario.window_h, scenario.slot_s)
    if not isinstance(source, PoissonJobs | MixedJobs | ShapedJobs):
        return None
    return functools.partial(build_jobs, source, scenario.fleet, start, scenario.window_h, scenario.slot_s)


def past_jobs(scenario: Scenario, source: JobTable, start: datetime) -> Jobs | None:
    """Returns the jobs that planners may draw the jobs to come from: of the history, or of the table's own past.

    Args:
        scenario: Scenario.
        source: Table, with or without a history.
        start: Start of the window.

    Raises:
        DataError: The history has no dates, or does not fit the fleet.
    """
    told = source if source.history is None else source.model_copy(update={"path": source.history})
    rows = job_rows(told)
    if rows.submit_s_J is None:
        if source.history is None:
            return None
        raise DataError(f"--history {source.history} has no dates; give it a column 'submit_time'")
    # Jobs that wait when the window starts are jobs of the window: their run times are not known from the past.
    known_J = np.ones(len(rows.table), bool) if source.history is not None else ~waiting_rows(source, start)
    slack_s = rows.slack_s(source.slack_h)
    since_s = rows.submit_s_J - rows.submit_s_J.min()
    jobs = jobs_of_table(
        rows.table, scenario.fleet, since_s, known_J, slack_s=slack_s, leave_alone_s=MINUTE_S * source.leave_alone_min
    )
    past = history_of(jobs, rows.submit_s_J[jobs.row_J], start)
    return None if past is None else jobs_that_fit(past, scenario.fleet, str(told.path))


def _hours(scenario: Scenario, jobs: Jobs) -> int:
    """Returns how many hours from its start an environment may last."""
    if scenario.end == "window":
        return scenario.window_h
    slot_s = scenario.slot_s if scenario.protocol == "each-slot" else 0.0
    late_until_s = _late_until_s(scenario, jobs)
    fails = scenario.jobs.failures is not None
    end_s = latest_end_s(jobs, scenario.fleet, scenario.window_h * HOUR_S, slot_s, late_until_s, fails=fails)
    require_end(end_s)
    return int(np.ceil(end_s / HOUR_S))


def _late_until_s(scenario: Scenario, jobs: Jobs) -> float:
    """Returns until when jobs may start late, seconds since the start; -inf where they are dropped instead."""
    rule, window_s = scenario.lateness, scenario.window_h * HOUR_S
    if rule.rule == "drop":
        return -np.inf
    if rule.overtime_h is not None:
        return window_s + rule.overtime_h * HOUR_S
    return max(_due_until_s(window_s, jobs), _replayed_until_s(jobs))


def _due_until_s(window_s: float, jobs: Jobs) -> float:
    """Returns the latest start of any job, s, at least the window's end; a day after that where no job has one."""
    latest_s_J = jobs.deadline_s_J
    limited_J = np.isfinite(latest_s_J)
    return max(window_s, float(latest_s_J[limited_J].max())) if limited_J.any() else window_s + DAY_S


def _replayed_until_s(jobs: Jobs) -> float:
    """Returns until when jobs start that start as recorded, or up to ``REPLAY_S`` later, s; -inf without a record."""
    return float(np.nanmax(jobs.recorded_start_s_J)) + REPLAY_S if jobs.has_record else -np.inf


def _month_of(months: tuple[int, ...], index: int, seed: int) -> int:
    """Returns the month of an environment: a shuffled list, taken in turn."""
    order = stream(seed, "world", "months", index // len(months)).permutation(len(months))
    return months[int(order[index % len(months)])]


def generated_start(source: GeneratedSignals, index: int, seed: int) -> datetime:
    """Returns 00:00 UTC of the day that an environment with generated signals starts on."""
    month = _month_of(source.months, index, seed)
    first = datetime(source.year, month, 1, tzinfo=UTC)
    days = ((first + timedelta(days=32)).replace(day=1) - first).days
    return first + timedelta(days=int(stream(seed, "world", "day", index).integers(days)))


def _loaded(source: SignalFiles, zones: tuple[str, ...]) -> Signals:
    paths = [each.path if isinstance(each, SignalFile) else each for each in source.paths]
    changed = tuple(path.stat().st_mtime_ns if path.is_file() else 0 for path in paths)
    return _cached_signals(source.model_dump_json(), changed, zones)


@functools.lru_cache(maxsize=4)
def _cached_signals(said: str, changed: tuple[int, ...], zones: tuple[str, ...]) -> Signals:
    source = SignalFiles.model_validate_json(said)
    return load_signals(source.paths, source.format, source.columns, zones)


def _known_window(
    scenario: Scenario, source: SignalFiles, signals: Signals, index: int, seed: int
) -> tuple[datetime, Jobs]:
    """Returns the start and the jobs of an environment whose hours are all known in the files."""
    if scenario.windows is not None:
        starts = _spread_starts(scenario.model_dump_json(), seed)
        if index >= len(starts):
            raise ScenarioError(f"environment {index} of {len(starts)} windows; give a number below {len(starts)}")
        return starts[index], _jobs(scenario, starts[index], index, seed)
    month = _month_of(source.months, index, seed)
    days = _candidates(scenario, source, signals)
    unknown_H = np.isnan(signals.price_usd_per_mwh_ZH).any(0) | np.isnan(signals.carbon_g_per_kwh_ZH).any(0)
    unknown_before_H = np.concatenate([[0], np.cumsum(unknown_H)])
    order = stream(seed, "world", "day", index).permutation(len(days))
    picked = [days[i] for i in order]
    # The environment's own month first; where it holds no known window, the other months in random order.
    for start in sorted(picked, key=lambda day: day.month != month):
        first = int((start - signals.start) // timedelta(hours=1))
        until = first + scenario.window_h
        if until > signals.hours or unknown_before_H[until] > unknown_before_H[first - 24]:
            continue
        jobs = _jobs(scenario, start, index, seed)
        until = first + _hours(scenario, jobs)
        if until <= signals.hours and unknown_before_H[until] == unknown_before_H[first - 24]:
            return start, jobs
    raise SignalRangeError(
        f"the signals of {', '.join(signals.zones)} in {file_names(source)} hold no window of "
        f"{scenario.window_h} hours (and the day before, and the hours the jobs may take) in which every price and "
        f"carbon intensity is known; they cover {signals.start:%Y-%m-%d} to {signals.end:%Y-%m-%d}. "
        f"{_why_no_window(scenario, source, signals, days)} Complete the signals, widen first_day, last_day or months, "
        "choose other days with --from and --to, or shorten window_h or the jobs"
    )


@functools.lru_cache(maxsize=4)
def _spread_starts(content: str, seed: int) -> tuple[datetime, ...]:
    """Returns the starts of a scenario's windows: known, without overlap, spread evenly over its jobs' days.

    The first days of the table are left for planners, who draw the jobs to come from the past.

    Args:
        content: The scenario as JSON.
        seed: Seed.

    Raises:
        ScenarioError: There are fewer such windows than the scenario asks for.
    """
    scenario = Scenario.model_validate_json(content)
    source, table = scenario.signals, scenario.jobs
    assert isinstance(source, SignalFiles)
    assert isinstance(table, JobTable)
    assert scenario.windows is not None
    rows = job_rows(table)
    assert rows.days is not None
    signals = _loaded(source, _zones(scenario))
    known_from = (datetime.combine(rows.days[0], datetime.min.time(), UTC)) + timedelta(days=past_days(*rows.days))
    unknown_H = np.isnan(signals.price_usd_per_mwh_ZH).any(0) | np.isnan(signals.carbon_g_per_kwh_ZH).any(0)
    unknown_before_H = np.concatenate([[0], np.cumsum(unknown_H)])
    starts: list[datetime] = []
    for start in sorted(_candidates(scenario, source, signals)):
        if start < (starts[-1] + timedelta(hours=scenario.window_h) if starts else known_from):
            continue
        first = int((start - signals.start) // timedelta(hours=1))
        until = first + _hours(scenario, _jobs(scenario, start, 0, seed))
        if until <= signals.hours and unknown_before_H[until] == unknown_before_H[first - 24]:
            starts.append(start)
    if len(starts) < scenario.windows:
        raise ScenarioError(
            f"{scenario.windows} windows of {scenario.window_h} h were asked for; jobs of {rows.days[0]} to "
            f"{rows.days[1]} and signals of {signals.start:%Y-%m-%d} to {signals.end:%Y-%m-%d} hold {len(starts)} that "
            "do not overlap and whose hours are all known; ask for so many, or for shorter ones (window_h)"
        )
    return tuple(starts[n] for n in np.linspace(0, len(starts) - 1, scenario.windows).round().astype(int))


def file_names(source: SignalFiles) -> str:
    """Returns the paths of a scenario's signal files, for messages."""
    return ", ".join(str(each.path if isinstance(each, SignalFile) else each) for each in source.paths)


def _why_no_window(scenario: Scenario, source: SignalFiles, signals: Signals, days: list[datetime]) -> str:
    """Returns why no window can be taken, naming what lacks: the day, or the zone and quantity with the hours."""
    if not days and scenario.start is not None:
        return f"A window that starts on {scenario.start} needs the day before it, for forecasts."
    if not days:
        told = [f"{name} {day}" for name in ("first_day", "last_day") if (day := getattr(source, name)) is not None]
        told += [] if len(source.months) == 12 else [f"months {', '.join(map(str, source.months))}"]
        said = f" within {', '.join(told)}" if told else ""
        return f"They hold no day that a window may start on{said}: each needs a day of signals before it."
    first = max(signals.hour_of(min(days)) - 24, 0)
    until = min(signals.hour_of(max(days)) + scenario.window_h, signals.hours)
    reasons = []
    for name, value_ZH in (("price", signals.price_usd_per_mwh_ZH), ("carbon intensity", signals.carbon_g_per_kwh_ZH)):
        unknown_ZH = np.isnan(value_ZH[:, first:until])
        for zone, unknown_H in zip(signals.zones, unknown_ZH, strict=True):
            if unknown_H.all():
                reasons.append((len(unknown_H), f"{zone} has no {name}"))
            elif unknown_H.any():
                hour = first + int(unknown_H.argmax())
                reasons.append(
                    (
                        int(unknown_H.sum()),
                        f"the {name} of {zone} is unknown in {int(unknown_H.sum())} of {len(unknown_H)} hours, "
                        "the first "
                        f"at {signals.time_of(hour):%Y-%m-%d %H:%M} UTC",
                    )
                )
    worst = [text for _, text in sorted(reasons, key=lambda each: -each[0])[:3]]
    if not worst:
        return "They end before the last job may have ended ('end: window' would stop the run with the window)."
    return f"{worst[0][:1].upper()}{'; '.join(worst)[1:]}."


def _candidates(scenario: Scenario, source: SignalFiles, signals: Signals) -> list[datetime]:
    """Returns the days that a window may start on: the one stated, else days of the signals on which there are jobs.

    Raises:
        SignalRangeError: Signals and dated jobs have no day in common.
    """
    told = stated_start(scenario)
    if told is not None:
        return [told] if told - timedelta(hours=24) >= signals.start else []
    days = _days(source, signals, scenario.window_h)
    rows = job_rows(scenario.jobs) if isinstance(scenario.jobs, JobTable) else None
    if rows is None or rows.submit_s_J is None or rows.days is None:
        return days
    first, last = rows.days
    latest = max(first, last - timedelta(days=-(-scenario.window_h // 24) - 1))
    submitted = np.unique(rows.submit_s_J // DAY_S)
    length = scenario.window_h * HOUR_S / DAY_S
    both = [
        day
        for day in days
        if first <= day.date() <= latest
        and np.searchsorted(submitted, day.timestamp() // DAY_S)
        < np.searchsorted(submitted, np.ceil(day.timestamp() / DAY_S + length))
    ]
    if days and not both:
        raise SignalRangeError(
            f"the jobs of {rows.table.path} are of {first} to {last}, and the signals cover "
            f"{signals.start:%Y-%m-%d} to {signals.end:%Y-%m-%d}: no day that a window may start on has both (it needs "
            "a day of signals before it); give signals of the jobs' days"
        )
    return both


def _days(source: SignalFiles, signals: Signals, window_h: int) -> list[datetime]:
    """Returns the days a window may start on: a day of history before, within the days and months asked for.

    The window's last hour falls on or before ``last_day`` and in one of the months; a run until drained may take
    longer than its window, and so may end after that day.
    """
    first = (signals.start + timedelta(hours=24 + 23)).replace(hour=0)
    to_last_hour = timedelta(hours=window_h - 1)
    days = []
    for offset in range((signals.end - first).days):
        day = first + timedelta(days=offset)
        if (
            day.month in source.months
            and (day + to_last_hour).month in source.months
            and (source.first_day is None or source.first_day <= day.date())
            and (source.last_day is None or (day + to_last_hour).date() <= source.last_day)
        ):
            days.append(day)
    return days
