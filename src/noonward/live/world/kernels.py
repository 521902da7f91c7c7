"""What explanations say of a live service's view: functions of the decision layer, compiled for it."""

from __future__ import annotations

from numba import types

from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import joins_at
from noonward.decision.cluster.rule import VIEW
from noonward.decision.cluster.view import ClusterView, delay_s, last_start_s


@kernel(types.float64(VIEW, types.int64, types.int64, types.int64), allocates=False)
def join_time(view: ClusterView, job: int, s: int, d: int) -> float:
    """Returns when a job that leaves site s now joins the queue of site d, s (protocol each-slot)."""
    return joins_at(view, job, s, d)


@kernel(types.float64(VIEW, types.int64, types.int64, types.int64), allocates=False)
def travel_s(view: ClusterView, job: int, ingress: int, site: int) -> float:
    """Returns how long a job travels from an ingress point to a site, s."""
    return delay_s(view, job, ingress, site)


@kernel(types.float64(VIEW, types.int64, types.int64), allocates=False)
def latest_s(view: ClusterView, job: int, site: int) -> float:
    """Returns until when a job may start at a site, s."""
    return last_start_s(view, job, site)
