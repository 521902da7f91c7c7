"""What a service is made of: its scenario, brief, executors and source of signals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from noonward.data.cooling import pue_by_hour
from noonward.data.events import INTERVAL_S
from noonward.data.gpus_by_time import withheld_gpus
from noonward.decision.brief import Brief, Needs
from noonward.decision.scheduler import Scheduler
from noonward.errors import ScenarioError
from noonward.live.coming import sampler_of
from noonward.live.config import OWN_MACHINE, LiveConfig
from noonward.live.executors.make import make_executor
from noonward.live.executors.model import ModelExecutor
from noonward.live.executors.protocol import Executor
from noonward.live.executors.running import missing_levers
from noonward.live.grid.feed_source import feed_source
from noonward.live.grid.keeper import HISTORY_H, SignalKeeper
from noonward.live.grid.sources import SignalSource, source_of
from noonward.live.known_jobs import KnownJobs, StatedTimes, known_jobs
from noonward.live.store.store import Store
from noonward.live.tenants import require_default
from noonward.live.tokens import is_loopback
from noonward.model.cluster.freedom import Lever, bend, freedom_records
from noonward.model.cluster.scenario import GeneratedSignals, Scenario
from noonward.model.cluster.setting import FORECAST_H, Setting
from noonward.schedule.policies import make_scheduler
from noonward.units import DAY_H, HOUR_S

CURES: Final[dict[Lever, str]] = {
    "cap": "give the site a power_cap command",
    "suspend": "give it another executor",
    "resize": "give the site suspend_by: requeue",
    "preempt": "give the site suspend_by: requeue",
}
"""What helps where a site cannot do what a policy does with running jobs."""
GENERATED_H = 200 * DAY_H
"""Hours that the packaged generator draws for a service."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A service's parts.

    Attributes:
        config: Configuration.
        scenario: Fleet, network, economics, protocol.
        start: UTC time of second 0.
        executors: One per site, in the fleet's order.
        source: Source of signals; None where the scenario has none.
        store: Store, whose arrivals the jobs to come are drawn from; None: nothing is known of them.
    """

    config: LiveConfig
    scenario: Scenario
    start: datetime
    executors: tuple[Executor, ...]
    source: SignalSource | None
    store: Store | None = None

    @classmethod
    def of(cls, config: LiveConfig, scenario: Scenario, store: Store, *, shadow: bool = False) -> Setup:
        """Returns the parts that a configuration names.

        Args:
            config: Configuration.
            scenario: Its scenario.
            store: Store of the service.
            shadow: Run nothing: every site gets the executor ``model``, or one that watches its Slurm cluster.

        Raises:
            ScenarioError: Generated signals are asked for beside clusters that run jobs, the network queues, or tenants
                are stated without a default.
            FileError: A publisher's key cannot be read.
            ClusterError: A cluster's commands are missing.
        """
        if scenario.network.queued:
            raise ScenarioError(
                f"scenario {scenario.name!r} has network.queued, a model of links that a live service does not keep; "
                "leave it out of the scenario"
            )
        require_default(scenario)
        real = [name for name, site in config.sites.items() if site.executor not in OWN_MACHINE]
        drawn = isinstance(scenario.signals, GeneratedSignals) and not config.signals
        if real and not shadow and drawn:
            raise ScenarioError(
                f"site {real[0]} runs real jobs, but scenario {scenario.name!r} draws its signals from a generator; "
                "name publishers (signals), give signal files that are kept up to date, or use --shadow"
            )
        return cls(
            config=config,
            scenario=scenario,
            start=store.start,
            store=store,
            executors=tuple(make_executor(config, name, store, shadow) for name in scenario.fleet.site_names),
            source=feed_source(config.signals, store, scenario.day_ahead)
            if config.signals
            else source_of(scenario, store.start - timedelta(hours=HISTORY_H), GENERATED_H, config.seed),
        )

    @property
    def zones(self) -> tuple[str, ...]:
        """Zones of the sites, each once."""
        return tuple(dict.fromkeys(site.zone for site in self.scenario.fleet.sites))

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return self.scenario.fleet.site_names

    @property
    def part_s(self) -> float:
        """How often running jobs are asked about, s: where there may be grid events, as often as in a simulation."""
        return HOUR_S if self.config.events is None else INTERVAL_S

    def keeper(self, store: Store) -> SignalKeeper | None:
        """Returns what keeps the service's signals in a store; None without a source."""
        return None if self.source is None else SignalKeeper(store, self.source, self.zones, self.scenario.day_ahead)

    def setting(self, *, window_s: float, drained: bool) -> Setting:
        """Returns the setting of the service, or of a part of its past.

        Under rule ``wait`` late jobs may start at any time: a service has no window that ``overtime_h`` could follow.

        Args:
            window_s: Horizon, s; infinite for the service itself.
            drained: Whether jobs may start after it.
        """
        late_until_s = np.inf if self.scenario.lateness.rule == "wait" else -np.inf
        setting = self.scenario.setting(self.start, window_s=window_s, drained=drained, late_until_s=late_until_s)
        pue = pue_by_hour(self.scenario.fleet, self.start - timedelta(hours=DAY_H), None)
        return replace(setting, pue=pue, withheld=withheld_gpus(self.scenario.fleet, self.start))

    @property
    def runs_nothing(self) -> bool:
        """Whether no site runs jobs: shadow, or a dry run."""
        return all(isinstance(executor, ModelExecutor) for executor in self.executors)

    @property
    def needs_tokens(self) -> str:
        """Why the service may not run without tokens; empty where it may: on its own machine, and at no clusters."""
        config = self.config
        if not is_loopback(config.host):
            return f"others reach {config.host}"
        clusters = [name for name, site in config.sites.items() if site.executor not in OWN_MACHINE]
        if clusters and not self.runs_nothing and not config.without_tokens:
            return f"every user of this machine could run commands at {', '.join(clusters)} as the service's user"
        return ""

    def known_jobs(self) -> KnownJobs | StatedTimes | None:
        """Returns what says how long jobs run; None where the scheduler is told what users state.

        The log is that of the configuration (``history``), or else of the scenario.

        Raises:
            DataError: The log cannot be read, does not fit the fleet, or lacks what the scenario says is told.
        """
        return known_jobs(self.scenario, self.start, self.config.history, self.config.largest_gang)

    def scheduler(self, policy: str) -> Scheduler:
        """Returns a fresh scheduler that a service can ask.

        Raises:
            ScenarioError: There is no such policy, or it reads the future.
        """
        scheduler: Scheduler = make_scheduler(policy)
        needs = scheduler.needs
        if needs.foresight or (needs.forecast is not None and needs.forecast.foresight):
            raise ScenarioError(
                f"policy {policy} reads the future, which a service does not know; choose another policy"
            )
        self._require_levers(policy, needs)
        return scheduler

    def _require_levers(self, policy: str, needs: Needs) -> None:
        """Raises ScenarioError where a site cannot do with running jobs what a policy does with them."""
        if not needs.levers or self.scenario.protocol != "each-slot":
            return
        freedoms, classes = self.scenario.fleet.freedoms, self.scenario.fleet.classes
        used = [lever for lever in needs.levers if bend(freedom_records(freedoms, classes, (lever,)))]
        if used and self.scenario.jobs.knowledge.run_time == "learned":
            raise ScenarioError(
                f"policy {policy} acts on running jobs, and the scenario says run_time: learned; state run times "
                "(known, limit or class-mean), or choose another policy"
            )
        for name, executor in zip(self.sites, self.executors, strict=True):
            if missing := missing_levers(used, executor.levers):
                raise ScenarioError(
                    f"policy {policy} wants to {', '.join(missing)} running jobs, which site {name} "
                    f"({self.config.sites[name].executor}) cannot; {CURES[missing[0]]}, leave that out of "
                    "fleet.freedoms, or choose another policy"
                )

    def brief(self, needs: Needs) -> Brief:
        """Returns the brief of the service: no window's end, and of the jobs to come what its past or a file tells.

        Raises:
            DataError: The file of past jobs cannot be read.
        """
        scenario = self.scenario
        lookahead_h = 0
        if needs.forecast is not None and self.source is not None:
            lookahead_h = max(needs.lookahead_h, self.scenario.forecast_h or FORECAST_H)
        return Brief(
            **self.setting(window_s=np.inf, drained=True).stated,
            largest_gang=self.config.largest_gang,
            largest_need=self.config.largest_gang,
            signals=self.source is not None,
            lookahead_h=lookahead_h,
            sample_jobs=None
            if self.store is None or not needs.samples
            else sampler_of(scenario, self.store, self.config.history),
        )
