"""``reproduce fine-tuning --published``: what day-ahead prices as they are published earn planners in Europe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.data.scenarios.load import load_scenario, scenario_from, with_files
from noonward.data.splits import Split, split_scenario, split_seed
from noonward.evaluate.compare import ComparisonResult, compare
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, ratio
from noonward.evaluate.table import TextTable
from noonward.model.cluster.scenario import Scenario
from noonward.runtime.executor import Executor, Progress
from noonward.studies.fine_tuning.reproduce import REFERENCE, SCENARIO

ZONES: Final = ("DE", "FR", "ES", "NL", "PL")
"""European zones that the packaged nets know, in place of the paper's sites in their order."""
PARTS: Final[tuple[Split, ...]] = ("test", "validation")
"""Parts whose months windows are drawn from; neither was trained on."""
LEARNED: Final = "bid-price-learned"
PUBLISHED: Final = "bid-price-published-learned"
PERFECT: Final = "bid-price(forecast=perfect, samples=3, memory=0.8, price=0, expected=2000, jobs_per_hour=16)"
"""The same planner under all prices and carbon intensities to come."""
PAIRS: Final = {
    "bid_price_learned": (PUBLISHED, LEARNED),
    "bid_price_regression": ("bid-price-published", "bid-price-regression"),
}
"""Policies that read published prices and the same that do not, by the name in metrics."""
POLICIES: Final = (REFERENCE, LEARNED, PUBLISHED, PERFECT, "bid-price-regression", "bid-price-published")
ENVIRONMENTS: Final = 40
"""Windows of each part."""


@dataclass(frozen=True, kw_only=True)
class PublishedStudy:
    """What published prices earn.

    Attributes:
        by_part: Comparisons with bounds by part of the months.
    """

    by_part: Mapping[Split, ComparisonResult]

    def improvement_share(self, part: Split, policy: str) -> Estimate:
        """Returns the share of the gap between local FCFS and the bound that a policy closes."""
        return self.by_part[part].improvement_share(policy)

    def gained(self, part: Split, pair: str) -> Estimate:
        """Returns how much more of that gap a pair's first policy closes than its second: paired, in percent points."""
        first_E, second_E = (100 * self.by_part[part].values(name, "utility_usd") for name in PAIRS[pair])
        return ratio(first_E - second_E, self._gap_E(part))

    def distance_closed(self, part: Split) -> Estimate:
        """Returns the share of the distance from learned forecasts to perfect foresight that published prices close."""
        found = self.by_part[part]
        learned_E, published_E, perfect_E = (
            found.values(name, "utility_usd") for name in (LEARNED, PUBLISHED, PERFECT)
        )
        return ratio(published_E - learned_E, perfect_E - learned_E)

    def better(self, part: Split, pair: str) -> int:
        """Returns in how many windows a pair's first policy earns more than its second."""
        found = self.by_part[part]
        first_E, second_E = (found.values(name, "utility_usd") for name in PAIRS[pair])
        return int((first_E > second_E).sum())

    def _gap_E(self, part: Split) -> F8:
        """Returns the gap between local FCFS and the bound in every window, USD."""
        found = self.by_part[part]
        return np.asarray(found.bound_values("utility_usd") - found.values(REFERENCE, "utility_usd"))

    def metrics(self) -> list[Metric]:
        """Returns the metrics for ``--json``; those of other months than the test's end in ``@PART``."""
        out = []
        for part, found in self.by_part.items():
            end = "" if part == "test" else f"@{part}"
            for pair in PAIRS:
                name = f"published/points_over_{pair}{end}"
                out.append(Metric.of(name, self.gained(part, pair), "percent points"))
                share = self.better(part, pair) / len(found.values(REFERENCE, "utility_usd"))
                out.append(Metric.of(f"published/windows_better_than_{pair}{end}", share, "fraction"))
            out.append(Metric.of(f"published/distance_closed{end}", self.distance_closed(part), "fraction"))
            for policy in POLICIES[1:]:
                out.append(
                    Metric.of(
                        f"published/improvement_share/{_label(policy)}{end}",
                        self.improvement_share(part, policy),
                        "fraction",
                    )
                )
        return out


def european(scenario: Scenario) -> Scenario:
    """Returns a scenario whose sites lie in ``ZONES``, everything else as it is."""
    content = scenario.model_dump(mode="json")
    sites = content["fleet"]["sites"]
    shares = list(content["jobs"]["origin_shares"].values())
    for site, zone in zip(sites, ZONES, strict=True):
        site |= {"name": zone, "zone": zone, "timezone": None}
    content["name"] = f"{scenario.name}-europe"
    content["jobs"]["origin_shares"] = dict(zip(ZONES, shares, strict=True))
    content["policies"] = list(POLICIES)
    made: Scenario = scenario_from(content, content["name"])
    return made


def study_published(
    signals: Sequence[Path] = (),
    *,
    environments: int = ENVIRONMENTS,
    seed: int = 0,
    out: Path = Path("runs"),
    scenario: str = SCENARIO,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> PublishedStudy:
    """Runs planners with and without published prices over the same windows of European zones.

    What was recorded before is read back, so an interrupted study resumes where it stopped.

    Args:
        signals: Files of real signals of ``ZONES``; none: generated ones.
        environments: Windows of each part.
        seed: Number of the draw of windows.
        out: Folder of all comparisons.
        scenario: Packaged scenario or file, with as many sites as there are zones.
        progress: Called once per run and bound (``runs_of``).
        executor: Where runs are carried out; by default here, one after the other.

    Raises:
        SignalRangeError: The files hold no window of a part.
    """
    whole = european(load_scenario(scenario))
    if signals:
        whole = with_files(whole, signals)
    found = {
        part: compare(
            split_scenario(whole, part),
            list(POLICIES),
            environments=environments,
            seed=split_seed(part, seed),
            out=out,
            progress=progress,
            executor=executor,
            today=REFERENCE,
        )
        for part in PARTS
    }
    return PublishedStudy(by_part=found)


def runs_of(environments: int) -> int:
    """Returns how many runs and bounds a study of some windows of each part takes."""
    return len(PARTS) * environments * (len(POLICIES) + 1)


def published_table(study: PublishedStudy, environments: int, real: bool) -> TextTable:
    """Returns the shares of the gap and what published prices add, one row a policy."""
    rows: list[tuple[str, ...]] = []
    for policy in POLICIES[1:]:
        shares = [_shown(study.improvement_share(part, policy), 100, "%") for part in study.by_part]
        rows.append((_label(policy), *shares))
    for pair, (first, second) in PAIRS.items():
        gained = [
            f"{_shown(study.gained(part, pair), 1, '')}, better in {study.better(part, pair)}" for part in study.by_part
        ]
        rows.append((f"{first} over {second}, points", *gained))
    rows.append(
        (
            f"of the distance from {LEARNED} to perfect foresight",
            *(_shown(study.distance_closed(part), 100, "%") for part in study.by_part),
        )
    )
    return TextTable(
        title="share of possible improvement over local FCFS, with and without published day-ahead prices",
        header=("policy", *(f"{part} months" for part in study.by_part)),
        rows=tuple(rows),
        caption=f"{environments} windows of {'real' if real else 'generated'} signals in each part, paired; 95% "
        f"intervals; sites in {', '.join(ZONES)}",
    )


def _label(policy: str) -> str:
    """Returns what tables and metrics call a policy."""
    return "perfect-foresight" if policy == PERFECT else policy


def _shown(estimate: Estimate, factor: float, unit: str) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{factor * estimate.value:.1f}{unit}"
    return f"{factor * estimate.value:.1f}{unit} [{factor * estimate.low:.1f}, {factor * estimate.high:.1f}]"
