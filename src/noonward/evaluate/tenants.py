"""What tenants' quotas and fair shares cost: the same policy with and without them, and a ledger per tenant.

The price of fairness is what a policy's utility loses by the quotas, as a share of that without (Bertsimas, Farias and
Trichakis 2011, The Price of Fairness, Operations Research 59(1)); the bound says what no policy can help losing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.metered import require_unbilled
from noonward.engine.cluster.kernels.tenants import period_of
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.evaluate.answer import bill_usd
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean, ratio
from noonward.ledger.ledger import settle
from noonward.ledger.record import job_table
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import Scenario
from noonward.model.cluster.tenant import AMOUNT_UNITS, AMOUNTS, PERIODS, Tenants
from noonward.runtime.executor import Executor, PlainSpec, Progress, map_runs
from noonward.runtime.runs import environment_of
from noonward.schedule.policies import make_scheduler
from noonward.units import HOUR_S

if TYPE_CHECKING:
    import polars as pl

STATED: Final = "stated"
"""The run under the quotas that the scenario states."""
NONE: Final = "none"
"""The run in which jobs are nobody's."""
LINES: Final = ("jobs", "done", "late", "waited_h", "gpu_hours", "kwh", "usd", "kg")
"""Lines of a tenant's ledger: jobs, those done, those that started late or never, hours waited by those that started
(summed), GPU-hours, and the energy, cost and emissions of its jobs' runs and journeys. Free GPUs are nobody's."""

SAME: Final = 1e-9
"""Share of a budget within which it counts as used up."""


@dataclass(frozen=True)
class TenantRun(PlainSpec):
    """A spec: one policy in one environment, under some quotas.

    Attributes:
        scenario: Scenario with ``tenants``.
        policy: Policy.
        index: Number of the environment.
        seed: Seed.
        way: STATED, NONE, or the name of a tenant that is guaranteed one GPU more.
    """

    scenario: Scenario
    policy: str
    index: int
    seed: int
    way: str

    @property
    def label(self) -> str:
        """Which run."""
        return f"{self.policy}, environment {self.index}, quotas: {self.way}"

    def run(self) -> TenantLedger:
        """Returns what the run came to."""
        environment = environment_of(self.scenario, self.index, self.seed)
        return ledger_of(under(environment, self.way), environment, self.policy, self.seed)


@dataclass(frozen=True, kw_only=True)
class TenantLedger:
    """What a run came to, in all and per tenant.

    Attributes:
        utility_usd: Utility, USD; NaN without economics.
        bill_usd: Cost of energy and transfers with that of emissions, USD; NaN without economics.
        line_TL: Lines of ``LINES`` per tenant.
        spent_TA: What counts for a tenant's budget (``AMOUNTS``), in the period in which that is most of the budget;
            zeros for a tenant without one.
        used_up_T: Share of the periods with starts in which a tenant's budget was used up.
    """

    utility_usd: float
    bill_usd: float
    line_TL: F8
    spent_TA: F8
    used_up_T: F8


@dataclass(frozen=True, kw_only=True)
class TenantBound:
    """What no policy can exceed in an environment.

    Attributes:
        stated_usd: Upper bound on the utility within the quotas, USD.
        none_usd: The same without quotas.
        one_more_usd_T: What one more guaranteed GPU is worth to the bound at most, per tenant, USD: the quotas' duals.
    """

    stated_usd: float
    none_usd: float
    one_more_usd_T: F8


@dataclass(frozen=True)
class TenantBoundRun(PlainSpec):
    """A spec: the bounds of one environment with and without quotas.

    Attributes:
        scenario: Scenario with ``tenants``, economics and ``end: drained``.
        index: Number of the environment.
        seed: Seed.
    """

    scenario: Scenario
    index: int
    seed: int

    @property
    def label(self) -> str:
        """Which bound."""
        return f"bounds, environment {self.index}"

    def run(self) -> TenantBound:
        """Returns the bounds."""
        environment = environment_of(self.scenario, self.index, self.seed)
        require_unbilled(environment, "the bound within quotas")
        within = utility_bound(environment)
        assert within.quotas is not None, "stated_tenants has been asked"
        return TenantBound(
            stated_usd=within.upper_usd,
            none_usd=utility_bound(under(environment, NONE), schedule=False).upper_usd,
            one_more_usd_T=within.quotas.one_more_usd_T,
        )


def under(environment: Environment, way: str) -> Environment:
    """Returns an environment under other quotas: none, or those stated with one GPU more for a tenant."""
    tenants = environment.tenants
    assert tenants is not None, "stated_tenants has been asked"
    if way == NONE:
        return replace(environment, tenants=None, tenant_J=None)
    if way == STATED:
        return environment
    return replace(environment, tenants=tenants.with_one_more(way))


def ledger_of(played: Environment, stated: Environment, policy: str, seed: int) -> TenantLedger:
    """Returns what a policy comes to in an environment, by the tenants of the one as stated."""
    assert stated.tenants is not None, "stated_tenants has been asked"
    assert stated.tenant_J is not None, "tenants and those of jobs go together"
    outcome = run(played, make_scheduler(policy), seed=seed)
    ledger, jobs = settle(outcome), job_table(outcome)
    spent_TA, used_up_T = _spent(jobs, stated.tenant_J, stated.tenants, stated.start.timestamp())
    return TenantLedger(
        utility_usd=ledger.utility_usd,
        bill_usd=bill_usd(ledger),
        line_TL=_lines(jobs, stated.tenant_J, stated.tenants),
        spent_TA=spent_TA,
        used_up_T=used_up_T,
    )


def _spent(jobs: pl.DataFrame, tenant_J: I8, tenants: Tenants, epoch_s: float) -> tuple[F8, F8]:
    """Returns what jobs used of their tenants' budgets, as ``TenantLedger`` holds it, out of a table of jobs."""
    start_s_J = jobs["start_s"].to_numpy()
    used_JA = np.stack([jobs[name].to_numpy() for name in ("energy_usd", "energy_kwh", "carbon_kg")], axis=1)
    spent_TA, used_up_T = np.zeros((len(tenants.names), len(AMOUNTS))), np.zeros(len(tenants.names))
    for name, budget in tenants.budgeted.items():
        t, kind = tenants.names.index(name), 1 + PERIODS.index(budget.period)
        most_A = np.array([getattr(budget, amount) or np.inf for amount in AMOUNTS])
        ran_J = np.flatnonzero((tenant_J == t) & np.isfinite(start_s_J))
        from_s_J = np.array([period_of(kind, epoch_s, start_s)[0] for start_s in start_s_J[ran_J].tolist()])
        periods, period_J = np.unique(from_s_J, return_inverse=True)
        if not len(periods):
            continue
        spent_PA = np.stack([np.bincount(period_J, used_J, len(periods)) for used_J in used_JA[ran_J].T], axis=1)
        share_P = np.where(np.isfinite(most_A), spent_PA / most_A, -np.inf).max(axis=1)
        spent_TA[t], used_up_T[t] = spent_PA[share_P.argmax()], np.mean(share_P >= 1.0 - SAME)
    return spent_TA, used_up_T


def _lines(jobs: pl.DataFrame, tenant_J: I8, tenants: Tenants) -> F8:
    """Returns the lines of the tenants' ledgers out of a table of jobs."""
    started_J = np.isfinite(jobs["start_s"].to_numpy())
    wait_h_J = np.where(started_J, (jobs["start_s"] - jobs["arrival_s"]).to_numpy() / HOUR_S, 0.0)
    in_time_J = started_J & (wait_h_J * HOUR_S <= jobs["slack_s"].to_numpy() + 1e-6)
    ran_h_J = np.where(started_J, (jobs["finish_s"] - jobs["start_s"]).to_numpy() / HOUR_S, 0.0)
    sums = {
        "jobs": np.ones(len(tenant_J)),
        "done": (jobs["status"] == "done").to_numpy(),
        "late": ~in_time_J,
        "waited_h": wait_h_J,
        "gpu_hours": ran_h_J * jobs["gpus"].to_numpy(),
        "kwh": jobs["energy_kwh"].to_numpy(),
        "usd": (jobs["energy_usd"] + jobs["move_usd"] + jobs["result_usd"]).to_numpy(),
        "kg": (jobs["carbon_kg"] + jobs["move_kg"] + jobs["result_kg"]).to_numpy(),
    }
    count = len(tenants.names)
    return np.stack([np.bincount(tenant_J, sums[line], count) for line in LINES], axis=1)


@dataclass(frozen=True, kw_only=True)
class TenantStudy:
    """What quotas cost, over environments.

    Attributes:
        scenario: Scenario.
        policy: Policy.
        seed: Seed.
        found: Ledgers per way (STATED, NONE, names of tenants with one GPU more), one per environment.
        bounds: Bounds, one per environment; none where they were not asked for.
    """

    scenario: Scenario
    policy: str
    seed: int
    found: dict[str, list[TenantLedger]]
    bounds: list[TenantBound]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tenants."""
        return stated_tenants(self.scenario).names

    def worth_usd(self, way: str) -> Estimate:
        """Returns the utility of a way less that under the quotas as stated, paired."""
        return mean(self._utility_E(way) - self._utility_E(STATED))

    def price_share(self) -> Estimate:
        """Returns the price of fairness: what the utility loses by the quotas, as a share of that without."""
        free_E = self._utility_E(NONE)
        return ratio(free_E - self._utility_E(STATED), free_E)

    def bound_usd(self, way: str) -> Estimate:
        """Returns the mean bound within the quotas (STATED) or without (NONE), USD."""
        return mean(self._bound_E(way))

    def bound_price_usd(self) -> Estimate:
        """Returns what the bound loses by the quotas, paired, USD."""
        return mean(self._bound_E(NONE) - self._bound_E(STATED))

    def bound_worth_usd(self, tenant: str) -> Estimate:
        """Returns what one more guaranteed GPU of a tenant is worth to the bound, USD."""
        t = self.names.index(tenant)
        return mean(np.array([each.one_more_usd_T[t] for each in self.bounds]))

    def _bound_E(self, way: str) -> F8:
        return np.array([each.stated_usd if way == STATED else each.none_usd for each in self.bounds])

    def _utility_E(self, way: str) -> F8:
        return np.array([each.utility_usd for each in self.found[way]])

    def total_E(self, way: str, line: str) -> F8:
        """Returns a line over all tenants, per environment."""
        return np.array([each.line_TL[:, LINES.index(line)].sum() for each in self.found[way]])

    def line_E(self, way: str, tenant: str, line: str) -> F8:
        """Returns a tenant's line, per environment."""
        t = self.names.index(tenant)
        return np.array([each.line_TL[t, LINES.index(line)] for each in self.found[way]])

    def spent(self, way: str, tenant: str, amount: str) -> Estimate:
        """Returns what counts for a tenant's budget in the period in which that is most of it (``AMOUNTS``)."""
        t, a = self.names.index(tenant), AMOUNTS.index(amount)
        return mean(np.array([each.spent_TA[t, a] for each in self.found[way]]))

    def used_up(self, tenant: str) -> Estimate:
        """Returns the share of periods in which a tenant's budget was used up."""
        return mean(np.array([each.used_up_T[self.names.index(tenant)] for each in self.found[STATED]]))

    def wait_h(self, way: str, tenant: str) -> Estimate:
        """Returns the mean wait of a tenant's jobs, over all that it submitted, h."""
        return ratio(self.line_E(way, tenant, "waited_h"), self.line_E(way, tenant, "jobs"))

    def metrics(self) -> list[Metric]:
        """Returns the figures of both tables."""
        out = [Metric.of(f"utility_usd/{way}", mean(self._utility_E(way)), "USD") for way in (STATED, NONE)]
        out.append(Metric.of("price_of_quotas_usd", self.worth_usd(NONE), "USD"))
        out.append(Metric.of("price_of_fairness", self.price_share(), "fraction"))
        if self.bounds:
            out += [Metric.of(f"bound_usd/{way}", self.bound_usd(way), "USD") for way in (STATED, NONE)]
            out.append(Metric.of("bound_price_of_quotas_usd", self.bound_price_usd(), "USD"))
        for tenant in self.names:
            for line, unit in zip(LINES, ("jobs", "jobs", "jobs", "h", "GPU-h", "kWh", "USD", "kg"), strict=True):
                out.append(Metric.of(f"{line}/{tenant}", mean(self.line_E(STATED, tenant, line)), unit))
            out += [Metric.of(f"mean_wait_h/{tenant}@{way}", self.wait_h(way, tenant), "h") for way in (STATED, NONE)]
            if tenant in stated_tenants(self.scenario).budgeted:
                for amount, unit in zip(AMOUNTS, AMOUNT_UNITS, strict=True):
                    spent = self.spent(STATED, tenant, amount)
                    out.append(Metric.of(f"spent_{amount}/{tenant}", spent, unit.replace(" CO2", "")))
                out.append(Metric.of(f"budget_used_up/{tenant}", self.used_up(tenant), "fraction"))
            if tenant in self.found:
                out.append(Metric.of(f"one_more_gpu_usd/{tenant}", self.worth_usd(tenant), "USD"))
            if self.bounds:
                out.append(Metric.of(f"bound_one_more_gpu_usd/{tenant}", self.bound_worth_usd(tenant), "USD"))
        return out


def stated_tenants(scenario: object) -> Tenants:
    """Returns the tenants that a scenario states.

    Raises:
        ScenarioError: It is of another kind, or states none.
    """
    if not isinstance(scenario, Scenario) or scenario.tenants is None:
        name = getattr(scenario, "name", scenario)
        raise ScenarioError(
            f"scenario {name!r} states no tenants; give it tenants: {{of: {{NAME: {{gpus: N}}}}}} (docs/tenants.md)"
        )
    return scenario.tenants


def study_tenants(
    scenario: Scenario,
    policy: str,
    *,
    environments: int,
    seed: int = 0,
    one_more: bool = False,
    bound: bool = False,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> TenantStudy:
    """Runs a policy with and without the quotas of a scenario, in the same environments.

    Args:
        scenario: Scenario with ``tenants``.
        policy: Policy.
        environments: Number of environments, at least 1.
        seed: Seed.
        one_more: Run also with one more guaranteed GPU for each tenant in turn.
        bound: Bound the utility with and without the quotas.
        executor: Where runs are carried out.
        progress: Called once per run.

    Raises:
        ScenarioError: The scenario states no tenants, or scenario and policy do not fit.
    """
    ways = [STATED, NONE, *(stated_tenants(scenario).names if one_more else ())]
    specs = [TenantRun(scenario, policy, index, seed, way) for way in ways for index in range(environments)]
    bound_specs = [TenantBoundRun(scenario, index, seed) for index in range(environments if bound else 0)]
    bounds = map_runs(bound_specs, executor, progress)
    found = map_runs(specs, executor, progress)
    by_way = {way: found[k * environments : (k + 1) * environments] for k, way in enumerate(ways)}
    return TenantStudy(scenario=scenario, policy=policy, seed=seed, found=by_way, bounds=bounds)
