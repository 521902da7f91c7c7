"""``noonward flexibility`` and ``noonward event``: what a fleet can give up when the grid asks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.durations import duration
from noonward.cli.option_groups import option_groups
from noonward.cli.options import (
    Environments,
    FleetPolicy,
    Json,
    Out,
    Seed,
    command_line,
    executor_of,
    open_scenario,
    print_notes,
    print_text_table,
    print_work,
    require_cluster,
)
from noonward.cli.progress import progress_bar
from noonward.units import HOUR_S, MINUTE_S

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from noonward.model.cluster.scenario import Scenario
    from noonward.runtime.executor import Executor


def share_of(option: str, text: str) -> float:
    """Returns the share that ``25%`` or ``0.25`` states.

    Raises:
        ScenarioError: It is neither.
    """
    from noonward.errors import ScenarioError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)(\s*%)?", text.strip())
    if not match:
        raise ScenarioError(f"{option} {text!r} is no share; write it as 25% or 0.25")
    return float(match[1]) / (100 if match[2] else 1)


@option_groups(scenario=open_scenario)
def event(
    *,
    cut: Annotated[str, typer.Option(metavar="SHARE", help="Share of the power to leave out.")] = "25%",
    hours: Annotated[
        float,
        typer.Option(
            parser=duration(HOUR_S, bare=True),
            metavar="DURATION",
            help="Length of the event. [default: 3h]",
            show_default=False,
        ),
    ] = 3.0,
    notice: Annotated[
        float,
        typer.Option(
            parser=duration(MINUTE_S),
            metavar="DURATION",
            help="Notice: 10min, 1h or 1day. [default: 10min]",
            show_default=False,
        ),
    ] = 10.0,
    start_h: Annotated[
        float | None,
        typer.Option(
            "--start-h",
            parser=duration(HOUR_S, bare=True),
            metavar="DURATION",
            help="When it begins, counted from the window's start: 30h. [default: drawn by the seed]",
        ),
    ] = None,
    site: Annotated[str | None, typer.Option(metavar="SITE", help="Ask this site alone. [default: all]")] = None,
    controls: Annotated[bool, typer.Option("--controls", help="Also play Emerald's four rules.")] = False,
    moves: Annotated[bool, typer.Option("--moves", help="With --site: also let jobs go to the others.")] = False,
    policy: FleetPolicy = None,
    seed: Seed = 0,
    scenario: Scenario,
    out: Out = Path("runs"),
    json: Json = False,
) -> None:
    """Play one grid event on a fleet.

    Shows what it leaves out and what it loses. All sites, or the one named, are asked for the same
    share of the power that they would have drawn.
    """
    from noonward.data.events import INTERVAL_S
    from noonward.errors import ScenarioError
    from noonward.evaluate.events.flexibility import check_cases, shown_hours, shown_notice
    from noonward.evaluate.events.one import event_figure, event_table, play_event, ways_of
    from noonward.evaluate.events.play import Case, playable, starts_of
    from noonward.evaluate.events.words import event_words, missing, site_table, told_for_events
    from noonward.evaluate.metrics import to_json
    from noonward.evaluate.report.page import write_tables
    from noonward.runtime.runs import environment_of

    require_cluster(scenario, "event")
    scenario, notes = told_for_events(scenario)
    notes += missing(scenario, moves=moves)
    case = Case(share_of("--cut", cut), hours, notice)
    check_cases([case])
    environment = playable(environment_of(scenario, 0, seed))
    start_s = starts_of(environment, hours, case.notice_min / 60)[0] if start_h is None else HOUR_S * start_h
    if not INTERVAL_S <= start_s <= environment.window_s - HOUR_S * hours:
        raise ScenarioError(
            f"an event of {hours:g} h that begins at hour {start_s / HOUR_S:g} does not lie in the window of "
            f"{environment.window_s / HOUR_S:g} h; give an earlier --start-h, after the first five minutes"
        )
    begin_s = INTERVAL_S * round(start_s / INTERVAL_S)
    ways = ways_of(controls=controls, moves=moves)
    with progress_bar(len(ways), "event", results=out) as step:
        played = play_event(
            scenario, policy, case, begin_s, seed=seed, site=site, controls=controls, moves=moves, progress=step
        )
    findings = event_words(played, drawn=start_h is None)
    place = out / f"event-{scenario.name}-seed{seed}" / "report.html"
    report = write_tables(
        f"A grid event at {scenario.name}",
        f"{case.cut:.0%} less power for {shown_hours(hours)}, notice {shown_notice(case.notice_min)}. "
        f"Policy {played.policy}, seed {seed}. Targets are shares of the mean power that each site draws "
        "without the event.",
        [event_table(played), site_table(played)],
        [event_figure(played)],
        place,
        command=command_line(),
        notes=notes,
        findings=findings,
        figures_first=True,
    )
    if json:
        print(to_json(played.metrics(), scenario=scenario.name, policy=played.policy, seed=seed, report=str(report)))
        return
    for sentence in findings:
        print(sentence)
    print_text_table(event_table(played))
    print_text_table(site_table(played))
    print_notes(notes)
    print(f"report:  {report}")


@option_groups(executors=executor_of, scenario=open_scenario)
def flexibility(
    *,
    cuts: Annotated[
        str | None, typer.Option(metavar="SHARE,SHARE", help="Depths. [default: 5%,10%,20%,30%,40%,50%]")
    ] = None,
    hours: Annotated[str | None, typer.Option(metavar="LIST", help="Lengths. [default: 30min,3h,10h]")] = None,
    notices: Annotated[str | None, typer.Option(metavar="LIST", help="Notices. [default: 0,10min,1h,1day]")] = None,
    policy: FleetPolicy = None,
    environments: Environments = 1,
    seed: Seed = 0,
    scenario: Scenario,
    out: Out = Path("runs"),
    executors: AbstractContextManager[Executor],
    json: Json = False,
) -> None:
    """Show what a fleet can give up when the grid asks.

    By depth, length and notice of an event: what it costs, the least it could cost, a supply curve,
    and one page for a utility.
    """
    from noonward.errors import ScenarioError
    from noonward.evaluate.events import flexibility as grid
    from noonward.evaluate.events.words import missing, told_for_events
    from noonward.evaluate.metrics import to_json
    from noonward.evaluate.report.page import write_tables

    require_cluster(scenario, "flexibility")
    scenario, notes = told_for_events(scenario)
    notes += missing(scenario)

    def listed(text: str) -> list[str]:
        return [each.strip() for each in text.split(",") if each.strip()]

    minutes = duration(MINUTE_S, option="--notices")
    length_h = duration(HOUR_S, bare=True, option="--hours")
    depths = grid.CUTS if cuts is None else [share_of("--cuts", each) for each in listed(cuts)]
    notices_min = grid.NOTICES_MIN if notices is None else [minutes(each) for each in listed(notices)]
    lengths = grid.HOURS if hours is None else [length_h(each) for each in listed(hours)]
    if not (depths and lengths and notices_min):
        raise ScenarioError("--cuts, --hours and --notices take at least one value each")
    count = len(depths) * len(lengths) * len(notices_min) * environments
    with executors as executor, progress_bar(count, "flexibility", results=out) as step:
        study = grid.flexibility(
            scenario,
            policy,
            cuts=depths,
            hours=lengths,
            notices_min=notices_min,
            environments=environments,
            seed=seed,
            executor=executor,
            progress=step,
        )
    place = out / f"flexibility-{scenario.name}-seed{seed}" / "report.html"
    report = write_tables(
        f"What {scenario.name} can give up when the grid asks",
        f"Policy {study.policy}, seed {seed}. Events per environment: {study.events}; environments: {environments}. "
        "Each is at all sites at once.",
        [grid.utility_page_table(study), grid.flexibility_table(study)],
        [grid.supply_figure(study), grid.attained_figure(study)],
        place,
        command=command_line(),
        notes=notes,
    )
    if json:
        more = {"scenario": scenario.name, "policy": study.policy, "seed": seed, "environments": environments}
        print(to_json(study.metrics(), **more, report=str(report)))
        return
    print_text_table(grid.utility_page_table(study))
    print_text_table(grid.flexibility_table(study))
    print_notes(notes)
    print_work(executor)
    print(f"report:  {report}")
