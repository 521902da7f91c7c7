"""Files of trained policies in a folder: which there are, by name and training seed, and how they came about."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SEED = re.compile(r"-seed(\d+)$")


@dataclass(frozen=True, kw_only=True)
class PolicyFile:
    """A trained policy's file.

    Attributes:
        name: Name it is registered by: that of its file.
        family: Name without the seed.
        seed: Training seed: that of the name, else that of the record, else 0.
        path: File.
        meta: What the file says about itself (``write_policy``).
    """

    name: str
    family: str
    seed: int
    path: Path
    meta: dict[str, Any] = field(repr=False)

    @property
    def summary(self) -> str:
        """How it came about, in a line."""
        said = f"{self.meta['algorithm']}, trained on {self.meta['scenario']} with seed {self.seed}."
        return str(self.meta["record"].get("summary", said))


def trained_files(folders: Iterable[Path], read: Callable[[Path], dict[str, Any]]) -> list[PolicyFile]:
    """Returns the policies of some folders, by family, the one without a seed in its name first, then by training seed.

    Args:
        folders: Folders of files: ``NAME.npz``, and ``NAME-seed1.npz`` and so on for other training seeds of the same
            configuration.
        read: Reads what a file says about itself.

    Raises:
        DataError: A file is damaged or of another format.
    """
    found = []
    for path in (path for folder in folders for path in folder.glob("*.npz")):
        named, meta = _SEED.search(path.stem), read(path)
        seed = int(named[1]) if named else int(meta["record"].get("config", {}).get("seed", 0))
        found.append(
            PolicyFile(name=path.stem, family=_SEED.sub("", path.stem), seed=seed, path=path, meta=meta),
        )
    return sorted(found, key=lambda each: (each.family, each.name != each.family, each.seed))


def by_family(files: Iterable[PolicyFile | None]) -> dict[str, list[PolicyFile]]:
    """Returns packaged policies by the name they have without the seed; None, for what is not trained, is left out."""
    found: dict[str, list[PolicyFile]] = {}
    for file in files:
        if file is not None:
            found.setdefault(file.family, []).append(file)
    return found


def seed_name(family: str, seed: int) -> str:
    """Returns the name of a family's policy of a training seed; that of seed 0 is the family's."""
    return family if seed == 0 else f"{family}-seed{seed}"
