"""The figures of a comparison, made from run records only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonward.evaluate.compare import Comparison
from noonward.evaluate.report.energy_figures import energy_latency_figure, latency_figure, power_figure, routing_figure
from noonward.evaluate.report.figure_style import Figure
from noonward.evaluate.report.utility_figures import (
    gain_figure,
    money_figure,
    outcome_figure,
    signals_figure,
    utilisation_bars,
    utilisation_map,
)

if TYPE_CHECKING:
    from noonward.bound.cluster_energy import FluidFrontier


def comparison_figures(comparison: Comparison, frontier: FluidFrontier | None = None) -> list[Figure]:
    """Returns the figures that suit a comparison, the one that tells most first.

    Args:
        comparison: Comparison.
        frontier: Points of ``noonward.bound.cluster_energy.fluid_frontier`` for the plane of energy and latency, or
            None; taken where the scenario has no economics.
    """
    if comparison.has_utility:
        return [
            gain_figure(comparison),
            money_figure(comparison),
            outcome_figure(comparison),
            utilisation_bars(comparison),
            utilisation_map(comparison),
            signals_figure(comparison),
        ]
    return [
        energy_latency_figure(comparison, frontier),
        latency_figure(comparison),
        power_figure(comparison),
        routing_figure(comparison),
        utilisation_bars(comparison),
    ]
