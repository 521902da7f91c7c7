"""CarbonScaler in the engine: gangs by the hour as its marginal greedy allots them, by hand and against it."""

import random

import numpy as np
import pytest

from noonward.engine.run import run
from noonward.evaluate.conformance import check_scheduler
from noonward.ledger.segments import DONE, RUN
from noonward.schedule.cluster.marginal_greedy import marginal_greedy
from noonward.schedule.policies import find_policy, make_scheduler
from noonward.units import HOUR_S
from reference import small_worlds, suspension

TWO = suspension.Freedom(elastic=((2, 1.0), (4, 1.9)))
POLICY = "carbon-scaler(forecast=perfect, measure=price)"


def played(jobs, price, freedom=TWO, gpus=4, policy=POLICY, **options):
    world = small_worlds.plain([gpus], jobs, price=[list(price)], freedoms={0: freedom} if freedom else {}, **options)
    return run(world.environment(), make_scheduler(policy))


def runs(outcome, job=0):
    """(GPUs, start h, end h) of the runs of a job that was stopped."""
    return [
        (int(r["gpus"]), r["from_s"] / HOUR_S, r["to_s"] / HOUR_S)
        for r in outcome.segment_K
        if r["job"] == job and r["kind"] == RUN
    ]


def test_a_job_runs_on_its_own_gang_in_a_cheap_hour_on_the_larger_one_in_the_cheapest_and_waits_in_the_others():
    job = {"gpus": 2, "work": 2.5 * HOUR_S, "slack_s": 3.5 * HOUR_S}
    outcome = played([job], [20.0, 50.0, 5.0, 50.0, 60.0, 60.0])
    assert runs(outcome) == [(2, 0.0, 1.0), (4, 2.0, pytest.approx(2 + 1.5 / 1.9))]
    assert outcome.job_J["status"].tolist() == [DONE]


def test_a_job_does_not_grow_into_gpus_that_others_hold():
    job = {"gpus": 2, "work": 2.5 * HOUR_S, "slack_s": 3.5 * HOUR_S}
    rigid = {"gpus": 2, "class_": 1, "work": 6 * HOUR_S, "slack_s": 0.0}
    more = (((0.0, 0.0, 100.0), None),)
    outcome = played([rigid, job], [20.0, 50.0, 5.0, 50.0, 60.0, 60.0], more=more)
    assert {gpus for gpus, _, _ in runs(outcome, 1)} == {2}
    assert outcome.job_J["status"].tolist() == [DONE, DONE]


def test_jobs_that_are_neither_elastic_nor_interruptible_run_unbroken():
    job = {"gpus": 2, "work": 2 * HOUR_S, "slack_s": 3 * HOUR_S}
    outcome = played([job], [30.0, 10.0, 50.0, 5.0, 9.0, 9.0], freedom=None)
    assert (outcome.job_J["start_s"] / HOUR_S).tolist() == [3.0]
    assert outcome.job_J["finish_s"].tolist() == [5 * HOUR_S]


def test_hours_that_cost_nothing_or_less_come_first():
    job = {"gpus": 2, "work": 3.8 * HOUR_S, "slack_s": 4.2 * HOUR_S}
    outcome = played([job], [50.0, 40.0, -10.0, 60.0, 0.0, 70.0, 80.0, 90.0])
    assert runs(outcome)[-1][0] == 4
    assert [int(start_h) for _, start_h, _ in runs(outcome)] == [2, 4]


@pytest.mark.parametrize("seed", range(25))
def test_a_job_alone_has_the_gangs_that_the_published_rule_allots_it(seed):
    """Hour by hour, planned again from what is left; it starts on its own gang, and a resize costs a slot."""
    rng = random.Random(seed)
    speeds = np.cumsum([1.0, *sorted((rng.uniform(0.2, 1.0) for _ in range(3)), reverse=True)])
    price = [rng.uniform(1.0, 100.0) for _ in range(25)]
    price += [price[-1]] * 20  # as long as the world needs
    work, slack = rng.randint(2, 12), rng.randint(4, 20)
    freedom = suspension.Freedom(elastic=tuple((n + 1, round(float(speed), 3)) for n, speed in enumerate(speeds)))
    job = {"gpus": 1, "work": work * HOUR_S, "slack_s": slack * HOUR_S}
    outcome = played([job], price[:25], freedom)
    speed_N, power_N = np.array([0.0, *(speed for _, speed in freedom.elastic)]), 100.0 * np.arange(5)
    left, stood, before, started, expected = float(work), 0.0, 0, False, {}
    for hour in range(work + slack):
        if left <= 1e-9:
            break
        hours = int(round(slack - stood + left, 9))
        gang = int(marginal_greedy(np.array(price[hour : hour + hours]), speed_N, power_N, left)[0])
        if slack - stood < 1.0:
            gang = max(gang, 1)
        gang = min(gang, 1) if not started else gang
        if before and slack - stood < 1 / 60 - 1e-9:  # no slot is left in which it could stand still
            gang = before
        started = started or gang > 0
        if gang:
            expected[hour] = gang
        done = speed_N[gang] * (1 - (before not in (0, gang)) / 60)
        left, stood, before = left - done, stood + 1 - done, gang
    found = {int(start_h): gpus for gpus, start_h, _ in runs(outcome)} or {int(outcome.job_J["start_s"][0] / HOUR_S): 1}
    changes = {hour: gang for hour, gang in expected.items() if expected.get(hour - 1) != gang}
    assert found == changes
    assert outcome.job_J["status"].tolist() == [DONE]


@pytest.mark.usefixtures("few_jobs")
def test_it_conforms_and_says_what_it_knows():
    assert "clairvoyant" in find_policy("carbon-scaler-perfect").roles
    assert "clairvoyant" not in find_policy("carbon-scaler").roles
    assert "knows the future" in find_policy("carbon-scaler-perfect").summary
    check_scheduler("carbon-scaler", seeds=[0])
    check_scheduler("carbon-scaler-perfect", seeds=[0])
