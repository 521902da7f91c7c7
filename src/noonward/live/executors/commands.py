"""Commands of clusters, run with a wait that ends whatever becomes of them."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Mapping, Sequence


def ran(words: Sequence[str], given: str, environment: Mapping[str, str], timeout_s: float) -> tuple[int, str, str]:
    """Runs a command; returns its exit code, what it printed and what it complained of.

    Args:
        words: The command.
        given: What it reads.
        environment: Its environment.
        timeout_s: How long it may take, s. Then it is killed; one of another user, as by ``sudo``, may not be, and is
            left to itself.

    Raises:
        OSError: It cannot be run.
        subprocess.TimeoutExpired: It took too long.
    """
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        printed, complaint = process.communicate(given, timeout=timeout_s)
    except BaseException:
        with contextlib.suppress(PermissionError):
            process.kill()
        threading.Thread(target=process.wait, name="ends of commands", daemon=True).start()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        raise
    return process.returncode, printed, complaint
