"""Budgets of tenants in the engine: what counts when, what happens at the limit, and periods of the calendar."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_settings
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.cluster.kernels.tenants import period_of
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.ledger.ledger import settle
from noonward.ledger.segments import DONE, OVERDUE
from noonward.model.cluster.tenant import PERIODS
from noonward.schedule.policies import make_scheduler
from reference.small_worlds import plain
from reference.tenants import Tenant

BOTH = pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
POLICY = {"each-slot": "local-fcfs", "on-arrival": "dp-max-clock"}


def played(budget, jobs, *, protocol="each-slot", gpus=(8,), start=None, **options):
    """Runs jobs of one tenant with a budget; a GPU draws 100 W, so an hour on one GPU is 0.1 kWh."""
    rows = [{"tenant": 0, "slack_s": 86400.0, "work": 3600.0, **row} for row in jobs]
    world = plain(list(gpus), rows, protocol=protocol, **options)
    world.tenants = [Tenant(sum(gpus), budget=budget)]
    if start is not None:
        world.start = start
    environment = world.environment()
    return run(environment, make_scheduler(POLICY[protocol]))


@BOTH
def test_jobs_start_while_what_is_spent_and_due_is_below_the_budget(protocol):
    # 0.1 kWh each: two are due, so that the third start exceeds nothing yet (0.2 < 0.25), the fourth waits until a day.
    outcome = played({"kwh": 0.25, "period": "day"}, [{}] * 5, protocol=protocol)
    start_s_J = outcome.job_J["start_s"]
    assert start_s_J.tolist() == [0.0, 0.0, 0.0, 86400.0, 86400.0]


@BOTH
def test_what_is_due_counts_as_what_was_used_once_a_job_has_ended(protocol):
    # At 100 USD/MWh a job is expected to cost 0.01 USD; the price of its second half is zero: it costs half of that.
    price = [[100.0, 0.0, 100.0]]
    first = {"arrival_s": 1800.0, "work": 3600.0}
    jobs = [first, {"arrival_s": 2400.0}, {"arrival_s": 7200.0}, {"arrival_s": 7200.0}, {"arrival_s": 7200.0}]
    outcome = played({"usd": 0.01, "period": "window"}, jobs, protocol=protocol, price=price)
    track = outcome.job_J
    # The first is due with 0.01 USD and holds the second back until it ends at 0.005 USD, at 5400 s. The second starts
    # in the hour without a price: nothing is due, so that the third starts, at 7200 s. Then all is used up for good.
    assert track["start_s"][:3].tolist() == [1800.0, 5400.0, 7200.0]
    assert track["status"][3:].tolist() == [OVERDUE, OVERDUE]


@BOTH
@pytest.mark.parametrize(("amount", "most"), [("usd", 0.02), ("kwh", 0.2), ("kg", 0.04)])
def test_each_amount_holds_jobs_back(protocol, amount, most):
    signals = {"price": [[100.0]], "carbon": [[200.0]]}
    outcome = played({amount: most, "period": "day"}, [{}] * 4, protocol=protocol, **signals)
    assert outcome.job_J["start_s"].tolist() == [0.0, 0.0, 86400.0, 86400.0]
    free = played({amount: 100 * most, "period": "day"}, [{}] * 4, protocol=protocol, **signals)
    assert free.job_J["start_s"].tolist() == [0.0] * 4
    ledger = settle(free)
    assert {"usd": ledger.job_energy_usd, "kwh": 0.4, "kg": 0.08}[amount] == pytest.approx(2 * most)


@BOTH
def test_jobs_that_arrive_while_a_budget_that_refuses_is_used_up_are_dropped(protocol):
    jobs = [{"work": 7200.0}, {"arrival_s": 60.0}, {"arrival_s": 3600.0}, {"arrival_s": 86400.0 + 60.0}]
    outcome = played({"kwh": 0.2, "period": "day", "at_limit": "refuse"}, jobs, protocol=protocol)
    assert outcome.job_J["status"].tolist() == [DONE, OVERDUE, OVERDUE, DONE]
    waiting = played({"kwh": 0.2, "period": "day"}, jobs, protocol=protocol)
    assert waiting.job_J["status"].tolist() == [DONE] * 4
    assert waiting.job_J["start_s"][1:3].tolist() == [86400.0, 86400.0]


@BOTH
def test_of_a_window_jobs_wait_until_their_slack_is_over(protocol):
    outcome = played({"kwh": 0.1, "period": "window"}, [{}, {"arrival_s": 60.0}], protocol=protocol)
    assert outcome.job_J["status"].tolist() == [DONE, OVERDUE]


@BOTH
def test_a_job_counts_for_the_period_in_which_it_starts(protocol):
    # The first starts an hour before midnight and runs five: it is no part of the next day's budget.
    start = datetime(2022, 3, 31, 23, tzinfo=UTC)
    jobs = [{"work": 5 * 3600.0}, {"arrival_s": 60.0}, {"arrival_s": 60.0}]
    for period in ("day", "month"):
        outcome = played({"kwh": 0.15, "period": period}, jobs, protocol=protocol, start=start)
        assert outcome.job_J["start_s"].tolist() == [0.0, 3600.0, 3600.0], period
    outcome = played({"kwh": 0.15, "period": "week"}, jobs, protocol=protocol, start=start)  # a Thursday
    assert np.isfinite(outcome.job_J["start_s"]).tolist() == [True, False, False]


@BOTH
def test_a_tenant_whose_budget_is_used_up_holds_up_nobody_else(protocol):
    # Tenant 0 is used up by its first job, so that its second waits until the next day. Tenant 1's start at once, also
    # in the slot in which that happens.
    rows = [
        {"tenant": 0},
        {"tenant": 0},
        {"tenant": 1},
        {"tenant": 1, "arrival_s": 90.0},
    ]
    world = plain([8], [{"slack_s": 90000.0, "work": 3600.0, **row} for row in rows], protocol=protocol)
    world.tenants = [Tenant(4, budget={"kwh": 0.1, "period": "day"}), Tenant(4)]
    outcome = run(world.environment(), make_scheduler(POLICY[protocol]))
    first_s = {"each-slot": 120.0, "on-arrival": 90.0}[protocol]
    assert outcome.job_J["start_s"].tolist() == [0.0, 86400.0, 0.0, first_s]


def test_sites_asked_in_one_step_start_one_job_of_a_tenant_with_a_budget():
    rows = [{"origin": s, "tenant": 0, "slack_s": 7200.0, "work": 3600.0} for s in range(4)]
    world = plain([2] * 4, rows)
    world.tenants = [Tenant(8, budget={"kwh": 0.15, "period": "day"})]
    engine = ClusterEngine(world.environment(), make_scheduler("local-fcfs"))
    engine.step()
    asked = []
    while engine.view.now_s == 0.0:
        asked.append(engine.view.asked_N.tolist())
        for site, _ in engine.view.asked():
            if engine.view.allowed(site, site):
                engine.answers.send(site, site)
        engine.step()
    assert asked == [[0, -1, -1, -1], [-1, 1, -1, -1]], "none of the others is asked about: it is used up"
    start_s_J = run(world.environment(), make_scheduler("local-fcfs")).job_J["start_s"]
    assert start_s_J[:2].tolist() == [0.0, 0.0], "0.1 kWh is below 0.15, 0.2 is not"
    assert np.isnan(start_s_J[2:]).all()


@pytest.mark.parametrize("seed", range(40))
def test_periods_are_those_of_the_calendar(seed):
    rng = np.random.default_rng(seed)
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=int(rng.integers(60_000)), hours=int(rng.integers(24)))
    time_s = float(rng.integers(400 * 86400))
    now = start + timedelta(seconds=time_s)
    day = now.replace(hour=0, minute=0, second=0)
    month = day.replace(day=1)
    expected = {
        "day": (day, day + timedelta(days=1)),
        "week": (day - timedelta(days=day.weekday()), day + timedelta(days=7 - day.weekday())),
        "month": (month, (month + timedelta(days=31)).replace(day=1)),
    }
    for name, (first, after) in expected.items():
        found = period_of(1 + PERIODS.index(name), start.timestamp(), time_s)
        assert [start + timedelta(seconds=second) for second in found] == [first, after], name
    assert period_of(1 + PERIODS.index("window"), start.timestamp(), time_s) == (-np.inf, np.inf)


STATED = "tenants={of: {ours: {gpus: 8, budget: {kwh: 0.5, period: window}}, theirs: {gpus: 8}}}"


@pytest.mark.parametrize("policy", ["random", "cheapest-feasible", "booked-persistence", "bid-price-persistence"])
def test_policies_keep_budgets(policy):
    environment = build_environment(load_scenario("tiny", [STATED]))
    outcome = run(environment, make_scheduler(policy))
    free = run(replace(environment, tenants=None, tenant_J=None), make_scheduler(policy))
    kwh_J, before_J = energy_kwh(outcome), energy_kwh(free)
    ours_J = environment.tenant_J == 0
    assert before_J[ours_J].sum() > 1.0
    assert kwh_J[ours_J].sum() - kwh_J[ours_J].max() < 0.5 <= kwh_J[ours_J].sum(), "the last job alone may exceed it"


def energy_kwh(outcome):
    """Energy of each job's run, kWh, at PUEs that do not change."""
    track = outcome.job_J
    return np.nan_to_num(track["power_w"] * (track["finish_s"] - track["start_s"]) / 3.6e6)


def test_what_is_stated_of_budgets_is_checked():
    scenario = load_scenario("tiny")
    for said, why in (("{}", "needs an amount"), ("{kwh: 0}", "greater than 0"), ("{kwh: 1, period: year}", "period")):
        with pytest.raises(ScenarioError, match=why):
            with_settings(scenario, [f"tenants={{of: {{a: {{gpus: 8, budget: {said}}}}}}}"])
    blind = with_settings(
        scenario, ["signals=null", "economics=null", "tenants={of: {a: {gpus: 8, budget: {usd: 1}}}}"]
    )
    with pytest.raises(ScenarioError, match="budget in USD or kgCO2, and there are no prices"):
        run(build_environment(blind), make_scheduler("local-fcfs"))
    fails = with_settings(
        scenario, ["jobs.failures={per_gpu_hour: 0.01}", "tenants={of: {a: {gpus: 8, budget: {kwh: 1}}}}"]
    )
    with pytest.raises(ScenarioError, match="kept for jobs that run unbroken"):
        run(build_environment(fails), make_scheduler("local-fcfs"))


def test_a_scenario_without_budgets_is_said_as_before():
    scenario = load_scenario("tiny", ["tenants={of: {a: {gpus: 8}}}"])
    assert "budget" not in scenario.model_dump_json()
