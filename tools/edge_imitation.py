"""A small net that imitates the lookahead over sampled futures, with the rehearsed price of quality: a trial.

    python tools/edge_imitation.py --train-seed 11 --train-cells 24 --rows 3000 --seed 6007 --cells 31

Draws training cells, plays sampled lookahead on them with the price of quality, and records for every choice at a
question what it costs more over 256 sampled futures than the choice of the known-queue lookahead. A net (16 numbers,
two layers of 32) learns that difference, on the cells' own scale of time. Then it decides in place of the futures, on
cells of another seed, in the same episodes as the rules. Prints quality, response and CPU time per question. Needs
torch.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from edge_cells import draw_cell, mean_se

from noonward.arrays import F8
from noonward.compiled import kernel
from noonward.data.scenarios.load import load_scenario
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.gangs import idle_gang, idle_servers, next_idle_t
from noonward.decision.edge.rule import edge_rule
from noonward.decision.edge.scheduler import CompiledEdgeScheduler
from noonward.decision.edge.view import NOBODY, WAIT, EdgeAnswers, EdgeMemory, EdgeView
from noonward.engine.edge.episodes import LAUNCHED, QUALITY, QUESTIONS, RESPONSE_S, sum_episodes
from noonward.model.edge.scenario import EdgeScenario
from noonward.schedule.edge.futures import (
    COMING,
    COUNT,
    FUTURES,
    HORIZON_S,
    STEPS,
    draw_coming,
    draw_time,
    first_from,
    play_future,
)
from noonward.schedule.edge.lookahead import copy_state, lookahead_choice, play_launch, play_patient
from noonward.schedule.edge.priced_lookahead import launch_priced, memory_at, price_of
from noonward.schedule.edge.sampled_lookahead import _hidden, _is_tried
from noonward.schedule.policies import make_scheduler

INPUTS, HIDDEN, LABELS = 16, 32, 256
ROW, SCALE_S, RATE, MARGIN = range(9, 13)
"""Numbers of the memory behind those of ``priced_lookahead``."""
FIRST = 2
"""First row of the scratch room that holds inputs; the target stands behind them."""


@kernel(inline=True, allocates=False)
def play_known(view: EdgeView, memory: EdgeMemory, a: int) -> float:
    """Returns the sum of the responses of the tasks known now after a choice, s."""
    run, steps = view.run_1[0], memory.number_P[STEPS]
    server_N, task_Q = memory.server_RN[0], memory.task_RQ[0][: view.task_Q.shape[0]]
    copy_state(view, server_N, task_Q)
    now_t, total = run.now_t, 0.0
    if a == WAIT:
        now_t = next_idle_t(server_N, now_t)
    else:
        total = play_launch(server_N, task_Q, a - 1, view.load_s_G, view.step_s_G, now_t, run.tick_s, steps, run.choice)
    return total + play_patient(
        server_N, task_Q, view.load_s_G, view.step_s_G, now_t, run.tick_s, steps, run.choice, np.inf
    )


@kernel(inline=True, allocates=False)
def describe(view: EdgeView, memory: EdgeMemory, a: int, known: int, more_s: float, input_X: F8) -> None:
    """Writes the inputs of the net: the state, a choice, and the choice of the known-queue lookahead."""
    number, run = memory.number_P, view.run_1[0]
    scale_s, steps, servers = number[SCALE_S], number[STEPS], view.server_N.shape[0]
    idle = idle_servers(view.server_N, run.now_t)
    seen, gangs = 0, 0
    for q in range(view.task_Q.shape[0]):
        if view.task_Q[q].task != NOBODY:
            seen += 1
            gangs += view.task_Q[q].gang
    next_t = next_idle_t(view.server_N, run.now_t)
    input_X[0] = idle / servers
    input_X[1] = gangs / servers
    input_X[2] = (run.waiting - seen) / servers
    input_X[3] = number[RATE] * scale_s / servers
    input_X[4] = 0.0 if next_t < 0 else (next_t - run.now_t) * run.tick_s / scale_s
    input_X[5] = more_s / scale_s
    for of in range(2):
        one, at = known if of else a, 6 + 5 * of
        for x in range(5):
            input_X[at + x] = 0.0
        if one == WAIT:
            input_X[at] = 1.0
            continue
        gang, model = view.task_Q[one - 1].gang, view.task_Q[one - 1].model
        loaded = idle_gang(view.server_N, run.now_t, gang, model) != NOBODY
        seconds = steps * view.step_s_G[gang] + (0.0 if loaded else view.load_s_G[gang])
        input_X[at + 1] = gang / servers
        input_X[at + 2] = 1.0 if loaded else 0.0
        input_X[at + 3] = seconds / scale_s
        input_X[at + 4] = (run.now_t * run.tick_s - view.task_Q[one - 1].stamp_s) / scale_s


@kernel(inline=True, allocates=False)
def predicted(weight_W: F8, input_X: F8, hidden_LH: F8) -> float:
    """Returns what the net makes of its inputs."""
    at = 0
    for layer in range(2):
        wide = INPUTS if layer == 0 else HIDDEN
        for h in range(HIDDEN):
            total = weight_W[at + HIDDEN * wide + h]
            for x in range(wide):
                total += weight_W[at + h * wide + x] * (input_X[x] if layer == 0 else hidden_LH[0, x])
            hidden_LH[layer, h] = max(total, 0.0)
        at += HIDDEN * wide + HIDDEN
    total = weight_W[at + HIDDEN]
    for h in range(HIDDEN):
        total += weight_W[at + h] * hidden_LH[1, h]
    return total


@edge_rule
def teach(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Answers by sampled futures, and records the inputs and the mean difference of every rival choice."""
    number, now_s, scratch_XY = memory.number_P, view.run_1[0].now_t * view.run_1[0].tick_s, memory.scratch_XY
    known = 1 + lookahead_choice(view, memory, number[STEPS])
    futures, rivals, choices = np.int64(number[FUTURES]), 0, view.mask_A.shape[0]
    for a in range(choices):
        scratch_XY[0, a] = scratch_XY[1, a] = 0.0
        if a != known and _is_tried(view, a):
            rivals += 1
    best, least = known, 0.0
    if rivals:
        coming_P, count, hidden = memory.task_RQ[COMING], np.int64(number[COUNT]), _hidden(view)
        for _ in range(futures):
            at_s = draw_time(memory, now_s)
            first, until = first_from(coming_P, count, at_s), first_from(coming_P, count, at_s + HORIZON_S)
            first = max(first - hidden, 0)
            base = play_future(view, memory, known - 1, first, until, now_s - at_s)
            for a in range(choices):
                if a != known and _is_tried(view, a):
                    more = play_future(view, memory, a - 1, first, until, now_s - at_s) - base
                    scratch_XY[0, a] += more
                    scratch_XY[1, a] += more * more
        base = play_known(view, memory, known)
        for a in range(choices):
            if a == known or not _is_tried(view, a):
                continue
            mean = scratch_XY[0, a] / futures
            error = np.sqrt(max(scratch_XY[1, a] / futures - mean * mean, 0.0) / futures)
            row = FIRST + np.int64(number[ROW])
            if row < scratch_XY.shape[0]:
                describe(view, memory, a, known, play_known(view, memory, a) - base, scratch_XY[row])
                scratch_XY[row, INPUTS] = mean / number[SCALE_S]
                number[ROW] += 1
            if mean + error < least:
                best, least = a, mean + error
    if best != WAIT:
        launch_priced(view, answers, memory, best - 1)


@edge_rule
def imitate(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Answers by the net: the choice of the known-queue lookahead, unless another one is predicted to be better."""
    number, scratch_XY = memory.number_P, memory.scratch_XY
    known = 1 + lookahead_choice(view, memory, number[STEPS])
    best, least, base = known, -number[MARGIN], np.nan
    for a in range(view.mask_A.shape[0]):
        if a == known or not _is_tried(view, a):
            continue
        if np.isnan(base):
            base = play_known(view, memory, known)
        describe(view, memory, a, known, play_known(view, memory, a) - base, scratch_XY[0])
        more = predicted(memory.weight_W, scratch_XY[0], scratch_XY[1:3])
        if more < least:
            best, least = a, more
    if best != WAIT:
        launch_priced(view, answers, memory, best - 1)


class Imitation(CompiledEdgeScheduler):
    """The teacher (without weights) or the net."""

    def __init__(self, weight_W: F8 | None = None, margin: float = 0.0, rows: int = 0) -> None:
        self.rule = teach if weight_W is None else imitate
        self.weight_W, self.margin, self.rows = weight_W, margin, rows

    def make_memory(self, brief: EdgeBrief, rng: np.random.Generator) -> EdgeMemory:
        """Returns the numbers of the price, then the scale of time, the rate and the margin; room for rows."""
        setting = brief.setting
        teacher = self.weight_W is None
        coming = draw_coming(setting, rng) if teacher else None
        made = memory_at(price_of(setting), setting, LABELS if teacher else 0, coming, int(rng.integers(2**63)))
        tasks: Any = setting.tasks
        times = setting.gang_times
        load_s = float(np.mean([times[size].load_s for size in tasks.sizes]))
        step_s = float(np.mean([times[size].step_s for size in tasks.sizes]))
        numbers = (*made.number_P, 0.0, load_s + made.number_P[STEPS] * step_s, tasks.rate_per_s, self.margin)
        wide = max(INPUTS + 1, HIDDEN, setting.visible + 1)
        return made._replace(
            number_P=np.array(numbers),
            scratch_XY=np.zeros((FIRST + self.rows if teacher else 3, wide)),
            weight_W=np.zeros(1) if self.weight_W is None else self.weight_W,
        )


def cells_of(seed: int, count: int) -> list[EdgeScenario]:
    """Returns cells drawn from a seed."""
    rng, out = np.random.default_rng(seed), []
    for _ in range(count):
        setting = load_scenario("edge-inference-reference", draw_cell(rng))
        assert isinstance(setting, EdgeScenario)
        out.append(setting)
    return out


def fit(input_RX: F8, target_R: F8, epochs: int) -> F8:
    """Returns the weights of a net that predicts the targets, by least squares of targets cut to one scale of time."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, 1),
    )  # fmt: skip
    x, y = torch.tensor(input_RX, dtype=torch.float32), torch.tensor(target_R, dtype=torch.float32).clip(-1, 1)
    steps = epochs * (len(x) // 512 + 1)
    adam = torch.optim.Adam(net.parameters(), 3e-3)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for _ in range(steps):
        some = torch.randint(len(x), (512,))
        loss = ((net(x[some])[:, 0] - y[some]) ** 2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        falling.step()
    with torch.no_grad():
        left = float(((net(x)[:, 0] - y) ** 2).mean() / y.var())
    print(f"fitted on {len(x)} rows: {100 * (1 - left):.1f}% of the variance explained", flush=True)
    parts = [part.detach().numpy().ravel() for part in net.parameters()]
    return np.concatenate(parts).astype(np.float64)


def play(setting: EdgeScenario, scheduler: CompiledEdgeScheduler, episodes: int, seed: int) -> tuple[F8, float, float]:
    """Returns responses by episode, the mean quality, and CPU ms per question."""
    price_of(setting)
    begin = time.process_time()
    sum_EX = sum_episodes(setting, scheduler, episodes, seed=seed)
    ms = 1e3 * (time.process_time() - begin) / float(sum_EX[:, QUESTIONS].sum())
    held = float(sum_EX[:, QUALITY].sum() / sum_EX[:, LAUNCHED].sum())
    return sum_EX[:, RESPONSE_S] / sum_EX[:, LAUNCHED], held, ms


def main() -> None:
    """Collects, fits, chooses the margin on training cells, and judges on cells of another seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train-seed", type=int, default=11)
    parser.add_argument("--train-cells", type=int, default=24)
    parser.add_argument("--rows", type=int, default=6_000, help="rows recorded in a training cell, at most")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=6007)
    parser.add_argument("--cells", type=int, default=31)
    parser.add_argument("--episodes", type=int, default=40)
    asked = parser.parse_args()
    begin, rows = time.process_time(), []
    training = cells_of(asked.train_seed, asked.train_cells)
    for cell, setting in enumerate(training):
        teacher = Imitation(rows=asked.rows)
        sum_episodes(setting, teacher, 20, seed=asked.train_seed + cell)
        scratch_XY, count = teacher.memory.scratch_XY, int(teacher.memory.number_P[ROW])
        rows.append(scratch_XY[FIRST : FIRST + count, : INPUTS + 1].copy())
    row_RX = np.concatenate(rows)
    print(f"{len(row_RX)} rows of {len(rows)} cells, {time.process_time() - begin:.0f} CPU s", flush=True)
    weight_W = fit(row_RX[:, :INPUTS], row_RX[:, INPUTS], asked.epochs)
    told = []
    for margin in (0.0, 0.01, 0.02, 0.04, 0.08):
        mean = [
            play(setting, Imitation(weight_W, margin), 20, 10_000 + cell)[0].mean()
            for cell, setting in enumerate(training)
        ]
        told.append((float(np.mean(mean)), margin))
        print(f"margin {margin}: {told[-1][0]:.3f} s in training cells", flush=True)
    margin = min(told)[1]
    names = ("priced-sampled-lookahead", "priced-lookahead", "imitation")
    more: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    held: dict[str, list[float]] = {name: [] for name in names}
    ms: dict[str, list[float]] = {name: [] for name in names}
    for cell, setting in enumerate(cells_of(asked.seed, asked.cells)):
        base = np.zeros(0)
        for name in names:
            scheduler = Imitation(weight_W, margin) if name == "imitation" else make_scheduler(name, "edge")
            assert isinstance(scheduler, CompiledEdgeScheduler)
            response_E, of_cell, spent = play(setting, scheduler, asked.episodes, asked.seed + cell)
            base = response_E if not len(base) else base
            more[name].append(mean_se(response_E - base))
            held[name].append(of_cell)
            ms[name].append(spent)
    for name in names:
        mean_C, half_C, held_C = np.array([a for a, _ in more[name]]), np.array([b for _, b in more[name]]), held[name]
        print(
            f"{name:25} quality {min(held_C):.4f} to {max(held_C):.4f}, mean {np.mean(held_C):.4f}; "
            f"{mean_C.mean():+.2f} s (median {np.median(mean_C):+.2f}) against {names[0]}, sooner / later in "
            f"{np.sum(mean_C < -half_C)} / {np.sum(mean_C > half_C)} of {len(mean_C)}; "
            f"{np.mean(ms[name]):.3f} ms per question"
        )


if __name__ == "__main__":
    main()
