"""Three faces of the freedoms of jobs: what the engine does with them lies below their bound, whatever is answered."""

import numpy as np

from engine.test_against_oracles import play
from engine.test_moves import Mover, draw
from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.freedoms import FREEDOMS, FreedomDual, stated
from noonward.ledger.ledger import settle
from noonward.model.cluster.freedom import Freedom

BOUNDED = {"interruptible": "suspend", "elastic": "elastic", "caps": "caps", "moves": "move"}
"""Keys that let schedules do more, and the names of their bounds."""
RESTRICT = {"checkpoint", "min_run_s", "most_suspensions"}
"""Keys that take from what schedules may do, or say what it costs."""
FOR_OTHERS = {"requeue", "preempts"}
"""Keys by which jobs are stopped for others; the bound takes no account of them (docs/freedoms.md)."""
WORLDS = 240


def bounded_world(seed):
    """A random world that the bound is for: signals, run to its end, no capacity curve, no late job; or None."""
    world = draw(seed)
    plain = world.price is not None and world.drained and world.caps is None and world.late_until_s == -np.inf
    return world if plain and world.withheld is None and not world.standing else None


def test_every_key_of_a_freedom_is_bounded_or_said_not_to_be():
    assert set(BOUNDED.values()) == set(FREEDOMS)
    assert set(BOUNDED) | RESTRICT | FOR_OTHERS == set(Freedom.model_fields)


def test_what_the_engine_makes_of_freedoms_is_below_their_bound():
    """Jobs are suspended, resized, capped and moved at random; the ledger's utility is at most the dual function."""
    tried, names = 0, set()
    for seed in range(WORLDS):
        world = bounded_world(seed)
        if world is None:
            continue
        env = world.environment()
        outcome = play(world, Mover(seed, holds=0.1))
        dual, rng = FreedomDual(env, Relaxation(env), FREEDOMS), np.random.default_rng(seed)
        for scale in (0.0, 0.5):
            price_SH = scale * rng.exponential(size=dual.shape)
            assert settle(outcome).utility_usd <= dual.moved_value(price_SH) + 1e-9, seed
        tried += 1
        names |= set(stated(env))
    assert tried > 20
    assert names == set(FREEDOMS)
