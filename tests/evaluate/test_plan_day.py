"""``noonward capacity-plan``: a day planned, tried and written; scenarios that cannot be planned are told why."""

import json
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from command_line import CommandLine
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.evaluate.plan_day import plan_day
from noonward.evaluate.report.plan_figure import plan_figure
from noonward.schedule.plan.follow import FollowPlan


@pytest.fixture
def noonward(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    """The command line, in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


def planned(settings: tuple[str, ...] = (), **more: float) -> object:
    environment = build_environment(load_scenario("load-shaping", ["window_h=4", *settings]))
    return plan_day(environment, FollowPlan(samples=8, **more))


def test_the_tables_hold_the_plan(tmp_path: Path) -> None:
    found = planned()
    tables = {name: pl.read_parquet(path) for name, path in found.write(tmp_path).items()}
    assert len(tables["curves"]) == 14 * 4
    assert tables["curves"]["curve_gpus"].sum() == pytest.approx(found.plan.curve_TD.sum())
    sums = tables["fractions"].group_by("submission_hour", "class").agg(pl.col("fraction").sum())
    assert len(sums) == 4 * 7
    assert sums["fraction"].to_list() == pytest.approx([1.0] * 28)
    bound = tables["fractions"].filter(pl.col("class") == "cluster-a2")
    assert bound["site"].unique().to_list() == ["a2"]
    start = found.environment.start
    assert tables["curves"]["time"].to_list()[:5] == [start] * 4 + [start + timedelta(hours=1)]
    waits = tables["fractions"].select(pl.col("runs") - pl.col("submitted"))["runs"].dt.total_hours()
    assert waits.to_list() == (tables["fractions"]["run_hour"] - tables["fractions"]["submission_hour"]).to_list()
    late = tables["fractions"].filter(pl.col("run_hour") - pl.col("submission_hour") > 10)
    assert late.is_empty()
    jobs = tables["jobs"]
    assert len(jobs) == len(found.environment.jobs)
    assert set(jobs.filter(pl.col("class") == "cluster-a2")["site"]) == {"a2"}
    assert (jobs["start"] >= jobs["arrival"]).all()
    assert jobs["gpus"].sum() == found.environment.jobs.gpus_min_J.sum()
    in_hour = jobs.group_by(pl.col("start").dt.truncate("1h"), "site").agg(pl.col("gpus").sum())
    hour = in_hour.filter(pl.col("start") == start)  # jobs of an hour that start at full hours
    ran = dict(zip(found.environment.sites, found.ran_SH[:, 0], strict=True))
    assert dict(hour.select("site", "gpus").iter_rows()) == pytest.approx({k: v for k, v in ran.items() if v})
    assert found.ran_SH.sum() == pytest.approx(found.environment.jobs.gpus_min_J.sum())
    shown = plan_figure(found.plan, found.environment.sites, ran_SH=found.ran_SH, unit="GPUs").plot
    assert {"virtual capacity", "load that ran", "a1"} <= {trace.name for trace in shown.data}


def test_a_larger_radius_costs_more_and_is_kept_more_often() -> None:
    tight, wide = ({f.name: f.value for f in planned(promise=0.0, eps=eps).metrics()} for eps in (0.0, 0.05))
    assert wide["planned_cost_usd"] > tight["planned_cost_usd"]
    assert wide["guarantee_held_share"] > tight["guarantee_held_share"]
    assert abs(wide["certificate_gap"]) < 1e-8


def test_a_larger_promise_reserves_more_and_is_kept_on_fresh_days() -> None:
    low, high = ({f.name: f for f in planned(promise=promise).metrics()} for promise in (0.5, 0.9))
    assert high["margin"].value > low["margin"].value
    assert high["planned_cost_usd"].value > low["planned_cost_usd"].value
    assert high["guarantee_held_share"].value > low["guarantee_held_share"].value > 0.3
    assert (low["guarantee_held_share"].reference, high["guarantee_held_share"].reference) == (0.5, 0.9)


@pytest.mark.parametrize(
    ("promise", "samples", "message"), [(1.0, 8, "promise is 1.0"), (0.8, 1, "at least 2 sampled days")]
)
def test_promises_out_of_range_are_refused(promise: float, samples: int, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        FollowPlan(promise=promise, samples=samples)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dvfs-training", "reads prices or carbon intensities, but scenario 'dvfs-training' has no signals"),
    ],
)
def test_what_cannot_be_planned_is_told(name: str, message: str) -> None:
    environment = build_environment(load_scenario(name, ["window_h=6"]))
    with pytest.raises(ScenarioError, match=message):
        plan_day(environment, FollowPlan(samples=3))


def test_jobs_of_mixed_run_times_are_planned_by_run_time_and_slack(tmp_path: Path) -> None:
    """The tables name the part of the class, the site and the date of every share; every job has a place and a time."""
    environment = build_environment(load_scenario("tiny", ["window_h=6"]))
    found = plan_day(environment, FollowPlan(samples=3, promise=0.0))
    runs = {one.run_hours for one in found.plan.problem.classes}
    assert len(runs) > 1
    problem = found.plan.problem
    expected = sum(
        problem.load_NKC[:, :, c].mean(axis=0).sum() * one.run_hours for c, one in enumerate(problem.classes)
    )
    assert {f.name: f.value for f in found.metrics()}["expected_load"] == pytest.approx(expected)
    tables = {name: pl.read_parquet(path) for name, path in found.write(tmp_path).items()}
    assert tables["prices"]["expected_gpu_hours"].sum() == pytest.approx(expected)
    names = set(tables["fractions"]["class"])
    assert names == {one.name for one in found.plan.problem.classes}
    assert all(name.startswith("fine-tuning, run ") for name in names)
    for one in found.plan.problem.classes:
        assert one.name == f"fine-tuning, run {one.run_hours} h, slack {one.flexibility_h} h"
    assert set(tables["fractions"]["site"]) <= set(environment.sites)
    assert tables["fractions"]["runs"].min() >= environment.start
    done = tables["jobs"].filter(pl.col("status") == "done")
    assert len(done) > 0
    assert done["site"].null_count() == done["start"].null_count() == 0


def test_load_that_does_not_fit_is_told() -> None:
    with pytest.raises(InfeasiblePlanError):
        planned(("fleet.sites.0.gpus=40", "jobs.slack_s=3600"))


def test_the_command_writes_tables_and_figure(noonward: CommandLine) -> None:
    command = ("capacity-plan", "load-shaping", "--set", "window_h=3", "--samples", 4)
    content = json.loads(noonward(*command, "--json").out)
    assert set(content["tables"]) == {"curves", "fractions", "prices", "jobs"}
    assert "virtual capacity" in Path(content["report"]).read_text(encoding="utf-8")
    answer = noonward(*command)
    assert answer.code == 0
    for word in ("planned_cost_usd", "curves.parquet", "plan.html"):
        assert word in answer.out
