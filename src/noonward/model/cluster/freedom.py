"""Freedoms of jobs: what may be done to a job while it runs, per job class, as a scenario states it."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, field_validator, model_validator

from noonward.errors import nearest
from noonward.model.cluster.power_caps import CAP_TABLES, CapCurve
from noonward.model.spec import Gang, NonNegative, Positive, Share, Spec

MOST_GANGS: Final = 16
"""Gangs that a job may be resized to, at most."""


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


class Freedom(Spec):
    """What may be done to the jobs of a class while they run; what is not stated is not allowed.

    Rules that hold for every schedule, the bound's and the engine's:

    - A job stays at the site and at the clock that it starts at; it may be stopped there and resumed.
    - It starts by its latest start, and ends by the time by which it would end had it started then and run unbroken on
      its own gang at full power. One that starts later (``lateness: wait``) runs unbroken in bounds.
    - It earns what it would have earned unbroken on its own gang at full power: neither overhead, nor a slower run, nor
      a larger gang earns more.
    """

    interruptible: bool = False
    """Whether it may be stopped and resumed; both take what ``checkpoint`` says."""
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
        if not self.interruptible:
            for name in ("min_run_s", "most_suspensions"):
                if name in self.model_fields_set and getattr(self, name):
                    raise ValueError(f"{name} goes with interruptible: true; a job that is never stopped has none")
        return self

    @property
    def cap_curve(self) -> CapCurve | None:
        """Throughput under power caps, or None where there are none."""
        return CAP_TABLES[self.caps].curve if isinstance(self.caps, str) else self.caps


def check_freedoms(freedoms: dict[str, Freedom], classes: tuple[str, ...]) -> None:
    """Raises ValueError if freedoms name an unknown class."""
    for name in freedoms:
        if name not in classes:
            raise ValueError(f"freedoms name the unknown class {name!r}; {nearest(name, classes)}")
