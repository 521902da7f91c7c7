"""Export: the best policy of a run as a file that needs no torch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noonward import __version__
from noonward.errors import DataError
from noonward.learn.core.checkpoint import load_checkpoint
from noonward.learn.train.trainer import CHECKPOINT, best_of, read_config


def export_policy(
    folder: Path, path: Path, *, half: bool = False, further: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Writes the policy of highest validation reward of a run; returns what the file says of it.

    The record in the file says how the policy was trained: config (names of files without their folders), months and
    seeds, versions, the curves of every epoch, and what the task finds of the policy as the file holds it, run by its
    own runner in the validation environments (cluster: ``validation_utility_usd``, the mean utility).

    Args:
        folder: Folder of the run.
        path: File to write, ``.npz``.
        half: Store weights and biases as float16: half the size, rounded.
        further: Further fields of the record.

    Raises:
        DataError: The folder holds no run, or none of its epochs has been validated.
    """
    config = read_config(folder)
    kept = load_checkpoint(folder / CHECKPOINT)
    config = dataclasses.replace(config, epochs=kept["epoch"])
    best = best_of(kept)
    task = config.open()
    if task.write is None:
        raise DataError(f"the task of {folder} has no format for its policies; it cannot be exported")
    said = {**best.meta, **task.about}
    record = {
        "summary": f"{config.algorithm}, trained on {said['scenario']} with seed {config.seed} up to epoch "
        f"{kept['best_epoch']} of {kept['epoch']}.",
        "config": _without_folders(json.loads(config.to_json())),
        **task.record,
        "versions": {"noonward": __version__, "torch": torch.__version__, "numpy": np.__version__},
        "best_epoch": kept["best_epoch"],
        task.reward_name: kept["best_reward"],
        "curve": kept["curves"],
        **(further or {}),
    }
    meta = {"format": 1, **said, "record": record}
    task.write(path, best.weights, best.biases, meta, half=half)
    if task.judged is not None:
        record.update(task.judged(path, config.validation_environments))
        task.write(path, best.weights, best.biases, meta, half=half)
    return meta


def _without_folders(config: dict[str, Any]) -> dict[str, Any]:
    """Returns a config whose files are named without the folders they lie in."""
    sources = [
        {
            **source,
            "scenario": Path(source["scenario"]).name,
            "signals": [Path(each).name for each in source["signals"]],
            "jobs": None if source["jobs"] is None else Path(source["jobs"]).name,
        }
        for source in config["sources"]
    ]
    return {**config, "sources": sources}
