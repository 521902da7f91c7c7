"""The setting that a run's config describes: scenarios, their draws by months and seeds, the batch engine."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from noonward.data.environments import build_environment
from noonward.data.scenario_file import load_scenario, with_files
from noonward.data.splits import Split, split_scenario, split_seed
from noonward.decision.observation import Observation
from noonward.engine.batch import BatchEngine
from noonward.errors import ScenarioError
from noonward.learn.adviser import SchedulerAdviser, adviser_forecast
from noonward.learn.run_config import RunConfig, Source
from noonward.learn.setting import Setting
from noonward.model.environment import Environment
from noonward.model.forecast import Forecast
from noonward.model.scenario import Scenario


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
        ScenarioError: Scenarios, observation, reward and adviser do not fit.
        DataError: A file's content is wrong.
    """
    training = Draws(config.sources, "train", config.seed)
    validation = Draws(config.sources[:1], "validation", 0)
    first = training.scenarios[0]
    for scenario in training.scenarios:
        if config.reward in ("utility", "at-start") and (scenario.signals is None or scenario.economics is None):
            raise ScenarioError(
                f"scenario {scenario.name!r} has no {'signals' if scenario.signals is None else 'economics'}, so its "
                "runs have no utility to learn from; give it both"
            )
    observation = observation_for(config, first)
    forecast = shown = shown_forecast(config)
    adviser = demonstrator = None
    if config.adviser is not None:
        forecast = adviser_forecast(config.adviser, forecast)
        adviser = functools.partial(SchedulerAdviser, config.adviser, config.seed)
    if config.warm_start is not None:
        forecast = adviser_forecast(config.warm_start, forecast)
        demonstrator = functools.partial(SchedulerAdviser, config.warm_start, config.seed)

    def engine(environments: Sequence[Environment], seeds: Sequence[int]) -> BatchEngine:
        return BatchEngine(
            environments,
            observation,
            seeds=seeds,
            reward=config.reward,
            forecast=forecast,
        )

    return Setting(
        training=training,
        validation=validation,
        engine=engine,
        adviser=adviser,
        demonstrator=demonstrator,
        slot_s=first.slot_s,
        about=about(first, observation, shown),
    )


def observation_for(config: RunConfig, scenario: Scenario) -> Observation:
    """Returns what agents are shown under a config."""
    return Observation(
        kind=config.observation,
        protocol=scenario.protocol,
        forecast_h=config.forecast_h,
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
        **({} if forecast is None else {"forecast": asdict(forecast)}),
    }


def about_policy(config: RunConfig) -> dict[str, Any]:
    """Returns what the file of a run's policy says of where it fits."""
    scenario = open_source(config.sources[0], "train")
    return about(scenario, observation_for(config, scenario), shown_forecast(config))
