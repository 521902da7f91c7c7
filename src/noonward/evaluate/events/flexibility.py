"""What a fleet can give up: attained share, price and least price by depth, length and notice of an event."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import plotly.graph_objects as go

from noonward.errors import ScenarioError
from noonward.evaluate.events.play import Case, Played, PlayedRun, playable, policy_of, starts_of
from noonward.evaluate.metrics import Metric
from noonward.evaluate.report.figure_style import DASHES, INK, POLICY_COLORS, SYMBOLS, lay_out
from noonward.evaluate.table import UNDEFINED, Figure, TextTable
from noonward.model.cluster.scenario import Scenario
from noonward.runtime.executor import Executor, Progress, map_runs
from noonward.runtime.runs import environment_of
from noonward.units import DAY_H

CUTS: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Depths: shares of the power that the fleet would have drawn."""
HOURS: Final = (0.5, 3.0, 10.0)
"""Lengths, h."""
NOTICES_MIN: Final = (0.0, 10.0, 60.0, 1440.0)
"""Notices, min."""
KEPT_SHARE: Final = 0.95
"""Share of what is asked from which on an event counts as followed."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A case over all environments.

    Attributes:
        case: The case.
        runs: What came of it in each environment.
    """

    case: Case
    runs: tuple[Played, ...]

    @property
    def attained(self) -> float:
        """Share of the asked energy that was left out."""
        return sum(run.delivered_mwh for run in self.runs) / sum(run.asked_mwh for run in self.runs)

    @property
    def least(self) -> float:
        """Least share in an interval after the ramp."""
        return min(run.least_compliance for run in self.runs)

    @property
    def late_jobs(self) -> int:
        """Jobs dropped, or not done, beyond those without events."""
        return sum(run.late_jobs for run in self.runs)

    @property
    def usd_per_mwh(self) -> float | None:
        """Price of the work not done during the events per MWh not drawn; None where nothing was left out."""
        usd = sum(run.lost_gpu_hours * run.usd_per_gpu_hour for run in self.runs)
        return _over(usd, sum(run.cut_mwh for run in self.runs))

    @property
    def utility_usd_per_mwh(self) -> float | None:
        """Utility lost over the whole run per MWh not drawn during the events."""
        return _over(sum(run.utility_lost_usd for run in self.runs), sum(run.cut_mwh for run in self.runs))

    @property
    def bound_usd_per_mwh(self) -> float | None:
        """Least price of the work that the running jobs could lose at the cut asked, per MWh of that."""
        usd = sum(run.least_gpu_hours * run.usd_per_gpu_hour for run in self.runs)
        return _over(usd, sum(run.least_cut_mwh for run in self.runs))


def _over(usd: float, mwh: float) -> float | None:
    return usd / mwh if mwh > 1e-9 and not math.isnan(usd) else None


@dataclass(frozen=True, kw_only=True)
class Flexibility:
    """What a fleet can give up.

    Attributes:
        scenario: Its name.
        policy: Policy that decides what no event asks.
        cells: Cases, by cut, hours and notice.
        events: Events per environment.
        environments: Number of environments.
        window_h: Length of an environment's window, h.
    """

    scenario: str
    policy: str
    cells: tuple[Cell, ...]
    events: int
    environments: int
    window_h: float

    def metrics(self) -> list[Metric]:
        """Returns all figures (docs/figures.md)."""
        found = []
        for cell in self.cells:
            at = cell.case.label
            found += [
                Metric.of(f"flexibility/share_attained@{at}", cell.attained, "fraction"),
                Metric.of(f"flexibility/least_share@{at}", cell.least, "fraction"),
                _price(f"flexibility/usd_per_mwh@{at}", cell.usd_per_mwh),
                _price(f"flexibility/bound_usd_per_mwh@{at}", cell.bound_usd_per_mwh),
                _price(f"flexibility/utility_usd_per_mwh@{at}", cell.utility_usd_per_mwh),
                Metric.of(f"flexibility/late_jobs@{at}", cell.late_jobs, "jobs"),
            ]
        return found

    def of(self, hours: float, notice_min: float) -> list[Cell]:
        """Returns the cells of a length and a notice, by depth."""
        return [cell for cell in self.cells if (cell.case.hours, cell.case.notice_min) == (hours, notice_min)]

    @property
    def lengths(self) -> tuple[float, ...]:
        """Lengths, h."""
        return tuple(dict.fromkeys(cell.case.hours for cell in self.cells))

    @property
    def notices(self) -> tuple[float, ...]:
        """Notices, min."""
        return tuple(dict.fromkeys(cell.case.notice_min for cell in self.cells))


def _price(name: str, value: float | None) -> Metric:
    return Metric(name=name, value=value, unit="USD/MWh")


def check_cases(cases: Sequence[Case]) -> None:
    """Raises ScenarioError unless cuts lie above 0 and at most at 1, and lengths and notices are possible."""
    for case in cases:
        if not 0 < case.cut <= 1 or not 1 / 6 <= case.hours < 24 or not 0 <= case.notice_min <= 7 * 1440:
            raise ScenarioError(
                f"an event with a cut of {case.cut:.0%}, {case.hours:g} h long, notice {case.notice_min:g} min: the "
                "cut must be above 0% and at most 100%, the length from 10 minutes to less than a day, the notice at "
                "most a week"
            )


def flexibility(
    scenario: Scenario,
    policy: str | None = None,
    *,
    cuts: Sequence[float] = CUTS,
    hours: Sequence[float] = HOURS,
    notices_min: Sequence[float] = NOTICES_MIN,
    environments: int = 1,
    seed: int = 0,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Flexibility:
    """Plays events of every depth, length and notice on a fleet, each case at the same times.

    Args:
        scenario: Scenario of kind ``cluster``, protocol each-slot, with signals and economics.
        policy: Policy that decides what no event asks; None: the scenario's reference.
        cuts: Depths, above 0 to 1.
        hours: Lengths, h, shorter than a day.
        notices_min: Notices, min.
        environments: Number of environments.
        seed: Seed of environments, policies and the times of events.
        executor: Where runs are carried out; by default here.
        progress: Called once per run.

    Raises:
        ScenarioError: The scenario cannot have events, its windows are too short, or a case is not possible.
    """
    cases = [Case(*each) for each in itertools.product(cuts, hours, notices_min)]
    check_cases(cases)
    chosen = policy_of(scenario, policy)
    specs = []
    count = 0
    for index in range(environments):
        environment = playable(environment_of(scenario, index, seed))
        starts_s = starts_of(environment, max(hours), max(notices_min) / 60)
        count = len(starts_s)
        specs += [PlayedRun(scenario, index, seed, chosen, case, starts_s) for case in cases]
    found = map_runs(specs, executor, progress)
    return Flexibility(
        scenario=scenario.name,
        policy=chosen,
        cells=tuple(Cell(case=case, runs=tuple(played for played in found if played.case == case)) for case in cases),
        events=count,
        environments=environments,
        window_h=scenario.window_h,
    )


def shown_hours(hours: float) -> str:
    """Returns a length as a person writes it.

    Example:
        >>> shown_hours(0.5), shown_hours(3)
        ('30 min', '3 h')
    """
    return f"{hours:g} h" if hours >= 1 else f"{60 * hours:g} min"


def shown_notice(notice_min: float) -> str:
    """Returns a notice as a person writes it.

    Example:
        >>> shown_notice(0), shown_notice(10), shown_notice(60), shown_notice(1440)
        ('none', '10 min', '1 h', '1 day')
    """
    if not notice_min:
        return "none"
    if notice_min % 1440 == 0:
        return f"{notice_min / 1440:g} day" + ("s" if notice_min > 1440 else "")
    return f"{notice_min:g} min" if notice_min < 60 else f"{notice_min / 60:g} h"


def _usd(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:,.0f}"


def flexibility_table(found: Flexibility) -> TextTable:
    """Returns a row per case."""
    return TextTable(
        title=f"What {found.scenario} can give up under {found.policy}",
        header=(
            "cut", "length", "notice", "attained", "least in 5 min", "USD per MWh", "at least", "utility, USD per MWh",
            "late jobs",
        ),
        rows=tuple(
            (
                f"{cell.case.cut:.0%}", shown_hours(cell.case.hours), shown_notice(cell.case.notice_min),
                f"{cell.attained:.1%}", f"{cell.least:.0%}", _usd(cell.usd_per_mwh), _usd(cell.bound_usd_per_mwh),
                _usd(cell.utility_usd_per_mwh), str(cell.late_jobs),
            )
            for cell in found.cells
        ),
        caption=f"Events per environment: {found.events}; environments: {found.environments}. All sites at once. "
        "attained: energy left out of what was asked, in five-minute means. USD per MWh: work not done during the "
        "event at what a GPU-hour earns, never made up. at least: for the jobs that run without events, any mix of "
        "caps and stops, without overhead. utility: what the whole run loses, work made up later included; negative: "
        "it gains. late jobs: late, dropped or not done, beyond those without events",
    )  # fmt: skip


def utility_page_table(found: Flexibility) -> TextTable:
    """Returns what can be promised to a utility: the largest cut that was attained, by length and notice."""
    rows = []
    for hours in found.lengths:
        for notice in found.notices:
            kept = [cell for cell in found.of(hours, notice) if cell.attained >= KEPT_SHARE]
            best = max(kept, key=lambda cell: cell.case.cut, default=None)
            rows.append(
                (
                    UNDEFINED if best is None else f"{best.case.cut:.0%}",
                    UNDEFINED if best is None else _shown_kw(_mean_kw(best, found.events)),
                    shown_notice(notice),
                    shown_hours(hours),
                    f"{found.events} in {found.window_h / DAY_H:.3g} days" if best else UNDEFINED,
                    UNDEFINED if best is None else _usd(best.usd_per_mwh),
                )
            )
    return TextTable(
        title="Flexibility for a utility",
        header=("magnitude", "kW", "timing: notice", "duration", "frequency, as played", "USD per MWh"),
        rows=tuple(rows),
        caption=f"The largest cut of which at least {KEPT_SHARE:.0%} was attained, of those that were tried. kW: mean "
        "over an event, in whose first quarter of an hour the limit falls. In the terms of EPRI's Flex MOSAIC: "
        "magnitude, timing, duration, frequency",
    )


def _mean_kw(cell: Cell, events: int) -> float:
    """Returns by how much power falls in an event on average, kW; every environment has that number of events."""
    mwh = sum(run.asked_mwh for run in cell.runs) * cell.attained
    return 1000 * mwh / cell.case.hours / (events * len(cell.runs))


def _shown_kw(power_kw: float) -> str:
    """Returns a power as a person writes it.

    Example:
        >>> _shown_kw(1234.5), _shown_kw(5.25)
        ('1,234', '5.2')
    """
    return f"{power_kw:,.0f}" if power_kw >= 100 else f"{power_kw:.1f}"


def supply_figure(found: Flexibility) -> Figure:
    """Draws the price of a MWh left out against the depth that was attained, a line per length, the least beside."""
    figure, notice = go.Figure(), found.notices[-1]
    for n, hours in enumerate(found.lengths):
        cells = found.of(hours, notice)
        color = POLICY_COLORS[n % len(POLICY_COLORS)]
        for name, prices, dash in (
            (shown_hours(hours), [cell.usd_per_mwh for cell in cells], DASHES[0]),
            (f"{shown_hours(hours)}, at least", [cell.bound_usd_per_mwh for cell in cells], DASHES[2]),
        ):
            figure.add_scatter(
                x=[cell.case.cut * (cell.attained if dash == DASHES[0] else 1) for cell in cells],
                y=prices,
                mode="lines+markers",
                name=name,
                line={"color": color, "dash": dash},
                marker={"symbol": SYMBOLS[n % len(SYMBOLS)], "size": 8 if dash == DASHES[0] else 5},
            )
    lay_out(figure, 460, legend="right")
    figure.update_xaxes(title_text="power left out, share of what the fleet would have drawn", tickformat=".0%")
    figure.update_yaxes(title_text="work not done (USD per MWh left out)", rangemode="tozero")
    return Figure(
        name="supply-curve",
        title=f"Supply curve, notice {shown_notice(notice)}",
        caption="Solid: as played; a point to the left of the cut that was asked was not fully attained. Dotted: the "
        "least that the running jobs could lose at the cut asked.",
        plot=figure,
    )


def attained_figure(found: Flexibility) -> Figure:
    """Draws the attained share against the depth, a line per length and notice."""
    figure = go.Figure()
    figure.add_hline(y=KEPT_SHARE, line={"color": INK, "dash": "dot", "width": 1})
    for n, hours in enumerate(found.lengths):
        for m, notice in enumerate(found.notices):
            cells = found.of(hours, notice)
            figure.add_scatter(
                x=[cell.case.cut for cell in cells],
                y=[cell.attained for cell in cells],
                mode="lines+markers",
                name=f"{shown_hours(hours)}, notice {shown_notice(notice)}",
                line={"color": POLICY_COLORS[n % len(POLICY_COLORS)], "dash": DASHES[m % len(DASHES)]},
                marker={"symbol": SYMBOLS[m % len(SYMBOLS)], "size": 7},
            )
    lay_out(figure, 460, legend="right")
    figure.update_xaxes(title_text="cut asked", tickformat=".0%")
    figure.update_yaxes(title_text="share attained", tickformat=".0%", range=[0, 1.05])
    return Figure(
        name="share-attained",
        title="What was attained of what was asked",
        caption=f"Dotted: {KEPT_SHARE:.0%}, from which on an event counts as followed on the page for a utility.",
        plot=figure,
    )
