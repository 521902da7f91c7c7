"""Warm start: an algorithm's policy is fitted to what a scheduler does, before it learns from its own choices."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch

from noonward.arrays import F8, I8, Bools
from noonward.errors import ScenarioError
from noonward.learn.algorithms.algorithm import Algorithm
from noonward.learn.core.experience import Moment, Transition
from noonward.learn.core.masking import best, log_policy, masked, with_hold
from noonward.learn.core.nets import StackedMLP, adam
from noonward.learn.core.rollout import pick, stacked
from noonward.learn.tasks.rows import Rows
from noonward.learn.tasks.task import Task
from noonward.learn.train.curves import Row
from noonward.learn.train.run_config import RunConfig
from noonward.seeding import stream

SMALLEST_WEIGHT: Final = 1e-30
NEVER: Final = 2**62
"""Decision steps after which a run is cut that is not to be cut."""
CHUNK: Final = 4096
"""Decision steps that are judged at once."""


@runtime_checkable
class Imitator(Protocol):
    """What an algorithm that can be fitted to demonstrations has."""

    name: Any
    imitation_loss: Any
    """``cross-entropy`` or ``margin``."""
    dtype: Any
    """Type of the nets' parameters."""

    @property
    def deciding_net(self) -> StackedMLP:
        """The net that is fitted."""

    def preferences(self, moment: Moment) -> torch.Tensor:
        """Returns the outputs of which the largest is the best choice, [N, B, A]."""

    def tensor(self, array: Any, dtype: Any = None) -> torch.Tensor:
        """Returns an array as a tensor where the nets are."""

    def after_imitation(self) -> None:
        """Brings other nets in line with the one that was fitted."""


class Demonstrations(NamedTuple):
    """What a scheduler did, over decision steps of several runs."""

    seen: Moment
    choice_BN: I8
    told_BN: Bools
    """Whether there is something to learn: the agent was asked, had more than one feasible choice, and the scheduler's
    answer is one of them."""
    reward: float
    """Mean reward of a run, USD for a utility."""
    runs: int
    missed: int
    """Questions whose answer is none of the feasible choices: the agent then takes the first of them."""


def demonstrate(
    task: Task,
    runs: int,
    episode_steps: int,
    *,
    observe: Callable[[Transition], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Demonstrations:
    """Returns what the task's demonstrator does in its first training draws.

    Args:
        task: Task with a demonstrator.
        runs: Runs, one after the other.
        episode_steps: Decision steps after which a run is cut.
        observe: Takes in every decision step.
        progress: Called with how many of all runs are over.

    Raises:
        ScenarioError: The scheduler never had a choice that could be imitated.
    """
    if task.demonstrator is None:
        raise ValueError("the task has no demonstrator")
    rows = Rows(task, 1, episode_steps)
    demonstrator = task.demonstrator(rows.engine)
    moments, choices, told = [], [], []
    reward, missed, over = unasked_reward(rows), 0, 0
    while over < runs:
        moment = rows.moment
        answer_BN = demonstrator.choices()[None]
        mask_BNA = with_hold(moment.mask_BNA, moment.asked_BN)
        told_BN = moment.asked_BN & (answer_BN >= 0)
        missed += int((moment.asked_BN & ~told_BN).sum())
        choice_BN = np.where(told_BN, answer_BN, mask_BNA.argmax(-1))
        transition = rows.step(choice_BN)
        moments.append(moment)
        choices.append(choice_BN)
        told.append(told_BN & (mask_BNA.sum(-1) > 1))
        reward += float(transition.reward_B[0])
        if observe is not None:
            observe(transition)
        if transition.ended_B[0] or transition.cut_B[0]:
            over += 1
            demonstrator.begin()
            reward += unasked_reward(rows) if over < runs else 0.0
            if progress is not None:
                progress(over, runs)
    if not np.any(told):
        raise ScenarioError(
            "the policy to start from never took a choice that the agents could take otherwise; there is nothing to "
            "imitate: take another policy or scenario"
        )
    return Demonstrations(
        stacked(moments), np.concatenate(choices), np.concatenate(told), reward / runs, runs=runs, missed=missed
    )


def unasked_reward(rows: Rows) -> float:
    """Returns what the run that has just begun earned before its first question; with a meter, 0."""
    return 0.0 if rows.meter is not None else float(rows.engine.reward_B[0])


def imitation_loss(
    preference_NBA: torch.Tensor,
    mask_NBA: torch.Tensor,
    choice_NB: torch.Tensor,
    weight_NB: torch.Tensor,
    *,
    kind: Literal["cross-entropy", "margin"],
    margin: float,
) -> torch.Tensor:
    """Returns the loss of demonstrated choices ``c``, its weighted mean; 0 if all weights are.

    ``cross-entropy``: ``-log p(c)``, p the policy over the feasible choices. ``margin`` (DQfD, Hester et al. 2018,
    Eq. 2): ``max_a [Q(a) + margin (a != c)] - Q(c)`` over the feasible choices.

    Args:
        preference_NBA: Logits or values.
        mask_NBA: Feasible choices; at least one each.
        choice_NB: Demonstrated choices.
        weight_NB: Their weights.
        kind: Which loss.
        margin: The margin, of the second.
    """
    if kind == "margin":
        other_NBA = choice_NB[..., None] != torch.arange(preference_NBA.shape[-1], device=choice_NB.device)
        raised_NBA = masked(preference_NBA + margin * other_NBA.to(preference_NBA.dtype), mask_NBA)
        loss_NB = raised_NBA.amax(-1) - preference_NBA.gather(-1, choice_NB[..., None])[..., 0]
    else:
        loss_NB = -log_policy(preference_NBA, mask_NBA).gather(-1, choice_NB[..., None])[..., 0]
    return (weight_NB * loss_NB).sum() / weight_NB.sum().clamp(min=SMALLEST_WEIGHT)


def weights_of(shown: Demonstrations, balance: float) -> F8:
    """Returns the weights of choices in the loss, [B, N]: 0 where nothing is told, else ``count^-balance``.

    The count is that of the choice among all that its agent was told, so that with ``balance`` 0 all questions weigh
    the same, with 1 all choices of an agent. Where a scheduler mostly holds, a fit without balance hardly learns to do
    anything else.
    """
    out_BN = np.zeros(shown.choice_BN.shape)
    for n, told_B in enumerate(shown.told_BN.T):
        choice = shown.choice_BN[told_B, n]
        out_BN[told_B, n] = np.bincount(choice)[choice] ** -balance
    return out_BN


def loss_of(imitator: Imitator, shown: Demonstrations, weight_BN: F8, rows: I8, margin: float) -> torch.Tensor:
    """Returns the loss of some steps of demonstrations."""
    moment = pick(shown.seen, rows)
    mask_BNA = with_hold(moment.mask_BNA, moment.asked_BN)
    return imitation_loss(
        imitator.preferences(moment),
        imitator.tensor(mask_BNA.swapaxes(0, 1)),
        imitator.tensor(shown.choice_BN[rows].T),
        imitator.tensor(weight_BN[rows].T, imitator.dtype),
        kind=imitator.imitation_loss,
        margin=margin,
    )


def fit(
    imitator: Imitator,
    shown: Demonstrations,
    rng: np.random.Generator,
    *,
    passes: int,
    batch: int,
    rate: float,
    margin: float,
    balance: float = 0.0,
    progress: Callable[[int, int], None] | None = None,
) -> float:
    """Fits an algorithm to demonstrations; returns the mean loss of the last pass.

    Args:
        imitator: The algorithm.
        shown: Demonstrations; steps in which nothing is told are left out.
        rng: Random numbers; order of the steps.
        passes: Passes over the steps.
        batch: Steps in a batch.
        rate: Adam's step.
        margin: The margin, where the loss has one.
        balance: How much more rare choices weigh, see ``weights_of``.
        progress: Called with how many of all passes are over.
    """
    optimizer = adam(imitator.deciding_net.parameters(), rate)
    useful = np.flatnonzero(shown.told_BN.any(-1))
    weight_BN = weights_of(shown, balance)
    mean = 0.0
    for number in range(passes):
        losses = []
        order = rng.permutation(useful)
        for first in range(0, len(order), batch):
            loss = loss_of(imitator, shown, weight_BN, order[first : first + batch], margin)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        mean = float(np.mean(losses))
        if progress is not None:
            progress(number + 1, passes)
    imitator.after_imitation()
    return mean


def accuracy(imitator: Imitator, shown: Demonstrations) -> tuple[float, float]:
    """Returns the share of told choices that the algorithm would take, and its mean over the choices that were taken.

    The second counts every choice alike: where holding is most of what there is to do, an algorithm that always holds
    scores high in the first only.
    """
    found: list[I8] = []
    for first in range(0, len(shown.choice_BN), CHUNK):
        moment = pick(shown.seen, np.arange(first, min(first + CHUNK, len(shown.choice_BN))))
        with torch.no_grad():
            preference_BNA = imitator.preferences(moment).transpose(0, 1).cpu().numpy()
        found.append(best(preference_BNA, with_hold(moment.mask_BNA, moment.asked_BN)))
    told_BN = shown.told_BN
    choice, right = shown.choice_BN[told_BN], (np.concatenate(found) == shown.choice_BN)[told_BN]
    counts, rights = np.bincount(choice), np.bincount(choice, weights=right)
    taken = counts > 0
    return float(right.mean()), float((rights[taken] / counts[taken]).mean())


def imitate(
    config: RunConfig, task: Task, algorithm: Algorithm, progress: Callable[[str, int, int], None]
) -> tuple[Row, dict[str, float]]:
    """Fits an algorithm to the policy that a run starts from; returns the figures of epoch 0 and wall times.

    The policy is watched in the first training draws; the fit is judged by what it does in the validation environments.

    Args:
        config: The run; ``warm_start`` and the fields beside it.
        task: Task with a demonstrator.
        algorithm: Algorithm.
        progress: Called with the phase, the parts of it that are over, and all its parts.

    Raises:
        ScenarioError: The algorithm cannot be fitted, or the policy never has a choice.
    """
    if not isinstance(algorithm, Imitator):
        raise ScenarioError(f"{algorithm.name} cannot imitate a policy; leave out warm_start")
    marks = [time.monotonic()]
    observe = algorithm.observe if config.warm_start_keep else None
    shown = demonstrate(
        task,
        config.warm_start_environments,
        config.warm_start_steps or NEVER,
        observe=observe,
        progress=lambda done, total: progress("watch", done, total),
    )
    held_out = replace(task, training=task.validation)
    judged = demonstrate(held_out, config.validation_environments, NEVER)
    marks.append(time.monotonic())
    loss = fit(
        algorithm,
        shown,
        stream(config.seed, "learner", "imitation"),
        passes=config.warm_start_passes,
        batch=config.warm_start_batch,
        rate=config.warm_start_rate,
        margin=config.warm_start_margin,
        balance=config.warm_start_balance,
        progress=lambda done, total: progress("imitate", done, total),
    )
    right, recall = accuracy(algorithm, judged)
    marks.append(time.monotonic())
    steps = len(shown.choice_BN)
    row: Row = {
        "epoch": 0,
        "environment_steps": steps,
        "episodes": shown.runs,
        "questions_per_step": float(shown.seen.asked_BN.sum()) / steps,
        "reward_per_step": shown.reward * shown.runs / steps,
        "imitation_loss": loss,
        "imitation_accuracy": right,
        "imitation_recall": recall,
        "imitation_missed": shown.missed,
        "imitated_reward": judged.reward,
    }
    return row, {"collect": marks[1] - marks[0], "update": marks[2] - marks[1]}
