"""What the cluster engine emits of a run: its state, turned into segments, transfers and the fate of every job."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from noonward.arrays import F8, I4, I8, Records
from noonward.compiled import kernel
from noonward.engine.cluster.kernels.world import INGRESS_SHIFT, SITE_SHIFT, World
from noonward.ledger.segments import (
    DONE,
    OWN_JOURNEY,
    RESULT,
    RUN,
    TRANSFER,
    Meters,
    Outcome,
    Overhead,
    PowerSegments,
    useful_share,
)
from noonward.model.cluster.environment import Environment
from noonward.paging import parts, zero_rows


def emit(environment: Environment, world: World, rewards_K: F8 | None = None) -> Outcome:
    """Returns what has happened in a run so far.

    Args:
        environment: What is run.
        world: State of the run.
        rewards_K: Reward of every step, USD.
    """
    outcome_R = _outcomes(world)
    count = len(outcome_R)
    columns: dict[str, Any] = {
        "site_K": zero_rows(count, np.int32),
        "job_K": zero_rows(count, np.int32),
        "from_s_K": zero_rows(count, np.float64),
        "to_s_K": zero_rows(count, np.float64),
        "watts_K": zero_rows(count, np.float64),
        "gpus_K": zero_rows(count, np.int32),
    }
    used = 0
    for part in parts(count):
        room = [column[used:] for column in columns.values()]
        used += int(_emit_power(outcome_R[part], part.start, world.shown.now_s, *room))
    power = PowerSegments(**{name: column[:used] for name, column in columns.items()})
    overhead, segment_K = Overhead.none(), None
    if world.engine_1["bends"][0]:
        segment_K = _noted_segments(world)
        power, overhead = _by_segments(power, segment_K, world.shown.now_s)
    return Outcome(
        environment=environment,
        job_J=outcome_R,
        power=power,
        overhead=overhead,
        segment_K=segment_K,
        transfer_X=_transfers(environment, world, outcome_R),
        over_cap_gpu_s_S=world.state_S["over_cap_gpu_s"].copy(),
        ended_s=world.shown.now_s,
        steps=int(world.engine_1[0]["steps"]),
        meters=_meters(world),
        rewards_K=rewards_K,
    )


def _noted_segments(world: World) -> Records:
    """Returns the segments of suspended and capped jobs that are known, by job, then time."""
    noted_K = world.segment_K[: world.engine_1["segments"][0]]
    noted_K = noted_K[~np.isnan(noted_K["from_s"])]
    return noted_K[np.lexsort((noted_K["from_s"], noted_K["job"]))]


def _by_segments(power: PowerSegments, segment_K: Records, now_s: float) -> tuple[PowerSegments, Overhead]:
    """Returns the power of all jobs and the overhead up to a time; where segments were noted it is by these."""
    whole = ~np.isin(power.job_K, segment_K["job"])
    to_s_K = np.minimum(segment_K["to_s"], now_s)
    begun = to_s_K > segment_K["from_s"]
    part_K, runs = segment_K[begun], segment_K["kind"][begun] == RUN
    columns: dict[str, Any] = {
        "site_K": part_K["site"].astype(np.int32),
        "job_K": part_K["job"].astype(np.int32),
        "from_s_K": part_K["from_s"].copy(),
        "to_s_K": to_s_K[begun],
        "watts_K": part_K["watts"].copy(),
        "gpus_K": part_K["gpus"].astype(np.int32),
        "rate_K": useful_share(part_K),
    }
    power = replace(power, rate_K=np.ones(len(power)))
    drawn = {name: np.concatenate([getattr(power, name)[whole], column[runs]]) for name, column in columns.items()}
    over = {name: column[~runs] for name, column in columns.items()}
    return PowerSegments(**drawn), Overhead(**over, kind_K=part_K["kind"][~runs].astype(np.int32))


def _outcomes(world: World) -> Records:
    """Returns what has become of every job, also of those to come."""
    out_R = world.outcome_R if world.engine_1[0]["ended"] else world.outcome_R.copy()
    blank_R = out_R[world.engine_1[0]["next_arrival"] :]
    blank_R["site"] = blank_R["level"] = -1
    for name in ("reach_s", "start_s", "finish_s"):
        blank_R[name] = np.nan
    return out_R


def _transfers(environment: Environment, world: World, outcome_R: Records) -> Records:
    """Returns the jobs' own journeys, by time or by arrival, then those of the results, in the order of the jobs."""
    submitted_R, jobs, noted = world.submitted_R, environment.jobs, int(world.engine_1["journeys"][0])
    travel = (jobs.data_gb_J > 0).any() or (jobs.model_gb_J > 0).any()
    once = environment.protocol == "on-arrival" and bool(travel)
    return_some = bool((jobs.result_gb_J > 0).any())
    out_X = zero_rows(noted + (once + return_some) * len(submitted_R), TRANSFER)
    last = len(world.heap_E)
    for part in parts(noted):
        journey_X = world.heap_E[last - part.stop : last - part.start]
        _emit_noted(journey_X, world.outcome_R, submitted_R, world.shown.freedom_C, out_X[part])
    used, link_IS, home_I = noted, world.shown.link_IS, world.shown.home_I
    for kind, some in ((OWN_JOURNEY, once), (RESULT, return_some)):
        free_s_IS = np.zeros(link_IS.shape)
        for part in parts(len(outcome_R) if some else 0):
            part_R, room_X = (outcome_R[part], submitted_R[part]), out_X[used:]
            used += int(_emit_transfers(kind, part.start, *part_R, home_I, link_IS, free_s_IS, room_X))
    return out_X[:used]


@kernel(allocates=False)
def _emit_noted(
    journey_X: Records, outcome_R: Records, submitted_R: Records, freedom_C: Records, out_X: Records
) -> None:
    """Writes the journeys that protocol each-slot noted; a job that has begun to run travels with its checkpoint.

    Args:
        journey_X: What was noted, the first one last.
        outcome_R: What became of every job.
        submitted_R: What was asked.
        freedom_C: Freedoms of the classes.
        out_X: Receives the journeys.
    """
    for x in range(len(out_X)):
        event = journey_X[len(journey_X) - 1 - x]
        j = event.item & ((1 << SITE_SHIFT) - 1)
        size_gb = submitted_R[j].move_gb
        if outcome_R[j].start_s < event.time:
            size_gb += freedom_C[submitted_R[j].class_].checkpoint_gb
        out_X[x].kind = OWN_JOURNEY
        out_X[x].job = j
        out_X[x].ingress = event.item >> INGRESS_SHIFT
        out_X[x].site = (event.item >> SITE_SHIFT) & ((1 << (INGRESS_SHIFT - SITE_SHIFT)) - 1)
        out_X[x].size_gb = size_gb
        out_X[x].time_s = event.time


@kernel(allocates=False)
def _emit_transfers(
    kind: int,
    first: int,
    outcome_R: Records,
    submitted_R: Records,
    home_I: I8,
    link_IS: Records,
    free_s_IS: F8,
    out_X: Records,
) -> int:
    """Writes the journeys of jobs that travelled once, or those of results; returns how many.

    The former begin at the job's arrival, or when the data before it are through where its link queues
    (``kernels.on_arrival.send``).

    Args:
        kind: OWN_JOURNEY or RESULT.
        first: Number of the first of these jobs.
        outcome_R: What became of them.
        submitted_R: What was asked, in the order of arrival.
        home_I: Site that an ingress point belongs to, or -1.
        link_IS: Links.
        free_s_IS: When each link is through with what it carries, s; zeros before the first job.
        out_X: Receives the journeys.
    """
    x = 0
    for j in range(len(outcome_R)):
        outcome, submitted = outcome_R[j], submitted_R[j]
        if kind == OWN_JOURNEY:
            size_gb, time_s = submitted.move_gb, submitted.arrival_s
            travelled = outcome.moves > 0
            if travelled and link_IS[submitted.origin, outcome.site].queued:
                time_s = max(time_s, free_s_IS[submitted.origin, outcome.site])
                data_s = size_gb * link_IS[submitted.origin, outcome.site].seconds_per_gb
                free_s_IS[submitted.origin, outcome.site] = time_s + data_s
        else:
            size_gb, time_s = submitted.result_gb, outcome.finish_s
            travelled = outcome.status == DONE and size_gb > 0.0 and home_I[submitted.origin] != outcome.site
        if travelled:
            out_X[x].kind = kind
            out_X[x].job = first + j
            out_X[x].ingress = submitted.origin
            out_X[x].site = outcome.site
            out_X[x].size_gb = size_gb
            out_X[x].time_s = time_s
            x += 1
    return x


def _meters(world: World) -> Meters:
    """Returns a copy of the engine's meters."""
    engine = world.engine_1[0]
    values: dict[str, Any] = {}
    for one in fields(Meters):
        per_site = one.name.endswith("_S")
        values[one.name] = world.state_S[one.name.removesuffix("_S")].copy() if per_site else engine[one.name].item()
    return Meters(**values)


@kernel(allocates=False)
def _emit_power(
    outcome_R: Records,
    first: int,
    now_s: float,
    site_K: I4,
    job_K: I4,
    from_s_K: F8,
    to_s_K: F8,
    watts_K: F8,
    gpus_K: I4,
) -> int:
    """Writes a power segment for every job that has run; returns how many have.

    The outcomes are those of jobs from number ``first`` on.
    """
    k = 0
    for j in range(len(outcome_R)):
        outcome = outcome_R[j]
        until_s = min(outcome.finish_s, now_s)
        if until_s > outcome.start_s:
            site_K[k] = outcome.site
            job_K[k] = first + j
            from_s_K[k] = outcome.start_s
            to_s_K[k] = until_s
            watts_K[k] = outcome.power_w
            gpus_K[k] = outcome.gpus
            k += 1
    return k
