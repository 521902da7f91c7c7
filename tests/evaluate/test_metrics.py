import json
import math

import pytest

from noonward.evaluate.metrics import Metric, to_json
from noonward.evaluate.statistics import Estimate


def refuse(word):
    raise AssertionError(f"{word} in the JSON")


def test_undefined_values_are_null_and_never_nan(money, energy):
    for comparison in (money, energy):
        content = json.loads(to_json(comparison.metrics()), parse_constant=refuse)
        assert len(content["figures"]) > len(comparison.records)
    emissions = {f["name"]: f["value"] for f in content["figures"] if f["name"].startswith("g_per_gpu_hour")}
    assert emissions == {f"g_per_gpu_hour/{policy}": None for policy in energy.records}


def test_a_metric_whose_name_has_changed_is_also_printed_under_its_former_name():
    named = "knowledge/improvement_share/patient@limit", "optimality_gap@100"
    printed = json.loads(to_json([Metric.of(name, 0.5, "fraction") for name in named]))["figures"]
    assert [metric["name"] for metric in printed] == [*named, "knowledge/gap_closed/patient@limit", "duality_gap@100"]
    assert {metric["value"] for metric in printed} == {0.5}


def test_a_stray_nan_raises_rather_than_pass():
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json([Metric(name="x", value=math.nan, unit="USD")])


def test_estimates_and_plain_values_become_figures():
    metric = Metric.of("gain", Estimate(0.5, 0.4, 0.6, 0.1), "fraction", 0.286)
    assert (metric.value, metric.low, metric.high, metric.reference) == (0.5, 0.4, 0.6, 0.286)
    assert Metric.of("jobs", 3, "jobs").value == 3.0


def test_figures_hold_the_ledgers_means(money):
    metrics = {metric.name: metric for metric in money.metrics()}
    for policy, records in money.records.items():
        expected = sum(record.ledger.utility_usd for record in records) / len(records)
        assert metrics[f"utility_usd/{policy}"].value == pytest.approx(expected)
        assert metrics[f"utility_usd/{policy}"].low < expected < metrics[f"utility_usd/{policy}"].high
    assert len(metrics) == len(money.metrics())


def test_intervals_stay_in_what_is_possible(money, energy):
    """Shares of a number lie in 0 to 1; times, energies and numbers are not negative."""
    signed = ("USD", "fraction", "utility")
    for comparison in (money, energy):
        for metric in comparison.metrics():
            if metric.low is None:
                continue
            assert metric.low <= metric.value <= metric.high, metric.name
            quantity = metric.name.split("/")[0]
            if "within_target" in metric.name or ("share" in quantity and quantity != "improvement_share"):
                assert metric.low >= 0, metric.name
                assert metric.high <= 1, metric.name
            if not any(word in metric.unit for word in signed) and not metric.name.startswith(("saved", "gain")):
                assert metric.low >= 0, metric.name
            if metric.name.startswith("improvement_share"):
                assert metric.high <= max(1.0, metric.value)


def test_an_interval_is_cut_and_the_value_stays():
    wide = Estimate(0.9, 0.5, 1.3, 0.2)
    assert wide.within(0.0, 1.0) == Estimate(0.9, 0.5, 1.0, 0.2)
    assert Estimate(3.0, -1.0, 7.0).within(0.0) == Estimate(3.0, 0.0, 7.0)
    assert Estimate(3.0).within(0.0) == Estimate(3.0)
