"""Kinds of sites that differ in nothing but their number of GPUs: planners and bounds price them once."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from noonward.arrays import F8, I8
from noonward.model.cluster.fleet import FleetTables
from noonward.model.cluster.setting import Setting


def site_kinds(setting: Setting, largest_gang: int) -> I8:
    """Returns the kind of every site, numbered by first appearance, (S,).

    Sites of one kind share zone, GPU type, PUE and the classes that they may run, hold the largest gang, and have equal
    links from every ingress that belongs to neither of them. A site with a meter, devices or a contract of its own, or
    a PUE that changes by the hour, is a kind by itself.

    Args:
        setting: What a run holds before its first job.
        largest_gang: Largest gang of any job, GPUs.
    """
    tables = setting.fleet.tables(largest_gang)
    links = setting.links
    effort_KIS = np.stack(
        [links.latency_s_IS, links.seconds_per_gb_IS, links.usd_per_gb_IS, links.kwh_per_gb_IS]
    )  # seconds, seconds per GB, USD per GB and kWh per GB
    kind_S = np.zeros(len(setting.fleet.sites), np.int64)
    kinds_of: dict[Hashable, list[list[int]]] = {}
    kinds = 0
    for s in range(len(kind_S)):
        similar = kinds_of.setdefault(_key(setting, tables, s, largest_gang), [])
        alike = [members for members in similar if all(_linked_alike(effort_KIS, tables.home_I, s, m) for m in members)]
        if alike:
            kind_S[s] = kind_S[alike[0][0]]
            alike[0].append(s)
        else:
            kind_S[s] = kinds
            kinds += 1
            similar.append([s])
    return kind_S


def _key(setting: Setting, tables: FleetTables, s: int, largest_gang: int) -> Hashable:
    """Returns what sites of one kind share, links apart; of a site that is a kind by itself, its position."""
    site = setting.fleet.sites[s]
    own = any(each is not None for each in (site.meter, site.behind_meter, site.ppa, site.pue_by_hour))
    if own or site.gpus < largest_gang:
        return s
    return site.zone, site.gpu_type, site.pue, tables.range_CS[:, s].tobytes()


def _linked_alike(effort_KIS: F8, home_I: I8, first: int, second: int) -> bool:
    """Returns whether two sites have equal links from every ingress that belongs to neither of them."""
    others_I = (home_I != first) & (home_I != second)
    return np.array_equal(effort_KIS[:, others_I, first], effort_KIS[:, others_I, second])
