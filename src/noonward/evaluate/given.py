"""What ``compare`` may be given: scenarios by name, file, mapping or object; policies by name, class or object."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.decision.scheduler import Scheduler
from noonward.errors import ScenarioError
from noonward.schedule.policies import default_registry, find_policy
from noonward.schedule.registry import Policy

GivenPolicy = str | Policy | Scheduler | EdgeScheduler | Callable[[], Any]
"""A policy, or its name, ``module:Class`` or file; a scheduler; or a class or function that makes one."""


def scenario_given(scenario: Any) -> Any:
    """Returns a scenario from a packaged name, a path of a ``.yaml`` file, a mapping, or a scenario itself.

    Raises:
        ScenarioError: There is no such scenario, or it is not valid.

    Example:
        >>> scenario_given("tiny").name, scenario_given(scenario_given("tiny")).name
        ('tiny', 'tiny')
    """
    if isinstance(scenario, str | Path):
        return load_scenario(scenario)
    return scenario_from(scenario) if isinstance(scenario, Mapping) else scenario


def policies_given(policies: Iterable[GivenPolicy], kind: str) -> list[Policy]:
    """Returns policies, each found once: all that follows is handed what it returns.

    A class or object is named for its class. An object stands for a scheduler with its arguments: every run takes a
    copy of it.

    Args:
        policies: Policies.
        kind: Kind of scenarios they run in.

    Raises:
        ScenarioError: Something given is not a policy, or a class has the name of another policy.
    """
    registry, found = default_registry().copy(), []
    make: Callable[[], Any]
    for given in policies:
        if isinstance(given, str | Policy):
            found.append(find_policy(given, kind) if isinstance(given, str) else given)
            continue
        if isinstance(given, Scheduler | EdgeScheduler):
            name, make = type(given).__name__, functools.partial(copy.deepcopy, given)
        elif callable(given):
            name, make = getattr(given, "__name__", type(given).__name__), given
        else:
            raise ScenarioError(
                f"{given!r} is no policy; give a name, a Scheduler, or a class or function that makes one"
            )
        line = (given.__doc__ or "").strip().split("\n")[0]
        policy = Policy(name=name, make=make, summary=line, family=name, kind=kind)
        try:
            registry.add(policy)
        except ValueError:
            raise ScenarioError(
                f"a policy named {name!r} is there already; name the class otherwise, or register() it under a name"
            ) from None
        found.append(policy)
    return found
