"""A simulated run carried out by the controller: fake workers take as long as the engine says."""

import math

import numpy as np

from live.edge.fakes import Bench, setting
from noonward.data.edge.environments import build_edge_environment
from noonward.engine.edge.engine import run_edge_environment
from noonward.live.edge.orders import Part

TICK_S = 0.1
SETTING = setting(
    4,
    gang_times={
        1: {"load_s": 24, "step_s": 0.315},
        2: {"load_s": 24, "step_s": 0.15},
        4: {"load_s": 32, "step_s": 0.14},
    },
    tasks={"source": "paper", "count": 24, "first": 6, "rate_per_s": 0.05, "sizes": (1, 2, 4)},
    choice="least-fragmentation",
)


def launches_simulated(scheduler):
    """Returns (task, tick, servers, whether the gang is new) of every launch of the engine, in their order."""
    outcome = run_edge_environment(build_edge_environment(SETTING), scheduler)
    rows = [
        (k, int(track["start_t"]), [n for n in range(4) if track["servers"] >> n & 1], bool(track["loaded"]))
        for k, track in enumerate(outcome.task_K)
    ]
    return sorted(rows, key=lambda row: (row[1], row[0]))


def launches_live(folder, scheduler):
    """Returns the same of a controller that is given the engine's tasks at the engine's times."""
    environment = build_edge_environment(SETTING)
    bench = Bench(folder, scheduler, of=SETTING, load_policy="reload-on-regroup").ready()
    controller, predictor = bench.controller, bench.controller.predictor
    predictor.measured = lambda *_, **__: None
    ends = {}
    arriving = list(environment.tasks.record_K)
    tick = 0
    while arriving or controller.queue or controller.runs:
        bench.now_s = tick * TICK_S
        for number in [number for number, end in ends.items() if end <= tick]:
            _finish(bench, ends, number)
        while arriving and arriving[0]["ready_t"] <= tick:
            task = arriving.pop(0)
            made = controller.submit(prompt="a boat", gang=int(task["gang"]))
            made.submitted_unix_s = controller.now_unix_s - bench.now_s + float(task["stamp_s"])
        controller.tick()
        bench.beats()
        for number, run in controller.runs.items():
            if number not in ends:
                last_s = predictor.expect_s(run.first.gang, run.attempt.steps, run.attempt.formed)
                ends[number] = tick + math.ceil(last_s / TICK_S - 1e-9)
                bench.load(*run.members)
        tick += 1
    rows = []
    for k, task in enumerate(controller.tasks.values()):
        (attempt,) = task.attempts
        start_t = round((attempt.launched_unix_s - controller.now_unix_s + bench.now_s) / TICK_S)
        rows.append((k, start_t, attempt.servers, attempt.formed))
    assert np.all([task.state == "done" for task in controller.tasks.values()])
    return sorted(rows, key=lambda row: (row[1], row[0]))


def _finish(bench, ends, number):
    """Ends a run without asking: several may end at one tick."""
    run = bench.controller.runs[number]
    for rank, n in enumerate(run.members):
        pngs = () if rank else (b"png",)
        part = Part(join_s=0, prompt_s=0, run_s=0, decode_s=0, sent_bytes=0, pngs=pngs)
        bench.workers.answer(n, "generate", part)
    ends[number] = math.inf
