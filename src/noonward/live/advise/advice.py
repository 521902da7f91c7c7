"""Advice: each waiting job under a policy and under the reference, from the queue as it is and prices as forecast."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.decision.cluster.forecasts import ForecastIssuer
from noonward.errors import DataError, ScenarioError, SignalRangeError, nearest
from noonward.forecasts.forecast import Forecast
from noonward.ledger.segments import DONE
from noonward.live.accounts import Fate, amounts, simulated_fates
from noonward.live.advise.squeue import QueuedJob
from noonward.live.config import LiveConfig, ModelSite
from noonward.live.grid.keeper import HISTORY_H, PUBLISHED_H
from noonward.live.grid.sources import source_of
from noonward.live.known_jobs import KnownJobs, MetJob, known_jobs
from noonward.live.setup import Setup
from noonward.live.world.seats import STARTING, Arrival, Seat
from noonward.model.cluster.lateness import Lateness
from noonward.model.cluster.scenario import Scenario
from noonward.model.signals import CARBON_NAME, PRICE_NAME, Signals
from noonward.seeding import stream
from noonward.units import HOUR_S

NO_LIMIT: Final = "it has no time limit, and nothing else says how long it runs"
LONGEST_QUEUE_H: Final = 14 * 24
"""Hours from now on that are played; a job that has not ended by then gets no advice."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the queue does not say.

    Attributes:
        policy: Policy that is asked.
        reference: Policy that savings are measured against.
        now: UTC time of the queue.
        at: Site that the queues belong to; None: clusters and partitions are named as sites.
        class_: Class of the jobs; None: the fleet's only one.
        later_h: How much later than under the reference a job may start, h.
        run_share: Run time over time limit; None: 1, or what the scenario says that policies are told.
        history: Log of past jobs to learn run times from; None: that of the scenario.
        run_h: Run time of jobs without a time limit, h; None: such a job is an error.
    """

    policy: str
    reference: str
    now: datetime
    at: str | None = None
    class_: str | None = None
    later_h: float = 24.0
    run_share: float | None = None
    history: Path | None = None
    run_h: float | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """Advice on a waiting job.

    Attributes:
        job: The job.
        home: Site whose queue it is in.
        site: Site where it should run; None: no advice.
        start: When it should start, UTC.
        run_s: Expected run time, s.
        saved_usd: What that saves against the reference, USD at forecast prices; None: it cannot be said.
        saved_kg: What that saves, kgCO2.
        reason: Why.
    """

    job: QueuedJob
    home: str
    site: str | None
    start: datetime | None
    run_s: float | None
    saved_usd: float | None
    saved_kg: float | None
    reason: str

    @property
    def moved(self) -> bool:
        """Whether it should run at another site."""
        return self.site is not None and self.site != self.home


@dataclass(frozen=True)
class Advice:
    """Advice on a queue.

    Attributes:
        rows: A row per waiting job, in the order of the queue.
        notes: What it rests on.
    """

    rows: list[Row]
    notes: list[str]


def advise(scenario: Scenario, jobs: Sequence[QueuedJob], options: Options) -> Advice:
    """Returns where and when each waiting job would run under a policy, and what that saves.

    The policy is asked as the live service asks it: the same scheduler object over the same views, from the GPUs that
    running jobs hold, slot by slot, with prices and intensities taking the values that are forecast now. Future
    arrivals are ignored. The reference is played in the same way from the same queue.

    Raises:
        ScenarioError: The scenario, the policy or an option does not fit.
        DataError: A job does not fit the fleet.
        SignalRangeError: Prices or intensities of the last two days are not known.
    """
    waiting = [job for job in jobs if not job.running and not job.not_now]
    homes = {id(job): _home(scenario, job, options.at) for job in jobs}
    setup = _setup(scenario, options, waiting)
    now_s = (options.now - setup.start).total_seconds()
    slot_s = scenario.slot_s
    class_ = _class_of(setup, options) if waiting else 0
    expected, notes = _expected(setup, [*waiting, *(job for job in jobs if job.running)], class_, options)
    unknown = {id(job) for job in waiting if id(job) not in expected}
    waiting = [job for job in waiting if id(job) not in unknown]
    running = _running(setup, jobs, homes, expected, now_s)
    arrivals = [
        _arrival(setup, job, homes[id(job)], class_, n, now_s, expected[id(job)]) for n, job in enumerate(waiting)
    ]
    longest_h = max((one.work / HOUR_S for one in arrivals), default=0.0)
    hours = LONGEST_QUEUE_H + math.ceil(longest_h) + 1
    signals = assumed_signals(setup, options, hours)
    until_s = LONGEST_QUEUE_H * HOUR_S
    others = simulated_fates(setup, signals, arrivals, until_s, options.reference, running)
    patient = [
        one._replace(max_delay_s=_delay_s(other, now_s, slot_s) + options.later_h * HOUR_S)
        for one, other in zip(arrivals, others, strict=True)
    ]
    fates = simulated_fates(setup, signals, patient, until_s, options.policy, running)
    advised = _rows(setup, signals, waiting, homes, fates, others, hours) if waiting else []
    by_job = {id(row.job): row for row in advised}
    rows = [
        by_job.get(id(job)) or _no_advice(job, homes[id(job)], NO_LIMIT if id(job) in unknown else job.not_now)
        for job in jobs
        if not job.running
    ]
    if unknown:
        notes.append(
            f"{len(unknown)} waiting jobs have no time limit: they are left out, and take no GPUs here; --run-hours "
            "says how long such jobs run"
        )
    return Advice(rows, _notes(setup, options, notes))


def _home(scenario: Scenario, job: QueuedJob, at: str | None) -> str:
    """Returns the site whose queue a job is in."""
    sites = scenario.fleet.site_names
    if at is not None:
        if at not in sites:
            raise ScenarioError(f"--at names the unknown site {at!r}; {nearest(at, sites)}")
        return at
    named = [name for name in (job.cluster, job.partition) if name in sites]
    if named:
        return str(named[0])
    if len(sites) == 1:
        return sites[0]
    where = f"cluster {job.cluster!r}" if job.cluster else "no cluster"
    raise ScenarioError(
        f"job {job.id} is of {where} and partition {job.partition!r}, and neither is a site of {scenario.name!r} "
        f"({', '.join(sites)}); say whose queue it is: --at SITE, or --queue SITE=FILE for several"
    )


def _setup(scenario: Scenario, options: Options, waiting: Sequence[QueuedJob]) -> Setup:
    """Returns what the policies are asked with: the fleet as it is, and nothing that runs.

    ``--later-h`` is a promise, so no job may start after it, whatever the scenario's rule of lateness.
    """
    scenario = scenario.model_copy(update={"lateness": Lateness()})
    largest = max((job.gpus for job in waiting), default=1)
    config = LiveConfig(
        scenario=scenario.name,
        policy=options.policy,
        sites={name: ModelSite(executor="model") for name in scenario.fleet.site_names},
        largest_gang=largest,
    )
    start = options.now.replace(minute=0, second=0, microsecond=0)
    source = source_of(scenario, start - timedelta(hours=HISTORY_H), HISTORY_H + 1, config.seed)
    if source is None:
        raise ScenarioError(f"scenario {scenario.name!r} has no signals; give prices and intensities (docs/data.md)")
    setup = Setup(config=config, scenario=scenario, start=start, executors=(), source=source)
    setup.scheduler(options.policy)
    setup.scheduler(options.reference)
    return setup


def _class_of(setup: Setup, options: Options) -> int:
    """Returns the class of the queue's jobs, whose run time must not depend on the clock or the gang."""
    fleet = setup.scenario.fleet
    names = fleet.classes
    if options.class_ is None and len(names) > 1:
        raise ScenarioError(f"the fleet has the classes {', '.join(names)}; say which the jobs are of: --class")
    name = options.class_ or names[0]
    if name not in names:
        raise ScenarioError(f"unknown class {name!r}; {nearest(name, names)}")
    if any(name in kind.classes and kind.classes[name].time != "duration" for kind in fleet.gpu_types.values()):
        raise ScenarioError(
            f"jobs of class {name!r} have work in units, which a queue does not tell; use a class with 'time: duration'"
        )
    return names.index(name)


@dataclass(frozen=True)
class _Expected:
    """What is expected of a job.

    Attributes:
        left_s: How much longer it runs, s.
        told: What the policy is told of a waiting job's work (``Arrival.told``); empty: that.
    """

    left_s: float
    told: tuple[float, ...] = ()


def _expected(
    setup: Setup, jobs: Sequence[QueuedJob], class_: int, options: Options
) -> tuple[dict[int, _Expected], list[str]]:
    """Returns what is expected of each job (by ``id``), and what that rests on.

    Where the scenario tells policies of run times and no share of the limits is asked for, the policy is told the same
    of a waiting job as by a service, which books a quantile and weighs by the mean; the job is taken to run for that
    mean. A running job is taken to hold its GPUs for the quantile of the jobs that ran for as long.

    A waiting job without a limit of which nothing else says how long it runs is left out.

    Raises:
        DataError: The log cannot be read.
    """
    known = None
    if options.run_share is None:
        known = known_jobs(setup.scenario, options.now, options.history, setup.config.largest_gang)
    met = [MetJob(class_, job.gpus, job.user, job.name, job.limit_s) for job in jobs]
    if isinstance(known, KnownJobs):
        return _learned(known, setup, jobs, met)
    share = 1.0 if options.run_share is None else options.run_share
    if known is None:
        left = {id(job): _of_limit_s(job, share, options) for job in jobs}
        return {key: _Expected(left_s) for key, left_s in left.items() if left_s is not None}, _limit_notes(jobs, share)
    out = {}
    for job, one, told in zip(jobs, met, known.told(met), strict=True):
        age_s = _age_s(job)
        left_s = known.expected(one, age_s) - age_s
        if math.isfinite(left_s):
            out[id(job)] = _Expected(left_s, told)
        elif (of_limit_s := _of_limit_s(job, 1.0, options)) is not None:
            out[id(job)] = _Expected(of_limit_s)
    if setup.scenario.jobs.knowledge.run_time == "limit":
        return out, _limit_notes(jobs, 1.0)
    return out, [f"every job is taken to run as long as the mean of its class in {known.learned} jobs of the log"]


def _learned(
    known: KnownJobs, setup: Setup, jobs: Sequence[QueuedJob], met: Sequence[MetJob]
) -> tuple[dict[int, _Expected], list[str]]:
    """Returns what is expected of each job by what a log says, and what that rests on; see ``_expected``."""
    learned = len(known.model.traits)
    rows, age_J = known.meet(met), np.array([_age_s(job) for job in jobs])
    left_J = np.maximum(known.expected(rows, age_J) - age_J, 1.0) if len(jobs) else age_J
    limit_J = np.array([math.inf if job.left_s is None else max(job.left_s, 1.0) for job in jobs])
    told = known.told(rows) if len(jobs) else []
    out = {
        id(job): _Expected(left_s) if job.running else _Expected(max(each[0], 1.0), each)
        for job, left_s, each in zip(jobs, np.minimum(left_J, limit_J).tolist(), told, strict=True)
    }
    share = setup.scenario.jobs.knowledge.quantile
    return out, [
        f"run times are learned from {learned} jobs of the log that were submitted before now: GPUs are kept for as "
        f"long as {share:.0%} of similar jobs take, savings are those of the mean run time; limits cap both"
    ]


def _age_s(job: QueuedJob) -> float:
    """Returns how long a job has run, s; 0 where the queue does not say it."""
    if not job.running or job.limit_s is None or job.left_s is None:
        return 0.0
    return max(job.limit_s - job.left_s, 0.0)


def _of_limit_s(job: QueuedJob, share: float, options: Options) -> float | None:
    """Returns how much longer a job runs, s, at a share of its time limit; one that runs without a limit runs on.

    None of a waiting job of which nothing is known.
    """
    if job.left_s is not None:
        return max(job.left_s * share, 1.0)
    if job.running:
        return (LONGEST_QUEUE_H + 1) * HOUR_S
    return None if options.run_h is None else options.run_h * HOUR_S


def _limit_notes(jobs: Sequence[QueuedJob], share: float) -> list[str]:
    """Returns what the advice rests on where run times are taken from time limits."""
    notes = []
    if share == 1.0:
        notes.append("every job is taken to run as long as its time limit; --run-share 0.5 takes half of it")
    endless = sum(job.running and job.left_s is None for job in jobs)
    if endless:
        notes.append(f"{endless} running jobs have no time limit and are taken to hold their GPUs throughout")
    return notes


def _arrival(
    setup: Setup, job: QueuedJob, home: str, class_: int, number: int, now_s: float, expected: _Expected
) -> Arrival:
    """Returns a waiting job as it arrives now at its site, with what is expected of it.

    Raises:
        DataError: No site has as many GPUs.
    """
    fleet = setup.scenario.fleet
    tables = fleet.tables(1)
    sites = [s for s in range(len(setup.sites)) if tables.range_CS[class_, s]]
    most = max((int(tables.gpus_S[s]) for s in sites), default=0)
    if job.gpus > most:
        raise DataError(f"job {job.id} asks for {job.gpus} GPUs; the largest site of the fleet has {most}")
    return Arrival(
        job=number,
        attempt=0,
        arrival_s=now_s,
        origin=_ingress(setup, home),
        class_=class_,
        gpus_min=job.gpus,
        gpus_max=job.gpus,
        work=expected.left_s,
        max_delay_s=math.inf,
        move_gb=0.0,
        result_gb=0.0,
        told=expected.told,
    )


def _ingress(setup: Setup, home: str) -> int:
    """Returns the ingress point of a site."""
    site = setup.sites.index(home)
    homes = setup.scenario.fleet.tables(1).home_I.tolist()
    if site not in homes:
        raise ScenarioError(f"no ingress point of the fleet is at {home}; add one (docs/data.md)")
    return int(homes.index(site))


def _running(
    setup: Setup, jobs: Sequence[QueuedJob], homes: Mapping[int, str], expected: Mapping[int, _Expected], now_s: float
) -> list[Seat]:
    """Returns the jobs that hold GPUs, as they stand in the books.

    Raises:
        DataError: They hold more GPUs than their site has.
    """
    seats: list[Seat] = []
    gpus_S = setup.scenario.fleet.tables(1).gpus_S
    held_S = np.zeros(len(setup.sites), np.int64)
    for job in jobs:
        if not job.running:
            continue
        site = setup.sites.index(homes[id(job)])
        held_S[site] += job.gpus
        about = Arrival(-1, 0, 0.0, 0, 0, job.gpus, job.gpus, 1.0, math.inf, 0.0, 0.0)
        number = len(seats)
        seats.append(
            Seat.of(
                about, number, number, state=STARTING, site=site, place=number, gpus=job.gpus, level=0, start_s=0.0,
                run_s=now_s + expected[id(job)].left_s,
            )
        )  # fmt: skip
    for s in np.flatnonzero(held_S > gpus_S).tolist():
        raise DataError(
            f"running jobs hold {held_S[s]} GPUs at {setup.sites[s]}, which has {gpus_S[s]} in the scenario; correct "
            "the scenario, or say whose queue it is (--at SITE, --queue SITE=FILE)"
        )
    return seats


def assumed_signals(setup: Setup, options: Options, hours: int) -> Signals:
    """Returns the last two days as they are known, and the hours from the next one on as they are forecast now.

    Raises:
        SignalRangeError: An hour of the last two days is not known.
    """
    assert setup.source is not None
    start = setup.start - timedelta(hours=HISTORY_H)
    known = setup.source.fetch(setup.zones, start, HISTORY_H + 1)
    for name in (PRICE_NAME, CARBON_NAME):
        z, h = (index[0] if len(index) else -1 for index in np.nonzero(np.isnan(known.of(name))))
        if h >= 0:
            raise SignalRangeError(
                f"{name} of zone {setup.zones[z]} is not known at {start + timedelta(hours=int(h)):%Y-%m-%d %H:%M} "
                f"UTC; advice needs the {HISTORY_H} hours before {options.now:%Y-%m-%d %H:%M} UTC and that one: bring "
                "the signal files up to date, or say when the queue was made (--now)"
            )
    zones = list(setup.zones)
    known = replace(known, day_ahead=setup.scenario.day_ahead)
    issuer = ForecastIssuer(_forecast(setup, options), known, setup.start, zones, stream(0, "forecast", 0))
    ahead = setup.source.published(setup.zones, setup.start + timedelta(hours=1), PUBLISHED_H)
    issuer.publish(0, ahead.price_usd_per_mwh_ZH)
    sums_KISL = np.zeros((2, 1, len(zones), hours + 1))
    issuer.issue(0, sums_KISL)
    later_KZH: F8 = np.diff(sums_KISL[:, 0], axis=2)[:, :, 1:] / HOUR_S
    value_ZH = {
        name: np.concatenate([known.of(name), later_KZH[k]], axis=1) for k, name in enumerate((PRICE_NAME, CARBON_NAME))
    }
    return Signals(start=start, zones=setup.zones, value_ZH=value_ZH, day_ahead=known.day_ahead)


def _forecast(setup: Setup, options: Options) -> Forecast:
    """Returns the forecast that the policy plans by, with published prices; persistence for one that is given none."""
    own = setup.scheduler(options.policy).needs.forecast or Forecast(kind="persistence")
    return own.with_published


def _delay_s(fate: Fate, now_s: float, slot_s: float) -> float:
    """Returns the delay of a job's start under the reference, s; a slot for one that could start at once."""
    start_s = LONGEST_QUEUE_H * HOUR_S if math.isnan(fate.start_s) else fate.start_s
    return max(start_s - now_s, slot_s)


def _rows(
    setup: Setup,
    signals: Signals,
    waiting: Sequence[QueuedJob],
    homes: Mapping[int, str],
    fates: Sequence[Fate],
    others: Sequence[Fate],
    hours: int,
) -> list[Row]:
    known = signals.window(setup.start, hours)
    fact_JA, other_JA = (amounts(setup, known, each, hours) for each in (_whole(fates), _whole(others)))
    rows = []
    for j, (job, fate, other) in enumerate(zip(waiting, fates, others, strict=True)):
        home = homes[id(job)]
        if math.isnan(fate.start_s):
            rows.append(_no_advice(job, home, "the policy starts it nowhere within its delay: it stays as it is"))
            continue
        compared = not math.isnan(other.start_s)
        rows.append(
            Row(
                job=job,
                home=home,
                site=setup.sites[fate.site],
                start=setup.start + timedelta(seconds=fate.start_s),
                run_s=fate.end_s - fate.start_s,
                saved_usd=float(other_JA[j, 1] - fact_JA[j, 1]) if compared else None,
                saved_kg=float(other_JA[j, 2] - fact_JA[j, 2]) if compared else None,
                reason=_reason(setup, known, fate, other),
            )
        )
    return rows


def _whole(fates: Sequence[Fate]) -> list[Fate]:
    """Returns fates of which those that started count as done: they are accounted for to their ends."""
    for fate in fates:
        if not math.isnan(fate.start_s):
            fate.status = DONE
    return list(fates)


def _no_advice(job: QueuedJob, home: str, reason: str) -> Row:
    return Row(
        job=job, home=home, site=None, start=None, run_s=None, saved_usd=None, saved_kg=None, reason=reason
    )  # fmt: skip


def _reason(setup: Setup, signals: Signals, fate: Fate, other: Fate) -> str:
    """Returns why a job should run where and when it should, against what would happen otherwise."""
    if math.isnan(other.start_s):
        return f"under the baseline it would not start within {LONGEST_QUEUE_H // 24} days"
    if (fate.site, fate.start_s) == (other.site, other.start_s):
        return "as it would run anyway"
    price, carbon = _means(setup, signals, fate)
    other_price, other_carbon = _means(setup, signals, other)
    hours = (fate.start_s - other.start_s) / HOUR_S
    late = f"{abs(hours):.1f} h {'later' if hours > 0 else 'earlier'}"
    when = late if abs(hours) >= 0.05 else "at the same time"
    where = f"at {setup.sites[fate.site]}, " if fate.site != other.site else ""
    then = f"{price:.0f} instead of {other_price:.0f} USD/MWh, {carbon:.0f} instead of {other_carbon:.0f} g/kWh"
    return f"{where}{when}: {then}"


def _means(setup: Setup, signals: Signals, fate: Fate) -> tuple[float, float]:
    """Returns the mean price and carbon intensity of a run."""
    zone = signals.zone_index(setup.scenario.fleet.sites[fate.site].zone)
    first, last = int(fate.start_s // HOUR_S), math.ceil(fate.end_s / HOUR_S)
    hour_H = np.arange(first, last)
    share_H = np.minimum((hour_H + 1) * HOUR_S, fate.end_s) - np.maximum(hour_H * HOUR_S, fate.start_s)
    price, carbon = (
        float(np.average(signals.of(name)[zone, first:last], weights=share_H)) for name in (PRICE_NAME, CARBON_NAME)
    )
    return price, carbon


def _notes(setup: Setup, options: Options, run_times: Sequence[str]) -> list[str]:
    """Returns what the advice rests on."""
    kind = _forecast(setup, options).kind
    notes = [
        f"prices and intensities of the hours after {options.now:%Y-%m-%d %H:00} UTC are forecast ({kind}); savings "
        f"are those at the forecast, against {options.reference}",
        "future arrivals are ignored",
    ]
    return [*notes, *run_times]
