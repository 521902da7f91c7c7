"""``noonward when``: the best site and start of one job, at the prices and carbon intensities of the coming hours."""

from __future__ import annotations

from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noonward.cli.options import Json, Settings, SignalFiles, duration, time_option

if TYPE_CHECKING:
    from noonward.evaluate.metrics import Metric
    from noonward.evaluate.one_job import Advice, Choice, Outlook, Place

DEFAULT_PUE = 1.3
DEFAULT_CARBON_USD_PER_T = 100.0


def when(
    gpus: Annotated[int, typer.Option(min=1, help="GPUs that the job uses.")],
    hours: Annotated[
        float,
        typer.Option(
            parser=duration(3600.0), metavar="DURATION", help="How long it runs: 6h, 90m, or a number of hours."
        ),
    ],
    by: Annotated[str, typer.Option(metavar="TIME", help="When it must be done: '2026-11-23 18:00'.")],
    gpu: Annotated[str | None, typer.Option(help="GPU type ('noonward init --gpus' lists the library).")] = None,
    zones: Annotated[str | None, typer.Option(help="Comma-separated electricity zones it may run in.")] = None,
    fleet: Annotated[
        str | None, typer.Option(metavar="SCENARIO", help="Scenario whose sites it may run at, in place of --zones.")
    ] = None,
    signals: SignalFiles = None,
    at: Annotated[
        str | None, typer.Option(metavar="SITE", help="Where it would run otherwise. [default: the first site or zone]")
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

    Prints what that saves against starting now, and against the worst choice.
    """
    from noonward.evaluate.metrics import to_json
    from noonward.evaluate.one_job import advise, choices, latest_start, outlook

    clock = _clock(timezone)
    begin = time_option("--now", now, timezone)
    if now is None:
        begin = begin.replace(second=0, microsecond=0)
    end = time_option("--by", by, timezone)
    _check(hours, pue, carbon_price)
    latest_start(begin, end, hours)
    asked = _places(gpus, gpu, zones, fleet, signals, settings, job_class, pue)
    places, known, default_price, notes = asked
    weight = default_price if carbon_price is None else carbon_price
    here = places[0].name if at is None else _place_named(at, places)
    seen = outlook(known, tuple(dict.fromkeys(place.zone for place in places)), begin, end)
    found = advise(choices(places, seen, begin, end, hours, weight), here, begin)
    notes += _forecast_notes(seen)
    if json:
        told = {
            name: {"site": choice.site, "start": choice.start.isoformat(), "end": choice.end.isoformat()}
            for name, choice in found.named().items()
        }
        print(to_json(_metrics(found), choices=told, carbon_usd_per_t=weight, notes=notes))
        return
    _print(found, here, weight, clock, places, seen)
    for note in notes:
        print(f"note: {note}")


def _clock(name: str) -> tzinfo:
    from datetime import UTC, timezone
    from zoneinfo import ZoneInfo

    from noonward.data.clock import Clock

    offset = Clock(name).offset
    if offset is None:
        return ZoneInfo(name)
    return timezone(offset) if offset else UTC


def _check(hours: float, pue: float | None, carbon_price: float | None) -> None:
    """Raises ScenarioError where a number is outside what is allowed."""
    from noonward.errors import ScenarioError

    for option, value, least in (("--hours", hours, 0.0), ("--pue", pue, 1.0), ("--carbon-price", carbon_price, 0.0)):
        if value is None:
            continue
        if not least <= value < 1e9 or (option == "--hours" and value == 0):
            above = "above 0" if option == "--hours" else f"of at least {least:g}"
            raise ScenarioError(f"{option} {value:g} is not allowed; give a finite number {above}")


def _places(
    gpus: int,
    gpu: str | None,
    zones: str | None,
    fleet: str | None,
    signals: list[Path] | None,
    settings: list[str] | None,
    job_class: str | None,
    pue: float | None,
) -> tuple[list[Place], Any, float, list[str]]:
    """Returns where the job may run, the signals, the default carbon price, and what was decided."""
    from noonward.cli.options import open_scenario, require_cluster, split_names
    from noonward.data.signals.load import load_signals
    from noonward.errors import ScenarioError
    from noonward.evaluate.one_job import fleet_places, library_gpu, zone_places
    from noonward.model.cluster.scenario import SignalFiles

    if (zones is None) == (fleet is None):
        raise ScenarioError("say where the job may run: either --zones DE,FR,SE-SE3 or --fleet mine.yaml")
    if zones is not None:
        for option, value in (("--class", job_class), ("--set", settings)):
            if value:
                raise ScenarioError(f"{option} belongs to a fleet's scenario; leave it out, or give --fleet")
        names = split_names(zones) or []
        if not names or len(set(names)) < len(names):
            raise ScenarioError(f"--zones {zones!r} names no zone, or one twice; name each once: --zones DE,FR")
        if gpu is None:
            raise ScenarioError("the job's power is not known; name its GPU: --gpu A100-80-SXM")
        if not signals:
            raise ScenarioError("no prices were given; name files with hours of the zones: --signals FILE")
        card, note = library_gpu(gpu)
        factor = DEFAULT_PUE if pue is None else pue
        watts = f"{card.name}: {card.active_w:g} W a card ({card.active_source}), PUE {factor:g}"
        known = load_signals(signals, zones=tuple(names))
        notes = [*([note] if note else []), watts, *known.notes]
        return zone_places(names, card, gpus, factor), known, DEFAULT_CARBON_USD_PER_T, notes
    if pue is not None:
        raise ScenarioError("--pue belongs to --zones; the sites of a fleet state their own")
    scenario = open_scenario(str(fleet), settings, signals)
    require_cluster(scenario, "noonward when --fleet")
    places = fleet_places(scenario.fleet, gpus, gpu, job_class)
    source = scenario.signals
    if not isinstance(source, SignalFiles):
        raise ScenarioError(f"{fleet} has no hours from files; give prices and carbon intensities: --signals FILE")
    wanted = tuple(dict.fromkeys(place.zone for place in places))
    known = load_signals(source.paths, source.format, source.columns, wanted)
    price = DEFAULT_CARBON_USD_PER_T if scenario.economics is None else scenario.economics.carbon_usd_per_t
    said = "energy is what the job adds to the draw of free GPUs; the GPUs are taken to be free when it starts"
    return places, known, price, [said, *known.notes]


def _place_named(name: str, places: list[Place]) -> str:
    from noonward.errors import ScenarioError, nearest

    names = [place.name for place in places]
    if name not in names:
        raise ScenarioError(f"--at {name}: the job cannot run there; {nearest(name, names)}")
    return name


def _forecast_notes(seen: Outlook) -> list[str]:
    """Returns how many hours of the window are forecast, where some are; zones with the same hours together."""
    hours = seen.value_KZH.shape[2]
    zones: dict[str, list[str]] = {}
    for z, zone in enumerate(seen.zones):
        counts = seen.forecast_KZH[:, z].sum(axis=1).tolist()
        told = [
            f"{n} of {hours} hours of {what}"
            for n, what in zip(counts, ("price", "carbon intensity"), strict=True)
            if n
        ]
        if told:
            zones.setdefault(" and ".join(told), []).append(zone)
    return [
        f"{', '.join(names)}: {told} are forecast (regression on the days before), since the file ends"
        for told, names in zones.items()
    ]


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


def _print(found: Advice, here: str, weight: float, clock: tzinfo, places: list[Place], seen: Outlook) -> None:
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
    parts = []
    for value, base, unit in ((best.usd, other.usd, "USD"), (best.kg, other.kg, "kg CO2")):
        share = f" ({abs(base - value) / base:.0%})".replace("%", " %") if base > 0 and value >= 0 else ""
        parts.append(f"{abs(base - value):,.2f} {unit}{share} {'less' if value <= base else 'more'}")
    return " and ".join(parts)


def _charts(found: Advice, clock: tzinfo, places: list[Place], seen: Outlook) -> None:
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
        print(f"{what}, {unit}".ljust(label + 2 + columns) + "  least to most")
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
