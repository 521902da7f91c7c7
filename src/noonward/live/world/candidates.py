"""What a decision notes of every site, as JSON: what has changed since another decision, or all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from noonward.arrays import U1, Records
from noonward.live.world.held import SEEN
from noonward.units import HOUR_S

MOST_CHANGES: Final = 32
"""Changes that follow each other, at most, until all sites are noted again."""
MOST_SHARE: Final = 0.25
"""Share of the sites up to which they are noted as a change."""
_DIGITS: Final = bytes.maketrans(bytes((0, 1)), b"01")


def candidates_of(rows: Sequence[dict[str, Any]], feasible: str) -> list[dict[str, Any]]:
    """Returns what is shown of each site: what a decision saw of it, and whether it was feasible for the job.

    Args:
        rows: A row per site (``changed_rows``).
        feasible: For each site 1 where it was feasible, else 0.
    """
    return [{"site": row["site"], "feasible": digit == "1", **row} for row, digit in zip(rows, feasible, strict=True)]


def changed_rows(rows: Sequence[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """Returns a row per site, those of a text in the place of the others of the same sites.

    Args:
        rows: A row per site; empty where the text has one for each.
        text: Rows as JSON.
    """
    new: list[dict[str, Any]] = msgspec.json.decode(text)
    if not rows:
        return new
    by_site = {row["site"]: row for row in new}
    return [by_site.get(row["site"], row) for row in rows]


class Seen:
    """What decisions saw of the sites at a time.

    Args:
        text: A row per site, as JSON: free GPUs, waiting jobs, price and intensity of the hour; of the changed sites
            alone where there is a base.
        now_s: Time, s.
        base: What it changes.

    Attributes:
        at_s: When all sites were noted, s.
        changes: How many changes of that it rests on, itself included.
        id: Digest of it and all that it rests on.
        stored: Whether the store has it.
    """

    __slots__ = ("at_s", "base", "changes", "id", "stored", "text")

    def __init__(self, text: str, now_s: float, base: Seen | None = None) -> None:
        self.text, self.base, self.stored = text, base, False
        self.at_s: float = now_s if base is None else base.at_s
        self.changes: int = 0 if base is None else base.changes + 1
        before = "" if base is None else base.id
        self.id: str = hashlib.blake2b((before + text).encode(), digest_size=16).hexdigest()

    def unstored(self, known: Container[str]) -> list[Seen]:
        """Returns what the store lacks, bases first; none of those whose digest is known, nor what they rest on."""
        found: list[Seen] = []
        each: Seen | None = self
        while each is not None and not each.stored and each.id not in known:
            found.append(each)
            each = each.base
        return found[::-1]


class CandidateTexts:
    """Texts of candidates: what is seen of every site, and which are feasible for a job.

    What is seen of the sites is the same for all jobs. While few of them change, only their rows are noted again.

    Args:
        sites: Names of the sites, S.

    Attributes:
        seen_SX: Fields ``SEEN`` of the sites as they were noted last.
    """

    def __init__(self, sites: Sequence[str]) -> None:
        self._sites = sites
        self.seen_SX = np.full((len(sites), len(SEEN)), -np.inf)
        self._parts = [""] * len(sites)
        self._seen: Seen | None = None
        self._shared: dict[str, str] = {}
        self._last: dict[int, tuple[Seen, str]] = {}
        """Both of each asker."""

    def of(self, asker: int, mask_A: U1) -> tuple[Seen, str]:
        """Returns what the asker of a job sees, and for each site 1 where it is feasible, else 0; ``look`` comes first.

        Args:
            asker: Number of the asker.
            mask_A: What is feasible for the job: holding it, then each site.
        """
        assert self._seen is not None, "look comes first"
        feasible = mask_A[1:].tobytes().translate(_DIGITS).decode()
        self._last[asker] = self._seen, self._shared.setdefault(feasible, feasible)
        return self._last[asker]

    def last(self, asker: int) -> tuple[Seen, str]:
        """Returns both for the last job of an asker that ``of`` was asked about."""
        return self._last[asker]

    def forget(self) -> None:
        """Drops the texts of feasible sites, which were stored: no other job will share them."""
        self._shared = {}

    def look(self, site_S: Records, now_s: float) -> None:
        """Notes what all askers of a question see of the sites.

        After an hour all is noted again: what is stored is deleted when it is old and nothing stored names it.

        Args:
            site_S: Sites, as a view shows them.
            now_s: Time, s.
        """
        seen_SX = np.empty((len(site_S), len(SEEN)))
        for n, name in enumerate(SEEN):
            seen_SX[:, n] = site_S[name]
        # bit by bit: a price that stays unknown has not changed
        changed_SX = seen_SX.view(np.int64) != self.seen_SX.view(np.int64)
        changed = np.flatnonzero(changed_SX.any(axis=1)).tolist()
        for s in changed:
            self._parts[s] = _part(self._sites[s], *seen_SX[s].tolist())
        self.seen_SX, base = seen_SX, self._seen
        if base is not None and now_s - base.at_s >= HOUR_S:
            base = None
        if base is not None and not changed:
            return
        if base is not None and (len(changed) > MOST_SHARE * len(self._sites) or base.changes >= MOST_CHANGES):
            base = None
        parts = self._parts if base is None else [self._parts[s] for s in changed]
        self._seen = Seen(f"[{','.join(parts)}]", now_s, base)


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
