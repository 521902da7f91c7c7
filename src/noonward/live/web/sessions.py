"""Sessions of the pages: a browser shows a token once and then holds a cookie; every form carries a secret word."""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from noonward.live.api.guard import Guard, RefusedError
from noonward.live.tokens import Holder, Scope

IDLE_S: Final = 12 * 3600.0
"""A session ends so long after its last request, s."""
MOST_SESSIONS: Final = 1000
"""Sessions that are kept; the one that was used the longest ago makes room for a new one."""


@dataclass
class Session:
    """A browser that has shown a token.

    Attributes:
        token: The token; void once it is revoked, and with it the session.
        word: What each of its forms must carry, so that no page of another site can send one.
        used: ``time.monotonic()`` of its last request.
    """

    token: str
    word: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    used: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Visitor:
    """Who looks at a page.

    Attributes:
        holder: Name and scope.
        word: What its forms must carry.
        known_by_token: Whether it can log out.
    """

    holder: Holder
    word: str
    known_by_token: bool

    def may(self, scope: Scope) -> bool:
        """Returns whether it may do what needs a scope."""
        return self.holder.may(scope)

    def owns(self, owner: str) -> bool:
        """Returns whether it may change an owner's jobs and read their commands."""
        return self.holder.may("submit") and self.holder.only_own in (None, owner)


class Sessions:
    """Knows browsers by their cookies. They live in memory: after a restart a token is asked for again.

    Args:
        guard: Guard of the service.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._sessions: dict[str, Session] = {}
        self._open_word = secrets.token_urlsafe(24)

    async def visitor(self, request: Request, scope: Scope = "read") -> Visitor:
        """Returns who asks for a page.

        Args:
            request: Request.
            scope: What it needs.

        Raises:
            RefusedError: No session (401), too little scope, or a foreign page.
        """
        self._guard.refuse_foreign(request)
        if await self._guard.is_open(request):
            return Visitor(Holder("loopback", "admin"), self._open_word, known_by_token=False)
        session = self._sessions.get(request.cookies.get(_cookie(request), ""))
        if session is None or time.monotonic() - session.used > IDLE_S:
            raise RefusedError(401, "session", "log in with a token first")
        holder = await self._guard.holder_of(session.token, scope)
        session.used = time.monotonic()
        return Visitor(holder, session.word, known_by_token=True)

    def require_word(self, visitor: Visitor, given: str) -> None:
        """Raises RefusedError unless a form carries its visitor's word."""
        if not hmac.compare_digest(visitor.word.encode(), given.encode()):
            raise RefusedError(403, "form", "this form is out of date; load the page again and repeat")

    async def open(self, request: Request, response: Response, token: str) -> None:
        """Opens a session for a token and sets its cookie.

        Raises:
            RefusedError: The token is void.
        """
        await self._guard.holder_of(token, "read")
        if len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda name: self._sessions[name].used)]
        name = secrets.token_urlsafe(32)
        self._sessions[name] = Session(token)
        response.set_cookie(
            _cookie(request), name, max_age=int(IDLE_S), httponly=True, samesite="lax",
            secure=request.url.scheme == "https",
        )  # fmt: skip

    def close(self, request: Request, response: Response) -> None:
        """Ends a session and takes its cookie back."""
        self._sessions.pop(request.cookies.get(_cookie(request), ""), None)
        response.delete_cookie(_cookie(request))


def _cookie(request: Request) -> str:
    """Returns the cookie's name; cookies of one host are shared by its ports, so it names the port."""
    return f"noonward_{request.url.port or request.url.scheme}"
