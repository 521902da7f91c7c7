"""``reproduce fine-tuning --ablations``: what of ``masac-credit`` closes the gap, one part changed at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.data.splits import split_seed
from noonward.engine.run import run
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, ratio
from noonward.ledger.ledger import settle
from noonward.model.cluster.environment import Environment
from noonward.runtime.executor import Progress
from noonward.schedule.policies import make_scheduler

SCENARIO: Final = "fine-tuning"
REFERENCE: Final = "local-fcfs"
SETTINGS: Final = (
    "epochs=24", "environments=6", "windows=32", "cooling=24", "rate=0.0015", "kept=6", "questions=2500",
    "temperature_first=0.02", "temperature_last=0.001", "residual=false", "validate_every=24", "checkpoint_every=24",
)  # fmt: skip
"""Settings of every short training; the net learns whole values, so that what is shown was learned."""
DRAW: Final = 1
"""Number of the draw of validation windows that the policies are compared on; training validates on draw 0."""


@dataclass(frozen=True)
class Ablation:
    """A training with something changed.

    Attributes:
        name: Its name in tables and metrics.
        says: What is changed, in words.
        settings: What is changed, as settings.
    """

    name: str
    says: str
    settings: tuple[str, ...] = ()


ABLATIONS: Final = (
    Ablation("whole", "nothing: own value, priced capacity, learned price, plans shown, asked every 15 minutes"),
    Ablation("no-capacity-price", "the return is the job's value alone", ("capacity_price=0",)),
    Ablation("no-learned-price", "plans reckon with no price of capacity", ("learned_price=0",)),
    Ablation("own-value", "neither of the two prices", ("capacity_price=0", "learned_price=0")),
    Ablation("team", "the team's return for the job's own", ("capacity_price=0", "learned_price=0", "credit=team")),
    Ablation("gamma-0.999", "own value, discount 0.999 a slot", ("capacity_price=0", "learned_price=0", "gamma=0.999")),
    Ablation("gamma-0.99", "own value, discount 0.99 a slot", ("capacity_price=0", "learned_price=0", "gamma=0.99")),
    Ablation(
        "team-gamma-0.99",
        "the team's return, discount 0.99 a slot",
        ("capacity_price=0", "learned_price=0", "credit=team", "gamma=0.99"),
    ),
    Ablation("every-minute", "own value, asked every minute", ("capacity_price=0", "learned_price=0", "ask_min=1")),
    Ablation(
        "state",
        "own value, shown what the paper's state holds",
        ("capacity_price=0", "learned_price=0", "inputs=state"),
    ),
)
"""The trainings: the first is the base, the following ones take parts away."""


@dataclass(frozen=True, kw_only=True)
class Ablated:
    """What the trainings reached.

    Attributes:
        share: Share of the gap from local FCFS to the bound by ablation: mean over training seeds in each window,
            interval over windows.
        seeds: Share of the gap by ablation and training seed.
        windows: Number of windows.
    """

    share: dict[str, Estimate]
    seeds: dict[str, tuple[float, ...]]
    windows: int

    def metrics(self) -> list[Metric]:
        """Returns the metrics for ``--json``."""
        return [Metric.of(f"ablation_improvement_share/{name}", each, "fraction") for name, each in self.share.items()]


def study_ablations(
    *,
    seeds: int = 1,
    windows: int = 16,
    scenario: str = SCENARIO,
    settings: Sequence[str] = SETTINGS,
    ablations: Sequence[Ablation] = ABLATIONS,
    progress: Progress | None = None,
) -> Ablated:
    """Trains every ablation from some seeds and compares what was learned on validation windows.

    Args:
        seeds: Training seeds of each.
        windows: Windows that all are compared on.
        scenario: Scenario, protocol each-slot.
        settings: Settings of all trainings.
        ablations: Trainings.
        progress: Called after each training with its name.
    """
    from noonward.learn.tasks.cluster import Draws
    from noonward.learn.tasks.source import Source

    source = Source(scenario=scenario)
    draws = Draws((source,), "validation", 0)
    draws.seed = split_seed("validation", DRAW)
    drawn = [draws(number) for number in range(windows)]
    local_E = utilities(drawn, make_scheduler(REFERENCE))
    bound_E = np.array([utility_bound(each, schedule=False).upper_usd for each, _ in drawn])
    share, by_seed = {}, {}
    for ablation in ablations:
        earned_KE = []
        for seed in range(seeds):
            earned_KE.append(utilities(drawn, _trained(source, ablation, seed, settings)))
            if progress is not None:
                progress(f"{ablation.name}, seed {seed}")
        share[ablation.name] = ratio(np.mean(earned_KE, axis=0) - local_E, bound_E - local_E)
        by_seed[ablation.name] = tuple(
            float((each_E - local_E).sum() / (bound_E - local_E).sum()) for each_E in earned_KE
        )
    return Ablated(share=share, seeds=by_seed, windows=windows)


def utilities(drawn: Sequence[tuple[Environment, int]], scheduler: Any) -> F8:
    """Returns the utility of a scheduler in some windows, USD."""
    return np.array([settle(run(environment, scheduler, seed=seed)).utility_usd for environment, seed in drawn])


def _trained(source: Any, ablation: Ablation, seed: int, settings: Sequence[str]) -> Any:
    """Returns the policy of a training's last epoch."""
    from noonward.learn.tasks.cluster import ClusterTask
    from noonward.learn.train.run_config import with_settings
    from noonward.learn.train.run_trainer import trainer_for

    changed = {name.partition("=")[0] for name in ablation.settings}
    kept = [name for name in settings if name.partition("=")[0] not in changed]
    config = with_settings("masac-credit", ClusterTask(sources=(source,)), (*kept, *ablation.settings), seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_for(config, config.open(), Path(folder))
        trainer.run()
    return trainer.algorithm.scheduler(explore=False)
