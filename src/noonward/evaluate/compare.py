"""Comparisons: policies over the same environments, recorded, paired, and held against a bound."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from noonward.data.environments import records_starts
from noonward.errors import ScenarioError
from noonward.evaluate import frames
from noonward.evaluate.given import GivenPolicy, policies_given, scenario_given
from noonward.evaluate.metrics import Metric
from noonward.evaluate.objective import Bound, Objective, objective_of
from noonward.evaluate.statistics import Estimate, mean
from noonward.files import PassingFolder, write_text
from noonward.ledger.record import Record
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import Scenario
from noonward.model.kinds import find_kind
from noonward.runtime.by_kind import check_fit, environment_digest
from noonward.runtime.executor import Executor, Progress, map_runs
from noonward.runtime.rests_on import bound_digest
from noonward.runtime.runs import RecordedRun, environment_of
from noonward.runtime.shared import forget
from noonward.schedule.cluster.what_happened import WHAT_HAPPENED
from noonward.schedule.policies import canonical_name, default_registry, make_scheduler, require_registered, using

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import polars as pl


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Policies over the same environments.

    Attributes:
        scenario: Scenario.
        seed: Seed.
        folder: Where the records lie.
        reference: Policy that changes are measured against.
        records: Per policy one record an environment, in the same order.
        bounds: One bound an environment; empty bounds where none was asked for.
        bounded: Whether bounds were asked for.
        held: What keeps a temporary folder of records until the comparison is dropped; None: the folder stays.
    """

    scenario: Scenario
    seed: int
    folder: Path
    reference: str
    records: dict[str, list[Record]]
    bounds: list[Bound]
    bounded: bool = True
    held: Any = field(default=None, repr=False, compare=False)

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
        if not self.bounded:
            notes.append("no bound was looked for, so the share of what is possible is not known")
        cut = sum("cut" in bound for bound in self.bounds)
        if cut:
            notes.append(
                f"the bound of {cut} of {len(self.bounds)} environments stopped after its seconds (--bound-seconds): "
                "it holds, but a longer search may lower it"
            )
        notes += self.objective.notes(self)
        return tuple(dict.fromkeys(notes))

    def to_frame(self) -> pl.DataFrame:
        """Returns one row a policy and environment with the ledger's figures, best policy first."""
        return frames.run_frame(self)

    def jobs(self) -> pl.DataFrame:
        """Returns one row a policy, environment and job, times in UTC too.

        Raises:
            ScenarioError: Runs of this kind keep no table of jobs.
        """
        return frames.job_frame(self)

    def hours(self) -> pl.DataFrame:
        """Returns one row a policy, environment, site and hour, times in UTC too.

        Raises:
            ScenarioError: Runs of this kind keep no table of hours.
        """
        return frames.hour_frame(self)

    def report(self, path: str | Path) -> Path:
        """Writes the report as one HTML file that loads nothing from anywhere, and returns its path."""
        from noonward.evaluate.report.page import write_report

        return write_report(self, Path(path))

    def plot_savings(self) -> go.Figure:
        """Returns bars of what each policy is better by than today's, with 95 % intervals (plotly)."""
        from noonward.evaluate.report.plots import savings_plot

        return savings_plot(self)

    def plot_cost_carbon(self) -> go.Figure:
        """Returns what each policy pays against what it emits (plotly).

        Raises:
            ScenarioError: The scenario has no prices.
        """
        from noonward.evaluate.report.plots import cost_carbon_plot

        return cost_carbon_plot(self)

    def plot_moves(self, policy: str | None = None, environment: int = 0) -> go.Figure:
        """Returns GPUs in use under a policy (None: the one to adopt) less those under today's, by site and hour.

        Raises:
            ScenarioError: The policy or the environment was not compared, or sites have no GPUs.
        """
        from noonward.evaluate.report.plots import moves_plot

        return moves_plot(self, policy, environment)

    def plot_sites(self, policy: str | None = None) -> go.Figure:
        """Returns a map of the sites, coloured by the change of GPU-hours under a policy (None: the one to adopt).

        Raises:
            ScenarioError: The scenario has no prices, the policy was not compared, or no site has a place.
        """
        from noonward.evaluate.report.plots import sites_plot

        return sites_plot(self, policy)

    def figures(self) -> dict[str, go.Figure]:
        """Returns every figure of the page of figures by its name (plotly)."""
        return {figure.name: figure.plot for figure in self.objective.figures(self)}

    def _repr_html_(self) -> str:
        from noonward.evaluate.report.page import summary_html

        return summary_html(self)

    def metrics(self) -> list[Metric]:
        """Returns the comparison's metrics for ``--json``."""
        return self.objective.metrics(self)


def compare(
    scenario: Any,
    policies: Sequence[GivenPolicy] | None = None,
    *,
    environments: int = 10,
    seed: int = 0,
    out: str | Path | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    bound: bool = True,
    bound_seconds: float | None = None,
    on_record: Callable[[str, int, Record], None] | None = None,
    today: str | None = None,
) -> Comparison:
    """Runs policies over the same environments, records every run, and bounds every environment as soon as a process
    has no run left to begin.

    Runs that are recorded already under the same scenario, seed, data and version are kept, so an interrupted
    comparison resumes where it stopped.

    Args:
        scenario: Scenario: the name of a packaged one, a ``.yaml`` file, a mapping, or a ``Scenario``.
        policies: Names (or ``module:Class``, or a trained policy's file), schedulers, and classes or functions that
            make one; by default the scenario's, which may name registered policies only. What is no name runs in this
            process, and every time anew.
        environments: Number of environments.
        seed: Seed of environments and policies.
        out: Folder of all comparisons; None: records lie in a temporary folder, which goes with the comparison.
        progress: Called once per run and bound.
        executor: Where runs are carried out (``noonward.runtime``); by default here, one after the other.
        bound: Whether environments are bounded.
        bound_seconds: Seconds that the bound of an environment may take, above 0; None: as long as it needs. A bound
            that stops early holds all the same, and is looser.
        today: Policy that runs today: changes and savings are measured against it, and it is compared too. None: the
            scenario's reference, else what happened where the job table says so, else the first policy.
        on_record: Called with policy, number of the environment and record as each run is there.

    Raises:
        ScenarioError: No policy, an unknown one, a policy named twice, one that does not fit the scenario, or seconds
            for a bound that cannot stop early.
    """
    with ExitStack() as stack:
        scenario = scenario_given(scenario)
        names = None
        if policies is not None:
            names, registry = policies_given(policies, scenario.kind)
            stack.enter_context(using(registry))
        held = None if out is not None else PassingFolder()
        return _compare(
            scenario,
            policy_names(scenario, names),
            environments=environments,
            seed=seed,
            out=Path(out or "") if held is None else held.path,
            held=held,
            progress=progress,
            executor=executor,
            bound=bound,
            bound_seconds=bound_seconds,
            on_record=on_record,
            today=today,
        )


def _compare(
    scenario: Scenario,
    names: list[str],
    *,
    environments: int,
    seed: int,
    out: Path,
    held: Any,
    progress: Progress | None,
    executor: Executor | None,
    bound: bool,
    bound_seconds: float | None,
    on_record: Callable[[str, int, Record], None] | None,
    today: str | None,
) -> Comparison:
    """Compares policies that the registry in use knows; arguments as in ``compare``."""
    if not names:
        raise ScenarioError(f"no policy to compare: name at least one (scenario {scenario.name!r}: --policies A,B)")
    if len(set(names)) != len(names):
        raise ScenarioError(f"a policy stands twice in {', '.join(names)}; name each once")
    if environments < 1:
        raise ScenarioError(f"{environments} environments were asked for; ask for at least 1")
    require_seconds(scenario, bound_seconds)
    names, reference = with_reference(scenario, names, today)
    folder = comparison_folder(scenario, seed, out)
    forget()
    require_fit(environment_of(scenario, 0, seed), names)
    runs = [RecordedRun(scenario, index, seed, name, folder) for index in range(environments) for name in names]

    def kept_one(place: int, found: Any) -> None:
        if on_record is not None and place < len(runs):
            on_record(runs[place].policy, runs[place].index, found)

    asked = [BoundRun(scenario, index, seed, folder, bound_seconds) for index in range(environments)] if bound else []
    found = map_runs([*runs, *asked], executor, progress, kept_one)
    bounds = [each.bound for each in found[len(runs) :]] if bound else [Bound() for _ in range(environments)]
    return Comparison(
        scenario=scenario,
        seed=seed,
        folder=folder,
        reference=reference,
        records={name: found[n : len(runs) : len(names)] for n, name in enumerate(names)},
        bounds=bounds,
        bounded=bound,
        held=held,
    )


def require_seconds(scenario: Scenario, seconds: float | None) -> None:
    """Raises ScenarioError where a bound cannot be given so many seconds."""
    if seconds is None:
        return
    if not 0 < seconds < math.inf:
        raise ScenarioError(f"the bound was given {seconds:g} seconds; give a finite number above 0")
    if not objective_of(scenario).bound_in_steps:
        raise ScenarioError(
            f"the bound of scenario {scenario.name!r} (kind {scenario.kind}) cannot stop early; leave the seconds out, "
            "or leave the bound out (--no-bound)"
        )


def policy_names(scenario: Scenario, policies: Sequence[str] | None = None) -> list[str]:
    """Returns the policies to compare under the names that reports show: those asked for, else the scenario's.

    Raises:
        ScenarioError: The scenario names something else than a registered policy, or arguments are wrong.
    """
    if policies is None:
        require_registered(scenario.policies, f"scenario {scenario.name!r}: policies", scenario.kind)
    return [canonical_name(name, scenario.kind) for name in (scenario.policies if policies is None else policies)]


def reference_of(scenario: Scenario, names: Sequence[str]) -> str:
    """Returns the policy that changes are measured against: the scenario's reference, else the first one compared.

    Raises:
        ScenarioError: The scenario's reference is neither compared nor a registered policy.
    """
    reference = scenario.reference_policy
    if reference is None or reference in names:
        return reference or names[0]
    require_registered([reference], f"scenario {scenario.name!r}: reference_policy", scenario.kind)
    reference = canonical_name(reference, scenario.kind)
    return reference if reference in names else names[0]


def with_reference(scenario: Scenario, names: list[str], today: str | None = None) -> tuple[list[str], str]:
    """Returns the policies to compare with the one that changes are measured against, and that one's name.

    It is the policy named as today's; else the scenario's reference; else, where a job table records when its jobs
    started, what happened; else the first.

    Args:
        scenario: Scenario.
        names: Policies asked for.
        today: Policy named as today's.

    Raises:
        ScenarioError: As ``reference_of``.
    """
    if today is not None:
        reference = canonical_name(today, scenario.kind)
    elif scenario.reference_policy in (None, WHAT_HAPPENED) and records_starts(scenario):
        reference = WHAT_HAPPENED
    else:
        return names, reference_of(scenario, names)
    return (names if reference in names else [reference, *names]), reference


def fitting_policies(scenario: Scenario, seed: int = 0) -> tuple[list[str], list[str]]:
    """Returns the scenario's own policies that can answer what it asks, and why each of the others cannot.

    Raises:
        ScenarioError: The scenario names something else than a registered policy, or none of them fits.
    """
    environment = environment_of(scenario, 0, seed)
    fitting, misfits = [], []
    for name in policy_names(scenario):
        try:
            require_fit(environment, [name])
            fitting.append(name)
        except ScenarioError as error:
            misfits.append(str(error))
    if misfits and not fitting:
        raise ScenarioError(_misfits(misfits))
    return fitting, misfits


def _misfits(reasons: Sequence[str]) -> str:
    """Returns why policies do not fit, as one message."""
    if len(reasons) == 1:
        return reasons[0]
    return "\n  ".join([f"{len(reasons)} policies do not fit:", *reasons])


def require_fit(environment: Environment, names: Sequence[str]) -> None:
    """Raises ScenarioError, naming all that do not fit, unless every policy can answer what an environment asks."""
    reasons = []
    for name in names:
        try:
            _require_one_fit(environment, name)
        except ScenarioError as error:
            reasons.append(str(error))
    if reasons:
        raise ScenarioError(_misfits(reasons))


def _require_one_fit(environment: Environment, name: str) -> None:
    """Raises ScenarioError unless a policy is known and can answer what an environment asks."""
    registry = default_registry()
    kind = registry.find(name, environment.kind).kind if registry.knows(name) else environment.kind
    if kind != environment.kind:
        raise ScenarioError(
            f"policy {name!r} runs in scenarios of kind {kind}, but this one is of kind {environment.kind}; choose "
            "another policy"
        )
    check_fit(environment, make_scheduler(name, environment.kind), repr(name))


def comparison_folder(scenario: Scenario, seed: int, out: Path) -> Path:
    """Returns the folder of a scenario's records under a seed."""
    return out / f"{scenario.name}-{scenario.digest[:8]}-seed{seed}"


@dataclass(frozen=True, kw_only=True)
class FoundBound:
    """What a ``BoundRun`` found.

    Attributes:
        bound: The bound.
        notes: What a reader must know about the environment's data.
        of: What a new bound is of: digests of the environment and of the sources; None for one that was read back.
    """

    bound: Bound
    notes: tuple[str, ...]
    of: dict[str, Any] | None = None


@dataclass(frozen=True)
class BoundRun:
    """A spec: the bound of an environment, read back where it was computed already.

    Attributes:
        scenario: Scenario.
        index: Number of the environment.
        seed: Seed.
        folder: Folder of the comparison; None: it is computed in any case and not written.
        seconds: Seconds it may take; None: as long as it needs. One that was cut stands for no more seconds than it
            had itself.
        last: Bounds begin when no run is left to begin.
    """

    last: ClassVar[bool] = True

    scenario: Scenario
    index: int
    seed: int
    folder: Path | None = None
    seconds: float | None = None

    @property
    def label(self) -> str:
        """Which environment's bound."""
        return f"bound, environment {self.index}"

    @property
    def portable(self) -> bool:
        """Whether another process knows the kind of scenario."""
        return find_kind(self.scenario.kind).portable

    @property
    def group(self) -> Hashable:
        """Bound and runs share the environment."""
        return self.scenario.name, self.index

    @property
    def place(self) -> Path:
        """File of the bound."""
        return (self.folder or Path()) / "bound" / f"{self.index:03d}.json"

    def run(self) -> FoundBound:
        """Returns the bound."""
        environment = environment_of(self.scenario, self.index, self.seed)
        objective = objective_of(self.scenario)
        code = bound_digest(find_kind(self.scenario.kind), objective)
        of = {"environment_digest": environment_digest(environment), "code": code}
        notes = tuple(environment.notes)
        if self.folder is not None:
            try:
                content: dict[str, Any] = json.loads(self.place.read_text(encoding="utf-8"))
                kept, had = Bound(**content["bound"]), content.get("seconds")
                enough = "cut" not in kept or (self.seconds is not None and had is not None and had >= self.seconds)
                if content["of"] == of and enough:
                    return FoundBound(bound=kept, notes=notes)
            except (OSError, ValueError, KeyError, TypeError):
                pass  # none there, or one that was cut short: it is computed again
        limit = {} if self.seconds is None else {"seconds": self.seconds}
        return FoundBound(bound=objective.compute_bound(environment, **limit), notes=notes, of=of)

    def keep(self, found: FoundBound) -> FoundBound:
        """Writes a new bound to its file and returns it."""
        if found.of is not None and self.folder is not None:
            content: dict[str, Any] = {"of": found.of, "bound": found.bound}
            if "cut" in found.bound:
                content["seconds"] = self.seconds
            write_text(self.place, json.dumps(content, indent=1) + "\n")
        return found
