"""Trained policies that ship with the package: which there are, by name and training seed, and how they came about."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from noonward.forecasts.learned import SEEDS, SMALL, net_path, packaged_record
from noonward.schedule.cluster.trained_policy import read_meta

FOLDER: Final = Path(__file__).parent / "trained"
"""Where they lie: ``NAME.npz``, and ``NAME-seed1.npz`` and so on (other training seeds, same configuration)."""
_SEED = re.compile(r"-seed(\d+)$")


@dataclass(frozen=True, kw_only=True)
class PolicyFile:
    """A packaged policy.

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


def trained_policies(folder: Path = FOLDER, read: Callable[[Path], dict[str, Any]] = read_meta) -> list[PolicyFile]:
    """Returns the policies of a folder, by family, the one without a seed in its name first, then by training seed.

    Args:
        folder: Folder; by default the package's for clusters.
        read: Reads what a file says about itself.

    Raises:
        DataError: A file is damaged or of another format.
    """
    found = []
    for path in folder.glob("*.npz"):
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


def planners() -> list[PolicyFile]:
    """Returns ``masac-plus``, by training seed: bid prices under the forecast of a packaged net.

    What learned here is the net: it was trained on signals alone, for the sites of ``fine-tuning``, at which
    ``reproduce`` compares it. It runs wherever the net knows the zones.
    """
    said = "Bid prices under a forecast by a net that was trained on signals, with seed {}."
    return [
        _planner("masac-plus", seed, net_path(seed), {"summary": said.format(seed), **packaged_record(seed)})
        for seed in range(SEEDS)
    ]


def priced_planners() -> list[PolicyFile]:
    """Returns ``bid-price-learned``, by training seed: bid prices under the forecast of the small net of the seed.

    Their capacity prices start from those that the packaged ``masac-credit`` of the seed has learned.
    """
    said = "Bid prices under a net's forecasts; they start from learned ones, seed {}."
    return [
        _planner(
            "bid-price-learned", seed, price_path(seed), {**packaged_record(SMALL[seed]), "summary": said.format(seed)}
        )
        for seed in range(SEEDS)
    ]


def price_path(seed: int) -> Path:
    """Returns the file of the packaged ``masac-credit`` of a training seed, which holds a learned price of capacity."""
    return FOLDER / f"{seed_name('masac-credit', seed)}.npz"


def _planner(family: str, seed: int, path: Path, record: dict[str, Any]) -> PolicyFile:
    """Returns a policy that plans by something learned, for the sites of ``fine-tuning``."""
    meta = {
        "algorithm": family,
        "scenario": "fine-tuning",
        "protocol": "each-slot",
        "sites": record["zones"][:5],  # sites of fine-tuning bear the names of their zones
        "record": record,
    }
    return PolicyFile(name=seed_name(family, seed), family=family, seed=seed, path=path, meta=meta)
