"""``reproduce fine-tuning --map``: under which assumptions the gains that MASAC's paper reports come out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import split_scenario, split_seed
from noonward.evaluate.asked import policies_of, require_fit
from noonward.evaluate.comparison import objective_of
from noonward.evaluate.learned import learned_policies
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, ratio
from noonward.files import write_text
from noonward.ledger.ledger import settle
from noonward.model.cluster.scenario import Scenario
from noonward.model.kinds import find_kind
from noonward.runtime.by_kind import environment_digest, run
from noonward.runtime.executor import Executor, PlainSpec, Progress, map_runs
from noonward.runtime.rests_on import bound_digest, run_digest
from noonward.runtime.runs import environment_of
from noonward.schedule.registry import Policy
from noonward.studies.fine_tuning.reproduce import (
    BEST_LEARNED,
    PAPER_GAIN,
    PAPER_GPU_HOURS,
    PAPER_POLICIES,
    REFERENCE,
    SCENARIO,
)

POLICIES: Final = (*PAPER_POLICIES, "cheapest-feasible", BEST_LEARNED)
"""Policies of the map: S0 to S4 of the paper, a rule that looks at this hour alone, and the best without foresight."""
DEMANDS: Final = (0.6, 0.85, 1.0, 1.2, 1.5)
"""GPU-hours asked over the fleet's."""
POWERS_W: Final = (40.0, 60.0, 80.0, 120.0)
"""Power of a busy GPU, W; a free one draws a tenth."""
VARIED_AT: Final = (0.85, 1.2)
"""Demands at which the other assumptions are varied."""
VARIATIONS: Final = {
    "slack": {"slack-0.1": ("jobs.slack_ratio=0.1",), "slack-1": ("jobs.slack_ratio=1.0",)},
    "GPUs per job": {"gangs-1": ("jobs.gpus_cap=1",), "gangs-64": ("jobs.gpus_cap=64",)},
    "arrivals": {
        "arrivals-as-gpus": (
            "jobs.origin_shares={AU-SA: 100, AU-WA: 110, CA-ON: 80, PL: 130, SG: 120}",
        ),
        "arrivals-half-at-sg": (
            "jobs.origin_shares={AU-SA: 1, AU-WA: 1, CA-ON: 1, PL: 1, SG: 4}",
        ),
    },
}  # fmt: skip
"""What else is varied, one at a time: settings by name of the change, by what is changed.

The packaged scenario has a slack of 0.4 of the run time, gangs of at most 16 GPUs, and a third of its jobs at SG, which
has a fifth of the GPUs."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A set of assumptions.

    Attributes:
        name: Name, fit for a file and a figure's name.
        varied: What differs from the packaged scenario, in words.
        demand: GPU-hours asked over the fleet's.
        settings: Settings of the scenario.
    """

    name: str
    varied: str
    demand: float
    settings: tuple[str, ...]


def power_settings(watts: float) -> tuple[str, ...]:
    """Returns the settings under which a busy GPU draws some watts and a free one a tenth of them."""
    kind = "fleet.gpu_types.T4-class"
    return (f"{kind}.classes.fine-tuning.power.constant_w={watts:g}", f"{kind}.idle_w={watts / 10:g}")


def cells() -> list[Cell]:
    """Returns all cells: demand by power, then the other assumptions one at a time."""
    out = [
        Cell(
            name=f"demand-{demand:g}-power-{watts:g}",
            varied="demand and power",
            demand=demand,
            settings=(f"jobs.demand={demand:g}", *power_settings(watts)),
        )
        for watts in POWERS_W
        for demand in DEMANDS
    ]
    return out + [
        Cell(
            name=f"demand-{demand:g}-{name}",
            varied=varied,
            demand=demand,
            settings=(f"jobs.demand={demand:g}", *settings),
        )
        for varied, changes in VARIATIONS.items()
        for name, settings in changes.items()
        for demand in VARIED_AT
    ]


@dataclass(frozen=True, kw_only=True)
class Earned:
    """What policies earn in one environment.

    Attributes:
        utility_usd: Utility by policy, USD; ``bound`` is the upper bound.
        gpu_hours: GPU-hours of jobs by policy.
        of: Digests of what it rests on.
        read: Whether it was read back.
    """

    utility_usd: dict[str, float]
    gpu_hours: dict[str, float]
    of: dict[str, Any]
    read: bool = False


@dataclass(frozen=True)
class CellRun(PlainSpec):
    """A spec: every policy and the bound in one environment of a cell, read back where it was computed already.

    Attributes:
        scenario: Scenario of the cell.
        index: Number of the environment.
        seed: Seed of environment and policies.
        policies: Registered names.
        cell: Name of the cell.
        folder: Folder of the map.
    """

    scenario: Scenario
    index: int
    seed: int
    policies: tuple[Policy, ...]
    cell: str
    folder: Path

    @property
    def label(self) -> str:
        """Which environment."""
        return f"{self.cell}, environment {self.index}"

    @property
    def place(self) -> Path:
        """File of what was earned."""
        return self.folder / self.cell / f"{self.index:03d}.json"

    def run(self) -> Earned:
        """Returns what every policy earns."""
        environment = environment_of(self.scenario, self.index, self.seed)
        kind, objective = find_kind(self.scenario.kind), objective_of(self.scenario)
        schedulers = {policy.name: policy.make() for policy in self.policies}
        of = {
            "environment_digest": environment_digest(environment),
            "seed": self.seed,
            "code": {policy.name: run_digest(kind, policy, schedulers[policy.name]) for policy in self.policies},
            "bound": bound_digest(kind, objective),
        }
        try:
            content = json.loads(self.place.read_text(encoding="utf-8"))
            if content["of"] == of:
                return Earned(**content, read=True)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # none there, or one that was cut short: it is computed again
        ledgers = {name: settle(run(environment, each, seed=self.seed)) for name, each in schedulers.items()}
        utility = {name: float(ledger.utility_usd) for name, ledger in ledgers.items()}
        return Earned(
            utility_usd={**utility, "bound": utility_bound(environment, schedule=False).upper_usd},
            gpu_hours={name: float(ledger.gpu_hours) for name, ledger in ledgers.items()},
            of=of,
        )

    def keep(self, found: Earned) -> Earned:
        """Writes what was earned and returns it."""
        if not found.read:
            content = {"utility_usd": found.utility_usd, "gpu_hours": found.gpu_hours, "of": found.of}
            write_text(self.place, json.dumps(content, indent=1) + "\n")
        return found


@dataclass(frozen=True, kw_only=True)
class GainMap:
    """What policies gain under each set of assumptions.

    Attributes:
        cells: Sets of assumptions.
        policies: Policies; a learned one counts with the mean over its training seeds in each environment.
        earned: By cell one entry an environment, learned policies by their own names.
        members: Registered names of every policy.
    """

    cells: tuple[Cell, ...]
    policies: tuple[str, ...]
    earned: dict[str, tuple[Earned, ...]]
    members: dict[str, tuple[str, ...]]

    def utility_usd_E(self, cell: Cell, policy: str) -> F8:
        """Returns a policy's or the bound's utility in every environment of a cell, USD."""
        names = self.members.get(policy, (policy,))
        return np.array([np.mean([each.utility_usd[name] for name in names]) for each in self.earned[cell.name]])

    def gpu_hours_E(self, cell: Cell, policy: str) -> F8:
        """Returns a policy's GPU-hours in every environment of a cell."""
        names = self.members[policy]
        return np.array([np.mean([each.gpu_hours[name] for name in names]) for each in self.earned[cell.name]])

    def gain(self, cell: Cell, policy: str) -> Estimate:
        """Returns the paired change of utility over local FCFS, as a fraction; NaN where local FCFS loses money."""
        base_E = self.utility_usd_E(cell, REFERENCE)
        return ratio(self.utility_usd_E(cell, policy) - base_E, base_E)

    def improvement_share(self, cell: Cell, policy: str) -> Estimate:
        """Returns the share of the gap between local FCFS and the bound that a policy closes."""
        base_E = self.utility_usd_E(cell, REFERENCE)
        return ratio(self.utility_usd_E(cell, policy) - base_E, self.utility_usd_E(cell, "bound") - base_E)

    def more_hours(self, cell: Cell, policy: str) -> Estimate:
        """Returns GPU-hours over those of the one of S0 to S3 that has least, paired, as a fraction."""
        others = [name for name in PAPER_POLICIES[:-1] if name in self.policies and name != policy]
        least_E = min((self.gpu_hours_E(cell, name) for name in others), key=lambda hours_E: float(hours_E.mean()))
        return ratio(self.gpu_hours_E(cell, policy) - least_E, least_E)

    def holds_pair(self, cell: Cell, policy: str) -> bool:
        """Returns whether both of the paper's numbers lie within a policy's 95% intervals."""
        pair = ((self.gain(cell, policy), PAPER_GAIN), (self.more_hours(cell, policy), PAPER_GPU_HOURS))
        return all(
            found.low is not None and found.high is not None and found.low <= said <= found.high for found, said in pair
        )

    def distance(self, cell: Cell, policy: str) -> float:
        """Returns how far a policy's pair lies from the paper's: the larger of both differences, as a fraction."""
        gain, hours = self.gain(cell, policy).value, self.more_hours(cell, policy).value
        return max(abs(gain - PAPER_GAIN), abs(hours - PAPER_GPU_HOURS))

    def nearest(self, policy: str) -> Cell:
        """Returns the cell in which a policy's pair lies nearest to the paper's."""
        known = [cell for cell in self.cells if np.isfinite(self.distance(cell, policy))]
        return min(known or self.cells, key=lambda cell: self.distance(cell, policy))

    @property
    def compared(self) -> list[str]:
        """Policies that are compared with local FCFS."""
        return [name for name in self.policies if name != REFERENCE]

    def metrics(self) -> list[Metric]:
        """Returns the metrics for ``--json``: ``map/CELL/QUANTITY/POLICY``."""
        out = []
        for cell in self.cells:
            name = f"map/{cell.name}"
            out.append(Metric.of(f"{name}/utility_usd/{REFERENCE}", self._mean(cell, REFERENCE), "USD"))
            for policy in self.compared:
                paper = (PAPER_GAIN, PAPER_GPU_HOURS) if policy == "masac" else (None, None)
                out += [
                    Metric.of(f"{name}/gain/{policy}", self.gain(cell, policy), "fraction", paper[0]),
                    Metric.of(f"{name}/more_gpu_hours/{policy}", self.more_hours(cell, policy), "fraction", paper[1]),
                    Metric.of(f"{name}/improvement_share/{policy}", self.improvement_share(cell, policy), "fraction"),
                    Metric.of(f"{name}/holds_pair/{policy}", float(self.holds_pair(cell, policy)), "0 or 1"),
                ]
            out.append(Metric.of(f"{name}/gain/bound", self.gain(cell, "bound"), "fraction"))
        return out

    def _mean(self, cell: Cell, policy: str) -> float:
        return float(self.utility_usd_E(cell, policy).mean())


def map_gains(
    *,
    environments: int = 10,
    seed: int = 0,
    out: Path = Path("runs"),
    scenario: str = SCENARIO,
    policies: Sequence[str] = POLICIES,
    over: Sequence[Cell] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> GainMap:
    """Runs policies and the bound under every set of assumptions, on generated environments of the test's months.

    Learned policies are the packaged ones: they were trained under the packaged scenario's assumptions alone. What was
    computed before is read back, so an interrupted map resumes where it stopped.

    Args:
        environments: Environments of a cell.
        seed: Number of the draw of test environments.
        out: Folder; the map lies in a folder of it.
        scenario: Packaged scenario or file.
        policies: Policies; a learned policy's name means all its training seeds, ``bid-price-neural`` only its
            first: its seeds hardly differ, and it is most of the work.
        over: Cells; by default all.
        progress: Called once per environment of a cell.
        executor: Where runs are carried out; by default here, one after the other.

    Raises:
        ScenarioError: A policy is unknown or does not fit, or a setting is wrong.
    """
    chosen, first = tuple(cells() if over is None else over), split_seed("test", seed)
    learned = learned_policies(load_scenario(scenario))
    seeds = {name: each.members for name, each in learned.items() if name != BEST_LEARNED}
    members = {name: seeds.get(name, (name,)) for name in (REFERENCE, *policies)}
    runs_of = tuple(name for each in members.values() for name in each)
    folder = out / f"reproduce-fine-tuning-map-seed{seed}"
    worlds = [split_scenario(load_scenario(scenario, list(cell.settings)), "test") for cell in chosen]
    found_policies = tuple(policies_of(worlds[0], runs_of))
    require_fit(environment_of(worlds[0], 0, first), found_policies)
    specs = [
        CellRun(world, index, first, found_policies, cell.name, folder)
        for cell, world in zip(chosen, worlds, strict=True)
        for index in range(environments)
    ]
    found = map_runs(specs, executor, progress)
    return GainMap(
        cells=chosen,
        policies=tuple(members),
        earned={cell.name: tuple(found[n * environments : (n + 1) * environments]) for n, cell in enumerate(chosen)},
        members=members,
    )
