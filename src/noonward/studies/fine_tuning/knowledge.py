"""``reproduce fine-tuning --knowledge``: what policies earn that are not told the jobs' run times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.compare import ComparisonResult, compare
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, ratio
from noonward.evaluate.table import TextTable
from noonward.runtime.executor import Executor, Progress
from noonward.studies.fine_tuning.reproduce import REFERENCE, SCENARIO

UNIFORM: Final = "jobs.knowledge.limit={law: uniform, from: 1, to: 4}"
LOG: Final = "jobs.knowledge.limit={law: log}"
WAYS: Final = {
    "known": (),
    "learned": ("jobs.knowledge.run_time=learned", UNIFORM),
    "limit": ("jobs.knowledge.run_time=limit", UNIFORM),
    "learned-log": ("jobs.knowledge.run_time=learned", LOG),
    "limit-log": ("jobs.knowledge.run_time=limit", LOG),
    "class-mean": ("jobs.knowledge.run_time=class-mean",),
}
"""What schedulers are told of run times, and the settings that say so: limits are 1 to 4 times the run time or, in the
ways that end in ``-log``, as a job log shows them (``LogLimit``)."""
POLICIES: Final = (
    "bid-price-regression",
    "bid-price-persistence",
    "booked-regression",
    "booked-persistence",
    "patient",
    "cheapest-feasible",
)
"""Policies of the study: the planners without foresight and the best rules without a plan."""


@dataclass(frozen=True, kw_only=True)
class KnowledgeStudy:
    """What policies earn by what they are told of run times.

    Attributes:
        policies: Policies that were run under every way.
        by_way: Comparisons over the same environments by way; ``known`` has the bounds.
    """

    policies: tuple[str, ...]
    by_way: dict[str, ComparisonResult]

    def improvement_share(self, policy: str, way: str) -> Estimate:
        """Returns the share of the gap between local FCFS and the bound that a policy closes when told a way.

        The bound knows all; local FCFS reads no run time, and earns the same under every way.
        """
        known = self.by_way["known"]
        base_E, bound_E = known.values(REFERENCE, "utility_usd"), known.bound_values("utility_usd")
        return ratio(self.by_way[way].values(policy, "utility_usd") - base_E, bound_E - base_E)

    def lost(self, policy: str, way: str) -> Estimate:
        """Returns what a policy loses when told a way in place of the run times: paired, as a share of the gap."""
        known = self.by_way["known"]
        base_E, bound_E = known.values(REFERENCE, "utility_usd"), known.bound_values("utility_usd")
        told_E, known_E = (self.by_way[each].values(policy, "utility_usd") for each in (way, "known"))
        return ratio(known_E - told_E, bound_E - base_E)

    def metrics(self) -> list[Metric]:
        """Returns the metrics ``knowledge/improvement_share/POLICY@WAY`` and ``knowledge/lost/POLICY@WAY``."""
        out = []
        for policy in self.policies:
            for way in self.by_way:
                out.append(
                    Metric.of(
                        f"knowledge/improvement_share/{policy}@{way}", self.improvement_share(policy, way), "fraction"
                    )
                )
                if way != "known":
                    out.append(Metric.of(f"knowledge/lost/{policy}@{way}", self.lost(policy, way), "fraction"))
        return out


def study_knowledge(
    *,
    environments: int = 10,
    seed: int = 0,
    out: Path = Path("runs"),
    scenario: str = SCENARIO,
    policies: Sequence[str] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> KnowledgeStudy:
    """Runs policies over the same environments, told the run times, and what else can be known of them.

    What was recorded before is read back, so an interrupted study resumes where it stopped.

    Args:
        environments: Number of environments.
        seed: Seed of environments and policies.
        out: Folder of all comparisons.
        scenario: Packaged scenario or file.
        policies: Registered names; by default ``POLICIES``.
        progress: Called once per run and bound (``runs_of``).
        executor: Where runs are carried out; by default here, one after the other.

    Raises:
        ScenarioError: A policy is unknown or does not fit.
    """
    chosen = tuple(name for name in dict.fromkeys(POLICIES if policies is None else policies) if name != REFERENCE)
    found = {
        way: compare(
            load_scenario(scenario, list(settings)),
            [REFERENCE, *chosen],
            environments=environments,
            seed=seed,
            out=out,
            progress=progress,
            executor=executor,
            bound=way == "known",
            today=REFERENCE,
        )
        for way, settings in WAYS.items()
    }
    return KnowledgeStudy(policies=chosen, by_way=found)


def runs_of(environments: int, policies: Sequence[str] | None = None) -> int:
    """Returns how many runs and bounds a study takes; arguments as in ``study_knowledge``."""
    chosen = {*(POLICIES if policies is None else policies)} - {REFERENCE}
    return environments * (len(WAYS) * (len(chosen) + 1) + 1)


def knowledge_table(study: KnowledgeStudy, environments: int) -> TextTable:
    """Returns the shares of the gap, one row a policy and one column a way."""
    rows = []
    for policy in study.policies:
        shares = [study.improvement_share(policy, way) for way in study.by_way]
        rows.append((policy, *(_share(each) for each in shares)))
    return TextTable(
        title="share of possible improvement over local FCFS, by what is told of run times",
        header=("policy", *study.by_way),
        rows=tuple(rows),
        caption=f"{environments} environments; 95% intervals; limits are 1 to 4 times the run time, or as in a log "
        "(-log)",
    )


def _share(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.1%}"
    return f"{estimate.value:.1%} [{estimate.low:.1%}, {estimate.high:.1%}]"
