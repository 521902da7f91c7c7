"""The objective of fleets that serve all their jobs: total cost, the lower the better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.evaluate.answer import (
    best_known_values,
    best_to_adopt,
    bills,
    can_run,
    carbon_unit,
    cost_digits,
    energy_unit,
    groups_of,
    interval,
    lasting,
    longest_waits,
    mass,
    mean_wait_h,
    money,
    moved_jobs,
    savings,
    spoken,
    window_words,
)
from noonward.evaluate.cluster_objective import ledger_cell
from noonward.evaluate.comparison import (
    Cell,
    Comparison,
    case_noun,
    cases_told,
    no_value,
    one_window,
)
from noonward.evaluate.ends import ends_sentence
from noonward.evaluate.evidence import assumed, made_prices
from noonward.evaluate.knowing import TOLD, worth
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean, ratio, size_told
from noonward.evaluate.table import UNDEFINED, Column, Row, TextTable, number, percent
from noonward.evaluate.utility_objective import UtilityObjective

PARTS: Final = {
    "Energy": ("energy_usd",),
    "Tariffs": ("tariff_usd",),
    "Carbon": ("carbon_usd",),
    "Transfers": ("move_usd", "result_usd"),
    "Lateness": ("late_usd",),
    "Waiting": ("waiting_usd",),
}
"""Parts of the total cost: their names in tables, and fields of the ledger. They sum to the total."""
SAME_COST: Final = 0.001
"""Two totals are the same where they differ by no more than this share."""
SOONER: Final = 0.1
"""Jobs start sooner where their mean delay is less by more than this share."""
YEAR_H: Final = 8766.0
"""Hours of a year, leap years counted in."""


class CostObjective(UtilityObjective):
    """Least total cost with all jobs served: energy, carbon, transfers, lateness and waiting, each at its price.

    Schedulers see the scenario's revenue as what serving a GPU-hour is worth, so that they refuse no job that costs
    less; no figure of the comparison contains it. The bound is that of the utility, taken off the revenue of the work
    that today's policy does.
    """

    value = "total_usd"
    value_name = "total cost"
    better = "down"
    meaning = (
        "The total cost ranks the policies and decides: energy, carbon at its price, transfers of jobs and results, "
        "lateness and waiting at their prices. Policies that leave more jobs undone or, where lateness has no price, "
        "more jobs late than today's come last."
    )

    def unmet(self, comparison: Comparison, policy: str) -> list[str]:
        """Returns how many more jobs are not done or, where lateness has no price, late than under today's policy."""
        if policy == comparison.reference:
            return []
        more = undone(comparison, policy) - undone(comparison, comparison.reference)
        each = " per window" if len(comparison.bounds) > 1 else ""
        missed = [f"{_more(more, 'not done')}{each}"] if more > 0 else []
        if not comparison.scenario.lateness.usd_per_gpu_hour:
            late = [savings(comparison, each).late_jobs.value for each in (policy, comparison.reference)]
            if late[0] > late[1]:
                missed.append(f"{_more(late[0] - late[1], 'late')}{each}")
        return missed

    def price_that_admits(self, comparison: Comparison, policies: Sequence[str]) -> list[str]:
        """Returns the price of lateness below which the first policy that more late jobs alone keep out would save."""
        if comparison.scenario.lateness.usd_per_gpu_hour:
            return []
        today = comparison.reference
        for policy in policies:
            saved = self._saved(comparison, policy).value
            hours = [comparison.mean(each, "late_gpu_hours").value for each in (policy, today)]
            if saved <= 0 or hours[0] <= hours[1] or undone(comparison, policy) > undone(comparison, today):
                continue
            usd, unit = saved / (hours[0] - hours[1]) / comparison.currency.usd, comparison.currency.name
            return [
                f"{policy} saves {money(comparison.currency.of(Estimate(saved)), unit)} per window apart from that. "
                f"With a price of lateness (lateness.usd_per_gpu_hour) below {usd:,.3g} {unit} per GPU-hour, it would "
                "still save money and could be proposed."
            ]
        return []

    def notes(self, comparison: Comparison) -> list[str]:
        """Returns that prices were made, where they were, before the other notes."""
        made = made_prices(comparison.scenario)
        return [*([made] if made else []), *super().notes(comparison)]

    def assumptions(self, comparison: Comparison) -> list[str]:
        """Returns that prices were made, where they were, and what an own fleet assumes of jobs and sites."""
        return [told for told in (made_prices(comparison.scenario), assumed(comparison.scenario)) if told]

    def sooner(self, comparison: Comparison) -> list[str]:
        """Returns the policy of least mean delay that meets the constraints at no higher cost than today's."""
        today = comparison.reference
        cost = comparison.mean(today, self.value).value
        delay_s = {
            policy: savings(comparison, policy).mean_delay_s.value
            for policy in comparison.records
            if can_run(comparison.policies[policy])
            and comparison.mean(policy, self.value).value <= cost * (1 + SAME_COST)
            and not self.unmet(comparison, policy)
        }
        now_s = savings(comparison, today).mean_delay_s.value
        best = min(delay_s, key=delay_s.__getitem__, default=today)
        if best == today or not now_s - delay_s[best] > SOONER * now_s:
            return []
        return [
            f"At the same cost {best} starts jobs sooner: {lasting(delay_s[best])} of mean delay "
            f"({spoken(today)}: {lasting(now_s)})."
        ]

    def most_of_possible(self, comparison: Comparison, policy: str) -> float:
        """Returns the share of the improvement that the best schedule known reaches; NaN where none is known."""
        today = comparison.reference
        if no_value(comparison.bounds, "best_known_usd"):
            return math.nan
        base_E = comparison.values(today, self.value)
        least_E = comparison.values(today, "revenue_usd") - best_known_values(comparison)
        return ratio(base_E - comparison.values(policy, self.value), base_E - least_E).value

    def improvement_share(self, comparison: Comparison, values_E: F8) -> Estimate:
        """Returns the share of the possible improvement of the total: from today's down to the bound; at most 1."""
        today = comparison.reference
        base_E = comparison.values(today, self.value)
        least_E = comparison.values(today, "revenue_usd") - comparison.bound_values(self.bound_value)
        share = ratio(base_E - values_E, base_E - least_E)
        return share if share.high is None else replace(share, high=min(share.high, max(1.0, share.value)))

    def columns(self, comparison: Comparison) -> tuple[tuple[Column, Cell], ...]:
        """Returns the total, what it saves, its parts, emissions, energy, delay, late and undone jobs, moves."""
        unit, digits, carbon = comparison.currency.name, cost_digits(comparison), carbon_unit(comparison)
        power = energy_unit(comparison)
        late = [savings(comparison, policy).late_jobs.value for policy in comparison.records]
        late_digits = 0 if all(each.is_integer() for each in late) else 1  # a job in two windows is half a job

        def paid(values_E: F8) -> str:
            return number(comparison.currency.of(mean(values_E)), digits)

        def total(c: Comparison, p: str) -> F8:
            return c.values(p, self.value)

        def part(names: tuple[str, ...]) -> Cell:
            return lambda c, p: paid(np.sum([c.values(p, name) for name in names], axis=0))

        parts = [
            (Column(title, unit, "down"), part(names))
            for title, names in PARTS.items()
            if title == "Energy" or any(comparison.values(p, n).any() for p in comparison.records for n in names)
        ]
        standing = [
            (Column("Electricity of jobs from before", power[0]), ledger_cell("standing_kwh", power[2], 1 / power[1]))
        ]
        if not any(comparison.values(p, "standing_kwh").any() for p in comparison.records):
            standing = []
        return (
            (Column("Total cost", unit, "down"), lambda c, p: paid(total(c, p))),
            (Column("Saved", unit, "up"), lambda c, p: paid(total(c, c.reference) - total(c, p))),
            (Column("Saved", "%", "up"), lambda c, p: percent(self._share(c, p), signed=True)),
            (Column("Share of the possible improvement", "%", "up"), self._share_of_possible),
            *parts,
            (Column("Mean delay", "min", "down"), lambda c, p: number(_minutes(savings(c, p).mean_delay_s), 1)),
            (Column("Late", "jobs", "down"), lambda c, p: number(savings(c, p).late_jobs, late_digits)),
            (Column("Not done", "jobs", "down"), lambda c, p: number(Estimate(undone(c, p)))),
            (Column("Emissions", carbon[0], "down"), ledger_cell("carbon_kg", carbon[2], 1 / carbon[1])),
            (Column("Electricity", power[0], "down"), ledger_cell("energy_kwh", power[2], 1 / power[1])),
            *standing,
            (Column("Moved", "jobs"), lambda c, p: number(moved_jobs(c, p))),
        )

    def bound_rows(self, comparison: Comparison) -> list[Row]:
        """Returns the total that no policy can go below, and that of the best schedule known."""
        if no_value(comparison.bounds, "utility_usd"):
            return []
        today, digits = comparison.reference, cost_digits(comparison)
        base_E, revenue_E = comparison.values(today, self.value), comparison.values(today, "revenue_usd")
        rest = (UNDEFINED,) * (len(self.columns(comparison)) - 4)
        rows = []
        for name, utility_E in (
            ("lower bound", comparison.bound_values("utility_usd")),
            ("best known schedule", best_known_values(comparison)),
        ):
            total_E = revenue_E - utility_E
            paid = (number(comparison.currency.of(mean(each_E)), digits) for each_E in (total_E, base_E - total_E))
            shares = (ratio(base_E - total_E, base_E), self.improvement_share(comparison, total_E))
            cells = (*paid, percent(shares[0], signed=True), percent(shares[1]), *rest)
            rows.append(Row(name=name, cells=cells, kind="bound"))
        return rows

    def value_metrics(self, comparison: Comparison, policy: str) -> list[Metric]:
        """Returns the total, the bill, and the shares saved of each and of the possible improvement."""
        return [
            Metric.of(f"total_usd/{policy}", comparison.mean(policy, self.value), "USD"),
            Metric.of(f"saved_total_usd/{policy}", self._saved(comparison, policy), "USD"),
            Metric.of(f"saved_total_share/{policy}", self._share(comparison, policy), "fraction"),
            Metric.of(f"cost_usd/{policy}", mean(bills(comparison, policy)), "USD"),
            Metric.of(f"saved_share/{policy}", savings(comparison, policy).usd_share, "fraction"),
            Metric.of(f"improvement_share/{policy}", comparison.improvement_share(policy), "fraction"),
        ]

    def claim(self, share: float, today: str) -> str:
        """Returns how much cheaper a policy is than today's."""
        if math.isnan(share):
            return f"cheaper than {today}"
        return f"{size_told(share)} {'cheaper' if share >= 0 else 'dearer'} than {today}"

    def saying(self, comparison: Comparison, policy: str) -> str:
        """Returns what a policy saves of the total cost, per window and per year, and the emissions avoided."""
        saved, share = comparison.currency.of(self._saved(comparison, policy)), self._share(comparison, policy).value
        verb, more = ("saves", "") if saved.value >= 0 else ("costs", " more")
        saved = saved if saved.value >= 0 else -saved
        percentage = "" if math.isnan(share) else f" ({size_told(share, 1)})"
        hours = comparison.scenario.window_h
        year = f", {money(Estimate(saved.value * YEAR_H / hours), comparison.currency.name)} a year"
        year = "" if one_window(comparison) else year  # one window of jobs says nothing of a year
        amount = money(Estimate(saved.value), comparison.currency.name)
        avoided = savings(comparison, policy).kg
        doubtful = avoided.low is not None and avoided.high is not None and avoided.low <= 0 <= avoided.high
        emitted = f"{mass(avoided)}{' (not significant)' if doubtful else ''}"
        return (
            f"{verb} {amount}{percentage}{more}{interval(saved)} per window of {window_words(hours)}{year}, "
            f"with {emitted} than {spoken(comparison.reference)}"
        )

    def consequences(self, comparison: Comparison, policy: str) -> list[str]:
        """Returns the parts of the saving, the worst window, and moves, delay and late jobs beside today's."""
        told = [self._parts_saved(comparison, policy), *self._gpu_share(comparison, policy)]
        if moved_jobs(comparison, policy).value > 0:
            told.append(
                f"What comes from moving jobs and what from waiting: run 'noonward sensitivity' with --policy {policy}."
            )
        saved_E = comparison.values(comparison.reference, self.value) - comparison.values(policy, self.value)
        if len(saved_E) > 1:
            worst = int(saved_E.argmin())
            amount = money(comparison.currency.of(Estimate(abs(float(saved_E[worst])))), comparison.currency.name)
            what = "saved" if saved_E[worst] >= 0 else "paid more"
            day = comparison.records[policy][worst].manifest["start"][:10]
            first = f"Worst of these windows ({day})"
            if one_window(comparison):
                first = "Worst of these draws of prices"
            counted = cases_told(comparison, len(saved_E))
            told.append(f"{first}: {amount} {what}; {int((saved_E < 0).sum())} of {counted} cost more than today.")
        told += [*super().consequences(comparison, policy), *longest_waits(comparison, policy)]
        return [*told, *ends_sentence(comparison, policy)]

    def tables(self, comparison: Comparison) -> list[TextTable]:
        """Returns waits and late jobs per class and per team, today's beside the policy's that the verdict names."""
        return [*(_wait_table(comparison, column) for column in _grouped(comparison)), *super().tables(comparison)]

    def _parts_saved(self, comparison: Comparison, policy: str) -> str:
        """Returns the parts of a saving as a sentence."""
        today, of, unit = comparison.reference, comparison.currency.of, comparison.currency.name
        parts = []
        for title, names in PARTS.items():
            mine, its = (sum(comparison.mean(each, name).value for name in names) for each in (policy, today))
            if not mine and not its:
                continue
            share = (
                f" ({size_told((its - mine) / its, 1)} of the electricity bill)"
                if title == "Energy" and its > 0
                else ""
            )
            less = "less" if mine <= its else "more"
            parts.append(f"{title.lower()} {money(of(Estimate(abs(its - mine))), unit)}{share} {less}")
        return f"Of this: {', '.join(parts)}."

    def _gpu_share(self, comparison: Comparison, policy: str) -> list[str]:
        """Returns what is saved as a share of what the GPUs cost in the window; nothing where no one said what."""
        scenario, unit = comparison.scenario, comparison.currency.name
        assert scenario.economics is not None
        price = scenario.economics.gpu_usd_per_hour
        if not price:
            return []
        gpus = sum(site.gpus for site in scenario.fleet.sites)
        cost_usd = price * gpus * scenario.window_h
        saved = self._saved(comparison, policy)
        paid = money(comparison.currency.of(Estimate(cost_usd)), unit)
        less = "less" if saved.value >= 0 else "more"
        return [
            f"{gpus:,} GPUs at {price / comparison.currency.usd:,.4g} {unit} per hour cost {paid} per window: the "
            f"total is {abs(saved.value) / cost_usd:.2%} of that {less}."
        ]

    def basis(self, comparison: Comparison) -> list[str]:
        """Returns at which prices carbon, lateness and waiting count, and what is a limit where they have none."""
        scenario, unit = comparison.scenario, comparison.currency.name

        def price(usd: float) -> str:
            return f"{usd / comparison.currency.usd:,.4g} {unit}"

        assert scenario.economics is not None
        late, waiting = scenario.lateness.usd_per_gpu_hour, scenario.economics.waiting_usd_per_hour
        told = [f"carbon counts at {price(scenario.economics.carbon_usd_per_t)}/t"]
        if late:
            told.append(f"lateness at {price(late)} per GPU-hour")
        if waiting:
            told.append(f"waiting at {price(waiting)} per hour and job")
        free = [name for name, usd in (("lateness", late), ("waiting", waiting)) if not usd]
        limit = "; no policy is proposed under which more jobs are late or not done than today" if not late else ""
        alone_min = getattr(scenario.jobs, "leave_alone_min", 0.0)
        alone = f"; jobs under {alone_min:g} minutes are not to be delayed" if alone_min else ""
        without = f"; {' and '.join(free)} without a price" if free else ""
        return [f"{', '.join(told)[0].upper()}{', '.join(told)[1:]}{without}{alone}{limit}.", self._told(comparison)]

    def _told(self, comparison: Comparison) -> str:
        """Returns the sentence on what policies are told of run times, and what the truth would be worth."""
        way = comparison.scenario.jobs.knowledge.run_time
        said = f"Policies are told {TOLD[way]}"
        if comparison.knowing is None or way == "known":
            return f"{said}."
        more = comparison.currency.of(worth(comparison, "known"))
        if best_to_adopt(comparison) == comparison.reference:
            return f"{said}."
        less = "more" if more.value >= 0 else "less"
        why = "" if more.value >= 0 else " Jobs known to be short are late unless they start at once."
        more = more if more.value >= 0 else -more
        amount = money(Estimate(more.value), comparison.currency.name)
        would = f"{amount} {less}{interval(more)}"
        return f"{said}; if {comparison.knowing.policy} knew run times, it would save {would}.{why}"

    def limits(self, comparison: Comparison) -> list[str]:
        """Returns the cost that no policy can change, and how tight the bound is."""
        fixed = comparison.mean(comparison.reference, "fixed_kwh")
        told = [
            f"GPUs kept ready over the window draw {fixed.value:,.0f} kWh whatever a policy does: part of every cost."
        ]
        if not no_value(comparison.bounds, "utility_usd"):
            gap = mean(comparison.bound_values("utility_usd") - best_known_values(comparison))
            told.append(
                "The possible improvement rests on a bound of the total that is at most "
                f"{number(comparison.currency.of(gap), cost_digits(comparison))} {comparison.currency.name} too low: "
                "its distance from the best schedule known."
            )
        return told

    def _saved(self, comparison: Comparison, policy: str) -> Estimate:
        return mean(comparison.values(comparison.reference, self.value) - comparison.values(policy, self.value))

    def _share_of_possible(self, comparison: Comparison, policy: str) -> str:
        """Returns the share of the possible improvement; undefined where a policy costs more than today's."""
        share = comparison.improvement_share(policy)
        return UNDEFINED if share.value < 0 else percent(share)

    def _share(self, comparison: Comparison, policy: str) -> Estimate:
        base_E = comparison.values(comparison.reference, self.value)
        return ratio(base_E - comparison.values(policy, self.value), base_E)


def _grouped(comparison: Comparison) -> list[str]:
    """Returns the columns among class and team by which jobs fall into several groups."""
    return [name for name in ("class", "team") if len(groups_of(comparison, comparison.reference, name)) > 1]


def _wait_table(comparison: Comparison, column: str) -> TextTable:
    """Returns waits, late and undone jobs by class or team, under today's policy and the one the verdict names."""
    policies = list(dict.fromkeys([comparison.reference, best_to_adopt(comparison)]))
    found, rows = {policy: groups_of(comparison, policy, column) for policy in policies}, []
    for name in sorted({name for groups in found.values() for name in groups}):
        for policy in policies:
            groups = found[policy].get(name, [])
            count = len(comparison.bounds)
            longest_h = max((group.longest_h for group in groups), default=math.nan)
            means = (sum(getattr(g, what) for g in groups) / count for what in ("jobs", "late", "not_done"))
            jobs, late, not_done = (
                number(Estimate(value), 0 if value >= 10 or value % 1 == 0 else 1) for value in means
            )
            waits = (number(Estimate(hours), 1) for hours in (mean_wait_h(groups), longest_h))
            rows.append((name, policy, jobs, *waits, late, not_done))
    return TextTable(
        title=f"Who waits, by {column}",
        header=(column, "policy", "jobs", "mean wait (h)", "longest wait (h)", "late (jobs)", "not done (jobs)"),
        rows=tuple(rows),
        caption=f"Waits run from a job's arrival to its start. Jobs are means per {case_noun(comparison.scenario)}.",
    )


def _more(count: float, what: str) -> str:
    digits = 0 if float(count).is_integer() else 1 if count >= 0.1 else 2
    return f"{count:,.{digits}f} more job{'s' * (count != 1)} {what}"


def undone(comparison: Comparison, policy: str) -> float:
    """Returns the jobs that did not finish, mean over the environments."""
    return float((comparison.values(policy, "overdue") + comparison.values(policy, "unfinished")).mean())


def _minutes(seconds: Estimate) -> Estimate:
    spread = None if seconds.spread is None else seconds.spread / 60
    return Estimate(seconds.value / 60, spread=spread)
