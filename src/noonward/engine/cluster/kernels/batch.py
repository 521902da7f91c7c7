"""Many runs side by side in one compiled call: each row's world is read through a record of its arrays' addresses.

Rows keep arrays of their own sizes (jobs, hours, leads), so nothing is padded and a row does bit for bit what a
single run does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F4, F8, U1
from noonward.compiled import kernel
from noonward.decision.cluster.gangs import fill_gang_mask, write_gang_choice
from noonward.decision.cluster.observation import GPUS_MAX, LEVELS, observe_each_slot, observe_on_arrival
from noonward.engine.cluster.kernels.each_slot import journeys_fit, lacks_segments
from noonward.engine.cluster.kernels.loops import step_each_slot, step_on_arrival
from noonward.engine.cluster.kernels.physics import show_forecast
from noonward.engine.cluster.kernels.world import NO_SEGMENT, NO_SLOT, OWN, World, world_at

LACKS_JOURNEYS, LACKS_SLOTS, LACKS_SEGMENTS_FIRST, LACKS_SEGMENTS = 0, 1, 2, 3
"""What a row lacks that keeps a batch from going on; see ``lacks``."""
LACKS = 4
"""How many things it may lack."""


class Board(NamedTuple):
    """What is shown of all rows; overwritten by each step. Axes: B rows, N agents, A choices, G and O entries."""

    global_BG: F4
    own_BNO: F4
    mask_BNA: U1
    asked_BN: NDArray[np.bool_]
    reward_B: F8
    reward_BN: F8
    elapsed_s_B: F8
    now_s_B: F8
    done_B: NDArray[np.bool_]


@kernel(inline=True, allocates=False)
def place_of(place_B: NDArray[np.void], b: int) -> int:
    """Returns the address of a row's PLACE record."""
    return place_B.ctypes.data + b * place_B.itemsize


@kernel(inline=True, allocates=False)
def world_of(place_B: NDArray[np.void], b: int) -> World:
    """Returns the world of a row."""
    return world_at(place_of(place_B, b))


@kernel(inline=True, allocates=False)
def _show_rewards(w: World, board: Board, b: int) -> None:
    """Writes what each agent of a row earns: the row's reward, or its own part (OWN); one agent earns all parts."""
    agents = board.reward_BN.shape[1]
    if w.engine_1[0].rewards != OWN:
        board.reward_BN[b] = board.reward_B[b]
        return
    board.reward_BN[b] = 0.0
    for s in range(w.state_S.shape[0]):
        board.reward_BN[b, min(s, agents - 1)] += w.state_S[s].own_usd
        w.state_S[s].own_usd = 0.0


@kernel(inline=True, allocates=False)
def _show(w: World, board: Board, b: int, kind: int) -> None:
    """Writes a row's reward, times and end; the parts of a row that has ended are zero."""
    engine, now_s = w.engine_1[0], w.shown.run_1[0].now_s
    board.reward_B[b] = engine.reward_usd if engine.rewards else np.nan
    _show_rewards(w, board, b)
    board.elapsed_s_B[b] = now_s - board.now_s_B[b]
    board.now_s_B[b] = now_s
    board.done_B[b] = kind == 0
    for n in range(board.asked_BN.shape[1]):
        board.asked_BN[b, n] = kind != 0 and w.shown.asked_N[n] >= 0
    if kind == 0:
        board.mask_BNA[b] = 0
        board.global_BG[b] = 0.0
        board.own_BNO[b] = 0.0


@kernel(inline=True, allocates=False)
def lacks(b: int, what: int) -> int:
    """Returns the code of what row b lacks.

    Before anything is changed: room for journeys (LACKS_JOURNEYS), or for segments of answers (LACKS_SEGMENTS_FIRST).
    While it runs: slots of the view (LACKS_SLOTS) or segments (LACKS_SEGMENTS); its choices have been carried out.
    """
    return -3 - LACKS * b - what


@kernel(inline=True, allocates=False)
def _missing_before(w: World) -> int:
    """Returns what a row lacks to carry out any answers: LACKS_JOURNEYS, LACKS_SEGMENTS_FIRST, or -1 for nothing."""
    if not journeys_fit(w):
        return LACKS_JOURNEYS
    return LACKS_SEGMENTS_FIRST if w.engine_1[0].bends and lacks_segments(w) else -1


@kernel(inline=True, allocates=False)
def _missing_on_the_way(kind: int) -> int:
    """Returns what a row lacks to run to its next question: LACKS_SLOTS, LACKS_SEGMENTS, or -1 for nothing."""
    if kind == NO_SLOT:
        return LACKS_SLOTS
    return LACKS_SEGMENTS if kind == NO_SEGMENT else -1


@kernel(inline=True, allocates=False)
def _rest(board: Board, b: int) -> None:
    """Shows a row that had ended before."""
    board.reward_B[b] = 0.0
    board.reward_BN[b] = 0.0
    board.elapsed_s_B[b] = 0.0


@kernel(inline=True, allocates=False)
def _find_infeasible(board: Board, choice_BN: NDArray[np.int64], first: int, until: int) -> int:
    """Returns the first infeasible choice of an agent that is asked, as row x agents + agent, or -1."""
    agents = choice_BN.shape[1]
    for b in range(first, until):
        for n in range(agents):
            choice = choice_BN[b, n]
            if board.asked_BN[b, n] and (
                choice < 0 or choice >= board.mask_BNA.shape[2] or not board.mask_BNA[b, n, choice]
            ):
                return b * agents + n
    return -1


@kernel(allocates=False)
def step_rows_each_slot(
    place_B: NDArray[np.void], board: Board, numbers_BP: F8, choice_BN: NDArray[np.int64], first: int, until: int
) -> int:
    """Carries out the choices of some rows and runs each to its next question; a fresh row runs to its first.

    Args:
        place_B: PLACE records.
        board: What is shown.
        numbers_BP: ``Observation.numbers`` per row.
        choice_BN: Choices; those of agents that are not asked are not read.
        first: First row.
        until: Row after the last.

    Returns:
        -1 when all went well; -2 where some rows lack the forecast of their hour: their observations wait for
        ``observe_rows_each_slot``. Where nothing is changed: row x agents + agent of the first infeasible choice. Else
        what a row lacks (``lacks``): provide it and call again, with ``first`` = row where its choices have been
        carried out.
    """
    code = -1
    wrong = _find_infeasible(board, choice_BN, first, until)
    if wrong >= 0:
        return wrong
    for b in range(first, until):
        missing = _missing_before(world_of(place_B, b))
        if missing >= 0:
            return lacks(b, missing)
    for b in range(first, until):
        if board.done_B[b]:
            _rest(board, b)
            continue
        w = world_of(place_B, b)
        if w.shown.run_1[0].kind:
            for n in range(choice_BN.shape[1]):
                if w.shown.asked_N[n] >= 0:
                    w.answers.answer_N[n].choice = choice_BN[b, n]
        kind = step_each_slot(place_of(place_B, b))
        missing = _missing_on_the_way(kind)
        if missing >= 0:
            board.asked_BN[b] = False  # its choices have been carried out
            return lacks(b, missing)
        _show(w, board, b, kind)
        if w.engine_1[0].unissued:
            code = -2
        elif kind:
            observe_each_slot(w.shown, numbers_BP[b], board.global_BG[b], board.own_BNO[b])
    return code


@kernel(allocates=False)
def observe_rows_each_slot(place_B: NDArray[np.void], board: Board, numbers_BP: F8, first: int, until: int) -> None:
    """Shows the forecast and the observation of the rows that lacked their forecast, now that it was issued."""
    for b in range(first, until):
        w = world_of(place_B, b)
        if w.engine_1[0].unissued:
            show_forecast(w)
            observe_each_slot(w.shown, numbers_BP[b], board.global_BG[b], board.own_BNO[b])


@kernel(allocates=False)
def step_rows_on_arrival(
    place_B: NDArray[np.void], board: Board, numbers_BP: F8, choice_BN: NDArray[np.int64], first: int, until: int
) -> int:
    """Does for protocol on-arrival what ``step_rows_each_slot`` does; choices are as in ``decision.cluster.gangs``."""
    code = -1
    wrong = _find_infeasible(board, choice_BN, first, until)
    if wrong >= 0:
        return wrong
    for b in range(first, until):
        if board.done_B[b]:
            _rest(board, b)
            continue
        w = world_of(place_B, b)
        gpus_max, levels = int(numbers_BP[b, GPUS_MAX]), int(numbers_BP[b, LEVELS])
        if w.shown.run_1[0].kind:
            write_gang_choice(w.answers, choice_BN[b, 0], gpus_max, levels)
        kind = step_on_arrival(place_of(place_B, b))
        missing = _missing_on_the_way(kind)
        if missing >= 0:
            board.asked_BN[b] = False  # its choices have been carried out
            return lacks(b, missing)
        _show(w, board, b, kind)
        if kind:
            fill_gang_mask(w.shown, gpus_max, levels, board.mask_BNA[b, 0])
        if w.engine_1[0].unissued:
            code = -2
        elif kind:
            observe_on_arrival(w.shown, numbers_BP[b], board.global_BG[b], board.own_BNO[b])
    return code


@kernel(allocates=False)
def observe_rows_on_arrival(place_B: NDArray[np.void], board: Board, numbers_BP: F8, first: int, until: int) -> None:
    """Does for protocol on-arrival what ``observe_rows_each_slot`` does."""
    for b in range(first, until):
        w = world_of(place_B, b)
        if w.engine_1[0].unissued:
            show_forecast(w)
            observe_on_arrival(w.shown, numbers_BP[b], board.global_BG[b], board.own_BNO[b])
