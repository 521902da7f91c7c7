"""Comparisons: policies over the same environments, recorded, paired, and held against a bound."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noonward.compiled import code_digest
from noonward.data.environments import build_environment
from noonward.decision.brief import Brief, check_fit
from noonward.engine.run import run
from noonward.errors import DataError, ScenarioError
from noonward.evaluate.metrics import Metric
from noonward.evaluate.objective import Bound, Objective, objective_of
from noonward.evaluate.statistics import Estimate, mean
from noonward.files import file_name, write_text
from noonward.ledger.record import Record, environment_digest, read_record, write_record
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import Scenario
from noonward.schedule.registry import canonical_name, default_registry, make_scheduler, require_registered

Progress = Callable[[str], None]
"""Called once per unit of work with what was done."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Policies over the same environments.

    Attributes:
        scenario: Scenario.
        seed: Seed.
        folder: Where the records lie.
        reference: Policy that changes are measured against.
        records: Per policy one record an environment, in the same order.
        bounds: One bound an environment.
    """

    scenario: Scenario
    seed: int
    folder: Path
    reference: str
    records: dict[str, list[Record]]
    bounds: list[Bound]

    def values(self, policy: str, name: str) -> np.ndarray:
        """Returns a ledger figure of a policy per environment."""
        return np.array([float(getattr(record.ledger, name)) for record in self.records[policy]])

    def mean(self, policy: str, name: str) -> Estimate:
        """Returns the mean of a ledger figure over environments."""
        return mean(self.values(policy, name))

    @property
    def objective(self) -> Objective:
        """What the policies are compared by."""
        return objective_of(self.scenario)

    def ranked(self) -> list[str]:
        """Returns the policies, best first."""
        return self.objective.ranked(self)

    def gain(self, policy: str) -> Estimate:
        """Returns the paired change of the ranked value against the reference policy, as a fraction of that."""
        return self.objective.change(self, self.values(policy, self.objective.value))

    def gap_closed(self, policy: str) -> Estimate:
        """Returns the share of the gap between reference policy and bound that a policy closes."""
        return self.objective.gap_closed(self, self.values(policy, self.objective.value))

    def bound_values(self, name: str) -> np.ndarray:
        """Returns a value of the bounds per environment; NaN where it is not defined."""
        return np.array([bound.get(name, np.nan) for bound in self.bounds])

    @property
    def digest(self) -> str:
        """Digest of which policies were compared over how many environments: names the report."""
        return hashlib.sha256(f"{sorted(self.records)} {len(self.bounds)}".encode()).hexdigest()[:8]

    @property
    def paired(self) -> bool:
        """Whether every policy ran on the same environments."""
        worlds = {tuple(r.manifest["environment_digest"] for r in records) for records in self.records.values()}
        return len(worlds) == 1

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about the data, each note once."""
        notes = [note for records in self.records.values() for r in records for note in r.manifest["notes"]]
        drawn = [r.manifest["environment_digest"] for r in self.records[self.reference]]
        distinct = len(set(drawn))
        if distinct < len(drawn):
            notes.append(
                f"only {distinct} of the {len(drawn)} environments are distinct (the files hold no more): "
                "spreads and intervals are too narrow"
            )
        notes += self.objective.notes(self)
        return tuple(dict.fromkeys(notes))

    def metrics(self) -> list[Metric]:
        """Returns the comparison's metrics for ``--json``."""
        return self.objective.metrics(self)


def compare(
    scenario: Scenario,
    policies: Sequence[str] | None = None,
    *,
    environments: int = 10,
    seed: int = 0,
    out: Path = Path("runs"),
    progress: Progress | None = None,
) -> Comparison:
    """Runs policies over the same environments, records every run, and bounds every environment.

    Runs that are recorded already under the same scenario, seed, data and version are kept, so an interrupted
    comparison goes on where it stopped.

    Args:
        scenario: Scenario.
        policies: Names (or ``module:Class``, or a trained policy's file); by default the scenario's, which may name
            registered policies only.
        environments: Number of environments.
        seed: Seed of environments and policies.
        out: Folder of all comparisons.
        progress: Called once per run and bound.

    Raises:
        ScenarioError: No policy, an unknown one, a policy named twice, or one that does not fit the scenario.
    """
    names = policy_names(scenario, policies)
    if not names:
        raise ScenarioError(f"no policy to compare: name at least one (scenario {scenario.name!r}: --policies A,B)")
    if len(set(names)) != len(names):
        raise ScenarioError(f"a policy stands twice in {', '.join(names)}; name each once")
    if environments < 1:
        raise ScenarioError(f"{environments} environments were asked for; ask for at least 1")
    reference = reference_of(scenario, names)
    folder = comparison_folder(scenario, seed, out)
    records: dict[str, list[Record]] = {name: [] for name in names}
    bounds = []
    for index in range(environments):
        environment = build_environment(scenario, index, seed)
        if index == 0:
            require_fit(environment, names)
        for name in names:
            records[name].append(recorded_run(environment, name, scenario, seed, folder))
            if progress is not None:
                progress(f"{name}, environment {index}")
        bounds.append(_bound(objective_of(scenario), environment, folder / "bound" / f"{index:03d}.json"))
        if progress is not None:
            progress(f"bound, environment {index}")
    return Comparison(scenario=scenario, seed=seed, folder=folder, reference=reference, records=records, bounds=bounds)


def policy_names(scenario: Scenario, policies: Sequence[str] | None = None) -> list[str]:
    """Returns the policies to compare under the names that reports show: those asked for, else the scenario's.

    Raises:
        ScenarioError: The scenario names something else than a registered policy, or arguments are wrong.
    """
    if policies is None:
        require_registered(scenario.policies, f"scenario {scenario.name!r}: policies")
    return [canonical_name(name) for name in (scenario.policies if policies is None else policies)]


def reference_of(scenario: Scenario, names: Sequence[str]) -> str:
    """Returns the policy that changes are measured against: the scenario's reference, else the first one compared.

    Raises:
        ScenarioError: The scenario's reference is neither compared nor a registered policy.
    """
    reference = scenario.reference_policy
    if reference is None or reference in names:
        return reference or names[0]
    require_registered([reference], f"scenario {scenario.name!r}: reference_policy")
    reference = canonical_name(reference)
    return reference if reference in names else names[0]


def require_fit(environment: Environment, names: Sequence[str]) -> None:
    """Raises ScenarioError unless every policy is known and can answer what an environment asks."""
    for name in names:
        needs = make_scheduler(name).needs
        check_fit(Brief.of(environment, needs), needs, repr(name))


def comparison_folder(scenario: Scenario, seed: int, out: Path) -> Path:
    """Returns the folder of a scenario's records under a seed."""
    return out / f"{scenario.name}-{scenario.digest[:8]}-seed{seed}"


def recorded_run(environment: Environment, policy: str, scenario: Scenario, seed: int, folder: Path) -> Record:
    """Returns the record of a run: the one that lies there, if it is of the same world, policy and version."""
    place = folder / file_name(policy) / f"{environment.index:03d}"
    try:
        found = read_record(place)
    except DataError:
        found = None
    # A policy of one's own, code or trained file, may have changed since it was recorded: it runs again.
    if found is not None and _is_packaged(policy) and _same(found, environment, policy, seed, scenario):
        return found
    scheduler = make_scheduler(policy)
    outcome = run(environment, scheduler, seed=seed)
    notes = scheduler.remarks(Brief.of(environment, scheduler.needs))
    return write_record(outcome, place, policy=policy, seed=seed, scenario_digest=scenario.digest, notes=notes)


def _is_packaged(policy: str) -> bool:
    """Returns whether a policy belongs to this package: then ``code_digest`` changes whenever the policy does."""
    registry = default_registry()
    return registry.knows(policy) and registry.find(policy).packaged


def _same(record: Record, environment: Environment, policy: str, seed: int, scenario: Scenario) -> bool:
    manifest = record.manifest
    return bool(
        manifest["environment_digest"] == environment_digest(environment)
        and manifest["scenario_digest"] == scenario.digest
        and manifest["policy"] == policy
        and manifest["policy_seed"] == seed
        and manifest["versions"]["code"] == code_digest()
    )


def _bound(objective: Objective, environment: Environment, path: Path) -> Bound:
    """Returns an environment's bound, read back where it was computed already."""
    of = {"environment_digest": environment_digest(environment), "code": code_digest()}
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content["of"] == of:
            return Bound(**content["bound"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none there, or one that was cut short: it is computed again
    bound = objective.compute_bound(environment)
    write_text(path, json.dumps({"of": of, "bound": bound}, indent=1) + "\n")
    return bound
