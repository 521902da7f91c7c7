"""Figures of comparisons by energy: the plane of energy and latency, latency distributions, power over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from noonward.evaluate.comparison import Comparison
from noonward.evaluate.report.figure_style import INK, grid, lay_out, policy_styles, whiskers, window_hours
from noonward.evaluate.table import Figure
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
    for policy in comparison.ranked():
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
    figure.update_yaxes(title="energy per unit of work, exact (J/unit)", range=axis_range([least, *energies]))
    ticks = {"tickvals": [k * 10**e for e in range(8) for k in (1, 2, 5)], "tickformat": ",", "type": "log"}
    figure.update_xaxes(title="mean time in system, all arrivals up to the end (s)", **ticks)
    lay_out(figure, 480, legend="right")
    caption = (
        "Lower and further left is better; marks are means over the environments with 95% intervals. Open marks leave "
        f"more than {100 * BEHIND:.0f}% of the jobs unfinished: their queues grow, and their times with the horizon."
    )
    if frontier is not None:
        caption += " No scheduler that processes all of the work can enter the gray region below the frontier."
    return Figure(name="energy-latency", title="Energy against latency", caption=caption, plot=figure)


def axis_range(values: Sequence[float]) -> list[float] | None:
    """Returns an axis' range with room for a label below; None if no value is defined."""
    shown = [value for value in values if not math.isnan(value)]
    if not shown:
        return None
    room = max(0.1, max(shown) - min(shown))
    return [min(shown) - 0.12 * room, max(shown) + 0.05 * room]


def power_figure(comparison: Comparison) -> Figure:
    """Draws the fleet's power over time."""
    figure = go.Figure()
    styles = policy_styles(comparison)
    for policy in comparison.ranked():
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
        "Hourly means of the fleet's power, free GPUs included; bands span the environments. "
        "Lower is better only at equal work done: a policy whose jobs wait also draws little."
    )
    return Figure(name="power", title="Power over time", caption=caption, plot=figure)


def _power_kw(record: Record) -> np.ndarray:
    """Returns the fleet's hourly mean power within the window, kW."""
    job_kwh_SH, free_kwh_SH = grid(record, "job_kwh", "free_kwh")
    return np.asarray((job_kwh_SH + free_kwh_SH).sum(axis=0)[: window_hours(record)])


def latency_figure(comparison: Comparison) -> Figure:
    """Draws the distributions of time in system and of time to start over all arrivals."""
    titles = ["Time in system: arrival to finish", "Wait: arrival to start"]
    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=titles)
    styles = policy_styles(comparison)
    for policy in comparison.ranked():
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
                hovertemplate=f"{policy}: %{{y:.1f}}% within %{{x:.3g}} s<extra></extra>", row=1, col=column,
            )  # fmt: skip
    figure.update_xaxes(type="log", dtick=1, exponentformat="power")
    figure.update_xaxes(title="time in system (s)", row=1, col=1)
    figure.update_xaxes(title="wait (s)", row=1, col=2)
    figure.update_yaxes(range=[0, 102])
    figure.update_yaxes(title="share of all arrived jobs (%)", row=1, col=1)
    lay_out(figure, 440, legend="right")
    caption = (
        "Share of all arrived jobs that finished (left) or started (right) within a time; "
        "higher and further left is better. A curve that levels off below 100% leaves jobs undone. Bands span the "
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
