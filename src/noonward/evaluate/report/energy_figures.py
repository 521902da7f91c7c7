"""Figures of settings without economics (CHSAC-AF, Figs. 2 to 4), and the plane of energy and latency."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from noonward.evaluate.compare import Comparison
from noonward.evaluate.report.figure_style import (
    INK,
    POLICY_COLORS,
    SYMBOLS,
    Figure,
    close_grid,
    grid,
    lay_out,
    policy_styles,
    share_axis,
    site_names,
    whiskers,
    window_hours,
)
from noonward.evaluate.results import ranked
from noonward.ledger.record import Record

if TYPE_CHECKING:
    from noonward.bound.cluster_energy import FluidFrontier

BEHIND: Final = 0.02
"""Policies that leave more than this share of the jobs unfinished are drawn open: their queues grow."""


def energy_latency_figure(comparison: Comparison, frontier: FluidFrontier | None = None) -> Figure:
    """Draws exact energy per unit against mean time in system, and what no scheduler can go below.

    The time is the mean over all arrivals up to the run's end (unfinished jobs count with their time so far): the mean
    that the frontier holds for.

    Args:
        comparison: Comparison.
        frontier: Points of ``noonward.bound.cluster_energy.fluid_frontier`` at the work that arrives, or None.
    """
    figure = go.Figure()
    styles = policy_styles(comparison)
    if frontier is not None:
        figure.add_scatter(
            x=frontier.mean_time_s_P, y=frontier.joule_per_unit_P, mode="lines", name="frontier of the fluid bound",
            line={"color": INK, "width": 2}, fill="tozeroy", fillcolor="rgba(138,146,158,0.15)",
        )  # fmt: skip
    energies = []
    for policy in ranked(comparison):
        energy, time = comparison.mean(policy, "joules_per_unit"), comparison.mean(policy, "mean_time_so_far_s")
        behind = comparison.values(policy, "unfinished").sum() > BEHIND * comparison.values(policy, "jobs").sum()
        look = styles[policy]
        energies.append(energy.value)
        figure.add_scatter(
            x=[time.value], y=[energy.value], mode="markers", name=policy,
            marker={"size": 12, "color": look.color, "symbol": look.symbol + ("-open" if behind else ""),
                    "line": {"width": 2, "color": look.color}},
            error_x=whiskers([time], look.color), error_y=whiskers([energy], look.color),
            hovertemplate=f"{policy}: %{{x:.0f}} s, %{{y:.3f}} J/unit<extra></extra>",
        )  # fmt: skip
    bound = comparison.bound_values("joules_per_unit")
    least = float("nan") if np.isnan(bound).all() else float(np.nanmean(bound))
    if not math.isnan(least):
        figure.add_hline(
            y=least, line={"color": INK, "dash": "dash", "width": 1}, annotation_position="bottom left",
            annotation_text=f"lower bound at any mean time: {least:.2f} J/unit",
        )  # fmt: skip
    figure.update_yaxes(title="energy per unit of work, exact (J/unit)", range=_range([least, *energies]))
    ticks = {"tickvals": [k * 10**e for e in range(8) for k in (1, 2, 5)], "tickformat": ",", "type": "log"}
    figure.update_xaxes(title="mean time in system, all arrivals up to the end (s)", **ticks)
    lay_out(figure, 480, legend="right")
    caption = (
        "Lower and further left is better; marks are means over the environments with 95 % intervals. Open marks leave "
        f"more than {100 * BEHIND:.0f} % of the jobs unfinished: their queues grow, and their times with the horizon."
    )
    if frontier is not None:
        caption += " No scheduler that processes all of the work can enter the grey region below the frontier."
    return Figure(name="energy-latency", title="Energy against latency", caption=caption, plot=figure)


def frontier_figure(comparison: Comparison, frontier: FluidFrontier | None = None) -> Figure:
    """Draws every policy's energy per unit against mean and 99th percentile of the time in system, families joined.

    Policies whose names differ in a number at the end alone (``greedy-energy-1``, ``-2``, ...) are joined by a line.

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
    for i, (family, members) in enumerate(families(ranked(comparison)).items()):
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
    figure.update_yaxes(range=_range([*least, *energies]))
    figure.update_yaxes(title="energy per unit of work, exact (J/unit)", row=1, col=1)
    ticks = {"tickvals": [k * 10**e for e in range(8) for k in (1, 3)], "tickformat": ",", "type": "log"}
    figure.update_xaxes(title="time in system (s)", tickangle=0, **ticks)
    lay_out(figure, 520, legend="right")
    caption = (
        "Lower and further left is better; means over the environments with 95 % intervals of the energy. Lines join "
        "policies of one family. No scheduler that does all of the work enters the grey region (left; it bounds no "
        "percentile)."
    )
    return Figure(name="frontier", title="Energy-latency frontier of every policy", caption=caption, plot=figure)


def families(policies: Sequence[str]) -> dict[str, list[str]]:
    """Returns policies grouped by their names without a number at the end.

    Example:
        >>> families(["greedy-energy-1", "uniform", "greedy-energy-10"])
        {'greedy-energy': ['greedy-energy-1', 'greedy-energy-10'], 'uniform': ['uniform']}
    """
    out: dict[str, list[str]] = {}
    for policy in policies:
        out.setdefault(re.sub(r"-\d+$", "", policy), []).append(policy)
    return out


def _range(values: Sequence[float]) -> list[float] | None:
    """Returns an axis' range with room for a label below; None if no value is defined."""
    shown = [value for value in values if not math.isnan(value)]
    if not shown:
        return None
    room = max(0.1, max(shown) - min(shown))
    return [min(shown) - 0.12 * room, max(shown) + 0.05 * room]


def power_figure(comparison: Comparison) -> Figure:
    """Draws the fleet's power over time (CHSAC-AF, Fig. 2)."""
    figure = go.Figure()
    styles = policy_styles(comparison)
    for policy in ranked(comparison):
        kw_EH = np.array([_power_kw(record) for record in comparison.records[policy]])
        days = ((np.arange(kw_EH.shape[1]) + 0.5) / 24).tolist()
        look = styles[policy]
        if len(kw_EH) > 1:
            figure.add_scatter(
                x=days + days[::-1], y=kw_EH.max(axis=0).tolist() + kw_EH.min(axis=0)[::-1].tolist(), fill="toself",
                fillcolor=look.color, opacity=0.15, line={"width": 0}, mode="lines", hoverinfo="skip", showlegend=False,
                legendgroup=policy,
            )  # fmt: skip
        figure.add_scatter(
            x=days, y=kw_EH.mean(axis=0), mode="lines", name=policy, legendgroup=policy,
            line={"color": look.color, "width": 1.8},
            hovertemplate=f"{policy}, day %{{x:.2f}}: %{{y:.1f}} kW<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="time since the start (days)", dtick=1, rangemode="tozero")
    figure.update_yaxes(title="power of the fleet, hourly mean (kW)")
    lay_out(figure, 440, legend="right")
    caption = (
        "After CHSAC-AF, Fig. 2: hourly means of the fleet's power, free GPUs included; bands span the environments. "
        "Lower is better only at equal work done: a policy whose jobs wait also draws little."
    )
    return Figure(name="power", title="Power over time", caption=caption, plot=figure)


def _power_kw(record: Record) -> np.ndarray:
    """Returns the fleet's hourly mean power within the window, kW."""
    job_kwh_SH, free_kwh_SH = grid(record, "job_kwh", "free_kwh")
    return np.asarray((job_kwh_SH + free_kwh_SH).sum(axis=0)[: window_hours(record)])


def latency_figure(comparison: Comparison) -> Figure:
    """Draws the distributions of time in system and of time to start over all arrivals (CHSAC-AF, Fig. 3)."""
    titles = ["Time in system: arrival to finish", "Wait: arrival to start"]
    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=titles)
    styles = policy_styles(comparison)
    for policy in ranked(comparison):
        times = [_times(record) for record in comparison.records[policy]]
        for column in (1, 2):
            samples = [pair[column - 1] for pair in times]
            lowest = 0.01 if column == 2 else max(1.0, min(float(np.nanmin(s, initial=np.inf)) for s in samples))
            longest = max(float(record.manifest["ended_s"]) for record in comparison.records[policy])
            x_X = np.geomspace(min(lowest, longest / 2), longest, 240)
            share_EX = np.array([_share_within(sample, x_X) for sample in samples])
            look = styles[policy]
            if len(samples) > 1:
                figure.add_scatter(
                    x=np.append(x_X, x_X[::-1]), y=np.append(share_EX.max(axis=0), share_EX.min(axis=0)[::-1]),
                    fill="toself", fillcolor=look.color, opacity=0.15, line={"width": 0}, mode="lines",
                    hoverinfo="skip", showlegend=False, legendgroup=policy, row=1, col=column,
                )  # fmt: skip
            figure.add_scatter(
                x=x_X, y=share_EX.mean(axis=0), mode="lines", name=policy, legendgroup=policy, showlegend=column == 1,
                line={"color": look.color, "dash": look.dash, "width": 2},
                hovertemplate=f"{policy}: %{{y:.1f}} % within %{{x:.3g}} s<extra></extra>", row=1, col=column,
            )  # fmt: skip
    figure.update_xaxes(type="log", dtick=1, exponentformat="power")
    figure.update_xaxes(title="time in system (s)", row=1, col=1)
    figure.update_xaxes(title="wait (s)", row=1, col=2)
    figure.update_yaxes(range=[0, 102])
    figure.update_yaxes(title="share of all arrived jobs (%)", row=1, col=1)
    lay_out(figure, 440, legend="right")
    caption = (
        "After CHSAC-AF, Fig. 3: share of all arrived jobs that finished (left) or started (right) within a time; "
        "higher and further left is better. A curve that levels off below 100 % leaves jobs undone. Bands span the "
        "environments."
    )
    return Figure(name="latency", title="Distributions of latency", caption=caption, plot=figure)


def _times(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """Returns time in system and wait of every arrived job, s; NaN where it has not finished or started."""
    jobs, ended_s = record.jobs, float(record.manifest["ended_s"])
    arrival, start, finish = (jobs[name].to_numpy() for name in ("arrival_s", "start_s", "finish_s"))
    arrived = arrival <= ended_s
    finish = np.where(finish <= ended_s, finish, np.nan)
    return (finish - arrival)[arrived], (start - arrival)[arrived]


def _share_within(sample: np.ndarray, x_X: np.ndarray) -> np.ndarray:
    """Returns the share of a sample at or below each value, percent; NaN are above all."""
    known = np.sort(sample[~np.isnan(sample)])
    return np.asarray(100.0 * np.searchsorted(known, x_X, side="right") / max(1, len(sample)))


def routing_shares(record: Record) -> np.ndarray:
    """Returns per ingress point (rows) the shares of its routed jobs that went to each site (columns), percent."""
    table = record.jobs.select("origin", "site").drop_nulls()
    origins, sites = list(record.manifest["ingress"]), site_names(record)
    counts = np.zeros((len(origins), len(sites)))
    for origin, site, count in table.group_by("origin", "site").len().iter_rows():
        counts[origins.index(origin), sites.index(site)] = count
    totals = counts.sum(axis=1, keepdims=True)
    return np.asarray(100.0 * np.divide(counts, totals, out=np.full_like(counts, np.nan), where=totals > 0))


def routing_figure(comparison: Comparison) -> Figure:
    """Draws the shares of each ingress point's jobs that go to each site, per policy (CHSAC-AF, Fig. 4)."""
    names = ranked(comparison)
    columns = min(len(names), 5)
    rows = math.ceil(len(names) / columns)
    figure = make_subplots(
        rows, columns, shared_xaxes="all", shared_yaxes=True, horizontal_spacing=0.015, vertical_spacing=0.12,
        subplot_titles=names,
    )  # fmt: skip
    for i, policy in enumerate(names):
        records = comparison.records[policy]
        shares = np.mean([routing_shares(record) for record in records], axis=0)
        labels = [f"{site['name']} ({site['gpus']})" for site in records[0].manifest["sites"]]
        figure.add_heatmap(
            z=shares, x=labels, y=list(records[0].manifest["ingress"]), coloraxis="coloraxis", row=i // columns + 1,
            col=i % columns + 1, hovertemplate=f"{policy}: %{{y}} to %{{x}}: %{{z:.1f}} %<extra></extra>",
        )  # fmt: skip
    figure.update_layout(coloraxis=share_axis("share of the ingress' jobs (%)"))
    figure.update_xaxes(tickangle=-60, tickfont={"size": 11}, dtick=1)
    figure.update_yaxes(autorange="reversed", tickfont={"size": 11}, dtick=1)
    figure.update_yaxes(title="ingress", col=1)
    close_grid(figure, len(names), rows, columns, "site (GPUs)")
    lay_out(figure, 150 + rows * 230)
    caption = (
        "After CHSAC-AF, Fig. 4: each row shows where the jobs of one ingress went (rows sum to 100 %; means over the "
        "environments). Even columns mean that sites are loaded alike whatever their size, which overloads small ones."
    )
    return Figure(name="routing", title="Where the jobs of each ingress go", caption=caption, plot=figure)
