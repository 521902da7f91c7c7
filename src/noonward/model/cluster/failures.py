"""Failures: by which law running jobs fail, as scenarios state it, and when those of an environment do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Self

import numpy as np
from pydantic import Field, model_validator

from noonward.arrays import F8, Bools
from noonward.model.spec import NonNegative, Share, Spec
from noonward.units import HOUR_S

LEAST_SHARE: Final = 1e-6
"""Least share of its work that a job does before it fails by its own fault; shares are multiples of it."""


class Failures(Spec):
    """How jobs fail while they run (protocol ``each-slot``).

    A failure of hardware stops the whole gang. The job is begun again from its last periodic checkpoint
    (``fleet.freedoms.CLASS.checkpoint``); one of a class without freedoms from its start. A job that fails by its own
    fault would do so again: it has failed for good, and its work is lost.
    """

    per_gpu_hour: Annotated[NonNegative, Field(le=60)] = 0.0
    """Failures of hardware per GPU and hour of running: exponential in a gang's GPU-hours. Llama 3 saw 419 in 54 days
    on 16,384 GPUs: 2e-5 (Dubey et al. 2024, arXiv:2407.21783)."""
    retries: Annotated[int, Field(ge=0, le=1000)] = 10
    """Times that a job is begun again after a failure of hardware; at the next one it has failed for good."""
    share: Share = 0.0
    """Share of the jobs that fail by their own fault."""
    at: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Mean share of its work that such a job does before: a share x has the density ``a x^(a - 1)``, a = at/(1 - at).
    Of the GPU jobs of Acme's cluster Seren 43% failed, with 12% of the GPU time (Hu et al., NSDI 2024): 0.19."""
    recorded: bool = False
    """Whether jobs fail that the job table says did (state ``failed`` or ``node-fail``): for good, after their run."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not (self.per_gpu_hour or self.share or self.recorded):
            raise ValueError("no job fails; give per_gpu_hour or share above 0, or recorded: true, or leave it out")
        return self

    def draw(self, work_J: F8, failed_J: Bools | None, rng: np.random.Generator) -> JobFailures:
        """Returns when jobs fail, whatever is done with them.

        Args:
            work_J: Work, units, [J].
            failed_J: Jobs that the table says failed, [J]; None: it says nothing.
            rng: Random numbers; jobs have the same draws whatever the rates are.

        Raises:
            ValueError: ``recorded`` is stated and the table says nothing.
        """
        jobs = len(work_J)
        own, share_J = rng.random(jobs) < self.share, rng.random(jobs) ** (1.0 / self.at - 1.0)
        fails_J = np.maximum(np.round(share_J / LEAST_SHARE), 1.0) * LEAST_SHARE * work_J
        fails_J[~own] = np.inf
        if self.recorded:
            if failed_J is None:
                raise ValueError("the job table has no column 'state'")
            fails_J = np.minimum(fails_J, np.where(failed_J, work_J, np.inf))
        gpu_s_JK = np.full((jobs, 1 + self.retries), np.inf)
        if self.per_gpu_hour:
            drawn_JK = rng.standard_exponential(gpu_s_JK.shape)
            gpu_s_JK = np.maximum(np.round(drawn_JK * (HOUR_S / self.per_gpu_hour)), 1.0)
        return JobFailures(work_J=fails_J, gpu_s_JK=gpu_s_JK)


@dataclass(frozen=True, kw_only=True)
class JobFailures:
    """When the jobs of an environment fail; no scheduler sees it. Axes: J jobs, K runs up to a failure of hardware.

    Attributes:
        work_J: Work that a job has done when it fails by its own fault, units; infinite: it does not.
        gpu_s_JK: GPU-seconds that it runs from its start, or from a failure of hardware, to the next one. After the
            last it has failed for good.
    """

    work_J: F8
    gpu_s_JK: F8

    def __len__(self) -> int:
        return len(self.work_J)

    @property
    def table_JX(self) -> F8:
        """Both in one table: ``work_J``, then ``gpu_s_JK``."""
        return np.column_stack([self.work_J, self.gpu_s_JK])
