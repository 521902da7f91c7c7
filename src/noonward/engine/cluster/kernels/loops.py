"""The loop of each protocol, under a compiled rule or, for schedulers in plain Python, from question to question.

It is given the address of a PLACE record, for handing over all arrays of a world takes Python longer than most steps.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import float64, int64

from noonward.compiled import call_at, kernel
from noonward.decision.cluster.view import ASK_RUNNING
from noonward.engine.cluster.kernels.each_slot import advance_each_slot, apply_each_slot
from noonward.engine.cluster.kernels.on_arrival import advance_on_arrival, apply_on_arrival
from noonward.engine.cluster.kernels.physics import show_forecast
from noonward.engine.cluster.kernels.world import UNISSUED, world_at

NOBODY: Final = 0
"""Address of a rule that declines every question."""
DECLINED: Final = 1
"""What a loop returns at a question that is not its rule's: a partial rule has declined it, or it is time."""


@kernel(int64(int64, int64, int64, float64, int64), allocates=False)
def run_each_slot(place: int, rule: int, question: int, until_s: float, running: int) -> int:
    """Runs protocol each-slot under a compiled rule to its end; returns 0, or what stopped it.

    Called again, it continues where it was stopped. Whoever answers a question that is DECLINED calls it again.

    Args:
        place: Address of the PLACE record of a world.
        rule: Address of the rule (``compiled.address_of``), or NOBODY.
        question: What it is called with.
        until_s: Time from which on questions are DECLINED, s.
        running: Whether it is asked about running jobs; else they run on (0).
    """
    w = world_at(place)
    answered = w.shown.run_1[0].kind != 0 and not w.engine_1[0].ended and not w.engine_1[0].unissued
    while True:
        if answered:
            failed = apply_each_slot(w)
            if failed:
                return failed
        if not w.engine_1[0].unissued:
            kind = advance_each_slot(w)
            if kind <= 0:
                return kind
        if w.engine_1[0].unissued and show_forecast(w) == UNISSUED:
            return UNISSUED
        if w.shown.run_1[0].now_s >= until_s or rule == NOBODY:
            return DECLINED
        if (running or w.shown.run_1[0].kind != ASK_RUNNING) and not call_at(rule, question):
            return DECLINED
        answered = True


@kernel(int64(int64, int64, int64, float64), allocates=False)
def run_on_arrival(place: int, rule: int, question: int, until_s: float) -> int:
    """Does for protocol on-arrival what ``run_each_slot`` does."""
    w = world_at(place)
    answered = w.shown.run_1[0].kind != 0 and not w.engine_1[0].ended and not w.engine_1[0].unissued
    while True:
        if answered:
            failed = apply_on_arrival(w)
            if failed:
                return failed
        if not w.engine_1[0].unissued:
            kind = advance_on_arrival(w)
            if kind <= 0:
                return kind
        if w.engine_1[0].unissued and show_forecast(w) == UNISSUED:
            return UNISSUED
        if w.shown.run_1[0].now_s >= until_s or rule == NOBODY or not call_at(rule, question):
            return DECLINED
        answered = True


@kernel(int64(int64), allocates=False)
def step_each_slot(place: int) -> int:
    """Carries out the last answers (if there was a question) and runs to the next.

    Where the question lacks its forecast, the next call, after the hour was issued, returns it and does nothing else.

    Args:
        place: Address of the PLACE record of a world.

    Returns:
        Kind of the question, 0 at the run's end, NO_SLOT, UNISSUED, or what kept the answers from being carried out
        (below 0).
    """
    stopped = run_each_slot(place, NOBODY, 0, np.inf, 1)
    return world_at(place).shown.run_1[0].kind if stopped == DECLINED else stopped


@kernel(int64(int64), allocates=False)
def step_on_arrival(place: int) -> int:
    """Does for protocol on-arrival what ``step_each_slot`` does."""
    stopped = run_on_arrival(place, NOBODY, 0, np.inf)
    return world_at(place).shown.run_1[0].kind if stopped == DECLINED else stopped
