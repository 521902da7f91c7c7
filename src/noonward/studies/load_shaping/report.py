"""The reports of ``reproduce load-shaping``: the paper's experiment, and promises kept day by day."""

from __future__ import annotations

from pathlib import Path

from noonward.evaluate.report.page import write_figures, write_tables
from noonward.evaluate.statistics import mean
from noonward.evaluate.table import TextTable
from noonward.studies.load_shaping.figures import load_shaping_figures
from noonward.studies.load_shaping.promise_figures import promise_figures
from noonward.studies.load_shaping.promises import Promises, chance_range
from noonward.studies.load_shaping.reproduce import TRAINING, VALIDATION, LoadShaping


def write_load_shaping(found: LoadShaping, path: Path, *, draws: int, seed: int, command: str) -> Path:
    """Writes the report, one HTML file that loads nothing from anywhere.

    Args:
        found: Results.
        path: File; its folder is made.
        draws: Draws of days.
        seed: Seed of the draws.
        command: The command that made it.
    """
    return write_figures(
        "Day-ahead plans with probabilistic guarantees",
        f"Load shapes: {found.source}. {draws} draws of {TRAINING} training and {VALIDATION} validation days, seed "
        f"{seed}. Costs are those of the realised load, as a fraction above the plan that knows the day.",
        found.metrics(),
        load_shaping_figures(found),
        path,
        command=command,
    )


def write_promises(found: Promises, path: Path, *, seed: int, command: str) -> Path:
    """Writes the report of promises on rolling days, one HTML file that loads nothing from anywhere.

    Args:
        found: Results.
        path: File; its folder is made.
        seed: Seed of drawn days.
        command: The command that made it.
    """
    return write_tables(
        "Do day-ahead plans keep their promise?",
        "Each day is planned from the days before it and measured on the day that came. A day is kept if its load "
        "stays within the virtual capacity curve at every hour and cluster. Costs are above those of the plan that "
        f"knows the day: load is what runs, reserve is the curve. Drawn days have seed {seed}.",
        [promise_table(found)],
        promise_figures(found),
        path,
        command=command,
    )


def promise_table(found: Promises) -> TextTable:
    """Returns a row per source and plan: share of days kept, both costs, days."""
    rows = []
    for (source, plan), days in found.found.items():
        held, load, reserve = (mean(values) for values in (days.held, days.load_cost, days.reserve))
        low, high = chance_range(max(len(days.held), 1), days.promise)
        rows.append(
            (
                source, plan, f"{days.promise:.0%}", f"{held.value:.1%}", f"{low:.0%} to {high:.0%}",
                f"{load.value:+.1%}", f"{reserve.value:+.1%}", str(len(days.held)), str(days.limited),
            )
        )  # fmt: skip
    return TextTable(
        title="Day-ahead plans on rolling days",
        header=("source", "plan", "promised", "held", "by chance", "load cost", "reserve", "days", "limited"),
        rows=tuple(rows),
        caption=(
            "held: days within the curve everywhere. by chance: what independent days that hold as promised would show "
            "in 95% of cases. load cost and reserve: cost of the load that ran and of the "
            "curve, above the plan that knows the day. limited: days on which the machines held less than the margin "
            "that the promise asked for"
        ),
    )
