"""``noonward scenario``: list, show and check scenario files, and their JSON schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.option_groups import option_groups
from noonward.cli.options import print_notes, stated_scenario

if TYPE_CHECKING:
    from noonward.model.cluster.scenario import Scenario

app = typer.Typer(help="List, show and check scenarios.", no_args_is_help=True, rich_markup_mode=None)


@app.command(name="list")
def list_(
    json: Annotated[bool, typer.Option("--json", help="Print the list as one JSON array.")] = False,
) -> None:
    """List the packaged scenarios."""
    from noonward.data.scenarios.load import load_scenario, packaged_scenarios

    found = [load_scenario(name) for name in packaged_scenarios()]
    if json:
        from json import dumps

        rows = [{"name": each.name, "kind": each.kind, "description": each.description} for each in found]
        print(dumps(rows, indent=1))
        return
    for scenario in found:
        print(f"{scenario.name:16s} {scenario.description}")


@app.command()
@option_groups(scenario=stated_scenario)
def show(*, scenario: Scenario) -> None:
    """Print a scenario as YAML: a start for your own."""
    import yaml

    content = scenario.model_dump(mode="json", exclude_none=True)
    print(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110), end="")


@app.command()
@option_groups(scenario=stated_scenario)
def check(*, scenario: Scenario) -> None:
    """Check a scenario and say what it holds."""
    from noonward.model.kinds import find_kind
    from noonward.runtime.by_kind import build_environment
    from noonward.schedule.policies import registered_policies

    registered_policies(scenario.policies, f"scenario {scenario.name!r}: policies", scenario.kind)
    if scenario.reference_policy is not None:
        registered_policies([scenario.reference_policy], f"scenario {scenario.name!r}: reference_policy", scenario.kind)
    environment = build_environment(scenario)
    print(f"{scenario.name}: valid. {find_kind(scenario.kind).part('describe')(environment)}")
    print_notes(environment.notes)


@app.command()
def schema(
    kind: Annotated[str, typer.Option(help="Kind of scenarios, as in the key 'kind' of a scenario file.")] = "cluster",
) -> None:
    """Print the JSON schema of scenario files, for editors."""
    import json

    from noonward.model.kinds import find_kind

    print(json.dumps(find_kind(kind).part("scenario").model_json_schema(), indent=1))
