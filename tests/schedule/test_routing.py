"""Each rule of protocol on-arrival on hand-made views and worlds with exact answers."""

import collections

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Brief
from noonward.decision.cluster.view import ASK_ALLOCATE, ASK_FINISHED, ASK_ROUTE, ORACLE, RuleMemory
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.schedule.cluster.bandit import Ucb1
from noonward.schedule.cluster.routing import Router, least_joules
from reference.small_worlds import plain
from reference.views import ask, make_view


def asked(router, view, *, levels=None):
    """The answer (choice, gpus, level) of a router with a memory as `memory` makes it."""
    table, index = [[0.0]], [[level] for level in levels or [ORACLE] * len(view.site_S)]
    if router.where == "jointnf":
        table, index = least_joules(*view.speed_KSCGF)
    numbers = (float(router.gpus), router.target_s, float(router.spare))
    if not hasattr(router, "memory"):
        router.memory = RuleMemory.make(numbers=numbers, table=table, index=index, random_state=3)
    return ask(router, view)[0][:3]


def shares_pass(counts, draws, quantile):
    expected = draws / len(counts)
    return sum((seen - expected) ** 2 for seen in counts.values()) / expected < quantile


def test_uniform_goes_where_the_workload_says_if_it_may():
    view = make_view([{}, {}, {}], asked=(0,), jobs=({"preset_site": 1},))
    assert asked(Router("uniform"), view) == (2, 0, ORACLE)
    view.mask_NA[0] = (0, 1, 0, 0)
    assert asked(Router("uniform"), view) == (1, 0, ORACLE)


def test_uniform_is_uniform_over_the_feasible_sites():
    view = make_view([{}, {}, {}, {}], asked=(0,), mask=[(0, 1, 0, 1, 1)])
    router, draws = Router("uniform"), 3000
    counts = collections.Counter(asked(router, view)[0] for _ in range(draws))
    assert sorted(counts) == [1, 3, 4]
    assert shares_pass(counts, draws, 13.8)


def test_random_free_draws_a_site_with_room_and_a_gang_uniformly():
    sites = [{"gpus": 8, "free": free} for free in (1, 2, 3, 8)]
    view = make_view(sites, asked=(0,), jobs=({"gpus_min": 2, "gpus_max": 4},))
    router, draws = Router("random-free"), 4000
    answers = [asked(router, view) for _ in range(draws)]
    for column, values in ((0, [2, 3, 4]), (1, [2, 3, 4])):
        counts = collections.Counter(answer[column] for answer in answers)
        assert sorted(counts) == values
        assert shares_pass(counts, draws, 13.8)


def test_random_free_draws_among_all_feasible_sites_when_none_has_room():
    view = make_view([{"free": 0}] * 3, asked=(0,), mask=[(0, 1, 1, 0)])
    router = Router("random-free")
    assert {asked(router, view)[0] for _ in range(50)} == {1, 2}


def test_most_free_takes_the_first_of_the_freest():
    view = make_view([{"gpus": 8, "free": free} for free in (3, 5, 5)], asked=(0,), jobs=({"gpus_max": 8},))
    assert asked(Router("most-free", gpus=4), view) == (2, 4, ORACLE)
    view.mask_NA[0, 2] = 0
    assert asked(Router("most-free", gpus=4), view) == (3, 4, ORACLE)


@pytest.mark.parametrize(("gpus", "expected"), [(0, 0), (1, 2), (3, 3), (9, 5)])
def test_gang_asked_for_stays_within_the_jobs_range(gpus, expected):
    view = make_view([{"gpus": 8}], asked=(0,), jobs=({"gpus_min": 2, "gpus_max": 5},))
    assert asked(Router("most-free", gpus=gpus), view)[1] == expected


def test_greedy_energy_counts_what_its_gpus_would_draw_free():
    # 100 W x 1 s = 100 J a unit everywhere: less 10 J, 30 J x PUE 1, and (100 - 5) x 1.1 = 104.5 J.
    sites = [{"free_w": 10.0}, {"free_w": 30.0}, {"free_w": 5.0, "pue": 1.1}]
    view = make_view(sites, asked=(0,))
    assert asked(Router("greedy-energy", gpus=1), view)[0] == 2
    view.site_S["free"][1] = 0  # only sites with room, while there is one
    assert asked(Router("greedy-energy", gpus=1), view)[0] == 1
    view.site_S["free"] = 0
    assert asked(Router("greedy-energy", gpus=1), view)[0] == 2


def test_greedy_energy_leaves_spare_gpus_while_another_site_has_room():
    sites = [{"gpus": 4, "free": 2}, {"gpus": 4, "free": 4, "free_w": 0.0}]
    watts = {"power_w": ((100.0,),), "seconds": ((1.0,),)}
    view = make_view([{**sites[0], "free_w": 50.0}, sites[1]], asked=(0,), **watts)
    assert asked(Router("greedy-energy", gpus=1, spare=1), view)[0] == 1  # 50 J less what it saves, two free
    assert asked(Router("greedy-energy", gpus=1, spare=2), view)[0] == 2
    view.site_S["free"] = 1
    assert asked(Router("greedy-energy", gpus=1, spare=2), view)[0] == 1  # nowhere: as without
    with pytest.raises(ValueError, match="spare"):
        Router("uniform", spare=1)
    with pytest.raises(ValueError, match="spare"):
        Router("greedy-energy", spare=-1)


def test_greedy_energy_reckons_with_the_gang_that_would_start():
    # A unit takes 100 J on one GPU and 240 J on two; site 0 has one GPU free, site 1 two.
    sites = [{"gpus": 2, "free": 1}, {"gpus": 2, "free": 2, "free_w": 1.0}]
    view = make_view(sites, asked=(0,), jobs=({"gpus_max": 2},), power_w=((100.0,), (200.0,)), seconds=((1.0,), (1.2,)))
    assert asked(Router("greedy-energy", gpus=2), view)[:2] == (1, 2)
    assert asked(Router("greedy-energy", gpus=1), view)[:2] == (2, 1)


# Gangs of 1 to 3 (rows) at two clocks: 60, 50 | 48, 80 | 55, 90 J a unit, 10 to 3 s.
TABLE = {"power_w": ((6.0, 10.0), (8.0, 20.0), (11.0, 30.0)), "seconds": ((10.0, 5.0), (6.0, 4.0), (5.0, 3.0))}


def test_joint_nf_takes_the_least_energy():
    view = make_view([{"gpus": 4}], asked=(0,), jobs=({"gpus_max": 3, "work": 2.0},), **TABLE)
    assert asked(Router("jointnf"), view) == (1, 2, 0)  # 48 J


@pytest.mark.parametrize(
    ("target_s", "expected"),
    [(12.0, (1, 2, 0)), (11.9, (1, 1, 1)), (9.9, (1, 2, 1)), (7.9, (1, 3, 1)), (5.0, (1, 3, 1))],
)
def test_joint_nf_keeps_the_limit_of_the_service_level_and_else_is_fastest(target_s, expected):
    view = make_view([{"gpus": 4}], asked=(0,), jobs=({"gpus_max": 3, "work": 2.0},), **TABLE)
    assert asked(Router("jointnf", target_s=target_s), view) == expected


@pytest.mark.parametrize("arguments", [{"target_s": 0.0}, {"target_s": float("nan")}])
def test_a_limit_is_above_zero_and_of_joint_nf_alone(arguments):
    with pytest.raises(ValueError, match="limit of"):
        Router("jointnf", **arguments)
    with pytest.raises(ValueError, match="jointnf alone"):
        Router("uniform", target_s=60.0)


def test_joint_nf_answers_as_under_a_limit_that_every_choice_keeps():
    environment = build_environment(load_scenario("dvfs-mixed", ["window_h=1"]))
    found, limited = (run(environment, Router("jointnf", target_s=limit)) for limit in (np.inf, 1e12))
    assert len(found.job_J)
    assert found.job_J.tobytes() == limited.job_J.tobytes()


def test_joint_nf_asks_for_no_more_than_the_site_has():
    view = make_view([{"gpus": 1}], asked=(0,), jobs=({"gpus_max": 3},), **TABLE)
    assert asked(Router("jointnf"), view) == (1, 1, 1)


def test_clock_is_the_one_asked_for_at_every_site():
    world = plain([1, 1], [{"preset_site": 0}, {"preset_site": 1}], protocol="on-arrival", clocks=(0.3, 0.6, 1.0))
    track = run(world.environment(), Router("uniform", clock=0.6)).job_J
    assert track["level"].tolist() == [1, 1]
    assert run(world.environment(), Router("uniform", clock=1.0)).job_J["level"].tolist() == [2, 2]


def test_clock_not_offered_is_refused():
    world = plain([1, 1], [{}], protocol="on-arrival", clocks=(0.5, 1.0))
    with pytest.raises(ScenarioError, match=r"site 'site0' does not offer the clock 0\.6 .*; it offers 0\.5, 1"):
        run(world.environment(), Router("uniform", clock=0.6))


@pytest.mark.parametrize(
    ("where", "options", "message"),
    [
        ("nowhere", {}, "unknown routing 'nowhere'; known: uniform"),
        ("uniform", {"gpus": -1}, "gang of -1 GPUs"),
    ],
)
def test_router_refuses_wrong_options(where, options, message):
    with pytest.raises(ValueError, match=message):
        Router(where, **options)


def test_ucb1_pulls_as_by_hand():
    """Energies of 10.0 and 9.9 J a unit; choices, and completions between them, traced by hand."""
    scheduler = Ucb1()
    scheduler.memory = RuleMemory.make(numbers=(0.0,), table=[[0.0]] * 2, index=[[0]] * 2)
    view = make_view([{}], asked=(0,), power_w=((10.0, 9.9),))

    def pull():
        view.run_1["kind"], view.run_1["site"] = ASK_ALLOCATE, 0
        return ask(scheduler, view)[0][2]

    def complete(level):
        view.run_1["kind"], view.run_1["gpus"], view.run_1["level"] = ASK_FINISHED, 1, level
        ask(scheduler, view)

    assert pull() == 0  # untried, lowest clock first
    assert pull() == 0  # still not completed
    complete(0)
    assert pull() == 1  # untried
    complete(1)
    complete(1)
    # t = 4: -10 + sqrt(2 ln 4 / 1) = -8.335 against -9.9 + sqrt(2 ln 4 / 2) = -8.723
    assert pull() == 0
    complete(0)
    # t = 5: -10 + sqrt(2 ln 5 / 2) = -8.731 against -9.9 + sqrt(2 ln 5 / 2) = -8.631
    assert pull() == 1
    assert scheduler.memory.number_P.tolist() == [5.0]
    assert scheduler.memory.index_XY[:, 0].tolist() == [2, 2]
    assert scheduler.memory.table_XY[:, 0].tolist() == pytest.approx([-10.0, -9.9])


def test_ucb1_routes_like_uniform_and_keeps_arms_per_site_and_class():
    scheduler = Ucb1()
    world = plain([1, 1], [{}], protocol="on-arrival", clocks=(0.5, 1.0))
    scheduler.reset(Brief.of(world.environment(), scheduler.needs), np.random.default_rng(0))
    assert scheduler.memory.index_XY.shape == (4, 1)
    view = make_view([{}, {}], asked=(0,), jobs=({"preset_site": 1},), kind=ASK_ROUTE)
    assert ask(scheduler, view)[0][0] == 2
