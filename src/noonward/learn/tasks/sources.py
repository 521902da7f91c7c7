"""The setting that a run's config describes: scenarios, their draws by months and seeds, the batch engine."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_files
from noonward.data.splits import Split, split_scenario, split_seed
from noonward.decision.brief import Brief, check_fit
from noonward.decision.cluster.observation import Observation
from noonward.engine.cluster.batch import BatchEngine
from noonward.engine.cluster.service_meter import DECISIONS, WORK, EnergyMix, ServiceMeter, cost_names
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.learn.algorithms.registry import algorithm_named
from noonward.learn.tasks.demonstrator import SchedulerDemonstrator, forecast_with
from noonward.learn.tasks.setting import Setting
from noonward.learn.train.run_config import RunConfig, Source
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import Scenario
from noonward.schedule.registry import make_scheduler


def open_source(source: Source, part: Split) -> Scenario:
    """Returns a source's scenario with the windows of one part.

    Raises:
        ScenarioError: The scenario or a setting is wrong.
        DataError: A file's content is wrong.
    """
    scenario = load_scenario(source.scenario, source.settings)
    jobs = None if source.jobs is None else Path(source.jobs)
    if source.signals or jobs is not None:
        scenario = with_files(scenario, [Path(each) for each in source.signals], jobs)
    return split_scenario(scenario, part)


class Draws:
    """Environments of one part of the months and seeds, from several sources in turn.

    Args:
        sources: Where they come from.
        part: ``train`` or ``validation``.
        seed: Number of the draw of environments.
    """

    def __init__(self, sources: Sequence[Source], part: Split, seed: int) -> None:
        self.scenarios = [open_source(source, part) for source in sources]
        self.seed = split_seed(part, seed)

    def __call__(self, number: int) -> tuple[Environment, int]:
        """Returns environment and seed of a draw's number."""
        index, which = divmod(number, len(self.scenarios))
        return build_environment(self.scenarios[which], index, self.seed), self.seed


def open_setting(config: RunConfig) -> Setting:
    """Returns the setting that a run's config describes.

    Raises:
        ScenarioError: Scenarios, observation, reward and the policy to imitate do not fit.
        DataError: A file's content is wrong.
    """
    training = Draws(config.sources, "train", config.seed)
    validation = Draws(config.sources[:1], "validation", 0)
    first = training.scenarios[0]
    by_energy = config.reward == "energy"
    if by_energy and first.protocol != "on-arrival":
        raise ScenarioError(
            f"scenario {first.name!r} asks {first.protocol}; the reward 'energy' is for protocol on-arrival, as "
            "dvfs-training; name such a scenario, or train masac, madqn or mappo with reward=utility"
        )
    limits = cost_names(first.constraints, first.fleet.site_names)
    if by_energy and limits and not algorithm_named(config.algorithm).make.constrained:
        raise ScenarioError(
            f"scenario {first.name!r} limits {', '.join(limits)}, but {config.algorithm} learns from rewards alone and "
            "would ignore a limit; train chsac-af, or leave the constraints out"
        )
    for scenario in training.scenarios:
        if by_energy and scenario.constraints != first.constraints:
            raise ScenarioError(f"scenarios {first.name!r} and {scenario.name!r} differ in their constraints")
        if by_energy and config.mix.needs_signals and scenario.signals is None:
            raise ScenarioError(
                f"scenario {scenario.name!r} has no signals, so neither price nor carbon of its energy is known; give "
                "signals, or leave out usd_weight and carbon_weight"
            )
        if config.reward in ("utility", "at-start") and (scenario.signals is None or scenario.economics is None):
            raise ScenarioError(
                f"scenario {scenario.name!r} has no {'signals' if scenario.signals is None else 'economics'}, so its "
                "runs have no utility to learn from; give signals and economics, or learn from energy "
                "(--algorithm chsac-af --set reward=energy)"
            )
    observation = observation_for(config, first)
    forecast = shown = shown_forecast(config)
    demonstrator = None
    if config.warm_start is not None:
        needs = make_scheduler(config.warm_start).needs
        check_fit(Brief.of(training(0)[0], needs), needs, repr(config.warm_start))
        forecast = forecast_with(config.warm_start, forecast)
        demonstrator = functools.partial(SchedulerDemonstrator, config.warm_start)

    def engine(environments: Sequence[Environment], seeds: Sequence[int]) -> BatchEngine:
        return BatchEngine(
            environments,
            observation,
            seeds=seeds,
            reward="at-start" if config.reward == "at-start" else "utility",
            forecast=forecast,
        )

    more: dict[str, Any] = _by_energy(first, training, config.mix) if by_energy else {}
    return Setting(
        training=training,
        validation=validation,
        engine=engine,
        migration_usd=BatchEngine.migration_usd,
        demonstrator=demonstrator,
        slot_s=first.slot_s,
        gangs=observation.gpus_max if first.protocol == "on-arrival" else 1,
        about=about(first, observation, shown),
        **more,
    )


EXCESS_J_PER_UNIT: Final = 10.0
"""What validation charges per relative excess over a limit, J per unit: far more than multipliers come to where a joule
counts about one (``EnergyMix``), so that the policy that is kept keeps the limits."""


def _by_energy(scenario: Scenario, training: Draws, mix: EnergyMix) -> dict[str, Any]:
    """Returns meter, costs and score of the reward ``energy``."""
    unit_work = float(training(0)[0].jobs.work_J.mean())
    names = cost_names(scenario.constraints, scenario.fleet.site_names)

    def score(reward_B: F8, cost_BK: F8) -> float:
        """Returns minus the extra energy per unit of work, less what excesses over the limits cost.

        Limits are of means (Eq. 4), so all runs are pooled: charging each run's own excess would charge the spread
        between short runs too, and keep policies that lie below their limits by as much.
        """
        total_K = cost_BK.sum(0)
        excess_K = np.maximum(total_K[:-2] / total_K[-1], 0.0)
        return float(reward_B.sum() / total_K[-2] - EXCESS_J_PER_UNIT * excess_K.sum())

    return {
        "meter": functools.partial(ServiceMeter, constraints=scenario.constraints, unit_work=unit_work, mix=mix),
        "costs": (*names, WORK, DECISIONS),
        "score": score,
    }


def observation_for(config: RunConfig, scenario: Scenario) -> Observation:
    """Returns what agents are shown under a config."""
    if scenario.protocol != "on-arrival" and config.observation == "raw":
        raise ScenarioError(
            f"scenario {scenario.name!r} asks {scenario.protocol}; the observation 'raw' is for protocol on-arrival; "
            "set observation=paper or extended"
        )
    if scenario.protocol != "on-arrival" and (config.show_signals or config.show_class):
        raise ScenarioError(
            f"scenario {scenario.name!r} asks {scenario.protocol}, whose observation always shows signals and never "
            "classes; leave out show_signals and show_class"
        )
    return Observation(
        kind=config.observation,
        protocol=scenario.protocol,
        forecast_h=config.forecast_h,
        signals=config.show_signals,
        classes=len(scenario.fleet.classes) if config.show_class else 0,
    )


def shown_forecast(config: RunConfig) -> Forecast | None:
    """Returns the forecast that the observation shows under a config."""
    return Forecast(config.forecast) if config.forecast is not None else None


def about(scenario: Scenario, observation: Observation, forecast: Forecast | None) -> dict[str, Any]:
    """Returns what a policy's file says of where it fits."""
    return {
        "scenario": scenario.name,
        "protocol": scenario.protocol,
        "sites": [site.name for site in scenario.fleet.sites],
        "observation": asdict(observation),
        "limits": {} if scenario.constraints is None else scenario.constraints.named(scenario.fleet.site_names),
        **({} if forecast is None else {"forecast": asdict(forecast)}),
    }


def about_policy(config: RunConfig) -> dict[str, Any]:
    """Returns what the file of a run's policy says of where it fits."""
    scenario = open_source(config.sources[0], "train")
    return about(scenario, observation_for(config, scenario), shown_forecast(config))
