"""The three figures at the head of a report."""

import dataclasses

import numpy as np
import pytest

from noonward.evaluate.answer import verdict_of
from noonward.evaluate.report.tiles import tiles, tiles_html


@pytest.fixture(scope="module")
def better(money):
    """A comparison in which ``random`` pays and emits half of what today's policy does."""
    halved = ("job_energy_usd", "free_energy_usd", "move_usd", "result_usd", "job_kg", "free_kg")
    halved += ("move_kg", "result_kg")
    half = []
    for n, record in enumerate(money.records["random"]):
        today = money.records[money.reference][n].ledger
        figures = {name: getattr(today, name) / 2 for name in halved}
        ledger = dataclasses.replace(record.ledger, utility_usd=100.0 + n, **figures)
        half.append(dataclasses.replace(record, ledger=ledger))
    return dataclasses.replace(money, records={**money.records, "random": half})


def test_cost_and_carbon_are_halved(better):
    assert verdict_of(better).policy == "random"
    cost, carbon, delay = tiles(better, "random")
    assert cost.big == carbon.big == "\N{MINUS SIGN}50%"
    assert cost.change.value < 0
    assert carbon.change.value < 0
    assert better.reference in cost.detail
    assert better.reference in delay.detail


def test_they_are_measured_where_the_policy_was_not_chosen(better):
    measured = list(verdict_of(better).measured)
    assert len(measured) < len(better.bounds)
    saved = better.values(better.reference, "carbon_kg") - better.values("random", "carbon_kg")
    assert tiles(better, "random")[1].change.value == pytest.approx(-np.mean(saved[measured]))


def test_there_are_none_where_todays_policy_stays(money):
    alone = dataclasses.replace(money, records={money.reference: money.records[money.reference]})
    assert tiles_html(alone) == ""
