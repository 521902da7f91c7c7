"""Emerald AI's field test of 1 May 2025: each job's measured energy against our model of stops and resumes.

Source: Emerald AI, EPRI et al., "Turning AI Data Centers into Grid-Interactive Assets", github.com/ai-emerald/
emerald-ai-demo-may-2025 (Apache-2.0): power of six jobs on 256 A100 by the minute, during an event of Arizona Public
Service. What was done to each job when is read off that table; the power of stops, loads and darkness, and how long
they take, is our model's (``noonward.model.cluster.freedom.Checkpoint``), and only full power is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.errors import DataError
from noonward.model.cluster.freedom import Checkpoint
from noonward.studies.flexible_jobs.tables import number_columns

MINUTES: Final = 400
"""Minutes of the table, from 16:10."""
UNDISTURBED: Final = 30
"""Minutes at the beginning in which every job runs on all its GPUs: full power is their mean."""
TRAINING: Final = Checkpoint()
"""Stops and resumes of training jobs: the model's defaults."""
INFERENCE: Final = Checkpoint(stop_s=60, dark_s=90, load_s=60)
"""Those of batch inference (docs/freedoms.md)."""


@dataclass(frozen=True)
class Change:
    """A job is stopped, and resumed on some GPUs.

    Attributes:
        minute: Minute at which it begins to stop, from 16:10.
        gpus: GPUs that it is resumed on.
        resumed: Minute at which it begins to load; None: as soon as it can.
    """

    minute: int
    gpus: int
    resumed: int | None = None


@dataclass(frozen=True)
class FieldJob:
    """A job of the event.

    Attributes:
        column: Its column in the table.
        gpus: GPUs at the beginning.
        checkpoint: Model of its stops and resumes.
        changes: What was done to it.
    """

    column: str
    gpus: int
    checkpoint: Checkpoint
    changes: tuple[Change, ...] = ()


JOBS: Final = (
    FieldJob("ft_llama_8b_dolly-txw0sl4h", 32, TRAINING, (Change(100, 24), Change(300, 32))),
    FieldJob("infer_llama_8b-bw9rr4h2", 32, INFERENCE, (Change(200, 32, resumed=296),)),
    FieldJob("infer_llama_8b-kxymm0ql", 48, INFERENCE, (Change(105, 32), Change(305, 48))),
    FieldJob("infer_llama_8b-stsiwyqz", 32, INFERENCE),
    FieldJob("pt_mpt_13b_sm-k2jychqp", 48, TRAINING, (Change(90, 32), Change(290, 48))),
    FieldJob("pt_mpt_7b_fast-60hrpily", 48, TRAINING, (Change(95, 48, resumed=203),)),
)
"""The jobs, and what was done to them, as the table shows it."""


def modelled_share(job: FieldJob, minutes: int = MINUTES) -> float:
    """Returns a job's energy by the model, in minutes at full power on its first GPUs.

    Args:
        job: Job.
        minutes: Length of the event's table.

    Example:
        >>> modelled_share(FieldJob("steady", 8, TRAINING), 100)
        100.0
        >>> stop_and_go = FieldJob("paused", 8, Checkpoint(stop_s=120, dark_s=0, load_s=60, stop_power=0.5,
        ...     load_power=0.25), (Change(10, 4, resumed=20),))
        >>> modelled_share(stop_and_go, 31)  # 10 + 2 x 0.5 + 1 x 0.25 x 4/8 + 10 x 4/8
        16.125
    """
    cost, gpus, since, total = job.checkpoint, job.gpus, 0.0, 0.0
    for change in job.changes:
        total += gpus / job.gpus * (change.minute - since + cost.stop_power * cost.stop_s / 60)
        dark = change.minute + (cost.stop_s + cost.dark_s) / 60
        loads = dark if change.resumed is None else float(change.resumed)
        gpus, since = change.gpus, loads + cost.load_s / 60
        total += gpus / job.gpus * cost.load_power * cost.load_s / 60
    return total + gpus / job.gpus * (minutes - since)


@dataclass(frozen=True, kw_only=True)
class FieldFound:
    """A job's energy.

    Attributes:
        name: Its column in the table.
        measured_kwh: Measured.
        modelled_kwh: By our model.
    """

    name: str
    measured_kwh: float
    modelled_kwh: float

    @property
    def error(self) -> float:
        """Relative error of the model."""
        return self.modelled_kwh / self.measured_kwh - 1.0


def hold_against_field_test(table: Path) -> list[FieldFound]:
    """Compares each job's energy over the table.

    Args:
        table: The event's table: a title line, a header, and a row per minute with the power of each job, W.

    Raises:
        DataError: The file is not as described.
    """
    column = number_columns(table, [job.column for job in JOBS], title_lines=1)
    minutes = len(column[JOBS[0].column])
    if minutes != MINUTES:
        raise DataError(f"{table.name} has {minutes} rows; the event's table has {MINUTES}, one per minute from 16:10")
    return [_compared(job, column[job.column]) for job in JOBS]


def _compared(job: FieldJob, power_w_M: F8) -> FieldFound:
    full_w = float(np.mean(power_w_M[:UNDISTURBED]))
    return FieldFound(
        name=job.column,
        measured_kwh=float(power_w_M.sum()) / 60_000,
        modelled_kwh=full_w * modelled_share(job) / 60_000,
    )
