"""Learned policies against controls: distances by hand, and the study on short weeks."""

import dataclasses

import numpy as np
import pytest

from noonward.data.scenarios.load import load_scenario
from noonward.schedule.policies import make_scheduler, register
from noonward.studies.dvfs_training import controls as dvfs_controls
from noonward.studies.dvfs_training.controls import (
    controls_energy,
    drawn_part,
    frontier_energy,
    study_controls,
    study_policies,
)


def with_values(comparison, values):
    """The comparison with other policies: name -> (mean time, J per unit), the same in every environment."""
    some = comparison.records["dp"]
    records = {}
    for policy, (time_s, joules) in values.items():
        ledgers = [
            dataclasses.replace(r.ledger, mean_time_so_far_s=time_s, units=3.6e6, job_kwh=joules, free_kwh=0.0)
            for r in some
        ]
        records[policy] = [dataclasses.replace(r, ledger=one) for r, one in zip(some, ledgers, strict=True)]
    return dataclasses.replace(comparison, records=records)


def test_distance_to_the_other_controls_by_hand(energy):
    found = with_values(energy, {"a": (1.0, 10.0), "b": (3.0, 8.0), "c": (2.0, 8.5), "chsac-af": (2.0, 8.4)})
    assert controls_energy(found, "c") == pytest.approx([9.0, 9.0])  # on the line from a to b
    assert controls_energy(found, "chsac-af") == pytest.approx([8.5, 8.5])
    assert np.isnan(controls_energy(found, "a")).all()  # faster than all others
    assert controls_energy(found, "b") == pytest.approx([8.5, 8.5])
    assert controls_energy(found, "chsac-af", "a") == pytest.approx([10.0, 10.0])  # a alone
    assert frontier_energy(found, ["a", "b"], [1.5, 2.5]) == pytest.approx([9.5, 8.5])


@pytest.mark.usefixtures("further_seeds")
def test_registered_learned_policies_are_studied_with_the_controls(tmp_path, monkeypatch):
    register("chsac-af-demo", lambda: make_scheduler("greedy-energy(gpus=3)"), "a stand-in")
    learned = ["chsac-af", "chsac-af-seed1", "chsac-af-seed2", "chsac-af-published", "chsac-af-demo"]
    assert study_policies()[:5] == learned
    assert {f"greedy-energy(gpus={n})" for n in range(1, 9)} <= set(study_policies())
    monkeypatch.setattr(dvfs_controls, "week", lambda: load_scenario("dvfs-training", ["window_h=2"]))
    found = study_controls(tmp_path, 2)
    assert found.comparison.paired
    assert "chsac-af-demo" in drawn_part(found.comparison).records
    metrics = {metric.name: metric for metric in found.metrics}
    assert metrics["j_per_unit_change/greedy-energy(gpus=4)"].value == 0.0
    assert metrics["j_per_unit_exact/chsac-af-demo"].value == metrics["j_per_unit_exact/greedy-energy(gpus=3)"].value
    assert metrics["above_controls/chsac-af-demo"].value == pytest.approx(0.0, abs=1e-12)
    assert metrics["above_tradeoff/greedy-tradeoff(watts=10)"].value >= 0.0
    assert metrics["above_tradeoff/greedy-tradeoff(watts=1000)"].value == pytest.approx(0.0, abs=1e-12)
    assert metrics["above_tradeoff/greedy-energy(gpus=4)"].value > 0.0
    assert "above_tradeoff_over_seeds/chsac-af" in metrics
    seeds = [metrics[f"j_per_unit_exact/{name}"].value for name in learned[:3]]
    assert metrics["training_seeds/chsac-af"].value == 3
    assert metrics["j_per_unit_exact_over_seeds/chsac-af"].value == pytest.approx(np.mean(seeds))
    assert min(seeds) < max(seeds)
    limit = metrics["mean_time_in_system_s_over_seeds/chsac-af"].value / 3600 - 1
    assert metrics["over_limit_over_seeds/chsac-af"].value == pytest.approx(limit)
    change = metrics["j_per_unit_vs_random/chsac-af-published"].value
    own, chance = (metrics[f"j_per_unit_exact/{name}"].value for name in ("chsac-af-published", "random-free"))
    assert change == pytest.approx(own / chance - 1, rel=1e-2)
    above = [metric.value for metric in found.metrics if metric.name.startswith("above_bound/")]
    assert min(above) > 0
    assert metrics["completed_jobs/uniform"].low is not None
    text = found.report.read_text(encoding="utf-8")
    for title in ("Energy-latency frontier of every policy", "Power over time", "Where the jobs of each ingress go"):
        assert f"<h2>{title}</h2>" in text
    for title in (
        "Distance to the bound",
        "How much training seeds differ",
        "chsac-af-published against random-free",
    ):
        assert title in text
