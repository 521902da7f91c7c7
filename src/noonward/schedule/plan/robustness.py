"""Which radius and tail to plan with, chosen by cross-validation over days."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.result import tail_mean
from noonward.schedule.plan.solve import Planner

Progress = Callable[[str], None]
"""Called once per plan with what was planned."""
Criterion = Literal["days", "tail"]
"""What a radius must keep on held-out days: the share of days that fit, or the CVaR at most 0."""

FITS = 1e-9
"""Excess up to which a day fits, over the largest curve."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What plans of one radius and tail did on the days held out from them, all folds together.

    Attributes:
        eps: Radius.
        beta: Tail planned with.
        held_share: Share of held-out days whose load stayed within the curve everywhere.
        tail: CVaR of the held-out days' excess at the promise's tail; the guarantee (6) says at most 0.
        folds_held: Share of folds whose own held-out days keep (6).
        violations: Hours and clusters above the curve per held-out day.
        excess: Largest excess of a held-out day, mean over days, fitting days as 0.
        planned_cost: f(v) of the plans, mean over folds.
        load_cost: f of the load that runs, mean over held-out days.
        failed: Folds whose days allowed no plan; with any, the other figures are NaN.
    """

    eps: float
    beta: float
    held_share: float
    tail: float
    folds_held: float
    violations: float
    excess: float
    planned_cost: float
    load_cost: float
    failed: int = 0


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """A choice of radius and tail, and all that was tried.

    Attributes:
        chosen: The trial that was chosen.
        promise: Share of days that must fit, 1 - beta of the problem.
        kept: Whether the chosen trial keeps the promise on held-out days; if not, none does.
        criterion: What keeping means.
        trials: All trials, by tail and radius.
    """

    chosen: Trial
    promise: float
    kept: bool
    criterion: Criterion
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        one = self.chosen
        what = f"eps {one.eps:g}, beta {one.beta:g}: {one.held_share:.2f} of held-out days fit, CVaR {one.tail:.3g}"
        promised = f"promised are {self.promise:.2f}" if self.criterion == "days" else "promised is a CVaR of at most 0"
        if self.kept:
            return f"{what}; {promised}; the cheapest that keeps the promise"
        return f"{what}; {promised}: none tried keeps the promise, this one misses it least"


def choose_robustness(
    problem: PlanProblem,
    radii: Sequence[float],
    betas: Sequence[float] | None = None,
    *,
    folds: int = 5,
    criterion: Criterion = "days",
    progress: Progress | None = None,
) -> Robustness:
    """Chooses the cheapest radius whose promise holds on days it was not planned on.

    Samples are split into ``folds`` contiguous blocks, in the order given: days near each other are alike, so that
    drawing held-out days at random would put their neighbours into training and flatter every radius. Each block is
    held out once; plans of the other days are measured on it. The promise is that of the problem, whatever tail is
    tried: a share 1 - beta of days fits (``days``), or the mean excess of the worst share beta is at most 0 (``tail``,
    Eq. 6). Of the trials that keep it the cheapest plan f(v) is chosen; where none does, the one that misses it least,
    of equals the cheapest. Plans of a fold have fewer days than one of all days, so the radius chosen is rather too
    large than too small.

    Args:
        problem: What to plan; its eps is not read, its samples are in the order of days.
        radii: Radii to try.
        betas: Tails to plan with; only the problem's by default.
        folds: Blocks, 2 to the number of samples.
        criterion: What must hold on held-out days.
        progress: Called once per plan.

    Raises:
        ScenarioError: There is nothing to try, a value is out of range, or there are fewer samples than folds.
        InfeasiblePlanError: No radius and tail has a plan in every fold.
    """
    samples = problem.shape[0]
    if not 2 <= folds <= samples:
        raise ScenarioError(f"there are {folds} folds and {samples} samples; give 2 to {samples} folds")
    tails = (problem.beta,) if betas is None else tuple(betas)
    if not len(radii) or not tails:
        raise ScenarioError("there is no radius or no tail to try; give at least one of each")
    if criterion not in ("days", "tail"):
        raise ScenarioError(f"the criterion is {criterion!r}; it must be 'days' or 'tail'")
    grid = [(float(beta), float(eps)) for beta in sorted(tails) for eps in sorted(radii)]
    problems = [replace(problem, beta=beta, eps=eps) for beta, eps in grid]
    blocks = np.array_split(np.arange(samples), folds)
    planners = [Planner() for _ in blocks]
    trials = tuple(_trial(one, problem.beta, blocks, planners, progress or (lambda _: None)) for one in problems)
    return _choose(trials, problem.beta, criterion)


def _trial(
    problem: PlanProblem, beta: float, blocks: list[NDArray[np.int64]], planners: list[Planner], progress: Progress
) -> Trial:
    """Plans without each block and measures on it."""
    excess, violations, load_cost, planned, held = [], [], [], [], []
    failed = 0
    fits = FITS * float(problem.capacity_TD.max())
    for fold, (block, planner) in enumerate(zip(blocks, planners, strict=True)):
        train = replace(problem, load_NKC=np.delete(problem.load_NKC, block, axis=0))
        progress(f"eps {problem.eps:g}, beta {problem.beta:g}, fold {fold + 1} of {len(blocks)}")
        try:
            plan = planner.plan(train)
        except InfeasiblePlanError:
            failed += 1
            continue
        load = plan.fractions.load(problem.load_NKC[block]) + plan.known_load()
        over = load - plan.curve_TD
        mine = plan.excess(problem.load_NKC[block])
        excess.append(mine)
        violations += (over > fits).sum(axis=tuple(range(1, over.ndim))).tolist()
        load_cost += [problem.cost_of(day) for day in load]
        planned.append(plan.objective)
        held.append(tail_mean(mine, beta) <= fits)
    if failed:
        nan = float("nan")
        return Trial(
            eps=problem.eps, beta=problem.beta, held_share=nan, tail=nan, folds_held=nan, violations=nan, excess=nan,
            planned_cost=nan, load_cost=nan, failed=failed,
        )  # fmt: skip
    days = np.concatenate(excess)
    return Trial(
        eps=problem.eps,
        beta=problem.beta,
        held_share=float((days <= fits).mean()),
        tail=tail_mean(days, beta),
        folds_held=float(np.mean(held)),
        violations=float(np.mean(violations)),
        excess=float(np.maximum(days, 0.0).mean()),
        planned_cost=float(np.mean(planned)),
        load_cost=float(np.mean(load_cost)),
    )


def _choose(trials: tuple[Trial, ...], beta: float, criterion: Criterion) -> Robustness:
    planned = [one for one in trials if not one.failed]
    if not planned:
        raise InfeasiblePlanError(
            "no radius and tail tried has a plan in every fold; raise capacities, or try smaller radii or larger tails"
        )
    promise = 1.0 - beta

    def miss(one: Trial) -> float:
        """How far the promise is missed; at most 0 where it is kept."""
        return promise - one.held_share if criterion == "days" else one.tail

    # Rounding of shares and of the solver must not decide.
    keeping = [one for one in planned if miss(one) <= 1e-9]
    if keeping:
        chosen = min(keeping, key=lambda one: one.planned_cost)
    else:
        chosen = min(planned, key=lambda one: (round(miss(one), 9), one.planned_cost))
    return Robustness(chosen=chosen, promise=promise, kept=bool(keeping), criterion=criterion, trials=trials)
