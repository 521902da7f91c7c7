"""The page of ``reproduce fine-tuning --map``: gains under each set of assumptions, and where the paper's pair lies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from noonward.evaluate.report.figure_style import INK, SYMBOLS, lay_out
from noonward.evaluate.report.page import write_tables
from noonward.evaluate.statistics import Estimate
from noonward.evaluate.table import UNDEFINED, Figure, TextTable
from noonward.studies.fine_tuning.gain_map import Cell, GainMap
from noonward.studies.fine_tuning.reproduce import BEST_LEARNED, PAPER_GAIN, PAPER_GPU_HOURS

PANELS: Final = ("masac", "cheapest-feasible", BEST_LEARNED)
"""Policies that are drawn, a panel each; where none was compared, the first ones that were."""
DEMAND_COLORS: Final = ("#fde0a6", "#f4a259", "#d95f0e", "#a63603", "#5b1a02")
"""Colours of demand from low to high."""
OUTLINE: Final = {"color": INK, "width": 1}
"""Line around a marker."""
PAPER_COLOR: Final = "#0072b2"
"""Colour of the paper's numbers."""


def write_gain_map(found: GainMap, path: Path, *, environments: int, seed: int, command: str) -> Path:
    """Writes the page, one HTML file that loads nothing from anywhere.

    Args:
        found: Map.
        path: File; its folder is made.
        environments: Environments of a cell.
        seed: Number of the draw of test environments.
        command: The command that made it.
    """
    return write_tables(
        "Under which assumptions do MASAC's published gains come out?",
        f"The paper reports {100 * PAPER_GAIN:.1f}% more utility than local FCFS and up to "
        f"{100 * PAPER_GPU_HOURS:.1f}% more GPU-hours than the other policies. It leaves out demand, GPU power, "
        "GPUs per job, the distribution of slack and more. Here these are varied. Every set of assumptions has "
        f"{environments} generated environments of the test's months (draw {seed}).",
        [map_table(found)],
        [pair_figure(found)],
        path,
        command=command,
        findings=map_findings(found),
    )


def _percent(estimate: Estimate) -> str:
    return UNDEFINED if math.isnan(estimate.value) else f"{100 * estimate.value:+.1f}"


def map_table(found: GainMap) -> TextTable:
    """Returns a row per cell: gain and additional GPU-hours of every policy, in percent, and the bound's gain."""
    rows = []
    for cell in found.cells:
        pairs = [
            f"{_percent(found.gain(cell, policy))} / {_percent(found.more_hours(cell, policy))}"
            + (" ●" if found.holds_pair(cell, policy) else "")
            for policy in found.compared
        ]
        rows.append((cell.name, *pairs, _percent(found.gain(cell, "bound"))))
    return TextTable(
        title="Utility over local FCFS / GPU-hours over the least of S0 to S3, percent",
        header=("assumptions", *found.compared, "bound (utility)"),
        rows=tuple(rows),
        caption=f"The paper: {100 * PAPER_GAIN:+.1f} / {100 * PAPER_GPU_HOURS:+.1f}. ●: both of its numbers lie within "
        "the 95% intervals. What a row does not name is as in the packaged scenario. Learned policies were trained "
        "only under the packaged assumptions (demand 0.85, 80 W).",
    )


def map_findings(found: GainMap) -> list[str]:
    """Returns what the map shows, a sentence or two for each policy that is drawn."""
    out = []
    for policy in (name for name in PANELS if name in found.policies):
        holding = [cell.name for cell in found.cells if found.holds_pair(cell, policy)]
        cell = found.nearest(policy)
        gain, hours = found.gain(cell, policy), found.more_hours(cell, policy)
        where = f"in {len(holding)} of {len(found.cells)} cells ({', '.join(holding)})" if holding else "in no cell"
        out.append(
            f"{policy}: both of the paper's numbers lie within the 95% intervals {where}. Nearest: {cell.name}, with "
            f"{_percent(gain)}% utility and {_percent(hours)}% GPU-hours."
        )
    return out


def pair_figure(found: GainMap) -> Figure:
    """Draws gain against additional GPU-hours, one panel per policy, one point per cell, and the paper's pair."""
    panels = [name for name in PANELS if name in found.policies] or found.compared[: len(PANELS)]
    figure = make_subplots(1, len(panels), subplot_titles=panels, shared_yaxes=True, horizontal_spacing=0.03)
    demands = sorted({cell.demand for cell in found.cells})
    varied = list(dict.fromkeys(cell.varied for cell in found.cells))
    for column, policy in enumerate(panels, start=1):
        for n, what in enumerate(varied):
            group = [cell for cell in found.cells if cell.varied == what]
            _add_points(figure, found, group, policy, column, n, demands)
        figure.add_scatter(
            x=[PAPER_GPU_HOURS], y=[PAPER_GAIN], mode="markers", name="the paper's MASAC",
            marker={"symbol": "star", "size": 17, "color": PAPER_COLOR, "line": {"color": "white", "width": 1}},
            legendgroup="paper", showlegend=column == 1, row=1, col=column,
        )  # fmt: skip
        line = {"color": PAPER_COLOR, "dash": "dot", "width": 1}
        figure.add_hline(y=PAPER_GAIN, line=line, row=1, col=column)
        figure.add_vline(x=PAPER_GPU_HOURS, line=line, row=1, col=column)
    for n, demand in enumerate(demands):
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=f"demand {demand:g}", row=1, col=1,
            marker={"symbol": "square", "size": 11, "color": _color(n, len(demands)), "line": OUTLINE},
        )  # fmt: skip
    for watts in sorted({_watts(cell) for cell in found.cells}):
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=f"{watts:g} W per GPU", row=1, col=1,
            marker={"symbol": "circle", "size": _size(watts), "color": "white", "line": OUTLINE},
        )  # fmt: skip
    lay_out(figure, 520, legend="right")
    figure.update_layout(legend_itemsizing="trace")
    figure.update_xaxes(title_text="additional GPU-hours", tickformat=".0%", matches="x")
    figure.update_yaxes(tickformat=".0%")
    figure.update_yaxes(title_text="utility over local FCFS", col=1)
    return Figure(
        name="gain-map",
        title="Gains under every set of assumptions",
        caption="A point is the mean over the environments of one set of assumptions: its marker says what was varied, "
        "its color the demand, its size the power of a GPU. GPU-hours are compared with the one of the "
        "paper's rules (S0 to S3) that runs fewest. The star and dotted lines are the numbers that the paper reports. "
        "A point on the star would have both of the paper's numbers.",
        plot=figure,
    )


def _color(n: int, count: int) -> str:
    return DEMAND_COLORS[n if count <= len(DEMAND_COLORS) else n * len(DEMAND_COLORS) // count]


def _watts(cell: Cell) -> float:
    """Returns the power of a GPU under a cell's assumptions in W."""
    return next((float(s.rpartition("=")[2]) for s in cell.settings if "constant_w=" in s), 80.0)


def _size(watts: float) -> float:
    """Returns the size of a marker in pixels: the more watts, the larger."""
    return 5.0 + watts / 10.0


def _add_points(
    figure: go.Figure,
    found: GainMap,
    group: list[Cell],
    policy: str,
    column: int,
    number: int,
    demands: list[float],
) -> None:
    """Adds the points of one group of cells to a panel."""
    shown = [cell for cell in group if not math.isnan(found.gain(cell, policy).value)]
    figure.add_scatter(
        x=[found.more_hours(cell, policy).value for cell in shown],
        y=[found.gain(cell, policy).value for cell in shown],
        text=[cell.name for cell in shown],
        mode="markers",
        marker={
            "symbol": SYMBOLS[number % len(SYMBOLS)],
            "size": [_size(_watts(cell)) for cell in shown],
            "color": [_color(demands.index(cell.demand), len(demands)) for cell in shown],
            "line": OUTLINE,
        },
        name=f"varied: {group[0].varied}",
        legendgroup=group[0].varied,
        showlegend=column == 1,
        row=1,
        col=column,
    )
