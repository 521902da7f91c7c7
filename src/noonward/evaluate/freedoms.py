"""What freedoms of jobs can be worth at most: bounds over a scenario's environments, their table and their metrics."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from noonward.arrays import F8
from noonward.bound.cluster_utility.freedom_bounds import NAMES, NONE, FreedomBounds, FreedomWorth, freedom_bounds
from noonward.errors import ScenarioError, nearest
from noonward.evaluate.answer import interval
from noonward.evaluate.comparison import objective_of
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import mean, ratio
from noonward.evaluate.table import TextTable
from noonward.ledger.folder import read_sealed, write_sealed
from noonward.model.cluster.scenario import Scenario
from noonward.model.kinds import find_kind
from noonward.runtime.by_kind import environment_digest
from noonward.runtime.rests_on import bound_digest
from noonward.runtime.runs import environment_of


def freedom_names(listed: str) -> tuple[str, ...]:
    """Returns the freedoms of a comma-separated list, ``none`` among them, in the order of ``NAMES``.

    Raises:
        ScenarioError: One is unknown, or none is named.

    Example:
        >>> freedom_names("caps,suspend")
        ('none', 'suspend', 'caps')
    """
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not names:
        raise ScenarioError(f"no freedom is named; name some of {', '.join(NAMES)}")
    for name in names:
        if name not in NAMES:
            raise ScenarioError(f"unknown freedom {name!r}; {nearest(name, NAMES)}")
    return tuple(name for name in NAMES if name == NONE or name in names)


@dataclass(frozen=True)
class FreedomRun:
    """A spec: the bounds of one environment, read back where they were computed already.

    Attributes:
        scenario: Scenario of kind ``cluster``.
        index: Number of the environment.
        seed: Seed.
        names: Freedoms, of ``NAMES``.
        folder: Folder of the scenario's records.
        last: Bounds begin when no run is left to begin.
    """

    last: ClassVar[bool] = True
    portable: ClassVar[bool] = True

    scenario: Scenario
    index: int
    seed: int
    names: tuple[str, ...]
    folder: Path

    @property
    def label(self) -> str:
        """Which environment."""
        return f"bounds of freedoms, environment {self.index}"

    @property
    def group(self) -> Hashable:
        """Each is a group of its own."""
        return self.scenario.digest, self.index

    @property
    def place(self) -> Path:
        """File of the bounds: they depend on which freedoms are bounded together."""
        return self.folder / "bound" / f"freedoms-{'-'.join(self.names)}-{self.index:03d}.json"

    def run(self) -> FoundFreedoms:
        """Returns the bounds."""
        environment = environment_of(self.scenario, self.index, self.seed)
        code = bound_digest(find_kind(self.scenario.kind), objective_of(self.scenario))
        of = {"environment_digest": environment_digest(environment), "code": code, "seed": self.seed}
        try:
            content = read_sealed(self.place)
            if content["of"] == of:
                worth = {name: FreedomWorth(**each) for name, each in content["worth"].items()}
                return FoundFreedoms(FreedomBounds(worth=worth, bill_usd=content["bill_usd"]))
        except (OSError, ValueError, KeyError, TypeError):
            pass  # none there, or one that was cut short or changed: it is computed again
        return FoundFreedoms(freedom_bounds(environment, self.names, seed=self.seed), of)

    def keep(self, found: FoundFreedoms) -> FreedomBounds:
        """Writes new bounds to their file and returns them."""
        if found.of is not None:
            write_sealed(self.place, {"of": found.of, **asdict(found.bounds)})
        return found.bounds


@dataclass(frozen=True)
class FoundFreedoms:
    """What a ``FreedomRun`` found.

    Attributes:
        bounds: The bounds.
        of: What new bounds are of: digests of the environment and of the sources, and the seed; None for bounds that
            were read back.
    """

    bounds: FreedomBounds
    of: dict[str, Any] | None = None


def require_cluster(scenario: object) -> Scenario:
    """Returns a scenario whose jobs can have freedoms.

    Raises:
        ScenarioError: It is of another kind, or has no economics.
    """
    if not isinstance(scenario, Scenario):
        raise ScenarioError("--freedom is for scenarios of kind cluster, whose jobs run for hours; leave it out")
    if scenario.economics is None:
        raise ScenarioError(
            f"--freedom bounds the utility, and scenario {scenario.name!r} has no economics; give economics and "
            "signals, or leave --freedom out"
        )
    return scenario


@dataclass(frozen=True, kw_only=True)
class Worth:
    """What a freedom is worth in each environment, USD.

    Attributes:
        most_E: At most: its bound less the best schedule known without freedoms; NaN where none was looked for.
        between_E: Its bound less the bound without freedoms.
        found_E: The best schedule known with it less the best one without; NaN where none was looked for.
    """

    most_E: F8
    between_E: F8
    found_E: F8


def worth_of(found: Sequence[FreedomBounds], name: str) -> Worth:
    """Returns what a freedom is worth."""
    upper_E, known_E = upper_usd(found, name), known_usd(found, name)
    none_E = known_usd(found, NONE)
    return Worth(most_E=upper_E - none_E, between_E=upper_E - upper_usd(found, NONE), found_E=known_E - none_E)


def freedom_metrics(found: Sequence[FreedomBounds]) -> list[Metric]:
    """Returns bounds, best schedules known, and what freedoms add to either, over the environments.

    Args:
        found: What every environment gave, the same names in each.
    """
    bill_E = np.array([each.bill_usd for each in found])
    out = []
    for name in found[0].worth:
        out.append(Metric.of(f"utility_usd/bound@{name}", mean(upper_usd(found, name)), "USD"))
        if not np.isnan(known_usd(found, name)).any():
            out.append(Metric.of(f"utility_usd/best-known@{name}", mean(known_usd(found, name)), "USD"))
    for name in found[0].worth:
        worth = worth_of(found, name)
        for kind, usd_E in (("most", worth.most_E), ("between-bounds", worth.between_E), ("found", worth.found_E)):
            if name != NONE and not np.isnan(usd_E).any():
                out.append(Metric.of(f"worth_usd/{kind}@{name}", mean(usd_E), "USD"))
                if not np.isnan(bill_E).any():
                    out.append(Metric.of(f"worth_of_bill/{kind}@{name}", ratio(usd_E, bill_E), "fraction"))
    return out


def freedom_table(scenario: Scenario, found: Sequence[FreedomBounds], seed: int, setting: str = "") -> TextTable:
    """Returns the table of what freedoms can be worth at most, and what the best schedules known make of them.

    Args:
        scenario: Scenario.
        found: Bounds of every environment.
        seed: Seed.
        setting: What was set in the scenario, for the title.
    """
    rows = []
    bill_E = np.array([each.bill_usd for each in found])
    for name in found[0].worth:
        cells = [name, usd_text(upper_usd(found, name)), usd_text(known_usd(found, name))]
        worth = worth_of(found, name)
        for usd_E in (worth.found_E, worth.between_E, worth.most_E):
            share = ratio(usd_E, bill_E).value
            of_bill = "" if np.isnan(share) else f" ({share:.1%})"
            cells.append("" if name == NONE else usd_text(usd_E) + of_bill)
        rows.append(tuple(cells))
    count = len(found)
    late = ""
    if scenario.lateness.rule == "wait":
        late = " Jobs that start late (lateness: wait) run unbroken here: a policy that suspends them is not bounded."
    bill = "" if np.isnan(bill_E).any() else f" Its bill, idle GPUs included, is {usd_text(bill_E)} USD."
    return TextTable(
        title=f"{scenario.name}{f' with {setting}' * bool(setting)}: what freedoms of jobs are worth, "
        f"{count} environment{'s' * (count != 1)}, seed {seed}",
        header=(
            "Freedom",
            "Upper bound\nUSD",
            "Best schedule\nknown, USD",
            "Worth, by the\nschedules, USD",
            "Worth, by the\nbounds, USD",
            "Worth at most\nUSD",
        ),
        rows=tuple(rows),
        caption=(
            "Utility with all signals and jobs known. Worth at most: the bound with the freedom less the best schedule "
            f"known without one; no policy gains more by it.{bill} In round brackets shares of the bill, in square "
            f"ones 95% intervals over environments.{late}"
        ),
    )


def usd_text(values_E: F8) -> str:
    """Returns the mean over environments with its interval."""
    estimate = mean(values_E)
    if np.isnan(estimate.value):
        return "-"
    digits = 2 if abs(estimate.value) < 1e4 else 0
    return f"{estimate.value:,.{digits}f}{interval(estimate, digits)}"


def upper_usd(found: Sequence[FreedomBounds], name: str) -> F8:
    """Returns the bound with a freedom in each environment, USD."""
    return np.array([each.worth[name].upper_usd for each in found])


def known_usd(found: Sequence[FreedomBounds], name: str) -> F8:
    """Returns the utility of the best schedule known with a freedom in each environment, USD; NaN where none is."""
    return np.array([each.worth[name].known_usd for each in found])
