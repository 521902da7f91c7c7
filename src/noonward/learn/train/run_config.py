"""What a training run is: environments, observation, algorithm, and how long."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from noonward.engine.cluster.service_meter import ENERGY_ALONE, EnergyMix
from noonward.errors import ScenarioError, nearest
from noonward.forecasts.forecast import ForecastKind
from noonward.learn.algorithms.registry import algorithm_named
from noonward.learn.train.config import at_least, between, build, one_of, parse_setting, typed


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where environments come from.

    Attributes:
        scenario: A packaged scenario or a YAML file.
        settings: Changed values of the scenario, ``key=value``.
        signals: Files of prices and carbon intensities instead of the scenario's own.
        jobs: Job table or trace instead of the scenario's own.
    """

    scenario: str
    settings: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    jobs: str | None = None

    def resolved(self) -> Source:
        """Returns the same source with absolute paths, so that a run can be resumed from any folder."""
        path = Path(self.scenario)
        return dataclasses.replace(
            self,
            scenario=str(path.resolve()) if path.is_file() else self.scenario,
            signals=tuple(str(Path(each).resolve()) for each in self.signals),
            jobs=None if self.jobs is None else str(Path(self.jobs).resolve()),
        )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A training run; the defaults are the paper's (MASAC, Table I and Sec. IV.A), or ours where it is silent [ours].

    Attributes:
        algorithm: Name of the algorithm.
        settings: Settings of the algorithm that differ from its defaults, by name.
        sources: Where environments come from, in turn; validation takes the first.
        seed: Seed of nets, exploration and batches, and number of the draw of training environments.
        epochs: Epochs of collecting, updating and validating.
        environments: Environments side by side.
        steps: Decision steps of each environment in an epoch; episodes go on over epochs.
        episode_steps: Decision steps after which an episode is cut, K_max.
        updates: Updates after each epoch's collection, G.
        validation_environments: Validation environments, the same in every epoch.
        observation: ``paper`` or ``extended``; ``raw`` is that of CHSAC-AF's public code (``Observation``).
        forecast_h: Hours of forecast in the observation (``extended``).
        forecast: Kind of forecast (``noonward.forecasts.forecast``) that is shown of the future, if anything.
        reward: ``utility`` or ``at-start``: when a job's value is credited, USD; ``energy`` (on-arrival): energy per
            unit of work, with the costs of the scenario's constraints beside it (``ServiceMeter``).
        energy_weight: Under the reward ``energy``, what a joule counts as such (``EnergyMix``).
        usd_weight: What it counts besides per 100 USD/MWh of its price; needs signals.
        carbon_weight: What it counts besides per 500 g/kWh of its carbon intensity; needs signals.
        show_signals: The observation shows price and intensity of the hour (on-arrival, ``extended``).
        show_class: It shows the class of the arriving job (on-arrival, ``extended``).
        warm_start: A policy that the agents imitate before the first epoch; None: none. MASAC and MAPPO fit their
            actors by cross-entropy, MADQN its values by a margin.
        warm_start_environments: Runs in which it is watched.
        warm_start_steps: Decision steps after which such a run is cut; 0: never.
        warm_start_passes: Passes over what was seen.
        warm_start_batch: Decision steps in a batch.
        warm_start_rate: Adam's step.
        warm_start_balance: How much more the rare choices of an agent weigh: ``count^-balance``; 0: each question the
            same, 1: each choice the same.
        warm_start_margin: How far the value of its choice is to lie above that of any other (0.8 in DQfD, Hester et
            al. 2018), USD.
        warm_start_keep: Put what was seen into the replay, until newer steps push it out.
        validate_every: Epochs from one validation to the next; the last epoch is validated in any case.
        checkpoint_every: Epochs from one checkpoint to the next; the last epoch has one in any case.
        device: Where the nets are: ``cpu`` or ``cuda``.
    """

    algorithm: str
    sources: tuple[Source, ...]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0
    epochs: int = 100
    environments: int = 10
    steps: int = 12_000
    episode_steps: int = 12_000
    updates: int = 1_000
    validation_environments: int = 1
    observation: Literal["paper", "extended", "raw"] = "paper"
    forecast_h: int = 0
    forecast: ForecastKind | None = None
    reward: Literal["utility", "at-start", "energy"] = "utility"
    energy_weight: float = 1.0
    usd_weight: float = 0.0
    carbon_weight: float = 0.0
    show_signals: bool = False
    show_class: bool = False
    warm_start: str | None = None
    warm_start_environments: int = 10
    warm_start_steps: int = 0
    warm_start_passes: int = 10
    warm_start_batch: int = 256
    warm_start_rate: float = 1e-3
    warm_start_balance: float = 0.0
    warm_start_margin: float = 0.8
    warm_start_keep: bool = False
    validate_every: int = 1
    checkpoint_every: int = 1
    device: str = "cpu"

    def __post_init__(self) -> None:
        counts = ("epochs", "environments", "steps", "episode_steps", "updates", "validation_environments")
        at_least(self, 1, *counts, "validate_every", "checkpoint_every")
        at_least(self, 0, "seed", "forecast_h")
        one_of(self, "observation", ("paper", "extended", "raw"))
        one_of(self, "reward", ("utility", "at-start", "energy"))
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
        if self.warm_start is not None and not isinstance(self.warm_start, str):
            raise ScenarioError(f"warm_start is {self.warm_start!r}; give a policy's name, as bid-price-persistence")
        self._check_warm_start()
        if not self.sources:
            raise ScenarioError("no source of environments; name a scenario")
        self.algorithm_config()

    @property
    def mix(self) -> EnergyMix:
        """What a joule counts under the reward ``energy``."""
        return EnergyMix(energy=self.energy_weight, usd=self.usd_weight, carbon=self.carbon_weight)

    def _check_mix_and_shown(self) -> None:
        at_least(self, 0.0, "energy_weight", "usd_weight", "carbon_weight")
        if not (self.energy_weight or self.mix.needs_signals):
            raise ScenarioError("energy_weight, usd_weight and carbon_weight are all 0; set at least one above 0")
        if self.reward != "energy" and self.mix != ENERGY_ALONE:
            raise ScenarioError(
                f"reward is {self.reward}, which knows no energy_weight, usd_weight or carbon_weight; leave them out, "
                "or set reward=energy"
            )
        if self.observation != "extended" and (self.show_signals or self.show_class):
            raise ScenarioError(
                f"the observation {self.observation!r} shows neither signals nor classes; set "
                "observation=extended, or leave out show_signals and show_class"
            )

    def _check_warm_start(self) -> None:
        at_least(self, 1, "warm_start_environments", "warm_start_passes", "warm_start_batch")
        at_least(self, 1e-12, "warm_start_rate", "warm_start_margin")
        at_least(self, 0, "warm_start_steps")
        between(self, 0.0, 1.0, "warm_start_balance")
        made = algorithm_named(self.algorithm).make
        if self.warm_start is None:
            return
        if made.imitation_loss is None:
            raise ScenarioError(f"{self.algorithm} cannot imitate a policy; leave out warm_start")
        if self.warm_start_keep and made.consumes == "rollout":
            raise ScenarioError(
                f"{self.algorithm} has no replay to keep demonstrations in: it learns from its own choices alone; "
                "leave out warm_start_keep"
            )

    def algorithm_config(self) -> Any:
        """Returns the algorithm's settings.

        Raises:
            ScenarioError: The algorithm or a setting is unknown or out of range.
        """
        return build(algorithm_named(self.algorithm).config, self.settings)

    def digest(self) -> str:
        """Returns a short digest of everything but the number of epochs, the names of folders rest on it."""
        content = {**dataclasses.asdict(self), "epochs": None, "settings": dataclasses.asdict(self.algorithm_config())}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]

    def to_json(self) -> str:
        """Returns the run as JSON, the algorithm's settings written out."""
        content = {**dataclasses.asdict(self), "settings": dataclasses.asdict(self.algorithm_config())}
        return json.dumps(content, indent=1)

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """Returns the run that ``to_json`` wrote.

        Raises:
            ScenarioError: A name or value is wrong.
        """
        content = json.loads(text)
        sources = tuple(
            Source(**{**each, "settings": tuple(each["settings"]), "signals": tuple(each["signals"])})
            for each in content.pop("sources")
        )
        return cls(sources=sources, **content)


def with_settings(algorithm: str, sources: tuple[Source, ...], settings: Iterable[str], **fields: Any) -> RunConfig:
    """Returns a run from settings ``name=value`` of the run or of its algorithm.

    Args:
        algorithm: Name of the algorithm.
        sources: Where environments come from.
        settings: ``name=value`` each.
        fields: Fields of the run.

    Raises:
        ScenarioError: A name is unknown, or a value has the wrong type or is out of range.
    """
    own = {f.name for f in dataclasses.fields(RunConfig)} - {"algorithm", "sources", "settings"}
    known = {f.name for f in dataclasses.fields(algorithm_named(algorithm).config)}
    chosen: dict[str, Any] = {}
    for text in settings:
        name, value = parse_setting(text)
        if name in fields or name in chosen:
            raise ScenarioError(f"{name} is given twice; give it once")
        if name in own:
            fields[name] = value
        elif name in known:
            chosen[name] = value
        elif "." in name:
            raise ScenarioError(f"{name!r} is no setting of the run; values of the scenario are set by --scenario-set")
        else:
            raise ScenarioError(f"unknown setting {name!r} of {algorithm} or of the run; {nearest(name, own | known)}")
    if "updates" in fields and algorithm_named(algorithm).make.consumes == "rollout":
        raise ScenarioError(f"{algorithm} learns from each rollout and knows no updates an epoch; leave out updates")
    idle = [name for name in fields if name.startswith("warm_start_")]
    if idle and fields.get("warm_start") is None:
        raise ScenarioError(f"{', '.join(idle)} without a policy to imitate; set warm_start=POLICY too")
    hints = get_type_hints(RunConfig)
    fields = {name: typed(name, value, hints[name]) for name, value in fields.items()}
    return RunConfig(algorithm=algorithm, sources=sources, settings=chosen, **fields)
