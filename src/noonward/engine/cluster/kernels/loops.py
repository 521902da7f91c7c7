"""The loops that join a protocol with a compiled rule, and the single steps for schedulers in plain Python.

A loop repeats what a step does instead of calling it: the call costs 6 to 24 % of a run under a cheap rule. Both are
given the address of a PLACE record, for handing over all arrays of a world takes Python longer than most steps.
"""

from __future__ import annotations

from typing import Any, Final

from numba import float64, int64, types

from noonward.compiled import kernel
from noonward.decision.cluster.rule import RULE
from noonward.decision.cluster.view import ASK_RUNNING
from noonward.decision.partly_compiled import PARTIAL_RULE
from noonward.engine.cluster.kernels.each_slot import advance_each_slot, apply_each_slot
from noonward.engine.cluster.kernels.on_arrival import advance_on_arrival, apply_on_arrival
from noonward.engine.cluster.kernels.physics import show_forecast
from noonward.engine.cluster.kernels.world import UNISSUED, world_at

LOOP = int64(int64, types.FunctionType(RULE), int64)
"""Signature of a loop: address of the PLACE record of a world, rule, and the address that the rule is called with."""
RESTING_LOOP = int64(int64, types.FunctionType(RULE), int64, float64, int64)
"""The same for a rule that is asked until a time, s, and about running jobs or not (0)."""
PARTIAL_LOOP = int64(int64, types.FunctionType(PARTIAL_RULE), int64, float64, int64)
"""The same for a partial rule."""
DECLINED: Final = 1
"""What a loop returns at a question that is not its rule's: a partial rule has declined it, or it is time."""


@kernel(RESTING_LOOP, allocates=False)
def run_each_slot(place: int, rule: Any, question: int, until_s: float, running: int) -> int:
    """Runs protocol each-slot under a compiled rule to its end; returns 0, or what stopped it.

    Called again, it continues where it was stopped.

    Args:
        place: Address of the PLACE record of a world.
        rule: Rule.
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
        if w.shown.run_1[0].now_s >= until_s:
            return DECLINED
        if running or w.shown.run_1[0].kind != ASK_RUNNING:
            rule(question)
        answered = True


@kernel(LOOP, allocates=False)
def run_on_arrival(place: int, rule: Any, question: int) -> int:
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
        rule(question)
        answered = True


@kernel(PARTIAL_LOOP, allocates=False)
def run_each_slot_partly(place: int, rule: Any, question: int, until_s: float, running: int) -> int:
    """Does what ``run_each_slot`` does, but returns DECLINED also at a question that a partial rule declines.

    Whoever answers that question calls it again.
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
        if w.shown.run_1[0].now_s >= until_s:
            return DECLINED
        if (running or w.shown.run_1[0].kind != ASK_RUNNING) and not rule(question):
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
    w = world_at(place)
    if not w.engine_1[0].unissued:
        if w.shown.run_1[0].kind and not w.engine_1[0].ended:
            failed = apply_each_slot(w)
            if failed:
                return failed
        kind = advance_each_slot(w)
        if not w.engine_1[0].unissued:
            return kind
    return show_forecast(w)


@kernel(int64(int64), allocates=False)
def step_on_arrival(place: int) -> int:
    """Does for protocol on-arrival what ``step_each_slot`` does."""
    w = world_at(place)
    if not w.engine_1[0].unissued:
        if w.shown.run_1[0].kind and not w.engine_1[0].ended:
            failed = apply_on_arrival(w)
            if failed:
                return failed
        kind = advance_on_arrival(w)
        if not w.engine_1[0].unissued:
            return kind
    return show_forecast(w)
