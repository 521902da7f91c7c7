"""Training in a cluster scenario: draws by months and seeds, observation, reward, and the batch engine."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np

from noonward.arrays import F8
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_files
from noonward.data.splits import MONTHS, Split, split_scenario, split_seed
from noonward.decision.cluster.observation import Observation
from noonward.engine.cluster.batch import BatchEngine
from noonward.engine.cluster.service_meter import (
    DECISIONS,
    ENERGY_ALONE,
    WORK,
    EnergyMix,
    ServiceMeter,
)
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast, ForecastKind
from noonward.learn.core.experience import ActionSpec
from noonward.learn.core.settings import at_least, one_of
from noonward.learn.tasks.cluster_runs import ClusterRuns
from noonward.learn.tasks.source import Source
from noonward.learn.tasks.task import Task
from noonward.ledger.ledger import settle
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import Scenario
from noonward.model.limits import Limit
from noonward.schedule.cluster.choices.file import HEAD as CHOICES
from noonward.schedule.cluster.choices.file import write_choice_policy
from noonward.schedule.cluster.trained_policy import write_policy
from noonward.schedule.policy_files import load_policy

EXCESS_J_PER_UNIT: Final = 10.0
"""What validation charges per relative excess over a limit, J per unit: far more than multipliers come to where a joule
counts about one (``EnergyMix``), so that the policy that is kept keeps the limits."""


@dataclass(frozen=True, kw_only=True)
class ClusterTask:
    """What is trained in: cluster scenarios, what agents are shown, and what they earn.

    Attributes:
        sources: Where environments come from, in turn; validation takes the first (of whole runs, all in turn).
        observation: ``paper`` or ``extended``; ``raw`` is that of CHSAC-AF's public code (``Observation``).
        forecast_h: Hours of forecast in the observation (``extended``).
        forecast: Kind of forecast (``noonward.forecasts.forecast``) that is shown of the future, if anything.
        reward: ``utility`` or ``at-start``: when a job's value is credited, USD; ``energy`` (on-arrival): energy per
            unit of work, with the costs of the scenario's constraints beside it (``ServiceMeter``).
        energy_weight: Under the reward ``energy``, what a joule counts as such (``EnergyMix``).
        usd_weight: What it counts besides per 100 USD/MWh of its price; needs signals.
        carbon_weight: What it counts besides per 500 g/kWh of its carbon intensity; needs signals.
        clocks: ``oracle``: agents leave the clock to the oracle (Eq. 2 of CHSAC-AF); ``free``: they choose it with site
            and gang (on-arrival).
        show_signals: The observation shows price and intensity of the hour (on-arrival, ``extended``).
        show_class: It shows the class of the arriving job (on-arrival, ``extended``).
        show_preferences: It shows the weight of latency against energy that the scenario states for that class
            (on-arrival, ``extended``).
        show_running: Sites are also asked about running jobs that may be suspended, and shown these (each-slot; reward
            ``utility``).
    """

    sources: tuple[Source, ...]
    observation: Literal["paper", "extended", "raw"] = "paper"
    forecast_h: int = 0
    forecast: ForecastKind | None = None
    reward: Literal["utility", "at-start", "energy"] = "utility"
    energy_weight: float = 1.0
    usd_weight: float = 0.0
    carbon_weight: float = 0.0
    clocks: Literal["oracle", "free"] = "oracle"
    show_signals: bool = False
    show_class: bool = False
    show_preferences: bool = False
    show_running: bool = False

    def __post_init__(self) -> None:
        if not self.sources:
            raise ScenarioError("no source of environments; name a scenario")
        at_least(self, 0, "forecast_h")
        one_of(self, "observation", ("paper", "extended", "raw"))
        one_of(self, "reward", ("utility", "at-start", "energy"))
        one_of(self, "clocks", ("oracle", "free"))
        if self.forecast is not None:
            one_of(self, "forecast", get_args(ForecastKind))
        if bool(self.forecast_h) != (self.forecast is not None):
            raise ScenarioError(
                f"forecast_h is {self.forecast_h} and forecast is {self.forecast}: a forecast needs both its hours and "
                "its kind; set forecast_h=12 and forecast=regression (or another kind), or neither"
            )
        if self.forecast_h and self.observation != "extended":
            raise ScenarioError(f"the observation {self.observation!r} shows no forecasts; set observation=extended")
        self._check_mix_and_shown()

    def _check_mix_and_shown(self) -> None:
        at_least(self, 0.0, "energy_weight", "usd_weight", "carbon_weight")
        if not (self.energy_weight or self.mix.needs_signals):
            raise ScenarioError("energy_weight, usd_weight and carbon_weight are all 0; set at least one above 0")
        if self.reward != "energy" and self.mix != ENERGY_ALONE:
            raise ScenarioError(
                f"reward is {self.reward}, which knows no energy_weight, usd_weight or carbon_weight; leave them out, "
                "or set reward=energy"
            )
        if self.show_running and self.reward != "utility":
            raise ScenarioError(
                f"reward is {self.reward}, which a suspension would change after the fact; set reward=utility, or "
                "leave out show_running"
            )
        if self.observation != "extended" and (self.show_signals or self.show_class or self.show_preferences):
            raise ScenarioError(
                f"the observation {self.observation!r} shows neither signals nor classes nor preferences; set "
                "observation=extended, or leave out show_signals, show_class and show_preferences"
            )

    @property
    def mix(self) -> EnergyMix:
        """What a joule counts under the reward ``energy``."""
        return EnergyMix(energy=self.energy_weight, usd=self.usd_weight, carbon=self.carbon_weight)

    @property
    def shown_forecast(self) -> Forecast | None:
        """Forecast that the observation shows."""
        return None if self.forecast is None else Forecast(self.forecast)

    def open(self, seed: int) -> Task:
        """Returns the task.

        Args:
            seed: Number of the draw of training environments.

        Raises:
            ScenarioError: Scenarios, observation and reward do not fit.
            DataError: A file's content is wrong.
        """
        training, validation = Draws(self.sources, "train", seed), Draws(self.sources[:1], "validation", 0)
        first = training.scenarios[0]
        for scenario in training.scenarios:
            self._check_scenario(scenario, first)
        observation = self.observation_of(first)
        forecast = self.shown_forecast

        def engine(environments: Sequence[Environment], seeds: Sequence[int]) -> BatchEngine:
            reward: Literal["utility", "at-start"] = "at-start" if self.reward == "at-start" else "utility"
            return BatchEngine(environments, observation, seeds=seeds, reward=reward, forecast=forecast)

        return Task(
            training=training,
            validation=validation,
            engine=engine,
            actions=actions_of(first, observation),
            figures={"migration_usd": BatchEngine.migration_usd},
            slot_s=first.slot_s,
            about=self._about(first, observation),
            record={
                "months": {part: months for part, months in MONTHS.items() if part != "test"},
                "seeds": {"train": training.seed, "validation": validation.seed},
            },
            write=_write,
            plays=ClusterRuns(training, Draws(self.sources, "validation", 0)) if self._plays(first) else None,
            judged=functools.partial(_validation_utility, validation),
            **(_by_energy(first, training, self.mix) if self.reward == "energy" else {}),
        )

    def _plays(self, scenario: Scenario) -> bool:
        """Returns whether whole runs of a scenario can be learned from: sites decide, and utility is earned."""
        return scenario.protocol == "each-slot" and self.reward != "energy"

    def _check_scenario(self, scenario: Scenario, first: Scenario) -> None:
        """Raises ScenarioError unless a scenario's runs have the reward."""
        if self.reward != "energy":
            if scenario.signals is None or scenario.economics is None:
                raise ScenarioError(
                    f"scenario {scenario.name!r} has no {'signals' if scenario.signals is None else 'economics'}, so "
                    "its runs have no utility to learn from; give signals and economics, or learn from energy "
                    "(--algorithm chsac-af --hyper reward=energy)"
                )
            return
        if scenario.protocol != "on-arrival":
            raise ScenarioError(
                f"scenario {scenario.name!r} asks {scenario.protocol}; the reward 'energy' is for protocol on-arrival, "
                "as dvfs-training; name such a scenario, or train masac, madqn or mappo with reward=utility"
            )
        if scenario.constraints != first.constraints:
            raise ScenarioError(f"scenarios {first.name!r} and {scenario.name!r} differ in their constraints")
        if scenario.latency_weight_w != first.latency_weight_w:
            raise ScenarioError(
                f"scenarios {first.name!r} and {scenario.name!r} differ in their latency_weight_w; give both the same"
            )
        if self.mix.needs_signals and scenario.signals is None:
            raise ScenarioError(
                f"scenario {scenario.name!r} has no signals, so neither price nor carbon of its energy is known; give "
                "signals, or leave out usd_weight and carbon_weight"
            )

    def observation_of(self, scenario: Scenario) -> Observation:
        """Returns what agents are shown in a scenario.

        Raises:
            ScenarioError: The scenario's protocol does not show it.
        """
        if scenario.protocol != "on-arrival" and self.observation == "raw":
            raise ScenarioError(
                f"scenario {scenario.name!r} asks {scenario.protocol}; the observation 'raw' is for protocol "
                "on-arrival; set observation=paper or extended"
            )
        if scenario.protocol != "on-arrival" and (self.show_signals or self.show_class or self.show_preferences):
            raise ScenarioError(
                f"scenario {scenario.name!r} asks {scenario.protocol}, whose observation always shows signals and "
                "never classes or preferences; leave out show_signals, show_class and show_preferences"
            )
        if scenario.protocol == "on-arrival" and self.show_running:
            raise ScenarioError(
                f"scenario {scenario.name!r} asks on-arrival, which asks nobody about running jobs; leave out "
                "show_running"
            )
        if scenario.protocol != "on-arrival" and self.clocks == "free":
            raise ScenarioError(
                f"scenario {scenario.name!r} asks {scenario.protocol}, whose agents choose only sites; leave out "
                "clocks=free"
            )
        return Observation(
            kind=self.observation,
            protocol=scenario.protocol,
            forecast_h=self.forecast_h,
            levels=scenario.fleet.clock_levels if self.clocks == "free" else 0,
            signals=self.show_signals,
            classes=len(scenario.fleet.classes) if self.show_class else 0,
            preferences=self.show_preferences,
            running=self.show_running,
        )

    def _about(self, scenario: Scenario, observation: Observation) -> dict[str, Any]:
        """Returns what a policy's file says of where it fits."""
        forecast = self.shown_forecast
        return {
            "scenario": scenario.name,
            "protocol": scenario.protocol,
            "sites": [site.name for site in scenario.fleet.sites],
            "observation": asdict(observation),
            "limits": {limit.name: limit.limit for limit in limits_of(scenario)},
            **({} if forecast is None else {"forecast": asdict(forecast)}),
        }


def actions_of(scenario: Scenario, observation: Observation) -> ActionSpec:
    """Returns what an agent chooses: hold or a site (each-slot); site, number of GPUs and maybe clock (on-arrival)."""
    sites = len(scenario.fleet.sites)
    if scenario.protocol == "each-slot":
        return ActionSpec.of(site=1 + sites)
    clock = {"clock": observation.levels} if observation.levels else {}
    return ActionSpec.of(site=sites, gpus=observation.gpus_max, **clock)


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


def _write(path: Path, weights: Any, biases: Any, meta: dict[str, Any], *, half: bool = False) -> None:
    """Writes a policy in the format of its head."""
    write = write_choice_policy if meta["head"] == CHOICES else write_policy
    write(path, weights, biases, meta, half=half)


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


def limits_of(scenario: Scenario) -> tuple[Limit, ...]:
    """Returns the limits of a scenario, one a column of costs."""
    return () if scenario.constraints is None else scenario.constraints.limits(scenario.fleet.site_names)


def _by_energy(scenario: Scenario, training: Draws, mix: EnergyMix) -> dict[str, Any]:
    """Returns meter, costs and score of the reward ``energy``."""
    unit_work = float(training(0)[0].jobs.work_J.mean())
    limits = limits_of(scenario)

    def score(reward_B: F8, cost_BK: F8) -> float:
        """Returns minus the extra energy per unit of work, less what excesses over the limits cost.

        Limits are of means (Eq. 4), so all runs are pooled: charging each run's own excess would charge the spread
        between short runs too, and keep policies that lie below their limits by as much.
        """
        total_K = cost_BK.sum(0)
        excess_K = np.maximum(total_K[:-2] / total_K[-1], 0.0)
        return float(reward_B.sum() / total_K[-2] - EXCESS_J_PER_UNIT * excess_K.sum())

    return {
        "meter": functools.partial(ServiceMeter, limits=limits, unit_work=unit_work, mix=mix),
        "costs": tuple(limit.name for limit in limits),
        "counts": (WORK, DECISIONS),
        "score": score,
    }


def _validation_utility(validation: Draws, path: Path, count: int) -> dict[str, float]:
    """Returns the mean utility of a written policy over validation environments, USD; NaN where runs have none."""
    drawn = [validation(number) for number in range(count)]
    utilities = [settle(run(environment, load_policy(path), seed=seed)).utility_usd for environment, seed in drawn]
    return {"validation_utility_usd": float(np.mean(utilities))}
