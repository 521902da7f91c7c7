"""What quotas cost: ledgers per tenant against the run's own, and the command."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from noonward.cli.main import app
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.evaluate.tenant_tables import budget_table, ledger_table, price_table
from noonward.evaluate.tenants import LINES, NONE, STATED, stated_tenants, study_tenants
from noonward.ledger.ledger import settle
from noonward.ledger.record import job_table
from noonward.schedule.policies import make_scheduler

QUOTAS = "tenants={of: {large: {gpus: 4, cohort: all, borrow: 2, share: 3}, small: {gpus: 4, cohort: all}}}"
POLICY = "local-fcfs"


@pytest.fixture(scope="module")
def study():
    return study_tenants(load_scenario("tiny", [QUOTAS]), POLICY, environments=3, seed=4, one_more=True, bound=True)


def test_lines_of_tenants_sum_to_the_ledger(study):
    for way, scenario in ((STATED, load_scenario("tiny", [QUOTAS])), (NONE, load_scenario("tiny"))):
        for index in range(3):
            ledger = settle(run(build_environment(scenario, index, 4), make_scheduler(POLICY), seed=4))
            line = dict(zip(LINES, study.found[way][index].line_TL.sum(axis=0), strict=True))
            assert study.found[way][index].utility_usd == ledger.utility_usd
            assert line["done"] == ledger.done
            assert line["gpu_hours"] == pytest.approx(ledger.gpu_hours)
            assert line["usd"] == pytest.approx(ledger.job_energy_usd + ledger.move_usd + ledger.result_usd)


def test_quotas_that_bind_make_jobs_wait_and_one_more_gpu_is_worth_what_a_run_with_it_gains(study):
    assert study.wait_h(STATED, "large").value > study.wait_h(NONE, "large").value
    more = load_scenario("tiny", [QUOTAS.replace("gpus: 4, cohort: all, borrow", "gpus: 5, cohort: all, borrow")])
    gained = [
        settle(run(build_environment(more, index, 4), make_scheduler(POLICY), seed=4)).utility_usd
        - study.found[STATED][index].utility_usd
        for index in range(3)
    ]
    assert study.worth_usd("large").value == pytest.approx(np.mean(gained))
    assert study.worth_usd("large").value != 0
    assert study.worth_usd(NONE).value == pytest.approx(
        np.mean(
            [
                free.utility_usd - held.utility_usd
                for free, held in zip(study.found[NONE], study.found[STATED], strict=True)
            ]
        )
    )


def test_the_bounds_stand_beside_the_policy_and_its_price_of_fairness(study):
    for way in (STATED, NONE):
        assert study.bound_usd(way).value > np.mean([each.utility_usd for each in study.found[way]])
    assert study.bound_price_usd().value > 0
    free, held = (np.mean([each.utility_usd for each in study.found[way]]) for way in (NONE, STATED))
    assert study.price_share().value == pytest.approx((free - held) / free)
    assert study.bound_worth_usd("large").value > 0
    names = {metric.name for metric in study.metrics()}
    assert {"price_of_fairness", "bound_price_of_quotas_usd", "bound_one_more_gpu_usd/large"} <= names


def test_tables_show_both_runs_and_every_tenant(study):
    price, ledger = price_table(study), ledger_table(study)
    assert [row[0] for row in price.rows][-2:] == ["utility, USD", "no policy can exceed, USD"]
    assert [(row[0], row[1]) for row in ledger.rows] == [("large", "4 (6)"), ("small", "4 (8)")]
    assert len(ledger.rows[0]) == len(ledger.header) == 13


BUDGETS = (
    "tenants={of: {large: {gpus: 8, share: 3, budget: {kwh: 1, usd: 0.2, period: week}}, small: {gpus: 8}, "
    "strict: {gpus: 8, budget: {kwh: 0.5, period: window, at_limit: refuse}}}}"
)


def test_what_is_spent_of_a_budget_is_what_the_ledger_says_of_jobs_that_began_in_a_period():
    scenario = load_scenario("tiny", [BUDGETS])
    spent = study_tenants(scenario, POLICY, environments=2, seed=4)
    environment = build_environment(scenario, 0, 4)
    jobs = job_table(run(environment, make_scheduler(POLICY), seed=4))
    usd, kwh = np.zeros(2), np.zeros(2)
    for t, row in zip(environment.tenant_J, jobs.iter_rows(named=True), strict=True):
        if np.isfinite(row["start_s"]) and t != 1:
            usd[t // 2] += row["energy_usd"]
            kwh[t // 2] += row["energy_kwh"]
    found = spent.found[STATED][0].spent_TA
    assert found[0, :2].tolist() == pytest.approx([usd[0], kwh[0]])
    assert found[1].tolist() == [0.0, 0.0, 0.0]
    assert found[2, 1] == pytest.approx(kwh[1])
    assert spent.spent(STATED, "large", "kwh").value < spent.spent(NONE, "large", "kwh").value
    assert spent.used_up("large").value > 0
    table = budget_table(spent)
    assert [row[:4] for row in table.rows] == [
        ("large", "0.20 USD", "week", "wait"), ("large", "1.00 kWh", "week", "wait"),
        ("strict", "0.50 kWh", "window", "refuse"),
    ]  # fmt: skip
    names = {metric.name for metric in spent.metrics()}
    assert {"spent_kwh/large", "budget_used_up/strict"} <= names
    assert budget_table(study_tenants(load_scenario("tiny", [QUOTAS]), POLICY, environments=2)) is None


def test_the_command_prints_tables_and_metrics(tmp_path):
    asked = ["tenants", "tiny", "--set", QUOTAS, "-n", "2", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    assert "what the quotas change" in shown.output
    printed = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    names = {metric["name"] for metric in printed["figures"]}
    assert {"price_of_quotas_usd", "usd/large", "mean_wait_h/small@none"} <= names


def test_a_scenario_without_tenants_is_refused():
    with pytest.raises(ScenarioError, match="scenario 'tiny' states no tenants; give it tenants"):
        stated_tenants(load_scenario("tiny"))
