"""Plans that keep their promise: needs, first margins, daily corrections, predictors, days left out."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.schedule.plan import LoadClass, Planner, PlanProblem, Queued, make_plan
from noonward.schedule.plan.predict import day_ahead_forecasts, samples_of, usable_days
from noonward.schedule.plan.promise import (
    FIRST_STEP,
    STEP,
    PromisePlanner,
    first_margin,
    need_of,
    plan_with_margin,
)


def one_place(load_N, capacity=10.0):
    """One class, one hour, one cluster: the plan's curve is the CVaR of the samples."""
    return PlanProblem(
        classes=(LoadClass(name="a", clusters=(0,), flexibility_h=0),),
        load_NKC=np.asarray(load_N, dtype=float).reshape(-1, 1, 1),
        capacity_TD=np.array([[capacity]]),
        cost_TD=np.ones((1, 1)),
        peak_cost_D=np.zeros(1),
        eps=0.0,
    )


def two_hours(days, rng):
    load_NKC = rng.uniform(0.5, 1.0, (days, 2, 2))
    return PlanProblem(
        classes=(
            LoadClass(name="a", clusters=(0,), flexibility_h=1),
            LoadClass(name="b", clusters=(0, 1), flexibility_h=1),
        ),
        load_NKC=load_NKC,
        capacity_TD=np.full((3, 2), 9.0),
        cost_TD=rng.uniform(0.5, 1.5, (3, 2)),
        peak_cost_D=np.full(2, 0.1),
        eps=0.0,
    )


def test_a_need_is_the_margin_with_which_a_day_just_fits():
    """Samples 1 and 2 with beta 0.2: the curve is 2 (1 + margin). A load of 3 needs 50 %."""
    plan, used = plan_with_margin(one_place([1, 2]), 0.1)
    assert used == 0.1
    assert plan.curve_TD[0, 0] == pytest.approx(2.2)
    assert need_of(plan, np.array([[3.0]]), 0.1) == pytest.approx(0.5)
    assert need_of(plan, np.array([[2.2]]), 0.1) == pytest.approx(0.1)


def test_known_load_is_taken_off_the_curve_before_a_need():
    problem = replace(one_place([1, 2]), queued=(Queued(load_class=0, load=4.0, flexibility_h=0),))
    plan, _ = plan_with_margin(problem, 0.1)
    assert plan.curve_TD[0, 0] == pytest.approx(6.2)
    assert need_of(plan, np.array([[3.0]]), 0.1) == pytest.approx(0.5)


def test_a_margin_that_does_not_fit_is_the_largest_that_does():
    plan, used = plan_with_margin(one_place([1, 2], capacity=2.5), 0.8)
    assert used == pytest.approx(0.25, abs=1e-5)
    assert plan.curve_TD[0, 0] == pytest.approx(2.5, rel=1e-5)
    with pytest.raises(InfeasiblePlanError, match="multiply all capacities"):
        plan_with_margin(one_place([1, 2], capacity=1.5), 0.8)
    with pytest.raises(ScenarioError, match="must be above -1"):
        plan_with_margin(one_place([1, 2]), -1.0)


def test_the_first_margin_is_a_rank_of_needs_of_held_out_days():
    """Days 1..5 held out one by one: the curve of the others is 1.15 x their largest, so day 5 needs 5 / 4 - 1."""
    found = first_margin(one_place([1, 2, 3, 4, 5]), 0.8, start=0.15, blocks=5)
    assert found == pytest.approx(5 / 4 - 1)
    # ceil(0.5 x 6) = 3rd smallest of 1/5 - 1, 2/5 - 1, 3/5 - 1, 4/5 - 1, 5/4 - 1
    assert first_margin(one_place([1, 2, 3, 4, 5]), 0.5, blocks=5) == pytest.approx(3 / 5 - 1)
    with pytest.raises(ScenarioError, match="at least 2 past days"):
        first_margin(one_place([1]), 0.8)


def test_a_day_that_fits_lowers_the_margin_and_a_miss_raises_it():
    past_NKC = np.array([1.0, 1.1, 0.9, 1.0, 1.05]).reshape(-1, 1, 1)
    planner = PromisePlanner(0.8, predictors=("days",))
    planner.plan(one_place([1]), past_NKC)
    before = planner.chosen.margin
    planner.finish(np.array([[0.5]]))
    assert planner.chosen.margin == pytest.approx(before - FIRST_STEP * 0.2)
    planner.plan(one_place([1]), past_NKC)
    before = planner.chosen.margin
    planner.finish(np.array([[5.0]]))
    assert planner.chosen.margin == pytest.approx(before + FIRST_STEP / math.sqrt(2) * 0.8)
    assert planner.chosen.misses == 1


def test_steps_fall_to_their_last_size():
    past_NKC = np.array([1.0, 1.1, 0.9, 1.0, 1.05]).reshape(-1, 1, 1)
    planner = PromisePlanner(0.8, predictors=("days",))
    for _ in range(20):
        planner.plan(one_place([1]), past_NKC)
        planner.finish(np.array([[5.0 if planner.chosen.margin < 0 else 0.1]]))
    planner.plan(one_place([1]), past_NKC)
    before = planner.chosen.margin
    planner.finish(np.array([[0.01]]))
    assert planner.chosen.margin == pytest.approx(before - STEP * 0.2)


def test_a_margin_that_the_machines_limit_is_not_raised_further():
    planner = PromisePlanner(0.8, predictors=("days",))
    past_NKC = np.array([1.0, 2.0, 2.0, 2.0, 1.5, 2.0]).reshape(-1, 1, 1)
    planner.plan(one_place([1], capacity=2.0), past_NKC)
    planner.chosen.margin = 0.5
    planner.plan(one_place([1], capacity=2.0), past_NKC)
    assert planner.chosen.used == pytest.approx(0.0, abs=1e-5)
    assert planner.chosen.limited
    planner.finish(np.array([[3.0]]))
    assert planner.chosen.margin == 0.5


@given(seed=st.integers(0, 10_000), promise=st.sampled_from([0.6, 0.8, 0.9]), shift=st.floats(0.7, 1.4))
@settings(max_examples=15, deadline=None)
def test_with_a_constant_step_the_share_that_held_is_within_its_bound_whatever_the_days_are(seed, promise, shift):
    """|held - promise| <= |margin_T - margin_1| / (step T), for days from another distribution than the past."""
    rng = np.random.default_rng(seed)
    load_N = np.concatenate([rng.uniform(0.5, 1.0, 12), shift * rng.uniform(0.5, 1.0, 60)])
    planner = PromisePlanner(promise, step=FIRST_STEP, predictors=("days",))
    first, held = None, []
    for day in range(12, len(load_N)):
        plan = planner.plan(one_place([1]), load_N[:day].reshape(-1, 1, 1))
        first = planner.chosen.margin if first is None else first
        held.append(plan.excess(np.array([[load_N[day]]])) <= 1e-9)
        planner.finish(np.array([[load_N[day]]]))
    bound = abs(planner.chosen.margin - first) / (FIRST_STEP * len(held))
    assert abs(np.mean(held) - promise) <= bound + 1e-9


@pytest.mark.parametrize("promise", [0.6, 0.8, 0.9])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_days_followed_keep_that_bound_though_the_predictor_changes(seed, promise):
    """The week's pattern comes and goes, so now one predictor is followed and now the other."""
    rng = np.random.default_rng(seed)
    week_N = np.where(np.arange(90) % 7 >= 5, 0.6, 1.0)
    load_N = np.where(np.arange(90) % 40 < 24, week_N, 0.9) * rng.uniform(0.7, 1.0, 90)
    planner = PromisePlanner(promise, samples=14, step=FIRST_STEP)
    first, held, followed = [], [], []
    for day in range(16, len(load_N)):
        plan = planner.plan(one_place([1]), load_N[:day].reshape(-1, 1, 1))
        first = first or [track.margin for track in planner.tracks]
        held.append(plan.excess(np.array([[load_N[day]]])) <= 1e-9)
        followed.append(planner.chosen.predictor)
        planner.finish(np.array([[load_N[day]]]))
    corrected = [track.margin - margin for track, margin in zip(planner.tracks, first, strict=True)]
    assert corrected[0] == pytest.approx(corrected[1])
    assert abs(np.mean(held) - promise) <= abs(corrected[0]) / (FIRST_STEP * len(held)) + 1e-9
    assert set(followed) == {"days", "forecast"}


def test_one_absurd_day_does_not_move_the_plan():
    rng = np.random.default_rng(3)
    problem = two_hours(20, rng)
    absurd_NKC = np.concatenate([problem.load_NKC[:10], 50 * problem.load_NKC[:1], problem.load_NKC[10:]])
    missing_NKC = np.concatenate([problem.load_NKC[:10], np.full((1, 2, 2), np.nan), problem.load_NKC[10:]])
    plans = []
    for past_NKC in (problem.load_NKC, absurd_NKC, missing_NKC):
        planner = PromisePlanner(predictors=("days",))
        plans.append(planner.plan(problem, past_NKC))
        assert planner.left_out == len(past_NKC) - 20
    for other in plans[1:]:
        assert np.array_equal(other.curve_TD, plans[0].curve_TD)


def test_ordinary_days_are_all_used_and_an_outage_is_not():
    rng = np.random.default_rng(0)
    load_NKC = rng.lognormal(0.0, 0.4, (100, 24, 3))
    assert usable_days(load_NKC).all()
    load_NKC[7, :, 1] = 0.0
    load_NKC[8, 3, 2] = 1e4  # a spike of an hour
    load_NKC[9, 0, 0] = -1.0
    assert np.flatnonzero(~usable_days(load_NKC)).tolist() == [7, 8, 9]
    with pytest.raises(ScenarioError, match="none of 2 past days"):
        samples_of("days", np.full((2, 2, 1), np.nan), np.zeros(2, dtype=bool), 60)


def test_a_forecast_follows_the_weekday_and_never_its_own_day():
    level_N = np.where(np.arange(70) % 7 >= 5, 0.5, 1.0)
    load_NKC = level_N[:, None, None] * np.array([1.0, 2.0])[None, :, None]
    usable_N = np.ones(70, dtype=bool)
    forecast_NKC = day_ahead_forecasts(load_NKC, usable_N)
    assert forecast_NKC.shape == (71, 2, 1)
    error = np.abs(forecast_NKC[35:-1] / load_NKC[35:] - 1).max()
    mean_error = np.abs(load_NKC.mean(axis=0) / load_NKC[35:] - 1).max()
    assert error < 0.1 < mean_error
    changed = load_NKC.copy()
    changed[40:] *= 3.0
    assert np.array_equal(day_ahead_forecasts(changed, usable_N)[:41], forecast_NKC[:41], equal_nan=True)


def test_where_the_week_has_a_pattern_the_forecast_is_followed():
    """Days alternate between low and high: past days alone must reserve for the high ones every day."""
    rng = np.random.default_rng(1)
    level_N = np.where(np.arange(60) % 7 >= 4, 0.4, 1.0)
    load_NKC = (level_N[:, None, None] * rng.uniform(0.95, 1.05, (60, 2, 2))).astype(float)
    problem = two_hours(4, rng)
    planner = PromisePlanner()
    for day in range(35, 60):
        planner.plan(problem, load_NKC[:day])
        planner.finish(load_NKC[day])
    assert planner.chosen.predictor == "forecast"


def test_state_restores_margins_and_records():
    rng = np.random.default_rng(2)
    problem = two_hours(4, rng)
    load_NKC = rng.uniform(0.5, 1.0, (30, 2, 2))
    one, other = PromisePlanner(), PromisePlanner()
    for day in range(20, 25):
        one.plan(problem, load_NKC[:day])
        one.finish(load_NKC[day])
    other.load_state(one.state())
    for day in range(25, 28):
        here, there = one.plan(problem, load_NKC[:day]), other.plan(problem, load_NKC[:day])
        assert np.array_equal(here.curve_TD, there.curve_TD)
        one.finish(load_NKC[day])
        other.finish(load_NKC[day])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"promise": 1.0}, "promise is 1.0"),
        ({"promise": float("nan")}, "promise is nan"),
        ({"samples": 1}, "give at least 2"),
        ({"step": -0.1}, "the step is -0.1"),
        ({"predictors": ("oracle",)}, "predictors are"),
        ({"predictors": ()}, "predictors are"),
    ],
)
def test_values_out_of_range_are_refused(arguments, match):
    with pytest.raises(ScenarioError, match=match):
        PromisePlanner(**arguments)
    with pytest.raises(ScenarioError, match="call plan before finish"):
        PromisePlanner().finish(np.zeros((1, 1)))


def test_a_planner_knows_samples_again_when_a_day_leaves_and_another_comes():
    """The rows of days that stay are kept, whatever factor they have; the optimum is that of a new planner."""
    rng = np.random.default_rng(4)
    load_NKC = rng.uniform(0.5, 1.0, (30, 6, 3))
    classes = tuple(LoadClass(name=str(c), clusters=(c, (c + 1) % 3), flexibility_h=4) for c in range(3))
    cost_TD = rng.uniform(0.5, 1.5, (10, 3))

    def problem(first, factor):
        return PlanProblem(
            classes=classes, load_NKC=factor * load_NKC[first : first + 25], capacity_TD=np.full((10, 3), 9.0),
            cost_TD=cost_TD, peak_cost_D=np.full(3, 0.2), eps=0.0,
        )  # fmt: skip

    planner = Planner()
    planner.plan(problem(0, 1.0))
    rows = {(planner._samples[n], int(place)) for n, place in planner.active.fit_RX.T}
    moved = planner._start((*planner._samples[1:], "new"))
    assert {(planner._samples[n + 1], int(place)) for n, place in moved.fit_RX.T} == {
        row for row in rows if row[0] != planner._samples[0]
    }
    warm, cold = planner.plan(problem(1, 1.2)), make_plan(problem(1, 1.2))
    assert warm.objective == pytest.approx(cold.objective, rel=1e-9)
    assert warm.certificate.gap < 1e-8


def test_a_planner_knows_samples_again_by_the_names_they_are_given():
    """All samples change; the rows of the days behind them are kept at their new places."""
    rng = np.random.default_rng(5)
    problem = two_hours(6, rng)
    planner = Planner()
    planner.plan(problem, list("abcdef"))
    rows = {("abcdef"[n], int(place)) for n, place in planner.active.fit_RX.T}
    moved = planner._start(tuple("bcdefg"))
    assert {("bcdefg"[n], int(place)) for n, place in moved.fit_RX.T} == {row for row in rows if row[0] != "a"}
    other = replace(problem, load_NKC=problem.load_NKC[::-1] + 0.1, load_max_KC=None)
    warm, cold = planner.plan(other, list("bcdefg")), make_plan(other)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-9)
    with pytest.raises(ScenarioError, match="5 names were given for 6 samples"):
        planner.plan(problem, list("abcde"))


def test_samples_say_which_day_each_is_made_from():
    load_NKC = np.random.default_rng(6).uniform(0.5, 1.0, (14, 2, 1))
    usable_N = np.ones(14, dtype=bool)
    usable_N[12] = False
    for predictor in ("days", "forecast"):
        made_NKC, day_N = samples_of(predictor, load_NKC, usable_N, 5)
        assert day_N.tolist() == [8, 9, 10, 11, 13]
        assert len(made_NKC) == 5
