"""Writes scenarios of ``fine-tuning`` in fleets drawn at random, for policies that are to run in any fleet.

    python tools/random_fleets.py FOLDER [--count 20] [--seed 11]

A fleet has 2 to 12 sites in different zones of the packaged calibration, each with 60 to 160 GPUs and a PUE of 1.1 to
1.4, and 300 jobs a site in 48 hours; a site's share of the arrivals is drawn too. Everything else is the packaged
scenario's. ``docs/learning.md`` has the command that trains on them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from noonward.data.scenarios.load import load_scenario
from noonward.data.signals.calibration import load_calibration
from noonward.files import write_text

SITES: Final = (2, 12)
GPUS: Final = (60, 160)
PUE: Final = (1.1, 1.4)
JOBS_PER_SITE: Final = 300
WEIGHT: Final = (0.5, 3.0)
"""Limits of the weights by which arrivals are shared."""


def random_fleet(name: str, zones: list[str], rng: np.random.Generator) -> dict[str, Any]:
    """Returns the content of a scenario file: ``fine-tuning`` in a fleet drawn from zones.

    Args:
        name: Scenario's name.
        zones: Zones to draw from, at least 12.
        rng: Source of randomness.
    """
    count = int(rng.integers(SITES[0], SITES[1] + 1))
    drawn = [str(zone) for zone in rng.choice(zones, count, replace=False)]
    sites = [
        {
            "name": zone,
            "zone": zone,
            "gpu_type": "T4-class",
            "gpus": int(rng.integers(GPUS[0], GPUS[1] + 1)),
            "pue": round(float(rng.uniform(*PUE)), 2),
        }
        for zone in drawn
    ]
    weights = rng.uniform(*WEIGHT, count)
    shares = {zone: round(float(weight / weights.sum()), 4) for zone, weight in zip(drawn, weights, strict=True)}
    return {
        "extends": "fine-tuning",
        "name": name,
        "fleet": {"sites": sites},
        "jobs": {"count": JOBS_PER_SITE * count, "origin_shares": shares},
    }


def main() -> None:
    """Writes the scenarios and names them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=11)
    asked = parser.parse_args()
    zones, rng = sorted(load_calibration().zones), np.random.default_rng(asked.seed)
    asked.folder.mkdir(parents=True, exist_ok=True)
    for number in range(asked.count):
        content = random_fleet(f"fleet{number}", zones, rng)
        path = asked.folder / f"{content['name']}.yaml"
        write_text(path, yaml.safe_dump(content, sort_keys=False))
        load_scenario(path)
        print(path, ", ".join(site["name"] for site in content["fleet"]["sites"]))


if __name__ == "__main__":
    main()
