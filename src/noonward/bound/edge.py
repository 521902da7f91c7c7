"""Lower bound on the response of the edge settings: small and large tasks take turns, and every turn loads anew.

The largest gang needs every server (EAT with 4 or 8 servers). So time is a chain of periods in which only small tasks
run, and periods in which only large ones run, and every change of period loses all gangs. Chosen is how many tasks of
each class each period serves; inside a class, the order of arrival loses nothing. In a small period that starts at s,
the r-th task j of a class with run time W and load time L completes no earlier than

    max(arrival_j + W, min(C_1 + W, max(s, arrival_j) + L + W), s + L + ceil(r / floor(N / c)) W),

C_1 = max(s, arrival_1) + L + W: it loads a gang, or waits for one that an earlier task of its class loaded, and at
most floor(N / c) gangs run at once. Large tasks run one after another, the first with its load. The least sum of
responses over all chains is found exactly by label setting over the tasks served per class, with Pareto labels
(time, cost).
No scheduler does better, not even one that knows all arrivals, whatever servers it chooses.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.edge_kinds import alone_cost, have_three_kinds, three_kinds_cost
from noonward.compiled import kernel
from noonward.errors import ScenarioError

LABELS: Final = 48
"""Labels kept per state; what is beyond is merged into a label that is at least as good as both, so the bound holds."""


@kernel()
def _insert(time_SP: F8, cost_SP: F8, count_S: I8, state: int, time: float, cost: float) -> None:
    """Adds a label to a state unless another is at least as early and as cheap; drops those that it dominates."""
    count = count_S[state]
    kept = 0
    for p in range(count):
        if time_SP[state, p] <= time and cost_SP[state, p] <= cost:
            return
    for p in range(count):
        if not (time <= time_SP[state, p] and cost <= cost_SP[state, p]):
            time_SP[state, kept] = time_SP[state, p]
            cost_SP[state, kept] = cost_SP[state, p]
            kept += 1
    if kept == LABELS:  # merge with the nearest in time: a relaxation
        near = 0
        for p in range(kept):
            if abs(time_SP[state, p] - time) < abs(time_SP[state, near] - time):
                near = p
        time_SP[state, near] = min(time_SP[state, near], time)
        cost_SP[state, near] = min(cost_SP[state, near], cost)
    else:
        time_SP[state, kept] = time
        cost_SP[state, kept] = cost
        kept += 1
    count_S[state] = kept


@kernel()
def _small_ends(
    arrival_CJ: F8,
    stamp_CJ: F8,
    c: int,
    first: int,
    count: int,
    s: float,
    load: float,
    run: float,
    gangs: int,
    end_J: F8,
    sum_J: F8,
) -> None:
    """Writes the last completion and the sum of responses of 0, 1, ... tasks of a class, from the first on."""
    end_J[0], sum_J[0] = s, 0.0
    if first >= count:
        return
    first_done = max(s, arrival_CJ[c, first]) + load + run
    for r in range(1, count - first + 1):
        arrival = arrival_CJ[c, first + r - 1]
        done = min(first_done + run, max(s, arrival) + load + run)
        done = max(done, arrival + run, s + load + ((r + gangs - 1) // gangs) * run)
        end_J[r] = max(end_J[r - 1], done)
        sum_J[r] = sum_J[r - 1] + done - stamp_CJ[c, first + r - 1]


@kernel()
def _least_cost(arrival_CJ: F8, stamp_CJ: F8, count_C: I8, gangs_C: I8, load_C: F8, run_C: F8, start_s: float) -> float:
    """Returns the least sum of responses; the last class is the one that needs every server."""
    classes = len(count_C)
    small, large = classes - 1, classes - 1
    stride_C = np.ones(classes, np.int64)
    states = 1
    for c in range(small):
        stride_C[c] = states
        states *= count_C[c] + 1
    larges = count_C[large] + 1
    total = states * larges
    # Kind 0: the last period was large, or none; kind 1: it was small.
    time_SP, cost_SP = np.zeros((total, LABELS)), np.zeros((total, LABELS))
    late_SP, late_cost_SP = np.zeros((total, LABELS)), np.zeros((total, LABELS))
    count_S, late_count_S = np.zeros(total, np.int64), np.zeros(total, np.int64)
    most = count_C.max() + 1
    end_CJ, sum_CJ = np.zeros((classes, most)), np.zeros((classes, most))
    served_C, more_C = np.zeros(classes, np.int64), np.zeros(classes, np.int64)
    _insert(time_SP, cost_SP, count_S, 0, start_s, 0.0)
    best = np.inf
    for n in range(larges):
        for state in range(states):  # small periods
            here = n * states + state
            for c in range(small):
                served_C[c] = (state // stride_C[c]) % (count_C[c] + 1)
            for p in range(count_S[here]):
                s, cost = time_SP[here, p], cost_SP[here, p]
                for c in range(small):
                    _small_ends(
                        arrival_CJ,
                        stamp_CJ,
                        c,
                        served_C[c],
                        count_C[c],
                        s,
                        load_C[c],
                        run_C[c],
                        gangs_C[c],
                        end_CJ[c],
                        sum_CJ[c],
                    )
                more_C[:] = 0
                while True:
                    c = 0
                    while c < small:  # the next choice of how many of each class
                        more_C[c] += 1
                        if served_C[c] + more_C[c] <= count_C[c]:
                            break
                        more_C[c] = 0
                        c += 1
                    if c == small:
                        break
                    end, add, to = s, 0.0, here
                    for k in range(small):
                        end = max(end, end_CJ[k, more_C[k]])
                        add += sum_CJ[k, more_C[k]]
                        to += more_C[k] * stride_C[k]
                    _insert(late_SP, late_cost_SP, late_count_S, to, end, cost + add)
        for state in range(states):  # large periods
            here = n * states + state
            from_start = n == 0 and state == 0
            for kind in range(2):
                if kind == 0 and not from_start:
                    continue
                labels = count_S[here] if kind == 0 else late_count_S[here]
                for p in range(labels):
                    t = time_SP[here, p] if kind == 0 else late_SP[here, p]
                    cost = cost_SP[here, p] if kind == 0 else late_cost_SP[here, p]
                    for m in range(1, larges - n):
                        arrival = arrival_CJ[large, n + m - 1]
                        t = max(t, arrival) + run_C[large] + (load_C[large] if m == 1 else 0.0)
                        cost += t - stamp_CJ[large, n + m - 1]
                        _insert(time_SP, cost_SP, count_S, here + m * states, t, cost)
    last = total - 1
    for p in range(count_S[last]):
        best = min(best, cost_SP[last, p])
    for p in range(late_count_S[last]):
        best = min(best, late_cost_SP[last, p])
    return best


def holds_up_all(servers: int, gang_K: I8) -> bool:
    """Returns whether only gangs of all servers are larger than half of them, as ``response_bound`` needs it."""
    return bool(((gang_K == servers) | (gang_K <= servers / 2)).all())


def response_bound(
    servers: int, stamp_s_K: F8, ready_s_K: F8, gang_K: I8, load_s_G: F8, run_s_G: F8, start_s: float
) -> float:
    """Returns a lower bound on the mean response of all tasks, s.

    Args:
        servers: Servers N.
        stamp_s_K: When tasks were submitted, s.
        ready_s_K: When they can be launched at the earliest, s.
        gang_K: Their gangs.
        load_s_G: Least seconds to load, by gang size.
        run_s_G: Least seconds of a run without its load, by gang size.
        start_s: First time at which anything can be launched, s.

    Where only gangs of all servers are larger than half of them, periods of small and of large tasks take turns (this
    module); where the largest, the second largest and the smallest gang do not fit together, three kinds do
    (``noonward.bound.edge_kinds``); else every class has all servers for itself, which is a weak bound.

    Raises:
        ScenarioError: There is no task, or a gang of more servers than there are.
    """
    if len(gang_K) == 0:
        raise ScenarioError("a bound was asked for no task at all; give at least one")
    sizes = np.unique(gang_K).tolist()
    if sizes[-1] > servers:
        raise ScenarioError(f"a gang of {sizes[-1]} servers does not fit {servers}; allowed are at most {servers}")
    periods = holds_up_all(servers, gang_K)
    if periods:
        sizes = sorted({*sizes, servers})
    count_C = np.array([int((gang_K == size).sum()) for size in sizes])
    most = int(count_C.max())
    arrival_CJ, stamp_CJ = np.zeros((len(sizes), most)), np.zeros((len(sizes), most))
    for c, size in enumerate(sizes):
        arrival_CJ[c, : count_C[c]] = ready_s_K[gang_K == size]
        stamp_CJ[c, : count_C[c]] = stamp_s_K[gang_K == size]
    index = [size if count_C[c] else int(gang_K[0]) for c, size in enumerate(sizes)]
    gangs_C = np.array([servers // size for size in sizes])
    least_cost = _least_cost if periods else three_kinds_cost if have_three_kinds(servers, sizes) else alone_cost
    total = least_cost(arrival_CJ, stamp_CJ, count_C, gangs_C, load_s_G[index], run_s_G[index], start_s)
    return float(total / len(gang_K))
