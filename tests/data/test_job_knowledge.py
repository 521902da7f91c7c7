"""What schedulers are told of jobs in place of their run times, from generated jobs and from tables."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, scenario_from, with_settings
from noonward.errors import DataError, ScenarioError
from noonward.ledger.record import environment_digest
from noonward.model.cluster.knowledge import CANCELLED, DONE, FAILED, RUNNING

FIRST = datetime(2022, 10, 3, tzinfo=UTC)
LEARNED = ["jobs.knowledge.run_time=learned"]
LIMITS = ["jobs.knowledge.limit={law: uniform, from: 1, to: 4}"]


def tiny(*settings):
    return load_scenario("tiny", list(settings))


def limits(environment):
    told = environment.knowledge
    return told.traits.limit_J[len(told.past_work_P) :]


def test_run_times_are_told_unless_the_scenario_says_otherwise():
    assert build_environment(tiny()).knowledge is None
    assert tiny().digest == tiny("jobs.knowledge.run_time=known").digest
    assert tiny().digest != tiny(*LEARNED).digest
    assert with_settings(tiny(*LEARNED, *LIMITS), []).digest == tiny(*LEARNED, *LIMITS).digest


def test_the_jobs_stay_those_of_the_scenario_and_the_digest_says_what_is_told():
    known, learned = build_environment(tiny()), build_environment(tiny(*LEARNED, *LIMITS))
    assert known.jobs.work_J.tolist() == learned.jobs.work_J.tolist()
    limited = build_environment(tiny("jobs.knowledge.run_time=limit", *LIMITS))
    assert len({environment_digest(each) for each in (known, learned, limited)}) == 3
    assert limits(limited).tolist() == limits(learned).tolist()


def test_generated_jobs_have_a_past_of_the_same_law_and_other_draws():
    environment = build_environment(tiny(*LEARNED, "jobs.count=500", "fleet.sites.0.gpus=200"))
    told, works = environment.knowledge, environment.jobs.work_J
    assert 400 < len(told.past_work_P) < 600
    assert np.intersect1d(np.round(told.past_work_P, 3), np.round(works, 3)).size < len(works)
    assert np.log(told.past_work_P).mean() == pytest.approx(np.log(works).mean(), abs=0.3)
    assert (told.past_cause_P == DONE).all()
    again = build_environment(tiny(*LEARNED, "jobs.count=500", "fleet.sites.0.gpus=200"))
    assert told.past_work_P.tolist() == again.knowledge.past_work_P.tolist()


@pytest.mark.parametrize(("low", "high"), [(1.0, 4.0), (2.0, 2.0)])
def test_limits_are_drawn_by_their_law(low, high):
    settings = ["jobs.knowledge.run_time=limit", f"jobs.knowledge.limit={{law: uniform, from: {low}, to: {high}}}"]
    environment = build_environment(tiny(*settings, "jobs.count=400", "fleet.sites.0.gpus=200"))
    factor = limits(environment) / environment.jobs.work_J
    assert factor.min() >= low
    assert factor.max() <= high + 1e-6
    assert factor.mean() == pytest.approx((low + high) / 2, abs=0.1)


def test_limits_may_follow_the_deciles_of_a_log():
    deciles = "1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 8"
    law = f"jobs.knowledge.limit={{law: log, deciles: [{deciles}]}}"
    environment = build_environment(
        tiny("jobs.knowledge.run_time=limit", law, "jobs.count=800", "fleet.sites.0.gpus=200")
    )
    factor = limits(environment) / environment.jobs.work_J
    assert np.quantile(factor, [0.1, 0.3, 0.65, 0.85]).tolist() == pytest.approx([1, 1, 2, 2], abs=1e-3)
    assert 2 < np.quantile(factor, 0.95) < 8  # half way up the logarithm: 4
    packaged = limits(build_environment(tiny("jobs.knowledge.run_time=limit", "jobs.knowledge.limit.law=log")))
    assert packaged.max() > packaged.min()


def test_limits_below_the_run_time_are_refused():
    for law in (
        "{law: uniform, from: 0.5, to: 4}",
        "{law: uniform, from: 3, to: 2}",
        "{law: log, deciles: [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 1.5]}",
        "{law: log, deciles: [0.5, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]}",
        "{law: log, deciles: [1, 2, 3]}",
    ):
        with pytest.raises(ScenarioError, match=r"from|below|deciles"):
            tiny("jobs.knowledge.run_time=limit", f"jobs.knowledge.limit={law}")


def test_without_any_limit_there_is_none_to_tell():
    with pytest.raises(DataError, match="column limit_s, or a law"):
        build_environment(tiny("jobs.knowledge.run_time=limit"))


@pytest.fixture
def table(tmp_path):
    """A scenario of a job table: six hours of 2 and 3 October, a job an hour; the window is 3 October."""

    def table(run_time, count=30, **columns):
        hours = [FIRST + timedelta(hours=hour - 18) for hour in range(count)]
        frame = pl.DataFrame(
            {
                "submit_time": [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours],
                "origin": "north",
                "gpus": 1,
                "duration_s": [1800.0 + hour for hour in range(count)],
                "slack_s": 3600.0,
                **columns,
            }
        )
        path = tmp_path / "jobs.csv"
        frame.write_csv(path)
        content = tiny().model_dump(mode="json")
        content["jobs"] = {"source": "table", "path": str(path), "knowledge": {"run_time": run_time}}
        return build_environment(scenario_from(content | {"start": "2022-10-03"}))

    return table


def test_a_tables_past_ends_where_the_window_begins(table):
    """The first of the 18 past jobs takes 20 h, and the last begins half an hour... before: both may still run."""
    run_s = [20 * 3600.0, *[600.0] * 16, 7200.0, *[600.0] * 12]
    told = table("learned", duration_s=run_s).knowledge
    assert told.past_work_P.tolist() == [18 * 3600.0, *[600.0] * 16, 3600.0]
    assert told.past_cause_P.tolist() == [RUNNING, *[DONE] * 16, RUNNING]


def test_users_names_limits_and_states_are_read(table):
    users, names = ["ann", "bob"] * 15, [f"train-{hour}" for hour in range(29)] + [None]
    states = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"] * 6
    environment = table("learned", user=users, name=names, state=states, limit_s=[7200.0] * 29 + [None])
    told = environment.knowledge
    assert told.traits.limit_J.tolist() == [7200.0] * 29 + [np.inf]
    of_all, of_class, of_gang, of_user, of_name = told.traits.key_JL.T
    assert len(set(of_all)) == len(set(of_class)) == len(set(of_gang)) == 1
    assert (of_user[::2] == of_user[0]).all()
    assert len(set(of_user)) == 2
    assert len(set(of_name[:-1])) == 2  # each user's train-#
    assert of_name[-1] == -1
    causes = [DONE, FAILED, CANCELLED, FAILED, FAILED] * 6
    assert told.past_cause_P.tolist() + told.cause_J.tolist() == causes


def test_without_a_past_there_is_no_class_mean_and_learning_begins_with_nothing(table):
    hours = [FIRST + timedelta(hours=hour) for hour in range(12)]
    stamps = [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours]
    with pytest.raises(DataError, match="no job of before the window"):
        table("class-mean", count=12, submit_time=stamps)
    told = table("learned", count=12, submit_time=stamps).knowledge
    assert len(told.past_work_P) == 0
    assert len(told.traits) == 12


def test_class_means_are_of_the_class_where_it_has_a_past():
    environment = build_environment(tiny("jobs.knowledge.run_time=class-mean"))
    told = environment.knowledge
    assert set(told.class_mean_J().tolist()) == {told.past_work_P.mean()}
