"""Load shapes and the experiment on them, small."""

from contextlib import closing

import numpy as np
import polars as pl
import pytest

from noonward.data.jobs.load_shapes import (
    daily_costs,
    draw_days,
    generate_load_shapes,
    load_shape_constants,
    read_load_profiles,
)
from noonward.errors import DataError
from noonward.evaluate.report.plan_figure import plan_figure
from noonward.notices import listening
from noonward.runtime.processes import Processes
from noonward.schedule.plan import make_plan
from noonward.studies.load_shaping.figures import load_shaping_figures
from noonward.studies.load_shaping.promises import chance_range, promise_runs, reproduce_promises
from noonward.studies.load_shaping.report import promise_table, write_promises
from noonward.studies.load_shaping.reproduce import DrawRun, job_load, paper_problem, reproduce_load_shaping
from noonward.studies.load_shaping.rolling import RollingRun, days_in_order, drifting_days


@pytest.fixture(scope="module")
def told():
    """What the draws of ``small`` tell."""
    return []


@pytest.fixture(scope="module")
def small(told):
    """Two draws, the second in a process of its own."""
    with (
        closing(Processes(2, patience_s=0.0, start_s=0.0)) as executor,
        listening(lambda kind, about: told.append(about)),
    ):
        return reproduce_load_shaping(draws=2, seed=3, training=2, validation=1, executor=executor)


def test_draws_in_processes_are_those_of_one_process(small, told):
    """Pooled in order, with the plans of the first draw; each draw has a stream of its own."""
    assert {"draw 0, plan with eps 0.008", "draw 1, plan with eps 0.008"} <= set(told)
    here = DrawRun(1, 3, None, (), 2, 1).run()
    assert [len(set(values)) for values in small.cost.values()] == [2] * len(small.cost)
    for pooled, own in ((small.cost, here.cost), (small.violations, here.violations), (small.excess, here.excess)):
        assert {name: values[1:] for name, values in pooled.items()} == own
    assert (small.tail[1:], small.planned[1:], small.late[1:]) == (here.tail, here.planned, here.late)
    assert np.array_equal(make_plan(paper_problem(small.training_NKC)).curve_TD, small.plans["eps 0.008"].curve_TD)


def profile_frame(days=10):
    rng = np.random.default_rng(0)
    rows = [("a", "one", day, hour, rng.uniform(0.5, 1.0)) for day in range(days) for hour in range(24)]
    return pl.DataFrame(rows, schema=["source", "cluster", "day", "hour", "load_normalised"], orient="row")


def test_generated_loads_have_the_stated_level_swing_and_noise():
    c = load_shape_constants()
    load = generate_load_shapes(4000, 2, np.random.default_rng(0))
    assert load.mean() == pytest.approx(c.class_level, rel=0.01)
    hourly = load.mean(axis=(0, 2))
    assert hourly.argmax() == c.peak_hour
    assert hourly.max() / hourly.min() == pytest.approx((1 + c.daily_amplitude) / (1 - c.daily_amplitude), rel=0.01)
    relative = load / load.mean(axis=0)
    total = c.noise_day_common**2 + c.noise_day_class**2 + c.noise_hour**2
    assert relative.var() == pytest.approx(total, rel=0.05)
    between = np.cov(relative[:, 3, 0], relative[:, 3, 1])[0, 1]
    assert between == pytest.approx(c.noise_day_common**2, rel=0.2)


def test_same_seed_same_days():
    one, two = (generate_load_shapes(3, 7, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(one, two)


def test_costs_peak_at_shifted_hours():
    cost = daily_costs(24)
    assert cost.argmax(axis=0).tolist() == [0, 2, 11, 13]
    assert cost.mean() == pytest.approx(1.0)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_profiles_are_read_from_a_file(tmp_path, suffix):
    frame = profile_frame().sample(fraction=1.0, shuffle=True, seed=1)
    path = tmp_path / f"profiles.{suffix}"
    frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    profiles = read_load_profiles(path)
    assert len(profiles) == 10
    assert profiles.load_PK[3].tolist() == pytest.approx(
        frame.filter(pl.col("day") == 3).sort("hour")["load_normalised"].to_list()
    )
    with pytest.raises(DataError, match="no load profile of source 'b'"):
        profiles.of_sources(["b"])


def test_a_profile_with_a_missing_hour_or_a_negative_load_is_refused(tmp_path):
    path = tmp_path / "profiles.csv"
    profile_frame().filter((pl.col("day") != 2) | (pl.col("hour") != 7)).write_csv(path)
    with pytest.raises(DataError, match="day 2 has 23 rows"):
        read_load_profiles(path)
    profile_frame().with_columns(-pl.col("load_normalised")).write_csv(path)
    with pytest.raises(DataError, match="give a load of at least 0"):
        read_load_profiles(path)


def test_training_and_validation_days_share_no_profile(tmp_path):
    path = tmp_path / "profiles.parquet"
    profile_frame(50).write_parquet(path)
    profiles = read_load_profiles(path)
    train, held = draw_days(profiles, 20, 5, 3, np.random.default_rng(0), 0.32)
    assert train.shape == (20, 24, 3)
    assert held.shape == (5, 24, 3)
    seen = {day[:, c].tobytes() for day in train for c in range(3)}
    assert not seen & {day[:, c].tobytes() for day in held for c in range(3)}
    assert len({day[:, 0].tobytes() for day in train}) == 20
    with pytest.raises(DataError, match="50 load profiles are too few for 60"):
        draw_days(profiles, 60, 15, 3, np.random.default_rng(0), 0.32)


def test_the_experiment_orders_the_policies_as_the_paper_does(small):
    metrics = {metric.name: metric for metric in small.metrics()}
    cost = {name: metrics[f"cost_above_perfect_forecast/{name}"].value for name in ("dro-0.008", "dro-0.05", "greedy")}
    assert 0 < cost["dro-0.008"] < cost["dro-0.05"] < cost["greedy"]
    assert metrics["cost_above_perfect_forecast/greedy"].reference == 0.1405
    assert metrics["cost_spread/greedy"].value == pytest.approx(np.std(small.cost["greedy"], ddof=1))
    assert 0 <= metrics["guarantee_held_share"].value <= 1
    assert [f"violations_per_day/beta-{b}" in metrics for b in ("0.02", "0.1", "0.5")] == [True] * 3
    assert metrics["violations_per_day/beta-0.02"].value <= metrics["violations_per_day/beta-0.5"].value
    assert metrics["largest_excess/eps-0.05"].value <= metrics["largest_excess/eps-0"].value


def test_discrete_jobs_place_all_of_the_load(small):
    plan = small.plans["eps 0.008"]
    day = small.validation_NKC[0]
    load = job_load(plan, day, np.random.default_rng(0))
    assert load.sum() == pytest.approx(day.sum())
    assert np.abs(load - plan.fractions.load(day)).max() < 0.1


def test_every_figure_is_drawn(small):
    figures = load_shaping_figures(small)
    assert [p.name for p in figures] == [
        "load-days", "plan-and-greedy", "fractions", "fractions-heat", "violations", "radius-trade-off", "queue",
    ]  # fmt: skip
    for figure in [*figures, plan_figure(small.plans["eps 0"])]:
        assert len(figure.plot.data) > 0
        assert figure.caption


def test_the_paper_setting_has_its_seven_classes():
    problem = paper_problem(generate_load_shapes(2, 7, np.random.default_rng(0)))
    assert problem.shape == (2, 24, 7, 34, 4)
    assert [one.clusters for one in problem.classes] == [(0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 1, 2, 3)]
    assert make_plan(problem).certificate.rows_whole == 2 * 34 * 4


ROLLING = {"sources": ("drifting",), "promises": (0.8,), "seed": 3, "days": 2, "samples": 5}


@pytest.fixture(scope="module")
def rolled():
    """Rolling days under each kind of plan."""
    return reproduce_promises(promise_runs(**ROLLING))


def test_rolling_days_are_planned_from_the_days_before_them(rolled, tmp_path):
    """Every plan of a run is measured on the same days."""
    runs, found = promise_runs(**ROLLING), rolled
    assert [run.label for run in runs] == [
        "drifting, run 0, promise 0.8", "drifting, run 0, one day 0.8", "drifting, run 0, eps 0.05"
    ]  # fmt: skip
    assert found.sources == ["drifting"]
    assert found.plans == ["promise-0.8", "one-day-0.8", "eps-0.05"]
    assert all(len(days.held) == 2 and days.failed == 0 for days in found.found.values())
    names = {metric.name: metric for metric in found.metrics()}
    assert names["promise/0.8/held_share@drifting"].reference == 0.8
    assert names["eps-0.05/reserve_above_perfect@drifting"].value > 0
    assert len(promise_table(found).rows) == len(found.found)
    page = write_promises(found, tmp_path / "promises.html", seed=3, command="noonward").read_text()
    assert "Do day-ahead plans keep their promise?" in page
    with pytest.raises(DataError, match="there is no source 'mars'; there are generated, drifting"):
        promise_runs(sources=("mars",))


def test_rolling_runs_are_read_back_as_long_as_what_they_rest_on_is_the_same(rolled, tmp_path, monkeypatch):
    """Each run has a file of its own, written as soon as it is done; one that was cut short is computed again.

    Two runs of one spec are equal.
    """
    asked = {**ROLLING, "folder": tmp_path}
    runs = promise_runs(**asked)
    found = reproduce_promises(runs[:1])
    assert found.found["drifting", "promise-0.8"] == rolled.found["drifting", "promise-0.8"]
    assert runs[0].place == tmp_path / "drifting" / "run-0-promise-0.8.json"
    assert runs[0].place.is_file()
    assert not runs[1].place.exists()

    computed = []
    monkeypatch.setattr(RollingRun, "_load", lambda self: computed.append(self.method) or pytest.fail("computed"))
    again = reproduce_promises(promise_runs(**asked)[:1])
    assert again.found == found.found
    for changed in ({"seed": 1}, {"days": 3}, {"samples": 6}):
        with pytest.raises(pytest.fail.Exception, match="computed"):
            reproduce_promises(promise_runs(**{**asked, **changed})[:1])
    runs[0].place.write_text(runs[0].place.read_text()[:-20])
    with pytest.raises(pytest.fail.Exception, match="computed"):
        reproduce_promises(runs[:1])
    assert computed == ["promise-0.8"] * 4


def test_the_range_by_chance_holds_95_percent_of_cases():
    assert chance_range(1, 0.8) == (0.0, 1.0)
    assert chance_range(2, 0.5) == (0.0, 1.0)
    drawn = np.random.default_rng(0).binomial(100, 0.8, 20_000) / 100
    low, high = chance_range(100, 0.8)
    assert 0.95 <= ((drawn >= low) & (drawn <= high)).mean() <= 0.98
    assert (drawn < low).mean() < 0.025
    assert (drawn > high).mean() < 0.025


def test_days_of_a_source_keep_their_order(tmp_path):
    """Two clusters for three classes: the third has the first cluster's days, half of them further on."""
    rows = [
        ("a", name, day, hour, 1.0 + 10 * day + c)
        for c, name in enumerate("xy")
        for day in range(4)
        for hour in range(24)
    ]
    file = tmp_path / "p.csv"
    pl.DataFrame(rows, schema=["source", "cluster", "day", "hour", "load_normalised"], orient="row").write_csv(file)
    pool = read_load_profiles(file)
    load = days_in_order(pool, "a", 3, level=1.0)
    level = load[:, 0] / load[0, 0, 0]
    assert level.tolist() == [pytest.approx(row) for row in ([1, 2, 21], [11, 12, 31], [21, 22, 1], [31, 32, 11])]
    assert load.mean() == pytest.approx(1.0)
    turned = days_in_order(pool, "a", 3, 1.0, turn=1)
    assert (turned[:, 0, :2] / turned[0, 0, 1])[0].tolist() == pytest.approx([2.0, 1.0])


def test_days_of_one_cluster_are_cut_for_each_class(tmp_path):
    rows = [("a", "x", day, hour, 1.0 + day) for day in range(12) for hour in range(24)]
    file = tmp_path / "p.csv"
    pl.DataFrame(rows, schema=["source", "cluster", "day", "hour", "load_normalised"], orient="row").write_csv(file)
    load = days_in_order(read_load_profiles(file), "a", 2, level=1.0)
    level = load[:, 0] / load[0, 0, 0]
    assert level[:, 0].tolist() == pytest.approx(list(range(1, 11)))
    assert level[:, 1].tolist() == pytest.approx(list(range(3, 13)))


def test_drifting_days_have_weekends_and_a_level_of_one():
    load = drifting_days(700, 2, np.random.default_rng(0))
    level = load.mean(axis=(1, 2))
    weekend = level.reshape(100, 7)[:, 5:].mean() / level.reshape(100, 7)[:, :5].mean()
    assert weekend == pytest.approx(0.8, abs=0.02)
    assert level.mean() == pytest.approx(load_shape_constants().class_level, rel=0.02)
    assert level[350:].mean() > 1.3 * level[:350].mean()
