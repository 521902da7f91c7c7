"""Image tasks as the paper's public simulator draws them: a first batch, then Bernoulli arrivals tick by tick."""

from __future__ import annotations

from noonward.arrays import F8, I8, Records
from noonward.compiled import kernel
from noonward.draws import Word, geometric, random_below


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
        task_K[count].model = 0
        task_K[count].steps_max = steps_max
        task_K[count].deadline_s = 1e18
        task_K[count].load_s = load_s_G[size]
        task_K[count].step_s = step_s_G[size]
        count += 1
    return count
