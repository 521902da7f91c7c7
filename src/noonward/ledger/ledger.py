"""The ledger of a run: energy, money, carbon and utility, what no policy can change apart from what it can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, TypeVar

import numpy as np

from noonward.arrays import F8
from noonward.ledger.interruptions import Interruptions, failed_amounts, interruptions_of, late_s_of
from noonward.ledger.meters import MeterLines, read_meters
from noonward.ledger.segments import DONE, FAILED, OVERDUE, Outcome, PowerSegments
from noonward.ledger.settle import SettledPower, settle_power, settle_transfers
from noonward.ledger.utility import utility_usd
from noonward.ledger.withheld import standing_power, switched_off
from noonward.model.cluster.books import CarbonBooks
from noonward.model.cluster.event import EventTotals
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.water import WaterUse
from noonward.model.signals import SiteSignals
from noonward.paging import column, parts, summed
from noonward.units import HOUR_S, WATT_SECONDS_PER_KWH

T = TypeVar("T")
SITE_PARTS: Final[dict[str, Any]] = {
    "meters": MeterLines,
    "events": EventTotals,
    "books": CarbonBooks,
    "water": WaterUse,
}
"""Parts that hold lines by site, and what a site's lines are."""
PARTS: Final = ("further", "interruptions", *SITE_PARTS)
"""Fields of a ledger that are no numbers."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """What a run used of a further signal, e.g. litres of water; NaN where the signal is unknown.

    Attributes:
        job: Through the power of jobs.
        free: Through the power of free GPUs over the window.
        move: Through the journeys of jobs.
        result: Through the journeys of results.
        fixed: Through a fleet that stays free all through the window: no policy changes it.
    """

    job: float
    free: float
    move: float
    result: float
    fixed: float

    @property
    def total(self) -> float:
        """Jobs, free GPUs and journeys together."""
        return self.job + self.free + self.move + self.result


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What a run used, earned, cost and emitted. Money and carbon are NaN without signals, utility without economics.

    U = U1 - U2 - U3 - U4 - U5 (MASAC, Eqs. 2-7): GPU profit (revenue less energy), energy of free GPUs, carbon of used
    and free GPUs, journeys of jobs, journeys of results; less the prices of lateness and of waiting, and what tariffs
    add, where a scenario has them.

    Attributes:
        jobs: Jobs of the environment.
        done: Jobs that finished.
        overdue: Jobs that could not start in time.
        unfinished: Jobs that ran, waited, travelled or were still to come when the run ended.
        moves: Journeys of jobs with their data.
        gpu_hours: GPU-hours of jobs.
        over_cap_gpu_hours: GPU-hours by which use exceeded the capacity curves; 0 without curves.
        units: Units of work processed; running jobs pro rata.
        job_kwh: Facility energy of jobs, kWh.
        free_kwh: Facility energy of free GPUs over the window, kWh.
        move_kwh: Energy of journeys of jobs and results, kWh.
        revenue_usd: alpha x GPU-hours, USD.
        job_energy_usd: Energy of jobs, USD.
        free_energy_usd: Energy of free GPUs, USD.
        job_kg: Emissions of jobs, kgCO2.
        free_kg: Emissions of free GPUs, kgCO2.
        move_usd: Journeys of jobs, USD (without their carbon).
        move_kg: Their emissions, kgCO2.
        result_usd: Journeys of results, USD.
        result_kg: Their emissions, kgCO2.
        carbon_usd: Carbon price of all emissions, USD.
        utility_usd: Utility, USD.
        fixed_usd: Energy and carbon of a fleet that stays free all through the window, USD: no policy changes it.
        fixed_kwh: Its energy, kWh.
        fixed_kg: Its emissions, kgCO2.
        mean_wait_s: Mean time from arrival to start of done jobs, s; NaN without any.
        mean_time_in_system_s: Mean time from arrival to finish of done jobs, s.
        p99_time_in_system_s: Its 99th percentile, s.
        mean_time_so_far_s: Mean over all arrivals but overdue jobs of min(end, run's end) - arrival, s: the mean that
            the latency-aware bound holds for, also where queues grow.
        steps: Questions asked.
        late_gpu_hours: Hours that jobs started after arrival + slack, times their smallest gangs, GPU h.
        late_usd: Price of that, USD; NaN without economics.
        waiting_usd: Price of the hours that jobs waited between arrival and start, USD; 0 where they have none.
        standing_kwh: Facility energy of jobs that were running before the run, until they end, kWh: the same under
            every policy, and in no other figure.
        standing_usd: Its cost, USD.
        standing_kg: Its emissions, kgCO2.
        tariff_usd: What bills of metered sites add to energy at its price: base loads, peaks, blocks, fixed charges and
            energy above connections, penalties of grid events less their payments, and contracts for plants, USD; 0
            without meters.
        failed: Jobs that failed for good; they are neither done nor unfinished.
        failures: How often running jobs failed, those failures included.
        failed_gpu_hours: Useful GPU-hours that jobs ran which failed for good: lost work, no part of ``gpu_hours``.
        failed_kwh: Their facility energy, kWh, within that of jobs.
        failed_usd: Its price, USD; NaN without signals.
        failed_kg: Its emissions, kgCO2; NaN without signals.
        further: Accounts of signals beside price and carbon intensity, by the name of their total, e.g. ``water_l``.
        interruptions: What suspending and capping jobs took; None where no scheduler was asked about running jobs.
        meters: What meters read, by site; empty where no site has one.
        events: Grid events in sum, by site; empty where no site has one.
        books: Carbon books by site; empty where no site has a contract for a plant's output.
        water: Water by site; empty where no site states any.
    """

    jobs: int
    done: int
    overdue: int
    unfinished: int
    moves: int
    gpu_hours: float
    over_cap_gpu_hours: float
    units: float
    job_kwh: float
    free_kwh: float
    move_kwh: float
    revenue_usd: float
    job_energy_usd: float
    free_energy_usd: float
    job_kg: float
    free_kg: float
    move_usd: float
    move_kg: float
    result_usd: float
    result_kg: float
    carbon_usd: float
    utility_usd: float
    fixed_usd: float
    fixed_kwh: float
    fixed_kg: float
    mean_wait_s: float
    mean_time_in_system_s: float
    p99_time_in_system_s: float
    mean_time_so_far_s: float
    steps: int
    late_gpu_hours: float
    late_usd: float
    waiting_usd: float = 0.0
    standing_kwh: float = 0.0
    standing_usd: float = 0.0
    standing_kg: float = 0.0
    tariff_usd: float = 0.0
    failed: int = 0
    failures: int = 0
    failed_gpu_hours: float = 0.0
    failed_kwh: float = 0.0
    failed_usd: float = 0.0
    failed_kg: float = 0.0
    further: dict[str, Account] = field(default_factory=dict)
    interruptions: Interruptions | None = None
    meters: dict[str, MeterLines] = field(default_factory=dict)
    events: dict[str, EventTotals] = field(default_factory=dict)
    books: dict[str, CarbonBooks] = field(default_factory=dict)
    water: dict[str, WaterUse] = field(default_factory=dict)

    @property
    def energy_kwh(self) -> float:
        """Facility energy of the fleet, kWh."""
        return self.job_kwh + self.free_kwh

    @property
    def energy_usd(self) -> float:
        """Energy of the fleet, USD."""
        return self.job_energy_usd + self.free_energy_usd

    @property
    def carbon_kg(self) -> float:
        """Emissions of fleet and journeys, kgCO2."""
        return self.job_kg + self.free_kg + self.move_kg + self.result_kg

    @property
    def total_usd(self) -> float:
        """Energy, tariffs, carbon, journeys, lateness and waiting at their prices, USD; NaN without economics."""
        paid = self.energy_usd + self.tariff_usd + self.move_usd + self.result_usd
        return paid + self.carbon_usd + self.late_usd + self.waiting_usd

    @property
    def controllable_usd(self) -> float:
        """Utility apart from what no policy can change, USD."""
        return self.utility_usd + self.fixed_usd

    @property
    def usd_per_gpu_hour(self) -> float:
        """Energy of the jobs per GPU-hour, USD (MASAC, Fig. 6c); NaN without any."""
        return self.job_energy_usd / self.gpu_hours if self.gpu_hours else float("nan")

    @property
    def g_per_gpu_hour(self) -> float:
        """Emissions of the jobs per GPU-hour, gCO2 (MASAC, Fig. 6d); NaN without any."""
        return 1000.0 * self.job_kg / self.gpu_hours if self.gpu_hours else float("nan")

    @property
    def joules_per_unit(self) -> float:
        """Fleet energy per unit of work processed, J per unit: the exact figure."""
        return self.energy_kwh * WATT_SECONDS_PER_KWH / self.units if self.units else float("nan")

    @property
    def usd_per_unit(self) -> float:
        """Energy cost of the fleet per unit of work processed, USD per unit; NaN without signals."""
        return self.energy_usd / self.units if self.units else float("nan")

    @property
    def g_per_unit(self) -> float:
        """Emissions of fleet and journeys per unit of work processed, gCO2 per unit; NaN without signals."""
        return 1000.0 * self.carbon_kg / self.units if self.units else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """Returns all fields and derived figures, NaN as None.

        ``further`` only where there is a further signal, what is kept by site (``SITE_PARTS``) where there is any,
        ``waiting_usd`` only where waiting cost something, figures of standing jobs and of failures only where there are
        any, ``interruptions`` only where running jobs could be stopped, and no ``total_usd``, which is a sum of others.
        """
        derived = {name: getattr(self, name) for name, value in vars(type(self)).items() if isinstance(value, property)}
        content = {**asdict(self), **derived}
        del content["total_usd"]
        for name in MAY_LACK:
            if not content[name]:
                del content[name]
        further = content.pop("further")
        if further:
            content["further"] = {name: _none_for_nan(account) for name, account in further.items()}
        interruptions = content.pop("interruptions")
        if interruptions is not None:
            content["interruptions"] = _none_for_nan(interruptions)
        for part in SITE_PARTS:
            if by_site := content.pop(part):
                content[part] = {name: _none_for_nan(lines) for name, lines in by_site.items()}
        return _none_for_nan(content)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Ledger:
        """Returns a ledger from what ``as_dict`` returned."""
        names = [one.name for one in fields(cls) if one.name not in PARTS]
        values: dict[str, Any] = _nan_for_none(
            {name: content[name] for name in names if name in content or name not in MAY_LACK}
        )
        further = {name: Account(**_nan_for_none(one)) for name, one in content.get("further", {}).items()}
        taken = content.get("interruptions")
        interruptions = None if taken is None else Interruptions(**_nan_for_none(taken))
        by_site: dict[str, Any] = {
            part: {name: lines(**_nan_for_none(one)) for name, one in content.get(part, {}).items()}
            for part, lines in SITE_PARTS.items()
        }
        return cls(**values, further=further, interruptions=interruptions, **by_site)

    @classmethod
    def mean(cls, ledgers: Sequence[Ledger]) -> Ledger:
        """Returns the means of all fields; of counts too, which are then no whole numbers."""
        names = [one.name for one in fields(cls) if one.name not in PARTS]
        means: dict[str, Any] = {name: _mean([getattr(one, name) for one in ledgers]) for name in names}
        further = _mean_parts(Account, [one.further for one in ledgers])
        taken = [one.interruptions for one in ledgers if one.interruptions is not None]
        interruptions = None
        if taken:
            interruptions = _mean_of(Interruptions, taken)
        by_site: dict[str, Any] = {
            part: _mean_parts(lines, [getattr(one, part) for one in ledgers]) for part, lines in SITE_PARTS.items()
        }
        return cls(**means, further=further, interruptions=interruptions, **by_site)


MAY_LACK: Final = (
    *("waiting_usd", "standing_kwh", "standing_usd", "standing_kg", "tariff_usd", "failed", "failures"),
    *("failed_gpu_hours", "failed_kwh", "failed_usd", "failed_kg"),
)
"""Figures that are 0 where a scenario does not state what they count; they are then left out of files."""


def _mean(values: Sequence[Any]) -> float:
    return float(np.mean(values))


def _mean_of(kind: type[T], each: Sequence[T]) -> T:
    """Returns the means of all fields of some parts of ledgers."""
    names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: _mean([getattr(one, name) for one in each]) for name in names})


def _mean_parts(kind: type[T], parts: Sequence[dict[str, T]]) -> dict[str, T]:
    """Returns the means of parts that ledgers hold by name, over those ledgers that hold one of the name."""
    names = dict.fromkeys(name for one in parts for name in one)
    return {name: _mean_of(kind, [one[name] for one in parts if name in one]) for name in names}


def _none_for_nan(content: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and np.isnan(value) else value for name, value in content.items()}


def _nan_for_none(content: dict[str, Any]) -> dict[str, Any]:
    return {name: float("nan") if value is None else value for name, value in content.items()}


@dataclass(frozen=True, kw_only=True)
class SettledRun:
    """All that happened in a run, settled per job. Axes: J jobs, A amounts: kWh, then the total of each signal.

    Attributes:
        signals: Signals at the sites; they name the amounts.
        power: Power of the jobs, their stops, loads and lost runs included; GPU-seconds without these.
        move_JA: Their own journeys.
        result_JA: Journeys of their results.
        fixed_A: A fleet that stays free all through the window.
        free_A: GPUs that are free: of the fixed amount what jobs do not displace.
        standing_A: Jobs that were running before the run.
    """

    signals: SiteSignals
    power: SettledPower
    move_JA: F8
    result_JA: F8
    fixed_A: F8
    free_A: F8
    standing_A: F8

    def of_jobs(self, rows: slice) -> SettledRun:
        """Returns what some jobs used; all else is that of the whole run."""
        power = SettledPower(**{name: column[rows] for name, column in vars(self.power).items()})
        return replace(self, power=power, move_JA=self.move_JA[rows], result_JA=self.result_JA[rows])


def settle_run(outcome: Outcome) -> SettledRun:
    """Settles the segments and transfers of a run."""
    environment, jobs = outcome.environment, len(outcome.job_J)
    signals, tables = environment.site_signals, environment.fleet.tables(1)
    free_w_S, window_s = tables.free_w_S * tables.pue_S, environment.window_s
    power = settle_power(outcome.power, signals, jobs, free_w_S, window_s)
    if len(outcome.overhead):
        more = settle_power(outcome.overhead, signals, jobs, free_w_S, window_s)
        power = replace(power, job_JA=power.job_JA + more.job_JA, displaced_JA=power.displaced_JA + more.displaced_JA)
    move_JA, result_JA = settle_transfers(outcome.transfer_X, environment.links, tables.home_I, signals, jobs)
    whole_A = fixed_power(signals, tables.gpus_S * free_w_S, window_s)
    off_A = settled_A(switched_off(environment, outcome.occupied), signals)
    return SettledRun(
        signals=signals,
        power=power,
        move_JA=move_JA,
        result_JA=result_JA,
        fixed_A=whole_A - settled_A(switched_off(environment), signals),
        free_A=whole_A - summed(power.displaced_JA, axis=0) - off_A,
        standing_A=settled_A(standing_power(environment), signals),
    )


def settled_A(segments: PowerSegments | None, signals: SiteSignals) -> F8:
    """Returns the amounts of power that is of no job of the run, summed; zeros for none."""
    if segments is None:
        return np.zeros(1 + len(signals.quantities))
    return np.asarray(settle_power(segments, signals, len(segments)).job_JA.sum(axis=0))


def fixed_power(signals: SiteSignals, watts_S: F8, window_s: float) -> F8:
    """Returns the amounts of constant power at every site all through the window."""
    sites = np.arange(len(watts_S), dtype=np.int32)
    whole = PowerSegments(
        site_K=sites,
        job_K=sites,
        from_s_K=np.zeros(len(sites)),
        to_s_K=np.full(len(sites), window_s),
        watts_K=watts_S,
        gpus_K=np.zeros(len(sites), np.int32),
    )
    return settled_A(whole, signals)


def settle(outcome: Outcome) -> Ledger:
    """Settles a run: every figure from what it emitted, none from the engine's meters."""
    return total(outcome, settle_run(outcome))


def total(outcome: Outcome, settled: SettledRun) -> Ledger:
    """Returns the ledger of a run that has been settled.

    Only the use above capacity curves is the engine's own: a segment does not know which jobs it ran beside.
    """
    environment, job_J = outcome.environment, outcome.job_J
    fixed, job = settled.fixed_A, summed(settled.power.job_JA, axis=0)
    free = settled.free_A
    if all(np.isnan(job_J["start_s"][part]).all() for part in parts(len(job_J))):
        job = np.where(np.isnan(fixed), np.nan, 0.0)
    gpu_hours = float(summed(settled.power.gpu_s_J) / HOUR_S)
    move, result = np.zeros((2, len(fixed)))
    if len(outcome.transfer_X):
        move[:] = [summed(amount_J) for amount_J in settled.move_JA.T]
        result[:] = summed(settled.result_JA, axis=0)
    # A journey's USD are those of its links, known without any signal.
    unknown = np.concatenate([[False, False], np.isnan(settled.signals.value_QSH[1:]).all(axis=(1, 2))])
    move[unknown] = result[unknown] = np.nan
    economics = environment.economics
    late_gpu_hours = float(summed(late_gpu_hours_of(outcome)))
    revenue = carbon_usd = utility = fixed_usd = late_usd = np.nan
    waiting_usd = 0.0
    readings = read_meters(outcome)
    tariff_usd = sum(reading.added_usd for reading in readings.values())
    if economics is not None:
        prices = economics.revenue_usd_per_gpu_hour, economics.carbon_usd_per_t
        kg = float(job[2] + free[2]) + move[2] + result[2]
        energy_usd, journeys_usd = float(job[1] + free[1]), float(move[1] + result[1])
        revenue, carbon_usd = utility_usd(*prices, gpu_hours=gpu_hours), -utility_usd(*prices, kg=kg)
        late_usd = environment.late_usd_per_gpu_hour * late_gpu_hours
        if economics.waiting_usd_per_hour:
            waiting_usd = economics.waiting_usd_per_hour * float(summed(waiting_h_of(outcome)))
        utility = utility_usd(*prices, gpu_hours, energy_usd, kg, journeys_usd, late_usd) - waiting_usd - tariff_usd
        fixed_usd = -utility_usd(*prices, energy_usd=fixed[1], kg=fixed[2])
    failed = failed_amounts(outcome, settled.signals)
    return Ledger(
        jobs=len(job_J),
        done=outcome.count(DONE),
        overdue=outcome.count(OVERDUE),
        unfinished=len(job_J) - sum(outcome.count(status) for status in (DONE, OVERDUE, FAILED)),
        moves=sum(int(job_J["moves"][part].sum()) for part in parts(len(job_J))),
        gpu_hours=gpu_hours,
        over_cap_gpu_hours=float(outcome.over_cap_gpu_s_S.sum() / HOUR_S),
        units=float(summed(outcome.units_J)),
        job_kwh=float(job[0]),
        free_kwh=float(free[0]),
        move_kwh=float(move[0] + result[0]),
        revenue_usd=float(revenue),
        job_energy_usd=float(job[1]),
        free_energy_usd=float(free[1]),
        job_kg=float(job[2]),
        free_kg=float(free[2]),
        move_usd=float(move[1]),
        move_kg=float(move[2]),
        result_usd=float(result[1]),
        result_kg=float(result[2]),
        carbon_usd=float(carbon_usd),
        utility_usd=float(utility),
        fixed_usd=float(fixed_usd),
        fixed_kwh=float(fixed[0]),
        fixed_kg=float(fixed[2]),
        **_times(outcome),
        steps=outcome.steps,
        late_gpu_hours=late_gpu_hours,
        late_usd=float(late_usd),
        waiting_usd=waiting_usd,
        standing_kwh=float(settled.standing_A[0]),
        standing_usd=float(settled.standing_A[1]),
        standing_kg=float(settled.standing_A[2]),
        tariff_usd=float(tariff_usd),
        failed=int(failed["failed"]),
        failures=int(failed["failures"]),
        failed_gpu_hours=failed["failed_gpu_hours"],
        failed_kwh=failed["failed_kwh"],
        failed_usd=failed["failed_usd"],
        failed_kg=failed["failed_kg"],
        further={
            quantity.total: Account(
                job=float(job[a]),
                free=float(free[a]),
                move=float(move[a]),
                result=float(result[a]),
                fixed=float(fixed[a]),
            )
            for a, quantity in enumerate(settled.signals.quantities[2:], start=3)
        },
        interruptions=interruptions_of(outcome, settled.signals),
        meters={name: reading.lines for name, reading in readings.items()},
        books={name: each.books for name, each in readings.items() if each.books is not None},
        events={name: each.events for name, each in readings.items() if each.events is not None},
        water={name: each.water for name, each in readings.items() if each.water is not None},
    )


def late_gpu_hours_of(outcome: Outcome) -> F8:
    """Returns the hours that jobs started after arrival + slack, times their smallest gangs, GPU h, [J].

    Jobs that never start are not in it; where late jobs are dropped it is 0. Of a job that was resumed all counts that
    it stood still beyond its slack.
    """
    jobs = outcome.environment.jobs

    def started_late_s(part: slice) -> F8:
        return np.asarray(outcome.job_J["start_s"][part] - jobs.deadline_s(part))

    return weighed_lateness(jobs, late_s_of(outcome, column(len(jobs), started_late_s)))


def weighed_lateness(jobs: Jobs, late_s_J: F8) -> F8:
    """Returns how late jobs start, s, as hours times their smallest gangs, GPU h, [J]; 0 where sooner or not known."""

    def gpu_hours(part: slice) -> F8:
        late_s_P = late_s_J[part]
        return np.asarray(jobs.gpus_min_J[part] * np.where(late_s_P > 0, late_s_P, 0.0) / HOUR_S)

    return column(len(jobs), gpu_hours)


def waiting_h_of(outcome: Outcome) -> F8:
    """Returns the hours from arrival to start of every job, h, [J].

    A job that never starts waits until it is dropped, at arrival + slack, or until the run ends.
    """
    jobs = outcome.environment.jobs

    def waiting_h(part: slice) -> F8:
        job_P = outcome.job_J[part]
        dropped = job_P["status"] == OVERDUE
        left_s_P = np.where(dropped, np.minimum(jobs.deadline_s(part), outcome.ended_s), outcome.ended_s)
        until_s_P = np.where(np.isnan(job_P["start_s"]), left_s_P, job_P["start_s"])
        return np.asarray(np.maximum(until_s_P - jobs.arrival_s_J[part], 0.0) / HOUR_S)

    return column(len(jobs), waiting_h)


def _times(outcome: Outcome) -> dict[str, float]:
    """Returns mean wait, mean and p99 time in system of done jobs, s (NaN without any), and the mean of all so far."""
    arrival_s_J, job_J = outcome.environment.jobs.arrival_s_J, outcome.job_J

    def so_far(part: slice) -> F8:
        job_P, arrival_s_P = job_J[part], arrival_s_J[part]
        arrived = (arrival_s_P <= outcome.ended_s) & (job_P["status"] != OVERDUE)
        return np.asarray((np.fmin(job_P["finish_s"], outcome.ended_s) - arrival_s_P)[arrived])

    def until(what: str) -> F8:
        def of_done(part: slice) -> F8:
            done = job_J["status"][part] == DONE
            return np.asarray(job_J[what][part][done] - arrival_s_J[part][done])

        return column(len(job_J), of_done)

    so_far_s_W, in_system_s_W = column(len(job_J), so_far), until("finish_s")
    mean_so_far_s = float(so_far_s_W.mean()) if len(so_far_s_W) else float("nan")
    if not len(in_system_s_W):
        nan = float("nan")
        return {
            "mean_wait_s": nan,
            "mean_time_in_system_s": nan,
            "p99_time_in_system_s": nan,
            "mean_time_so_far_s": mean_so_far_s,
        }
    return {
        "mean_wait_s": float(until("start_s").mean()),
        "mean_time_in_system_s": float(in_system_s_W.mean()),
        "p99_time_in_system_s": float(np.percentile(in_system_s_W, 99)),
        "mean_time_so_far_s": mean_so_far_s,
    }
