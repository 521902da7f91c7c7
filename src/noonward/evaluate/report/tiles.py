"""The three figures at the head of a report: what the proposed policy changes in cost, carbon and delay."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.evaluate.answer import bills, carbon_unit, digits_of, lasting, money, savings, spoken, verdict_of
from noonward.evaluate.cluster_objective import ClusterObjective
from noonward.evaluate.comparison import Comparison, case_noun
from noonward.evaluate.job_figures import job_figures
from noonward.evaluate.report import page
from noonward.evaluate.statistics import Estimate, mean, ratio, size_told

STYLE: Final = """
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 220px), 1fr)); gap: 12px;
  margin: 18px 0 10px; }
.tile { border: 1px solid #d7dbe0; border-top: 4px solid #8a929e; padding: 10px 14px; border-radius: 3px; }
.tile.good { border-top-color: #2e7d32; } .tile.bad { border-top-color: #b45309; }
.tile h2 { font-size: 14px; margin: 0; font-weight: 600; color: #444; }
.tile .big { font-size: 27px; line-height: 1.25; font-weight: 600; margin: 0; }
.tile.open .big { color: #6b7280; }
.tile p { font-size: 13px; color: #444; margin: 0; }
"""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A figure with what it is read against.

    Attributes:
        title: What it is of.
        big: The change, in large type.
        detail: The value, today's, and the interval of the change.
        change: The change; less is better.
    """

    title: str
    big: str
    detail: str
    change: Estimate


def tiles_html(comparison: Comparison) -> str:
    """Returns the figures of the policy that the verdict names, over the windows that measured it.

    Returns:
        HTML; nothing where today's policy stays, or the scenario has no prices.
    """
    best = verdict_of(comparison).policy
    cluster = isinstance(comparison.objective, ClusterObjective)
    if best == comparison.reference or not cluster or comparison.scenario.signals is None:
        return ""
    return f"<div class='tiles'>{''.join(_html(tile) for tile in tiles(comparison, best))}</div>"


def tiles(comparison: Comparison, policy: str) -> list[Tile]:
    """Returns cost, carbon and delay under a policy next to today's, over the windows that measured it."""
    shown = comparison.only(verdict_of(comparison).measured)
    today, saved = shown.reference, savings(shown, policy)
    of, unit, now = comparison.currency.of, comparison.currency.name, spoken(today)
    usd_PE = [bills(shown, each) for each in (policy, today)]
    mass_unit, size, places = carbon_unit(shown)
    mass_PE = [shown.values(each, "carbon_kg") / size for each in (policy, today)]
    delay_PE = [
        np.array([job_figures(record).mean_delay_s for record in shown.records[each]]) for each in (policy, today)
    ]
    usd = [of(mean(values)).value for values in usd_PE]
    mass, delay = ([mean(values).value for values in pair] for pair in (mass_PE, delay_PE))
    change, case = mean(delay_PE[0] - delay_PE[1]), case_noun(comparison.scenario)
    return [
        Tile(
            title="Energy and transfers paid",
            big=_share(usd_PE, f"{usd[0] - usd[1]:+,.2f} {unit}"),
            detail=f"{_amount(usd[0])} {unit}; {now}: {_amount(usd[1])}{_between(of(saved.usd), unit, case)}",
            change=-saved.usd,
        ),
        Tile(
            title="Emissions",
            big=_share(mass_PE, f"{mass[0] - mass[1]:+,.{places}f} {mass_unit}"),
            detail=f"{mass[0]:,.{places}f} {mass_unit}; {now}: {mass[1]:,.{places}f}{_between(*_mass(saved.kg), case)}",
            change=-saved.kg,
        ),
        Tile(
            title="Mean delay of a start",
            big=lasting(delay[0]),
            detail=f"{now}: {lasting(delay[1])}{_within(change)}",
            change=change,
        ),
    ]


def _html(tile: Tile) -> str:
    low, high = tile.change.low, tile.change.high
    kind = "" if low is None or high is None else " open" if low <= 0 <= high else " good" if high < 0 else " bad"
    return (
        f"<div class='tile{kind}'><h2>{escape(tile.title)}</h2><p class='big'>{page.prose(tile.big)}</p>"
        f"<p>{page.prose(tile.detail)}</p></div>"
    )


def _share(values_PE: list[F8], otherwise: str) -> str:
    """Returns the change of a sum in percent of today's, or in words; where that is not above 0, the change itself."""
    if not values_PE[1].sum() > 0:
        return otherwise
    change = ratio(values_PE[0] - values_PE[1], values_PE[1]).value
    size = size_told(change)
    if not size[0].isdigit() or not change:
        return "About the same"
    sign = "+" if change > 0 else "\N{MINUS SIGN}"
    return sign + size


def _amount(value: float) -> str:
    """Returns an amount with at least three significant digits."""
    return f"{value:,.{digits_of(value)}f}"


def _mass(kg: Estimate) -> tuple[Estimate, str]:
    """Returns a saving of emissions in the unit that suits it, as the headline says it."""
    return (kg.over(1000.0), "t CO2") if abs(kg.value) >= 1000 else (kg, "kg CO2")


def _between(saved: Estimate, unit: str, case: str) -> str:
    """Returns the 95% interval of a saving in words; nothing without one."""
    if saved.low is None or saved.high is None:
        return ""
    return f". Saved per {case}: {money(saved, unit)}{_doubtful(saved)}"


def _within(change: Estimate) -> str:
    """Returns the 95% interval of a change of seconds in words; nothing without one."""
    if change.low is None or change.high is None:
        return ""
    size, unit = (3600.0, "h") if abs(change.value) >= 7200 else (60.0, "min")
    low, value, high = (each / size for each in (change.low, change.value, change.high))
    return f". Change: {value:+.1f} {unit} [{low:+.1f}, {high:+.1f}]{_doubtful(change)}"


def _doubtful(change: Estimate) -> str:
    """Returns that a change is not significant, where its interval includes zero."""
    assert change.low is not None
    assert change.high is not None
    return ", not significant" if change.low <= 0 <= change.high else ""
