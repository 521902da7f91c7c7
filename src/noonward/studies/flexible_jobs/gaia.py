"""GAIA's suspend-and-resume policies on its 1,000 jobs: the engine against a plain reckoning of what was published.

Source: Hanafy et al., "Going Green for Less Green" (ASPLOS'24), and its published simulator, github.com/umassos/GAIA.
Written from their definitions; none of their code is used. The jobs' file is ``src/cluster_traces/pai_1k.csv`` there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import load_signals
from noonward.decision.brief import Needs
from noonward.decision.cluster.view import ASK_RUNNING, CARBON, Answers, ClusterView
from noonward.decision.scheduler import Scheduler
from noonward.engine.run import run
from noonward.errors import DataError, SignalRangeError
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import settle
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.economics import Economics
from noonward.model.network import Network
from noonward.model.signals import Signals
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from noonward.studies.flexible_jobs.tables import number_columns
from noonward.units import DAY_H, HOUR_S

SLOT_S: Final = 5.0
"""Length of GAIA's time step, s."""
PER_HOUR: Final = 720
"""Time steps an hour."""
SHORT_S: Final = 7200.0
"""Jobs that run for less are of the short queue, s."""
WAIT_SHORT_S, WAIT_LONG_S = 6 * HOUR_S, 24 * HOUR_S
"""For how long jobs of the short and the long queue may wait in all, s (GAIA's setting 6x24)."""
QUANTILE: Final = 0.3
"""Quantile of the next 24 hours below which an hour is cheap (Ecovisor's threshold, as GAIA sets it)."""
ZONE: Final = "AU-SA"
"""GAIA's region."""
START: Final = datetime(2022, 10, 19, 16, tzinfo=UTC)
"""Hour 7000 of 2022, GAIA's start."""
HISTORY_H: Final = 48
"""Hours of signals before the start."""
NEAR: Final = 1e-9
"""Relative difference below which two intensities are equal."""
WAIT_AWHILE, THRESHOLD, AT_ONCE = "wait-awhile", "threshold", "at-once"


@dataclass(frozen=True, kw_only=True)
class GaiaJobs:
    """Jobs in GAIA's time steps.

    Attributes:
        arrival_J: Arrival, time steps.
        length_J: Run time, time steps.
        wait_J: For how long it may wait in all, time steps.
        cpus_J: Processors; each draws 1 W.
    """

    arrival_J: I8
    length_J: I8
    wait_J: I8
    cpus_J: I8

    @classmethod
    def of(cls, path: Path) -> GaiaJobs:
        """Reads GAIA's table of jobs: ``arrival_time`` and ``length`` in seconds, ``cpus``.

        Raises:
            DataError: The file is not as described, or a job is shorter than a time step.
        """
        column = number_columns(path, ("arrival_time", "length", "cpus"))
        arrival_J, length_J = ((column[name] / SLOT_S).astype(np.int64) for name in ("arrival_time", "length"))
        cpus_J = column["cpus"].astype(np.int64)
        for name, bad_J, allowed in (
            ("arrival_time", column["arrival_time"] < 0, "at least 0 s"),
            ("length", length_J < 1, f"at least {SLOT_S:g} s"),
            ("cpus", (cpus_J < 1) | (cpus_J != column["cpus"]), "a whole number of at least 1"),
        ):
            if bad_J.any():
                row = int(bad_J.argmax())
                raise DataError(
                    f"{path.name}, row {row + 1}, column {name!r}: {column[name][row]:g} is not allowed; give {allowed}"
                )
        wait_J = np.where(length_J < SHORT_S / SLOT_S, WAIT_SHORT_S, WAIT_LONG_S) / SLOT_S
        return cls(arrival_J=arrival_J, length_J=length_J, wait_J=wait_J.astype(np.int64), cpus_J=cpus_J)

    @property
    def hours(self) -> int:
        """Hours that runs may touch, and the day after the last arrival."""
        steps = int((self.arrival_J + self.length_J + self.wait_J).max())
        return int(np.ceil(max(steps / PER_HOUR, self.arrival_J.max() / PER_HOUR + DAY_H))) + 2


def wait_awhile_steps(carbon_T: F8, length: int) -> I8:
    """Returns the time steps in which Wait Awhile runs a job: those of least intensity, the earlier of equal ones.

    Args:
        carbon_T: Intensity in each time step from arrival to the latest end.
        length: Time steps that it runs.

    Example:
        >>> wait_awhile_steps(np.array([2.0, 1.0, 2.0, 1.0]), 3).tolist()
        [0, 1, 3]
    """
    return np.sort(np.argsort(carbon_T, kind="stable")[:length])


def threshold_steps(carbon_T: F8, length: int, limit: float) -> I8:
    """Returns the time steps in which the threshold policy runs a job: those below the limit until waiting is used up.

    Args:
        carbon_T: Intensity in each time step from arrival to the latest end.
        length: Time steps that it runs.
        limit: The job runs in time steps of less than that, and once it has waited for as long as it may.

    Example:
        >>> threshold_steps(np.array([5.0, 1.0, 5.0, 5.0, 1.0]), 3, 2.0).tolist()  # it may wait for two time steps
        [1, 3, 4]
    """
    waited_T = np.cumsum(carbon_T >= limit)
    runs_T = (carbon_T < limit) | (waited_T > len(carbon_T) - length)
    return np.flatnonzero(runs_T)[:length]


def published_carbon_g(jobs: GaiaJobs, carbon_H: F8) -> dict[str, float]:
    """Returns what each policy emits by GAIA's definitions, time step by time step, g.

    Suspension costs nothing, processors are free without limit, and each draws 1 W.

    Args:
        jobs: Jobs.
        carbon_H: Intensity by the hour from the start, g/kWh.
    """
    carbon_T = np.repeat(carbon_H, PER_HOUR)
    out = dict.fromkeys((AT_ONCE, WAIT_AWHILE, THRESHOLD), 0.0)
    for arrival, length, wait, cpus in zip(jobs.arrival_J, jobs.length_J, jobs.wait_J, jobs.cpus_J, strict=True):
        window_T = carbon_T[arrival : arrival + length + wait]
        limit = float(np.quantile(carbon_T[arrival : arrival + DAY_H * PER_HOUR], QUANTILE))
        for name, step_N in (
            (AT_ONCE, np.arange(length)),
            (WAIT_AWHILE, wait_awhile_steps(window_T, length)),
            (THRESHOLD, threshold_steps(window_T, length, limit)),
        ):
            out[name] += float(window_T[step_N].sum()) * int(cpus) / PER_HOUR / 1000.0
    return out


class ThresholdAtArrival(Scheduler):
    """GAIA's threshold policy: a job runs while the intensity is below the 30% quantile of the day from its arrival."""

    needs = Needs(
        protocols=("each-slot",), signals=True, forecast=Forecast("perfect"), lookahead_h=DAY_H + 1, levers=("suspend",)
    )

    def __init__(self) -> None:
        self._limit: dict[int, float] = {}

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Suspends jobs in dear hours; starts and resumes them in cheap ones, or once they have waited enough."""
        carbon = float(view.carbon_S[0])
        for site, job in view.asked():
            serial = int(view.job_J["serial"][job])
            if serial not in self._limit:
                self._limit[serial] = self._of_day(view)
            dear = carbon >= self._limit[serial] * (1.0 - NEAR)
            deadline_s = float(view.job_J["deadline_s"][job])
            if view.kind == ASK_RUNNING:
                if dear:
                    answers.suspend(site)
            elif dear and view.now_s < deadline_s:
                answers.hold(site, min(deadline_s, (view.now_s // HOUR_S + 1) * HOUR_S))
            else:
                answers.send(site, site)

    def _of_day(self, view: ClusterView) -> float:
        """Returns the quantile of the time steps of the next 24 hours."""
        carbon_H = np.diff(view.forecast_KSL[CARBON, 0, : DAY_H + 2]) / HOUR_S
        first = round(view.now_s % HOUR_S / SLOT_S)
        return float(np.quantile(np.repeat(carbon_H, PER_HOUR)[first : first + DAY_H * PER_HOUR], QUANTILE))


SCHEDULERS: Final[dict[str, Callable[[], Scheduler]]] = {
    AT_ONCE: lambda: make_scheduler("local-fcfs"),
    WAIT_AWHILE: lambda: make_scheduler("wait-awhile(measure=carbon)"),
    THRESHOLD: ThresholdAtArrival,
}
"""What answers the engine's questions, by policy."""


def gaia_environment(jobs: GaiaJobs, signals: Signals) -> Environment:
    """Returns GAIA's jobs at one site with room for all at once, where suspension takes no time and no energy.

    Args:
        jobs: Jobs.
        signals: Price and intensity of ``ZONE`` from ``HISTORY_H`` before ``START`` on.
    """
    free = {"stop_s": 0, "dark_s": 0, "load_s": 0, "stop_power": 0, "load_power": 0}
    fleet = Fleet.model_validate(
        {
            "gpu_types": {"processor": {"idle_w": 0, "classes": {"job": {"power": {"constant_w": 1}}}}},
            "sites": [{"name": "site", "zone": ZONE, "gpu_type": "processor", "gpus": int(jobs.cpus_J.sum())}],
            "freedoms": {"job": {"interruptible": True, "checkpoint": free}},
        }
    )
    return Environment(
        scenario="gaia",
        index=0,
        seed=0,
        start=START,
        protocol="each-slot",
        slot_s=SLOT_S,
        window_s=DAY_H * HOUR_S,
        drained=True,
        fleet=fleet,
        links=Network().links(fleet),
        jobs=Jobs.build(
            arrival_s=SLOT_S * jobs.arrival_J.astype(np.float64),
            work=SLOT_S * jobs.length_J.astype(np.float64),
            gpus=jobs.cpus_J,
            slack_s=SLOT_S * jobs.wait_J.astype(np.float64),
        ),
        signals=signals,
        economics=Economics(revenue_usd_per_gpu_hour=0.0, carbon_usd_per_t=1.0),
    )


def gaia_signals(files: list[Path], hours: int, seed: int) -> Signals:
    """Returns price and intensity of GAIA's region: of signal files, or drawn by the generator.

    Args:
        files: Signal files (docs/data.md); none: the generator.
        hours: Hours from ``START`` on.
        seed: Seed of the generator.

    Raises:
        DataError: A file is wrong.
        SignalRangeError: The files do not hold these hours.
    """
    begin = START - timedelta(hours=HISTORY_H)
    if not files:
        return generate_signals((ZONE,), begin, HISTORY_H + hours, stream(seed, "world", 0))
    signals = load_signals(files, zones=(ZONE,)).window(begin, HISTORY_H + hours)
    if not np.isfinite(signals.carbon_g_per_kwh_ZH).all():
        raise SignalRangeError(
            f"the signal files lack carbon intensities of {ZONE} in the {HISTORY_H + hours} hours from "
            f"{begin:%Y-%m-%d %H:%M} UTC; give files that hold them"
        )
    return signals


@dataclass(frozen=True, kw_only=True)
class GaiaFound:
    """What policies emit on GAIA's jobs.

    Attributes:
        engine_g: By the engine and its ledger, g, by policy.
        published_g: By GAIA's definitions, g, by policy.
        suspensions: How often the engine suspended jobs, by policy.
        jobs: Number of jobs.
        real: Whether the intensities are from files.
    """

    engine_g: dict[str, float]
    published_g: dict[str, float]
    suspensions: dict[str, float]
    jobs: int
    real: bool

    @property
    def relative_error(self) -> float:
        """Largest difference between the two over all policies, as a share of what is published."""
        return max(abs(self.engine_g[name] / known - 1.0) for name, known in self.published_g.items())


def hold_against_gaia(table: Path, signals: list[Path], seed: int = 0) -> GaiaFound:
    """Runs GAIA's jobs in the engine, and reckons them by GAIA's definitions.

    Args:
        table: GAIA's table of jobs.
        signals: Signal files; none: generated intensities.
        seed: Seed of the generator.

    Raises:
        DataError: A file is wrong.
        SignalRangeError: The signal files do not hold the hours.
    """
    jobs = GaiaJobs.of(table)
    known = gaia_signals(signals, jobs.hours, seed)
    environment = gaia_environment(jobs, known)
    engine_g: dict[str, float] = {}
    suspensions: dict[str, float] = {}
    for name, make in SCHEDULERS.items():
        ledger = settle(run(environment, make()))
        engine_g[name] = 1000.0 * ledger.job_kg
        suspensions[name] = 0.0 if ledger.interruptions is None else ledger.interruptions.suspensions
    return GaiaFound(
        engine_g=engine_g,
        published_g=published_carbon_g(jobs, known.carbon_g_per_kwh_ZH[0, HISTORY_H:]),
        suspensions=suspensions,
        jobs=len(jobs.cpus_J),
        real=bool(signals),
    )
