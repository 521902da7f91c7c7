"""Greedy: the launch of the best reward at once, over all tasks and steps (EAT, Sec. VI.A.3)."""

from __future__ import annotations

import numpy as np

from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.gangs import idle_gang
from noonward.decision.edge.rule import edge_rule
from noonward.decision.edge.scheduler import CompiledEdgeScheduler
from noonward.decision.edge.view import NOBODY, EdgeAnswers, EdgeMemory, EdgeView
from noonward.model.edge.quality import LAWS, quality
from noonward.model.edge.reward import launch_reward

LAW, BLIND, QUALITY, RESPONSE, QUEUE, PENALTY, LEAST = range(7)
"""Numbers of the memory: law of quality, whether durations count as 0, weights of the reward, least quality."""


@edge_rule
def greedy_rule(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Launches the task with the whole number of steps whose reward is highest; a launch is always better than none."""
    run, number = view.run_1[0], memory.number_P
    now_s = run.now_t * run.tick_s
    waits_s, count = 0.0, 0
    for q in range(view.task_Q.shape[0]):
        if view.task_Q[q].task != NOBODY:
            waits_s += now_s - view.task_Q[q].stamp_s
            count += 1
    most = -np.inf
    for q in range(count):
        if not view.mask_A[1 + q]:
            continue
        task = view.task_Q[q]
        wait_s = now_s - task.stamp_s
        queue_s = (waits_s - wait_s) / (count - 1) if count > 1 else 0.0
        loads = idle_gang(view.server_N, run.now_t, task.gang, task.model) == NOBODY
        steps = min(max(1.0, np.ceil(run.steps_min)), task.steps_max)
        while steps <= task.steps_max:
            response_s = wait_s
            if number[BLIND] == 0.0:
                response_s += steps * view.step_s_G[task.gang] + (view.load_s_G[task.gang] if loads else 0.0)
            reward = launch_reward(
                quality(steps, int(number[LAW])),
                response_s,
                queue_s,
                number[QUALITY],
                number[RESPONSE],
                number[QUEUE],
                number[PENALTY],
                number[LEAST],
            )
            if reward > most:
                most = reward
                answers.answer_1[0].choice = 1 + q
                answers.answer_1[0].steps = steps
            steps += 1.0


class Greedy(CompiledEdgeScheduler):
    """The launch of the best immediate reward over all tasks and steps.

    Args:
        blind: Rate a launch before its duration is known, as the authors' public code does: loads and steps cost
            nothing then. False: rate it with its load and its steps.
    """

    rule = staticmethod(greedy_rule)

    def __init__(self, *, blind: bool = False) -> None:
        self.blind = blind

    def make_memory(self, brief: EdgeBrief, rng: np.random.Generator) -> EdgeMemory:
        """Returns a memory of the reward's weights."""
        setting = brief.setting
        weights = setting.utility
        return EdgeMemory.make(
            numbers=(
                LAWS.index(setting.quality),
                float(self.blind),
                weights.quality,
                weights.response_per_s,
                weights.queue_per_s,
                weights.penalty,
                setting.quality_min,
            )
        )
