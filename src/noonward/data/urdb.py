"""Tariffs from rates of the OpenEI Utility Rate Database (URDB), as its API returns them (JSON, versions 3 to 8).

=============================================================  ====================================================
URDB                                                           tariff
=============================================================  ====================================================
``energyratestructure`` with schedules of weekdays, weekends   price of energy (of several tiers: ``energy`` as
                                                               blocks), and ``fees`` for periods that differ from it
``fueladjustmentsmonthly``                                     ``fees`` by month
``demandratestructure`` with schedules                         ``demand`` at the hours of each period
``flatdemandstructure`` with ``flatdemandmonths``              ``demand`` at all hours of some months
several tiers of demand                                        one ``demand`` per tier, with ``above_kw``
``demandwindow``, min                                          ``interval_min`` (15 where it is not stated)
``demandratchetpercentage``, or ``lookbackpercent`` with a     ``ratchet``
range of 11 or 12 months
``fixedchargefirstmeter`` (or ``fixedmonthlycharge``)          ``usd_per_month``
=============================================================  ====================================================

Prices are rate plus ``adj``, USD. What a customer is paid for feeding in (``sell``, ``dgrules``) is not part of a
tariff here: a site states it as its export. What has no counterpart is refused, not left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import ValidationError

from noonward.data.text_table import read_text_file
from noonward.errors import DataError, nearest
from noonward.model.cluster.meter import IntervalMin
from noonward.model.cluster.tariff import DAY_HOURS, YEAR_MONTHS, Tariff

DAYS_A_YEAR: Final = 365
DECIMALS: Final = 6
"""Decimals of prices: 1 USD/kWh in a URDB rate is 1,000 USD/MWh here, and the product is rounded."""
_ADVICE: Final = "save what the API returns with detail=full, or one of its items"
_PER_MONTH: Final = {"$/month": 1.0, "$/day": DAYS_A_YEAR / 12, "$/year": 1 / 12}

Tiers = tuple[tuple[float | None, float], ...]
"""Tiers of a period: where each ends (none: the last), and its price in USD per kWh or kW."""
Schedule = tuple[tuple[int, ...], ...]
"""Period of each hour (24) of each month (12)."""


def read_urdb(path: Path, label: str | None = None) -> tuple[str, Tariff]:
    """Reads a rate as a tariff.

    Args:
        path: JSON file: a rate, a list of them, or the API's answer with ``items``.
        label: Label of the rate to read, where the file has several.

    Returns:
        Utility and name of the rate, and the tariff.

    Raises:
        DataError: The file holds no such rate, or the rate has a term that no tariff states.
    """
    text = read_text_file(path)
    rate = _chosen(text.json(_ADVICE), text.name, label)
    name = " ".join(str(rate[key]) for key in ("utility", "name") if rate.get(key))
    try:
        return name or path.stem, Tariff.model_validate(_content(rate))
    except ValidationError as error:
        raise DataError(f"{text.name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    except (KeyError, TypeError, ValueError, IndexError) as error:
        said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{text.name}: {said}; see the fields of OpenEI's utility rates") from None


def _chosen(said: Any, file: str, label: str | None) -> Mapping[str, Any]:
    """Returns the rate of a file that is wanted."""
    items = said.get("items", [said]) if isinstance(said, dict) else said
    if not isinstance(items, list) or not items or not all(isinstance(each, dict) for each in items):
        raise DataError(f"{file} holds no rate of the Utility Rate Database; {_ADVICE}")
    labels = [str(each.get("label")) for each in items]
    if label is None:
        if len(items) > 1:
            raise DataError(f"{file} holds {len(items)} rates; choose one with --label: {', '.join(labels[:5])} ...")
        return dict(items[0])
    if label not in labels:
        raise DataError(f"{file} holds no rate {label!r}; {nearest(label, labels)}")
    return dict(items[labels.index(label)])


def _content(rate: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a tariff states of a rate."""
    for key in ("mincharge", "annualmincharge", "demandreactivepowercharge"):
        if float(rate.get(key) or 0):
            raise ValueError(f"the rate has a {key} of {rate[key]}, which no tariff here states; take it out to go on")
    if any(price for tiers in _structure(rate, "coincidentratestructure", ("kw",)) for _, price in tiers):
        raise ValueError(
            "the rate has coincident charges without the law of their peaks; take coincidentratestructure out, and "
            "state them under 'coincident'"
        )
    fixed = "fixedchargefirstmeter" if rate.get("fixedchargefirstmeter") is not None else "fixedmonthlycharge"
    unit = str(rate.get("fixedchargeunits") or "$/month")
    if unit not in _PER_MONTH:
        raise ValueError(f"fixedchargeunits {unit!r} is none of {', '.join(_PER_MONTH)}")
    return {
        **_energy(rate),
        "demand": [*_flat_demand(rate), *_demand_by_period(rate)],
        "usd_per_month": round(float(rate.get(fixed) or 0) * _PER_MONTH[unit], DECIMALS),
    }


def _energy(rate: Mapping[str, Any]) -> dict[str, Any]:
    """Returns price or blocks of energy, and fees for the periods whose price differs from the usual one."""
    periods = _structure(rate, "energyratestructure", ("kwh",))
    fees = [
        {"usd_per_mwh": _mwh(usd), "months": [month + 1]}
        for month, usd in enumerate(rate.get("fueladjustmentsmonthly") or [])
        if usd
    ]
    if not periods:
        raise ValueError("the rate has no energyratestructure; take a rate with prices of energy")
    schedules = _schedules(rate, "energy", len(periods))
    used = sorted({period for days in schedules for month in days for period in month})
    usual = max(used, key=lambda period: sum(month.count(period) for days in schedules for month in days))
    energy: float | list[dict[str, float]] = _mwh(periods[usual][0][1])
    if any(len(periods[period]) > 1 for period in used):
        if len(used) > 1:
            raise ValueError(
                "energy has tiers and several periods; whether a tier counts the energy of its period or of the whole "
                "month is not stated, so take a rate with one of both"
            )
        energy = [
            {"usd_per_mwh": _mwh(usd), **({} if end is None else {"up_to_kwh": end})} for end, usd in periods[usual]
        ]
    for period in used:
        more = _mwh(periods[period][0][1] - periods[usual][0][1])
        fees += [{"usd_per_mwh": more, **times} for times in _times(schedules, period) if more]
    return {"energy": energy, "fees": fees}


def _flat_demand(rate: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the demand charges at all hours, by groups of months."""
    periods = _structure(rate, "flatdemandstructure", ("kw",))
    if not periods:
        return []
    months = [int(each) for each in rate.get("flatdemandmonths") or [0] * 12]
    if len(months) != 12 or not all(0 <= each < len(periods) for each in months):
        raise ValueError(f"flatdemandmonths {months} is no period of each of 12 months")
    always = tuple(tuple([period] * 24) for period in months)
    return _by_times(rate, periods, (always, always))


def _demand_by_period(rate: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the demand charges by periods of the day."""
    periods = _structure(rate, "demandratestructure", ("kw",))
    if not periods:
        return []
    return _by_times(rate, periods, _schedules(rate, "demand", len(periods)))


def _by_times(
    rate: Mapping[str, Any], periods: Sequence[Tiers], schedules: tuple[Schedule, Schedule]
) -> list[dict[str, Any]]:
    """Returns the demand charges of some periods, one for each of their tiers and groups of months."""
    ratchet = _ratchet(rate)
    found = [
        {**charge, **({"ratchet": ratchet} if ratchet else {}), **times}
        for period, tiers in enumerate(periods)
        for times in _times(schedules, period)
        for charge in _charges(rate, tiers)
    ]
    if ratchet and any("months" in charge for charge in found):
        raise ValueError("the rate has a ratchet and prices of demand that differ by month; no charge here states both")
    return found


def _charges(rate: Mapping[str, Any], tiers: Tiers) -> Iterator[dict[str, Any]]:
    """Yields a demand charge for each tier whose price is above that of the tier before."""
    window = int(rate.get("demandwindow") or 15)
    if window not in get_args(IntervalMin):
        raise ValueError(f"demandwindow {window} min is none of {', '.join(map(str, get_args(IntervalMin)))}")
    before_usd, begin_kw = 0.0, 0.0
    for end_kw, usd in tiers:
        if usd < before_usd:
            raise ValueError(
                f"demand costs {before_usd:g} USD/kW up to {begin_kw:g} kW and {usd:g} above: a price that falls has "
                f"no convex bound. If the site's peak is always above {begin_kw:g} kW, keep the last tier alone and "
                f"add {(before_usd - usd) * begin_kw:g} USD to the fixed charge of each month"
            )
        if usd > before_usd:
            yield {
                "usd_per_kw_month": round(usd - before_usd, DECIMALS),
                "interval_min": window,
                **({"above_kw": begin_kw} if begin_kw else {}),
            }
        before_usd, begin_kw = usd, end_kw or 0.0


def _ratchet(rate: Mapping[str, Any]) -> float:
    """Returns the share of the highest peak of the eleven months before that is charged at least."""
    shares = {float(each) for each in rate.get("demandratchetpercentage") or [0.0]}
    if len(shares) > 1:
        raise ValueError("demandratchetpercentage differs by month; a tariff here has one ratchet for all months")
    share = shares.pop() or float(rate.get("lookbackpercent", rate.get("lookbackPercent")) or 0)
    months = int(rate.get("lookbackrange", rate.get("lookbackRange")) or 0)
    chosen = rate.get("lookbackmonths", rate.get("lookbackMonths")) or [1] * 12
    if share and (months not in (0, 11, 12) or not all(chosen)):
        raise ValueError("the rate looks back on some months only; a ratchet here looks back on all eleven before")
    return share


def _structure(rate: Mapping[str, Any], key: str, units: Sequence[str]) -> list[Tiers]:
    """Returns the tiers of each period of a structure, prices with adjustments."""
    found = []
    for period, tiers in enumerate(rate.get(key) or []):
        read = []
        for number, tier in enumerate(tiers):
            unit = str(tier.get("unit") or units[0])
            if unit.lower() not in units:
                raise ValueError(f"{key}, period {period}: the unit {unit!r} is not {units[0]!r}")
            end = None if tier.get("max") is None or number == len(tiers) - 1 else float(tier["max"])
            read.append((end, round(float(tier.get("rate") or 0) + float(tier.get("adj") or 0), 12)))
        if not read or any(end is None for end, _ in read[:-1]):
            raise ValueError(f"{key}, period {period}: a tier other than the last has no max")
        found.append(tuple(read))
    return found


def _schedules(rate: Mapping[str, Any], kind: str, periods: int) -> tuple[Schedule, Schedule]:
    """Returns the schedules of weekdays and weekends; all hours are of period 0 where there is but one."""
    found = []
    for days in ("weekday", "weekend"):
        key = f"{kind}{days}schedule"
        said = rate.get(key) or ([[0] * 24] * 12 if periods == 1 else None)
        if said is None:
            raise KeyError(key)
        schedule = tuple(tuple(int(period) for period in month) for month in said)
        whole = len(schedule) == 12 and all(len(month) == 24 for month in schedule)
        if not whole or not all(0 <= period < periods for month in schedule for period in month):
            raise ValueError(f"{key} is no period below {periods} for each of 24 hours of 12 months")
        found.append(schedule)
    return found[0], found[1]


def _times(schedules: tuple[Schedule, Schedule], period: int) -> Iterator[dict[str, Any]]:
    """Yields when a period holds: months with the same hours, as the keys of a tariff's times."""
    hours_M = [
        tuple(tuple(hour for hour in DAY_HOURS if days[month][hour] == period) for days in schedules)
        for month in range(12)
    ]
    for (weekday, weekend), group in itertools.groupby(
        sorted(YEAR_MONTHS, key=lambda month: hours_M[month - 1]), key=lambda month: hours_M[month - 1]
    ):
        if not weekday and not weekend:
            continue
        months = list(group)
        hours = weekday or weekend
        yield {
            **({} if len(months) == 12 else {"months": months}),
            **({} if hours == DAY_HOURS else {"hours": list(hours)}),
            **({"days": "weekdays"} if not weekend else {"days": "weekends"} if not weekday else {}),
            **({"weekend_hours": list(weekend)} if weekday and weekend and weekend != weekday else {}),
        }


def _mwh(usd_per_kwh: float) -> float:
    return round(1000.0 * float(usd_per_kwh), DECIMALS)
