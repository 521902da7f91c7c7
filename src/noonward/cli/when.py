"""``noonward when``: the best site and start of one job, at the prices and carbon intensities of the coming hours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.durations import duration
from noonward.cli.options import Json, Settings, SignalFiles, one_scenario, print_notes, time_option
from noonward.units import HOUR_S

if TYPE_CHECKING:
    from noonward.evaluate.metrics import Metric
    from noonward.evaluate.one_job import Advice, Choice, Outlook, Place
    from noonward.evaluate.one_job_caps import Capped
    from noonward.evaluate.one_job_stops import Interrupted

DEFAULT_PUE, DEFAULT_CARBON_USD_PER_T = 1.3, 100.0
"""Those of ``noonward.evaluate.when``, for the help alone: to print it must not load the product."""


def when(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="SCENARIO", help="Scenario whose sites the job may run at, in place of --zones."),
    ] = None,
    *,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs that the job uses.")],
    hours: Annotated[
        float,
        typer.Option(parser=duration(HOUR_S, bare=True), metavar="DURATION", help="How long it runs: 6h or 90m."),
    ],
    by: Annotated[str, typer.Option(metavar="TIME", help="When it must be done: '2026-11-23 18:00'.")],
    gpu: Annotated[str | None, typer.Option(help="GPU type ('noonward init --gpus' lists the library).")] = None,
    zones: Annotated[str | None, typer.Option(help="Comma-separated electricity zones it may run in.")] = None,
    fleet: Annotated[str | None, typer.Option(metavar="SCENARIO", help="The scenario, as an option.")] = None,
    signals: SignalFiles = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--home", "--at", metavar="SITE", help="Where it would run otherwise. [default: the first site or zone]"
        ),
    ] = None,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="Earliest start, as if it were now. [default: now]")
    ] = None,
    timezone: Annotated[
        str, typer.Option(help="Time zone of the times given and shown: UTC, Europe/Berlin, +01:00.")
    ] = "UTC",
    job_class: Annotated[str | None, typer.Option("--class", help="Class of the job, with --fleet.")] = None,
    pue: Annotated[
        float | None,
        typer.Option(help=f"Facility power over IT power, with --zones. [default: {DEFAULT_PUE:g}]"),
    ] = None,
    carbon_price: Annotated[
        float | None,
        typer.Option(
            "--carbon-price",
            metavar="USD",
            help="Price of emissions when choices are ranked, USD per tonne of CO2. [default: the scenario's, or "
            f"{DEFAULT_CARBON_USD_PER_T:g}]",
        ),
    ] = None,
    settings: Settings = None,
    json: Json = False,
) -> None:
    """Find the best site and start for one job.

    Prints what that saves against starting now, and against the worst choice. If the fleet's scenario states that jobs
    of the class may be suspended or capped, it also prints the best such schedule.
    """
    from noonward.cli.options import split_names
    from noonward.evaluate.metrics import to_json
    from noonward.evaluate.when import when as best_start

    fleet = one_scenario(scenario, fleet)

    answer = best_start(
        gpus=gpus,
        hours=hours,
        by=time_option("--by", by, timezone),
        now=None if now is None else time_option("--now", now, timezone),
        zones=None if zones is None else split_names(zones) or [],
        fleet=fleet,
        gpu=gpu,
        signals=signals or (),
        at=at,
        timezone=timezone,
        job_class=job_class,
        pue=pue,
        carbon_usd_per_t=carbon_price,
        settings=settings or (),
    )
    advice, weight = answer.advice, answer.carbon_usd_per_t
    if json:
        content = {
            name: {"site": choice.site, "start": choice.start.isoformat(), "end": choice.end.isoformat()}
            for name, choice in advice.named().items()
        }
        metrics = _metrics(advice)
        more: dict[str, dict[str, object]] = {}
        if answer.interrupted is not None:
            metrics += _more_metrics(advice, "interrupted", answer.interrupted)
            runs = [[time.isoformat() for time in run] for run in answer.interrupted.runs]
            more = {"interrupted": {"site": answer.interrupted.site, "runs": runs}}
        if answer.capped is not None:
            caps = answer.capped
            metrics += _more_metrics(advice, "capped", caps)
            power = [[hour.isoformat(), round(share, 4)] for hour, share in caps.power]
            times = {"start": caps.start.isoformat(), "end": caps.end.isoformat()}
            more["capped"] = {"site": caps.site, **times, "power": power}
        print(to_json(metrics, choices=content, carbon_usd_per_t=weight, notes=list(answer.notes), **more))
        return
    clock, better = _clock(timezone), False
    if answer.interrupted is not None:
        better = _print_stops(advice, answer.interrupted, clock)
    if answer.capped is not None:
        better |= _print_caps(advice, answer.capped, clock)
    if better:
        print("Unbroken, at full power:")
    _print(advice, answer.here, weight, clock, answer.places, answer.outlook)
    print_notes(answer.notes)


def _clock(name: str) -> tzinfo:
    from datetime import UTC, timezone
    from zoneinfo import ZoneInfo

    from noonward.data.clock import Clock

    offset = Clock(name).offset
    if offset is None:
        return ZoneInfo(name)
    return timezone(offset) if offset else UTC


def _metrics(found: Advice) -> list[Metric]:
    from noonward.evaluate.metrics import Metric

    out = []
    for name, choice in found.named().items():
        out.append(Metric.of(f"usd/{name}", choice.usd, "USD"))
        out.append(Metric.of(f"kg/{name}", choice.kg, "kgCO2"))
        out.append(Metric.of(f"forecast_hours/{name}", choice.forecast_h, "h"))
    for name in ("now", "worst"):
        other: Choice = getattr(found, name)
        out.append(Metric.of(f"saved_usd/{name}", other.usd - found.best.usd, "USD"))
        out.append(Metric.of(f"saved_kg/{name}", other.kg - found.best.kg, "kgCO2"))
    return out


def _more_metrics(found: Advice, name: str, other: Interrupted | Capped) -> list[Metric]:
    """Returns what a schedule with suspensions or caps costs, and what it saves against the best run without."""
    from noonward.evaluate.metrics import Metric

    return [
        Metric.of(f"usd/{name}", other.usd, "USD"),
        Metric.of(f"kg/{name}", other.kg, "kgCO2"),
        Metric.of(f"saved_usd/{name}", found.best.usd - other.usd, "USD"),
        Metric.of(f"saved_kg/{name}", found.best.kg - other.kg, "kgCO2"),
    ]


def _print_caps(found: Advice, caps: Capped, clock: tzinfo) -> bool:
    """Prints the run under power caps, if it is better than the best one at full power; returns whether it is."""
    lowest = min(share for _, share in caps.power)
    if caps.weighed_usd >= found.best.weighed_usd or lowest > 0.995:
        print("Capping its power would save nothing.")
        return False
    low = sum(share < 0.995 for _, share in caps.power)
    print(
        f"Under power caps, run it at {caps.site} from {_day(caps.start, clock)} to {_day(caps.end, clock)} ({clock}), "
        f"below full power in {low} of {len(caps.power)} hours, down to {lowest:.0%}."
    )
    less = found.best.weighed_usd - caps.weighed_usd
    print(
        f"That costs {caps.usd:,.2f} USD and emits {caps.kg:,.2f} kg CO2: {less:,.2f} USD less, with emissions priced, "
        "than at full power."
    )
    return True


def _print_stops(found: Advice, stops: Interrupted, clock: tzinfo) -> bool:
    """Prints the schedule with suspensions, if it is better than the best unbroken run; returns whether it is."""
    if stops.weighed_usd >= found.best.weighed_usd or len(stops.runs) < 2:
        print("Suspending the job would save nothing.")
        return False
    runs = ", ".join(f"{_day(begin, clock)} to {_day(end, clock)}" for begin, end in stops.runs)
    print(f"Suspended in between, run it at {stops.site} {runs} ({clock}).")
    less = found.best.weighed_usd - stops.weighed_usd
    print(
        f"That costs {stops.usd:,.2f} USD and emits {stops.kg:,.2f} kg CO2, stops and loads included: {less:,.2f} USD "
        "less, with emissions priced, than unbroken."
    )
    return True


def _print(found: Advice, here: str, weight: float, clock: tzinfo, places: Sequence[Place], seen: Outlook) -> None:
    """Prints the answer, the choices and the charts."""
    from rich import box
    from rich.table import Table

    from noonward.cli.options import print_table

    best = found.best
    print(f"Run it at {best.site} from {_day(best.start, clock)} to {_day(best.end, clock)} ({clock}).")
    worst = found.worst
    print(f"Against starting now at {here}: {_saved(best, found.now)}.")
    print(f"Against the worst choice, {worst.site} from {_day(worst.start, clock)}: {_saved(best, worst)}.")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for n, title in enumerate(
        ("", "site", "start", "end", "energy cost\nUSD", "emissions\nkg CO2", f"with carbon at\n{weight:g} USD/t, USD")
    ):
        table.add_column(title, justify="right" if n > 3 else "left", no_wrap=True)
    for name, choice in found.named().items():
        figures = [f"{value:,.{_digits(found)}f}" for value in (choice.usd, choice.kg, choice.weighed_usd)]
        table.add_row(
            name,
            choice.site,
            _day(choice.start, clock),
            _day(choice.end, clock),
            *figures,
            style="bold green" if name == "best" else None,
        )
    print_table(table)
    _charts(found, clock, places, seen)


def _digits(found: Advice) -> int:
    return 2 if max(abs(found.worst.usd), found.worst.kg) < 1000 else 0


def _day(time: datetime, clock: tzinfo) -> str:
    return f"{time.astimezone(clock):%a %d %b %H:%M}"


def _saved(best: Choice, other: Choice) -> str:
    """Returns how much less, or more, a choice costs and emits than another, in words."""
    from noonward.evaluate.statistics import size_told

    parts = []
    for value, base, unit in ((best.usd, other.usd, "USD"), (best.kg, other.kg, "kg CO2")):
        share = f" ({size_told((base - value) / base)})" if base > 0 and value >= 0 else ""
        parts.append(f"{abs(base - value):,.2f} {unit}{share} {'less' if value <= base else 'more'}")
    return " and ".join(parts)


def _charts(found: Advice, clock: tzinfo, places: Sequence[Place], seen: Outlook) -> None:
    """Prints strips of price and carbon intensity of every zone, with the best run and the forecast hours marked."""
    from datetime import timedelta

    import numpy as np
    from rich.console import Console

    from noonward.cli.strips import in_columns, marks, scale, spread, strip

    console = Console()
    hours = seen.value_KZH.shape[2]
    label = max(map(len, seen.zones))
    room = max(24, min(console.width if console.is_terminal else 110, 110) - label - 22)
    wide = max(1, room // hours)  # blocks an hour
    columns = min(hours, room) * wide
    zone = next(place.zone for place in places if place.name == found.best.site)
    begin, end = ((time - seen.start) / timedelta(hours=hours) for time in (found.best.start, found.best.end))
    ends = [seen.start + timedelta(hours=hours) * share for share in (0.0, 0.5, 1.0)]
    for k, (what, unit) in enumerate((("price", "USD/MWh"), ("carbon intensity", "g CO2/kWh"))):
        low, high = scale(seen.value_KZH[k])
        print(f"{what}, {unit}".ljust(label + 2 + columns) + "  minimum to maximum")
        for z, name in enumerate(seen.zones):
            value_H = seen.value_KZH[k, z]
            drawn = strip(in_columns(np.repeat(value_H, wide), columns), low, high)
            print(f"{name:>{label}}  {drawn}  {value_H.min():,.0f} to {value_H.max():,.0f}")
            if name == zone:
                print(" " * (label + 2) + marks(len(drawn), begin, end, "best run"))
        told_H = seen.forecast_KZH[k].any(axis=0)
        if told_H.any():
            share_H = in_columns(np.repeat(told_H.astype(float), wide), columns)
            print(" " * (label + 2) + "".join("·" if share > 0.5 else " " for share in share_H) + "  · forecast")
        shown = [f"{time.astimezone(clock):%d %b %H:%M}" for time in ends]
        print(" " * (label + 2) + spread(shown, columns))
        print()
