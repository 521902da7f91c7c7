"""Constraints and classes of a comparison: limits beside what was attained."""

import numpy as np
import pytest

from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.compare import compare
from noonward.evaluate.comparison import summary_rows
from noonward.evaluate.report.page import write_report
from noonward.evaluate.service_tables import (
    class_table,
    constraint_table,
    held_limits,
    service_metrics,
    trained_multipliers,
)
from trained_files import write_random_policy

LIMITS = (
    "{mean_latency_s: 50, p99_latency_s: 5000, queue_max: {us-west: 1, us-east: 0.5}, power_cap_w: {us-west: 2000}, "
)
LIMITS += "latency_target_s: {inference: 60}}"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Two policies in two environments of two classes, with signals and constraints, without economics."""
    scenario = load_scenario("dvfs-mixed", ["window_h=2", f"constraints={LIMITS}"])
    return compare(scenario, ["uniform", "greedy-energy(gpus=4)"], environments=2, out=tmp_path_factory.mktemp("mixed"))


def test_every_constraint_has_its_limit_and_what_was_attained(mixed):
    held = {one.limit.name: one for one in held_limits(mixed, "uniform")}
    assert {name: one.limit.limit for name, one in held.items()} == {
        "mean_latency_s": 50, "p99_latency_s": 5000, "queue/us-west": 1, "queue/us-east": 0.5, "power_w/us-west": 2000,
    }  # fmt: skip
    records = mixed.records["uniform"]
    for name, field in (("mean_latency_s", "mean_time_in_system_s"), ("p99_latency_s", "p99_time_in_system_s")):
        assert held[name].attained_E.tolist() == [getattr(record.ledger, field) for record in records]
    for name in ("us-west", "us-east"):
        assert held[f"queue/{name}"].attained_E.tolist() == [
            record.service.sites[name].mean_queue for record in records
        ]
    assert (held["power_w/us-west"].exceeded_E > 0).all()
    assert np.isnan(held["mean_latency_s"].exceeded_E).all()


def test_tables_say_who_keeps_what(mixed):
    rows = {(row[0], row[1]): row for row in constraint_table(mixed).rows}
    assert rows["uniform", "queue/us-east"][4] == "0 of 2"
    assert rows["greedy-energy(gpus=4)", "queue/us-east"][4] == "2 of 2"
    assert rows["uniform", "power_w/us-west"][2] == "2,000 W"
    classes = {(row[0], row[1]): row for row in class_table(mixed).rows}
    assert set(classes) == {(p, c) for p in mixed.records for c in ("training", "inference")}
    assert classes["uniform", "inference"][5] == "60"
    assert classes["uniform", "training"][5:] == ("–", "–")


def test_the_multiplier_is_that_of_the_limit_a_policy_was_trained_under(tmp_path):
    for limit_s, shown in ((3600, True), (1800, False)):
        scenario = load_scenario("dvfs-training", ["window_h=1", f"constraints.mean_latency_s={limit_s}"])
        found = compare(scenario, ["chsac-af", "greedy-energy(gpus=1)"], environments=1, out=tmp_path)
        cells = {row[0]: row[-1] for row in constraint_table(found).rows}
        assert cells["greedy-energy(gpus=1)"] == "–"
        assert (cells["chsac-af"] != "–") == shown
        assert not shown or 0 < float(cells["chsac-af"]) < 10


def test_a_policy_of_another_scenario_is_noted(tmp_path):
    scenario = load_scenario("dvfs-mixed", ["window_h=1"])
    found = compare(scenario, ["chsac-af", "greedy-energy(gpus=1)"], environments=1, out=tmp_path)
    assert sum("chsac-af.npz was trained in scenario 'dvfs-training'" in note for note in found.notes) == 1


def test_figures_carry_limits_as_references(mixed):
    metrics = {metric.name: metric for metric in service_metrics(mixed)}
    assert metrics["constraint_mean_latency_s/uniform"].reference == 50
    assert metrics["constraint_queue/uniform/us-west"].value > 0
    assert 0 < metrics["constraint_over_cap_share/uniform/us-west"].value <= 1
    assert metrics["class_within_target/uniform/training"].value is None
    better = metrics["class_within_target/greedy-energy(gpus=4)/inference"].value
    assert better > metrics["class_within_target/uniform/inference"].value


def test_cost_and_emissions_per_unit_stand_in_the_summary_and_the_report(mixed, tmp_path):
    titles = [column.title for column in summary_rows(mixed).columns]
    assert titles[-3:] == ["Longest queue", "Energy cost", "Emissions"]
    for record in mixed.records["uniform"]:
        ledger = record.ledger
        assert ledger.usd_per_unit == pytest.approx(ledger.energy_usd / ledger.units)
        assert ledger.g_per_unit == pytest.approx(1000 * ledger.carbon_kg / ledger.units)
    text = write_report(mixed, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h2>Constraints</h2>" in text
    assert "<h2>Latency per class of jobs</h2>" in text


def test_a_scenario_without_limits_and_with_one_class_has_neither_table(energy):
    assert constraint_table(energy) is None
    assert class_table(energy) is None
    assert service_metrics(energy) == []


def test_multipliers_stand_beside_the_limits_they_were_trained_under(tmp_path):
    """Of a policy that knows a limit without a multiplier, of a packaged one, of one whose file is no policy's."""
    limit = {"limits": {"mean_latency_s": 50.0}}
    write_random_policy(tmp_path / "none.npz", **limit)
    write_random_policy(tmp_path / "one.npz", constraints={"multiplier/mean_latency_s": 0.25}, **limit)
    assert trained_multipliers(str(tmp_path / "none.npz")) == {}
    assert trained_multipliers(str(tmp_path / "one.npz")) == {("mean_latency_s", 50.0): "0.25"}
    assert list(trained_multipliers("chsac-af")) == [("mean_latency_s", 3600.0)]
    assert trained_multipliers("bid-price-neural") == trained_multipliers("uniform") == {}
