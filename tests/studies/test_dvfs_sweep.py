"""The sweep of parameters: points have one mean work, no policy is below the bound, and the command prints all."""

import json

import numpy as np
import pytest

from command_line import CommandLine
from noonward.data.environments import build_environment
from noonward.studies.dvfs_training import sweep as studied
from noonward.studies.dvfs_training.sweep import MEAN_WORK, Point, points, sweep, sweep_table, write_sweep

RULES = ("jointnf", "random-free", "greedy-energy(gpus=8)")
TWO = (Point(name="rate-2", says="twice", settings=("jobs.rate_per_s=0.04",)), points()[4])


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return sweep(tmp_path_factory.mktemp("runs"), environments=2, policies=RULES, over=TWO, window_h=2)


def test_points_differ_in_what_they_say_alone():
    assert len({point.name for point in points()}) == len(points())
    for point in points():
        scenario = point.scenario(24)
        jobs = build_environment(scenario, 0, 0).jobs
        spread = jobs.work_J.std() / np.sqrt(len(jobs))
        assert sum(site.gpus for site in scenario.fleet.sites) == 1488
        if point.name == "size-pareto":  # its variance is infinite
            assert np.median(jobs.work_J) == pytest.approx(MEAN_WORK * (0.8 / 1.8) * 2 ** (1 / 1.8), rel=0.03)
        else:
            assert abs(jobs.work_J.mean() - MEAN_WORK) <= 4 * spread + 1e-6 * MEAN_WORK
        expected = 8 * 24 * 3600 * 0.02 * (float(point.name[5:]) if point.name.startswith("rate") else 1)
        assert abs(len(jobs) - expected) < 4 * np.sqrt(expected)


def test_no_policy_lies_below_the_bound_and_one_completes_most(found):
    for point in TWO:
        assert all(found.above_bound(point, policy).value > 0 for policy in RULES)
        assert max(found.completed(point, policy).value for policy in RULES) == 1.0
    names = {metric.name for metric in found.metrics()}
    assert "sweep/fleet-equal/above_bound/jointnf" in names
    assert len(sweep_table(found).rows) == len(TWO) * len(RULES)


def test_the_page_shows_table_and_figure(found, tmp_path):
    page = write_sweep(found, tmp_path / "sweep.html", environments=2, command="noonward x").read_text()
    assert "186 GPUs at every site" in page
    assert "noonward x" in page


def test_the_command_prints_the_sweep(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    noonward = CommandLine(monkeypatch, capsys)
    monkeypatch.setattr(studied, "points", lambda: list(TWO[:1]))
    monkeypatch.setattr(studied, "SWEPT", 1)
    changed = {**(sweep.__kwdefaults__ or {}), "policies": RULES, "window_h": 1}
    monkeypatch.setattr(sweep, "__kwdefaults__", changed)
    answer = noonward("reproduce", "dvfs-training", "--sweep", "--workers", 1, "--json")
    assert answer.code == 0, answer.err
    assert "sweep/rate-2/above_bound/jointnf" in {figure["name"] for figure in json.loads(answer.out)["figures"]}
    assert noonward("reproduce", "dvfs-training", "--sweep", "--learned").code == 2
