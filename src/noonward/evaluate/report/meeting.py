"""The report for a meeting: one page that says what to adopt, with three pictures; methods are folded below.

It contains no JavaScript and makes no network requests, so it is small and prints well. ``report/page.py`` makes the
page with all charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from html import escape
from pathlib import Path
from urllib.parse import quote

from noonward.evaluate.answer import (
    best_to_adopt,
    bills,
    can_run,
    carbon_unit,
    digits_of,
    headline,
    plainly,
    spoken,
    verdict_of,
)
from noonward.evaluate.cluster_objective import ClusterObjective
from noonward.evaluate.comparison import Comparison, case_noun, one_window
from noonward.evaluate.report import page
from noonward.evaluate.report.charts import BAD, GOOD, QUIET, STYLE, Bar, Point, bar_chart, difference_map, scatter
from noonward.evaluate.report.figure_style import grid, site_names, utc_hours, window_hours
from noonward.evaluate.report.site_section import site_caption, site_section
from noonward.evaluate.report.tiles import STYLE as TILES_STYLE
from noonward.evaluate.report.tiles import tiles_html
from noonward.evaluate.statistics import Estimate, mean

_CSS = """
.narrow { display: none; } .map { border: 1px solid #e3e6ea; margin: 6px 0 12px; }
details { border-top: 1px solid #d7dbe0; padding: 8px 0; margin: 0; } summary { font-weight: 600; }
details h2 { font-size: 17px; margin: 14px 0 4px; }
@media (max-width: 600px) { .wide { display: none; } .narrow { display: block; } }
"""
STUDIES = ("trade-off", "sensitivity")
"""Studies whose pages a report links to: how their files' names begin, before the policy's."""
MANY = 10
"""Policies from which on a chart has no room for every name, and the bars of all fill a column."""
COLUMNS = (("wide", 56, 920, 8), ("narrow", 24, 380, 4))
"""Drawings of what moves where and when, for wide and narrow pages: class, most columns, width, most texts. Windows of
more hours are drawn in steps of several hours."""


def write_meeting_report(
    comparison: Comparison, path: Path, *, command: str, figures: Path | None = None, studies: Sequence[Path] = ()
) -> Path:
    """Writes the page for a meeting and returns its path.

    Args:
        comparison: Comparison.
        path: File; its folder is made.
        command: The command that made the comparison.
        figures: Page with every figure, in the same folder, to link to; or None.
        studies: Pages of trade-offs and sensitivities, in the same folder, to link to.
    """
    first, *rest = headline(comparison)
    scenario = comparison.scenario
    beside = len(comparison.records) > MANY  # the windows fill the shorter column
    parts = [
        f"<p class='caption'>{escape(': '.join(filter(None, (scenario.name, scenario.description))))}</p>",
        f"<h1>{page.prose(first)}</h1>",
        page.lead_html(rest[:1]),
        tiles_html(comparison),
        _what_it_does(comparison),
        page.list_html(rest[1:]),
        page.notes_html(comparison.notes),
        "<div class='pair'>",
        "<div>",
        _section("What each policy gains", _saving_caption(comparison), saving_chart(comparison)),
        "" if beside else _windows(comparison),
        "</div>",
        "<div>",
        _cost_and_carbon(comparison),
        _windows(comparison) if beside else "",
        "</div>",
        "</div>",
        _sites(comparison),
        _moves(comparison),
        *(
            f"<details><summary>{title}</summary>{html}</details>"
            for title, html in page.folded_parts(comparison, command)
        ),
    ]
    links = [] if figures is None else [(figures, "All charts, interactive")]
    for study in studies:
        name = next(name for name in STUDIES if study.stem.startswith(name))
        links.append((study, f"{name} of {study.stem.removeprefix(name + '-')}".capitalize()))
    if links:
        told = " · ".join(f"<a href='{escape(quote(link.name))}'>{escape(text)}</a>" for link, text in links)
        parts.append(f"<p>In the same folder: {told}</p>")
    parts.append("<footer>Made by noonward. This file loads nothing from the network.</footer>")
    return page.write_page(
        first.split(":")[0], "\n".join(part for part in parts if part), path, css=STYLE + TILES_STYLE + _CSS
    )


def _what_it_does(comparison: Comparison) -> str:
    """Returns a sentence on the policy that the verdict names, from its registration; nothing where it has none."""
    best = best_to_adopt(comparison)
    summary = plainly(comparison.policies[best].summary)
    return f"<p><b>{escape(best)}</b>: {page.prose(summary)}</p>" if summary and best != comparison.reference else ""


def improvement(comparison: Comparison, policy: str) -> Estimate:
    """Returns by how much a policy is better than today's by what ranks; money in the currency shown."""
    objective = comparison.objective
    sign = 1.0 if objective.better == "up" else -1.0
    values = comparison.values(policy, objective.value) - comparison.values(comparison.reference, objective.value)
    estimate = mean(sign * values)
    return comparison.currency.of(estimate) if objective.value == "total_usd" else estimate


def unit_of_improvement(comparison: Comparison) -> str:
    """Returns the unit of what ``improvement`` returns."""
    if comparison.objective.value == "total_usd":
        return comparison.currency.name
    name = comparison.objective.value_name
    return name.partition("(")[2].rstrip(")") or name


def saving_chart(comparison: Comparison) -> str:
    """Returns the improvement of each policy against today's, best first."""
    best, bars = best_to_adopt(comparison), []
    for policy in comparison.ranked():
        if policy == comparison.reference:
            continue
        gain = improvement(comparison, policy)
        known = can_run(comparison.policies[policy])
        missed = comparison.objective.unmet(comparison, policy)
        beside = " (knows the future)" if not known else " (not proposed)" if missed else ""
        digits = digits_of(gain.value)
        bars.append(
            Bar(
                name=policy + beside,
                value=gain.value,
                low=gain.low,
                high=gain.high,
                text=f"{gain.value:+,.{digits}f} {unit_of_improvement(comparison)}",
                color=QUIET if beside else BAD if gain.value < 0 else GOOD if policy == best else "#7fb183",
            )
        )
    return bar_chart(bars, unit_of_improvement(comparison))


def _saving_caption(comparison: Comparison) -> str:
    objective = comparison.objective
    if objective.value == "total_usd":
        what = f"{comparison.currency.name} of total cost saved"
    else:
        what = f"{'Gain in' if objective.better == 'up' else 'Reduction of'} {objective.value_name}"
        if objective.value == "utility_usd":
            what += ", which is revenue minus the cost of energy, carbon and transfers,"
    case = case_noun(comparison.scenario)
    count = f"the one {case}" if len(comparison.bounds) == 1 else f"all {len(comparison.bounds)} {case}s"
    lines = " Lines are 95% intervals." if len(comparison.bounds) > 1 else ""
    gray = any(not can_run(each) or objective.unmet(comparison, name) for name, each in comparison.policies.items())
    lines += " Gray: knows the future, or misses a constraint." if gray else ""
    return f"{what} against {spoken(comparison.reference)}, mean of {count}; to the right is better.{lines}"


def _cost_and_carbon(comparison: Comparison) -> str:
    if not isinstance(comparison.objective, ClusterObjective) or comparison.scenario.signals is None:
        return ""
    best, points = best_to_adopt(comparison), []
    carbon = {policy: comparison.mean(policy, "carbon_kg").value for policy in comparison.records}
    unit, size, _ = carbon_unit(comparison)
    for policy, kg in carbon.items():
        color = "#222" if policy == comparison.reference else GOOD if policy == best else "#9db9d3"
        points.append(
            Point(
                name=spoken(policy),
                x=float(bills(comparison, policy).mean()) / comparison.currency.usd,
                y=kg / size,
                color=color,
                always=len(carbon) <= MANY or policy in (comparison.reference, best),
            )
        )
    green = "" if best == comparison.reference else f"; green: {best}"
    caption = (
        f"Down and left is better: what is paid for energy and transfers, and what is emitted. Black: "
        f"{spoken(comparison.reference)}{green}. Policies that run fewer GPU-hours pay less for less. The axes do "
        "not begin at zero; points without room for a name are in the table. How "
        "emissions are counted: see What was compared, below."
    )
    paid = f"paid for energy and transfers ({comparison.currency.name})"
    chart = scatter(points, paid, f"emissions ({unit})")
    return _section("Cost and carbon", caption, chart)


def _windows(comparison: Comparison) -> str:
    """Returns what the policy of the verdict saves window by window, the measuring windows dark."""
    verdict = verdict_of(comparison)
    best, today, objective = verdict.policy, comparison.reference, comparison.objective
    count = len(comparison.bounds)
    if best == today or count < 2 or not isinstance(objective, ClusterObjective):
        return ""
    sign = 1.0 if objective.better == "up" else -1.0
    gain_E = sign * (comparison.values(best, objective.value) - comparison.values(today, objective.value))
    if objective.value == "total_usd":
        gain_E = gain_E / comparison.currency.usd
    unit, digits = unit_of_improvement(comparison), 0 if abs(gain_E).max() >= 100 else 2
    draws, case = one_window(comparison), case_noun(comparison.scenario)
    bars = [
        Bar(
            name=f"draw {n}" if draws else objective.name_environment(comparison, comparison.records[best][n]),
            value=float(gain_E[n]),
            low=None,
            high=None,
            text=f"{gain_E[n]:+,.{digits}f} {unit}",
            color=BAD if gain_E[n] < 0 else GOOD if n in verdict.measured else "#7fb183",
        )
        for n in range(count)
    ]
    what = "draws" if draws else f"{case}s"
    chosen = "" if len(verdict.measured) == count else f" Pale {what} chose the policy, dark ones measure it."
    each = "each draw of prices for the one window of jobs" if draws else f"each {case}"
    caption = f"{best} against {spoken(today)} in {each}; to the right is better.{chosen}"
    title = "Draw by draw" if draws else f"{case.capitalize()} by {case}"
    return _section(title, caption, bar_chart(bars, unit))


def _moves(comparison: Comparison) -> str:
    best, today = best_to_adopt(comparison), comparison.reference
    if best == today or not isinstance(comparison.objective, ClusterObjective):
        return ""
    records = comparison.records[best][0], comparison.records[today][0]
    busy = [grid(record, "busy_gpu_hours")[0] for record in records]
    least = min(window_hours(records[0]), *(each.shape[1] for each in busy))  # runs end at hours of their own
    more_SH = busy[0][:, :least] - busy[1][:, :least]
    start: datetime = utc_hours(records[0], 1)[0]
    drawn, steps = [], []
    for name, most, width, ticks in COLUMNS:
        step = -(-least // most)
        count = least // step
        change_ST = more_SH[:, : count * step].reshape(len(more_SH), count, step).mean(axis=2)
        form = "%d %b" if name == "narrow" and least > 48 else "%d %b %H:%M"
        times = [(start + timedelta(hours=t * step)).strftime(form) for t in range(count)]
        chart = difference_map(change_ST, site_names(records[0]), times, "GPUs", width=width, ticks=ticks)
        drawn.append(f"<div class='{name}'>{chart}</div>")
        steps.append("hour" if step == 1 else f"{step} hours")
    case = case_noun(comparison.scenario)
    first = "draw of prices" if case == "window" and one_window(comparison) else case
    every = steps[0] if len(set(steps)) == 1 else f"{steps[0]} ({steps[1]} on a narrow screen)"
    caption = (
        f"GPUs in use under {best} less those under {spoken(today)}, per site and {every} (UTC) of the first {first}. "
        "Orange: work that comes here and now; blue: work that leaves, to another site or another hour."
    )
    return _section("What moves where and when", caption, "".join(drawn))


def _sites(comparison: Comparison) -> str:
    best = best_to_adopt(comparison)
    cluster = isinstance(comparison.objective, ClusterObjective)
    if best == comparison.reference or not cluster or comparison.scenario.signals is None:
        return ""
    return _section("Where work goes", site_caption(comparison, best), site_section(comparison, best))


def _section(title: str, caption: str, chart: str) -> str:
    return (
        f"<section><h2>{escape(title)}</h2><p class='caption'>{page.prose(caption)}</p>{chart}</section>"
        if chart
        else ""
    )
