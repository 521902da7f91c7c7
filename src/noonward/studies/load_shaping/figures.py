"""Figures of the load-shaping experiment (Hall et al., Figs. 3 to 9)."""

from __future__ import annotations

from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from noonward.arrays import F8
from noonward.evaluate.report.figure_style import INK, PALE, SHARE_SCALE, SITE_COLORS, lay_out
from noonward.evaluate.table import Figure
from noonward.studies.load_shaping.reproduce import EPS, QUEUE_CLUSTER, LoadShaping

LOAD: Final = "load (share of a cluster)"
HOUR: Final = "execution hour"


def load_shaping_figures(result: LoadShaping) -> list[Figure]:
    """Returns all figures, in the paper's order."""
    return [
        load_days_figure(result),
        greedy_figure(result),
        fractions_figure(result),
        heat_figure(result),
        violations_figure(result),
        trade_off_figure(result),
        queue_figure(result),
    ]


def _grid(clusters: int, columns: int) -> go.Figure:
    titles = [f"cluster {d + 1}" for d in range(clusters) for _ in range(columns)]
    return make_subplots(clusters, columns, shared_xaxes=True, shared_yaxes=True, subplot_titles=titles)


def _curve(figure: go.Figure, curve_T: F8, row: int, column: int, *, legend: bool) -> None:
    figure.add_scatter(
        y=curve_T, line={"color": INK, "width": 2, "shape": "hv"}, name="virtual capacity", showlegend=legend,
        row=row, col=column,
    )  # fmt: skip


def _finish(figure: go.Figure, x: str, y: str, height: int) -> go.Figure:
    lay_out(figure, height, legend="above")
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(title_text=y)
    return figure


def load_days_figure(result: LoadShaping) -> Figure:
    """Draws training and validation days under the plan's fractions against the curves (Fig. 3)."""
    plan = result.plans[f"eps {EPS:g}"]
    clusters = plan.curve_TD.shape[1]
    figure = _grid(clusters, 2)
    for column, days in enumerate((result.training_NKC, result.validation_NKC), start=1):
        load_NTD = plan.fractions.load(days)
        for d in range(clusters):
            for n, load_T in enumerate(load_NTD[:, :, d]):
                figure.add_scatter(
                    y=load_T, line={"color": SITE_COLORS[column - 1], "width": 0.7, "shape": "hv"}, opacity=0.5,
                    name=("training", "validation")[column - 1] + " days", showlegend=d == 0 and n == 0,
                    row=d + 1, col=column,
                )  # fmt: skip
            _curve(figure, plan.curve_TD[:, d], d + 1, column, legend=d == 0 and column == 1)
    return Figure(
        name="load-days",
        title="Load under the plan: days it was made from (left) and days it has not seen (right)",
        caption="Thin lines are days, the thick line is the virtual capacity curve. Few may cross it.",
        plot=_finish(figure, HOUR, LOAD, 220 * clusters),
    )


def greedy_figure(result: LoadShaping) -> Figure:
    """Draws one validation day under the plan and under greedy (Fig. 4)."""
    plan = result.plans[f"eps {EPS:g}"]
    load_TD = plan.fractions.load(result.validation_NKC[0])
    figure = _grid(load_TD.shape[1], 1)
    for d in range(load_TD.shape[1]):
        for name, values, color in (("plan", load_TD, SITE_COLORS[0]), ("greedy", result.greedy_TD, SITE_COLORS[4])):
            figure.add_scatter(
                y=values[:, d], name=name, line={"color": color, "shape": "hv"}, showlegend=d == 0, row=d + 1, col=1
            )
    return Figure(
        name="plan-and-greedy",
        title="One day under the plan and under greedy",
        caption="Greedy runs load in the hour it comes; the plan moves it to cheap hours and clusters.",
        plot=_finish(figure, HOUR, LOAD, 180 * load_TD.shape[1]),
    )


def fractions_figure(result: LoadShaping) -> Figure:
    """Draws where the load of the spatially flexible classes goes, by submission hour (Fig. 5)."""
    plan = result.plans[f"eps {EPS:g}"]
    y_KCD = plan.fractions.dense().sum(axis=2)
    flexible = [c for c, one in enumerate(plan.problem.classes) if len(one.clusters) > 1]
    titles = [plan.problem.classes[c].name for c in flexible]
    figure = make_subplots(len(flexible), 1, shared_xaxes=True, subplot_titles=titles)
    for row, c in enumerate(flexible, start=1):
        for d in range(y_KCD.shape[2]):
            figure.add_bar(
                y=y_KCD[:, c, d], name=f"cluster {d + 1}", marker_color=SITE_COLORS[d % len(SITE_COLORS)],
                showlegend=row == 1, row=row, col=1,
            )  # fmt: skip
    figure.update_layout(barmode="stack")
    return Figure(
        name="fractions",
        title="Where the load of the flexible classes goes",
        caption="Share of the load submitted in each hour by the cluster it runs at.",
        plot=_finish(figure, "submission hour", "share of the load", 200 * len(flexible)),
    )


def heat_figure(result: LoadShaping) -> Figure:
    """Draws which hours the load of the first cluster's class runs in, for two tails (Fig. 6)."""
    labels = [label for label in ("beta 0.02", f"eps {EPS:g}") if label in result.plans]
    titles = [f"beta {result.plans[label].problem.beta:g}" for label in labels]
    figure = make_subplots(1, len(labels), shared_yaxes=True, subplot_titles=titles)
    for column, label in enumerate(labels, start=1):
        y_KT = result.plans[label].fractions.dense()[:, 0, :, 0]
        figure.add_heatmap(z=y_KT, zmin=0, zmax=1, colorscale=SHARE_SCALE, showscale=column == 1, row=1, col=column)
    figure.update_yaxes(autorange="reversed")
    return Figure(
        name="fractions-heat",
        title="Submission hour against execution hour, class bound to cluster 1",
        caption="Darker: a larger share of the hour's load. On the diagonal it runs at once; to the right it waits.",
        plot=_finish(figure, HOUR, "submission hour", 420),
    )


def violations_figure(result: LoadShaping) -> Figure:
    """Draws hours and clusters above the curve per day, by tail (Fig. 7)."""
    figure = go.Figure()
    for beta, values in result.violations.items():
        figure.add_box(y=values, name=f"beta {beta:g}", marker_color=SITE_COLORS[0], boxpoints="all", showlegend=False)
    return Figure(
        name="violations",
        title="Hours and clusters above the virtual capacity, per day of discrete jobs",
        caption="A larger tail beta asks for less and is violated more often.",
        plot=_finish(figure, "tail of the guarantee", "hours x clusters per day", 360),
    )


def trade_off_figure(result: LoadShaping) -> Figure:
    """Draws planned cost and largest excess on held-out days by radius (Fig. 8)."""
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    labels = [f"{eps:g}" for eps in result.excess]
    for label, values in zip(labels, result.excess.values(), strict=True):
        figure.add_box(
            y=np.maximum(values, 0.0), x=[label] * len(values), marker_color=SITE_COLORS[1], showlegend=False
        )
    cost = [result.plans[f"eps {eps:g}"].objective for eps in result.excess]
    figure.add_scatter(
        x=labels, y=cost, name="planned cost f(v)", line={"color": INK}, mode="lines+markers", secondary_y=True
    )
    _finish(figure, "radius eps", "largest load above the curve", 400)
    figure.update_yaxes(title_text="planned cost", secondary_y=True)
    return Figure(
        name="radius-trade-off",
        title="What the radius buys and costs",
        caption="Boxes: largest load above the curve on held-out days. Line: cost of the curve (first draw).",
        plot=figure,
    )


def queue_figure(result: LoadShaping) -> Figure:
    """Draws the mean queue at one cluster under hard curves, by radius (Fig. 9)."""
    figure = go.Figure()
    for index, (eps, queues) in enumerate(result.queue.items()):
        figure.add_scatter(
            y=np.mean(queues, axis=0), name=f"eps {eps:g}", line={"color": (*SITE_COLORS, PALE)[index % 9]}
        )
    return Figure(
        name="queue",
        title=f"Queue at cluster {QUEUE_CLUSTER + 1} when the curve is a hard limit",
        caption="Mean over held-out days. A smaller radius leaves tighter curves and longer queues.",
        plot=_finish(figure, HOUR, "queued load (share of a cluster)", 360),
    )
