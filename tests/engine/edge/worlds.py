"""Small edge worlds for tests: arrays of the compiled engine, and the same world in plain Python."""

from typing import Any

import numpy as np

from noonward.decision.edge.view import LEAST_FRAGMENTATION, LOWEST, NEVER, EdgeMemory
from noonward.engine.edge.kernels import EdgeWorld, begin_edge, blank_world, run_edge
from noonward.model.edge.tasks import NO_DEADLINE_S
from reference import edge as reference

LOAD_S = {1: 24.0, 2: 24.0, 4: 32.0, 8: 30.0}
STEP_S = {1: 0.315, 2: 0.15625, 4: 0.14, 8: 0.10}


def world_of(
    servers: int,
    tasks: list[dict[str, Any]],
    *,
    places: int = 10,
    limit_t: int | None = None,
    fragmenting: bool = True,
    every_tick: bool = False,
) -> EdgeWorld:
    """Returns the compiled engine's arrays for some tasks (stamp_t, gang, model, load_s, step_s)."""
    world = blank_world(servers, places, 9, len(tasks))
    for size in LOAD_S:
        world.shown.load_s_G[size], world.shown.step_s_G[size] = LOAD_S[size], STEP_S[size]
    world.shown.run_1["tick_s"] = 0.1
    world.shown.run_1["choice"] = LOWEST if fragmenting else LEAST_FRAGMENTATION
    world.engine_1["limit_t"] = NEVER if limit_t is None else limit_t
    world.engine_1["every_tick"] = every_tick
    for k, task in enumerate(tasks):
        world.task_K[k] = (
            task["stamp_t"] * 0.1,
            max(task["stamp_t"] + 1, 10),
            task["gang"],
            task["model"],
            100.0,
            NO_DEADLINE_S,
            task["load_s"],
            task["step_s"],
        )
    begin_edge(world, 10)
    return world


def memory_of(world: EdgeWorld, steps: float = 24.0) -> EdgeMemory:
    return EdgeMemory.make(
        numbers=(steps,), random_state=5, copies=(4, len(world.shown.server_N), len(world.shown.task_Q))
    )


def events(world: EdgeWorld, rule: Any, steps: float = 24.0) -> list[tuple]:
    """Runs a compiled rule; returns (task, start_t, loaded, duration_s, servers) of every launch."""
    assert run_edge(world, rule, memory_of(world, steps)) == 0
    found = []
    for k, track in enumerate(world.track_K):
        if track["start_t"] >= 0:
            members = {n for n in range(64) if int(track["servers"]) >> n & 1}
            found.append(
                (k, int(track["start_t"]), bool(track["loaded"]), round(float(track["duration_s"]), 6), members)
            )
    return found


def plain_events(world: reference.World, choose: Any) -> list[tuple]:
    """Runs the plain world; returns the same tuples."""
    return [
        (each["task"], each["start_t"], each["loaded"], round(each["duration_s"], 6), set(each["servers"]))
        for each in world.run(choose)
    ]


def random_tasks(rng: np.random.Generator, count: int, servers: int, models: int, spread_t: int) -> list[dict]:
    """Draws tasks whose gangs fit, with times that depend on the gang."""
    sizes = [size for size in LOAD_S if size <= servers]
    stamps = np.sort(np.where(rng.random(count) < 0.3, 0, rng.integers(0, spread_t, count)))
    tasks = []
    for stamp in stamps.tolist():
        size = int(rng.choice(sizes))
        tasks.append(
            {
                "stamp_t": stamp,
                "gang": size,
                "model": int(rng.integers(models)),
                "load_s": LOAD_S[size],
                "step_s": STEP_S[size],
            }
        )
    return tasks
