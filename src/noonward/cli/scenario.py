"""``noonward scenario``: list, show and check scenario files, and their JSON schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noonward.cli.help import Group
from noonward.cli.option_groups import option_groups
from noonward.cli.options import print_notes, stated_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel

    from noonward.model.cluster.scenario import Scenario

app = typer.Typer(cls=Group, help="List, show and check scenarios.", no_args_is_help=True, rich_markup_mode=None)


@app.command(name="list")
def list_(
    json: Annotated[bool, typer.Option("--json", help="Print the list as one JSON array.")] = False,
) -> None:
    """List the packaged scenarios."""
    from noonward.data.scenarios.load import load_scenario, packaged_scenarios

    scenarios = [load_scenario(name) for name in packaged_scenarios()]
    if json:
        from json import dumps

        rows = [{"name": each.name, "kind": each.kind, "description": each.description} for each in scenarios]
        print(dumps(rows, indent=1))
        return
    for scenario in scenarios:
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
def check(
    *,
    scenario: Scenario,
    explain: Annotated[bool, typer.Option("--explain", help="Also list every key with its value and meaning.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a scenario and say what it holds."""
    from noonward.model.kinds import find_kind
    from noonward.runtime.by_kind import build_environment
    from noonward.schedule.policies import registered_policies

    registered_policies(scenario.policies, f"scenario {scenario.name!r}: policies", scenario.kind)
    if scenario.baseline is not None:
        registered_policies([scenario.baseline], f"scenario {scenario.name!r}: baseline", scenario.kind)
    environment = build_environment(scenario)
    summary = find_kind(scenario.kind).part("describe")(environment)
    rows = list(_explained(scenario)) if explain else []
    if json:
        from json import dumps

        keys = {"keys": [dict(zip(("key", "value", "meaning"), row, strict=True)) for row in rows]} if explain else {}
        content = {"scenario": scenario.name, "valid": True, "summary": summary, "notes": list(environment.notes)}
        print(dumps(content | keys, indent=1))
        return
    print(f"{scenario.name}: valid. {summary}")
    print_notes(environment.notes)
    if explain:
        _print_keys(rows)


def _explained(part: BaseModel, before: str = "") -> Iterator[tuple[str, str, str]]:
    """Yields every key of a part of a scenario as ``--set`` names it, with its value and its meaning."""
    from pydantic import BaseModel

    for name, field in type(part).model_fields.items():
        key, value = f"{before}{name}", getattr(part, name)
        parts = dict(enumerate(value)) if isinstance(value, tuple) else value if isinstance(value, dict) else {}
        if isinstance(value, BaseModel):
            yield from _explained(value, f"{key}.")
        elif parts and all(isinstance(each, BaseModel) for each in parts.values()):
            for place, each in parts.items():
                yield from _explained(each, f"{key}.{place}.")
        else:
            meaning = " ".join((field.description or "").split("\n\n")[0].replace("``", "").split())
            yield key, _shown(value), meaning


def _shown(value: Any, most: int = 60) -> str:
    """Returns a value as a cell of a table, cut if it is long."""
    if isinstance(value, tuple):
        value = list(value)
    text = "none" if value is None else str(value) if value != "" else "empty"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _print_keys(rows: list[tuple[str, str, str]]) -> None:
    """Prints keys with values and meanings."""
    from rich.table import Table

    from noonward.cli.options import print_table

    table = Table("key", "value", "meaning")
    for row in rows:
        table.add_row(*row)
    print_table(table)


@app.command()
def schema(
    kind: Annotated[str, typer.Option(help="Kind of scenarios, as in the key 'kind' of a scenario file.")] = "cluster",
) -> None:
    """Print the JSON schema of scenario files, for editors."""
    import json

    from noonward.model.kinds import find_kind

    print(json.dumps(find_kind(kind).part("scenario").model_json_schema(), indent=1))
