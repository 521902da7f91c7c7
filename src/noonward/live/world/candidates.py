"""What a decision notes of every site, as JSON: a site's part is written again only where it has changed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from noonward.arrays import U1, Records
from noonward.live.world.held import SEEN


class CandidateTexts:
    """Texts of candidates: whether a site is feasible for a job, its free GPUs, queue, price and intensity.

    Jobs that are held one after the other share a text.

    Args:
        sites: Names of the sites, S.

    Attributes:
        seen_SX: Fields ``SEEN`` of the sites in the last text.
    """

    def __init__(self, sites: Sequence[str]) -> None:
        self._sites = sites
        self.seen_SX = np.full((len(sites), len(SEEN)), -np.inf)
        self._parts: list[tuple[str, str]] = [("", "")] * len(sites)
        self._shared: dict[str, str] = {}
        self._state = 0
        """How often the sites have changed."""
        self._last: dict[int, tuple[int, bytes, str]] = {}
        """Of each asker: state of the sites, mask, text."""

    def of(self, asker: int, mask_A: U1, site_S: Records) -> str:
        """Returns the text for the job of an asker.

        Args:
            asker: Number of the asker.
            mask_A: What is feasible for the job: holding it, then each site.
            site_S: Sites, as a view shows them.
        """
        self._renew(site_S)
        mask = mask_A.tobytes()
        state, before, text = self._last.get(asker, (-1, b"", ""))
        if (state, before) != (self._state, mask):
            parts = zip(self._parts, mask_A[1:].tolist(), strict=True)
            text = f"[{','.join([part[feasible] for part, feasible in parts])}]"
            text = self._shared.setdefault(text, text)
            self._last[asker] = self._state, mask, text
        return text

    def last(self, asker: int) -> str:
        """Returns the text for the last job of an asker that ``of`` was asked about."""
        return self._last[asker][2]

    def forget(self) -> None:
        """Drops the texts, which were stored: no other job will share them."""
        self._shared = {}

    def _renew(self, site_S: Records) -> None:
        """Writes the parts of the sites that have changed."""
        seen_SX = np.empty((len(site_S), len(SEEN)))
        for n, name in enumerate(SEEN):
            seen_SX[:, n] = site_S[name]
        # bit by bit: a price that stays unknown has not changed
        changed_SX = seen_SX.view(np.int64) != self.seen_SX.view(np.int64)
        for s in np.flatnonzero(changed_SX.any(axis=1)).tolist():
            no, yes = (_part(self._sites[s], feasible, *seen_SX[s].tolist()) for feasible in (False, True))
            self._parts[s] = no, yes
            self._state += 1
        self.seen_SX = seen_SX


def _part(site: str, feasible: bool, free: float, waiting: float, price: float, carbon: float) -> str:
    """Returns a site's part of a text."""
    row = {
        "site": site,
        "feasible": feasible,
        "free": int(free),
        "waiting": int(waiting),
        "price_usd_per_mwh": _known(price),
        "carbon_g_per_kwh": _known(carbon),
    }
    return msgspec.json.encode(row).decode()


def _known(value: float) -> float | None:
    """Returns a value, or None where it is unknown."""
    return None if value != value else value
