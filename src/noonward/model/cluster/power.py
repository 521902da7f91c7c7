"""Power and speed of a GPU type: P(n, f) and T(n, f) per job class, and what a free GPU draws."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from noonward.arrays import F8, I8
from noonward.model.spec import NonNegative, Positive, Spec


def cube(clock: F8 | float) -> F8:
    """Returns f^3, the nearest floating-point number on every machine; numpy's power depends on the CPU."""
    clock = np.asarray(clock, dtype=np.float64)
    return np.array([float(Fraction(f) ** 3) for f in clock.ravel().tolist()]).reshape(clock.shape)


class PowerCurve(Spec):
    """Active IT power of a gang, P(n, f) = n (cubic f^3 + linear f + constant), in W.

    Source: CHSAC-AF, Sec. III (model of its reference 3); f is the clock as a share of the maximum clock.
    """

    cubic_w: NonNegative = 0.0
    """Power per GPU at f = 1 that grows with the cube of the GPU frequency, W."""
    linear_w: NonNegative = 0.0
    """Power per GPU at f = 1 that grows with the GPU frequency, W."""
    constant_w: NonNegative = 0.0
    """Power per GPU that does not depend on the GPU frequency, W."""

    def power_w(self, gpus: F8 | float, clock: F8 | float) -> F8:
        """Returns P(n, f) in W, broadcasting gang size and clock.

        Example:
            >>> float(PowerCurve(cubic_w=75, linear_w=80, constant_w=110).power_w(2, 1.0))
            530.0
        """
        return np.asarray(gpus * (self.cubic_w * cube(clock) + self.linear_w * clock + self.constant_w))


class TimeCurve(Spec):
    """Time per unit of work, T(1, f) = constant + per_clock / f, T(n, f) = (constant + per_clock / f + per_gpu n) / n.

    Source: CHSAC-AF, Sec. III; in seconds per unit.
    """

    constant_s: NonNegative = 0.0
    """Time per unit of work that does not depend on the GPU frequency, s."""
    per_clock_s: NonNegative = 0.0
    """Time per unit of work at f = 1 that shrinks as the GPU frequency rises, s."""
    per_gpu_s: NonNegative = 0.0
    """s per unit and GPU of a gang of two or more: the price of communication."""

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if not self.constant_s + self.per_clock_s > 0:
            raise ValueError(
                f"constant_s + per_clock_s is {self.constant_s + self.per_clock_s:g} s per unit, so that work on one "
                "GPU would take no time; give at least one of them above 0"
            )
        return self

    def seconds_per_unit(self, gpus: F8 | float, clock: F8 | float) -> F8:
        """Returns T(n, f) in s per unit, broadcasting gang size and clock.

        Example:
            >>> float(TimeCurve(constant_s=1.0, per_clock_s=2.0, per_gpu_s=0.5).seconds_per_unit(2, 1.0))
            2.0
        """
        n = np.asarray(gpus, dtype=np.float64)
        alone = self.constant_s + self.per_clock_s / clock
        return np.where(n == 1, alone, (alone + self.per_gpu_s * n) / n)


class ClassProfile(Spec):
    """How one class of jobs runs on one GPU type."""

    power: PowerCurve
    """Active power."""
    time: TimeCurve | Literal["duration"] = "duration"
    """Time per unit, or ``duration``: a job's work is its run time, s, whatever the gang and the GPU frequency."""

    def seconds_per_unit(self, gpus: F8 | float, clock: F8 | float) -> F8:
        """Returns T(n, f) in s per unit; 1 for classes of fixed duration."""
        if isinstance(self.time, TimeCurve):
            return self.time.seconds_per_unit(gpus, clock)
        return np.ones(np.broadcast(np.asarray(gpus), np.asarray(clock)).shape)


class GpuType(Spec):
    """A GPU model with its share of the host."""

    idle_w: NonNegative
    """Power of a free GPU that is awake, W."""
    sleep_w: NonNegative | None = None
    """Power of a free GPU that sleeps, W (wake-up is free); required if the fleet's free GPUs sleep."""
    clocks: tuple[Positive, ...] = Field(default=(1.0,), min_length=1)
    """GPU frequencies as shares of the maximum, ascending, at most 1."""
    classes: dict[str, ClassProfile] = Field(min_length=1)
    """Profile per job class."""


def energy_optimal_level(power_w_NF: F8, seconds_per_unit_NF: F8, time_weight_w: float = 0.0) -> I8:
    """Returns per gang size the clock level of least energy per unit and, weighed, time; the lower clock on ties.

    argmin over f of E_unit + weight T_unit = (P(n, f) + weight) T(n, f). With weight 0 this is CHSAC-AF, Eq. 2; with a
    weight above 0 it is the oracle that the paper leaves to future work (Sec. VII): a second of a job's time is worth
    ``time_weight_w`` joules.

    Args:
        power_w_NF: P(n, f), W, shape (gang sizes, levels).
        seconds_per_unit_NF: T(n, f), s per unit, the same shape.
        time_weight_w: J that a second of the job's run is worth, W; at least 0.

    Returns:
        Level index per gang size.

    Example:
        >>> power, seconds = np.array([[50.0, 100.0]]), np.array([[3.0, 2.0]])  # 150 J in 3 s, or 200 J in 2 s
        >>> energy_optimal_level(power, seconds).tolist(), energy_optimal_level(power, seconds, 51.0).tolist()
        ([0], [1])
    """
    level_N: I8 = np.argmin((power_w_NF + time_weight_w) * seconds_per_unit_NF, axis=-1).astype(np.int64)
    return level_N
