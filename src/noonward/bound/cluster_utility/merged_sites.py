"""Sites of one kind as one site: a relaxation of an environment, by which a fleet of many sites is bounded."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.site_kinds import site_kinds
from noonward.model.cluster.withheld import Withheld
from noonward.model.network import Links


def merged_sites(environment: Environment) -> Environment:
    """Returns an environment in which the sites of every kind (``site_kinds``) are one site with all their GPUs.

    No schedule of the environment is worth more than the best of this one: a job runs there as it does here, gangs may
    span the sites of a kind, journeys between them cost and take nothing, and journeys between kinds the least of any
    pair of their sites. An idle fleet draws as much. So every bound of it bounds the environment.

    Environments that state anything else by site, or whose ingress points are not their sites (``each-slot`` needs
    that), are returned as they are; so are those in which every site is a kind by itself. What a bound does not read of
    an environment (capacity curves, what is told of jobs, tenants, grid events) is left out.
    """
    by_site = (environment.pue, environment.solar, environment.plants, environment.stated_prices, environment.standing)
    kind_S = site_kinds(environment, int(environment.jobs.gpus_max_J.max()))
    if (
        environment.protocol != "each-slot"
        or any(each is not None for each in by_site)
        or kind_S.max() + 1 == len(kind_S)
    ):
        return environment
    tables = environment.fleet.tables(1)
    kind_I = kind_S[tables.home_I]
    jobs = environment.jobs
    moved = {"origin_J": kind_I[jobs.origin_J]}
    moved |= {name: np.full(len(jobs), -1) for name in ("preset_site_J", "recorded_site_J")}
    return replace(
        environment,
        fleet=_merged_fleet(environment.fleet, kind_S),
        links=_merged_links(environment.links, kind_I, kind_S),
        jobs=Jobs(**({each.name: getattr(jobs, each.name) for each in fields(Jobs)} | moved)),
        withheld=_merged_withheld(environment.withheld, kind_S),
        caps=None, knowledge=None, details=None, tenants=None, tenant_J=None, priorities=None,
        priority_J=None, sample_jobs=None, events=(),
    )  # fmt: skip


def _merged_fleet(fleet: Fleet, kind_S: I8) -> Fleet:
    """Returns the fleet with one site per kind, which has the name of the first."""
    first_X = np.unique(kind_S, return_index=True)[1]
    gpus_X = np.bincount(kind_S, weights=[site.gpus for site in fleet.sites]).astype(int).tolist()
    sites = [
        fleet.sites[s].model_copy(update={"gpus": gpus, "gpus_by_time": None})
        for s, gpus in zip(first_X.tolist(), gpus_X, strict=True)
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

    quantities = ("latency_s_IS", "seconds_per_gb_IS", "usd_per_gb_IS", "kwh_per_gb_IS")
    merged: dict[str, Any] = {name: least(getattr(links, name)) for name in quantities}
    return replace(links, **merged)


def _merged_withheld(withheld: Withheld | None, kind_S: NDArray[np.int64]) -> Withheld | None:
    """Returns the GPUs that are withheld at all sites of a kind."""
    if withheld is None:
        return None
    gpus_XK = np.zeros((kind_S.max() + 1, len(withheld.from_s_K)), np.int64)
    np.add.at(gpus_XK, kind_S, withheld.gpus_KS.T)
    return Withheld(from_s_K=withheld.from_s_K, gpus_KS=np.ascontiguousarray(gpus_XK.T))
