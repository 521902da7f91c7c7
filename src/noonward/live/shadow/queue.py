"""What Slurm says of all its jobs: when each was submitted, began and ended, and how many GPUs it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from noonward.live.advise.squeue import NOT_NOW, gpus_of_row, seconds_of, text_rows
from noonward.live.executors.protocol import OVER, Phase
from noonward.live.executors.slurm import phase_of

FIELDS: Final = (
    "JobArrayID", "State", "SubmitTime", "StartTime", "EndTime", "TimeLimit", "NumNodes", "NumTasks", "tres-per-job",
    "tres-per-node", "tres-per-task", "Reason", "UserName", "Name",
)  # fmt: skip
"""What is asked of ``squeue -O``."""


@dataclass(frozen=True, kw_only=True)
class SeenJob:
    """A job of a cluster. Times are s since 1970.

    Attributes:
        number: Its number; of a task, with the task's.
        name: Name.
        user: Whose it is.
        gpus: GPUs.
        phase: Where it stands.
        submit: When it was submitted.
        start: When it began; None: it has not.
        end: When it ended; None: it has not.
        limit_s: Time limit, s; None: none.
        waits: Why no scheduler may start it now; empty: it may be started, or runs.
    """

    number: str
    name: str
    user: str
    gpus: int
    phase: Phase
    submit: float
    start: float | None
    end: float | None
    limit_s: float | None
    waits: str


def seen_jobs(text: str, source: str) -> list[SeenJob]:
    """Returns the jobs with GPUs in a listing of ``FIELDS``; parts of heterogeneous jobs are left out.

    Raises:
        DataError: The listing cannot be read; the message names the line.
    """
    found = []
    for where, row in text_rows(text, source):
        gpus = 0 if "+" in row["id"] else gpus_of_row(row, where)
        submit = _time(row["submittime"])
        if not gpus or submit is None:
            continue
        phase = phase_of(row["state"], row["reason"])
        start = _time(row["starttime"]) if phase in ("running", "suspended") or phase in OVER else None
        end = _time(row["endtime"]) if phase in OVER else None
        if end is not None and start is not None and (start > end or (phase == "cancelled" and start == end)):
            start = None  # it was cancelled before it began
        found.append(
            SeenJob(
                number=row["id"],
                name=row["name"],
                user=row.get("user", ""),
                gpus=gpus,
                phase=phase,
                submit=submit,
                start=start,
                end=end,
                limit_s=seconds_of(row["limit"], where, "the time limit"),
                waits="it is held" if phase == "held" else NOT_NOW.get(row["reason"], "") if phase == "queued" else "",
            )
        )
    return found


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() else None
