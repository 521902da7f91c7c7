"""``noonward policies``: the registered schedulers."""

from __future__ import annotations

from typing import Annotated

import typer

from noonward.cli.options import print_table


def policies(
    protocol: Annotated[str | None, typer.Option(help="Only those of a protocol: each-slot or on-arrival.")] = None,
) -> None:
    """List the schedulers by name, with the protocols they answer."""
    from rich.table import Table

    from noonward.errors import ScenarioError
    from noonward.schedule.registry import policies as registered

    if protocol not in (None, "each-slot", "on-arrival"):
        raise ScenarioError(f"unknown protocol {protocol!r}; protocols: each-slot, on-arrival")
    table = Table("policy", "protocols", "what it does")
    for policy in registered(protocol):  # type: ignore[arg-type]
        table.add_row(policy.name, ", ".join(policy.make().protocols), policy.summary)
    print_table(table)
