"""Plans of very many clusters: a small LP for each group of clusters, and one for what links the groups.

Clusters hang together by the classes that may run at several of them. Without classes of a wide range a fleet falls
into parts, and these are linked by little: the share of each wide load that a part takes, and q, lambda and p of the
guarantee. Given the links, a part's least cost is a convex piecewise linear function of them, and its duals say a
plane below it. The master LP chooses links by all planes found so far, within a box around the best links known
(L-shaped method, Van Slyke and Wets 1969, with a trust region, Linderoth and Wright 2003). The master without the box
bounds the cost of every plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import highspy
import numpy as np

from noonward.arrays import F8, I8
from noonward.schedule.plan.classes import LoadClass
from noonward.schedule.plan.constraints import define_active, raise_pairs
from noonward.schedule.plan.generate import FIRST_SPREAD, TOLERANCE, Solved, blank, complete, first_rows
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.program import Active, Links, Point, Program
from noonward.solver import quiet_solver

MANY_ENTRIES: Final = 20_000
"""Entries from which on a plan is made by parts."""
MOST_CLUSTERS: Final = 8
"""Clusters of a part at most; a class that would make it larger is wide."""
GAP: Final = 1e-6
"""Gap between a plan's cost and its bound, over the cost, at which it is taken."""
LEAST_COST: Final = 1.0
"""Cost that a gap is compared with at the least, in units of the largest load for an hour at the largest cost."""
MOST_ROUNDS: Final = 300
"""Rounds at most; 20 to 50 are usual."""
FIRST_PLACE_ROWS: Final = 2
"""Sample rows of every place that a part begins with."""
NEW_PLACE_ROWS: Final = 1
"""Sample rows of a place that are added at a time."""
FIRST_TOLERANCE: Final = 1e-2
"""Violation of a row that is not worth generating it in the first round."""
GAP_SHARE: Final = 0.3
"""Share of the gap that rows left out may hide."""
BOX_TAIL: Final = 1.0
"""Half the box's first side for p and q, over the first q."""
BOX_SLOPE: Final = 0.1
"""The same for lambda, over the first lambda."""
BOX_SHARE: Final = 0.4
"""The same for shares, over an even share."""
LEAST_TAIL: Final = 1e-3
"""Least half of the box's first side for p and q, in units of the largest load."""
BOX_GROWS: Final = 1.5
"""By what the box's sides grow after a round that came closer to the bound, and shrink after one that did not."""
BOX_WIDENS: Final = 4.0
"""By what they grow where the best links within the box are known, and those beyond it are not."""
CLOSER: Final = 0.1
"""Share of the gap that must close for that."""
STRETCH_COST: Final = 100.0
"""Cost of capacity that is not there, over the largest cost: what makes a part solvable whatever its links are."""
STRETCHED: Final = 1e-9
"""Share of capacity that is not there, up to which a plan is taken."""


class PartProblem(PlanProblem):
    """Some clusters of a problem that has been checked."""

    def __post_init__(self) -> None:
        """Checks nothing: a part may run longer than its own classes need, or lack capacity for a wide class."""


@dataclass(frozen=True)
class Plane:
    """A plane below the least cost of a part as a function of its links.

    Attributes:
        value: The least cost at the links that it touches.
        slope_X: Slopes in p, q and lambda, in this order.
        slope_W: Slopes in the shares of wide loads.
        dual_R: Duals of the part's service and curve rows.
        reduced_C: Reduced costs of its columns v and peak.
    """

    value: float
    slope_X: F8
    slope_W: F8
    dual_R: F8
    reduced_C: F8


@dataclass(frozen=True)
class Part:
    """Some clusters, with all that happens at them.

    Attributes:
        program: The LP of these clusters alone.
        cluster_D: Its clusters.
        load_L: Loads of the whole that its loads are.
        entry_M: Entries of the whole that its entries are.
        place_P: Places of the whole that its places are.
        pair_G: Pairs of the whole that its pairs are.
        wide_W: The wide loads, by its own numbers; -1 where it cannot take one.
    """

    program: Program
    cluster_D: I8
    load_L: I8
    entry_M: I8
    place_P: I8
    pair_G: I8
    wide_W: I8

    @classmethod
    def of(cls, whole: Program, clusters: Sequence[int], wide_W: I8) -> Part:
        """Returns the part of some clusters.

        Args:
            whole: LP of the whole.
            clusters: The clusters.
            wide_W: Loads of the whole that several parts may take.
        """
        problem, entries = whole.problem, whole.entries
        _, hours, classes, span, count = problem.shape
        class_C = np.array([c for c, one in enumerate(problem.classes) if set(one.clusters) & set(clusters)])
        cluster_D, class_at = np.array(clusters), {int(c): i for i, c in enumerate(class_C)}
        queued = [i for i, wait in enumerate(problem.queued) if wait.load_class in class_at]
        program = blank(_restricted(problem, clusters, class_at, queued), units=(whole.unit, whole.money))
        program.solver.changeRowBounds(program.loads + 2 * program.places, -np.inf, np.inf)  # the master's guarantee
        program.solver.changeColBounds(program.stretch, 0.0, np.inf)
        program.solver.changeColCost(program.stretch, STRETCH_COST * float(program.capacity_P.sum()))
        load_L = np.concatenate(
            [
                (np.arange(hours)[:, None] * classes + class_C).ravel(),
                hours * classes + np.array(queued, dtype=np.int64),
            ]
        )
        load_at = {int(load): i for i, load in enumerate(load_L)}
        return cls(
            program=program,
            cluster_D=cluster_D,
            load_L=load_L,
            entry_M=np.flatnonzero(np.isin(entries.cluster_M, cluster_D)),
            place_P=(np.arange(span)[:, None] * count + cluster_D).ravel(),
            pair_G=np.flatnonzero(np.isin(entries.place_G[: whole.pairs] % count, cluster_D)),
            wide_W=np.array([load_at.get(int(load), -1) for load in wide_W], dtype=np.int64),
        )

    def begin(self, active: Active | None) -> None:
        """Adds the first rows: those that were active in a plan of the whole, or some that are likely to bind."""
        if active is None:
            sample_R, place_R = first_rows(self.program)
            rows = FIRST_PLACE_ROWS * self.program.places
            none = np.empty(0, dtype=np.int64)
            mine = Active(fit_RX=np.stack([sample_R[:rows], place_R[:rows]]), slope_R=none, raised_R=none)
        else:
            at_R = np.isin(active.fit_RX[1], self.place_P)
            slope_R, raised_R = (each[np.isin(each, self.pair_G)] for each in (active.slope_R, active.raised_R))
            mine = Active(
                fit_RX=np.stack([active.fit_RX[0, at_R], np.searchsorted(self.place_P, active.fit_RX[1, at_R])]),
                slope_R=np.searchsorted(self.pair_G, slope_R),
                raised_R=np.searchsorted(self.pair_G, raised_R),
            )
        define_active(self.program, mine)

    def solve(self, tail_X: F8, share_W: F8, tolerance: float) -> Solved | None:
        """Returns the cheapest way to run the part with these links; None where there is none.

        Args:
            tail_X: p, q and lambda.
            share_W: Shares of wide loads that it takes.
            tolerance: Violation of a row that is not worth generating it.
        """
        program = self.program
        columns = np.arange(program.p, program.lam + 1, dtype=np.int32)
        program.solver.changeColsBounds(len(columns), columns, tail_X, tail_X)
        for load, share in zip(self.wide_W.tolist(), share_W.tolist(), strict=True):
            if load >= 0:
                program.solver.changeRowBounds(load, share, np.inf)
        return complete(program, "simplex", tolerance=tolerance, most=NEW_PLACE_ROWS)

    def plane(self, point: Point) -> Plane:
        """Returns the plane that touches the least cost at a solution."""
        program = self.program
        return Plane(
            value=point.value,
            slope_X=point.reduced[program.p : program.lam + 1],
            slope_W=np.where(self.wide_W >= 0, point.dual[self.wide_W], 0.0),
            dual_R=point.dual[: program.loads + program.places],
            reduced_C=np.concatenate([point.reduced[program.v : program.w], point.reduced[program.peak : program.p]]),
        )

    def active(self, point: Point) -> Active:
        """Returns the rows and columns that a solution needs, in the numbers of the whole."""
        mine = self.program.active(point)
        return Active(
            fit_RX=np.stack([mine.fit_RX[0], self.place_P[mine.fit_RX[1]]]),
            slope_R=self.pair_G[mine.slope_R],
            raised_R=self.pair_G[mine.raised_R],
        )


def _restricted(
    problem: PlanProblem, clusters: Sequence[int], class_at: dict[int, int], queued: Sequence[int]
) -> PartProblem:
    """Returns a problem at some clusters, with some classes and queued loads."""
    cluster_at = {d: i for i, d in enumerate(clusters)}
    class_C = list(class_at)

    def at_mine(one: LoadClass) -> LoadClass:
        return replace(one, clusters=tuple(cluster_at[d] for d in one.clusters if d in cluster_at))

    def columns(array: F8) -> F8:
        return np.ascontiguousarray(array[..., list(clusters)])

    return PartProblem(
        classes=tuple(at_mine(problem.classes[c]) for c in class_C),
        load_NKC=np.ascontiguousarray(problem.load_NKC[:, :, class_C]),
        capacity_TD=columns(problem.capacity_TD),
        cost_TD=columns(problem.cost_TD),
        peak_cost_D=columns(problem.peak_cost_D),
        beta=problem.beta,
        eps=problem.eps,
        load_max_KC=np.ascontiguousarray(problem.largest_KC[:, class_C]),
        support=problem.support,
        placed_TD=None if problem.placed_TD is None else columns(problem.placed_TD),
        queued=tuple(replace(problem.queued[i], load_class=class_at[problem.queued[i].load_class]) for i in queued),
        peak_before_D=None if problem.peak_before_D is None else columns(problem.peak_before_D),
    )


def clusters_of_parts(problem: PlanProblem) -> list[list[int]]:
    """Returns the clusters of every part: narrow classes join clusters as long as a part stays small."""
    part_D = list(range(problem.shape[4]))
    members = {d: [d] for d in part_D}

    def join(clusters: Sequence[int]) -> None:
        first, *others = sorted({part_D[d] for d in clusters})
        for other in others:
            for d in members[other]:
                part_D[d] = first
            members[first] += members.pop(other)

    ranges = sorted({tuple(one.clusters) for one in problem.classes}, key=lambda clusters: (len(clusters), clusters))
    for clusters in ranges:
        if sum(len(members[part]) for part in {part_D[d] for d in clusters}) <= MOST_CLUSTERS:
            join(clusters)
    used = {d for clusters in ranges for d in clusters}
    for d in sorted(set(range(len(part_D))) - used):
        join([min(used), d])  # a cluster that no class may use is no part of its own
    return [sorted(mine) for _, mine in sorted(members.items())]


class Master:
    """The LP of the links: columns p, q, lambda, shares (wide load by part), and the cost of every part.

    Args:
        whole: LP of the whole.
        parts: Its parts.
        wide_W: Loads of the whole that several parts may take.
    """

    def __init__(self, whole: Program, parts: Sequence[Part], wide_W: I8) -> None:
        self.whole, self.parts, self.wide_W, wide = whole, parts, wide_W, len(wide_W)
        self.share = whole.samples + 2
        self.cost = self.share + wide * len(parts)
        count = self.cost + len(parts)
        self.solver = quiet_solver()
        self.lower, self.upper = np.zeros(self.cost), np.full(self.cost, np.inf)
        self.upper[self.share - 1] = np.inf if whole.problem.robust else 0.0
        takes_WB = np.stack([part.wide_W >= 0 for part in parts], axis=1)
        self.upper[self.share :] = np.where(takes_WB, np.inf, 0.0).ravel()
        least_B = [float(_least(part.program)) for part in parts]
        cost, none = np.zeros(count), np.empty(0, dtype=np.int32)
        cost[self.cost :] = 1.0
        lower, upper = np.concatenate([self.lower, least_B]), np.concatenate([self.upper, np.full(len(parts), np.inf)])
        self.solver.addCols(count, cost, lower, upper, 0, none, none, np.empty(0))
        mean = np.full(whole.samples, 1.0 / whole.samples)
        guarantee = np.concatenate([mean, [-whole.problem.beta, whole.problem.eps / whole.unit]])
        self.solver.addRow(-np.inf, 0.0, self.share, np.arange(self.share, dtype=np.int32), guarantee)
        for w in range(wide):
            columns = self.share + w * len(parts) + np.arange(len(parts), dtype=np.int32)
            self.solver.addRow(1.0, np.inf, len(parts), columns, np.ones(len(parts)))
        if whole.problem.robust and not whole.problem.support:
            self._bound_shares()
        self.planes: list[tuple[int, Plane]] = []
        self._rows = int(self.solver.getNumRow())

    def _bound_shares(self) -> None:
        """Lets no part take more of a load than it can spread with no slope above lambda.

        Without a support no slope may be above it. A run of r hours covers one of the hours r - 1, 2 r - 1, ... after
        its submission, whenever it starts; so a load's largest slope is least where it is spread over these evenly.
        """
        slope = self.share - 1
        for b, part in enumerate(self.parts):
            problem = part.program.problem
            room_C = np.array(
                [len(one.clusters) * (one.flexibility_h // one.run_hours + 1) for one in problem.classes],
                dtype=np.int64,
            )
            narrow = np.setdiff1d(np.arange(part.program.uncertain), part.wide_W)
            if narrow.size:
                self.lower[slope] = max(self.lower[slope], 1.0 / room_C[narrow % len(room_C)].min())
            for w, load in enumerate(part.wide_W.tolist()):
                if 0 <= load < part.program.uncertain:
                    columns = np.array([slope, self.share + w * len(self.parts) + b], dtype=np.int32)
                    self.solver.addRow(-np.inf, 0.0, 2, columns, np.array([-float(room_C[load % len(room_C)]), 1.0]))

    def add(self, links_X: F8, planes: Sequence[Plane]) -> None:
        """Adds the planes of all parts at the links where they touch."""
        for b, plane in enumerate(planes):
            self.planes.append((b, plane))
            column = np.concatenate([np.arange(self.share), self._shares(b)])
            slope = np.concatenate([plane.slope_X, plane.slope_W])
            kept = slope != 0
            column, slope = column[kept], slope[kept]
            self.solver.addRow(
                plane.value - float(slope @ links_X[column]),
                np.inf,
                len(column) + 1,
                np.append(column, self.cost + b).astype(np.int32),
                np.append(-slope, 1.0),
            )

    def exact(self, links_X: F8) -> F8:
        """Returns links that serve every load and keep the guarantee, not only to the solver's tolerance."""
        tail_N, slope = links_X[: self.share - 2], links_X[self.share - 1]
        problem = self.whole.problem
        least_q = (slope * problem.eps / self.whole.unit + tail_N.mean()) / problem.beta
        share_WB = links_X[self.share :].reshape(-1, len(self.parts))
        share_WB = share_WB / np.minimum(share_WB.sum(axis=1, keepdims=True), 1.0)
        return np.concatenate([tail_N, [max(links_X[self.share - 2], least_q), slope], share_WB.ravel()])

    def solve(self, lower_X: F8 | None = None, upper_X: F8 | None = None) -> tuple[F8, float]:
        """Returns the links of least cost, within a box if one is given, and that cost."""
        lower = self.lower if lower_X is None else np.maximum(self.lower, lower_X)
        upper = self.upper if upper_X is None else np.minimum(self.upper, upper_X)
        self.solver.changeColsBounds(self.cost, np.arange(self.cost, dtype=np.int32), lower, np.maximum(lower, upper))
        self.solver.run()
        status = self.solver.getModelStatus()
        assert status == highspy.HighsModelStatus.kOptimal, self.solver.modelStatusToString(status)
        links_X = np.array(self.solver.getSolution().col_value)[: self.cost]
        return self.exact(np.maximum(links_X, 0.0)), float(self.solver.getInfo().objective_function_value)

    def duals(self) -> tuple[F8, list[F8], list[F8]]:
        """Returns duals of the whole: of wide loads' service rows, and of each part ``dual_R`` and ``reduced_C``.

        A part's are those of its planes, weighed with the planes' duals, which sum to 1.
        """
        row_dual = np.array(self.solver.getSolution().row_dual)
        dual_B = [np.zeros(part.program.loads + part.program.places) for part in self.parts]
        reduced_B = [np.zeros(part.program.places + len(part.cluster_D)) for part in self.parts]
        for weight, (b, plane) in zip(row_dual[self._rows :].tolist(), self.planes, strict=True):
            if weight > 0:
                dual_B[b] += weight * plane.dual_R
                reduced_B[b] += weight * plane.reduced_C
        return row_dual[1 : 1 + len(self.wide_W)], dual_B, reduced_B

    def shares(self, links_X: F8, b: int) -> F8:
        """Returns the shares of wide loads that a part takes."""
        return links_X[self._shares(b)]

    def _shares(self, b: int) -> I8:
        return self.share + np.arange(len(self.wide_W)) * len(self.parts) + b


def _least(program: Program) -> float:
    """Returns what a part costs at least: where power is paid to be used, as much as there is capacity for."""
    cost_P = program.problem.cost_TD.ravel() / program.money
    return float(np.minimum(cost_P, 0.0) @ program.capacity_P)


def plan_by_parts(problem: PlanProblem, active: Active | None = None) -> Solved | None:
    """Returns a plan whose cost is at most ``GAP`` above its bound; None where this way finds none.

    Args:
        problem: What to plan.
        active: What was active in a plan of a problem of the same shape.
    """
    clusters = clusters_of_parts(problem)
    if len(clusters) < 2:
        return None
    whole = blank(problem)
    wide_W = _wide_loads(problem, clusters)
    parts = [Part.of(whole, mine, wide_W) for mine in clusters]
    master = Master(whole, parts, wide_W)
    links_X = _first_links(whole, master, parts, None if active is None else active.links)
    for part in parts:
        part.begin(active)
    side_X, size = _sides(whole, master, links_X), 1.0
    best_X, best, bound, iterations = links_X, np.inf, -np.inf, 0
    tolerance = FIRST_TOLERANCE
    for rounds in range(1, MOST_ROUNDS + 1):
        solved_B = _solve(master, links_X, tolerance)
        if solved_B is None:
            return None
        iterations += sum(solved.iterations for solved in solved_B)
        master.add(links_X, [part.plane(solved.point) for part, solved in zip(parts, solved_B, strict=True)])
        value = sum(solved.point.value for solved in solved_B)
        closer = value < best - CLOSER * (best - bound) if np.isfinite(best) else True
        if rounds > 1:
            size *= BOX_GROWS if closer else 1 / BOX_GROWS
        if value < best:
            best_X, best = links_X, value
        links_X, bound = master.solve(best_X - size * side_X, best_X + size * side_X)
        tolerance = min(tolerance, max(TOLERANCE, GAP_SHARE * (best - bound) / whole.places))
        enough = GAP * max(abs(best), LEAST_COST)
        if best - bound > 2 * enough:
            continue
        _, bound = master.solve()
        if best - bound <= enough:
            exact_B = _solve(master, best_X, TOLERANCE)
            if (
                exact_B is None
                or max(_stretch(part, one) for part, one in zip(parts, exact_B, strict=True)) > STRETCHED
            ):
                return None
            best = sum(solved.point.value for solved in exact_B)
            if best - bound <= enough:
                return _together(whole, master, exact_B, best_X, bound, rounds, iterations)
        tolerance, size = TOLERANCE, size * BOX_WIDENS
        links_X, bound = master.solve(best_X - size * side_X, best_X + size * side_X)
    return None


def _wide_loads(problem: PlanProblem, clusters: Sequence[Sequence[int]]) -> I8:
    """Returns the loads that several parts may take."""
    part_of = {d: b for b, mine in enumerate(clusters) for d in mine}
    wide_C = np.array([len({part_of[d] for d in one.clusters}) > 1 for one in problem.classes])
    hours, classes = problem.load_NKC.shape[1:]
    waiting = [hours * classes + i for i, wait in enumerate(problem.queued) if wide_C[wait.load_class]]
    to_come = np.flatnonzero(np.tile(wide_C, hours))
    return np.concatenate([to_come, np.array(waiting, dtype=np.int64)])


def _solve(master: Master, links_X: F8, tolerance: float) -> list[Solved] | None:
    """Returns the solutions of all parts, or None where one has none."""
    solved_B = []
    for b, part in enumerate(master.parts):
        solved = part.solve(links_X[: master.share], master.shares(links_X, b), tolerance)
        if solved is None:
            return None
        solved_B.append(solved)
    return solved_B


def _stretch(part: Part, solved: Solved) -> float:
    """Returns the share of capacity that a part lacks."""
    return float(solved.point.x[part.program.stretch])


def _first_links(whole: Program, master: Master, parts: Sequence[Part], links: Links | None) -> F8:
    """Returns the links to begin with: those of an earlier plan, or what load spread evenly needs."""
    unit = whole.unit
    if links is not None and links.share_WB.shape == (len(master.wide_W), len(parts)):
        tail_N, excess, slope, share_WB = links.tail_N / unit, links.excess / unit, links.slope, links.share_WB
    else:
        takes_WB = np.stack([np.where(part.wide_W >= 0, len(part.cluster_D), 0) for part in parts], axis=1)
        share_WB = takes_WB / takes_WB.sum(axis=1, keepdims=True)
        tail_N, excess, slope = _even_tail(whole)
    return master.exact(np.concatenate([tail_N, [excess, slope], share_WB.ravel()]))


def _even_tail(whole: Program) -> tuple[F8, float, float]:
    """Returns p, q and lambda of load spread evenly, with room at each place for its mean and so many deviations."""
    problem, load_NP = whole.problem, whole.even_load_NP()
    slope = FIRST_SPREAD * whole.even_slope if problem.robust else 0.0
    mean_P, deviation_P = load_NP.mean(axis=0), load_NP.std(axis=0)
    worst = max(1, int(np.ceil(problem.beta * whole.samples)))
    low, high = 0.0, 100.0
    for _ in range(40):
        middle = (low + high) / 2
        excess_N = np.sort((load_NP - mean_P - middle * deviation_P).max(axis=1))[::-1]
        fits = slope * problem.eps / whole.unit / problem.beta + excess_N[:worst].mean() <= 0
        low, high = (low, middle) if fits else (middle, high)
    excess_N = (load_NP - mean_P - high * deviation_P).max(axis=1)
    q = max(0.0, -float(np.sort(excess_N)[::-1][worst - 1]))
    return np.maximum(excess_N + q, 0.0), q, slope


def _sides(whole: Program, master: Master, links_X: F8) -> F8:
    """Returns half the sides of the first box around the links."""
    side_X = np.full(len(links_X), BOX_SHARE / len(master.parts))
    side_X[: whole.samples + 1] = max(BOX_TAIL * links_X[whole.samples], LEAST_TAIL)
    side_X[whole.samples + 1] = BOX_SLOPE * links_X[whole.samples + 1]
    return side_X


def _together(
    whole: Program, master: Master, solved_B: Sequence[Solved], links_X: F8, bound: float, rounds: int, iterations: int
) -> Solved:
    """Returns the plan of all parts, with the rows and columns it needs."""
    parts, points = master.parts, [solved.point for solved in solved_B]
    active_B = [part.active(point) for part, point in zip(parts, points, strict=True)]
    raise_pairs(whole, np.concatenate([part.pair_G[part.program.raised_G >= 0] for part in parts]))
    none = np.empty(0, dtype=np.int64)
    fit_RX, slope_R = (np.concatenate([getattr(a, name) for a in active_B], axis=-1) for name in ("fit_RX", "slope_R"))
    define_active(whole, Active(fit_RX=fit_RX, slope_R=slope_R, raised_R=none))
    x, reduced = np.zeros(whole.solver.getNumCol()), np.zeros(whole.solver.getNumCol())
    dual = np.zeros(whole.rows)
    x[whole.p : whole.lam + 1] = links_X[: master.share]
    wide_dual_W, dual_B, reduced_B = master.duals()
    for part, point, dual_R, reduced_C in zip(parts, points, dual_B, reduced_B, strict=True):
        own = part.program
        x[part.entry_M] = point.x[: own.v]
        x[whole.v + part.place_P] = point.x[own.v : own.w]
        x[whole.w + part.place_P] = point.x[own.w : own.peak]
        x[whole.peak + part.cluster_D] = point.x[own.peak : own.p]
        pairs = np.flatnonzero(own.raised_G >= 0)
        x[whole.raised_G[part.pair_G[pairs]]] = point.x[own.raised_G[pairs]]
        dual[part.load_L] = dual_R[: own.loads]
        dual[whole.loads + part.place_P] = dual_R[own.loads :]
        reduced[whole.v + part.place_P] = reduced_C[: own.places]
        reduced[whole.peak + part.cluster_D] = reduced_C[own.places :]
    dual[master.wide_W] = wide_dual_W
    value = sum(point.value for point in points)
    violation = max(solved.violation for solved in solved_B)
    point = Point(value=value, x=x, dual=dual, reduced=reduced, iterations=iterations)
    links = Links(
        tail_N=links_X[: whole.samples] * whole.unit,
        excess=float(links_X[whole.samples]) * whole.unit,
        slope=float(links_X[whole.samples + 1]),
        share_WB=links_X[master.share :].reshape(-1, len(parts)),
    )
    return Solved(whole, point, rounds, iterations, violation, bound, links)
