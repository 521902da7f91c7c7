"""View assembly: the view of a run or of a live service before the first job, from its brief."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from noonward.arrays import I8, Records, resized
from noonward.decision.brief import Brief
from noonward.decision.cluster.layout import VIEW_PARTS, blank
from noonward.decision.cluster.view import ClusterView
from noonward.model.cluster.freedom import Lever, bend, freedom_records


def make_view(brief: Brief, slots: int, levers: Collection[Lever] = (), *, fails: bool = False) -> ClusterView:
    """Returns the view at second 0: all GPUs free, nobody asked, no job, price, intensity or forecast known.

    Whoever keeps the view writes what changes: time and question (``run_1``), free GPUs, queues, prices and intensities
    (``site_S``), jobs (``job_J``), who is asked (``asked_N``), masks (``mask_NA``, by
    :mod:`noonward.decision.cluster.feasibility`) and forecasts.

    Args:
        brief: What is known before the first job.
        slots: Rows of ``job_J``, for as many jobs in sight; ``with_slots`` gives it more.
        levers: What its scheduler does with running jobs; where some class allows it, the view shows what the jobs in
            sight do (``life_J``).
        fails: Whether running jobs may fail: the view then shows that too.
    """
    fleet, links, economics = brief.fleet, brief.links, brief.economics
    freedom_C = freedom_records(fleet.freedoms, fleet.classes, levers, fails=fails)
    lives = fails or bend(freedom_C)
    tables = fleet.tables(_largest_gang(brief) if lives else brief.largest_gang)
    sites = len(brief.sites)
    parts = blank(
        VIEW_PARTS,
        sites=sites,
        slots=slots,
        askers=sites if brief.protocol == "each-slot" else 1,
        choices=1 + sites,
        ingress=len(tables.home_I),
        classes=len(fleet.classes),
        leads=max(1, brief.lookahead_h) + 1,
        lives=slots if lives else 1,
    )
    run, site, link = parts["run_1"], parts["site_S"], parts["link_IS"]
    run["slot_s"], run["window_s"], run["site"] = brief.slot_s, brief.window_s, -1
    run["late_until_s"], run["late_usd_per_gpu_hour"] = brief.late_until_s, brief.late_usd_per_gpu_hour
    if economics is not None:
        run["revenue_usd_per_gpu_hour"] = economics.revenue_usd_per_gpu_hour
        run["carbon_usd_per_t"] = economics.carbon_usd_per_t
    site["gpus"] = site["free"] = tables.gpus_S
    site["levels"], site["pue"], site["free_w"] = tables.levels_S, tables.pue_S, tables.free_w_S
    site["price"] = site["carbon"] = np.nan
    site["ingress"] = -1
    for i, home in enumerate(tables.home_I.tolist()):
        if home >= 0:
            site["ingress"][home] = i
    for name in ("latency_s", "seconds_per_gb", "usd_per_gb", "kwh_per_gb"):
        link[name] = getattr(links, f"{name}_IS")
    summarize_links(site, link, tables.home_I)
    run["least_gpus"] = site["gpus"].min()
    types = [each.gpu_type for each in fleet.sites]
    site["alike"] = [types.index(each) for each in types]
    link["queued"] = links.queued & (link["seconds_per_gb"] > 0)
    parts["home_I"][:] = tables.home_I
    parts["range_CS"][:] = tables.range_CS
    parts["job_J"]["serial"] = -1
    parts["speed_KSCGF"] = np.stack([tables.power_w_SCGF, tables.seconds_per_unit_SCGF])
    parts["freedom_C"] = freedom_C
    parts["oracle_SCG"], parts["clock_SF"] = tables.oracle_level_SCG, tables.clock_SF
    return ClusterView(**parts)


def summarize_links(site_S: Records, link_IS: Records, home_I: I8) -> None:
    """Notes the extremes of the links to other sites, in each site's record, from all ingress points at home there."""
    for s in range(len(site_S)):
        here = home_I == s
        away = np.delete(link_IS[here], s, axis=1).ravel()
        for name in ("latency_s", "seconds_per_gb"):
            site_S[f"most_{name}"][s] = away[name].max(initial=0.0) if here.any() else np.inf
        for name in ("latency_s", "seconds_per_gb", "usd_per_gb", "kwh_per_gb"):
            site_S[f"least_{name}"][s] = away[name].min() if len(away) else 0.0


def _largest_gang(brief: Brief) -> int:
    """Returns the largest gang that a job may have, also by a resize, GPUs."""
    elastic = [freedom.elastic for freedom in brief.fleet.freedoms.values() if freedom.elastic is not None]
    most = max(site.gpus for site in brief.fleet.sites)
    return max(brief.largest_gang, *(gpus for one in elastic for gpus in one.gpus if gpus <= most), 1)


def with_slots(view: ClusterView, slots: int) -> ClusterView:
    """Returns a view with another number of rows in ``job_J``; those that both have keep their jobs."""
    job_J = resized(view.job_J, slots)
    job_J["serial"][len(view.job_J) :] = -1
    life_J = resized(view.life_J, slots) if len(view.life_J) > 1 else view.life_J
    return view._replace(job_J=job_J, life_J=life_J)
