"""``noonward bound``: what no policy can beat."""

from __future__ import annotations

from noonward.cli.options import (
    Environments,
    JobFile,
    Json,
    ScenarioName,
    Seed,
    Settings,
    SignalFiles,
    open_scenario,
    progress_bar,
)


def bound(
    name: ScenarioName,
    environments: Environments = 10,
    seed: Seed = 0,
    signals: SignalFiles = None,
    jobs: JobFile = None,
    settings: Settings = None,
    json: Json = False,
) -> None:
    """Compute what no policy can beat: an upper bound of the utility, or a lower bound of the energy per unit."""
    from noonward.data.environments import build_environment
    from noonward.errors import ScenarioError
    from noonward.evaluate.metrics import Metric, to_json
    from noonward.evaluate.objective import no_value, objective_of
    from noonward.evaluate.statistics import mean

    scenario = open_scenario(name, settings, signals, jobs)
    objective = objective_of(scenario)
    found = []
    notes: dict[str, None] = {}
    with progress_bar(environments, "bounds") as step:
        for index in range(environments):
            environment = build_environment(scenario, index, seed)
            found.append(objective.compute_bound(environment))
            notes |= dict.fromkeys(environment.notes)
            step(f"environment {index}")
    metrics = []
    for each in objective.bound_values:
        if not no_value(found, each.name):
            known = [bound[each.name] for bound in found if each.name in bound]
            metrics.append(Metric.of(each.metric, mean(known), each.unit))
    if not metrics:
        raise ScenarioError(f"no bound is known for scenario {scenario.name!r}: {objective.bound_condition}")
    if json:
        print(to_json(metrics, scenario=scenario.name, seed=seed, environments=environments, notes=list(notes)))
        return
    for index, each_bound in enumerate(found):
        print(f"environment {index}: {objective.describe_bound(each_bound)}")
    for metric in metrics:
        low, high = metric.low, metric.high
        interval = "" if low is None else f" [{low:,.2f}, {high:,.2f}]"
        print(f"mean {metric.name}: {metric.value:,.2f}{interval} {metric.unit}")
    for note in notes:
        print(f"note: {note}")
