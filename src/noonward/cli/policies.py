"""``noonward policies``: the registered policies by kind and family, with roles, protocols and arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.options import print_table

if TYPE_CHECKING:
    from noonward.schedule.registry import Policy


def policies(
    protocol: Annotated[str | None, typer.Option(help="Only those of a protocol: each-slot or on-arrival.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only those of a kind of scenarios: cluster or edge.")] = None,
    role: Annotated[
        str | None,
        typer.Option(help="Only those of a role: rule, planner, learned, control, published, clairvoyant or recorded."),
    ] = None,
) -> None:
    """List the policies by family: names, roles, where they run, and the arguments that a name may give."""
    from typing import get_args

    from rich.table import Table

    from noonward.errors import ScenarioError, nearest
    from noonward.model.kinds import find_kind
    from noonward.schedule.families import Role
    from noonward.schedule.registry import default_registry

    if protocol not in (None, "each-slot", "on-arrival"):
        raise ScenarioError(f"unknown protocol {protocol!r}; protocols: each-slot, on-arrival")
    if role is not None and role not in get_args(Role):
        raise ScenarioError(f"unknown role {role!r}; {nearest(role, get_args(Role))}")
    if kind is not None:
        find_kind(kind)
    registry = default_registry()
    families: dict[tuple[str, str], list[Policy]] = {}
    for policy in registry.policies(protocol, role=role, kind=kind):  # type: ignore[arg-type]
        families.setdefault((policy.kind, policy.family), []).append(policy)
    arguments = {(family.kind, family.name): family.arguments for family in registry.families()}
    table = Table("policy", "roles", "runs in", "what it does")
    for (of, name), members in families.items():
        for policy in members:
            where = ", ".join((policy.kind, *policy.protocols))
            table.add_row(policy.name, ", ".join(sorted(policy.roles)), where, policy.summary)
        if (of, name) in arguments:
            said = "\n".join(
                f"{each.name}: {each.allowed}" + ("" if each.default is None else f", by default {each.default}")
                for each in arguments[of, name]
            )
            table.add_row(f"{name}({', '.join(each.name + '=' for each in arguments[of, name])})", "", "", said)
        if len(members) > 1 or (of, name) in arguments:
            table.add_section()
    print_table(table)
