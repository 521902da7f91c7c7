"""The answer in words, and the savings it rests on."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.decision.brief import Needs
from noonward.decision.scheduler import Scheduler
from noonward.errors import ScenarioError
from noonward.evaluate.answer import best_to_adopt, bill_usd, bills, can_run, carbon_unit, headline, moved_jobs, savings
from noonward.evaluate.compare import compare
from noonward.evaluate.comparison import Bound, summary_rows
from noonward.evaluate.job_figures import job_figures
from noonward.evaluate.what_if.changes import Change
from noonward.evaluate.what_if.study import Case
from noonward.forecasts.forecast import Forecast
from noonward.schedule.policies import register


def with_ledgers(comparison, changes):
    """The comparison with other ledgers: policy -> one change an environment."""
    records = {
        policy: [
            dataclasses.replace(record, ledger=dataclasses.replace(record.ledger, **change))
            for record, change in zip(comparison.records[policy], each, strict=True)
        ]
        for policy, each in changes.items()
    }
    return dataclasses.replace(comparison, records=records)


def bill(job, free=0.0, move=0.0, result=0.0):
    return {"job_energy_usd": job, "free_energy_usd": free, "move_usd": move, "result_usd": result}


def test_a_bill_is_energy_and_journeys_without_carbon(money):
    ledger = dataclasses.replace(money.records["random"][0].ledger, **bill(3.0, 2.0, 1.0, 0.5), carbon_usd=99.0)
    assert bill_usd(ledger) == 6.5


def test_savings_are_paired_differences_against_today(money):
    found = with_ledgers(money, {"local-fcfs": [bill(10.0), bill(30.0)], "random": [bill(8.0), bill(22.0)]})
    saved = savings(found, "random")
    assert saved.usd.value == 5.0
    assert saved.usd_share.value == 10.0 / 40.0
    assert savings(found, "local-fcfs").usd.value == 0.0


def test_delay_and_late_jobs_are_those_of_the_job_tables(money):
    for policy in money.records:
        delays, late = [], 0
        for record in money.records[policy]:
            one = []
            for job in record.jobs.iter_rows(named=True):
                late += job["status"] == "overdue"
                if np.isfinite(job["start_s"]):
                    one.append(job["start_s"] - job["arrival_s"])
                    late += job["start_s"] > job["arrival_s"] + job["slack_s"]
            delays.append(np.mean(one))
            assert job_figures(record).mean_delay_s == pytest.approx(np.mean(one))
        saved = savings(money, policy)
        assert saved.mean_delay_s.value == pytest.approx(np.mean(delays))
        assert saved.late_jobs.value == late / 2


def test_a_policy_that_knows_the_future_is_never_proposed(money):
    assert money.ranked()[0] == "booked-perfect"
    assert best_to_adopt(money) != "booked-perfect"
    assert headline(money)[0].startswith(("Keep ", "Run more environments"))
    assert "booked-perfect" not in " ".join(headline(money))


def test_the_headline_names_saving_share_delay_and_what_it_rests_on(money):
    utilities = {"local-fcfs": [100.0, 300.0], "price-greedy": [140.0, 340.0]}
    found = with_ledgers(money, {p: [{"utility_usd": u, "gpu_hours": 10.0} for u in us] for p, us in utilities.items()})
    found = dataclasses.replace(found, bounds=[Bound(utility_usd=150.0), Bound(utility_usd=350.0)])
    said = headline(found)
    assert said[0] == "Adopt price-greedy: 20% more utility than local-fcfs."
    assert said[1].startswith("It has 40.0 USD (20%) more utility [40.0, 40.0] and ")
    assert said[1].endswith("than local-fcfs in 12 hours: 80% of the possible improvement.")
    assert "jobs run away from their home site; starts are delayed by " in said[2]
    dropped = {policy: found.mean(policy, "overdue").value for policy in found.records}
    assert f"{dropped['price-greedy']:,.0f} jobs are dropped (local-fcfs: {dropped['local-fcfs']:,.0f})" in said[2]
    assert not any("do not compare" in sentence for sentence in said)


def test_jobs_that_may_start_late_are_called_late(money):
    waiting = {**money.scenario.model_dump(mode="json"), "lateness": {"rule": "wait", "overtime_h": 24}}
    found = dataclasses.replace(money, scenario=scenario_from(waiting, "tiny"))
    late = [savings(found, each).late_jobs.value for each in ("random", "local-fcfs")]
    assert (
        f"{late[0]:,.0f} jobs are late (local-fcfs: {late[1]:,.0f})" in found.objective.consequences(found, "random")[0]
    )


@pytest.mark.parametrize(("kg", "unit"), [(57.5, ("kg CO2", 1.0, 1)), (2345.0, ("t CO2", 1000.0, 2))])
def test_emissions_have_the_unit_that_suits_them(money, kg, unit):
    free = {"free_kg": 0.0, "move_kg": 0.0, "result_kg": 0.0}
    found = with_ledgers(money, {"local-fcfs": [free | {"job_kg": kg}] * 2, "random": [free | {"job_kg": kg / 2}] * 2})
    assert carbon_unit(found) == unit
    found = dataclasses.replace(found, scenario=found.scenario.model_copy(update={"goal": "least-cost"}))
    summary = summary_rows(found)
    at = [column.title for column in summary.columns].index("Emissions")
    assert summary.columns[at].unit == unit[0]
    cell = next(row.cells[at] for row in summary.rows if row.name == "local-fcfs")
    assert cell == f"{kg / unit[1]:,.{unit[2]}f} ± {0:.{unit[2]}f}"


def test_moved_jobs_are_counted_whether_they_have_data_or_not(money):
    for policy in money.records:
        moved = []
        for record in money.records[policy]:
            started = [job for job in record.jobs.iter_rows(named=True) if np.isfinite(job["start_s"])]
            moved.append(sum(job["site"] != job["origin"] for job in started))
        assert moved_jobs(money, policy).value == np.mean(moved)
    assert moved_jobs(money, "local-fcfs").value == 0
    assert moved_jobs(money, "random").value > 5


@pytest.mark.parametrize(
    ("usd", "kg", "says", "ends"),
    [
        (8.0, 5.0, "saves 2.00 USD (20.0%) [2.00, 2.00] per window", "with 1.0 kg CO2 less than local-fcfs"),
        (8.0, 7.0, "saves 2.00 USD (20.0%) [2.00, 2.00] per window", "with 1.0 kg CO2 more than local-fcfs"),
        (12.0, 5.0, "costs 2.00 USD (20.0%) more [2.00, 2.00] per window", "with 1.0 kg CO2 less than local-fcfs"),
        (12.0, 7.0, "costs 2.00 USD (20.0%) more [2.00, 2.00] per window", "with 1.0 kg CO2 more than local-fcfs"),
    ],
)
def test_what_is_less_and_what_is_more_is_said_of_each(money, usd, kg, says, ends):
    free = {"carbon_usd": 0.0, "late_usd": 0.0, "job_kg": 0.0, "free_kg": 0.0, "move_kg": 0.0, "result_kg": 0.0}
    found = with_ledgers(
        money,
        {
            "local-fcfs": [bill(10.0) | free | {"job_kg": 6.0}] * 2,
            "random": [bill(usd) | free | {"job_kg": kg}] * 2,
        },
    )
    scenario = found.scenario.model_copy(update={"goal": "least-cost"})
    found = dataclasses.replace(found, scenario=scenario)
    said = found.objective.saying(found, "random")
    assert said.startswith(says)
    assert said.endswith(ends)


def test_other_work_and_doubt_are_said(money):
    other = {
        "local-fcfs": [{"utility_usd": 100.0, "gpu_hours": 10.0}, {"utility_usd": 300.0, "gpu_hours": 10.0}],
        "random": [{"utility_usd": 90.0, "gpu_hours": 11.0}, {"utility_usd": 330.0, "gpu_hours": 11.0}],
    }
    said = " ".join(headline(with_ledgers(money, other)))
    assert "10.0% more GPU-hours, so the bills are not directly comparable" in said
    assert said.startswith("Run more environments: 2 cannot tell yet. random leads: it has 10.0 USD (5%) more utility ")
    assert "so keep local-fcfs until more (-n) tell the two apart" in said


def test_today_that_is_best_is_kept(money):
    utilities = {"local-fcfs": [{"utility_usd": 9.0}] * 2, "random": [{"utility_usd": 1.0}] * 2}
    assert headline(with_ledgers(money, utilities)) == [
        "Keep local-fcfs.",
        "No other policy that can run is better by utility (USD).",
    ]


def test_without_signals_the_headline_has_no_money(energy):
    said = " ".join(headline(energy))
    assert said.startswith("Run more environments: 2 cannot tell yet. greedy-energy(gpus=2) leads: it has ")
    assert "less energy per unit (J) than dp" in said
    assert "USD" not in said
    assert not [metric for metric in energy.metrics() if metric.name.startswith("saved_")]


def test_today_is_compared_and_measured_against(tmp_path):
    tiny = load_scenario("tiny")
    found = compare(tiny, ["random"], environments=1, out=tmp_path, bound=False, today="most-free")
    assert found.reference == "most-free"
    assert list(found.records) == ["most-free", "random"]
    figures = {metric.name: metric.value for metric in found.metrics()}
    assert figures["saved_usd/most-free"] == 0.0
    assert figures["saved_usd/random"] == pytest.approx(bills(found, "most-free")[0] - bills(found, "random")[0])
    assert headline(found)[0] == "Keep most-free." or "in this environment" in headline(found)[0]


def test_the_goal_of_least_cost_changes_what_is_compared_and_no_run(tmp_path):
    names = ["local-fcfs", "random"]
    by_utility = compare(load_scenario("tiny"), names, environments=2, out=tmp_path)
    by_cost = compare(load_scenario("tiny", ["goal=least-cost"]), names, environments=2, out=tmp_path)
    assert by_cost.folder == by_utility.folder
    assert by_cost.records == by_utility.records
    table = summary_rows(by_cost)
    assert [column.unit for column in table.columns][:2] == ["USD", "USD"]
    assert not any("utility" in metric.name for metric in by_cost.metrics() if metric.name.endswith("random"))
    cost = next(metric.value for metric in by_cost.metrics() if metric.name == "cost_usd/random")
    assert cost == pytest.approx(bills(by_cost, "random").mean())
    with pytest.raises(ScenarioError, match="goal least-cost needs economics"):
        load_scenario("tiny", ["goal=least-cost", "economics=null"])


def test_no_share_of_the_gap_lies_above_one(money):
    utilities = {"local-fcfs": [100.0, 100.0], "random": [100.0, 200.0]}
    found = with_ledgers(money, {p: [{"utility_usd": u} for u in us] for p, us in utilities.items()})
    found = dataclasses.replace(found, bounds=[Bound(utility_usd=150.0), Bound(utility_usd=250.0)])
    share = found.improvement_share("random")
    assert share.value == 0.5
    assert share.high == 1.0


def test_the_jobs_of_a_record_are_read_once(tmp_path, monkeypatch):
    scenario = load_scenario("tiny", ["goal=least-cost"])
    found = compare(scenario, ["local-fcfs", "random"], environments=2, out=tmp_path, bound=False)
    read, read_parquet = [], pl.read_parquet

    def counted(source, *args, **options):
        read.append(source)
        return read_parquet(source, *args, **options)

    monkeypatch.setattr(pl, "read_parquet", counted)
    headline(found)
    summary_rows(found)
    found.metrics()
    assert sorted(read) == sorted(
        record.folder / "jobs.parquet" for records in found.records.values() for record in records
    )


def test_a_job_that_is_late_and_not_done_counts_once(tmp_path):
    settings = ["end=window", "window_h=3", "lateness={rule: wait}", "jobs.demand=3"]
    found = compare(load_scenario("tiny", settings), ["local-fcfs"], environments=1, out=tmp_path, bound=False)
    record = found.records["local-fcfs"][0]
    expected, both = 0, 0
    for job in record.jobs.iter_rows(named=True):
        start_s = job["start_s"] if np.isfinite(job["start_s"]) else float(record.manifest["ended_s"])
        late, undone = start_s > job["arrival_s"] + job["slack_s"], job["status"] != "done"
        expected += late or undone
        both += late and undone
    assert both > 0
    assert job_figures(record).late_or_not_done == expected
    case = Case(change=Change(), title="", at=0.0, records=[record])
    assert case.not_in_time.value == expected


@pytest.mark.parametrize(
    ("more", "known"),
    [({"foresight": True}, True), ({"forecast": Forecast("perfect")}, True), ({"forecast": Forecast("noisy")}, True),
     ({"forecast": Forecast("persistence")}, False), ({}, False)],
)  # fmt: skip
def test_a_policy_of_your_own_that_asks_for_the_future_is_never_proposed(own_registry, more, known):
    class Mine(Scheduler):
        needs = Needs(protocols=("each-slot",), **more)

        def decide(self, view, answers):
            pass

    register("mine", Mine)
    policy = own_registry.find("mine")
    assert (policy.clairvoyant, can_run(policy)) == (known, not known)
