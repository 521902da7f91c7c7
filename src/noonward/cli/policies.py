"""``noonward policies``: which policies there are, and which to use for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from noonward.cli.options import print_table

if TYPE_CHECKING:
    from noonward.schedule.registry import Policy, Registry

RECOMMENDED: Final = (
    ("local-fcfs", "cluster", "the baseline: every job at its home site, first come, first served"),
    ("what-happened", "cluster", "the baseline for your own log: every job where and when it ran"),
    ("booked-persistence", "cluster", "a first choice: reserves the best site and start of each job at its arrival"),
    ("bid-price-regression", "cluster", "the best rule, if jobs to come can be sampled: re-plans every hour"),
    ("bid-price-learned", "cluster", "the same with learned forecasts, in zones that they know"),
    ("cheapest-feasible", "cluster", "the simplest rule for few sites: the cheapest one now, no planning"),
    ("cheapest-unclaimed", "cluster", "the same for many sites: jobs do not all go to the same free GPUs"),
    ("bid-price-perfect", "cluster", "a benchmark: what perfect forecasts would add"),
    ("masac", "cluster", "research: the learned policy of the MASAC paper"),
    ("greedy-preferences", "cluster", "on-arrival scenarios: energy against the time that a job class values"),
    ("sla-energy", "cluster", "on-arrival scenarios: least energy within a latency target"),
    ("chsac-af", "cluster", "research: the learned policy of the CHSAC-AF paper, with corrections"),
    ("patient-reuse", "edge", "image generation: waits for servers that have the model loaded"),
    ("sampled-lookahead", "edge", "image generation: tries every launch on sampled futures"),
)
"""Policies to begin with: name, kind of scenarios, use."""


def policies(
    every: Annotated[bool, typer.Option("--all", help="List all policies, with roles and arguments.")] = False,
    protocol: Annotated[
        str | None, typer.Option(help="List those of one decision mode: each-slot or on-arrival.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="List those of one kind of scenarios: cluster or edge.")] = None,
    role: Annotated[
        str | None,
        typer.Option(help="List those of one role: rule, planner, learned, control, published, clairvoyant, recorded."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the list as one JSON array.")] = False,
) -> None:
    """Show which policy to use for what; --all lists every one.

    A filter lists all policies that it fits, by family, with the arguments that a name may give.
    """
    from typing import get_args

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
    if every or protocol or kind or role:
        listed = registry.policies(protocol, role=role, kind=kind)  # type: ignore[arg-type]
    else:
        listed = [registry.find(name, of) for name, of, _ in RECOMMENDED]
    if json:
        _print_json(listed)
    elif every or protocol or kind or role:
        shown = {(policy.kind, policy.family) for policy in listed}
        examples = [
            example
            for example in map(registry.example, registry.families())
            if (example.kind, example.family) in shown
            or (
                protocol in (None, *example.protocols)
                and role in (None, *example.roles)
                and kind in (None, example.kind)
            )
        ]
        _print_families(registry, listed, examples)
    else:
        _print_recommended(len(registry.policies()))


def _print_recommended(count: int) -> None:
    """Prints a dozen policies with their use."""
    from rich import box
    from rich.table import Table

    table = Table("policy", "use it for", box=box.SIMPLE_HEAD)
    for name, _, use in RECOMMENDED:
        table.add_row(name, use)
    print_table(table)
    print(f"{len(RECOMMENDED)} of {count} policies; 'noonward policies --all' lists every one")


def _print_json(found: list[Policy]) -> None:
    """Prints policies as a JSON array."""
    import json

    uses = {(name, kind): use for name, kind, use in RECOMMENDED}
    rows = [
        {
            "name": policy.name,
            "kind": policy.kind,
            "protocols": list(policy.protocols),
            "roles": sorted(policy.roles),
            "summary": policy.summary,
            "use_it_for": uses.get((policy.name, policy.kind)),
        }
        for policy in found
    ]
    print(json.dumps(rows, indent=1))


def _print_families(registry: Registry, found: list[Policy], examples: list[Policy]) -> None:
    """Prints policies by family, and the arguments of families, each with a policy as an example."""
    import inspect

    from rich.table import Table

    listed: dict[tuple[str, str], list[Policy]] = {}
    for policy in found:
        listed.setdefault((policy.kind, policy.family), []).append(policy)
    takes = {(policy.kind, policy.family): policy for policy in examples}
    families = {(family.kind, family.name): family for family in registry.families()}
    table = Table("policy", "roles", "runs in", "what it does")
    for at in dict.fromkeys([*listed, *takes]):
        members = listed.get(at, [])
        for policy in members:
            table.add_row(policy.name, *_about(policy), policy.summary)
        if at in takes:
            family, empty = families[at], inspect.Parameter.empty
            words = "\n".join(
                f"{name}: {family.allowed(name)}" + ("" if each.default is empty else f", by default {each.default}")
                for name, each in family.arguments.items()
            )
            name = f"{family.name}({', '.join(f'{name}=' for name in family.arguments)})"
            if members:
                table.add_row(name, "", "", words)
            else:
                table.add_row(name, *_about(takes[at]), f"{takes[at].summary}\n{words}")
        if len(members) > 1 or at in takes:
            table.add_section()
    print_table(table)


def _about(policy: Policy) -> tuple[str, str]:
    """Returns a policy's roles, and the kind and the protocols that it runs in."""
    return ", ".join(sorted(policy.roles)), ", ".join((policy.kind, *policy.protocols))
