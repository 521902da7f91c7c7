"""Ctrl-C and SIGTERM: commands end at once, whether they can answer it themselves or are held by compiled code."""

import signal
import subprocess
import sys
import threading

import pytest

from noonward.cli.interruptible import on_interrupt, run_interruptible, what_is_kept
from noonward.cli.options import INTERRUPTED

HEAD = """
import sys, threading, time
from noonward.cli.interruptible import ended_alike, on_interrupt, run_interruptible

def work():
    with on_interrupt(lambda: "interrupted; 3 of 8 runs are recorded"):
"""
HELD = (
    HEAD
    + """        print("ready", flush=True)
        time.sleep(600)
with ended_alike():
    run_interruptible(work, 0.1)
"""
)
"""A thread that sleeps receives no exception until it wakes: it stands for a solver or kernel."""
WILLING = (
    HEAD
    + """        try:
            print("ready", flush=True)
            while True:
                time.sleep(0.001)
        finally:
            print("cleaned up", flush=True)
with ended_alike():
    run_interruptible(work, 60)
"""
)


def interrupted(code: str, by: signal.Signals) -> tuple[int, str, str]:
    """Runs a program, interrupts it when it says that it is ready, and returns exit code and what it printed."""
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(by)
        out, err = program.communicate(timeout=60)
    finally:
        program.kill()
    return program.returncode, out, err


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_command_held_by_compiled_code_is_left(by: signal.Signals) -> None:
    code, _, err = interrupted(HELD, by)
    assert code == INTERRUPTED
    assert err == "interrupted; 3 of 8 runs are recorded\n"


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_can_cleans_up_first(by: signal.Signals) -> None:
    code, out, err = interrupted(WILLING, by)
    assert code == INTERRUPTED
    assert out == "cleaned up\n"
    assert err == "interrupted; 3 of 8 runs are recorded\n"


def test_what_the_command_raises_reaches_the_caller() -> None:
    def fail() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        run_interruptible(fail)


def test_the_work_runs_beside_the_main_thread_with_a_large_stack() -> None:
    seen = []
    run_interruptible(lambda: seen.append(threading.current_thread()))
    assert seen[0] is not threading.main_thread()
    assert threading.stack_size() == 0


def test_the_innermost_sentence_is_said() -> None:
    assert what_is_kept() == "interrupted; the same command repeats no run that is recorded"
    with on_interrupt(lambda: "outer"), on_interrupt(lambda: "inner"):
        assert what_is_kept() == "inner"
