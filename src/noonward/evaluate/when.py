"""The best site and start of one job, asked for in one call: places, hours of prices and carbon, choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

from noonward.data.clock import Clock, time_of
from noonward.data.scenarios.load import load_scenario, with_files, with_settings
from noonward.data.signals.load import load_signals
from noonward.errors import ScenarioError, nearest
from noonward.evaluate.one_job import (
    Advice,
    Outlook,
    Place,
    advise,
    choices,
    fleet_places,
    latest_start,
    library_gpu,
    outlook,
    zone_places,
)
from noonward.evaluate.one_job_caps import Capped, capped
from noonward.evaluate.one_job_stops import Interrupted, interrupted
from noonward.model.cluster.freedom import Freedom
from noonward.model.cluster.scenario import Scenario, SignalFiles
from noonward.model.kinds import CLUSTER
from noonward.model.markets import day_ahead_market
from noonward.model.signals import PRICE_NAME, Signals

DEFAULT_PUE: Final = 1.3
"""Facility power over IT power where zones are asked about and nothing is said."""
DEFAULT_CARBON_USD_PER_T: Final = 100.0
"""Price of emissions, USD/t, where nothing is said."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Where and when to run one job.

    Attributes:
        advice: The best choice, and others to hold against it.
        here: Name of the place where it would run otherwise.
        places: Places that it may run at.
        outlook: Prices and carbon intensities of the hours in question.
        carbon_usd_per_t: Price of emissions by which choices are ranked.
        notes: What was decided, and what must be known about the data.
        interrupted: The cheapest schedule with suspensions, where the job's class may be suspended; else None.
        capped: The cheapest unbroken run under power caps, where the job's class has caps; else None.
    """

    advice: Advice
    here: str
    places: tuple[Place, ...]
    outlook: Outlook
    carbon_usd_per_t: float
    notes: tuple[str, ...]
    interrupted: Interrupted | None = None
    capped: Capped | None = None

    def __str__(self) -> str:
        best = self.advice.best
        saved = self.advice.now.usd - best.usd
        return (
            f"Run it at {best.site} from {best.start:%Y-%m-%d %H:%M} to {best.end:%Y-%m-%d %H:%M} UTC: "
            f"{best.usd:,.2f} USD and {best.kg:,.2f} kg CO2, {abs(saved):,.2f} USD {'less' if saved >= 0 else 'more'} "
            f"than now at {self.here}"
        )


def when(
    *,
    gpus: int,
    hours: float,
    by: datetime | str,
    now: datetime | str | None = None,
    zones: Sequence[str] | None = None,
    fleet: str | Path | Scenario | None = None,
    gpu: str | None = None,
    signals: Sequence[str | Path] = (),
    at: str | None = None,
    timezone: str = "UTC",
    job_class: str | None = None,
    pue: float | None = None,
    carbon_usd_per_t: float | None = None,
    settings: Sequence[str] = (),
) -> Answer:
    """Finds the best site and start for one job; ``noonward when`` from Python.

    Args:
        gpus: GPUs that it uses, at least 1.
        hours: How long it runs, h, above 0.
        by: When it must be done: a time with a zone, or a text such as ``2026-11-23 18:00``.
        now: Earliest start; None: now. From a time in the past only what was known then is read: later hours are
            forecast, but for prices that were published.
        zones: Electricity zones that it may run in. Give either zones or a fleet.
        fleet: Scenario whose sites it may run at: its name, file or content.
        gpu: GPU type; of a fleet with one type, None.
        signals: Files with prices and carbon intensities; of a fleet that names its own, none.
        at: Where it would run otherwise; None: the first place.
        timezone: Clock of times without a zone: an IANA name or an offset.
        job_class: Class of the job, with a fleet.
        pue: Facility power over IT power, with zones, at least 1; None: 1.3.
        carbon_usd_per_t: Price of emissions when choices are ranked; None: the scenario's, or 100.
        settings: Changes of the fleet's scenario, such as ``fleet.sites.0.gpus=8``.

    Raises:
        ScenarioError: An argument is not allowed, or the job does not end in time.
        DataError: A file's content is wrong.
        SignalRangeError: The files do not reach the hours in question.
    """
    if gpus < 1:
        raise ScenarioError(f"--gpus {gpus} is not allowed; give a whole number of at least 1")
    for option, value, least in (("--hours", hours, 0.0), ("--pue", pue, 1.0), ("--carbon-price", carbon_usd_per_t, 0)):
        if value is not None and (not least <= value < 1e9 or (option == "--hours" and value == 0)):
            above = "above 0" if option == "--hours" else f"of at least {least:g}"
            raise ScenarioError(f"{option} {value:g} is not allowed; give a finite number {above}")
    clock = Clock(timezone)
    begin = datetime.now(UTC).replace(second=0, microsecond=0) if now is None else _time(now, clock)
    end = _time(by, clock)
    latest_start(begin, end, hours)
    if (zones is None) == (fleet is None):
        raise ScenarioError("say where the job may run: either --zones DE,FR,SE-SE3 or --fleet mine.yaml")
    if fleet is None:
        for option, said in (("--class", job_class), ("--set", settings)):
            if said:
                raise ScenarioError(f"{option} belongs to a fleet's scenario; leave it out, or give --fleet")
        freedom = Freedom()
        places, known, price, notes = _in_zones(tuple(zones or ()), gpus, gpu, signals, pue)
    else:
        if pue is not None:
            raise ScenarioError("--pue belongs to --zones; the sites of a fleet state their own")
        places, known, price, notes, freedom = _in_fleet(fleet, gpus, gpu, signals, job_class, settings)
    weight = price if carbon_usd_per_t is None else carbon_usd_per_t
    names = [place.name for place in places]
    here = names[0] if at is None else at
    if here not in names:
        raise ScenarioError(f"--at {here}: the job cannot run there; {nearest(here, names)}")
    past = now is not None and begin < datetime.now(UTC)
    if past:
        known = known_at(known, begin)
    seen = outlook(known, tuple(dict.fromkeys(place.zone for place in places)), begin, end)
    advice = advise(choices(places, seen, begin, end, hours, weight), here, begin)
    stops = interrupted(places, seen, begin, end, hours, weight, freedom) if freedom.interruptible else None
    curve = freedom.cap_curve
    caps = None if curve is None else capped(places, seen, begin, end, hours, weight, curve)
    return Answer(
        advice=advice,
        here=here,
        places=tuple(places),
        outlook=seen,
        carbon_usd_per_t=weight,
        notes=(*notes, *_forecast_notes(seen, past)),
        interrupted=stops,
        capped=caps,
    )


def _time(time: datetime | str, clock: Clock) -> datetime:
    """Returns a time in UTC."""
    if isinstance(time, str):
        return time_of(time, clock)
    return time_of(time.isoformat(), clock)


def _in_zones(
    zones: tuple[str, ...], gpus: int, gpu: str | None, signals: Sequence[str | Path], pue: float | None
) -> tuple[list[Place], Signals, float, list[str]]:
    """Returns the places, the signals, the default carbon price, and what was decided, of zones."""
    if not zones or len(set(zones)) < len(zones):
        raise ScenarioError(f"--zones {','.join(zones)!r} names no zone, or one twice; name each once: --zones DE,FR")
    if gpu is None:
        raise ScenarioError("the job's power is not known; name its GPU: --gpu A100-80-SXM")
    if not signals:
        raise ScenarioError("no prices were given; name files with hours of the zones: --signals FILE")
    card, note = library_gpu(gpu)
    factor = DEFAULT_PUE if pue is None else pue
    watts = f"{card.name}: {card.active_w:g} W a card ({card.active_source}), PUE {factor:g}"
    known = load_signals(signals, zones=zones)
    notes = [*([note] if note else []), watts, *known.notes]
    return zone_places(zones, card, gpus, factor), known, DEFAULT_CARBON_USD_PER_T, notes


def _in_fleet(
    fleet: str | Path | Scenario,
    gpus: int,
    gpu: str | None,
    signals: Sequence[str | Path],
    job_class: str | None,
    settings: Sequence[str],
) -> tuple[list[Place], Signals, float, list[str], Freedom]:
    """Returns places, signals, default carbon price, what was decided, and what the job's class allows, of a fleet."""
    scenario = fleet if isinstance(fleet, Scenario) else load_scenario(str(fleet), () if signals else settings)
    if scenario.kind != CLUSTER.name:
        raise ScenarioError(
            f"noonward when --fleet takes scenarios of kind {CLUSTER.name}; {scenario.name!r} is of kind "
            f"{scenario.kind}; choose another scenario"
        )
    if signals:
        scenario = with_files(scenario, [Path(path) for path in signals])
    if settings and (signals or isinstance(fleet, Scenario)):
        scenario = with_settings(scenario, settings)
    places = fleet_places(scenario.fleet, gpus, gpu, job_class)
    source = scenario.signals
    if not isinstance(source, SignalFiles):
        name = scenario.name if isinstance(fleet, Scenario) else fleet
        raise ScenarioError(f"{name} has no hours from files; give prices and carbon intensities: --signals FILE")
    wanted = tuple(dict.fromkeys(place.zone for place in places))
    known = replace(load_signals(source.paths, source.format, source.columns, wanted), day_ahead=scenario.day_ahead)
    price = DEFAULT_CARBON_USD_PER_T if scenario.economics is None else scenario.economics.carbon_usd_per_t
    note = "energy is what the job adds to the draw of free GPUs; the GPUs are taken to be free when it starts"
    freedoms = scenario.fleet.freedoms
    allowed = {freedoms.get(name, Freedom()) for name in ((job_class,) if job_class else scenario.fleet.classes)}
    notes = [note, *known.notes]
    if len(allowed) > 1:
        notes.append(
            "classes of jobs allow different things while they run; to have the job suspended or capped, name its: "
            "--class"
        )
    return places, known, price, notes, allowed.pop() if len(allowed) == 1 else Freedom()


def known_at(signals: Signals, now: datetime) -> Signals:
    """Returns signals as they were known at a time: later hours are unknown, but for prices that were published.

    Args:
        signals: Signals as they turned out.
        now: The time, UTC.
    """
    value_ZH = {name: value.copy() for name, value in signals.value_ZH.items()}
    hour = int((now - signals.start) // timedelta(hours=1))
    for z, zone in enumerate(signals.zones):
        market = day_ahead_market(zone, signals.day_ahead)
        published = 0 if market is None else int((market.known_until(now) - signals.start) // timedelta(hours=1))
        for name, value in value_ZH.items():
            value[z, max(0, hour + 1, published if name == PRICE_NAME else 0) :] = np.nan
    return replace(signals, value_ZH=value_ZH)


def _forecast_notes(seen: Outlook, past: bool) -> list[str]:
    """Returns how many hours of the window are forecast, where some are; zones with the same hours together.

    Args:
        seen: The window.
        past: Whether it is seen from a time in the past.
    """
    why = "since they were not known then" if past else "since the file ends"
    hours = seen.value_KZH.shape[2]
    zones: dict[str, list[str]] = {}
    for z, zone in enumerate(seen.zones):
        counts = seen.forecast_KZH[:, z].sum(axis=1).tolist()
        notes = [
            f"{n} of {hours} hours of {what}"
            for n, what in zip(counts, ("price", "carbon intensity"), strict=True)
            if n
        ]
        if notes:
            zones.setdefault(" and ".join(notes), []).append(zone)
    return [
        f"{', '.join(names)}: {notes} are forecast (regression on the days before), {why}"
        for notes, names in zones.items()
    ]
