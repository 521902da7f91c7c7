"""An edge environment: one concrete draw of an edge scenario that the engine runs and policies are compared on."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from noonward.arrays import F8
from noonward.errors import ScenarioError
from noonward.model.edge.scenario import EdgeScenario
from noonward.model.edge.tasks import NO_DEADLINE_S, ImageTasks
from noonward.model.signals import Signals, SiteSignals
from noonward.units import HOUR_S


@dataclass(frozen=True, kw_only=True)
class EdgeEnvironment:
    """Servers, tasks and signals of one run.

    Attributes:
        setting: Scenario it was drawn from.
        index: Number of the draw.
        seed: Seed of the draw.
        start: UTC time of second 0, a full hour.
        tasks: Image tasks.
        signals: Price and carbon intensity of the servers' zone; None where the scenario has none.
        notes: What a reader of any result must know.

    Raises:
        ScenarioError: There is no task, or a gang has no times.
    """

    setting: EdgeScenario
    index: int
    seed: int
    start: datetime
    tasks: ImageTasks
    signals: Signals | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.tasks) == 0:
            raise ScenarioError(
                f"environment {self.index} of {self.setting.name!r} has no task; raise the rate or count"
            )
        for size in np.unique(self.tasks.gang_K).tolist():
            if size not in self.setting.gang_times:
                known = ", ".join(map(str, sorted(self.setting.gang_times)))
                raise ScenarioError(
                    f"a task needs a gang of {size} servers, but gang_times has {known}; give its times"
                )

    @property
    def scenario(self) -> str:
        """Name of the scenario."""
        return self.setting.name

    @property
    def window_s(self) -> float:
        """Horizon over which idle servers are charged, s."""
        return self.setting.window_h * HOUR_S

    @property
    def hours(self) -> int:
        """Whole hours from the start that a run may touch.

        Every task may load alone and run alone after the last arrival; the slowest gang is taken for all.
        """
        record_K = self.tasks.record_K
        longest_s = float(np.sum(record_K["load_s"] + record_K["steps_max"] * record_K["step_s"]))
        ticks_s = self.setting.tick_s * len(self.tasks)
        return int(np.ceil((self.latest_s + longest_s + ticks_s) / HOUR_S))

    @property
    def latest_s(self) -> float:
        """Latest time until which a wait may last while nothing happens, s: the window's end, or the last promise.

        Without it a scheduler could wait for ever, and there would be no end to the signals that a run needs.
        """
        record_K = self.tasks.record_K
        promised_s = record_K["deadline_s"][record_K["deadline_s"] < NO_DEADLINE_S]
        last_s = max(float(record_K["stamp_s"][-1]), self.setting.first_s, *promised_s.tolist())
        return float(max(self.window_s, last_s) + HOUR_S)

    @functools.cached_property
    def site_signals(self) -> SiteSignals:
        """Signals of the servers' zone from the start, with their running integrals."""
        return SiteSignals.of(self.signals, [self.setting.servers.zone], self.start, self.hours)

    @property
    def kind(self) -> str:
        """Kind of scenario."""
        return self.setting.kind

    @property
    def least_load_s_G(self) -> F8:
        """Least seconds that a task of each gang size loads; NaN for sizes that do not occur."""
        out_G, record_K = np.full(len(self.load_s_G), np.nan), self.tasks.record_K
        for size in np.unique(record_K["gang"]).tolist():
            out_G[size] = record_K["load_s"][record_K["gang"] == size].min()
        return out_G

    @property
    def load_s_G(self) -> F8:
        """Expected seconds to load, by gang size from 0; NaN for sizes that do not occur."""
        return self._times("load_s")

    @property
    def step_s_G(self) -> F8:
        """Seconds a step, by gang size from 0; NaN for sizes that do not occur."""
        return self._times("step_s")

    def _times(self, name: str) -> F8:
        out_G = np.full(max(self.setting.gang_times) + 1, np.nan)
        for size, time in self.setting.gang_times.items():
            out_G[size] = getattr(time, name)
        return out_G
