"""Lower bound on the response where three kinds of tasks cannot all be loaded at once.

With 12 servers and gangs of 8, 4, 2 and 1, gangs of 8, of 4 and of either smaller size never exist together: they
would need 8 + 4 + 1 servers. So there are three kinds of tasks (the largest size, the second largest, all others), and
at any time one kind has no gang. Time is a chain of phases, each with an absent kind. A phase ends when that kind
returns, which means that it loads a gang; another kind is absent from then on. Chosen is how many tasks of each class
are finished in each phase; inside a class, the order of arrival loses nothing. With run time W, load time L and at most
G = floor(N / c) gangs of a class:

- a kind that returns at s has loaded nothing: its r-th task j from then on is finished no earlier than
  ``max(arrival_j + W, min(C_1 + W, max(s, arrival_j) + L + W), s + L + ceil(r / G) W)``, with
  C_1 = max(s, arrival_1) + L + W;
- once one of its tasks is finished, the r-th finished in a later phase that begins at s is finished no earlier than
  ``max(arrival_j + W, s + (ceil(r / G) - 1) W)``, and no earlier than in a world of its class alone;
- a kind becomes absent only after one of its tasks is finished: a gang is not dissolved while it runs.

The least sum of responses over all chains is found by label setting over the tasks finished per class, the absent kind
and the kind that returned last, with Pareto labels (time, return of the third kind, cost). All else is relaxed.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.edge_labels import COST, LOADED, fresh_ends, insert, phase_ends
from noonward.compiled import kernel

LABELS: Final = 32
"""Labels kept per state; what is beyond is merged into one that is at least as good, so the bound holds."""


@kernel()
def _least_cost(
    arrival_CJ: F8,
    stamp_CJ: F8,
    alone_CJ: F8,
    count_C: I8,
    kind_C: I8,
    gangs_C: I8,
    load_C: F8,
    run_C: F8,
    weight_C: F8,
    start_s: float,
) -> float:
    """Returns the least weighted sum of responses; kinds are 0, 1 and 2."""
    classes = len(count_C)
    stride_C = np.ones(classes, np.int64)
    states = 1
    for c in range(classes):
        stride_C[c] = states
        states *= count_C[c] + 1
    # State: tasks finished, absent kind, kind that returned last; the other one is the third.
    label_SP3 = np.zeros((states * 9, LABELS, 3))
    count_S = np.zeros(states * 9, np.int64)
    most = count_C.max() + 1
    end_CJ, sum_CJ = np.zeros((classes, most)), np.zeros((classes, most))
    done_C, more_C = np.zeros(classes, np.int64), np.zeros(classes, np.int64)
    for absent in range(3):
        for last in range(3):
            if last != absent:
                insert(label_SP3, count_S, absent * 3 + last, start_s, start_s, 0.0, COST)
    best = np.inf
    for served in range(states):
        for c in range(classes):
            done_C[c] = (served // stride_C[c]) % (count_C[c] + 1)
        # A phase in which nothing is finished leads to a state of the same tasks: those states take a second turn.
        for turn in range(2):
            for absent in range(3):
                for last in range(3):
                    if last == absent:
                        continue
                    third = 3 - absent - last
                    here = (served * 3 + absent) * 3 + last
                    for p in range(count_S[here]):
                        s, returned, cost = label_SP3[here, p, 0], label_SP3[here, p, 1], label_SP3[here, p, 2]
                        if served == states - 1:
                            best = min(best, cost)
                            continue
                        for c in range(classes):
                            if kind_C[c] != absent:
                                phase_ends(
                                    arrival_CJ[c],
                                    stamp_CJ[c],
                                    alone_CJ[c],
                                    done_C[c],
                                    count_C[c],
                                    s,
                                    s if kind_C[c] == last else returned,
                                    load_C[c],
                                    run_C[c],
                                    gangs_C[c],
                                    end_CJ[c],
                                    sum_CJ[c],
                                )
                        more_C[:] = 0
                        begun = turn == 1
                        while True:
                            if begun:  # the next choice of how many of each class
                                c = 0
                                while c < classes:
                                    if kind_C[c] != absent:
                                        more_C[c] += 1
                                        if done_C[c] + more_C[c] <= count_C[c]:
                                            break
                                        more_C[c] = 0
                                    c += 1
                                if c == classes:
                                    break
                            begun = True
                            end, add, to, of_last, of_third = s, 0.0, served, 0, 0
                            for c in range(classes):
                                if more_C[c] > 0:
                                    end = max(end, end_CJ[c, more_C[c]])
                                    add += weight_C[c] * sum_CJ[c, more_C[c]]
                                    to += more_C[c] * stride_C[c]
                                    if kind_C[c] == last:
                                        of_last += more_C[c]
                                    else:
                                        of_third += more_C[c]
                            if to == states - 1:
                                best = min(best, cost + add)
                                continue
                            if turn == 1 and to == served:
                                continue
                            if of_last > 0:  # the kind that returned last becomes absent
                                loaded = LOADED if of_third > 0 else returned
                                insert(label_SP3, count_S, (to * 3 + last) * 3 + absent, end, loaded, cost + add, COST)
                            if of_third > 0 or returned == LOADED:  # the third becomes absent
                                loaded = LOADED if of_last > 0 else s
                                insert(label_SP3, count_S, (to * 3 + third) * 3 + absent, end, loaded, cost + add, COST)
                            if turn == 0:
                                break  # the first turn tries the phase in which nothing is finished alone
    return best


def have_three_kinds(servers: int, sizes: list[int]) -> bool:
    """Returns whether the largest size, the second largest and the smallest never have gangs at the same time.

    Example:
        >>> have_three_kinds(12, [1, 2, 4, 8]), have_three_kinds(16, [1, 2, 4, 8])
        (True, False)
    """
    return len(sizes) > 2 and sizes[-1] + sizes[-2] + sizes[0] > servers


def alone_ends(arrival_CJ: F8, count_C: I8, gangs_C: I8, load_C: F8, run_C: F8, start_s: float) -> F8:
    """Returns when every task is finished at the earliest in a world of its class alone, s; classes in rows."""
    done_CJ = np.zeros((len(count_C), int(count_C.max()) + 1))
    for c, count in enumerate(count_C.tolist()):
        fresh_ends(arrival_CJ[c], 0, count, start_s, float(load_C[c]), float(run_C[c]), int(gangs_C[c]), done_CJ[c])
    return np.ascontiguousarray(done_CJ[:, 1:])


def three_kinds_cost(
    arrival_CJ: F8, stamp_CJ: F8, count_C: I8, gangs_C: I8, load_C: F8, run_C: F8, weight_C: F8, start_s: float
) -> float:
    """Returns a lower bound on the weighted sum of the responses of classes in order of size, s; see the module."""
    kind_C = np.full(len(count_C), 2, np.int64)
    kind_C[-1], kind_C[-2] = 0, 1
    alone_CJ = alone_ends(arrival_CJ, count_C, gangs_C, load_C, run_C, start_s)
    return float(
        _least_cost(arrival_CJ, stamp_CJ, alone_CJ, count_C, kind_C, gangs_C, load_C, run_C, weight_C, start_s)
    )


def alone_cost(
    arrival_CJ: F8, stamp_CJ: F8, count_C: I8, gangs_C: I8, load_C: F8, run_C: F8, weight_C: F8, start_s: float
) -> float:
    """Returns the weighted sum of the responses if every class had all servers for itself, s: a weak lower bound."""
    alone_CJ = alone_ends(arrival_CJ, count_C, gangs_C, load_C, run_C, start_s)
    sums = [weight_C[c] * (alone_CJ[c] - stamp_CJ[c])[:count].sum() for c, count in enumerate(count_C.tolist())]
    return float(sum(sums))
