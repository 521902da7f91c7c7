"""Rules of the edge settings: what to launch now, from first-come-first-served to patient reuse of loaded gangs."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, Records
from noonward.compiled import kernel
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.gangs import idle_gang, idle_servers
from noonward.decision.edge.rule import edge_rule
from noonward.decision.edge.scheduler import CompiledEdgeScheduler
from noonward.decision.edge.view import NOBODY, WAIT, EdgeAnswers, EdgeMemory, EdgeView
from noonward.draws import random_below, uniform

PATIENCE = 1.25
"""A busy gang is waited for if it is idle within this many load times."""


@kernel(inline=True, allocates=False)
def first_reuse(server_N: Records, task_Q: Records, now_t: int) -> int:
    """Returns the place of the first task that an idle gang with its model fits exactly, or NOBODY."""
    for q in range(task_Q.shape[0]):
        if task_Q[q].task == NOBODY:
            break
        if idle_gang(server_N, now_t, task_Q[q].gang, task_Q[q].model) != NOBODY:
            return q
    return NOBODY


@kernel(inline=True, allocates=False)
def first_fit(server_N: Records, task_Q: Records, now_t: int) -> int:
    """Returns the place of the first task whose gang is idle, or NOBODY."""
    idle = idle_servers(server_N, now_t)
    for q in range(task_Q.shape[0]):
        if task_Q[q].task == NOBODY:
            break
        if task_Q[q].gang <= idle:
            return q
    return NOBODY


@kernel(inline=True, allocates=False)
def _is_held(server_N: Records, now_t: int, within_t: float, size: int, model: int) -> bool:
    """Returns whether a busy gang of exactly a size, with a model, is idle soon enough to be worth waiting for."""
    for n in range(server_N.shape[0]):
        s = server_N[n]
        if s.gang == n and s.size == size and s.model == model and now_t < s.free_t and s.free_t - now_t < within_t:
            return True
    return False


@kernel(inline=True, allocates=False)
def patient_choice(
    server_N: Records, task_Q: Records, load_s_G: F8, step_s_G: F8, now_t: int, tick_s: float, steps: float
) -> int:
    """Returns the place that patient reuse launches now, or NOBODY to wait.

    1. If an idle gang fits a visible task exactly, its first such task.
    2. A class of tasks (size and model) is held if a busy gang of it is idle within 1.25 load times.
    3. Of the classes not held that fit the idle servers, the one of highest
       ``(waiting + 0.5) / (load + run waiting)``, its oldest task first; else wait.

    Args:
        server_N: Servers.
        task_Q: Visible queue.
        load_s_G: Seconds to load, by gang size.
        step_s_G: Seconds a step, by gang size.
        now_t: Now.
        tick_s: Length of a tick, s.
        steps: Steps that tasks are given.
    """
    best = first_reuse(server_N, task_Q, now_t)
    if best != NOBODY:
        return best
    idle = idle_servers(server_N, now_t)
    most = 0.0
    for q in range(task_Q.shape[0]):
        if task_Q[q].task == NOBODY:
            break
        size, model = task_Q[q].gang, task_Q[q].model
        if size > idle:
            continue
        seen = False
        for p in range(q):
            if task_Q[p].gang == size and task_Q[p].model == model:
                seen = True
                break
        if seen or _is_held(server_N, now_t, PATIENCE * load_s_G[size] / tick_s, size, model):
            continue
        waiting = 0
        for p in range(q, task_Q.shape[0]):
            if task_Q[p].task == NOBODY:
                break
            if task_Q[p].gang == size and task_Q[p].model == model:
                waiting += 1
        index = (waiting + 0.5) / (load_s_G[size] + steps * step_s_G[size] * waiting)
        if index > most:
            best, most = q, index
    return best


@kernel(inline=True, allocates=False)
def _launch(view: EdgeView, answers: EdgeAnswers, q: int, steps: float) -> None:
    """Answers a launch with the steps wanted, at most the task's own; a wait for NOBODY."""
    if q != NOBODY:
        answers.answer_1[0].choice = 1 + q
        answers.answer_1[0].steps = min(steps, view.task_Q[q].steps_max)


@edge_rule
def fifo_rule(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Launches the oldest task as soon as its gang is idle."""
    if view.mask_A[1]:
        _launch(view, answers, 0, memory.number_P[0])


@edge_rule
def first_fit_rule(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Launches the first task whose gang is idle."""
    _launch(view, answers, first_fit(view.server_N, view.task_Q, view.run_1[0].now_t), memory.number_P[0])


@edge_rule
def reuse_first_rule(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Launches the first task that needs no load, else the first whose gang is idle."""
    q = first_reuse(view.server_N, view.task_Q, view.run_1[0].now_t)
    if q == NOBODY:
        q = first_fit(view.server_N, view.task_Q, view.run_1[0].now_t)
    _launch(view, answers, q, memory.number_P[0])


@edge_rule
def patient_rule(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Launches what patient reuse chooses."""
    run = view.run_1[0]
    q = patient_choice(
        view.server_N, view.task_Q, view.load_s_G, view.step_s_G, run.now_t, run.tick_s, memory.number_P[0]
    )
    _launch(view, answers, q, memory.number_P[0])


@edge_rule
def random_rule(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Tries at every tick, with a chance of a half, a place at random, empty or not, with random steps up to the most.

    A try that is not possible costs the tick, as in the published control. Once no wait is possible any more, the first
    task that fits is launched.
    """
    run = view.run_1[0]
    tries = uniform(memory.random_1) < 0.5
    steps = run.steps_min + (memory.number_P[0] - run.steps_min) * uniform(memory.random_1)
    q = random_below(memory.random_1, view.task_Q.shape[0])
    if tries and view.mask_A[1 + q]:
        _launch(view, answers, q, steps)
    elif run.now_t < run.latest_t:
        answers.answer_1[0].until_s = (run.now_t + 1) * run.tick_s
    elif not view.mask_A[WAIT]:
        _launch(view, answers, first_fit(view.server_N, view.task_Q, run.now_t), steps)


class EdgeRule(CompiledEdgeScheduler):
    """A rule that gives every task the same number of steps.

    Args:
        steps: Inference steps of every task; a task that may have fewer gets its most. None: the scenario's.
    """

    def __init__(self, steps: float | None = None) -> None:
        if steps is not None and not 0 <= steps < np.inf:
            raise ValueError(f"steps is {steps}; give a number of at least 0")
        self.steps = steps

    def make_memory(self, brief: EdgeBrief, rng: np.random.Generator) -> EdgeMemory:
        """Returns a memory of the steps, with a random state."""
        return EdgeMemory.make(numbers=(self.steps_in(brief),), random_state=int(rng.integers(2**63)))

    def steps_in(self, brief: EdgeBrief) -> float:
        """Returns the steps it gives in a run."""
        return brief.setting.steps if self.steps is None else self.steps


class Fifo(EdgeRule):
    """The oldest task as soon as its gang is idle; it holds back those behind it."""

    rule = staticmethod(fifo_rule)


class FirstFit(EdgeRule):
    """The oldest task whose gang is idle."""

    rule = staticmethod(first_fit_rule)


class ReuseFirst(EdgeRule):
    """The oldest task that finds its model loaded on an idle gang of its size, else the oldest whose gang is idle."""

    rule = staticmethod(reuse_first_rule)


class PatientReuse(EdgeRule):
    """Loaded gangs first; a gang that is idle within 1.25 load times is waited for; then the class that gains most."""

    rule = staticmethod(patient_rule)


class RandomTries(EdgeRule):
    """The published control: every tick a random place with random steps, tried with a chance of a half."""

    rule = staticmethod(random_rule)

    def make_memory(self, brief: EdgeBrief, rng: np.random.Generator) -> EdgeMemory:
        """Returns a memory of the most steps, with a random state."""
        return EdgeMemory.make(numbers=(brief.setting.steps_max,), random_state=int(rng.integers(2**63)))
