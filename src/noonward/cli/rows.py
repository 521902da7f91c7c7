"""Rows that appear above the progress bar of a comparison as policies finish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from noonward.evaluate.comparison import Comparison
    from noonward.schedule.registry import Policy


class Rows:
    """What is known of a comparison while it runs.

    Args:
        scenario: Scenario.
        seed: Seed.
        folder: Folder of its records.
        policies: Policies.
        environments: Number of environments.
        today: Policy that savings are measured against; None: the scenario's reference.
    """

    def __init__(
        self,
        scenario: Any,
        seed: int,
        folder: Path,
        policies: list[Policy],
        environments: int,
        today: Policy | None = None,
    ) -> None:
        self.scenario, self.seed, self.folder = scenario, seed, folder
        self.environments, self.today = environments, today
        self.policies = {policy.name: policy for policy in policies}
        self.records: dict[str, dict[int, Any]] = {name: {} for name in self.policies}

    def add(self, policy: str, index: int, record: Any) -> None:
        """Receives a record."""
        self.records[policy][index] = record

    def finished(self) -> Comparison | None:
        """Returns the comparison of the policies that are through with every environment, without bounds; or None."""
        from noonward.evaluate.asked import reference_of
        from noonward.evaluate.comparison import Bound, Comparison

        whole = {
            policy: [found[index] for index in range(self.environments)]
            for policy, found in self.records.items()
            if len(found) == self.environments
        }
        if not whole:
            return None
        policies = {name: self.policies[name] for name in whole}
        if self.today is not None and self.today.name in whole:
            reference = self.today
        else:
            reference = reference_of(self.scenario, list(policies.values()))
        return Comparison(
            scenario=self.scenario,
            seed=self.seed,
            folder=self.folder,
            reference=reference.name,
            policies=policies,
            records=whole,
            bounds=[Bound() for _ in range(self.environments)],
            bounded=False,
        )

    def kept(self) -> str:
        """Returns how many runs are recorded, for the message of an interrupt."""
        done, of = sum(map(len, self.records.values())), len(self.records) * self.environments
        rest = "; --no-bound prints the table without the bound" if done == of else ""
        return f"interrupted; {done} of {of} runs are recorded in {self.folder}; the same command continues{rest}"

    def __rich__(self) -> RenderableType:
        """Returns the rows so far: policies that have a record, best mean first."""
        import math

        from rich import box
        from rich.table import Table

        from noonward.evaluate.comparison import objective_of
        from noonward.evaluate.statistics import mean

        objective = objective_of(self.scenario)
        field, better = objective.value, objective.better
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="so far", title_justify="left")
        for title in ("policy", "environments", f"{objective.value_name} {'↑' if better == 'up' else '↓'}"):
            table.add_column(title, justify="left" if title == "policy" else "right")
        means = {
            policy: mean([float(getattr(each.ledger, field)) for each in found.values()]).value
            for policy, found in dict(self.records).items()
            if found
        }
        sign = -1.0 if better == "up" else 1.0
        for policy in sorted(means, key=lambda each: (math.isnan(means[each]), sign * means[each])):
            count = f"{len(self.records[policy])} of {self.environments}"
            table.add_row(
                policy, count, f"{means[policy]:,.4g}" if abs(means[policy]) < 100 else f"{means[policy]:,.0f}"
            )
        return table if means else ""
