"""Figures of training: rewards and migration cost by epoch, from what the policies' files say (MASAC, Fig. 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from noonward.arrays import F8
from noonward.evaluate.learned import Learned
from noonward.evaluate.report.figure_style import AXIS, DASHES, POLICY_COLORS, lay_out
from noonward.evaluate.table import Figure

_REWARD: Final = (
    ("reward_per_step", "Training: reward of a decision step", "reward (USD per step)"),
    ("validation_reward", "Validation: reward of whole runs", "reward (USD per run)"),
)
_MIGRATION: Final = (
    ("migration_usd_per_step", "Training: migration cost of a decision step", "migration cost (USD per step)"),
    ("validation_migration_usd", "Validation: migration cost of whole runs", "migration cost (USD per run)"),
)


def training_figures(learned: Sequence[Learned], rules: Mapping[str, float]) -> list[Figure]:
    """Draws rewards by epoch, and migration cost where it was logged; nothing for policies without curves.

    Args:
        learned: Policies.
        rules: Mean utility of rules over the validation environments, USD: levels in the validation panel.
    """
    figures = []
    if any(each.curve("reward_per_step").size for each in learned):
        caption = (
            "After MASAC, Fig. 4. Higher is better. Lines are means over training seeds, bands reach from the lowest "
            "to the highest seed; they end with the seed that was trained shortest. A decision step asks every site "
            "once: a policy that makes jobs wait takes more steps, so its reward per step is lower for the same "
            "utility. Validation runs the greedy policy to the end."
        )
        if rules:
            ordered = sorted(rules.items(), key=lambda item: -item[1])
            listed = ", ".join(f"{name} ({value:,.0f} USD)" for name, value in ordered)
            caption += (
                f" Thin lines in the validation panel are rules in the same environments, from the top: {listed}."
            )
        title = "Training: reward of a step, and of validation runs, by epoch"
        figure = _curves(learned, _REWARD, {"validation_reward": rules})
        figures.append(Figure(name="training", title=title, caption=caption, plot=figure))
    if any(each.curve("validation_migration_usd").size for each in learned):
        caption = (
            "What migrations cost, emissions included (U4, Eq. 5), while the policies learn. Lower is better where the "
            "reward above does not fall with it. Lines are means over training seeds, bands their range."
        )
        figure = _curves(learned, _MIGRATION, {})
        title = "Migration cost while the policies learn"
        figures.append(Figure(name="migration-cost", title=title, caption=caption, plot=figure))
    return figures


def _curves(
    learned: Sequence[Learned], panels: Sequence[tuple[str, str, str]], levels: Mapping[str, Mapping[str, float]]
) -> go.Figure:
    """Draws a panel per figure of training with a line and a band per policy, and horizontal levels."""
    figure = make_subplots(1, len(panels), horizontal_spacing=0.1, subplot_titles=[title for _, title, _ in panels])
    for column, (name, _, axis) in enumerate(panels, 1):
        longest = 1
        for n, each in enumerate(learned):
            values_KE = each.curve(name)
            if values_KE.size:
                longest = max(longest, values_KE.shape[1])
                shown = each.curve(panels[0][0]).size == 0 or column == 1
                _band(figure, each.name, values_KE, n, column, shown)
        for name_of_rule, value in levels.get(name, {}).items():
            figure.add_scatter(
                x=[1, longest], y=[value, value], mode="lines", name=name_of_rule, showlegend=False,
                line={"color": AXIS, "width": 1}, hovertemplate=f"{name_of_rule}: %{{y:.4g}}<extra></extra>",
                row=1, col=column,
            )  # fmt: skip
        figure.update_yaxes(title=axis, row=1, col=column)
    figure.update_xaxes(title="epoch (number)", rangemode="tozero")
    return lay_out(figure, 470, legend="above")


def _band(figure: go.Figure, name: str, values_KE: F8, n: int, column: int, legend: bool) -> None:
    """Draws the mean over seeds by epoch, and the range of the seeds; epochs without a value are left out."""
    known_E = ~np.isnan(values_KE).any(axis=0)
    epoch_E = np.flatnonzero(known_E) + 1
    values_KE = values_KE[:, known_E]
    color, dash = POLICY_COLORS[n % len(POLICY_COLORS)], DASHES[n % len(DASHES)]
    place = {"row": 1, "col": column}
    if len(values_KE) > 1:
        figure.add_scatter(
            x=np.concatenate([epoch_E, epoch_E[::-1]]),
            y=np.concatenate([values_KE.max(axis=0), values_KE.min(axis=0)[::-1]]),
            mode="lines", line={"width": 0}, fill="toself", fillcolor=color, opacity=0.18, legendgroup=name,
            showlegend=False, hoverinfo="skip", **place,
        )  # fmt: skip
    figure.add_scatter(
        x=epoch_E, y=values_KE.mean(axis=0), mode="lines", name=name, legendgroup=name, showlegend=legend,
        line={"color": color, "width": 2, "dash": dash},
        hovertemplate=f"{name}, epoch %{{x}}: %{{y:.4g}}<extra></extra>", **place,
    )  # fmt: skip
