"""Jobs: a columnar table of what arrives, when, where from and what it needs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8, Records
from noonward.errors import DataError
from noonward.paging import in_file, leave_memory, parts, zero_rows
from noonward.sorting import time_order

JOB: Final = np.dtype(
    [
        ("arrival_s", "f8"),
        ("work", "f8"),  # units; s for classes of fixed duration
        ("expected", "f8"),  # mean of what it takes of that, at most that; equal to it where it is known
        ("deadline_s", "f8"),  # latest start, the return of the result not yet counted
        ("move_gb", "f8"),  # data and model that travel with the job
        ("result_gb", "f8"),
        ("origin", "i8"),  # ingress point
        ("class_", "i8"),
        ("gpus_min", "i8"),
        ("gpus_max", "i8"),
        ("preset_site", "i8"),  # site the workload itself names, or -1
        ("serial", "i8"),  # number of its arrival, from 0; -1 for a slot that holds no job
    ]
)
"""A job as it was submitted."""
TOLD: Final = ("told", "told_2", "told_3", "told_4")
"""Fields of a SUBMITTED record: the work that schedulers are told of when the job arrives, and then each time it has
outlived what they were told."""
SUBMITTED: Final = np.dtype(
    [
        *((name, "i4" if JOB[name].kind == "i" and name != "serial" else JOB[name]) for name in JOB.names or ()),
        ("held", "i4"),  # 1 where an operator holds it: nobody is asked about it
        ("tenant", "i4"),  # whose it is; 0 where no tenants are stated
        ("priority", "i4"),  # jobs of a higher one come first; 0 where no priorities are stated
        *((name, "f8") for name in TOLD),
    ]
)
"""A job of a run: the truth, which the engine alone reads, and what schedulers are told of its work in its place.

Small: a run over millions of jobs waits for memory more than for anything else."""

NO_SITE: Final = -1
"""No site is recorded."""
UNKNOWN_SITE: Final = -2
"""A site is recorded that the fleet does not have."""
NO_ROW: Final = -1
"""The job was not read from a table."""


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """A table of jobs, one entry an array position, sorted by arrival. Columns are read, never written to.

    Attributes:
        arrival_s_J: Arrival, seconds since the environment's start, at least 0, ascending.
        origin_J: Index of the ingress point the job arrives at (and returns its result to).
        class_J: Index of the job's class (``Fleet.classes``).
        gpus_min_J: Smallest gang that may start, GPUs, at least 1.
        gpus_max_J: Largest useful gang, GPUs, at least ``gpus_min_J``; equal to it for a fixed gang.
        work_J: Work in units; run time is ``work x T(n, f)``. For classes of fixed duration T is 1 s, so work
            is the duration in seconds. Above 0.
        slack_s_J: Largest accepted delay of the start, seconds, at least 0; infinite for none.
        data_gb_J: Data that travels with a migrated job, GB, at least 0.
        model_gb_J: Model that travels with a migrated job, GB, at least 0.
        result_gb_J: Result that returns to the origin, GB, at least 0.
        preset_site_J: Site that the workload itself routes the job to, or -1: used by the uniform routing rule.
        recorded_site_J: Site where a log says that the job ran, NO_SITE or UNKNOWN_SITE.
        recorded_start_s_J: When it says that the job started, seconds since the environment's start; NaN where it does
            not say. Only the policy ``what-happened`` reads both.
        row_J: Row of the table that the job was read from, from 0; NO_ROW where it was not read from one.

    Raises:
        DataError: There is no job, lengths disagree, or a value is outside what is stated above; the
            message names column, row and value.
    """

    arrival_s_J: F8
    origin_J: I8
    class_J: I8
    gpus_min_J: I8
    gpus_max_J: I8
    work_J: F8
    slack_s_J: F8
    data_gb_J: F8
    model_gb_J: F8
    result_gb_J: F8
    preset_site_J: I8
    recorded_site_J: I8
    recorded_start_s_J: F8
    row_J: I8

    def __post_init__(self) -> None:
        count = len(self.arrival_s_J)
        if count == 0:
            raise DataError("there is no job; give a table with at least one job")
        for field in fields(self):
            array = getattr(self, field.name)
            if array.shape != (count,):
                raise DataError(f"column {field.name} has shape {array.shape}; expected ({count},)")
            if array.dtype.kind == "f" and field.name != "recorded_start_s_J" and np.isnan(array).any():
                raise DataError(f"column {field.name}, row {int(np.isnan(array).argmax())}: value is missing (NaN)")
            leave_memory()
        self._check("arrival_s_J", self.arrival_s_J >= 0, "at least 0 s")
        self._check("arrival_s_J", np.isfinite(self.arrival_s_J), "finite")
        order = np.ones(count, bool)
        np.greater_equal(self.arrival_s_J[1:], self.arrival_s_J[:-1], out=order[1:])
        self._check("arrival_s_J", order, "sorted: at least the arrival of the row before")
        self._check("origin_J", self.origin_J >= 0, "an ingress index of at least 0")
        self._check("class_J", self.class_J >= 0, "a class index of at least 0")
        self._check("gpus_min_J", self.gpus_min_J >= 1, "at least 1 GPU")
        self._check("gpus_max_J", self.gpus_max_J >= self.gpus_min_J, "at least gpus_min")
        self._check("work_J", (self.work_J > 0) & np.isfinite(self.work_J), "above 0 and finite")
        self._check("slack_s_J", self.slack_s_J >= 0, "at least 0 s")
        for name in ("data_gb_J", "model_gb_J", "result_gb_J"):
            array = getattr(self, name)
            self._check(name, (array >= 0) & np.isfinite(array), "at least 0 GB and finite")
        self._check("preset_site_J", self.preset_site_J >= -1, "a site index, or -1 for none")
        self._check(
            "recorded_site_J", self.recorded_site_J >= UNKNOWN_SITE, "a site index, -1 for none, -2 for unknown"
        )
        self._check("row_J", self.row_J >= NO_ROW, "a row of at least 0, or -1 for none")
        self._check("recorded_start_s_J", ~np.isinf(self.recorded_start_s_J), "finite, or NaN for none")

    def _check(self, name: str, good_J: NDArray[np.bool_], allowed: str) -> None:
        if not good_J.all():
            row = int((~good_J).argmax())
            raise DataError(
                f"column {name}, row {row}: value {getattr(self, name)[row]} is not allowed; it must be {allowed}"
            )
        leave_memory()

    def __len__(self) -> int:
        return len(self.arrival_s_J)

    def take(self, rows_J: I8 | NDArray[np.bool_]) -> Jobs:
        """Returns some of the jobs, in the order of the rows."""
        return Jobs(**{each.name: getattr(self, each.name)[rows_J] for each in fields(Jobs)})

    @property
    def deadline_s_J(self) -> F8:
        """Latest start of every job, the return of its result not yet counted: arrival + slack, s; a new array."""
        return self.deadline_s(slice(None))

    def deadline_s(self, rows: slice) -> F8:
        """Returns the same of some jobs."""
        return np.asarray(self.arrival_s_J[rows] + self.slack_s_J[rows])

    @property
    def has_record(self) -> bool:
        """Whether a log says of any job when it started."""
        start_s_J = self.recorded_start_s_J
        return not bool(np.isnan(start_s_J[:1] if start_s_J.strides == (0,) else start_s_J).all())

    def records(self, dtype: np.dtype[np.void] = JOB) -> Records:
        """Returns the table as records.

        Args:
            dtype: JOB, or SUBMITTED, where schedulers are told the truth.
        """
        out = zero_rows(len(self), dtype)
        for part in parts(len(self)):
            out_R = out[part]
            for name in ("arrival_s", "work", "result_gb", "origin", "class_", "gpus_min", "gpus_max", "preset_site"):
                out_R[name] = getattr(self, f"{name.rstrip('_')}_J")[part]
            out_R["deadline_s"] = self.deadline_s(part)
            out_R["move_gb"] = self.data_gb_J[part] + self.model_gb_J[part]
            out_R["expected"], out_R["serial"] = self.work_J[part], np.arange(part.start, part.stop)
            if dtype == SUBMITTED:
                for name in TOLD:
                    out_R[name] = self.work_J[part]
        return out

    @classmethod
    def build(
        cls,
        *,
        arrival_s: F8,
        work: F8,
        origin: I8 | int = 0,
        class_: I8 | int = 0,
        gpus: I8 | int | None = None,
        gpus_min: I8 | int = 1,
        gpus_max: I8 | int = 1,
        slack_s: F8 | float = np.inf,
        data_gb: F8 | float = 0.0,
        model_gb: F8 | float = 0.0,
        result_gb: F8 | float = 0.0,
        preset_site: I8 | int = -1,
        recorded_site: I8 | int = NO_SITE,
        recorded_start_s: F8 | float = np.nan,
        row: I8 | int = NO_ROW,
    ) -> Jobs:
        """Builds a table from columns, scalars standing for constant columns, and sorts it by arrival (stable).

        Args:
            arrival_s: Arrivals, seconds.
            work: Work, units (seconds for classes of fixed duration).
            origin: Ingress index.
            class_: Class index.
            gpus: Fixed gang; sets both ``gpus_min`` and ``gpus_max``.
            gpus_min: Smallest gang.
            gpus_max: Largest gang.
            slack_s: Largest delay of the start, seconds.
            data_gb: Data that migrates, GB.
            model_gb: Model that migrates, GB.
            result_gb: Result that returns, GB.
            preset_site: Site the workload routes the job to, or -1.
            recorded_site: Site where a log says that it ran, NO_SITE or UNKNOWN_SITE.
            recorded_start_s: When it says that it started, seconds; NaN where it does not say.
            row: Row of the table that it was read from, or NO_ROW.

        Raises:
            DataError: As the class states.

        Example:
            >>> jobs = Jobs.build(arrival_s=np.array([60.0, 0.0]), work=np.array([10.0, 20.0]), gpus=2)
            >>> jobs.work_J.tolist(), jobs.gpus_min_J.tolist()
            ([20.0, 10.0], [2, 2])
        """
        arrivals = np.asarray(arrival_s, dtype=np.float64)
        order = time_order(arrivals) if (arrivals >= 0).all() else np.argsort(arrivals, kind="stable")

        def column(value: object, dtype: type) -> NDArray[Any]:
            array: NDArray[Any] = np.asarray(value, dtype=dtype)
            if array.ndim == 0:
                return in_file(np.full(arrivals.shape, array))
            leave_memory()
            return in_file(np.ascontiguousarray(np.broadcast_to(array, arrivals.shape)[order]))

        def seldom_read(value: object, dtype: type) -> NDArray[Any]:
            """A constant takes no memory; no kernel reads such a column, which would need a plain array."""
            array: NDArray[Any] = np.asarray(value, dtype=dtype)
            return np.broadcast_to(array, arrivals.shape) if array.ndim == 0 else column(array, dtype)

        gpus_min_J = column(gpus_min if gpus is None else gpus, np.int64)
        model_gb_J = column(model_gb, np.float64)
        return cls(
            arrival_s_J=column(arrivals, np.float64),
            origin_J=column(origin, np.int64),
            class_J=column(class_, np.int64),
            gpus_min_J=gpus_min_J,
            gpus_max_J=column(gpus_max, np.int64) if gpus is None else gpus_min_J,
            work_J=column(work, np.float64),
            slack_s_J=column(slack_s, np.float64),
            data_gb_J=column(data_gb, np.float64),
            model_gb_J=model_gb_J,
            result_gb_J=model_gb_J if result_gb is model_gb else column(result_gb, np.float64),
            preset_site_J=seldom_read(preset_site, np.int64),
            recorded_site_J=seldom_read(recorded_site, np.int64),
            recorded_start_s_J=seldom_read(recorded_start_s, np.float64),
            row_J=seldom_read(row, np.int64),
        )


def with_expected(job_J: Records) -> Records:
    """Returns records of jobs as JOB: kept ones of an older version have no ``expected``, which is their work."""
    names = job_J.dtype.names or ()
    if "expected" in names or "work" not in names:
        return job_J
    out = np.empty(job_J.shape, JOB)
    for name in set(names) & set(JOB.names or ()):
        out[name] = job_J[name]
    out["expected"] = job_J["work"]
    return out
