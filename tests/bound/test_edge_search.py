"""The beam's schedules: feasible in the plain world, between the bound and the rules."""

import numpy as np
import pytest

from bound.test_edge import bound_of, least_response
from engine.edge.worlds import events, random_tasks, world_of
from noonward.bound.edge_search import best_schedule
from noonward.schedule.edge.lookahead import lookahead_rule
from noonward.schedule.edge.rules import patient_rule, reuse_first_rule
from reference import edge as reference


def mean_response(launches, tasks):
    return np.mean([t * 0.1 + d - tasks[k]["stamp_t"] * 0.1 for k, t, _, d, _ in launches])


@pytest.mark.parametrize("servers", [2, 4, 8, 12])
def test_it_is_feasible_and_no_worse_than_rules(servers):
    rng = np.random.default_rng(servers)
    tasks = random_tasks(rng, 16, servers, 1, 3000)
    found = best_schedule(world_of(servers, tasks, fragmenting=False), 24.0)
    # Launched again in the plain world, at the same times, every task takes as long as recorded.
    wanted = {int(track["start_t"]): [] for track in found.track_K}
    for k in np.argsort(found.track_K["start_t"], kind="stable").tolist():
        wanted[int(found.track_K["start_t"][k])].append(k)
    plain = reference.World(servers, tasks, 24.0, fragmenting=False)

    def choose(world):
        due = [k for k in wanted.get(world.now_t, []) if not any(each["task"] == k for each in world.done)]
        numbers = [k for k, _ in world.queue[: world.places]]
        return next((numbers.index(k) for k in due if k in numbers and world.fits(world.tasks[k])), None)

    launched = plain.run(choose)
    assert len(launched) == len(tasks)
    response = np.mean([e["start_t"] * 0.1 + e["duration_s"] - tasks[e["task"]]["stamp_t"] * 0.1 for e in launched])
    assert response <= found.response_s + 2.0
    for rule in (patient_rule, reuse_first_rule):
        rules = events(world_of(servers, tasks, fragmenting=False), rule)
        assert found.response_s <= mean_response(rules, tasks) + 1e-9
    if servers != 12:
        assert bound_of(servers, tasks) <= found.response_s + 1e-9


def test_a_wide_beam_finds_the_optimum_of_tiny_worlds():
    rng = np.random.default_rng(6)
    for _ in range(8):
        tasks = random_tasks(rng, 4, 4, 1, 400)
        world = reference.World(4, tasks, 24.0, fragmenting=False)
        world.take_arrivals()
        least = least_response(world) / len(tasks)
        found = best_schedule(world_of(4, tasks, fragmenting=False), 24.0, width=500)
        assert found.response_s == pytest.approx(least, abs=1e-6)


def test_lookahead_is_better_than_patience_on_average():
    rng = np.random.default_rng(7)
    gains = []
    for _ in range(400):
        tasks = random_tasks(rng, 24, 8, 1, 3000)
        patient, ahead = (
            mean_response(events(world_of(8, tasks, fragmenting=False), rule), tasks)
            for rule in (patient_rule, lookahead_rule)
        )
        gains.append(patient - ahead)
    assert np.mean(gains) > 1.96 * np.std(gains) / np.sqrt(len(gains))
