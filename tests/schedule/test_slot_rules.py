"""Each rule of protocol each-slot on hand-made views and worlds with exact answers."""

import collections
from dataclasses import replace

import numpy as np
import pytest

from noonward.decision.brief import Needs
from noonward.decision.cluster.assembly import summarize_links
from noonward.decision.cluster.feasibility import first_start_s
from noonward.decision.cluster.value import run_value_usd, travel_cost_usd
from noonward.decision.cluster.view import RuleMemory, latest_start_s
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.schedule.cluster.claims import AHEAD, CLAIM_ROWS, end_claims
from noonward.schedule.cluster.slot_rules import ceilings_of
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


def cheapest(view):
    """Choices of ``cheapest-feasible`` with the memory of a new run."""
    scheduler = make_scheduler("cheapest-feasible")
    scheduler.memory = ceilings_of(len(view.site_S))
    return choices(scheduler, view)


def plainly_cheapest(view, s, claimed=()):
    """What ``cheapest-feasible`` is to answer: the best of all sites, the first of equals; some GPUs may be claimed."""
    job, best = int(view.asked_N[s]), (False, -np.inf, -1)
    for d in range(len(view.site_S)):
        free = view.site_S["free"][d] - (claimed[d] if d != s and len(claimed) else 0)
        if view.mask_NA[s, 1 + d] and free >= view.job_J["gpus_min"][job]:
            in_time = first_start_s(view, job, s, d) <= latest_start_s(view, job, d)
            value = run_value_usd(view, job, d) - travel_cost_usd(view, job, s, d)
            if best[2] < 0 or (in_time, value) > best[:2]:
                best = (in_time, value, d)
    return 1 + best[2]


def random_view(rng):
    """A view of up to 70 sites and of jobs that may go to some of them."""
    sites, late_until_s = int(rng.integers(2, 71)), rng.choice([-np.inf, 1e4])
    site_S = [{"gpus": 4, "pue": rng.choice([1.1, 1.3])} for _ in range(sites)]
    jobs = [
        {
            "work": rng.choice([0.0, 1e-9, 60.0, 3600.0, 1e6]),
            "origin": int(rng.integers(sites)),
            "gpus_max": int(rng.integers(1, 4)),
            "move_gb": rng.choice([0.0, 2.0]),
            "result_gb": rng.choice([0.0, 5.0]),
            "deadline_s": rng.choice([100.0, 400.0, np.inf]),
        }
        for _ in range(12)
    ]
    view = make_view(
        site_S, asked=(-1,) * sites, jobs=jobs, power_w=((90.0,), (200.0,), (250.0,)),
        seconds=((1.0,), (0.6,), (0.5,)), revenue_usd_per_gpu_hour=0.02, carbon_usd_per_t=rng.choice([0.0, 100.0]),
        late_until_s=late_until_s,
    )  # fmt: skip
    few = rng.choice([1, 3, sites])
    view.link_IS["usd_per_gb"] = rng.choice([0.0, 1e-4, 1e-2], (sites, few))[:, rng.integers(few, size=sites)]
    view.link_IS["kwh_per_gb"] = rng.choice([0.0, 0.005], (sites, 1))
    view.link_IS["seconds_per_gb"] = rng.choice([0.0, 60.0], (sites, sites))
    for name in ("usd_per_gb", "kwh_per_gb", "seconds_per_gb"):
        np.fill_diagonal(view.link_IS[name], 0.0)
    summarize_links(view.site_S, view.link_IS, view.home_I)
    return view


def draw_question(rng, view, *, new_prices):
    """Draws what is free, who asks and where jobs may go; prices where they are to be new."""
    sites = len(view.site_S)
    if new_prices:
        view.site_S["price"] = rng.choice([-20.0, 30.0, 30.0, 80.0], sites)
        view.site_S["carbon"] = rng.choice([20.0, 400.0], sites)
    view.site_S["free"] = rng.integers(0, 3, sites)
    view.asked_N[:] = rng.integers(-1, len(view.job_J), sites)
    view.mask_NA[:, 1:] = rng.random((sites, sites)) < 0.7


@pytest.mark.parametrize("seed", range(40))
def test_cheapest_feasible_chooses_as_if_it_looked_at_every_site(seed):
    """Up to 70 sites over three slots: prices change after the first, and what is free and who asks in every one."""
    rng = np.random.default_rng(seed)
    view = random_view(rng)
    sites = len(view.site_S)
    scheduler = make_scheduler("cheapest-feasible")
    scheduler.memory = ceilings_of(sites)
    for slot in range(3):
        view.run_1["now_s"] = 60.0 * slot
        draw_question(rng, view, new_prices=slot != 1)
        want = [plainly_cheapest(view, s) if view.asked_N[s] >= 0 else 0 for s in range(sites)]
        assert choices(scheduler, view) == want


@pytest.mark.parametrize("seed", range(40))
def test_cheapest_unclaimed_passes_over_what_jobs_on_their_way_will_take(seed):
    """Several questions a slot, slots passed over now and then, and a restart: claims in a list, for every site."""
    rng = np.random.default_rng(seed)
    view = random_view(rng)
    sites, slot = len(view.site_S), int(rng.integers(5))
    view.link_IS["seconds_per_gb"] = rng.choice([0.0, 60.0, 6000.0], (sites, sites))
    scheduler = make_scheduler("cheapest-unclaimed")
    scheduler.memory = ceilings_of(sites, claims=True)
    claims = []  # (site, GPUs, slot at whose begin it ends)
    for question in range(12):
        passed = int(rng.choice([0, 0, 1, 2, 7, 150])) if question else 1
        slot += passed
        view.run_1["now_s"] = 60.0 * slot
        draw_question(rng, view, new_prices=passed > 0)
        if question == 6:
            state = scheduler.state()
            scheduler = make_scheduler("cheapest-unclaimed")
            scheduler.memory = ceilings_of(sites, claims=True)
            scheduler.load_state(state)
        claims = [one for one in claims if one[2] > slot]
        claimed, want = np.zeros(sites), []
        for site, gpus, _ in claims:
            claimed[site] += gpus
        for s in range(sites):
            job = int(view.asked_N[s])
            want.append(plainly_cheapest(view, s, claimed) if job >= 0 else 0)
            if want[-1] not in (0, 1 + s):
                d = want[-1] - 1
                arrives = round(first_start_s(view, job, s, d) / 60.0)
                claims.append((d, view.job_J["gpus_min"][job], min(arrives + 1, slot + AHEAD)))
                claimed[d] += view.job_J["gpus_min"][job]
        assert choices(scheduler, view) == want


def test_claims_that_were_stored_when_slots_were_shorter_end_at_once():
    view = make_view([{"gpus": 4, "free": 2}, {"gpus": 4, "free": 2}], asked=(-1, -1))
    view.run_1["now_s"] = 600.0
    claim_XS = np.zeros((CLAIM_ROWS, 2))
    claim_XS[0, 1] = claim_XS[20, 1] = 3.0
    assert end_claims(view, claim_XS, 10) == 10
    assert claim_XS.sum() == 6.0
    assert end_claims(view, claim_XS, 30) == 10
    assert not claim_XS.any()


def test_cheapest_unclaimed_sends_one_job_to_one_free_gpu():
    jobs = [{"gpus": 1}, {"gpus": 1}, {"gpus": 1}]
    world = plain([1, 1], jobs, price=[[50.0], [50.0]])
    ran = {
        name: run(world.environment(), make_scheduler(name)).job_J[["site", "start_s"]].tolist()
        for name in ("cheapest-feasible", "cheapest-unclaimed")
    }
    # The third job goes after the second one for nothing and comes back, or it waits for the first one to end.
    assert ran["cheapest-feasible"] == [(0, 0.0), (1, 60.0), (0, 660.0)]
    assert ran["cheapest-unclaimed"] == [(0, 0.0), (1, 60.0), (0, 600.0)]


def test_cheapest_feasible_weighs_price_carbon_and_travel():
    sites = [{"price": price, "carbon": carbon} for price, carbon in ((60.0, 0.0), (40.0, 0.0), (30.0, 200.0))]
    jobs = ({"work": 3600.0, "move_gb": 1.0},)
    # 0.1 kWh each: 6, 4 and 3 + 2 (200 g/kWh at 100 USD/t) thousandths of a USD.
    view = make_view(sites, asked=(0, -1, -1), jobs=jobs, carbon_usd_per_t=100.0)
    assert cheapest(view) == [2, 0, 0]
    view.link_IS["usd_per_gb"][0, 1] = 0.0015
    assert cheapest(view) == [3, 0, 0]
    view.link_IS["usd_per_gb"][0, 1:] = 0.003
    assert cheapest(view) == [1, 0, 0]
    view.site_S["free"][0] = 0
    assert cheapest(view) == [2, 0, 0]
    view.site_S["free"] = 0
    assert cheapest(view) == [0, 0, 0]


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
