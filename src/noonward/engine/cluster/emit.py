"""What the cluster engine emits of a run: its state, turned into segments, transfers and the fate of every job."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from noonward.arrays import F8, I8, Records
from noonward.compiled import kernel
from noonward.engine.cluster.kernels.world import World
from noonward.ledger.segments import JOB_OUTCOME, Meters, Outcome, PowerSegments
from noonward.model.cluster.environment import Environment


def emit(environment: Environment, world: World, rewards_K: F8 | None = None) -> Outcome:
    """Returns what has happened in a run so far.

    Args:
        environment: What is run.
        world: State of the run; copied, so that the outcome stays as it is when the run continues.
        rewards_K: Reward of every step, USD.
    """
    engine, count = world.engine_1[0], len(world.track_J)
    job_J = np.empty(count, JOB_OUTCOME)
    power = PowerSegments(
        site_K=np.empty(count, np.int64),
        job_K=np.empty(count, np.int64),
        from_s_K=np.empty(count),
        to_s_K=np.empty(count),
        watts_K=np.empty(count),
        gpus_K=np.empty(count, np.int64),
    )
    columns = [getattr(power, name) for name in PowerSegments.__dataclass_fields__]
    used = int(_emit_jobs(world.track_J, world.shown.job_J, world.shown.now_s, job_J, *columns))
    return Outcome(
        environment=environment,
        job_J=job_J,
        power=PowerSegments(
            **{name: column[:used] for name, column in zip(PowerSegments.__dataclass_fields__, columns, strict=True)}
        ),
        transfer_X=world.transfer_X[: engine["transfers"]].copy(),
        over_cap_gpu_s_S=world.yard_S["over_cap_gpu_s"].copy(),
        ended_s=world.shown.now_s,
        steps=int(engine["steps"]),
        meters=_meters(world),
        rewards_K=rewards_K,
    )


def _meters(world: World) -> Meters:
    """Returns a copy of the engine's meters."""
    engine = world.engine_1[0]
    values: dict[str, Any] = {}
    for one in fields(Meters):
        per_site = one.name.endswith("_S")
        values[one.name] = world.yard_S[one.name.removesuffix("_S")].copy() if per_site else engine[one.name].item()
    return Meters(**values)


@kernel(allocates=False)
def _emit_jobs(
    track_J: Records,
    asked_J: Records,
    now_s: float,
    job_J: Records,
    site_K: I8,
    job_K: I8,
    from_s_K: F8,
    to_s_K: F8,
    watts_K: F8,
    gpus_K: I8,
) -> int:
    """Writes what became of all jobs, and a power segment for each that has run; returns how many have."""
    k = 0
    for j in range(len(track_J)):
        track = track_J[j]
        job_J[j].status = track.status
        job_J[j].site = track.site
        job_J[j].gpus = track.gpus
        job_J[j].level = track.level
        job_J[j].moves = track.moves
        job_J[j].reach_s = track.reach_s
        job_J[j].start_s = track.start_s
        job_J[j].finish_s = track.finish_s
        job_J[j].power_w = track.power_w
        job_J[j].units = 0.0
        until = min(track.finish_s, now_s)
        if until > track.start_s:
            job_J[j].units = (until - track.start_s) / (track.finish_s - track.start_s) * asked_J[j].work
            site_K[k] = track.site
            job_K[k] = j
            from_s_K[k] = track.start_s
            to_s_K[k] = until
            watts_K[k] = track.power_w
            gpus_K[k] = track.gpus
            k += 1
    return k
