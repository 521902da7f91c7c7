"""Image tasks as the paper's public simulator draws them: a first batch, then Bernoulli arrivals tick by tick."""

from __future__ import annotations

import math

import numpy as np

from noonward.arrays import F8, I8, Records
from noonward.compiled import kernel
from noonward.draws import Word, geometric, normal, random_below, uniform
from noonward.model.edge.tasks import NO_DEADLINE_S


def model_shares(count: int, exponent: float, shift: float) -> F8:
    """Returns the running sum of the shares of some models, ``(k + shift) ** -exponent``, k from 1 (Zipf-Mandelbrot).

    Example:
        >>> [round(float(share), 3) for share in model_shares(3, 1.0, 0.0)]
        [0.545, 0.818, 1.0]
    """
    weight_M = (np.arange(1, count + 1) + shift) ** -exponent
    share_M = np.cumsum(weight_M / weight_M.sum())
    share_M[-1] = 1.0
    return np.asarray(share_M)


@kernel(inline=True, allocates=False)
def _of_shares(share_M: F8, u: float) -> int:
    """Returns the first position whose running share reaches a number in (0, 1)."""
    m = 0
    while share_M[m] < u:
        m += 1
    return m


@kernel(allocates=False)
def draw_paper_tasks(
    task_K: Records,
    first: int,
    rate_per_s: float,
    until_s: float,
    tick_s: float,
    first_t: int,
    size_C: I8,
    load_s_G: F8,
    step_s_G: F8,
    steps_max: float,
    share_M: F8,
    load_sigma: float,
    deadline_s: float,
    state: Word,
) -> int:
    """Draws tasks; returns how many there are.

    ``first`` tasks are stamped 0; from the first tick on, each tick brings one with a chance of ``rate x tick``,
    stamped with the tick's start and seen one tick later, until the room is full or ``until_s`` is reached.

    Args:
        task_K: Room for the tasks, TASK records.
        first: Tasks queued at the start.
        rate_per_s: Arrivals per second, at most one a tick.
        until_s: No task is stamped at or after this time, s.
        tick_s: Length of a tick, s.
        first_t: First tick.
        size_C: Gang sizes, drawn uniformly.
        load_s_G: Seconds to load, by gang size.
        step_s_G: Seconds a step, by gang size.
        steps_max: Most steps of a task.
        share_M: Running sum of the shares of the models, to 1.
        load_sigma: Standard deviation of the logarithm of load times; their mean stays.
        deadline_s: Seconds after its submission by which an image is promised; NO_DEADLINE_S for none.
        state: Random state.
    """
    count, t = 0, first_t - 1
    while count < task_K.shape[0]:
        stamp_s, ready_t = 0.0, first_t
        if count >= first:
            t += geometric(state, rate_per_s * tick_s)
            stamp_s, ready_t = t * tick_s, t + 1
            if stamp_s >= until_s:
                break
        size = size_C[random_below(state, size_C.shape[0])]
        task_K[count].stamp_s = stamp_s
        task_K[count].ready_t = ready_t
        task_K[count].gang = size
        task_K[count].model = 0 if share_M.shape[0] == 1 else _of_shares(share_M, uniform(state))
        task_K[count].steps_max = steps_max
        task_K[count].deadline_s = NO_DEADLINE_S if deadline_s >= NO_DEADLINE_S else stamp_s + deadline_s
        load_s = load_s_G[size]
        if load_sigma > 0:
            load_s *= math.exp(load_sigma * normal(state) - 0.5 * load_sigma * load_sigma)
        task_K[count].load_s = load_s
        task_K[count].step_s = step_s_G[size]
        count += 1
    return count
