"""Tokens of an edge question against a plain reading of the table, and absent ones empty."""

import numpy as np
import pytest

from engine.edge.cells import environments
from noonward.decision.edge.observation import TOKEN
from noonward.engine.edge.batch import EdgeBatch


def bucket(size):
    return 0 if size <= 1 else 1 if size == 2 else 2 if size <= 4 else 3


def plain(view, servers, price_s):
    """The table in plain Python."""
    run, now_s = view.run_1[0], view.now_s
    server_N, count = view.server_N, len(view.server_N)
    tasks = [view.task_Q[q] for q in view.tasks()]
    out = np.zeros((1 + servers + len(view.task_Q), TOKEN))
    left_N, idle_N = view.remaining_s_N, view.idle_N
    alike = lambda size, model: sum(t["gang"] == size and t["model"] == model for t in tasks)  # noqa: E731
    for n, s in enumerate(server_N):
        token = out[1 + n]
        token[0], token[1], token[2] = 1, idle_N[n], left_N[n] / 30
        if s["gang"] >= 0:
            token[3 + bucket(s["size"])] = token[7] = 1
            token[8], token[9] = alike(s["size"], s["model"]) / 5, 1 / s["size"]
    for q, task in enumerate(tasks):
        token, size, model = out[1 + servers + q], task["gang"], task["model"]
        gangs = [n for n, s in enumerate(server_N) if s["gang"] == n and (s["size"], s["model"]) == (size, model)]
        busy = [left_N[n] for n in gangs if not idle_N[n]]
        run_s, load_s, waiting = 24 * view.step_s_G[size], view.load_s_G[size], alike(size, model)
        token[0], token[1], token[2], token[3 + bucket(size)] = 1, view.allowed(q), (now_s - task["stamp_s"]) / 60, 1
        token[7], token[8] = any(idle_N[n] for n in gangs), waiting / 5
        token[9], token[10] = (min(busy) / 30, 1) if busy else (0, 0)
        token[11], token[12] = load_s / 30, run_s / 10
        token[13] = not any((t["gang"], t["model"]) == (size, model) for t in tasks[:q])
        token[14] = 30 * (waiting + 0.5) / (load_s + run_s * waiting)
        token[15], token[16] = task["steps_max"] / 30, size / count
        token[17] = np.sort(left_N)[size - 1] / 30
    whole = out[0]
    whole[0], whole[1] = 1, run["waiting"] / 10
    whole[2] = np.mean([now_s - t["stamp_s"] for t in tasks]) / 60
    for n, s in enumerate(server_N):
        if s["gang"] == n and idle_N[n]:
            whole[3 + bucket(s["size"])] += 1
    whole[7], whole[8], whole[9] = idle_N.mean(), min(now_s / 1000, 1), count / 12
    whole[10], whole[11] = run["event"], min((x for x in left_N if x > 0), default=0) / 30
    whole[12] = min((tasks[-1]["task"] + 1 + run["waiting"] - len(tasks)) / 32, 1)
    whole[13] = price_s / 100
    return out


def test_tokens_are_those_of_the_table():
    drawn = environments(6, choice="least-fragmentation")
    batch = EdgeBatch(drawn, seeds=[0] * 6, steps=(24.0,), price_of=lambda each: 60.0 + each.index, servers=12)
    rng, seen = np.random.default_rng(2), 0
    while not batch.done_B.all():
        choice_BN = np.zeros((6, 1), np.int64)
        for row in np.flatnonzero(~batch.done_B):
            expected = plain(batch.row_view(row), 12, 60.0 + drawn[row].index)
            np.testing.assert_allclose(batch.token_BTW[row], expected, atol=1e-6)
            choice_BN[row, 0] = rng.choice(np.flatnonzero(batch.mask_BNA[row, 0]))
            seen += 1
        batch.step(choice_BN)
    assert seen > 60


def test_absent_servers_and_empty_places_are_zero():
    batch = EdgeBatch(environments(1), seeds=[0], steps=(24.0,), price_of=lambda _: 0.0, servers=12)
    assert batch.token_BTW.shape == (1, 23, TOKEN)
    assert not batch.token_BTW[0, 5:13].any()
    assert not batch.token_BTW[0, 17:].any()  # four tasks are queued at the start
    assert batch.token_BTW[0, :5, 0] == pytest.approx(1.0)
