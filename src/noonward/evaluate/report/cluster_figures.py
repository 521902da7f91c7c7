"""Figures of cluster scenarios: utilisation and routing of sites, arrivals and signals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from plotly.subplots import make_subplots

from noonward.evaluate.comparison import Comparison
from noonward.evaluate.report.figure_style import (
    INK,
    SITE_COLORS,
    close_grid,
    grid,
    lay_out,
    policy_styles,
    share_axis,
    site_names,
    time_ticks,
    utc_hours,
    utilisation_SH,
    whiskers,
    window_hours,
)
from noonward.evaluate.statistics import mean
from noonward.evaluate.table import Figure
from noonward.ledger.record import Record
from noonward.units import HOUR_S


def utilisation_map(comparison: Comparison, environment: int = 0) -> Figure:
    """Draws GPU utilisation per site and hour for every policy in one environment."""
    names = comparison.ranked()
    rows = math.ceil(len(names) / 2)
    gap = 0.3 / rows
    figure = make_subplots(
        rows,
        2,
        shared_xaxes="all",
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=gap,
        subplot_titles=names,
    )
    for i, policy in enumerate(names):
        record = comparison.records[policy][environment]
        values_SH = utilisation_SH(record)
        figure.add_heatmap(
            z=values_SH, x=utc_hours(record, values_SH.shape[1] + 1), y=site_names(record), coloraxis="coloraxis",
            hovertemplate=f"{policy}, %{{y}}, %{{x}} UTC: %{{z:.0f}}%<extra></extra>", row=i // 2 + 1, col=i % 2 + 1,
        )  # fmt: skip
    figure.update_layout(coloraxis=share_axis("GPUs in use (%)", 100))
    figure.update_yaxes(autorange="reversed", tickfont={"size": 11}, dtick=1)
    figure.update_yaxes(title="site", col=1)
    shown = comparison.records[names[0]][environment]
    figure.update_xaxes(tickformat="%H:%M\n%d %b", tickvals=time_ticks(shown, window_hours(shown)))
    close_grid(figure, len(names), rows, 2, "time (UTC)")
    sites = len(shown.manifest["sites"])
    lay_out(figure, 110 + rows * (45 + 17 * sites))
    caption = (
        f"The window from {shown.manifest['start'][:10]} (environment {environment}). The darker an hour, the more of "
        "a site's GPUs are in use; good policies fill the cheap and clean sites first."
    )
    return Figure(
        name="utilisation-map", title="Utilization hour by hour in one environment", caption=caption, plot=figure
    )


def utilisation_bars(comparison: Comparison, good: str) -> Figure:
    """Draws mean GPU utilisation over the window per site and policy.

    Args:
        comparison: Comparison.
        good: Sites whose use is better, in words.
    """
    names, styles = comparison.ranked(), policy_styles(comparison)
    sites = site_names(comparison.records[names[0]][0])
    values_PES = np.array([[utilisation_SH(r).mean(axis=1) for r in comparison.records[p]] for p in names])
    columns = min(len(sites), 5)
    rows = math.ceil(len(sites) / columns)
    figure = make_subplots(
        rows, columns, shared_yaxes=True, horizontal_spacing=0.015, vertical_spacing=0.18, subplot_titles=sites
    )
    for s in range(len(sites)):
        estimates = [mean(values_E) for values_E in values_PES[:, :, s]]
        figure.add_bar(
            x=[estimate.value for estimate in estimates], y=names, orientation="h", showlegend=False, name=sites[s],
            marker={"color": [styles[policy].color for policy in names], "opacity": 0.6},
            error_x=whiskers(estimates, INK),
            hovertemplate=f"{sites[s]}, %{{y}}: %{{x:.1f}}%<extra></extra>", row=s // columns + 1, col=s % columns + 1,
        )  # fmt: skip
    figure.update_xaxes(range=[0, 105], tickvals=[0, 50, 100])
    close_grid(figure, len(sites), rows, columns, "GPUs in use (%)")
    figure.update_yaxes(autorange="reversed")
    figure.update_yaxes(title="policy", col=1)
    figure.update_layout(bargap=0.25)
    lay_out(figure, rows * (130 + 22 * len(names)))
    caption = (
        "Share of a site's GPU-hours within the window that ran jobs, mean over the environments with 95% intervals; "
        f"use of {good} is better."
    )
    return Figure(name="utilisation", title="Mean utilization of the sites", caption=caption, plot=figure)


def arrivals_IH(record: Record, hours: int) -> np.ndarray:
    """Returns the jobs that arrive at each ingress point in each of the first hours."""
    jobs = record.jobs
    hour_J = (jobs["arrival_s"].to_numpy() / HOUR_S).astype(np.int64)
    origin_J = jobs["origin"].to_numpy()
    counted = hour_J < hours
    return np.stack(
        [np.bincount(hour_J[counted & (origin_J == point)], minlength=hours) for point in record.manifest["ingress"]]
    )


def signals_figure(comparison: Comparison, environments: Sequence[int] | None = None) -> Figure:
    """Draws arrivals, prices and carbon intensities per site over the windows of some environments.

    Args:
        comparison: Comparison.
        environments: Numbers of the environments; by default the first three.
    """
    shown = list(range(len(comparison.bounds)))[:3] if environments is None else list(environments)
    records = [comparison.records[comparison.reference][e] for e in shown]
    titles = [f"environment {e}, from {r.manifest['start'][:10]}" for e, r in zip(shown, records, strict=True)]
    panels = (
        ("arrivals", "arrivals<br>(jobs/h)"),
        ("price_usd_per_mwh", "price<br>(USD/MWh)"),
        ("carbon_g_per_kwh", "carbon intensity<br>(gCO2/kWh)"),
    )
    figure = make_subplots(
        3, len(shown), shared_xaxes=True, shared_yaxes=True, horizontal_spacing=0.05, vertical_spacing=0.06,
        subplot_titles=titles,
    )  # fmt: skip
    for column, record in enumerate(records, 1):
        hours = window_hours(record)
        times = utc_hours(record, hours)
        figure.update_xaxes(tickvals=time_ticks(record, hours), col=column)
        sites = site_names(record)
        points = record.manifest["ingress"]
        colors = {name: SITE_COLORS[n % len(SITE_COLORS)] for n, name in enumerate(dict.fromkeys([*sites, *points]))}
        for point, arrivals_H in zip(points, arrivals_IH(record, hours), strict=True):
            figure.add_bar(
                x=times, y=arrivals_H, offset=0, width=3.6e6, name=point, legendgroup=point, row=1, col=column,
                marker={"color": colors[point]}, showlegend=column == 1,
            )  # fmt: skip
        for row, values_SH in enumerate(grid(record, *(name for name, _ in panels[1:])), 2):
            for s, site in enumerate(sites):
                figure.add_scatter(
                    x=times, y=values_SH[s, :hours], mode="lines", name=site, legendgroup=site, row=row, col=column,
                    line={"color": colors[site], "width": 1.8, "shape": "hv"},
                    showlegend=column == 1 and row == 2 and site not in points,
                )  # fmt: skip
    figure.update_layout(barmode="stack", bargap=0)
    for row, (_, title) in enumerate(panels, 1):
        figure.update_yaxes(title=title, row=row, col=1)
    figure.update_yaxes(matches=None, showticklabels=True, row=2)
    figure.update_xaxes(title="time (UTC)", row=3)
    figure.update_xaxes(tickformat="%H:%M\n%d %b")
    lay_out(figure, 700, legend="above")
    caption = (
        "Times are in UTC. What all policies face: jobs by the ingress point they come from "
        "(stacked), and each site's hourly price (each panel on its own scale) and carbon intensity; policies earn by "
        "the differences."
    )
    return Figure(name="signals", title="Arrivals, prices and carbon intensities", caption=caption, plot=figure)


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
    """Draws the shares of each ingress point's jobs that go to each site, per policy."""
    names = comparison.ranked()
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
            col=i % columns + 1, hovertemplate=f"{policy}: %{{y}} to %{{x}}: %{{z:.1f}}%<extra></extra>",
        )  # fmt: skip
    figure.update_layout(coloraxis=share_axis("share of the ingress' jobs (%)"))
    figure.update_xaxes(tickangle=-60, tickfont={"size": 11}, dtick=1)
    figure.update_yaxes(autorange="reversed", tickfont={"size": 11}, dtick=1)
    figure.update_yaxes(title="ingress", col=1)
    close_grid(figure, len(names), rows, columns, "site (GPUs)")
    lay_out(figure, 150 + rows * 230)
    caption = (
        "Each row shows where the jobs of one ingress went (rows sum to 100%; means over the "
        "environments). Even columns mean that sites are loaded alike whatever their size, which overloads small ones."
    )
    return Figure(name="routing", title="Where the jobs of each ingress go", caption=caption, plot=figure)
