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
    import inspect
    from typing import get_args

    from rich.table import Table

    from noonward.errors import ScenarioError, nearest
    from noonward.model.kinds import find_kind
    from noonward.schedule.families import Role
    from noonward.schedule.policies import default_registry

    if protocol not in (None, "each-slot", "on-arrival"):
        raise ScenarioError(f"unknown protocol {protocol!r}; protocols: each-slot, on-arrival")
    if role is not None and role not in get_args(Role):
        raise ScenarioError(f"unknown role {role!r}; {nearest(role, get_args(Role))}")
    if kind is not None:
        find_kind(kind)
    registry = default_registry()
    listed: dict[tuple[str, str], list[Policy]] = {}
    for policy in registry.policies(protocol, role=role, kind=kind):  # type: ignore[arg-type]
        listed.setdefault((policy.kind, policy.family), []).append(policy)
    families = {(family.kind, family.name): family for family in registry.families()}
    for at, family in families.items():
        example = registry.example(family)
        if protocol in (None, *example.protocols) and role in (None, *example.roles) and kind in (None, family.kind):
            listed.setdefault(at, [])
    table = Table("policy", "roles", "runs in", "what it does")
    for at, members in listed.items():
        for policy in members:
            table.add_row(policy.name, *_about(policy), policy.summary)
        if at in families:
            family, empty = families[at], inspect.Parameter.empty
            example = registry.example(family)
            takes = "\n".join(
                f"{name}: {family.allowed(name)}" + ("" if each.default is empty else f", by default {each.default}")
                for name, each in family.arguments.items()
            )
            name = f"{family.name}({', '.join(f'{name}=' for name in family.arguments)})"
            table.add_row(name, *_about(example), takes if members else f"{example.summary}\n{takes}")
        if len(members) > 1 or at in families:
            table.add_section()
    print_table(table)


def _about(policy: Policy) -> tuple[str, str]:
    """Returns a policy's roles, and the kind and the protocols that it runs in."""
    return ", ".join(sorted(policy.roles)), ", ".join((policy.kind, *policy.protocols))
