"""The figure of a day-ahead plan: cost, reserved capacity and load by site and hour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from plotly.subplots import make_subplots

from noonward.arrays import F8
from noonward.evaluate.report.figure_style import AXIS, INK, SITE_COLORS, lay_out
from noonward.evaluate.table import Figure
from noonward.schedule.plan.result import Plan

HOUR: Final = "execution hour"


def _closed(value_T: F8) -> F8:
    """Returns values per hour with the last one repeated, for steps."""
    return np.concatenate([value_T, value_T[-1:]])


def plan_figure(
    plan: Plan, sites: Sequence[str] = (), *, first_hour: int = 0, ran_SH: F8 | None = None, unit: str = ""
) -> Figure:
    """Draws the cost of load per hour, and a plan's curves, its samples' load and the machine capacity per cluster.

    Args:
        plan: Plan.
        sites: Names of the clusters; numbered if left out.
        first_hour: Hour that the plan begins in.
        ran_SH: Load that ran in the end, per cluster and hour.
        unit: Unit of load.
    """
    clusters = plan.curve_TD.shape[1]
    names = list(sites) or [f"cluster {d + 1}" for d in range(clusters)]
    titles = ["expected cost of a unit of load", *names]
    figure = make_subplots(
        clusters + 1, 1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.16 / (clusters + 1)
    )
    load_NTD = plan.fractions.load(plan.problem.load_NKC)
    if plan.problem.placed_TD is not None:
        load_NTD = load_NTD + plan.problem.placed_TD
    # Steps need their last value twice, or the last hour would have no width.
    low_TD, high_TD = (_closed(each_TD) for each_TD in np.quantile(load_NTD, [0.05, 0.95], axis=0))
    cost_TD, curve_TD = _closed(plan.problem.cost_TD), _closed(plan.curve_TD)
    capacity_TD = _closed(plan.problem.capacity_TD)
    hours = first_hour + np.arange(len(curve_TD))
    for d in range(clusters):
        more: dict[str, Any] = {"row": d + 2, "col": 1}
        shown: dict[str, Any] = {"showlegend": d == 0}
        figure.add_scatter(
            x=hours, y=cost_TD[:, d], name=names[d], legend="legend2", row=1, col=1,
            line={"color": SITE_COLORS[d % len(SITE_COLORS)], "shape": "hv", "width": 1.5},
        )  # fmt: skip
        figure.add_scatter(x=hours, y=low_TD[:, d], line={"width": 0, "shape": "hv"}, showlegend=False, **more)
        figure.add_scatter(
            x=hours, y=high_TD[:, d], name="load of the sampled days (5 to 95%)", fill="tonexty", **shown,
            line={"width": 0, "shape": "hv"}, fillcolor="rgba(0,114,178,0.25)", **more,
        )  # fmt: skip
        if ran_SH is not None:
            line = {"color": SITE_COLORS[4], "shape": "hv", "width": 1.5}
            figure.add_scatter(x=hours, y=_closed(ran_SH[d]), name="load that ran", line=line, **shown, **more)
        line = {"color": INK, "shape": "hv", "width": 2}
        figure.add_scatter(x=hours, y=curve_TD[:, d], name="virtual capacity", line=line, **shown, **more)
        line = {"color": AXIS, "shape": "hv", "width": 1, "dash": "dash"}
        figure.add_scatter(x=hours, y=capacity_TD[:, d], name="machine capacity", line=line, **shown, **more)
    lay_out(figure, 110 + 170 * (clusters + 1), legend="above")
    figure.update_layout(legend2={"y": 1.0, "yanchor": "top", "x": 1.01, "xanchor": "left"}, margin_t=70)
    figure.update_xaxes(title_text=f"{HOUR} (0: start of the day)", row=clusters + 1, col=1)
    figure.update_yaxes(title_text=unit or "load", rangemode="tozero")
    figure.update_yaxes(title_text="USD", rangemode="normal", row=1, col=1)
    return Figure(
        name="plan",
        title="Virtual capacity and load",
        caption="The thick line is what the plan reserves: low where load is dear, high where it is cheap. The load of "
        "the sampled days stays within it up to the guarantee's tail.",
        plot=figure,
    )
