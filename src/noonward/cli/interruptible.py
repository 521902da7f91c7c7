"""Commands run in a thread of their own, so that Ctrl-C is answered at once whatever a solver or kernel does.

SIGTERM, which batch systems and service managers send, does what Ctrl-C does.
"""

from __future__ import annotations

import contextvars
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from noonward.cli.options import INTERRUPTED, Interrupted
from noonward.notices import ask_to_stop

PATIENCE_S: Final = 0.6
"""Seconds after Ctrl-C in which a command may end by itself; a kernel or solver that takes longer is left."""
LAST_S: Final = 2.0
"""Seconds after Ctrl-C in which a long run may write a last checkpoint."""
STACK_BYTES: Final = 64 << 20
"""Stack of the command's thread: compiling functions nests deeply."""
_said: list[Callable[[], str]] = []


@contextmanager
def on_interrupt(says: Callable[[], str]) -> Iterator[None]:
    """Has a sentence printed if the command is interrupted within: what is kept and how to continue."""
    _said.append(says)
    try:
        yield
    finally:
        _said.remove(says)


@contextmanager
def ended_alike() -> Iterator[None]:
    """Has SIGTERM raise a KeyboardInterrupt in the main thread, as Ctrl-C does; elsewhere it changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def what_is_kept() -> str:
    """Returns what an interrupt's message says."""
    return _said[-1]() if _said else "interrupted; the same command repeats no run that is recorded"


def run_interruptible(work: Callable[[], None], patience_s: float = PATIENCE_S) -> None:
    """Runs a function in a thread and raises what it raises.

    On Ctrl-C work that can be stopped is asked to stop (``noonward.notices.stoppable``), and given ``LAST_S`` for it.
    Otherwise the function receives a KeyboardInterrupt. If it has not ended ``patience_s`` later (and ``LAST_S``, where
    there are worker processes), because compiled code or a solver holds it, the worker processes are killed and the
    program ends with exit code 130. Files are written whole or not at all (``noonward.files``), so none is half-written
    then.

    Args:
        work: What to run.
        patience_s: Seconds it may take to end by itself.

    Raises:
        BaseException: What ``work`` raised.
    """
    raised: list[BaseException] = []
    ended = threading.Event()  # not Thread.join: an interrupted join takes the thread for ended (Python 3.11)

    def carry_out() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(carry_out,), daemon=True)
    try:
        _start(thread)
        while not ended.wait(0.5):
            pass
    except KeyboardInterrupt:
        message = what_is_kept()  # asked while the command still holds what it was doing
        if not (ask_to_stop() and _ends(ended, LAST_S)):
            _interrupt(thread)
            if not _ends(ended, patience_s + LAST_S * bool(multiprocessing.active_children())):
                _leave(message)
        if raised and not isinstance(raised[0], Interrupted):
            print(message, file=sys.stderr)
            raise Interrupted from None
    if raised:
        raise raised[0]


def _start(thread: threading.Thread) -> None:
    """Starts a thread with a large stack."""
    before = threading.stack_size(STACK_BYTES)
    try:
        thread.start()
    finally:
        threading.stack_size(before)


def _interrupt(thread: threading.Thread) -> None:
    """Has a KeyboardInterrupt raised in a thread when it next runs Python code."""
    raised = ctypes.py_object(KeyboardInterrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), raised)


def _ends(ended: threading.Event, patience_s: float) -> bool:
    """Returns whether an event comes in time; a second Ctrl-C ends the patience."""
    try:
        return ended.wait(patience_s)
    except KeyboardInterrupt:
        return False


def _leave(message: str) -> NoReturn:
    """Ends the program at once: worker processes are killed, the terminal's cursor is shown again."""
    for child in multiprocessing.active_children():
        child.kill()
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K\x1b[?25h")
    print(message, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)
