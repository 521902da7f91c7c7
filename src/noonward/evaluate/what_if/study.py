"""A study of changes: what a policy costs and emits in each case, what it saves, and tables and figures of that."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from noonward.arrays import F8
from noonward.evaluate.answer import bill_usd, lasting, spoken
from noonward.evaluate.job_figures import job_figures
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean, ratio
from noonward.evaluate.table import UNDEFINED, TextTable, number, percent
from noonward.evaluate.what_if.changes import Change
from noonward.ledger.record import Record
from noonward.model.cluster.scenario import Scenario

if TYPE_CHECKING:
    import polars as pl

Name = Literal["trade-off", "sensitivity"]
SAME_GPU_HOURS: Final = 0.01
"""Cases that serve fewer GPU-hours than the unchanged one by more than this share leave jobs out."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A policy in changed environments.

    Attributes:
        change: The change.
        title: The change in words.
        at: The changed quantity's value, for a curve's axis; NaN for a case that lies on none.
        records: One record an environment.
        policy: Policy of the case; empty: that of the study.
        without: The same policy in unchanged environments, where it is not that of the study.
    """

    change: Change
    title: str
    at: float
    records: list[Record] = field(repr=False)
    policy: str = ""
    without: Case | None = field(default=None, repr=False)

    def values(self, name: str) -> F8:
        """Returns a ledger figure per environment."""
        return np.array([float(getattr(record.ledger, name)) for record in self.records])

    @property
    def bills_E(self) -> F8:
        """What is paid for energy and journeys per environment, USD, without a price on carbon."""
        return np.array([bill_usd(record.ledger) for record in self.records])

    @property
    def delay_s(self) -> Estimate:
        """Mean delay of the started jobs' starts, s."""
        return mean([job_figures(record).mean_delay_s for record in self.records])

    @property
    def not_in_time(self) -> Estimate:
        """Jobs that are late or not done, each once."""
        return mean([job_figures(record).late_or_not_done for record in self.records])


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Cases along one changed quantity.

    Attributes:
        name: ``carbon`` or ``slack``.
        quantity: The quantity with its unit.
        cases: Cases, in the order of the quantity.
    """

    name: Literal["carbon", "slack"]
    quantity: str
    cases: tuple[Case, ...]

    @property
    def of_own(self) -> bool:
        """Whether the quantity is a factor on the jobs' own slacks."""
        return any(case.change.slack_factor is not None for case in self.cases)


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a policy saves against today's in unchanged and changed environments, over the same windows and jobs.

    Costs and emissions are taken per GPU-hour, since less slack may leave fewer GPU-hours served: a saving is what
    today's policy would have paid for as many GPU-hours, less the bill.

    Attributes:
        name: ``trade-off`` or ``sensitivity``.
        scenario: Scenario.
        seed: Seed.
        folder: Where the records lie.
        policy: The policy.
        today: Policy that runs today, in unchanged environments.
        base: The policy in unchanged environments.
        reference: Today's policy there.
        curves: Curves (``trade-off``).
        cases: Single changes (``sensitivity``).
        notes: What a reader must know.
        held: What keeps a temporary folder of records until the study is dropped; None: the folder stays.
    """

    name: Name
    scenario: Scenario
    seed: int
    folder: Path
    policy: str
    today: str
    base: Case
    reference: Case
    curves: tuple[Curve, ...] = ()
    cases: tuple[Case, ...] = ()
    notes: tuple[str, ...] = ()
    held: Any = field(default=None, repr=False, compare=False)

    @property
    def environments(self) -> int:
        """Number of environments."""
        return len(self.base.records)

    @property
    def all_cases(self) -> list[Case]:
        """Every case once: the unchanged one, then the others."""
        cases = {case.change.name: case for case in (self.base, *self.cases)}
        for curve in self.curves:
            cases |= {case.change.name: case for case in curve.cases}
        return list(cases.values())

    def share_E(self, case: Case, what: Literal["usd", "kg"]) -> tuple[F8, F8]:
        """Returns per environment what is saved per GPU-hour's work, and what today's policy has for it."""
        mine_E, its_E = (each.bills_E if what == "usd" else each.values("carbon_kg") for each in (case, self.reference))
        due_E = its_E / self.reference.values("gpu_hours") * case.values("gpu_hours")
        return due_E - mine_E, due_E

    def saved(self, case: Case, what: Literal["usd", "kg"] = "usd") -> Estimate:
        """Returns the share of cost, or of emissions, that is saved per GPU-hour against today's policy, paired.

        No more than all emissions can be avoided; of a cost, more than all can be saved where prices are negative.
        """
        return ratio(*self.share_E(case, what)).within(-math.inf, math.inf if what == "usd" else 1.0)

    def change_of_saving(self, case: Case, base: Case | None = None) -> Estimate:
        """Returns how much the share of cost that is saved differs from that of another case, paired.

        Without one from the unchanged case, or from the same policy there where the case has a policy of its own.
        """
        other = base or case.without or self.base
        (less_E, due_E), (its_less_E, its_due_E) = (self.share_E(each, "usd") for each in (case, other))
        return mean(less_E / due_E - its_less_E / its_due_E)

    def work(self, case: Case) -> float:
        """Returns GPU-hours over those of the unchanged case, less 1."""
        return float(case.values("gpu_hours").mean() / self.base.values("gpu_hours").mean()) - 1

    def served(self, curve: Curve) -> tuple[list[Case], list[Case]]:
        """Returns a curve's cases that serve as many GPU-hours as the unchanged one, and those that leave jobs out."""
        served = [case for case in curve.cases if self.work(case) > -SAME_GPU_HOURS]
        return served, [case for case in curve.cases if case not in served]

    def per_gpu_hour(self, case: Case, what: Literal["usd", "kg"]) -> Estimate:
        """Returns cost, USD, or emissions, kg, per GPU-hour."""
        if what == "usd":
            return ratio(case.bills_E, case.values("gpu_hours"))
        return ratio(case.values("carbon_kg"), case.values("gpu_hours")).within(0.0)

    def tables(self) -> list[TextTable]:
        """Returns one table a curve, or one of all cases."""
        words = f"per GPU-hour, against {spoken(self.today)}"
        note = "" if self.environments == 1 else " In brackets: 95% intervals over the environments, paired."
        header = ("bill saved, %", "emissions avoided, %", "bill, USD/(1000 GPU h)", "emissions, kg/(1000 GPU h)")
        rest = ("GPU-hours", "mean delay", "late or not done")
        tables = []
        for curve in self.curves:
            more = ("USD per tonne avoided",) if curve.name == "carbon" else ()
            rows = []
            for n, case in enumerate(curve.cases):
                last = (_price(self.price_of_step(curve.cases[0], case)),) if n else (UNDEFINED,)
                rows.append((case.title, *self._cells(case), *last[: len(more)]))
            title = {"carbon": "Cost against carbon", "slack": "Saving against allowed delay"}[curve.name]
            caption = f"{self.policy} {words}.{note}"
            if more:
                caption += " The last column: what is paid more than in the first row per tonne that is avoided."
            header_row = (curve.quantity, *header, *rest, *more)
            tables.append(TextTable(title=title, header=header_row, rows=tuple(rows), caption=caption))
        if self.cases:
            rows = [(self.base.title, *self._cells(self.base), UNDEFINED)]
            for case in self.cases:
                rows.append((case.title, *self._cells(case), percent(self.change_of_saving(case), signed=True)))
            tables.append(
                TextTable(
                    title="Sensitivity of the saving",
                    header=("what changes", *header, *rest, "change of the saving, points"),
                    rows=tuple(rows),
                    caption=f"{self.policy} {words} in unchanged environments.{note}" + self._own_policies(),
                )
            )
        return tables

    def _own_policies(self) -> str:
        """Returns what must be said of cases with policies of their own."""
        if not any(case.policy for case in self.cases):
            return ""
        return (
            " Rows of jobs that could be suspended, resized, capped or moved are those of the policies that they name; "
            "their change of the saving is against the same policy without that."
        )

    def metrics(self) -> list[Metric]:
        """Returns the figures that ``--json`` prints."""
        out = []
        for case in self.all_cases:
            name = case.change.name
            out += [
                Metric.of(f"saved_share/{name}", self.saved(case), "fraction"),
                Metric.of(f"avoided_share/{name}", self.saved(case, "kg"), "fraction"),
                Metric.of(f"bill_usd_per_gpu_hour/{name}", self.per_gpu_hour(case, "usd"), "USD/(GPU h)"),
                Metric.of(f"kg_per_gpu_hour/{name}", self.per_gpu_hour(case, "kg").within(0.0), "kgCO2/(GPU h)"),
                Metric.of(f"cost_usd/{name}", mean(case.bills_E), "USD"),
                Metric.of(f"carbon_kg/{name}", mean(case.values("carbon_kg")).within(0.0), "kgCO2"),
                Metric.of(f"gpu_hours/{name}", mean(case.values("gpu_hours")).within(0.0), "GPU h"),
                Metric.of(f"mean_delay_s/{name}", case.delay_s.within(0.0), "s"),
                Metric.of(f"late_or_not_done/{name}", case.not_in_time.within(0.0), "jobs"),
            ]
        return out

    def to_frame(self) -> pl.DataFrame:
        """Returns one row a case and environment."""
        import polars as pl

        rows = []
        for case in self.all_cases:
            saved_E, avoided_E = (np.divide(*self.share_E(case, what)) for what in ("usd", "kg"))
            for index, record in enumerate(case.records):
                rows.append(
                    {
                        "case": case.change.name,
                        "environment": index,
                        "cost_usd": bill_usd(record.ledger),
                        "carbon_kg": float(record.ledger.carbon_kg),
                        "gpu_hours": float(record.ledger.gpu_hours),
                        "saved_share": float(saved_E[index]),
                        "avoided_share": float(avoided_E[index]),
                    }
                )
        return pl.DataFrame(rows)

    def _cells(self, case: Case) -> tuple[str, ...]:
        thousand = [self.per_gpu_hour(case, what) for what in ("usd", "kg")]
        return (
            percent(self.saved(case), signed=True),
            percent(self.saved(case, "kg"), signed=True),
            *(number(Estimate(1000 * each.value), 1 if abs(each.value) < 1 else 0) for each in thousand),
            number(Estimate(float(case.values("gpu_hours").mean()))),
            UNDEFINED if math.isnan(case.delay_s.value) else lasting(case.delay_s.value),
            number(Estimate(case.not_in_time.value)),
        )

    def price_of_step(self, before: Case, after: Case) -> Estimate:
        """Returns what is paid from one case to another per tonne avoided, USD, paired; NaN where emissions rise."""

        def rate(case: Case, what: Literal["usd", "kg"]) -> F8:
            values_E = case.bills_E if what == "usd" else case.values("carbon_kg")
            return np.asarray(values_E / case.values("gpu_hours"))

        return ratio(rate(after, "usd") - rate(before, "usd"), (rate(before, "kg") - rate(after, "kg")) / 1000)


def _price(estimate: Estimate) -> str:
    if math.isnan(estimate.value):
        return UNDEFINED
    ends = "" if estimate.low is None else f" [{estimate.low:,.0f}, {estimate.high:,.0f}]"
    return f"{estimate.value:,.0f}{ends}"
