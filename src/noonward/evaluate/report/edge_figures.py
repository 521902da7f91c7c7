"""Figures of edge scenarios: responses per policy, and quality against response (EAT, Fig. 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import plotly.graph_objects as go

from noonward.evaluate.comparison import Comparison, no_value
from noonward.evaluate.report.figure_style import AXIS, INK, lay_out, policy_styles, whiskers
from noonward.evaluate.statistics import mean
from noonward.evaluate.table import Figure

if TYPE_CHECKING:
    from noonward.model.edge.scenario import EdgeScenario


def response_figure(comparison: Comparison) -> Figure:
    """Draws the mean response of every policy, with the bound and the best schedule known as lines."""
    names, styles = comparison.ranked(), policy_styles(comparison)
    estimates = [comparison.mean(policy, "response_s") for policy in names]
    figure = go.Figure()
    figure.add_bar(
        x=[estimate.value for estimate in estimates], y=names, orientation="h",
        marker={"color": [styles[policy].color for policy in names], "opacity": 0.65},
        error_x=whiskers(estimates, INK), hovertemplate="%{y}: %{x:.1f} s<extra></extra>",
    )  # fmt: skip
    lines = (("response_s", "bound", "dash", "left"), ("best_known_s", "best known", "dot", "right"))
    for name, title, dash, side in lines:
        if not no_value(comparison.bounds, name):
            value = mean(comparison.bound_values(name)).value
            figure.add_vline(
                x=value, line={"color": AXIS, "dash": dash}, annotation_text=title,
                annotation_position=f"top {side}", annotation_yshift=18,
            )  # fmt: skip
    figure.update_xaxes(title="mean response (s)", rangemode="tozero")
    figure.update_yaxes(title="policy", autorange="reversed")
    lay_out(figure, 140 + 28 * len(names))
    caption = (
        "Mean time from a task's submission to its finished image, with 95% intervals over the environments; shorter "
        "is better. Policies that miss the scenario's quality stand last. No policy of as many steps is left of the "
        "bound."
    )
    return Figure(name="response", title="Response of every policy", caption=caption, plot=figure)


def quality_figure(comparison: Comparison) -> Figure:
    """Draws mean quality against mean response (EAT, Fig. 8)."""
    styles = policy_styles(comparison)
    figure = go.Figure()
    for policy in comparison.ranked():
        response, quality = comparison.mean(policy, "response_s"), comparison.mean(policy, "quality")
        figure.add_scatter(
            x=[response.value], y=[quality.value], mode="markers", name=policy,
            marker={"color": styles[policy].color, "symbol": styles[policy].symbol, "size": 11},
            error_x=whiskers([response], styles[policy].color), error_y=whiskers([quality], styles[policy].color),
            hovertemplate=f"{policy}: %{{x:.1f}} s, quality %{{y:.3f}}<extra></extra>",
        )  # fmt: skip
    goal = cast("EdgeScenario", comparison.scenario).quality_goal
    if goal:
        figure.add_hline(
            y=goal, line={"color": AXIS, "dash": "dash"}, annotation_text="goal", annotation_position="bottom left"
        )
    figure.update_xaxes(title="mean response (s)", rangemode="tozero")
    figure.update_yaxes(title="mean quality")
    lay_out(figure, 420, legend="right")
    caption = (
        "After EAT, Fig. 8: up and to the left is better. A policy that gives fewer steps responds sooner and makes "
        "worse images, so only policies of the same height can be compared by their response; those below the goal are "
        "ranked after all others."
    )
    return Figure(name="quality-response", title="Quality against response", caption=caption, plot=figure)
