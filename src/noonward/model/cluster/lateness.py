"""Lateness: what becomes of a job that cannot start in time, as a scenario states it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from noonward.model.spec import LONGEST_WINDOW_H, NonNegative, Spec


class Lateness(Spec):
    """What becomes of a job that has not started by its latest start: arrival + slack less its result's return."""

    rule: Literal["drop", "wait"] = "drop"
    """``drop``: it is dropped as overdue (MASAC, Eq. 7b); ``wait``: it waits and may start later, the delay counted."""
    usd_per_gpu_hour: NonNegative = 0.0
    """Price of an hour that a job starts after arrival + slack, per GPU that it needs at least, USD; 0: lateness is
    only counted. A job that never starts pays no price: it is counted as not done, and earns nothing."""
    overtime_h: NonNegative | None = None
    """Hours after the window until which jobs may start late; none: until the latest start of the last job, or for a
    day where no job has one."""

    @model_validator(mode="after")
    def _fits_rule(self) -> Self:
        if self.rule == "drop" and (self.usd_per_gpu_hour or self.overtime_h is not None):
            raise ValueError("usd_per_gpu_hour and overtime_h go with rule wait; under drop no job starts late")
        if self.overtime_h is not None and self.overtime_h > LONGEST_WINDOW_H:
            raise ValueError(f"overtime_h is {self.overtime_h:g}; give at most {LONGEST_WINDOW_H:,} h")
        return self
