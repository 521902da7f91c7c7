"""Tenants of a live service: what each holds, has held, has spent and has waiting; what a submission may not exceed."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
import numpy as np

from noonward.engine.cluster.kernels.tenants import period_of
from noonward.errors import DataError, ScenarioError
from noonward.ledger.segments import PowerSegments
from noonward.ledger.settle import settle_power
from noonward.live.names import Names
from noonward.live.store.database import Connection
from noonward.live.store.schema import IS_OPEN
from noonward.live.store.store import Store
from noonward.live.world.world import World
from noonward.model.cluster.scenario import Scenario
from noonward.model.cluster.tenant import AMOUNT_UNITS, AMOUNTS, Tenants

WAITING_BY: Final = f"""
SELECT run_by, count(*) AS n FROM jobs WHERE {IS_OPEN} AND state IN ('submitted', 'transit', 'waiting') GROUP BY run_by
"""
"""Jobs that have not been started, by whose they are."""
USED: Final = """
SELECT run_by, gpus, start_s, freed_s FROM jobs
WHERE start_s IS NOT NULL AND start_s < ? AND (freed_s IS NULL OR freed_s > ?)
"""
SPENT: Final = """
SELECT run_by, site, gpus, power_w, start_s, freed_s FROM jobs
WHERE start_s >= ? AND start_s < ? AND freed_s IS NOT NULL
"""
"""Jobs that began in some time and have given their GPUs back."""
REMEMBERED: Final = 40
"""Half-lives after which past use is forgotten: a share of 2^-40 is left of it."""


class BudgetShown(msgspec.Struct, kw_only=True):
    """One amount of a tenant's budget in the present period."""

    unit: str
    """USD, kWh or kg CO2."""
    most: float
    """What the tenant may use in the period."""
    spent: float
    """What its jobs that began in the period and have ended have used."""
    due: float
    """What those that still run are expected to use in all."""
    until: str | None
    """When the period ends, UTC; none: with the service."""
    at_limit: str
    """What happens once it is used up: wait or refuse."""

    @property
    def used_up(self) -> bool:
        """Whether no job of the tenant may start."""
        return round(self.spent + self.due, 6) >= round(self.most, 6)


class TenantShown(msgspec.Struct, kw_only=True):
    """A tenant now."""

    name: str
    cohort: str | None
    gpus: int
    """GPUs that it is guaranteed."""
    most: int
    """GPUs that it may hold with what it may borrow, if its cohort uses nothing."""
    used: int
    """GPUs that its jobs hold."""
    average: float | None
    """GPUs that it has held on average, older use counting less; none without fair shares."""
    weight: float
    waiting: int
    """Jobs that have not been started."""
    waiting_max: int | None
    gang_max: int | None
    priority_max: int | None
    budget: list[BudgetShown] = []
    """Its budget by amount; empty: it has none."""


class Limit(NamedTuple):
    """What a submission may not exceed."""

    tenants: Tenants
    user: str

    def check_gang(self, name: str, gpus_min: int, gpus_max: int) -> None:
        """Checks the gang of a job.

        Args:
            name: Name of the job.
            gpus_min: Smallest gang.
            gpus_max: Largest gang.

        Raises:
            DataError: It is larger than the user's tenant may submit, or may ever hold.
        """
        t = self.tenants.index(self.user or None)
        tenant, most = self.tenants.names[t], int(self.tenants.most_gpus_T()[t])
        allowed = self.tenants.of[tenant].gang_max
        if allowed is not None and gpus_max > allowed:
            raise DataError(
                f"job {name!r} asks for a gang of up to {gpus_max} GPUs; tenant {tenant!r} may submit gangs of up to "
                f"{allowed} (gang_max): ask for fewer, or have the limit raised"
            )
        if gpus_min > most:
            raise DataError(
                f"job {name!r} needs {gpus_min} GPUs at once; tenant {tenant!r} may hold at most {most}, borrowed ones "
                "counted: ask for fewer, or have its quota raised"
            )

    def check_priority(self, name: str, priority: int) -> None:
        """Checks the priority of a job.

        Args:
            name: Name of the job.
            priority: Its priority.

        Raises:
            DataError: It is higher than the user's tenant may use.
        """
        tenant = self.tenants.names[self.tenants.index(self.user or None)]
        most = self.tenants.of[tenant].priority_max
        if most is not None and priority > most:
            raise DataError(
                f"job {name!r} has priority {priority}; tenant {tenant!r} may use priorities up to {most} "
                "(priority_max): give a lower one, or have the limit raised"
            )

    def check_budget(self, world: World) -> None:
        """Checks that the user's tenant may submit jobs under its budget.

        Args:
            world: The books.

        Raises:
            DataError: It is used up, and jobs are refused until its period ends.
        """
        t = self.tenants.index(self.user or None)
        for one in budget_shown(world, t):
            if one.at_limit == "refuse" and one.used_up:
                ends = "with this service" if one.until is None else f"on {one.until}"
                raise DataError(
                    f"the budget of tenant {self.tenants.names[t]!r} is used up: {said_of(one)} (at_limit: refuse); "
                    f"the period ends {ends}: submit then, or have the budget raised"
                )

    def check_waiting(self, connection: Connection, new: int) -> None:
        """Checks how many jobs wait, once a submission is stored.

        Args:
            connection: Connection of the change that stores it.
            new: Jobs that it added.

        Raises:
            DataError: They are more than the user's tenant may have.
        """
        t = self.tenants.index(self.user or None)
        tenant = self.tenants.names[t]
        most = self.tenants.of[tenant].waiting_max
        if most is None or not new:
            return
        waiting = sum(
            row["n"] for row in connection.execute(WAITING_BY) if self.tenants.index(row["run_by"] or None) == t
        )
        if waiting > most:
            raise DataError(
                f"tenant {tenant!r} has {waiting - new} jobs waiting and may have {most} (waiting_max); these {new} "
                "would be too many, so none was stored: submit them once others have started, or cancel some"
            )


def limit_of(tenants: Tenants | None, user: str) -> Limit | None:
    """Returns what a user's submission may not exceed; None where no tenants are stated."""
    return None if tenants is None else Limit(tenants, user)


def require_default(scenario: Scenario) -> None:
    """Raises ScenarioError where jobs of holders that no tenant names would be nobody's."""
    if scenario.tenants is not None and scenario.tenants.default is None:
        raise ScenarioError(
            f"scenario {scenario.name!r} states tenants without tenants.default; a service needs the tenant of holders "
            "of tokens that no tenant names"
        )


def past_use(store: Store, names: Names, now_s: float) -> list[float]:
    """Returns the GPUs that each tenant has held on average, use a half-life ago counting half.

    The integral of g(u) d(2^-((now - u) / half-life)) over the jobs that have held GPUs. Empty without fair shares.

    Args:
        store: Store.
        names: Names of the fleet and its tenants.
        now_s: Now, s since the service's start.
    """
    tenants = names.tenants
    if tenants is None or tenants.half_life_h is None:
        return []
    average_T, half_life_s = [0.0] * len(tenants.names), tenants.half_life_s
    if half_life_s > 0:
        for row in store.read(USED, now_s, now_s - REMEMBERED * half_life_s):
            until_s = now_s if row["freed_s"] is None else min(row["freed_s"], now_s)
            left = 0.5 ** ((now_s - until_s) / half_life_s) - 0.5 ** ((now_s - row["start_s"]) / half_life_s)
            average_T[names.tenant(row["run_by"])] += row["gpus"] * left
    return average_T


def past_spending(store: Store, names: Names, world: World, now_s: float) -> list[list[float]]:
    """Returns what ended jobs have used of their tenants' budgets in the present periods: USD, kWh, kg by tenant.

    Empty where no tenant has a budget.

    Args:
        store: Store.
        names: Names of the fleet and its tenants.
        world: The books, for signals and the start.
        now_s: Now, s since the service's start.
    """
    tenants = names.tenants
    if tenants is None or not tenants.budgeted:
        return []
    records, epoch_s = tenants.records(), world.brief.start.timestamp()
    from_s_T = np.array([period_of(int(record["period"]), epoch_s, now_s)[0] for record in records])
    rows = [
        (names.tenant(row["run_by"]), row)
        for row in store.read(SPENT, max(float(from_s_T.min()), 0.0), now_s)
        if names.site(row["site"]) >= 0
    ]
    rows = [(t, row) for t, row in rows if row["start_s"] >= from_s_T[t]]
    if not rows:
        return [[0.0] * 3 for _ in records]
    power = PowerSegments(
        site_K=np.array([names.site(row["site"]) for _, row in rows], np.int32),
        job_K=np.arange(len(rows), dtype=np.int32),
        from_s_K=np.array([row["start_s"] for _, row in rows], np.float64),
        to_s_K=np.array([row["freed_s"] for _, row in rows], np.float64),
        watts_K=np.array([row["power_w"] for _, row in rows], np.float64),
        gpus_K=np.array([row["gpus"] for _, row in rows], np.int32),
    )
    used_JA = settle_power(power, world.signals_at_sites(), len(rows)).job_JA
    spent_TA = np.zeros((len(records), 3))
    np.add.at(spent_TA, [t for t, _ in rows], used_JA[:, [1, 0, 2]])
    return [[float(used) for used in spent_A] for spent_A in spent_TA]


def budget_ends_s(world: World, t: int) -> float | None:
    """Returns when the present period of a tenant's budget ends, s since the service's start; None: never."""
    period = int(world.engine.world.tenant_T[t]["period"])
    until_s = float(period_of(period, world.brief.start.timestamp(), world.now_s)[1])
    return until_s if np.isfinite(until_s) else None


def budget_shown(world: World, t: int) -> list[BudgetShown]:
    """Returns a tenant's budget as it stands now, by amount; empty where it has none."""
    tenants, record = world.brief.tenants, world.engine.world.tenant_T[t]
    budget = None if tenants is None else tenants.of[tenants.names[t]].budget
    if budget is None:
        return []
    until_s = budget_ends_s(world, t)
    present = float(record["until_s"]) > world.now_s  # else nothing has begun in the present period yet
    until = None if until_s is None else f"{world.brief.start + timedelta(seconds=until_s):%Y-%m-%d %H:%M}"
    return [
        BudgetShown(
            unit=unit,
            most=getattr(budget, amount),
            spent=float(record[f"spent_{amount}"]) if present else 0.0,
            due=float(record[f"due_{amount}"]) if present else 0.0,
            until=until,
            at_limit=budget.at_limit,
        )
        for amount, unit in zip(AMOUNTS, AMOUNT_UNITS, strict=True)
        if getattr(budget, amount) is not None
    ]


def said_of(one: BudgetShown) -> str:
    """Returns an amount of a budget in words."""
    return f"{one.spent:,.2f} {one.unit} spent and {one.due:,.2f} due of {one.most:,.2f}"


def tenants_shown(store: Store, world: World, tenants: Tenants | None) -> list[TenantShown]:
    """Returns the tenants as they are now; none where none are stated."""
    if tenants is None:
        return []
    waiting_T = [0] * len(tenants.names)
    for row in store.read(WAITING_BY):
        waiting_T[tenants.index(row["run_by"] or None)] += row["n"]
    tenant_T, most_T = world.engine.world.tenant_T, tenants.most_gpus_T()
    return [
        TenantShown(
            name=name,
            cohort=stated.cohort,
            gpus=stated.gpus,
            most=int(most_T[t]),
            used=int(tenant_T["used"][t]),
            average=None if tenants.half_life_h is None else round(float(tenant_T["average"][t]), 3),
            weight=stated.weight,
            waiting=waiting_T[t],
            waiting_max=stated.waiting_max,
            gang_max=stated.gang_max,
            priority_max=stated.priority_max,
            budget=budget_shown(world, t),
        )
        for t, (name, stated) in enumerate(tenants.of.items())
    ]
