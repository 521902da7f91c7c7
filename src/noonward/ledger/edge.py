"""The ledger of an edge run: images, responses, quality, loads, energy, money and carbon.

Energy, money and carbon come from power segments through the same ``settle_power`` as in every setting: a gang draws
its servers' load power while it loads and their active power while it generates; idle servers are charged over the
window.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np

from noonward.arrays import F8, Bools, Records
from noonward.ledger.ledger import fixed_power
from noonward.ledger.segments import ModelLoads, PowerSegments
from noonward.ledger.settle import settle_power
from noonward.model.edge.environment import EdgeEnvironment
from noonward.units import KG_PER_TONNE

TASK_OUTCOME: Final = np.dtype(
    [
        ("start_t", "i8"),  # tick of the launch, -1 before
        ("steps", "f8"),  # inference steps
        ("loaded", "i8"),  # 1 if the model had to be loaded
        ("duration_s", "f8"),  # load and steps
        ("quality", "f8"),
        ("servers", "i8"),  # bit n is set if server n took part
    ]
)
"""What became of an image task."""


@dataclass(frozen=True, kw_only=True)
class EdgeOutcome:
    """What became of every task.

    Attributes:
        environment: What was run.
        task_K: TASK_OUTCOME records; a task that was never launched has a ``start_t`` of -1.
        ended_s: Last question or event, s.
        questions: Questions asked.
    """

    environment: EdgeEnvironment
    task_K: Records
    ended_s: float
    questions: int

    @property
    def launched_K(self) -> Bools:
        """Whether each task was launched."""
        return np.asarray(self.task_K["start_t"] >= 0)

    @property
    def start_s_K(self) -> F8:
        """When each task was launched, s; NaN if it was not."""
        return np.where(self.launched_K, self.task_K["start_t"] * self.environment.setting.tick_s, np.nan)

    @property
    def finish_s_K(self) -> F8:
        """When each image was finished, s; NaN for tasks never launched."""
        return np.asarray(self.start_s_K + self.task_K["duration_s"])

    @property
    def response_s_K(self) -> F8:
        """Seconds from submission to the finished image; NaN for tasks never launched."""
        return np.asarray(self.finish_s_K - self.environment.tasks.stamp_s_K)

    @property
    def load_s_K(self) -> F8:
        """Seconds of each task's load; 0 where its model was loaded already."""
        return np.where(self.launched_K & (self.task_K["loaded"] == 1), self.environment.tasks.record_K["load_s"], 0.0)

    def segments(self) -> tuple[PowerSegments, ModelLoads]:
        """Returns the power of generating images, and that of loading their models."""
        servers, launched = self.environment.setting.servers, self.launched_K
        begin_s_K, turn_s_K = self.start_s_K, self.start_s_K + self.load_s_K
        runs = _segments(launched, turn_s_K, self.finish_s_K, servers.active_w * servers.pue, self.environment)
        loads = _segments(self.load_s_K > 0, begin_s_K, turn_s_K, servers.load_w * servers.pue, self.environment)
        return PowerSegments(**runs), ModelLoads(**loads)


def _segments(some_K: Bools, from_s_K: F8, to_s_K: F8, server_w: float, environment: EdgeEnvironment) -> dict[str, Any]:
    """Returns the columns of the segments of some tasks, whose every server draws the same."""
    gpus_K = environment.tasks.gang_K[some_K]
    return {
        "site_K": np.zeros(len(gpus_K), np.int64),
        "job_K": np.flatnonzero(some_K),
        "from_s_K": from_s_K[some_K],
        "to_s_K": to_s_K[some_K],
        "watts_K": gpus_K * server_w,
        "gpus_K": np.ascontiguousarray(gpus_K),
    }


@dataclass(frozen=True, kw_only=True)
class EdgeLedger:
    """What an edge run made, used, cost and emitted. Money and carbon are NaN without signals.

    Attributes:
        tasks: Tasks of the environment.
        images: Tasks that were launched.
        unlaunched: Tasks that were never launched.
        loads: Launches that had to load their model.
        response_s: Mean seconds from submission to the finished image; NaN without any image.
        p95_response_s: Its 95th percentile, s.
        wait_s: Mean seconds from submission to the launch.
        quality: Mean quality.
        below_quality_min: Images below the quality that they should reach.
        late: Images finished after their deadline.
        utility: Mean utility of an image (EAT, Eq. 4a; ``noonward.model.edge.scenario.Utility``).
        run_kwh: Facility energy of generating images, kWh.
        load_kwh: Facility energy of loading models, kWh.
        idle_kwh: Facility energy of idle servers over the window, kWh.
        run_usd: Energy of generating images, USD.
        load_usd: Energy of loading models, USD.
        idle_usd: Energy of idle servers, USD.
        run_kg: Emissions of generating images, kgCO2.
        load_kg: Emissions of loading models, kgCO2.
        idle_kg: Emissions of idle servers, kgCO2.
        carbon_usd: Carbon price of all emissions, USD.
        fixed_kwh: Energy of servers that stay idle all through the window, kWh: no policy changes it.
        fixed_usd: Its price, USD, the carbon price not included.
        fixed_kg: Its emissions, kgCO2.
        questions: Questions asked.
    """

    tasks: int
    images: int
    unlaunched: int
    loads: int
    response_s: float
    p95_response_s: float
    wait_s: float
    quality: float
    below_quality_min: int
    late: int
    utility: float
    run_kwh: float
    load_kwh: float
    idle_kwh: float
    run_usd: float
    load_usd: float
    idle_usd: float
    run_kg: float
    load_kg: float
    idle_kg: float
    carbon_usd: float
    fixed_kwh: float
    fixed_usd: float
    fixed_kg: float
    questions: int

    @property
    def reload_rate(self) -> float:
        """Launches that had to load their model, as a share of all; NaN without any (EAT, Table XI)."""
        return self.loads / self.images if self.images else float("nan")

    @property
    def energy_kwh(self) -> float:
        """Facility energy of the servers, kWh."""
        return self.run_kwh + self.load_kwh + self.idle_kwh

    @property
    def energy_usd(self) -> float:
        """Energy of the servers, USD."""
        return self.run_usd + self.load_usd + self.idle_usd

    @property
    def carbon_kg(self) -> float:
        """Emissions of the servers, kgCO2."""
        return self.run_kg + self.load_kg + self.idle_kg

    @property
    def joules_per_image(self) -> float:
        """Energy of loads and runs per image beyond that of idle servers, J; NaN without any image."""
        return self._per_image(self.energy_kwh - self.fixed_kwh, 3.6e6)

    @property
    def usd_per_image(self) -> float:
        """Energy cost of loads and runs per image beyond that of idle servers, USD; NaN without signals or images."""
        return self._per_image(self.energy_usd - self.fixed_usd, 1.0)

    @property
    def g_per_image(self) -> float:
        """Emissions of loads and runs per image beyond those of idle servers, gCO2; NaN without signals or images."""
        return self._per_image(self.carbon_kg - self.fixed_kg, 1000.0)

    def _per_image(self, amount: float, factor: float) -> float:
        return factor * amount / self.images if self.images else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """Returns all fields and derived figures, NaN as None."""
        derived = {name: getattr(self, name) for name, value in vars(type(self)).items() if isinstance(value, property)}
        content = {**asdict(self), **derived}
        return {
            name: None if isinstance(value, float) and np.isnan(value) else value for name, value in content.items()
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> EdgeLedger:
        """Returns a ledger from what ``as_dict`` returned."""
        names = [one.name for one in fields(cls)]
        values: dict[str, Any] = {name: float("nan") if content[name] is None else content[name] for name in names}
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class SettledTasks:
    """Tasks of an edge run, settled: columns kWh, then the total of each signal (USD, kgCO2, ...).

    Attributes:
        run_KA: Generating the images.
        load_KA: Loading the models.
        displaced_A: What the servers would have drawn idle within the window.
        fixed_A: Servers that stay idle all through the window.
    """

    run_KA: F8
    load_KA: F8
    displaced_A: F8
    fixed_A: F8


def settle_tasks(outcome: EdgeOutcome) -> SettledTasks:
    """Settles the power segments of an edge run."""
    environment = outcome.environment
    servers, signals, tasks = environment.setting.servers, environment.site_signals, len(environment.tasks)
    idle_w_S = np.array([servers.idle_w * servers.pue])
    runs, loads = outcome.segments()
    run = settle_power(runs, signals, tasks, idle_w_S, environment.window_s)
    load = settle_power(loads, signals, tasks, idle_w_S, environment.window_s)
    return SettledTasks(
        run_KA=run.job_JA,
        load_KA=load.job_JA,
        displaced_A=run.displaced_JA.sum(axis=0) + load.displaced_JA.sum(axis=0),
        fixed_A=fixed_power(signals, servers.count * idle_w_S, environment.window_s),
    )


def settle_edge(outcome: EdgeOutcome) -> EdgeLedger:
    """Settles an edge run: energy, money and carbon from its power segments, times and quality from its tasks."""
    environment, launched = outcome.environment, outcome.launched_K
    setting, settled = environment.setting, settle_tasks(outcome)
    run, load = settled.run_KA.sum(axis=0), settled.load_KA.sum(axis=0)
    idle = settled.fixed_A - settled.displaced_A
    response_s = outcome.response_s_K[launched]
    quality = outcome.task_K["quality"][launched]
    return EdgeLedger(
        tasks=len(launched),
        images=int(launched.sum()),
        unlaunched=int((~launched).sum()),
        loads=int(outcome.task_K["loaded"][launched].sum()),
        response_s=_mean(response_s),
        p95_response_s=float(np.percentile(response_s, 95)) if len(response_s) else float("nan"),
        wait_s=_mean((outcome.start_s_K - environment.tasks.stamp_s_K)[launched]),
        quality=_mean(quality),
        below_quality_min=int((quality < setting.quality_min).sum()),
        late=int((outcome.finish_s_K > environment.tasks.record_K["deadline_s"])[launched].sum()),
        utility=_mean(
            setting.utility.quality * quality
            - setting.utility.response_per_s * response_s
            - setting.utility.penalty * (quality < setting.quality_min)
        ),
        run_kwh=float(run[0]),
        load_kwh=float(load[0]),
        idle_kwh=float(idle[0]),
        run_usd=float(run[1]),
        load_usd=float(load[1]),
        idle_usd=float(idle[1]),
        run_kg=float(run[2]),
        load_kg=float(load[2]),
        idle_kg=float(idle[2]),
        carbon_usd=float(setting.carbon_usd_per_t / KG_PER_TONNE * (run[2] + load[2] + idle[2])),
        fixed_kwh=float(settled.fixed_A[0]),
        fixed_usd=float(settled.fixed_A[1]),
        fixed_kg=float(settled.fixed_A[2]),
        questions=outcome.questions,
    )


def _mean(values: F8) -> float:
    return float(values.mean()) if len(values) else float("nan")
