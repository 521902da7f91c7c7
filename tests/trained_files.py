"""Files of trained policies with random weights, for tests of what is done with such files."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from noonward.data.scenarios.load import load_scenario
from noonward.decision.cluster.observation import Observation
from noonward.schedule.cluster.trained_policy import write_policy

NETS = Path(__file__).parents[1] / "studies-data" / "nets"
"""Nets of further training seeds, which lie beside the package."""


def write_random_policy(
    path: Path,
    seed: int = 0,
    *,
    scenario: str = "tiny",
    record: Mapping[str, Any] | None = None,
    half: bool = False,
    **more: Any,
) -> None:
    """Writes a net of random weights that is fed the paper's observation of a scenario.

    Args:
        path: File.
        seed: Seed of the weights.
        scenario: Packaged scenario whose sites it is for.
        record: How it was trained.
        half: Store float16.
        more: What else the file says of itself.
    """
    loaded = load_scenario(scenario)
    sites = [site.name for site in loaded.fleet.sites]
    observation = Observation(kind="paper", protocol=loaded.protocol)
    inputs = observation.global_size(len(sites), len(loaded.fleet.ingress_points)) + observation.own_size(len(sites))
    sizes = [(inputs, 8), (8, observation.choices(len(sites)))]
    rng = np.random.default_rng(seed)
    meta = {
        "algorithm": "none",
        "scenario": scenario,
        "protocol": loaded.protocol,
        "sites": sites,
        "observation": asdict(observation),
        "head": "logits",
        "record": dict(record or {}),
        **more,
    }
    weights = [rng.normal(size=(1, *size)).astype(np.float32) for size in sizes]
    biases = [rng.normal(size=(1, size[1])).astype(np.float32) for size in sizes]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_policy(path, weights, biases, meta, half=half)


def training_record(seed: int, epochs: int = 20, **source: Any) -> dict[str, Any]:
    """Returns a record of a run on ``tiny`` with rising rewards and falling migration cost."""
    rng = np.random.default_rng(seed)
    rise_E = 1 - np.exp(-np.arange(epochs) / 3)
    curve = [
        {
            "epoch": epoch + 1,
            "reward_per_step": float(rise + 0.01 * rng.normal()),
            "validation_reward": float(5 * rise + 0.1 * rng.normal()) if epoch % 2 else None,
            "migration_usd_per_step": float(2 - rise),
            "validation_migration_usd": float(20 - 10 * rise) if epoch % 2 else None,
        }
        for epoch, rise in enumerate(rise_E)
    ]
    said = {"scenario": "tiny", "settings": [], "signals": [], "jobs": None, **source}
    return {
        "summary": f"A test's policy of seed {seed}.",
        "config": {"sources": [said], "validation_environments": 2},
        "months": {"train": [1, 2, 5], "validation": [4]},
        "curve": curve,
    }
