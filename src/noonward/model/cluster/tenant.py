"""Tenants: whose a job is, what a tenant may hold at once and spend in a period, and in which order they take turns."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from noonward.arrays import I8, Records
from noonward.errors import ScenarioError, nearest
from noonward.model.cluster.fleet import refuse_repeats
from noonward.model.spec import MOST, Count, Gang, NonNegative, Positive, Slug, Spec, without_defaults
from noonward.units import HOUR_S

MOST_PRIORITY: Final = 100
"""Highest priority of a job; the lowest is as far below 0."""
Priority = Annotated[int, Field(ge=-MOST_PRIORITY, le=MOST_PRIORITY)]
Quota = Annotated[int, Field(ge=0, le=MOST)]
UNLIMITED: Final = MOST * 4
"""GPUs that stand for no limit in a TENANT record."""
AMOUNTS: Final = ("usd", "kwh", "kg")
"""What a budget may limit: cost of energy, energy and emissions."""
AMOUNT_UNITS: Final = ("USD", "kWh", "kg CO2")
PERIODS: Final = ("day", "week", "month", "window")
"""Periods of a budget; a TENANT record holds their positions, counted from 1."""

TENANT: Final = np.dtype(
    [
        ("gpus", "i8"),  # GPUs it is guaranteed
        ("borrow", "i8"),  # GPUs it may hold beyond them, at most, where its cohort has some left
        ("kept", "i8"),  # GPUs of its guarantee that it does not lend
        ("cohort", "i8"),  # first tenant of its cohort
        ("weight", "f8"),  # weight of its fair share
        ("used", "i8"),  # GPUs that its running jobs hold
        ("planned", "i8"),  # GPUs that jobs asked about in this step may take
        ("charged", "i8"),  # GPUs of the jobs that stand before in the queue being ordered
        ("average", "f8"),  # GPUs held on average, older ones counting less
        ("average_s", "f8"),  # time of that average, s
        ("first", "i8"),  # its first job in the queue being ordered, or -1
        ("last", "i8"),
        ("period", "i8"),  # period of its budget: its position in PERIODS, counted from 1; 0: it has no budget
        ("refuses", "i8"),  # 1 where its jobs are refused while its budget is used up
        ("from_s", "f8"),  # when the present period began, s
        ("until_s", "f8"),  # when it ends, s
        *((f"most_{amount}", "f8") for amount in AMOUNTS),  # budget; infinite where none is stated
        *((f"spent_{amount}", "f8") for amount in AMOUNTS),  # what jobs that began in the period and ended have used
        *((f"due_{amount}", "f8") for amount in AMOUNTS),  # what those that still run are expected to use in all
    ]
)
"""A tenant, as the engine keeps it."""


class Budget(Spec):
    """What the jobs of a tenant may use in a period: the electricity of their runs, not that of transfers.

    A job counts for the period in which it starts: while it runs with what it is expected to use (expected run time,
    price and carbon intensity at its start), once it has ended with what it used. While that is below every
    stated amount, the tenant's jobs may start; the last of them may exceed it.
    """

    usd: Positive | None = None
    """Cost of energy, USD."""
    kwh: Positive | None = None
    """Energy, kWh."""
    kg: Positive | None = None
    """Emissions, kgCO2."""
    period: Literal["day", "week", "month", "window"] = "month"
    """Period: a day, a week from Monday on, or a month of the calendar (UTC), or the whole run of a simulation or
    service."""
    at_limit: Literal["wait", "refuse"] = "wait"
    """What happens once it is used up: jobs wait until the period ends, or those submitted until then are refused
    (a simulation counts them as dropped). Jobs submitted before wait in either case."""

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if all(getattr(self, amount) is None for amount in AMOUNTS):
            raise ValueError("a budget needs an amount: usd, kwh or kg")
        return self


class Tenant(Spec):
    """What one tenant may hold and submit.

    With a guarantee of N GPUs, a lending limit L and a borrowing limit B, a tenant of a cohort may take up to
    ``max(0, kept - used) + min(pool - pool's use, N - kept + B - use of the pool)`` GPUs more, where
    ``kept = max(0, N - L)``, ``pool`` is the sum of ``N - kept`` over the cohort, and a tenant's use of the pool is
    ``max(0, used - kept)``: the semantics of nominal quota, borrowing limit and lending limit of Kueue's cluster
    queues. Without a cohort it may hold N.
    """

    gpus: Quota
    """GPUs that the tenant may hold at once, over all sites: its guarantee (nominal quota)."""
    cohort: Slug | None = None
    """Cohort, whose tenants borrow from each other what they do not use; none: it neither borrows nor lends."""
    borrow: Quota | None = None
    """Most GPUs it may hold beyond its guarantee; none: all that its cohort has left."""
    lend: Quota | None = None
    """Most GPUs of its guarantee that others may borrow; none: all that it does not use."""
    weight: Positive = 1.0
    """Weight of its fair share: twice the weight is entitled to twice the GPUs (with ``tenants.half_life_h``)."""
    members: tuple[str, ...] = ()
    """Further names that count for it: users (with ``by: user``), and at a live service holders of tokens."""
    share: NonNegative = 1.0
    """Relative amount of the jobs that are its own, where jobs are generated."""
    gang_max: Gang | None = None
    """Largest gang of a job that a live service takes from it, GPUs; none: any."""
    waiting_max: Count | None = None
    """Most jobs it may have waiting at a live service, which refuses more; none: any number."""
    priority_max: Priority | None = None
    """Highest priority of a job that a live service takes from it; none: any."""
    budget: Budget | None = None
    """What its jobs may use in a period, in money, energy or emissions; none: any amount."""

    @model_validator(mode="after")
    def _fits_cohort(self) -> Self:
        if self.cohort is None and (self.borrow is not None or self.lend is not None):
            raise ValueError("borrow and lend are limits inside a cohort; give cohort: NAME, or leave them out")
        return self

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        return without_defaults(self, write, *(name for name in type(self).model_fields if name != "gpus"))


class Tenants(Spec):
    """Quotas and fair shares of the tenants of a fleet."""

    of: dict[Slug, Tenant] = Field(min_length=1)
    """Tenants by name."""
    by: Literal["team", "user"] = "team"
    """Column of a job table that names a job's tenant. A live service takes the name of the submitter's token, in
    shadow the user at the cluster."""
    default: str | None = None
    """Tenant of jobs that name no tenant of these; none: such a job is an error."""
    half_life_h: NonNegative | None = None
    """Half-life of past use in fair shares, h: jobs of the tenant whose average of GPUs held, over its weight, is least
    come first. 0: what it holds now counts alone; none: jobs come in the order in which they joined the queue."""

    @model_validator(mode="after")
    def _names(self) -> Self:
        refuse_repeats("tenant or member", [*self.of, *(name for each in self.of.values() for name in each.members)])
        if self.default is not None and self.default not in self.of:
            raise ValueError(f"default names the unknown tenant {self.default!r}; {nearest(self.default, self.of)}")
        if sum(tenant.share for tenant in self.of.values()) <= 0:
            raise ValueError("the shares of the tenants sum to 0; give at least one a share above 0")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tenants, in the order of every array's tenant axis."""
        return tuple(self.of)

    def index(self, name: str | None, whose: str = "a job") -> int:
        """Returns the position of the tenant of a name, its own or a member's; of the default where it is neither.

        Args:
            name: Name that a job states, or None.
            whose: What states it, for the message.

        Raises:
            ScenarioError: It is no tenant's, and there is no default.
        """
        for t, (tenant, stated) in enumerate(self.of.items()):
            if name == tenant or name in stated.members:
                return t
        if self.default is None:
            said = f"names no {self.by}" if name is None else f"is of the unknown tenant {name!r}"
            raise ScenarioError(
                f"{whose} {said}; known tenants: {', '.join(self.names)}. Add it to tenants.of, or name a "
                "tenants.default that such jobs count for"
            )
        return self.names.index(self.default)

    def drawn(self, jobs: int, rng: np.random.Generator) -> I8:
        """Returns a tenant per job, drawn by the shares."""
        share_T = np.array([tenant.share for tenant in self.of.values()])
        return rng.choice(len(share_T), size=jobs, p=share_T / share_T.sum()).astype(np.int64)

    def most_gpus_T(self) -> I8:
        """Returns the most GPUs that each tenant may ever hold: its guarantee and what it may borrow."""
        records = self.records()
        lends_T = records["gpus"] - records["kept"]
        pool_T = np.array([lends_T[records["cohort"] == cohort].sum() for cohort in records["cohort"]])
        borrowed_T = np.minimum(pool_T, lends_T + records["borrow"])
        return np.asarray(records["kept"] + borrowed_T, dtype=np.int64)

    def with_one_more(self, name: str) -> Tenants:
        """Returns the tenants where one of them is guaranteed one GPU more."""
        more = self.of[name].model_copy(update={"gpus": self.of[name].gpus + 1})
        return self.model_copy(update={"of": {**self.of, name: more}})

    @staticmethod
    def nobody() -> Records:
        """Returns the TENANT record that all jobs are of where priorities are stated and no tenants are."""
        return Tenants(of={"all": Tenant(gpus=MOST)}).records()

    def records(self) -> Records:
        """Returns the tenants as TENANT records that hold nothing."""
        out = np.zeros(len(self.of), TENANT)
        first_of: dict[str, int] = {}
        for t, tenant in enumerate(self.of.values()):
            out["gpus"][t] = tenant.gpus
            out["weight"][t] = tenant.weight
            out["cohort"][t] = t if tenant.cohort is None else first_of.setdefault(tenant.cohort, t)
            out["borrow"][t] = 0 if tenant.cohort is None else UNLIMITED if tenant.borrow is None else tenant.borrow
            lent = 0 if tenant.cohort is None else tenant.gpus if tenant.lend is None else tenant.lend
            out["kept"][t] = max(0, tenant.gpus - lent)
            out["until_s"][t] = -np.inf
            for amount in AMOUNTS:
                most = None if tenant.budget is None else getattr(tenant.budget, amount)
                out[f"most_{amount}"][t] = np.inf if most is None else most
            if tenant.budget is not None:
                out["period"][t] = 1 + PERIODS.index(tenant.budget.period)
                out["refuses"][t] = tenant.budget.at_limit == "refuse"
        return out

    @property
    def budgeted(self) -> dict[str, Budget]:
        """Budgets of the tenants that have one."""
        return {name: tenant.budget for name, tenant in self.of.items() if tenant.budget is not None}

    def check_budgets(self, *, signals: bool, bends: bool) -> None:
        """Checks that what budgets limit is known.

        Args:
            signals: Whether prices and carbon intensities are known.
            bends: Whether running jobs may fail, or be suspended, resized or capped.

        Raises:
            ScenarioError: A budget limits cost or emissions without signals, or jobs that do not run unbroken.
        """
        for name, budget in self.budgeted.items():
            if bends:
                raise ScenarioError(
                    f"tenant {name!r} has a budget, which is kept for jobs that run unbroken; here running jobs may "
                    "fail, or be suspended, resized or capped: leave out the budget (tenants.of), jobs.failures or "
                    "fleet.freedoms, or choose a policy that leaves running jobs alone"
                )
            if not signals and (budget.usd is not None or budget.kg is not None):
                raise ScenarioError(
                    f"tenant {name!r} has a budget in USD or kgCO2, and there are no prices and carbon intensities; "
                    "state it in kWh, or give the scenario signals"
                )

    @property
    def half_life_s(self) -> float:
        """Half-life of past use, s; NaN where no fair shares are stated."""
        return float("nan") if self.half_life_h is None else self.half_life_h * HOUR_S

    def check_gangs(self, gpus_min_J: I8, tenant_J: I8) -> None:
        """Checks that every job fits into what its tenant may ever hold.

        Args:
            gpus_min_J: Smallest gangs.
            tenant_J: Tenants.

        Raises:
            ScenarioError: A job needs more GPUs than its tenant may ever hold.
        """
        too_large_J: NDArray[np.bool_] = gpus_min_J > self.most_gpus_T()[tenant_J]
        if too_large_J.any():
            row = int(too_large_J.argmax())
            name = self.names[int(tenant_J[row])]
            raise ScenarioError(
                f"job in row {row} needs {gpus_min_J[row]} GPUs at once, but its tenant {name!r} may hold at most "
                f"{self.most_gpus_T()[tenant_J[row]]}, borrowed ones counted; raise its gpus, borrow or its cohort's "
                "quotas (tenants.of), or remove the job"
            )
