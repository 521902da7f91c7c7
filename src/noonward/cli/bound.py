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
    """Bound the utility (or, without economics, the energy per unit) that any policy can reach."""
    import math

    from noonward.data.environments import build_environment
    from noonward.errors import ScenarioError
    from noonward.evaluate.compare import BOUND_FIGURES, compute_bound
    from noonward.evaluate.metrics import Metric, to_json
    from noonward.evaluate.statistics import mean

    scenario = open_scenario(name, settings, signals, jobs)
    found = []
    notes: dict[str, None] = {}
    with progress_bar(environments, "bounds") as step:
        for index in range(environments):
            environment = build_environment(scenario, index, seed)
            found.append(compute_bound(environment))
            notes |= dict.fromkeys(environment.notes)
            step(f"environment {index}")
    metrics = []
    for field, label, unit in BOUND_FIGURES:
        values = [getattr(b, field) for b in found if getattr(b, field) is not None]
        if values:
            metrics.append(Metric.of(label, mean(values), unit))
    if not metrics:
        raise ScenarioError(
            f"no bound is known for scenario {scenario.name!r}: the utility's takes economics and 'end: drained', the "
            "energy's 'end: window' and one class of jobs"
        )
    if json:
        print(to_json(metrics, scenario=scenario.name, seed=seed, environments=environments, notes=list(notes)))
        return
    for index, b in enumerate(found):
        if b.utility_usd is not None:
            best = math.nan if b.best_known_usd is None else b.best_known_usd
            print(
                f"environment {index}: utility at most {b.utility_usd:.2f} USD; best schedule known {best:.2f} USD "
                f"(duality gap {(b.utility_usd - best) / abs(b.utility_usd):.2%})"
            )
        else:
            print(f"environment {index}: at least {b.joules_per_unit:.3f} J/unit")
    for metric in metrics:
        low, high = metric.low, metric.high
        interval = "" if low is None else f" [{low:,.2f}, {high:,.2f}]"
        print(f"mean {metric.name}: {metric.value:,.2f}{interval} {metric.unit}")
    for note in notes:
        print(f"note: {note}")
