"""The cluster engine: builds the state of a run from an environment, steps it, and returns what became of every job."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.arrays import F8, resized
from noonward.decision.brief import Brief, Curves, Needs, check_fit
from noonward.decision.cluster.assembly import make_view, with_slots
from noonward.decision.cluster.forecasts import ForecastIssuer
from noonward.decision.cluster.view import ANSWER, CARBON, PRICE, Answers, ClusterView
from noonward.decision.partly_compiled import PartlyCompiledScheduler
from noonward.decision.scheduler import CompiledScheduler, Scheduler
from noonward.engine.cluster.emit import emit
from noonward.engine.cluster.kernels import loops
from noonward.engine.cluster.kernels.world import (
    ADVISORY_CAPS,
    AS_EARNED,
    CARBON_SUM,
    ENGINE,
    EVENT,
    FACTOR_SUM,
    FAILED_EARLIEST,
    FAILED_GPUS,
    FAILED_LEVEL,
    FAILED_MASK,
    FULL,
    HARD_CAPS,
    NO_CAPS,
    NO_REWARDS,
    NO_SLOT,
    PRICE_SUM,
    SITE_STATE,
    TRACK,
    UNISSUED,
    World,
)
from noonward.errors import InfeasibleActionError
from noonward.ledger.segments import JOB_OUTCOME, Outcome
from noonward.model.cluster.environment import Environment
from noonward.seeding import stream

SLOTS: Final = 256
"""Jobs in sight for which a view has room at first."""
ISSUED_H: Final = 48
"""Hours of issue whose forecasts are made at once, at most."""
ISSUED_BYTES: Final = 2**24
"""Bytes they take, at most (but for a single hour)."""


class ClusterEngine:
    """One run that pauses and asks.

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

    Feasible: a start needs a site of the class' range with free GPUs for the smallest gang and ``now <= arrival +
    slack - return delay`` (Eq. 7b, 7c); a move needs that the job fits into the destination, may run there and can be
    there by its latest start there. The mask says so; an infeasible answer raises.

    Curves: a scheduler may set capacity curves in its answers (``Needs.curves``), unless the environment has some.

    Reward: growth of the utility U1 - U2 - U3 - U4 - U5 since the last question; the rewards sum to the ledger's
    utility. End: when every job is done or overdue, or at the window's end.

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
        self.world = build_world(environment, scheduler.needs, self.brief, rewards=kind)
        self._issuer = forecast_issuer(environment, scheduler.needs, seed)
        each_slot = environment.protocol == "each-slot"
        self._step = loops.step_each_slot if each_slot else loops.step_on_arrival
        self._run = loops.run_each_slot if each_slot else loops.run_on_arrival

    @property
    def view(self) -> ClusterView:
        """What the scheduler sees; another object once the jobs in sight have outgrown the last one."""
        return self.world.shown

    @property
    def answers(self) -> Answers:
        """Where it answers."""
        return self.world.answers

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
        kind = int(self._step(self.world))
        while kind in (FULL, NO_SLOT, UNISSUED):
            self._provide(kind)
            kind = int(self._step(self.world))
        if kind < 0:
            raise self._infeasible(kind)
        return kind

    def _provide(self, what: int) -> None:
        """Provides what a loop stopped for: room for journeys (FULL) or jobs (NO_SLOT), or forecasts (UNISSUED)."""
        if what == FULL:
            self.world = with_more_journeys(self.world)
        elif what == NO_SLOT:
            self.world = with_more_slots(self.world)
        else:
            issue_forecasts(self.world, self._issuer)

    def run_compiled(self) -> None:
        """Runs to the end under the scheduler's compiled rule, or under its partial one and ``decide``.

        Raises:
            InfeasibleActionError: An answer is infeasible.
            TypeError: The scheduler has no compiled rule.
        """
        scheduler = self.scheduler
        if isinstance(scheduler, PartlyCompiledScheduler):
            self._run_partly_compiled(scheduler)
            return
        if not isinstance(scheduler, CompiledScheduler):
            raise TypeError(f"{type(scheduler).__name__} has no compiled rule; run it with compiled=False")
        failed = int(self._run(self.world, scheduler.rule, scheduler.question(self.view, self.answers).address))
        while failed in (FULL, NO_SLOT, UNISSUED):
            self._provide(failed)
            failed = int(self._run(self.world, scheduler.rule, scheduler.question(self.view, self.answers).address))
        if failed:
            raise self._infeasible(failed)

    def _run_partly_compiled(self, scheduler: PartlyCompiledScheduler) -> None:
        """Runs to the end under a partial rule, and under ``decide`` wherever that declines."""
        asked = bool(self.step())
        while asked:
            scheduler.decide(self.view, self.answers)
            stopped = self._run_under(scheduler)
            while stopped in (FULL, NO_SLOT, UNISSUED):
                self._provide(stopped)
                stopped = self._run_under(scheduler)
            if stopped < 0:
                raise self._infeasible(stopped)
            asked = stopped == loops.DECLINED

    def _run_under(self, scheduler: PartlyCompiledScheduler) -> int:
        """Runs under a partial rule until it declines or something stops the loop, and returns what."""
        address = scheduler.question_address(self.view, self.answers)
        return int(loops.run_each_slot_partly(self.world, scheduler.partial_rule, address))

    def outcome(self, rewards_K: F8 | None = None) -> Outcome:
        """Returns what has happened so far."""
        return emit(self.environment, self.world, rewards_K)

    def _infeasible(self, failed: int) -> InfeasibleActionError:
        view = self.view
        asker = 0
        if self.environment.protocol == "each-slot":  # the kernel left the site there; its questions name none
            asker = int(view.run_1["site"][0])
            view.run_1["site"] = -1
        record = view.job_J[view.asked_N[asker]]
        choice, gpus, level, earliest_s = self.answers.answer_N[asker].item()
        names = ("hold", *self.environment.sites)
        allowed = [name for name, good in zip(names, view.mask_NA[asker].tolist(), strict=True) if good]
        what = {
            FAILED_MASK: f"choice {choice} ({names[choice] if 0 <= choice < len(names) else 'no such site'}); "
            f"feasible now: {', '.join(allowed)}; answer only what view.mask_NA marks",
            FAILED_GPUS: f"a gang of {gpus} GPUs; allowed: 0 (as many as fit) or {record['gpus_min']} to "
            f"{record['gpus_max']}",
            FAILED_LEVEL: f"clock level {level}; allowed: -1 (oracle) or a level of the site "
            f"({view.site_S['levels'].tolist()} levels per site)",
            FAILED_EARLIEST: f"an earliest start of {earliest_s} s, after the job's latest start "
            f"(deadline {record['deadline_s']} s less the return of its result)",
        }[failed]
        asked = (
            f"site {self.environment.sites[asker]}" if self.environment.protocol == "each-slot" else "the dispatcher"
        )
        return InfeasibleActionError(
            f"scheduler {type(self.scheduler).__name__} answered for job {record['serial']} at {view.now_s:g} s "
            f"({asked}): {what}"
        )


def build_world(environment: Environment, needs: Needs, brief: Brief, *, rewards: int) -> World:
    """Returns the state at second 0.

    Args:
        environment: What is run.
        needs: What is asked and shown.
        brief: Brief of the environment for these needs.
        rewards: NO_REWARDS, AS_EARNED or AT_START.
    """
    sites, count = len(environment.sites), len(environment.jobs)
    caps_SH, kind = _caps(environment, needs.curves)
    own = needs.curves is not None
    shown = make_view(brief, SLOTS)
    engine_1 = np.zeros(1, ENGINE)
    engine_1["dispatch"] = engine_1["hour_shown"] = engine_1["free_slot"] = -1
    engine_1["until_s"] = np.nan
    engine_1["drained"] = environment.drained
    engine_1["has_signals"] = environment.signals is not None
    engine_1["wants_allocate"] = needs.allocate
    engine_1["wants_finished"] = needs.finished
    engine_1["rewards"] = rewards
    engine_1["caps"] = kind
    state_S = np.zeros(sites, SITE_STATE)
    for name in ("head", "tail", "cursor"):
        state_S[name] = -1
    return World(
        shown=shown,
        answers=Answers(
            answer_N=np.zeros(len(shown.asked_N), ANSWER),
            limit_SH=np.zeros((sites, 0)) if not own else caps_SH if environment.caps is None else caps_SH.copy(),
        ),
        engine_1=engine_1,
        state_S=state_S,
        track_J=np.zeros(SLOTS, TRACK),
        submitted_R=environment.job_records,
        outcome_R=np.zeros(count, JOB_OUTCOME),
        job_usd_R=np.zeros(count),
        heap_E=np.zeros(2 * count + sites + 2, EVENT),
        signal_KSH=_signals(environment),
        forecast_KISL=_forecast_buffer(shown, environment.hours if brief.lookahead_h else 0),
        issued_2=np.zeros(2, np.int64),
        caps_SH=caps_SH,
    )


def with_more_slots(world: World) -> World:
    """Returns a world whose view, of which every slot is taken, has twice as many."""
    slots = len(world.track_J)
    return world._replace(shown=with_slots(world.shown, 2 * slots), track_J=resized(world.track_J, 2 * slots))


def with_more_journeys(world: World) -> World:
    """Returns a world that has room for twice as many journeys."""
    size, engine = len(world.heap_E), world.engine_1[0]
    heap_E = np.zeros(2 * size, EVENT)
    heap_E[: engine["heap_size"]] = world.heap_E[: engine["heap_size"]]
    heap_E[2 * size - engine["journeys"] :] = world.heap_E[size - engine["journeys"] :]
    return world._replace(heap_E=heap_E)


def _caps(environment: Environment, curves: Curves | None) -> tuple[F8, int]:
    """Returns the curves in force and their kind: the environment's own, else the scheduler's, which it sets later."""
    caps = environment.caps
    if caps is not None:
        return np.ascontiguousarray(caps.gpus_SH, dtype=np.float64), HARD_CAPS if caps.hard else ADVISORY_CAPS
    if curves is None:
        return np.zeros((len(environment.sites), 1)), NO_CAPS
    gpus_S = np.array([site.gpus for site in environment.fleet.sites], dtype=np.float64)
    caps_SH = np.repeat(gpus_S[:, None], environment.hours, axis=1)
    return caps_SH, HARD_CAPS if curves == "hard" else ADVISORY_CAPS


def _signals(environment: Environment) -> F8:
    """Returns price, carbon and their integrals per site from second 0, hours + 1 columns, and that of a factor."""
    sites, changes = environment.fleet.sites, environment.pue is not None
    if environment.signals is None and not changes:
        return np.full((4, len(sites), 2), np.nan)
    signals = environment.site_signals
    out = np.full((5 if changes else 4, len(sites), environment.hours + 1), np.nan)
    out[PRICE, :, :-1], out[CARBON, :, :-1] = signals.price_SH, signals.carbon_SH
    out[PRICE_SUM], out[CARBON_SUM] = signals.cumulative_QSH[:2]
    if changes:
        out[FACTOR_SUM] = signals.factor_cumulative_SH
    return out


def _forecast_buffer(view: ClusterView, hours: int) -> F8:
    """Returns room for forecasts of as many hours of issue as are issued at once, (2, hours of issue, sites, leads)."""
    kinds, sites, leads = view.forecast_KSL.shape
    room = min(ISSUED_H, max(1, ISSUED_BYTES // view.forecast_KSL.nbytes))
    return np.empty((kinds, min(hours, room), sites, leads))


def forecast_issuer(environment: Environment, needs: Needs, seed: int) -> ForecastIssuer | None:
    """Returns what issues a run's forecasts, or None if it shows none.

    Args:
        environment: What is run.
        needs: What is shown.
        seed: Seed of the stream ``forecast``.

    Raises:
        SignalRangeError: Too little of the signals' history is known.
        ScenarioError: A learned forecast was not trained on a site's zone.
    """
    if needs.forecast is None or environment.signals is None:
        return None
    until = environment.signals.hour_of(environment.start) + environment.hours
    signals = environment.signals.window(environment.signals.start, until)
    zones = [site.zone for site in environment.fleet.sites]
    rng = stream(seed, "forecast", environment.index)
    return ForecastIssuer(needs.forecast, signals, environment.start, zones, rng, environment.pue)


def issue_forecasts(world: World, issuer: ForecastIssuer | None) -> None:
    """Issues the forecasts from the hour shown on for which the world has room."""
    assert issuer is not None, "a world without forecasts asks for none"
    hour = int(world.engine_1["hour_shown"][0])
    world.issued_2[:] = hour, issuer.issue(hour, world.forecast_KISL)
