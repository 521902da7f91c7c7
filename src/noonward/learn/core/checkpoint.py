"""Checkpoints: everything a run consists of in one file, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from noonward.errors import DataError
from noonward.files import whole_file

FORMAT: Final = 1
PLAIN: Final = "plain.json"
"""Entry that holds everything that is no array."""
Tree = dict[str, Any]
"""Nested dictionaries of arrays, tensors and plain values (what JSON knows); keys are words without ``|``."""


def save_checkpoint(path: Path, tree: Tree) -> None:
    """Writes a tree, whole or not at all."""
    arrays: dict[str, Any] = {}
    plain: dict[str, Any] = {"format": FORMAT, "values": {}, "empty": []}
    _flatten(tree, "", arrays, plain)
    arrays[PLAIN] = np.frombuffer(json.dumps(plain).encode(), np.uint8)
    with whole_file(path) as file:
        np.savez(file, **arrays)


def load_checkpoint(path: Path) -> Tree:
    """Reads a tree; tensors come back as arrays.

    Raises:
        DataError: The file is missing, damaged, or of another format.
    """
    if not path.is_file():
        raise DataError(f"there is no checkpoint {path}; give the folder of a training run that has finished an epoch")
    tree: Tree = {}
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            plain = json.loads(bytes(file[PLAIN]))
            for key in file.files:
                if key != PLAIN:
                    _put(tree, key, file[key])
    except Exception as error:
        raise DataError(f"checkpoint {path} cannot be read: {error}; take another one or train again") from error
    if plain["format"] != FORMAT:
        raise DataError(f"checkpoint {path} has format {plain['format']}; this version reads {FORMAT}; train again")
    for key, value in plain["values"].items():
        _put(tree, key, value)
    for key in plain["empty"]:
        _put(tree, key, {})
    return tree


def _flatten(tree: Mapping[str, Any], before: str, arrays: dict[str, Any], plain: dict[str, Any]) -> None:
    """Sorts the leaves of a tree into arrays and plain values, named by their path."""
    for name, value in tree.items():
        key = f"{before}|{name}" if before else name
        if isinstance(value, Mapping):
            _flatten(value, key, arrays, plain)
            if not value:
                plain["empty"].append(key)
        elif isinstance(value, torch.Tensor):
            arrays[key] = value.detach().cpu().numpy()
        elif isinstance(value, np.ndarray):
            arrays[key] = value
        else:
            plain["values"][key] = value


def _put(tree: Tree, key: str, value: Any) -> None:
    """Puts a leaf in its place."""
    *path, last = key.split("|")
    for name in path:
        tree = tree.setdefault(name, {})
    tree[last] = value
