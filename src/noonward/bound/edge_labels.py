"""Parts that the response bounds of the edge settings share: Pareto labels, and the earliest ends of tasks."""

from __future__ import annotations

from typing import Final

from noonward.arrays import F8, I8
from noonward.compiled import kernel

TIME, THIRD, COST = range(3)
"""Numbers of a label: time, return of a third kind of tasks (0 where there are two), cost."""
LOADED: Final = -1.0
"""Return of a kind of which a task has been finished since."""


@kernel()
def insert(label_SP3: F8, count_S: I8, state: int, time: float, third: float, cost: float, near_by: int) -> None:
    """Adds a label to a state unless another is at least as good; drops those that it dominates.

    Where the state is full, it is merged with the nearest into one that is at least as good as both: a relaxation.

    Args:
        label_SP3: Labels by state.
        count_S: Labels of each state.
        state: State.
        time: Time of the label, s.
        third: Return of the third kind, s.
        cost: Sum of the responses, s.
        near_by: Number of a label by which the nearest is chosen: TIME or COST.
    """
    count, kept = count_S[state], 0
    label_P3 = label_SP3[state]
    for p in range(count):
        if label_P3[p, TIME] <= time and label_P3[p, THIRD] <= third and label_P3[p, COST] <= cost:
            return
    for p in range(count):
        if not (time <= label_P3[p, TIME] and third <= label_P3[p, THIRD] and cost <= label_P3[p, COST]):
            for x in range(3):
                label_P3[kept, x] = label_P3[p, x]
            kept += 1
    if kept == label_P3.shape[0]:
        value, near = cost if near_by == COST else time, 0
        for p in range(kept):
            if abs(label_P3[p, near_by] - value) < abs(label_P3[near, near_by] - value):
                near = p
        label_P3[near, TIME] = min(label_P3[near, TIME], time)
        label_P3[near, THIRD] = min(label_P3[near, THIRD], third)
        label_P3[near, COST] = min(label_P3[near, COST], cost)
    else:
        label_P3[kept, TIME], label_P3[kept, THIRD], label_P3[kept, COST] = time, third, cost
        kept += 1
    count_S[state] = kept


@kernel()
def fresh_ends(
    arrival_J: F8, first: int, count: int, s: float, load: float, run: float, gangs: int, done_J: F8
) -> None:
    """Writes when the tasks of a class from the first on are finished at the earliest if it loads from s on.

    The r-th of them, task j, is finished no earlier than
    ``max(arrival_j + W, min(C_1 + W, max(s, arrival_j) + L + W), s + L + ceil(r / G) W)`` with
    C_1 = max(s, arrival_1) + L + W: it loads a gang, or waits for one that an earlier task of its class loaded, and at
    most G gangs run at once.
    """
    if first >= count:
        return
    first_done = max(s, arrival_J[first]) + load + run
    for r in range(1, count - first + 1):
        arrival = arrival_J[first + r - 1]
        done = min(first_done + run, max(s, arrival) + load + run)
        done_J[r] = max(done, arrival + run, s + load + ((r + gangs - 1) // gangs) * run)


@kernel()
def phase_ends(
    arrival_J: F8,
    stamp_J: F8,
    alone_J: F8,
    first: int,
    count: int,
    s: float,
    returned: float,
    load: float,
    run: float,
    gangs: int,
    end_J: F8,
    sum_J: F8,
) -> None:
    """Writes the last completion and the sum of responses of 0, 1, ... tasks of a class finished in a phase.

    Args:
        arrival_J: When the class's tasks can be launched, s.
        stamp_J: When they were submitted, s.
        alone_J: When they are finished at the earliest in a world of their class alone, s; 0 leaves that out.
        first: First task that is not finished before the phase.
        count: Tasks of the class.
        s: Begin of the phase, s.
        returned: When the class's kind began to load, s; LOADED if a task of it has been finished since.
        load: Load time, s.
        run: Run time, s.
        gangs: Most gangs of the class at once.
        end_J: Room for the last completion, s.
        sum_J: Room for the sum of the responses, s.
    """
    end_J[0], sum_J[0] = s, 0.0
    if first >= count:
        return
    if returned > LOADED:
        fresh_ends(arrival_J, first, count, returned, load, run, gangs, end_J)
    for r in range(1, count - first + 1):
        j = first + r - 1
        done = max(alone_J[j], s, end_J[r] if returned > LOADED else 0.0)
        done = max(done, s + ((r + gangs - 1) // gangs - 1) * run)
        end_J[r] = max(end_J[r - 1], done)
        sum_J[r] = sum_J[r - 1] + done - stamp_J[j]
