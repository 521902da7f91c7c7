"""Loads: a scenario whose jobs ask for a stated share of the GPU-hours."""

from statistics import NormalDist

import numpy as np
import pytest

from noonward.data.jobs.streams import expected_gpu_s
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.errors import ScenarioError
from noonward.evaluate.loads import at_loads, demand_share
from noonward.model.cluster.scenario import MixedJobs
from noonward.runtime.runs import environment_of


def test_run_times_of_fine_tuning_jobs_follow_the_load() -> None:
    cases = at_loads(load_scenario("tiny"), "30%, 0.6", 2, 0)
    assert list(cases) == ["load=30%", "load=60%"]
    for load, case in zip((0.3, 0.6), cases.values(), strict=True):
        assert demand_share(environment_of(case, 0, 0)) == pytest.approx(load, abs=0.02)


def test_the_sites_of_a_job_table_have_fewer_or_more_gpus(tmp_path) -> None:
    rows = ["arrival_s,origin,gpus,duration_s", *(f"{600 * n},north,2,7200" for n in range(60))]
    (tmp_path / "jobs.csv").write_text("\n".join(rows) + "\n")
    content = load_scenario("tiny").model_dump(mode="json")
    origin = content["fleet"]["sites"][0]["name"]
    (tmp_path / "jobs.csv").write_text("\n".join(rows).replace("north", origin) + "\n")
    content["jobs"] = {"source": "table", "path": str(tmp_path / "jobs.csv"), "slack_h": 6}
    stated = scenario_from(content)
    before = environment_of(stated, 0, 0)
    gpus = [site.gpus for site in stated.fleet.sites]
    for load in (0.25, 0.5, 0.9):
        (case,) = at_loads(stated, f"{load:.0%}", 1, 0).values()
        after = environment_of(case, 0, 0)
        assert np.array_equal(after.jobs.work_J, before.jobs.work_J)
        factors = [site.gpus / count for site, count in zip(case.fleet.sites, gpus, strict=True)]
        assert factors == pytest.approx([demand_share(before) / load] * len(gpus), abs=0.5 / min(gpus))
        assert demand_share(after) == pytest.approx(load, rel=0.1)


def test_gpus_in_steps_are_refused(tmp_path) -> None:
    content = load_scenario("tiny").model_dump(mode="json")
    site = content["fleet"]["sites"][0]
    site["gpus"] = [{"from": "2022-01-01", "gpus": 10}, {"from": "2022-06-01", "gpus": 12}]
    (tmp_path / "jobs.csv").write_text(f"arrival_s,origin,gpus,duration_s\n0,{site['name']},2,7200\n")
    content["jobs"] = {"source": "table", "path": str(tmp_path / "jobs.csv"), "slack_h": 6}
    with pytest.raises(ScenarioError, match="states steps of it"):
        at_loads(scenario_from(content), "50%", 1, 0)


def test_run_times_that_depend_on_gpus_have_no_load() -> None:
    with pytest.raises(ScenarioError, match="depends on its GPUs"):
        at_loads(load_scenario("dvfs-training"), "50%", 1, 0)
    assert np.isnan(demand_share(environment_of(load_scenario("dvfs-training", ["window_h=1"]), 0, 0)))


@pytest.mark.parametrize(
    ("law", "mean"),
    [
        ({"law": "pareto", "work_min": 100, "tail": 2.5}, 100 * 2.5 / 1.5),
        ({"law": "log-normal", "median_work": 50, "sigma": 0, "work_min": 60}, 60),
        ({"law": "log-normal", "median_work": 500, "sigma": 0.8, "work_min": 300, "work_max": 900}, None),
        ({"law": "log-normal", "median_work": 500, "sigma": 0.8, "work_min": 300}, None),
    ],
)
def test_the_expected_demand_is_the_mean_of_the_law_of_work(law, mean) -> None:
    if mean is None:
        normal = NormalDist(np.log(500), 0.8)
        drawn = np.exp([normal.inv_cdf((n + 0.5) / 20_000) for n in range(20_000)])
        mean = np.clip(drawn, law["work_min"], law.get("work_max", np.inf)).mean()
    fleet = load_scenario("training-days").fleet
    stream = {"rate_per_s": 0.01, "work": law, "gpus_min": 4, "gpus_max": 8}
    spec = MixedJobs.model_validate({"source": "mixed", "classes": {"tune-8": stream}, "rate_factor": 2})
    assert expected_gpu_s(spec, fleet, 3600.0) == pytest.approx(2 * 3600 * 3 * 0.01 * 4 * mean, rel=2e-3)
