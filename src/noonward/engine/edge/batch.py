"""The edge batch engine: many runs side by side, one compiled call a step, with observations, masks and rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F4, F8, I8, U1, Bools, Records
from noonward.compiled import kernel
from noonward.decision.edge.observation import TOKEN, EdgeObservation, observe_edge
from noonward.decision.edge.view import ANSWER, NOBODY, QUEUED, RUN, SERVER, WAIT, EdgeAnswers, EdgeView
from noonward.engine.edge.engine import edge_world
from noonward.engine.edge.kernels import ENGINE, EdgeWorld, advance, carry_out
from noonward.errors import InfeasibleActionError, ScenarioError
from noonward.ledger.edge import TASK_OUTCOME
from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.reward import launch_reward
from noonward.model.edge.tasks import TASK

UNIT_S: Final = 100.0
"""Seconds of response that count as one unit of reward."""
TOTALS: Final = np.dtype(
    [
        ("launched", "f8"),
        ("response_s", "f8"),  # sum of the responses of the tasks launched so far
        ("quality", "f8"),  # sum of their qualities
        ("loaded", "f8"),  # how many loaded
        ("accrued_s", "f8"),  # response of all tasks so far: waits up to now, and whole runs of those launched
        ("stamps_s", "f8"),  # sum of the stamps of the tasks that wait
        ("counted", "i8"),  # tasks whose stamps are in the sums
    ]
)
"""What a row's run has come to since its start."""


class Rows(NamedTuple):
    """Worlds of all rows, in arrays as large as the largest row needs. Axes: B rows, N servers, Q places, K tasks."""

    run_B: Records
    server_BN: Records
    task_BQ: Records
    mask_BA: U1
    load_s_BG: F8
    step_s_BG: F8
    answer_B: Records
    engine_B: Records
    task_BK: Records
    track_BK: Records
    servers_B: I8
    tasks_B: I8
    price_s_B: F8
    total_B: Records


class Board(NamedTuple):
    """What is shown of all rows; overwritten by each step."""

    token_BTW: F4
    mask_BNA: U1
    asked_BN: Bools
    reward_B: F8
    elapsed_s_B: F8
    now_s_B: F8
    done_B: Bools


@kernel(inline=True, allocates=False)
def row_of(rows: Rows, b: int) -> EdgeWorld:
    """Returns the world of a row."""
    return EdgeWorld(
        EdgeView(
            rows.run_B[b : b + 1],
            rows.server_BN[b][: rows.servers_B[b]],
            rows.task_BQ[b],
            rows.mask_BA[b],
            rows.load_s_BG[b],
            rows.step_s_BG[b],
        ),
        EdgeAnswers(rows.answer_B[b : b + 1]),
        rows.engine_B[b : b + 1],
        rows.task_BK[b][: rows.tasks_B[b]],
        rows.track_BK[b],
    )


@kernel(inline=True, allocates=False)
def _accrue(w: EdgeWorld, total_B: Records, b: int) -> float:
    """Brings a row's sums up to now; returns by how much the responses have grown, s."""
    total = total_B[b]
    before_s = total.accrued_s
    for k in range(total.counted, w.engine_1[0].arrived):
        total_B[b].stamps_s += w.task_K[k].stamp_s
    total_B[b].counted = w.engine_1[0].arrived
    run = w.shown.run_1[0]
    waits_s = run.waiting * (run.now_t * run.tick_s) - total_B[b].stamps_s
    total_B[b].accrued_s = total_B[b].response_s + waits_s
    return total_B[b].accrued_s - before_s


@kernel(inline=True, allocates=False)
def _count_launch(w: EdgeWorld, total_B: Records, b: int, k: int) -> float:
    """Adds a launch to a row's sums; returns the quality of its image."""
    run, track, stamp_s = w.shown.run_1[0], w.track_K[k], w.task_K[k].stamp_s
    total_B[b].launched += 1
    total_B[b].response_s += track.start_t * run.tick_s + track.duration_s - stamp_s
    total_B[b].quality += track.quality
    total_B[b].loaded += track.loaded
    total_B[b].stamps_s -= stamp_s
    return track.quality


@kernel(inline=True, allocates=False)
def _published_reward(w: EdgeWorld, k: int) -> float:
    """Returns the public simulator's reward of a launch."""
    run, track = w.shown.run_1[0], w.track_K[k]
    now_s, waits_s, visible = run.now_t * run.tick_s, 0.0, 0
    for q in range(w.shown.task_Q.shape[0]):
        if w.shown.task_Q[q].task == NOBODY:
            break
        waits_s += now_s - w.shown.task_Q[q].stamp_s
        visible += 1
    response_s = now_s + track.duration_s - w.task_K[k].stamp_s
    return launch_reward(track.quality, response_s, waits_s / max(visible, 1), 10.0, 0.004, 0.004, 0.0, 0.0)


@kernel(inline=True, allocates=False)
def _show(rows: Rows, board: Board, b: int, kind: int, levels: int, servers: int) -> None:
    """Writes what is shown of a row that has run to a question or to its end."""
    run = rows.run_B[b]
    now_s = run.now_t * run.tick_s
    board.elapsed_s_B[b] = now_s - board.now_s_B[b]
    board.now_s_B[b] = now_s
    board.done_B[b] = kind == 0
    board.asked_BN[b, 0] = kind != 0
    mask_A = board.mask_BNA[b, 0]
    if kind == 0:
        mask_A[:] = 0
        board.token_BTW[b] = 0.0
        return
    for place in range(rows.mask_BA.shape[1]):
        for level in range(levels):
            feasible = rows.mask_BA[b, place] and (place != WAIT or level == 0)
            mask_A[place * levels + level] = feasible
    observe_edge(row_of(rows, b).shown, servers, rows.price_s_B[b], board.token_BTW[b])


@kernel(allocates=False)
def step_rows(
    rows: Rows,
    board: Board,
    choice_BN: I8,
    first: int,
    until: int,
    step_L: F8,
    target: float,
    servers: int,
    published: bool,
) -> int:
    """Carries out the choices of some rows and runs each to its next question; a fresh row runs to its first.

    Args:
        rows: Worlds.
        board: What is shown.
        choice_BN: Choices ``place x levels + level``; not read of rows that are not asked.
        first: First row.
        until: Row after the last.
        step_L: Steps of each level.
        target: Quality above which the price is paid.
        servers: Server tokens of the observation.
        published: Pay the public simulator's reward.

    Returns:
        -1, or the first row whose choice is infeasible; nothing is changed then.
    """
    levels = step_L.shape[0]
    for b in range(first, until):
        choice = choice_BN[b, 0]
        if board.asked_BN[b, 0] and (
            choice < 0 or choice >= board.mask_BNA.shape[2] or not board.mask_BNA[b, 0, choice]
        ):
            return b
    for b in range(first, until):
        board.reward_B[b] = 0.0
        board.elapsed_s_B[b] = 0.0
        if board.done_B[b]:
            continue
        w = row_of(rows, b)
        reward = 0.0
        if board.asked_BN[b, 0]:
            place, level = choice_BN[b, 0] // levels, choice_BN[b, 0] % levels
            w.answers.answer_1[0].choice = place
            w.answers.answer_1[0].until_s = np.inf
            task = 0
            if place != WAIT:
                task = w.shown.task_Q[place - 1].task
                given = max(step_L[level], w.shown.run_1[0].steps_min)
                w.answers.answer_1[0].steps = min(given, w.shown.task_Q[place - 1].steps_max)
            carry_out(w)
            if place != WAIT:
                reward = rows.price_s_B[b] * (_count_launch(w, rows.total_B, b, task) - target)
                if published:
                    reward = UNIT_S * _published_reward(w, task)
        kind = advance(w)
        grown_s = _accrue(w, rows.total_B, b)
        board.reward_B[b] = (reward - (0.0 if published else grown_s)) / UNIT_S
        _show(rows, board, b, kind, levels, servers)
    return -1


class EdgeBatch:
    """Runs of edge scenarios side by side that pause, ask and are answered together.

    Question: as in ``EdgeEngine``, whenever a visible task's gang is idle. One agent; choice ``place x L + level`` with
    place 0 = wait for the next event, 1 + q = launch the task in place q of the visible queue, with the steps of the
    level (at least the scenario's, at most the task's own). ``mask_BNA`` marks what is feasible; a wait has level 0
    alone.

    Observation: ``EdgeObservation``, flat.

    Reward, per row, since its last question: ``[price (quality - target) - growth of the responses] / 100 s``. A launch
    brings the price and its whole run, time brings a second per task that waits. With the first reading (from the
    start to the first question) the rewards of a run sum to ``sum [price (quality - target) - response] / 100 s``.

    End: ``done_B`` is set when all tasks are launched or the limit is over; observation and masks are then zero, and
    the row rests until ``reset``.

    Attributes:
        agents: 1.
        choices: Choices A.
        global_BG: Observation, float32.
        own_BNO: Nothing, float32 [B, 1, 0].
        mask_BNA: 1 where a choice is feasible.
        asked_BN: Whether a row asks.
        reward_B: Reward since the last question.
        elapsed_s_B: Time since the last question, s.
        now_s_B: Time of the question, s.
        done_B: Rows whose run has ended.
        environments: Environment of each row.
        seeds: Seed of each row; edge runs draw nothing.

    All arrays are live: each step overwrites them.

    Args:
        environments: What each row runs; all with as many visible places.
        seeds: A seed a row.
        steps: Steps that a launch may be given, one a level.
        price_of: Price of quality in an environment, s per unit.
        target: Quality above which the price is paid.
        servers: Server tokens of the observation, at least as many as any environment has servers.
        published: The public simulator's reward instead: at a launch ``min(10, 250 s / (mean wait of the visible tasks
            that are left + response)) + 10 quality``, else 0.

    Raises:
        ScenarioError: The environments do not fit each other or the observation.
    """

    agents = 1

    def __init__(
        self,
        environments: Sequence[EdgeEnvironment],
        *,
        seeds: Sequence[int],
        steps: Sequence[float],
        price_of: Callable[[EdgeEnvironment], float],
        target: float = 0.26,
        servers: int = 12,
        published: bool = False,
    ) -> None:
        first = environments[0].setting
        self.environments, self.seeds = list(environments), list(seeds)
        self.observation = EdgeObservation(servers=servers, places=first.visible)
        self.step_L, self.target, self.price_of = np.array(steps, dtype=np.float64), target, price_of
        self.published = published
        self.choices = (1 + first.visible) * len(self.step_L)
        count = len(environments)
        self.token_BTW = np.zeros((count, self.observation.tokens, TOKEN), np.float32)
        self.global_BG = self.token_BTW.reshape(count, -1)
        self.own_BNO = np.zeros((count, 1, 0), np.float32)
        self.mask_BNA = np.zeros((count, 1, self.choices), np.uint8)
        self.asked_BN = np.zeros((count, 1), np.bool_)
        self.reward_B, self.elapsed_s_B, self.now_s_B = np.zeros(count), np.zeros(count), np.zeros(count)
        self.done_B = np.zeros(count, np.bool_)
        self._board = Board(*(getattr(self, name) for name in Board._fields))
        self._rows = self._room(count, max(len(each.tasks) for each in environments))
        for row, environment in enumerate(environments):
            self._fill(row, environment)
        self._run(np.zeros((count, 1), np.int64), 0, count)

    def _room(self, count: int, tasks: int) -> Rows:
        """Returns empty rows."""
        places, sizes = self.observation.places, self._sizes
        return Rows(
            run_B=np.zeros(count, RUN),
            server_BN=np.zeros((count, self.observation.servers), SERVER),
            task_BQ=np.zeros((count, places), QUEUED),
            mask_BA=np.zeros((count, 1 + places), np.uint8),
            load_s_BG=np.full((count, sizes), np.nan),
            step_s_BG=np.full((count, sizes), np.nan),
            answer_B=np.zeros(count, ANSWER),
            engine_B=np.zeros(count, ENGINE),
            task_BK=np.zeros((count, tasks), TASK),
            track_BK=np.zeros((count, tasks), TASK_OUTCOME),
            servers_B=np.zeros(count, np.int64),
            tasks_B=np.zeros(count, np.int64),
            price_s_B=np.zeros(count),
            total_B=np.zeros(count, TOTALS),
        )

    @property
    def _sizes(self) -> int:
        """Gang sizes, 0 included, that every row has room for."""
        return 1 + self.observation.servers

    @property
    def rows(self) -> Rows:
        """Worlds of all rows (live), for compiled readers."""
        return self._rows

    def _fill(self, row: int, environment: EdgeEnvironment) -> None:
        """Puts a fresh run into a row."""
        setting, observation = environment.setting, self.observation
        if setting.visible != observation.places or setting.servers.count > observation.servers:
            raise ScenarioError(
                f"scenario {setting.name!r} has {setting.servers.count} servers and shows {setting.visible} tasks; "
                f"rows of this batch have at most {observation.servers} servers and show {observation.places}"
            )
        if len(environment.tasks) > self._rows.task_BK.shape[1]:
            self._widen(len(environment.tasks))
        rows, world = self._rows, edge_world(environment)
        rows.run_B[row], rows.engine_B[row] = world.shown.run_1[0], world.engine_1[0]
        servers, tasks = len(world.shown.server_N), len(world.task_K)
        rows.servers_B[row], rows.tasks_B[row] = servers, tasks
        rows.server_BN[row, :servers], rows.task_BQ[row] = world.shown.server_N, world.shown.task_Q
        for name in ("load_s", "step_s"):
            given_G = getattr(world.shown, f"{name}_G")[: self._sizes]
            getattr(rows, f"{name}_BG")[row] = np.nan
            getattr(rows, f"{name}_BG")[row, : len(given_G)] = given_G
        rows.task_BK[row, :tasks], rows.track_BK[row, :tasks] = world.task_K, world.track_K
        rows.price_s_B[row], rows.total_B[row] = self.price_of(environment), np.zeros((), TOTALS)
        self.environments[row] = environment
        self.asked_BN[row], self.done_B[row], self.now_s_B[row] = False, False, 0.0

    def _widen(self, tasks: int) -> None:
        """Makes room for more tasks a row."""
        more = tasks - self._rows.task_BK.shape[1]
        wider = {name: np.pad(getattr(self._rows, name), ((0, 0), (0, more))) for name in ("task_BK", "track_BK")}
        self._rows = self._rows._replace(**wider)

    def _run(self, choice_BN: I8, first: int, until: int) -> None:
        """Steps some rows."""
        row = int(
            step_rows(
                *(self._rows, self._board, choice_BN, first, until),
                *(self.step_L, self.target, self.observation.servers, self.published),
            )
        )
        if row >= 0:
            allowed = np.flatnonzero(self.mask_BNA[row, 0])
            raise InfeasibleActionError(
                f"row {row}: choice {choice_BN[row, 0]} is infeasible; feasible now: {', '.join(map(str, allowed))} "
                f"(place x {len(self.step_L)} + level, place 0 waits); answer only what the mask marks"
            )

    def step(self, choice_BN: NDArray[np.int64]) -> None:
        """Carries out all rows' choices and runs every live row to its next question.

        Args:
            choice_BN: A choice a row, [B, 1]; not read where a row is not asked.

        Raises:
            InfeasibleActionError: A choice is infeasible; nothing has changed in any row.
            ValueError: The choices are no integers of that shape.
        """
        given = np.asarray(choice_BN)
        if given.shape != self.asked_BN.shape or given.dtype.kind not in "iu":
            raise ValueError(
                f"choices of shape {given.shape} and type {given.dtype}; give integers of shape {self.asked_BN.shape}"
            )
        self._run(np.ascontiguousarray(given, np.int64), 0, len(self.environments))

    def reset(self, row: int, environment: EdgeEnvironment, seed: int) -> None:
        """Restarts a row and runs it to its first question; the other rows do not change.

        Args:
            row: Row.
            environment: What it runs.
            seed: Its seed.

        Raises:
            ScenarioError: The environment does not fit the batch.
        """
        self._fill(row, environment)
        self.seeds[row] = seed
        self._run(np.zeros((len(self.environments), 1), np.int64), row, row + 1)

    def total(self, name: str) -> F8:
        """Returns one of the TOTALS of every row's run so far, [B]."""
        return np.array(self._rows.total_B[name], dtype=np.float64)

    def row_world(self, row: int) -> EdgeWorld:
        """Returns the world of a row (live)."""
        rows, tasks = self._rows, int(self._rows.tasks_B[row])
        view = EdgeView(
            rows.run_B[row : row + 1],
            rows.server_BN[row, : int(rows.servers_B[row])],
            rows.task_BQ[row],
            rows.mask_BA[row],
            rows.load_s_BG[row],
            rows.step_s_BG[row],
        )
        one = slice(row, row + 1)
        return EdgeWorld(
            view, EdgeAnswers(rows.answer_B[one]), rows.engine_B[one], rows.task_BK[row, :tasks], rows.track_BK[row]
        )

    def row_view(self, row: int) -> EdgeView:
        """Returns the view of a row (live), so that any scheduler can be asked about it."""
        return self.row_world(row).shown

    def state(self) -> dict[str, Any]:
        """Returns a copy of all that changes; the environments are not in it."""
        shown = {name: array.copy() for name, array in self._board._asdict().items()}
        return shown | {f"rows/{name}": _bytes(array) for name, array in self._rows._asdict().items()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores from ``state()``, bit for bit, in an engine of the same environments.

        Raises:
            ScenarioError: The state is of other environments.
        """
        if np.shape(state["token_BTW"]) != self.token_BTW.shape:
            raise ScenarioError("the state is of another batch; build the engine from the environments it had")
        for name, array in self._board._asdict().items():
            array[:] = state[name]
        tasks = len(state["rows/task_BK"]) // (len(self.environments) * TASK.itemsize)
        if tasks > self._rows.task_BK.shape[1]:
            self._widen(tasks)
        for name, array in self._rows._asdict().items():
            kept = np.asarray(state[f"rows/{name}"])
            if kept.size != array.nbytes:
                raise ScenarioError("the state is of another batch; build the engine from the environments it had")
            array.reshape(-1).view(np.uint8)[:] = kept


def _bytes(array: NDArray[Any]) -> U1:
    """Returns a copy of an array's bytes: records cannot be stored as they are."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()
