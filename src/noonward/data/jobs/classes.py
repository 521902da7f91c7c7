"""Classes of jobs by what their log says: rules such as ``interactive=Partition==dev``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from noonward.data.text_table import plain_name
from noonward.errors import DataError, ScenarioError, nearest
from noonward.files import SLUG

OTHER_CLASS: Final = "job"
"""Class of the jobs that no rule names."""
RAW: Final = "raw:"
"""What the name of a file's own column begins with while a log is read."""
SAME: Final[Mapping[str, str]] = {
    "account": "team", "project": "team", "jobname": "name", "job_name": "name", "timelimit": "limit_s",
    "queue": "partition", "cluster": "origin", "jobid": "job_id",
}  # fmt: skip
"""Columns of a job table by other usual names."""
_RULE: Final = re.compile(r"\s*([^=!<>]+?)\s*=\s*([^=!<>]+?)\s*(==|!=|<=|>=|<|>)\s*(.+?)\s*")
_ORDER: Final[Mapping[str, Callable[[pl.Series, float], pl.Series]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class ClassRule:
    """A rule: jobs whose column fits are of a class.

    Attributes:
        name: Name of the class.
        column: Column, by its name in the file or in a job table.
        sign: ``==``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
        value: Text, several with ``|`` between them; for the last four signs a number.
    """

    name: str
    column: str
    sign: str
    value: str

    def fits(self, values: pl.Series) -> pl.Series:
        """Returns which values of the column fit; a missing one never does.

        Raises:
            DataError: The sign compares numbers, and no value of the column is one.
        """
        if self.sign in _ORDER:
            numbers = values.cast(pl.Float64, strict=False)
            if numbers.is_null().all():
                raise DataError(
                    f"--class {self}: column {self.column!r} holds no number, so {self.sign} compares nothing; use == "
                    "or !="
                )
            return _ORDER[self.sign](numbers, float(self.value)).fill_null(value=False)
        texts = values.cast(pl.String).str.strip_chars()
        same = texts.is_in([each.strip() for each in self.value.split("|")])
        return (same if self.sign == "==" else ~same).fill_null(value=False)

    def __str__(self) -> str:
        return f"{self.name}={self.column}{self.sign}{self.value}"


def parse_class(text: str) -> ClassRule:
    """Returns a rule written ``NAME=COLUMN==VALUE``.

    Raises:
        ScenarioError: The text has another form, or the class another name than scenarios take.

    Example:
        >>> parse_class("interactive=Partition==dev|debug")
        ClassRule(name='interactive', column='Partition', sign='==', value='dev|debug')
    """
    match = _RULE.fullmatch(text)
    shape = "write NAME=COLUMN==VALUE, e.g. --class 'interactive=Partition==dev|debug' or 'short=limit_s<=3600'"
    if match is None:
        raise ScenarioError(f"--class {text!r} is no rule; {shape}")
    if not SLUG.fullmatch(match[1]):
        raise ScenarioError(
            f"--class {text!r}: class name {match[1]!r}: use letters, digits, dots, dashes, underscores"
        )
    if match[3] in _ORDER:
        try:
            float(match[4])
        except ValueError:
            raise ScenarioError(f"--class {text!r}: {match[3]} compares numbers, not {match[4]!r}; {shape}") from None
    return ClassRule(match[1], match[2], match[3], match[4])


def column_of(rule: ClassRule, names: Sequence[str]) -> str | None:
    """Returns the column that a rule names: a file's own (``RAW``), else one of a job table; None where there is none.

    Args:
        rule: The rule.
        names: Columns there are.
    """
    wanted = plain_name(rule.column)
    present = {plain_name(name): name for name in names}
    tried = (f"{RAW}{wanted}", wanted, SAME.get(wanted, wanted))
    return next((present[name] for name in tried if name in present), None)


def classed(jobs: pl.DataFrame, rules: Sequence[ClassRule], where: str) -> tuple[pl.DataFrame, dict[str, int]]:
    """Returns jobs with the class that the first fitting rule gives them, and how many jobs each class has.

    Jobs that no rule names keep their class, where the table has a column of them; else they are of ``OTHER_CLASS``.

    Args:
        jobs: Jobs, one a row.
        rules: Rules, in order.
        where: Name of the file, for messages.

    Raises:
        DataError: A column is not there, or compares no numbers.
    """
    if not rules:
        return jobs, {}
    own = jobs["class"] if "class" in jobs.columns else pl.Series([None], dtype=pl.String).new_from_index(0, len(jobs))
    found = pl.Series([None], dtype=pl.String).new_from_index(0, len(jobs))
    for rule in rules:
        name = column_of(rule, jobs.columns)
        if name is None:
            known = [each.removeprefix(RAW) for each in jobs.columns]
            raise DataError(
                f"--class {rule}: {where} has no column {rule.column!r}; {nearest(rule.column, known, list_all=True)}"
            )
        frame = pl.DataFrame({"found": found, "fits": rule.fits(jobs[name])})
        found = frame.select(
            pl.when(pl.col("found").is_null() & pl.col("fits")).then(pl.lit(rule.name)).otherwise("found").alias("f")
        )["f"]
    classes = found.fill_null(own.cast(pl.String)).fill_null(OTHER_CLASS)
    counts = classes.value_counts().sort("count", descending=True)
    return jobs.with_columns(classes.alias("class")), dict(zip(*counts.get_columns(), strict=True))
