"""Figures of comparisons by utility: gains and gap to the bound, utility with GPU-hours and costs, its parts."""

from __future__ import annotations

import functools
import math
from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from noonward.arrays import F8
from noonward.evaluate.answer import best_known_values
from noonward.evaluate.comparison import Comparison, case_noun
from noonward.evaluate.report.figure_style import AXIS, INK, PALE, Style, lay_out, policy_styles, whiskers
from noonward.evaluate.statistics import Estimate, mean
from noonward.evaluate.table import Figure, percent
from noonward.ledger.ledger import Ledger
from noonward.ledger.utility import utility_usd

LATE: Final = "late starts"
TITLES_PX: Final = 110
"""Room between rows of panels for the title of an axis and the titles below it, pixels."""
TARIFFS: Final = "what tariffs add"
REVENUE: Final = "revenue (U1)"
BEST_KNOWN: Final = "best known schedule"
_MONEY: Final = (
    (REVENUE, "#009e73"),
    ("energy of jobs (U1)", "#d55e00"),
    ("energy of free GPUs (U2)", "#f0b429"),
    ("carbon of the fleet (U3)", "#6b6b6b"),
    ("moves of jobs (U4)", "#0072b2"),
    ("returns of results (U5)", "#8cc8ee"),
    (LATE, "#cc79a7"),
    (TARIFFS, "#56423e"),
)


def is_cost(comparison: Comparison) -> bool:
    """Returns whether the total cost ranks; what serving work is worth is then in no figure."""
    return comparison.objective.value == "total_usd"


def gain_figure(comparison: Comparison) -> Figure:
    """Draws the paired gain against the reference, in utility or of total cost, and the share of what was possible."""
    styles, objective = policy_styles(comparison), comparison.objective
    rows = {policy: comparison.values(policy, objective.value) for policy in comparison.ranked()}
    looks = {policy: styles[policy] for policy in rows}
    upper, best = comparison.bound_values("utility_usd"), best_known_values(comparison)
    bounded, cost = not np.isnan(upper).all(), is_cost(comparison)
    bound, what = ("lower bound", "total cost saved") if cost else ("upper bound", "change of utility")
    if bounded:
        paid = comparison.values(comparison.reference, "revenue_usd")
        known = {bound: paid - upper, BEST_KNOWN: paid - best} if cost else {bound: upper, BEST_KNOWN: best}
        rows = known | rows
        looks |= {name: Style(AXIS, "line-ns-open", "solid") for name in known}
    titles = [f"{what.capitalize()} against {comparison.reference}", "Share of possible improvement"]
    figure = make_subplots(1, 2 if bounded else 1, shared_yaxes=True, horizontal_spacing=0.04, subplot_titles=titles)

    def gained(comparison: Comparison, values_E: F8) -> Estimate:
        change = objective.change(comparison, values_E)
        return -change if cost else change

    panels = [(gained, "%", 1), *([(objective.improvement_share, "%", 2)] if bounded else [])]
    for estimate_of, unit, column in panels:
        estimates = {name: estimate_of(comparison, values) for name, values in rows.items()}
        _dots(figure, estimates, looks, column, unit)
    figure.update_xaxes(title=f"{what} (% of the baseline)", zeroline=True, zerolinewidth=1.5, row=1, col=1)
    if bounded:
        figure.update_xaxes(title="share of possible improvement (%)", zeroline=True, zerolinewidth=1.5, row=1, col=2)
        figure.add_vline(x=100, line={"color": AXIS, "dash": "dash", "width": 1}, row=1, col=2)
    figure.update_yaxes(autorange="reversed")
    figure.update_yaxes(title="policy", row=1, col=1)
    lay_out(figure, 130 + 34 * len(rows))
    caption = (
        "Further right is better. Dots are paired estimates over the same environments, bars their 95% intervals: a "
        f"policy whose bar crosses 0 cannot be distinguished from {comparison.reference}."
    )
    if bounded:
        caption += f" At 100% (dashed) a policy would reach the {bound}, which knows the whole future."
    return Figure(name="gain", title="How much each policy gains", caption=caption, plot=figure)


def _dots(figure: go.Figure, estimates: dict[str, Estimate], looks: dict[str, Style], column: int, unit: str) -> None:
    """Draws a dot with interval and value per row."""
    low, high = 0.0, 0.0
    for name, estimate in estimates.items():
        value = 100 * estimate.value
        end = value if estimate.high is None else 100 * estimate.high
        start = value if estimate.low is None else 100 * estimate.low
        low, high = np.fmin(low, start), np.fmax(high, end)
        line = {"width": 2.5, "color": looks[name].color}
        figure.add_scatter(
            x=[value], y=[name], mode="markers", name=name, showlegend=False,
            marker={"size": 11, "color": looks[name].color, "symbol": looks[name].symbol, "line": line},
            error_x=whiskers([estimate], looks[name].color, 100),
            hovertemplate=f"%{{y}}: %{{x:.1f}}{unit}<extra></extra>", row=1, col=column,
        )  # fmt: skip
        if not math.isnan(value):
            text = f"{percent(Estimate(estimate.value), signed=column == 1)}{unit}"
            figure.add_annotation(
                x=end, y=name, text=text, bgcolor="white", showarrow=False, xanchor="left", xshift=9, borderpad=1,
                row=1, col=column,
            )  # fmt: skip
    room = max(high - low, 1.0)
    figure.update_xaxes(range=[low - 0.05 * room, high + 0.2 * room], row=1, col=column)


def outcome_figure(comparison: Comparison) -> Figure:
    """Draws what ranks, GPU-hours, cost and emissions per GPU-hour over the environments."""
    first = ("utility_usd", "Utility (higher is better)", "utility (USD)")
    if is_cost(comparison):
        first = ("total_usd", "Total cost (lower is better)", "total cost (USD)")
    panels = (
        first,
        ("gpu_hours", "GPU-hours (higher is better)", "GPU-hours (GPU h)"),
        ("usd_per_gpu_hour", "Energy cost per GPU-hour (lower is better)", "energy cost (USD per GPU-hour)"),
        ("g_per_gpu_hour", "Emissions per GPU-hour (lower is better)", "emissions (gCO2 per GPU-hour)"),
    )
    names, styles = comparison.ranked(), policy_styles(comparison)
    titles = [title for _, title, _ in panels]
    height = 2 * (150 + 24 * len(names))
    gap = TITLES_PX / height
    figure = make_subplots(
        2, 2, shared_yaxes=True, horizontal_spacing=0.04, vertical_spacing=gap, subplot_titles=titles
    )
    for i, (name, _, axis) in enumerate(panels):
        place = {"row": i // 2 + 1, "col": i % 2 + 1}
        values_PE = np.array([comparison.values(policy, name) for policy in names])
        for e, values_P in enumerate(values_PE.T):
            figure.add_scatter(
                x=values_P, y=names, mode="lines+markers", line={"color": PALE, "width": 1}, marker={"size": 4},
                showlegend=False, hovertemplate=f"environment {e}, %{{y}}: %{{x:.4g}}<extra></extra>", **place,
            )  # fmt: skip
        for policy in names:
            estimate, look = comparison.mean(policy, name), styles[policy]
            figure.add_scatter(
                x=[estimate.value], y=[policy], mode="markers", name=policy, showlegend=False,
                marker={"size": 10, "color": look.color, "symbol": look.symbol},
                error_x=whiskers([estimate], look.color),
                hovertemplate="%{y}: mean %{x:.4g}<extra></extra>", **place,
            )  # fmt: skip
        figure.update_xaxes(title=axis, **place)
    figure.update_yaxes(autorange="reversed")
    figure.update_yaxes(title="policy", col=1)
    lay_out(figure, height)
    caption = (
        "The title of each panel says which direction is better. Colored marks are means over the environments "
        "with 95% intervals. Each gray line joins one environment's results: follow it to compare policies within it."
    )
    ranked, case = first[1].partition(" (")[0], case_noun(comparison.scenario)
    title = f"{ranked}, GPU-hours, energy cost and carbon over the {case}s"
    return Figure(name="outcomes", title=title, caption=caption, plot=figure)


def money_parts(comparison: Comparison, ledger: Ledger) -> np.ndarray:
    """Returns what a run earned and paid, USD: revenue, energy of jobs and of free GPUs, carbon, moves, results, delay,
    tariffs.

    Costs are negative; the parts sum to the utility (MASAC, Eqs. 2-7). Emissions of transfers count as moves and
    results.
    """
    if comparison.scenario.economics is None:
        raise ValueError(f"scenario {comparison.scenario.name!r} has no economics; money is not defined")
    economics = comparison.scenario.economics
    part = functools.partial(utility_usd, economics.revenue_usd_per_gpu_hour, economics.carbon_usd_per_t)
    return np.array(
        [
            part(gpu_hours=ledger.gpu_hours),
            part(energy_usd=ledger.job_energy_usd),
            part(energy_usd=ledger.free_energy_usd),
            part(kg=ledger.job_kg + ledger.free_kg),
            part(kg=ledger.move_kg, journeys_usd=ledger.move_usd),
            part(kg=ledger.result_kg, journeys_usd=ledger.result_usd),
            part(late_usd=ledger.late_usd),
            -ledger.tariff_usd,
        ]
    )


def money_figure(comparison: Comparison) -> Figure:
    """Draws the parts U1 to U5 of the utility per policy, or of the total cost, and how they change."""
    names = comparison.ranked()
    parts_PEM = np.array([[money_parts(comparison, r.ledger) for r in comparison.records[p]] for p in names])
    base_EM = parts_PEM[names.index(comparison.reference)]
    cost = is_cost(comparison)
    if cost:  # what serving a GPU-hour is worth is no part of the cost
        parts_PEM[:, :, 0] = base_EM[:, 0] = 0.0
    whole = "total cost" if cost else "utility"
    titles = [f"Parts of the {whole}", f"Their change against {comparison.reference}"]
    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.04, subplot_titles=titles)
    for column, values_PEM in ((1, parts_PEM), (2, parts_PEM - base_EM)):
        for m, (name, color) in enumerate(_MONEY):
            if name in (REVENUE, LATE, TARIFFS) and not parts_PEM[:, :, m].any():
                continue  # most scenarios state no price of lateness, and no tariff
            figure.add_bar(
                x=values_PEM[:, :, m].mean(axis=1), y=names, orientation="h", name=name, showlegend=column == 1,
                marker={"color": color, "line": {"color": "white", "width": 0.5}},
                hovertemplate=f"%{{y}}, {name}: %{{x:.1f}} USD<extra></extra>", row=1, col=column,
            )  # fmt: skip
        totals = [mean(values_E) for values_E in values_PEM.sum(axis=2)]
        figure.add_scatter(
            x=[total.value for total in totals], y=names, mode="markers", name="sum, with 95% interval",
            showlegend=column == 1, error_x=whiskers(totals, INK),
            marker={"symbol": "diamond", "size": 9, "color": "white", "line": {"color": INK, "width": 1.5}},
            hovertemplate="%{y}: %{x:.1f} USD<extra></extra>", row=1, col=column,
        )  # fmt: skip
    figure.update_layout(barmode="relative", bargap=0.3)
    figure.update_xaxes(title="mean per environment (USD)", row=1, col=1)
    figure.update_xaxes(title="change of the mean per environment (USD)", row=1, col=2)
    figure.update_yaxes(autorange="reversed")
    figure.update_yaxes(title="policy", row=1, col=1)
    lay_out(figure, 190 + 28 * len(names), legend="above")
    caption = (
        "Bars right of 0 are earned (left) or gained against the baseline (right), bars left of 0 are paid or lost; "
        "means over the environments. The diamond is their sum: "
        f"the {whole}{' (paid, so left of 0)' if cost else ''}, and its paired change. Right is better."
    )
    return Figure(name="money", title="Where the money comes from and goes", caption=caption, plot=figure)
