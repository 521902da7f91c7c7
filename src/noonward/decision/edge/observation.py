"""What a net is fed at an edge question: one token for the whole, one per server, one per place of the visible queue.

The table of ``EdgeObservation`` is the specification; the same compiled function feeds training and exported policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from noonward.arrays import Records
from noonward.compiled import kernel
from noonward.decision.edge.gangs import idle_gang
from noonward.decision.edge.view import NOBODY, EdgeView

TOKEN: Final = 18
"""Numbers of a token, W."""
PRESENT: Final = 0
"""Position of the number that is 1 for a token that stands for something, 0 for an empty one."""
BUCKET: Final = 3
"""First of the four positions that say a gang's size: 1, 2, 3 to 4, more."""
STEPS: Final = 24.0
"""Steps for which run times are shown."""
WAIT_S: Final = 60.0
LOAD_S: Final = 30.0
RUN_S: Final = 10.0
CLOCK_S: Final = 1000.0
CLASS_TASKS: Final = 5.0
QUEUE: Final = 10.0
SERVERS: Final = 12.0
ARRIVED: Final = 32.0
MOST_STEPS: Final = 30.0
PRICE_S: Final = 100.0


@dataclass(frozen=True, kw_only=True)
class EdgeObservation:
    """What a net sees: T = 1 + ``servers`` + ``places`` tokens of W = 18 numbers, float32, of order 1.

    The class of a task is its gang size and its model. A size is four numbers, one of them 1: 1, 2, 3 to 4, more.
    Run times are those of 24 steps. Where nothing is said the number is 0; a token of an absent server or of an empty
    place is all 0. The price of quality says how many seconds of response one unit of quality is worth to the asker: a
    net that has learned under many prices trades steps for time as it is told.

    | number | whole (token 0) | server n (token 1 + n) | place q (token 1 + servers + q) |
    |---|---|---|---|
    | 0 | 1 | 1 | 1 |
    | 1 | tasks waiting / 10 | idle | can be launched now |
    | 2 | mean wait of the visible tasks / 60 s | seconds until idle / 30 s | wait / 60 s |
    | 3 to 6 | idle gangs of each size | size of its gang | size of its gang |
    | 7 | share of servers that are idle | it has a gang | an idle gang has its class |
    | 8 | now / 1,000 s, at most 1 | visible tasks of its gang's class / 5 | visible tasks of its class / 5 |
    | 9 | servers / 12 | 1 / size of its gang | seconds until a busy gang of its class is idle / 30 s |
    | 10 | something will happen by itself | | there is such a gang |
    | 11 | seconds until a server is idle / 30 s | | load time / 30 s |
    | 12 | tasks so far / 32, at most 1 | | run time / 10 s |
    | 13 | price of quality / 100 s | | no older visible task is of its class |
    | 14 | | | (visible tasks of its class + 0.5) / (load + run times of all of them) x 30 s |
    | 15 | | | most steps it may be given / 30 |
    | 16 | | | servers that it needs / servers |
    | 17 | | | seconds until as many servers as it needs are idle / 30 s |

    Attributes:
        servers: Server tokens; a run may have fewer servers.
        places: Places of the visible queue.
    """

    servers: int = 12
    places: int = 10

    @property
    def tokens(self) -> int:
        """Tokens T."""
        return 1 + self.servers + self.places

    @property
    def size(self) -> int:
        """Numbers in all."""
        return self.tokens * TOKEN


@kernel(inline=True, allocates=False)
def bucket(size: int) -> int:
    """Returns which of four numbers stands for a gang size: 1, 2, 3 to 4, more."""
    if size <= 2:
        return max(size - 1, 0)
    return 2 if size <= 4 else 3


@kernel(inline=True, allocates=False)
def visible_of(task_Q: Records, size: int, model: int) -> int:
    """Returns how many visible tasks are of a class."""
    count = 0
    for q in range(task_Q.shape[0]):
        if task_Q[q].task == NOBODY:
            break
        if task_Q[q].gang == size and task_Q[q].model == model:
            count += 1
    return count


@kernel(inline=True, allocates=False)
def _idle_with_s(server_N: Records, now_t: int, tick_s: float, needed: int) -> float:
    """Returns the seconds until at least so many servers are idle at once, if none is launched on."""
    for n in range(server_N.shape[0]):
        at_t, idle = max(server_N[n].free_t, now_t), 0
        for m in range(server_N.shape[0]):
            if server_N[m].free_t <= at_t:
                idle += 1
        if idle < needed:
            continue
        soonest = True
        for m in range(server_N.shape[0]):
            other_t = max(server_N[m].free_t, now_t)
            if other_t < at_t:
                so_far = 0
                for k in range(server_N.shape[0]):
                    if server_N[k].free_t <= other_t:
                        so_far += 1
                if so_far >= needed:
                    soonest = False
                    break
        if soonest:
            return (at_t - now_t) * tick_s
    return 0.0


@kernel(inline=True, allocates=False)
def _observe_servers(view: EdgeView, token_TW: Records) -> None:
    """Writes the server tokens."""
    run = view.run_1[0]
    for n in range(view.server_N.shape[0]):
        server = view.server_N[n]
        token_W = token_TW[1 + n]
        token_W[PRESENT] = 1.0
        if server.free_t <= run.now_t:
            token_W[1] = 1.0
        else:
            token_W[2] = (server.free_t - run.now_t) * run.tick_s / LOAD_S
        if server.gang != NOBODY:
            token_W[BUCKET + bucket(server.size)] = 1.0
            token_W[7] = 1.0
            token_W[8] = visible_of(view.task_Q, server.size, server.model) / CLASS_TASKS
            token_W[9] = 1.0 / server.size


@kernel(inline=True, allocates=False)
def _observe_task(view: EdgeView, q: int, token_W: Records) -> None:
    """Writes the token of a place that holds a task."""
    run, task = view.run_1[0], view.task_Q[q]
    size, model = task.gang, task.model
    waiting = visible_of(view.task_Q, size, model)
    run_s = STEPS * view.step_s_G[size]
    token_W[PRESENT] = 1.0
    token_W[1] = view.mask_A[1 + q]
    token_W[2] = (run.now_t * run.tick_s - task.stamp_s) / WAIT_S
    token_W[BUCKET + bucket(size)] = 1.0
    if idle_gang(view.server_N, run.now_t, size, model) != NOBODY:
        token_W[7] = 1.0
    token_W[8] = waiting / CLASS_TASKS
    soonest = -1
    for n in range(view.server_N.shape[0]):
        s = view.server_N[n]
        if (
            s.gang == n
            and s.size == size
            and s.model == model
            and s.free_t > run.now_t
            and (soonest < 0 or s.free_t < soonest)
        ):
            soonest = s.free_t
    if soonest >= 0:
        token_W[9] = (soonest - run.now_t) * run.tick_s / LOAD_S
        token_W[10] = 1.0
    token_W[11] = view.load_s_G[size] / LOAD_S
    token_W[12] = run_s / RUN_S
    token_W[13] = 1.0
    for p in range(q):
        if view.task_Q[p].gang == size and view.task_Q[p].model == model:
            token_W[13] = 0.0
            break
    token_W[14] = LOAD_S * (waiting + 0.5) / (view.load_s_G[size] + run_s * waiting)
    token_W[15] = task.steps_max / MOST_STEPS
    token_W[16] = size / view.server_N.shape[0]
    token_W[17] = _idle_with_s(view.server_N, run.now_t, run.tick_s, size) / LOAD_S


@kernel(allocates=False)
def observe_edge(view: EdgeView, servers: int, price_s: float, token_TW: Records) -> None:
    """Writes the tokens of a question; the table is that of ``EdgeObservation``.

    Args:
        view: The question.
        servers: Server tokens, at least as many as the run has servers.
        price_s: Price of quality, s per unit.
        token_TW: Room for the tokens, float32 or float64 [1 + servers + places, W].
    """
    run = view.run_1[0]
    for t in range(token_TW.shape[0]):
        for i in range(TOKEN):
            token_TW[t, i] = 0.0
    _observe_servers(view, token_TW)
    whole_W = token_TW[0]
    visible, wait_s, newest = 0, 0.0, 0
    for q in range(view.task_Q.shape[0]):
        if view.task_Q[q].task == NOBODY:
            break
        _observe_task(view, q, token_TW[1 + servers + q])
        wait_s += run.now_t * run.tick_s - view.task_Q[q].stamp_s
        visible, newest = visible + 1, view.task_Q[q].task
    idle, next_t = 0, -1
    for n in range(view.server_N.shape[0]):
        s = view.server_N[n]
        if s.free_t <= run.now_t:
            idle += 1
            if s.gang == n:
                whole_W[BUCKET + bucket(s.size)] += 1.0
        elif next_t < 0 or s.free_t < next_t:
            next_t = s.free_t
    whole_W[PRESENT] = 1.0
    whole_W[1] = run.waiting / QUEUE
    whole_W[2] = wait_s / max(visible, 1) / WAIT_S
    whole_W[7] = idle / view.server_N.shape[0]
    whole_W[8] = min(run.now_t * run.tick_s / CLOCK_S, 1.0)
    whole_W[9] = view.server_N.shape[0] / SERVERS
    whole_W[10] = run.event
    if next_t >= 0:
        whole_W[11] = (next_t - run.now_t) * run.tick_s / LOAD_S
    whole_W[13] = price_s / PRICE_S
    whole_W[12] = min((newest + 1 + run.waiting - visible) / ARRIVED, 1.0)
