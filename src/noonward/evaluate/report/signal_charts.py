"""Prices and carbon intensities of zones as a drawing or a page: their course, and their usual day."""

from __future__ import annotations

import itertools
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.errors import ScenarioError
from noonward.evaluate.report import page
from noonward.evaluate.report.charts import STYLE, Line, line_chart, stacked
from noonward.evaluate.report.figure_style import SITE_COLORS
from noonward.files import require_folder, write_text
from noonward.model.signals import Signals
from noonward.units import DAY_H

STEPS: Final = ((14 * DAY_H, 1, ""), (120 * DAY_H, DAY_H, ", daily means"), (None, 7 * DAY_H, ", weekly means"))
"""Longest course that is drawn in steps of so many hours, and what its title says."""
ENDINGS: Final = (".html", ".svg")


def require_ending(path: Path) -> None:
    """Raises ScenarioError unless a picture's file has a known ending, FileError unless it can be written."""
    if path.suffix.lower() not in ENDINGS:
        raise ScenarioError(f"--out {path}: a picture is written as {' or '.join(ENDINGS)}; give such a name")
    require_folder(path, "--out")


def usual_day(value_H: F8, first_hour: int) -> F8:
    """Returns the mean of each hour of the day (UTC), NaN where none is known.

    Args:
        value_H: Values per hour.
        first_hour: Hour of the day of the first value.

    Example:
        >>> usual_day(np.arange(48.0), 0)[:2].tolist()
        [12.0, 13.0]
    """
    hour_H = (first_hour + np.arange(len(value_H))) % DAY_H
    known_H = np.isfinite(value_H)
    total = np.bincount(hour_H[known_H], value_H[known_H], minlength=DAY_H)
    count = np.bincount(hour_H[known_H], minlength=DAY_H)
    return np.asarray(np.divide(total, count, out=np.full(DAY_H, np.nan), where=count > 0))


def write_signal_charts(signals: Signals, path: Path) -> Path:
    """Writes the charts as one page or one drawing, by the file's ending, and returns its path.

    Raises:
        ScenarioError: The ending is another one.
    """
    require_ending(path)
    charts = signal_charts(signals)
    span = f"{signals.start:%Y-%m-%d} to {signals.end:%Y-%m-%d} UTC"
    if path.suffix.lower() == ".svg":
        write_text(path, stacked([svg for _, svg in charts]))
        return path
    body = [f"<h1>{escape(', '.join(signals.zones))}</h1>", f"<p class='lead'>{span}, {signals.hours:,} hours</p>"]
    drawn = "".join(f"<section><h2>{escape(title)}</h2>{svg}</section>" for title, svg in charts)
    body += [f"<div class='pair'>{drawn}</div>", page.notes_html(signals.notes)]
    body.append("<footer>Made by noonward. This file loads nothing from the network.</footer>")
    return page.write_page(f"Signals, {span}", "\n".join(body), path, css=STYLE)


def signal_charts(signals: Signals) -> list[tuple[str, str]]:
    """Returns titles and drawings: course and usual day of price and of carbon intensity, as far as they are known."""
    charts = []
    step, means_of = next((step, said) for most, step, said in STEPS if most is None or signals.hours <= most)
    for what, unit, value_ZH in (
        ("Price", "USD/MWh", signals.price_usd_per_mwh_ZH),
        ("Carbon intensity", "g CO2/kWh", signals.carbon_g_per_kwh_ZH),
    ):
        if np.isnan(value_ZH).all():
            continue
        course, day = [], []
        for n, (zone, value_H) in enumerate(zip(signals.zones, value_ZH, strict=True)):
            color = SITE_COLORS[n % len(SITE_COLORS)]
            edges = np.array([*range(0, len(value_H), step), len(value_H)])
            means = [_mean(value_H[a:b]) for a, b in itertools.pairwise(edges)]
            course.append(Line(name=zone, x=tuple(edges[:-1] / DAY_H), y=tuple(means), color=color))
            usual = usual_day(value_H, signals.start.hour)
            day.append(Line(name=zone, x=tuple(float(hour) for hour in range(DAY_H)), y=tuple(usual), color=color))

        def on(days: float) -> str:
            return f"{signals.start + timedelta(days=days):%d %b}"

        axis = f"{what.lower()} ({unit})"
        charts.append((f"{what}{means_of}", line_chart(course, "day (UTC)", axis, name_x=on)))
        hours = line_chart(day, "hour of the day (UTC)", axis, ticks_x=(0, 6, 12, 18, 23))
        charts.append((f"{what} on a usual day", hours))
    return charts


def _mean(value_H: F8) -> float:
    known_H = value_H[np.isfinite(value_H)]
    return float(known_H.mean()) if len(known_H) else float("nan")
