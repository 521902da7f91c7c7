"""What a comparison is asked for, checked: policies, the one that runs today, seconds for bounds, its folder."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from noonward.data.environments import records_starts
from noonward.errors import ScenarioError
from noonward.evaluate.comparison import objective_of
from noonward.evaluate.table import Currency
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import Scenario
from noonward.runtime.by_kind import check_fit
from noonward.runtime.runs import environment_of
from noonward.schedule.cluster.what_happened import WHAT_HAPPENED
from noonward.schedule.policies import canonical_name, default_registry, make_scheduler, require_registered


def require_seconds(scenario: Scenario, seconds: float | None) -> None:
    """Raises ScenarioError where a bound cannot be given so many seconds."""
    if seconds is None:
        return
    if not 0 < seconds < math.inf:
        raise ScenarioError(f"the bound was given {seconds:g} seconds; give a finite number above 0")
    if not objective_of(scenario).bound_in_steps:
        raise ScenarioError(
            f"the bound of scenario {scenario.name!r} (kind {scenario.kind}) cannot stop early; leave the seconds out, "
            "or leave the bound out (--no-bound)"
        )


def policy_names(scenario: Scenario, policies: Sequence[str] | None = None) -> list[str]:
    """Returns the policies to compare under the names that reports show: those asked for, else the scenario's.

    Raises:
        ScenarioError: The scenario names something else than a registered policy, or arguments are wrong.
    """
    if policies is None:
        require_registered(scenario.policies, f"scenario {scenario.name!r}: policies", scenario.kind)
    return [canonical_name(name, scenario.kind) for name in (scenario.policies if policies is None else policies)]


def reference_of(scenario: Scenario, names: Sequence[str]) -> str:
    """Returns the policy that changes are measured against: the scenario's reference, else the first one compared.

    Raises:
        ScenarioError: The scenario's reference is neither compared nor a registered policy.
    """
    reference = scenario.reference_policy
    if reference is None or reference in names:
        return reference or names[0]
    require_registered([reference], f"scenario {scenario.name!r}: reference_policy", scenario.kind)
    reference = canonical_name(reference, scenario.kind)
    return reference if reference in names else names[0]


def with_reference(scenario: Scenario, names: list[str], today: str | None = None) -> tuple[list[str], str]:
    """Returns the policies to compare with the one that changes are measured against, and that one's name.

    It is the policy named as today's; else the scenario's reference; else, where a job table records when its jobs
    started, what happened; else the first.

    Args:
        scenario: Scenario.
        names: Policies asked for.
        today: Policy named as today's.

    Raises:
        ScenarioError: As ``reference_of``.
    """
    if today is not None:
        reference = canonical_name(today, scenario.kind)
    elif scenario.reference_policy in (None, WHAT_HAPPENED) and records_starts(scenario):
        reference = WHAT_HAPPENED
    else:
        return names, reference_of(scenario, names)
    return (names if reference in names else [reference, *names]), reference


def fitting_policies(scenario: Scenario, seed: int = 0) -> tuple[list[str], list[str]]:
    """Returns the scenario's own policies that can answer what it asks, and why each of the others cannot.

    Raises:
        ScenarioError: The scenario names something else than a registered policy, or none of them fits.
    """
    environment = environment_of(scenario, 0, seed)
    fitting, misfits = [], []
    for name in policy_names(scenario):
        try:
            require_fit(environment, [name])
            fitting.append(name)
        except ScenarioError as error:
            misfits.append(str(error))
    if misfits and not fitting:
        raise ScenarioError(_misfits(misfits))
    return fitting, misfits


def _misfits(reasons: Sequence[str]) -> str:
    """Returns why policies do not fit, as one message."""
    if len(reasons) == 1:
        return reasons[0]
    return "\n  ".join([f"{len(reasons)} policies do not fit:", *reasons])


def require_fit(environment: Environment, names: Sequence[str]) -> None:
    """Raises ScenarioError, naming all that do not fit, unless every policy can answer what an environment asks."""
    reasons = []
    for name in names:
        try:
            _require_one_fit(environment, name)
        except ScenarioError as error:
            reasons.append(str(error))
    if reasons:
        raise ScenarioError(_misfits(reasons))


def _require_one_fit(environment: Environment, name: str) -> None:
    """Raises ScenarioError unless a policy is known and can answer what an environment asks."""
    registry = default_registry()
    kind = registry.find(name, environment.kind).kind if registry.knows(name) else environment.kind
    if kind != environment.kind:
        raise ScenarioError(
            f"policy {name!r} runs in scenarios of kind {kind}, but this one is of kind {environment.kind}; choose "
            "another policy"
        )
    check_fit(environment, make_scheduler(name, environment.kind), repr(name))


def comparison_folder(scenario: Scenario, seed: int, out: Path) -> Path:
    """Returns the folder of a scenario's records under a seed."""
    return out / f"{scenario.name}-{scenario.digest[:8]}-seed{seed}"


def currency_given(text: str) -> Currency:
    """Returns a currency from its name and what one of it is worth in USD.

    Raises:
        ScenarioError: The text has another form.

    Example:
        >>> currency_given("EUR=1.08")
        Currency(name='EUR', usd=1.08)
    """
    name, _, rate = text.partition("=")
    try:
        usd = float(rate)
    except ValueError:
        usd = 0.0
    if not (re.fullmatch(r"[A-Z]{3}", name) and 0 < usd < math.inf):
        raise ScenarioError(f"currency {text!r}: write its three letters and what one of it is worth in USD: EUR=1.08")
    return Currency(name, usd)
