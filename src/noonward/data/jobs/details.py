"""What a table says of its jobs beyond what they need: who asked, under which name and limit, and how they ended."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from noonward.data.table_file import TableFile
from noonward.model.cluster.tenant import MOST_PRIORITY

DETAILS: Final[Mapping[str, type[pl.DataType]]] = {
    "job_id": pl.String,
    "user": pl.String,
    "team": pl.String,
    "name": pl.String,
    "partition": pl.String,
    "limit_s": pl.Float64,
    "state": pl.String,
    "priority": pl.Int64,
}
"""Columns and their types. ``team`` is the account or project that a job counts for, ``limit_s`` the longest run time
that was asked for (s), ``state`` one of ``STATES``; jobs of a higher ``priority`` come first."""
STATES: Final = ("done", "failed", "cancelled", "timeout", "node-fail")
"""How a job ended: done; failed by its own fault; stopped by its user or the scheduler; at its limit; with its node."""

FAILED_STATES: Final = ("failed", "node-fail")
"""States of jobs that did not do their work because something failed."""

_WORDS: Final = {
    "done": ("done", "completed", "complete", "completing", "succeeded", "success", "finished", "pass", "terminated",
             "exited"),
    "failed": ("failed", "fail", "failure", "error", "out_of_memory", "oom", "launch_failed"),
    "cancelled": ("cancelled", "canceled", "cancel", "killed", "stopped", "preempted", "revoked", "removed", "evicted",
                  "requeued"),
    "timeout": ("timeout", "timed_out", "deadline", "deadlineexceeded"),
    "node-fail": ("node-fail", "node_fail", "nodefail", "boot_fail", "lost"),
}  # fmt: skip
_STATE_OF: Final = {word: state for state, words in _WORDS.items() for word in words}
PERSONAL: Final = ("job_id", "user", "team", "name")
"""Columns that may tell whose a job is."""


def states_of(words: pl.Series) -> pl.Series:
    """Returns the states that words of schedulers stand for; null where a word is empty or unknown.

    Args:
        words: Texts such as ``COMPLETED`` or ``CANCELLED by 1001``; what follows a blank is left aside.

    Example:
        >>> states_of(pl.Series(["COMPLETED", "CANCELLED by 1001", "OUT_OF_MEMORY", "RUNNING"])).to_list()
        ['done', 'cancelled', 'failed', None]
    """
    first = words.fill_null("").str.strip_chars().str.to_lowercase().str.split(" ").list.first()
    return first.replace_strict(_STATE_OF, default=None, return_dtype=pl.String)


def details_of(table: TableFile) -> pl.DataFrame:
    """Returns the details of a table's jobs, one row a job in the file's order; null where the table says none.

    Raises:
        DataError: A state is unknown, a limit is no number of seconds above 0, or a priority is out of range.
    """
    columns: dict[str, pl.Series] = {}
    for key, kind in DETAILS.items():
        if not table.has(key):
            columns[key] = pl.Series([None], dtype=kind).new_from_index(0, len(table))
            continue
        text = table.frame[table.column_of[key]].cast(pl.String).str.strip_chars()
        text = text.set(text == "", None)
        if key == "state":
            state = states_of(text)
            table.forbid(
                key, (state.is_null() & text.is_not_null()).to_numpy(), f"give {', '.join(STATES)}, or leave it empty"
            )
            text = state
        elif key == "limit_s":
            number = text.cast(pl.Float64, strict=False)
            broken = (text.is_not_null() & (number.is_null() | ~(number > 0))).fill_null(value=True)
            table.forbid(key, broken.to_numpy(), "give seconds above 0, or leave it empty for no limit")
            text = number.set(number == np.inf, None)
        elif key == "priority":
            whole = text.cast(pl.Int64, strict=False)
            broken = text.is_not_null() & ~(whole.abs() <= MOST_PRIORITY).fill_null(value=False)
            table.forbid(key, broken.to_numpy(), f"give a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}")
            text = whole
        columns[key] = text
    return pl.DataFrame(columns)


def anonymous(table: pl.DataFrame, salt: str, columns: Sequence[str] = PERSONAL) -> pl.DataFrame:
    """Returns a table whose personal columns hold digests: equal for equal names, not to be turned back without salt.

    Args:
        table: Job table.
        salt: Secret text; the same one gives the same digests.
        columns: Columns to replace; absent ones are left aside.

    Example:
        >>> jobs = pl.DataFrame({"user": ["ada", "bob", "ada"], "gpus": [1, 2, 3]})
        >>> users = anonymous(jobs, "secret")["user"].to_list()
        >>> users[0] == users[2] != users[1], "ada" in users[0]
        (True, False)
    """
    key = hashlib.sha256(salt.encode()).digest()

    def digest(column: str, value: str) -> str:
        return hashlib.blake2b(value.encode(), key=key, person=column.encode()[:16], digest_size=8).hexdigest()

    made = []
    for column in columns:
        if column in table.columns:
            text = table[column].cast(pl.String)
            distinct = text.drop_nulls().unique().to_list()
            codes = {value: digest(column, value) for value in distinct}
            made.append(text.replace_strict(codes, default=None, return_dtype=pl.String).alias(column))
    return table.with_columns(made)
