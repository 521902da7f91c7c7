"""Run records: a folder a run with its manifest, jobs, hours and ledger; the same seed gives the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import I8
from noonward.errors import DataError
from noonward.files import table_bytes
from noonward.ledger.folder import (
    FORMAT,
    Content,
    content_bytes,
    damaged,
    json_bytes,
    read_json_files,
    read_table,
    scan_table,
    write_files,
)
from noonward.ledger.interruptions import job_columns, paused_s_of
from noonward.ledger.ledger import Ledger, SettledRun, settle_run, total
from noonward.ledger.machine import machine, versions
from noonward.ledger.segments import JOB_OUTCOME, SEGMENT, SEGMENT_COLUMNS, SEGMENT_NAMES, STATUS_NAMES, Outcome
from noonward.ledger.service import Service, measure_service, waiting_jobs
from noonward.ledger.sweep import count_arrivals, count_waiting, spread_power
from noonward.ledger.table_parts import day_parts, parquet_content
from noonward.ledger.withheld import switched_off
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.setting import add_array
from noonward.model.signals import CARBON_NAME, PRICE_NAME
from noonward.paging import parts
from noonward.sources import package_digest
from noonward.units import DAY_S, HOUR_S

if TYPE_CHECKING:
    import polars as pl


FILES: Final = ("manifest.json", "jobs.parquet", "hours.parquet", "ledger.json", "service.json")
"""Files of a record; where schedulers were asked about running jobs, it also holds ``segments.parquet``."""

TIMES: Final = {"jobs": ("arrival_s", DAY_S), "hours": ("hour", 24), "segments": ("from_s", DAY_S)}
"""Tables of a record, and the column of each that says what day a row is of: its name, and how much of it is a day."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A run read back from its folder.

    Attributes:
        folder: Where it lies.
        manifest: What was run.
        ledger: Its ledger.
        service: Its latency per class, queues and power per site.
    """

    folder: Path
    manifest: dict[str, Any]
    ledger: Ledger
    service: Service

    @property
    def jobs(self) -> pl.DataFrame:
        """One row a job (``job_table``)."""
        return read_table(self.folder, "jobs.parquet")

    @property
    def hours(self) -> pl.DataFrame:
        """One row a site and hour (``hour_table``)."""
        return read_table(self.folder, "hours.parquet")

    @property
    def segments(self) -> pl.DataFrame | None:
        """One row per segment of suspended jobs (``segment_table``); None where nobody was asked about running jobs."""
        return read_table(self.folder, "segments.parquet") if "segments" in self._tables else None

    def scan(self, table: str, day: int | None = None) -> pl.LazyFrame:
        """Returns a table that is read only as far as it is asked for: some columns, some rows, sums of either.

        Args:
            table: ``jobs``, ``hours`` or ``segments``.
            day: Rows of one day of the run, from 0: jobs that arrive then, its hours, or segments that begin then. Only
                the parts of the file are read that may hold some. None: all rows.

        Raises:
            DataError: The record has no such table, or it is damaged.

        Example:
            ``record.scan("jobs", day=3).select("site", "energy_kwh").group_by("site").sum().collect()``
        """
        import polars as pl

        if table not in self._tables:
            raise DataError(f"{self.folder} has no table {table!r}; it has {', '.join(self._tables)}")
        frame = scan_table(self.folder, f"{table}.parquet")
        if day is None:
            return frame
        column, per_day = TIMES[table]
        return frame.filter((pl.col(column) >= day * per_day) & (pl.col(column) < (day + 1) * per_day))

    @property
    def _tables(self) -> list[str]:
        """Names of the tables that it has."""
        return [name for name in TIMES if f"{name}.parquet" in self.manifest["digests"]]


def manifest_of(
    outcome: Outcome,
    policy: str,
    seed: int,
    scenario_digest: str,
    code: str | None = None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns what identifies a run: scenario, environment, policy, seeds, digests of the data, versions."""
    environment = outcome.environment
    return {
        "format": FORMAT,
        "kind": environment.kind,
        "scenario": environment.scenario,
        "scenario_digest": scenario_digest,
        "environment": environment.index,
        "environment_seed": environment.seed,
        "environment_digest": environment_digest(environment),
        "start": environment.start.isoformat(),
        "protocol": environment.protocol,
        "window_s": environment.window_s,
        "ended_s": outcome.ended_s,
        "policy": policy,
        "policy_seed": seed,
        "sites": [
            {"name": site.name, "zone": site.zone, "gpus": site.gpus, "gpu_type": site.gpu_type, "pue": site.pue}
            for site in environment.fleet.sites
        ],
        "ingress": [point.name for point in environment.fleet.ingress_points],
        "notes": [*environment.notes, *notes],
        "versions": {**versions(), "code": code or package_digest()},
        "machine": machine(),
    }


def environment_digest(environment: Environment) -> str:
    """Returns a digest of everything a run reads of its environment: equal for runs that are paired."""
    digest = hashlib.sha256(json.dumps(list(environment.notes)).encode())
    environment.add_to(digest)
    columns = dict(vars(environment.jobs))
    del columns["row_J"]  # no run reads where a job's row stood
    if not environment.jobs.has_record:  # a log that records nothing is none
        del columns["recorded_site_J"], columns["recorded_start_s_J"]
    arrays = list(columns.values())
    if environment.signals is not None:
        signals = environment.signals
        until = signals.hour_of(environment.start) + environment.hours
        digest.update(f"{signals.start.isoformat()} {signals.zones}".encode())
        further = [name for name in signals.value_ZH if name not in (PRICE_NAME, CARBON_NAME)]
        digest.update(" ".join(further).encode())
        arrays += [signals.of(name)[:, :until] for name in (PRICE_NAME, CARBON_NAME, *further)]
        for key in sorted(signals.parts):
            digest.update(" ".join(key).encode())
            arrays.append(signals.parts[key][:until])
    if environment.knowledge is not None:
        environment.knowledge.add_to(digest)
    if environment.standing is not None:
        digest.update(b"standing")
        arrays += list(vars(environment.standing).values())
    if environment.caps is not None:
        digest.update(f"caps {environment.caps.hard}".encode())
        arrays.append(environment.caps.gpus_SH)
    if environment.events:
        digest.update(repr(environment.events).encode())
    if environment.failures is not None:
        digest.update(b"failures")
        arrays.append(environment.failures.table_JX)
    if environment.tenant_J is not None:
        digest.update(b"tenants")
        arrays.append(environment.tenant_J)
    if environment.priority_J is not None:
        digest.update(b"priorities")
        arrays.append(environment.priority_J)
    for array in arrays:
        add_array(digest, array)
    return digest.hexdigest()[:16]


def write_record(
    outcome: Outcome,
    folder: Path,
    *,
    policy: str,
    seed: int,
    scenario_digest: str,
    code: str | None = None,
    notes: Sequence[str] = (),
) -> Record:
    """Writes a run's folder atomically, and returns it.

    Args:
        outcome: The run.
        folder: Where; a record that lies there is replaced.
        policy: Name of the policy.
        seed: Seed of the policy's streams.
        scenario_digest: ``Scenario`` digest.
        code: Digest of the sources that the run rests on; by default that of the whole package.
        notes: What a reader must know beside the environment's notes.
    """
    contents = _contents(outcome, manifest_of(outcome, policy, seed, scenario_digest, code, notes))
    return _record(folder, write_files(contents, folder))


def record_files(
    outcome: Outcome,
    *,
    policy: str,
    seed: int,
    scenario_digest: str,
    code: str | None = None,
    notes: Sequence[str] = (),
) -> dict[str, bytes]:
    """Returns the content of a record's files by name, so that another process or machine can write them.

    Arguments as in ``write_record``.
    """
    contents = _contents(outcome, manifest_of(outcome, policy, seed, scenario_digest, code, notes))
    return {name: content_bytes(content) for name, content in contents.items()}


def _contents(outcome: Outcome, manifest: dict[str, Any]) -> dict[str, Content]:
    """Returns the content of a record's files by name; tables of many jobs are made in parts, when they are written."""
    service = measure_service(outcome)
    settled = settle_run(outcome)
    ledger = total(outcome, settled)
    days = day_parts(outcome.environment.jobs.arrival_s_J)

    def jobs_of(rows: slice) -> pl.DataFrame:
        return job_table(outcome.of_jobs(rows), settled.of_jobs(rows))

    def segments_of(rows: slice) -> pl.DataFrame:
        return segment_table(outcome.of_jobs(rows))

    contents = {"jobs.parquet": parquet_content(days, jobs_of)}
    contents["hours.parquet"] = table_bytes(hour_table(outcome), ".parquet", "lz4")
    if outcome.segment_K is not None:
        contents["segments.parquet"] = parquet_content(days, segments_of)
    for name, content in (("ledger", ledger.as_dict()), ("service", service.as_dict()), ("manifest", manifest)):
        contents[f"{name}.json"] = json_bytes(content)
    return contents


def read_record(folder: Path) -> Record:
    """Returns a run from its folder.

    Raises:
        DataError: The folder is no complete record, is damaged, or is of another format.
    """
    return _record(folder, read_json_files(folder, FILES))


def _record(folder: Path, contents: dict[str, Any]) -> Record:
    """Returns the record of a folder whose JSON files hold this."""
    try:
        ledger, service = Ledger.from_dict(contents["ledger"]), Service.from_dict(contents["service"])
    except (KeyError, TypeError, AttributeError) as error:  # whole, but written by something else
        raise damaged(folder, f"its ledger or service is none of this version ({error})") from error
    return Record(folder=folder, manifest=contents["manifest"], ledger=ledger, service=service)


def job_table(outcome: Outcome, settled: SettledRun | None = None) -> pl.DataFrame:
    """Returns one row a job: what was asked, what became of it, and what it used, cost and emitted.

    Times are seconds since the run's start. ``energy_kwh``, ``energy_usd`` and ``carbon_kg`` are those of its power
    segments; journeys stand apart. ``units`` are those processed; ``units_per_s`` is its rate. Where a log says when
    jobs started, ``recorded_start_s`` and ``recorded_site`` hold that; where it says who asked for them and how they
    ended, ``job_id``, ``user``, ``team`` and ``state`` stand first. Where schedulers were asked about running jobs, the
    last columns say how often and for how long each job was suspended, and the GPU-hours that this and power caps took.

    Args:
        outcome: The run, or some of its jobs (``Outcome.of_jobs``).
        settled: Its settlement, which some of the jobs need; None: it is made.
    """
    import polars as pl

    environment, jobs, rows = outcome.environment, outcome.environment.jobs, outcome.rows
    job_J = {name: np.ascontiguousarray(outcome.job_J[name]) for name in JOB_OUTCOME.names or ()}
    settled = settled or settle_run(outcome)
    fleet, started = environment.fleet, outcome.started_J
    points = [point.name for point in fleet.ingress_points]
    clock_SF = fleet.tables(1).clock_SF
    level = np.where(started, job_J["level"], 0)
    seconds_J = np.where(started, job_J["finish_s"] - job_J["start_s"], np.nan)
    still_s_J = paused_s_of(outcome)
    details = environment.details
    asked = {} if details is None else {name: details[name] for name in ("job_id", "user", "team", "state")}
    asked = {name: column[rows] for name, column in asked.items() if column.null_count() < len(column)}
    recorded: dict[str, Any] = {}
    if jobs.has_record:
        sites = np.maximum(jobs.recorded_site_J[rows], -1)
        start_s_J = jobs.recorded_start_s_J[rows]
        recorded = {"recorded_site": _texts(environment.sites, sites), "recorded_start_s": start_s_J}
    return pl.DataFrame(
        {
            **asked,
            "arrival_s": jobs.arrival_s_J[rows],
            "origin": _texts(points, jobs.origin_J[rows]),
            "class": _texts(fleet.classes, jobs.class_J[rows]),
            "work": jobs.work_J[rows],
            "slack_s": jobs.slack_s_J[rows],
            "status": _texts(STATUS_NAMES, job_J["status"]),
            "site": _texts(environment.sites, job_J["site"]),
            "gpus": np.where(started, job_J["gpus"], 0),
            "clock": np.where(started, clock_SF[job_J["site"], level], np.nan),
            "reach_s": job_J["reach_s"],
            "start_s": job_J["start_s"],
            "finish_s": job_J["finish_s"],
            "power_w": job_J["power_w"],
            "units": outcome.units_J,
            "units_per_s": jobs.work_J[rows] / (seconds_J - still_s_J),
            "energy_kwh": settled.power.job_JA[:, 0],
            "energy_usd": settled.power.job_JA[:, 1],
            "carbon_kg": settled.power.job_JA[:, 2],
            "moves": job_J["moves"],
            "move_usd": settled.move_JA[:, 1],
            "move_kg": settled.move_JA[:, 2],
            "result_usd": settled.result_JA[:, 1],
            "result_kg": settled.result_JA[:, 2],
            **recorded,
            **job_columns(outcome),
        }
    )


def segment_table(outcome: Outcome) -> pl.DataFrame:
    """Returns one row per segment of jobs that were suspended or capped: kind, site, GPUs, times, power, throughput.

    Kinds: ``run``, ``stop`` (writes its checkpoint), ``load`` (loads it), ``lost`` (ran, but was given up later). The
    job is its row in ``job_table``. Segments that began before the run's end, those that go on then whole.
    """
    import polars as pl

    segment_K = outcome.segment_K if outcome.segment_K is not None else np.zeros(0, SEGMENT)
    segment_K = segment_K[segment_K["from_s"] < outcome.ended_s]
    return pl.DataFrame(
        {
            "job": segment_K["job"] + outcome.first,
            "kind": _texts(SEGMENT_NAMES, segment_K["kind"]),
            "site": _texts(outcome.environment.sites, segment_K["site"]),
            **{column: segment_K[name] for column, name in SEGMENT_COLUMNS.items()},
        }
    )


def hour_table(outcome: Outcome) -> pl.DataFrame:
    """Returns one row a site and hour: GPU-hours (with stops and loads), energy, queue, arrivals, prices, intensities.

    ``gpus`` are those that jobs may take, on average over the hour. ``waiting`` counts jobs that wait at the hour's
    start, without those that end overdue. ``free_kwh`` is charged in the window only.
    """
    import polars as pl

    environment = outcome.environment
    sites, hours = len(environment.sites), max(1, int(np.ceil(outcome.ended_s / HOUR_S)))
    market, tables = environment.site_signals, environment.fleet.tables(1)
    busy_SH2 = np.zeros((sites, hours, 2))
    power = outcome.occupied
    columns = power.site_K, power.from_s_K, power.to_s_K, power.gpus_K, power.watts_K
    for part in parts(len(power)):
        spread_power(*(each[part] for each in columns), busy_SH2)
    waiting_SH = _waiting(outcome, hours)
    window_H = np.clip(environment.window_s / HOUR_S - np.arange(hours), 0.0, 1.0)
    gpus_SH: NDArray[Any] = np.repeat(tables.gpus_S[:, None], hours, axis=1)
    free_gpu_hours = np.maximum(0.0, gpus_SH - busy_SH2[:, :, 0]) * window_H
    if environment.unavailable is not None:
        off, off_SH2 = switched_off(environment, power), np.zeros((sites, hours + 1, 2))
        assert off is not None
        spread_power(off.site_K, off.from_s_K, off.to_s_K, off.gpus_K, off.watts_K, off_SH2)
        free_gpu_hours = np.maximum(0.0, free_gpu_hours - off_SH2[:, :hours, 0])
        gpus_SH = gpus_SH - environment.unavailable.mean_SH(0, hours)
    free_kwh = free_gpu_hours * (tables.free_w_S * tables.pue_S)[:, None] / 1000.0
    known = min(hours, environment.hours)
    price, carbon = np.full((2, sites, hours), np.nan)
    price[:, :known], carbon[:, :known] = market.price_SH[:, :known], market.carbon_SH[:, :known]
    if environment.pue is not None:
        factor_SH = market.factor_SH[:, np.minimum(np.arange(hours), known - 1)]
        busy_SH2[:, :, 1] *= factor_SH
        free_kwh *= factor_SH
    return pl.DataFrame(
        {
            "hour": np.tile(np.arange(hours), sites),
            "site": _texts(environment.sites, np.repeat(np.arange(sites), hours)),
            "busy_gpu_hours": busy_SH2[:, :, 0].ravel(),
            "gpus": gpus_SH.ravel(),
            "job_kwh": busy_SH2[:, :, 1].ravel(),
            "free_kwh": free_kwh.ravel(),
            "waiting": waiting_SH.ravel(),
            "arrivals": _arrivals(outcome, hours).ravel(),
            "price_usd_per_mwh": price.ravel(),
            "carbon_g_per_kwh": carbon.ravel(),
        }
    )


def _waiting(outcome: Outcome, hours: int) -> I8:
    """Returns jobs that wait per site at the start of every hour: each where it joined last."""
    change_SH = np.zeros((len(outcome.environment.sites), hours + 1), np.int64)
    waiting = waiting_jobs(outcome)
    for part in parts(len(waiting[0])):
        count_waiting(*(each[part] for each in waiting), change_SH)
    return np.cumsum(change_SH, axis=1)[:, :hours]


def _arrivals(outcome: Outcome, hours: int) -> I8:
    """Returns arrivals per site and hour by the home of their ingress point; zeros for points without a home."""
    jobs, home_I = outcome.environment.jobs, outcome.environment.fleet.tables(1).home_I
    out_SH = np.zeros((len(outcome.environment.sites), hours), np.int64)
    for part in parts(len(jobs)):
        count_arrivals(jobs.arrival_s_J[part], jobs.origin_J[part], home_I, out_SH)
    return out_SH


def _texts(names: Sequence[str], index_J: I8) -> pl.Series:
    """Returns the names at some positions as a categorical column; null at -1."""
    import polars as pl

    return pl.Series([*names, None], dtype=pl.Categorical)[np.where(index_J < 0, len(names), index_J)]
