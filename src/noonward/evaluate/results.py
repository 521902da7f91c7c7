"""The results table of a comparison, as text: the report and the terminal print the same cells."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from noonward.evaluate.compare import Comparison
from noonward.evaluate.statistics import Estimate, mean, ratio

UNDEFINED: Final = "–"
"""Cell of a value that is not defined."""


@dataclass(frozen=True)
class Column:
    """A column of the results table.

    Attributes:
        title: What it shows.
        unit: Unit of its cells.
        better: Whether higher or lower values are better, or neither.
    """

    title: str
    unit: str
    better: Literal["up", "down", "none"] = "none"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the results table.

    Attributes:
        name: Policy, or what the bound's row shows.
        cells: One formatted cell a column.
        kind: A policy, the reference policy, or a row that no policy made.
    """

    name: str
    cells: tuple[str, ...]
    kind: Literal["policy", "reference", "bound"] = "policy"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The results table: rows of bounds first, then policies, best first.

    Attributes:
        columns: Columns; the rows' names stand before them.
        rows: Rows.
        caption: How to read the cells.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    caption: str


Cell = Callable[[Comparison, str], str]


def number(estimate: Estimate, digits: int = 0) -> str:
    """Returns ``mean ± standard deviation``; the mean alone where there is no spread.

    Example:
        >>> number(Estimate(1234.56, spread=7.8), 1), number(Estimate(float("nan")))
        ('1,234.6 ± 7.8', '–')
    """
    if math.isnan(estimate.value):
        return UNDEFINED
    text = _plain(estimate.value, digits)
    return text if estimate.spread is None else f"{text} ± {_plain(estimate.spread, digits)}"


def percent(estimate: Estimate, *, signed: bool = False, digits: int = 1) -> str:
    """Returns a fraction in percent with its 95 % interval.

    Example:
        >>> percent(Estimate(0.27, 0.173, 0.368), signed=True), percent(Estimate(0.5)), percent(Estimate(0.5), digits=3)
        ('+27.0 [+17.3, +36.8]', '50.0', '50.000')
    """
    if math.isnan(estimate.value):
        return UNDEFINED
    sign = "+" if signed else ""
    value, low, high = (
        None if x is None else _percent(x, sign, digits) for x in (estimate.value, estimate.low, estimate.high)
    )
    return str(value) if low is None else f"{value} [{low}, {high}]"


def _plain(value: float, digits: int) -> str:
    return f"{round(value, digits) + 0.0:,.{digits}f}"


def _percent(fraction: float, sign: str, digits: int) -> str:
    value = round(100 * fraction, digits) + 0.0
    return f"{value:{sign if value else ''}.{digits}f}"


def ranked(comparison: Comparison) -> list[str]:
    """Returns the policies, best first: by utility, else by energy per unit of work; undefined values last."""
    name, sign = ("utility_usd", -1.0) if comparison.has_utility else ("joules_per_unit", 1.0)
    key = {policy: sign * comparison.mean(policy, name).value for policy in comparison.records}
    return sorted(key, key=lambda policy: (math.isnan(key[policy]), key[policy]))


def best_known_values(comparison: Comparison) -> np.ndarray:
    """Returns the utility of the best schedule known per environment, USD: the bound's own, or a policy's above it."""
    utilities = [comparison.values(policy, "utility_usd") for policy in comparison.records]
    return np.asarray(np.fmax(comparison.bound_values("best_known_usd"), np.max(utilities, axis=0)))


def gain_of(comparison: Comparison, values: np.ndarray) -> Estimate:
    """Returns the paired change of utilities against the reference policy, as a fraction of its utility."""
    base = comparison.values(comparison.reference, "utility_usd")
    return ratio(values - base, base)


def gap_closed_of(comparison: Comparison, values: np.ndarray) -> Estimate:
    """Returns the share of the gap between reference policy and bound that utilities close."""
    base = comparison.values(comparison.reference, "utility_usd")
    return ratio(values - base, comparison.bound_values("utility_usd") - base)


def energy_change(comparison: Comparison, policy: str) -> Estimate:
    """Returns the paired change of the energy per unit against the reference policy, as a fraction of it."""
    base = comparison.values(comparison.reference, "joules_per_unit")
    return ratio(comparison.values(policy, "joules_per_unit") - base, base)


def energy_above_bound(comparison: Comparison, policy: str) -> Estimate:
    """Returns how far the energy per unit lies above the least possible, as a fraction of that."""
    bound = comparison.bound_values("joules_per_unit")
    return ratio(comparison.values(policy, "joules_per_unit") - bound, bound)


def _ledger(name: str, digits: int = 0) -> Cell:
    return lambda comparison, policy: number(comparison.mean(policy, name), digits)


def _scaled(comparison: Comparison, policy: str, name: str, scale: float) -> Estimate:
    return mean(scale * comparison.values(policy, name))


def columns_of(comparison: Comparison) -> tuple[tuple[Column, Cell], ...]:
    """Returns the columns that suit a comparison's scenario, each with what fills its cells."""
    if comparison.has_utility:
        return _WITH_UTILITY
    return _WITHOUT_UTILITY if comparison.scenario.signals is None else (*_WITHOUT_UTILITY, *_WITH_SIGNALS)


def utility_digits(comparison: Comparison) -> int:
    """Returns the decimals utilities are shown with: three significant digits of the reference's."""
    size = abs(comparison.mean(comparison.reference, "utility_usd").value)
    return 0 if size >= 100 else 1 if size >= 10 else 2


_WITH_UTILITY: Final[tuple[tuple[Column, Cell], ...]] = (
    (Column("Utility", "USD", "up"), lambda c, p: number(c.mean(p, "utility_usd"), utility_digits(c))),
    (Column("Change against reference", "%", "up"), lambda c, p: percent(c.gain(p), signed=True)),
    (Column("Share of the gap to the bound", "%", "up"), lambda c, p: percent(c.gap_closed(p))),
    (Column("GPU-hours", "GPU h", "up"), _ledger("gpu_hours")),
    (Column("Done", "jobs", "up"), _ledger("done")),
    (Column("Overdue", "jobs", "down"), _ledger("overdue")),
    (Column("Energy cost", "USD/(GPU h)", "down"), _ledger("usd_per_gpu_hour", 4)),
    (Column("Emissions", "gCO2/(GPU h)", "down"), _ledger("g_per_gpu_hour", 1)),
    (Column("Migrations", "moves"), _ledger("moves")),
)
_WITHOUT_UTILITY: Final[tuple[tuple[Column, Cell], ...]] = (
    (Column("Completed", "jobs", "up"), _ledger("done")),
    (Column("Unfinished", "jobs", "down"), _ledger("unfinished")),
    (Column("Energy per unit, exact", "J/unit", "down"), _ledger("joules_per_unit", 2)),
    (Column("Change against reference", "%", "down"), lambda c, p: percent(energy_change(c, p), signed=True)),
    (Column("Above the bound", "%", "down"), lambda c, p: percent(energy_above_bound(c, p))),
    (Column("Mean time in system", "s", "down"), _ledger("mean_time_in_system_s")),
    (Column("99th percentile", "s", "down"), _ledger("p99_time_in_system_s")),
    (Column("Mean time, all arrivals so far", "s", "down"), _ledger("mean_time_so_far_s")),
    (Column("Longest queue", "jobs", "down"), lambda c, p: number(mean(c.longest_queue(p)))),
)
_WITH_SIGNALS: Final[tuple[tuple[Column, Cell], ...]] = (
    (Column("Energy cost", "USD/million units", "down"), lambda c, p: number(_scaled(c, p, "usd_per_unit", 1e6), 3)),
    (Column("Emissions", "gCO2/1000 units", "down"), lambda c, p: number(_scaled(c, p, "g_per_unit", 1e3), 3)),
)
"""More columns of a scenario without economics that has signals."""


def summary_rows(comparison: Comparison) -> Summary:
    """Returns the results table of a comparison.

    With economics: utility, paired change, share of the gap to the bound, GPU-hours, jobs done and overdue, cost and
    emissions per GPU-hour, migrations. Without: jobs completed and unfinished, exact energy per unit, its distance from
    the bound, times in system, longest queue, and with signals cost and emissions per unit.
    """
    table = columns_of(comparison)
    rows = _utility_bounds(comparison) if comparison.has_utility else _energy_bound(comparison)
    for policy in ranked(comparison):
        cells = tuple(cell(comparison, policy) for _, cell in table)
        rows.append(Row(name=policy, cells=cells, kind="reference" if policy == comparison.reference else "policy"))
    return Summary(columns=tuple(column for column, _ in table), rows=tuple(rows), caption=_caption(comparison))


def _utility_bounds(comparison: Comparison) -> list[Row]:
    upper = comparison.bound_values("utility_usd")
    if np.isnan(upper).all():
        return []
    rest = (UNDEFINED,) * (len(_WITH_UTILITY) - 3)
    rows = []
    for name, values in (("upper bound", upper), ("best known schedule", best_known_values(comparison))):
        gain, share = gain_of(comparison, values), gap_closed_of(comparison, values)
        cells = (number(mean(values), utility_digits(comparison)), percent(gain, signed=True), percent(share), *rest)
        rows.append(Row(name=name, cells=cells, kind="bound"))
    return rows


def _energy_bound(comparison: Comparison) -> list[Row]:
    lower = comparison.bound_values("joules_per_unit")
    if np.isnan(lower).all():
        return []
    base = comparison.values(comparison.reference, "joules_per_unit")
    cells = [UNDEFINED] * len(columns_of(comparison))
    cells[2:5] = [number(mean(lower), 2), percent(ratio(lower - base, base), signed=True), "0.0"]
    return [Row(name="lower bound", cells=tuple(cells), kind="bound")]


def _caption(comparison: Comparison) -> str:
    count = len(comparison.bounds)
    if count == 1:
        return "One environment: the numbers have no spread; run more environments for intervals."
    return (
        f"Mean ± standard deviation over {count} environments. Changes and shares are paired (the same environments "
        f"for every policy), against {comparison.reference}, with the 95 % confidence interval in brackets."
    )
