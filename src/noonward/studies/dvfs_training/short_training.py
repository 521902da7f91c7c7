"""The ablation study of CHSAC-AF: short trainings, and their metrics in validation windows."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Hashable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noonward.bound.cluster_energy import environment_energy_bound
from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import split_seed
from noonward.engine.run import run
from noonward.files import file_name, write_text
from noonward.ledger.ledger import settle
from noonward.runtime.executor import PlainSpec
from noonward.runtime.rests_on import installed_digest
from noonward.runtime.runs import environment_of
from noonward.schedule.policy_files import load_policy

if TYPE_CHECKING:
    from noonward.learn.train.run_config import RunConfig
    from noonward.model.cluster.environment import Environment
    from noonward.model.cluster.scenario import Scenario

SCENARIO: Final = "dvfs-training"
LIMIT_S: Final = 3600.0
"""Limit of the mean time in system that all trainings are under, s."""
WORLD: Final = (f"constraints.mean_latency_s={LIMIT_S:g}", "window_h=16")
"""Settings of the scenario that they train in."""
SETTINGS: Final = (
    "reward=energy", "epochs=40", "environments=32", "steps=100", "updates=100", "episode_steps=100000000",
    "validation_environments=1", "validate_every=40", "checkpoint_every=40", "hidden=[64,64,64]", "quantiles=8",
    "batch=128", "rate=0.001", "gamma=0.99", "fewer_gpus=0", "target_entropy=0.08", "temperature_rate=0.003",
    "dual_rate=0.3", "dual_damping=0.5", "average_rate=0.02",
)  # fmt: skip
"""Settings of every short training: a smaller net and larger steps than the packaged policies have. The policy of the
last epoch is kept, so that validation chooses nothing."""
DRAW: Final = 1
"""Number of their draw; trainings validate on draw 0."""


@dataclass(frozen=True)
class Ablation:
    """A training with something changed.

    Attributes:
        name: Its name in tables and metrics.
        says: What is changed, in words.
        settings: What is changed, as settings.
        algorithm: Algorithm that is trained.
    """

    name: str
    says: str
    settings: tuple[str, ...] = ()
    algorithm: str = "chsac-af"


ABLATIONS: Final = (
    Ablation("whole", "nothing"),
    Ablation("actor-gradient", "sampled one-hots in the actor's loss", ("actor_gradient=one-hot",)),
    Ablation("bootstrap", "targets without the value of what follows", ("bootstrap=false",)),
    Ablation("gang-head", "one head of gangs for all sites", ("gang_head=fleet",)),
    Ablation("energy-unit", "energy in kWh per unit", ("energy_unit=kWh",)),
    Ablation("size-weights", "every job counts alike", ("weigh_by_size=false",)),
    Ablation("excess", "the positive part of each job's excess", ("excess=positive",)),
    Ablation("quantile-axis", "errors weigh by the target's quantile", ("quantile_weights=target",)),
    Ablation("falling-multipliers", "multipliers only rise", ("duals_fall=false",)),
    Ablation("damping", "no damping of the multipliers", ("dual_damping=0",)),
    Ablation("behaviour", "the latest policy collects", ("behaviour=latest",)),
    Ablation("centre", "the mean per unit of work stays in the reward", ("centre=false",)),
    Ablation("averaging", "the latest policy collects and is exported", ("average_rate=1",)),
    Ablation("drawn-answers", "the most probable choice is taken", ("execute=greedy",)),
    Ablation("state", "the state as raw numbers", ("observation=raw",)),
    Ablation(
        "published",
        "all of these but averaging, drawn answers and state",
        ("dual_damping=0",),
        algorithm="chsac-af-published",
    ),
)
"""The trainings: the first is the base, the following ones take one correction back each, the last one all."""


@dataclass(frozen=True, kw_only=True)
class Reached:
    """What a trained policy reaches, a number a window. Axis: E windows.

    Attributes:
        joules_per_unit_E: Energy per unit, exact, J.
        mean_time_so_far_s_E: Mean time in system over all arrivals, s.
        mean_time_in_system_s_E: Mean time in system of the jobs that are done, s.
        bound_E: Least energy per unit of any scheduler with that mean time over all arrivals, J.
        multiplier: Multiplier of the mean time at the end of training, J per unit of work per relative excess.
        entropy: Entropy of the policy in the last epoch, nats a decision.
    """

    joules_per_unit_E: list[float]
    mean_time_so_far_s_E: list[float]
    mean_time_in_system_s_E: list[float]
    bound_E: list[float]
    multiplier: float
    entropy: float


@dataclass(frozen=True, kw_only=True)
class ShortTraining(PlainSpec):
    """A spec: trains an ablation from a seed and runs what it learned; what it reached is kept and not made twice.

    Attributes:
        ablation: What is changed.
        seed: Training seed.
        settings: Settings of the training that no ablation changes.
        world: Settings of the scenario that it trains in.
        windows: Windows that the policy runs in.
        window_h: Hours of each.
        folder: Folder of what is kept.
    """

    ablation: Ablation
    seed: int
    settings: tuple[str, ...]
    world: tuple[str, ...]
    windows: int
    window_h: float
    folder: Path

    @property
    def label(self) -> str:
        """Ablation and seed."""
        return f"{self.ablation.name}, seed {self.seed}"

    @property
    def group(self) -> Hashable:
        """All run in the same windows."""
        return None

    @property
    def place(self) -> Path:
        """File of what is kept."""
        return self.folder / f"{file_name(self.ablation.name)}-seed{self.seed}.json"

    @functools.cached_property
    def config(self) -> RunConfig:
        """The training."""
        from noonward.learn.tasks.cluster import ClusterTask
        from noonward.learn.tasks.source import Source
        from noonward.learn.train.run_config import with_settings

        changed = {name.partition("=")[0] for name in self.ablation.settings}
        kept = [name for name in self.settings if name.partition("=")[0] not in changed]
        task = ClusterTask(sources=(Source(scenario=SCENARIO, settings=self.world),))
        return with_settings(self.ablation.algorithm, task, (*kept, *self.ablation.settings), seed=self.seed)

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the training, of the windows, and of the code that trains and runs."""
        return installed_digest(about=f"{self.config.to_json()} {self.windows} {self.window_h}")

    def run(self) -> dict[str, Any] | None:
        """Returns what the file of the training holds; None where it stands."""
        if self.place.is_file() and json.loads(self.place.read_text(encoding="utf-8"))["digest"] == self.digest:
            return None
        from noonward.learn.train.export import export_policy
        from noonward.learn.train.run_trainer import trainer_for

        with tempfile.TemporaryDirectory() as name:
            folder, file = Path(name) / "training", Path(name) / "policy.npz"
            trainer = trainer_for(self.config, self.config.open(), folder)
            trainer.run()
            export_policy(folder, file)
            ledgers = [self._ledger(number, file) for number in range(self.windows)]
        times_s = [each.mean_time_so_far_s for each in ledgers]
        last = trainer.curves[-1]
        found = Reached(
            joules_per_unit_E=[each.joules_per_unit for each in ledgers],
            mean_time_so_far_s_E=times_s,
            mean_time_in_system_s_E=[each.mean_time_in_system_s for each in ledgers],
            bound_E=[environment_energy_bound(self._window(e), time_s) for e, time_s in enumerate(times_s)],
            multiplier=float(last["multiplier/mean_latency_s"] or 0.0),
            entropy=float(last["entropy"] or 0.0),
        )
        return {"digest": self.digest, **{field.name: getattr(found, field.name) for field in fields(found)}}

    def keep(self, found: dict[str, Any] | None) -> Reached:
        """Writes what was reached, if it is new, and returns it."""
        if found is not None:
            write_text(self.place, json.dumps(found, indent=1))
        content = json.loads(self.place.read_text(encoding="utf-8"))
        return Reached(**{field.name: content[field.name] for field in fields(Reached)})

    def _window(self, number: int) -> Environment:
        return environment_of(window_scenario(self.window_h), number, split_seed("validation", DRAW))

    def _ledger(self, number: int, file: Path) -> Any:
        """Returns the ledger of the trained policy in a window."""
        seed = split_seed("validation", DRAW)
        return settle(run(self._window(number), load_policy(file), seed=seed))


def window_scenario(window_h: float) -> Scenario:
    """Returns the scenario of the windows that policies are compared in."""
    scenario: Scenario = load_scenario(SCENARIO, [f"window_h={window_h:g}"])
    return scenario
