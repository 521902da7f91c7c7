"""What all figures share: figures with captions, colours of policies and sites, a layout for screen and print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import numpy as np
import plotly.graph_objects as go

from noonward.evaluate.comparison import Comparison
from noonward.evaluate.statistics import Estimate
from noonward.evaluate.table import Figure
from noonward.ledger.record import Record

INK: Final = "#222222"
"""Text and reference policy."""
AXIS: Final = "#8a929e"
"""Axes and what no policy made."""
PALE: Final = "#c9ced6"
"""Lines in the background."""
POLICY_COLORS: Final = (
    "#332288", "#cc6677", "#117733", "#88ccee", "#882255", "#999933", "#44aa99", "#aa4499", "#ddaa33", "#0077bb",
    "#d55e00", "#7a4b1f", "#9fb0c8", "#5c8a00", "#ff7fa7", "#00516b",
    "#e31a1c",
)  # fmt: skip
"""Colours that stay apart in the common kinds of colour blindness (Tol's muted scheme, and more)."""
SITE_COLORS: Final = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7a6a00", "#000000",
    "#882255", "#44aa99", "#332288", "#999933", "#aa4499", "#117733", "#b07aa1", "#7f7f7f",
    "#ff7fa7", "#00516b", "#9c5100", "#5c8a00", "#8c6bb1", "#e31a1c", "#a6cee3", "#c7b300",
)  # fmt: skip
"""Colours of sites: Okabe and Ito's eight, and sixteen more."""
SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon", "hexagon", "bowtie")
"""Markers of policies."""
DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash")
"""Line styles of policies."""
SHARE_SCALE: Final = ((0.0, "#ffffff"), (0.25, "#c6dbef"), (0.5, "#6baed6"), (0.75, "#2171b5"), (1.0, "#08306b"))
"""Colours of shares from nothing to all; in print darker is more."""
FONT: Final = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"
"""Fonts that need no download."""


def after(figure: Figure, source: str) -> Figure:
    """Returns a figure whose caption says which figure of a paper it follows."""
    return replace(figure, caption=f"After {source}. {figure.caption}")


@dataclass(frozen=True)
class Style:
    """How a policy is drawn.

    Attributes:
        color: Colour.
        symbol: Marker.
        dash: Line style.
    """

    color: str
    symbol: str
    dash: str


def policy_styles(comparison: Comparison) -> dict[str, Style]:
    """Returns each policy's looks, the same in every figure: dark grey for the reference, then the palette in order."""
    others = [policy for policy in comparison.records if policy != comparison.reference]
    styles = {comparison.reference: Style(INK, SYMBOLS[0], DASHES[0])}
    for i, policy in enumerate(others):
        color = POLICY_COLORS[i % len(POLICY_COLORS)]
        styles[policy] = Style(color, SYMBOLS[(i + 1) % len(SYMBOLS)], DASHES[(i + 1) % len(DASHES)])
    return styles


def lay_out(figure: go.Figure, height: int, *, legend: Literal["none", "above", "right"] = "none") -> go.Figure:
    """Sets fonts, white background, quiet grid and margins of a finished figure, and returns it.

    Args:
        figure: Figure, complete but for its looks.
        height: Height, pixels.
        legend: Where the legend stands, if any.
    """
    scaled = figure.layout.coloraxis.colorscale is not None
    figure.update_layout(
        template="plotly_white",
        height=height,
        font={"family": FONT, "size": 13, "color": INK},
        margin={"l": 20, "r": 90 if scaled else 30, "t": 80 if legend == "above" else 45, "b": 20},
        showlegend=legend != "none",
        paper_bgcolor="white",
        plot_bgcolor="white",
    )
    if legend == "above":
        above = {"orientation": "h", "yref": "container", "y": 0.995, "yanchor": "top", "x": 0.0, "xanchor": "left"}
        figure.update_layout(legend=above)
    if legend == "right":
        figure.update_layout(legend={"y": 1.0, "yanchor": "top", "x": 1.01, "xanchor": "left", "tracegroupgap": 0})
    figure.update_annotations(font={"size": 13})
    line = {"showline": True, "linecolor": AXIS, "linewidth": 1, "gridcolor": "#e9ebef", "zerolinecolor": AXIS}
    figure.update_xaxes(**line, automargin=True, ticks="outside", tickcolor=AXIS, title_standoff=8, title_font_size=13)
    figure.update_yaxes(**line, automargin=True, title_standoff=8, title_font_size=13)
    return figure


def whiskers(estimates: Sequence[Estimate], color: str, scale: float = 1.0) -> dict[str, Any]:
    """Returns plotly error bars of 95% intervals; none where there is no spread."""
    up = [0.0 if e.high is None else scale * (e.high - e.value) for e in estimates]
    down = [0.0 if e.low is None else scale * (e.value - e.low) for e in estimates]
    bars = {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.5, "width": 4}
    return {**bars, "color": color, "visible": any(e.high is not None for e in estimates)}


def share_axis(title: str, highest: float | None = None) -> dict[str, Any]:
    """Returns the colour axis of heat maps of shares.

    Args:
        title: Name and unit.
        highest: Upper end, or None for the largest value shown.
    """
    bar = {"title": {"text": title, "side": "right", "font": {"size": 13}}, "thickness": 14}
    return {"colorscale": SHARE_SCALE, "cmin": 0, "cmax": highest, "colorbar": bar}


def close_grid(figure: go.Figure, count: int, rows: int, columns: int, title: str) -> None:
    """Labels the time or site axis of the lowest panel of every column, and hides the places without a panel.

    Args:
        figure: Figure made by ``make_subplots`` with shared x axes.
        count: Panels, filled row by row.
        rows: Rows.
        columns: Columns.
        title: Title of the x axes.
    """
    for column in range(1, columns + 1):
        filled = rows if (rows - 1) * columns + column <= count else rows - 1
        if filled < rows:
            figure.update_xaxes(visible=False, row=rows, col=column)
            figure.update_yaxes(visible=False, row=rows, col=column)
        if filled:
            figure.update_xaxes(title=title, showticklabels=True, row=filled, col=column)


def site_names(record: Record) -> list[str]:
    """Returns the names of a record's sites."""
    return [str(site["name"]) for site in record.manifest["sites"]]


def grid(record: Record, *columns: str) -> list[np.ndarray]:
    """Returns columns of a record's hour table, each of shape (sites, hours)."""
    table = record.hours
    shape = (len(record.manifest["sites"]), -1)
    return [table[column].cast(float).to_numpy().reshape(shape) for column in columns]


def window_hours(record: Record) -> int:
    """Returns the hours of a record's window."""
    return math.ceil(float(record.manifest["window_s"]) / 3600.0)


def utc_hours(record: Record, hours: int) -> list[datetime]:
    """Returns the starts of a record's first hours, UTC, without a zone (plotly draws them as they are)."""
    start = datetime.fromisoformat(record.manifest["start"]).replace(tzinfo=None)
    return [start + timedelta(hours=hour) for hour in range(hours)]


def time_ticks(record: Record, hours: int) -> list[datetime]:
    """Returns at most four ticks of a time axis over a record's first hours: from their start, none at their end."""
    step = next((step for step in (1, 3, 6, 12, 24, 48, 168) if hours <= 4 * step), math.ceil(hours / 4))
    return utc_hours(record, hours)[::step]


def utilisation_SH(record: Record) -> np.ndarray:
    """Returns the share of GPUs that run jobs per site and hour of the window, percent; 0 where there is no GPU."""
    busy_SH, gpus_SH = grid(record, "busy_gpu_hours", "gpus")
    hours = window_hours(record)
    busy_SH, gpus_SH = busy_SH[:, :hours], gpus_SH[:, :hours]
    return np.asarray(np.divide(100.0 * busy_SH, gpus_SH, out=np.zeros(busy_SH.shape), where=gpus_SH > 0))
