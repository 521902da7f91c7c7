"""The text of your own scenario: commented YAML."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
import yaml

from noonward.data.gpu_library import Gpu, gpu_library
from noonward.data.scenarios.own_fleet import OwnFleet


def _scalar(text: str) -> str:
    """Returns a text as YAML, quoted where a reader of YAML would take it for something else.

    Example:
        >>> _scalar("DE"), _scalar("NO")
        ('DE', '"NO"')
    """
    try:
        plain = yaml.safe_load(f"[{text}]") == [text]
    except yaml.YAMLError:
        plain = False
    return text if plain else json.dumps(text, ensure_ascii=False)


def _job_path(asked: OwnFleet, folder: Path, table: bool) -> str:
    """Returns the path of the job table as the file states it."""
    if asked.jobs is None:
        return ""
    return f"{asked.name}-jobs.csv" if table else _relative(asked.jobs, folder)


def _relative(path: Path, folder: Path) -> str:
    """Returns a path relative to a folder if it is inside that folder; otherwise the whole path."""
    whole, base = path.resolve(), folder.resolve()
    return str(whole.relative_to(base)) if whole.is_relative_to(base) else str(whole)


def scenario_text(
    asked: OwnFleet, folder: Path, table: bool, starts: bool, first: date | None, hours: int, policies: Sequence[str]
) -> str:
    """Returns the scenario as commented YAML.

    Args:
        asked: What it is made from.
        folder: Folder that the file will lie in; paths are written relative to it where they lie below.
        table: Whether the job table was written again, beside the file.
        starts: Whether it says when its jobs started.
        first: First day of the window.
        hours: Its length, h.
        policies: Policies to compare; none: none are written.
    """
    types = list(dict.fromkeys(pool.gpu.name for pool in asked.pools))
    classes = asked.classes
    lines = [
        "# Your own fleet, written by 'noonward init'. docs/own-fleet.md explains every part.",
        "#",
        f"#   noonward scenario check {asked.name}.yaml",
        f"#   noonward compare {asked.name}.yaml",
        f"name: {_scalar(asked.name)}",
        "protocol: each-slot    # every site decides on its waiting jobs once a slot",
        "slot_s: 60             # length of a slot, s",
        *([f"start: {first}      # UTC day the window starts on; --from and --to stand above it"] if first else []),
        f"window_h: {hours}".ljust(23) + "# hours over which jobs arrive and free GPUs draw idle power",
        "end: drained           # the run continues until every job is done; 'window': it stops, with jobs unfinished",
        "lateness:              # what becomes of a job that has not started in time (slack_h)",
        "  rule: wait           # it waits and may start later, its delay counted; 'drop': it is dropped then",
        f"  usd_per_gpu_hour: {asked.late_usd_per_gpu_hour:g}  # price of an hour that it starts late, per GPU; 0: "
        "no more jobs may be late than today",
    ]
    lines.append("goal: least-cost       # compare by cost with all jobs served; 'utility': by revenue less cost")
    if policies:
        wrapped = textwrap.wrap(", ".join(policies), 110, break_on_hyphens=False)
        lines += [
            f"baseline: {policies[0]}    # what savings are measured against; --baseline names another",
            "policies: [",
        ]
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
            f"    - {{name: {_scalar(pool.name)}, zone: {_scalar(pool.zone)}, gpu_type: {pool.gpu.name}, "
            f"gpus: {pool.gpus}, pue: {asked.pue:g}}}"
        )
    if asked.by_type or asked.class_sites:
        why = "a job runs on the GPU type that it ran on" if asked.by_type else "where jobs of a class may run"
        why += "; add a site to a list to let them run there too"
        lines.append(f"  ranges:              # {why}")
        lines += [f"    {_scalar(name)}: [{', '.join(map(_scalar, pools))}]" for name, pools in classes.items()]
    lines.append(
        "network: {throughput_gb_per_min: 1, usd_per_gb: 0, kwh_per_gb: 0}  # what moving a job's data takes and costs"
    )
    lines += _signal_lines(asked, folder)
    lines += _job_lines(asked, _job_path(asked, folder, table), hours, starts)
    lines += [
        "economics:",
        f"  revenue_usd_per_gpu_hour: {asked.revenue_usd_per_gpu_hour:g}  # what serving a GPU-hour is worth to "
        "policies; "
        "above every cost; in no figure",
        f"  carbon_usd_per_t: {asked.carbon_usd_per_t:g}",
        f"  waiting_usd_per_hour: {asked.waiting_usd_per_hour:g}  # what an hour is worth that a job waits; 0: counted "
        "alone",
        f"  gpu_usd_per_hour: {asked.gpu_usd_per_hour:g}  # what a GPU costs per hour, run or not; savings are shown "
        "as a share of it too",
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
    return lines + [
        f"        {_scalar(name)}: {{power: {{constant_w: {gpu.active_w:g}}}, time: duration}}" for name in classes
    ]


def _signal_lines(asked: OwnFleet, folder: Path) -> list[str]:
    if not asked.signals:
        return ["signals: {source: generated, year: 2022}  # statistics of 2022; give files for real days"]
    lines = [
        "signals:",
        "  source: files",
        "  paths:             # a later file fills what the earlier ones leave unknown",
    ]
    return lines + [f"    - {_scalar(_relative(path, folder))}" for path in asked.signals]


def _job_lines(asked: OwnFleet, jobs: str, hours: int, starts: bool) -> list[str]:
    if asked.jobs is None:
        gpus = sum(pool.gpus for pool in asked.pools)
        shares = ", ".join(f"{_scalar(pool.name)}: {pool.gpus}" for pool in asked.pools)
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
    words = (
        ["  # no job is ever late; slack_h: 24 would call those late that wait for more than a day"]
        if slack == ".inf"
        else [f"  slack_h: {slack}          # largest delay of a start that is in time. Left out: no limit"]
    )
    alone = f"  leave_alone_min: {asked.leave_alone_min:g}    # shorter jobs are late unless they start at once"
    told = [
        "  knowledge:           # what policies are told of a job's run time when it arrives",
        "    run_time: learned  # what the log says of jobs like it, at most its limit (limit_s); 'known': the truth",
    ]
    there = (
        "  at_start: as-recorded  # jobs that were running or waiting when the window starts are there; 'empty': none"
    )
    return ["jobs:", "  source: table", f"  path: {_scalar(jobs)}", *words, alone, *([there] if starts else []), *told]
