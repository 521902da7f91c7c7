"""The bound on what policies without foresight of the signals can earn, over a scenario's environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from noonward.bound.cluster_utility.nonclairvoyant import NonclairvoyantBound, nonclairvoyant_bound
from noonward.data.signals.expected import expected_signals
from noonward.errors import ScenarioError
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import mean
from noonward.model.cluster.scenario import GeneratedSignals, Scenario
from noonward.runtime.executor import PlainSpec
from noonward.runtime.runs import environment_of


def require_law(scenario: Scenario) -> GeneratedSignals:
    """Returns the generator of a scenario's signals.

    Raises:
        ScenarioError: The scenario has none: then nothing says what signals could have come instead.
    """
    source = getattr(scenario, "signals", None)
    if not isinstance(source, GeneratedSignals):
        raise ScenarioError(
            f"scenario {scenario.name!r} has no generated signals, and a non-clairvoyant bound is a mean over what "
            "their generator could have drawn; use 'signals: {source: generated}', or leave out --non-clairvoyant"
        )
    return source


@dataclass(frozen=True)
class NonclairvoyantRun(PlainSpec):
    """A spec: one environment's share in the bound.

    Attributes:
        scenario: Scenario with generated signals.
        index: Number of the environment.
        seed: Seed.
    """

    scenario: Scenario
    index: int
    seed: int

    @property
    def label(self) -> str:
        """Which environment."""
        return f"non-clairvoyant bound, environment {self.index}"

    def run(self) -> NonclairvoyantBound:
        """Returns the environment's share."""
        source, environment = require_law(self.scenario), environment_of(self.scenario, self.index, self.seed)
        return nonclairvoyant_bound(environment, expected_signals(environment, source))


LEAST_RUNS: Final = 10
"""Environments of which the mean is taken at least: over fewer it may lie below what a policy earns in them."""


def require_runs(runs: int) -> None:
    """Raises ScenarioError for too few environments."""
    if runs < LEAST_RUNS:
        raise ScenarioError(
            f"--non-clairvoyant with {runs} environments: it bounds the mean over all that the generator may draw, and "
            f"a policy may earn more in a few of them; give at least {LEAST_RUNS} (-n {LEAST_RUNS})"
        )


def nonclairvoyant_metrics(found: Sequence[NonclairvoyantBound]) -> list[Metric]:
    """Returns both bounds' means and their paired difference, USD.

    Args:
        found: What every environment gave.
    """
    penalised_E = np.array([each.penalised_usd for each in found])
    clairvoyant_E = np.array([each.clairvoyant_usd for each in found])
    return [
        Metric.of("nonclairvoyant_bound_usd", mean(penalised_E), "USD"),
        Metric.of("clairvoyant_bound_usd", mean(clairvoyant_E), "USD"),
        Metric.of("foresight_usd", mean(clairvoyant_E - penalised_E), "USD"),
    ]
