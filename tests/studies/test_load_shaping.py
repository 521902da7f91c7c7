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
from noonward.studies.load_shaping.reproduce import job_load, paper_problem, reproduce_load_shaping


@pytest.fixture(scope="module")
def small():
    return reproduce_load_shaping(draws=1, seed=3, training=8, validation=2)


def test_draws_in_processes_are_those_of_one_process():
    """Pooled in order, with the plans of the first draw; each draw has a stream of its own."""
    with closing(Processes(2, patience_s=0.0, start_s=0.0)) as executor:
        apart = reproduce_load_shaping(draws=2, seed=3, training=4, validation=1, executor=executor)
    told = []
    with listening(lambda kind, about: told.append(about)):
        here = reproduce_load_shaping(draws=2, seed=3, training=4, validation=1)
    assert {"draw 0, plan with eps 0.008", "draw 1, plan with eps 0.008"} <= set(told)
    assert [metric.value for metric in apart.metrics()] == [metric.value for metric in here.metrics()]
    assert apart.excess == here.excess
    assert [len(values) for values in apart.cost.values()] == [2] * len(apart.cost)
    alone = reproduce_load_shaping(draws=1, seed=3, training=4, validation=1)
    assert here.cost["greedy"][:1] == alone.cost["greedy"]
    assert np.array_equal(apart.plans["eps 0.008"].curve_TD, alone.plans["eps 0.008"].curve_TD)


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
