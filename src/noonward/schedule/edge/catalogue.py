"""The policies for edge scenarios that come registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.schedule.edge.lookahead import Lookahead
from noonward.schedule.edge.rules import Fifo, FirstFit, PatientReuse, RandomTries, ReuseFirst
from noonward.schedule.families import Role
from noonward.schedule.registry import Policy, Registry

KIND: Final = "edge"
"""Kind of scenarios that these policies run in."""


def add_policies(registry: Registry) -> None:
    """Adds the package's policies for edge scenarios."""
    _add(registry, "random", RandomTries, "control", "published")
    _add(registry, "fifo", Fifo, "rule", "control")
    _add(registry, "first-fit", FirstFit, "rule", "control")
    _add(registry, "reuse-first", ReuseFirst, "rule", "control")
    _add(registry, "patient-reuse", PatientReuse, "rule")
    _add(registry, "lookahead", Lookahead, "planner")


def _add(registry: Registry, name: str, make: Callable[[], EdgeScheduler], *roles: Role) -> None:
    said = (make.__doc__ or "").strip().split("\n")[0]
    policy = Policy(name=name, make=make, summary=said, family=name, roles=frozenset(roles), kind=KIND, packaged=True)
    registry.add(policy)
