"""A webhook: tells a web address which jobs have ended, so that whoever runs it can write to their owners."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from noonward.live.config import WebhookConfig
from noonward.live.grid.feed_source import read_key
from noonward.live.grid.feeds.feed import Call
from noonward.live.grid.web import Web
from noonward.live.store.database import Row
from noonward.live.store.store import Store

TOLD: Final = "webhook"
"""Name of the table ``meta`` under which the last event is that was told of."""
MOST: Final = 500
"""Jobs in one request at most."""
KEPT_EVERY: Final = 10_000
"""Events after which the place is noted though there was nothing to tell: what lies before it is not read again."""
REQUESTS_PER_HOUR: Final = 3600
"""Requests an hour at most."""
_ENDED: Final = """
SELECT e.id AS event, e.kind AS ended_as, e.at_s AS told_s, j.* FROM events e JOIN jobs j ON j.id = e.job
WHERE e.id > ? AND e.id <= ? AND e.kind IN ({marks}) ORDER BY e.id LIMIT ?
"""
"""The event says how a job ended: of a decision that is stored in parts, the jobs follow."""


class Webhook:
    """Posts the jobs that have ended since the last request that was taken, each at least once.

    What had ended before the service first had a webhook is not told.

    Args:
        config: What the configuration says.
        store: Store.
        service: The service's name.
        time_of: Returns a time of the service as text (UTC).

    Raises:
        FileError: The file with the token cannot be read.
        MissingExtraError: The extra ``live`` is not installed.
    """

    def __init__(self, config: WebhookConfig, store: Store, service: str, time_of: Callable[[float], str]) -> None:
        self._config, self._store, self._service, self._time_of = config, store, service, time_of
        self._web = Web(f"webhook {config.url}", config.url, store.now_s, REQUESTS_PER_HOUR)
        self._headers = {"Content-Type": "application/json"}
        if config.token_file is not None:
            self._headers["Authorization"] = f"Bearer {read_key(config.token_file)}"
        self._query = _ENDED.format(marks=", ".join("?" * len(config.states)))
        kept = store.value(TOLD)
        self._kept = self._last() if kept is None else int(kept)
        if kept is None:
            self._keep(self._kept)

    def _last(self) -> int:
        """Returns the number of the last event."""
        return int(self._store.read("SELECT COALESCE(MAX(id), 0) AS last FROM events")[0]["last"])

    def _keep(self, event: int) -> None:
        self._store.do(lambda connection, _: self._store.keep(connection, {TOLD: event}))
        self._kept = event

    def step(self) -> None:
        """Tells of the jobs that have ended, in requests of at most ``MOST``.

        Raises:
            SourceError: A request is not taken; its jobs are told again.
            StoreError: The store cannot be written now; the jobs of the last request are told again.
        """
        self._web.require_ready()
        last = self._last()
        while rows := self._store.read(self._query, self._kept, last, *self._config.states, MOST):
            said = {"service": self._service, "jobs": [self._told(row) for row in rows]}
            self._web.get(Call(path="", headers=self._headers, content=json.dumps(said)))
            self._web.succeeded()
            self._keep(int(rows[-1]["event"]))
        if last - self._kept >= KEPT_EVERY:
            self._keep(last)

    def _told(self, row: Row) -> dict[str, Any]:
        """Returns what is told of a job."""
        ended_s = row["told_s"] if row["ended_s"] is None else row["ended_s"]
        times = {"submitted": row["submitted_s"], "started": row["began_s"], "ended": ended_s}
        return {
            **{name: row[name] for name in ("id", "name", "owner", "site", "gpus", "exit_code", "reason")},
            "state": row["ended_as"],
            **{name: None if at_s is None else self._time_of(at_s) for name, at_s in times.items()},
        }
