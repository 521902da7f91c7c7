"""Wait Awhile: its hours, its site and its limits, by hand."""

from dataclasses import replace

import pytest

from noonward.engine.run import run
from noonward.evaluate.conformance import check_scheduler
from noonward.ledger.ledger import settle
from noonward.ledger.segments import DONE, OVERDUE, RUN
from noonward.schedule.policies import find_policy, make_scheduler
from noonward.units import HOUR_S
from reference import small_worlds, suspension

FREE = suspension.Freedom()
PRICE = [30.0, 10.0, 50.0, 20.0, 40.0, 5.0, 60.0]
THREE = {"gpus": 2, "work": 3 * HOUR_S, "slack_s": 3 * HOUR_S}


def played(jobs, price=(PRICE,), gpus=(4,), freedom=FREE, policy="wait-awhile-perfect", **options):
    """The outcome of some jobs, each of the class that may be suspended."""
    world = small_worlds.plain(list(gpus), jobs, price=[list(row) for row in price], **options)
    world.freedoms = {} if freedom is None else {0: freedom}
    return run(world.environment(), make_scheduler(policy))


def runs(outcome, job=0):
    """(site, start h, end h) of the runs of a job that was suspended."""
    return [
        (int(r["site"]), r["from_s"] / HOUR_S, r["to_s"] / HOUR_S)
        for r in outcome.segment_K
        if r["job"] == job and r["kind"] == RUN
    ]


def test_a_job_runs_in_its_cheapest_hours():
    outcome = played([THREE])  # its window is hours 0 to 5
    assert runs(outcome) == [(0, 1.0, 2.0), (0, 3.0, 4.0), (0, 5.0, 6.0)]
    assert settle(outcome).job_energy_usd == pytest.approx(200e-6 * (10 + 20 + 5))


def test_the_part_of_an_hour_that_is_needed_is_its_last_or_begins_the_last_run():
    outcome = played([THREE | {"work": 2.5 * HOUR_S, "slack_s": 3.5 * HOUR_S}])
    assert runs(outcome) == [(0, 1.0, 2.0), (0, 3.5, 4.0), (0, 5.0, 6.0)]
    outcome = played([THREE | {"work": 1.5 * HOUR_S, "slack_s": 3 * HOUR_S}])  # until 4:30
    assert runs(outcome) == [(0, 1.0, 2.0), (0, 3.0, 3.5)]


def test_equal_hours_are_taken_the_earlier_first():
    outcome = played([THREE | {"work": 2 * HOUR_S}], price=([10.0] * 6,))
    assert outcome.job_J[["start_s", "finish_s"]].tolist() == [(0.0, 2 * HOUR_S)]


def test_a_job_that_may_not_be_suspended_runs_unbroken_from_its_best_start():
    outcome = played([THREE], freedom=None)
    assert outcome.job_J["start_s"].tolist() == [3 * HOUR_S]  # 20 + 40 + 5
    outcome = played([THREE], freedom=replace(FREE, most_suspensions=0))
    assert outcome.job_J["status"].tolist() == [DONE]


def test_a_job_goes_where_its_hours_cost_least():
    outcome = played(
        [THREE | {"work": 2 * HOUR_S}], price=([50.0] * 7, [30.0, 1.0, 90.0, 1.0, 90.0, 90.0, 90.0]), gpus=(4, 4)
    )
    assert runs(outcome) == [(1, 1.0, 2.0), (1, 3.0, 4.0)]


def test_what_makes_an_hour_cheap_is_said_by_the_name():
    carbon = [[1.0, 9.0, 9.0, 9.0, 2.0, 9.0, 9.0]]
    job = THREE | {"work": 2 * HOUR_S}
    for measure, hours in (("price", [1, 3]), ("carbon", [0, 4])):
        world = small_worlds.plain([4], [job], price=[[*PRICE[:5], 99.0, 99.0]], carbon=carbon, freedoms={0: FREE})
        outcome = run(world.environment(), make_scheduler(f"wait-awhile(measure={measure})"))
        assert [start for _, start, _ in runs(outcome)] == hours


def test_other_jobs_are_ignored_so_one_that_lacks_gpus_may_come_too_late():
    late = THREE | {"gpus": 3, "work": HOUR_S, "slack_s": 5 * HOUR_S}  # hour 5 is the cheapest and its last
    jobs = [THREE | {"gpus": 3}, late]
    assert played(jobs).job_J["status"].tolist() == [DONE, OVERDUE]  # its room is kept for the suspended one
    assert played(jobs, gpus=(6,)).job_J["status"].tolist() == [DONE, DONE]


def test_it_conforms_and_says_that_it_knows_the_future():
    assert "clairvoyant" in find_policy("wait-awhile-perfect").roles
    assert "clairvoyant" not in find_policy("wait-awhile(forecast=regression)").roles
    assert "knows the future" in find_policy("wait-awhile-perfect").summary
    check_scheduler("wait-awhile(forecast=persistence)", seeds=[0])  # tests/evaluate/test_conformance.py checks perfect
