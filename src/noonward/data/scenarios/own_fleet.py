"""Your own scenario as commented YAML, from sites, zones and GPUs, with files of signals and jobs or without."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml

from noonward.data.gpu_library import Gpu, find_gpu, gpu_library, plain_gpu
from noonward.data.jobs.dated import JobRows, job_rows
from noonward.data.local_time import zone_timezones
from noonward.data.scenarios.load import scenario_from
from noonward.data.signals.load import load_signals
from noonward.errors import DataError, ScenarioError, nearest
from noonward.files import SLUG, write_table
from noonward.model.cluster.scenario import JobTable, Scenario
from noonward.units import HOUR_S

ONE_CLASS = "job"
"""Class of all jobs where they are not bound to a GPU type."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """GPUs of one type at a site.

    Attributes:
        site: Name of the site.
        zone: Its electricity zone.
        gpu: GPU type.
        gpus: Number of GPUs.
        name: Name in the scenario: the site's, with the type's where it has several.
    """

    site: str
    zone: str
    gpu: Gpu
    gpus: int
    name: str


def parse_site(text: str) -> list[Pool]:
    """Returns the pools of a site written ``NAME=ZONE:COUNTxGPU``, several types separated by commas.

    Raises:
        ScenarioError: The text has another form, or a GPU is unknown.

    Example:
        >>> [(pool.name, pool.zone, pool.gpus) for pool in parse_site("oslo=NO-NO1:32xH100-SXM,64xL4")]
        [('oslo-h100-sxm', 'NO-NO1', 32), ('oslo-l4', 'NO-NO1', 64)]
    """
    found = re.fullmatch(r"\s*([^=:]+)=([^=:]+):(.+)", text)
    if found is None:
        raise ScenarioError(f"site {text!r} is not of the form NAME=ZONE:COUNTxGPU, e.g. berlin=DE:64xA100-80-SXM")
    site, zone = found[1].strip(), found[2].strip()
    if not SLUG.fullmatch(site):
        raise ScenarioError(f"site name {site!r}: use letters, digits, dots, dashes and underscores")
    parts = [part.strip() for part in found[3].split(",")]
    pools = []
    for part in parts:
        counted = re.fullmatch(r"(\d+)\s*[x*]\s*(.+)", part)
        if counted is None or int(counted[1]) < 1:
            raise ScenarioError(f"site {site!r}: {part!r} is not of the form COUNTxGPU, e.g. 64xA100-80-SXM")
        gpu = find_gpu(counted[2])
        name = site if len(parts) == 1 else f"{site}-{gpu.name.lower()}"
        pools.append(Pool(site=site, zone=zone, gpu=gpu, gpus=int(counted[1]), name=name))
    return pools


@dataclass(frozen=True, kw_only=True)
class OwnFleet:
    """What your own scenario is made from.

    Attributes:
        name: Name of the scenario.
        pools: GPUs of the sites.
        pue: Power usage effectiveness of all sites.
        signals: Signal files; none: generated signals.
        jobs: Dated job table or log; None: generated jobs.
        origins: Site by the name of a place in the job table.
        origin: Site that all jobs come from, where the table names no place.
        first: First day of the window; None: found from jobs and signals.
        last: Last day of the window.
        slack_h: Largest accepted delay of a start, h; infinite for none.
        carbon_usd_per_t: Carbon price.
        revenue_usd_per_gpu_hour: What a GPU-hour of work is worth.
    """

    name: str
    pools: tuple[Pool, ...]
    pue: float = 1.3
    signals: tuple[Path, ...] = ()
    jobs: Path | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    origin: str | None = None
    first: date | None = None
    last: date | None = None
    slack_h: float = 24.0
    carbon_usd_per_t: float = 100.0
    revenue_usd_per_gpu_hour: float = 2.0

    def __post_init__(self) -> None:
        if not self.pools:
            raise ScenarioError("no site was given; give at least one: --site berlin=DE:64xA100-80-SXM")
        names = [pool.name for pool in self.pools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ScenarioError(
                f"site {twice[0]!r} stands twice; name every site once, all its GPU types in one --site"
            )
        for pool in self.pools:
            if pool.zone not in zone_timezones() and not self.signals:
                raise ScenarioError(
                    f"site {pool.site!r}: zone {pool.zone!r} is unknown; {nearest(pool.zone, zone_timezones())}"
                )

    @property
    def by_type(self) -> bool:
        """Whether jobs are bound to GPU types: there are several, and a table of jobs that ran on one of them."""
        return self.jobs is not None and len({pool.gpu.name for pool in self.pools}) > 1

    @property
    def classes(self) -> dict[str, list[str]]:
        """Pools that jobs of a class may run in, by class."""
        if not self.by_type:
            return {ONE_CLASS: [pool.name for pool in self.pools]}
        types = dict.fromkeys(pool.gpu.name for pool in self.pools)
        return {name.lower(): [pool.name for pool in self.pools if pool.gpu.name == name] for name in types}


@dataclass(frozen=True, kw_only=True)
class Written:
    """Your own scenario.

    Attributes:
        text: Its YAML, commented.
        scenario: The same, validated.
        jobs: Job table whose places and classes were made those of the fleet, or None where the table is as it was.
        notes: What was decided.
    """

    text: str
    scenario: Scenario
    jobs: pl.DataFrame | None
    notes: tuple[str, ...]

    def tried_with(self, path: Path) -> Scenario:
        """Returns the scenario with its job table written to a place of its own, to try it before anything is kept.

        Args:
            path: Place of the table; used only if the table is a new one.
        """
        if self.jobs is None:
            return self.scenario
        write_table(path, self.jobs)
        return self.scenario.model_copy(update={"jobs": self.scenario.jobs.model_copy(update={"path": path})})


def write_own_fleet(asked: OwnFleet, folder: Path, policies: Sequence[str] = ()) -> Written:
    """Returns your own scenario.

    Args:
        asked: What it is made from.
        folder: Folder that the file will lie in; paths are written relative to it where they lie below.
        policies: Policies to compare; none: none are written.

    Raises:
        ScenarioError: The parts do not fit.
        DataError: A file cannot be read.
    """
    notes: list[str] = []
    table, path = _jobs_of(asked, folder, notes)
    first, hours = _window(asked, notes)
    text = _text(asked, folder, path, first, hours, policies)
    scenario = scenario_from(yaml.safe_load(text), f"{asked.name}.yaml", folder)
    return Written(text=text, scenario=scenario, jobs=table, notes=tuple(notes))


def _jobs_of(asked: OwnFleet, folder: Path, notes: list[str]) -> tuple[pl.DataFrame | None, str]:
    """Returns the job table under the fleet's own names, if it must change, and the path to write."""
    if asked.jobs is None:
        return None, ""
    rows = job_rows(JobTable(source="table", path=asked.jobs))
    if rows.submit_s_J is None:
        raise ScenarioError(
            f"{asked.jobs} has no dates (column submit_time); your own fleet takes dated jobs: noonward import"
        )
    frame = rows.table.frame
    sites = list(dict.fromkeys(pool.site for pool in asked.pools))
    for name, site in asked.origins.items():
        if site not in sites:
            raise ScenarioError(f"--origin {name}={site}: there is no site {site!r}; {nearest(site, sites)}")
    if asked.origin is not None:
        if asked.origin not in sites:
            raise ScenarioError(f"--origin {asked.origin}: there is no such site; {nearest(asked.origin, sites)}")
        places = pl.Series([asked.origin]).new_from_index(0, frame.height)
    elif "origin" in frame.columns:
        places = frame["origin"].cast(pl.String).replace(dict(asked.origins))
    elif len(sites) == 1:
        places = pl.Series(sites).new_from_index(0, frame.height)
    else:
        raise ScenarioError(
            f"{asked.jobs} does not say where its jobs come from (no column origin); give the site: --origin {sites[0]}"
        )
    unknown = sorted(set(places.drop_nulls()) - set(sites))
    if unknown or places.is_null().any():
        shown = ", ".join(repr(name) for name in unknown[:8]) or "an empty name"
        raise ScenarioError(
            f"{asked.jobs}: jobs come from {shown}, which is no site of the fleet ({', '.join(sites)}); say "
            "which site it "
            f"is: --origin '{unknown[0] if unknown else 'NAME'}={sites[0]}'"
        )
    made = _in_pools(asked, frame, places, notes)
    if made.equals(frame):
        return None, _relative(asked.jobs, folder)
    notes.append(f"the places (and GPU types) of the jobs were made those of the fleet: {asked.name}-jobs.csv")
    return made, f"{asked.name}-jobs.csv"


def _in_pools(asked: OwnFleet, frame: pl.DataFrame, places: pl.Series, notes: list[str]) -> pl.DataFrame:
    """Returns a job table with the pool that each job comes from and, where types differ, the class of its type."""
    kinds = frame["gpu_type"] if "gpu_type" in frame.columns else pl.Series([None]).new_from_index(0, frame.height)
    pools: dict[tuple[str, str | None], Pool] = {}
    guessed = 0
    for place, kind in set(zip(places, kinds, strict=True)):
        here = [pool for pool in asked.pools if pool.site == place]
        alike = [pool for pool in here if kind and plain_gpu(pool.gpu.name).startswith(plain_gpu(kind))]
        if len(here) > 1 and len(alike) != 1:
            count = int(((places == place) & (kinds == kind if kind else kinds.is_null())).sum())
            alike = alike or here
            guessed += count
            notes.append(
                f"{count} jobs of {place} ran on {kind or 'GPUs of an unnamed type'}, which may be any of "
                f"{', '.join(pool.gpu.name for pool in here)}: taken as {alike[0].gpu.name}"
            )
        pools[place, kind] = alike[0] if len(here) > 1 else here[0]
    of = [pools[place, kind] for place, kind in zip(places, kinds, strict=True)]
    made = frame.with_columns(origin=pl.Series([pool.name for pool in of]))
    if "start_site" in frame.columns:
        made = made.with_columns(start_site=_recorded_pools(asked, frame["start_site"], kinds))
    return made.with_columns(pl.Series("class", [pool.gpu.name.lower() for pool in of])) if asked.by_type else made


def _recorded_pools(asked: OwnFleet, sites: pl.Series, kinds: pl.Series) -> pl.Series:
    """Returns the pools that jobs ran in as recorded; a name that is none of the fleet's stays as it is."""
    named = sites.cast(pl.String).replace(dict(asked.origins))
    pool_of: dict[tuple[str | None, str | None], str | None] = {}
    for site, kind in set(zip(named, kinds, strict=True)):
        here = [pool for pool in asked.pools if pool.site == site]
        alike = [pool for pool in here if kind and plain_gpu(pool.gpu.name).startswith(plain_gpu(kind))]
        pool_of[site, kind] = (alike or here)[0].name if here else site
    return pl.Series([pool_of[pair] for pair in zip(named, kinds, strict=True)], dtype=pl.String)


def _window(asked: OwnFleet, notes: list[str]) -> tuple[date | None, int]:
    """Returns the first day of the window and its hours: as told, else the days that jobs and signals share."""
    if asked.first is not None:
        days = 2 if asked.last is None else (asked.last - asked.first).days + 1
        if days < 1:
            raise ScenarioError(f"--to {asked.last} is before --from {asked.first}; give a later day")
        return asked.first, 24 * days
    if asked.last is not None:
        raise ScenarioError(f"--to {asked.last} was given without --from; give the first day too")
    if asked.jobs is None:
        return None, 48
    rows = job_rows(JobTable(source="table", path=asked.jobs))
    days_of_jobs = rows.days
    assert days_of_jobs is not None
    first, last = days_of_jobs
    span = (last - first).days + 1
    past = 7 if span >= 21 else 1 if span >= 3 else 0
    first += timedelta(days=past)
    if asked.signals:
        zones = tuple(dict.fromkeys(pool.zone for pool in asked.pools))
        signals = load_signals(asked.signals, zones=zones)
        known_H = ~(np.isnan(signals.price_usd_per_mwh_ZH).any(0) | np.isnan(signals.carbon_g_per_kwh_ZH).any(0))
        if not known_H.any():
            raise DataError(_never_known(signals, asked.signals))
        at = np.flatnonzero(known_H)
        first = max(first, (signals.time_of(int(at[0])) + timedelta(hours=47)).date())
        until = signals.time_of(int(at[-1]) + 1) - timedelta(hours=24 + _tail_h(asked, rows))
        last = min(last, until.date())
        if last < first:
            raise DataError(
                f"jobs of {days_of_jobs[0]} to {days_of_jobs[1]} and signals of {signals.start:%Y-%m-%d} to "
                f"{signals.end:%Y-%m-%d} have no day in common (with a day of signals before it, and after it the "
                f"{_tail_h(asked, rows)} h in which its last job may end); give signals of the jobs' days, or a "
                "smaller --slack-h"
            )
    days = (last - first).days + 1
    if past:
        days_before = "day" if past == 1 else f"{past} days"
        notes.append(f"planners draw the jobs to come from the {days_before} of jobs before the window")
    notes.append(f"window: {first} to {last}, the days that jobs and signals share")
    return first, 24 * days


def _tail_h(asked: OwnFleet, rows: JobRows) -> int:
    """Returns the hours after a window in which its jobs may still start and end; 0 where a run stops with it."""
    if not np.isfinite(asked.slack_h):
        return 0
    longest_s = rows.table.numbers("duration_s", "give the run time in seconds, above 0", low=0, above=True).max()
    return int(np.ceil(asked.slack_h + longest_s / HOUR_S)) + 1


def _never_known(signals: Any, paths: Sequence[Path]) -> str:
    """Returns which zones have no price or no carbon intensity at all."""
    lacks = [
        f"{zone} has no {what}"
        for what, value_ZH in (
            ("price", signals.price_usd_per_mwh_ZH),
            ("carbon intensity", signals.carbon_g_per_kwh_ZH),
        )
        for zone, value_H in zip(signals.zones, value_ZH, strict=True)
        if np.isnan(value_H).all()
    ]
    named = ", ".join(path.name for path in paths)
    return f"{named}: {'; '.join(lacks) or 'no hour has every price and carbon intensity'}; add a file that has them"


def _relative(path: Path, folder: Path) -> str:
    """Returns a path as seen from a folder, where it lies below it; else whole."""
    whole, base = path.resolve(), folder.resolve()
    return str(whole.relative_to(base)) if whole.is_relative_to(base) else str(whole)


def _text(asked: OwnFleet, folder: Path, jobs: str, first: date | None, hours: int, policies: Sequence[str]) -> str:
    """Returns the scenario as commented YAML."""
    types = list(dict.fromkeys(pool.gpu.name for pool in asked.pools))
    classes = asked.classes
    lines = [
        "# Your own fleet, written by 'noonward init'. docs/own-fleet.md explains every part.",
        "#",
        f"#   noonward scenario check {asked.name}.yaml",
        f"#   noonward compare {asked.name}.yaml",
        f"name: {asked.name}",
        "protocol: each-slot    # every site decides on its waiting jobs once a slot",
        "slot_s: 300            # length of a slot, s",
        *([f"start: {first}      # UTC day the window starts on; --from and --to stand above it"] if first else []),
        f"window_h: {hours}".ljust(23) + "# hours over which jobs arrive and free GPUs draw idle power",
        "end: drained           # the run continues until every job is done; 'window': it stops, with jobs unfinished"
        if asked.jobs is None or np.isfinite(asked.slack_h)
        else "end: window            # the run stops there; 'drained', until every job is done, needs a slack_h",
    ]
    lines.append("goal: least-cost       # compare by cost with all jobs served; 'utility': by revenue less cost")
    if policies:
        wrapped = textwrap.wrap(", ".join(policies), 110, break_on_hyphens=False)
        lines += [f"reference_policy: {policies[0]}    # what savings are measured against", "policies: ["]
        lines += [f"  {line}" for line in wrapped] + ["]"]
    lines += ["fleet:", "  free_gpus: idle      # 'sleep' needs a sleep_w per GPU type", "  gpu_types:"]
    for name in types:
        lines += _gpu_lines(gpu_library()[name], list(classes))
    lines += [
        "  # zone: as Electricity Maps names it; its time zone is the site's. pue: facility power over IT power, "
        "each site's own",
        "  sites:",
    ]
    for pool in asked.pools:
        lines.append(
            f"    - {{name: {pool.name}, zone: {pool.zone}, gpu_type: {pool.gpu.name}, gpus: {pool.gpus}, "
            f"pue: {asked.pue:g}}}"
        )
    if asked.by_type:
        lines.append("  ranges:              # a job runs on the GPU type that it ran on")
        lines += [f"    {name}: [{', '.join(pools)}]" for name, pools in classes.items()]
    lines.append(
        "network: {throughput_gb_per_min: 1, usd_per_gb: 0, kwh_per_gb: 0}  # what moving a job's data takes and costs"
    )
    lines += _signal_lines(asked, folder)
    lines += _job_lines(asked, jobs, hours)
    lines += [
        "economics:",
        f"  revenue_usd_per_gpu_hour: {asked.revenue_usd_per_gpu_hour:g}  # what serving a GPU-hour is worth to "
        "policies; "
        "above every cost; in no figure",
        f"  carbon_usd_per_t: {asked.carbon_usd_per_t:g}",
    ]
    return "\n".join(lines) + "\n"


def _gpu_lines(gpu: Gpu, classes: Sequence[str]) -> list[str]:
    clock = f"{gpu.base_mhz} to {gpu.max_mhz} MHz" if gpu.base_mhz else f"up to {gpu.max_mhz} MHz"
    lines = [
        f"    {gpu.name}:  # {gpu.memory_gb} GB, limit {gpu.limit_w:g} W, {clock}; the card alone: add the "
        "host's share",
        f"      # idle: {gpu.idle_source}",
        f"      idle_w: {gpu.idle_w:g}",
        f"      # active: {gpu.active_source}",
        "      classes:",
    ]
    return lines + [f"        {name}: {{power: {{constant_w: {gpu.active_w:g}}}, time: duration}}" for name in classes]


def _signal_lines(asked: OwnFleet, folder: Path) -> list[str]:
    if not asked.signals:
        return ["signals: {source: generated, year: 2022}  # statistics of 2022; give files for real days"]
    lines = [
        "signals:",
        "  source: files",
        "  paths:             # a later file fills what the earlier ones leave unknown",
    ]
    return lines + [f"    - {_relative(path, folder)}" for path in asked.signals]


def _job_lines(asked: OwnFleet, jobs: str, hours: int) -> list[str]:
    if asked.jobs is None:
        gpus = sum(pool.gpus for pool in asked.pools)
        shares = ", ".join(f"{pool.name}: {pool.gpus}" for pool in asked.pools)
        return [
            "jobs:                  # generated after a public trace; give --jobs for your own",
            "  source: fine-tuning",
            f"  count: {max(1, round(gpus * hours / 17))}           # mean number of jobs",
            f"  origin_shares: {{{shares}}}",
            f"  gpus_cap: {min(16, *(pool.gpus for pool in asked.pools))}",
            "  demand: 0.7          # GPU-hours asked over those there are",
            "  kinds:               # GB that travel with a job and come back",
            "    job: {share: 1, data: {low_gb: 0, high_gb: 0}, model: {low_gb: 0, high_gb: 0}}",
        ]
    slack = ".inf" if np.isinf(asked.slack_h) else f"{asked.slack_h:g}"
    said = (
        ["  # jobs wait as long as it takes; slack_h: 24 would let them wait for a day at most"]
        if slack == ".inf"
        else [
            f"  slack_h: {slack}          # largest delay of a start; jobs that wait longer are dropped. Left "
            "out: no limit"
        ]
    )
    return ["jobs:", "  source: table", f"  path: {jobs}", *said]
