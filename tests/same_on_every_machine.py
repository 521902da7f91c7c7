"""Runs small environments under policies of every family and writes a digest of each record to a file."""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.ledger.record import write_record
from noonward.schedule.policies import make_scheduler

RECORDED = ("jobs.parquet", "hours.parquet", "ledger.json", "service.json")
"""Files of a record that hold results; its manifest also names the versions."""
SETTINGS = {
    "fine-tuning": ("window_h=12", "jobs.count=60"),
    "dvfs-training": ("window_h=2",),
    "dvfs-mixed": ("window_h=2",),
    "load-shaping": (),
}
"""What makes a scenario small."""


def digest(scenario_name: str, policy: str) -> str:
    """Returns a digest of one run's environment and record."""
    scenario = load_scenario(scenario_name, SETTINGS[scenario_name])
    outcome = run(build_environment(scenario, 0, 3), make_scheduler(policy), seed=3)
    with tempfile.TemporaryDirectory() as folder:
        record = write_record(outcome, Path(folder) / "run", policy=policy, seed=3, scenario_digest=scenario_name)
        found = hashlib.sha256(record.manifest["environment_digest"].encode())
        for file in RECORDED:
            found.update((record.folder / file).read_bytes())
    return found.hexdigest()


if __name__ == "__main__":
    pairs = [pair.split("/") for pair in sys.argv[2:]]
    Path(sys.argv[1]).write_text(json.dumps({"/".join(pair): digest(*pair) for pair in pairs}))
