"""Tables and figures of ``reproduce grid-events``: measured against computed power, and what a cut costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from noonward.evaluate.report.figure_style import INK, PALE, POLICY_COLORS, SYMBOLS, lay_out
from noonward.evaluate.report.page import write_tables
from noonward.evaluate.table import UNDEFINED, Figure, TextTable
from noonward.studies.grid_events.reproduce import CUTS, GridEvents, Held


def grid_event_tables(found: GridEvents) -> list[TextTable]:
    """Returns all tables."""
    tables = [losses_table(found)]
    if found.held:
        tables.insert(0, physics_table(found))
    tables += [policies_table(held) for held in found.held]
    return tables


def physics_table(found: GridEvents) -> TextTable:
    """Returns a row per field test: errors of computed power, cut, performance."""
    rows = []
    for held in found.held:
        test = held.test
        performance = (UNDEFINED,) * 4
        if held.published:
            performance = (
                f"{held.weighted(test.performance_J):.4f}",
                f"{held.weighted(held.ours_J):.4f}",
                f"{held.lost(test.performance_J):.1%}",
                f"{held.lost(held.ours_J):.1%}",
            )
        rows.append(
            (
                test.name,
                f"{test.baseline_w / 1000:.1f}",
                f"{test.event_cut:.1%}",
                f"{held.scaled.largest:.2%}",
                f"{held.unscaled.largest:.2%}",
                f"{held.scaled.rows} of {len(test.steady_T)}",
                *performance,
            )
        )
    return TextTable(
        title="Computed against measured power, and caps against the test's own plan at the same cut",
        header=(
            "test",
            "power before, kW",
            "mean cut",
            "largest error",
            "without scaling",
            "rows outside transitions",
            "weighted performance, theirs",
            "ours",
            "throughput lost, theirs",
            "ours",
        ),
        rows=tuple(rows),
        caption="largest error: of computed power in a row outside transitions, all GPUs' power scaled by one factor "
        "so that the jobs draw before the event what was measured then. "
        + " ".join(f"{held.test.name}: {held.scaled.how}." for held in found.held)
        + " Weights are the least performance of the jobs' classes; ours caps GPUs so that power is cut in every row "
        "as much as was measured, and stops none",
    )


def losses_table(found: GridEvents) -> TextTable:
    """Returns the least loss of throughput by cut, a row for each thing that GPUs may do."""
    return TextTable(
        title="Least throughput lost at a cut of power",
        header=("GPUs may be", *(f"{cut:.0%}" for cut in CUTS)),
        rows=tuple(
            (way, *(UNDEFINED if np.isnan(lost) else f"{lost:.1%}" for lost in by_cut.values()))
            for way, by_cut in found.lost.items()
        ),
        caption=f"{sum(job.gpus for job in found.mix)} GPUs in {len(found.mix)} jobs; the optimum over the measured "
        "points of power and throughput, any mix of them allowed. pausing: a stopped GPU draws nothing",
    )


def policies_table(held: Held) -> TextTable:
    """Returns what each policy loses at the test's mean cut, with stopped GPUs at 0 W and idle."""
    powers = list(dict.fromkeys(plan.stopped_w for plan in held.plans))
    rows = []
    for policy in dict.fromkeys(plan.policy for plan in held.plans):
        cells: list[str] = []
        for stopped_w in powers:
            (plan,) = (each for each in held.plans if (each.policy, each.stopped_w) == (policy, stopped_w))
            cells += [f"{plan.lost:.1%}", f"{plan.plan.met_T.mean():.0%}"]
        rows.append((policy, *cells))
    return TextTable(
        title=f"{held.test.name}: throughput lost over the event at its mean cut of {held.test.event_cut:.1%}",
        header=("policy", *(title for w in powers for title in (f"lost, stopped at {w:g} W", "steps that meet it"))),
        rows=tuple(rows),
        caption="One budget over the whole event. dvfs-fair to pause-resize-fair are Emerald AI's published policies; "
        "they know the jobs' least performance, and their simulator counts a stopped GPU as 0 W. Throughput by GPUs",
    )


def grid_event_figures(found: GridEvents) -> list[Figure]:
    """Returns all figures."""
    return [*(power_figure(held) for held in found.held), losses_figure(found)]


def power_figure(held: Held) -> Figure:
    """Draws measured and computed power over time."""
    test, figure = held.test, go.Figure()
    hours = test.power.minutes_T / 60
    inside = hours[test.event_T]
    figure.add_vrect(x0=inside[0], x1=inside[-1], fillcolor=PALE, opacity=0.35, line_width=0, layer="below")
    figure.add_scatter(
        x=hours, y=test.power.total_w_T / 1000, mode="lines", name="measured", line={"color": INK, "width": 1.2}
    )
    figure.add_scatter(
        x=hours,
        y=held.scaled.computed_w_T / 1000,
        mode="lines",
        name="computed, outside transitions",
        line={"color": POLICY_COLORS[1], "width": 3},
    )
    lay_out(figure, 380, legend="above")
    figure.update_xaxes(title_text="hours since the first row")
    figure.update_yaxes(title_text="power of all jobs (kW)", rangemode="tozero")
    return Figure(
        name=f"power-{test.name}",
        title=f"{test.name}: measured and computed power",
        caption=f"Shaded: the event. Largest error outside transitions {held.scaled.largest:.2%}. {held.scaled.how}.",
        plot=figure,
    )


def losses_figure(found: GridEvents) -> Figure:
    """Draws the least loss of throughput against the cut."""
    figure = go.Figure()
    for n, (way, by_cut) in enumerate(found.lost.items()):
        figure.add_scatter(
            x=list(by_cut),
            y=[None if np.isnan(lost) else lost for lost in by_cut.values()],
            mode="lines+markers",
            name=way,
            line={"color": POLICY_COLORS[n]},
            marker={"symbol": SYMBOLS[n], "size": 9},
        )
    lay_out(figure, 420, legend="above")
    figure.update_xaxes(title_text="cut of power", tickformat=".0%")
    figure.update_yaxes(title_text="throughput lost", tickformat=".0%", rangemode="tozero")
    return Figure(
        name="throughput-lost",
        title="Least throughput lost at a cut of power",
        caption="Lower is better. pausing: stopped GPUs draw nothing; pausing-idle: they draw idle power.",
        plot=figure,
    )


def write_grid_events(found: GridEvents, path: Path, *, command: str) -> Path:
    """Writes the report, one HTML file that loads nothing from anywhere.

    Args:
        found: Results.
        path: File; its folder is made.
        command: The command that made it.
    """
    return write_tables(
        "Data centers that follow a grid event",
        "Field tests in which a data center cut its power for a grid: its measured power against what our physics "
        "gives, and what the same cut costs under other plans.",
        grid_event_tables(found),
        grid_event_figures(found),
        path,
        command=command,
    )
