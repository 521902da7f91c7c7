"""Lower bound on the response of the edge settings: small and large tasks take turns, and every turn loads again.

The largest gang needs every server (EAT with 4 or 8 servers). So time is a chain of periods in which only small tasks
run, and periods in which only large ones run, and every change of period loses all gangs. Chosen is how many tasks of
each class each period serves; inside a class, the order of arrival loses nothing. In a small period each class loads
again (``noonward.bound.edge_labels.fresh_ends``), with at most floor(N / c) gangs at once. Large tasks run one after
another, the first with its load. The least sum of responses over all chains is found exactly by label setting over the
tasks served per class, with Pareto labels (time, cost).
No scheduler does better, not even one that knows all arrivals, whatever servers it chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.edge_kinds import alone_cost, have_three_kinds, three_kinds_cost
from noonward.bound.edge_labels import COST, TIME, insert, phase_ends
from noonward.compiled import kernel
from noonward.errors import ScenarioError

LABELS: Final = 48
"""Labels kept per state; what is beyond is merged into one that is at least as good, so the bound holds."""

SHARES: Final = (0.25, 0.5, 0.75)
"""Shares of a size's responses that are tried where two bounds share its tasks."""


@kernel()
def _least_cost(
    arrival_CJ: F8, stamp_CJ: F8, count_C: I8, gangs_C: I8, load_C: F8, run_C: F8, weight_C: F8, start_s: float
) -> float:
    """Returns the least weighted sum of responses; the last class is the one that needs every server."""
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
    label_SP3, late_SP3 = np.zeros((total, LABELS, 3)), np.zeros((total, LABELS, 3))
    count_S, late_count_S = np.zeros(total, np.int64), np.zeros(total, np.int64)
    most = count_C.max() + 1
    end_CJ, sum_CJ = np.zeros((classes, most)), np.zeros((classes, most))
    nothing_J = np.zeros(most)
    served_C, more_C = np.zeros(classes, np.int64), np.zeros(classes, np.int64)
    insert(label_SP3, count_S, 0, start_s, 0.0, 0.0, TIME)
    best = np.inf
    for n in range(larges):
        for state in range(states):  # small periods
            here = n * states + state
            for c in range(small):
                served_C[c] = (state // stride_C[c]) % (count_C[c] + 1)
            for p in range(count_S[here]):
                s, cost = label_SP3[here, p, TIME], label_SP3[here, p, COST]
                for c in range(small):
                    phase_ends(
                        arrival_CJ[c],
                        stamp_CJ[c],
                        nothing_J,
                        served_C[c],
                        count_C[c],
                        s,
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
                        add += weight_C[k] * sum_CJ[k, more_C[k]]
                        to += more_C[k] * stride_C[k]
                    insert(late_SP3, late_count_S, to, end, 0.0, cost + add, TIME)
        for state in range(states):  # large periods
            here = n * states + state
            from_start = n == 0 and state == 0
            for kind in range(2):
                if kind == 0 and not from_start:
                    continue
                labels = count_S[here] if kind == 0 else late_count_S[here]
                for p in range(labels):
                    label_3 = label_SP3[here, p] if kind == 0 else late_SP3[here, p]
                    t, cost = label_3[TIME], label_3[COST]
                    for m in range(1, larges - n):
                        arrival = arrival_CJ[large, n + m - 1]
                        t = max(t, arrival) + run_C[large] + (load_C[large] if m == 1 else 0.0)
                        cost += weight_C[large] * (t - stamp_CJ[large, n + m - 1])
                        insert(label_SP3, count_S, here + m * states, t, 0.0, cost, TIME)
    last = total - 1
    for p in range(count_S[last]):
        best = min(best, label_SP3[last, p, COST])
    for p in range(late_count_S[last]):
        best = min(best, late_SP3[last, p, COST])
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
    module). Elsewhere every class has all servers for itself, which is a weak bound; it is raised in two ways, of which
    the better counts: by three kinds, where the largest, the second largest and the smallest gang do not fit together
    (``noonward.bound.edge_kinds``), and by periods for each size and all smaller ones that do not fit beside it (with
    10 servers, gangs of 8 and of 4), while the other classes keep all servers for themselves. Those others may be of
    three kinds together with the same size (with 10 servers, gangs of 8, of 2 and of 1). Then it bears a share of its
    responses in the periods and the rest in the three kinds: the sum of both least costs is a bound for every share.

    Raises:
        ScenarioError: There is no task, or a gang of more servers than there are.
    """
    if len(gang_K) == 0:
        raise ScenarioError("a bound was asked for no task at all; give at least one")
    sizes = np.unique(gang_K).tolist()
    if sizes[-1] > servers:
        raise ScenarioError(f"a gang of {sizes[-1]} servers does not fit {servers}; allowed are at most {servers}")

    def cost(of: list[int], least_cost: Callable[..., float], last: float = 1.0) -> float:
        """Returns a lower bound on the sum of the responses of some sizes, s, with a weight of the last size's."""
        count_C = np.array([int((gang_K == size).sum()) for size in of])
        arrival_CJ, stamp_CJ = np.zeros((len(of), int(count_C.max()))), np.zeros((len(of), int(count_C.max())))
        for c, size in enumerate(of):
            arrival_CJ[c, : count_C[c]] = ready_s_K[gang_K == size]
            stamp_CJ[c, : count_C[c]] = stamp_s_K[gang_K == size]
        index = [size if count_C[c] else int(gang_K[0]) for c, size in enumerate(of)]
        gangs_C = np.array([servers // size for size in of])
        weight_C = np.ones(len(of))
        weight_C[-1] = last
        return least_cost(arrival_CJ, stamp_CJ, count_C, gangs_C, load_s_G[index], run_s_G[index], weight_C, start_s)

    if holds_up_all(servers, gang_K):
        return float(cost(sorted({*sizes, servers}), _least_cost) / len(gang_K))
    total = cost(sizes, three_kinds_cost if have_three_kinds(servers, sizes) else alone_cost)
    for large in sizes:
        apart = [size for size in sizes if size < large and size + large > servers]
        rest = [size for size in sizes if size not in (*apart, large)]
        if apart:
            total = max(total, cost([*apart, large], _least_cost) + (cost(rest, alone_cost) if rest else 0.0))
            for share in SHARES if have_three_kinds(servers, [*rest, large]) else ():
                shared = cost([*apart, large], _least_cost, share) + cost([*rest, large], three_kinds_cost, 1.0 - share)
                total = max(total, shared)
    return float(total / len(gang_K))
