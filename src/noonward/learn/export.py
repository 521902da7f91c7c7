"""Export: the best policy of a run as a file that needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noonward import __version__
from noonward.data.splits import MONTHS, split_seed
from noonward.learn.checkpoint import load_checkpoint
from noonward.learn.sources import about_policy
from noonward.learn.trainer import CHECKPOINT, best_of, read_config
from noonward.schedule.trained_policy import write_policy


def export_policy(folder: Path, path: Path) -> dict[str, Any]:
    """Writes the policy of highest validation reward of a run; returns what the file says of it.

    Args:
        folder: Folder of the run.
        path: File to write, ``.npz``.

    Raises:
        DataError: The folder holds no run, or none of its epochs has been validated.
    """
    config = read_config(folder)
    kept = load_checkpoint(folder / CHECKPOINT)
    best = best_of(kept)
    record = {
        "config": json.loads(config.to_json()),
        "months": {part: months for part, months in MONTHS.items() if part != "test"},
        "seeds": {"train": split_seed("train", config.seed), "validation": split_seed("validation", 0)},
        "versions": {"noonward": __version__, "torch": torch.__version__, "numpy": np.__version__},
        "best_epoch": kept["best_epoch"],
        "validation_reward_usd": kept["best_reward"],
        "curve": kept["curves"],
    }
    beside = {} if config.adviser is None else {"adviser": config.adviser}
    meta = {"format": 1, **best.meta, **beside, **about_policy(config), "record": record}
    write_policy(path, best.weights, best.biases, meta)
    return meta
