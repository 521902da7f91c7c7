"""Links that carry the data of one job at a time: exact waits, conservation, what schedulers see, and resumption."""

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Needs
from noonward.decision.cluster.observation import Observation
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.batch import BatchEngine
from noonward.engine.run import run
from noonward.ledger.ledger import settle
from noonward.schedule.policies import make_scheduler
from reference.small_worlds import plain

LINE = {"latency_ms": ((0.0, 500.0), (500.0, 0.0)), "throughput_gb_per_min": ((60.0, 6.0), (6.0, 60.0))}
"""Between the two sites: 0.5 s, and 10 s a GB."""
DATA = ("network.throughput_gb_per_min=60", "jobs.data_gb=40")
QUEUED = (*DATA, "network.queued=true")


class Second(Scheduler):
    """Sends every job to the second site."""

    needs = Needs(protocols=("on-arrival",))

    def decide(self, view, answers):
        answers.send(0, 1)


def world(*settings):
    return build_environment(load_scenario("dvfs-training", settings))


def reaches_s(jobs, *, queued):
    small = plain([1, 9], jobs, protocol="on-arrival", network=LINE, queued=queued, drained=False)
    return run(small.environment(), Second()).job_J["reach_s"].tolist()


def test_jobs_wait_for_the_link_in_the_order_of_arrival():
    jobs = [{"arrival_s": at, "move_gb": size} for at, size in ((0.0, 1.0), (4.0, 2.0), (4.0, 0.0), (35.0, 1.0))]
    assert reaches_s(jobs, queued=False) == [10.5, 24.5, 4.5, 45.5]
    assert reaches_s(jobs, queued=True) == [10.5, 30.5, 4.5, 45.5]  # the second begins at 10 s, the last at once


def test_the_own_site_is_reached_over_no_link():
    jobs = [{"arrival_s": 0.0, "move_gb": 1.0, "origin": origin} for origin in (0, 1, 0, 1)]
    assert reaches_s(jobs, queued=True) == [10.5, 0.0, 20.5, 0.0]


def test_a_journey_is_settled_when_it_begins_and_costs_nothing_if_it_never_does():
    times = (0.0, 0.0, 0.0, 3600.0)
    jobs = [{"arrival_s": at, "move_gb": 300.0, "slack_s": 1e5} for at in times]  # 3,000 s each on the link
    paid = {"usd_per_gb": ((0.01,) * 2,) * 2, "kwh_per_gb": ((0.1,) * 2,) * 2}
    price, carbon = [[50.0]] * 2, [[100.0, 300.0]] * 2
    for queued, begins_s in ((False, [0.0, 0.0, 0.0, 3600.0]), (True, [0.0, 3000.0, 6000.0])):  # the last: at 9,000 s
        small = plain(
            [1, 9], jobs, protocol="on-arrival", network=LINE | paid, queued=queued, drained=False, window_h=2,
            price=price, carbon=carbon,
        )  # fmt: skip
        outcome = run(small.environment(), Second())
        ledger = settle(outcome)
        assert outcome.transfer_X["time_s"].tolist() == begins_s
        assert (ledger.moves, ledger.move_usd) == (len(begins_s), pytest.approx(3.0 * len(begins_s)))
        assert ledger.move_kg == pytest.approx(sum(30.0 * (0.1 if begin_s < 3600.0 else 0.3) for begin_s in begins_s))
        assert outcome.meters.move_usd == pytest.approx(ledger.move_usd)
        assert outcome.meters.move_kg == pytest.approx(ledger.move_kg)


def test_time_in_system_counts_the_wait_and_links_carry_one_job_at_a_time():
    environment = world("window_h=6", *QUEUED)
    outcome = run(environment, make_scheduler("greedy-tradeoff(watts=30)"))
    jobs, track = environment.jobs, outcome.job_J
    reached_J = ~np.isnan(track["reach_s"])
    begin_s_J = track["reach_s"] - environment.links.latency_s_IS[jobs.origin_J, track["site"]] - 40.0
    wait_s_J = (begin_s_J - jobs.arrival_s_J)[reached_J]
    assert wait_s_J.min() > -1e-6
    assert wait_s_J.max() > 40.0
    for origin in range(8):
        for site in range(8):
            begin_s = begin_s_J[reached_J & (jobs.origin_J == origin) & (track["site"] == site)]
            assert (np.diff(begin_s) > 40.0 - 1e-6).all()
    done_J = track["status"] == 4
    taken_s_J = (track["reach_s"] - jobs.arrival_s_J) + (track["finish_s"] - track["reach_s"])
    assert settle(outcome).mean_time_in_system_s == pytest.approx(taken_s_J[done_J].mean())


def test_without_data_nothing_changes_and_with_them_queues_slow_down():
    rule = make_scheduler("greedy-energy(gpus=2)")
    without = settle(run(world("window_h=3"), rule))
    queued = world("window_h=3", "network.throughput_gb_per_min=60", "network.queued=true")
    np.testing.assert_equal(vars(settle(run(queued, rule))), vars(without))
    loaded, waiting = (settle(run(world("window_h=3", *more), rule)) for more in (DATA, QUEUED))
    assert waiting.mean_time_in_system_s > loaded.mean_time_in_system_s


def test_nets_see_the_wait_for_the_link():
    environment = world("window_h=1", *QUEUED)
    engine = BatchEngine([environment], Observation(kind="extended", protocol="on-arrival"), seeds=[0])
    points = [point.name for point in environment.fleet.ingress_points]
    at = engine.observation.names(environment.sites, points).index("delay/me-central")
    seen = set()
    for _ in range(200):
        view = engine.row_view(0)
        origin = view.job_J[view.job]["origin"]
        free_s = view.link_free_IS[origin, 7]
        delay_s = max(view.now_s, free_s) - view.now_s + view.link_IS[origin, 7]["latency_s"] + 40.0
        assert engine.global_BG[0, at] == pytest.approx(2 * (delay_s / 0.2) / (delay_s / 0.2 + 1))
        seen.add(bool(free_s > view.now_s))
        engine.step(np.array([[7 * 8]]))
    assert seen == {True, False}


@pytest.mark.parametrize("policy", ["greedy-tradeoff(watts=30)", "jointnf-slo(target_s=900)", "random-free"])
def test_a_compiled_rule_equals_the_same_rule_asked_step_by_step(policy):
    environment = world("window_h=1", *QUEUED)
    whole, stepped = (run(environment, make_scheduler(policy), compiled=compiled) for compiled in (True, False))
    assert whole.job_J.tobytes() == stepped.job_J.tobytes()


def test_a_batch_resumes_with_its_queues():
    environment, observation = world("window_h=1", *QUEUED), Observation(kind="paper", protocol="on-arrival")
    first, second = (BatchEngine([environment], observation, seeds=[0]) for _ in range(2))
    for _ in range(100):
        first.step(np.array([[7 * 8]]))
    second.load_state(first.state())
    for engine in (first, second):
        while not engine.done_B.all():
            engine.step(np.array([[int(engine.mask_BNA[0, 0].argmax())]]))
    assert first.outcome(0).job_J.tobytes() == second.outcome(0).job_J.tobytes()
