"""What a decision notes of every site, as JSON: decisions share a text while no site changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from noonward.arrays import U1, Records
from noonward.live.world.held import SEEN

_DIGITS: Final = bytes.maketrans(bytes((0, 1)), b"01")


def candidates_of(sites: str, feasible: str) -> list[dict[str, Any]]:
    """Returns a row per site from both texts (``CandidateTexts``)."""
    rows: list[dict[str, Any]] = msgspec.json.decode(sites)
    return [
        {"site": row.pop("site"), "feasible": digit == "1", **row} for row, digit in zip(rows, feasible, strict=True)
    ]


class CandidateTexts:
    """Texts of candidates: free GPUs, queue, price and intensity of every site, and which are feasible for a job.

    The former are the same for all jobs. A site's part of them is written again only where it has changed.

    Args:
        sites: Names of the sites, S.

    Attributes:
        seen_SX: Fields ``SEEN`` of the sites in the last text.
    """

    def __init__(self, sites: Sequence[str]) -> None:
        self._sites = sites
        self.seen_SX = np.full((len(sites), len(SEEN)), -np.inf)
        self._parts = [""] * len(sites)
        self._text: str | None = None
        self._shared: dict[str, str] = {}
        self._last: dict[int, tuple[str, str]] = {}
        """Both texts of each asker."""

    def of(self, asker: int, mask_A: U1, site_S: Records) -> tuple[str, str]:
        """Returns both texts for the job of an asker: a row per site, and for each site 1 where it is feasible, else 0.

        Args:
            asker: Number of the asker.
            mask_A: What is feasible for the job: holding it, then each site.
            site_S: Sites, as a view shows them.
        """
        self._renew(site_S)
        if self._text is None:
            self._text = self._only(f"[{','.join(self._parts)}]")
        feasible = self._only(mask_A[1:].tobytes().translate(_DIGITS).decode())
        self._last[asker] = self._text, feasible
        return self._last[asker]

    def last(self, asker: int) -> tuple[str, str]:
        """Returns the texts for the last job of an asker that ``of`` was asked about."""
        return self._last[asker]

    def forget(self) -> None:
        """Drops the texts, which were stored: no other job will share them."""
        self._shared = {} if self._text is None else {self._text: self._text}

    def _only(self, text: str) -> str:
        """Returns the one text that is equal to another one."""
        return self._shared.setdefault(text, text)

    def _renew(self, site_S: Records) -> None:
        """Writes the parts of the sites that have changed."""
        seen_SX = np.empty((len(site_S), len(SEEN)))
        for n, name in enumerate(SEEN):
            seen_SX[:, n] = site_S[name]
        # bit by bit: a price that stays unknown has not changed
        changed_SX = seen_SX.view(np.int64) != self.seen_SX.view(np.int64)
        for s in np.flatnonzero(changed_SX.any(axis=1)).tolist():
            self._parts[s] = _part(self._sites[s], *seen_SX[s].tolist())
            self._text = None
        self.seen_SX = seen_SX


def _part(site: str, free: float, waiting: float, price: float, carbon: float) -> str:
    """Returns a site's part of a text."""
    row = {
        "site": site,
        "free": int(free),
        "waiting": int(waiting),
        "price_usd_per_mwh": _known(price),
        "carbon_g_per_kwh": _known(carbon),
    }
    return msgspec.json.encode(row).decode()


def _known(value: float) -> float | None:
    """Returns a value, or None where it is unknown."""
    return None if value != value else value
