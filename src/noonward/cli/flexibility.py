"""``noonward flexibility`` and ``noonward event``: what a fleet can give up when the grid asks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from noonward.cli.options import (
    Environments,
    FirstDay,
    History,
    JobFile,
    Json,
    LastDay,
    Out,
    RayAddress,
    ScenarioName,
    Seed,
    Settings,
    SignalFiles,
    Workers,
    command_line,
    executor_of,
    open_scenario,
    policy_list,
    print_text_table,
    progress_bar,
    require_cluster,
)

Policy = Annotated[
    str | None,
    typer.Option(autocompletion=policy_list, help="Policy that runs the fleet. [default: the scenario's baseline]"),
]
_MINUTES = {"min": 1.0, "m": 1.0, "h": 60.0, "d": 1440.0, "day": 1440.0, "days": 1440.0}


def share_of(option: str, text: str) -> float:
    """Returns the share that ``25%`` or ``0.25`` states.

    Raises:
        ScenarioError: It is neither.
    """
    from noonward.errors import ScenarioError

    found = re.fullmatch(r"(\d+(?:\.\d+)?)(\s*%)?", text.strip())
    if not found:
        raise ScenarioError(f"{option} {text!r} is no share; write it as 25% or 0.25")
    return float(found[1]) / (100 if found[2] else 1)


def minutes_of(option: str, text: str) -> float:
    """Returns the minutes that ``10min``, ``1h`` or ``1 day`` states; a number alone is minutes.

    Raises:
        ScenarioError: It is no duration.
    """
    from noonward.errors import ScenarioError

    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if not found or found[2] not in ("", *_MINUTES):
        raise ScenarioError(f"{option} {text!r} is no duration; write it as 10min, 1h or 1day")
    return float(found[1]) * _MINUTES.get(found[2], 1.0)


def event(
    name: ScenarioName,
    cut: Annotated[str, typer.Option(metavar="SHARE", help="Share of the power to leave out.")] = "25%",
    hours: Annotated[float, typer.Option(metavar="HOURS", help="Length of the event.")] = 3.0,
    notice: Annotated[str, typer.Option(metavar="DURATION", help="Notice, such as 10min, 1h or 1day.")] = "10min",
    start_h: Annotated[
        float | None,
        typer.Option(
            "--start-h", metavar="HOURS", help="Begin, hours after the window's. [default: drawn by the seed]"
        ),
    ] = None,
    policy: Policy = None,
    seed: Seed = 0,
    signals: SignalFiles = None,
    jobs: JobFile = None,
    first: FirstDay = None,
    last: LastDay = None,
    history: History = None,
    settings: Settings = None,
    out: Out = Path("runs"),
    json: Json = False,
) -> None:
    """Play one grid event on a fleet.

    Shows what it leaves out and what it loses. All sites are asked for the same share of the power
    that they would have drawn.
    """
    from noonward.data.events import INTERVAL_S
    from noonward.errors import ScenarioError
    from noonward.evaluate.events.flexibility import check_cases, shown_hours, shown_notice
    from noonward.evaluate.events.one import event_figure, event_table, play_event
    from noonward.evaluate.events.play import Case, playable, starts_of
    from noonward.evaluate.metrics import to_json
    from noonward.evaluate.report.page import write_tables
    from noonward.runtime.runs import environment_of
    from noonward.units import HOUR_S

    scenario = open_scenario(name, settings, signals, jobs, first, last, history)
    require_cluster(scenario, "event")
    case = Case(share_of("--cut", cut), hours, minutes_of("--notice", notice))
    check_cases([case])
    environment = playable(environment_of(scenario, 0, seed))
    start_s = starts_of(environment, hours, case.notice_min / 60)[0] if start_h is None else HOUR_S * start_h
    if not INTERVAL_S <= start_s <= environment.window_s - HOUR_S * hours:
        raise ScenarioError(
            f"an event of {hours:g} h that begins at hour {start_s / HOUR_S:g} does not lie in the window of "
            f"{environment.window_s / HOUR_S:g} h; give an earlier --start-h, after the first five minutes"
        )
    found = play_event(scenario, policy, case, INTERVAL_S * round(start_s / INTERVAL_S), seed=seed)
    place = out / f"event-{scenario.name}-seed{seed}" / "report.html"
    report = write_tables(
        f"A grid event at {scenario.name}",
        f"{case.cut:.0%} less power for {shown_hours(hours)}, notice {shown_notice(case.notice_min)}. "
        f"Policy {found.policy}, seed {seed}. Targets are shares of the mean power that each site draws "
        "without the event.",
        [event_table(found)],
        [event_figure(found)],
        place,
        command=command_line(),
    )
    if json:
        print(to_json(found.metrics(), scenario=scenario.name, policy=found.policy, seed=seed, report=str(report)))
        return
    print_text_table(event_table(found))
    print(f"report:  {report}")


def flexibility(
    name: ScenarioName,
    cuts: Annotated[
        str | None, typer.Option(metavar="SHARE,SHARE", help="Depths. [default: 5%,10%,20%,30%,40%,50%]")
    ] = None,
    hours: Annotated[str | None, typer.Option(metavar="HOURS,HOURS", help="Lengths. [default: 0.5,3,10]")] = None,
    notices: Annotated[str | None, typer.Option(metavar="LIST", help="Notices. [default: 0,10min,1h,1day]")] = None,
    policy: Policy = None,
    environments: Environments = 1,
    seed: Seed = 0,
    signals: SignalFiles = None,
    jobs: JobFile = None,
    first: FirstDay = None,
    last: LastDay = None,
    history: History = None,
    settings: Settings = None,
    out: Out = Path("runs"),
    workers: Workers = None,
    ray: RayAddress = None,
    json: Json = False,
) -> None:
    """Show what a fleet can give up when the grid asks.

    By depth, length and notice of an event: what it costs, the least it could cost, a supply curve,
    and one page for a utility.
    """
    from noonward.errors import ScenarioError
    from noonward.evaluate.events import flexibility as grid
    from noonward.evaluate.metrics import to_json
    from noonward.evaluate.report.page import write_tables

    scenario = open_scenario(name, settings, signals, jobs, first, last, history)
    require_cluster(scenario, "flexibility")

    def listed(text: str) -> list[str]:
        return [each.strip() for each in text.split(",") if each.strip()]

    depths = grid.CUTS if cuts is None else [share_of("--cuts", each) for each in listed(cuts)]
    notices_min = grid.NOTICES_MIN if notices is None else [minutes_of("--notices", each) for each in listed(notices)]
    try:
        lengths = grid.HOURS if hours is None else [float(each) for each in listed(hours)]
    except ValueError:
        raise ScenarioError(f"--hours {hours!r} is no list of hours; write it as 0.5,3,10") from None
    if not (depths and lengths and notices_min):
        raise ScenarioError("--cuts, --hours and --notices take at least one value each")
    count = len(depths) * len(lengths) * len(notices_min) * environments
    with executor_of(workers, ray) as executor, progress_bar(count, "flexibility") as step:
        found = grid.flexibility(
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
        f"Policy {found.policy}, seed {seed}: {found.events} event(s) in each of {environments} environment(s), at all "
        "sites at once.",
        [grid.utility_page_table(found), grid.flexibility_table(found)],
        [grid.supply_figure(found), grid.attained_figure(found)],
        place,
        command=command_line(),
    )
    if json:
        more = {"scenario": scenario.name, "policy": found.policy, "seed": seed, "environments": environments}
        print(to_json(found.metrics(), **more, report=str(report)))
        return
    print_text_table(grid.utility_page_table(found))
    print_text_table(grid.flexibility_table(found))
    print(f"report:  {report}")
