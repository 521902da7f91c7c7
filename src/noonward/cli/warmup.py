"""``noonward compile``: compiles what comparisons need, so that later commands compile nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from noonward.model.cluster.environment import Environment

SMALL: Final = {
    "fine-tuning": ("window_h=2", "jobs.count=6"),
    "dvfs-training": ("window_h=1",),
}
"""Scenarios of both protocols, and what makes them small."""


def warmup(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCENARIO", help=f"Scenarios to compile for; by default {' and '.join(SMALL)}."),
    ] = None,
    training: Annotated[bool, typer.Option("--training", help="Compile what training needs, too.")] = False,
) -> None:
    """Compile what comparisons need, once per version.

    Takes a minute and a half of CPU time or more; later commands then compile nothing.
    """
    import time

    began = time.perf_counter()
    from noonward.cli.options import require_cluster
    from noonward.compiled import cache_base, prune_cache
    from noonward.data.scenarios.load import load_scenario
    from noonward.evaluate.comparison import objective_of
    from noonward.runtime.by_kind import build_environment, record_files, run
    from noonward.schedule.policies import make_scheduler

    for name in scenarios or SMALL:
        scenario = load_scenario(name, SMALL.get(name, ()))
        if training:
            require_cluster(scenario, "warmup --training")
        environment = build_environment(scenario)
        for policy in scenario.policies:
            outcome = run(environment, make_scheduler(policy, scenario.kind))
            record_files(outcome, policy=policy, seed=0, scenario_digest="")
        objective_of(scenario).compute_bound(environment)
        if training:
            _compile_learned(environment)
    prune_cache()
    print(f"compiled functions are in {cache_base()} ({time.perf_counter() - began:.0f} s)")


def _compile_learned(environment: Environment) -> None:
    """Compiles the batch engine and the runner of trained policies for an environment's protocol."""
    from dataclasses import asdict
    from pathlib import Path
    from tempfile import TemporaryDirectory

    import numpy as np

    from noonward.decision.cluster.observation import Observation
    from noonward.engine.cluster.batch import BatchEngine
    from noonward.engine.run import run
    from noonward.schedule.cluster.trained_policy import TrainedPolicy, write_policy

    observation = Observation(kind="paper", protocol=environment.protocol)
    engine = BatchEngine([environment], observation, seeds=[0])
    engine.step(engine.mask_BNA.argmax(2).astype(np.int64))
    sites, points = len(environment.sites), len(environment.fleet.ingress_points)
    inputs = observation.global_size(sites, points) + observation.own_size(sites)
    shape = (1, inputs, observation.choices(sites))
    meta = {
        "algorithm": "none",
        "scenario": environment.scenario,
        "protocol": environment.protocol,
        "sites": list(environment.sites),
        "observation": asdict(observation),
        "head": "logits",
        "record": {},
    }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "zero.npz"
        write_policy(path, [np.zeros(shape, np.float32)], [np.zeros((1, shape[2]), np.float32)], meta)
        run(environment, TrainedPolicy(path))
