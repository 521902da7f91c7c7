"""``noonward bound``: what no policy can beat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.option_groups import option_groups, without
from noonward.cli.options import (
    BoundSeconds,
    EnvironmentsOrFit,
    Json,
    Policies,
    Seed,
    executor_of,
    open_scenario,
    print_notes,
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
            help="With --freedom: one table for each value of a key of the scenario, e.g. jobs.demand=0.5,0.7.",
        ),
    ] = None,
    executors: AbstractContextManager[Executor],
    json: Json = False,
) -> None:
    """Compute a bound that no policy can beat.

    It is an upper bound of utility, or a lower bound of energy per unit of work. With --freedom, --policies are run in
    the same environments and held against the first of them.
    """
    from noonward.errors import ScenarioError
    from noonward.evaluate.asked import count_of, require_seconds
    from noonward.evaluate.bound_runs import BoundRun
    from noonward.evaluate.comparison import no_value, objective_of
    from noonward.evaluate.metrics import Metric, to_json
    from noonward.evaluate.statistics import mean
    from noonward.runtime.executor import map_runs

    require_seconds(scenario, seconds)
    runs = count_of(scenario, environments)
    if non_clairvoyant and freedom is not None:
        raise ScenarioError("--freedom bounds schedules that know all signals; leave out --non-clairvoyant, or it")
    if non_clairvoyant and (each is not None or policies is not None):
        raise ScenarioError("--each and --policies go with --freedom; leave out --non-clairvoyant")
    if non_clairvoyant:
        if seconds is not None:
            raise ScenarioError("--non-clairvoyant takes no --bound-seconds; leave one of them out")
        _non_clairvoyant(scenario, runs, seed, executors, json)
        return
    if freedom is not None:
        if seconds is not None:
            raise ScenarioError("--freedom takes no --bound-seconds; leave one of them out")
        _freedoms(scenario, freedom, runs, seed, executors, json, each, policies)
        return
    if each is not None or policies is not None:
        raise ScenarioError("--each and --policies go with --freedom; give it, or use 'noonward compare'")
    objective = objective_of(scenario)
    specs = [BoundRun(scenario, index, seed, None, seconds) for index in range(runs)]
    with executors as executor, progress_bar(runs, "bounds", unit="environments") as step:
        answers = map_runs(specs, executor, step)
    bounds = [answer.bound for answer in answers]
    notes = dict.fromkeys(note for answer in answers for note in answer.notes)
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


def _freedoms(
    scenario: object,
    listed: str,
    runs: int,
    seed: int,
    executors: AbstractContextManager[Executor],
    json: bool,
    each: str | None,
    policies: str | None,
) -> None:
    """Prints what freedoms of jobs can be worth at most, the best schedules known, and what policies make of them."""
    import numpy as np

    from noonward.cli.options import print_text_table, split_names
    from noonward.evaluate.asked import policies_of
    from noonward.evaluate.freedom_policies import UtilityRun, named_at, policy_metrics, policy_table, variants
    from noonward.evaluate.freedoms import (
        FreedomRun,
        freedom_metrics,
        freedom_names,
        freedom_table,
        require_cluster,
    )
    from noonward.evaluate.metrics import to_json
    from noonward.runtime.executor import map_runs

    names, asked = freedom_names(listed), split_names(policies)
    cases = variants(require_cluster(scenario), each)
    chosen = [] if asked is None else policies_of(next(iter(cases.values())), asked)
    metrics, tables = [], []
    with executors as executor, progress_bar(runs * len(cases) * (1 + len(chosen)), "bounds of freedoms") as step:
        for setting, stated in cases.items():
            found = map_runs([FreedomRun(stated, index, seed, names) for index in range(runs)], executor, step)
            utility_usd_PE = {}
            for policy in chosen:
                specs = [UtilityRun(stated, index, seed, policy) for index in range(runs)]
                utility_usd_PE[policy.name] = np.array(map_runs(specs, executor, step))
            metrics += named_at([*freedom_metrics(found), *policy_metrics(found, utility_usd_PE)], setting)
            tables.append(freedom_table(stated, found, seed, setting))
            if chosen:
                tables.append(policy_table(found, utility_usd_PE, setting or stated.name))
    if json:
        print(to_json(metrics, scenario=next(iter(cases.values())).name, seed=seed, environments=runs))
        return
    for table in tables:
        print_text_table(table)


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
