"""Figures 2 to 4 of CHSAC-AF, and the energy-latency frontier of every policy with families joined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from plotly.subplots import make_subplots

from noonward.evaluate.report.cluster_figures import routing_figure
from noonward.evaluate.report.energy_figures import axis_range, energy_latency_figure, latency_figure, power_figure
from noonward.evaluate.report.figure_style import INK, POLICY_COLORS, SYMBOLS, after, lay_out, whiskers
from noonward.evaluate.table import Figure

if TYPE_CHECKING:
    from noonward.bound.cluster_energy import FluidFrontier
    from noonward.evaluate.comparison import Comparison


def paper_figures(comparison: Comparison, frontier: FluidFrontier | None = None) -> list[Figure]:
    """Returns the plane of energy and latency, then Figs. 2 to 4 of the paper.

    Args:
        comparison: Comparison.
        frontier: Points of ``noonward.bound.cluster_energy.fluid_frontier`` at the work that arrives, or None.
    """
    return [
        energy_latency_figure(comparison, frontier),
        after(power_figure(comparison), "CHSAC-AF, Fig. 2"),
        after(latency_figure(comparison), "CHSAC-AF, Fig. 3"),
        after(routing_figure(comparison), "CHSAC-AF, Fig. 4"),
    ]


def frontier_figure(comparison: Comparison, frontier: FluidFrontier | None = None) -> Figure:
    """Draws every policy's energy per unit against mean and 99th percentile of the time in system, families joined.

    Policies whose names differ in their arguments, or in a number at the end, alone are joined by a line.

    Args:
        comparison: Comparison.
        frontier: Points of ``noonward.bound.cluster_energy.fluid_frontier`` at the work that arrives, or None.
    """
    titles = ["Mean over all arrivals", "99th percentile of done jobs"]
    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=titles)
    if frontier is not None:
        slowest_s = max(comparison.mean(policy, "mean_time_so_far_s").value for policy in comparison.records)
        figure.add_scatter(
            x=[*frontier.mean_time_s_P, max(slowest_s, float(frontier.mean_time_s_P[-1]))],
            y=[*frontier.joule_per_unit_P, frontier.joule_per_unit_P[-1]],
            mode="lines", name="fluid bound", row=1, col=1,
            line={"color": INK, "width": 2}, fill="tozeroy", fillcolor="rgba(138,146,158,0.15)",
        )  # fmt: skip
    for i, (family, members) in enumerate(families(comparison.ranked()).items()):
        color = POLICY_COLORS[i % len(POLICY_COLORS)]
        energy = [comparison.mean(policy, "joules_per_unit") for policy in members]
        for column, name in ((1, "mean_time_so_far_s"), (2, "p99_time_in_system_s")):
            time = [comparison.mean(policy, name) for policy in members]
            order = np.argsort([estimate.value for estimate in time])
            figure.add_scatter(
                x=[time[k].value for k in order], y=[energy[k].value for k in order], name=family, legendgroup=family,
                mode="lines+markers" if len(members) > 1 else "markers", showlegend=column == 1,
                text=[members[k] for k in order], line={"color": color, "width": 1.5},
                marker={"size": 9, "color": color, "symbol": SYMBOLS[i % len(SYMBOLS)]},
                error_y=whiskers([energy[k] for k in order], color), row=1, col=column,
                hovertemplate="%{text}: %{x:.0f} s, %{y:.3f} J/unit<extra></extra>",
            )  # fmt: skip
    energies = [comparison.mean(policy, "joules_per_unit").value for policy in comparison.records]
    least = [] if frontier is None else [float(frontier.joule_per_unit_P.min())]
    figure.update_yaxes(range=axis_range([*least, *energies]))
    figure.update_yaxes(title="energy per unit of work, exact (J/unit)", row=1, col=1)
    ticks = {"tickvals": [k * 10**e for e in range(8) for k in (1, 3)], "tickformat": ",", "type": "log"}
    figure.update_xaxes(title="time in system (s)", tickangle=0, **ticks)
    lay_out(figure, 520, legend="right")
    caption = (
        "Lower and further left is better; means over the environments with 95% intervals of the energy. Lines join "
        "policies of one family. No scheduler that does all of the work enters the gray region (left; it bounds no "
        "percentile)."
    )
    return Figure(name="frontier", title="Energy-latency frontier of every policy", caption=caption, plot=figure)


def families(policies: Sequence[str]) -> dict[str, list[str]]:
    """Returns policies grouped by their names without arguments and without a number at the end.

    Example:
        >>> families(["greedy-energy(gpus=1)", "uniform", "greedy-energy(gpus=10)"])
        {'greedy-energy': ['greedy-energy(gpus=1)', 'greedy-energy(gpus=10)'], 'uniform': ['uniform']}
    """
    out: dict[str, list[str]] = {}
    for policy in policies:
        out.setdefault(re.sub(r"(\(.*\)|-\d+)$", "", policy), []).append(policy)
    return out
