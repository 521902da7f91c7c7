"""The three figures at the head of a report."""

import dataclasses

import numpy as np
import pytest

from noonward.evaluate.answer import verdict_of
from noonward.evaluate.report.tiles import STYLE, tiles, tiles_html


def paying(money, share):
    """A comparison in which ``random`` pays and emits a share of what today's policy does, and is better."""
    halved = ("job_energy_usd", "free_energy_usd", "move_usd", "result_usd", "job_kg", "free_kg")
    halved += ("move_kg", "result_kg")
    half = []
    for n, record in enumerate(money.records["random"]):
        today = money.records[money.reference][n].ledger
        figures = {name: share * getattr(today, name) for name in halved}
        ledger = dataclasses.replace(record.ledger, utility_usd=100.0 + n, **figures)
        half.append(dataclasses.replace(record, ledger=ledger))
    return dataclasses.replace(money, records={**money.records, "random": half})


@pytest.fixture(scope="module")
def better(money):
    return paying(money, 0.5)


@pytest.mark.parametrize(
    ("share", "big"),
    [(0.9999, "About the same"), (1.0, "About the same"), (0.997, "\N{MINUS SIGN}0.3%"), (1.2, "+20%")],
)
def test_a_change_below_rounding_is_said_in_words(money, share, big):
    cost, carbon, _ = tiles(paying(money, share), "random")
    assert cost.big == carbon.big == big


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


@pytest.mark.parametrize(("kg", "kind"), [((5.0, 5.0), "good"), ((0.1, 15.0), "open"), ((15.0, 15.0), "bad")])
def test_a_change_that_is_not_significant_is_gray(better, kg, kind):
    """Two environments measure; today's policy emits 10 kg in both."""

    def emitting(policy, kg_E):
        figures = [{"job_kg": kg, "free_kg": 0.0, "move_kg": 0.0, "result_kg": 0.0} for kg in kg_E]
        return [
            dataclasses.replace(record, ledger=dataclasses.replace(record.ledger, **change))
            for record, change in zip(better.records[policy], figures, strict=True)
        ]

    records = {"local-fcfs": emitting("local-fcfs", (10.0, 10.0)), "random": emitting("random", kg)}
    found = dataclasses.replace(better, records=records)
    assert f"<div class='tile {kind}'><h2>Emissions</h2>" in tiles_html(found)
    assert tiles(found, "random")[1].detail.endswith(", not significant") == (kind == "open")
    assert ".tile.open .big { color: #6b7280; }" in STYLE


def test_there_are_none_where_todays_policy_stays(money):
    alone = dataclasses.replace(money, records={money.reference: money.records[money.reference]})
    assert tiles_html(alone) == ""
