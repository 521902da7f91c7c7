"""The view an edge scheduler is asked with, and its answer: the same arrays in Python and in compiled rules."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, U1, Records

WAIT: Final = 0
"""Choice that launches nothing; choice ``1 + q`` launches the task in place q of the visible queue."""
NOBODY: Final = -1
"""Gang of a server that belongs to none, model of a server that has none, task of an empty place."""

RUN: Final = np.dtype(
    [
        ("now_t", "i8"),  # now, in ticks since the start
        ("tick_s", "f8"),  # length of a tick, s
        ("waiting", "i8"),  # tasks that wait, the visible ones included
        ("event", "i8"),  # 1 if something will happen by itself: an arrival or a completion
        ("choice", "i8"),  # how servers are chosen for a new gang: LOWEST or LEAST_FRAGMENTATION
        ("steps_min", "f8"),  # fewest steps that a task may be given, or its most if those are fewer
        ("latest_t", "i8"),  # latest tick until which a wait may last while nothing happens
    ]
)
"""What holds for the whole run."""
SERVER: Final = np.dtype(
    [
        ("free_t", "i8"),  # tick from which it is idle
        ("gang", "i8"),  # lowest server of the gang it was last launched in, or NOBODY once that is dissolved
        ("size", "i8"),  # servers of that gang, 0 without one
        ("model", "i8"),  # model that gang has loaded, or NOBODY
    ]
)
"""A server."""
QUEUED: Final = np.dtype(
    [
        ("task", "i8"),  # number of the task, or NOBODY where the place is empty
        ("stamp_s", "f8"),  # when it was submitted
        ("gang", "i8"),  # servers it needs, all at once
        ("model", "i8"),
        ("steps_max", "f8"),  # most steps it may be given
        ("deadline_s", "f8"),  # latest end that was promised; NO_DEADLINE_S without a promise
    ]
)
"""A task in the visible queue, oldest first."""
ANSWER: Final = np.dtype([("choice", "i8"), ("steps", "f8"), ("until_s", "f8")])
"""An answer: WAIT or 1 + place; inference steps of a launch; when to ask again after WAIT if nothing happens before."""

NEVER: Final = np.int64(2**62)
"""Later than any tick."""
LOWEST, LEAST_FRAGMENTATION = 0, 1
"""How servers are chosen for a new gang: the lowest-numbered idle ones, or those whose gangs are missed least."""


class EdgeView(NamedTuple):
    """What an edge scheduler sees. The arrays are live views of the engine's state: read, never write.

    Axes: N servers, Q places of the visible queue, A = 1 + Q choices, G gang sizes from 0.
    """

    run_1: Records
    """The run, one RUN record."""
    server_N: Records
    """Servers, SERVER records."""
    task_Q: Records
    """The visible queue, QUEUED records, oldest first; empty places last."""
    mask_A: U1
    """1 where a choice is feasible: the gang of a launch must be idle; a wait needs something to wait for."""
    load_s_G: F8
    """Expected seconds to load a model on a gang; NaN for sizes that do not occur."""
    step_s_G: F8
    """Seconds an inference step takes on a gang; NaN for sizes that do not occur."""

    @property
    def now_s(self) -> float:
        """Now, seconds since the start."""
        return float(self.run_1["now_t"][0] * self.run_1["tick_s"][0])

    @property
    def idle_N(self) -> NDArray[np.bool_]:
        """Whether each server is idle."""
        return np.asarray(self.server_N["free_t"] <= self.run_1["now_t"][0])

    @property
    def remaining_s_N(self) -> F8:
        """Seconds until each server is idle."""
        ticks_N = np.maximum(self.server_N["free_t"] - self.run_1["now_t"][0], 0)
        return np.asarray(ticks_N * self.run_1["tick_s"][0])

    def tasks(self) -> list[int]:
        """Returns the places of the visible queue that hold a task."""
        return [int(q) for q in np.flatnonzero(self.task_Q["task"] >= 0)]

    def allowed(self, q: int) -> bool:
        """Returns whether the task in a place can be launched now."""
        return bool(self.mask_A[1 + q])


class EdgeAnswers(NamedTuple):
    """What an edge scheduler answers, one ANSWER; set to WAIT until the next event beforehand."""

    answer_1: Records
    """The ANSWER record."""

    def launch(self, q: int, steps: float) -> None:
        """Answers that the task in a place is launched now with a number of inference steps."""
        self.answer_1[0] = (1 + q, steps, np.inf)

    def wait(self, until_s: float = np.inf) -> None:
        """Answers that nothing is launched until the next event, or until a time if that comes first, s."""
        self.answer_1[0] = (WAIT, 0.0, until_s)


class EdgeMemory(NamedTuple):
    """What a compiled edge rule keeps between questions; its scheduler makes it and says what each part holds."""

    number_P: F8
    """Numbers."""
    random_1: NDArray[np.uint64]
    """State of the rule's random numbers, one word."""
    server_RN: Records
    """Room for copies of the servers."""
    task_RQ: Records
    """Room for copies of the visible queue."""
    weight_W: F8
    """Weights of a net, one after the other."""
    scratch_XY: F8
    """Room for what a net is fed and makes of it."""

    @classmethod
    def make(
        cls,
        *,
        numbers: Any = (0.0,),
        random_state: int = 0,
        copies: tuple[int, int, int] = (1, 1, 1),
        weights: Any = (0.0,),
        scratch: Any = ((0.0,),),
    ) -> EdgeMemory:
        """Returns a memory.

        Args:
            numbers: Numbers.
            random_state: Seed of the rule's random numbers.
            copies: Number of copies, servers and places of the room for copies.
            weights: Weights of a net.
            scratch: Room for a net.
        """
        rooms, servers, places = copies
        return cls(
            number_P=np.ascontiguousarray(numbers, dtype=np.float64),
            random_1=np.array([random_state], dtype=np.uint64),
            server_RN=np.zeros((rooms, servers), SERVER),
            task_RQ=np.zeros((rooms, places), QUEUED),
            weight_W=np.ascontiguousarray(weights, dtype=np.float64),
            scratch_XY=np.ascontiguousarray(scratch, dtype=np.float64),
        )


def blank_view(servers: int = 1, places: int = 1, sizes: int = 2) -> EdgeView:
    """Returns a view of idle, empty servers and an empty queue.

    Args:
        servers: Servers N.
        places: Places Q of the visible queue.
        sizes: Gang sizes G, 0 included.
    """
    server_N = np.zeros(servers, SERVER)
    server_N["gang"] = server_N["model"] = NOBODY
    task_Q = np.zeros(places, QUEUED)
    task_Q["task"] = NOBODY
    run_1 = np.zeros(1, RUN)
    run_1["latest_t"] = NEVER
    return EdgeView(
        run_1=run_1,
        server_N=server_N,
        task_Q=task_Q,
        mask_A=np.zeros(1 + places, np.uint8),
        load_s_G=np.full(sizes, np.nan),
        step_s_G=np.full(sizes, np.nan),
    )
