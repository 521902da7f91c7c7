"""The edge engine: builds the state of a run from an environment, steps it, and returns what became of every task."""

from __future__ import annotations

from typing import Any

import numpy as np

from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.scheduler import CompiledEdgeScheduler, EdgeScheduler
from noonward.decision.edge.view import LEAST_FRAGMENTATION, LOWEST, NEVER, EdgeAnswers, EdgeView
from noonward.engine.edge.kernels import (
    FAILED_CHOICE,
    FAILED_STEPS,
    FAILED_UNTIL,
    EdgeWorld,
    begin_edge,
    blank_world,
    run_edge,
    step_edge,
)
from noonward.errors import InfeasibleActionError
from noonward.ledger.edge import EdgeOutcome
from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.quality import LAWS
from noonward.model.edge.scenario import EdgeScenario
from noonward.seeding import stream


def edge_world(environment: EdgeEnvironment, *, every_tick: bool = False) -> EdgeWorld:
    """Returns the arrays of a run at its first tick.

    Args:
        environment: What is run.
        every_tick: Move one tick at a time instead of from event to event.
    """
    setting = environment.setting
    world = world_of(setting, len(environment.tasks))
    world.shown.run_1["latest_t"] = int(environment.latest_s / setting.tick_s)
    world.engine_1["every_tick"] = every_tick
    world.task_K[:] = environment.tasks.record_K
    begin_edge(world, round(setting.first_s / setting.tick_s))
    return world


def world_of(setting: EdgeScenario, tasks: int) -> EdgeWorld:
    """Returns the arrays of a run of a scenario, with room for some tasks."""
    sizes = max(setting.gang_times) + 1
    world = blank_world(setting.servers.count, setting.visible, sizes, tasks)
    for size, time in setting.gang_times.items():
        world.shown.load_s_G[size], world.shown.step_s_G[size] = time.load_s, time.step_s
    run = world.shown.run_1
    run["tick_s"] = setting.tick_s
    run["choice"] = LOWEST if setting.choice == "lowest" else LEAST_FRAGMENTATION
    run["steps_min"] = setting.steps_min
    world.engine_1["limit_t"] = NEVER if setting.end == "drained" else round(setting.limit_s / setting.tick_s)
    world.engine_1["law"] = LAWS.index(setting.quality)
    return world


class EdgeEngine:
    """One run: pauses at every decision, asks the scheduler, and applies the answer.

    N servers; each task needs a gang of servers at once, for ``steps x step time + load`` seconds; the load is skipped
    if an idle gang of exactly its size has its model loaded (EAT, Sec. IV). Whenever a visible task's gang is idle, the
    scheduler is asked: choice 0 = wait until the next arrival or completion, or until a time that it names; choice
    1 + q = launch the task in place q of the visible queue with a number of steps. A launch takes no time, so it is
    asked again at the same instant. Time is counted in ticks: arrivals are seen one tick after their stamp, and servers
    are idle at the first tick at or after the end of a run, while the recorded duration is not rounded.

    Feasible: a launch needs as many idle servers as the task's gang, and steps from the scenario's fewest to the task's
    most (a task whose most is fewer gets its most); a wait needs an arrival or completion to come, or a time until
    ``latest_t``. An infeasible answer raises.

    End: when every task is launched, or after the limit.

    Args:
        environment: What to run.
        scheduler: Who is asked.
        every_tick: Move one tick at a time instead of from event to event; the launches are the same for schedulers
            whose answers depend on servers and queue alone.
    """

    def __init__(self, environment: EdgeEnvironment, scheduler: EdgeScheduler, *, every_tick: bool = False) -> None:
        self.environment, self.scheduler = environment, scheduler
        self.world = edge_world(environment, every_tick=every_tick)

    @property
    def view(self) -> EdgeView:
        """What the scheduler sees."""
        return self.world.shown

    @property
    def answers(self) -> EdgeAnswers:
        """Where it answers."""
        return self.world.answers

    def step(self) -> int:
        """Carries out the answer to the last question and runs to the next.

        Returns:
            1 if there is a next question, 0 at the run's end.

        Raises:
            InfeasibleActionError: The answer is infeasible; nothing has changed.
        """
        kind = int(step_edge(self.world))
        if kind < 0:
            raise self._infeasible(kind)
        return kind

    def run_compiled(self, rule: Any, memory: Any) -> None:
        """Runs to the end under a compiled rule.

        Raises:
            InfeasibleActionError: The rule gave an infeasible answer.
        """
        failed = int(run_edge(self.world, rule, memory))
        if failed:
            raise self._infeasible(failed)

    def outcome(self) -> EdgeOutcome:
        """Returns what became of every task so far."""
        return EdgeOutcome(
            environment=self.environment,
            task_K=self.world.track_K,
            ended_s=self.view.now_s,
            questions=int(self.world.engine_1["questions"][0]),
        )

    def _infeasible(self, failed: int) -> InfeasibleActionError:
        view = self.view
        choice, steps, until_s = self.answers.answer_1[0].item()
        allowed = [str(a) for a in np.flatnonzero(view.mask_A)]
        what = {
            FAILED_CHOICE: f"choice {choice}; feasible now: {', '.join(allowed)} (0 waits, 1 + q launches place q); "
            "answer only what view.mask_A marks",
            FAILED_STEPS: f"{steps} steps; allowed: {view.run_1['steps_min'][0]:g} to the task's steps_max, and that "
            "alone where it is less",
            FAILED_UNTIL: f"a wait until {until_s} s; name a time after {view.now_s:g} s and until "
            f"{self.environment.latest_s:g} s (view.run_1['latest_t'])",
        }[failed]
        return InfeasibleActionError(f"scheduler {type(self.scheduler).__name__} answered at {view.now_s:g} s: {what}")


def run_edge_environment(
    environment: EdgeEnvironment, scheduler: EdgeScheduler, *, seed: int = 0, compiled: bool | None = None
) -> EdgeOutcome:
    """Runs an environment under a scheduler.

    Args:
        environment: What to run.
        scheduler: Who answers.
        seed: Seed of the policy's random stream.
        compiled: Run engine and rule as one compiled loop; by default where the scheduler has a rule. Both ways give
            the same bytes.
    """
    engine = EdgeEngine(environment, scheduler)
    scheduler.reset(EdgeBrief.of(environment, scheduler.forecast, seed), stream(seed, "policy", environment.index))
    if compiled is None:
        compiled = isinstance(scheduler, CompiledEdgeScheduler)
    if compiled:
        if not isinstance(scheduler, CompiledEdgeScheduler):
            raise TypeError(f"{type(scheduler).__name__} has no compiled rule; run it with compiled=False")
        engine.run_compiled(scheduler.rule, scheduler.memory)
        return engine.outcome()
    while engine.step():
        scheduler.decide(engine.view, engine.answers)
    return engine.outcome()
