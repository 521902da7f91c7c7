"""Freedoms of jobs: what may be done to running jobs, per job class, as scenarios state it and kernels read it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from noonward.arrays import Records
from noonward.errors import nearest
from noonward.model.cluster.power_caps import CAP_TABLES, MOST_POINTS, CapCurve
from noonward.model.spec import Gang, NonNegative, Positive, Share, Spec

MOST_GANGS: Final = 16
"""Gangs that a job may be resized to, at most."""
NO_LIMIT: Final = 2**62
"""Suspensions of a class that states no limit."""
MOST_CLASSES: Final = 62
"""Classes of a fleet in which some preempt others, at most: as many as bits of a number."""
Lever = Literal["suspend", "resize", "cap", "preempt", "move"]
"""What a scheduler may do with running jobs: suspend them, resume them on other gangs, change their power caps, stop
them for jobs that wait and may preempt them, resume them at other sites."""


class Scaling(Spec):
    """Gangs that a job may be resized to while it runs, and its speed on each.

    A job whose own gang is listed may run on any of the gangs, at ``speedup(n) / speedup(own gang)`` times its own
    speed. A job whose gang is not listed, or that takes any of several gangs, keeps the one it starts on.
    """

    gpus: tuple[Gang, ...] = Field(min_length=2, max_length=MOST_GANGS)
    """Gangs, GPUs, ascending."""
    speedup: tuple[Positive, ...] = Field(min_length=2, max_length=MOST_GANGS)
    """Throughput on each over that on the first, ascending; the first is 1. At most proportional to the gang."""

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if len(self.gpus) != len(self.speedup):
            raise ValueError(f"{len(self.gpus)} gangs have {len(self.speedup)} speed-ups; give one each")
        if list(self.gpus) != sorted(set(self.gpus)) or list(self.speedup) != sorted(set(self.speedup)):
            raise ValueError(f"gpus {list(self.gpus)} and speedup {list(self.speedup)} must both ascend")
        if self.speedup[0] != 1:
            raise ValueError(
                f"the first speed-up is {self.speedup[0]:g}; it is that of the smallest gang over itself: 1"
            )
        for gpus, speedup in zip(self.gpus, self.speedup, strict=True):
            if speedup > gpus / self.gpus[0] * (1 + 1e-9):
                raise ValueError(
                    f"{gpus} GPUs have a speed-up of {speedup:g} over {self.gpus[0]}; it can be at most "
                    f"{gpus / self.gpus[0]:g}, the ratio of the gangs"
                )
        return self


class Checkpoint(Spec):
    """What stopping and resuming a job takes. A stopped job holds no GPUs until it loads.

    The defaults are those of training jobs in Emerald AI's field test of 1 May 2025 (256 A100, power by job and
    minute); batch inference there took about ``stop_s: 60, dark_s: 90, load_s: 60``.
    """

    stop_s: NonNegative = 120.0
    """Seconds that writing a checkpoint holds the GPUs before a stop."""
    dark_s: NonNegative = 240.0
    """Least seconds between a stop and the load that follows; no GPU is held."""
    load_s: NonNegative = 390.0
    """Seconds that loading and warming up hold the GPUs after a resume."""
    stop_power: Share = 0.35
    """GPU power while a checkpoint is written, over the job's full power."""
    load_power: Share = 0.25
    """GPU power while it is loaded, over the job's full power."""
    gb: NonNegative = 0.0
    """Size, GB. It travels, beside the job's own data, when a suspended job moves to another site."""
    every_s: NonNegative = 3600.0
    """Seconds that a job runs between two periodic checkpoints; 0: it writes none. What it did since the last one is
    lost if it is stopped without notice (``requeue``)."""


class Freedom(Spec):
    """What may be done to the jobs of a class while they run; what is not stated is not allowed.

    Rules that hold for every schedule, the bound's and the engine's:

    - A job stays at the site and at the clock that it starts at, unless it ``moves``; it may be stopped and resumed.
    - It starts by its latest start, and ends by the time by which it would end had it started then and run unbroken on
      its own gang at full power. One that starts later (``lateness: wait``) runs unbroken in bounds.
    - It earns what it would have earned unbroken on its own gang at full power: neither overhead, nor a slower run, nor
      a larger gang earns more.
    """

    interruptible: bool = False
    """Whether it may be stopped and resumed; both take what ``checkpoint`` says."""
    requeue: bool = False
    """Whether it may be stopped without notice for a job that preempts it: its GPUs are free at once, and what it did
    since its last periodic checkpoint is done again. It is resumed as an interruptible job is."""
    preempts: tuple[str, ...] = ()
    """Classes whose running jobs it may displace while it waits for GPUs; each is ``interruptible`` or ``requeue``."""
    moves: bool = False
    """Whether it may be resumed at another site than it was stopped at, if it runs as fast there at its clock: its data
    and its checkpoint (``checkpoint.gb``) travel there first, at the link's cost and time."""
    elastic: Scaling | None = None
    """Gangs that it may be resized to; none: it keeps the gang it starts on."""
    caps: str | CapCurve | None = None
    """Power caps that it may run under: shares of power and throughput, or the name of a measured curve; none: it runs
    at full power. A cap may change at any time and takes no restart."""
    checkpoint: Checkpoint = Checkpoint()
    """What stopping and resuming takes."""
    min_run_s: NonNegative = 0.0
    """Least seconds that it runs between a start or resume and a stop."""
    most_suspensions: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Most times that it may be stopped; none: any number."""

    @field_validator("caps")
    @classmethod
    def _measured(cls, told: str | CapCurve | None) -> str | CapCurve | None:
        """Refuses a name that no measured curve has."""
        if isinstance(told, str) and told not in CAP_TABLES:
            raise ValueError(f"unknown table of power caps {told!r}; {nearest(told, CAP_TABLES)}")
        return told

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.requeue and (self.interruptible or self.elastic is not None):
            raise ValueError(
                "requeue: true stops jobs without notice, interruptible and elastic ones write a checkpoint first; "
                "state one of both"
            )
        if self.moves and not self.stoppable and self.elastic is None:
            raise ValueError("moves: true is for jobs that are stopped and resumed; state interruptible: true, too")
        if not self.stoppable:
            for name in ("min_run_s", "most_suspensions"):
                if name in self.model_fields_set and getattr(self, name):
                    raise ValueError(f"{name} goes with interruptible: true; a job that is never stopped has none")
        return self

    @property
    def stoppable(self) -> bool:
        """Whether it may be stopped and resumed, with a checkpoint or without notice."""
        return self.interruptible or self.requeue

    @property
    def cap_curve(self) -> CapCurve | None:
        """Throughput under power caps, or None where there are none."""
        return CAP_TABLES[self.caps].curve if isinstance(self.caps, str) else self.caps


def check_freedoms(freedoms: dict[str, Freedom], classes: tuple[str, ...]) -> None:
    """Raises ValueError if freedoms name an unknown class, or one that cannot be preempted."""
    for name in freedoms:
        if name not in classes:
            raise ValueError(f"freedoms name the unknown class {name!r}; {nearest(name, classes)}")
    for name, freedom in freedoms.items():
        for other in freedom.preempts:
            if other not in classes:
                raise ValueError(f"{name} preempts the unknown class {other!r}; {nearest(other, classes)}")
            victim = freedoms.get(other, Freedom())
            if not victim.stoppable:
                raise ValueError(f"{name} preempts {other}, which may not be stopped; state interruptible or requeue")
            if name == other or name in victim.preempts:
                raise ValueError(f"{name} and {other} preempt each other, so that neither would end; state one way")
    if any(freedom.preempts for freedom in freedoms.values()) and len(classes) > MOST_CLASSES:
        raise ValueError(f"{len(classes)} classes; where some preempt others there can be at most {MOST_CLASSES}")


FREEDOM: Final = np.dtype(
    [
        ("interruptible", "i8"),  # 1 where its jobs may be suspended
        ("preempted", "i8"),  # 1 where they may be stopped for a job that waits
        ("requeue", "i8"),  # 1 where that is without notice: what was done since the last checkpoint is done again
        ("preempts", "i8"),  # classes that its jobs may displace: bit c for class c
        ("moves", "i8"),  # 1 where they may be resumed at another site
        ("checkpoint_gb", "f8"),  # what then travels beside their data, GB
        ("every_s", "f8"),  # time that a job runs between two periodic checkpoints, s; 0: it writes none
        ("stop_s", "f8"),  # time to write the checkpoint, GPUs held, s
        ("dark_s", "f8"),  # time after that until it may be resumed, no GPUs held, s
        ("load_s", "f8"),  # time to load the checkpoint and warm up, GPUs held, s
        ("stop_power", "f8"),  # power while it stops, share of its running power
        ("load_power", "f8"),  # power while it loads, share of its running power
        ("min_run_s", "f8"),  # shortest run between start or resumption and a suspension, s
        ("most_suspensions", "i8"),  # how often a job may be suspended
        ("caps", "i8"),  # power caps it may run under; cap 0 is full power, the others follow in falling order
        ("cap_power", "f8", (MOST_POINTS,)),  # power under each cap, share of full power
        ("cap_rate", "f8", (MOST_POINTS,)),  # throughput under each cap, share of full throughput
        ("gangs", "i8"),  # gangs that it may be resized to
        ("gang_gpus", "i8", (MOST_GANGS,)),  # their GPUs, ascending
        ("gang_speed", "f8", (MOST_GANGS,)),  # throughput on each, over that on the first
    ]
)
"""What may be done with the running jobs of a class; all zero where nothing may, but for the shares of cap 0."""


def freedom_records(
    freedoms: dict[str, Freedom], classes: tuple[str, ...], levers: Collection[Lever], *, fails: bool = False
) -> Records:
    """Returns what a scheduler may do with the running jobs of each class, FREEDOM records.

    Args:
        freedoms: What each class allows, by its name.
        classes: Names of all classes.
        levers: What the scheduler does; what is none of it is left out.
        fails: Whether running jobs may fail: what resuming takes is then there of every class that states freedoms.
    """
    out = np.zeros(len(classes), FREEDOM)
    victims = {other for freedom in freedoms.values() for other in freedom.preempts if "preempt" in levers}
    out["cap_power"][:, 0] = out["cap_rate"][:, 0] = 1.0
    for c, name in enumerate(classes):
        freedom = freedoms.get(name, Freedom())
        curve = freedom.cap_curve if "cap" in levers else None
        if curve is not None:
            points = len(curve.power)
            out[c]["caps"] = points - 1
            out[c]["cap_power"][:points], out[c]["cap_rate"][:points] = curve.power[::-1], curve.throughput[::-1]
        elastic = freedom.elastic if "resize" in levers else None
        if elastic is not None:
            gangs = len(elastic.gpus)
            out[c]["gangs"] = gangs
            out[c]["gang_gpus"][:gangs], out[c]["gang_speed"][:gangs] = elastic.gpus, elastic.speedup
        # A resize is a stop and a resumption.
        out[c]["interruptible"] = elastic is not None or (freedom.interruptible and "suspend" in levers)
        out[c]["preempted"], out[c]["requeue"] = name in victims, name in victims and freedom.requeue
        if "preempt" in levers:
            out[c]["preempts"] = sum(1 << classes.index(other) for other in set(freedom.preempts))
        if fails and name in freedoms:
            for field in ("every_s", "dark_s", "load_s", "load_power"):
                out[c][field] = getattr(freedom.checkpoint, field)
        if out[c]["interruptible"] or out[c]["preempted"]:
            out[c]["min_run_s"] = freedom.min_run_s
            out[c]["most_suspensions"] = NO_LIMIT if freedom.most_suspensions is None else freedom.most_suspensions
            for field in Checkpoint.model_fields:
                out[c]["checkpoint_gb" if field == "gb" else field] = getattr(freedom.checkpoint, field)
            out[c]["moves"] = "move" in levers and freedom.moves
        if out[c]["requeue"]:
            out[c]["stop_s"] = out[c]["stop_power"] = 0.0
    return out


def bend(freedom_C: Records) -> bool:
    """Returns whether a scheduler may do something with the running jobs of some class, of FREEDOM records."""
    bent_C = [freedom_C[name] > 0 for name in ("interruptible", "preempted", "caps")]
    return bool(np.any(bent_C))
