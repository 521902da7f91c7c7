"""The cluster engine: steps a run of an environment from question to question, and returns what became of every job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noonward import paging
from noonward.arrays import F8
from noonward.compiled import address_of
from noonward.decision.announced import Announced
from noonward.decision.brief import Brief, check_fit
from noonward.decision.partly_compiled import OnTop, PartlyCompiledScheduler
from noonward.decision.scheduler import CompiledScheduler, Scheduler
from noonward.engine.cluster.build import build_world, forecast_issuer, issue_forecasts
from noonward.engine.cluster.emit import emit
from noonward.engine.cluster.estimates import EstimateIssuer
from noonward.engine.cluster.infeasible import infeasible
from noonward.engine.cluster.kernels import loops
from noonward.engine.cluster.kernels.world import AS_EARNED, NO_REWARDS, UNESTIMATED, UNISSUED
from noonward.engine.cluster.moving import Arrays, packed, unpacked, with_moving
from noonward.engine.cluster.pace import Pace, Pauses
from noonward.engine.cluster.stepped import SteppedEngine
from noonward.errors import InfeasibleActionError, ScenarioError
from noonward.ledger.segments import Outcome
from noonward.model.cluster.environment import Environment


class ClusterEngine(SteppedEngine):
    """One run: pauses at every decision, asks the scheduler, and applies the answer.

    Protocol ``each-slot`` (MASAC, Sec. II): time moves in slots. At a slot's start all finishes, joins and arrivals
    up to it are taken, jobs that can no longer start in time anywhere are dropped as overdue, and then decision
    steps follow: each step asks every site about the next job of its queue (``view.asked_N``, -1 for none), all sites
    at once, until every pending job has been asked about once. Choices per site: 0 = hold; 1 + own index = start here
    now; 1 + d = move to site d, whose queue the job joins at the first slot boundary at or after its delay, at the
    earliest in the next slot.

    Protocol ``on-arrival``: the dispatcher is asked once per job, at its arrival, for site, largest gang, clock and
    earliest start. The job travels, joins the site's queue, and starts first-come-first-served when as many GPUs as
    its smallest gang are free (and a hard capacity curve allows): with as many as are free, at most the gang asked
    for. A queued job whose latest start has passed is dropped as overdue.

    Running jobs: a scheduler with ``Needs.levers`` is asked about the running jobs whose classes allow them
    (``fleet.freedoms``; ASK_RUNNING) when something has changed: an hour, or part of one, of signals begins, a grid
    event begins or ends, or, if it wants to know (``Needs.freed``), GPUs have become free. Under ``each-slot`` that is
    in the first slot from then on, before the queues; each step asks every site about the next one, in the order in
    which they began to run. Under ``on-arrival`` it is at that moment, after the queues, about one after the other.
    Choices: 0 = run on, 1 + own index = suspend. A job that runs on may change its power cap; one that starts or is
    resumed may begin under a cap. A cap stays until it is changed, or lifted because the job's slack is used up
    (``slack_left_s``). A job that is suspended holds its GPUs while it writes its checkpoint, then waits at its site
    with less work left, and loads the checkpoint when it is started again, on the clock it had and its gang or, where
    it may be resized, another one of its class (``resume_gang``). It may stand still for its slack in all
    (``resume_until_s``); one that cannot be resumed in time is dropped as overdue, and its work is lost. Nothing starts
    that would keep it from being back by then (``kept_room``); under ``on-arrival`` it goes before all of its site's
    queue that have not run.

    Failures (``Environment.failures``): a running job may fail, after as many GPU-seconds of running or as much of its
    work under every scheduler. It gives its GPUs back at once, and does again what it did since its last periodic
    checkpoint; like a suspended job it waits at its site until a scheduler starts it again. One that fails by its own
    fault, or once too often, has failed for good, and its work is lost. Nobody is told before.

    Feasible: a start needs a site of the class' range with free GPUs for the smallest gang and ``now <= arrival +
    slack - return delay`` (Eq. 7b, 7c); a move needs that the job fits into the destination, may run there and can be
    there by its latest start there. The mask says so; an infeasible answer raises.

    Curves: a scheduler may set capacity curves in its answers (``Needs.curves``), unless the environment has some.

    Reward: growth of the utility U1 - U2 - U3 - U4 - U5 since the last question; the rewards sum to the ledger's
    utility. End: when every job is done, overdue or failed, or at the window's end.

    Args:
        environment: What to run.
        scheduler: Who is asked; says which questions and forecasts it needs.
        seed: Seed of the streams ``policy`` and ``forecast``.
        rewards: Read the reward at every question.

    Attributes:
        brief: What the scheduler is told before the first job.

    Raises:
        ScenarioError: Scheduler and environment do not fit.
    """

    def __init__(self, environment: Environment, scheduler: Scheduler, *, seed: int = 0, rewards: bool = False) -> None:
        self.brief = Brief.of(environment, scheduler.needs)
        check_fit(self.brief, scheduler.needs, type(scheduler).__name__)
        self.environment = environment
        self.scheduler = scheduler
        self.seed = seed
        kind = AS_EARNED if rewards else NO_REWARDS
        super().__init__(build_world(environment, scheduler.needs, self.brief, rewards=kind), environment.protocol)
        if environment.events:
            self.brief = replace(self.brief, announced=Announced(environment.events, self._now_s))
        self._issuer = forecast_issuer(environment, scheduler.needs, seed)
        self._pace = Pace(len(environment.jobs))
        jobs = len(environment.jobs)
        self._keeps_until = paging.PART_ROWS if jobs > paging.MOST_ROWS else jobs + 1
        self._estimates = EstimateIssuer(environment) if environment.learns_run_times else None
        if self.world.engine_1["bends"][0] and environment.learns_run_times:
            what = "whose jobs fail" if environment.failures is not None else "whose running jobs it acts on"
            raise ScenarioError(
                f"scheduler {type(scheduler).__name__} is to run scenario {environment.scenario!r}, {what}; its run "
                "times are learned as jobs end, from unbroken runs: set jobs.knowledge.run_time to known, limit or "
                "class-mean"
            )

    def _now_s(self) -> float:
        """Returns the time of the question that is asked, s."""
        return self.view.now_s

    @property
    def reward_usd(self) -> float:
        """Growth of the utility between the last two questions, USD (with ``rewards``)."""
        return float(self.world.engine_1["reward_usd"][0])

    def step(self) -> int:
        """Carries out the answers to the last question and runs to the next.

        Returns:
            Kind of the next question (ASK_...), or 0 at the run's end.

        Raises:
            InfeasibleActionError: An answer is infeasible; nothing has changed.
        """
        kind = self._step()
        self._note_arrived()
        if kind < 0:
            raise self._infeasible(kind)
        return kind

    def _provide(self, what: int) -> None:
        """Provides what a loop stopped for: run times (UNESTIMATED), forecasts (UNISSUED) or room."""
        self._note_arrived()
        if what == UNESTIMATED:
            assert self._estimates is not None, "only what is learned is missing"
            self._estimates.issue(self.world)
        elif what == UNISSUED:
            issue_forecasts(self.world, self._issuer)
        else:
            super()._provide(what)

    def run_compiled(self, pauses: Pauses | None = None, *, asked: bool = False) -> None:
        """Runs to the end under the scheduler's compiled rule, or under a partial one, or one below, and ``decide``.

        Args:
            pauses: Who looks at the run now and then; what is decided is the same.
            asked: Whether a question waits for its answer, as after ``load_state``.

        Raises:
            InfeasibleActionError: An answer is infeasible.
            TypeError: The scheduler has no compiled rule.
        """
        scheduler = self.scheduler
        if not isinstance(scheduler, CompiledScheduler | PartlyCompiledScheduler | OnTop):
            raise TypeError(f"{type(scheduler).__name__} has no compiled rule; run it with compiled=False")
        asked = asked or bool(self.step())
        while asked:
            if pauses is not None:
                pauses.look()
            scheduler.decide(self.view, self.answers)
            below = scheduler.resting_on(self.view) if isinstance(scheduler, OnTop) else scheduler
            if below is None:
                asked = bool(self.step())
                continue
            until_s = np.inf if pauses is None else pauses.until_s(self.view.now_s)
            stopped = self._run_under(below, min(until_s, self._announced_s(), self._kept_s()))
            if stopped < 0:
                raise self._infeasible(stopped)
            self._note_arrived()
            asked = stopped == loops.DECLINED

    def _run_under(self, below: CompiledScheduler | PartlyCompiledScheduler, until_s: float) -> int:
        """Runs under a compiled or partial rule until a time, s; returns what stopped it.

        Args:
            below: Whose rule it is: the scheduler, or the one that it rests on.
            until_s: Time, s; the first question from then on waits for its answer.
        """
        rule = address_of(below.partial_rule if isinstance(below, PartlyCompiledScheduler) else below.rule)
        scheduler = self.scheduler

        def loop() -> int:
            view = scheduler.shown_below(self.view) if isinstance(scheduler, OnTop) else self.view
            question = below.question_address(view, self.answers)
            if not self.each_slot:
                return int(loops.run_on_arrival(self._address(), rule, question, until_s))
            running = scheduler.bends_below if isinstance(scheduler, OnTop) else True
            return int(loops.run_each_slot(self._address(), rule, question, until_s, int(running)))

        return self._provided(loop)

    def _note_arrived(self) -> None:
        """Tells how far the run is; of very many jobs, those that have come and gone leave memory now and then."""
        arrived = int(self.world.engine_1["next_arrival"][0])
        self._pace.note(arrived)
        if arrived >= self._keeps_until:
            self._keeps_until = arrived + paging.PART_ROWS
            paging.leave_memory()

    def _kept_s(self) -> float:
        """Returns when jobs are to leave memory next, s; infinite: at no time."""
        jobs = self.environment.jobs
        return float(jobs.arrival_s_J[self._keeps_until]) if self._keeps_until < len(jobs) else np.inf

    def _announced_s(self) -> float:
        """Returns when the next grid event is announced to a scheduler that rests until then, s; infinite: never."""
        if not isinstance(self.scheduler, OnTop):
            return np.inf
        now_s = self.view.now_s
        return min((known for each in self.environment.events if (known := each.event.known_s) > now_s), default=np.inf)

    def state(self) -> Arrays:
        """Returns all that changes in the run, while a question waits for its answer; the environment is not in it.

        The scheduler has its own (``Scheduler.state``). The arrays are live: store them before the run continues.
        """
        world = self.world
        state = packed(world) | {"limit_SH": world.answers.limit_SH}
        if self._estimates is not None:
            state["submitted_R"] = world.submitted_R[: world.engine_1["estimated"][0]]
            state |= {f"estimates/{name}": array for name, array in self._estimates.state().items()}
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restores from ``state()``, in a new engine of the same environment, scheduler and seed.

        The question then waits for its answer, and the run continues byte for byte as it would have.

        Raises:
            ScenarioError: The state is of another run; nothing has changed.
        """
        mine = self.state()
        if set(mine) != set(state) or any(
            state[name].dtype != array.dtype or state[name].shape[1:] != array.shape[1:] for name, array in mine.items()
        ):
            raise ScenarioError(
                "the state is of another run: its sites, classes or questions differ; build the engine from the "
                "environment and the scheduler that it was saved with"
            )
        self.world = with_moving(self.world, unpacked(state, len(self.environment.jobs)))
        self.world.answers.limit_SH[:] = state["limit_SH"]
        if self._estimates is not None:
            self.world.submitted_R[: len(state["submitted_R"])] = state["submitted_R"]
            prefix = "estimates/"
            own = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
            self._estimates.load_state(own)

    def outcome(self, rewards_K: F8 | None = None) -> Outcome:
        """Returns what has happened so far."""
        return emit(self.environment, self.world, rewards_K)

    def _infeasible(self, failed: int) -> InfeasibleActionError:
        asker, where, sites = 0, "the dispatcher", self.environment.sites
        if self.each_slot:  # the kernel left the site there; its questions name none
            asker = int(self.view.run_1["site"][0])
            self.view.run_1["site"] = -1
            where = f"site {sites[asker]}"
        who = f"scheduler {type(self.scheduler).__name__}"
        return infeasible(who, where, self.view, self.answers, sites, asker, failed)
