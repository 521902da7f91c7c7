"""Logs of the service: lines of text or JSON, with the id of the request that they belong to."""

from __future__ import annotations

import contextvars
import itertools
import json
import logging
import re
import secrets
import time
from datetime import UTC, datetime
from typing import Any, Final, Literal

REQUEST: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("noonward_request", default="")
"""Id of the request that is being answered; empty outside of requests."""
ACCESS: Final = logging.getLogger("noonward.live.requests")
"""A line per request."""
HEADER: Final = "x-request-id"
_FIRST: Final = secrets.token_hex(4)
_IDS: Final = itertools.count()
"""Ids of requests: random for each process, then counted."""
_GIVEN: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_EXTRA: Final = ("method", "path", "status", "duration_ms", "who")


class TextLines(logging.Formatter):
    """One line of text per record: time, level, loop, message, request."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns a record as a line; a traceback follows it."""
        request = REQUEST.get()
        text = f"{_time(record)} {record.levelname.lower()} {record.threadName}: {record.getMessage()}"
        if request:
            text += f" [request {request}]"
        return text if record.exc_info is None else f"{text}\n{self.formatException(record.exc_info)}"


class JsonLines(logging.Formatter):
    """One JSON object per record: ``time``, ``level``, ``logger``, ``thread``, ``message``, and what else is known."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns a record as a line of JSON; a traceback is a field of it."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if request := REQUEST.get():
            line["request"] = request
        line |= {name: getattr(record, name) for name in _EXTRA if hasattr(record, name)}
        if record.exc_info is not None:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logs(kind: Literal["text", "json"], level: str, *, requests: bool) -> None:
    """Sends what the service logs to standard error.

    Args:
        kind: Form of a line.
        level: Least level that is shown: debug, info, warning or error.
        requests: Whether every request is a line.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if kind == "json" else TextLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    ACCESS.setLevel(logging.INFO if requests else logging.ERROR)


def request_id(given: str | None) -> str:
    """Returns the id of a request: the one its sender gave, if it is a plain word, or a new one.

    Example:
        >>> request_id("deploy-7"), request_id("a b") == "a b", len(request_id(None))
        ('deploy-7', False, 16)
    """
    return given if given is not None and _GIVEN.fullmatch(given) else f"{_FIRST}{next(_IDS):08x}"


def log_request(method: str, path: str, status: int, began: float, who: str) -> None:
    """Logs that a request was answered.

    Args:
        method: Its method.
        path: Its path, without the query.
        status: Status of the answer.
        began: ``time.perf_counter()`` when it came.
        who: Name of the token; empty: none.
    """
    if ACCESS.isEnabledFor(logging.INFO):
        took_ms = round((time.perf_counter() - began) * 1e3, 3)
        ACCESS.info(
            "%s %s %d in %.1f ms", method, path, status, took_ms,
            extra={"method": method, "path": path, "status": status, "duration_ms": took_ms, "who": who},
        )  # fmt: skip


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
