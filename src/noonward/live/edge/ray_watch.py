"""Watches what Ray itself needs to run: its processes on this machine, or a cluster's head and this machine's node."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Final

import psutil

PROCESSES: Final = ("gcs_server", "raylet")
"""Ray's processes without which no actor can be started or reached."""
ASK_S: Final = 2.0
"""Seconds between two questions to a cluster's head."""
SILENT_S: Final = 20.0
"""A cluster's head that has not answered for so long counts as gone. Ray itself would end this process after 60 s."""


class RayWatch:
    """Says when Ray is gone.

    A Ray that was started here is known by its processes. Of a cluster its head is asked, in a thread, because the
    answer may never come.

    Args:
        ray: The module, connected.
        node: Ray's id of this machine.
        local: Whether Ray was started by this process.
    """

    def __init__(self, ray: Any, node: str, local: bool) -> None:
        self._ray, self._node = ray, node
        self._answered_s, self._reason = time.monotonic(), ""
        self._closed = threading.Event()
        self._processes = _own_processes() if local else {}
        if not local:
            threading.Thread(target=self._ask, daemon=True).start()

    def outage(self) -> str | None:
        """Returns why Ray is gone, or None while it is there."""
        for name, process in self._processes.items():
            if not _is_alive(process):
                return f"Ray's {name} is gone"
        if self._reason:
            return self._reason
        if not self._processes and time.monotonic() - self._answered_s > SILENT_S:
            return f"the head of the Ray cluster has not answered for {SILENT_S:g} s"
        return None

    def close(self) -> None:
        """Asks no longer."""
        self._closed.set()

    def _ask(self) -> None:
        """Asks the head for the state of this machine's node, again and again."""
        while not self._closed.wait(ASK_S):
            with contextlib.suppress(Exception):
                alive = {node["NodeID"]: node["Alive"] for node in self._ray.nodes()}
                self._answered_s = time.monotonic()
                self._reason = "" if alive.get(self._node) else "Ray's node of this machine is gone"


def _own_processes() -> dict[str, psutil.Process]:
    """Returns Ray's processes among the children of this one, by name."""
    children = psutil.Process().children(recursive=True)
    found = {}
    for process in children:
        with contextlib.suppress(psutil.Error):
            if process.name() in PROCESSES:
                found[process.name()] = process
    return found


def _is_alive(process: psutil.Process) -> bool:
    """Returns whether a process runs; one that has ended but was not waited for does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
