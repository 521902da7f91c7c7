"""Asks a publisher over HTTP: with a quota, and growing pauses after failures."""

from __future__ import annotations

import contextlib
import functools
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from noonward.errors import MissingExtraError
from noonward.live.grid.feeds.feed import Call
from noonward.live.grid.sources import SourceError
from noonward.units import HOUR_S

FIRST_PAUSE_S: Final = 60.0
"""Pause after a failure, s; it doubles with every further one."""
LONGEST_PAUSE_S: Final = 1800.0
"""Longest pause, s."""
TIMEOUT_S: Final = 20.0
"""How long a reply may take, s."""
MOST_REDIRECTS: Final = 5
"""Redirects that are followed, within the same host."""
MOST_BYTES: Final = 32 * 2**20
"""Largest reply that is read, bytes."""


class Web:
    """A publisher's address.

    Args:
        title: Its name, for messages.
        url: Its address.
        now_s: The service's time, s.
        quota_per_hour: Requests an hour at most.

    Raises:
        MissingExtraError: The extra ``live`` is not installed.
    """

    def __init__(self, title: str, url: str, now_s: Callable[[], float], quota_per_hour: int) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError(error.name or "httpx", "live") from error
        self._httpx = httpx
        self.title, self._now_s, self._quota = title, now_s, quota_per_hour
        self._client = httpx.Client(
            base_url=url, timeout=TIMEOUT_S, follow_redirects=False, trust_env=False, verify=_authorities()
        )
        self._asked: deque[float] = deque()
        self._failures = 0
        self._resume_s = -float("inf")

    def require_ready(self) -> None:
        """Raises SourceError during the pause after a failure."""
        left_s = self._resume_s - self._now_s()
        if left_s > 0:
            raise SourceError(f"{self.title}: asked again in {left_s:.0f} s, after {self._failures} failures in a row")

    def get(self, call: Call) -> str:
        """Returns the text of a reply.

        Raises:
            SourceError: There is no reply, it is an error, or a pause or the quota forbids to ask now.
        """
        self.require_ready()
        now_s = self._now_s()
        while self._asked and self._asked[0] <= now_s - HOUR_S:
            self._asked.popleft()
        if len(self._asked) >= self._quota:
            raise SourceError(f"{self.title}: its quota of {self._quota} requests an hour is used up")
        self._asked.append(now_s)
        try:
            return self._text(call)
        except self._httpx.HTTPError as error:
            raise self.failed(f"no answer: {error or type(error).__name__}") from error

    def _text(self, call: Call) -> str:
        query, headers, form = dict(call.query) or None, dict(call.headers), call.form
        method = "GET" if form is None and call.content is None else "POST"
        request = self._client.build_request(
            method, call.path, params=query, headers=headers, data=form, content=call.content
        )
        for _ in range(MOST_REDIRECTS):
            reply = self._client.send(request, auth=call.user or self._httpx.USE_CLIENT_DEFAULT, stream=True)
            with contextlib.closing(reply):
                if reply.next_request is None:
                    return self._body(call, reply)
                here, there = request.url, reply.next_request.url
                if (here.scheme, here.host, here.port) != (there.scheme, there.host, there.port):
                    # Headers and query hold the key.
                    raise self.failed(
                        f"it redirects {call.path} to {there.host}; give that address if you trust it (url)"
                    )
                request = self._client.build_request("GET", there, headers=dict(call.headers))
        raise self.failed(f"it redirects {call.path} again and again")

    def _body(self, call: Call, reply: Any) -> str:
        """Returns the text of a reply that is no redirect."""
        if not reply.is_success:
            raise self.failed(f"it answered {call.path} with status {reply.status_code}", _retry_s(reply))
        parts, size, began = [], 0, time.monotonic()
        for part in reply.iter_bytes():
            if time.monotonic() - began > TIMEOUT_S:
                raise self.failed(f"its answer to {call.path} took longer than {TIMEOUT_S:g} s")
            size += len(part)
            if size > MOST_BYTES:
                raise self.failed(f"its answer is larger than {MOST_BYTES // 2**20} MiB")
            parts.append(part)
        try:
            return b"".join(parts).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.failed(f"its answer to {call.path} is no text in UTF-8") from error

    def failed(self, why: str, retry_s: float | None = None) -> SourceError:
        """Notes a failure, and returns it as an error; nothing is asked before a pause is over.

        Args:
            why: What went wrong.
            retry_s: Pause that the publisher asks for, s.
        """
        self._failures += 1
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._failures - 1, 10))
        self._resume_s = self._now_s() + max(pause_s, retry_s or 0.0)
        return SourceError(f"{self.title}: {why}")

    def succeeded(self) -> None:
        """Notes that a reply could be used: the next failure counts as the first."""
        self._failures = 0


@functools.cache
def _authorities() -> ssl.SSLContext:
    """Returns the certificate authorities of the machine; they are read once."""
    return ssl.create_default_context()


def _retry_s(reply: Any) -> float | None:
    """Returns the pause that a reply asks for, at most a day, s."""
    text = reply.headers.get("retry-after", "")
    return min(float(text), 86400.0) if text.isdigit() else None
