"""Masks, feasibility and run times of a live service's view: the functions of the decision layer, compiled for it."""

from __future__ import annotations

from numba import types

from noonward.arrays import F8, I8, U1
from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import fill_mask, fill_route_mask, is_overdue, joins_at, room
from noonward.decision.cluster.rule import VIEW
from noonward.decision.cluster.view import ClusterView, delay_s, last_start_s

_I8S = types.int64[::1]
_F8SH = types.float64[:, ::1]


@kernel(types.void(VIEW, _I8S), allocates=False)
def fill_masks(view: ClusterView, room_S: I8) -> None:
    """Marks what every site that is asked may do with its job (protocol each-slot).

    Args:
        view: View; ``asked_N`` says who is asked about what.
        room_S: GPUs that may start at each site.
    """
    for s in range(view.asked_N.shape[0]):
        job = view.asked_N[s]
        if job >= 0:
            fill_mask(view, job, s, room_S[s])
        else:
            view.mask_NA[s, :] = 0


@kernel(types.int64(VIEW, types.int64, _F8SH, types.boolean), allocates=False)
def room_at(view: ClusterView, s: int, limit_SH: F8, hard: bool) -> int:
    """Returns how many GPUs may start at a site now: its free ones, within a hard capacity curve."""
    return room(view, s, limit_SH, hard)


@kernel(types.void(VIEW, _I8S, _I8S, types.uint8[::1]), allocates=False)
def mark_overdue(view: ClusterView, slot_Q: I8, site_Q: I8, late_Q: U1) -> None:
    """Marks the waiting jobs that can no longer start in time anywhere.

    Args:
        view: View.
        slot_Q: Slots of the jobs.
        site_Q: Sites they wait at.
        late_Q: Filled with 1 where a job is overdue, else 0.
    """
    for q in range(slot_Q.shape[0]):
        late_Q[q] = is_overdue(view, slot_Q[q], site_Q[q])


@kernel(types.boolean(VIEW, types.int64), allocates=False)
def fill_route(view: ClusterView, job: int) -> bool:
    """Marks where a job may be sent (protocol on-arrival); returns whether there is a site."""
    return fill_route_mask(view, job)


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
