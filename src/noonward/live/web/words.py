"""What the pages say in words: what was saved, what is wrong, what happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonward.live.accounts import Interval, Savings
from noonward.live.api.shown import Event, ServiceShown, SiteShown
from noonward.live.demand.events import CANCELLED, MISSED, TOLD

_WORDS: Final = {
    "submitted": "submitted",
    "start decided": "start decided",
    "sent": "sent to another site",
    "released": "handed over",
    "running": "runs",
    "done": "done",
    "failed": "failed",
    "cancelled": "cancelled",
    "cancelling": "is being cancelled at its cluster",
    "overdue": "dropped: it could not start in time",
    "lost": "lost: its cluster no longer reports it",
    "held": "held",
    "let go": "released by an operator",
    "what it comes after is done": "the jobs it comes after are done",
    "steered": "sites chosen by an operator",
    "queued by its cluster": "released at its cluster, where it waits",
    "requeued": "queued again by its cluster",
    "suspend decided": "to be suspended",
    "stopping": "told to write its checkpoint",
    "suspended": "suspended: its GPUs are free",
    "suspension refused": "not suspended: its cluster refused",
    "ended upon a late signal": "wrote its checkpoint though it was to run; it is run again",
    "resume decided": "to be resumed",
    "cap decided": "power cap decided",
    "capped": "under a power cap",
    "uncapped": "at full power again",
    "power cap refused": "power cap refused",
    "queued again": "queued again after its site failed",
    "infeasible answer": "the policy answered what is not possible; it is held",
    "clock set back": "the machine's clock was ahead and was set back",
    "stray cancelled": "a held job that was not recorded was cancelled",
}

_WITH_REASON: Final = (
    "failed", "lost", "cancelled", "queued again", "requeued", "suspension refused", "power cap refused",
)  # fmt: skip


def headline(savings: Savings | None) -> str | None:
    """Returns what was saved in a sentence; None where nothing can be compared yet."""
    if savings is None or not savings.days:
        return None
    jobs, days = sum(day.jobs for day in savings.days), len(savings.days)
    usd = (
        sum(day.reference_usd - day.energy_usd for day in savings.days),
        sum(day.reference_usd for day in savings.days),
    )
    kg = sum(day.reference_kg - day.carbon_kg for day in savings.days), sum(day.reference_kg for day in savings.days)
    money, carbon = _amount_of(*usd, "USD"), _amount_of(*kg, "kg CO2")
    if usd[0] >= 0 <= kg[0]:
        said = f"Saved {money} and {carbon}"
    elif usd[0] < 0 > kg[0]:
        said = f"Cost {money} and {carbon} more"
    else:
        said = f"Saved {money}; {carbon} more" if usd[0] >= 0 else f"Cost {money} more; saved {carbon}"
    what, how_long = f"{jobs:,} job{'s' * (jobs != 1)}", f"{days} day{'s' * (days != 1)}"
    return f"{said} against {savings.reference}: {what}, {how_long}."


def _amount_of(saved: float, reference: float, unit: str) -> str:
    """Returns the size of a saving, with its share of the reference."""
    share = f" ({abs(saved) / reference:.0%})" if reference > 0 else ""
    return f"{amount(abs(saved))} {unit}{share}"


def amount(value: float) -> str:
    """Returns an amount to three digits, and not below a thousandth.

    Example:
        >>> amount(0.02345), amount(1234.5), amount(-12.345), amount(0.0)
        ('0.023', '1,234', '-12.3', '0')
    """
    if value == 0.0:
        return "0"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def interval_words(interval: Interval, unit: str) -> str:
    """Returns a daily mean with its interval."""
    if interval.low is None or interval.high is None:
        return f"{amount(interval.mean)} {unit} a day"
    return f"{amount(interval.mean)} {unit} a day [{amount(interval.low)}, {amount(interval.high)}]"


def problems(service: ServiceShown, sites: Sequence[SiteShown]) -> list[str]:
    """Returns what an operator has to know: loops that fail, late signals, sites that are not as they were meant."""
    found = [f"{loop}: {problem}" for loop, problem in service.problems.items()]
    if service.late_signal_hours:
        found.append(
            f"Prices or intensities of {service.late_signal_hours} zone-hours are not known; the same hour of an "
            "earlier day is used."
        )
    for site in sites:
        if not site.reachable:
            found.append(f"{site.name} does not answer: {site.remark}")
        if site.drained:
            found.append(f"{site.name} is drained: nothing more starts there.")
        if not site.dispatch:
            found.append(f"Dispatch to {site.name} is off; {site.undispatched} jobs wait for it.")
        if site.withheld:
            found.append(f"{site.withheld} of {site.gpus} GPUs of {site.name} are not available to the service.")
    return found


def _of_grid(event: Event) -> str:
    """Returns what happened to a grid event in words."""
    data = event.data
    if event.kind == MISSED:
        return (
            f"{data['site']} missed its target: {data['kw']:.4g} kW ({data['counted']}), grid event {data['number']} "
            f"allows {data['limit_kw']:.4g} kW"
        )
    if event.kind == CANCELLED:
        return f"grid event {data['number']} at {data['site']} cancelled by {data['by']}"
    return (
        f"grid event {data['number']} at {data['site']}: {data['target_kw']:.4g} kW from {data['start']} to "
        f"{data['end']}, by {data['by']}"
    )


def event_words(event: Event) -> str:
    """Returns an event in words."""
    data = event.data
    if event.kind == "site":
        answers = "answers" if data.get("reachable") else f"does not answer: {data.get('reason', '')}"
        said = [
            answers if "reachable" in data else "",
            ("is drained" if data["drained"] else "is open") if "drained" in data else "",
            ("dispatch on" if data["dispatch"] else "dispatch off") if "dispatch" in data else "",
        ]
        by = f", by {data['by']}" if "by" in data else ""
        return f"{data['site']} " + ", ".join(each for each in said if each) + by
    if event.kind in (TOLD, CANCELLED, MISSED):
        return _of_grid(event)
    words = _WORDS.get(event.kind, event.kind)
    place = data.get("site")
    parts = [words]
    if place:
        parts.append(f"{'to' if event.kind in ('sent', 'released') else 'at'} {place}")
    if event.kind == "sent":
        parts[0] = "sent"
    if event.kind in ("cap decided", "capped"):
        parts.append(f"({data['power']:.0%} of full power)")
    if event.kind in ("start decided", "resume decided"):
        parts.append(f"on {data['gpus']} GPU{'s' * (data['gpus'] != 1)}")
    if data.get("reason") and event.kind in _WITH_REASON:
        parts.append(f"({data['reason']})")
    if "by" in data:
        parts.append(f"by {data['by']}")
    return " ".join(parts)
