"""Comparisons: policies over the same environments, recorded, paired, and held against a bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noonward.errors import ScenarioError
from noonward.evaluate import frames
from noonward.evaluate.answer import best_to_adopt, can_run, summary_text
from noonward.evaluate.asked import (
    comparison_folder,
    count_of,
    currency_given,
    policies_of,
    require_fit,
    require_seconds,
    windows_given,
    with_reference,
)
from noonward.evaluate.bound_runs import BoundRun, map_with_bounds
from noonward.evaluate.comparison import Bound, Comparison, Knowing
from noonward.evaluate.given import GivenPolicy, scenario_given
from noonward.evaluate.knowing import told, ways_of
from noonward.evaluate.table import US_DOLLAR, Currency
from noonward.files import PassingFolder, make_folder
from noonward.ledger.record import Record
from noonward.model.cluster.scenario import Scenario
from noonward.model.kinds import CLUSTER
from noonward.notices import tell
from noonward.runtime.executor import Executor, Progress, map_runs
from noonward.runtime.runs import RecordedRun, environment_of
from noonward.runtime.shared import forget
from noonward.schedule.registry import Policy

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import polars as pl


class ComparisonResult(Comparison):
    """A comparison with its frames, figures and report: what ``compare`` returns."""

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

    def __str__(self) -> str:
        """Returns what the comparison says, and its table."""
        return summary_text(self)

    def figures(self) -> dict[str, go.Figure]:
        """Returns every figure of the page of figures by its name (plotly)."""
        return {figure.name: figure.plot for figure in self.objective.figures(self)}

    def _repr_html_(self) -> str:
        from noonward.evaluate.report.page import summary_html

        return summary_html(self)


def compare(
    scenario: Any,
    policies: Sequence[GivenPolicy] | None = None,
    *,
    environments: int | None = None,
    windows: int | None = None,
    weeks: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    bound: bool = True,
    bound_seconds: float | None = None,
    on_record: Callable[[str, int, Record], None] | None = None,
    today: GivenPolicy | None = None,
    currency: str | None = None,
) -> ComparisonResult:
    """Runs policies over the same environments, records every run, and bounds every environment.

    Bounds are computed last, by processes that have no run left.

    Runs that are recorded already under the same scenario, seed, data and version are kept, so an interrupted
    comparison resumes where it stopped.

    Args:
        scenario: Scenario: the name of a packaged one, a ``.yaml`` file, a mapping, or a ``Scenario``.
        policies: Names (or ``module:Class``, or a trained policy's file), schedulers, and classes or functions that
            make one; by default the scenario's, which may name registered policies only. Classes and objects run in
            this process, and run again every time.
        environments: Number of environments; None: 10, or 1 where they would all be the same.
        windows: Number of windows without overlap, spread over the days of a dated job table, each an environment.
        weeks: The same, of a week each.
        seed: Seed of environments and policies.
        out: Folder of all comparisons; None: records lie in a temporary folder, which goes with the comparison.
        progress: Called once per run and bound.
        executor: Where runs are carried out (``noonward.runtime``); by default here, one after the other.
        bound: Whether environments are bounded.
        bound_seconds: Time limit for each environment's bound, s, above 0; None: no limit. A shorter one gives a
            looser, still valid bound.
        today: Policy that runs today: changes and savings are measured against it, and it is compared too. None: the
            scenario's reference, else what happened where the job table says so, else the first policy.
        currency: Currency that money is shown in, with what one of it is worth in USD: ``EUR=1.08``; None: USD. Frames
            and metrics stay in USD.
        on_record: Called with policy, number of the environment and record as each run is there.

    Raises:
        ScenarioError: No policy, an unknown one, a policy named twice, one that does not fit the scenario, or seconds
            for a bound that cannot stop early.
    """
    scenario = windows_given(scenario_given(scenario), windows, weeks)
    held = None if out is not None else PassingFolder()
    return _compare(
        scenario,
        policies_of(scenario, policies),
        environments=count_of(scenario, environments),
        seed=seed,
        out=Path(out or "") if held is None else held.path,
        held=held,
        progress=progress,
        executor=executor,
        bound=bound,
        bound_seconds=bound_seconds,
        on_record=on_record,
        today=today,
        currency=US_DOLLAR if currency is None else currency_given(currency),
    )


def _compare(
    scenario: Scenario,
    policies: list[Policy],
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
    today: GivenPolicy | None,
    currency: Currency,
) -> ComparisonResult:
    """Compares policies; arguments as in ``compare``."""
    names = [policy.name for policy in policies]
    if len(set(names)) != len(names):
        raise ScenarioError(f"a policy stands twice in {', '.join(names)}; name each once")
    require_seconds(scenario, bound_seconds)
    policies, reference = with_reference(scenario, policies, today)
    folder = comparison_folder(scenario, seed, out)
    forget()
    require_fit(environment_of(scenario, 0, seed), policies)
    make_folder(folder)
    runs = [RecordedRun(scenario, index, seed, each, folder) for index in range(environments) for each in policies]

    def kept_one(place: int, found: Any) -> None:
        if on_record is not None and place < len(runs):
            on_record(runs[place].policy.name, runs[place].index, found)

    asked = [BoundRun(scenario, index, seed, folder, bound_seconds, left=True) for index in range(environments)]
    found = map_with_bounds([*runs, *(asked if bound else [])], executor, progress, kept_one)
    bounds = [each.value for each in found[len(runs) :]] if bound else [Bound() for _ in range(environments)]
    result = ComparisonResult(
        scenario=scenario,
        seed=seed,
        folder=folder,
        reference=reference.name,
        policies={policy.name: policy for policy in policies},
        records={policy.name: found[n : len(runs) : len(policies)] for n, policy in enumerate(policies)},
        bounds=bounds,
        bounded=bound,
        currency=currency,
        held=held,
    )
    knowing = _knowing(result, out, progress, executor)
    return result if knowing is None else replace(result, knowing=knowing)


def _knowing(comparison: Comparison, out: Path, progress: Progress | None, executor: Executor | None) -> Knowing | None:
    """Runs the policy that the verdict names, or else the best one that can run, told of run times in other ways.

    The ways other than the scenario's own take a run per environment each.
    """
    scenario, today = comparison.scenario, comparison.reference
    ways = ways_of(scenario) if scenario.kind == CLUSTER.name else ()
    if not ways:
        return None
    able = [name for name in comparison.ranked() if name != today and can_run(comparison.policies[name])]
    best = best_to_adopt(comparison)
    policy = best if best in able else next(iter(able), None)
    if policy is None:
        return None
    own, seed, count = scenario.jobs.knowledge.run_time, comparison.seed, len(comparison.bounds)
    others = [way for way in ways if way != own]
    runs = [
        RecordedRun(other, index, seed, comparison.policies[policy], comparison_folder(other, seed, out))
        for other in (told(scenario, way) for way in others)
        for index in range(count)
    ]
    tell("runs", str(len(runs)))
    results = map_runs(runs, executor, progress)
    of = {way: results[n * count : (n + 1) * count] for n, way in enumerate(others)} | {own: comparison.records[policy]}
    return Knowing(policy=policy, by_way={way: of[way] for way in ways})
