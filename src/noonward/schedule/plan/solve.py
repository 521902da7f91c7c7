"""Plans: one from scratch, or again and again from the last."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.errors import ScenarioError
from noonward.schedule.plan.generate import Solved, generate
from noonward.schedule.plan.infeasible import why_infeasible
from noonward.schedule.plan.parts import MANY_ENTRIES, plan_by_parts
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.program import Active, Links
from noonward.schedule.plan.result import Certificate, Fractions, Plan, Prices

SHAPE_DECIMALS: Final = 9
"""Decimals to which loads over their sample's largest are compared."""


def make_plan(problem: PlanProblem) -> Plan:
    """Returns the optimal plan.

    Raises:
        InfeasiblePlanError: No plan satisfies the constraints; the message says which class, hour and cluster cannot
            be served, and the smallest capacity or beta that would do.

    Example:
        >>> from noonward.schedule.plan.classes import LoadClass
        >>> day = PlanProblem(
        ...     classes=(LoadClass(name="batch", clusters=(0, 1), flexibility_h=0),),
        ...     load_NKC=np.ones((1, 1, 1)), capacity_TD=np.array([[0.75, 1.0]]), cost_TD=np.array([[1.0, 2.0]]),
        ...     peak_cost_D=np.zeros(2), eps=0.0,
        ... )
        >>> plan = make_plan(day)
        >>> plan.curve_TD.tolist(), plan.objective
        ([[0.75, 0.25]], 1.25)
    """
    return Planner().plan(problem)


@dataclass
class Planner:
    """Plans again and again; a problem of the same shape as the last starts from the rows that were active there.

    Samples are known again by their shape, wherever they stand and whatever they are multiplied by: where the oldest
    day leaves and a new one comes, the rows of all other days are kept. A sample that is not known again, where an
    unknown one stands, is taken to be the same with new data.

    Attributes:
        active: What the next plan starts from; None before the first.
    """

    active: Active | None = field(default=None, repr=False)
    _shape: str = field(default="", repr=False)
    _samples: tuple[str, ...] = field(default=(), repr=False)

    def plan(self, problem: PlanProblem, names: Sequence[str] | None = None) -> Plan:
        """Returns the optimal plan. Whatever it starts from, the result is the optimum.

        Args:
            problem: What to plan.
            names: What its samples are known again by, one a sample; by default their shapes. Give names where samples
                change from plan to plan but the days behind them stay, as with a forecast and its residuals.

        Raises:
            ScenarioError: There are not as many names as samples.
            InfeasiblePlanError: As in ``make_plan``.
        """
        began_s = time.process_time()
        waiting = tuple((wait.load_class, wait.flexibility_h) for wait in problem.queued)
        shape = repr((problem.shape, problem.classes, waiting, problem.robust, problem.support))
        samples = tuple(sample_key(load_KC) for load_KC in problem.load_NKC) if names is None else tuple(names)
        if len(samples) != len(problem.load_NKC):
            count = len(problem.load_NKC)
            raise ScenarioError(f"{len(samples)} names were given for {count} samples; give one a sample")
        start = self._start(samples) if shape == self._shape else None
        solved = plan_by_parts(problem, start) if len(problem.entries) >= MANY_ENTRIES else None
        solved = solved or generate(problem, start)
        if solved is None:
            raise why_infeasible(problem)
        self.active, self._shape, self._samples = solved.active, shape, samples
        return _plan_of(solved, time.process_time() - began_s)

    def state(self) -> dict[str, Any]:
        """Returns what the next plan starts from as plain data, for ``of_state``."""
        if self.active is None:
            return {}
        rows = {name: getattr(self.active, name).copy() for name in ("fit_RX", "slope_R", "raised_R")}
        links = self.active.links
        return {
            "shape": self._shape,
            "samples": list(self._samples),
            **rows,
            "links": {} if links is None else asdict(links),
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Planner:
        """Returns the planner of a ``state``."""
        if not state:
            return cls()
        links = Links(**state["links"]) if state["links"] else None
        rows = {name: np.array(state[name]) for name in ("fit_RX", "slope_R", "raised_R")}
        return cls(Active(**rows, links=links), state["shape"], tuple(state["samples"]))

    def _start(self, samples: tuple[str, ...]) -> Active | None:
        """Returns the active rows of the last plan, each at the place where its sample stands now."""
        if self.active is None or samples == self._samples:
            return self.active
        now, before = {key: n for n, key in enumerate(samples)}, set(self._samples)
        at_N = np.array(
            [now.get(key, -1 if samples[n] in before else n) for n, key in enumerate(self._samples)], dtype=np.int64
        )
        moved_RX = self.active.fit_RX.copy()
        moved_RX[0] = at_N[moved_RX[0]]
        known_RX = moved_RX[:, moved_RX[0] >= 0]
        links = self.active.links
        if links is not None:
            tail_N = np.zeros(len(samples))
            tail_N[at_N[at_N >= 0]] = links.tail_N[at_N >= 0]
            links = replace(links, tail_N=tail_N)
        return replace(self.active, fit_RX=known_RX, links=links) if known_RX.size else None

    def replan(self, plan: Plan, **changes: Any) -> Plan:
        """Returns the plan of the same problem with an hour's new data, say; ``horizon.remaining`` moves on an hour.

        Args:
            plan: Plan to depart from.
            changes: Fields of the problem that change.
        """
        return self.plan(replace(plan.problem, **changes))


def sample_key(load_KC: F8) -> str:
    """Returns what a sample is known by: a digest of its shape, rounded so that a common factor does not change it."""
    largest = float(load_KC.max())
    shape_KC = np.round(load_KC / largest, SHAPE_DECIMALS) + 0.0 if largest > 0 else load_KC
    return hashlib.blake2b(shape_KC.tobytes(), digest_size=16).hexdigest()


def _plan_of(solved: Solved, cpu_s: float) -> Plan:
    """Returns the plan of a solved program, in the problem's units."""
    program, point, problem = solved.program, solved.point, solved.program.problem
    x, places, loads = point.x, program.places, program.loads
    grid = problem.capacity_TD.shape
    scale = program.unit * program.money
    curve_TD = np.clip(x[program.v : program.w], 0.0, program.capacity_P).reshape(grid) * program.unit
    short_P = np.minimum(point.reduced[program.v : program.w], 0.0)
    return Plan(
        problem=problem,
        curve_TD=curve_TD,
        fractions=Fractions.of(problem, x[: program.v]),
        objective=point.value * scale,
        slope=float(x[program.lam]),
        prices=Prices(
            capacity_TD=-short_P.reshape(grid) * program.money,
            place_TD=point.dual[loads : loads + places].reshape(grid) * program.money,
            service_KC=point.dual[: program.uncertain].reshape(program.hours, program.classes) * scale,
            queued_Q=point.dual[program.uncertain : loads] * scale,
        ),
        certificate=Certificate(
            violation=solved.violation * program.unit,
            gap=(point.value - solved.bound) / max(abs(point.value), 1e-12),
            rows=int((program.fit_NP >= 0).sum()),
            rows_whole=program.samples * places,
            slopes=int((program.slope_G >= 0).sum()),
            rounds=solved.rounds,
            iterations=solved.iterations,
            cpu_s=cpu_s,
        ),
    )
