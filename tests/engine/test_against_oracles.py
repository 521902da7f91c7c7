"""The compiled engine against the slow oracles, event for event, on random worlds under a random scheduler."""

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from noonward.decision.brief import Needs
from noonward.decision.cluster.view import ASK_ALLOCATE, ASK_FINISHED, ASK_ROUTE
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.cluster.kernels.segments import RECORDS
from noonward.ledger.ledger import settle
from noonward.ledger.segments import OVERDUE, PLANNED
from noonward.ledger.settle import settle_transfers
from reference import each_slot, on_arrival, small_worlds
from reference.ledger import over_cap_gpu_s

STATUS = ("planned", "in transit", "queued", "running", "done", "overdue", "failed")


class Wanderer(Scheduler):
    """Answers at random within the mask, and writes down every question and answer."""

    def __init__(self, seed, *, allocate=False, finished=False, holds=0.3):
        self.rng = random.Random(seed)
        self.needs, self.holds = Needs(allocate=allocate, finished=finished), holds
        self.log = []

    def gang(self, view, job):
        record = view.job_J[job]
        return self.rng.choice((0, self.rng.randint(record["gpus_min"], record["gpus_max"])))

    def decide(self, view, answers):
        if view.kind == ASK_FINISHED:
            job, site, level = int(view.serial_N[0]), int(view.run_1["site"][0]), int(view.run_1["level"][0])
            self.log.append((view.kind, view.now_s, job, site, level))
            return
        entry = [view.kind, view.now_s, view.serial_N.tolist(), view.mask_NA.tolist(), view.site_S.copy(), None]
        for asker, job in view.asked():
            if view.kind == ASK_ALLOCATE:
                s = int(view.run_1["site"][0])
                entry[3] = s
            else:
                feasible = np.flatnonzero(view.mask_NA[asker]).tolist()
                if self.rng.random() > self.holds and len(feasible) > 1:
                    feasible = [choice for choice in feasible if choice > 0]
                s = self.rng.choice(feasible) - 1
            level = self.rng.randint(-1, view.site_S["levels"][s if view.kind != 1 else asker] - 1)
            earliest_s = view.now_s + self.rng.choice((-1.0, 0.0, 100.0, 600.0))
            if view.kind != ASK_ROUTE or not self.in_time(view, job, s, earliest_s):
                earliest_s = 0.0
            answers.send(asker, s, gpus=self.gang(view, job), level=level, earliest_s=earliest_s)
        entry[5] = [tuple(answer.tolist()) for answer in answers.answer_N]
        self.log.append(tuple(entry))

    def in_time(self, view, job, s, earliest_s):
        link, record = view.link_IS[view.job_J[job]["origin"], s], view.job_J[job]
        back_s = link["latency_s"] + record["result_gb"] * link["seconds_per_gb"] if record["result_gb"] else 0.0
        return earliest_s <= record["deadline_s"] - back_s


def play(world, scheduler):
    """Runs a world under a scheduler step by step: (outcome, rewards)."""
    engine = ClusterEngine(world.environment(), scheduler, rewards=True)
    assert engine.environment.hours == world.hours()
    rewards, few = [], RECORDS * len(engine.environment.sites)
    engine.world = engine.world._replace(segment_K=engine.world.segment_K[:few].copy())  # it grows with what is noted
    while engine.step():
        rewards.append(engine.reward_usd)
        scheduler.decide(engine.view, engine.answers)
        assert engine.world.engine_1["segments"][0] <= len(engine.world.segment_K)
    return engine.outcome(np.array([*rewards, engine.reward_usd]))


def compare_jobs(outcome, jobs):
    track = outcome.job_J
    assert [STATUS[status] for status in track["status"]] == [job.status for job in jobs]
    for name in ("reach_s", "start_s", "finish_s"):
        expected = [getattr(job, name) for job in jobs]
        np.testing.assert_array_equal(track[name], expected, err_msg=name)
    for name in ("site", "moves"):
        assert track[name].tolist() == [getattr(job, name) for job in jobs], name
    for record, job in zip(track, jobs, strict=True):
        if not math.isnan(job.start_s):
            assert (record["gpus"], record["level"]) == (job.gpus, job.level)


def compare_meters(outcome, world, ledger, jobs):
    close = {"rel": 1e-9, "abs": 1e-9}
    kinds = ("kwh", "usd", "kg") if world.price is not None else ("kwh",)
    meters = outcome.meters
    own_JA, _ = settle_transfers(
        outcome.transfer_X, outcome.environment.links, outcome.environment.fleet.tables(1).home_I,
        outcome.environment.site_signals, len(outcome.job_J),
    )  # fmt: skip
    for s in range(len(world.sites)):
        assert meters.gpu_s_S[s] == pytest.approx(ledger.busy[s]["gpu_s"], **close)
        for kind in kinds:
            assert getattr(meters, f"busy_{kind}_S")[s] == pytest.approx(ledger.busy[s][kind], **close)
            assert getattr(meters, f"free_{kind}_S")[s] == pytest.approx(ledger.free[s][kind], **close)
        if world.caps is not None:
            expected = over_cap_gpu_s(jobs, s, world.caps[s], outcome.ended_s)
            assert outcome.over_cap_gpu_s_S[s] == pytest.approx(expected, **close)
    assert meters.late_usd == pytest.approx(world.late_usd * ledger.late_gpu_h, **close)
    for a, kind in enumerate(kinds):
        assert getattr(outcome.meters, f"move_{kind}") == pytest.approx(ledger.moved[kind], **close)
        assert getattr(outcome.meters, f"result_{kind}") == pytest.approx(ledger.returned[kind], **close)
        assert own_JA[:, a].sum() == pytest.approx(ledger.moved[kind], **close)


def compare_rewards(outcome, world, rewards):
    assert len(outcome.rewards_K) == len(rewards) == outcome.steps + 1
    if world.price is None:
        assert np.isnan(outcome.rewards_K).any() or world.unavailable() is not None  # where all is withheld, none
    else:
        scale = sum(map(abs, rewards))
        np.testing.assert_allclose(outcome.rewards_K, rewards, rtol=1e-9, atol=1e-10 * scale)
        assert outcome.meters.utility_usd == pytest.approx(math.fsum(rewards), rel=1e-9, abs=1e-10 * scale)
        assert settle(outcome).utility_usd == pytest.approx(math.fsum(rewards), rel=1e-9, abs=1e-10 * scale)


def replay_each_slot(world, scheduler):
    """Runs the oracle with the recorded answers, each question compared with the recorded one."""
    log = iter(scheduler.log)

    def answer(question):
        _, now_s, asked, mask, sites, answers = next(log)
        assert (now_s, asked) == (question.now_s, question.asked)
        for s, row in enumerate(question.mask):
            assert row is None or mask[s] == [int(good) for good in row], (now_s, s)
        for name in ("free", "waiting", "waiting_gpus"):
            assert sites[name].tolist() == getattr(question, name), name
        if world.price is not None:
            hour = min(int(now_s // 3600), len(world.price[0]) - 1)
            assert sites["price"].tolist() == [row[hour] for row in world.price]
            assert sites["carbon"].tolist() == [row[hour] for row in world.carbon]
        return [(choice, gpus, level) for choice, gpus, level, *_ in answers]

    jobs, ledger = world.jobs(), world.ledger()
    run = each_slot.simulate(world.plant(), jobs, answer, ledger)
    assert next(log, None) is None
    return jobs, ledger, run.rewards, run.ended_s


@pytest.mark.parametrize("seed", range(120))
def test_each_slot_equals_the_slow_oracle(seed):
    compare_each_slot(small_worlds.draw(seed, "each-slot"), seed)


@pytest.mark.parametrize("seed", range(80))
def test_each_slot_with_withheld_gpus_equals_the_slow_oracle(seed):
    compare_each_slot(small_worlds.withholding(small_worlds.draw(seed, "each-slot"), seed), seed)


@pytest.mark.parametrize("seed", range(60))
def test_each_slot_with_hard_connections_equals_the_slow_oracle(seed):
    world = small_worlds.draw(seed, "each-slot")
    if seed % 3 == 0:
        world = small_worlds.withholding(world, seed)
    if seed % 3 == 1:
        world = small_worlds.with_tenants(world, seed)
    compare_each_slot(small_worlds.connected(world, seed), seed)


@pytest.mark.parametrize("seed", range(150))
def test_each_slot_with_tenants_equals_the_slow_oracle(seed):
    world = small_worlds.draw(seed, "each-slot")
    if seed % 3 == 0:
        world = small_worlds.withholding(world, seed)
    compare_each_slot(small_worlds.with_tenants(world, seed), seed)


@pytest.mark.parametrize("seed", range(150))
def test_each_slot_with_budgets_equals_the_slow_oracle(seed):
    world = small_worlds.with_tenants(small_worlds.draw(seed, "each-slot"), seed)
    compare_each_slot(small_worlds.with_budgets(world, seed), seed)


@pytest.mark.parametrize("seed", range(150))
def test_on_arrival_with_budgets_equals_the_slow_oracle(seed):
    world = small_worlds.with_tenants(small_worlds.draw(seed, "on-arrival"), seed)
    compare_on_arrival(small_worlds.with_budgets(world, seed), seed, seed % 3 == 0)


def test_in_random_worlds_budgets_hold_jobs_back_until_their_periods_end():
    held = later = refused = 0
    for seed in range(60):
        for protocol in ("each-slot", "on-arrival"):
            world = small_worlds.with_tenants(small_worlds.draw(seed, protocol), seed)
            free = play(world, Wanderer(seed))
            small_worlds.with_budgets(world, seed)
            kept = play(world, Wanderer(seed))
            held += not np.array_equal(free.job_J["start_s"], kept.job_J["start_s"], equal_nan=True)
            turn_s = small_worlds.Budgets(world.start, [], None, None).turns_s(1.0)[0]
            later += bool((kept.job_J["start_s"] >= turn_s).any())
            refused += int((kept.job_J["status"] == OVERDUE).sum() > (free.job_J["status"] == OVERDUE).sum())
    assert held > 40
    assert later > 20
    assert refused > 15


@pytest.mark.parametrize("seed", range(120))
@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
def test_priorities_order_queues_as_in_the_slow_oracle(seed, protocol):
    world = small_worlds.with_priorities(small_worlds.draw(seed, protocol), seed)
    if seed % 2:
        world = small_worlds.with_tenants(world, seed)
    if protocol == "each-slot":
        compare_each_slot(world, seed)
    else:
        compare_on_arrival(world, seed, seed % 3 == 0)


def test_in_random_worlds_sites_wait_for_the_next_step():
    waited = 0
    for seed in range(40):
        scheduler = Wanderer(seed)
        play(small_worlds.with_tenants(small_worlds.draw(seed, "each-slot"), seed), scheduler)
        slots = [(entry[1], entry[2]) for entry in scheduler.log]
        waited += sum(
            before[0] == after[0]
            and any(first < 0 <= second for first, second in zip(before[1], after[1], strict=True))
            for before, after in itertools.pairwise(slots)
        )
    assert waited > 0


def compare_each_slot(world, seed):
    scheduler = Wanderer(seed, holds=(0.1, 0.5, 0.9)[seed % 3])
    outcome = play(world, scheduler)
    jobs, ledger, rewards, ended_s = replay_each_slot(world, scheduler)
    compare_jobs(outcome, jobs)
    assert outcome.ended_s == ended_s
    compare_meters(outcome, world, ledger, jobs)
    compare_rewards(outcome, world, rewards)


class Replay:
    """Gives the on-arrival oracle the recorded answers, and reads the utility at every question."""

    def __init__(self, world, log):
        self.world, self.log, self.ledger = world, iter(log), world.ledger()
        self.rewards, self.booked_usd = [], 0.0

    def pay(self, time_s):
        self.ledger.run_to(time_s)
        utility_usd = self.ledger.utility_usd()
        self.rewards.append(utility_usd - self.booked_usd)
        self.booked_usd = utility_usd

    def sites(self, state, sites):
        assert sites["free"].tolist() == [state.shown_free(s) for s in range(len(state.sites))]
        assert sites["waiting"].tolist() == [len(queue) for queue in state.queues]
        assert sites["waiting_gpus"].tolist() == [sum(j.gpus_min for j in queue.values()) for queue in state.queues]

    def route(self, state, job):
        kind, now_s, asked, mask, sites, answers = next(self.log)
        assert (kind, now_s, asked) == (ASK_ROUTE, state.now_s, [job.index])
        assert mask == [[0, *(int(s in state.feasible) for s in range(len(state.sites)))]]
        self.sites(state, sites)
        self.pay(now_s)
        choice, gpus, level, earliest_s, _ = answers[0]
        return choice - 1, gpus or job.gpus_max, level, earliest_s

    def allocate(self, state, job, s, free):
        kind, now_s, asked, site, sites, answers = next(self.log)
        assert (kind, now_s, asked, site) == (ASK_ALLOCATE, state.now_s, [job.index], s)
        self.sites(state, sites)
        self.pay(now_s)
        _, gpus, level, *_ = answers[0]
        return gpus or job.gpus_max, level

    def finished(self, state, job, unit_j):
        assert next(self.log) == (ASK_FINISHED, state.now_s, job.index, job.site, job.level)
        self.pay(state.now_s)


def replay_on_arrival(world, scheduler):
    replay = Replay(world, scheduler.log)
    jobs, _ = on_arrival.simulate(
        world.sites,
        world.latency_s(),
        world.jobs(),
        replay.route,
        world.window_h * 3600.0,
        drained=world.drained,
        link_s_per_gb=world.s_per_gb(),
        home_site=world.homes,
        caps=world.hard_caps,
        allocate=replay.allocate if scheduler.needs.allocate else None,
        finished=replay.finished if scheduler.needs.finished else None,
        ledger=replay.ledger,
        late_until_s=world.late_until_s,
        queued=world.queued,
        withheld=world.unavailable(),
        quotas=world.quotas(),
    )
    assert next(replay.log, None) is None
    return jobs, replay


@pytest.mark.parametrize("queued", [False, True], ids=("links", "queued-links"))
@pytest.mark.parametrize("seed", range(120))
def test_on_arrival_equals_the_slow_oracle(seed, queued):
    compare_on_arrival(small_worlds.draw(seed, "on-arrival"), seed, queued)


@pytest.mark.parametrize("seed", range(80))
def test_on_arrival_with_withheld_gpus_equals_the_slow_oracle(seed):
    compare_on_arrival(small_worlds.withholding(small_worlds.draw(seed, "on-arrival"), seed), seed, seed % 3 == 0)


@pytest.mark.parametrize("seed", range(150))
def test_on_arrival_with_tenants_equals_the_slow_oracle(seed):
    compare_on_arrival(small_worlds.with_tenants(small_worlds.draw(seed, "on-arrival"), seed), seed, seed % 3 == 0)


def compare_on_arrival(world, seed, queued):
    world.queued = queued
    scheduler = Wanderer(seed, allocate=seed % 2 == 1, finished=seed % 4 > 1)
    outcome = play(world, scheduler)
    jobs, replay = replay_on_arrival(world, scheduler)
    compare_jobs_on_arrival(outcome, jobs)
    window_s = world.window_h * 3600.0
    if world.drained:
        assert outcome.ended_s == max(window_s, *map(last_event_s, jobs))
    else:
        assert outcome.ended_s == window_s
    replay.pay(outcome.ended_s)
    compare_meters(outcome, world, replay.ledger, jobs)
    compare_rewards(outcome, world, replay.rewards)


def compare_jobs_on_arrival(outcome, jobs):
    """As `compare_jobs`; the oracle leaves out jobs that arrive after the window."""
    late = outcome.job_J[len(jobs) :]
    assert (late["status"] == PLANNED).all()
    assert np.isnan(late["reach_s"]).all()
    compare_jobs(replace(outcome, job_J=outcome.job_J[: len(jobs)]), jobs)


def last_event_s(job):
    """When a job was done or dropped."""
    if job.status == "done":
        return job.finish_s
    return job.arrival_s if job.site < 0 else job.latest_start_s


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
def test_the_random_worlds_hold_what_there_is_to_test(protocol):
    """Every status, moves, shortened gangs, several clocks, waits, and caps that bind."""
    tracks, over_cap = [], 0.0
    for seed in range(60):
        outcome = play(small_worlds.draw(seed, protocol), Wanderer(seed))
        tracks.append(outcome.job_J)
        over_cap += outcome.over_cap_gpu_s_S.sum()
    track = np.concatenate(tracks)
    assert (np.bincount(track["status"], minlength=6) > 0).all()
    assert track["moves"].max() >= (2 if protocol == "each-slot" else 1)
    assert (track["start_s"] > track["reach_s"]).sum() > 50
    assert len(np.unique(track["level"][track["start_s"] >= 0])) == 4
    assert len(np.unique(track["gpus"][track["start_s"] >= 0])) >= 6
    assert over_cap > 0.0
