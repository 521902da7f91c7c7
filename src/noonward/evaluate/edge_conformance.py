"""Conformance of edge schedulers: whether one keeps the rules of the interface, tried on small drawn episodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.scheduler import CompiledEdgeScheduler, EdgeScheduler
from noonward.engine.edge.engine import EdgeEngine, run_edge_environment
from noonward.errors import ConformanceError
from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.tasks import ImageTasks
from noonward.seeding import stream

SETTINGS: Final = ("tasks.count=12", "tasks.first=4", "tasks.deadline_s=600")
"""What makes episodes small, with promises."""
WORLDS: Final = (
    (),
    ("servers.count=8", "tasks.sizes=[1,2,4,8]", "tasks.models={count: 3}", "choice=least-fragmentation"),
    ("end=limit", "limit_s=120", "steps_min=5", "tasks.load_sigma=0.3"),
)
"""Settings of the episodes: as published; several models; a cut, fewest steps, spread loads."""
QUESTIONS_MAX: Final = 200_000
"""Questions after which a run counts as endless."""


@dataclass(frozen=True, kw_only=True)
class _Trace:
    """Answers with their times, what became of the tasks, and a state on the way."""

    answers: list[tuple[float, bytes]]
    outcome: bytes
    state: dict[str, Any]


def check_edge_scheduler(scheduler: EdgeScheduler, *, seeds: Iterable[int] = (0, 1)) -> tuple[str, ...]:
    """Checks that an edge scheduler keeps the rules of the interface.

    Runs it on small episodes (one model and several, drained and cut off, fewest steps, spread loads) and checks
    that every answer is feasible; that it does not write the view; that the same seed gives the same answers; that they
    do not depend on tasks that have not arrived yet; that it answers alike when it is restored from ``state()``; that
    the compiled loop does what the Python loop does, if it has a compiled rule; and that the run ends.

    Args:
        scheduler: Scheduler.
        seeds: Seeds of the episodes.

    Returns:
        The episodes in which it kept the rules, each with the number of its questions.

    Raises:
        ConformanceError: A rule is broken; the message says which, and what to do.
        InfeasibleActionError: An answer is infeasible.

    Example:
        >>> from noonward.schedule.policies import make_scheduler
        >>> len(check_edge_scheduler(make_scheduler("patient-reuse", "edge"), seeds=[0])) == len(WORLDS)
        True
    """
    kept = []
    for seed in seeds:
        for world in WORLDS:
            setting = load_scenario("edge-inference-reference", [*SETTINGS, *world])
            questions = _check(scheduler, build_edge_environment(setting, 0, seed), seed)
            kept.append(f"{', '.join(world) or 'as packaged'}, seed {seed}: {questions} questions")
    return tuple(kept)


def _check(scheduler: EdgeScheduler, environment: EdgeEnvironment, seed: int) -> int:
    """Checks a scheduler in one episode; returns how many questions it was asked."""
    whole = _watch(scheduler, environment, seed)
    half = len(whole.answers) // 2
    again = _watch(scheduler, environment, seed, stop=half)
    if again.answers != whole.answers:
        raise _broken(
            scheduler,
            "answers differently when run again with the same seed",
            "draw random numbers only from the generator given to reset, set all memory there, and let state() change "
            "nothing",
        )
    if _watch(scheduler, environment, seed, restore=(half, again.state)).answers != whole.answers:
        raise _broken(
            scheduler,
            f"answers differently when it is restored from its state after {half} questions",
            "return all that it remembers in state(), as copies, and restore it in load_state(state)",
        )
    if isinstance(scheduler, CompiledEdgeScheduler):
        compiled = run_edge_environment(environment, scheduler, seed=seed, compiled=True)
        if compiled.task_K.tobytes() != whole.outcome:
            raise _broken(
                scheduler,
                "does something else in the compiled loop than in the Python loop",
                "let decide only call the rule, and keep all that changes in the rule's memory",
            )
    changed, time_s = _other_future(environment)
    other = _watch(scheduler, changed, seed)
    before = [[each for each in trace.answers if each[0] < time_s] for trace in (whole, other)]
    if before[0] != before[1]:
        raise _broken(
            scheduler,
            f"answers differently before {time_s:g} s when only tasks that arrive later are changed",
            "read only the tasks that the view shows",
        )
    return len(whole.answers)


def _other_future(environment: EdgeEnvironment) -> tuple[EdgeEnvironment, float]:
    """Returns an environment whose last quarter of tasks is of other gangs, and when the first of them can be seen."""
    record_K = environment.tasks.record_K.copy()
    first = 3 * len(record_K) // 4
    record_K["gang"][first:] = 1
    record_K["model"][first:] += 1
    changed = replace(environment, tasks=ImageTasks(record_K=record_K))
    return changed, float(record_K["ready_t"][first] * environment.setting.tick_s)


def _watch(
    scheduler: EdgeScheduler,
    environment: EdgeEnvironment,
    seed: int,
    *,
    stop: int = -1,
    restore: tuple[int, dict[str, Any]] | None = None,
) -> _Trace:
    """Runs a scheduler question by question; takes its state, or restores it, after some of them."""

    def begin(of: int) -> None:
        scheduler.reset(EdgeBrief.of(environment, scheduler.forecast, seed), stream(of, "policy", environment.index))

    engine, answers, state = EdgeEngine(environment, scheduler), list[tuple[float, bytes]](), dict[str, Any]()
    begin(seed)
    while engine.step():
        if len(answers) == stop:
            state = scheduler.state()
        if restore is not None and len(answers) == restore[0]:
            begin(seed + 1)
            scheduler.load_state(restore[1])
        before = [array.tobytes() for array in engine.view]
        scheduler.decide(engine.view, engine.answers)
        if [array.tobytes() for array in engine.view] != before:
            raise _broken(scheduler, f"writes the view at {engine.view.now_s:g} s", "write to answers only")
        answers.append((engine.view.now_s, engine.answers.answer_1.tobytes()))
        if len(answers) > QUESTIONS_MAX:
            raise _broken(scheduler, f"still runs after {QUESTIONS_MAX} questions", "launch what can be launched")
    return _Trace(answers=answers, outcome=engine.outcome().task_K.tobytes(), state=state)


def _broken(scheduler: EdgeScheduler, what: str, remedy: str) -> ConformanceError:
    return ConformanceError(f"scheduler {type(scheduler).__name__} {what}; {remedy}")
