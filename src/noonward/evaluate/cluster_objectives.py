"""Which objective a cluster scenario is compared by."""

from __future__ import annotations

from noonward.evaluate.comparison import Objective
from noonward.evaluate.cost_objective import CostObjective
from noonward.evaluate.energy_objective import EnergyObjective
from noonward.evaluate.utility_objective import UtilityObjective
from noonward.model.cluster.scenario import Scenario


def objective_of(scenario: Scenario) -> Objective:
    """Returns the objective of a cluster scenario."""
    if scenario.goal == "least-cost":
        return CostObjective()
    return UtilityObjective() if scenario.economics is not None else EnergyObjective()
