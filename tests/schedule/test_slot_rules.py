"""Each rule of protocol each-slot on hand-made views and worlds with exact answers."""

import collections
from dataclasses import replace

import numpy as np
import pytest

from noonward.decision.brief import Needs
from noonward.decision.cluster.feasibility import first_start_s
from noonward.decision.cluster.value import run_value_usd, travel_cost_usd
from noonward.decision.cluster.view import RuleMemory, latest_start_s
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.schedule.policies import make_scheduler
from reference.small_worlds import plain
from reference.views import choices, make_view


def rule(name, **memory):
    """A scheduler with a memory of its own making."""
    scheduler = make_scheduler(name)
    scheduler.memory = RuleMemory.make(**memory)
    return scheduler


def starts_s(name, gpus, jobs, **options):
    return run(plain(gpus, jobs, **options).environment(), make_scheduler(name)).job_J["start_s"].tolist()


CROWD = [{"gpus": 2}, {"gpus": 2}, {"gpus": 1}]


def test_local_fcfs_lets_the_head_block_those_behind_it():
    assert starts_s("local-fcfs", [3], CROWD) == [0.0, 600.0, 600.0]


def test_local_fcfs_blocks_every_site_by_itself():
    jobs = [{"gpus": 2}, {"gpus": 2}, {"origin": 1}, {"origin": 1}]
    assert starts_s("local-fcfs", [2, 1], jobs) == [0.0, 600.0, 0.0, 600.0]


def test_local_backfill_starts_past_a_job_that_does_not_fit():
    assert starts_s("local-backfill", [3], CROWD) == [0.0, 600.0, 0.0]


SIGNALS = {"price-greedy": "price", "carbon-greedy": "carbon"}


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize(
    ("values", "mask", "choice"),
    [
        ((50.0, 20.0, 10.0), (1, 1, 1, 1), 1),  # room here: local first
        ((50.0, 20.0, 10.0), (1, 0, 1, 1), 3),  # full: to the lowest
        ((50.0, 20.0, 10.0), (1, 0, 1, 0), 2),  # the lowest cannot be reached in time
        ((50.0, 20.0, 20.0), (1, 0, 1, 1), 2),  # the first of equals
        ((10.0, 20.0, 30.0), (1, 0, 1, 1), 0),  # here is lowest: wait
        ((-5.0, -10.0, 0.0), (1, 0, 1, 1), 2),  # negative prices are prices
    ],
)
def test_greedy_goes_to_the_lowest_where_there_is_no_room(name, values, mask, choice):
    view = make_view([{SIGNALS[name]: value} for value in values], asked=(0, -1, -1), mask=[mask] * 3)
    assert choices(rule(name), view) == [choice, 0, 0]


def test_greedy_moves_the_job_in_a_world():
    jobs = [{"gpus": 1}, {"gpus": 1}]
    outcome = run(plain([1, 1, 1], jobs, price=[[50.0], [30.0], [20.0]]).environment(), make_scheduler("price-greedy"))
    assert outcome.job_J[["site", "start_s"]].tolist() == [(0, 0.0), (2, 60.0)]


def test_most_free_chooses_the_most_free_with_room_and_stays_on_ties():
    free = [{"gpus": 8, "free": number} for number in (2, 4, 4)]
    assert choices(rule("most-free"), make_view(free, asked=(0, 0, 0))) == [2, 2, 3]
    gang = ({"gpus_min": 5},)
    assert choices(rule("most-free"), make_view(free, asked=(0, -1, -1), jobs=gang)) == [0, 0, 0]
    blocked = [(1, 1, 0, 0)] * 3
    assert choices(rule("most-free"), make_view(free, asked=(0, -1, -1), mask=blocked)) == [1, 0, 0]


def test_cheapest_feasible_weighs_price_carbon_and_travel():
    sites = [{"price": price, "carbon": carbon} for price, carbon in ((60.0, 0.0), (40.0, 0.0), (30.0, 200.0))]
    jobs = ({"work": 3600.0, "move_gb": 1.0},)
    # 0.1 kWh each: 6, 4 and 3 + 2 (200 g/kWh at 100 USD/t) thousandths of a USD.
    view = make_view(sites, asked=(0, -1, -1), jobs=jobs, carbon_usd_per_t=100.0)
    assert choices(rule("cheapest-feasible"), view) == [2, 0, 0]
    view.link_IS["usd_per_gb"][0, 1] = 0.0015
    assert choices(rule("cheapest-feasible"), view) == [3, 0, 0]
    view.link_IS["usd_per_gb"][0, 1:] = 0.003
    assert choices(rule("cheapest-feasible"), view) == [1, 0, 0]
    view.site_S["free"][0] = 0
    assert choices(rule("cheapest-feasible"), view) == [2, 0, 0]
    view.site_S["free"] = 0
    assert choices(rule("cheapest-feasible"), view) == [0, 0, 0]


@pytest.mark.parametrize("surely", [False, True])
def test_cheapest_feasible_chooses_as_if_it_reckoned_every_site(surely):
    """Few values, so that many sites are worth the same: then the first of them."""
    rng, chosen = np.random.default_rng(1), collections.Counter()
    for _ in range(300):
        sites = [
            {"gpus": 4, "free": rng.integers(0, 5), "price": rng.choice([-20.0, 0.0, 30.0, 60.0]), "carbon": 100.0 * n}
            for n in rng.integers(0, 3, 5)
        ]
        due_s = np.inf if surely else 60.0 * rng.integers(10, 15)
        job = {"work": 3600.0, "move_gb": rng.integers(0, 3), "result_gb": 1.0, "gpus_min": 2, "deadline_s": due_s}
        mask, late_s = [[1, *rng.integers(0, 2, 5)]] * 5, rng.choice([-np.inf, 1e6])
        view = make_view(
            sites, asked=(0, -1, -1, -1, -1), jobs=(job,), mask=mask, now_s=600.0, late_until_s=late_s,
            carbon_usd_per_t=100.0, revenue_usd_per_gpu_hour=0.05, least_gpus=4 if surely else 0,
        )  # fmt: skip
        away = ~np.eye(5, dtype=bool)
        view.link_IS["usd_per_gb"] = away * rng.choice([0.0, 0.001], (5, 5))
        view.link_IS["seconds_per_gb"] = away * rng.choice([0.0, 30.0, 90.0], (5, 5))
        view.run_1["most_seconds_per_gb"] = 90.0
        best = max(
            (
                (
                    bool(first_start_s(view, 0, 0, d) <= latest_start_s(view, 0, d)),
                    run_value_usd(view, 0, d) - travel_cost_usd(view, 0, 0, d),
                    -d,
                )
                for d in range(5)
                if mask[0][1 + d] and sites[d]["free"] >= 2
            ),
            default=(False, 0.0, 1),
        )
        assert choices(rule("cheapest-feasible"), view)[0] == 1 - best[2]
        chosen[1 - best[2]] += 1
    assert len(chosen) == 6


def test_patient_waits_for_a_cheap_hour_while_slack_is_left():
    # Jobs of 10 h slack, one an hour; the first day costs 100 USD/MWh at the cheaper of two sites.
    slack_s = 10 * 3600.0
    scheduler = make_scheduler("patient")
    scheduler.memory = scheduler.make_memory(None, None)

    def asked(hour, price):
        now_s = hour * 3600.0
        job = {"work": 60.0, "arrival_s": now_s, "deadline_s": now_s + slack_s}
        sites = [{"price": 400.0, "carbon": 0.0, "free": 0}, {"price": price, "carbon": 0.0}]
        return choices(scheduler, make_view(sites, asked=(0, -1), jobs=(job,), now_s=now_s))[0]

    assert [asked(hour, 100.0) for hour in range(23)] == [2] * 23  # no day is known yet
    assert asked(23, 100.0) == 0
    assert asked(24, 70.0) == 0  # the mean is (23 x 100 + 70) / 24 = 98.75, and 69.125 would be cheap
    assert asked(25, 69.0) == 0  # (22 x 100 + 70 + 69) / 24 x 0.7 = 68.22
    assert asked(26, 68.0) == 0  # (21 x 100 + 70 + 69 + 68) / 24 x 0.7 = 67.29
    assert asked(27, 66.0) == 2


def test_patient_keeps_three_tenths_of_the_slack():
    scheduler = make_scheduler("patient")
    scheduler.memory = scheduler.make_memory(None, None)
    scheduler.memory.number_P[:], scheduler.memory.table_XY[:] = (0.0, 24.0), 50.0 / 3.6e9

    def asked(left_s, slack_s=1000.0):
        job = {"work": 60.0, "arrival_s": left_s - slack_s, "deadline_s": left_s}
        return choices(scheduler, make_view([{"price": 50.0, "carbon": 0.0}], jobs=(job,)))[0]

    assert [asked(1000.0), asked(301.0), asked(300.0), asked(0.0)] == [0, 0, 1, 1]
    assert asked(float("inf")) == 1


def test_random_is_uniform_over_the_mask():
    scheduler, draws = rule("random", random_state=1), 6000
    view = make_view([{}, {}, {}], asked=(0, -1, 1), jobs=({}, {}), mask=[(1, 0, 1, 1), (1, 1, 1, 1), (1, 1, 0, 0)])
    counts = [
        collections.Counter(column) for column in zip(*(choices(scheduler, view) for _ in range(draws)), strict=True)
    ]
    assert [sorted(count) for count in counts] == [[0, 2, 3], [0], [0, 1]]
    # 99.9 % quantiles of chi-square with 2 and 1 degrees of freedom.
    for count, quantile in ((counts[0], 13.8), (counts[2], 10.8)):
        expected = draws / len(count)
        assert sum((seen - expected) ** 2 for seen in count.values()) / expected < quantile


class GoTo(Scheduler):
    """Sends every job to one site and starts it there."""

    needs = Needs(protocols=("each-slot",))

    def __init__(self, site):
        self.site = site

    def decide(self, view, answers):
        for asker, _ in view.asked():
            answers.send(asker, self.site)


@pytest.mark.parametrize("site", [0, 1])
def test_value_less_travel_cost_is_the_utility_a_job_adds(site):
    network = {"usd_per_gb": ((0.0, 0.02), (0.03, 0.0)), "kwh_per_gb": ((0.0, 0.05), (0.04, 0.0))}
    job = {"gpus": 2, "work": 5400.0, "move_gb": 4.0, "result_gb": 3.0}
    price, carbon, mu, free_w = (90.0, 30.0), (500.0, 100.0), 100.0, 7.0
    world = plain([2, 3], [job], network=network, price=[[p] for p in price], carbon=[[c] for c in carbon], mu=mu)
    world.sites = [replace(plain_site, free_w=free_w, pue=1.5) for plain_site in world.sites]
    engine = ClusterEngine(world.environment(), GoTo(site))
    engine.step()
    value = run_value_usd(engine.view, 0, site) - travel_cost_usd(engine.view, 0, 0, site)
    idle_kwh = [gpus * free_w * 1.5 * 24 / 1000 for gpus in (2, 3)]
    idle = -sum(kwh * (p + mu * c / 1000) / 1000 for kwh, p, c in zip(idle_kwh, price, carbon, strict=True))
    outcome = run(world.environment(), GoTo(site))
    assert outcome.meters.utility_usd - idle == pytest.approx(value, rel=1e-9)
