"""Tables of a study of tenants: what quotas and budgets change, the ledger per tenant, what was spent of budgets."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8
from noonward.evaluate.answer import interval
from noonward.evaluate.statistics import Estimate, mean
from noonward.evaluate.table import UNDEFINED, TextTable
from noonward.evaluate.tenants import LINES, NONE, STATED, TenantStudy, stated_tenants
from noonward.model.cluster.tenant import AMOUNT_UNITS, AMOUNTS


def price_table(study: TenantStudy) -> TextTable:
    """Returns the table of what quotas cost: the same policy with and without them."""
    rows = []
    sums = [("jobs done", "done", 0), ("jobs late or never started", "late", 0), ("GPU-hours run", "gpu_hours", 1)]
    values: list[tuple[str, dict[str, F8], int]] = [
        (title, {way: study.total_E(way, line) for way in (STATED, NONE)}, digits) for title, line, digits in sums
    ]
    waits = {way: study.total_E(way, "waited_h") / study.total_E(way, "jobs") for way in (STATED, NONE)}
    values.append(("mean wait, h", waits, 2))
    for title, name in (("bill, USD", "bill_usd"), ("utility, USD", "utility_usd")):
        values.append((title, {w: np.array([getattr(e, name) for e in study.found[w]]) for w in (STATED, NONE)}, 2))
    for title, by_way, digits in values:
        cells = [_cell(mean(by_way[STATED]), digits), _cell(mean(by_way[NONE]), digits)]
        rows.append((title, *cells, _cell(mean(by_way[STATED] - by_way[NONE]), digits)))
    if study.bounds:
        cells = [_cell(study.bound_usd(way), 2) for way in (STATED, NONE)]
        rows.append(("no policy can exceed, USD", *cells, _cell(-study.bound_price_usd(), 2)))
    count = len(study.found[STATED])
    return TextTable(
        title=f"{study.scenario.name}: what the quotas change, {study.policy}, {count} environment{'s' * (count != 1)}",
        header=("", "With quotas", "Without", "Difference"),
        rows=tuple(rows),
        caption=(
            "The same policy on the same jobs; 95% intervals over environments, of paired differences in the last. "
            f"Price of fairness, as a share of the utility without quotas: {study.price_share().value:.1%}."
        ),
    )


def ledger_table(study: TenantStudy) -> TextTable:
    """Returns the ledgers of the tenants under the quotas as stated."""
    tenants = stated_tenants(study.scenario)
    most_T = tenants.most_gpus_T().tolist()
    one_more = any(name in study.found for name in study.names)
    rows = []
    for tenant, most in zip(study.names, most_T, strict=True):
        line = {each: mean(study.line_E(STATED, tenant, each)).value for each in LINES}
        row = [
            tenant,
            f"{tenants.of[tenant].gpus} ({most})",
            *(f"{line[each]:,.0f}" for each in ("jobs", "done", "late")),
            *(_cell(study.wait_h(way, tenant), 2) for way in (STATED, NONE)),
            *(f"{line[each]:,.1f}" for each in ("gpu_hours", "kwh")),
            f"{line['usd']:,.2f}",
            f"{line['kg']:,.1f}",
        ]
        row += [_cell(study.worth_usd(tenant), 2)] if one_more else []
        rows.append((*row, _cell(study.bound_worth_usd(tenant), 2)) if study.bounds else tuple(row))
    header = [
        *("Tenant", "GPUs\n(at most)", "Jobs", "Done", "Late", "Mean wait\nh", "Without\nquotas, h"),
        *("GPU-hours", "kWh", "USD", "kg CO2"),
        *(("One more\nGPU, USD",) if one_more else ()),
        *(("at best\nUSD",) if study.bounds else ()),
    ]
    return TextTable(
        title=f"{study.scenario.name}: ledger per tenant, means over environments",
        header=tuple(header),
        rows=tuple(rows),
        caption=(
            "At most: with what it may borrow. Late: started after its slack, or never. Energy, cost and emissions of "
            "the tenants' jobs and transfers; free GPUs are nobody's."
            + (" One more GPU: what the policy's utility gains by it, guaranteed to this tenant." if one_more else "")
            + (" At best: what the bound gains by it, at most (dual of the quota)." if study.bounds else "")
        ),
    )


def budget_table(study: TenantStudy) -> TextTable | None:
    """Returns what tenants spent against their budgets; None where none has one."""
    rows = []
    for tenant, budget in stated_tenants(study.scenario).budgeted.items():
        for amount, unit in zip(AMOUNTS, AMOUNT_UNITS, strict=True):
            most = getattr(budget, amount)
            if most is not None:
                spent = [_cell(study.spent(way, tenant, amount), 2) for way in (STATED, NONE)]
                used_up = _cell(study.used_up(tenant), 2)
                limit = (tenant, f"{most:,.2f} {unit}", budget.period, budget.at_limit)
                rows.append((*limit, *spent, used_up))
    if not rows:
        return None
    return TextTable(
        title=f"{study.scenario.name}: budgets, means over environments",
        header=("Tenant", "Budget", "Period", "At the limit", "Spent", "Spent without\nquotas", "Periods\nused up"),
        rows=tuple(rows),
        caption=(
            "Spent: electricity of the jobs that started in a period, in the fullest one; the last job may exceed the "
            "budget. Without quotas: without budgets, too."
        ),
    )


def _cell(estimate: Estimate, digits: int) -> str:
    """Returns a value with its interval."""
    if np.isnan(estimate.value):
        return UNDEFINED
    return f"{estimate.value:,.{digits}f}{interval(estimate, digits)}"
