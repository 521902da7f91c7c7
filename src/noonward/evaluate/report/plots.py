"""Interactive figures of comparisons and studies for notebooks: what ``.plot_...()`` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from noonward.arrays import F8
from noonward.data.places import site_place
from noonward.data.site_map import coasts
from noonward.errors import ScenarioError
from noonward.evaluate.answer import best_to_adopt, bills, can_run, spoken
from noonward.evaluate.report.charts import BAD, GOOD, QUIET
from noonward.evaluate.report.figure_style import INK, grid, lay_out, site_names, utc_hours, whiskers, window_hours
from noonward.evaluate.report.meeting import improvement, unit_of_improvement
from noonward.evaluate.report.site_section import site_figures

if TYPE_CHECKING:
    from noonward.evaluate.compare import Comparison
    from noonward.evaluate.what_if.study import Curve, Study

CHANGE_SCALE = ((0.0, "#1d5fa8"), (0.5, "#ffffff"), (1.0, "#b45309"))
"""Blue below zero, white at zero, orange above."""
CARBON_COLOR = "#1d5fa8"


def savings_plot(comparison: Comparison) -> go.Figure:
    """Returns bars of what each policy is better by than today's, with 95 % intervals."""
    policies = [policy for policy in comparison.ranked() if policy != comparison.reference]
    estimates = [improvement(comparison, policy) for policy in policies]
    best, unit = best_to_adopt(comparison), unit_of_improvement(comparison)
    colors = [
        QUIET if not can_run(policy, comparison.scenario.kind) else BAD if estimate.value < 0 else GOOD
        for policy, estimate in zip(policies, estimates, strict=True)
    ]
    figure = go.Figure()
    figure.add_bar(
        x=[estimate.value for estimate in estimates], y=policies, orientation="h", marker={"color": colors},
        error_x=whiskers(estimates, INK), hovertemplate=f"%{{y}}: %{{x:,.4g}} {unit}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title=f"better than {spoken(comparison.reference)} by ({unit} an environment)")
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(title=f"Best to adopt: {best}")
    return lay_out(figure, 140 + 34 * len(policies))


def cost_carbon_plot(comparison: Comparison) -> go.Figure:
    """Returns what each policy pays against what it emits, means over the environments.

    Raises:
        ScenarioError: The scenario has no prices.
    """
    _require_signals(comparison)
    policies = comparison.ranked()
    best = best_to_adopt(comparison)
    paid = [float(bills(comparison, policy).mean()) for policy in policies]
    room = 0.2 * (max(paid) - min(paid)) or 1.0  # for names beside the outermost points
    figure = go.Figure()
    figure.add_scatter(
        x=paid,
        y=[comparison.mean(policy, "carbon_kg").value for policy in policies],
        mode="markers+text", text=[spoken(policy) for policy in policies], textposition="top center",
        marker={
            "size": 11,
            "color": [INK if p == comparison.reference else GOOD if p == best else "#9db9d3" for p in policies],
        },
        hovertemplate="%{text}: %{x:,.4g} USD, %{y:,.4g} kg<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(
        title="paid for energy and transfers (USD an environment)", range=[min(paid) - room, max(paid) + room]
    )
    figure.update_yaxes(title="emissions (kg CO2 an environment)")
    return lay_out(figure, 460)


def moves_plot(comparison: Comparison, policy: str | None = None, environment: int = 0) -> go.Figure:
    """Returns GPUs in use under a policy less those under today's, per site and hour (UTC) of an environment.

    Raises:
        ScenarioError: The policy or the environment was not compared.
    """
    policy = _policy(comparison, policy)
    if not 0 <= environment < len(comparison.bounds):
        last = len(comparison.bounds) - 1
        raise ScenarioError(f"environment {environment} was not compared; give a number from 0 to {last}")
    records = [comparison.records[name][environment] for name in (policy, comparison.reference)]
    busy = [grid(record, "busy_gpu_hours")[0] for record in records]
    hours = min(window_hours(records[0]), *(each.shape[1] for each in busy))
    change_SH = busy[0][:, :hours] - busy[1][:, :hours]
    figure = go.Figure()
    figure.add_heatmap(
        z=change_SH, x=utc_hours(records[0], hours), y=site_names(records[0]), colorscale=CHANGE_SCALE, zmid=0,
        colorbar={"title": {"text": "GPUs", "side": "right"}},
        hovertemplate="%{y}, %{x} UTC: %{z:+.1f} GPUs<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="time (UTC)")
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(title=f"{policy} less {spoken(comparison.reference)}")
    return lay_out(figure, 150 + 24 * len(change_SH))


def sites_plot(comparison: Comparison, policy: str | None = None) -> go.Figure:
    """Returns a map of the sites: the larger the more GPUs, orange where a policy runs more GPU-hours than today's.

    Sites without a place are left out. The coasts are packaged: nothing is loaded.

    Raises:
        ScenarioError: The scenario has no prices, the policy was not compared, or no site has a place.
    """
    _require_signals(comparison)
    policy = _policy(comparison, policy)
    found = site_figures(comparison, policy)
    change_S: F8 = found.best_S - found.today_S
    places = [(s, site, site_place(site)) for s, site in enumerate(comparison.scenario.fleet.sites)]
    shown = [(s, site, place) for s, site, place in places if place is not None]
    if not shown:
        raise ScenarioError("no site has a place on the map; give sites lat and lon, or zones that are known")
    lon, lat = coasts()
    figure = go.Figure()
    figure.add_scatter(x=lon, y=lat, mode="lines", line={"color": "#c3c8d0", "width": 1}, hoverinfo="skip")
    largest = max(site.gpus for site in comparison.scenario.fleet.sites)
    most = float(np.abs(change_S).max()) or 1.0
    figure.add_scatter(
        x=[place[1] for _, _, place in shown], y=[place[0] for _, _, place in shown], mode="markers+text",
        text=[site.name for _, site, _ in shown], textposition="top center",
        marker={
            "size": [10 + 18 * (site.gpus / largest) ** 0.5 for _, site, _ in shown],
            "color": [change_S[s] for s, _, _ in shown], "colorscale": CHANGE_SCALE, "cmin": -most, "cmax": most,
            "line": {"color": "#444", "width": 1},
            "colorbar": {"title": {"text": "change, GPU-hours", "side": "right"}},
        },
        customdata=[(found.price_S[s], found.carbon_S[s], site.gpus, change_S[s]) for s, site, _ in shown],
        hovertemplate="%{text}: %{customdata[0]:,.0f} USD/MWh, %{customdata[1]:,.0f} g/kWh, %{customdata[2]:,} GPUs, "
        "%{customdata[3]:+,.0f} GPU-hours<extra></extra>",
    )  # fmt: skip
    for at, axis in ((1, figure.update_xaxes), (0, figure.update_yaxes)):
        values = [place[at] for _, _, place in shown]
        room = max(8.0, 0.15 * (max(values) - min(values)))
        axis(range=[min(values) - room, max(values) + room], visible=False)
    middle = float(np.mean([place[0] for _, _, place in shown]))
    figure.update_yaxes(scaleanchor="x", scaleratio=1 / max(0.35, float(np.cos(np.radians(middle)))))
    figure.update_layout(title=f"{policy} less {spoken(comparison.reference)}")
    return lay_out(figure, 480)


def trade_off_plot(study: Study) -> go.Figure:
    """Returns cost against emissions per GPU-hour, a point a carbon price, beside today's policy.

    Raises:
        ScenarioError: The study holds no such curve.
    """
    curve = _curve(study, "carbon")
    figure = go.Figure()
    for name, cases in zip((study.policy, "leaves jobs out"), study.served(curve), strict=True):
        figure.add_scatter(
            x=[1000 * study.per_gpu_hour(case, "usd").value for case in cases],
            y=[1000 * study.per_gpu_hour(case, "kg").value for case in cases],
            mode="lines+markers+text", text=[case.title for case in cases], textposition="top right", name=name,
            line={"color": GOOD if name == study.policy else QUIET},
        )  # fmt: skip
    figure.add_scatter(
        x=[1000 * study.per_gpu_hour(study.reference, "usd").value],
        y=[1000 * study.per_gpu_hour(study.reference, "kg").value],
        mode="markers", marker={"color": INK, "size": 11}, name=spoken(study.today),
    )  # fmt: skip
    figure.update_xaxes(title="cost (USD per 1,000 GPU-hours)")
    figure.update_yaxes(title="emissions (kg CO2 per 1,000 GPU-hours)")
    return lay_out(figure, 460, legend="above")


def delay_plot(study: Study) -> go.Figure:
    """Returns cost and emissions saved against the slack of the jobs, with 95 % intervals.

    Raises:
        ScenarioError: The study holds no such curve.
    """
    curve = _curve(study, "slack")
    figure = go.Figure()
    for name, color, found in (
        ("cost saved", GOOD, [study.saved(case) for case in curve.cases]),
        ("emissions avoided", CARBON_COLOR, [study.saved(case, "kg") for case in curve.cases]),
    ):
        figure.add_scatter(
            x=[case.title for case in curve.cases], y=[100 * estimate.value for estimate in found],
            error_y=whiskers(found, color, 100), mode="lines+markers", line={"color": color}, name=name,
        )  # fmt: skip
    figure.update_xaxes(title=curve.quantity, type="category")
    figure.update_yaxes(title=f"per GPU-hour, against {spoken(study.today)} (%)", rangemode="tozero")
    return lay_out(figure, 420, legend="above")


def sensitivity_plot(study: Study) -> go.Figure:
    """Returns bars of the cost saved as it is and with one change at a time, with 95 % intervals.

    Raises:
        ScenarioError: The study is no sensitivity.
    """
    if not study.cases:
        raise ScenarioError(f"a {study.name} has no single changes; noonward.sensitivity(...) has")
    cases = [study.base, *study.cases]
    estimates = [study.saved(case) for case in cases]
    figure = go.Figure()
    figure.add_bar(
        x=[100 * estimate.value for estimate in estimates], y=[case.title.partition(":")[0] for case in cases],
        orientation="h", marker={"color": [GOOD, *["#7fb183"] * len(study.cases)]},
        error_x=whiskers(estimates, INK, 100),
    )  # fmt: skip
    figure.update_xaxes(title=f"cost saved per GPU-hour, against {spoken(study.today)} (%)")
    figure.update_yaxes(autorange="reversed")
    return lay_out(figure, 140 + 34 * len(cases))


def _require_signals(comparison: Comparison) -> None:
    if getattr(comparison.scenario, "signals", None) is None or comparison.scenario.kind != "cluster":
        raise ScenarioError(f"scenario {comparison.scenario.name!r} has no prices at sites, which this figure shows")


def _policy(comparison: Comparison, policy: str | None) -> str:
    """Returns the policy asked for, else the one to adopt."""
    if policy is not None and policy not in comparison.records:
        raise ScenarioError(f"policy {policy!r} was not compared; compared: {', '.join(comparison.records)}")
    if comparison.scenario.kind != "cluster":
        raise ScenarioError(f"scenarios of kind {comparison.scenario.kind} have no GPUs at sites, which this shows")
    return policy or best_to_adopt(comparison)


def _curve(study: Study, name: str) -> Curve:
    found = next((curve for curve in study.curves if curve.name == name), None)
    if found is None:
        raise ScenarioError(f"a {study.name} has no curve; noonward.trade_off(...) has")
    return found
