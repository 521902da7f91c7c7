"""Trained policies for clusters that ship with the package, and planners by something learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from noonward.forecasts.learned import SEEDS, SMALL, net_path, packaged_record
from noonward.schedule.cluster.trained_policy import read_meta
from noonward.schedule.trained_files import PolicyFile, seed_name, trained_files

FOLDER: Final = Path(__file__).parent / "trained"
"""Where they lie; those of further training seeds lie in a folder of the repository (``policies.NETS``)."""


def trained_policies(*folders: Path) -> list[PolicyFile]:
    """Returns the policies of some folders, as ``trained_files`` does; by default those that ship with the package.

    Raises:
        DataError: A file is damaged or of another format.
    """
    return trained_files(folders or (FOLDER,), read_meta)


def planners() -> list[PolicyFile]:
    """Returns ``bid-price-neural``, by training seed: bid prices under the forecast of a packaged net.

    What learned here is the net: it was trained on signals alone, for the sites of ``fine-tuning``, at which
    ``reproduce`` compares it. It runs wherever the net knows the zones.
    """
    said = "Plans every hour by a price of GPUs and the forecast of a net trained on prices and carbon, seed {}."
    return [
        _planner("bid-price-neural", seed, net_path(seed), {"summary": said.format(seed), **packaged_record(seed)})
        for seed in range(SEEDS)
    ]


def priced_planners() -> list[PolicyFile]:
    """Returns ``bid-price-learned``, by training seed: bid prices under the forecast of the small net of the seed.

    Their capacity prices start from those that the packaged ``masac-credit`` of the seed has learned.
    """
    said = "Plans every hour by a price of GPUs, which starts from a learned one, and a net's forecasts, seed {}."
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
