"""Environments: draws that are the same for every policy, of generated and of real signals, jobs, traces and tables."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from noonward.data.environments import HISTORY_H, build_environment
from noonward.data.scenarios.load import load_scenario, with_files
from noonward.data.signals.generate import generate_signals
from noonward.engine.run import run
from noonward.errors import ScenarioError, SignalRangeError
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import settle
from noonward.runtime.by_kind import build_environments
from noonward.schedule.cluster.booking import Booked
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
FIRST = datetime(2022, 1, 1, tzinfo=UTC)
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the project's real data are not at {SHARED}")


def bytes_of(environment):
    """Jobs, signals and start of an environment."""
    jobs, signals = environment.jobs, environment.signals
    parts = [getattr(jobs, field.name).tobytes() for field in fields(jobs)]
    if signals is not None:
        parts += [signals.price_usd_per_mwh_ZH.tobytes(), signals.carbon_g_per_kwh_ZH.tobytes()]
    return environment.start, *parts


def tiny(*settings):
    return load_scenario("tiny", settings)


@pytest.fixture(scope="module")
def year():
    """A year of signals of tiny's zones."""
    return generate_signals(("CA-ON", "SG"), FIRST, 24 * 365, np.random.default_rng(3))


@pytest.fixture
def from_file(tmp_path):
    """Writes signals to a tidy file and returns the scenario tiny with it."""

    def write(signals, *settings):
        hours = [f"{signals.time_of(hour):%Y-%m-%dT%H:%MZ}" for hour in range(signals.hours)]
        columns = {
            "timestamp": hours * len(signals.zones),
            "zone": np.repeat(signals.zones, signals.hours),
            "price_usd_per_mwh": signals.price_usd_per_mwh_ZH.ravel(),
            "carbon_intensity_g_per_kwh": signals.carbon_g_per_kwh_ZH.ravel(),
        }
        path = tmp_path / "signals.csv"
        pl.DataFrame(columns).fill_nan(None).write_csv(path)
        return with_files(tiny(*settings), [path])

    return write


def with_holes(signals, unknown_H, zone=0, name="price_usd_per_mwh"):
    value_ZH = signals.of(name).copy()
    value_ZH[zone, unknown_H] = np.nan
    return replace(signals, value_ZH={**signals.value_ZH, name: value_ZH})


@pytest.mark.parametrize("name", ["tiny", "fine-tuning", "dvfs-training"])
def test_the_same_index_and_seed_give_the_same_environment(name):
    scenario = load_scenario(name, ["window_h=4"])
    assert bytes_of(build_environment(scenario, 1, 5)) == bytes_of(build_environment(scenario, 1, 5))


@pytest.mark.parametrize("name", ["tiny", "fine-tuning", "dvfs-training"])
def test_another_index_or_seed_gives_another_environment(name):
    scenario = load_scenario(name, ["window_h=4"])
    draws = [build_environment(scenario, *key) for key in ((0, 0), (1, 0), (0, 1), (1, 1))]
    assert len({draw.jobs.arrival_s_J.tobytes() for draw in draws}) == 4
    assert [(draw.index, draw.seed) for draw in draws] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    if name != "dvfs-training":
        assert len({draw.signals.price_usd_per_mwh_ZH.tobytes() for draw in draws}) == 4


@pytest.mark.parametrize("seed", range(5))
def test_ten_environments_see_ten_different_months(seed):
    starts = [environment.start for environment in build_environments(tiny(), 10, seed)]
    assert len({start.month for start in starts}) == 10
    assert all(start.hour == 0 and start.year == 2022 for start in starts)


def test_months_come_round_in_another_order():
    scenario = tiny("signals.months=[3, 6, 9]")
    months = [environment.start.month for environment in build_environments(scenario, 12)]
    rounds = [tuple(months[i : i + 3]) for i in range(0, 12, 3)]
    assert all(sorted(one) == [3, 6, 9] for one in rounds)
    assert len(set(rounds)) > 1


def test_days_are_spread_over_the_month():
    scenario = tiny("signals.months=[2]", "signals.year=2024")
    days = {environment.start.day for environment in build_environments(scenario, 200)}
    assert days == set(range(1, 30))


def test_two_draws_of_one_day_see_other_weather():
    scenario, by_day = tiny("signals.months=[2]", "window_h=1"), {}
    for environment in build_environments(scenario, 30):
        price_H = environment.signals.price_usd_per_mwh_ZH[0, :HISTORY_H]
        by_day.setdefault(environment.start, []).append(price_H.tobytes())
    shared = [prices for prices in by_day.values() if len(prices) > 1]
    assert shared
    assert all(len(set(prices)) == len(prices) for prices in shared)


def test_generated_signals_hold_history_and_every_hour_a_run_may_touch():
    environment = build_environment(tiny())
    signals = environment.signals
    assert signals.start == environment.start - timedelta(hours=HISTORY_H)
    assert signals.hours == HISTORY_H + environment.hours
    assert signals.zones == ("CA-ON", "SG")
    assert np.isfinite(signals.price_usd_per_mwh_ZH).all()


def test_a_policys_seed_changes_nothing_of_the_world():
    environment = build_environment(tiny())
    before = bytes_of(environment)
    outcomes = [run(environment, make_scheduler("random"), seed=seed) for seed in (1, 2)]
    assert outcomes[0].job_J.tobytes() != outcomes[1].job_J.tobytes()
    assert bytes_of(environment) == before


def test_the_number_of_jobs_leaves_the_signals_alone_over_the_hours_both_have():
    one, two = (build_environment(tiny(f"jobs.count={count}")) for count in (30, 60))
    assert one.start == two.start
    hours = min(one.signals.hours, two.signals.hours)
    for name in ("price_usd_per_mwh", "carbon_g_per_kwh"):
        np.testing.assert_allclose(one.signals.of(name)[:, :hours], two.signals.of(name)[:, :hours])


def test_the_scenarios_parts_reach_the_environment():
    environment = build_environment(tiny("window_h=5", "end=window", "slot_s=300"))
    assert (environment.window_s, environment.slot_s, environment.drained) == (5 * 3600.0, 300.0, False)
    assert environment.hours == 5
    assert (environment.jobs.arrival_s_J < 5 * 3600).all()
    assert environment.economics == tiny().economics
    assert environment.sites == ("north", "south")


def test_without_signals_an_environment_starts_on_a_monday():
    environment = build_environment(load_scenario("dvfs-training", ["window_h=1"]))
    assert environment.signals is None
    assert environment.start.weekday() == 0
    assert environment.notes == ()


@pytest.mark.parametrize(("index", "seed"), [(-1, 0), (0, -1)])
def test_a_negative_index_or_seed_is_refused(index, seed):
    with pytest.raises(ScenarioError, match=f"environment {index} with seed {seed}: both must be at least 0"):
        build_environment(tiny(), index, seed)


def test_no_environment_is_refused():
    with pytest.raises(ScenarioError, match="0 environments were asked for"):
        list(build_environments(tiny(), 0))


def test_jobs_that_wait_for_ever_are_refused_where_a_run_must_drain():
    settings = ["end=drained", "window_h=1", "signals={source: generated}"]
    with pytest.raises(ScenarioError, match="infinite slack"):
        build_environment(load_scenario("dvfs-training", settings))


# ---------------------------------------------------------------- jobs to plan with


def test_planners_may_sample_jobs_but_never_the_environments_own():
    environment = build_environment(tiny())
    drawn = environment.sample_jobs(np.random.default_rng(0))
    again = environment.sample_jobs(np.random.default_rng(0))
    assert drawn.work_J.tobytes() == again.work_J.tobytes()
    assert drawn.work_J.tobytes() != environment.jobs.work_J.tobytes()
    assert abs(len(drawn) - 30) < 25
    poisson = build_environment(load_scenario("dvfs-training", ["window_h=1"]))
    assert len(poisson.sample_jobs(np.random.default_rng(0))) > 100


# ---------------------------------------------------------------- signal files


def test_windows_of_files_are_drawn_by_index_and_seed(from_file, year):
    scenario = from_file(year)
    starts = [[build_environment(scenario, index, seed).start for index in range(6)] for seed in (0, 1, 0)]
    assert starts[0] == starts[2]
    assert starts[0] != starts[1]


def test_windows_lie_inside_the_files_with_a_day_of_history(from_file, year):
    scenario = from_file(year)
    environments = list(build_environments(scenario, 10))
    assert len({environment.start.month for environment in environments}) == 10
    for environment in environments:
        assert environment.signals.hour_of(environment.start) >= 24
        assert environment.signals.hour_of(environment.start) + environment.hours <= year.hours
        assert environment.start.hour == 0
        window = environment.signals.window(environment.start, environment.hours)
        first = year.hour_of(environment.start)
        np.testing.assert_allclose(window.price_usd_per_mwh_ZH[0], year.price_usd_per_mwh_ZH[0, first:][: window.hours])


@pytest.mark.parametrize(("start_h", "days"), [(0, {2, 3, 4, 5}), (1, {3, 4, 5}), (23, {3, 4, 5, 6})])
def test_every_draw_of_a_short_file_finds_a_window(from_file, year, start_h, days):
    """Six days from an hour of 1 January on: 24 h before a window and its 40 h lie inside, for the last too."""
    short = year.window(FIRST + timedelta(hours=start_h), 6 * 24)
    scenario = from_file(short, "window_h=40", "end=window")
    assert {build_environment(scenario, index).start.day for index in range(40)} == days


def test_days_and_months_asked_for_are_kept(from_file, year):
    scenario = from_file(year)

    def starts(**changes):
        signals = scenario.signals.model_copy(update=changes)
        changed = scenario.model_copy(update={"signals": signals})
        return [build_environment(changed, index).start for index in range(12)]

    assert {start.month for start in starts(months=(4, 5))} == {4, 5}
    bounds = {"first_day": datetime(2022, 7, 10).date(), "last_day": datetime(2022, 7, 12).date()}
    assert {start.day for start in starts(**bounds)} == {10, 11, 12}
    assert {start.month for start in starts(**bounds)} == {7}


@pytest.mark.parametrize("window_h", [1, 12, 24, 25, 48])
def test_windows_reach_into_the_last_day_but_not_beyond(from_file, year, window_h):
    day = datetime(2022, 7, 10).date()
    scenario = from_file(year, f"window_h={window_h}", "end=window")

    def start(days):
        signals = scenario.signals.model_copy(update={"first_day": day, "last_day": day + timedelta(days=days)})
        return build_environment(scenario.model_copy(update={"signals": signals})).start

    assert start((window_h - 1) // 24).date() == day
    if window_h > 24:
        with pytest.raises(SignalRangeError, match=f"no window of {window_h} hours .* widen first_day, last_day"):
            start((window_h - 1) // 24 - 1)


def test_runs_until_drained_may_end_after_the_last_day(from_file, year):
    day = datetime(2022, 7, 10).date()
    scenario = from_file(year, "window_h=24", "end=drained")
    signals = scenario.signals.model_copy(update={"first_day": day, "last_day": day})
    environment = build_environment(scenario.model_copy(update={"signals": signals}))
    assert environment.start.date() == day
    assert environment.hours > 24


@pytest.mark.parametrize(("zone", "name"), [(0, "price_usd_per_mwh"), (1, "carbon_g_per_kwh")])
def test_only_windows_whose_hours_are_all_known_are_taken(from_file, year, zone, name):
    unknown_H = np.ones(year.hours, dtype=bool)
    unknown_H[24 * 100 : 24 * 104] = False  # known: 11 to 14 April
    scenario = from_file(with_holes(year, unknown_H, zone, name), "end=window")
    starts = {build_environment(scenario, index).start for index in range(20)}
    assert starts == {datetime(2022, 4, day, tzinfo=UTC) for day in (12, 13, 14)}


def test_where_a_month_has_no_known_window_another_month_stands_in(from_file, year):
    unknown_H = np.zeros(year.hours, dtype=bool)
    unknown_H[: 24 * 181] = True  # until the end of June
    environments = [build_environment(from_file(with_holes(year, unknown_H)), index) for index in range(12)]
    assert {environment.start.month for environment in environments} == {7, 8, 9, 10, 11, 12}


def test_a_window_that_fits_nowhere_is_refused_with_what_would_help(from_file, year):
    short = year.window(FIRST, 40)
    with pytest.raises(SignalRangeError) as refused:
        build_environment(from_file(short))
    message = str(refused.value)
    for part in ("CA-ON, SG", "signals.csv", "12 hours", "2022-01-01 to 2022-01-02", "first_day, last_day or months"):
        assert part in message
    holed = with_holes(year, np.arange(year.hours) % 24 == 7)
    with pytest.raises(SignalRangeError, match="hold no window of 12 hours"):
        build_environment(from_file(holed))


def test_a_file_that_has_changed_is_read_again(from_file, year):
    first = build_environment(from_file(year.window(FIRST, 24 * 30)))
    dearer = replace(year, value_ZH={**year.value_ZH, "price_usd_per_mwh": year.price_usd_per_mwh_ZH + 100})
    scenario = from_file(dearer.window(FIRST, 24 * 30))
    second = build_environment(scenario)
    assert second.start == first.start
    np.testing.assert_allclose(second.signals.price_usd_per_mwh_ZH, first.signals.price_usd_per_mwh_ZH + 100)


def test_history_from_files_serves_persistence_forecasts(from_file, year):
    short = year.window(FIRST, 24 * 3)
    environment = build_environment(from_file(short, "end=window", "window_h=24"))
    assert environment.signals.hour_of(environment.start) >= 24
    assert run(environment, Booked(Forecast("persistence"))).job_J["start_s"].size == len(environment.jobs)


# ---------------------------------------------------------------- traces and tables


def test_gangs_and_durations_may_come_from_a_trace(tmp_path):
    path = tmp_path / "trace.csv"
    rows = np.arange(2000)
    trace = {"submit_time_s": rows * 120.0, "duration_s": 600.0 + 600 * (rows % 2), "num_gpus": 1 + rows % 2}
    pl.DataFrame(trace).write_csv(path)
    environment = build_environment(with_files(tiny(), jobs=path))
    jobs = environment.jobs
    by_gang = {gang: set(jobs.work_J[jobs.gpus_min_J == gang]) for gang in (1, 2)}
    assert set(jobs.gpus_min_J) == {1, 2}
    assert max(by_gang[1]) < min(by_gang[2])  # scaled alike: pairs run twice as long
    sampled = environment.sample_jobs(stream(0, "policy"))
    assert set(sampled.gpus_min_J) == {1, 2, 4} or set(sampled.gpus_min_J) == {
        1,
        2,
        3,
        4,
    }  # from the packaged statistics


def test_a_table_is_every_environments_jobs(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(
        "arrival_s,origin,gpus,duration_s,slack_s\n60,south,2,600,3600\n0,north,1,300,3600\n", encoding="utf-8"
    )
    scenario = with_files(tiny(), jobs=path)
    environments = list(build_environments(scenario, 3))
    for environment in environments:
        assert environment.jobs.arrival_s_J.tolist() == [0.0, 60.0]
        assert environment.jobs.origin_J.tolist() == [0, 1]
        assert environment.jobs.gpus_min_J.tolist() == [1, 2]
        assert environment.sample_jobs is None
    assert len({environment.start for environment in environments}) == 3


@needs_shared
def test_environments_of_real_signals_and_a_real_trace_run():
    signals = [SHARED / "signals.parquet", SHARED / "standin_auwa_price_2022.parquet"]
    scenario = with_files(load_scenario("fine-tuning", ["jobs.count=100"]), signals, SHARED / "jobs_pai.parquet")
    environment = build_environment(scenario)
    assert environment.start.year == 2022  # AU-WA has prices in 2022 only
    window = environment.signals.window(environment.start, environment.hours)
    assert np.isfinite(window.price_usd_per_mwh_ZH).all()
    assert any("AU-WA price" in note and "synthetic" in note for note in environment.notes)
    ledger = settle(run(environment, make_scheduler("local-fcfs")))
    assert ledger.done + ledger.overdue == len(environment.jobs)
    assert np.isfinite(ledger.utility_usd)
