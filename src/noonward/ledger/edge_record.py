"""Run records of the edge settings: a folder a run with its manifest, tasks and ledger; same seed, same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from noonward.files import table_bytes
from noonward.ledger.edge import EdgeLedger, EdgeOutcome, settle_edge, settle_tasks
from noonward.ledger.folder import FORMAT, damaged, json_bytes, read_json_files, read_table
from noonward.ledger.machine import machine, versions
from noonward.model.edge.environment import EdgeEnvironment
from noonward.sources import package_digest

if TYPE_CHECKING:
    import polars as pl

FILES: Final = ("manifest.json", "tasks.parquet", "ledger.json")
"""Files of a record."""


@dataclass(frozen=True, kw_only=True)
class EdgeRecord:
    """A run read back from its folder.

    Attributes:
        folder: Where it lies.
        manifest: What was run.
        ledger: Its ledger.
    """

    folder: Path
    manifest: dict[str, Any]
    ledger: EdgeLedger

    @property
    def tasks(self) -> pl.DataFrame:
        """One row a task (``task_table``)."""
        return read_table(self.folder, "tasks.parquet")


def edge_environment_digest(environment: EdgeEnvironment) -> str:
    """Returns a digest of everything a run reads of its environment: equal for runs that are paired."""
    said = [environment.start.isoformat(), environment.setting.digest, list(environment.notes)]
    digest = hashlib.sha256(json.dumps(said).encode())
    digest.update(environment.tasks.record_K.tobytes())
    digest.update(np.ascontiguousarray(environment.site_signals.value_QSH).tobytes())
    return digest.hexdigest()[:16]


def edge_record_files(
    outcome: EdgeOutcome,
    *,
    policy: str,
    seed: int,
    scenario_digest: str,
    code: str | None = None,
    notes: Sequence[str] = (),
) -> dict[str, bytes]:
    """Returns the content of a run's record by file name.

    Args:
        outcome: The run.
        policy: Name of the policy.
        seed: Seed of the policy's streams.
        scenario_digest: Digest of the scenario.
        code: Digest of the sources that the run rests on; by default that of the whole package.
        notes: What a reader must know beside the environment's notes.
    """
    environment = outcome.environment
    servers = environment.setting.servers
    manifest = {
        "kind": "edge",
        "format": FORMAT,
        "scenario": environment.scenario,
        "scenario_digest": scenario_digest,
        "environment": environment.index,
        "environment_seed": environment.seed,
        "environment_digest": edge_environment_digest(environment),
        "start": environment.start.isoformat(),
        "window_s": environment.window_s,
        "ended_s": outcome.ended_s,
        "policy": policy,
        "policy_seed": seed,
        "servers": servers.count,
        "zone": servers.zone,
        "notes": [*environment.notes, *notes],
        "versions": {**versions(), "code": code or package_digest()},
        "machine": machine(),
    }
    ledger = settle_edge(outcome)
    return {
        "tasks.parquet": table_bytes(task_table(outcome), ".parquet", "lz4"),
        "ledger.json": json_bytes(ledger.as_dict()),
        "manifest.json": json_bytes(manifest),
    }


def read_edge_record(folder: Path) -> EdgeRecord:
    """Returns a run from its folder.

    Raises:
        DataError: The folder is no complete record, is damaged, or is of another format.
    """
    contents = read_json_files(folder, FILES)
    try:
        ledger = EdgeLedger.from_dict(contents["ledger"])
    except (KeyError, TypeError, AttributeError) as error:  # whole, but written by something else
        raise damaged(folder, f"its ledger is none of this version ({error})") from error
    return EdgeRecord(folder=folder, manifest=contents["manifest"], ledger=ledger)


def task_table(outcome: EdgeOutcome) -> pl.DataFrame:
    """Returns one row a task: what was asked, what became of it, and what it used, cost and emitted.

    Times are seconds since the run's start. ``servers`` lists the servers that took part.
    """
    import polars as pl

    record_K, settled = outcome.environment.tasks.record_K, settle_tasks(outcome)
    amounts_KA = settled.run_KA + settled.load_KA
    launched_K, steps_K = outcome.launched_K, outcome.task_K["steps"]
    members = [[n for n in range(word.bit_length()) if word >> n & 1] for word in outcome.task_K["servers"].tolist()]
    return pl.DataFrame(
        {
            "submitted_s": record_K["stamp_s"],
            "gang": record_K["gang"],
            "model": record_K["model"],
            "start_s": outcome.start_s_K,
            "finish_s": outcome.finish_s_K,
            "response_s": outcome.response_s_K,
            "loaded": launched_K & (outcome.task_K["loaded"] == 1),
            "load_s": outcome.load_s_K,
            "steps": np.where(launched_K, steps_K, np.nan),
            "quality": np.where(launched_K, outcome.task_K["quality"], np.nan),
            "servers": pl.Series(members, dtype=pl.List(pl.Int64)),
            "energy_kwh": amounts_KA[:, 0],
            "energy_usd": amounts_KA[:, 1],
            "carbon_kg": amounts_KA[:, 2],
        }
    )
