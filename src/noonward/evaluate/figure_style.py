"""What all figures share: pictures with captions, colours per policy and site, a layout that reads on screen and in print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from noonward.evaluate.compare import Comparison
from noonward.evaluate.statistics import Estimate
from noonward.ledger.record import Record

INK: Final = "#222222"
"""Text and reference policy."""
PALE: Final = "#c9ced6"
"""Lines in the background."""
POLICY_COLORS: Final = (
    "#332288", "#cc6677", "#117733", "#88ccee", "#882255", "#999933", "#44aa99", "#aa4499", "#ddaa33",
)  # fmt: skip
"""Colours that stay apart in the common kinds of colour blindness (Tol's muted scheme)."""
SITE_COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7a6a00", "#000000")
"""Colours of sites (Okabe and Ito)."""
SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon", "hexagon", "bowtie")
"""Markers of policies."""
DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash")
"""Line styles of policies."""
SHARE_SCALE: Final = ((0.0, "#ffffff"), (0.25, "#c6dbef"), (0.5, "#6baed6"), (0.75, "#2171b5"), (1.0, "#08306b"))
"""Colours of shares from nothing to all; in print darker is more."""
FONT: Final = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"
"""Fonts that need no download."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure with its words.

    Attributes:
        name: Stable name, fit for a file.
        title: What it shows.
        caption: How to read it and what is better.
        figure: The plotly figure.
    """

    name: str
    title: str
    caption: str
    figure: go.Figure


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


def lay_out(figure: go.Figure, height: int, *, legend: bool = False) -> go.Figure:
    """Sets fonts, white background, quiet grid and margins of a finished figure, and returns it.

    Args:
        figure: Figure.
        height: Height, pixels.
        legend: Show a legend, in one line above the figure.
    """
    figure.update_layout(
        template="plotly_white",
        height=height,
        font={"family": FONT, "size": 13, "color": INK},
        margin={"l": 20, "r": 30, "t": 80 if legend else 45, "b": 20},
        showlegend=legend,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "yref": "container", "x": 0.0, "xanchor": "left"},
        paper_bgcolor="white",
        plot_bgcolor="white",
    )
    if legend:
        figure.update_layout(legend={"y": 0.995, "yanchor": "top"})
    figure.update_annotations(font={"size": 13})
    line = {"showline": True, "linecolor": "#8a929e", "linewidth": 1, "gridcolor": "#e9ebef", "zerolinecolor": "#8a929e"}
    figure.update_xaxes(**line, automargin=True, ticks="outside", tickcolor="#8a929e", title_standoff=8)
    figure.update_yaxes(**line, automargin=True, title_standoff=8)
    return figure


def whiskers(estimates: Sequence[Estimate], scale: float = 1.0) -> dict[str, Any]:
    """Returns plotly error bars of 95 % intervals; of length 0 where there is no spread."""
    up = [0.0 if e.high is None else scale * (e.high - e.value) for e in estimates]
    down = [0.0 if e.low is None else scale * (e.value - e.low) for e in estimates]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.5, "width": 4}


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
    """Returns the starts of a record's hours, UTC, without a zone (plotly draws them as they are)."""
    start = datetime.fromisoformat(record.manifest["start"]).replace(tzinfo=None)
    return [start + timedelta(hours=hour) for hour in range(hours)]


def utilisation_SH(record: Record) -> np.ndarray:
    """Returns the share of GPUs that run jobs per site and hour of the window, percent."""
    busy_SH, gpus_SH = grid(record, "busy_gpu_hours", "gpus")
    hours = window_hours(record)
    return np.asarray(100.0 * busy_SH[:, :hours] / gpus_SH[:, :hours])
