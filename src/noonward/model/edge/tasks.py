"""Image tasks: a columnar table of what arrives, when, how many servers each needs and which model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from noonward.arrays import F8, I8, Records
from noonward.errors import DataError

TASK: Final = np.dtype(
    [
        ("stamp_s", "f8"),  # when the task was submitted
        ("ready_t", "i8"),  # first tick at which it can be launched
        ("gang", "i8"),  # servers it needs, all at once
        ("model", "i8"),  # model it asks for
        ("steps_max", "f8"),  # most steps it may be given
        ("deadline_s", "f8"),  # latest end that was promised; NO_DEADLINE_S without a promise
        ("load_s", "f8"),  # seconds to load its model on its gang, if it is not loaded there
        ("step_s", "f8"),  # seconds a step on its gang
    ]
)
"""A task as the engine reads it."""


NO_DEADLINE_S: Final = 1e18
"""Deadline of a task without one, s."""


@dataclass(frozen=True, kw_only=True)
class ImageTasks:
    """Tasks in order of arrival; K tasks.

    Attributes:
        record_K: TASK records.

    Raises:
        DataError: Tasks are out of order, or a value is out of range.
    """

    record_K: Records

    def __post_init__(self) -> None:
        record_K = self.record_K
        if (np.diff(record_K["ready_t"]) < 0).any() or (np.diff(record_K["stamp_s"]) < 0).any():
            raise DataError("image tasks are not in order of arrival; sort them by their time")
        for name, low in (("stamp_s", 0.0), ("load_s", 0.0), ("step_s", 0.0), ("gang", 1), ("model", 0)):
            column = record_K[name]
            bad = ~(column >= low) | (column > 1e12)
            if bad.any():
                row = int(bad.argmax())
                raise DataError(f"image task {row}: {name} is {column[row]}; it must be a number of at least {low}")

    def __len__(self) -> int:
        return len(self.record_K)

    @property
    def stamp_s_K(self) -> F8:
        """When each task was submitted, s since the start."""
        return np.asarray(self.record_K["stamp_s"])

    @property
    def gang_K(self) -> I8:
        """Servers each task needs."""
        return np.asarray(self.record_K["gang"])
