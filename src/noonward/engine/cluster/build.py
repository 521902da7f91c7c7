"""Worlds: the engine's state at second 0, of an environment or of a live service, and how its parts grow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from noonward.arrays import F8, I8, Records, resized
from noonward.decision.brief import Brief, Curves, Needs
from noonward.decision.cluster.assembly import make_view, with_slots
from noonward.decision.cluster.forecasts import ForecastIssuer
from noonward.decision.cluster.view import ANSWER, CARBON, PRICE, Answers, ClusterView
from noonward.engine.cluster.kernels.world import (
    ADVISORY_CAPS,
    AT_START,
    BENT,
    CARBON_SUM,
    ENGINE,
    EVENT,
    FACTOR_SUM,
    GRID_EVENT,
    HARD_CAPS,
    KIND_SHIFT,
    NO_CAPS,
    NO_REWARDS,
    OWN,
    POWER_LIMIT,
    PRICE_SUM,
    SERIAL_SHIFT,
    SITE_STATE,
    TRACK,
    WITHHOLD,
    World,
)
from noonward.errors import ScenarioError
from noonward.ledger.segments import JOB_OUTCOME, SEGMENT
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.event import SiteEvent
from noonward.model.cluster.freedom import Lever, bend
from noonward.model.cluster.jobs import SUBMITTED
from noonward.model.cluster.power_limit import PowerSteps
from noonward.model.cluster.tenant import Tenants
from noonward.model.cluster.withheld import Withheld
from noonward.model.signals import SiteSignals
from noonward.paging import zero_rows
from noonward.seeding import stream
from noonward.units import HOUR_S

MOST_LIMIT_W: Final = float((1 << (KIND_SHIFT - SERIAL_SHIFT)) - 1)
"""Largest power limit that an event of the heap can hold, W."""
SLOTS: Final = 256
"""Jobs in sight for which a view has room at first."""
SEGMENTS: Final = 1024
"""Segments of suspended jobs for which a world has room at first."""
TOLD_SLOTS: Final = 64
"""The same in a live service."""
ISSUED_H: Final = 48
"""Hours of issue whose forecasts are made at once, at most."""
ISSUED_BYTES: Final = 2**24
"""Bytes they take, at most (but for a single hour)."""


def build_world(environment: Environment, needs: Needs, brief: Brief, *, rewards: int) -> World:
    """Returns the state at second 0.

    Args:
        environment: What is run.
        needs: What is asked and shown.
        brief: Brief of the environment for these needs.
        rewards: NO_REWARDS, AS_EARNED, AT_START or OWN.

    Raises:
        ScenarioError: Jobs fail, and rewards count jobs whole when they start.
    """
    caps_SH, kind = _caps(environment, needs.curves)
    own = needs.curves is not None
    failures = environment.failures
    if failures is not None and rewards >= AT_START:
        raise ScenarioError(
            f"jobs of scenario {environment.scenario!r} fail, and rewards count every job whole when it starts; train "
            "without jobs.failures"
        )
    world = _blank_world(brief, needs, SLOTS, len(environment.jobs), needs.levers, fails=failures is not None)
    engine_1 = world.engine_1
    engine_1["drained"] = environment.drained
    engine_1["guessed"] = environment.knowledge is not None
    engine_1["estimated"] = 0 if environment.learns_run_times else len(environment.jobs)
    engine_1["has_signals"] = environment.signals is not None
    engine_1["part_s"] = environment.site_signals.part_s
    engine_1["rewards"] = rewards
    engine_1["caps"] = kind
    events = environment.events if needs.levers and world.engine_1["bends"][0] else ()
    power, until_s = PowerSteps.of(environment), HOUR_S * environment.hours
    world = _stepping(world, brief, environment.unavailable, power, until_s, events)
    limit_SH = np.zeros((len(environment.sites), 0))
    if own:
        limit_SH = caps_SH if environment.caps is None else caps_SH.copy()
    return world._replace(
        answers=world.answers._replace(limit_SH=limit_SH),
        job_usd_R=np.zeros(len(environment.jobs) if rewards == OWN else 0),
        submitted_R=environment.job_records.copy() if environment.learns_run_times else environment.job_records,
        signal_KSH=_signals(environment),
        forecast_KISL=_forecast_buffer(world.shown, environment.hours if brief.lookahead_h else 0),
        caps_SH=caps_SH,
        failure_RX=np.zeros((0, 0)) if failures is None else failures.table_JX,
    )


def told_world(brief: Brief, needs: Needs) -> World:
    """Returns the state of a live service at second 0: what happens is told, signals are shown from outside.

    Args:
        brief: Brief of the service.
        needs: What is asked and shown.
    """
    world = _blank_world(brief, needs, TOLD_SLOTS, 0, needs.levers if brief.protocol == "each-slot" else ())
    engine_1, sites = world.engine_1, len(brief.sites)
    engine_1["has_signals"] = brief.signals
    engine_1["told"] = engine_1["drained"] = 1
    engine_1["told_s"] = -np.inf
    engine_1["estimated"] = np.iinfo(np.int64).max
    if needs.curves is not None:
        engine_1["caps"] = HARD_CAPS if needs.curves == "hard" else ADVISORY_CAPS
    return world._replace(
        outcome_R=np.zeros(TOLD_SLOTS, JOB_OUTCOME),
        signal_KSH=np.full((4, sites, 2), np.nan),
        forecast_KISL=_forecast_buffer(world.shown, 0),
        caps_SH=np.zeros((sites, 1)),
    )


def _blank_world(
    brief: Brief, needs: Needs, slots: int, jobs: int, levers: Collection[Lever] = (), *, fails: bool = False
) -> World:
    """Returns a world without jobs and signals that has room for some jobs in sight, and for so many outcomes."""
    sites = len(brief.sites)
    shown = make_view(brief, slots, levers, fails=fails)
    bends = fails or bend(shown.freedom_C)
    if brief.protocol == "on-arrival" and bend(shown.freedom_C):
        shown.run_1["slot_s"] = 0.0  # jobs are suspended, resumed and asked about at any time
    engine_1 = np.zeros(1, ENGINE)
    engine_1["part_s"] = HOUR_S
    engine_1["dispatch"] = engine_1["hour_shown"] = engine_1["part_shown"] = engine_1["free_slot"] = -1
    engine_1["first_to_ask"] = -1
    engine_1["until_s"] = np.nan
    engine_1["bends"] = bends
    engine_1["wants_allocate"] = needs.allocate
    engine_1["wants_finished"] = needs.finished
    engine_1["wants_freed"] = needs.freed and bends
    engine_1["rewards"] = NO_REWARDS
    engine_1["caps"] = NO_CAPS
    tenants = brief.tenants
    ranked = tenants is not None or brief.priorities is not None
    tenant_T = Tenants.nobody() if tenants is None else tenants.records()
    engine_1["tenants"] = len(tenant_T) if ranked else 0
    engine_1["half_life_s"] = np.nan if tenants is None else tenants.half_life_s
    engine_1["epoch_s"] = brief.start.timestamp()
    if tenants is not None:
        tenants.check_budgets(signals=brief.signals, bends=bends)
        engine_1["budgets"] = len(tenants.budgeted)
    state_S = np.zeros(sites, SITE_STATE)
    state_S["limit_w"] = np.inf
    for name in ("head", "tail", "cursor", "next_to_ask", "running", "last_running", "first_owed"):
        state_S[name] = -1
    return World(
        shown=shown,
        answers=Answers(answer_N=np.zeros(len(shown.asked_N), ANSWER), limit_SH=np.zeros((sites, 0))),
        engine_1=engine_1,
        state_S=state_S,
        track_J=np.zeros(slots, TRACK),
        submitted_R=np.zeros(0, SUBMITTED),
        outcome_R=zero_rows(jobs, JOB_OUTCOME),
        job_usd_R=np.zeros(0),
        heap_E=zero_rows(2 * jobs + sites + 2, EVENT),
        signal_KSH=np.full((4, sites, 2), np.nan),
        forecast_KISL=np.empty((2, 0, sites, 1)),
        issued_2=np.zeros(2, np.int64),
        caps_SH=np.zeros((sites, 1)),
        bent_J=np.zeros(slots if bends else 1, BENT),
        segment_K=np.zeros(SEGMENTS if bends else 0, SEGMENT),
        failure_RX=np.zeros((0, 0)),
        tenant_T=tenant_T,
    )


def _stepping(
    world: World,
    brief: Brief,
    withheld: Withheld | None,
    power: PowerSteps | None,
    until_s: float,
    grid: Sequence[SiteEvent],
) -> World:
    """Returns a world at second 0 in which GPUs are withheld and power is limited.

    Later steps of both are events, and so are the begin and the end of every grid event.
    """
    events = [_grid_events(grid, brief, until_s)] if grid else []
    if withheld is not None:
        world.state_S["withheld"] = withheld.gpus_KS[0]
        world.shown.site_S["free"] = world.shown.site_S["gpus"] - withheld.gpus_KS[0]
        events.append(_step_events(withheld.from_s_K, withheld.gpus_KS, until_s, 0))
    if power is not None:
        finite_KS = np.isfinite(power.watts_KS)
        whole_KS = np.where(finite_KS, np.minimum(power.watts_KS, MOST_LIMIT_W), 0.0).astype(np.int64)
        world.state_S["limit_w"] = np.where(finite_KS[0], whole_KS[0], np.inf)
        events.append(_step_events(power.from_s_K, whole_KS, until_s, POWER_LIMIT))
    if not events:
        return world
    event_E = np.concatenate(events)
    heap_E = zero_rows(len(world.heap_E) + len(event_E), EVENT)
    heap_E[: len(event_E)] = np.sort(event_E, order=("time", "item"))  # which is a heap
    world.engine_1["heap_size"] = world.engine_1["steps_left"] = len(event_E)
    return world._replace(heap_E=heap_E)


def _grid_events(grid: Sequence[SiteEvent], brief: Brief, until_s: float) -> Records:
    """Returns the events WITHHOLD at which grid events begin or end after second 0, up to a time."""
    edges = [
        (time_s, (WITHHOLD << KIND_SHIFT) | (GRID_EVENT + brief.fleet.site_names.index(each.site)))
        for each in grid
        for time_s in (each.event.start_s, each.event.end_s)
        if 0 < time_s <= until_s
    ]
    return np.array(edges, EVENT)


def _step_events(from_s_K: F8, amount_KS: I8, until_s: float, spot: int) -> Records:
    """Returns the events WITHHOLD of steps after second 0, up to a time, at the sites whose amount changes.

    Args:
        from_s_K: When the steps begin, s.
        amount_KS: GPUs or W by site from then on.
        until_s: Time of the last, s.
        spot: What their slots name beside the site: 0, or POWER_LIMIT.
    """
    later_K = np.flatnonzero((from_s_K > 0) & (from_s_K <= until_s))
    step_E, site_E = np.nonzero(np.diff(amount_KS, axis=0, prepend=0)[later_K] != 0)
    event_E = np.zeros(len(step_E), EVENT)
    event_E["time"] = from_s_K[later_K][step_E]
    amount_E = amount_KS[later_K][step_E, site_E]
    event_E["item"] = (WITHHOLD << KIND_SHIFT) | (amount_E << SERIAL_SHIFT) | (spot + site_E)
    return event_E


def with_more_slots(world: World) -> World:
    """Returns a world whose view, of which every slot is taken, has twice as many."""
    slots = 2 * len(world.track_J)
    outcome_R = resized(world.outcome_R, slots) if world.engine_1["told"][0] else world.outcome_R
    shown, track_J = with_slots(world.shown, slots), resized(world.track_J, slots)
    bent_J = resized(world.bent_J, slots) if world.engine_1["bends"][0] else world.bent_J
    return world._replace(shown=shown, track_J=track_J, outcome_R=outcome_R, bent_J=bent_J)


def with_more_journeys(world: World) -> World:
    """Returns a world that has room for twice as many journeys."""
    size, engine = len(world.heap_E), world.engine_1[0]
    heap_E = zero_rows(2 * size, EVENT)
    heap_E[: engine["heap_size"]] = world.heap_E[: engine["heap_size"]]
    heap_E[2 * size - engine["journeys"] :] = world.heap_E[size - engine["journeys"] :]
    return world._replace(heap_E=heap_E)


def with_more_segments(world: World) -> World:
    """Returns a world that has room for twice as many segments."""
    return world._replace(segment_K=resized(world.segment_K, 2 * len(world.segment_K)))


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
    """Returns price, carbon and their integrals per site from second 0, parts + 1 columns, and that of a factor."""
    sites, changes = environment.fleet.sites, environment.pue is not None
    if environment.signals is None and not changes:
        return np.full((4, len(sites), 2), np.nan)
    return signal_table(environment.site_signals)


def signal_table(signals: SiteSignals) -> F8:
    """Returns signals at sites as ``World.signal_KSH`` holds them."""
    factors_SP = signals.factor_cumulative_SP
    _, sites, parts = signals.value_QSP.shape
    out = np.full((5 if factors_SP.shape[1] else 4, sites, parts + 1), np.nan)
    out[PRICE, :, :-1], out[CARBON, :, :-1] = signals.price_SP, signals.carbon_SP
    out[PRICE_SUM], out[CARBON_SUM] = signals.cumulative_QSP[:2]
    if factors_SP.shape[1]:
        out[FACTOR_SUM] = factors_SP
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
    return ForecastIssuer(needs.forecast, signals, environment.start, zones, rng, environment.pue, environment.prices)


def issue_forecasts(world: World, issuer: ForecastIssuer | None) -> None:
    """Issues the forecasts from the hour shown on for which the world has room."""
    assert issuer is not None, "a world without forecasts asks for none"
    hour = int(world.engine_1["hour_shown"][0])
    world.issued_2[:] = hour, issuer.issue(hour, world.forecast_KISL)
