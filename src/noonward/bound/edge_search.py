"""A good schedule of image tasks under known arrivals: a beam over launches, each state valued by playing rules on.

It is a schedule that could be run, so its mean response is an upper bound on the least possible one, as
``bound.edge.response_bound`` is a lower bound: the optimum lies between both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noonward.arrays import Records
from noonward.compiled import kernel
from noonward.decision.edge.view import NOBODY, WAIT
from noonward.engine.edge.kernels import EdgeWorld, advance, blank_world, carry_out
from noonward.schedule.edge.rules import first_fit, first_reuse, patient_choice


@kernel(inline=True, allocates=False)
def _copy(to: EdgeWorld, w: EdgeWorld) -> None:
    """Copies all that changes during a run."""
    to.shown.run_1[0] = w.shown.run_1[0]
    to.engine_1[0] = w.engine_1[0]
    for n in range(w.shown.server_N.shape[0]):
        to.shown.server_N[n] = w.shown.server_N[n]
    for q in range(w.shown.task_Q.shape[0]):
        to.shown.task_Q[q] = w.shown.task_Q[q]
    for a in range(w.shown.mask_A.shape[0]):
        to.shown.mask_A[a] = w.shown.mask_A[a]
    for k in range(w.track_K.shape[0]):
        to.track_K[k] = w.track_K[k]


@kernel(inline=True, allocates=False)
def _responses(w: EdgeWorld) -> float:
    """Returns the sum of the responses of the tasks launched, s."""
    total, tick_s = 0.0, w.shown.run_1[0].tick_s
    for k in range(w.track_K.shape[0]):
        if w.track_K[k].start_t >= 0:
            total += w.track_K[k].start_t * tick_s + w.track_K[k].duration_s - w.task_K[k].stamp_s
    return total


@kernel(inline=True, allocates=False)
def _choose(w: EdgeWorld, which: int, steps: float) -> None:
    """Answers as patient reuse (0) or reuse-first (1) does."""
    shown, run = w.shown, w.shown.run_1[0]
    if which == 0:
        q = patient_choice(shown.server_N, shown.task_Q, shown.load_s_G, shown.step_s_G, run.now_t, run.tick_s, steps)
    else:
        q = first_reuse(shown.server_N, shown.task_Q, run.now_t)
        if q == NOBODY:
            q = first_fit(shown.server_N, shown.task_Q, run.now_t)
    if q != NOBODY:
        w.answers.answer_1[0].choice = 1 + q
        w.answers.answer_1[0].steps = min(steps, shown.task_Q[q].steps_max)


@kernel(allocates=False)
def play_rules(w: EdgeWorld, scratch: EdgeWorld, steps: float) -> float:
    """Returns the least sum of responses that patient reuse or reuse-first reaches from a state on, s."""
    least = np.inf
    for which in range(2):
        _copy(scratch, w)
        while advance(scratch):
            _choose(scratch, which, steps)
            carry_out(scratch)
        least = min(least, _responses(scratch))
    return least


@kernel(allocates=False)
def _try(child: EdgeWorld, parent: EdgeWorld, choice: int, steps: float, scratch: EdgeWorld) -> tuple[float, bool]:
    """Carries out a choice in a copy of a state; returns what rules reach from there, s, and if a question follows."""
    _copy(child, parent)
    child.answers.answer_1[0].choice = choice
    child.answers.answer_1[0].until_s = np.inf
    if choice != WAIT:
        child.answers.answer_1[0].steps = min(steps, child.shown.task_Q[choice - 1].steps_max)
    carry_out(child)
    alive = advance(child) != 0
    return play_rules(child, scratch, steps), alive


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A schedule of all tasks.

    Attributes:
        response_s: Mean response, s.
        track_K: TASK_OUTCOME records.
    """

    response_s: float
    track_K: Records


def best_schedule(world: EdgeWorld, steps: float, width: int = 24) -> Schedule:
    """Returns the best schedule found for tasks that are all known.

    Args:
        world: A run that has begun and has not been asked anything; nothing of it is changed.
        steps: Inference steps of every task; one that may have fewer gets its most.
        width: States kept per level of the search.

    Raises:
        ValueError: The steps are fewer than the scenario allows.
    """
    fewest = float(world.shown.run_1["steps_min"][0])
    if steps < fewest:
        raise ValueError(f"the search was given {steps:g} steps; the scenario allows {fewest:g} and more")
    sizes = (len(world.shown.server_N), len(world.shown.task_Q), len(world.shown.load_s_G), len(world.task_K))

    def blank() -> EdgeWorld:
        made = blank_world(*sizes)
        made.shown.load_s_G[:], made.shown.step_s_G[:] = world.shown.load_s_G, world.shown.step_s_G
        return made._replace(task_K=world.task_K)

    scratch, spare = blank(), [blank()]
    first = blank()
    _copy(first, world)
    _begin_question(first)
    least, best_K = play_rules(first, scratch, steps), None
    beam = [first]
    while beam:
        found: dict[float, EdgeWorld] = {}
        for state in beam:
            for choice in _choices(state):
                child = spare.pop() if spare else blank()
                value, alive = _try(child, state, choice, steps, scratch)
                if value < least - 1e-9 or best_K is None:
                    least, best_K = value, scratch.track_K.copy()
                    _play_again(child, scratch, steps, best_K)
                value = round(value, 6)
                if alive and value not in found:
                    found[value] = child
                else:
                    spare.append(child)
        kept = sorted(found)[:width]
        spare += beam + [found[value] for value in found if value not in kept]
        beam = [found[value] for value in kept]
    assert best_K is not None
    return Schedule(response_s=least / len(world.task_K), track_K=best_K)


@kernel(allocates=False)
def _begin_question(w: EdgeWorld) -> int:
    """Runs to the first question."""
    return int(advance(w))


@kernel(allocates=False)
def _play_again(w: EdgeWorld, scratch: EdgeWorld, steps: float, track_K: Records) -> None:
    """Writes the records of the better of both rules from a state on."""
    least = np.inf
    for which in range(2):
        _copy(scratch, w)
        while advance(scratch):
            _choose(scratch, which, steps)
            carry_out(scratch)
        total = _responses(scratch)
        if total < least:
            least = total
            for k in range(track_K.shape[0]):
                track_K[k] = scratch.track_K[k]


def _choices(state: EdgeWorld) -> list[int]:
    """Returns the choices worth trying: the oldest task of every class that fits, and the wait."""
    mask_A, task_Q = state.shown.mask_A, state.shown.task_Q
    seen: set[tuple[int, int]] = set()
    found = [WAIT] if mask_A[WAIT] else []
    for q in np.flatnonzero(mask_A[1:]).tolist():
        kind = (int(task_Q[q]["gang"]), int(task_Q[q]["model"]))
        if kind not in seen:
            seen.add(kind)
            found.append(1 + q)
    return found
