"""The short name that the tokens of a service's jobs carry, and the names it had before its store was restored."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Final

from noonward.live.store.database import Connection
from noonward.live.store.store import Store

_EARLIER: Final = "earlier_services"
"""Value of the table ``meta``: last job and name, of each time that the store was restored, the oldest first."""


@dataclass(frozen=True)
class ServiceName:
    """Names that tokens carry.

    Attributes:
        name: Name of the service now.
        earlier: Last job and name of the service, of each time that its store was restored, the oldest first.
    """

    name: str
    earlier: tuple[tuple[int, str], ...] = ()

    def token(self, job: int, attempt: int) -> str:
        """Returns the token of an attempt of a job: the same before and after a restore.

        Example:
            >>> ServiceName("b", ((7, "a"),)).token(7, 0), ServiceName("b", ((7, "a"),)).token(8, 0)
            ('nw-a-7-0', 'nw-b-8-0')
        """
        name = next((name for last, name in self.earlier if job <= last), self.name)
        return f"nw-{name}-{job}-{attempt}"

    def restored(self, job: int) -> bool:
        """Returns whether a job is older than a restore, so that its cluster may have run it without the store."""
        return any(job <= last for last, _ in self.earlier)

    def owns(self, token: str) -> bool:
        """Returns whether a token is of this service."""
        return token.startswith(tuple(f"nw-{name}-" for name in (self.name, *(name for _, name in self.earlier))))


def service_name(store: Store) -> ServiceName:
    """Returns the name of a store's service; it is made once."""
    made = secrets.token_hex(3)

    def change(connection: Connection, now_s: float) -> None:
        if connection.execute("SELECT 1 FROM meta WHERE name = 'service'").fetchone() is None:
            store.keep(connection, {"service": made})

    store.do(change)
    earlier = json.loads(store.value(_EARLIER) or "[]")
    return ServiceName(str(store.value("service")), tuple((int(last), str(name)) for last, name in earlier))


def rename_restored(store: Store) -> int:
    """Gives a restored store's service a new name, and has the jobs that it holds looked up at their clusters first.

    What was submitted after the backup is not in the store; its numbers are given again, with other tokens.

    Returns:
        Number of the last job that is looked up.
    """
    known, made = service_name(store), secrets.token_hex(3)

    def change(connection: Connection, now_s: float) -> int:
        last = int(connection.execute("SELECT coalesce(max(id), 0) FROM jobs").fetchone()[0])
        store.keep(connection, {"service": made, _EARLIER: json.dumps([*known.earlier, (last, known.name)])})
        return last

    return store.do(change)
