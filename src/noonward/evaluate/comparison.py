"""Comparisons as data, and objectives: what a kind of scenarios is measured, ranked, bounded and told by.

A comparison holds records and bounds; its scenario's kind has the objective that reads them (``Objective``). Both are
here because each names the other. ``noonward.evaluate.compare`` makes comparisons and adds their reports and frames.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

import numpy as np

from noonward.arrays import F8
from noonward.bound.cluster_utility.pieces import MapPieces
from noonward.data.jobs.dated import job_rows
from noonward.evaluate.metrics import Metric
from noonward.evaluate.noted import grouped
from noonward.evaluate.statistics import Estimate, mean, ratio, size_told
from noonward.evaluate.table import US_DOLLAR, Column, Currency, Figure, Row, Summary, TextTable
from noonward.ledger.record import Record
from noonward.model.cluster.knowledge import RunTimeKnowledge
from noonward.model.cluster.scenario import JobTable, Scenario
from noonward.model.kinds import AnyScenario, find_kind
from noonward.schedule.registry import Policy

WIDE_SHARE: Final = 0.1
"""Width from which on a share of the possible improvement is said as a range."""
Cell: TypeAlias = "Callable[[Comparison, str], str]"
"""Returns the cell of a policy in a column."""


class Bound(dict[str, float]):
    """What no policy can beat in one environment: values by name; one that is missing is not defined.

    Example:
        >>> Bound(utility_usd=12.5)["utility_usd"]
        12.5
    """


@dataclass(frozen=True, kw_only=True)
class BoundValue:
    """A value that bounds hold.

    Attributes:
        name: Its name in a ``Bound``.
        metric: Name of its mean among the metrics.
        unit: Unit.
    """

    name: str
    metric: str
    unit: str


class Objective(ABC):
    """What policies are compared by. One object serves all comparisons of its kind; it holds no state."""

    value: ClassVar[str]
    """Field of the ledger that policies are ranked by."""
    value_name: ClassVar[str] = "value"
    """Its name and unit, for a column's head."""
    better: ClassVar[Literal["up", "down"]]
    """Whether higher or lower values of it are better."""
    bound_value: ClassVar[str]
    """Value of the bounds that it is held against."""
    bound_values: ClassVar[tuple[BoundValue, ...]]
    """All values of the bounds."""
    bound_condition: ClassVar[str]
    """What a scenario must be for a bound to be known; said where none is."""
    bound_in_steps: ClassVar[bool] = False
    """Whether ``compute_bound`` can be given a time limit: stopping early leaves a valid but looser bound."""
    meaning: ClassVar[str] = ""
    """What the ranked value is, for readers of a report; may be empty."""

    def ranked(self, comparison: Comparison) -> list[str]:
        """Returns the policies, best first: those that miss a constraint after all others, undefined values last."""
        sign = -1.0 if self.better == "up" else 1.0
        key = {policy: sign * comparison.mean(policy, self.value).value for policy in comparison.records}
        misses = {policy: bool(self.unmet(comparison, policy)) for policy in comparison.records}
        return sorted(key, key=lambda policy: (misses[policy], math.isnan(key[policy]), key[policy]))

    def unmet(self, comparison: Comparison, policy: str) -> list[str]:
        """Returns in words which constraints of the ranking a policy misses; one that misses any is not adopted."""
        return []

    def change(self, comparison: Comparison, values_E: F8) -> Estimate:
        """Returns the paired change of values against the reference policy's, as a fraction of those."""
        base_E = comparison.values(comparison.reference, self.value)
        return ratio(values_E - base_E, base_E)

    def improvement_share(self, comparison: Comparison, values_E: F8) -> Estimate:
        """Returns the share of the gap between reference policy and bound that values close, paired; at most 1."""
        sign = 1.0 if self.better == "up" else -1.0
        base_E = comparison.values(comparison.reference, self.value)
        gap_E = comparison.bound_values(self.bound_value) - base_E
        share = ratio(sign * (values_E - base_E), sign * gap_E)
        # Nothing lies beyond the bound, so no share is above 1, however wide the interval.
        return share if share.high is None else replace(share, high=min(share.high, max(1.0, share.value)))

    def beyond_bound(self, comparison: Comparison, values_E: F8) -> Estimate:
        """Returns how far values lie above a lower bound, or below an upper one, as a fraction of the bound, paired."""
        sign = 1.0 if self.better == "down" else -1.0
        bound_E = comparison.bound_values(self.bound_value)
        return ratio(sign * (values_E - bound_E), bound_E)

    @abstractmethod
    def compute_bound(self, environment: Any, seconds: float | None = None) -> Bound:
        """Returns what no policy can beat in an environment; empty where no bound is known.

        One that takes long tells its progress (``noonward.notices``, kind ``progress``).

        Args:
            environment: Environment.
            seconds: Seconds after which it begins no further step; None: it leaves none out. Given only where
                ``bound_in_steps``. If they ran out, the bound is valid but looser, and has ``cut`` 1.
        """

    def has_pieces(self, environment: Any) -> bool:
        """Returns whether an environment's bound is found in pieces that several processes can share."""
        return False

    def bound_in_pieces(self, environment: Any, seconds: float | None, map_pieces: MapPieces) -> Bound:
        """Returns what ``compute_bound`` does; ``map_pieces`` carries out the pieces, if it has any."""
        return self.compute_bound(environment, seconds)

    def gap_metrics(self, bounds: Sequence[Bound]) -> list[Metric]:
        """Returns metrics of how far bounds may lie from the optimum; none unless a kind knows it."""
        return []

    @abstractmethod
    def describe_bound(self, bound: Bound) -> str:
        """Returns a bound in words, for one line."""

    @abstractmethod
    def columns(self, comparison: Comparison) -> tuple[tuple[Column, Cell], ...]:
        """Returns the columns of the results table, each with what fills its cells."""

    @abstractmethod
    def bound_rows(self, comparison: Comparison) -> list[Row]:
        """Returns the rows of the results table that no policy made: the bound's."""

    @abstractmethod
    def metrics(self, comparison: Comparison) -> list[Metric]:
        """Returns the metrics that ``--json`` prints."""

    @abstractmethod
    def facts(self, comparison: Comparison) -> list[tuple[str, str]]:
        """Returns name and text of what a report's head says about the setting."""

    @abstractmethod
    def figures(self, comparison: Comparison) -> list[Figure]:
        """Returns the figures of a report, the most telling first."""

    def name_environment(self, comparison: Comparison, record: Any) -> str:
        """Returns what a report says of the environment of a record, in a few words."""
        return str(record.manifest["start"])[:10]

    def claim(self, share: float, today: str) -> str:
        """Returns in a few words how much better a policy is than today's, from its gain as a fraction of today's.

        Args:
            share: Gain as a fraction; NaN where it has none.
            today: Policy that runs today, as sentences name it.
        """
        name = self.value_name.partition(" (")[0]
        if math.isnan(share):
            return f"better {name} than {today}"
        return f"{size_told(share)} {'more' if (self.better == 'up') == (share >= 0) else 'less'} {name} than {today}"

    def saying(self, comparison: Comparison, policy: str) -> str:
        """Returns in words how much better a policy is than the reference, to go on after "it"."""
        change = self.change(comparison, comparison.values(policy, self.value))
        if math.isnan(change.value):
            return f"has a better {self.value_name} than {comparison.reference}"
        ends = None if change.low is None or change.high is None else (100 * change.low, 100 * change.high)
        interval = "" if ends is None else f" [{ends[0]:+.1f}, {ends[1]:+.1f}]"
        less = "less" if change.value < 0 else "more"
        return f"has {100 * abs(change.value):.1f}% {less} {self.value_name} than {comparison.reference}{interval}"

    def share_told(self, comparison: Comparison, policy: str) -> str:
        """Returns the share of the possible improvement in words; empty where there is none.

        Where the bound may lie far below what can be reached, the share lies between two values, and both are said.
        """
        share = comparison.improvement_share(policy).value
        if not share > 0:
            return ""
        most = self.most_of_possible(comparison, policy)
        if math.isnan(most) or most - share < WIDE_SHARE:
            return f"{min(share, 1.0):.0%}"
        return f"{share:.0%} to {min(most, 1.0):.0%}"

    def most_of_possible(self, comparison: Comparison, policy: str) -> float:
        """Returns the share of the improvement that the best schedule known reaches; NaN where none is known."""
        return math.nan

    def assumptions(self, comparison: Comparison) -> list[str]:
        """Returns sentences on made prices, and on what was assumed of jobs and sites; none where both are given."""
        return []

    def sooner(self, comparison: Comparison) -> list[str]:
        """Returns a sentence on a policy that costs no more than today's and starts jobs sooner; none if none does."""
        return []

    def price_that_admits(self, comparison: Comparison, policies: Sequence[str]) -> list[str]:
        """Returns a sentence on the price at which a policy that misses a constraint would be proposed all the same."""
        return []

    def consequences(self, comparison: Comparison, policy: str) -> list[str]:
        """Returns sentences on what a policy costs beside the ranked value, and what its saving rests on."""
        return []

    def basis(self, comparison: Comparison) -> list[str]:
        """Returns sentences on the prices and limits that the verdict rests on."""
        return []

    def limits(self, comparison: Comparison) -> list[str]:
        """Returns sentences about the bound and about what no policy can change."""
        return []

    def tables(self, comparison: Comparison) -> list[TextTable]:
        """Returns further tables of a report, which the command line prints too."""
        return []

    def notes(self, comparison: Comparison) -> list[str]:
        """Returns what a reader must know about the data beside the notes of the environments."""
        return []


def objective_of(scenario: AnyScenario) -> Objective:
    """Returns the objective that a scenario's policies are compared by."""
    objective: Objective = find_kind(scenario.kind).part("objective")(scenario)
    return objective


def no_value(bounds: list[Bound], name: str) -> bool:
    """Returns whether no bound holds a value."""
    return all(math.isnan(bound.get(name, np.nan)) for bound in bounds)


@dataclass(frozen=True, kw_only=True)
class Knowing:
    """Runs of one policy over a comparison's windows, told of run times in several ways.

    Attributes:
        policy: The policy.
        by_way: Its records, one per window, by way.
    """

    policy: str
    by_way: dict[RunTimeKnowledge, list[Record]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Policies over the same environments.

    Attributes:
        scenario: Scenario.
        seed: Seed.
        folder: Where the records lie.
        reference: Policy that changes are measured against.
        policies: What was compared, by name.
        records: Per policy one record an environment, in the same order.
        bounds: One bound an environment; empty bounds where none was asked for.
        bounded: Whether bounds were asked for.
        currency: Currency that money is shown in.
        knowing: Further runs of one policy, told of run times in other ways; None: none were made.
        held: What keeps a temporary folder of records until the comparison is dropped; None: the folder stays.
    """

    scenario: Scenario
    seed: int
    folder: Path
    reference: str
    policies: Mapping[str, Policy] = field(repr=False, compare=False)
    records: dict[str, list[Record]]
    bounds: list[Bound]
    bounded: bool = True
    currency: Currency = US_DOLLAR
    knowing: Knowing | None = None
    held: Any = field(default=None, repr=False, compare=False)

    def values(self, policy: str, name: str) -> np.ndarray:
        """Returns a ledger figure of a policy per environment."""
        return np.array([float(getattr(record.ledger, name)) for record in self.records[policy]])

    def mean(self, policy: str, name: str) -> Estimate:
        """Returns the mean of a ledger figure over environments."""
        return mean(self.values(policy, name))

    def only(self, windows: Sequence[int]) -> Self:
        """Returns the comparison of some of its environments, by number; ``knowing`` is of all and left out."""
        records = {policy: [records[n] for n in windows] for policy, records in self.records.items()}
        return replace(self, records=records, bounds=[self.bounds[n] for n in windows], knowing=None)

    @property
    def objective(self) -> Objective:
        """What the policies are compared by."""
        return objective_of(self.scenario)

    def ranked(self) -> list[str]:
        """Returns the policies, best first."""
        return self.objective.ranked(self)

    def gain(self, policy: str) -> Estimate:
        """Returns the paired change of the ranked value against the reference policy, as a fraction of that."""
        return self.objective.change(self, self.values(policy, self.objective.value))

    def improvement_share(self, policy: str) -> Estimate:
        """Returns the share of the gap between reference policy and bound that a policy closes."""
        return self.objective.improvement_share(self, self.values(policy, self.objective.value))

    def bound_values(self, name: str) -> np.ndarray:
        """Returns a value of the bounds per environment; NaN where it is not defined."""
        return np.array([bound.get(name, np.nan) for bound in self.bounds])

    @property
    def digest(self) -> str:
        """Digest of which policies were compared over how many environments: names the report."""
        return hashlib.sha256(f"{sorted(self.records)} {len(self.bounds)}".encode()).hexdigest()[:8]

    @property
    def paired(self) -> bool:
        """Whether every policy ran on the same environments."""
        worlds = {tuple(r.manifest["environment_digest"] for r in records) for records in self.records.values()}
        return len(worlds) == 1

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about the data, each note once."""
        case = case_noun(self.scenario)
        notes_E = [
            [note for record in records if record is not None for note in record.manifest["notes"]]
            for records in itertools.zip_longest(*self.records.values())
        ]
        notes = list(grouped(notes_E, case))
        drawn = [r.manifest["environment_digest"] for r in self.records[self.reference]]
        distinct = len(set(drawn))
        if distinct < len(drawn):
            notes.append(
                f"only {distinct} of the {len(drawn)} {case}s are distinct (the files contain no "
                "more): intervals are too narrow"
            )
        if not self.bounded:
            notes.append("no bound was computed, so the share of possible improvement is not known")
        cut = sum("cut" in bound for bound in self.bounds)
        if cut:
            notes.append(
                f"the bound of {cut} of {len(self.bounds)} {case}s stopped at its time limit "
                "(--bound-seconds): it is valid, but a longer search may lower it"
            )
        notes += self.objective.notes(self)
        return tuple(dict.fromkeys(notes))

    def metrics(self) -> list[Metric]:
        """Returns the comparison's metrics for ``--json``."""
        return self.objective.metrics(self)


def summary_rows(comparison: Comparison) -> Summary:
    """Returns the results table of a comparison: the bound's rows, then the policies, best first."""
    objective = comparison.objective
    table = objective.columns(comparison)
    rows = objective.bound_rows(comparison)
    for policy in comparison.ranked():
        cells = tuple(cell(comparison, policy) for _, cell in table)
        rows.append(Row(name=policy, cells=cells, kind="baseline" if policy == comparison.reference else "policy"))
    return Summary(columns=tuple(column for column, _ in table), rows=tuple(rows), caption=_caption(comparison))


def case_noun(scenario: Any) -> str:
    """Returns what an environment of a scenario is called: a window, where it is cut out of a dated job log."""
    jobs = getattr(scenario, "jobs", None)
    dated = isinstance(jobs, JobTable) and job_rows(jobs).submit_s_J is not None
    return "window" if dated else "environment"


def one_window(comparison: Comparison) -> bool:
    """Returns whether all environments have the same jobs of the same days, so that only the prices are drawn again."""
    if len(comparison.bounds) == 1:
        return True
    if case_noun(comparison.scenario) != "window":
        return False
    return len({record.manifest["start"] for record in comparison.records[comparison.reference]}) == 1


def cases_told(comparison: Comparison, count: int) -> str:
    """Returns what so many environments are: windows of a log, draws of prices for one of it, or environments."""
    if case_noun(comparison.scenario) == "window" and one_window(comparison) and len(comparison.bounds) > 1:
        return f"{count} draw{'s' * (count != 1)} of prices"
    return f"{count} {case_noun(comparison.scenario)}{'s' * (count != 1)}"


def _caption(comparison: Comparison) -> str:
    count = len(comparison.bounds)
    if count == 1:
        case = case_noun(comparison.scenario)
        return f"One {case}: the numbers have no spread; run more {case}s for intervals."
    return (
        f"Means of {cases_told(comparison, count)}; after ± and in brackets: the 95% confidence interval (Student's "
        f"t). Changes and shares are paired (taken within each {case_noun(comparison.scenario)}), against "
        f"{comparison.reference}; a percentage "
        "is a ratio of sums, and its interval is by linearization."
    )
