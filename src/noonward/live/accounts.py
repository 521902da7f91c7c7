"""What jobs used, cost and emitted: the ledger of a service's days, and of the same days under the reference policy.

Its ``Savings`` are not those of ``evaluate.answer``: days of one service follow each other and are resampled, the
environments of a comparison are independent draws and have Student's intervals.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np

from noonward.arrays import F8, Records
from noonward.decision.cluster.view import ClusterView
from noonward.errors import ScenarioError
from noonward.ledger.ledger import SettledRun, settle_run
from noonward.ledger.segments import (
    DONE,
    JOB_OUTCOME,
    OVERDUE,
    OWN_JOURNEY,
    RESULT,
    RUNNING,
    TRANSFER,
    WAITING,
    Meters,
    Outcome,
    PowerSegments,
)
from noonward.live.controller import Controller
from noonward.live.grid.keeper import HISTORY_H
from noonward.live.names import Names
from noonward.live.segments import bent_jobs, stored_segments
from noonward.live.setup import Setup
from noonward.live.shadow.watcher import facts
from noonward.live.store.database import Row
from noonward.live.world.hours import Hours
from noonward.live.world.seats import OVERDUE as DROPPED
from noonward.live.world.seats import STARTING, Arrival, Note, Seat
from noonward.live.world.world import World
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.freedom import Freedom
from noonward.model.cluster.jobs import Jobs
from noonward.model.signals import Signals
from noonward.seeding import stream
from noonward.units import DAY_H, DAY_S, HOUR_S

WHAT_HAPPENED = "what happened"
"""What watched jobs are compared with."""
DRAWS = 2000
"""Draws of days with replacement that an interval rests on."""


@dataclass
class Fate:
    """What became of a job. Times are s since the service's start.

    Attributes:
        about: The job as it arrived.
        status: DONE, RUNNING, WAITING or OVERDUE.
        site: Site it ran at, or -1.
        gpus: Gang.
        level: Clock level.
        start_s: Start; NaN before.
        end_s: End; expected, while it runs.
        power_w: Facility power by the model, W.
        pieces: Parts of its life in which it held GPUs, each with its begin, end (s), GPUs and power (W), of a job that
            was suspended or capped; empty: it ran from its start to its end.
        expected_s: Run time that was expected of a watched job.
        journeys: When it was sent, from which site (-1: its ingress point), and where to.
    """

    about: Arrival
    status: int = WAITING
    site: int = -1
    gpus: int = 0
    level: int = -1
    start_s: float = math.nan
    end_s: float = math.nan
    power_w: float = 0.0
    journeys: list[tuple[float, int, int]] = field(default_factory=list)
    expected_s: float = math.nan
    pieces: list[tuple[float, float, int, float]] = field(default_factory=list)

    @property
    def held(self) -> list[tuple[float, float, int, float]]:
        """When it held GPUs: begin, end (s), GPUs and power (W)."""
        return self.pieces or [(self.start_s, self.end_s, self.gpus, self.power_w)]


def stored_fates(controller: Controller, from_s: float, until_s: float) -> list[Fate]:
    """Returns what became of the jobs that arrived in a time, in the order of their arrival.

    A job that was queued again after its site failed counts with its last attempt; cancelled jobs that never started
    are left out, and so are jobs that name a site, a class or an ingress point which the fleet does not have any more.
    """
    store, names = controller.store, controller.names
    fates, bent = {}, bent_jobs(controller.store, from_s)
    for row in store.read(
        "SELECT * FROM jobs WHERE arrival_s >= ? AND arrival_s < ? AND NOT (state = 'cancelled' AND start_s IS NULL) "
        "ORDER BY arrival_s, id",
        from_s,
        until_s,
    ):
        if not names.know(row):
            continue
        fate = fates[row["id"]] = Fate(names.arrival(row), status=OVERDUE if row["state"] == DROPPED else WAITING)
        if row["start_s"] is not None:
            over = row["ended_s"] is not None
            fate.status = DONE if over else RUNNING
            fate.site, fate.gpus, fate.level = names.site(row["site"]), row["gpus"], row["level"]
            fate.start_s = row["start_s"] if row["began_s"] is None else row["began_s"]
            fate.end_s = row["ended_s"] if over else fate.start_s + row["run_s"]
            fate.power_w = row["power_w"]
        if row["id"] in bent and fate.site >= 0:
            _take_pieces(controller, fate, row)
    for row in store.read("SELECT * FROM events WHERE kind = 'sent' AND at_s >= ? ORDER BY id", from_s):
        if row["job"] in fates:
            data = json.loads(row["data"])
            fates[row["job"]].journeys.append((row["at_s"], names.site(data["from"]), names.site(data["site"])))
    return list(fates.values())


def _take_pieces(controller: Controller, fate: Fate, row: Row) -> None:
    """Takes over when a job that was suspended or capped held its GPUs, and what it drew."""
    freedoms, class_ = controller.setup.scenario.fleet.freedoms, controller.names.classes[fate.about.class_]
    checkpoint = freedoms.get(class_, Freedom()).checkpoint
    shares = {"stop": checkpoint.stop_power, "load": checkpoint.load_power, "dark": 0.0}
    until_s = fate.end_s if row["ended_s"] is not None or math.isfinite(fate.end_s) else controller.store.now_s()
    for one in stored_segments(controller.store, row["id"], controller.modelled(row["site"])):
        share = shares.get(one.kind, one.power)
        watts = share * fate.power_w * one.gpus / max(1, fate.gpus)
        if one.kind != "dark":
            fate.pieces.append((one.from_s, until_s if one.to_s is None else one.to_s, one.gpus, watts))
    if fate.pieces:
        fate.start_s = fate.pieces[0][0]


def simulated_fates(
    setup: Setup,
    signals: Signals,
    arrivals: Sequence[Arrival],
    until_s: float,
    policy: str,
    running: Sequence[Seat] = (),
) -> list[Fate]:
    """Returns what would have become of jobs under a policy, if all took what the model says.

    Args:
        setup: Parts of the service.
        signals: Signals as they were known, history included.
        arrivals: Jobs in the order of their arrival.
        until_s: Time up to which it is played, s.
        policy: Policy.
        running: Jobs that hold GPUs at the beginning, numbered from 0 on, each with its start and run time.

    Raises:
        ScenarioError: The policy acts on running jobs.
    """
    scheduler = setup.scheduler(policy)
    zones = [site.zone for site in setup.scenario.fleet.sites]
    if scheduler.needs.levers and setup.scenario.fleet.freedoms:
        raise ScenarioError(
            f"{policy} acts on running jobs; what would have become of jobs is played with policies that do not; "
            "choose another policy"
        )
    brief, rng = setup.brief(scheduler.needs), stream(setup.config.seed, "forecast", 0)
    hours = Hours(signals, setup.start, zones, scheduler.needs.forecast, rng, brief.pue, prices=brief.prices)
    world = World(brief, scheduler, hours, stream(setup.config.seed, "policy", 0))
    fates = {one.job: Fate(one) for one in arrivals}
    world.restore(running, serial=len(running), place=0, now_s=None)
    for seat in running:
        world.finish(seat.serial, _end_s(seat))
    world.arrive(one._replace(held=False, pinned=-1, vetoed=frozenset()) for one in arrivals)
    each_slot = setup.scenario.protocol == "each-slot"
    while True:
        time_s = world.next_slot_s() if each_slot else world.next_event_s()
        if not (time_s <= until_s and math.isfinite(time_s)):
            break
        world.run_to(time_s)
        seats, _, notes = world.drain_changes()
        for seat in seats:
            if seat.state == STARTING and seat.freed_s is None:
                world.finish(seat.serial, _end_s(seat))
            if seat.about.job in fates:
                _take(fates[seat.about.job], seat)
        for note in notes:
            _take_journey(fates[note.job], note)
    for fate in fates.values():
        if fate.status == RUNNING and fate.end_s <= until_s:
            fate.status = DONE
    return list(fates.values())


def _end_s(seat: Seat) -> float:
    """Returns when a started job ends, s: by its work, whatever its scheduler was told of it."""
    return float(seat.start_s or 0.0) + float(seat.run_s or 0.0) * (seat.about.work / seat.about.expected)


def _take(fate: Fate, seat: Seat) -> None:
    """Takes over where a job stands."""
    if seat.state == DROPPED:
        fate.status = OVERDUE
    elif seat.state == STARTING and seat.freed_s is None:
        fate.status, fate.site, fate.gpus, fate.level = RUNNING, seat.site, seat.gpus, seat.level
        fate.start_s, fate.end_s, fate.power_w = float(seat.start_s or 0.0), _end_s(seat), float(seat.power_w or 0.0)


def _take_journey(fate: Fate, note: Note) -> None:
    if note.kind == "sent":
        fate.journeys.append((note.at_s, int(str(note.data["from"])), int(str(note.data["site"]))))


def outcome_of(setup: Setup, signals: Signals, fates: Sequence[Fate], hours: int) -> Outcome:
    """Returns what happened as the ledger takes it.

    Args:
        setup: Parts of the service.
        signals: Signals as they turned out, from the service's start on for as many hours at least.
        fates: Jobs in the order of their arrival, at least one.
        hours: Hours from the service's start that are accounted for; what lies after them is cut off.
    """
    until_s = hours * HOUR_S
    about = [fate.about for fate in fates]
    environment = environment_of(setup, signals, about, until_s, drained=False)
    job_J = np.zeros(len(fates), JOB_OUTCOME)
    for j, fate in enumerate(fates):
        moves = sum(1 for journey in fate.journeys if _is_move(setup, fate, journey))
        job_J[j] = (
            fate.status,
            fate.site,
            fate.gpus,
            fate.level,
            moves,
            np.nan,
            fate.start_s,
            fate.end_s,
            fate.power_w,
        )
    ran = [
        (j, fate.site, from_s, min(to_s, until_s), gpus, watts)
        for j, fate in enumerate(fates)
        for from_s, to_s, gpus, watts in fate.held
        if from_s < min(to_s, until_s)
    ]
    job_K, site_K, from_s_K, to_s_K, gpus_K, watts_K = zip(*ran, strict=True) if ran else ((),) * 6
    power = PowerSegments(
        site_K=np.array(site_K, np.int32),
        job_K=np.array(job_K, np.int32),
        from_s_K=np.array(from_s_K, np.float64),
        to_s_K=np.array(to_s_K, np.float64),
        watts_K=np.array(watts_K, np.float64),
        gpus_K=np.array(gpus_K, np.int32),
    )
    sites = len(setup.sites)
    zeros = np.zeros(sites)
    none: dict[str, Any] = {name: zeros if name.endswith("_S") else 0.0 for name in Meters.__annotations__}
    return Outcome(
        environment=environment,
        job_J=job_J,
        power=power,
        transfer_X=_transfers(setup, fates, until_s),
        over_cap_gpu_s_S=zeros,
        ended_s=until_s,
        steps=0,
        meters=Meters(**{**none, "events": 0}),
    )


def _is_move(setup: Setup, fate: Fate, journey: tuple[float, int, int]) -> bool:
    """Returns whether a journey carried data to another site."""
    _, left, site = journey
    home = setup.scenario.fleet.tables(1).home_I[fate.about.origin] if left < 0 else left
    return fate.about.move_gb > 0 and home != site


def _transfers(setup: Setup, fates: Sequence[Fate], until_s: float) -> Records:
    """Returns the journeys of jobs and results as TRANSFER records, those of a job in the order of time."""
    home_I = setup.scenario.fleet.tables(1).home_I.tolist()
    rows = []
    for j, fate in enumerate(fates):
        about = fate.about
        for at_s, left, site in fate.journeys:
            if _is_move(setup, fate, (at_s, left, site)):
                ingress = about.origin if left < 0 else home_I.index(left)
                rows.append((OWN_JOURNEY, j, ingress, site, about.move_gb, at_s))
        returns = fate.status == DONE and about.result_gb > 0 and home_I[about.origin] != fate.site
        if returns and fate.end_s < until_s:
            rows.append((RESULT, j, about.origin, fate.site, about.result_gb, fate.end_s))
    return np.array(rows, TRANSFER)


def environment_of(
    setup: Setup, signals: Signals | None, arrivals: Sequence[Arrival], window_s: float, *, drained: bool
) -> Environment:
    """Returns the environment that a service's jobs and signals are.

    Args:
        setup: Parts of the service.
        signals: Its signals, or None where it has none.
        arrivals: Its jobs in the order of their arrival, at least one.
        window_s: Whole hours from the service's start, s.
        drained: Whether jobs may start after them.
    """
    jobs = Jobs.build(
        arrival_s=np.array([one.arrival_s for one in arrivals]),
        work=np.array([one.work for one in arrivals]),
        origin=np.array([one.origin for one in arrivals]),
        class_=np.array([one.class_ for one in arrivals]),
        gpus_min=np.array([one.gpus_min for one in arrivals]),
        gpus_max=np.array([one.gpus_max for one in arrivals]),
        slack_s=np.array([one.max_delay_s for one in arrivals]),
        data_gb=np.array([one.move_gb for one in arrivals]),
        result_gb=np.array([one.result_gb for one in arrivals]),
    )
    setting = setup.setting(window_s=window_s, drained=drained)
    return Environment(
        **replace(setting, tenants=None, priorities=None).stated,  # what ran is only settled
        index=0,
        seed=setup.config.seed,
        jobs=jobs,
        signals=signals,
    )


class Day(msgspec.Struct, kw_only=True):
    """Jobs that arrived in 24 hours, counted from the service's start, and ended in fact and under the reference."""

    day: str
    """When the 24 hours begin, UTC."""
    jobs: int
    energy_kwh: float
    """Energy above idle, transfers included."""
    energy_usd: float
    carbon_kg: float
    wait_h: float
    """Mean time from submission to start, h."""
    reference_kwh: float
    reference_usd: float
    reference_kg: float
    reference_wait_h: float


class Interval(msgspec.Struct, kw_only=True):
    """A mean over days and the middle 95% of 2,000 draws of days with replacement; none with fewer than 3 days."""

    mean: float
    low: float | None
    high: float | None


class RunTimes(msgspec.Struct, kw_only=True):
    """How long jobs took at their clusters against what was expected of them, means over jobs, h."""

    jobs: int
    expected_h: float
    took_h: float
    mean_error_h: float
    """Mean of the absolute differences."""


class Savings(msgspec.Struct, kw_only=True):
    """What the service saved against the reference policy, day by day; in shadow, against what happened."""

    reference: str
    policy: str
    days: list[Day]
    left_out: int
    """Jobs that have not ended in fact, or would not have under the reference."""
    saved_usd_a_day: Interval
    saved_kg_a_day: Interval
    run_times: RunTimes | None
    """Of watched jobs, in shadow."""
    remark: str


def savings(controller: Controller, days: int = 7) -> Savings | None:
    """Returns what the service saved in the last days against the reference policy; None without signals or reference.

    Watched jobs are compared with what happened to them. Else the reference gets the same jobs at the same times, from
    an empty fleet at the first day's start, and every job takes what the model says. Both are settled by the ledger
    with the signals as they turned out.
    """
    setup, keeper = controller.setup, controller.keeper
    reference = setup.scenario.baseline
    if keeper is None or (reference is None and not controller.watchers):
        return None
    last_hour = keeper.last_hour
    if last_hour is None:
        return None
    # An hour that has just begun may not be stored yet: then the accounts end with the one before.
    now_s = min(controller.store.now_s(), (last_hour + 1) * HOUR_S)
    hours = min(int(now_s // HOUR_S), last_hour) + 1
    first_day_s = max(0.0, (now_s // DAY_S - days + 1) * DAY_S)
    own = stored_fates(controller, first_day_s, now_s)
    known, settled = keeper.signals(-HISTORY_H, hours), keeper.settled(0, hours)
    if controller.watchers:
        own, others = watched_fates(controller, own)
        named, remark = WHAT_HAPPENED, "nothing was moved: the service's jobs take as long as they took in fact"
    else:
        others = simulated_fates(setup, known, [fate.about for fate in own], now_s, str(reference)) if own else []
        named, remark = str(reference), f"{reference} is simulated from an empty fleet at the first day's start"
    rows, left_out = _days(setup, settled, own, others, hours) if own else ([], 0)
    return Savings(
        reference=named,
        policy=controller.policy,
        days=rows,
        left_out=left_out,
        saved_usd_a_day=_interval([day.reference_usd - day.energy_usd for day in rows]),
        saved_kg_a_day=_interval([day.reference_kg - day.carbon_kg for day in rows]),
        run_times=_run_times(others) if controller.watchers else None,
        remark=f"{remark}; power is that of the model",
    )


def watched_fates(controller: Controller, fates: Sequence[Fate]) -> tuple[list[Fate], list[Fate]]:
    """Returns what the service would have done with watched jobs, and what happened to them at their clusters."""
    happened = facts(controller.store, [fate.about.job for fate in fates])
    own = [fate for fate in fates if fate.about.job in happened]
    view, now_s = controller.world.view, controller.store.now_s()
    names = controller.names
    return own, [_fact(fate.about, happened[fate.about.job], now_s, view, names) for fate in own]


def _fact(about: Arrival, row: Row, now_s: float, view: ClusterView, names: Names) -> Fate:
    """Returns what happened to a watched job; its clock is taken to be that of least energy, as its power is."""
    fate = Fate(about)
    if row["start_s"] is not None:
        fate.status = RUNNING if row["end_s"] is None else DONE
        fate.site, fate.gpus, fate.power_w = names.site(row["site"]), row["gpus"], row["power_w"]
        fate.level = int(view.oracle_SCG[fate.site, about.class_, fate.gpus])
        fate.start_s, fate.end_s = row["start_s"], now_s if row["end_s"] is None else row["end_s"]
        fate.expected_s = row["expected_s"] * (about.expected / about.work)
    elif row["end_s"] is not None:
        fate.status = OVERDUE
    return fate


def _run_times(happened: Sequence[Fate]) -> RunTimes | None:
    """Returns how long jobs that ended took against what was expected; None if none has ended."""
    ended = [fate for fate in happened if fate.status == DONE]
    if not ended:
        return None
    took_J = np.array([fate.end_s - fate.start_s for fate in ended]) / HOUR_S
    expected_J = np.array([fate.expected_s for fate in ended]) / HOUR_S
    return RunTimes(
        jobs=len(ended),
        expected_h=float(expected_J.mean()),
        took_h=float(took_J.mean()),
        mean_error_h=float(np.abs(expected_J - took_J).mean()),
    )


def _days(
    setup: Setup, settled: Signals, own: Sequence[Fate], others: Sequence[Fate], hours: int
) -> tuple[list[Day], int]:
    """Returns a row per day of jobs that ended in both, and how many did not."""
    own_JA, other_JA = (amounts(setup, settled, fates, hours) for fates in (own, others))
    both_J = np.array([a.status == b.status == DONE for a, b in zip(own, others, strict=True)])
    day_J = np.array([int(fate.about.arrival_s // DAY_S) for fate in own])
    wait_J = [np.array([fate.start_s - fate.about.arrival_s for fate in fates]) / HOUR_S for fates in (own, others)]
    rows = []
    for number in sorted(set(day_J[both_J].tolist())):
        of_day_J = both_J & (day_J == number)
        waits = [float(one_J[of_day_J].mean()) for one_J in wait_J]
        sums = [amounts_JA[of_day_J].sum(axis=0) for amounts_JA in (own_JA, other_JA)]
        rows.append(_day(setup, number, int(of_day_J.sum()), sums, waits))
    return rows, int((~both_J).sum())


def amounts(setup: Setup, signals: Signals, fates: Sequence[Fate], hours: int) -> F8:
    """Returns kWh, USD and kgCO2 per job above those of idle GPUs, transfers included."""
    settled: SettledRun = settle_run(outcome_of(setup, signals, fates, hours))
    beyond = settled.power.job_JA - settled.power.displaced_JA + settled.move_JA + settled.result_JA
    return np.asarray(beyond[:, :3])


def _day(setup: Setup, number: int, jobs: int, sums: Sequence[F8], waits: Sequence[float]) -> Day:
    """Returns a day from kWh, USD and kgCO2 of both sides, and their mean waits, h."""
    own, other = sums
    return Day(
        day=f"{setup.start + timedelta(hours=number * DAY_H):%Y-%m-%d %H:%M}",
        jobs=jobs,
        energy_kwh=float(own[0]),
        energy_usd=float(own[1]),
        carbon_kg=float(own[2]),
        wait_h=waits[0],
        reference_kwh=float(other[0]),
        reference_usd=float(other[1]),
        reference_kg=float(other[2]),
        reference_wait_h=waits[1],
    )


def _interval(values: Sequence[float]) -> Interval:
    if not values:
        return Interval(mean=0.0, low=None, high=None)
    array = np.array(values)
    if len(array) < 3:
        return Interval(mean=float(array.mean()), low=None, high=None)
    draws = stream(0, "world", "days").integers(len(array), size=(DRAWS, len(array)))
    low, high = np.percentile(array[draws].mean(axis=1), [2.5, 97.5])
    return Interval(mean=float(array.mean()), low=float(low), high=float(high))
