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
    """Variables v, y, q, p, lambda and the constraints (3) to (5), (7) of both forms."""
    lp = Lp()
    samples, hours, _, span, clusters = problem.shape
    v = [[lp.var(problem.cost_TD[t, d], up=problem.capacity_TD[t, d]) for d in range(clusters)] for t in range(span)]
    for d in range(clusters):
        peak = lp.var(problem.peak_cost_D[d], low=-INF)
        for t in range(span):
            lp.add([(v[t][d], 1.0), (peak, -1.0)], upper=0.0)
    y = {}
    for k in range(hours):
        for c, one in enumerate(problem.classes):
            allowed = [(t, d) for t in range(k, k + one.flexibility_h + 1) for d in one.clusters]
            for t, d in allowed:
                y[k, c, t, d] = lp.var()
            lp.add([(y[k, c, t, d], 1.0) for t, d in allowed], lower=1.0)
    q, lam = lp.var(low=-INF), lp.var()
    p = [lp.var() for _ in range(samples)]
    mean = [(p[i], 1.0 / samples) for i in range(samples)]
    lp.add([*mean, (lam, problem.eps), (q, -problem.beta)], upper=0.0)
    return lp, v, y, q, p, lam


def printed_optimum(problem):
    """Minimum of Eq. (14) with G = [I; -I], h = [s_max; 0], or without rows where there is no support."""
    lp, v, y, q, p, lam = frame(problem)
    samples, hours, classes, span, clusters = problem.shape
    largest = problem.largest_KC
    for i in range(samples):
        for t in range(span):
            for d in range(clusters):
                row = [(v[t][d], -1.0), (q, 1.0), (p[i], -1.0)]
                for k in range(hours):
                    for c in range(classes):
                        own = [(y[k, c, t, d], 1.0)] if (k, c, t, d) in y else []
                        slope = list(own)
                        s = problem.load_NKC[i, k, c]
                        if problem.support:
                            above, below = lp.var(), lp.var()
                            slope += [(above, -1.0), (below, 1.0)]
                            row += [(above, largest[k, c])]
                        row += [(column, value * s) for column, value in slope]
                        lp.add([*slope, (lam, -1.0)], upper=0.0)
                        lp.add([*slope, (lam, 1.0)], lower=0.0)
                lp.add(row, upper=0.0)
    return lp.solve()


def whole_compact_optimum(problem):
    """Minimum of the compact form with every row, in y = x + e and v itself."""
    lp, v, y, q, p, lam = frame(problem)
    samples, _, _, span, clusters = problem.shape
    x, e = {}, {}
    for key, column in y.items():
        x[key], e[key] = lp.var(), lp.var(up=INF if problem.support else 0.0)
        lp.add([(column, 1.0), (x[key], -1.0), (e[key], -1.0)], lower=0.0, upper=0.0)
        lp.add([(x[key], 1.0), (lam, -1.0)], upper=0.0)
    for i in range(samples):
        for t in range(span):
            for d in range(clusters):
                row = [(v[t][d], -1.0), (q, 1.0), (p[i], -1.0)]
                for (k, c, run_hour, cluster), column in x.items():
                    if (run_hour, cluster) == (t, d):
                        row += [(column, problem.load_NKC[i, k, c]), (e[k, c, t, d], problem.largest_KC[k, c])]
                lp.add(row, upper=0.0)
    return lp.solve()
