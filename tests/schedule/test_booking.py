"""Booking: exact answers on tiny worlds, and every booking against a slow search."""

import math
import random

import numpy as np
import pytest

from noonward.decision.brief import Brief
from noonward.decision.cluster.view import CARBON, PRICE
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.forecasts.forecast import Forecast
from noonward.ledger.segments import OVERDUE
from noonward.schedule.cluster.booking import REFUSED, Booked
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from reference import small_worlds
from reference.ledger import hourly
from reference.small_worlds import plain

HOUR_S = 3600.0
VALLEY = [100.0, 60.0, 10.0, 100.0]
"""Prices; a job of an hour with three hours of slack belongs into the third."""
JOB = {"work": HOUR_S, "slack_s": 3 * HOUR_S}


def track(gpus, jobs, policy="booked-perfect", **options):
    return run(plain(gpus, jobs, **options).environment(), make_scheduler(policy)).job_J


def test_the_cheap_hour_is_booked():
    assert track([1], [JOB], price=[VALLEY])["start_s"].tolist() == [2 * HOUR_S]


def test_a_booked_hour_is_full_and_the_next_best_is_booked():
    assert track([1], [JOB] * 3, price=[VALLEY])["start_s"].tolist() == [2 * HOUR_S, HOUR_S, 0.0]
    assert track([2], [JOB] * 3, price=[VALLEY])["start_s"].tolist() == [2 * HOUR_S, 2 * HOUR_S, HOUR_S]


def test_a_job_that_finds_no_room_within_its_slack_is_refused():
    short = {"work": HOUR_S, "slack_s": 0.5 * HOUR_S}
    assert track([1], [short] * 2, price=[VALLEY])["status"].tolist() == [4, OVERDUE]


def test_the_cheap_site_is_booked_where_the_journey_pays():
    job = JOB | {"move_gb": 1.0}
    prices = [[60.0], [20.0]]  # 0.1 kWh: 4 thousandths of a USD saved
    for usd_per_gb, site in ((0.003, 1), (0.005, 0)):
        link = {"usd_per_gb": ((0.0, usd_per_gb), (usd_per_gb, 0.0))}
        assert track([1, 1], [job], price=prices, network=link)["site"].tolist() == [site]


def test_a_loss_making_job_is_refused_and_held_until_overdue():
    assert track([1], [JOB], price=[VALLEY], alpha=0.0009)["status"].tolist() == [OVERDUE]
    assert track([1], [JOB], price=[VALLEY], alpha=0.0011)["start_s"].tolist() == [2 * HOUR_S]
    assert track([1], [JOB], price=[[5.0, -5.0, 5.0, 5.0]], alpha=0.0)["start_s"].tolist() == [HOUR_S]


def test_persistence_books_yesterdays_cheap_hour():
    yesterday = [50.0] * 22 + [10.0, 50.0]  # hour -2 is today's hour 22
    job = {"work": HOUR_S, "slack_s": 23 * HOUR_S}
    world = plain([1], [job], price=[yesterday + VALLEY], history_h=24)
    starts_s = [
        run(world.environment(), make_scheduler(name)).job_J["start_s"][0]
        for name in ("booked-persistence", "booked-perfect")
    ]
    assert starts_s == [22 * HOUR_S, 2 * HOUR_S]


@pytest.mark.parametrize("policy", ["booked-persistence", "booked-perfect", "booked-noisy"])
def test_jobs_that_run_past_a_window_stay_within_the_bookings(policy):
    """A long job late in a run that stops at the window must not book slots that do not exist."""
    jobs = [{"arrival_s": 1800.0 * n, "work": 3e5, "slack_s": (3600.0, math.inf)[n % 2]} for n in range(8)]
    world = plain([3], jobs, price=[[20.0]], window_h=4, drained=False, history_h=24)
    environment, scheduler = world.environment(), make_scheduler(policy)
    run(environment, scheduler)
    booked = scheduler.memory.job_index_JP
    assert (booked[booked[:, 0] >= 0, 1] * 60.0 <= 4 * HOUR_S + 60.0).all()
    assert scheduler.memory.index_XY.min() >= 0
    assert scheduler.memory.index_XY.max() <= 3


def test_a_hard_cap_keeps_a_booked_job_waiting():
    caps = [[1, 1, 0, 1]]
    assert track([1], [JOB], price=[VALLEY], caps=caps)["start_s"].tolist() == [3 * HOUR_S]


class Search:
    """Booking by trying every slot: jobs of fixed gangs under perfect forecasts."""

    def __init__(self, world):
        self.world, self.plant = world, world.plant()
        self.busy = [np.zeros(100_000, dtype=int) for _ in world.sites]

    def link_s(self, ingress, d, size_gb):
        if self.plant.homes[ingress] == d:
            return 0.0
        return self.plant.latency_s[ingress][d] + size_gb * self.plant.s_per_gb[ingress][d]

    def travel_usd(self, ingress, d, size_gb, now_s):
        source, network = self.plant.homes[ingress], self.world.network
        if source == d:
            return 0.0
        carbon = [self.world.carbon[s][int(now_s // HOUR_S)] for s in (source, d)]
        kwh = size_gb * network["kwh_per_gb"][ingress][d]
        return size_gb * network["usd_per_gb"][ingress][d] + self.world.mu * kwh * sum(carbon) / 2e6

    def value_usd(self, job, d, level, start_s, run_s):
        site, world = self.world.sites[d], self.world
        power_w = site.pue * (site.power_w(job.gpus_max, level, job.class_) - job.gpus_max * site.free_w)
        price, carbon = (hourly(rows[d], start_s, start_s + run_s) for rows in (world.price, world.carbon))
        return world.alpha * job.gpus_max * run_s / HOUR_S - power_w * (price + world.mu / 1000 * carbon) / 3.6e9

    def starts(self, job, d, first_s):
        """Slots in which a job may start at a site."""
        back_s = self.link_s(job.origin, d, job.result_gb) if job.result_gb else 0.0
        slot = math.ceil(first_s / self.plant.slot_s)
        while slot * self.plant.slot_s <= job.deadline_s - back_s:
            yield slot
            slot += 1

    def options(self, job, s, now_s):
        """Returns the value of every free start, (site, slot) -> USD."""
        slot_s, out = self.plant.slot_s, {}
        ingress = self.plant.homes.index(s)
        for d, site in enumerate(self.world.sites):
            if job.gpus_max > site.gpus or job.class_ in site.barred:
                continue
            level, run_s, slots = self.run(job, d)
            travel_usd = self.travel_usd(ingress, d, job.move_gb, now_s) if d != s else 0.0
            travel_usd += self.travel_usd(job.origin, d, job.result_gb, now_s)
            first_s = now_s if d == s else max(now_s + slot_s, now_s + self.link_s(ingress, d, job.move_gb))
            for slot in self.starts(job, d, first_s):
                if (self.busy[d][slot : slot + slots] + job.gpus_max <= site.gpus).all():
                    out[d, slot] = self.value_usd(job, d, level, slot * slot_s, run_s) - travel_usd
        return out

    def run(self, job, d):
        """Returns (clock level, run time in s, slots) of a job at a site."""
        site = self.world.sites[d]
        level = site.best_level(job.gpus_max, job.class_)
        run_s = job.work * site.unit_s(job.gpus_max, level, job.class_)
        return level, run_s, math.ceil(run_s / self.plant.slot_s)

    def check_and_book(self, job, s, now_s, booked):
        """Checks that a booking is (one of) the best, and takes its GPUs."""
        options = self.options(job, s, now_s)
        best = max(options.values(), default=0.0)
        if booked[0] == REFUSED:
            assert best <= 1e-12
            return
        assert options[booked] == pytest.approx(best, rel=1e-9, abs=1e-12)
        assert best > -1e-12
        d, slot = booked
        self.busy[d][slot : slot + self.run(job, d)[2]] += job.gpus_max


@pytest.mark.parametrize("seed", range(20))
def test_every_booking_is_the_best_of_a_slow_search(seed):
    world = small_worlds.draw(seed, "each-slot", drained=True, caps="none", signals=True)
    small_worlds.on_time(world)  # late jobs are booked at the first start with room: tests/engine/test_lateness.py
    for row in world.rows:
        row["gpus_max"] = row["gpus_min"]
    small_worlds.add_signals(world, random.Random(seed), True)
    environment, scheduler = world.environment(), Booked(Forecast("perfect"))
    engine = ClusterEngine(environment, scheduler)
    scheduler.reset(Brief.of(environment, scheduler.needs), stream(0, "policy"))
    search, jobs, bookings = Search(world), world.jobs(), {}
    while engine.step():
        scheduler.decide(engine.view, engine.answers)
        for s, slot in engine.view.asked():
            job = int(engine.view.serial_N[s])
            if job not in bookings:
                bookings[job] = tuple(scheduler.memory.job_index_JP[slot, :2].tolist())
                search.check_and_book(jobs[job], s, engine.view.now_s, bookings[job])
    track = engine.outcome().job_J
    assert bookings
    for job, (site, slot) in bookings.items():
        if site == REFUSED:
            assert track["status"][job] == OVERDUE
        else:
            assert track[["site", "start_s"]][job].item() == (site, slot * world.slot_s)


def test_forecast_reaches_the_rule_as_it_was_issued():
    world = plain([1], [JOB], price=[VALLEY], carbon=[[1.0, 2.0, 3.0]])
    engine = ClusterEngine(world.environment(), make_scheduler("booked-perfect"))
    engine.step()
    hours = np.cumsum(VALLEY) * HOUR_S
    np.testing.assert_allclose(engine.view.forecast_KSL[PRICE, 0, :5], [0.0, *hours])
    np.testing.assert_allclose(engine.view.forecast_KSL[CARBON, 0, :4], [0.0, 3600.0, 10800.0, 21600.0])
