"""The compiled edge engine against the same world in plain Python, event for event."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.edge.worlds import events, plain_events, random_tasks, world_of
from noonward.schedule.edge.rules import fifo_rule, first_fit_rule, patient_rule, reuse_first_rule
from reference import edge as reference

RULES = {
    "fifo": (fifo_rule, reference.fifo),
    "first-fit": (first_fit_rule, reference.first_fit),
    "reuse-first": (reuse_first_rule, reference.reuse_first),
    "patient-reuse": (patient_rule, reference.patient),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("fragmenting", [True, False], ids=["lowest", "least-fragmentation"])
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    servers=st.sampled_from([1, 2, 3, 4, 6, 8, 12]),
    count=st.integers(1, 24),
    models=st.integers(1, 3),
    places=st.integers(1, 10),
    limited=st.booleans(),
)
def test_every_launch_is_the_plain_worlds(name, fragmenting, seed, servers, count, models, places, limited):
    rng = np.random.default_rng(seed)
    tasks = random_tasks(rng, count, servers, models, 3000)
    limit_t = int(rng.integers(500, 4000)) if limited else None
    compiled, plain = RULES[name]
    plain_world = reference.World(servers, tasks, 24.0, limit_t=limit_t, places=places, fragmenting=fragmenting)
    world = world_of(servers, tasks, places=places, limit_t=limit_t, fragmenting=fragmenting)
    assert events(world, compiled) == plain_events(plain_world, plain)


@pytest.mark.parametrize("name", RULES)
def test_ticks_and_events_give_the_same_launches(name):
    rng = np.random.default_rng(8)
    for _ in range(20):
        tasks = random_tasks(rng, 20, 8, 2, 5000)
        rule, _ = RULES[name]
        assert events(world_of(8, tasks, every_tick=True), rule) == events(world_of(8, tasks), rule)


def test_two_tasks_by_hand():
    """One server: 24 s load + 24 x 0.315 s; the second finds the model loaded; a tick rounds the end up."""
    tasks = [{"stamp_t": 0, "gang": 1, "model": 0, "load_s": 24.0, "step_s": 0.315}] * 2
    world = world_of(1, tasks)
    first, second = events(world, fifo_rule)
    assert first == (0, 10, True, 31.56, {0})
    assert second == (1, 10 + 316, False, 7.56, {0})
