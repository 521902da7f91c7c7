"""Eq. (14) as printed, with a vector eta for every sample, hour and cluster; and the whole compact LP. Dense, slow."""

import highspy
import numpy as np

INF = np.inf


class Lp:
    """A linear program written down constraint by constraint."""

    def __init__(self):
        self.cost, self.low, self.up, self.rows, self.lower, self.upper = [], [], [], [], [], []

    def var(self, cost=0.0, low=0.0, up=INF):
        self.cost.append(cost)
        self.low.append(low)
        self.up.append(up)
        return len(self.cost) - 1

    def add(self, terms, lower=-INF, upper=INF):
        self.rows.append(terms)
        self.lower.append(lower)
        self.upper.append(upper)

    def solve(self):
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        none = np.empty(0, dtype=np.int32)
        count = len(self.cost)
        solver.addCols(count, np.array(self.cost), np.array(self.low), np.array(self.up), 0, none, none, np.empty(0))
        for terms, lower, upper in zip(self.rows, self.lower, self.upper, strict=True):
            merged = {}
            for column, value in terms:
                merged[column] = merged.get(column, 0.0) + value
            columns = np.array(list(merged), dtype=np.int32)
            solver.addRow(lower, upper, len(columns), columns, np.array(list(merged.values())))
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        return solver.getInfo().objective_function_value


def frame(problem):
    """Variables v, y, q, p, lambda and the constraints (3) to (5), (7) of both forms; load weights of every place.

    ``weights[t, d]`` has, per load to come (k, c), the pairs (column of y, amount) that it puts there; ``known`` the
    same with queued loads, times their load.
    """
    lp = Lp()
    samples, hours, _, span, clusters = problem.shape
    v = {}
    for place in np.ndindex(span, clusters):
        v[place] = lp.var(problem.cost_TD[place], up=problem.capacity_TD[place])
    for d in range(clusters):
        before = 0.0 if problem.peak_before_D is None else problem.peak_before_D[d]
        peak = lp.var(problem.peak_cost_D[d], low=before)
        for t in range(span):
            lp.add([(v[t, d], 1.0), (peak, -1.0)], upper=0.0)
    weights, known = {place: {} for place in v}, {place: [] for place in v}
    loads = [(k, c, one.flexibility_h, None) for k in range(hours) for c, one in enumerate(problem.classes)]
    loads += [(0, wait.load_class, wait.flexibility_h, wait.load) for wait in problem.queued]
    for k, c, delay_h, load in loads:
        one = problem.classes[c]
        served = []
        for start in range(k, k + delay_h + 1):
            for d in one.clusters:
                y = lp.var()
                served.append((y, 1.0))
                for t in range(start, start + one.run_hours):
                    if load is None:
                        weights[t, d].setdefault((k, c), []).append((y, 1.0))
                    else:
                        known[t, d].append((y, load))
        lp.add(served, lower=1.0)
    q, lam = lp.var(low=-INF), lp.var()
    p = [lp.var() for _ in range(samples)]
    mean = [(p[i], 1.0 / samples) for i in range(samples)]
    lp.add([*mean, (lam, problem.eps), (q, -problem.beta)], upper=0.0)
    return lp, v, weights, known, q, p, lam


def placed_at(problem, place):
    """Load placed before at a place."""
    if problem.placed_TD is None:
        return 0.0
    return problem.placed_TD[place]


def printed_optimum(problem):
    """Minimum of Eq. (14) with G = [I; -I], h = [s_max; 0], or without rows where there is no support."""
    lp, v, weights, known, q, p, lam = frame(problem)
    samples, hours, classes, _, _ = problem.shape
    largest = problem.largest_KC
    for i in range(samples):
        for place, column in v.items():
            row = [(column, -1.0), (q, 1.0), (p[i], -1.0), *known[place]]
            for k in range(hours):
                for c in range(classes):
                    slope = list(weights[place].get((k, c), []))
                    s = problem.load_NKC[i, k, c]
                    if problem.support:
                        above, below = lp.var(), lp.var()
                        slope += [(above, -1.0), (below, 1.0)]
                        row += [(above, largest[k, c])]
                    row += [(one, value * s) for one, value in slope]
                    lp.add([*slope, (lam, -1.0)], upper=0.0)
                    lp.add([*slope, (lam, 1.0)], lower=0.0)
            lp.add(row, upper=-placed_at(problem, place))
    return lp.solve()


def whole_compact_optimum(problem):
    """Minimum of the compact form with every row, in a = x + e per load and place, and v itself."""
    lp, v, weights, known, q, p, lam = frame(problem)
    x, e = {}, {}
    for place, loads in weights.items():
        for load, terms in loads.items():
            key = (*place, *load)
            x[key], e[key] = lp.var(), lp.var(up=INF if problem.support else 0.0)
            lp.add([*terms, (x[key], -1.0), (e[key], -1.0)], lower=0.0, upper=0.0)
            lp.add([(x[key], 1.0), (lam, -1.0)], upper=0.0)
    for i in range(problem.shape[0]):
        for place, column in v.items():
            row = [(column, -1.0), (q, 1.0), (p[i], -1.0), *known[place]]
            for k, c in weights[place]:
                key = (*place, k, c)
                row += [(x[key], problem.load_NKC[i, k, c]), (e[key], problem.largest_KC[k, c])]
            lp.add(row, upper=-placed_at(problem, place))
    return lp.solve()
