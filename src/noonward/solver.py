"""The solver of linear programs, silent: HiGHS on one thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import highspy


def quiet_solver() -> highspy.Highs:
    """Returns a HiGHS instance that prints nothing and runs on one thread, so that runs repeat."""
    with _standard_output_shut():
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    return solver


@contextmanager
def _standard_output_shut() -> Iterator[None]:
    """Shuts the process' standard output: from version 1.16 on, HiGHS prints its banner before it can be told not to.

    What a command prints may be read by a program (``--json``).
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # the process has no standard output
        yield
        return
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.close(nothing)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
