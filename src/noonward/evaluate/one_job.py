"""One job: at which site and from when it costs least, at known hours of price and carbon or at forecast ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8
from noonward.data.gpu_library import Gpu, find_gpu, gpu_library, plain_gpu
from noonward.errors import ScenarioError, SignalRangeError, nearest
from noonward.forecasts.forecaster import known_to_the_end, require_history
from noonward.forecasts.regression import SignalName, packaged_weights, weighted
from noonward.model.cluster.fleet import Fleet
from noonward.model.precision import rounded_signals
from noonward.model.signals import Signals, cumulative
from noonward.units import DAY_H, HOUR_S

FARTHEST_H: Final = 168
"""Hours beyond the last known one that are forecast; the regression repeats its last day after two."""
_QUANTITIES: Final[tuple[tuple[SignalName, str], ...]] = (("price", "price"), ("carbon", "carbon intensity"))


@dataclass(frozen=True, kw_only=True)
class Place:
    """A site that the job may run at.

    Attributes:
        name: Name.
        zone: Electricity zone.
        power_w: What the job draws there with cooling, more than its GPUs draw when they are free, W.
        free_w: What these draw then, with cooling, W.
    """

    name: str
    zone: str
    power_w: float
    free_w: float = 0.0

    def extra_w(self, share: F8 | float) -> Any:
        """Returns what a share of the job's full power adds to the draw of free GPUs, W."""
        return share * (self.power_w + self.free_w) - self.free_w


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Prices and carbon intensities of a window, known or forecast.

    Attributes:
        start: Start of its first hour, UTC.
        zones: Zones.
        value_KZH: Prices, USD/MWh, and carbon intensities, g/kWh.
        forecast_KZH: Which of them are forecast.
    """

    start: datetime
    zones: tuple[str, ...]
    value_KZH: F8
    forecast_KZH: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Costed:
    """A way to run the job at a site, with what it costs.

    Attributes:
        site: Name of the site.
        usd: Cost of its energy, stopping and loading included, USD.
        kg: Its emissions, kgCO2.
        weighed_usd: Cost and emissions at the carbon price, USD.
    """

    site: str
    usd: float
    kg: float
    weighed_usd: float


@dataclass(frozen=True, kw_only=True)
class Choice(Costed):
    """The job at a site from a time on, unbroken and at full power.

    Attributes:
        start: Start, UTC.
        end: End, UTC.
        forecast_h: Hours of its run whose price or carbon intensity is forecast.
    """

    start: datetime
    end: datetime
    forecast_h: float


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Where and when to run a job, and what else could be done.

    Attributes:
        best: Least cost and emissions at the carbon price.
        cheapest: Least cost.
        cleanest: Least emissions.
        now: At once, where it would run otherwise.
        worst: Most cost and emissions at the carbon price.
    """

    best: Choice
    cheapest: Choice
    cleanest: Choice
    now: Choice
    worst: Choice

    def named(self) -> dict[str, Choice]:
        """Returns the choices by name."""
        return {name: getattr(self, name) for name in ("best", "cheapest", "cleanest", "now", "worst")}


def library_gpu(name: str) -> tuple[Gpu, str | None]:
    """Returns a GPU of the library; of several that a name may mean, the one that draws most, and a note on it.

    Raises:
        ScenarioError: The library has none of that name.

    Example:
        >>> gpu, note = library_gpu("H100")
        >>> gpu.name, note
        ('H100-SXM', 'H100 may be H100-PCIe or H100-SXM: taken as H100-SXM, which draws most')
    """
    wanted = plain_gpu(name)
    alike = [gpu for known, gpu in gpu_library().items() if wanted and plain_gpu(known).startswith(wanted)]
    if len(alike) < 2 or any(plain_gpu(gpu.name) == wanted for gpu in alike):
        return find_gpu(name), None
    most = max(alike, key=lambda gpu: gpu.active_w)
    names = " or ".join(gpu.name for gpu in alike)
    return most, f"{name} may be {names}: taken as {most.name}, which draws most"


def zone_places(zones: Sequence[str], gpu: Gpu, gpus: int, pue: float) -> list[Place]:
    """Returns one place a zone, with GPUs that draw nothing unless they run."""
    return [Place(name=zone, zone=zone, power_w=gpus * gpu.active_w * pue) for zone in zones]


def fleet_places(fleet: Fleet, gpus: int, gpu: str | None, job_class: str | None) -> list[Place]:
    """Returns the sites of a fleet that have the GPUs, with the power that the job adds to that of free GPUs.

    Args:
        fleet: Fleet.
        gpus: GPUs that the job uses.
        gpu: GPU type, or the beginning of its name; None: the fleet must have one type alone.
        job_class: Class of the job; None: all classes that may run there must draw the same.

    Raises:
        ScenarioError: No site fits, or what was not said is not the same everywhere.
    """
    types = list(dict.fromkeys(site.gpu_type for site in fleet.sites))
    if gpu is None and len(types) > 1:
        raise ScenarioError(
            f"the fleet has the GPU types {', '.join(types)}, and a job's hours hold for one of them; name it: --gpu "
            f"{types[0]}"
        )
    wanted = [each for each in types if gpu is None or plain_gpu(each).startswith(plain_gpu(gpu))]
    if not wanted:
        raise ScenarioError(f"the fleet has no GPU of type {gpu!r}; {nearest(str(gpu), types)}")
    if job_class is not None and job_class not in fleet.classes:
        raise ScenarioError(f"the fleet has no class of jobs {job_class!r}; {nearest(job_class, fleet.classes)}")
    large = [site for site in fleet.sites if site.gpu_type in wanted and site.gpus >= gpus]
    if not large:
        most = max(site.gpus for site in fleet.sites if site.gpu_type in wanted)
        raise ScenarioError(f"no site has {gpus} GPUs of type {' or '.join(wanted)}; the largest has {most}")
    places = []
    for site in large:
        kind = fleet.gpu_types[site.gpu_type]
        classes = [
            name
            for name in ((job_class,) if job_class is not None else fleet.classes)
            if site.name in fleet.ranges.get(name, (site.name,))
        ]
        free_w = gpus * (kind.idle_w if fleet.free_gpus == "idle" else kind.sleep_w or 0.0)
        drawn = {float(kind.classes[name].power.power_w(gpus, kind.clocks[-1])) - free_w for name in classes}
        if len(drawn) > 1:
            raise ScenarioError(
                f"classes {', '.join(classes)} draw different power at site {site.name!r}; name the job's: --class "
                f"{classes[0]}"
            )
        places += [
            Place(name=site.name, zone=site.zone, power_w=site.pue * power_w, free_w=site.pue * free_w)
            for power_w in drawn
        ]
    if not places:
        raise ScenarioError(f"jobs of class {job_class!r} may run at none of the sites that have {gpus} such GPUs")
    return places


def outlook(signals: Signals, zones: Sequence[str], start: datetime, end: datetime) -> Outlook:
    """Returns the hours from one time to another, those after the last known one of a series forecast.

    Forecasts are the packaged regression's (``noonward.forecasts.regression``), issued at the last known hour.

    Args:
        signals: Signals.
        zones: Zones.
        start: First instant, UTC.
        end: Last instant, UTC.

    Raises:
        SignalRangeError: The signals begin later, end more than ``FARTHEST_H`` before the end, or leave an hour
            unknown that no forecast may fill.
    """
    first = math.floor((start - signals.start) / timedelta(hours=1))
    until = math.ceil((end - signals.start) / timedelta(hours=1))
    covered = f"they cover {signals.start:%Y-%m-%d %H:%M} to {signals.end:%Y-%m-%d %H:%M} UTC"
    if first < 0:
        raise SignalRangeError(f"the signals begin after {start:%Y-%m-%d %H:%M} UTC: {covered}; give earlier ones")
    chosen = signals.select(tuple(zones))
    known = (chosen.price_usd_per_mwh_ZH, chosen.carbon_g_per_kwh_ZH)
    value_KZH = np.full((2, len(zones), until - first), np.nan)
    forecast_KZH = np.zeros(value_KZH.shape, dtype=bool)
    for k, (signal, words) in enumerate(_QUANTITIES):
        for z, zone in enumerate(zones):
            value_H = known[k][z]
            at = np.flatnonzero(np.isfinite(value_H))
            if not len(at):
                raise SignalRangeError(f"the {words} of {zone} is unknown throughout; add a file that has it")
            last = int(at[-1])
            inside_H = value_H[first : min(until, last + 1)]
            if np.isnan(inside_H).any():
                hour = signals.time_of(first + int(np.isnan(inside_H).argmax()))
                raise SignalRangeError(
                    f"the {words} of {zone} is unknown at {hour:%Y-%m-%d %H:%M} UTC; complete the file, or fill short "
                    "gaps: noonward import --fill-gaps 3"
                )
            value_KZH[k, z, : len(inside_H)] = inside_H
            missing = until - 1 - last
            if missing > FARTHEST_H:
                raise SignalRangeError(
                    f"the {words} of {zone} is known until {signals.time_of(last + 1):%Y-%m-%d %H:%M} UTC, {missing} h "
                    f"before the end of the window; forecasts reach {FARTHEST_H} h: give newer signals, an earlier "
                    "--by, or a time within the file: --now"
                )
            if missing > 0:
                past_H = value_H[: last + 1]
                require_history("regression", DAY_H, known_to_the_end(past_H[None, None]))
                later_L = weighted(past_H[None], np.array([last]), missing + 1, packaged_weights(signal))[0, 0]
                begin = last + 1 - first
                # It rounds prices and carbon intensities together: each is taken from its own place.
                value_KZH[k, z, max(begin, 0) :] = rounded_signals(np.stack([later_L, later_L]))[
                    k, 1 + max(-begin, 0) :
                ]
                forecast_KZH[k, z, max(begin, 0) :] = True
    return Outlook(start=signals.time_of(first), zones=tuple(zones), value_KZH=value_KZH, forecast_KZH=forecast_KZH)


def latest_start(now: datetime, by: datetime, hours: float) -> datetime:
    """Returns when a job must start at the latest.

    Raises:
        ScenarioError: It does not end in time even if it starts at once.
    """
    latest = by - timedelta(hours=hours)
    if latest < now:
        left = max((by - now).total_seconds() / HOUR_S, 0.0)
        raise ScenarioError(
            f"the job takes {hours:g} h, but from {now:%Y-%m-%d %H:%M} to {by:%Y-%m-%d %H:%M} UTC there are "
            f"{left:.3g} h; give a later --by, or an earlier time to start: --now"
        )
    return latest


def choices(
    places: Sequence[Place], seen: Outlook, now: datetime, by: datetime, hours: float, carbon_usd_per_t: float
) -> list[Choice]:
    """Returns the starts among which the least and the most lie, at every place.

    Prices hold for an hour, so cost is linear in the start between those at which the run begins or ends on the hour:
    these, the first and the last possible start are enough.

    Raises:
        ScenarioError: The job does not end in time even if it starts at once.
    """
    latest_s = (latest_start(now, by, hours) - now).total_seconds()
    since_s = (now - seen.start).total_seconds()
    full_s = np.arange(seen.value_KZH.shape[2] + 1) * HOUR_S - since_s
    starts_s = np.concatenate([[0.0, latest_s], full_s, full_s - hours * HOUR_S])
    starts_s = np.unique(np.clip(starts_s, 0.0, latest_s))
    edges_s = np.arange(seen.value_KZH.shape[2] + 1) * HOUR_S
    found = []
    for place in places:
        z = seen.zones.index(place.zone)
        total_KH = cumulative(seen.value_KZH[:, z])
        told_H = cumulative(seen.forecast_KZH[:, z].max(axis=0, keepdims=True).astype(np.float64))[0]
        for start_s in starts_s.tolist():
            ends_s = np.array([start_s, start_s + hours * HOUR_S]) + since_s
            mwh_h = place.power_w / 1e6 / HOUR_S
            usd, kg = (
                float(np.diff(np.interp(ends_s, edges_s, total_H))[0]) * mwh_h for total_H in total_KH
            )  # g/kWh is kg/MWh
            begin = now + timedelta(seconds=start_s)
            found.append(
                Choice(
                    site=place.name,
                    start=begin,
                    end=begin + timedelta(hours=hours),
                    usd=usd,
                    kg=kg,
                    weighed_usd=usd + carbon_usd_per_t * kg / 1000,
                    forecast_h=float(np.diff(np.interp(ends_s, edges_s, told_H))[0]) / HOUR_S,
                )
            )
    return found


def advise(found: Sequence[Choice], here: str, now: datetime) -> Advice:
    """Returns the best of some choices and what it is held against; of equal ones the earliest, then the first.

    Args:
        found: Choices.
        here: Site that the job would run at otherwise.
        now: When it would start there.
    """
    in_order = sorted(found, key=lambda choice: choice.start)
    return Advice(
        best=min(in_order, key=lambda choice: choice.weighed_usd),
        cheapest=min(in_order, key=lambda choice: choice.usd),
        cleanest=min(in_order, key=lambda choice: choice.kg),
        now=next(choice for choice in in_order if choice.site == here and choice.start == now),
        worst=max(in_order, key=lambda choice: choice.weighed_usd),
    )
