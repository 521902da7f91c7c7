"""What a worker does with a spec, and how its result or error travels back."""

from __future__ import annotations

import os
import pickle
import traceback
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from noonward.errors import NoonwardError
from noonward.runtime.executor import Spec, comes_last, shares_of
from noonward.runtime.parts import Parts, apart, joined
from noonward.runtime.shared import kept_for, shared
from noonward.runtime.work import Cost, measured

TRIES: Final = 3
"""How often a spec may lose its worker before it is given up."""
THREAD_VARIABLES: Final = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS",
)
"""Environment variables that hold libraries to one thread, so that workers do not compete for cores."""


def new_call() -> str:
    """Returns a name for one call of ``map_runs``: what its specs share is built once, from files as they then are."""
    return uuid.uuid4().hex


def packed(spec: Spec, call: str) -> bytes:
    """Returns a spec as ``carry_out`` takes it."""
    return pickle.dumps((call, spec))


def carry_out(message: bytes, given: Parts | None = None, node: str = "") -> bytes:
    """Runs a spec that was packed; returns (True, (result, cost)) or (False, error), pickled.

    Args:
        message: What ``packed`` returned.
        given: What the spec shares with others, if it was built elsewhere.
        node: Node of a cluster that this process is on.
    """
    try:
        call, spec = pickle.loads(message)
        kept_for(call)
        common = shares_of(spec)
        if given is not None and common is not None:
            shared(common.key, lambda: joined(given))
        return pickle.dumps((True, measured(spec.run, node)))
    except Exception as error:
        return pickle.dumps((False, portable_error(error)))


def built(message: bytes) -> Parts | None:
    """Builds what a spec that was packed shares with others; None if it shares nothing."""
    call, spec = pickle.loads(message)
    kept_for(call)
    common = shares_of(spec)
    return None if common is None else apart(shared(common.key, common.make))


def unpacked(answer: bytes) -> tuple[Any, Cost]:
    """Returns the result in an answer of ``carry_out`` and its cost, or raises its error."""
    done, found = pickle.loads(answer)
    if done:
        result, cost = found
        return result, cost
    raise found


def portable_error(error: Exception) -> Exception:
    """Returns an error as it can be pickled: itself, else one of the nearest type that can, with the same message.

    Errors that are no mistake of the user carry the worker's traceback as a note.
    """
    if not isinstance(error, NoonwardError):
        error.add_note("in a worker:\n" + "".join(traceback.format_exception(error)))
    try:
        again = pickle.loads(pickle.dumps(error))
        if type(again) is type(error) and str(again) == str(error):
            return error
    except Exception:  # whatever an error of a user's own module does when it is pickled
        pass
    if isinstance(error, NoonwardError):
        return NoonwardError(str(error))
    return RuntimeError("".join(traceback.format_exception(error)).strip())


def lost(spec: Spec, how: str) -> NoonwardError:
    """Returns the error for a spec whose workers keep dying."""
    return NoonwardError(
        f"{spec.label}: its worker died {TRIES} times ({how}); out of memory? run fewer at once (--workers 1)"
    )


def first_error(errors: dict[int, BaseException]) -> None:
    """Raises the error of the first spec in order, if there is any."""
    if errors:
        raise errors[min(errors)]


@contextmanager
def single_threaded() -> Iterator[None]:
    """Sets the variables of ``THREAD_VARIABLES`` to 1 for processes that start meanwhile."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def cores() -> int:
    """Returns the cores this process may use: those it is bound to, and no more than its control group's share."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return bound if quota == "max" else max(1, min(bound, int(quota) // int(period)))
    except (OSError, ValueError):
        return bound


def next_of(todo: list[int], specs: Sequence[Spec], group: object, taken: set[object]) -> int:
    """Takes the position to carry out next from those left: of the worker's own group, else of one nobody has.

    Specs that come last wait until no other is left.

    Args:
        todo: Positions that are left, in order; the one returned is removed.
        specs: Specs.
        group: Group the worker had last.
        taken: Groups that other workers have.
    """
    open_now = [place for place in todo if not comes_last(specs[place])] or todo
    own = next((place for place in open_now if specs[place].group == group), None)
    free = next((place for place in open_now if specs[place].group not in taken), open_now[0])
    place = free if own is None else own
    todo.remove(place)
    return place
