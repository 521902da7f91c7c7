"""Files of trained nets: typed blocks by net, and what the file says about them; no training library is needed."""

from __future__ import annotations

import functools
import json
import reprlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, FiniteFloat, StrictInt, StrictStr, ValidationError

from noonward.arrays import F4
from noonward.errors import DataError, nearest
from noonward.files import stored_arrays, whole_file

FORMAT: Final = 2
KEPT: Final = 16
"""Files whose entries a process keeps."""


class Training(BaseModel):
    """What every file's ``record`` says in the same way; it may say more.

    Attributes:
        months: Months that it learned from, ``train`` and ``validation``, 1 to 12.
        config: Settings of the training.
        curve: Figures per epoch.
    """

    months: dict[str, list[StrictInt]] = {}
    config: dict[str, Any] = {}
    curve: list[dict[str, Any]] = []


class Meta(BaseModel):
    """Types of what every file says about itself; a class derived from this one has the entries of a head.

    Attributes:
        algorithm: What trained it.
        scenario: Scenario it was trained in.
        head: What its outputs are.
        observation: What it is fed.
        record: How it was trained.
        constraints: Multipliers and excesses at the end of training.
        limits: Limits it was trained to keep.
    """

    model_config = ConfigDict(protected_namespaces=())

    algorithm: StrictStr
    scenario: StrictStr
    head: StrictStr
    observation: dict[str, Any]
    record: Training
    constraints: dict[str, FiniteFloat] = {}
    limits: dict[str, FiniteFloat] = {}


@dataclass(frozen=True)
class BlockType:
    """A type of block.

    Attributes:
        arrays: Number of axes of each of its arrays, by name.
        settings: Allowed values of each of its settings, by name.
    """

    arrays: Mapping[str, int]
    settings: Mapping[str, tuple[str, ...]]


BLOCKS: Final = {
    "dense": BlockType({"weight": 3, "bias": 2}, {"activation": ("none", "relu")}),
    "token-net": BlockType(
        {
            "embed_w": 3,
            "embed_b": 2,
            "mix_w": 2,
            "mix_b": 1,
            "after_w": 2,
            "after_b": 1,
            "norm_w": 1,
            "norm_b": 1,
            "pool_w": 2,
            "pool_b": 1,
            "seen_w": 2,
            "noisy_w": 2,
            "time_b": 2,
            "second_w": 2,
            "second_b": 1,
            "whole_w": 2,
            "whole_b": 1,
            "slot_whole_w": 2,
            "slot_token_w": 2,
            "slot_noisy_w": 1,
            "slot_b": 1,
            "score_w": 1,
            "score_b": 1,
            "keep_T": 1,
            "signal_T": 1,
        },
        {},
    ),
}
"""Types of blocks that this version reads and writes.

``dense``: ``activation(x W + b)`` for N nets side by side, weight [N, in, out] and bias [N, out]. ``token-net``: a
whole net over tokens with a score per place (``schedule.edge.trained_policy``). Another block needs an entry here and a
runner that knows it.
"""


@dataclass(frozen=True)
class Block:
    """A part of a net.

    Attributes:
        type: Name of its type in ``BLOCKS``.
        arrays: Its arrays by name.
        settings: Its settings by name.
    """

    type: str
    arrays: Mapping[str, NDArray[Any]]
    settings: Mapping[str, str]


def perceptron(weights: Sequence[F4], biases: Sequence[F4]) -> tuple[Block, ...]:
    """Returns dense blocks with ReLU after all but the last.

    Args:
        weights: Weights of the layers, [N, in, out].
        biases: Biases of the layers, [N, out].
    """
    last = len(weights) - 1
    return tuple(
        Block("dense", {"weight": weight, "bias": bias}, {"activation": "relu" if layer < last else "none"})
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True))
    )


def write_nets(
    path: Path,
    nets: Mapping[str, Sequence[Block]],
    meta: Mapping[str, Any],
    *,
    half: bool = False,
    exact: Collection[str] = (),
) -> None:
    """Writes nets, whole or not at all.

    The file is an ``.npz``: ``meta`` and ``nets`` are JSON, the second lists type and settings of every net's blocks;
    array A of block i of net X is the entry ``X/i/A``.

    Args:
        path: File, ``.npz``.
        nets: Blocks of each net, in the order in which they are computed, by the net's name.
        meta: What the file says about them; ``format`` is added.
        half: Store floating-point arrays as float16, half the size, rounded.
        exact: Names of the arrays that are never rounded.

    Raises:
        DataError: A block does not fit its type, or a value is too large for float16 (above 65,504).
    """
    arrays: dict[str, Any] = {}
    listed: dict[str, list[dict[str, str]]] = {}
    for net, blocks in nets.items():
        for place, block in enumerate(blocks):
            _check_block(block, f"{path}: block {place} of net {net!r}")
            arrays |= {f"{net}/{place}/{name}": array for name, array in block.arrays.items()}
        listed[net] = [{"type": block.type, **block.settings} for block in blocks]
    stored: dict[str, Any] = {
        name: _halved(array, path) if half and name.rsplit("/", 1)[1] not in exact else array
        for name, array in arrays.items()
    }
    content = {**meta, "format": FORMAT}
    with whole_file(path) as file:
        np.savez(file, meta=np.array(json.dumps(content)), nets=np.array(json.dumps(listed)), **stored)


def _halved(array: NDArray[Any], path: Path) -> NDArray[Any]:
    """Returns an array of floating-point numbers rounded to float16, any other as it is."""
    if not np.issubdtype(array.dtype, np.floating):
        return array
    largest = float(np.abs(array).max(initial=0.0))
    if largest > float(np.finfo(np.float16).max):
        raise DataError(f"{path}: a weight of {largest:g} does not fit float16 (at most 65,504); write it without half")
    return array.astype(np.float16)


def read_meta(path: Path) -> dict[str, Any]:
    """Returns what a file says about its nets; their arrays stay unread.

    Raises:
        DataError: The file is missing, damaged, or of another format.
    """
    return _meta_of(_entries(path, ("meta",)), path)


def read_nets(path: Path) -> tuple[dict[str, tuple[Block, ...]], dict[str, Any]]:
    """Returns a file's nets, floating-point arrays as float32, and what it says about them.

    Raises:
        DataError: The file is missing, damaged, of another format, or holds a block that this version does not know.
    """
    entries = _entries(path)
    meta = _meta_of(entries, path)
    listed = _json(entries, "nets", path)
    if not isinstance(listed, dict) or not all(_is_list_of_blocks(blocks) for blocks in listed.values()):
        raise DataError(f"{path} is damaged: its 'nets' is no list of blocks by net; export the policy again")
    nets = {}
    for net, blocks in listed.items():
        found = []
        for place, said in enumerate(blocks):
            where = f"{path}: block {place} of net {net!r}"
            settings = {name: value for name, value in said.items() if name != "type"}
            arrays = {}
            for name in _type_of(said["type"], where).arrays:
                entry = f"{net}/{place}/{name}"
                if entry not in entries:
                    raise DataError(f"{path} lacks the array {entry}; export the policy again")
                arrays[name] = _single(entries[entry])
            block = Block(said["type"], arrays, settings)
            _check_block(block, where)
            found.append(block)
        nets[net] = tuple(found)
    return nets, meta


def check_meta(meta: Mapping[str, Any], types: type[Meta], path: Path) -> None:
    """Raises DataError unless what a file says about itself is of the types that its readers rely on.

    Args:
        meta: What it says.
        types: Their types.
        path: File.
    """
    try:
        types.model_validate(meta)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "it"
        if first["type"] == "missing":
            raise DataError(f"{path}: meta lacks {place}; export the policy again") from error
        given = reprlib.repr(first["input"])
        raise DataError(f"{path}: meta has {place} {given}: {first['msg']}; export the policy again") from error


def _is_list_of_blocks(blocks: Any) -> bool:
    """Returns whether a value lists blocks: objects of strings, each with a type."""
    return isinstance(blocks, list) and all(
        isinstance(said, dict) and "type" in said and all(isinstance(value, str) for value in said.values())
        for said in blocks
    )


def _type_of(name: str, where: str) -> BlockType:
    """Returns the type of a block.

    Raises:
        DataError: There is no such type.
    """
    if name not in BLOCKS:
        raise DataError(f"{where} is of the unknown type {name!r}; use a newer version; {nearest(name, BLOCKS)}")
    return BLOCKS[name]


def _check_block(block: Block, where: str) -> None:
    """Raises DataError unless a block has the arrays and settings of its type."""
    kind = _type_of(block.type, where)
    if set(block.arrays) != set(kind.arrays) or set(block.settings) != set(kind.settings):
        raise DataError(
            f"{where} has {', '.join([*block.arrays, *block.settings])}; the type {block.type!r} has "
            f"{', '.join([*kind.arrays, *kind.settings])}"
        )
    for name, axes in kind.arrays.items():
        if block.arrays[name].ndim != axes:
            raise DataError(f"{where} has {name} of shape {block.arrays[name].shape}; it must have {axes} axes")
        if not np.issubdtype(block.arrays[name].dtype, np.floating):
            raise DataError(
                f"{where} has {name} of type {block.arrays[name].dtype}; it must hold floating-point numbers"
            )
    for name, allowed in kind.settings.items():
        if block.settings[name] not in allowed:
            given = block.settings[name]
            raise DataError(f"{where} has the unknown {name} {given!r}; {nearest(given, allowed)}")


def _entries(path: Path, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Returns the entries of a file, all or those of some names that it holds."""
    try:
        if names is not None:
            return stored_arrays(path, names)
        facts = path.stat()
        return _whole(path, facts.st_ino, facts.st_mtime_ns, facts.st_size)
    except (DataError, OSError) as error:
        why = (error.strerror or error) if isinstance(error, OSError) else error
        raise DataError(f"{path} is no trained policy: {why}; give a file that 'train --export' wrote") from error


@functools.lru_cache(maxsize=KEPT)
def _whole(path: Path, inode: int, time_ns: int, size: int) -> dict[str, NDArray[Any]]:
    """Returns the entries of a file, which is read once for as long as it stays the same."""
    return stored_arrays(path)


def _json(entries: Mapping[str, NDArray[Any]], name: str, path: Path) -> Any:
    """Returns the JSON of an entry."""
    try:
        return json.loads(str(entries[name]))
    except (KeyError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is no trained policy: its {name!r} is missing or no JSON; export it "
            "(noonward train --resume FOLDER --export FILE.npz)"
        ) from error


def _meta_of(entries: Mapping[str, NDArray[Any]], path: Path) -> dict[str, Any]:
    """Returns what a file says about itself, if it is of this format."""
    meta = _json(entries, "meta", path)
    found = meta.get("format") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or found != FORMAT:
        raise DataError(f"{path} is a policy of format {found}; this version reads format {FORMAT}; export it again")
    return meta


def _single(array: NDArray[Any]) -> NDArray[Any]:
    """Returns a copy of an array; what was stored as float16 as float32."""
    return array.astype(np.float32 if array.dtype == np.float16 else array.dtype)
