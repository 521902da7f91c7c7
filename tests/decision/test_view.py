"""The functions rules share, and the Python side of views and answers."""

import numpy as np
import pytest

from noonward.decision.brief import Brief
from noonward.decision.cluster.view import (
    ANSWER,
    KEEP,
    ORACLE,
    Answers,
    RuleMemory,
    delay_s,
    latest_start_s,
    lead_integral,
    return_delay_s,
)
from noonward.draws import random_below
from noonward.engine.cluster.engine import ClusterEngine
from noonward.errors import ScenarioError
from noonward.schedule.policies import make_scheduler
from reference.small_worlds import plain
from reference.views import make_view

# First outputs of SplitMix64 from the seed 1234567 (Rosetta Code, "Pseudo-random numbers/Splitmix64").
SPLIT_MIX = (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821)


@pytest.mark.parametrize("limit", [2, 1000, 2**62])
def test_random_below_is_split_mix_64(limit):
    state = np.array([1234567], np.uint64)
    assert [random_below(state, limit) for _ in SPLIT_MIX] == [word % limit for word in SPLIT_MIX]


def test_random_below_is_uniform():
    state, draws = np.array([9], np.uint64), 14_000
    counts = np.bincount([random_below(state, 7) for _ in range(draws)], minlength=7)
    assert len(counts) == 7
    assert ((counts - 2000) ** 2 / 2000).sum() < 22.5  # 99.9 % quantile of chi-square with 6 degrees of freedom


def test_random_below_is_determined_by_its_state():
    first, again, other = (np.array([seed], np.uint64) for seed in (5, 5, 6))
    draws = [[random_below(state, 1000) for _ in range(20)] for state in (first, again, other)]
    assert draws[0] == draws[1] != draws[2]
    assert first[0] == again[0] != 5


def test_random_below_one_is_zero():
    assert {random_below(np.array([seed], np.uint64), 1) for seed in range(20)} == {0}


def test_delays_count_latency_and_data_and_the_return_of_a_result():
    view = make_view([{}, {}], jobs=({"move_gb": 3.0, "result_gb": 2.0, "deadline_s": 100.0}, {"deadline_s": 100.0}))
    view.link_IS["latency_s"][0, 1], view.link_IS["seconds_per_gb"][0, 1] = 5.0, 10.0
    assert delay_s(view, 0, 0, 1) == 5.0 + 30.0
    assert return_delay_s(view, 0, 1) == 5.0 + 20.0
    assert latest_start_s(view, 0, 1) == 75.0
    assert (delay_s(view, 0, 0, 0), latest_start_s(view, 0, 0)) == (0.0, 100.0)
    assert (delay_s(view, 1, 0, 1), return_delay_s(view, 1, 1)) == (5.0, 0.0)  # no result: nothing returns


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, 0.0), (1800.0, 1800.0), (3600.0, 3600.0), (5400.0, 3600.0 + 3600.0), (7200.0, 3600.0 + 7200.0)],
)
def test_lead_integral_runs_through_the_hours(seconds, expected):
    forecast = np.array([[[0.0, 3600.0, 10800.0]]])  # 1 in the first hour, 2 in the second
    assert lead_integral(forecast, 0, 0, seconds) == expected


def test_answers_are_sent_and_held():
    answers = Answers(np.zeros(2, ANSWER), np.zeros((2, 0)))
    answers.send(1, 3, gpus=2, level=0, earliest_s=9.0)
    answers.hold(0)
    assert answers.answer_N.tolist() == [(0, 0, ORACLE, 0.0, KEEP), (4, 2, 0, 9.0, KEEP)]
    answers.send(1, 0)
    assert answers.answer_N[1].tolist() == (1, 0, ORACLE, 0.0, KEEP)


def test_memory_is_made_of_the_parts_given():
    memory = RuleMemory.make(numbers=[1, 2], index=[[3]], random_state=2**63)
    assert memory.number_P.tolist() == [1.0, 2.0]
    assert memory.index_XY.dtype == np.int64
    assert memory.random_1.tolist() == [2**63]
    assert memory.table_XY.tolist() == [[0.0]]


def test_view_shows_the_state_of_all_sites():
    """MASAC, Sec. III: head job, free GPUs, GPUs asked by the queue, price and intensity, of every site."""
    jobs = [{"gpus": 2, "slack_s": 900.0}, {"gpus": 3}, {"origin": 1, "gpus": 4, "arrival_s": 3500.0}]
    world = plain([4, 8], jobs, price=[[10.0, 20.0], [-30.0, 40.0]], carbon=[[1.0, 2.0], [3.0, 4.0]])
    scheduler = make_scheduler("local-fcfs")
    engine = ClusterEngine(world.environment(), scheduler)
    scheduler.reset(Brief.of(world.environment(), scheduler.needs), np.random.default_rng(0))
    seen = []
    while engine.step():
        view = engine.view
        asked = [(s, int(view.serial_N[s])) for s, _ in view.asked()]
        seen.append((view.now_s, asked, view.free_S.tolist(), view.site_S["waiting_gpus"].tolist()))
        hour = int(view.now_s // 3600)
        assert view.price_S.tolist() == [[10.0, -30.0], [20.0, 40.0]][hour]
        assert view.carbon_S.tolist() == [[1.0, 3.0], [2.0, 4.0]][hour]
        scheduler.decide(view, engine.answers)
    assert seen[:2] == [(0.0, [(0, 0)], [4, 8], [5, 0]), (0.0, [(0, 1)], [2, 8], [3, 0])]
    assert seen[2] == (60.0, [(0, 1)], [2, 8], [3, 0])
    assert seen[11] == (600.0, [(0, 1)], [4, 8], [3, 0])
    assert seen[12] == (3540.0, [(1, 2)], [4, 8], [0, 4])
    assert len(seen) == 13


def test_curves_are_set_from_an_hour_on_and_cut_at_the_end():
    answers = Answers(np.zeros(1, ANSWER), np.full((2, 4), 9.0))
    answers.limit(2, np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    assert answers.limit_SH.tolist() == [[9.0, 9.0, 1.0, 2.0], [9.0, 9.0, 4.0, 5.0]]
    answers.limit(7, np.ones((2, 2)))
    assert answers.limit_SH[0].tolist() == [9.0, 9.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("limit_SH", "gpus_SH", "message"),
    [
        (np.zeros((2, 4)), [[1.0], [np.nan]], "missing, infinite or negative"),
        (np.zeros((2, 4)), [[1.0], [-1.0]], "missing, infinite or negative"),
        (np.zeros((2, 4)), [[1.0]], "curves of 1 sites are set where 2 sites"),
        (np.zeros((2, 0)), [[1.0], [1.0]], "the scheduler 'curves'"),
    ],
)
def test_curves_that_cannot_be_are_refused(limit_SH, gpus_SH, message):
    with pytest.raises(ScenarioError, match=message):
        Answers(np.zeros(1, ANSWER), limit_SH).limit(0, np.array(gpus_SH))
