"""A fleet of many sites, bounded and scheduled: sites of one kind as one site, and the fleet in parts.

The former is a relaxation of an environment, so that its bound bounds the environment; the latter a restriction, so
that schedules of all parts are one of the environment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.site_kinds import site_kinds
from noonward.model.cluster.withheld import Withheld
from noonward.model.network import Links

LINK_QUANTITIES: Final = ("latency_s_IS", "seconds_per_gb_IS", "usd_per_gb_IS", "kwh_per_gb_IS")
"""What links state by ingress point and site."""


def merged_sites(environment: Environment) -> tuple[Environment, I8]:
    """Returns an environment in which the sites of every kind (``site_kinds``) are one site with all their GPUs.

    No schedule of the environment is worth more than the best of this one: a job runs there as it does here, gangs may
    span the sites of a kind, journeys between them cost and take nothing, and journeys between kinds the least of any
    pair of their sites. An idle fleet draws as much. So every bound of it bounds the environment.

    Environments that state anything else by site, or whose ingress points are not their sites (``each-slot`` needs
    that), are returned as they are; so are those in which every site is a kind by itself. What a bound does not read of
    an environment (capacity curves, what is told of jobs, tenants, grid events) is left out.

    Returns:
        (environment, the site in it of every site).
    """
    by_site = (environment.pue, environment.solar, environment.plants, environment.stated_prices, environment.standing)
    kind_S = site_kinds(environment, int(environment.jobs.gpus_max_J.max()))
    if (
        environment.protocol != "each-slot"
        or any(each is not None for each in by_site)
        or kind_S.max() + 1 == len(kind_S)
    ):
        return environment, np.arange(len(kind_S))
    kind_I = kind_S[environment.fleet.tables(1).home_I]
    first_X = np.unique(kind_S, return_index=True)[1]
    gpus_X = np.bincount(kind_S, weights=[site.gpus for site in environment.fleet.sites]).astype(int).tolist()
    merged = _of_sites(
        environment,
        _fleet_of(environment.fleet, first_X, gpus_X),
        _merged_links(environment.links, kind_I, kind_S),
        _merged_withheld(environment.withheld, kind_S),
        replace(environment.jobs, origin_J=kind_I[environment.jobs.origin_J]),
    )
    return merged, kind_S


def parts_of_fleet(kind_S: I8, most: int) -> I8:
    """Returns the number of the part that every site is in, each with about as many sites of every kind as the others.

    Args:
        kind_S: Kind of every site.
        most: Sites of a part, at most, about.
    """
    sites = len(kind_S)
    part_S = np.empty(sites, np.int64)
    part_S[np.argsort(kind_S, kind="stable")] = np.arange(sites) % -(-sites // most)
    return part_S


def jobs_of_part(environment: Environment, part_S: I8, part: int) -> I8:
    """Returns the jobs that come to a part of the fleet."""
    site_J = environment.fleet.tables(1).home_I[environment.jobs.origin_J]
    return np.flatnonzero(part_S[site_J] == part)


def fleet_part(environment: Environment, part_S: I8, part: int) -> Environment:
    """Returns an environment of the sites of a part and of the jobs that come to them: no job leaves its part.

    Only for an environment whose sites are merged.
    """
    mine, rows = np.flatnonzero(part_S == part), jobs_of_part(environment, part_S, part)
    home_I = environment.fleet.tables(1).home_I
    ingress_S = np.empty(len(part_S), np.int64)
    ingress_S[home_I] = np.arange(len(home_I))
    spots, withheld = np.ix_(ingress_S[mine], mine), environment.withheld
    links = {name: getattr(environment.links, name)[spots] for name in LINK_QUANTITIES}
    jobs = environment.jobs.take(rows)
    return _of_sites(
        environment,
        _fleet_of(environment.fleet, mine, [environment.fleet.sites[s].gpus for s in mine]),
        replace(environment.links, **links),
        None if withheld is None else replace(withheld, gpus_KS=np.ascontiguousarray(withheld.gpus_KS[:, mine])),
        replace(jobs, origin_J=np.searchsorted(mine, home_I[jobs.origin_J])),
    )


def _of_sites(
    environment: Environment, fleet: Fleet, links: Links, withheld: Withheld | None, jobs: Jobs
) -> Environment:
    """Returns an environment of other sites, whose ingress points they are; what no bound reads is left out."""
    nowhere_J = np.full(len(jobs), -1)
    return replace(
        environment,
        fleet=fleet,
        links=links,
        withheld=withheld,
        jobs=replace(jobs, preset_site_J=nowhere_J, recorded_site_J=nowhere_J),
        caps=None, knowledge=None, details=None, tenants=None, tenant_J=None, priorities=None,
        priority_J=None, sample_jobs=None, events=(),
    )  # fmt: skip


def _fleet_of(fleet: Fleet, sites_X: I8, gpus_X: list[int]) -> Fleet:
    """Returns the fleet with some of its sites, which have other numbers of GPUs."""
    sites = [
        fleet.sites[s].model_copy(update={"gpus": gpus, "gpus_by_time": None})
        for s, gpus in zip(sites_X.tolist(), gpus_X, strict=True)
    ]
    names = {site.name for site in sites}
    ranges = {name: tuple(site for site in allowed if site in names) for name, allowed in fleet.ranges.items()}
    return fleet.model_copy(update={"sites": tuple(sites), "ingress": "sites", "ranges": ranges})


def _merged_links(links: Links, kind_I: I8, kind_S: I8) -> Links:
    """Returns the least of every quantity over the pairs of two kinds, zero within a kind."""

    def least(value_IS: F8) -> F8:
        out_XX = np.full((kind_S.max() + 1,) * 2, np.inf)
        np.minimum.at(out_XX, (kind_I[:, None], kind_S[None]), value_IS)
        np.fill_diagonal(out_XX, 0.0)
        return out_XX

    merged: dict[str, Any] = {name: least(getattr(links, name)) for name in LINK_QUANTITIES}
    return replace(links, **merged)


def _merged_withheld(withheld: Withheld | None, kind_S: NDArray[np.int64]) -> Withheld | None:
    """Returns the GPUs that are withheld at all sites of a kind."""
    if withheld is None:
        return None
    gpus_XK = np.zeros((kind_S.max() + 1, len(withheld.from_s_K)), np.int64)
    np.add.at(gpus_XK, kind_S, withheld.gpus_KS.T)
    return Withheld(from_s_K=withheld.from_s_K, gpus_KS=np.ascontiguousarray(gpus_XK.T))
