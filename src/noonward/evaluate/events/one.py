"""One event on a fleet: what it is asked and delivers, under every set of levers, minute by minute."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

import numpy as np
import plotly.graph_objects as go

from noonward.arrays import F8, Bools
from noonward.data.events import INTERVAL_S
from noonward.errors import ScenarioError
from noonward.evaluate.events.flexibility import shown_hours, shown_notice
from noonward.evaluate.events.play import RAMP_S, Case, Played, PlayedRun, Ride, policy_of
from noonward.evaluate.metrics import Metric
from noonward.evaluate.report.figure_style import DASHES, INK, PALE, POLICY_COLORS, lay_out
from noonward.evaluate.table import UNDEFINED, Figure, TextTable
from noonward.model.cluster.scenario import Scenario
from noonward.notices import tell
from noonward.runtime.executor import Progress
from noonward.schedule.cluster.event_orders import Order
from noonward.schedule.cluster.event_response import LEVERS, Lever
from noonward.units import HOUR_S


class Means(NamedTuple):
    """What is done in an event.

    Attributes:
        words: The same in words.
        levers: What may be done.
        order: How running jobs are bent.
    """

    words: str
    levers: tuple[Lever, ...]
    order: Order = "least-loss"


WAYS: Final[dict[str, Means]] = {
    "hold": Means("starts wait", ("hold",)),
    "hold-suspend": Means("starts wait, running jobs are suspended", ("hold", "suspend")),
    "hold-cap": Means("starts wait, running jobs are capped", ("hold", "cap")),
    "all": Means("all levers", LEVERS),
}
"""Sets of levers that are compared, by name."""
MOVES: Final[dict[str, Means]] = {
    "all-move": Means("all levers, and jobs go to other sites", (*LEVERS, "move")),
}
"""All levers with moves to other sites, by name."""
CONTROLS: Final[dict[str, Means]] = {
    "ride-through": Means("nothing is done", ()),
    "dvfs-fair": Means("all are capped alike (Emerald)", LEVERS, "dvfs-fair"),
    "dvfs-pause-fair": Means("some are paused in turn, the others capped alike (Emerald)", LEVERS, "dvfs-pause-fair"),
    "pause-greedy": Means("those with most slack are paused (Emerald)", LEVERS, "pause-greedy"),
    "pause-resize-fair": Means(
        "one is paused at most, the others lose GPUs alike (Emerald)", LEVERS, "pause-resize-fair"
    ),
}
"""Controls, by name: nothing is done, and Emerald's four rules."""
SHOWN_H: Final = 2.0
"""Hours before and after the event that the picture shows."""


@dataclass(frozen=True, kw_only=True)
class OneEvent:
    """One event, played under every set of levers.

    Attributes:
        scenario: Name of the scenario.
        goal: What its policies are compared by.
        policy: Policy that decides what no event asks.
        case: The event.
        start_s: Its begin, s.
        ride: The run without it.
        site: Site that is asked; None: all are.
        ways: What is done, by name.
        played: What came of it, by name.
        kw_SN: Power of each site by interval, kW, by name.
    """

    scenario: str
    goal: str
    policy: str
    case: Case
    start_s: float
    ride: Ride
    site: str | None
    ways: dict[str, Means]
    played: dict[str, Played]
    kw_SN: dict[str, F8]

    @property
    def asked_S(self) -> Bools:
        """Which sites are asked."""
        return np.array([self.site in (None, site) for site in self.ride.environment.sites])

    def metrics(self) -> list[Metric]:
        """Returns all figures (docs/figures.md)."""
        found = []
        for way, each in self.played.items():
            found += [
                Metric.of(f"event/share_attained/{way}", each.delivered_mwh / each.asked_mwh, "fraction"),
                Metric.of(f"event/least_share/{way}", each.least_compliance, "fraction"),
                Metric.of(f"event/cut_mwh/{way}", each.cut_mwh, "MWh"),
                Metric.of(f"event/lost_gpu_hours/{way}", each.lost_gpu_hours, "GPU h"),
                Metric.of(f"event/utility_lost_usd/{way}", each.utility_lost_usd, "USD"),
                Metric.of(f"event/late_jobs/{way}", each.late_jobs, "jobs"),
            ]
        each = self.played["all"]
        return [
            *found,
            Metric.of("event/asked_mwh", each.asked_mwh, "MWh"),
            Metric.of("event/least_gpu_hours", each.least_gpu_hours, "GPU h"),
        ]


def ways_of(*, controls: bool, moves: bool) -> dict[str, Means]:
    """Returns the sets of levers that are compared, by name.

    Args:
        controls: Whether ``CONTROLS`` are among them.
        moves: Whether ``MOVES`` are.
    """
    return WAYS | (MOVES if moves else {}) | (CONTROLS if controls else {})


def play_event(
    scenario: Scenario,
    policy: str | None,
    case: Case,
    start_s: float,
    *,
    index: int = 0,
    seed: int = 0,
    site: str | None = None,
    controls: bool = False,
    moves: bool = False,
    progress: Progress | None = None,
) -> OneEvent:
    """Plays one event on a fleet, under every set of levers.

    Args:
        scenario: Scenario of kind ``cluster``, protocol each-slot, with signals and economics.
        policy: Policy that decides what no event asks; None: the scenario's reference.
        case: The event.
        start_s: Its begin, seconds since the window's.
        index: Number of the environment.
        seed: Seed.
        site: Site that is asked; None: all are, each for the same share of its power.
        controls: Whether ``CONTROLS`` are played, too.
        moves: Whether ``MOVES`` are played, too.
        progress: Called after each run with the name of what was done in it.

    Raises:
        ScenarioError: The scenario cannot have events, has no such site, or jobs have nowhere to go with ``moves``.
    """
    if moves:
        _require_moves(scenario, site)
    chosen = policy_of(scenario, policy)
    played, kw_SN, ways = {}, {}, ways_of(controls=controls, moves=moves)
    for way, (_, levers, order) in ways.items():
        tell("progress", way)
        spec = PlayedRun(scenario, index, seed, chosen, case, (start_s,), levers, order, site)
        played[way], ride, kw_SN[way] = spec.play()
        if progress is not None:
            progress(way)
    return OneEvent(
        scenario=scenario.name,
        goal=scenario.goal,
        policy=chosen,
        case=case,
        start_s=start_s,
        ride=ride,
        site=site,
        ways=ways,
        played=played,
        kw_SN=kw_SN,
    )


def _require_moves(scenario: Scenario, site: str | None) -> None:
    """Raises ScenarioError where an event leaves no other site to go to.

    Args:
        scenario: Scenario of kind ``cluster``.
        site: Site that is asked; None: all are.
    """
    fleet = scenario.fleet
    if len(fleet.sites) == 1:
        raise ScenarioError("--moves lets jobs go to other sites, and this fleet has one; leave it out")
    if site is None:
        raise ScenarioError(
            "--moves lets jobs go to sites without an event, and all sites are asked; name the one that is "
            f"(--site {fleet.site_names[0]})"
        )


def event_table(found: OneEvent) -> TextTable:
    """Returns a row per set of levers; energy in kWh where less than a MWh was asked for."""
    rows = []
    small = max(each.asked_mwh for each in found.played.values()) < 1
    unit, scale = ("kWh", 1000.0) if small else ("MWh", 1.0)
    for way, each in found.played.items():
        usd = each.lost_gpu_hours * each.usd_per_gpu_hour  # NaN where nobody said what a GPU-hour is worth
        rows.append(
            (
                way,
                f"{scale * each.asked_mwh:,.3f}",
                f"{each.delivered_mwh / each.asked_mwh:.1%}",
                f"{each.least_compliance:.0%}",
                _whole(each.lost_gpu_hours),
                _whole(each.least_gpu_hours),
                UNDEFINED if each.cut_mwh <= 0 or math.isnan(usd) else _whole(usd / each.cut_mwh),
                _whole(each.utility_lost_usd) if abs(each.utility_lost_usd) >= 10 else f"{each.utility_lost_usd:.2f}",
                str(each.late_jobs),
            )
        )
    return TextTable(
        title=f"{found.scenario} under {found.policy}: {found.case.cut:.0%} for {shown_hours(found.case.hours)}, "
        f"notice {shown_notice(found.case.notice_min)}",
        header=(
            "levers",
            f"asked, {unit}",
            "attained",
            "least in 5 min",
            "GPU-hours put off",
            "at least",
            "USD per MWh",
            "utility lost, USD" if found.goal == "utility" else "costs more, USD",
            "late jobs",
        ),
        rows=tuple(rows),
        caption="Levers: hold lets jobs start later; suspend and cap act on running jobs of classes that allow it. "
        + _controls_words(found)
        + "Attained: share of the cut that was asked for. Least in 5 min: the same, at the worst site in its worst "
        "five minutes. GPU-hours put off: work that would have been done by the end of the event; most of it is made "
        "up later. At least: the least work that the running jobs could put off if the whole cut were attained. USD "
        "per MWh: the work put off at the price of a GPU-hour, as if it were never made up. The next column is over "
        "the whole run, with the work made up later; a negative value is a gain.",
    )


def _controls_words(found: OneEvent) -> str:
    """Returns what the controls do, in a sentence; nothing where none was played."""
    said = [f"{way}: {found.ways[way].words}" for way in CONTROLS if way in found.played]
    return f"Controls: {'; '.join(said)}. " if said else ""


def _whole(amount: float) -> str:
    """Returns a whole number, never a negative zero."""
    return f"{round(amount) + 0:,}"


def event_figure(found: OneEvent) -> Figure:
    """Draws the fleet's power around the event, without it and with it."""
    first = max(0, round((found.start_s - SHOWN_H * HOUR_S) / INTERVAL_S))
    end_s = found.start_s + found.case.hours * HOUR_S
    rows = slice(first, round((end_s + SHOWN_H * HOUR_S) / INTERVAL_S))
    zero = found.ride.environment.start
    times = [zero + timedelta(seconds=n * INTERVAL_S) for n in np.arange(found.ride.kw_SN.shape[1])[rows].tolist()]
    figure = go.Figure()
    begin, end = (zero + timedelta(seconds=each) for each in (found.start_s, end_s))
    figure.add_vrect(x0=begin, x1=end, fillcolor=PALE, opacity=0.35, line_width=0, layer="below")
    in_event = slice(round(found.start_s / INTERVAL_S), round(end_s / INTERVAL_S))
    asked_S = found.asked_S
    baseline_kw = float(found.ride.kw_SN[asked_S][:, in_event].mean(axis=1).sum())
    target_kw = (1 - found.case.cut) * baseline_kw
    fallen = zero + timedelta(seconds=found.start_s + min(RAMP_S, found.case.hours * HOUR_S / 2))
    figure.add_scatter(
        x=[begin, fallen, end], y=[baseline_kw, target_kw, target_kw], mode="lines", name="limit",
        line={"color": INK, "dash": "dash", "width": 1},
    )  # fmt: skip
    figure.add_annotation(
        x=begin + (end - begin) / 2, y=target_kw, yshift=-36, showarrow=False, text=f"limit: {target_kw:,.3g} kW"
    )
    kw_of = {way: kw_SN[asked_S][:, rows].sum(axis=0) for way, kw_SN in found.kw_SN.items() if way not in CONTROLS}
    same = [way for way in kw_of if way != "all" and np.array_equal(kw_of[way], kw_of["all"])]
    whole = found.ways["all"].words
    if same:
        whole = f"{whole} (the same as: {found.ways[same[-1]].words})"
    lines = {"without the event": found.ride.kw_SN[asked_S][:, rows].sum(axis=0)}
    lines |= {found.ways[way].words: kw_N for way, kw_N in kw_of.items() if way != "all" and way not in same}
    lines[whole] = kw_of["all"]
    for n, (name, kw_N) in enumerate(lines.items()):
        drawn = name in ("without the event", whole)
        line = {
            "color": INK if n == 0 else POLICY_COLORS[0 if name == whole else n],
            "shape": "hv",
            "width": 3 if drawn else 1.5,
            "dash": "solid" if drawn else DASHES[n],
        }
        figure.add_scatter(x=times, y=kw_N, mode="lines", name=name, line=line)
    lay_out(figure, 460, legend="above")
    figure.update_xaxes(title_text="time (UTC)")
    whose = "all sites" if found.site is None else found.site
    figure.update_yaxes(title_text=f"power of {whose} (kW)", rangemode="tozero")
    return Figure(
        name="event",
        title="Power during the event",
        caption="Five-minute means of all sites. Shaded: the event. Each site has a limit of its own; dashed is their "
        "sum. One site below its limit does not make up for another above it."
        if found.site is None
        else f"Five-minute means of {whose}, the site that is asked. Shaded: the event.",
        plot=figure,
    )
