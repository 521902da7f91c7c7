"""Conformance: whether a scheduler keeps the rules of the interface, tried on small environments of every kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from noonward.decision.brief import EACH_SLOT_LEVERS, Brief
from noonward.decision.cluster.view import Answers, ClusterView
from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.decision.partly_compiled import OnTop, PartlyCompiledScheduler
from noonward.decision.scheduler import CompiledScheduler, Scheduler, State
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.cluster.kernels.world import World
from noonward.engine.run import run
from noonward.errors import ConformanceError
from noonward.evaluate.edge_conformance import check_edge_scheduler
from noonward.evaluate.time_limit import TimeLimit, TooLongError
from noonward.forecasts.published import published_until
from noonward.ledger.segments import Outcome
from noonward.model.cluster.environment import Environment, GpuCaps
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.knowledge import DONE, JobKnowledge, JobTraits, Knowledge
from noonward.model.cluster.setting import Protocol
from noonward.model.economics import Economics
from noonward.model.markets import day_ahead_market
from noonward.model.network import Network
from noonward.model.signals import PRICE_NAME, Signals
from noonward.notices import tell
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from noonward.units import HOUR_S

WINDOW_H: Final = 12
JOBS: Final = 60
HISTORY_H: Final = 24
FORECAST_H: Final = 8
"""Hours that forecasts reach; most schedulers ask for more."""
LONGER: Final = 5.0
"""Factor on the run times and slacks of later jobs."""
START: Final = datetime(2022, 3, 1, tzinfo=UTC)
ZONES: Final = ("DE", "AU-SA", "AU-WA")
"""Zones of the sites: the first has a day-ahead market; all are known to the learned forecasts."""
FORESEEING: Final = ("perfect", "noisy")
"""Kinds of forecast that are made from the truth."""
DECIDE_S: Final = 300.0
"""Seconds after which a question counts as never answered, unless told otherwise: compiling takes some of them."""
QUESTIONS_MAX: Final = 100_000
"""Questions after which a run counts as endless; the runs below ask a few hundred to a few thousand."""


@dataclass(frozen=True, kw_only=True)
class _Trace:
    """A run that was watched: per question (time s, kind, asked and answers as bytes), outcome, and a state it had.

    ``hours`` is how many hours of the scheduler's curves the answers hold.
    """

    questions: list[tuple[float, int, bytes]]
    outcome: Outcome
    state: State
    hours: int


def check_scheduler(
    scheduler: Scheduler | EdgeScheduler | str,
    protocol: Protocol | None = None,
    *,
    seeds: Iterable[int] = (0, 1),
    decide_s: float = DECIDE_S,
) -> tuple[str, ...]:
    """Checks that a scheduler keeps the rules of the interface.

    Runs it on small random environments (drained, with jobs that may be late, cut off at the window, with and without
    capacity curves, with run times that are learned as jobs end, with gangs, clock levels, signals and economics; one
    that wants to be asked about running jobs also where jobs may be suspended and capped) and checks that

    - every answer is feasible;
    - it does not write the view;
    - the same seed gives the same answers;
    - answers do not depend on what lies after them, unless it needs ``foresight``: on jobs that have not arrived yet
      and how long these will run, on how much longer jobs run whose run times it is not told, nor on prices and carbon
      intensities of hours to come; under a forecast that is made from the truth (``perfect``, ``noisy``), of hours
      beyond its reach;
    - answers do not depend on the slots that jobs take in the view;
    - restored from ``state()`` in mid-run, it answers like one that never stopped;
    - the compiled loop does what the Python loop does, if it has a compiled rule;
    - ``decide`` comes back, and the run ends.

    The environments that are cut off at the window hold jobs without a deadline (``deadline_s`` is infinite). While it
    works it tells which environment it is in (``noonward.notices``, kind ``progress``).

    Args:
        scheduler: A scheduler, its registered name, or ``module:Class``; for one of edge scenarios see
            ``noonward.evaluate.edge_conformance``.
        protocol: Protocol to check; by default all it says it answers.
        seeds: Seeds of the random environments.
        decide_s: Longest that ``decide`` may take for one question, s, what it has compiled the first time included;
            code that is compiled itself is not interrupted.

    Returns:
        The environments in which it kept the rules, each with the number of its questions.

    Raises:
        ConformanceError: A rule is broken; the message says which, where and what to do.
        InfeasibleActionError: An answer is infeasible.
        ScenarioError: There is no such scheduler, or it does not answer the protocol.

    Example:
        >>> check_scheduler("local-fcfs", seeds=[0])[0]
        'each-slot, drained, seed 0: 109 questions'
    """
    subject = make_scheduler(scheduler) if isinstance(scheduler, str) else scheduler
    if isinstance(subject, EdgeScheduler):
        return check_edge_scheduler(subject, seeds=seeds)
    chosen = subject.needs.protocols if protocol is None else (protocol,)
    limit, kept = TimeLimit(decide_s), []
    with limit.watching():
        for seed in seeds:
            for each in chosen:
                for environment in _environments(each, seed):
                    kept.append(_check(subject, environment, seed, limit))
                if subject.needs.levers and (each == "each-slot" or not EACH_SLOT_LEVERS & set(subject.needs.levers)):
                    for environment in _environments(each, seed):
                        if not environment.learns_run_times:
                            kept.append(_check(subject, _bending(environment), seed, limit))
    return tuple(kept)


def _check(scheduler: Scheduler, environment: Environment, seed: int, limit: TimeLimit) -> str:
    """Checks a scheduler on one environment; returns which, and how many questions it was asked."""
    tell("progress", f"{type(scheduler).__name__}: {environment.scenario}")
    first = _watch(scheduler, environment, seed, limit=limit)
    half = len(first.questions) // 2
    again = _watch(scheduler, environment, seed, stop=half)
    if first.questions != again.questions or first.outcome.tobytes() != again.outcome.tobytes():
        raise _broken(
            scheduler,
            environment,
            "answers differently when run again with the same seed",
            "draw random numbers only from the generator given to reset, set all memory there, and let state() change "
            "nothing",
        )
    if isinstance(scheduler, CompiledScheduler | PartlyCompiledScheduler | OnTop):
        compiled = run(environment, scheduler, seed=seed, compiled=True)
        if compiled.tobytes() != first.outcome.tobytes():
            raise _broken(
                scheduler,
                environment,
                "does something else in the compiled loop than in the Python loop",
                "let decide only call the rule, and keep all that changes in the rule's memory",
            )
    _check_restored(scheduler, environment, seed, first, half, again.state)
    if _watch(scheduler, environment, seed, roll_slots=True).questions != first.questions:
        raise _broken(
            scheduler,
            environment,
            "answers differently when jobs take other slots of view.job_J",
            "keep what is remembered of a job together with its serial, and forget it when the slot holds another one",
        )
    if not scheduler.needs.foresight:
        _check_futures(scheduler, environment, seed, first)
    return f"{environment.scenario.removeprefix('check ')}: {len(first.questions)} questions"


def _check_futures(scheduler: Scheduler, environment: Environment, seed: int, first: _Trace) -> None:
    """Changes what lies ahead, one thing after the other: answers before it must stay."""
    _check_future(scheduler, seed, first, _other_jobs(environment), "jobs that arrive later")
    if environment.knowledge is not None:
        what = "the run times, which it is not told, of jobs that have not ended"
        _check_future(scheduler, seed, first, _other_run_times(environment, first.outcome), what)
    forecast, reach_h = scheduler.needs.forecast, 0
    published = forecast is not None and forecast.published
    what = f"prices {'that are not published yet ' if published else ''}and carbon intensities of later hours"
    if forecast is not None and forecast.kind in FORESEEING:
        reach_h = Brief.of(environment, scheduler.needs).lookahead_h
        what = f"prices and carbon intensities of hours beyond its forecast, which reaches {reach_h} h,"
    _check_future(scheduler, seed, first, _other_signals(environment, reach_h, published), what)
    # Curves and signals are given for as long as an environment's jobs may run, so a forecast from the truth is, too.
    if environment.caps is None and (forecast is None or forecast.kind not in FORESEEING):
        what = "the run times and slacks of jobs that arrive later"
        _check_future(scheduler, seed, first, _longer_jobs(environment), what)


def _check_future(
    scheduler: Scheduler,
    seed: int,
    first: _Trace,
    changed: tuple[Environment, float],
    what: str,
) -> None:
    """Compares what was answered before a time with a run in which only what comes later is changed."""
    environment, time_s = changed
    other = _watch(scheduler, environment, seed, hours=first.hours)
    before = [[question for question in trace.questions if question[0] < time_s] for trace in (first, other)]
    if before[0] != before[1]:
        raise _broken(
            scheduler,
            environment,
            f"answers differently before {time_s:g} s when only {what} are changed",
            "read only the brief and the view",
        )


def _check_restored(
    scheduler: Scheduler, environment: Environment, seed: int, whole: _Trace, half: int, kept: State
) -> None:
    """Restores a scheduler from the state after half of its questions; compares the rest with a run in one go."""
    resumed = _watch(scheduler, environment, seed, restore=(half, kept))
    if resumed.questions != whole.questions or resumed.outcome.tobytes() != whole.outcome.tobytes():
        raise _broken(
            scheduler,
            environment,
            f"answers differently when it is restored from its state after {half} questions",
            "return all that it remembers in state(), as copies, and restore it in load_state(state)",
        )


def _watch(
    scheduler: Scheduler,
    environment: Environment,
    seed: int,
    *,
    stop: int = -1,
    restore: tuple[int, State] | None = None,
    roll_slots: bool = False,
    hours: int | None = None,
    limit: TimeLimit | None = None,
) -> _Trace:
    """Runs a scheduler question by question.

    Args:
        scheduler: Scheduler.
        environment: Environment.
        seed: Seed of the run.
        stop: Questions after which its state is taken; the run then continues.
        restore: Questions after which it is reset, and the state it is restored from.
        roll_slots: Have jobs take other slots of the view than they usually do.
        hours: Hours of the scheduler's curves to keep; None: all.
        limit: How long a question may take; None: as long as it likes. The first run of an environment is watched.

    Raises:
        ConformanceError: It fails, writes the view or does not end.
    """
    engine = ClusterEngine(environment, scheduler, seed=seed)
    scheduler.reset(engine.brief, stream(seed, "policy", environment.index))
    questions: list[tuple[float, int, bytes]] = []
    state: State = {}
    most = QUESTIONS_MAX * (10 if scheduler.needs.record else 1)  # a log is replayed in slots of a second
    while engine.step():
        view, answers = engine.view, engine.answers
        if roll_slots:
            _roll_slots(engine.world, len(questions))
        if len(questions) == stop:
            state = scheduler.state()
        if restore is not None and len(questions) == restore[0]:
            scheduler.reset(engine.brief, stream(seed + 1, "policy", environment.index))
            scheduler.load_state(restore[1])
        before = _bytes(view)
        try:
            _decide(scheduler, view, answers, limit)
        except TooLongError:
            raise _broken(
                scheduler,
                environment,
                f"did not come back from decide() in {limit.seconds if limit else 0:g} s when asked at "
                f"{view.now_s:g} s",
                "end its loops: a job without a limit has an infinite deadline_s, and latest_start_s is infinite then",
            ) from None
        except Exception as error:
            raise _broken(
                scheduler,
                environment,
                f"fails at {view.now_s:g} s with {type(error).__name__}: {error}",
                "answer every question that view.asked() names",
            ) from error
        for name, was in before.items():
            if getattr(view, name).tobytes() != was:
                raise _broken(
                    scheduler, environment, f"writes view.{name} at {view.now_s:g} s", "write to answers only"
                )
        questions.append((view.now_s, view.kind, _answered(view, answers, hours)))
        if len(questions) > most:
            raise _broken(scheduler, environment, f"still runs after {most} questions", "move jobs less to and fro")
    curve_hours = engine.answers.limit_SH.shape[1]
    return _Trace(questions=questions, outcome=engine.outcome(), state=state, hours=curve_hours)


def _decide(scheduler: Scheduler, view: ClusterView, answers: Answers, limit: TimeLimit | None) -> None:
    """Asks a scheduler.

    Raises:
        TooLongError: It does not come back in time.
    """
    if limit is None:
        scheduler.decide(view, answers)
        return
    limit.begin()
    try:
        scheduler.decide(view, answers)
    finally:
        limit.end()


def _roll_slots(world: World, by: int) -> None:
    """Changes the order in which free slots of the view are taken."""
    free_V = np.roll(np.flatnonzero(world.shown.job_J["serial"] < 0), by)
    if len(free_V):
        world.track_J["next"][free_V] = np.append(free_V[1:], -1)
        world.engine_1["free_slot"], world.engine_1["new_slot"] = free_V[0], len(world.track_J)


def _answered(view: ClusterView, answers: Answers, hours: int | None) -> bytes:
    """Returns what was asked and answered, some hours of the curves included."""
    answer_N, limit_SH = answers.answer_N[view.asked_N >= 0], answers.limit_SH[:, :hours]
    return view.serial_N.tobytes() + answer_N.tobytes() + limit_SH.tobytes()


def _bytes(view: ClusterView) -> dict[str, bytes]:
    """Returns the content of every array of a view."""
    return {name: getattr(view, name).tobytes() for name in view._fields}


def _broken(scheduler: Scheduler, environment: Environment, what: str, remedy: str) -> ConformanceError:
    return ConformanceError(f"scheduler {type(scheduler).__name__} {what} ({environment.scenario}); {remedy}")


def _environments(protocol: Protocol, seed: int) -> Iterator[Environment]:
    """Yields the environments of one protocol and seed: drained, with late jobs, cut off, and under capacity curves."""
    rng = stream(seed, "world", "check", protocol)
    drained = _environment(protocol, rng, drained=True)
    hours = drained.hours
    caps_SH = rng.integers(1, [[9], [5], [7]], size=(3, hours)).astype(np.float64)
    yield replace(drained, scenario=f"check {protocol}, drained, seed {seed}")
    yield replace(drained, scenario=f"check {protocol}, run times learned, seed {seed}", knowledge=_knowledge(drained))
    late = replace(drained, late_until_s=WINDOW_H * HOUR_S, late_usd_per_gpu_hour=0.05)
    yield replace(late, scenario=f"check {protocol}, jobs may be late, seed {seed}")
    for hard in (True, False):
        kind = "hard" if hard else "advisory"
        caps = GpuCaps(gpus_SH=caps_SH, hard=hard)
        yield replace(drained, scenario=f"check {protocol}, {kind} capacity curves, seed {seed}", caps=caps)
    cut_off = _environment(protocol, rng, drained=False)
    yield replace(cut_off, scenario=f"check {protocol}, cut off at the window, seed {seed}")


def _bending(environment: Environment) -> Environment:
    """Returns an environment of jobs five times as long that may be capped, resized and suspended."""
    stops = {"stop_s": 120.0, "dark_s": 240.0, "load_s": 390.0}
    freedoms = {
        "units": {"interruptible": True, "checkpoint": stops, "caps": "emerald-a100-fine-tuning"},
        "duration": {
            "interruptible": True,
            "checkpoint": stops,
            "min_run_s": 1200.0,
            "most_suspensions": 2,
            "caps": {"power": [0.6, 1], "throughput": [0.7, 1]},
            "elastic": {"gpus": [1, 2, 4], "speedup": [1, 1.8, 3]},
            "preempts": ["units"],
        },
    }
    fleet = Fleet.model_validate({**environment.fleet.model_dump(), "freedoms": freedoms})
    jobs = replace(environment.jobs, work_J=5 * environment.jobs.work_J)
    signals = environment.signals
    assert signals is not None
    further = {name: np.tile(value_ZH, (1, 3)) for name, value_ZH in signals.value_ZH.items()}
    signals = replace(signals, value_ZH=further)
    longest = replace(environment, fleet=fleet, jobs=jobs, signals=signals, caps=None)
    caps = environment.caps
    if caps is not None:
        repeats = -(-longest.hours // caps.gpus_SH.shape[1])
        caps = replace(caps, gpus_SH=np.tile(caps.gpus_SH, (1, repeats)))
    return replace(longest, scenario=f"{environment.scenario}, jobs may be suspended and capped", caps=caps)


def _environment(protocol: Protocol, rng: np.random.Generator, *, drained: bool) -> Environment:
    """Returns three sites and a crowd of jobs, far more than fit at once."""
    fleet = _fleet()
    network = Network(latency_ms=50.0, throughput_gb_per_min=1.0, usd_per_gb=0.01, kwh_per_gb=0.005)
    hours = HISTORY_H + 4 * WINDOW_H
    return Environment(
        scenario=f"check {protocol}",
        index=0,
        seed=0,
        start=START,
        protocol=protocol,
        slot_s=300.0,
        window_s=WINDOW_H * HOUR_S,
        drained=drained,
        fleet=fleet,
        links=network.links(fleet),
        jobs=_jobs(rng, drained=drained),
        signals=Signals(
            start=START - timedelta(hours=HISTORY_H),
            zones=ZONES,
            value_ZH={
                "price_usd_per_mwh": rng.uniform(-20.0, 200.0, (3, hours)),
                "carbon_g_per_kwh": rng.uniform(0.0, 700.0, (3, hours)),
            },
        ),
        economics=Economics(revenue_usd_per_gpu_hour=0.1, carbon_usd_per_t=100.0),
        sample_jobs=lambda draw: _jobs(draw, drained=drained),
        forecast_h=FORECAST_H,
    )


def _fleet() -> Fleet:
    """Returns three sites of 8, 4 and 6 GPUs with the clocks 0.3 to 1.0."""
    curve = {"constant_s": 0.2, "per_clock_s": 1.0, "per_gpu_s": 0.05}
    kinds = {
        f"type{s}": {
            "idle_w": 10.0 + s,
            "clocks": tuple(level / 10 for level in range(3, 11)),
            "classes": {
                "units": {"power": {"cubic_w": 60.0 + 10 * s, "linear_w": 30.0, "constant_w": 40.0}, "time": curve},
                "duration": {"power": {"constant_w": 80.0}},
            },
        }
        for s in range(3)
    }
    sites = tuple(
        {"name": f"site{s}", "zone": ZONES[s], "gpu_type": f"type{s}", "gpus": gpus, "pue": 1.1 + 0.1 * s}
        for s, gpus in enumerate((8, 4, 6))
    )
    return Fleet.model_validate({"gpu_types": kinds, "sites": sites})


def _jobs(rng: np.random.Generator, *, drained: bool) -> Jobs:
    """Returns jobs that arrive in the window's first half; the first is longest, most patient and largest."""
    smallest_J = rng.integers(1, 4, JOBS)
    slack_s_J = rng.uniform(600.0, 3 * HOUR_S, JOBS)
    if not drained:
        slack_s_J[1::5] = np.inf
    work_J = rng.uniform(300.0, 1800.0, JOBS)
    work_J[0], slack_s_J[0] = 1800.0, 3 * HOUR_S
    largest_J = smallest_J + rng.integers(0, 6, JOBS)
    smallest_J[0], largest_J[0] = 3, 8
    return Jobs.build(
        arrival_s=np.sort(rng.uniform(0.0, WINDOW_H / 2 * HOUR_S, JOBS)),
        work=work_J,
        origin=rng.integers(0, 3, JOBS),
        class_=rng.integers(0, 2, JOBS) * (np.arange(JOBS) > 0),
        gpus_min=smallest_J,
        gpus_max=largest_J,
        slack_s=slack_s_J,
        data_gb=rng.choice([0.0, 2.0, 8.0], JOBS),
        result_gb=rng.choice([0.0, 1.0], JOBS),
        recorded_site=np.arange(JOBS) % 4 - 1,
        recorded_start_s=np.arange(JOBS, dtype=np.float64) * 300,
    )


def _knowledge(environment: Environment) -> JobKnowledge:
    """Returns what is told where run times are learned: limits of four times the run times, and as many past jobs."""
    jobs = environment.jobs
    traits = JobTraits.build([np.tile(jobs.class_J, 2).astype(str)], limit_J=np.tile(4 * jobs.work_J, 2))
    return JobKnowledge(
        told=Knowledge(run_time="learned"),
        traits=traits,
        past_work_P=jobs.work_J[::-1].copy(),
        past_cause_P=np.full(JOBS, DONE),
        cause_J=np.full(JOBS, DONE),
        reach_s=4 * HOUR_S,
    )


def _other_run_times(environment: Environment, outcome: Outcome) -> tuple[Environment, float]:
    """Returns an environment in which all jobs that have not ended by a time run longer, and that time, s."""
    jobs, time_s = environment.jobs, WINDOW_H / 4 * HOUR_S
    ended_J = outcome.job_J["finish_s"] <= time_s
    changed = replace(jobs, work_J=np.where(ended_J, jobs.work_J, 1.5 * jobs.work_J))
    return replace(environment, jobs=changed), time_s


def _other_jobs(environment: Environment) -> tuple[Environment, float]:
    """Returns an environment whose later half of jobs is another and shorter, and the time of the first change, s.

    Largest gang and longest job stay as they are: a brief and its forecast tell them.
    """
    jobs = environment.jobs
    first = len(jobs) // 2
    later_J = np.arange(len(jobs)) >= first
    changed = replace(
        jobs,
        work_J=np.where(later_J, jobs.work_J / 2, jobs.work_J),
        origin_J=np.where(later_J, (jobs.origin_J + 1) % 3, jobs.origin_J),
        gpus_min_J=np.where(later_J, 1, jobs.gpus_min_J),
        slack_s_J=np.where(later_J, jobs.slack_s_J / 2, jobs.slack_s_J),
        data_gb_J=np.where(later_J, 4.0, jobs.data_gb_J),
    )
    left = slice(None, -len(jobs) // 4)
    fewer = {name: column[left] for name, column in vars(changed).items()}
    knowledge = environment.knowledge
    if knowledge is not None:
        traits = JobTraits(key_JL=knowledge.traits.key_JL[left], limit_J=knowledge.traits.limit_J[left])
        knowledge = replace(knowledge, traits=traits, cause_J=knowledge.cause_J[left])
    tenant_J = None if environment.tenant_J is None else environment.tenant_J[left]
    fewer_jobs = replace(environment, jobs=Jobs(**fewer), knowledge=knowledge, tenant_J=tenant_J)
    return fewer_jobs, float(jobs.arrival_s_J[first])


def _longer_jobs(environment: Environment) -> tuple[Environment, float]:
    """Returns an environment whose later half of jobs runs longer and may wait longer, and the time of the first, s."""
    jobs = environment.jobs
    first = len(jobs) // 2
    factor_J = np.where(np.arange(len(jobs)) >= first, LONGER, 1.0)
    longer = replace(jobs, work_J=factor_J * jobs.work_J, slack_s_J=factor_J * jobs.slack_s_J)
    return replace(environment, jobs=longer), float(jobs.arrival_s_J[first])


def _other_signals(environment: Environment, reach_h: int, published: bool) -> tuple[Environment, float]:
    """Returns an environment with other prices and intensities from some hour on, and until when they are unknown, s.

    Args:
        environment: Environment.
        reach_h: Hours that the scheduler's forecast shows as they will be.
        published: Prices that have been published by then stay as they are.
    """
    signals = environment.signals
    assert signals is not None
    hours = WINDOW_H // 3
    first = HISTORY_H + hours + reach_h
    value_ZH = {name: array.copy() for name, array in signals.value_ZH.items()}
    for array in value_ZH.values():
        array[:, first:] = array[::-1, first:].copy()
    if published:
        market_Z = [day_ahead_market(zone, signals.day_ahead) for zone in signals.zones]
        until_Z = published_until(market_Z, signals.start, np.array([first - 1]))[:, 0]
        for z, until in enumerate(until_Z.tolist()):
            value_ZH[PRICE_NAME][z, first:until] = signals.price_usd_per_mwh_ZH[z, first:until]
    return replace(environment, signals=replace(signals, value_ZH=value_ZH)), hours * HOUR_S
