"""The records of a comparison as polars DataFrames: one row a run, a job, or a site and hour."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from noonward.errors import ScenarioError

if TYPE_CHECKING:
    import polars as pl

    from noonward.evaluate.comparison import Comparison

TIMES = {"arrival_s": "arrival", "start_s": "start", "finish_s": "finish"}
"""Columns in seconds since the run's start, and the names of the same times in UTC."""


def run_frame(comparison: Comparison) -> pl.DataFrame:
    """Returns one row a policy and environment: the ledger's figures, best policy first.

    Columns: ``policy``, ``environment``, ``start`` (UTC), then the ledger's fields with their units in their names.
    """
    import polars as pl

    rows = []
    for policy in comparison.ranked():
        for index, record in enumerate(comparison.records[policy]):
            figures = {name: value for name, value in record.ledger.as_dict().items() if not isinstance(value, dict)}
            total = getattr(record.ledger, "total_usd", None)
            figures |= {} if total is None else {"total_usd": total}
            rows.append({"policy": policy, "environment": index, "start": _start(record), **figures})
    return pl.DataFrame(rows, infer_schema_length=None)


def job_frame(comparison: Comparison) -> pl.DataFrame:
    """Returns one row a policy, environment and job, with arrival, start and finish in UTC too (null: never).

    A column that some runs lack, such as ``suspended_h`` where a policy suspends no job, is null in their rows.

    Raises:
        ScenarioError: Runs of this kind keep no table of jobs.
    """
    return _joined(comparison, "jobs")


def hour_frame(comparison: Comparison) -> pl.DataFrame:
    """Returns one row a policy, environment, site and hour, with ``time``, the hour's start in UTC.

    Raises:
        ScenarioError: Runs of this kind keep no table of hours.
    """
    return _joined(comparison, "hours")


def _joined(comparison: Comparison, table: str) -> pl.DataFrame:
    import polars as pl

    frames = []
    for policy in comparison.ranked():
        for index, record in enumerate(comparison.records[policy]):
            if not hasattr(record, table):
                raise ScenarioError(
                    f"runs of kind {comparison.scenario.kind} keep no table of {table}; to_frame() has their figures"
                )
            frame = with_times(getattr(record, table), _start(record))
            said = (pl.lit(policy).alias("policy"), pl.lit(index, pl.Int32).alias("environment"))
            frames.append(frame.select(*said, pl.all()))
    return pl.concat(frames, how="diagonal")


def with_times(frame: pl.DataFrame, start: datetime) -> pl.DataFrame:
    """Returns a table of jobs or hours with its times in UTC beside those in seconds or hours since the start."""
    import polars as pl

    begin = pl.lit(start).dt.cast_time_unit("us").dt.convert_time_zone("UTC")

    def at(column: str) -> pl.Expr:
        known = pl.col(column).is_finite() & (pl.col(column) >= 0)
        return pl.when(known).then(begin + pl.duration(microseconds=(pl.col(column) * 1e6).round().cast(pl.Int64)))

    if "hour" in frame.columns:
        return frame.with_columns((begin + pl.duration(hours=pl.col("hour"))).alias("time"))
    known = {column: name for column, name in TIMES.items() if column in frame.columns}
    finite = frame.with_columns(pl.col(list(known)).fill_nan(None))
    return frame.with_columns(finite.select(at(column).alias(name) for column, name in known.items()))


def _start(record: Any) -> datetime:
    return datetime.fromisoformat(record.manifest["start"])
