"""``reproduce fine-tuning``: MASAC's comparison (Sec. IV, Figs. 3 to 6) on months that no policy was trained on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_files
from noonward.data.splits import MONTHS, split_scenario, split_seed
from noonward.errors import ScenarioError
from noonward.evaluate.asked import comparison_folder, policies_of, require_fit
from noonward.evaluate.compare import compare
from noonward.evaluate.comparison import Bound, Comparison
from noonward.evaluate.learned import (
    Learned,
    change_over_training,
    converged_epoch,
    fluctuation,
    last_level,
    learned_policies,
    pooled,
    seed_gains,
)
from noonward.evaluate.metrics import Metric
from noonward.evaluate.report.utility_figures import money_parts
from noonward.evaluate.statistics import Estimate, mean, ratio
from noonward.model.cluster.scenario import FineTuningJobs, Scenario
from noonward.runtime.executor import Executor, Progress, map_runs
from noonward.runtime.runs import RecordedRun
from noonward.schedule.policies import find_policy

SCENARIO: Final = "fine-tuning"
REFERENCE: Final = "local-fcfs"
"""S0."""
PAPER_POLICIES: Final = ("local-fcfs", "price-greedy", "carbon-greedy", "madqn", "masac")
"""S0 to S4."""
BEST_LEARNED: Final = "bid-price-neural"
PAPER_GAIN: Final = 0.286
"""MASAC's utility over S0's (abstract, Sec. IV.B)."""
PAPER_GPU_HOURS: Final = 0.156
"""MASAC's GPU-hours over those of the policy that has least (Sec. IV.B)."""
PAPER_CONVERGED: Final = {"masac": 10.0, "madqn": 40.0}
"""Epochs after which training converges (Sec. IV.B)."""
PAPER_STEP_REWARD: Final = 0.5
"""MADQN's step reward over MASAC's (Sec. IV.B)."""
FIVE_DAYS_H: Final = 120
"""Hours of Fig. 3."""


@dataclass(frozen=True, kw_only=True)
class Half:
    """The comparison on one kind of test environments.

    Attributes:
        name: ``generated`` or ``real``.
        runs: All policies, each training seed for itself.
        policies: The same with the seeds of a learned policy as one.
        days: S0 in one environment of five days, for Fig. 3.
    """

    name: str
    runs: Comparison
    policies: Comparison
    days: Comparison


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """The reproduction.

    Attributes:
        halves: By kind of test environments.
        learned: Learned policies that were compared.
        rules_in_validation: Mean utility of S0 to S2 in the validation environments of the first learned policy, USD.
        notes: What must be known about what was left out.
    """

    halves: tuple[Half, ...]
    learned: dict[str, Learned]
    rules_in_validation: dict[str, float]
    notes: tuple[str, ...]

    def metrics(self) -> list[Metric]:
        """Returns the metrics for ``--json``; those of test environments end in ``@generated`` or ``@real``."""
        return [
            *(metric for half in self.halves for metric in environment_metrics(half, self.learned)),
            *training_values(self.learned),
        ]


def chosen_policies(scenario: Scenario, names: Sequence[str] | None) -> tuple[list[str], dict[str, Learned]]:
    """Returns the policies to run, each seed of a learned one by its own name, and the learned ones among them.

    Args:
        scenario: Scenario.
        names: Policies; a learned policy's name means all its seeds. By default the scenario's rules and all learned
            policies. S0 is always among them.
    """
    learned = learned_policies(scenario)
    asked = list(dict.fromkeys([*scenario.policies, *learned])) if names is None else list(names)
    if REFERENCE not in asked:
        asked.insert(0, REFERENCE)
    kept = {name: learned[name] for name in asked if name in learned}
    return [run for name in asked for run in (kept[name].members if name in kept else (name,))], kept


def reproduce_fine_tuning(
    signals: Sequence[Path] = (),
    jobs: Path | None = None,
    *,
    names: Sequence[str] | None = None,
    environments: int = 10,
    seed: int = 0,
    out: Path = Path("runs"),
    scenario: str = SCENARIO,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> FineTuning:
    """Runs rules and learned policies over test environments, paired, held against a bound.

    Test environments are windows of the test's months (``data.splits``) with the test's seeds; runs have no limit of
    steps. On generated signals and jobs always; on real ones where files of both are given.

    Args:
        signals: Files of real signals.
        jobs: File of real jobs.
        names: Policies (``chosen_policies``).
        environments: Test environments of each kind.
        seed: Number of the draw of test environments.
        out: Folder of all records.
        scenario: Packaged scenario or file.
        progress: Called once per run and bound.
        executor: Where runs are carried out; by default here, one after the other.

    Raises:
        ScenarioError: Only one of signals and jobs is given, or a policy is unknown or does not fit.
    """
    if bool(signals) != (jobs is not None):
        raise ScenarioError("the real test environments take real signals and real jobs; give --signals and --jobs")
    packaged = load_scenario(scenario)
    runs, learned = chosen_policies(packaged, names)
    kinds = {"generated": packaged}
    if jobs is not None:
        kinds["real"] = with_files(packaged, signals, jobs)
    kinds = {name: split_scenario(whole, "test") for name, whole in kinds.items()}
    first = split_seed("test", seed)
    for test in kinds.values():
        require_fit(build_environment(test, 0, first), policies_of(test, runs))
    halves = []
    for name, test in kinds.items():
        found = compare(
            test, runs, environments=environments, seed=first, out=out, progress=progress, executor=executor
        )
        halves.append(Half(name=name, runs=found, policies=pooled(found, learned), days=five_days(test, first, out)))
    return FineTuning(
        halves=tuple(halves),
        learned=learned,
        rules_in_validation=rules_in_validation(learned, signals, jobs, out, executor),
        notes=_notes(learned, len(halves) == 2),
    )


def five_days(scenario: Scenario, seed: int, out: Path) -> Comparison:
    """Returns S0 in one environment of five days with as many jobs an hour (Fig. 3); a job table keeps its window."""
    longer = scenario
    if isinstance(scenario.jobs, FineTuningJobs):
        count = round(scenario.jobs.count * FIVE_DAYS_H / scenario.window_h)
        jobs = scenario.jobs.model_copy(update={"count": count})
        longer = scenario.model_copy(update={"window_h": FIVE_DAYS_H, "jobs": jobs})
    folder = comparison_folder(longer, seed, out)
    policy = find_policy(REFERENCE)
    (record,) = map_runs([RecordedRun(longer, 0, seed, policy, folder)])
    return Comparison(
        scenario=longer,
        seed=seed,
        folder=folder,
        reference=REFERENCE,
        policies={REFERENCE: policy},
        records={REFERENCE: [record]},
        bounds=[Bound()],
    )


def rules_in_validation(
    learned: dict[str, Learned],
    signals: Sequence[Path],
    jobs: Path | None,
    out: Path,
    executor: Executor | None = None,
) -> dict[str, float]:
    """Returns the mean utility of S0 to S2 in the validation environments that the first learned policy was told by.

    Empty where no file says how it was trained, or where it was validated on files that are not given.
    """
    said = next((each.records[0]["config"] for each in learned.values() if "config" in each.records[0]), None)
    if said is None:
        return {}
    source = said["sources"][0]
    on_files = bool(source["signals"]) or source["jobs"] is not None
    if source["scenario"].endswith(".yaml") or (on_files and jobs is None):
        return {}
    scenario = load_scenario(source["scenario"], source["settings"])
    if on_files and jobs is not None:
        scenario = with_files(scenario, signals if source["signals"] else (), jobs if source["jobs"] else None)
    scenario, seed = split_scenario(scenario, "validation"), split_seed("validation", 0)
    folder = comparison_folder(scenario, seed, out)
    rules = PAPER_POLICIES[:3]
    drawn = range(said["validation_environments"])
    policies = [find_policy(rule) for rule in rules]
    specs = [RecordedRun(scenario, index, seed, policy, folder) for index in drawn for policy in policies]
    records = map_runs(specs, executor)
    return {
        rule: float(np.mean([record.ledger.utility_usd for record in records[n :: len(rules)]]))
        for n, rule in enumerate(rules)
    }


def _notes(learned: dict[str, Learned], real: bool) -> tuple[str, ...]:
    """Returns what was left out."""
    months = ", ".join(map(str, MONTHS["test"]))
    notes = [f"test environments have windows of months {months}; training and validation use the others"]
    if not real:
        notes.append("real test environments were LEFT OUT: no real signals and jobs were given (--signals, --jobs)")
    if not learned:
        notes.append("no learned policy was compared: none was named, or none is packaged for these sites")
    for each in learned.values():
        said = [record.get("months") for record in each.records]
        seen = {month for part in said if part is not None for months_of in part.values() for month in months_of}
        if None in said:
            notes.append(f"{each.name}: a file does not say on which months it was trained")
        if seen & set(MONTHS["test"]):
            met = ", ".join(map(str, sorted(seen & set(MONTHS["test"]))))
            notes.append(f"{each.name} was trained or validated on months {met} of the test: its results are NO TEST")
        if len(each.members) < 3:
            seeds = "1 training seed" if len(each.members) == 1 else f"{len(each.members)} training seeds"
            notes.append(f"{each.name} has {seeds}: how much seeds differ is hardly known")
    return tuple(notes)


def environment_metrics(half: Half, learned: dict[str, Learned]) -> list[Metric]:
    """Returns the metrics of one kind of test environments."""
    found = half.policies
    out = found.metrics()
    for policy in found.records:
        out += [
            Metric.of(f"migration_usd/{policy}", mean(-_parts_EM(found, policy)[:, 4]), "USD"),
            Metric.of(f"decision_steps/{policy}", found.mean(policy, "steps"), "steps"),
            Metric.of(f"revenue_share_of_gain/{policy}", revenue_share(found, policy), "fraction"),
        ]
    for each in learned.values():
        gains = seed_gains(half.runs, each)
        spread = float(gains.std(ddof=1)) if len(gains) > 1 else float("nan")
        out.append(Metric.of(f"seed_spread/{each.name}", spread, "fraction"))
    if "masac" in found.records:
        out += _masac_metrics(found)
    if BEST_LEARNED in found.records:
        out += [
            Metric.of(f"improvement_share_more/{policy}", closed_more(found, policy), "fraction")
            for policy in found.records
            if policy != BEST_LEARNED
        ]
    return [
        dataclasses.replace(
            metric,
            name=f"{metric.name}@{half.name}",
            reference=PAPER_GAIN if metric.name == f"gain_over_{REFERENCE}/masac" else metric.reference,
        )
        for metric in out
    ]


def _masac_metrics(found: Comparison) -> list[Metric]:
    """Returns MASAC's GPU-hours and utility over the paper's other policies', paired."""
    over = {name: hours_over(found, name) for name in PAPER_POLICIES[:-1] if name in found.records}
    out = [Metric.of(f"masac_gpu_hours_over/{name}", value, "fraction") for name, value in over.items()]
    most = max(over.values(), key=lambda estimate: estimate.value)
    out.append(Metric.of("masac_gpu_hours_over/least", most, "fraction", PAPER_GPU_HOURS))
    if "madqn" in found.records:
        masac, madqn = (found.values(name, "utility_usd") for name in ("masac", "madqn"))
        out += [
            Metric.of("masac_gain_over_madqn", ratio(masac - madqn, madqn), "fraction"),
            Metric.of("masac_less_madqn_usd", mean(masac - madqn), "USD"),
        ]
    return out


def closed_more(found: Comparison, policy: str) -> Estimate:
    """Returns how much more of the gap between S0 and bound the best learned policy closes than another, paired."""
    base = found.values(REFERENCE, "utility_usd")
    more = found.values(BEST_LEARNED, "utility_usd") - found.values(policy, "utility_usd")
    return ratio(more, found.bound_values("utility_usd") - base)


def hours_over(found: Comparison, policy: str) -> Estimate:
    """Returns the paired change of MASAC's GPU-hours against a policy's, as a fraction of those."""
    base = found.values(policy, "gpu_hours")
    return ratio(found.values("masac", "gpu_hours") - base, base)


def _parts_EM(found: Comparison, policy: str) -> F8:
    """Returns the parts of a policy's utility per environment, USD (``money_parts``)."""
    return np.array([money_parts(found, record.ledger) for record in found.records[policy]])


def revenue_share(found: Comparison, policy: str) -> Estimate:
    """Returns the share of a policy's gain over S0 that is revenue from GPU-hours; NaN where it gains nothing."""
    change_EM = _parts_EM(found, policy) - _parts_EM(found, REFERENCE)
    return ratio(change_EM[:, 0], change_EM.sum(axis=1))


def training_values(learned: dict[str, Learned]) -> list[Metric]:
    """Returns the metrics of training, means over seeds with their intervals; none for policies without curves."""
    out, levels = [], {}
    for name, each in learned.items():
        out.append(Metric.of(f"training_seeds/{name}", len(each.members), "seeds"))
        reward_KE, validation_KE = each.curve("reward_per_step"), each.curve("validation_reward")
        if reward_KE.size:
            levels[name] = [last_level(row) for row in reward_KE]
            epochs = mean([converged_epoch(row) for row in reward_KE])
            out += [
                Metric.of(f"step_reward_last/{name}", mean(levels[name]), "USD/step"),
                Metric.of(f"converged_epoch/{name}", epochs, "epochs", PAPER_CONVERGED.get(name)),
            ]
        if validation_KE.size:
            spread = mean([fluctuation(row) for row in validation_KE])
            out.append(Metric.of(f"validation_fluctuation/{name}", spread, "fraction"))
        for metric, curve in (
            ("migration_change_in_training", "migration_usd_per_step"),
            ("migration_change_in_validation", "validation_migration_usd"),
        ):
            paid_KE = each.curve(curve)
            if paid_KE.size:
                changes = [change_over_training(row) for row in paid_KE]
                out.append(Metric.of(f"{metric}/{name}", mean(changes), "fraction"))
    if "masac" in levels and "madqn" in levels and np.mean(levels["masac"]) > 0:
        share = float(np.mean(levels["madqn"]) / np.mean(levels["masac"]))
        out.append(Metric.of("step_reward_madqn_over_masac", share, "ratio", PAPER_STEP_REWARD))
    return out
