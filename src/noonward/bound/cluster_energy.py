"""Lower bound on the energy of setting 2: jobs as a fluid over sites, gangs and clocks (CHSAC-AF, Eq. 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.highs import minimise
from noonward.errors import InfeasiblePlanError, ScenarioError, nearest
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.withheld import Withheld


@dataclass(frozen=True, kw_only=True)
class FluidBound:
    """What no scheduler can go below.

    Attributes:
        work: Units processed.
        energy_j: Least facility energy of a fleet that processes exactly ``work`` within the horizon, free GPUs
            included, J.
        joule_per_unit: ``energy_j / work``.
        joule_per_unit_up_to: Least energy per unit of a fleet that processes any amount up to ``work``, J per unit: the
            figure to hold against a run that leaves part of the offered work undone.
        service_s: Job-seconds in service of the optimum at ``work``.
        service_s_SNF: These by site, gang (from 0) and clock level; 0 where there is none.
    """

    work: float
    energy_j: float
    joule_per_unit: float
    joule_per_unit_up_to: float
    service_s: float
    service_s_SNF: F8


@dataclass(frozen=True, kw_only=True)
class FluidFrontier:
    """Least energy per unit against mean time in system, for runs that do all of the work.

    No scheduler that does all of the work within the horizon lies below it. One that leaves part of it undone can: hold
    it against ``FluidBound.joule_per_unit_up_to`` or ``environment_energy_bound``.

    Attributes:
        mean_time_s_P: Mean time in system, ascending, s.
        joule_per_unit_P: Least energy per unit at exactly the given work, J: decreasing and convex.
    """

    mean_time_s_P: F8
    joule_per_unit_P: F8


@dataclass(frozen=True, kw_only=True)
class _Program:
    """The linear program's data. Axis Y: (site, gang, level) that exist; capacity rows one a site."""

    spot: tuple[I8, I8, I8]
    shape: tuple[int, int, int]
    site_rows_SY: F8
    capacity_s_S: F8
    unit_rate_Y: F8
    extra_w_Y: F8
    base_j: float


def _program(fleet: Fleet, job_class: str | None, gangs: tuple[int, int], horizon_s: float) -> _Program:
    low, high = gangs
    if not 1 <= low <= high:
        raise ScenarioError(f"gangs {low} to {high} GPUs were asked; give 1 <= smallest <= largest")
    if not (horizon_s > 0 and math.isfinite(horizon_s)):
        raise ScenarioError(f"the horizon is {horizon_s} s; it must be above 0 and finite")
    if job_class is None and len(fleet.classes) > 1:
        raise ScenarioError(f"the fleet has the job classes {list(fleet.classes)}; name one")
    name = fleet.classes[0] if job_class is None else job_class
    if name not in fleet.classes:
        raise ScenarioError(f"unknown job class {name!r}; {nearest(name, fleet.classes)}")
    tables = fleet.tables(high)
    c = fleet.classes.index(name)
    seconds_SNF = tables.seconds_per_unit_SCGF[:, c]
    exists_SNF = np.isfinite(seconds_SNF)
    exists_SNF[:, :low] = False
    exists_SNF &= (np.arange(high + 1)[None] <= tables.gpus_S[:, None])[:, :, None]
    exists_SNF &= (tables.range_CS[c] == 1)[:, None, None]
    s, n, f = np.nonzero(exists_SNF)
    if len(s) == 0:
        raise ScenarioError(f"no site has {low} GPUs; the smallest gang must fit a site")
    idle_w_S = tables.pue_S * tables.free_w_S
    return _Program(
        spot=(s, n, f),
        shape=seconds_SNF.shape,
        site_rows_SY=np.where(s[None] == np.arange(len(idle_w_S))[:, None], n[None], 0.0),
        capacity_s_S=np.asarray(tables.gpus_S * horizon_s, dtype=np.float64),
        unit_rate_Y=1.0 / seconds_SNF[s, n, f],
        extra_w_Y=tables.pue_S[s] * tables.power_w_SCGF[s, c, n, f] - idle_w_S[s] * n,
        base_j=float(idle_w_S @ tables.gpus_S) * horizon_s,
    )


def _at_work(program: _Program, work: float, service_s: float) -> tuple[float, F8]:
    """Returns least energy in J and the job-seconds at exactly ``work`` units and at most ``service_s`` job-seconds.

    ``min sum y (eta P - n eta P_free) + base`` s.t. ``sum y / T = W``, ``sum n y <= R H`` per site,
    ``sum y <= service``. Job-seconds are scaled to the fleet's GPU-seconds so that the program is well conditioned.
    """
    scale = float(program.capacity_s_S.sum())
    count = len(program.unit_rate_Y)
    rate = float(program.unit_rate_Y.max())
    rows = np.vstack([program.site_rows_SY, program.unit_rate_Y / rate, np.ones(count)])
    upper_R = np.concatenate([program.capacity_s_S, [work / rate, service_s]]) / scale
    lower_R = np.full(len(rows), -np.inf)
    lower_R[-2] = upper_R[-2]
    try:
        best = minimise(program.extra_w_Y, rows, lower_R, upper_R, "fluid bound")
    except InfeasiblePlanError as error:
        most = _most_work(program, service_s)
        limited = "" if math.isinf(service_s) else f" with at most {service_s:g} job-seconds in service"
        longer = "" if math.isinf(service_s) else " or the mean time"
        raise InfeasiblePlanError(
            f"the fleet cannot process {work:g} units in its {scale:g} GPU-seconds{limited}: at most {most:g}; lower "
            f"the work (in a scenario the rate of arrivals), raise the GPUs, the horizon{longer}, or ask for the least "
            "J per unit over any part of the work (environment_energy_bound)"
        ) from error
    return program.base_j + best.value * scale, best.x * scale


def _most_work(program: _Program, service_s: float) -> float:
    """Returns the most units that the fleet processes with at most ``service_s`` job-seconds."""
    scale = float(program.capacity_s_S.sum())
    rate = float(program.unit_rate_Y.max())
    rows = np.vstack([program.site_rows_SY, np.ones(len(program.unit_rate_Y))])
    upper_R = np.append(program.capacity_s_S, service_s) / scale
    best = minimise(-program.unit_rate_Y / rate, rows, np.full(len(rows), -np.inf), upper_R, "most work")
    return -best.value * rate * scale


def _up_to_work(program: _Program, work: float, jobs_time_s: float) -> float:
    """Returns the least energy per unit over all amounts U up to ``work``, J per unit.

    A linear-fractional program by Charnes and Cooper 1962: with z = 1 / U and y in job-seconds per unit,
    ``min sum y (eta P - n eta P_free) + base z`` s.t. ``sum y / T = 1``, ``sum n y <= R H z``, ``sum y <= service z``,
    ``z >= 1 / W``. Feasible whatever W: an overloaded fleet does less of it.
    """
    count = len(program.unit_rate_Y)
    scale = min(work, float(program.unit_rate_Y.max() * program.capacity_s_S.sum()))
    rows = np.zeros((len(program.capacity_s_S) + 2, count + 1))
    rows[:-2, :count] = program.site_rows_SY
    rows[:-2, count] = -program.capacity_s_S / scale
    rows[-2, :count] = program.unit_rate_Y
    rows[-1, :count] = 1.0
    rows[-1, count] = -min(jobs_time_s, float(program.capacity_s_S.sum())) / scale
    lower_R = np.full(len(rows), -np.inf)
    upper_R = np.zeros(len(rows))
    lower_R[-2] = upper_R[-2] = 1.0
    cost = np.append(program.extra_w_Y, program.base_j / scale)
    lowest = np.zeros(count + 1)
    lowest[count] = scale / work
    return minimise(cost, rows, lower_R, upper_R, "fluid bound per unit", lowest).value


def fluid_bound(
    fleet: Fleet,
    *,
    work: float,
    horizon_s: float,
    job_class: str | None = None,
    gangs: tuple[int, int] = (1, 8),
    mean_time_s: float = math.inf,
    jobs: int | None = None,
) -> FluidBound:
    """Bounds from below the energy of processing some work on a fleet within a horizon.

    Variables: job-seconds ``y(d, n, f)`` in service. Every scheduler's run yields a feasible point whose energy is the
    run's: energy is linear in them, ``E = sum y P eta + P_free eta (R H - sum n y)``, and so are units
    ``sum y / T(n, f)`` and use ``sum n y <= R H``. Queues, integrality, arrival times and the network are relaxed.

    **Mean time** (``mean_time_s`` m with ``jobs`` J): adds ``sum y <= m J``. A job is in service no longer than in the
    system, so the job-seconds in service are at most those in the system, which are J times the mean (Little's law
    over the finite horizon, an identity). It is sound for the mean over **all jobs that arrive** of
    ``min(end, horizon) - arrival``, and so for the mean end-to-end time wherever every job ends within the horizon
    (waits, transfers and returns only lengthen it). The mean over completed jobs alone may be lower; add the time of
    unfinished jobs up to the horizon before comparing.

    Args:
        fleet: Sites and GPU types.
        work: Units processed, above 0.
        horizon_s: Time over which energy counts, s.
        job_class: Class of the jobs; may be left out where the fleet has one class.
        gangs: Smallest and largest gang, GPUs.
        mean_time_s: Largest mean time in system, s; infinite for none.
        jobs: Jobs that arrive; needed with ``mean_time_s``.

    Raises:
        ScenarioError: An argument is out of range.
        InfeasiblePlanError: The fleet cannot process the work within the horizon and the mean time.

    Example:
        >>> from noonward.model.cluster.power import ClassProfile, GpuType, PowerCurve
        >>> from noonward.model.cluster.fleet import Site
        >>> kind = GpuType(idle_w=10.0, classes={"t": ClassProfile(power=PowerCurve(constant_w=100.0))})
        >>> one = Fleet(gpu_types={"g": kind}, sites=(Site(name="a", zone="a", gpu_type="g", gpus=2),))
        >>> fluid_bound(one, work=50.0, horizon_s=100.0, gangs=(1, 1)).energy_j
        6500.0
    """
    return _bound(_program(fleet, job_class, gangs, horizon_s), work, _jobs_time(mean_time_s, jobs))


def _bound(program: _Program, work: float, jobs_time_s: float) -> FluidBound:
    if not (work > 0 and math.isfinite(work)):
        raise ScenarioError(f"work is {work} units; it must be above 0 and finite")
    energy_j, service_s_Y = _at_work(program, work, jobs_time_s)
    service_s_SNF = np.zeros(program.shape)
    service_s_SNF[program.spot] = service_s_Y
    return FluidBound(
        work=work,
        energy_j=energy_j,
        joule_per_unit=energy_j / work,
        joule_per_unit_up_to=_up_to_work(program, work, jobs_time_s),
        service_s=float(service_s_Y.sum()),
        service_s_SNF=service_s_SNF,
    )


def _jobs_time(mean_time_s: float, jobs: int | None) -> float:
    if math.isinf(mean_time_s) and mean_time_s > 0:
        return math.inf
    if not mean_time_s > 0 or jobs is None or jobs < 1:
        raise ScenarioError(
            f"a mean time of {mean_time_s} s over {jobs} jobs was asked; give a time above 0 s and at least 1 job"
        )
    return mean_time_s * jobs


def fluid_frontier(
    fleet: Fleet,
    *,
    work: float,
    horizon_s: float,
    jobs: int,
    mean_times_s: Sequence[float] | None = None,
    points: int = 25,
    job_class: str | None = None,
    gangs: tuple[int, int] = (1, 8),
) -> FluidFrontier:
    """Draws least energy per unit against mean time in system at exactly the given work.

    Args:
        fleet: Sites and GPU types.
        work: Units processed, above 0.
        horizon_s: Time over which energy counts, s.
        jobs: Jobs that arrive, at least 1.
        mean_times_s: Mean times, s; times below the least possible are left out. If not given, ``points`` of them
            evenly in logarithm from the least possible to the one beyond which energy falls no more.
        points: Number of points where no times are given, at least 2.
        job_class: Class of the jobs; may be left out where the fleet has one class.
        gangs: Smallest and largest gang, GPUs.

    Raises:
        ScenarioError: An argument is out of range.
        InfeasiblePlanError: The fleet cannot process the work within the horizon.
    """
    if points < 2:
        raise ScenarioError(f"{points} points were asked; a frontier has at least 2")
    free = fluid_bound(fleet, work=work, horizon_s=horizon_s, job_class=job_class, gangs=gangs)
    _jobs_time(1.0, jobs)
    program = _program(fleet, job_class, gangs, horizon_s)
    least_s = _least_service(program, work) / jobs
    if mean_times_s is None:
        times = np.geomspace(least_s, max(free.service_s / jobs, least_s), points)
        times[0] *= 1 + 1e-9
    else:
        times = np.unique(np.asarray(mean_times_s, dtype=np.float64))
        times = times[times >= least_s]
    energy = [_at_work(program, work, float(time) * jobs)[0] / work for time in times]
    return FluidFrontier(mean_time_s_P=times, joule_per_unit_P=np.array(energy))


def _least_service(program: _Program, work: float) -> float:
    """Returns the least job-seconds in service that process ``work`` units."""
    scale = float(program.capacity_s_S.sum())
    rate = float(program.unit_rate_Y.max())
    rows = np.vstack([program.site_rows_SY, program.unit_rate_Y / rate])
    upper_R = np.append(program.capacity_s_S, work / rate) / scale
    lower_R = np.full(len(rows), -np.inf)
    lower_R[-1] = upper_R[-1]
    return minimise(np.ones(len(program.unit_rate_Y)), rows, lower_R, upper_R, "least service time").value * scale


def _offered(environment: Environment) -> tuple[_Program, float, int]:
    """Returns the program of an environment's fleet and window, and the work and number of the jobs that arrive in it.

    Raises:
        ScenarioError: Runs last beyond the window, or jobs are of several classes.
    """
    jobs = environment.jobs
    classes = np.unique(jobs.class_J)
    if environment.drained or len(classes) > 1:
        raise ScenarioError(
            f"a fluid bound needs 'end: window' and jobs of one class; drained is {environment.drained}, the jobs have "
            f"{len(classes)} classes"
        )
    arrived = jobs.arrival_s_J <= environment.window_s
    gangs = (int(jobs.gpus_min_J.min()), int(jobs.gpus_max_J.max()))
    fleet = _at_least_pue(environment)
    program = _program(fleet, environment.fleet.classes[int(classes[0])], gangs, environment.window_s)
    if environment.unavailable is not None:
        program = replace(
            program, base_j=program.base_j - _withheld_j(environment.unavailable, fleet, environment.window_s)
        )
    return program, float(jobs.work_J[arrived].sum()), int(arrived.sum())


def _withheld_j(withheld: Withheld, fleet: Fleet, window_s: float) -> float:
    """Returns what GPUs would draw free while they are withheld, J: they draw nothing then.

    That is all the bound takes from it. Jobs that run when GPUs are withheld run on, so capacity stays that of all
    GPUs; what such a job draws is more than what the bound counts for it.
    """
    tables = fleet.tables(1)
    until_s_K = np.append(withheld.from_s_K[1:], np.inf)
    seconds_K = np.maximum(np.minimum(until_s_K, window_s) - withheld.from_s_K, 0.0)
    return float(seconds_K @ withheld.gpus_KS @ (tables.pue_S * tables.free_w_S))


def _at_least_pue(environment: Environment) -> Fleet:
    """Returns the fleet with the least PUE of the run's hours per site: none of its runs takes more."""
    fleet = environment.fleet
    if environment.pue is None:
        return fleet
    least_S = environment.site_signals.factor_SH.min(axis=1)
    sites = [
        site.model_copy(update={"pue": site.pue * least}) for site, least in zip(fleet.sites, least_S, strict=True)
    ]
    return fleet.model_copy(update={"sites": tuple(sites)})


def environment_energy_bound(environment: Environment, mean_time_s: float = math.inf) -> float:
    """Bounds the energy per unit of any run of an environment that ends with the window, J per unit.

    The least over all amounts of work up to the offered, since no run processes more than the work that arrives. It
    exists at any load: a fleet that cannot do all of the work does part of it.

    Args:
        environment: Environment with ``end: window`` whose jobs are of one class.
        mean_time_s: Largest mean time in system over the jobs that arrive (see ``fluid_bound``), s.

    Returns:
        J per unit; NaN where no work arrives in the window.

    Raises:
        ScenarioError: Runs last beyond the window, jobs are of several classes, or the mean time is out of range.
    """
    program, work, jobs = _offered(environment)
    if work == 0:
        return math.nan
    return _up_to_work(program, work, _jobs_time(mean_time_s, jobs))
