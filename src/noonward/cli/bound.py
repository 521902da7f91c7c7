"""``noonward bound``: what no policy can beat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.option_groups import option_groups, without
from noonward.cli.options import (
    BoundSeconds,
    EnvironmentsOrFit,
    Json,
    Out,
    Policies,
    Seed,
    executor_of,
    open_scenario,
    print_notes,
    print_work,
)
from noonward.cli.progress import progress_bar

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from noonward.model.cluster.scenario import Scenario
    from noonward.runtime.executor import Executor


@option_groups(executors=executor_of, scenario=without(open_scenario, "history"))
def bound(
    *,
    environments: EnvironmentsOrFit = None,
    seed: Seed = 0,
    scenario: Scenario,
    seconds: BoundSeconds = None,
    non_clairvoyant: Annotated[
        bool,
        typer.Option("--non-clairvoyant", help="Bound policies that do not know future signals, instead."),
    ] = False,
    freedom: Annotated[
        str | None,
        typer.Option(
            "--freedom",
            metavar="LIST",
            help="Bound what freedoms of jobs can be worth: none, suspend, elastic, caps, move, all (comma-separated).",
        ),
    ] = None,
    policies: Policies = None,
    each: Annotated[
        str | None,
        typer.Option(
            "--each",
            metavar="KEY=LIST",
            help="With --freedom: a table per value of a scenario's key, e.g. jobs.demand=0.5,0.7.",
        ),
    ] = None,
    loads: Annotated[
        str | None,
        typer.Option(
            "--loads",
            metavar="LIST",
            help="With --freedom: a table per share of the GPU-hours that jobs ask for, e.g. 50%,85%.",
        ),
    ] = None,
    out: Out = Path("runs"),
    executors: AbstractContextManager[Executor],
    json: Json = False,
) -> None:
    """Compute a bound that no policy can beat.

    It is an upper bound of utility, or a lower bound of energy per unit of work. With --freedom, --policies run with
    each freedom in the same environments, and bounds and runs are kept in --out.
    """
    from noonward.errors import ScenarioError
    from noonward.evaluate.asked import count_of, require_seconds
    from noonward.evaluate.bound_runs import BoundRun, map_with_bounds
    from noonward.evaluate.comparison import case_noun, no_value, objective_of
    from noonward.evaluate.metrics import Metric, to_json
    from noonward.evaluate.noted import grouped
    from noonward.evaluate.statistics import mean

    require_seconds(scenario, seconds)
    runs = count_of(scenario, environments)
    if non_clairvoyant and freedom is not None:
        raise ScenarioError("--freedom bounds schedules that know all signals; leave out --non-clairvoyant, or it")
    with_freedom = {"--each": each, "--loads": loads, "--policies": policies}
    given = [name for name, value in with_freedom.items() if value is not None]
    if given and freedom is None:
        raise ScenarioError(f"{', '.join(given)} only with --freedom; give it, or use 'noonward compare'")
    if each is not None and loads is not None:
        raise ScenarioError("--each and --loads both set what the tables differ in; leave one of them out")
    if non_clairvoyant:
        if seconds is not None:
            raise ScenarioError("--non-clairvoyant takes no --bound-seconds; leave one of them out")
        _non_clairvoyant(scenario, runs, seed, executors, json)
        return
    if freedom is not None:
        if seconds is not None:
            raise ScenarioError("--freedom takes no --bound-seconds; leave one of them out")
        _freedoms(scenario, freedom, runs, seed, executors, json, each, loads, policies, out)
        return
    objective = objective_of(scenario)
    specs = [BoundRun(scenario, index, seed, None, seconds, left=True) for index in range(runs)]
    with executors as executor, progress_bar(runs, "bounds", unit="environments") as step:
        answers = map_with_bounds(specs, executor, step)
    bounds = [answer.value for answer in answers]
    notes = grouped([answer.notes for answer in answers], case_noun(scenario))
    metrics = []
    for value in objective.bound_values:
        if not no_value(bounds, value.name):
            known = [bound[value.name] for bound in bounds if value.name in bound]
            metrics.append(Metric.of(value.metric, mean(known), value.unit))
    metrics += objective.gap_metrics(bounds)
    if not metrics:
        raise ScenarioError(f"no bound is known for scenario {scenario.name!r}: {objective.bound_condition}")
    if json:
        print(to_json(metrics, scenario=scenario.name, seed=seed, environments=runs, notes=list(notes)))
        return
    for index, each_bound in enumerate(bounds):
        known_one = any(value.name in each_bound for value in objective.bound_values)
        words = objective.describe_bound(each_bound) if known_one else f"no bound is known: {objective.bound_condition}"
        print(f"environment {index}: {words}")
    for metric in metrics:
        low, high = metric.low, metric.high
        digits = 4 if metric.unit == "fraction" else 2
        interval = "" if low is None else f" [{low:,.{digits}f}, {high:,.{digits}f}]"
        print(f"mean {metric.name}: {metric.value:,.{digits}f}{interval} {metric.unit}")
    print_notes(notes)
    print_work(executor, "bounds")


def _freedoms(
    scenario: object,
    listed: str,
    runs: int,
    seed: int,
    executors: AbstractContextManager[Executor],
    json: bool,
    each: str | None,
    loads: str | None,
    policies: str | None,
    out: Path,
) -> None:
    """Prints what freedoms of jobs can be worth at most, the best schedules known, and what policies make of them."""
    from noonward.cli.options import print_text_table, split_names
    from noonward.evaluate.asked import policies_of
    from noonward.evaluate.freedom_policies import value_metrics, value_of_freedoms, value_table, variants
    from noonward.evaluate.freedoms import freedom_names, freedom_table, require_cluster
    from noonward.evaluate.loads import at_loads
    from noonward.evaluate.metrics import to_json

    names, asked = freedom_names(listed), split_names(policies)
    stated = require_cluster(scenario)
    cases = variants(stated, each) if loads is None else at_loads(stated, loads, runs, seed)
    with executors as executor, progress_bar(None, "bounds of freedoms", results=out) as step:
        found = value_of_freedoms(
            cases,
            names,
            [] if asked is None else policies_of(stated, asked),
            environments=runs,
            seed=seed,
            out=out,
            progress=step,
            executor=executor,
        )
    if json:
        metrics = [metric for case in found for metric in value_metrics(case)]
        print(to_json(metrics, scenario=stated.name, seed=seed, environments=runs, records=str(out)))
        return
    for case in found:
        shown = value_table(case, seed) if asked else freedom_table(case.scenario, case.found, seed, case.setting)
        print_text_table(shown)
    print_work(executor)
    print(f"records: {out}")


def _non_clairvoyant(
    scenario: Scenario, runs: int, seed: int, executors: AbstractContextManager[Executor], json: bool
) -> None:
    """Prints what policies without foresight of the signals can earn on average."""
    from noonward.evaluate.metrics import to_json
    from noonward.evaluate.nonclairvoyant import NonclairvoyantRun, nonclairvoyant_metrics, require_law, require_runs
    from noonward.runtime.executor import map_runs

    require_law(scenario)
    require_runs(runs)
    specs = [NonclairvoyantRun(scenario, index, seed) for index in range(runs)]
    with executors as executor, progress_bar(runs, "bounds", unit="environments") as step:
        metrics = nonclairvoyant_metrics(map_runs(specs, executor, step))
    if json:
        print(to_json(metrics, scenario=scenario.name, seed=seed, environments=runs))
        return
    for metric in metrics:
        interval = "" if metric.low is None else f" [{metric.low:,.2f}, {metric.high:,.2f}]"
        print(f"mean {metric.name}: {metric.value:,.2f}{interval} USD")
    print(
        "nonclairvoyant_bound_usd: on average over prices and carbon that the generator may draw, no policy earns more "
        "that does not know those to come, even if it knows all jobs; the interval says how well the mean over these "
        "environments is known, in which a policy may earn more. clairvoyant_bound_usd: with all signals known. "
        "foresight_usd: their difference."
    )
