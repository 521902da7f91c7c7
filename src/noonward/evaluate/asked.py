"""What a comparison is asked for, checked: policies, the one that runs today, seconds for bounds, its folder."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from noonward.data.environments import one_window_only, past_days, records_starts
from noonward.data.jobs.dated import job_rows
from noonward.data.scenarios.load import scenario_from
from noonward.errors import ScenarioError
from noonward.evaluate.comparison import objective_of
from noonward.evaluate.given import GivenPolicy, policies_given
from noonward.evaluate.table import Currency
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import JobTable, Scenario, SignalFiles
from noonward.model.kinds import CLUSTER, AnyScenario
from noonward.runtime.by_kind import check_fit
from noonward.runtime.runs import environment_of
from noonward.schedule.cluster.what_happened import WHAT_HAPPENED
from noonward.schedule.policies import registered_policies
from noonward.schedule.registry import Policy

WEEK_H: Final = 168
"""Hours of a week."""


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


def policies_of(scenario: Scenario, given: Sequence[GivenPolicy] | None = None) -> list[Policy]:
    """Returns the policies to compare: those asked for, else the scenario's.

    Raises:
        ScenarioError: One is unknown, its arguments are wrong, none is named, or a scenario names something else than
            a registered policy.
    """
    if given is None:
        found = registered_policies(scenario.policies, f"scenario {scenario.name!r}: policies", scenario.kind)
    else:
        found = policies_given(given, scenario.kind)
    if not found:
        raise ScenarioError(f"no policy to compare: name at least one (scenario {scenario.name!r}: --policies A,B)")
    return found


def reference_of(scenario: Scenario, policies: Sequence[Policy]) -> Policy:
    """Returns the policy that changes are measured against: the scenario's reference, else the first one compared.

    Raises:
        ScenarioError: The scenario's reference is neither compared nor a registered policy.
    """
    reference = scenario.baseline
    compared = {policy.name: policy for policy in policies}
    if reference is not None and reference not in compared:
        where = f"scenario {scenario.name!r}: baseline"
        reference = registered_policies([reference], where, scenario.kind)[0].name
    return compared.get(reference or "", policies[0])


def with_reference(
    scenario: Scenario, policies: list[Policy], today: GivenPolicy | None = None
) -> tuple[list[Policy], Policy]:
    """Returns the policies to compare with the one that changes are measured against, and that one.

    It is the policy given as today's; else the scenario's reference; else, where a job table records when its jobs
    started, what happened; else the first.

    Args:
        scenario: Scenario.
        policies: Policies asked for.
        today: Policy that runs today.

    Raises:
        ScenarioError: As ``reference_of``.
    """
    if today is None and scenario.baseline in (None, WHAT_HAPPENED) and records_starts(scenario):
        today = WHAT_HAPPENED
    if today is None:
        return policies, reference_of(scenario, policies)
    (told,) = policies_given([today], scenario.kind)
    same = next((policy for policy in policies if policy.name == told.name), None)
    return (policies if same else [told, *policies]), same or told


def fitting_policies(scenario: Scenario, seed: int = 0) -> tuple[list[Policy], list[str]]:
    """Returns the scenario's own policies that can answer what it asks, and why each of the others cannot.

    Raises:
        ScenarioError: The scenario names something else than a registered policy, or none of them fits.
    """
    environment = environment_of(scenario, 0, seed)
    fitting, misfits = [], []
    for policy in policies_of(scenario):
        try:
            require_fit(environment, [policy])
            fitting.append(policy)
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


def require_fit(environment: Environment, policies: Sequence[Policy]) -> None:
    """Raises ScenarioError, naming all that do not fit, unless every policy can answer what an environment asks."""
    reasons = []
    for policy in policies:
        try:
            _require_one_fit(environment, policy)
        except ScenarioError as error:
            reasons.append(str(error))
    if reasons:
        raise ScenarioError(_misfits(reasons))


def _require_one_fit(environment: Environment, policy: Policy) -> None:
    """Raises ScenarioError unless a policy can answer what an environment asks."""
    if policy.kind != environment.kind:
        raise ScenarioError(
            f"policy {policy.name!r} runs in scenarios of kind {policy.kind}, but this one is of kind "
            f"{environment.kind}; choose another policy"
        )
    check_fit(environment, policy.sample, repr(policy.name))


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


def count_of(scenario: AnyScenario, environments: int | None) -> int:
    """Returns how many environments to run: as told; else its windows, 1 where all would be the same, else 10.

    Raises:
        ScenarioError: Fewer than 1, or several of a window that is the same every time.
    """
    windows = getattr(scenario, "windows", None)
    single = scenario.kind == CLUSTER.name and one_window_only(cast(Scenario, scenario))
    if environments is None:
        return windows or (1 if single else 10)
    if environments < 1:
        raise ScenarioError(f"{environments} environments were asked for; ask for at least 1")
    if single and environments > 1:
        raise ScenarioError(
            f"the window of {scenario.name!r} is pinned, and its jobs and signals are from files, so {environments} "
            "environments would be the same run each; ask for windows over the days of the job table: --windows N, or "
            "--weeks N (Python: compare(..., windows=N))"
        )
    if windows is not None and environments > windows:
        raise ScenarioError(f"{environments} environments of {windows} windows were asked for; ask for --windows more")
    return environments


def windows_given(scenario: Any, windows: int | None, weeks: int | None) -> Any:
    """Returns a scenario of so many windows without overlap, spread over the days of its dated jobs.

    Args:
        scenario: Scenario.
        windows: Number of windows; each has the scenario's length, or as many whole days as let them all fit.
        weeks: Number of windows of a week each. Both None: the scenario as it is.

    Raises:
        ScenarioError: Both are given, or the scenario has no dated jobs with signal files.
    """
    if windows is None and weeks is None:
        return scenario
    if windows is not None and weeks is not None:
        raise ScenarioError(f"{windows} windows and {weeks} weeks were asked for; ask for one of the two")
    count = windows or weeks or 0
    if count < 1:
        raise ScenarioError(f"{count} windows were asked for; ask for at least 1")
    jobs = getattr(scenario, "jobs", None)
    days = job_rows(jobs).days if isinstance(jobs, JobTable) else None
    if days is None or not isinstance(scenario.signals, SignalFiles):
        raise ScenarioError(
            f"windows are drawn over dated jobs with signal files; scenario {scenario.name!r} has other jobs or "
            "signals, whose environments are drawn: give both (--jobs, --signals), or ask for environments (-n)"
        )
    fitting = ((days[1] - days[0]).days + 1 - past_days(*days)) // count
    window_h = min(scenario.window_h, 24 * max(1, fitting)) if weeks is None else WEEK_H
    content = {**scenario.model_dump(mode="json"), "start": None, "windows": count, "window_h": window_h}
    return scenario_from(content, scenario.name)
