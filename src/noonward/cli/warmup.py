"""``noonward warmup``: compiles everything once, so that later commands compile nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noonward.model.cluster.environment import Environment


def warmup() -> None:
    """Compile all kernels, rules and learned policies into the cache (about a minute, once per version)."""
    import time

    began = time.perf_counter()
    from noonward.compiled import cache_base, prune_cache
    from noonward.data.environments import build_environment
    from noonward.data.scenarios.load import load_scenario
    from noonward.engine.run import run
    from noonward.evaluate.objective import objective_of
    from noonward.ledger.ledger import settle
    from noonward.ledger.record import hour_table
    from noonward.schedule.registry import make_scheduler

    for name, settings in (("fine-tuning", ["window_h=6", "jobs.count=40"]), ("dvfs-training", ["window_h=1"])):
        scenario = load_scenario(name, settings)
        environment = build_environment(scenario)
        for policy in scenario.policies:
            outcome = run(environment, make_scheduler(policy))
            settle(outcome)
            hour_table(outcome)
        objective_of(scenario).compute_bound(environment)
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
