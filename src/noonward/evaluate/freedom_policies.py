"""What policies make of freedoms of jobs: their utility beside the bounds, at several values of a scenario's key."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from noonward.arrays import F8
from noonward.bound.cluster_utility.freedom_bounds import FreedomBounds
from noonward.data.scenarios.load import with_settings
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.evaluate.freedoms import usd_text
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import mean, ratio
from noonward.evaluate.table import TextTable
from noonward.ledger.ledger import settle
from noonward.model.cluster.scenario import Scenario
from noonward.runtime.runs import blaming, environment_of
from noonward.schedule.registry import Policy


def variants(scenario: Scenario, each: str | None) -> dict[str, Scenario]:
    """Returns a scenario with a key at each of some values, by the text of its setting.

    Args:
        scenario: Scenario.
        each: ``KEY=VALUE,VALUE,...``; None: the scenario as it is, by the empty text.

    Raises:
        ScenarioError: The text is of another form, or a value is not allowed.

    Example:
        >>> from noonward.data.scenarios.load import load_scenario
        >>> list(variants(load_scenario("tiny"), "jobs.demand=0.5,0.7"))
        ['jobs.demand=0.5', 'jobs.demand=0.7']
    """
    if each is None:
        return {"": scenario}
    key, equals, listed = each.partition("=")
    values = [value.strip() for value in listed.split(",") if value.strip()]
    if not (key.strip() and equals and values):
        raise ScenarioError(f"--each {each!r} is no KEY=VALUE,VALUE,...; give for example jobs.demand=0.5,0.7")
    settings = dict.fromkeys(f"{key.strip()}={value}" for value in values)
    return {setting: with_settings(scenario, [setting]) for setting in settings}


@dataclass(frozen=True)
class UtilityRun:
    """A spec: the utility of a policy in one environment.

    Attributes:
        scenario: Scenario of kind ``cluster`` with economics.
        index: Number of the environment.
        seed: Seed of environment and policy.
        policy: Policy.
    """

    scenario: Scenario
    index: int
    seed: int
    policy: Policy

    @property
    def label(self) -> str:
        """Policy and environment."""
        return f"{self.policy.name}, environment {self.index}"

    @property
    def group(self) -> Hashable:
        """Runs in one environment share it."""
        return self.scenario.digest, self.index

    @property
    def portable(self) -> bool:
        """Whether another process knows the policy."""
        return self.policy.portable

    def run(self) -> float:
        """Returns the utility, USD."""
        with blaming(self.policy.name, packaged=self.policy.packaged):
            outcome = run(environment_of(self.scenario, self.index, self.seed), self.policy.make(), seed=self.seed)
        return settle(outcome).utility_usd

    def keep(self, found: float) -> float:
        """Returns the utility: nothing is written."""
        return found


def policy_metrics(found: Sequence[FreedomBounds], utility_usd_PE: Mapping[str, F8]) -> list[Metric]:
    """Returns what every policy earns, and what that is more than the first one's (paired), USD and of the bill.

    Args:
        found: Bounds of every environment.
        utility_usd_PE: Utility by policy, in the same environments.
    """
    bill_E, out = np.array([each.bill_usd for each in found]), []
    first = next(iter(utility_usd_PE), "")
    for name, usd_E in utility_usd_PE.items():
        out.append(Metric.of(f"utility_usd/{name}", mean(usd_E), "USD"))
        if name != first:
            out.append(Metric.of(f"worth_usd/{name}", mean(usd_E - utility_usd_PE[first]), "USD"))
            if not np.isnan(bill_E).any():
                out.append(Metric.of(f"worth_of_bill/{name}", ratio(usd_E - utility_usd_PE[first], bill_E), "fraction"))
    return out


def policy_table(found: Sequence[FreedomBounds], utility_usd_PE: Mapping[str, F8], where: str) -> TextTable:
    """Returns the table of what policies earn, against the first of them and against the highest bound.

    Args:
        found: Bounds of every environment.
        utility_usd_PE: Utility by policy, in the same environments.
        where: Scenario and setting, for the title.
    """
    first = next(iter(utility_usd_PE))
    bill_E = np.array([each.bill_usd for each in found])
    highest_E = np.array([max(worth.upper_usd for worth in each.worth.values()) for each in found])
    rows = []
    for name, usd_E in utility_usd_PE.items():
        more_E = usd_E - utility_usd_PE[first]
        share = ratio(more_E, bill_E).value
        of_bill = "" if np.isnan(share) else f" ({share:+.1%})"
        against = "" if name == first else usd_text(more_E) + of_bill
        rows.append((name, usd_text(usd_E), against, usd_text(highest_E - usd_E)))
    return TextTable(
        title=f"{where}: what policies make of it",
        header=("Policy", "Utility\nUSD", f"Against {first}\nUSD", "Below the highest\nbound, USD"),
        rows=tuple(rows),
        caption=(
            "In round brackets shares of the bill of the best schedule known without freedoms, in square ones 95% "
            "intervals over the same environments, paired."
        ),
    )


def named_at(metrics: Sequence[Metric], setting: str) -> list[Metric]:
    """Returns figures whose names end with the setting that they hold for, where there is one."""
    return [replace(metric, name=f"{metric.name}@{setting}" if setting else metric.name) for metric in metrics]
