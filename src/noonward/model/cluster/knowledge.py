"""What schedulers are told of the jobs: their run times, or only limits and what the past says."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from noonward.arrays import F8, I8
from noonward.model.cluster.setting import add_array
from noonward.model.spec import Positive, Spec

RunTimeKnowledge = Literal["known", "limit", "class-mean", "learned"]

DONE, FAILED, CANCELLED = 0, 1, 2
"""How a job has ended."""
RUNNING: Final = -1
"""It has not ended."""
OVERRUN: Final = 1.25
"""A run that goes on beyond every expectation is expected to take so many times what it was expected to."""


class UniformLimit(Spec):
    """Limits that users state: their jobs' run times, times a uniform factor."""

    model_config = ConfigDict(populate_by_name=True)

    law: Literal["uniform"] = "uniform"
    """``uniform``."""
    from_: Annotated[Positive, Field(alias="from", ge=1)] = 1.0
    """Least factor, at least 1: no job is cut off."""
    to: Positive = 4.0
    """Largest factor."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.to < self.from_:
            raise ValueError(f"to {self.to:g} is below from {self.from_:g}")
        return self

    def draw(self, rng: np.random.Generator, count: int) -> F8:
        """Returns limits over run times."""
        return rng.uniform(self.from_, self.to, count)


class LogLimit(Spec):
    """Limits that users state: their jobs' run times, times a factor as a job log shows it."""

    law: Literal["log"]
    """``log``."""
    deciles: Annotated[tuple[Annotated[Positive, Field(ge=1)], ...], Field(min_length=11, max_length=11)] = (
        1.0, 1.0, 1.03, 1.09, 1.19, 1.8, 2.96, 5.33, 7.83, 15.88, 79.98,
    )  # fmt: skip
    """Limit over run time that 0, 10, ... 100% of the jobs do not exceed, ascending; between them its logarithm grows
    evenly. Those of the UniLu Gaia log of 2014 (Parallel Workloads Archive; J. Emeras), of its 17,444 jobs that ran for
    an hour or longer; the last is the 99th percentile, and jobs that outran their limit count as 1."""

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if list(self.deciles) != sorted(self.deciles):
            raise ValueError(f"deciles {', '.join(f'{each:g}' for each in self.deciles)} must ascend")
        return self

    def draw(self, rng: np.random.Generator, count: int) -> F8:
        """Returns limits over run times."""
        log_J = np.interp(rng.uniform(0.0, 10.0, count), np.arange(11.0), np.log2(self.deciles))
        return np.exp2(log_J)


def _law_of(stated: Any) -> str:
    """Returns the name of the law that a scenario states; of what states none, a name that no law has."""
    return str(stated.get("law", "uniform") if isinstance(stated, dict) else getattr(stated, "law", None))


Limits = Annotated[Annotated[UniformLimit, Tag("uniform")] | Annotated[LogLimit, Tag("log")], Discriminator(_law_of)]
"""Laws of limits; ``uniform`` where none is named."""


class Knowledge(Spec):
    """What schedulers are told of jobs when these arrive; the engine runs the truth."""

    run_time: RunTimeKnowledge = "known"
    """``known``: the run time; ``limit``: the limit its user stated; ``class-mean``: the mean of its class in the past;
    ``learned``: a quantile of what the past says of jobs like it, renewed when it runs longer."""
    limit: Limits | None = None
    """Distribution of the limits; none: those of the job table, if it has any."""
    quantile: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Share of jobs that a learned estimate is to cover."""


@dataclass(frozen=True, kw_only=True)
class JobTraits:
    """What is known of jobs when they arrive, for predictions of their run times.

    Attributes:
        key_JL: Number of the group that a job is in, per level from the broadest to the narrowest; -1 where unknown.
            Numbers are unique over the levels.
        limit_J: Limit of the work that its user stated, units; infinite for none.
    """

    key_JL: I8
    limit_J: F8

    def __len__(self) -> int:
        return len(self.limit_J)

    @classmethod
    def build(cls, levels: Sequence[NDArray[Any]], *, limit_J: F8) -> JobTraits:
        """Returns the traits of jobs with groups numbered; all jobs are the broadest group.

        Args:
            levels: Values per job of each further level, from the broadest to the narrowest; an empty value (``""``) is
                unknown. A value names a group within the job's group of the level before it that is known.
            limit_J: Limits, units; infinite for none.
        """
        keys, number = [np.zeros(len(limit_J), np.int64)], 1
        within = keys[0]
        for value_J in levels:
            values, value_index_J = np.unique(value_J, return_inverse=True)
            pair_J = within * (len(values) + 1) + value_index_J
            _, group_J = np.unique(pair_J, return_inverse=True)
            key_J = number + group_J.astype(np.int64)
            number += int(group_J.max(initial=-1)) + 1
            unknown_J = np.asarray(value_J).astype(str) == ""
            keys.append(np.where(unknown_J, -1, key_J))
            within = np.where(unknown_J, within, key_J)
        return cls(key_JL=np.stack(keys, axis=1), limit_J=np.asarray(limit_J, np.float64))


def told_JK(told: RunTimeKnowledge, limit_J: F8, mean_J: F8, times: int) -> F8:
    """Returns what schedulers are told of the work of jobs, units: when these arrive, and as they outlive that.

    Args:
        told: What they are told; for ``learned``, what holds until something is learned, as for ``limit``.
        limit_J: Limits, units; infinite for none: the mean counts.
        mean_J: Means of the jobs' classes in the past, units.
        times: How many times they are told.
    """
    if told == "class-mean":
        return mean_J[:, None] * np.arange(1, times + 1)
    return np.repeat(np.where(np.isfinite(limit_J), limit_J, mean_J)[:, None], times, axis=1)


def class_mean_J(class_J: I8, class_P: I8, work_P: F8, cause_P: I8) -> F8:
    """Returns the mean work of the past jobs of each job's class that ended, units.

    A class without such a job takes the mean of all classes.

    Args:
        class_J: Classes of the jobs.
        class_P: Classes of past jobs.
        work_P: Their work, units.
        cause_P: How they ended; RUNNING: they have not.
    """
    ended_P = cause_P != RUNNING
    class_P, work_P = class_P[ended_P], work_P[ended_P]
    out_J = np.full(len(class_J), work_P.mean())
    for key in np.unique(class_J).tolist():
        if (class_P == key).any():
            out_J[class_J == key] = work_P[class_P == key].mean()
    return out_J


class Groups:
    """Numbers of groups of jobs, given as jobs are met: the groups that ``JobTraits.build`` makes of all at once.

    Example:
        >>> groups = Groups()
        >>> groups.keys(["a100", "ann"]), groups.keys(["h100", "ann"]), groups.keys(["a100", "", "train"])
        ([0, 1, 2], [0, 3, 4], [0, 1, -1, 5])
    """

    def __init__(self) -> None:
        self._number_of: dict[tuple[int, int, str], int] = {}

    def keys(self, values: Sequence[str]) -> list[int]:
        """Returns the numbers of a job's groups, that of all jobs first.

        Args:
            values: Its value on each further level, from the broadest to the narrowest; empty where unknown.
        """
        keys, within = [0], 0
        for level, value in enumerate(values):
            if not value:
                keys.append(-1)
                continue
            within = self._number_of.setdefault((level, within, value), len(self._number_of) + 1)
            keys.append(within)
        return keys


@dataclass(frozen=True, kw_only=True)
class JobKnowledge:
    """What schedulers are told of the jobs of an environment in place of their run times.

    Attributes:
        told: What they are told.
        traits: What is known of past jobs, and then of the environment's jobs, when they arrive. The second level is
            the job's class.
        past_work_P: Work of the past jobs, units: all of it, or what was done before the environment's start.
        past_cause_P: How they ended: DONE, FAILED or CANCELLED; RUNNING where they had not by that start.
        cause_J: How the environment's jobs end.
        reach_s: Time from arrival to end that past jobs hardly exceed, s, by what would have been told of them.
    """

    told: Knowledge
    traits: JobTraits
    past_work_P: F8
    past_cause_P: I8
    cause_J: I8
    reach_s: float

    def add_to(self, digest: hashlib._Hash) -> None:
        """Adds all fields to a digest."""
        digest.update(f"{self.told.model_dump_json(by_alias=True)} {self.reach_s}".encode())
        for array in (self.traits.key_JL, self.traits.limit_J, self.past_work_P, self.past_cause_P, self.cause_J):
            add_array(digest, array)

    def told_JK(self, times: int) -> F8:
        """Returns what schedulers are told of each job's work, units: when it arrives, and as it outlives that.

        Where it is learned this is the limit, until the engine has learned.

        Args:
            times: How many times they are told.
        """
        past = len(self.past_work_P)
        limit_J = self.traits.limit_J[past:]
        return told_JK(self.told.run_time, limit_J, self.class_mean_J() if past else np.zeros(len(limit_J)), times)

    def class_mean_J(self) -> F8:
        """Returns the mean work of past jobs that ended, by class, for each of the environment's jobs, units.

        A class without such a job takes the mean of all classes.
        """
        class_P, class_J = np.split(self.traits.key_JL[:, 1], [len(self.past_work_P)])
        return class_mean_J(class_J, class_P, self.past_work_P, self.past_cause_P)
