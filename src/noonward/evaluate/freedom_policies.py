"""The value of freedoms of jobs: bounds, best schedules known and policies with each freedom, in the same windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from noonward.arrays import F8
from noonward.bound.cluster_utility.freedom_bounds import ALL, NONE, FreedomBounds, require_stated
from noonward.bound.cluster_utility.freedoms import allowed
from noonward.bound.cluster_utility.metered import require_unbilled
from noonward.data.scenarios.load import with_settings
from noonward.errors import ScenarioError
from noonward.evaluate.asked import comparison_folder, require_fit
from noonward.evaluate.freedoms import FreedomRun, freedom_metrics, known_usd, upper_usd, usd_text
from noonward.evaluate.loads import demand_share
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean, ratio
from noonward.evaluate.table import TextTable, percent
from noonward.model.cluster.scenario import Scenario
from noonward.notices import tell
from noonward.runtime.executor import Executor, Progress, map_runs
from noonward.runtime.runs import RecordedRun, environment_of
from noonward.schedule.registry import Policy

BOUND = "upper bound"
"""Row of the table for what no policy can beat."""
KNOWN = "best schedule known"
"""Row of the table for the best schedule that was found."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What was found in one setting of a scenario.

    Attributes:
        setting: What was set, such as ``load=50%``; empty: the scenario as it is.
        scenario: Scenario with that setting.
        found: Bounds and best schedules of every environment.
        demand_E: Share of the fleet's GPU-hours that jobs ask for (``demand_share``).
        utility_usd_FPE: Utility by freedom, ``none`` first, and policy, in the same environments; empty without
            policies.
    """

    setting: str
    scenario: Scenario
    found: Sequence[FreedomBounds]
    demand_E: F8
    utility_usd_FPE: dict[str, dict[str, F8]] = field(default_factory=dict)

    @property
    def bill_usd_E(self) -> F8:
        """Cost of the best unbroken schedules known, USD; NaN where none is known."""
        return np.array([each.bill_usd for each in self.found])

    @property
    def first(self) -> str:
        """Policy that improvements are measured against, in the fleet without freedoms."""
        return next(iter(self.utility_usd_FPE[NONE]))

    def rows(self) -> list[tuple[str, str, F8, F8]]:
        """Returns freedom, schedule, utility and the same schedule's utility without freedoms, USD by environment."""
        out = []
        for name, utility_usd_PE in self.utility_usd_FPE.items():
            out.append((name, BOUND, upper_usd(self.found, name), upper_usd(self.found, NONE)))
            out.append((name, KNOWN, known_usd(self.found, name), known_usd(self.found, NONE)))
            out += [(name, each, usd_E, self.utility_usd_FPE[NONE][each]) for each, usd_E in utility_usd_PE.items()]
        return out

    def improvement_share(self, name: str, usd_E: F8) -> Estimate:
        """Returns the share of the possible improvement: from the first policy without freedoms up to the bound."""
        base_E = self.utility_usd_FPE[NONE][self.first]
        share = ratio(usd_E - base_E, upper_usd(self.found, name) - base_E)
        return share.within(-math.inf, max(1.0, share.value))


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


def with_only(scenario: Scenario, name: str) -> Scenario:
    """Returns a scenario whose jobs have one of the freedoms of ``NAMES``: ``none``, one, or ``all`` that are stated.

    Preemption stays as it is stated.
    """
    if name == ALL:
        return scenario
    fleet, asked = scenario.fleet, () if name == NONE else (name,)
    freedoms = {key: allowed(freedom, asked) for key, freedom in fleet.freedoms.items()}
    return scenario.model_copy(update={"fleet": fleet.model_copy(update={"freedoms": freedoms})})


def value_of_freedoms(
    cases: dict[str, Scenario],
    names: tuple[str, ...],
    policies: Sequence[Policy],
    *,
    environments: int,
    seed: int,
    out: Path,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> list[Case]:
    """Returns bounds, best schedules known and the utility of policies with each freedom, in the same environments.

    A policy runs in a fleet with each of the freedoms; one that leaves running jobs alone runs once, since freedoms
    change nothing for it. What was run or bounded before is read back.

    Args:
        cases: Scenarios by what was set in them.
        names: Freedoms, of ``NAMES``, ``none`` first.
        policies: Policies; the first is what improvements are measured against.
        environments: Number of environments.
        seed: Seed.
        out: Folder of all records.
        progress: Called once per run and bound.
        executor: Where they are carried out.

    Raises:
        ScenarioError: A policy does not fit, or no class states a freedom that was asked for.
    """
    for scenario in cases.values():
        environment = environment_of(scenario, 0, seed)
        require_unbilled(environment, "the bound with freedoms")
        require_stated(environment, names)
        require_fit(environment, policies)
    fleets = {
        (setting, name, policy.name): _fleet(scenario, name, policy)
        for setting, scenario in cases.items()
        for name in names
        for policy in policies
    }
    digest = {key: stated.digest for key, stated in fleets.items()}
    asked = {(digest[key], key[-1]): stated for key, stated in fleets.items()}
    by_name = {policy.name: policy for policy in policies}
    runs = [
        RecordedRun(stated, index, seed, by_name[name], comparison_folder(stated, seed, out))
        for index in range(environments)
        for (_, name), stated in asked.items()
    ]
    bounds = [
        FreedomRun(scenario, index, seed, names, comparison_folder(scenario, seed, out))
        for index in range(environments)
        for scenario in cases.values()
    ]
    tell("runs", str(len(runs) + len(bounds)))
    done = map_runs([*runs, *bounds], executor, progress)
    usd_E = {
        key: np.array([record.ledger.utility_usd for record in done[n : len(runs) : len(asked)]])
        for n, key in enumerate(asked)
    }
    return [
        Case(
            setting=setting,
            scenario=scenario,
            found=done[len(runs) + n :: len(cases)],
            demand_E=np.array([demand_share(environment_of(scenario, e, seed)) for e in range(environments)]),
            utility_usd_FPE={
                name: {each: usd_E[digest[setting, name, each], each] for each in by_name}
                for name in names[: len(names) * bool(policies)]
            },
        )
        for n, (setting, scenario) in enumerate(cases.items())
    ]


def _fleet(scenario: Scenario, name: str, policy: Policy) -> Scenario:
    """Returns the scenario that a policy runs in with a freedom: one that leaves running jobs alone needs no other."""
    return with_only(scenario, name) if policy.sample.needs.levers else scenario


def value_metrics(case: Case) -> list[Metric]:
    """Returns the figures of a case, whose names end with the freedom, and with what was set.

    Of bounds and best schedules see ``freedom_metrics``. Of policies and best schedules: utility, what the freedom adds
    to it (paired; also as a share of the bill), and the share of the possible improvement.
    """
    out = freedom_metrics(case.found)
    if not np.isnan(case.demand_E).any():
        out.append(Metric.of("demand_share", mean(case.demand_E), "fraction"))
    for name, row, usd_E, none_E in case.rows():
        if row == BOUND or np.isnan(usd_E).any():
            continue
        told = f"{'best-known' if row == KNOWN else row}@{name}"
        out.append(Metric.of(f"improvement_share/{told}", case.improvement_share(name, usd_E), "fraction"))
        if row == KNOWN:
            continue
        out.append(Metric.of(f"utility_usd/{told}", mean(usd_E), "USD"))
        if name != NONE:
            out.append(Metric.of(f"worth_usd/{told}", mean(usd_E - none_E), "USD"))
            if not np.isnan(case.bill_usd_E).any():
                out.append(Metric.of(f"worth_of_bill/{told}", ratio(usd_E - none_E, case.bill_usd_E), "fraction"))
    return [replace(each, name=f"{each.name}@{case.setting}" if case.setting else each.name) for each in out]


def value_table(case: Case, seed: int) -> TextTable:
    """Returns the table *value of freedoms* of a case: a row for every freedom, bound, best schedule and policy."""
    rows, count, before = [], len(case.found), ""
    for name, row, usd_E, none_E in case.rows():
        gained = ""
        if name != NONE:
            of_bill = ratio(usd_E - none_E, case.bill_usd_E).value
            gained = usd_text(usd_E - none_E) + ("" if math.isnan(of_bill) else f" ({of_bill:+.1%})")
        share = "100" if row == BOUND else percent(case.improvement_share(name, usd_E))
        rows.append((name if name != before else "", row, usd_text(usd_E), gained, share))
        before = name
    notes = "Bounds and best schedules know the future."
    if not np.isnan(case.demand_E).any():
        notes += f" Jobs ask for {mean(case.demand_E).value:.1%} of the GPU-hours."
    if case.scenario.lateness.rule == "wait":
        notes += " Jobs that start late (lateness: wait) run unbroken in bounds; some policies do not."
    return TextTable(
        title=f"{case.scenario.name}{f' with {case.setting}' * bool(case.setting)}: value of freedoms, {count} "
        f"environment{'s' * (count != 1)}, seed {seed}",
        header=(
            "Freedom",
            "Schedule",
            "Utility\nUSD",
            "By the freedom\nUSD",
            "Share of possible\nimprovement, %",
        ),
        rows=tuple(rows),
        caption=(
            "By the freedom: utility less that of the same row without freedoms, paired; in round brackets as a share "
            "of the bill of the best schedule known without freedoms. Possible improvement: from "
            f"{case.first} without freedoms up to the bound with the freedom. Square brackets: 95% intervals over "
            f"environments. {notes}"
        ),
    )
