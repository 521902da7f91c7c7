"""The answer of a comparison in words: which policy to adopt, what it saves against today's, and what that rests on."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.evaluate.comparison import Comparison, case_noun, cases_told, one_window, summary_rows
from noonward.evaluate.evidence import how_to_run_more
from noonward.evaluate.job_figures import Group, job_figures
from noonward.evaluate.statistics import Estimate, mean, ratio
from noonward.evaluate.verdict import Verdict, decide
from noonward.schedule.cluster.what_happened import WHAT_HAPPENED
from noonward.schedule.registry import Policy

SAME_WORK: Final = 0.005
"""Two policies do the same work if their GPU-hours differ by no more than this share."""
MOST_NAMED: Final = 3
"""Policies that a sentence names, the best first."""


@dataclass(frozen=True, kw_only=True)
class Savings:
    """What a policy saves against today's, paired over environments.

    Attributes:
        policy: The policy.
        usd: Energy and transfers that are no longer paid, USD per environment, without a price on carbon.
        usd_share: The same as a fraction of what today's policy pays.
        kg: Emissions avoided, kgCO2 per environment.
        kwh: Energy saved, kWh per environment.
        mean_delay_s: Mean delay of its started jobs' starts, s.
        late_jobs: Jobs that it started after arrival + slack, or that had not started by then.
    """

    policy: str
    usd: Estimate
    usd_share: Estimate
    kg: Estimate
    kwh: Estimate
    mean_delay_s: Estimate
    late_jobs: Estimate


def bill_usd(ledger: Any) -> float:
    """Returns what is paid for energy, tariffs and transfers, USD, without a price on carbon; NaN without prices."""
    tariff_usd = getattr(ledger, "tariff_usd", 0.0)  # ledgers of edge scenarios have none
    return float(ledger.energy_usd + tariff_usd + ledger.move_usd + ledger.result_usd)


def bills(comparison: Comparison, policy: str) -> F8:
    """Returns a policy's bill per environment, USD."""
    return np.array([bill_usd(record.ledger) for record in comparison.records[policy]])


def carbon_unit(comparison: Comparison) -> tuple[str, float, int]:
    """Returns how emissions are shown: the unit, kg of CO2 in one of it, and decimals."""
    return _unit(comparison, "carbon_kg", "kg CO2", "t CO2")


def energy_unit(comparison: Comparison) -> tuple[str, float, int]:
    """Returns how electricity is shown: the unit, kWh in one of it, and decimals."""
    return _unit(comparison, "energy_kwh", "kWh", "MWh")


def _unit(comparison: Comparison, field: str, small: str, large: str) -> tuple[str, float, int]:
    """Returns the large unit if a policy's mean reaches it, otherwise the small one, and the reference's decimals."""
    amounts = {policy: comparison.mean(policy, field).value for policy in comparison.records}
    unit, size = (large, 1000.0) if max(amounts.values()) >= 1000 else (small, 1.0)
    return unit, size, digits_of(amounts[comparison.reference] / size)


def moved_jobs(comparison: Comparison, policy: str) -> Estimate:
    """Returns how many jobs ran at another site than the one they arrived at, with or without data to move."""
    homes = {point.name: point.home for point in comparison.scenario.fleet.ingress_points}
    return mean([job_figures(record).moved(homes) for record in comparison.records[policy]])


def savings(comparison: Comparison, policy: str) -> Savings:
    """Returns what a policy saves against the comparison's reference."""
    today, other = bills(comparison, comparison.reference), bills(comparison, policy)

    def less(name: str) -> Estimate:
        return mean(comparison.values(comparison.reference, name) - comparison.values(policy, name))

    jobs = [job_figures(record) for record in comparison.records[policy]]
    return Savings(
        policy=policy,
        usd=mean(today - other),
        usd_share=ratio(today - other, today),
        kg=less("carbon_kg"),
        kwh=less("energy_kwh"),
        mean_delay_s=mean([each.mean_delay_s for each in jobs]),
        late_jobs=mean([each.late for each in jobs]),
    )


def can_run(policy: Policy) -> bool:
    """Returns whether a policy can be adopted: not if it reads future jobs or signals, or replays a log."""
    return not policy.clairvoyant and "recorded" not in policy.roles


def verdict_of(comparison: Comparison) -> Verdict:
    """Returns the verdict of a comparison by the measure that ranks its policies."""
    objective, today = comparison.objective, comparison.reference
    values = {policy: comparison.values(policy, objective.value) for policy in comparison.records}
    run_live = {name for name, policy in comparison.policies.items() if can_run(policy)}
    fit = [p for p in comparison.ranked() if p != today and p in run_live and not objective.unmet(comparison, p)]
    found = decide(values, today, fit, objective.better)
    if found.kind != "adopt" and fit and objective.unmet(comparison, today):
        gain = mean((1.0 if objective.better == "up" else -1.0) * (values[fit[0]] - values[today]))
        return replace(found, kind="limits", policy=fit[0], gain=gain, measured=tuple(range(len(comparison.bounds))))
    return replace(found, kind="draws") if found.kind == "adopt" and one_window(comparison) else found


def best_to_adopt(comparison: Comparison) -> str:
    """Returns the policy that the verdict names: the one to adopt, or that leads; today's where it stays."""
    return verdict_of(comparison).policy


def passed_over(comparison: Comparison, best: str) -> list[str]:
    """Returns sentences on the policies of a better ranked value that miss a constraint, and on today's if it does."""
    objective, today = comparison.objective, comparison.reference
    sign = 1.0 if objective.better == "down" else -1.0
    value = {policy: sign * comparison.mean(policy, objective.value).value for policy in comparison.records}
    said = []
    of_today = objective.unmet(comparison, today)
    if of_today:
        said.append(f"{today} itself does not meet the constraints: {', '.join(of_today)}.")
    better = sorted(
        (policy for policy in value if policy != today and value[policy] < value[best]), key=value.__getitem__
    )
    missed = {policy: objective.unmet(comparison, policy) for policy in better if can_run(comparison.policies[policy])}
    named = [f"{policy} ({', '.join(what)})" for policy, what in missed.items() if what]
    if named:
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        said.append(
            f"Better by {objective.value_name}, but not proposed, as constraints are not met: "
            f"{'; '.join(named[:MOST_NAMED])}{more}."
        )
        said += objective.price_that_admits(comparison, [policy for policy, what in missed.items() if what])
    return said


def spoken(policy: str) -> str:
    """Returns a policy's name as sentences say it.

    Example:
        >>> spoken("what-happened"), spoken("local-fcfs")
        ('what happened', 'local-fcfs')
    """
    return "what happened" if policy == WHAT_HAPPENED else policy


def plainly(summary: str) -> str:
    """Returns a policy's summary without a paper's symbol before it and its citation behind it.

    Example:
        >>> plainly("S1: local first; without room, to the site of lowest price (MASAC, Sec. IV.A).")
        'Local first; without room, to the site of lowest price.'
    """
    words = re.sub(r" \([^()]*(?:Sec|Eq|Table|Alg)[^()]*\)", "", re.sub(r"^S\d: ", "", summary))
    return words[:1].upper() + words[1:]


def headline(comparison: Comparison) -> list[str]:
    """Returns what a comparison says: the verdict in at most twelve words, one sentence on it, then what it rests on.

    Figures are those of the windows that did not choose the policy (``noonward.evaluate.verdict``).
    """
    today, objective = comparison.reference, comparison.objective
    if len(comparison.records) == 1:
        return [f"Only {today} ran.", "Name another policy to compare it with (--policies)."]
    verdict, count = verdict_of(comparison), len(comparison.bounds)
    case = case_noun(comparison.scenario)
    best, now = verdict.policy, "what you do today" if today == WHAT_HAPPENED else today
    if verdict.kind == "keep":
        within = (
            " within the limits" if any(objective.unmet(comparison, policy) for policy in comparison.records) else ""
        )
        why = [f"No other policy that can run is better by {objective.value_name}{within}."]
        why += [*objective.assumptions(comparison), *passed_over(comparison, best), *objective.sooner(comparison)]
        return [f"Keep {now}.", *why, *objective.basis(comparison)]
    shown = comparison.only(verdict.measured)
    said = objective.saying(shown, best)
    share = objective.share_told(shown, best)
    if verdict.gain.value > 0 and share:
        said += f": {share} of the possible improvement"
    claim = objective.claim(verdict.share.value, spoken(today))
    if verdict.kind == "adopt":
        told = [f"Adopt {best}: {claim}.", f"It {said}."]
    elif verdict.kind == "limits":
        told = [f"Adopt {best}: it meets the constraints that {today} misses.", f"It {said}."]
    elif verdict.kind in ("once", "draws"):
        told = [f"{best} was better in this {case}: {claim}."]
        under = f", under {cases_told(comparison, count)} (the interval is over these)" if count > 1 else ""
        one = "one window of jobs" if case == "window" else "one environment"
        told.append(
            f"It {said}{under}; {one} cannot tell more, so compare several "
            f"({how_to_run_more(comparison.scenario)}) before you decide."
        )
    else:
        several = f"Run more {case}s: {count} cannot tell yet."
        first = "Run more windows of jobs: one cannot tell yet." if one_window(comparison) else several
        told = [first, _undecided(comparison, verdict, said)]
    told += objective.assumptions(comparison)
    if len(verdict.measured) < count:
        told.append(
            f"{best} was chosen on {len(verdict.chosen)} of the {cases_told(comparison, count)}; what it gains was "
            f"measured on the other {len(verdict.measured)}, so the choice does not flatter it; the table is of all "
            f"{count}."
        )
    return [*told, *passed_over(comparison, best), *objective.consequences(shown, best), *objective.basis(comparison)]


def _undecided(comparison: Comparison, verdict: Verdict, said: str) -> str:
    """Returns the sentence on a policy that leads without an interval above 0."""
    option = how_to_run_more(comparison.scenario)
    until = f"keep {spoken(comparison.reference)} until more ({option}) tell the two apart"
    if verdict.gain.low is None:
        given = cases_told(comparison, len(comparison.bounds))
        return (
            f"{verdict.policy} leads: it {said}; {given} give no interval after the choice "
            f"among {len(comparison.records)} policies, so {until}."
        )
    if verdict.gain.value <= 0:
        which = "draws of prices" if one_window(comparison) else f"{case_noun(comparison.scenario)}s"
        return f"{verdict.policy} led in the {which} that chose it, and not in the others; {until}."
    return f"{verdict.policy} leads: it {said}; that interval includes zero, so {until}."


def money(value: Estimate, unit: str, digits: int | None = None) -> str:
    """Returns a value with its unit and interval.

    Example:
        >>> money(Estimate(21400.0, 18000.0, 24800.0), "USD"), money(Estimate(0.5), "t CO2")
        ('21,400 USD [18,000, 24,800]', '0.50 t CO2')
    """
    places = digits_of(value.value) if digits is None else digits
    return f"{value.value:,.{places}f} {unit}{interval(value, places)}"


def mass(avoided: Estimate) -> str:
    """Returns avoided emissions in t or kg of CO2, without the interval.

    Example:
        >>> mass(Estimate(29100.0)), mass(Estimate(-3.21))
        ('29 t CO2 less', '3.2 kg CO2 more')
    """
    size, less = abs(avoided.value), "less" if avoided.value >= 0 else "more"
    if size >= 10_000:
        return f"{size / 1000:,.0f} t CO2 {less}"
    return f"{size / 1000:,.1f} t CO2 {less}" if size >= 1000 else f"{size:,.1f} kg CO2 {less}"


def lasting(seconds: float) -> str:
    """Returns a duration in the unit that suits it.

    Example:
        >>> lasting(42.0), lasting(720.0), lasting(9000.0)
        ('42 seconds', '12 minutes', '2.5 hours')
    """
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def window_words(hours: float) -> str:
    """Returns the length of a window in words.

    Example:
        >>> window_words(48), window_words(12), window_words(2208)
        ('48 hours', '12 hours', '92 days')
    """
    return f"{hours:g} hours" if hours < 72 or hours % 24 else f"{hours / 24:g} days"


def longest_queue(comparison: Comparison, policy: str) -> F8:
    """Returns the most jobs that ever waited at once under a policy per environment."""
    return np.array([float(record.service.longest_queue) for record in comparison.records[policy]])


def digits_of(amount: float) -> int:
    """Returns the decimals that an amount is shown with: three significant digits, at most two decimals.

    Example:
        >>> digits_of(214.6), digits_of(-21.46), digits_of(0.0215)
        (0, 1, 2)
    """
    return 0 if abs(amount) >= 100 else 1 if abs(amount) >= 10 else 2


def interval(estimate: Estimate, digits: int | None = None) -> str:
    """Returns the 95% interval of an amount in brackets, after a blank; nothing without one."""
    if estimate.low is None or estimate.high is None:
        return ""
    places = digits_of(estimate.value) if digits is None else digits
    low, high = (f"{round(end, places) + 0.0:,.{places}f}" for end in (estimate.low, estimate.high))
    return f" [{low}, {high}]"


def cost_digits(comparison: Comparison) -> int:
    """Returns the decimals costs are shown with: three significant digits of the reference's."""
    return digits_of(float(bills(comparison, comparison.reference).mean()))


def best_known_values(comparison: Comparison) -> F8:
    """Returns the utility of the best schedule known per environment, USD: the bound's own, or a policy's above it."""
    utilities = [comparison.values(policy, "utility_usd") for policy in comparison.records]
    return np.asarray(np.fmax(comparison.bound_values("best_known_usd"), np.max(utilities, axis=0)))


def utility_digits(comparison: Comparison) -> int:
    """Returns the decimals utilities are shown with: three significant digits of the reference's."""
    return digits_of(comparison.mean(comparison.reference, "utility_usd").value)


def groups_of(comparison: Comparison, policy: str, column: str) -> dict[str, list[Group]]:
    """Returns the figures of a policy's jobs by class or team (``column``), one an environment that has any."""
    found: dict[str, list[Group]] = {}
    for record in comparison.records[policy]:
        for name, group in job_figures(record).groups.get(column, {}).items():
            found.setdefault(name, []).append(group)
    return found


def mean_wait_h(groups: Sequence[Group]) -> float:
    """Returns the mean wait of the jobs that started, h; NaN without any."""
    started = sum(group.started for group in groups)
    return sum(group.waited_h for group in groups) / started if started else math.nan


def longest_waits(comparison: Comparison, policy: str) -> list[str]:
    """Returns a sentence on the team, or else the class, that waits longest on average, and on the longest wait."""
    columns = [column for column in ("team", "class") if len(groups_of(comparison, policy, column)) > 1]
    column = columns[0] if columns else "class"
    mine, its = (groups_of(comparison, each, column) for each in (policy, comparison.reference))
    waits_h = {name: mean_wait_h(groups) for name, groups in mine.items()}
    known = {name: hours for name, hours in waits_h.items() if not math.isnan(hours)}
    if not known:
        return []
    now = spoken(comparison.reference)
    longest = [max(group.longest_h for groups in each.values() for group in groups) for each in (mine, its)]
    told = f"The longest wait of a job is {lasting(3600 * longest[0])} ({now}: {lasting(3600 * longest[1])})"
    if columns:
        name = max(known, key=known.__getitem__)
        was = mean_wait_h(its.get(name, []))
        before = "" if math.isnan(was) else f" ({now}: {lasting(3600 * was)})"
        told = f"{column.capitalize()} {name} waits longest, {lasting(3600 * known[name])} on average{before}. {told}"
    return [f"{told}."]


def summary_text(comparison: Comparison) -> str:
    """Returns the headline and the table of results as plain text."""
    summary = summary_rows(comparison)
    heads = ("policy", *(f"{column.title} ({column.unit})" for column in summary.columns))
    rows = [heads, *((row.name, *row.cells) for row in summary.rows)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(heads))]
    lines = []
    for name, *cells in rows:
        right = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        lines.append("  ".join([name.ljust(widths[0]), *right]))
    return "\n".join([*headline(comparison), "", *lines])
