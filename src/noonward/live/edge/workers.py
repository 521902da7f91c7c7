"""What the controller needs of its workers, whatever runs them, and how it learns that one has died."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Reply = Callable[[Any], None]
"""Called in the controller's thread with a call's result, or with the exception that ended it."""


class WorkerDiedError(Exception):
    """A worker's process is gone."""


class Workers(Protocol):
    """Processes by the number of their server, one a server. Calls return at once; answers come by ``reply``."""

    def start(self, n: int, reply: Reply) -> None:
        """Starts the worker of a server; replies with its ``Facts`` once it is ready."""

    def call(self, n: int, name: str, *arguments: Any, reply: Reply) -> None:
        """Calls a method of a worker; replies with ``WorkerDiedError`` if it dies meanwhile."""

    def kill(self, n: int) -> None:
        """Ends a worker's process, also one that is stopped or hangs."""

    def cpu_s(self, n: int) -> float | None:
        """Returns the CPU seconds that a worker's process has used, or None where that cannot be read."""

    def outage(self) -> str | None:
        """Returns why no worker can be started or reached any longer; None while they can."""

    def restart(self, reply: Reply) -> None:
        """Ends all workers and restarts what runs them; replies with None, or with the exception that stopped it."""

    def close(self) -> None:
        """Ends all workers."""
