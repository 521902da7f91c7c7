"""Loads of a fleet: which share of its GPU-hours jobs ask for, and the same scenario at other shares."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from noonward.data.jobs.streams import expected_gpu_s
from noonward.data.scenarios.load import with_settings
from noonward.errors import ScenarioError
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.scenario import FineTuningJobs, MixedJobs, Scenario
from noonward.runtime.runs import environment_of
from noonward.units import HOUR_S

MOST_LOAD: Final = 10.0
"""Largest load that can be asked for."""


def at_loads(scenario: Scenario, listed: str, environments: int, seed: int) -> dict[str, Scenario]:
    """Returns a scenario at several loads, by ``load=50%``.

    A load is the share of the fleet's GPU-hours in the window that jobs ask for on their smallest gangs, on average.

    - Jobs with a ``demand`` (fine-tuning): it is set, and run times follow.
    - Jobs with a ``rate_factor`` (mixed): it is set, and more or fewer jobs of the same mix arrive.
    - All others, such as a job log: the jobs stay, and every site has more or fewer GPUs, by one factor.

    Args:
        scenario: Scenario whose jobs have fixed durations.
        listed: Loads: ``50%,85%`` or ``0.5,0.85``.
        environments: Environments over which the load of a job log is measured.
        seed: Their seed.

    Raises:
        ScenarioError: A load is no share above 0, run times depend on the GPUs, or a site has other numbers of GPUs in
            the course of time.

    Example:
        >>> from noonward.data.scenarios.load import load_scenario
        >>> cases = at_loads(load_scenario("training-days"), "50%,70%", 1, 0)
        >>> {name: round(each.jobs.rate_factor, 2) for name, each in cases.items()}
        {'load=50%': 0.59, 'load=70%': 0.82}
    """
    loads = dict.fromkeys(_load(each) for each in listed.split(",") if each.strip())
    if not loads:
        raise ScenarioError(f"--loads {listed!r} names no load; give for example --loads 50%,70%,85%,95%")
    variable = _variable(scenario.fleet)
    if variable is not None:
        raise ScenarioError(
            f"--loads counts GPU-hours of jobs of fixed duration, and the run time of class {variable!r} depends on "
            "its GPUs; use --each with a key of the scenario, such as jobs.rate_factor"
        )
    jobs = scenario.jobs
    if isinstance(jobs, FineTuningJobs):
        return {_name(load): with_settings(scenario, [f"jobs.demand={load!r}"]) for load in loads}
    if isinstance(jobs, MixedJobs):
        offered_gpu_s = sum(site.gpus for site in scenario.fleet.sites) * scenario.window_h * HOUR_S
        at_one = expected_gpu_s(jobs, scenario.fleet, scenario.window_h * HOUR_S) / jobs.rate_factor / offered_gpu_s
        return {_name(load): with_settings(scenario, [f"jobs.rate_factor={load / at_one!r}"]) for load in loads}
    for site in scenario.fleet.sites:
        if site.gpus_by_time is not None:
            raise ScenarioError(
                f"--loads changes the number of GPUs of job logs' sites, and site {site.name!r} states steps of it; "
                "give it one number of GPUs, or use --each"
            )
    measured = float(np.mean([demand_share(environment_of(scenario, e, seed)) for e in range(environments)]))
    cases = {}
    for load in loads:
        gpus = [max(1, round(site.gpus * measured / load)) for site in scenario.fleet.sites]
        cases[_name(load)] = scenario.model_copy(update={"fleet": scenario.fleet.with_gpus(gpus)})
    return cases


def demand_share(environment: Environment) -> float:
    """Returns the share of a fleet's GPU-hours in the window that jobs ask for on smallest gangs.

    It is NaN where the run time of some class depends on its GPUs.
    """
    jobs, fleet = environment.jobs, environment.fleet
    if _variable(fleet) is not None:
        return math.nan
    offered_gpu_s = sum(site.gpus for site in fleet.sites) * environment.window_s
    return float(np.sum(jobs.gpus_min_J * jobs.work_J)) / offered_gpu_s


def _load(text: str) -> float:
    """Returns a load from its text: ``50%`` or ``0.5``."""
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        load = float(number) / (100 if percent else 1)
    except ValueError:
        load = math.nan
    if not 0 < load <= MOST_LOAD:
        raise ScenarioError(
            f"--loads {text.strip()!r} is no load; give shares of the GPU-hours above 0, at most {MOST_LOAD:.0%}: "
            "--loads 50%,70%,85%,95%"
        )
    return load


def _name(load: float) -> str:
    return f"load={100 * load:g}%"


def _variable(fleet: Fleet) -> str | None:
    """Returns a class whose run time depends on its GPUs; None: all jobs have fixed durations."""
    kinds = fleet.gpu_types.values()
    classes = [name for kind in kinds for name, profile in kind.classes.items() if profile.time != "duration"]
    return next(iter(classes), None)
