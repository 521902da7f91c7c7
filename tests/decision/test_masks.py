"""Masks are the view's own: what the engine asks with, a live service computes from the view, without an engine."""

import subprocess
import sys

import numpy as np
import pytest

from noonward.bench.scale import many_sites
from noonward.data.environments import build_environment
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.assembly import make_view as make_view_of
from noonward.decision.cluster.assembly import summarize_links
from noonward.decision.cluster.feasibility import (
    can_move,
    fill_mask,
    fill_route_mask,
    first_start_s,
    joins_at,
    room,
)
from noonward.decision.cluster.view import ASK_ROUTE, fits, last_start_s
from noonward.engine.cluster.engine import ClusterEngine
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from reference import small_worlds
from reference.views import make_view

LIVE = """
import sys
from datetime import UTC, datetime

import numpy as np

from noonward import Brief, load_scenario, make_scheduler
from noonward.decision.cluster.assembly import make_view
from noonward.decision.cluster.feasibility import fill_mask, room
from noonward.decision.cluster.layout import ANSWER_PARTS, blank
from noonward.decision.cluster.view import ASK_SLOT, Answers

tiny = load_scenario("tiny")
brief = Brief(
    scenario="live",
    start=datetime(2026, 11, 22, tzinfo=UTC),
    protocol="each-slot",
    slot_s=900.0,
    window_s=float("inf"),
    drained=True,
    fleet=tiny.fleet,
    links=tiny.network.links(tiny.fleet),
    largest_gang=4,
    largest_need=4,
    signals=True,
    economics=tiny.economics,
)
view = make_view(brief, slots=8)
view.run_1["now_s"], view.run_1["kind"] = 1800.0, ASK_SLOT
view.site_S["price"], view.site_S["carbon"] = [90.0, 10.0], [300.0, 20.0]
view.site_S["free"][0] = 1
job = view.job_J[5]
job["arrival_s"], job["work"], job["deadline_s"], job["gpus_min"], job["gpus_max"] = 1700.0, 3600.0, 9000.0, 2, 4
view.asked_N[0] = 5
no_curve_SH = np.zeros((2, 0))
fill_mask(view, 5, 0, room(view, 0, no_curve_SH, False))
answers = Answers(**blank(ANSWER_PARTS, askers=2, sites=2, limit_hours=0))
answers.answer_N["level"] = -1
said = []
for name in ("local-backfill", "price-greedy", "cheapest-feasible", "patient"):
    scheduler = make_scheduler(name)
    scheduler.reset(brief, np.random.default_rng(0))
    answers.answer_N["choice"] = 0
    scheduler.decide(view, answers)
    said.append(int(answers.answer_N["choice"][0]))
print(view.mask_NA[0].tolist(), said, [name for name in sys.modules if name.startswith("noonward.engine")])
"""


def test_a_live_service_asks_without_an_engine():
    """No room at home for a gang of 2: it holds, or goes to the cheap site that has room; no engine was imported."""
    done = subprocess.run([sys.executable, "-c", LIVE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[1, 0, 1] [0, 2, 2, 2] []"


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
@pytest.mark.parametrize("seed", range(8))
def test_masks_from_the_view_are_those_the_engine_asks_with(protocol, seed):
    world = small_worlds.draw(seed, protocol)
    scheduler = make_scheduler("random" if protocol == "each-slot" else "random-free")
    environment = world.environment()
    engine = ClusterEngine(environment, scheduler)
    scheduler.reset(engine.brief, stream(0, "policy"))
    curve_SH = np.zeros((len(environment.sites), 0)) if environment.caps is None else environment.caps.gpus_SH
    hard = environment.caps is not None and environment.caps.hard
    asked = 0
    while engine.step():
        view = engine.view
        again = view._replace(mask_NA=np.zeros_like(view.mask_NA))
        for s, job in view.asked():
            if protocol == "each-slot":
                fill_mask(again, job, s, room(again, s, curve_SH, hard))
            elif view.kind == ASK_ROUTE:
                assert fill_route_mask(again, job)
        assert again.mask_NA.tolist() == view.mask_NA.tolist()
        scheduler.decide(view, engine.answers)
        asked += 1
    assert asked or protocol == "on-arrival"


@pytest.mark.parametrize("seed", range(40))
def test_masks_by_the_slowest_links_are_those_of_every_link(seed):
    """Deadlines from far too short to ample, over links of some speeds, to sites of some sizes and ranges."""
    rng = np.random.default_rng(seed)
    sites = int(rng.integers(1, 7))
    jobs = [
        {
            "origin": int(rng.integers(sites)), "gpus_min": int(rng.integers(1, 4)), "move_gb": rng.choice([0.0, 1.0]),
            "result_gb": rng.choice([0.0, 2.0]), "deadline_s": rng.choice([0.0, 60.0, 120.0, 300.0, 600.0, np.inf]),
        }
        for _ in range(40)
    ]  # fmt: skip
    view = make_view([{"gpus": int(gpus)} for gpus in rng.integers(2, 5, sites)], asked=(-1,) * sites, jobs=jobs)
    view.run_1["late_until_s"] = rng.choice([-np.inf, 90.0])
    view.link_IS["latency_s"] = rng.choice([0.0, 20.0, 61.0], (sites, sites))
    view.link_IS["seconds_per_gb"] = rng.choice([0.0, 60.0], (sites, sites))
    if seed % 2:  # several ingress points at home at one site, whose links differ
        view.home_I[:] = rng.integers(0, sites, sites)
        view.site_S["ingress"] = -1
        view.site_S["ingress"][view.home_I] = np.arange(sites)
    for name in ("latency_s", "seconds_per_gb"):
        view.link_IS[name][np.arange(sites), view.home_I] = 0.0
    view.range_CS[:] = rng.random(sites) < 0.9
    view.run_1["least_gpus"] = view.site_S["gpus"].min()
    summarize_links(view.site_S, view.link_IS, view.home_I)
    for job in range(len(jobs)):
        s = int(rng.choice(view.home_I))
        fill_mask(view, job, s, 2)
        moves = [can_move(view, job, s, d) for d in range(sites)]
        moves[s] = bool(fits(view, job, s) and jobs[job]["gpus_min"] <= 2 and last_start_s(view, job, s) >= 0.0)
        assert view.mask_NA[s].tolist() == [1, *moves]


def test_a_view_says_which_sites_are_alike():
    scenario = many_sites(100, 8, zones=2)
    view = make_view_of(Brief.of(build_environment(scenario), Needs()), slots=1)
    types = [site.gpu_type for site in scenario.fleet.sites]
    alike_S = view.site_S["alike"].tolist()
    assert len(set(alike_S)) == len(set(types)) < len(types)
    for s, first in enumerate(alike_S):
        assert types[s] == types[first]
        np.testing.assert_array_equal(view.speed_KSCGF[:, s], view.speed_KSCGF[:, first])
        np.testing.assert_array_equal(view.oracle_SCG[s], view.oracle_SCG[first])


def test_a_job_joins_at_a_slot_boundary_and_not_before_the_next():
    view = make_view([{}, {}], jobs=({"move_gb": 1.0},), now_s=120.0)
    for delay_s, joins_s in ((0.0, 180.0), (60.0, 180.0), (61.0, 240.0), (120.0, 240.0)):
        view.link_IS["latency_s"] = delay_s
        assert joins_at(view, 0, 0, 1) == joins_s
        assert first_start_s(view, 0, 0, 1) == joins_s
    assert first_start_s(view, 0, 1, 1) == 120.0


@pytest.mark.parametrize(("curve", "hard", "left"), [(2.9, True, 1), (2.9, False, 3), (0.0, True, -1), (9.0, True, 3)])
def test_a_hard_curve_leaves_whole_gpus_within_it(curve, hard, left):
    """4 GPUs, 3 free: one is busy. The second hour has no curve."""
    view = make_view([{"gpus": 4, "free": 3}])
    assert room(view, 0, np.array([[curve]]), hard) == left
    for now_s in (3600.0, 1e30):  # the hours of the last are more than an integer holds
        view.run_1["now_s"] = now_s
        assert room(view, 0, np.array([[curve]]), hard) == 3
