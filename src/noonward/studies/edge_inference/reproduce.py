"""The experiment of EAT, Sec. VI: every policy at the paper's fifteen arrival rates, in the same drawn episodes."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from noonward.bound.edge_environment import edge_response_bound
from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import split_seed
from noonward.errors import ScenarioError
from noonward.evaluate.compare import compare
from noonward.evaluate.comparison import Comparison, no_value
from noonward.evaluate.edge_decision_time import decision_ms
from noonward.evaluate.edge_objective import EdgeObjective
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean
from noonward.files import write_text
from noonward.model.edge.quality import STEPS_LOW, steps_for
from noonward.model.edge.scenario import EdgeScenario
from noonward.model.kinds import EDGE
from noonward.runtime.by_kind import build_environment, check_fit, environment_digest
from noonward.runtime.executor import Executor, Progress, map_runs
from noonward.runtime.rests_on import bound_digest
from noonward.runtime.runs import environment_of
from noonward.schedule.policies import make_scheduler, policies
from noonward.studies.edge_inference.published import CELLS, DECISION_MS, PAPER_NAME, Cell, paper_value

SCENARIO: Final = "edge-inference-reference"
"""Values of the public simulator, with which the paper's tables were made."""
RULES: Final = (
    *(
        "random",
        "fifo",
        "first-fit",
        "reuse-first",
        "patient-reuse",
        "lookahead",
        "sampled-lookahead",
        "queue-lookahead",
    ),
    *("priced-lookahead", "priced-sampled-lookahead", "greedy", "greedy-corrected", "genetic", "harmony"),
)
"""Policies that are not learned; learned ones join when they are registered."""
LEARNED: Final = ("ppo", "eat", "eat-a", "eat-d", "eat-da", "eat-published")
"""Learned policies of the paper; one without a trained file in the package is said to be missing."""
ENDS: Final = {"bound": "lower bound", "beam": "clairvoyant beam"}
"""Rows that no policy made and that are always there, as tables name them; they may be named among the policies."""
SEED: Final = split_seed("test", 0)
"""Seed of the episodes, which no training sees."""
FLOORS: Final = {"quality .26": steps_for(0.26), "quality .25": steps_for(0.25), "any quality": STEPS_LOW}
"""Fewer steps that bounds are computed for: of images that all have that quality, and the fewest with any quality."""
TIMED: Final[Cell] = (8, 0.10)
"""Where decisions are timed (Table XII)."""


def cell_scenario(cell: Cell) -> EdgeScenario:
    """Returns the scenario of a cell: episodes run until every image is finished.

    The public simulator stops at 1,024 s and leaves out what was not launched, fewer than 0.3 tasks an episode.
    """
    servers, rate = cell
    sizes = "[1,2,4]" if servers == 4 else "[1,2,4,8]"
    settings = [f"servers.count={servers}", f"tasks.sizes={sizes}", f"tasks.rate_per_s={rate}"]
    scenario: EdgeScenario = load_scenario(SCENARIO, settings)
    return scenario


def study_policies(names: Sequence[str] | None = None) -> list[str]:
    """Returns the policies of the study: those named, else the rules and all learned ones (best training seeds)."""
    if names is not None:
        return [name for name in names if name not in ENDS]
    learned = [policy.name for policy in policies(kind="edge", role="learned")]
    learned += [policy.name for policy in policies(kind="edge", trained=True)]
    return [*RULES, *dict.fromkeys(name for name in learned if not re.search(r"-seed\d+$", name))]


@dataclass(frozen=True)
class FloorRun:
    """A spec: bounds of an episode for fewer steps, read back where they were computed already.

    Attributes:
        scenario: Scenario of the cell.
        index: Episode.
        seed: Seed.
        folder: Folder of the study.
    """

    scenario: EdgeScenario
    index: int
    seed: int
    folder: Path

    @property
    def label(self) -> str:
        """Which episode's floors."""
        return f"bounds for fewer steps, episode {self.index}"

    @property
    def portable(self) -> bool:
        """Any process can compute them."""
        return True

    @property
    def group(self) -> Hashable:
        """They share the environment with runs and bound."""
        return self.scenario.digest, self.index

    @property
    def place(self) -> Path:
        """File of the floors."""
        return self.folder / "floors" / f"{self.scenario.digest}-{self.index:03d}.json"

    def run(self) -> tuple[dict[str, float], str | None]:
        """Returns the bounds by floor, and where they are new the digest of environment and code that they rest on."""
        environment: Any = environment_of(self.scenario, self.index, self.seed)  # type: ignore[arg-type]
        digest = f"{environment_digest(environment)} {bound_digest(EDGE, EdgeObjective())}"
        try:
            content: dict[str, Any] = json.loads(self.place.read_text(encoding="utf-8"))
            if content["of"] == digest and set(content["bounds"]) == set(FLOORS):
                return content["bounds"], None
        except (OSError, ValueError, KeyError, TypeError):
            pass  # none there, or one that was cut short: it is computed again
        return {name: edge_response_bound(environment, steps) for name, steps in FLOORS.items()}, digest

    def keep(self, found: tuple[dict[str, float], str | None]) -> dict[str, float]:
        """Writes new bounds to their file and returns them."""
        bounds, digest = found
        if digest is not None:
            write_text(self.place, json.dumps({"of": digest, "bounds": bounds}, indent=1) + "\n")
        return bounds


@dataclass(frozen=True, kw_only=True)
class EdgeInference:
    """Results of the study.

    Attributes:
        cells: Comparison of every cell.
        floors: Bounds for fewer steps by cell and floor, s per episode.
        decision_ms: CPU time of a decision per policy, ms.
        episodes: Episodes of a cell.
        missing: Policies of the paper that have no trained file; none where policies were named.
    """

    cells: dict[Cell, Comparison]
    floors: dict[Cell, dict[str, np.ndarray]]
    decision_ms: dict[str, float]
    episodes: int
    missing: tuple[str, ...] = ()

    @property
    def policies(self) -> list[str]:
        """Policies, those of the rules first."""
        return list(dict.fromkeys(name for found in self.cells.values() for name in found.records))

    def estimate(self, quantity: str, policy: str, cell: Cell) -> Estimate | None:
        """Returns a mean over the episodes of a cell; ``bound`` and ``beam`` are policies of ``response_s``.

        Args:
            quantity: ``response_s``, ``quality``, ``reload_rate``, ``improvement_share``, or a field of the ledger.
            policy: Policy, ``bound`` or ``beam`` (the clairvoyant search).
            cell: Cell.
        """
        found = self.cells[cell]
        if policy in ENDS:
            name = "response_s" if policy == "bound" else "best_known_s"
            if no_value(found.bounds, name):
                return None
            values_E = found.bound_values(name)
            if quantity == "improvement_share":
                return (
                    None if no_value(found.bounds, "response_s") else found.objective.improvement_share(found, values_E)
                )
            return mean(values_E) if quantity == "response_s" else None
        if policy not in found.records:
            return None
        if quantity == "improvement_share":
            return None if no_value(found.bounds, "response_s") else found.improvement_share(policy)
        return found.mean(policy, quantity)

    def metrics(self) -> list[Metric]:
        """Returns the metrics for ``--json``; references are the paper's values."""
        out = []
        units = {"response_s": "s", "quality": "quality", "reload_rate": "fraction", "improvement_share": "fraction"}
        more = {"j_per_image": "joules_per_image", "usd_per_image": "usd_per_image", "g_per_image": "g_per_image"}
        for cell in self.cells:
            where = f"N{cell[0]}/{cell[1]:.2f}"
            for policy in (*self.policies, "beam", "bound"):
                for quantity, unit in units.items():
                    found = self.estimate(quantity, policy, cell)
                    if found is not None:
                        known = None if quantity == "improvement_share" else paper_value(quantity, policy, cell)
                        out.append(Metric.of(f"{quantity}/{policy}/{where}", found, unit, known))
                for name, field in more.items():
                    found = None if policy in ("beam", "bound") else self.estimate(field, policy, cell)
                    if found is not None:
                        unit = {"j": "J/image", "usd": "USD/image", "g": "gCO2/image"}[name.split("_")[0]]
                        out.append(Metric.of(f"{name}/{policy}/{where}", found, unit))
            for floor, values_E in self.floors.get(cell, {}).items():
                out.append(Metric.of(f"response_s/bound-{floor.replace(' ', '-')}/{where}", mean(values_E), "s"))
        out += [
            Metric.of(f"decision_ms/{policy}", spent_ms, "CPU ms", DECISION_MS.get(PAPER_NAME.get(policy, "")))
            for policy, spent_ms in self.decision_ms.items()
        ]
        return out


def reproduce_edge_inference(
    out: Path,
    *,
    names: Sequence[str] | None = None,
    episodes: int = 40,
    cells: Sequence[Cell] = CELLS,
    seed: int = SEED,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> EdgeInference:
    """Runs all policies in all cells; what is recorded already is kept, so an interrupted study resumes.

    Args:
        out: Folder of all records.
        names: Policies; by default all of the study.
        episodes: Episodes of a cell, the same for every policy.
        cells: Cells.
        seed: Seed of the episodes.
        progress: Called once per run and bound (``work_of`` counts them).
        executor: Where runs are carried out; by default here, one after the other.
    """
    found: dict[Cell, Comparison] = {}
    floors: dict[Cell, dict[str, np.ndarray]] = {}
    for cell in cells:
        scenario = cell_scenario(cell)
        fitting = [name for name in study_policies(names) if _fits(scenario, name, seed, strict=names is not None)]
        found[cell] = compare(
            scenario,
            fitting,
            environments=episodes,
            seed=seed,
            out=out,
            progress=progress,
            executor=executor,
        )
        specs = [FloorRun(scenario, index, seed, found[cell].folder) for index in range(episodes)]
        bounds = map_runs(specs, executor, progress)
        floors[cell] = {name: np.array([bound[name] for bound in bounds]) for name in FLOORS}
    timed = {
        name: decision_ms(cell_scenario(TIMED), name, seed)
        for name in dict.fromkeys(n for each in found.values() for n in each.records)
    }
    missing = () if names is not None else tuple(name for name in LEARNED if name not in study_policies())
    return EdgeInference(cells=found, floors=floors, decision_ms=timed, episodes=episodes, missing=missing)


def work_of(names: Sequence[str] | None, episodes: int, cells: Sequence[Cell] = CELLS) -> int:
    """Returns how many runs and bounds the study has."""
    return len(cells) * episodes * (len(study_policies(names)) + 2)


def _fits(scenario: EdgeScenario, name: str, seed: int, *, strict: bool) -> bool:
    """Returns whether a policy runs in a cell; one that was named must."""
    environment = build_environment(scenario, 0, seed)
    try:
        check_fit(environment, make_scheduler(name, scenario.kind), name)
    except ScenarioError:
        if strict:
            raise
        return False
    return True
