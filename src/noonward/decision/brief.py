"""What a scheduler says it needs before a run, and what it is told before the first job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import numpy as np

from noonward.decision.announced import Announced
from noonward.errors import ScenarioError, nearest
from noonward.forecasts.forecast import Forecast
from noonward.forecasts.learned import find_net, require_zones
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.freedom import Lever
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.setting import Protocol, Setting

REPLAY_SLOT_S: Final = 1.0
"""Slot of schedulers that replay a log, s: logs state whole seconds."""
EACH_SLOT_LEVERS: Final[frozenset[Lever]] = frozenset({"move", "preempt"})
"""What can be done with running jobs under protocol each-slot alone."""
Curves = Literal["advisory", "hard"]
"""Kinds of capacity curves, see ``GpuCaps``."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a scheduler can answer and what it must be given.

    Attributes:
        protocols: Protocols it can answer.
        signals: It reads prices or carbon intensities.
        economics: It reads revenue or the carbon price; both are 0 in the view of a scenario without economics.
        forecast: Forecast it is given in ``view.forecast_KSL``; None: none.
        lookahead_h: Hours its forecast reaches at least; it reaches further where the setting says so
            (``Setting.forecast_h``, ``Brief.lookahead_h``).
        samples: It plans with jobs drawn from ``brief.sample_jobs``.
        allocate: It is asked again (ASK_ALLOCATE) when a job is about to start (protocol on-arrival).
        finished: It is called (ASK_FINISHED) when a job finishes (protocol on-arrival).
        curves: Kind of the capacity curves it sets (``answers.limit``); None: it sets none. They start at the sites'
            GPUs. An environment with curves of its own keeps those instead.
        foresight: True if it reads future jobs (``brief.future``); use it only as a benchmark.
        levers: What it does with running jobs: it is asked about those that allow it (ASK_RUNNING), where the scenario
            has such. ``suspend``; ``cap``: it may change power caps, and start jobs under one; ``resize``: it suspends
            jobs to resume them on another gang.
        freed: It is asked about running jobs also when GPUs of their site have become free.
        record: It replays where and when a log says that jobs started (``brief.recorded``), in slots of a second.

    Raises:
        ValueError: A protocol or a lever is unknown.
    """

    protocols: tuple[Protocol, ...] = ("each-slot", "on-arrival")
    signals: bool = False
    economics: bool = False
    forecast: Forecast | None = None
    lookahead_h: int = 0
    samples: bool = False
    allocate: bool = False
    finished: bool = False
    curves: Curves | None = None
    foresight: bool = False
    levers: tuple[Lever, ...] = ()
    freed: bool = False
    record: bool = False

    def __post_init__(self) -> None:
        for protocol in self.protocols:
            if protocol not in get_args(Protocol):
                raise ValueError(f"unknown protocol {protocol!r}; {nearest(protocol, get_args(Protocol))}")
        for lever in self.levers:
            if lever not in get_args(Lever):
                raise ValueError(f"unknown lever {lever!r}; {nearest(lever, get_args(Lever))}")


@dataclass(frozen=True, kw_only=True)
class Brief(Setting):
    """What a scheduler is told before the first job: nothing of the jobs and signals to come.

    A simulation makes it from an environment (``Brief.of``), a live service from its configuration. ``withheld`` counts
    the GPUs of jobs that were running before the run, too, until they are expected to end.

    Attributes:
        largest_gang: Largest gang (``gpus_max``) that a job may have, GPUs.
        largest_need: Most GPUs that a job may need at once (``gpus_min``).
        signals: Whether prices and carbon intensities are known.
        lookahead_h: Hours that the forecasts in the view reach; 0 without a forecast. That follows from what is known
            before the run, not from the jobs to come; a job may run on beyond it.
        sample_jobs: Draws a table of jobs from the statistics of the jobs to come, or None where there are none. Of a
            service (infinite ``window_s``) it draws a week, which repeats.
        future: The jobs that will come, for a scheduler with ``Needs.foresight``; else None.
        recorded: The jobs with what a log says of them, for a scheduler with ``Needs.record``; None where it says
            nothing.
        announced: Grid events that have been announced, by the clock of the run.
    """

    largest_gang: int
    largest_need: int
    signals: bool = False
    lookahead_h: int = 0
    sample_jobs: Callable[[np.random.Generator], Jobs] | None = None
    future: Jobs | None = None
    recorded: Jobs | None = None
    announced: Announced = field(default_factory=Announced)

    @classmethod
    def of(cls, environment: Environment, needs: Needs) -> Brief:
        """Returns the brief of an environment for a scheduler.

        Args:
            environment: Environment.
            needs: What the scheduler needs.
        """
        jobs = environment.jobs
        shown = needs.forecast is not None and environment.signals is not None
        stated = {**environment.stated, "withheld": environment.expected_unavailable}
        if needs.record:
            stated["slot_s"] = min(environment.slot_s, REPLAY_SLOT_S)
        return cls(
            **stated,
            largest_gang=int(jobs.gpus_max_J.max()),
            largest_need=int(jobs.gpus_min_J.max()),
            signals=environment.signals is not None,
            lookahead_h=max(needs.lookahead_h, environment.reach_h) if shown else 0,
            sample_jobs=environment.sample_jobs,
            future=jobs if needs.foresight else None,
            recorded=jobs if needs.record and jobs.has_record else None,
        )


def check_fit(brief: Brief, needs: Needs, name: str) -> None:
    """Raises ScenarioError if a scheduler cannot answer a run's questions.

    Args:
        brief: Brief of the run.
        needs: What the scheduler needs.
        name: Its name, for messages.
    """
    scenario = f"scenario {brief.scenario!r}"
    if brief.protocol not in needs.protocols:
        raise ScenarioError(
            f"scheduler {name} answers the protocols {', '.join(needs.protocols)}, but {scenario} asks "
            f"{brief.protocol}; choose another policy or protocol"
        )
    if not brief.signals and (needs.signals or needs.forecast is not None):
        raise ScenarioError(
            f"scheduler {name} reads prices or carbon intensities, but {scenario} has no signals; give signals or "
            "choose another policy"
        )
    if brief.economics is None and needs.economics:
        raise ScenarioError(
            f"scheduler {name} weighs revenue against cost, but {scenario} has no economics; give economics or choose "
            "another policy"
        )
    if brief.sample_jobs is None and needs.samples:
        raise ScenarioError(
            f"scheduler {name} plans for jobs to come, but the jobs of {scenario} cannot be sampled: their table "
            "holds no job of before the window, or no dates; give earlier jobs by --history FILE, begin the window "
            "later (--from), use generated jobs or a trace, or choose another policy"
        )
    unasked = sorted(set(needs.levers) & EACH_SLOT_LEVERS) if brief.protocol != "each-slot" else []
    if unasked and brief.fleet.freedoms:
        raise ScenarioError(
            f"scheduler {name} would {unasked[0]} running jobs, which protocol {brief.protocol} has no answer for; "
            "choose protocol=each-slot or another policy"
        )
    if needs.levers and brief.protocol != "each-slot" and brief.fleet.freedoms and np.isinf(brief.window_s):
        raise ScenarioError(
            f"scheduler {name} acts on running jobs ({', '.join(needs.levers)}), about which a live service asks under "
            "protocol each-slot alone; choose protocol=each-slot or another policy"
        )
    if needs.forecast is not None and needs.forecast.by_net:
        try:
            require_zones(find_net(needs.forecast.net), (site.zone for site in brief.fleet.sites))
        except ScenarioError as error:
            raise ScenarioError(f"scheduler {name} does not fit {scenario}: {error}") from None
    if brief.recorded is None and needs.record:
        raise ScenarioError(
            f"scheduler {name} replays when jobs started, which the jobs of {scenario} do not say; give a dated job "
            "table with a column 'start_time' (noonward import keeps it), or choose another policy"
        )
    if brief.future is None and needs.foresight:
        raise ScenarioError(
            f"scheduler {name} reads future jobs, which {scenario} does not know; choose another policy"
        )
