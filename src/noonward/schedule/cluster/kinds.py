"""Kinds of sites as planners look them up: a job has one option per kind, and those of where it waits and its home.

Where every site is a kind by itself a job has one option per site, in the order of the sites.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from noonward.arrays import F8, I8, Records
from noonward.compiled import kernel
from noonward.decision.brief import Brief
from noonward.model.cluster.site_kinds import site_kinds

KIND: Final = np.dtype([("begin", "i8"), ("sites", "i8")])
"""Position in ``site_M`` of the first site of a kind, and how many there are."""


class Kinds(NamedTuple):
    """Kinds of sites, one entry X per kind."""

    kind_X: Records
    """The kinds."""
    site_M: I8
    """The sites, kind after kind."""
    kind_S: I8
    """The kind of each site."""

    @classmethod
    def of(cls, brief: Brief, largest_gang: int, exact_sites: int) -> Kinds:
        """Returns the kinds of a run's sites.

        Args:
            brief: Brief of the run.
            largest_gang: Largest gang of any job, GPUs.
            exact_sites: Sites up to which each is a kind by itself.
        """
        sites = len(brief.sites)
        kind_S = np.arange(sites) if sites <= exact_sites else site_kinds(brief, largest_gang)
        kind_X = np.zeros(int(kind_S.max()) + 1, KIND)
        kind_X["sites"] = np.bincount(kind_S)
        kind_X["begin"] = np.cumsum(kind_X["sites"]) - kind_X["sites"]
        return cls(kind_X, np.argsort(kind_S, kind="stable"), kind_S)

    @property
    def options(self) -> int:
        """Options of a job: one per kind, and two more where kinds hold several sites."""
        kinds = len(self.kind_X)
        return kinds if kinds == len(self.kind_S) else kinds + 2

    def mean(self, value_SH: F8) -> F8:
        """Returns values by site and hour with those of each kind replaced by their mean."""
        if len(self.kind_X) == len(self.kind_S):
            return value_SH
        sum_XH = np.zeros((len(self.kind_X), value_SH.shape[1]))
        np.add.at(sum_XH, self.kind_S, value_SH)
        return np.asarray((sum_XH / self.kind_X["sites"][:, None])[self.kind_S])


@kernel(inline=True, allocates=False)
def option_site(kinds: Kinds, x: int, s: int, home: int) -> int:
    """Returns the site that an option of a job is described at, or -1.

    Options beyond the kinds are those of where a job waits and of its home, where they are of a kind with other sites:
    they are not alike to the job.

    Args:
        kinds: Kinds of the sites.
        x: Option.
        s: Site the job waits at.
        home: Its home, or -1.
    """
    if x < kinds.kind_X.shape[0]:
        kind = kinds.kind_X[x]
        for m in range(kind.begin, kind.begin + kind.sites):
            d = kinds.site_M[m]
            if kind.sites == 1 or (d != s and d != home):
                return int(d)
        return -1
    d = s if x == kinds.kind_X.shape[0] else home
    if d < 0 or kinds.kind_X[kinds.kind_S[d]].sites == 1 or (x > kinds.kind_X.shape[0] and d == s):
        return -1
    return int(d)


@kernel(inline=True, allocates=False)
def sites_of(kinds: Kinds, x: int) -> int:
    """Returns how many sites an option may be of."""
    return int(kinds.kind_X[x].sites) if x < kinds.kind_X.shape[0] else 1


@kernel(inline=True, allocates=False)
def member(kinds: Kinds, x: int, i: int, described: int, s: int, home: int) -> int:
    """Returns a site that an option is of, or -1 where it has an option of its own.

    Args:
        kinds: Kinds of the sites.
        x: Option.
        i: Number among the sites of its kind; it counts in a circle.
        described: Site that the option is described at.
        s: Site the job waits at.
        home: Its home, or -1.
    """
    count = sites_of(kinds, x)
    if count == 1:
        return described
    d = kinds.site_M[kinds.kind_X[x].begin + i % count]
    return -1 if d in (s, home) else int(d)
