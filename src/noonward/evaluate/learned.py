"""Learned policies in a comparison: one policy with several training seeds, and what training wrote about itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.evaluate.comparison import Comparison
from noonward.ledger.ledger import Ledger
from noonward.ledger.record import Record
from noonward.model.cluster.scenario import Scenario
from noonward.schedule.policies import policies
from noonward.schedule.trained_files import by_family

PLATEAU: Final = 0.1
"""Last share of the epochs whose mean is the level that training ends at."""
STEADY: Final = 5
"""Epochs whose mean must have reached the level: one lucky epoch is no convergence."""
REACHED: Final = 0.95
"""Share of the way from the first epoch to the level at which training has converged."""
LAST: Final = 0.2
"""Last share of the epochs whose spread is the fluctuation."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A learned policy: the same configuration trained from several seeds.

    Attributes:
        name: Its name.
        members: Registered names of its files, by training seed.
        records: What each file says about its training.
    """

    name: str
    members: tuple[str, ...]
    records: tuple[dict[str, Any], ...]

    def curve(self, name: str) -> F8:
        """Returns a figure of training by seed and epoch, NaN where an epoch has none; no row without curves.

        Seeds that trained longer than others are cut to the shortest.
        """
        rows = [[each.get(name) for each in record.get("curve", ())] for record in self.records]
        epochs = min((len(row) for row in rows), default=0)
        if epochs == 0:
            return np.empty((0, 0))
        values_KE = np.array([[np.nan if v is None else float(v) for v in row[:epochs]] for row in rows])
        return np.empty((0, 0)) if np.isnan(values_KE).all() else values_KE


def learned_policies(scenario: Scenario) -> dict[str, Learned]:
    """Returns the packaged learned policies that run at a scenario's sites, by name."""
    sites = [site.name for site in scenario.fleet.sites]
    fitting = [
        policy.trained
        for policy in policies(trained=True, kind=scenario.kind)
        if policy.trained is not None
        and policy.trained.meta["protocol"] == scenario.protocol
        and policy.trained.meta["sites"] == sites
    ]
    return {
        name: Learned(
            name=name,
            members=tuple(file.name for file in files),
            records=tuple(file.meta["record"] for file in files),
        )
        for name, files in by_family(fitting).items()
    }


def pooled(comparison: Comparison, learned: Mapping[str, Learned]) -> Comparison:
    """Returns a comparison in which each learned policy stands once: in every environment the mean over its seeds.

    Ledgers and longest queues are means; job and hour tables are those of the first seed. Intervals are then over
    environments, paired; how much seeds differ is ``seed_gains``.
    """
    family = {member: each.name for each in learned.values() for member in each.members}
    groups: dict[str, list[str]] = {}
    for policy in comparison.records:
        groups.setdefault(family.get(policy, policy), []).append(policy)
    records = {
        name: [_mean_record(each) for each in zip(*(comparison.records[member] for member in members), strict=True)]
        for name, members in groups.items()
    }
    return dataclasses.replace(comparison, records=records)


def _mean_record(records: Sequence[Record]) -> Record:
    """Returns the first of some records of one environment, with the mean of their ledgers and longest queues."""
    if len(records) == 1:
        return records[0]
    longest_queue = float(np.mean([record.service.longest_queue for record in records]))
    service = dataclasses.replace(records[0].service, longest_queue=longest_queue)
    return dataclasses.replace(records[0], ledger=Ledger.mean([record.ledger for record in records]), service=service)


def seed_gains(comparison: Comparison, learned: Learned) -> F8:
    """Returns the change of utility against the reference of each training seed, as fractions."""
    return np.array([comparison.gain(member).value for member in learned.members])


def converged_epoch(values_E: F8) -> float:
    """Returns the epoch, from 1, from which on a curve is near the level it ends at; NaN where it never rose.

    The level is the mean of the last tenth of the epochs. Converged is the first epoch from which ``STEADY`` epochs
    average at least ``REACHED`` of the way from the first epoch's value to the level.

    Args:
        values_E: The curve, higher is better.

    Example:
        >>> converged_epoch(np.array([0.0, 0.5, 0.8] + [1.0] * 17))
        3.0
    """
    values_E = values_E[~np.isnan(values_E)]
    if len(values_E) < STEADY + 1:
        return float("nan")
    level = values_E[-max(1, round(PLATEAU * len(values_E))) :].mean()
    if level <= values_E[0]:
        return float("nan")
    near = values_E[0] + REACHED * (level - values_E[0])
    means_E = np.convolve(values_E, np.full(STEADY, 1 / STEADY), mode="valid")
    reached = np.flatnonzero(means_E >= near)
    return float(reached[0] + 1) if len(reached) else float("nan")


def last_level(values_E: F8) -> float:
    """Returns the mean of a curve's last tenth."""
    return float(np.nanmean(values_E[-max(1, round(PLATEAU * len(values_E))) :]))


def fluctuation(values_E: F8) -> float:
    """Returns the standard deviation of a curve's last fifth over the size of its mean; NaN below two epochs."""
    known = values_E[~np.isnan(values_E)]
    last = known[-max(2, round(LAST * len(known))) :]
    return float(last.std(ddof=1) / abs(last.mean())) if len(last) > 1 and last.mean() else float("nan")


def change_over_training(values_E: F8) -> float:
    """Returns the change from a curve's first known value to the level it ends at, as a fraction of the first."""
    known = values_E[~np.isnan(values_E)]
    if len(known) < 2 or not known[0] > 0:
        return float("nan")
    return last_level(known) / float(known[0]) - 1
