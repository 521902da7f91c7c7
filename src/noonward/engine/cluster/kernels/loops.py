"""The loops that join a protocol with a compiled rule, and the single steps for schedulers in plain Python."""

from __future__ import annotations

from typing import Any

from numba import int64, typeof, types

from noonward.compiled import kernel
from noonward.decision.cluster.rule import MEMORY, RULE
from noonward.decision.cluster.view import RuleMemory
from noonward.engine.cluster.kernels.each_slot import advance_each_slot, apply_each_slot
from noonward.engine.cluster.kernels.on_arrival import advance_on_arrival, apply_on_arrival
from noonward.engine.cluster.kernels.world import EXAMPLE_WORLD, World

WORLD = typeof(EXAMPLE_WORLD)
"""numba type of the world."""
LOOP = int64(WORLD, types.FunctionType(RULE), MEMORY)
"""Signature of a loop."""


@kernel(LOOP, allocates=False)
def run_each_slot(w: World, rule: Any, memory: RuleMemory) -> int:
    """Runs protocol each-slot under a compiled rule to its end; returns 0, or what stopped it.

    Called again, it continues where it was stopped.
    """
    if w.shown.run_1[0].kind and not w.engine_1[0].ended:
        failed = apply_each_slot(w)
        if failed:
            return failed
    while advance_each_slot(w):
        rule(w.shown, w.answers, memory)
        failed = apply_each_slot(w)
        if failed:
            return failed
    return 0


@kernel(LOOP, allocates=False)
def run_on_arrival(w: World, rule: Any, memory: RuleMemory) -> int:
    """Runs protocol on-arrival under a compiled rule to its end; returns 0, or what is wrong with an action."""
    while advance_on_arrival(w):
        rule(w.shown, w.answers, memory)
        failed = apply_on_arrival(w)
        if failed:
            return failed
    return 0


@kernel(int64(WORLD), allocates=False)
def step_each_slot(w: World) -> int:
    """Carries out the last answers (if there was a question) and runs to the next.

    Returns:
        Kind of the question, 0 at the run's end, or what kept the answers from being carried out (below 0).
    """
    if w.shown.run_1[0].kind and not w.engine_1[0].ended:
        failed = apply_each_slot(w)
        if failed:
            return failed
    return advance_each_slot(w)


@kernel(int64(WORLD), allocates=False)
def step_on_arrival(w: World) -> int:
    """Does for protocol on-arrival what ``step_each_slot`` does."""
    if w.shown.run_1[0].kind and not w.engine_1[0].ended:
        failed = apply_on_arrival(w)
        if failed:
            return failed
    return advance_on_arrival(w)
