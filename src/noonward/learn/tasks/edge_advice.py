"""What each choice at an edge question leads to, played on: by the tasks known now, and by those that really come.

The second is hindsight: no policy can know it, but its mean over the futures is what a choice is worth, so a net that
is trained on it learns that mean. All choices of a question are played on with the same future.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from noonward.arrays import F4, F8, Records
from noonward.compiled import kernel
from noonward.decision.edge.gangs import next_idle_t
from noonward.decision.edge.view import NEVER, NOBODY, QUEUED, SERVER, WAIT
from noonward.engine.edge.batch import UNIT_S, Rows, row_of
from noonward.engine.edge.kernels import EdgeWorld
from noonward.model.edge.quality import quality
from noonward.schedule.edge.lookahead import play_launch, play_patient
from noonward.schedule.edge.rules import patient_choice

HORIZON_S: Final = 600.0
"""Tasks that come later than this after a question are left out of its play-outs, s."""
LATER_S: Final = 0.5
"""What a place costs more than the place before it that holds a task of the same class, s: oldest first."""


class Room(NamedTuple):
    """Room of the play-outs: copies of servers and of the tasks that wait, at two depths."""

    server_DN: Records
    pool_DP: Records
    cost_A: F8


def make_room(servers: int, places: int, tasks: int) -> Room:
    """Returns room for worlds of at most so many servers, visible places and tasks."""
    return Room(np.zeros((2, servers), SERVER), np.zeros((2, max(places, tasks) + 1), QUEUED), np.zeros(1 + places))


@kernel(inline=True, allocates=False)
def _copy(w: EdgeWorld, server_N: Records, pool_P: Records, hindsight: bool) -> int:
    """Copies servers and waiting tasks, the hidden ones too under hindsight; returns how many tasks wait."""
    view = w.shown
    for n in range(view.server_N.shape[0]):
        server_N[n] = view.server_N[n]
    count = 0
    for q in range(view.task_Q.shape[0]):
        if view.task_Q[q].task == NOBODY:
            break
        pool_P[q] = view.task_Q[q]
        count += 1
    if hindsight:
        for k in range(w.engine_1[0].shown, w.engine_1[0].arrived):
            _append(w, pool_P, count, k)
            count += 1
    pool_P[count].task = NOBODY
    return count


@kernel(inline=True, allocates=False)
def _append(w: EdgeWorld, pool_P: Records, count: int, k: int) -> None:
    """Puts a task behind those that wait."""
    task = w.task_K[k]
    pool_P[count].task = k
    pool_P[count].stamp_s = task.stamp_s
    pool_P[count].gang = task.gang
    pool_P[count].model = task.model
    pool_P[count].steps_max = task.steps_max
    pool_P[count + 1].task = NOBODY


@kernel(inline=True, allocates=False)
def _known_choice(
    w: EdgeWorld, server_N: Records, task_Q: Records, inner_N: Records, inner_Q: Records, now_t: int, steps: float
) -> int:
    """Returns the place that the known-queue lookahead launches, or NOBODY to wait; the inner room is overwritten."""
    view, run = w.shown, w.shown.run_1[0]
    best, least = NOBODY, np.inf
    idle = 0
    for n in range(server_N.shape[0]):
        if server_N[n].free_t <= now_t:
            idle += 1
    for a in range(-1, task_Q.shape[0]):
        start_t = now_t
        if a >= 0:
            if task_Q[a].task == NOBODY:
                break
            if task_Q[a].gang > idle or _is_later(task_Q, a):
                continue
        else:
            start_t = next_idle_t(server_N, now_t)
            if start_t < 0:
                continue
        for n in range(server_N.shape[0]):
            inner_N[n] = server_N[n]
        for q in range(task_Q.shape[0]):
            inner_Q[q] = task_Q[q]
            if task_Q[q].task == NOBODY:
                break
        total = 0.0
        if a >= 0:
            total = play_launch(inner_N, inner_Q, a, view.load_s_G, view.step_s_G, now_t, run.tick_s, steps, run.choice)
        total += play_patient(
            inner_N, inner_Q, view.load_s_G, view.step_s_G, start_t, run.tick_s, steps, run.choice, least
        )
        if total < least:
            best, least = a, total
    return best


@kernel(inline=True, allocates=False)
def _is_later(task_Q: Records, q: int) -> bool:
    """Returns whether an older visible task is of the same class."""
    for p in range(q):
        if task_Q[p].gang == task_Q[q].gang and task_Q[p].model == task_Q[q].model:
            return True
    return False


@kernel(allocates=False)
def play_on(
    w: EdgeWorld, room: Room, place: int, first_steps: float, steps: float, hindsight: bool, nested: bool
) -> float:
    """Takes a choice in a copy of a world and plays on until no task is left; returns the sum of responses, s.

    Args:
        w: World at a question; unchanged.
        room: Room.
        place: WAIT, or 1 + the place that is launched.
        first_steps: Steps of that launch.
        steps: Steps of all launches that follow.
        hindsight: Play on with the tasks that really come, else with those visible now alone.
        nested: Play on with the known-queue lookahead, else with patient reuse.
    """
    view, run = w.shown, w.shown.run_1[0]
    places, servers = view.task_Q.shape[0], view.server_N.shape[0]
    server_N, pool_P = room.server_DN[0][:servers], room.pool_DP[0]
    count = _copy(w, server_N, pool_P, hindsight)
    coming = w.engine_1[0].arrived
    until = coming
    while hindsight and until < w.task_K.shape[0] and w.task_K[until].stamp_s < run.now_t * run.tick_s + HORIZON_S:
        until += 1
    now_t, total = run.now_t, 0.0
    choice = place - 1
    while True:
        if choice != NOBODY:
            given = first_steps if now_t == run.now_t and place != WAIT else steps
            total += play_launch(
                server_N, pool_P, choice, view.load_s_G, view.step_s_G, now_t, run.tick_s, given, run.choice
            )
            count -= 1
            place = WAIT
        else:
            next_t = next_idle_t(server_N, now_t)
            if next_t < 0:
                next_t = NEVER
            if coming < until:
                next_t = min(next_t, w.task_K[coming].ready_t)
            if next_t == NEVER:
                return total
            now_t = next_t
            while coming < until and w.task_K[coming].ready_t <= now_t:
                _append(w, pool_P, count, coming)
                count, coming = count + 1, coming + 1
        if count == 0 and coming == until:
            return total
        choice = NOBODY
        if count > 0:
            if nested:
                choice = _known_choice(
                    w, server_N, pool_P[:places], room.server_DN[1][:servers], room.pool_DP[1][:places], now_t, steps
                )
            else:
                choice = patient_choice(
                    server_N, pool_P[:places], view.load_s_G, view.step_s_G, now_t, run.tick_s, steps
                )


@kernel(allocates=False)
def place_costs(w: EdgeWorld, room: Room, steps: float, hindsight: bool, nested: bool, cost_A: F8) -> int:
    """Writes what waiting and launching each place cost, s, the least being 0; returns the cheapest.

    A choice that is not feasible costs 0. A later task of a class costs what the class's oldest does, and a little more
    for each place.
    """
    view = w.shown
    best = -1
    for a in range(view.mask_A.shape[0]):
        cost_A[a] = 0.0
        if not view.mask_A[a]:
            continue
        if a == WAIT and not hindsight and next_idle_t(view.server_N, view.run_1[0].now_t) < 0:
            cost_A[a] = np.inf
            continue
        cost_A[a] = np.nan
        for p in range(a - 1):
            same = view.task_Q[p].gang == view.task_Q[a - 1].gang and view.task_Q[p].model == view.task_Q[a - 1].model
            if same:
                cost_A[a] = cost_A[1 + p] + LATER_S * (a - 1 - p)
                break
        if np.isnan(cost_A[a]):
            cost_A[a] = play_on(w, room, a, steps, steps, hindsight, nested)
        if best < 0 or cost_A[a] < cost_A[best]:
            best = a
    least = cost_A[best]
    for a in range(view.mask_A.shape[0]):
        if view.mask_A[a]:
            cost_A[a] = min(cost_A[a] - least, 10.0 * UNIT_S)
    return best


@kernel(allocates=False)
def level_costs(
    w: EdgeWorld, room: Room, place: int, step_L: F8, steps: float, price_s: float, hindsight: bool, cost_L: F8
) -> int:
    """Writes what the steps of a launch cost, s, less quality at its price, the least being 0; returns the cheapest."""
    best = 0
    for level in range(step_L.shape[0]):
        given = min(max(step_L[level], w.shown.run_1[0].steps_min), w.shown.task_Q[place - 1].steps_max)
        cost_L[level] = play_on(w, room, place, given, steps, hindsight, False)
        cost_L[level] -= price_s * quality(given, w.engine_1[0].law)
        if cost_L[level] < cost_L[best]:
            best = level
    least = cost_L[best]
    for level in range(step_L.shape[0]):
        cost_L[level] -= least
    return best


@kernel(allocates=False)
def advise_rows(
    rows: Rows,
    asked_BN: Records,
    room: Room,
    step_L: F8,
    steps: float,
    nested: bool,
    first: int,
    until: int,
    advice_BX: F4,
    cost_X: F8,
) -> None:
    """Writes the advice on the questions of some rows, in units of reward.

    Four parts a row: costs of the A places and of the L levels by the tasks known now, then both in hindsight. The
    levels are those of the cheapest launch by the tasks known now; all 0 where that is to wait.

    Args:
        rows: Worlds.
        asked_BN: Rows that ask.
        room: Room.
        step_L: Steps of each level.
        steps: Steps of the launches that follow.
        nested: Play on with the known-queue lookahead in hindsight.
        first: First row.
        until: Row after the last.
        advice_BX: Room for the advice, X = 2 (A + L).
        cost_X: Room for one part of a row.
    """
    places, levels = rows.mask_BA.shape[1], step_L.shape[0]
    for b in range(first, until):
        advice_BX[b] = 0.0
        if not asked_BN[b, 0]:
            continue
        w = row_of(rows, b)
        at = 0
        place = WAIT
        for hindsight in range(2):
            best = place_costs(w, room, steps, hindsight == 1, hindsight == 1 and nested, cost_X[:places])
            if hindsight == 0:
                place = best
            for a in range(places):
                advice_BX[b, at + a] = cost_X[a] / UNIT_S
            at += places
            if place != WAIT:
                level_costs(w, room, place, step_L, steps, rows.price_s_B[b], hindsight == 1, cost_X[:levels])
                for level in range(levels):
                    advice_BX[b, at + level] = cost_X[level] / UNIT_S
            at += levels
