"""Power of GPUs that are withheld, and of jobs that were running before a run: what no policy decides about."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I8
from noonward.ledger.segments import PowerSegments
from noonward.model.cluster.environment import Environment
from noonward.units import HOUR_S


def switched_off(environment: Environment, power: PowerSegments | None = None) -> PowerSegments | None:
    """Returns the GPUs that are withheld while no job runs on them, and the idle power that they do not draw.

    At any time within the window these are ``min(withheld, GPUs - taken)`` at a site: jobs that run when GPUs are
    withheld run on, and those GPUs are off once the jobs have ended.

    Args:
        environment: What is run.
        power: Power of the jobs that run; None: none does.

    Returns:
        A segment per site and stretch of time with as many such GPUs; None where none are ever withheld.
    """
    steps = environment.unavailable
    if steps is None:
        return None
    tables, window_s = environment.fleet.tables(1), environment.window_s
    running = PowerSegments.none() if power is None else power
    parts: list[tuple[I8, F8, F8, I8]] = []
    for s, gpus in enumerate(tables.gpus_S.tolist()):
        mine = running.site_K == s
        from_s, to_s, taken = running.from_s_K[mine], running.to_s_K[mine], running.gpus_K[mine].astype(np.float64)
        edge_s = np.unique(np.concatenate([[0.0, window_s], from_s, to_s, steps.from_s_K]))
        edge_s = edge_s[edge_s <= window_s]
        change_E = np.zeros(len(edge_s) + 1)
        for time_s, sign in ((from_s, 1.0), (to_s, -1.0)):
            np.add.at(change_E, np.searchsorted(edge_s, time_s), sign * taken)
        free_E = gpus - np.cumsum(change_E)[: len(edge_s) - 1]
        off_E = np.minimum(steps.at(edge_s[:-1])[:, s], np.round(free_E).astype(np.int64))
        kept = off_E > 0
        parts.append((np.full(int(kept.sum()), s), edge_s[:-1][kept], edge_s[1:][kept], off_E[kept]))
    site_K, from_s_K, to_s_K, gpus_K = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _segments(site_K, from_s_K, to_s_K, gpus_K, gpus_K * (tables.free_w_S * tables.pue_S)[site_K])


def standing_power(environment: Environment) -> PowerSegments | None:
    """Returns the power of the jobs that were running before a run, until they end; None without any.

    It reaches from second 0 to the last hour that the run may touch.
    """
    standing = environment.standing
    if standing is None:
        return None
    zero_s_K, end_s_K = np.zeros(len(standing.site_J)), np.minimum(standing.end_s_J, HOUR_S * environment.hours)
    return _segments(standing.site_J, zero_s_K, end_s_K, standing.gpus_J, standing.power_w_J)


def _segments(site_K: I8, from_s_K: F8, to_s_K: F8, gpus_K: I8, watts_K: F8) -> PowerSegments:
    """Returns segments that are of no job of the run: each counts for itself."""
    return PowerSegments(
        site_K=site_K.astype(np.int32),
        job_K=np.arange(len(site_K), dtype=np.int32),
        from_s_K=from_s_K,
        to_s_K=to_s_K,
        watts_K=watts_K,
        gpus_K=gpus_K.astype(np.int32),
    )
