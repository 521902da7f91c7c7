"""``noonward bound``: what no policy can beat."""

from __future__ import annotations

from noonward.cli.options import (
    BoundSeconds,
    EnvironmentsOrFit,
    FirstDay,
    JobFile,
    Json,
    LastDay,
    RayAddress,
    ScenarioName,
    Seed,
    Settings,
    SignalFiles,
    Workers,
    count_of,
    executor_of,
    open_scenario,
    progress_bar,
)


def bound(
    name: ScenarioName,
    environments: EnvironmentsOrFit = None,
    seed: Seed = 0,
    signals: SignalFiles = None,
    jobs: JobFile = None,
    first: FirstDay = None,
    last: LastDay = None,
    settings: Settings = None,
    seconds: BoundSeconds = None,
    workers: Workers = None,
    ray: RayAddress = None,
    json: Json = False,
) -> None:
    """Compute what no policy can beat: an upper bound of the utility, or a lower bound of the energy per unit."""
    from noonward.errors import ScenarioError
    from noonward.evaluate.compare import BoundRun, require_seconds
    from noonward.evaluate.metrics import Metric, to_json
    from noonward.evaluate.objective import no_value, objective_of
    from noonward.evaluate.statistics import mean
    from noonward.runtime.executor import map_runs

    scenario = open_scenario(name, settings, signals, jobs, first, last)
    require_seconds(scenario, seconds)
    runs = count_of(scenario, environments)
    objective = objective_of(scenario)
    specs = [BoundRun(scenario, index, seed, None, seconds) for index in range(runs)]
    with executor_of(workers, ray) as executor, progress_bar(runs, "bounds") as step:
        answers = map_runs(specs, executor, step)
    found = [answer.bound for answer in answers]
    notes = dict.fromkeys(note for answer in answers for note in answer.notes)
    metrics = []
    for each in objective.bound_values:
        if not no_value(found, each.name):
            known = [bound[each.name] for bound in found if each.name in bound]
            metrics.append(Metric.of(each.metric, mean(known), each.unit))
    metrics += objective.gap_metrics(found)
    if not metrics:
        raise ScenarioError(f"no bound is known for scenario {scenario.name!r}: {objective.bound_condition}")
    if json:
        print(to_json(metrics, scenario=scenario.name, seed=seed, environments=runs, notes=list(notes)))
        return
    for index, each_bound in enumerate(found):
        known_one = any(each.name in each_bound for each in objective.bound_values)
        said = objective.describe_bound(each_bound) if known_one else f"no bound is known: {objective.bound_condition}"
        print(f"environment {index}: {said}")
    for metric in metrics:
        low, high = metric.low, metric.high
        digits = 4 if metric.unit == "fraction" else 2
        interval = "" if low is None else f" [{low:,.{digits}f}, {high:,.{digits}f}]"
        print(f"mean {metric.name}: {metric.value:,.{digits}f}{interval} {metric.unit}")
    for note in notes:
        print(f"note: {note}")
