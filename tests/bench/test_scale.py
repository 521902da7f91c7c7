"""The benchmark of many jobs at many sites: its world grows by the window, and every part has a name."""

import functools
import time
from pathlib import Path

import numpy as np
import pytest

from noonward.bench import scale
from noonward.bench.scale import LEAST_H, PARTS, Scale, bench_scale, many_sites
from noonward.bound.cluster_utility.many_jobs import many_jobs_bound
from noonward.data.environments import build_environment
from noonward.errors import ScenarioError
from noonward.runtime.processes import Processes


def test_many_sites_are_of_few_kinds_and_as_many_jobs_come_to_each_whatever_their_number():
    sites = many_sites(1_000_000, 400).fleet.sites
    assert len({(site.zone, site.gpu_type, site.pue) for site in sites}) == 60
    per_hour = [jobs / sites / many_sites(jobs, sites).window_h for jobs, sites in ((100_000, 40), (1_000_000, 400))]
    assert per_hour == pytest.approx([35, 35], rel=0.01)
    assert many_sites(1000, 40).window_h == LEAST_H


def test_the_same_numbers_give_the_same_jobs():
    first, second = (build_environment(many_sites(1000, 3)).jobs for _ in range(2))
    assert np.array_equal(first.arrival_s_J, second.arrival_s_J)
    assert 800 < len(first) < 1200


def test_every_part_of_a_run_is_timed_per_job(monkeypatch):
    for name, value in (("ALIKE_JOBS", 600), ("ALIKE_SITES", 6), ("DRAWS", 2)):
        monkeypatch.setattr(scale, name, value)
    done = []
    metrics = {metric.name: metric for metric in bench_scale(done.append, jobs=1000, sites=2)}
    assert len(done) == len(PARTS)
    parts = [f"scale/{part}/us_per_job" for part in ("build", "rule", "settle", "record")]
    assert all(metrics[name].value > 0 for name in parts)
    assert metrics["scale/whole_path/us_per_job"].value == pytest.approx(sum(metrics[name].value for name in parts))
    assert metrics["scale/us_per_job_at_1e3_jobs_2_sites"].value > 0
    assert metrics["scale/bound/us_per_job"].value > 0
    assert 0 < metrics["scale/bound_gap"].value <= metrics["scale/planner_gap"].value < 0.5
    kinds = metrics["scale/kinds_points"]
    assert -20 < kinds.value < 20
    assert kinds.low <= kinds.value <= kinds.high
    assert metrics["plan/D2_N200/cpu_s"].value > 0
    assert metrics["plan/D2_N200/replan_cpu_s"].value > 0
    assert abs(metrics["plan/D2_N200/gap"].value) < 1e-6
    assert 0.05 < metrics["scale/peak_gib"].value < 64
    page = (Path(__file__).parents[2] / "docs" / "figures-bench.md").read_text()
    for name in metrics:
        general = name.replace("1e3_jobs_2_sites", "SIZE").replace("D2_", "DCOUNT_")
        assert f"| `{general}` |" in page
        group, word, *_ = general.split("/")
        assert (word if group == "scale" else f"{group}/{word}") in scale.REMARK


def test_workers_share_the_bound_and_their_time_counts(monkeypatch):
    monkeypatch.setattr(scale, "Processes", functools.partial(Processes, patience_s=0.0, start_s=0.0))
    environment = build_environment(many_sites(1000, 2))
    found, elsewhere_s = [], []
    for workers in (1, 2):
        began_s, here_s = scale._cpu_s(), time.process_time()
        with scale._shared(workers) as map_pieces:
            bound = many_jobs_bound(environment, map_pieces=map_pieces)
        found.append((bound.upper_usd, bound.lower_usd))
        elsewhere_s.append(scale._cpu_s() - began_s - (time.process_time() - here_s))
    assert found[0] == found[1]
    assert abs(elsewhere_s[0]) < 0.1 < elsewhere_s[1]


@pytest.mark.parametrize(("jobs", "name"), [(10_000_000, "1e7_jobs_400_sites"), (1500, "1500_jobs_400_sites")])
def test_a_size_is_written_in_powers_of_ten_where_it_is_one(jobs, name):
    assert Scale(jobs, many_sites(1000, 400), None, 0.0).size == name


@pytest.mark.parametrize(("jobs", "sites"), [(999, 2), (1000.5, 2), (float("nan"), 2), (1000, 0)])
def test_sizes_that_are_none_are_refused(jobs, sites):
    with pytest.raises(ScenarioError, match="at least 1,000 jobs and at least 1 site"):
        bench_scale(jobs=jobs, sites=sites)
