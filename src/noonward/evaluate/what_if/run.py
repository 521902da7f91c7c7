"""Runs of trade-off curves and sensitivities: a policy in unchanged and changed environments, and today's policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from noonward.errors import NoonwardError, ScenarioError
from noonward.evaluate.answer import can_run
from noonward.evaluate.asked import comparison_folder, count_of, policies_of, require_fit, with_reference
from noonward.evaluate.comparison import case_noun
from noonward.evaluate.given import policies_given, scenario_given
from noonward.evaluate.noted import grouped
from noonward.evaluate.published import with_published
from noonward.evaluate.report.what_if_page import study_html, write_what_if_page
from noonward.evaluate.what_if.changes import Bending, Change, ChangedRun
from noonward.evaluate.what_if.study import Case, Curve, Name, Study
from noonward.evaluate.what_if.words import words
from noonward.files import PassingFolder
from noonward.model.cluster.scenario import Scenario, SignalFiles
from noonward.model.kinds import CLUSTER
from noonward.notices import tell
from noonward.runtime.executor import Executor, Progress, map_runs
from noonward.runtime.runs import environment_of
from noonward.runtime.shared import forget
from noonward.schedule.registry import Policy
from noonward.units import HOUR_S

CARBON_PRICES: Final = (0.0, 25.0, 50.0, 100.0, 200.0, 400.0, 800.0)
"""Carbon prices of the curve of cost against carbon, USD/t."""
SLACKS_H: Final = (0.0, 1.0, 3.0, 6.0, 12.0, 24.0, 48.0)
"""Slacks of the curve of saving against delay, h, if all jobs have the same; at most the scenario's."""
FACTORS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Factors on the jobs' own slacks, where these differ."""
METERS: Final = (
    (Change(without="battery"), "no battery"),
    (Change(without="solar"), "no solar cells"),
    (Change(without="peaks"), "no charges for peaks"),
    (Change(connection_factor=0.8), "connections of 80% of their power"),
)
"""Changes of what is at the sites' meters; those that change nothing of a fleet are left out."""
PREFERRED: Final = ("bid-price-regression", "booked-regression", "plan-receding", "cheapest-feasible", "greedy-mixed")
"""Policies that are taken where none is named: the first that fits."""
MOVING: Final = "bid-price(forecast=regression, suspends=move)"
"""Policy that resumes suspended jobs at other sites."""
FREEDOMS: Final[dict[Bending, tuple[str, str, str]]] = {
    "suspend": ("suspend-threshold", "suspend-threshold", "jobs could be suspended"),
    "resize": ("suspend-threshold(resizes=true)", "suspend-threshold", "jobs could be resized"),
    "cap": ("cap-threshold", "cap-threshold", "jobs could be capped"),
    "move": (MOVING, MOVING, "jobs could be suspended and moved"),
}
"""Freedoms of running jobs that are asked about: the policy that uses it, the same without it, and its words."""


def trade_off(
    scenario: Any,
    policy: str | None = None,
    *,
    environments: int | None = None,
    seed: int = 0,
    today: str | None = None,
    carbon_prices: Sequence[float] = CARBON_PRICES,
    slacks_h: Sequence[float] | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> StudyResult:
    """Returns a policy's curves of cost against carbon and of saving against allowed delay, over the same windows.

    Args:
        scenario: Scenario: the name of a packaged one, a ``.yaml`` file, a mapping, or a ``Scenario``.
        policy: Name of the policy; None: the first of ``PREFERRED`` that fits.
        environments: Number of environments; None: 10, or 1 where they would all be the same.
        seed: Seed of environments and policies.
        today: Policy that savings are measured against; None: the scenario's reference, else the first policy.
        carbon_prices: Carbon prices of the first curve, USD/t.
        slacks_h: Slacks of the second, h; None: ``SLACKS_H`` up to the jobs' own, or ``FACTORS`` on their own slacks
            where these differ.
        out: Folder of all records; None: a temporary one, which goes with the study.
        progress: Called once per run.
        executor: Where runs are carried out; by default here, one after the other.

    Raises:
        ScenarioError: The scenario has no prices or no carbon price, the policy does not fit, or a value is wrong.
    """
    asked = _Asked.of(scenario, policy, environments, seed, today, out)
    prices = _values("carbon prices", carbon_prices)
    least_h, most_h = asked.own_slacks_h()
    slacks: list[tuple[Change, str, float]]
    if slacks_h is not None or math.isclose(least_h, most_h, rel_tol=1e-9):
        told = asked.up_to(most_h) if slacks_h is None else _values("slacks", slacks_h, infinite=True)
        why = asked.impossible(Change(slack_h=told[-1])) if told[-1] > most_h else None
        if why is not None:
            raise ScenarioError(f"a slack of {_slack_title(told[-1])} cannot be studied: {why}")
        slacks = [(Change(slack_h=each), _slack_title(each), each) for each in told]
        quantity = "slack of every job"
    else:
        slacks = [(Change(slack_factor=each), f"{each:.0%}", each) for each in FACTORS]
        quantity = "slack, share of the jobs' own"
    carbon = [(Change(carbon_usd_per_t=each), f"{each:g} USD/t", each) for each in prices]
    found, base, reference = asked.run([*carbon, *slacks], progress, executor)
    curves = (
        Curve(name="carbon", quantity="carbon price", cases=tuple(found[: len(carbon)])),
        Curve(name="slack", quantity=quantity, cases=tuple(found[len(carbon) :])),
    )
    return asked.study("trade-off", base, reference, curves=curves)


def sensitivity(
    scenario: Any,
    policy: str | None = None,
    *,
    environments: int | None = None,
    seed: int = 0,
    today: str | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> StudyResult:
    """Returns how a policy's saving depends on slack, carbon price and moves, one at a time, over the same windows.

    Beside it, what policies would save that suspend, resize, cap or move running jobs, if all jobs allowed that.

    Arguments and errors are those of ``trade_off``.
    """
    asked = _Asked.of(scenario, policy, environments, seed, today, out)
    economics = asked.scenario.economics
    assert economics is not None
    price = economics.carbon_usd_per_t
    other = (0.0, 2 * price) if price else (50.0, 100.0)
    moves = len(asked.scenario.fleet.sites) > 1
    changes: list[tuple[Change, str]] = []
    if asked.has_slack():
        changes += [
            (Change(slack_factor=0.0), f"no slack: {_without_slack(asked.scenario)}"),
            (Change(slack_factor=0.5), "half the slack"),
        ]
        if isinstance(asked.scenario.signals, SignalFiles):  # generated hours end with the jobs' own slack
            changes.append((Change(slack_factor=2.0), "twice the slack"))
    if moves:
        changes.append((Change(stay=True), "no moves: jobs run where they arrive"))
    changes += [(Change(carbon_usd_per_t=each), f"carbon at {each:g} in place of {price:g} USD/t") for each in other]
    fleet = asked.scenario.fleet
    changes += [(change, title) for change, title in METERS if change.of_meters(fleet) != fleet]
    changes += [
        (Change(freedom=lever), f"{words}: by {policy.partition('(')[0]}")
        for lever, (policy, _, words) in FREEDOMS.items()
        if lever != "move" or moves
    ]
    possible = []
    for change, title in changes:
        tried = change.stay or change.freedom is not None or (change.slack_factor or 0) > 1
        why = asked.impossible(change) if tried else None
        if why is None:
            possible.append((change, title, math.nan))
        else:
            asked.notes.append(f"left out: {title}: {why}")
    found, base, reference = asked.run(possible, progress, executor)
    return asked.study("sensitivity", base, reference, cases=tuple(found))


def _without_slack(scenario: Scenario) -> str:
    """Returns what becomes of jobs without slack: they start at once or are dropped, or they wait and are late."""
    if scenario.lateness.rule == "wait":
        return "a job that does not start at once is late, and may still move"
    return "jobs start at once, which leaves no time to move"


def require_economics(scenario: Scenario) -> None:
    """Raises ScenarioError unless a scenario has what these studies are made of: prices with a carbon price."""
    if scenario.kind != CLUSTER.name or scenario.economics is None:
        raise ScenarioError(
            f"scenario {scenario.name!r} has no prices with a carbon price (economics), which these curves are made "
            "of; choose another scenario, or give it economics"
        )


class StudyResult(Study):
    """A study with its words and report: what ``trade_off`` and ``sensitivity`` return."""

    def words(self) -> list[str]:
        """Returns what the study says, the most important sentence first."""
        return words(self)

    def report(self, path: str | Path, command: str | None = None) -> Path:
        """Writes the report as one HTML file that loads nothing from anywhere, and returns its path."""
        return write_what_if_page(self, Path(path), command)

    def _repr_html_(self) -> str:
        return study_html(self)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What a study is asked for, checked."""

    scenario: Scenario
    policy: Policy
    today: Policy
    environments: int
    seed: int
    folder: Path
    held: Any
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        scenario: Any,
        policy: str | None,
        environments: int | None,
        seed: int,
        today: str | None,
        out: str | Path | None,
    ) -> _Asked:
        given = scenario_given(scenario)
        require_economics(given)
        forget()
        first = environment_of(given, 0, seed)
        own = policies_of(given)
        told = _preferred(first, own) if policy is None else policies_of(given, [policy])[0]
        stated = [] if given.baseline is None else policies_of(given, [given.baseline])
        reference = with_reference(given, [*own, *stated, told], today)[1]
        if told.name == reference.name:
            raise ScenarioError(
                f"{told.name} would be compared with itself; name another policy, or another --baseline"
            )
        require_fit(first, [told, reference])
        held = None if out is not None else PassingFolder()
        folder = comparison_folder(given, seed, Path(out or "") if held is None else held.path)
        return cls(
            scenario=given,
            policy=told,
            today=reference,
            environments=count_of(given, environments),
            seed=seed,
            folder=folder,
            held=held,
        )

    def own_slacks_h(self) -> tuple[float, float]:
        """Returns the least and the largest slack of the jobs of the first environment, h; below a slot it is none."""
        drawn = environment_of(self.scenario, 0, self.seed)
        slot_s = drawn.slot_s if drawn.protocol == "each-slot" else 0.0
        slack_s_J = np.where(drawn.jobs.slack_s_J <= slot_s, 0.0, drawn.jobs.slack_s_J)
        return float(slack_s_J.min()) / HOUR_S, float(slack_s_J.max()) / HOUR_S

    def has_slack(self) -> bool:
        """Returns whether some job may wait."""
        return self.own_slacks_h()[1] > 0

    def up_to(self, own_h: float) -> list[float]:
        """Returns the slacks of a curve, h: up to the jobs' own; where they have none, as far as the signals reach."""
        if own_h > 0:
            return [*(each for each in SLACKS_H if each < own_h), own_h]
        most = next(each for each in SLACKS_H[::-1] if not each or self.impossible(Change(slack_h=each)) is None)
        if not most:
            raise ScenarioError(
                f"jobs of scenario {self.scenario.name!r} have no slack, and the signals end too early to give some"
            )
        return [each for each in SLACKS_H if each <= most]

    def impossible(self, change: Change) -> str | None:
        """Returns why environments cannot be changed so, or the freedom's policy cannot run there, or None."""
        try:
            for index in range(self.environments):
                changed = change.applied(environment_of(self.scenario, index, self.seed))
                if change.freedom is not None:
                    require_fit(changed, policies_of(self.scenario, [FREEDOMS[change.freedom][0]]))
        except NoonwardError as error:
            return str(error)
        return None

    def run(
        self, changes: Sequence[tuple[Change, str, float]], progress: Progress | None, executor: Executor | None
    ) -> tuple[list[Case], Case, Case]:
        """Returns the cases of some changes, the unchanged one, and that of today's policy."""
        unchanged, own, today = Change(), self.policy.name, self.today.name
        levers = [FREEDOMS[change.freedom] for change, *_ in changes if change.freedom is not None]
        others = dict.fromkeys(name for policy, without, _ in levers for name in (policy, without))
        policies = dict(zip(others, policies_of(self.scenario, list(others)), strict=True)) if others else {}
        policies |= {own: self.policy, today: self.today}

        def policy_of(change: Change) -> str:
            return own if change.freedom is None else FREEDOMS[change.freedom][0]

        asked = list(
            dict.fromkeys(
                [
                    *((name, unchanged) for name in (own, today, *(without for _, without, _ in levers))),
                    *((policy_of(change), change) for change, *_ in changes),
                ]
            )
        )
        runs = [
            ChangedRun(self.scenario, index, self.seed, policies[name], self.folder, None, change)
            for index in range(self.environments)
            for name, change in asked
        ]
        tell("runs", str(len(runs)))
        records = map_runs(runs, executor, progress)
        of = {each: records[n :: len(asked)] for n, each in enumerate(asked)}

        def case(name: str, change: Change, title: str, at: float = math.nan, **more: Any) -> Case:
            return Case(change=change, title=title, at=at, records=of[name, change], **more)

        def freed(lever: Bending) -> dict[str, Any]:
            policy, without, _ = FREEDOMS[lever]
            return {"policy": policy, "without": case(without, unchanged, "as it is")}

        cases = [
            case(policy_of(change), change, title, at, **({} if change.freedom is None else freed(change.freedom)))
            for change, title, at in changes
        ]
        return cases, case(own, unchanged, "as it is"), case(today, unchanged, "today's policy")

    def study(self, name: Name, base: Case, reference: Case, **more: Any) -> StudyResult:
        """Returns the study."""
        notes_E = [record.manifest["notes"] for record in base.records]
        notes = [*self.notes, *grouped(notes_E, case_noun(self.scenario))]
        return StudyResult(
            name=name,
            scenario=self.scenario,
            seed=self.seed,
            folder=self.folder,
            policy=self.policy.name,
            today=self.today.name,
            base=base,
            reference=reference,
            notes=tuple(dict.fromkeys(notes)),
            held=self.held,
            **more,
        )


def _preferred(environment: Any, own: Sequence[Policy]) -> Policy:
    """Returns the first policy of ``PREFERRED``, else of the scenario's own, that fits and can be adopted."""
    preferred: tuple[str, ...] = PREFERRED
    if environment.kind == CLUSTER.name and environment.signals is not None:
        signals = environment.signals
        preferred = with_published(PREFERRED, [site.zone for site in environment.fleet.sites], signals.day_ahead)
    for policy in (*policies_given(preferred, environment.kind), *own[1:]):
        try:
            require_fit(environment, [policy])
        except ScenarioError:
            continue
        if can_run(policy):
            return policy
    raise ScenarioError(f"no policy fits scenario {environment.scenario!r}; name one: --policy NAME")


def _slack_title(hours: float) -> str:
    return "no limit" if math.isinf(hours) else f"{hours:g} h"


def _values(what: str, given: Sequence[float], *, infinite: bool = False) -> list[float]:
    """Returns values in ascending order.

    Raises:
        ScenarioError: There are fewer than two, one stands twice, or one is negative or no number.
    """
    values = sorted(float(each) for each in given)
    allowed = [each for each in values if each >= 0 and (each < 1e9 or (infinite and math.isinf(each)))]
    if len(allowed) < len(values) or any(math.isnan(each) for each in values):
        raise ScenarioError(f"{what} {', '.join(f'{each:g}' for each in given)}: give numbers of at least 0")
    if len(set(values)) < 2 or len(set(values)) < len(values):
        raise ScenarioError(f"{what} {', '.join(f'{each:g}' for each in given)}: give at least two, each once")
    return values
