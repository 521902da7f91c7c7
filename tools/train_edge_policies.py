"""Trains the packaged policies for edge scenarios, and their curves from scratch; needs torch.

    python tools/train_edge_policies.py runs/edge [--only eat-d ppo] [--seeds 0 1 2] [--out FOLDER]

Every algorithm has one budget (``BUDGETS``): as many updates of as many questions, in the same scenarios. The actors of
``eat``, ``eat-a``, ``eat-d`` and ``eat-da`` differ in one field each and begin alike: by imitating the known-queue
lookahead with priced steps, then by hindsight. A run that was interrupted resumes. With ``--out`` the policies are
written there: ``NAME.npz`` is the training seed with the highest reward in validation, the others are
``NAME-seed1.npz`` and so on; each has the curves of the same algorithm from scratch in its record.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Final

from noonward.learn.tasks.edge import EdgeTask
from noonward.learn.tasks.source import Source
from noonward.learn.train.export import export_policy
from noonward.learn.train.run_config import RunConfig, with_settings
from noonward.learn.train.trainer import Silence, Trainer

SCENARIOS: Final = ("edge-inference-reference", "edge-inference", "edge-inference-real")
ROWS: Final = ("environments=124", "episode_steps=100000", "validation_environments=124")
UPDATES: Final = 2_400
"""Updates of an actor of the EAT family, of 256 questions each."""
TAUGHT: Final = (
    *(f"updates_all={UPDATES}", "batch=256", "actor_rate=1e-3", "last_rate=0.03"),
    *("imitation_updates=800", "imitation_kept=0.05", "hindsight=1.0"),
    *("updates=200", "steps=60", "validate_every=2"),
)
ALONE: Final = (
    *("advice=none", "imitation=0", "imitation_kept=0", "imitation_updates=0", "hindsight=0", "soft=1"),
    *("critic_alone=125", "batch=256", "actor_rate=1e-3", "critic_rate=1e-3", "last_rate=0.1", "updates_all=2000"),
    *("target_rate=0.01", "updates=125", "steps=60", "validate_every=2"),
)
CLIPPED: Final = (
    *("rollout_steps=32", "passes=4", "minibatches=16", "actor_rate=5e-4", "critic_rate=5e-4", "entropy_weight=0.002"),
    *("clip=0.15", "steps=96", "validate_every=2"),
)
PUBLISHED: Final = (
    *("advice=none", "reward=published", "replayed=true", "cells=own", "price_low_s=100", "price_high_s=100"),
    *("batch=256", "updates=125", "steps=60", "validate_every=2"),
)
BUDGETS: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "eat-d": (12, TAUGHT),
    "eat-da": (12, TAUGHT),
    "eat": (12, TAUGHT),
    "eat-a": (12, TAUGHT),
    "ppo": (12, (*CLIPPED, "imitation_updates=16")),
    "eat-published": (4, PUBLISHED),
}
"""Epochs and settings by algorithm."""
SCRATCH: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "eat-d": (16, ALONE),
    "eat-da": (16, ALONE),
    "eat": (16, ALONE),
    "eat-a": (16, ALONE),
    "ppo": (12, (*CLIPPED, "advice=none")),
}
"""The same from scratch: a soft actor-critic without advice."""


def run_of(algorithm: str, seed: int, epochs: int, settings: tuple[str, ...]) -> RunConfig:
    """Returns the run of an algorithm."""
    sources = tuple(Source(scenario=name) for name in SCENARIOS)
    if algorithm == "eat-published":
        sources = (Source(scenario=SCENARIOS[0], settings=("tasks.rate_per_s=0.5",)),)
    return with_settings(algorithm, EdgeTask(sources=sources), (*ROWS, *settings), seed=seed, epochs=epochs)


def trained(config: RunConfig, folder: Path) -> Trainer:
    """Trains a run, or resumes it."""
    here = folder / f"{config.algorithm}-{config.digest()}-seed{config.seed}"
    began = time.process_time()
    trainer = Trainer(config, config.open(), here, Silence())
    trainer.run()
    spent = time.process_time() - began
    print(f"{here.name}: best {trainer.best_reward:.3f} in epoch {trainer.best_epoch}, {spent:.0f} CPU s", flush=True)
    return trainer


def main() -> None:
    """Trains what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=BUDGETS, default=list(BUDGETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    for algorithm in chosen.only:
        runs = {seed: trained(run_of(algorithm, seed, *BUDGETS[algorithm]), chosen.folder) for seed in chosen.seeds}
        if chosen.out is None:
            continue
        scratch = []
        if algorithm in SCRATCH:
            run = trained(run_of(algorithm, 0, *SCRATCH[algorithm]), chosen.folder / "scratch")
            found = {"best_epoch": run.best_epoch, "validation_reward": run.best_reward, "curve": run.curves}
            scratch = [{"seed": 0, "settings": list(SCRATCH[algorithm][1]), **found}]
        best = max(runs, key=lambda seed: runs[seed].best_reward)
        for seed, run in runs.items():
            name = algorithm if seed == best else f"{algorithm}-seed{seed}"
            export_policy(run.folder, chosen.out / f"{name}.npz", half=True, further={"from_scratch": scratch})
            print(f"{name}.npz", flush=True)


if __name__ == "__main__":
    main()
