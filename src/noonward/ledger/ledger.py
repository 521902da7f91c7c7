"""The ledger of a run: energy, money, carbon and utility, what no policy can change apart from what it can."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8
from noonward.compiled import kernel
from noonward.ledger.outcome import DONE, OVERDUE, Outcome
from noonward.ledger.settle import cumulative, settle_segment, settle_transfer
from noonward.model.cluster.environment import Environment
from noonward.units import HOUR_S, KG_PER_TONNE, WATT_SECONDS_PER_KWH


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What a run used, earned, cost and emitted. Money and carbon are NaN without signals, utility without economics.

    U = U1 - U2 - U3 - U4 - U5 (MASAC, Eqs. 2-7): GPU profit (revenue less energy), energy of free GPUs, carbon of used
    and free GPUs, journeys of jobs, journeys of results.

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
        """Returns all fields and derived figures, NaN as None."""
        derived = {name: getattr(self, name) for name, value in vars(type(self)).items() if isinstance(value, property)}
        return {
            name: None if isinstance(value, float) and np.isnan(value) else value
            for name, value in {**asdict(self), **derived}.items()
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Ledger:
        """Returns a ledger from what ``as_dict`` returned."""
        names = [field.name for field in fields(cls)]
        values: dict[str, Any] = {name: float("nan") if content[name] is None else content[name] for name in names}
        return cls(**values)


@kernel(allocates=False)
def _settle_jobs(
    price_SH: F8, carbon_SH: F8, site_J: NDArray[np.int64], start_J: F8, end_J: F8, power_w_J: F8, out_J3: F8
) -> None:
    """Writes (kWh, USD, kg) of every job's segment; jobs without a start get zeros."""
    for j in range(site_J.shape[0]):
        if end_J[j] > start_J[j]:
            kwh, usd, kg = settle_segment(price_SH, carbon_SH, site_J[j], start_J[j], end_J[j], power_w_J[j])
            out_J3[j, 0], out_J3[j, 1], out_J3[j, 2] = kwh, usd, kg


@kernel(allocates=False)
def _settle_results(
    usd_per_gb_J: F8, kwh_per_gb_J: F8, size_gb_J: F8, carbon_from_J: F8, carbon_to_J: F8, out_J3: F8
) -> None:
    """Writes (kWh, USD, kg) of every result's journey."""
    for j in range(size_gb_J.shape[0]):
        kwh, usd, kg = settle_transfer(size_gb_J[j], usd_per_gb_J[j], kwh_per_gb_J[j], carbon_from_J[j], carbon_to_J[j])
        out_J3[j, 0], out_J3[j, 1], out_J3[j, 2] = kwh, usd, kg


@dataclass(frozen=True, kw_only=True)
class Market:
    """Signals of an environment per site from its start, and their integrals; NaN without signals.

    Attributes:
        price_SH: USD/MWh.
        carbon_SH: g/kWh.
        price_cumulative_SH: USD/MWh x s, one more column.
        carbon_cumulative_SH: g/kWh x s.
    """

    price_SH: F8
    carbon_SH: F8
    price_cumulative_SH: F8
    carbon_cumulative_SH: F8

    @classmethod
    def of(cls, environment: Environment) -> Market:
        """Returns the signals of an environment."""
        shape = (len(environment.sites), environment.hours)
        price_SH = carbon_SH = np.full(shape, np.nan)
        if environment.signals is not None:
            window = environment.signals.window(environment.start, environment.hours)
            rows = [window.zone_index(site.zone) for site in environment.fleet.sites]
            price_SH = np.ascontiguousarray(window.price_usd_per_mwh_ZH[rows])
            carbon_SH = np.ascontiguousarray(window.carbon_g_per_kwh_ZH[rows])
        return cls(
            price_SH=price_SH,
            carbon_SH=carbon_SH,
            price_cumulative_SH=cumulative(price_SH),
            carbon_cumulative_SH=cumulative(carbon_SH),
        )


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Segments of a run, settled per job: columns kWh, USD, kgCO2.

    Attributes:
        end_s_J: End of the segment within the run, s; NaN before a start.
        job_J3: The jobs' own power.
        displaced_J3: What their GPUs would have drawn free within the window.
        result_J3: Journeys of results; zeros for jobs not done.
    """

    end_s_J: F8
    job_J3: F8
    displaced_J3: F8
    result_J3: F8


def settle_jobs(outcome: Outcome, market: Market) -> Settled:
    """Settles every job's power segment, the free power it displaces, and its result's journey."""
    environment, track_J = outcome.environment, outcome.track_J
    count = len(track_J)
    tables = environment.fleet.tables(1)
    end_s_J = np.minimum(track_J["finish_s"], outcome.ended_s)
    site_J = np.ascontiguousarray(track_J["site"])
    start_J = np.ascontiguousarray(track_J["start_s"])
    sums = (market.price_cumulative_SH, market.carbon_cumulative_SH)
    job_J3 = np.zeros((count, 3))
    _settle_jobs(*sums, site_J, start_J, end_s_J, np.ascontiguousarray(track_J["power_w"]), job_J3)
    free_w_J = np.where(outcome.started_J, (tables.free_w_S * tables.pue_S)[site_J] * track_J["gpus"], 0.0)
    displaced_J3 = np.zeros((count, 3))
    _settle_jobs(*sums, site_J, start_J, np.minimum(end_s_J, environment.window_s), free_w_J, displaced_J3)
    return Settled(
        end_s_J=end_s_J, job_J3=job_J3, displaced_J3=displaced_J3, result_J3=_settle_all_results(outcome, market)
    )


def _settle_all_results(outcome: Outcome, market: Market) -> F8:
    """Returns (kWh, USD, kg) of the journeys of all results home, at the intensities of the hour they leave."""
    environment, track_J, jobs = outcome.environment, outcome.track_J, outcome.environment.jobs
    out_J3 = np.zeros((len(track_J), 3))
    home_J = environment.fleet.tables(1).home_I[jobs.origin_J]
    sent = (track_J["status"] == DONE) & (home_J != track_J["site"]) & (jobs.result_gb_J > 0)
    if not sent.any():
        return out_J3
    origin, site, home = jobs.origin_J[sent], track_J["site"][sent], home_J[sent]
    hour = np.minimum((track_J["finish_s"][sent] / HOUR_S).astype(np.int64), environment.hours - 1)
    leaves = market.carbon_SH[site, hour]
    arrives = np.where(home >= 0, market.carbon_SH[home, hour], leaves)
    links = environment.links
    part = np.zeros((int(sent.sum()), 3))
    _settle_results(
        links.usd_per_gb_IS[origin, site],
        links.kwh_per_gb_IS[origin, site],
        jobs.result_gb_J[sent],
        leaves,
        arrives,
        part,
    )
    out_J3[sent] = part
    return out_J3


def fixed_power(environment: Environment, market: Market) -> F8:
    """Returns (kWh, USD, kg) of a fleet that stays free all through the window."""
    tables = environment.fleet.tables(1)
    total = np.zeros(3)
    for s, power_w in enumerate(tables.gpus_S * tables.free_w_S * tables.pue_S):
        total += settle_segment(
            market.price_cumulative_SH, market.carbon_cumulative_SH, s, 0.0, environment.window_s, float(power_w)
        )
    return total


def processed_units(outcome: Outcome) -> F8:
    """Returns the units of work processed per job; running jobs pro rata."""
    track_J = outcome.track_J
    share = (np.minimum(track_J["finish_s"], outcome.ended_s) - track_J["start_s"]) / (
        track_J["finish_s"] - track_J["start_s"]
    )
    return np.where(outcome.started_J, np.nan_to_num(share) * outcome.environment.jobs.work_J, 0.0)


def settle(outcome: Outcome) -> Ledger:
    """Settles a run: every figure from the jobs' segments and journeys, none from the engine's meters.

    Only the use above capacity curves is the engine's own: a segment does not know which jobs it ran beside.
    """
    environment, track_J = outcome.environment, outcome.track_J
    market = Market.of(environment)
    settled = settle_jobs(outcome, market)
    fixed = fixed_power(environment, market)
    job, result = settled.job_J3.sum(axis=0), settled.result_J3.sum(axis=0)
    free = fixed - settled.displaced_J3.sum(axis=0)
    if not outcome.started_J.any():
        job = np.where(np.isnan(fixed), np.nan, 0.0)
    seconds_J = np.where(outcome.started_J, settled.end_s_J - track_J["start_s"], 0.0)
    gpu_hours = float((seconds_J * track_J["gpus"]).sum() / HOUR_S)
    no_signals = environment.signals is None
    move_kg = np.nan if no_signals else float(track_J["move_kg"].sum())
    result_kg = np.nan if no_signals else float(result[2])
    economics = environment.economics
    revenue = carbon_usd = utility = fixed_usd = np.nan
    if economics is not None:
        usd_per_kg = economics.carbon_usd_per_t / KG_PER_TONNE
        revenue = economics.revenue_usd_per_gpu_hour * gpu_hours
        carbon_usd = usd_per_kg * (float(job[2] + free[2]) + move_kg + result_kg)
        utility = revenue - float(job[1] + free[1]) - carbon_usd - float(track_J["move_usd"].sum() + result[1])
        fixed_usd = float(fixed[1] + usd_per_kg * fixed[2])
    return Ledger(
        jobs=len(track_J),
        done=outcome.count(DONE),
        overdue=outcome.count(OVERDUE),
        unfinished=len(track_J) - outcome.count(DONE) - outcome.count(OVERDUE),
        moves=int(track_J["moves"].sum()),
        gpu_hours=gpu_hours,
        over_cap_gpu_hours=float(outcome.yard_S["over_cap_gpu_s"].sum() / HOUR_S),
        units=float(processed_units(outcome).sum()),
        job_kwh=float(job[0]),
        free_kwh=float(free[0]),
        move_kwh=float(track_J["move_kwh"].sum() + result[0]),
        revenue_usd=float(revenue),
        job_energy_usd=float(job[1]),
        free_energy_usd=float(free[1]),
        job_kg=float(job[2]),
        free_kg=float(free[2]),
        move_usd=float(track_J["move_usd"].sum()),
        move_kg=move_kg,
        result_usd=float(result[1]),
        result_kg=result_kg,
        carbon_usd=float(carbon_usd),
        utility_usd=float(utility),
        fixed_usd=float(fixed_usd),
        fixed_kwh=float(fixed[0]),
        fixed_kg=float(fixed[2]),
        **_times(outcome),
        steps=int(outcome.engine["steps"]),
    )


def _times(outcome: Outcome) -> dict[str, float]:
    """Returns mean wait, mean and p99 time in system of done jobs, s (NaN without any), and the mean of all so far."""
    all_arrivals = outcome.environment.jobs.arrival_s_J
    arrived = (all_arrivals <= outcome.ended_s) & (outcome.track_J["status"] != OVERDUE)
    end_s_J = np.fmin(outcome.track_J["finish_s"], outcome.ended_s)
    so_far = float((end_s_J - all_arrivals)[arrived].mean()) if arrived.any() else float("nan")
    done = outcome.track_J["status"] == DONE
    if not done.any():
        nan = float("nan")
        return {
            "mean_wait_s": nan,
            "mean_time_in_system_s": nan,
            "p99_time_in_system_s": nan,
            "mean_time_so_far_s": so_far,
        }
    arrival = outcome.environment.jobs.arrival_s_J[done]
    in_system = outcome.track_J["finish_s"][done] - arrival
    return {
        "mean_wait_s": float((outcome.track_J["start_s"][done] - arrival).mean()),
        "mean_time_in_system_s": float(in_system.mean()),
        "p99_time_in_system_s": float(np.percentile(in_system, 99)),
        "mean_time_so_far_s": so_far,
    }
