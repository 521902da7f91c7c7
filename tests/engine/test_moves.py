"""Moves of suspended jobs: the compiled engine against the slow oracle on random worlds, and an exact world by hand."""

import random
from dataclasses import replace

import pytest

from engine.test_against_oracles import compare_rewards, play
from engine.test_caps import compare, compare_ends
from engine.test_resizes import Resizer
from engine.test_resizes import draw as draw_resizes
from engine.test_suspension import CHECKPOINT, grow_signals, replay
from noonward.decision.brief import Needs
from noonward.decision.cluster.view import ASK_RUNNING
from noonward.decision.scheduler import Scheduler
from noonward.engine.run import run
from noonward.errors import InfeasibleActionError
from noonward.ledger.ledger import settle
from noonward.model.cluster.freedom import Freedom
from noonward.units import HOUR_S
from reference import small_worlds

WORLDS = 300


class Mover(Resizer):
    """Answers at random, and moves suspended jobs where it may."""

    def __init__(self, seed, holds=0.3):
        super().__init__(seed, holds=holds)
        self.needs = Needs(levers=("suspend", "cap", "resize", "move"))


def draw(seed):
    """A random world in which suspended jobs may move; in most, all sites have the same GPUs and clocks."""
    drawn, rng = draw_resizes(seed), random.Random(f"{seed} moves")
    first = drawn.sites[0]
    if rng.random() < 0.85:
        alike = {name: getattr(first, name) for name in ("clocks", "power", "time", "more")}
        drawn.sites = [replace(site, **alike) for site in drawn.sites]
    for c, freedom in drawn.freedoms.items():
        gb = rng.choice((0.0, 5.0, 40.0))
        stopped = freedom.interruptible or bool(freedom.elastic)
        drawn.freedoms[c] = replace(freedom, moves=stopped and rng.random() < 0.9, gb=gb)
        if seed % 2 == 0:
            drawn.freedoms[c] = replace(drawn.freedoms[c], elastic=(), interruptible=True)
    grow_signals(drawn, rng)
    return drawn


def moves_of(outcome):
    """(Job, time, site, GB) of the journeys of jobs that had started."""
    start_s = outcome.job_J["start_s"]
    rows = [row for row in outcome.transfer_X if row["kind"] == 0 and start_s[row["job"]] < row["time_s"]]
    return [(int(row["job"]), float(row["time_s"]), int(row["site"]), float(row["size_gb"])) for row in rows]


@pytest.mark.parametrize("seed", range(WORLDS))
def test_moves_equal_the_slow_oracle(seed):
    world = draw(seed)
    scheduler = Mover(seed, holds=(0.1, 0.5, 0.9)[seed % 3])
    outcome = play(world, scheduler)
    jobs, slow = replay(world, scheduler)
    compare(outcome, world, jobs, slow)
    compare_rewards(outcome, world, slow.rewards)
    compare_ends(outcome, world)
    ledger, moved, meters = settle(outcome), moves_of(outcome), outcome.meters
    assert ledger.interruptions.moves == len(moved)
    assert ledger.interruptions.moved_gb == pytest.approx(sum(gb for *_, gb in moved))
    assert ledger.move_kwh == pytest.approx(meters.move_kwh + meters.result_kwh, rel=1e-9, abs=1e-12)
    if world.price is not None:
        assert ledger.move_usd == pytest.approx(meters.move_usd, rel=1e-9, abs=1e-12)


def test_the_random_worlds_hold_what_there_is_to_test():
    """Moves with checkpoints, runs at several sites, on other gangs, too."""
    moved = with_data = several = other = 0
    for seed in range(0, WORLDS, 8):
        outcome = play(draw(seed), Mover(seed, holds=(0.1, 0.5, 0.9)[seed % 3]))
        moved += len(moves_of(outcome))
        with_data += sum(gb > 0 for *_, gb in moves_of(outcome))
        for j in range(len(outcome.job_J)):
            runs = outcome.segment_K[(outcome.segment_K["job"] == j) & (outcome.segment_K["kind"] == 0)]
            several += len(set(runs["site"].tolist())) > 1
    for seed in range(1, WORLDS, 8):
        segment_K = play(draw(seed), Mover(seed, holds=0.1)).segment_K
        other += ((segment_K["gpus"] != segment_K["own_gpus"]) & (segment_K["kind"] == 0)).sum()
    assert min(moved, with_data, several, other) > 5


class Errand(Scheduler):
    """Starts its job at site 0, suspends it after an hour, moves it to site 1 at once and resumes it there."""

    needs = Needs(protocols=("each-slot",), levers=("suspend", "move"))

    def __init__(self, to=1):
        self.to, self.masks = to, []

    def decide(self, view, answers):
        for site, _ in view.asked():
            if view.kind == ASK_RUNNING:
                if view.now_s == HOUR_S:
                    answers.suspend(site)
                continue
            if view.now_s > HOUR_S and site == 0:
                self.masks.append(view.mask_NA[0].tolist())
                answers.send(0, self.to)
            elif view.allowed(site, site):
                answers.send(site, site)


def world(**options):
    """Two alike sites; a job of 3 h on one GPU with 10 GB of data and a checkpoint of 20 GB; 1 min a GB."""
    freedom = replace(CHECKPOINT, stop_s=600.0, dark_s=0.0, load_s=300.0, moves=True, gb=20.0)
    network = {"throughput_gb_per_min": [[1.0, 1.0]] * 2, "usd_per_gb": [[0.01, 0.01]] * 2}
    made = small_worlds.plain(
        [2, 2],
        [{"gpus": 1, "work": 3 * HOUR_S, "slack_s": 4 * HOUR_S, "move_gb": 10.0}],
        price=[[100.0], [50.0]],
        network=network,
        window_h=12,
        **options,
    )
    made.freedoms = {0: freedom}
    return made


def test_a_suspended_job_moves_with_its_data_and_its_checkpoint():
    """Stopped at 1 h for 600 s, it leaves at 4200 s, travels 30 min, and is resumed at 6000 s."""
    outcome = run(world().environment(), Errand())
    names = ("site", "kind", "from_s", "to_s")
    found = [tuple(float(row[name]) for name in names) for row in outcome.segment_K]
    assert found == [(0, 0, 0, 3600), (0, 1, 3600, 4200), (1, 2, 6000, 6300), (1, 0, 6300, 13500)]
    assert moves_of(outcome) == [(0, 4200.0, 1, 30.0)]
    ledger = settle(outcome)
    assert ledger.move_usd == pytest.approx(0.3)
    assert (ledger.interruptions.moves, ledger.interruptions.moved_gb) == (1, 30.0)


def test_only_a_scheduler_with_the_lever_moves_and_only_where_the_class_says_so():
    rigid = world()
    rigid.freedoms = {0: replace(rigid.freedoms[0], moves=False)}
    scheduler = Errand()
    with pytest.raises(InfeasibleActionError):
        run(rigid.environment(), scheduler)
    assert scheduler.masks == [[1, 1, 0]]

    class Without(Errand):
        needs = Needs(protocols=("each-slot",), levers=("suspend",))

    with pytest.raises(InfeasibleActionError):
        run(world().environment(), Without())


def test_a_site_at_which_it_would_run_at_another_speed_is_masked():
    other = world(time=(0.0, 1.0, 0.0))
    other.sites = [other.sites[0], replace(other.sites[1], time=(0.0, 0.5, 0.0))]
    scheduler = Errand()
    with pytest.raises(InfeasibleActionError):
        run(other.environment(), scheduler)
    assert scheduler.masks == [[1, 1, 0]]


def test_moves_go_with_jobs_that_are_stopped():
    with pytest.raises(ValueError, match="state interruptible: true, too"):
        Freedom(moves=True)
