"""The question that a scheduler is asked by a running service: the same view as in simulation, from live servers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noonward.arrays import I8, Bools
from noonward.decision.edge.gangs import dissolve, idle_gang, idle_servers, occupy
from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.decision.edge.view import (
    ANSWER,
    LEAST_FRAGMENTATION,
    LOWEST,
    NOBODY,
    WAIT,
    EdgeAnswers,
    EdgeView,
    blank_view,
)
from noonward.errors import InfeasibleActionError
from noonward.live.edge.predictor import Predictor
from noonward.model.edge.scenario import EdgeScenario
from noonward.model.edge.tasks import NO_DEADLINE_S


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A task that waits, as the scheduler sees it.

    Attributes:
        number: Its number.
        stamp_s: When it was submitted, s since the service's second 0.
        gang: Servers it needs.
        model: Number of its model.
        steps_max: Most steps.
        deadline_s: Latest end, s; NO_DEADLINE_S without one.
    """

    number: int
    stamp_s: float
    gang: int
    model: int
    steps_max: float
    deadline_s: float


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a scheduler decided.

    Attributes:
        place: Place in the visible queue.
        steps: Inference steps.
        gang: Its lowest server.
        members: Its servers.
        formed: Whether the gang is new.
        loads: Whether a member is expected to load the model.
    """

    place: int
    steps: int
    gang: int
    members: tuple[int, ...]
    formed: bool
    loads: bool


class Question:
    """Servers and visible queue as an ``EdgeView``, kept between questions.

    Where workers keep their models, a new gang is formed of idle servers that have the task's model, if there are
    enough of them, and loads nothing. The view has one load time per gang size: 0 if that holds for every visible task
    of the size, else the expected one.

    Args:
        setting: Number of servers, length of the visible queue and of a tick, choice of servers.
        predictor: Expected times; the view reads its steps' array.
        keeps: Whether workers keep their models when gangs change.
    """

    def __init__(self, setting: EdgeScenario, predictor: Predictor, *, keeps: bool) -> None:
        blank = blank_view(setting.servers.count, setting.visible, len(predictor.load_s_G))
        self.view: EdgeView = blank._replace(load_s_G=predictor.load_s_G.copy(), step_s_G=predictor.step_s_G)
        self._answers = EdgeAnswers(np.zeros(1, ANSWER))
        self._predictor, self._tick_s, self._keeps = predictor, setting.tick_s, keeps
        self.held_N: I8 = np.full(setting.servers.count, NOBODY, np.int64)
        """Model that every server's worker has loaded, or NOBODY."""
        run = self.view.run_1
        run["tick_s"], run["steps_min"] = setting.tick_s, setting.steps_min
        run["choice"] = LOWEST if setting.choice == "lowest" else LEAST_FRAGMENTATION

    def fill(self, now_s: float, waiting: Sequence[Waiting], busy: Sequence[bool], event: bool) -> bool:
        """Writes the view as of now; returns whether a launch is possible.

        Args:
            now_s: Now, s since second 0.
            waiting: Tasks that wait, oldest first.
            busy: Whether each server works, starts, or is lost; one that is later than expected stays busy.
            event: Whether a server will become idle by itself.
        """
        view, now_t = self.view, self._ticks(now_s)
        view.run_1["now_t"], view.run_1["waiting"] = now_t, len(waiting)
        for n, works in enumerate(busy):
            free_t = int(view.server_N["free_t"][n])
            view.server_N["free_t"][n] = max(free_t, now_t + 1) if works else min(free_t, now_t)
        view.task_Q[:] = (NOBODY, 0.0, 0, NOBODY, 0.0, NO_DEADLINE_S)
        for q, task in enumerate(waiting[: len(view.task_Q)]):
            view.task_Q[q] = (task.number, task.stamp_s, task.gang, task.model, task.steps_max, task.deadline_s)
        idle = idle_servers(view.server_N, now_t)
        fits_Q = (view.task_Q["task"] != NOBODY) & (view.task_Q["gang"] <= idle)
        view.mask_A[1:] = fits_Q
        view.run_1["event"] = view.mask_A[WAIT] = event
        view.load_s_G[:] = self._predictor.load_s_G
        if self._keeps:
            seen = view.task_Q[view.task_Q["task"] != NOBODY]
            for size in np.unique(seen["gang"]):
                models = np.unique(seen["model"][seen["gang"] == size])
                if all(self._holders(model, now_t).sum() >= size for model in models):
                    view.load_s_G[size] = 0.0
        return bool(fits_Q.any())

    def _holders(self, model: int, now_t: int) -> Bools:
        """Returns which servers are idle and have a model."""
        return np.asarray((self.held_N == model) & (self.view.server_N["free_t"] <= now_t))

    def ask(self, scheduler: EdgeScheduler) -> Launch | float:
        """Asks a scheduler and notes its launch in the view.

        Returns:
            The launch, or the time until which it waits, s (infinite: until the next event).

        Raises:
            InfeasibleActionError: It answered something that is not possible; nothing has changed.
        """
        self._answers.answer_1[0] = (WAIT, 0.0, np.inf)
        scheduler.decide(self.view, self._answers)
        choice, steps, until_s = self._answers.answer_1[0].item()
        allowed = np.flatnonzero(self.view.mask_A).tolist()
        if choice == WAIT:
            if math.isinf(until_s) and WAIT not in allowed:
                raise InfeasibleActionError("waits although no server works, so nothing would ever happen")
            if math.isnan(until_s):
                raise InfeasibleActionError("waits until a time that is no number")
            return float(until_s)
        if choice not in allowed:
            raise InfeasibleActionError(f"choice {choice}; feasible now: {', '.join(map(str, allowed))}")
        return self.launch(choice - 1, steps)

    def first_fit(self) -> Launch:
        """Launches the oldest task whose gang is idle, with its most steps."""
        q = int(np.flatnonzero(self.view.mask_A[1:])[0])
        return self.launch(q, float(self.view.task_Q["steps_max"][q]))

    def launch(self, q: int, steps: float) -> Launch:
        """Notes a launch: servers are chosen as in simulation, and busy as long as expected.

        Raises:
            InfeasibleActionError: The steps are not the scenario's fewest to the task's most.
        """
        view, task = self.view, self.view.task_Q[q]
        least = min(float(view.run_1["steps_min"][0]), float(task["steps_max"]))
        if not least <= steps <= task["steps_max"]:
            raise InfeasibleActionError(f"{steps} steps; allowed: {least:g} to {task['steps_max']:g}")
        whole = max(1, min(round(steps), math.floor(task["steps_max"])))
        size, now_t, choice = int(task["gang"]), int(view.run_1["now_t"][0]), int(view.run_1["choice"][0])
        gang = idle_gang(view.server_N, now_t, size, task["model"])
        formed = loads = gang == NOBODY
        holders_N = self._holders(int(task["model"]), now_t)
        passed_N = np.zeros(len(holders_N), bool)
        if formed and self._keeps and holders_N.sum() >= size:
            loads, passed_N = False, ~holders_N & (view.server_N["free_t"] <= now_t)
        until_t = now_t + max(1, math.ceil(self._predictor.expect_s(size, whole, loads) / self._tick_s - 1e-9))
        free_t_N = view.server_N["free_t"][passed_N].copy()
        view.server_N["free_t"][passed_N] = now_t + 1  # so that the rule chooses among those that have the model
        gang = occupy(view.server_N, now_t, gang, size, task["model"], until_t, choice)
        view.server_N["free_t"][passed_N] = free_t_N
        members = tuple(np.flatnonzero(view.server_N["gang"] == gang).tolist())
        return Launch(place=q, steps=whole, gang=int(gang), members=members, formed=bool(formed), loads=bool(loads))

    def expect(self, n: int, until_s: float) -> None:
        """Notes when a server is expected to be idle, s since second 0."""
        self.view.server_N["free_t"][n] = self._ticks(until_s)

    def dissolve(self, n: int) -> None:
        """Dissolves the gang of a server, if it has one."""
        gang = int(self.view.server_N["gang"][n])
        if gang != NOBODY:
            dissolve(self.view.server_N, gang)

    def _ticks(self, seconds: float) -> int:
        return math.floor(seconds / self._tick_s + 1e-9)
