"""Your own scenario as a file: made from sites, signals and jobs, tried, and written only if it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from noonward.data.environments import past_days
from noonward.data.jobs.classes import parse_class
from noonward.data.jobs.dated import job_rows
from noonward.data.scenarios.own_fleet import OwnFleet, parse_site
from noonward.data.scenarios.own_scenario import write_own_fleet
from noonward.errors import NoonwardError, ScenarioError
from noonward.evaluate.asked import fitting_policies, windows_given
from noonward.evaluate.evidence import assumed, made_prices
from noonward.evaluate.published import with_published
from noonward.files import SLUG, require_folder, table_bytes, write_text
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import JobTable, Scenario, SignalFiles
from noonward.runtime.by_kind import build_environment

MOST_WINDOWS: Final = 8
"""Most windows that the next step proposes."""
LEAST_DAYS: Final = 2
"""Least days of a window that it proposes."""
CANDIDATES: Final = (
    "what-happened", "local-fcfs", "local-backfill", "price-greedy", "carbon-greedy", "cheapest-feasible",
    "cheapest-unclaimed", "patient", "booked-persistence", "booked-regression", "bid-price-persistence",
    "bid-price-regression", "bid-price-neural",
)  # fmt: skip
"""Policies that your own fleet compares, those that fit: what happened, rules, planners, learned ones. Where a zone
has a day-ahead market, planners read published prices (``with_published``)."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """Your own scenario, written.

    Attributes:
        path: Its file.
        table: Job table written beside it, or None where the table given stays as it is.
        scenario: The scenario.
        environment: Its first environment, on which it was tried.
        gpus: GPUs of all sites.
        notes: What was decided, and what must be known.
        left_out: Policies that do not fit, with the reason.
        next_command: Command that compares the policies, over several windows where the log and the signals hold them.
    """

    path: Path
    table: Path | None
    scenario: Scenario
    environment: Environment
    gpus: int
    notes: tuple[str, ...]
    left_out: tuple[str, ...]
    next_command: str


def init_fleet(
    path: str | Path,
    *,
    sites: Sequence[str],
    signals: Sequence[str | Path] = (),
    jobs: str | Path | None = None,
    origins: str | Mapping[str, str] | None = None,
    classes: Sequence[str] = (),
    class_slack_h: Mapping[str, float] | None = None,
    class_sites: Mapping[str, Sequence[str]] | None = None,
    first: date | None = None,
    last: date | None = None,
    pue: float = OwnFleet.pue,
    slack_h: float = OwnFleet.slack_h,
    late_usd_per_gpu_hour: float = OwnFleet.late_usd_per_gpu_hour,
    waiting_usd_per_hour: float = OwnFleet.waiting_usd_per_hour,
    gpu_usd_per_hour: float = OwnFleet.gpu_usd_per_hour,
    leave_alone_min: float = OwnFleet.leave_alone_min,
    carbon_usd_per_t: float = OwnFleet.carbon_usd_per_t,
    revenue_usd_per_gpu_hour: float = OwnFleet.revenue_usd_per_gpu_hour,
    force: bool = False,
) -> Made:
    """Writes your own scenario, after it was tried; ``noonward init`` from Python.

    Args:
        path: YAML file to write, such as ``mine.yaml``.
        sites: Each ``berlin=DE:64xA100-80-SXM``; several types: ``oslo=NO-NO1:32xH100-SXM,64xL4``.
        signals: Signal files; none: generated signals.
        jobs: Dated job table or log; None: generated jobs.
        origins: Site that all jobs come from, or site by the log's name of a place.
        classes: Rules such as ``interactive=partition==dev``.
        class_slack_h: Largest accepted delay of a start of jobs of a class, h, where it is another than ``slack_h``.
        class_sites: Sites that jobs of a class may run at; those of other classes may run at all.
        first: First day of the window; None: found from jobs and signals.
        last: Its last day.
        pue: Facility power over IT power of all sites, at least 1.
        slack_h: Largest accepted delay of a start, h; infinite for none.
        late_usd_per_gpu_hour: Price of an hour that a job starts later than that, per GPU.
        waiting_usd_per_hour: What an hour is worth that a job waits.
        gpu_usd_per_hour: What a GPU costs per hour whether it runs or not; 0: not said.
        leave_alone_min: Jobs that run for less than this, min, have no slack.
        carbon_usd_per_t: Price of emissions.
        revenue_usd_per_gpu_hour: What a GPU-hour of work is worth to policies.
        force: Replace an existing file.

    Raises:
        ScenarioError: The parts do not fit, or the file exists.
        FileError: The file's folder does not exist, or it cannot be written.
        DataError: A file cannot be read.
    """
    path = Path(path)
    require_new(path, force)
    files = [Path(each) for each in signals]
    table = None if jobs is None else Path(jobs)
    for each in (*files, *([] if table is None else [table])):
        if not each.is_file():
            raise ScenarioError(f"file {each} does not exist; check the path")
    asked = OwnFleet(
        name=path.stem,
        pools=tuple(pool for text in sites for pool in parse_site(text)),
        signals=tuple(files),
        jobs=table,
        origins={} if origins is None or isinstance(origins, str) else origins,
        origin=origins if isinstance(origins, str) else None,
        rules=tuple(parse_class(text) for text in classes),
        class_slack_h=class_slack_h or {},
        class_sites={name: tuple(told) for name, told in (class_sites or {}).items()},
        first=first,
        last=last,
        pue=pue,
        slack_h=slack_h,
        late_usd_per_gpu_hour=late_usd_per_gpu_hour,
        waiting_usd_per_hour=waiting_usd_per_hour,
        gpu_usd_per_hour=gpu_usd_per_hour,
        leave_alone_min=leave_alone_min,
        carbon_usd_per_t=carbon_usd_per_t,
        revenue_usd_per_gpu_hour=revenue_usd_per_gpu_hour,
    )
    return _write(asked, path, force)


def require_new(path: Path, force: bool) -> None:
    """Raises ScenarioError if a path is no name of a scenario file, or the file exists and may not be replaced.

    Raises:
        FileError: Its folder does not exist, or it cannot be written.
    """
    if path.suffix not in (".yaml", ".yml") or not SLUG.fullmatch(path.stem):
        raise ScenarioError(f"{path} cannot be the name of a scenario file; name it like mine.yaml")
    if path.exists() and not force:
        raise ScenarioError(f"{path} exists; choose another name, or replace it with --force")
    require_folder(path, "FILE")


def _write(asked: OwnFleet, path: Path, force: bool) -> Made:
    """Writes your own scenario, after it was tried: what does not fit is one error, and nothing is written."""
    candidates = with_published(CANDIDATES, [pool.zone for pool in asked.pools])
    made = write_own_fleet(asked, path.parent, candidates)
    table = path.parent / f"{path.stem}-jobs.csv"
    if made.jobs is not None and table.exists() and not force:
        raise ScenarioError(f"{table} exists; choose another name, or replace it with --force")
    with TemporaryDirectory() as folder:
        tried = made.tried_with(Path(folder) / table.name)
        environment = build_environment(tried)
        fitting, misfits = fitting_policies(tried)
        windows, choices = _windows(tried), _choices(asked, tried)
    text = write_own_fleet(asked, path.parent, [policy.name for policy in fitting]).text
    if made.jobs is not None:
        write_text(table, table_bytes(made.jobs, ".csv").decode())
    write_text(path, text)
    return Made(
        path=path,
        table=None if made.jobs is None else table,
        scenario=made.scenario,
        environment=environment,
        gpus=sum(pool.gpus for pool in asked.pools),
        notes=tuple(dict.fromkeys([*made.notes, *choices, *environment.notes])),
        left_out=tuple(misfits),
        next_command=f"noonward compare {path}{windows}",
    )


def _choices(asked: OwnFleet, scenario: Scenario) -> list[str]:
    """Returns what was chosen for the user, with the option that changes each."""
    told = [assumed(scenario), made_prices(scenario)]
    if isinstance(asked.jobs, Path) and not asked.signals:
        told.append(
            "Without signal files compare runs this one window of jobs under several draws of prices, and never says "
            "Adopt; with --signals it compares several windows (--weeks, --windows) and can."
        )
    told.append(f"Carbon counts at {asked.carbon_usd_per_t:g} USD/t (--carbon-price).")
    changes = "--slack-h, --class-slack-h, --pue, --class-sites; network in the file"
    return [each.replace("Assumed:", f"assumed (change by {changes}):") for each in told if each]


def _windows(scenario: Scenario) -> str:
    """Returns the option that compares over several windows, ``" --windows N"``; empty where only one is there."""
    jobs = scenario.jobs
    days = job_rows(jobs).days if isinstance(jobs, JobTable) else None
    if days is None or not isinstance(scenario.signals, SignalFiles):
        return ""
    count = min(MOST_WINDOWS, ((days[1] - days[0]).days + 1 - past_days(*days)) // LEAST_DAYS)
    while count > 1:
        try:
            build_environment(windows_given(scenario, count, None), count - 1)
        except NoonwardError:  # the signals do not hold so many
            count -= 1
            continue
        return f" --windows {count}"
    return ""
