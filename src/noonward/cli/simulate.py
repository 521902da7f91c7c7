"""``noonward simulate``: one policy in one environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noonward.cli.option_groups import option_groups
from noonward.cli.options import (
    Json,
    Out,
    Seed,
    open_scenario,
    print_notes,
)

if TYPE_CHECKING:
    from noonward.model.cluster.scenario import Scenario


@option_groups(scenario=open_scenario)
def simulate(
    *,
    policy: Annotated[str, typer.Option(help="Policy (see 'noonward policies'), or module:Class.")],
    environment: Annotated[int, typer.Option(min=0, help="Number of the environment.")] = 0,
    seed: Seed = 0,
    scenario: Scenario,
    out: Out = Path("runs"),
    json: Json = False,
) -> None:
    """Run one policy in one environment; print its ledger."""
    from noonward.evaluate.asked import comparison_folder, require_fit
    from noonward.evaluate.metrics import Metric, to_json
    from noonward.files import make_folder
    from noonward.ledger.units import unit_of
    from noonward.runtime.executor import map_runs
    from noonward.runtime.runs import RecordedRun
    from noonward.schedule.policies import find_policy

    chosen = find_policy(policy, scenario.kind)
    spec = RecordedRun(scenario, environment, seed, chosen, comparison_folder(scenario, seed, out))
    require_fit(spec.environment(), [chosen])
    make_folder(spec.folder)
    (record,) = map_runs([spec])
    content = _flat(record.ledger.as_dict())
    if json:
        metrics = [
            Metric.of(f"{key}/{policy}", float("nan") if v is None else v, unit_of(key)) for key, v in content.items()
        ]
        print(
            to_json(
                metrics,
                scenario=scenario.name,
                seed=seed,
                environment=environment,
                record=str(record.folder),
                notes=record.manifest["notes"],
            )
        )
        return
    for key, value in content.items():
        if value is not None:
            print(
                f"{key:24s} {_shown(value):>16} {unit_of(key)}"
                if isinstance(value, float)
                else f"{key:24s} {value:>11,d}"
            )
    print_notes(record.manifest["notes"])
    print(f"record: {record.folder}")


def _shown(value: float) -> str:
    """Returns a value in four decimals, small ones in four significant digits."""
    return f"{value:.4g}" if 0 < abs(value) < 0.1 else f"{value:,.4f}"


def _flat(content: dict[str, Any]) -> dict[str, Any]:
    """Returns a ledger's figures, those of its parts named ``part/figure``."""
    out: dict[str, Any] = {}
    for key, value in content.items():
        nested = _flat(value) if isinstance(value, dict) else None
        out |= {key: value} if nested is None else {f"{key}/{name}": each for name, each in nested.items()}
    return out
