"""Figures of promises on rolling days: days kept against days promised, and what that costs."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from noonward.evaluate.report.figure_style import AXIS, SITE_COLORS, SYMBOLS, lay_out
from noonward.evaluate.table import Figure
from noonward.studies.load_shaping.promises import RADII, Promises


def promise_figures(found: Promises) -> list[Figure]:
    """Returns all figures."""
    return [held_figure(found), cost_figure(found)]


def _promised(found: Promises) -> list[str]:
    return [plan for plan in found.plans if plan.startswith("promise-")]


def held_figure(found: Promises) -> Figure:
    """Draws the share of days kept against the share promised, a line a source."""
    figure = go.Figure()
    figure.add_scatter(
        x=[0.5, 1], y=[0.5, 1], mode="lines", line={"color": AXIS, "dash": "dash"}, name="as promised", hoverinfo="skip"
    )
    for index, source in enumerate(found.sources):
        each = [found.found[source, plan] for plan in _promised(found) if (source, plan) in found.found]
        figure.add_scatter(
            x=[days.promise for days in each],
            y=[float(np.mean(days.held)) for days in each],
            mode="lines+markers",
            name=f"{source} ({len(each[0].held)} days)" if each else source,
            line={"color": SITE_COLORS[index % len(SITE_COLORS)]},
            marker={"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 9},
        )
    lay_out(figure, 460, legend="right")
    figure.update_xaxes(title_text="share of days promised", tickformat=".0%", range=[0.55, 1.0])
    figure.update_yaxes(title_text="share of days within the curve", tickformat=".0%")
    return Figure(
        name="promises-kept",
        title="Days within the curve, against the share promised",
        caption="On the dashed line, a plan keeps what it promises. Above it, it is too safe; below, too bold.",
        plot=figure,
    )


def cost_figure(found: Promises) -> Figure:
    """Draws share of days kept against load cost and reserve, promises beside radii."""
    titles = ("load that runs", "reserve (the curve)")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.12)
    for index, source in enumerate(found.sources):
        color = SITE_COLORS[index % len(SITE_COLORS)]
        for plans, symbol, dash, legend in (
            (_promised(found), "circle", "solid", True),
            ([plan for plan in found.plans if plan.startswith("one-day-")], "diamond-open", "dash", False),
            ([f"eps-{eps:g}" for eps in RADII], "x", "dot", False),
        ):
            each = [found.found[source, plan] for plan in plans if (source, plan) in found.found]
            each = [days for days in each if days.held]
            for column, name in enumerate(("load_cost", "reserve"), start=1):
                figure.add_scatter(
                    x=[float(np.mean(getattr(days, name))) for days in each],
                    y=[float(np.mean(days.held)) for days in each],
                    text=[days.plan for days in each],
                    mode="lines+markers",
                    line={"color": color, "dash": dash},
                    marker={"symbol": symbol, "size": 8},
                    name=source,
                    legendgroup=source,
                    showlegend=legend and column == 1,
                    row=1,
                    col=column,
                )
    lay_out(figure, 460, legend="right")
    figure.update_xaxes(title_text="cost above the perfect forecast", tickformat="+.0%")
    figure.update_yaxes(title_text="share of days within the curve", tickformat=".0%", col=1)
    figure.update_yaxes(tickformat=".0%", col=2)
    return Figure(
        name="promise-cost",
        title="What keeping days within the curve costs",
        caption="Circles: plans with a promise, 60% to 95%. Crosses: plans with a radius of 0.05, "
        "the paper's larger one. Higher and further left is better.",
        plot=figure,
    )
