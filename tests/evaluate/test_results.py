import dataclasses
import math

import numpy as np
import pytest

from noonward.evaluate.answer import best_known_values
from noonward.evaluate.comparison import Bound, summary_rows
from noonward.evaluate.statistics import Estimate
from noonward.evaluate.table import UNDEFINED, number, percent


def with_utilities(comparison, utilities, bounds=(None, None)):
    """The comparison with other utilities: policy -> one an environment."""
    records = {
        policy: [
            dataclasses.replace(record, ledger=dataclasses.replace(record.ledger, utility_usd=value))
            for record, value in zip(comparison.records[policy], values, strict=True)
        ]
        for policy, values in utilities.items()
    }
    made = [Bound() if bound is None else Bound(utility_usd=bound) for bound in bounds]
    return dataclasses.replace(comparison, records=records, bounds=made)


def cells(comparison, title):
    summary = summary_rows(comparison)
    column = [c.title for c in summary.columns].index(title)
    return {row.name: row.cells[column] for row in summary.rows}


def test_numbers_and_shares_are_written_with_their_spread():
    assert number(Estimate(1234.4, 1177.8, 1291.0, 80.0)) == "1,234 ± 57"
    assert number(Estimate(-0.01), 1) == "0.0"
    assert percent(Estimate(-0.1234, -0.2, -0.0001), signed=True) == "-12.3 [-20.0, 0.0]"
    assert percent(Estimate(math.nan)) == UNDEFINED


def test_best_policy_stands_first_and_undefined_ones_last(money):
    utilities = {"price-greedy": [1.0, 2.0], "local-fcfs": [5.0, 5.0], "random": [math.nan, 1.0]}
    assert with_utilities(money, utilities).ranked() == ["local-fcfs", "price-greedy", "random"]


def test_least_energy_stands_first_without_economics(energy):
    order = energy.ranked()
    values = [energy.mean(policy, "joules_per_unit").value for policy in order]
    assert values == sorted(values)
    assert order[0] == "greedy-energy(gpus=2)"


def test_changes_and_shares_of_the_gap_by_hand(money):
    utilities = {"local-fcfs": [100.0, 300.0], "random": [130.0, 330.0]}
    found = with_utilities(money, utilities, bounds=[150.0, 400.0])
    assert cells(found, "Change against baseline")["random"].startswith("+15.0 [")
    assert cells(found, "Share of possible improvement")["random"].startswith("40.0 [")
    assert cells(found, "Share of possible improvement")["upper bound"] == "100.0 [100.0, 100.0]"
    assert cells(found, "Change against baseline")["upper bound"].startswith("+37.5 [")


def test_a_reference_at_a_loss_has_no_relative_changes(money):
    found = with_utilities(money, {"local-fcfs": [-1.0, -2.0], "random": [3.0, 4.0]})
    assert cells(found, "Change against baseline")["random"] == UNDEFINED
    assert "upper bound" not in cells(found, "Utility")


def test_best_known_schedule_is_at_least_every_policy(money):
    found = with_utilities(money, {"local-fcfs": [1.0, 2.0], "random": [3.0, 1.0]})
    assert best_known_values(found).tolist() == [3.0, 2.0]
    assert (best_known_values(money) <= money.bound_values("utility_usd") * (1 + 1e-9)).all()


def test_cells_are_the_ledgers_numbers(money):
    done = cells(money, "Done")
    for policy, records in money.records.items():
        values = [record.ledger.done for record in records]
        half = 12.7062 * np.std(values, ddof=1) / 2**0.5  # Student's t of two environments
        assert done[policy] == f"{np.mean(values):,.0f} ± {half:,.0f}"


def test_rows_have_a_cell_a_column_and_say_what_they_are(money, energy):
    for comparison in (money, energy):
        summary = summary_rows(comparison)
        assert {len(row.cells) for row in summary.rows} == {len(summary.columns)}
        assert [row.name for row in summary.rows if row.kind == "baseline"] == [comparison.reference]
        assert [row.name for row in summary.rows if row.kind != "bound"] == comparison.ranked()
        assert all(column.unit for column in summary.columns)


def test_energy_lies_above_its_bound(energy):
    above = cells(energy, "Above the bound")
    assert all(float(above[policy].split()[0]) > 0 for policy in energy.records)
    assert above["lower bound"] == "0.0"


@pytest.mark.parametrize("better", ["up", "down"])
def test_columns_say_which_way_is_better(money, better):
    columns = {c.title: c.better for c in summary_rows(money).columns}
    assert columns["Utility" if better == "up" else "Dropped"] == better
