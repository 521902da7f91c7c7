"""Savings as a share of what GPUs cost, and the energy of jobs from before the window, where there are any."""

import dataclasses

from noonward.evaluate.answer import headline
from noonward.evaluate.comparison import summary_rows


def by_cost(money, **economics):
    scenario = money.scenario.model_copy(
        update={"goal": "least-cost", "economics": money.scenario.economics.model_copy(update=economics)}
    )
    return dataclasses.replace(money, scenario=scenario)


def consequences(found, policy):
    return " ".join(found.objective.consequences(found, policy))


def test_what_is_saved_is_shown_as_a_share_of_the_cost_of_gpus(money):
    found = by_cost(money, gpu_usd_per_hour=2.0)
    gpus = sum(site.gpus for site in found.scenario.fleet.sites)
    cost = 2.0 * gpus * found.scenario.window_h
    saved = (found.values("local-fcfs", "total_usd") - found.values("random", "total_usd")).mean()
    said = consequences(found, "random")
    assert f"{gpus:,} GPUs at 2 USD per hour cost" in said
    assert f"is {abs(saved) / cost:.2%} of that {'less' if saved >= 0 else 'more'}." in said


def test_nothing_is_said_of_gpus_whose_cost_nobody_stated(money):
    assert "GPUs at" not in consequences(by_cost(money), "random")
    assert "GPUs at" not in " ".join(headline(by_cost(money)))


def test_energy_of_jobs_from_before_is_a_column_where_there_are_such_jobs(money):
    found = by_cost(money)
    title = "Electricity of jobs from before"
    assert title not in " ".join(column.title for column, _ in found.objective.columns(found))
    standing = {
        policy: [dataclasses.replace(r, ledger=dataclasses.replace(r.ledger, standing_kwh=1500.0)) for r in records]
        for policy, records in found.records.items()
    }
    some = dataclasses.replace(found, records=standing)
    cells = {column.title: cell for column, cell in some.objective.columns(some)}
    assert cells[title](some, "random").startswith("1,500.0")
    assert summary_rows(some)
