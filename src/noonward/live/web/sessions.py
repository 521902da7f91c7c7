"""Sessions of the pages: a browser shows a token once and then holds a cookie; every form carries a secret word."""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from noonward.live.api.guard import Guard, RefusedError
from noonward.live.store.database import Change, Connection
from noonward.live.tokens import Holder, Scope, hash_of

IDLE_S: Final = 12 * 3600.0
"""A session ends so long after its last request, s."""
STORED_S: Final = 600.0
"""How often a session's last request is stored, s."""
MOST_SESSIONS: Final = 1000
"""Sessions that are kept; the one that was used the longest ago makes room for a new one."""
_NAME: Final = "session."


class Session(msgspec.Struct):
    """A browser that has shown a token."""

    token: bytes
    """Hash of the token; void once it is revoked, and with it the session."""
    word: str
    """What each of its forms must carry, so that no page of another site can send one."""
    used: float
    """Time of its last request, s since 1970."""
    stored: float
    """The same, as it is in the store."""


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
    """Knows browsers by their cookies, of which the store holds hashes: a restart ends no session.

    Args:
        guard: Guard of the service.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard, self._store = guard, guard.store
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
        name, now = _name(request), time.time()
        session = await self._session(name)
        if session is None or now - session.used > IDLE_S:
            raise RefusedError(401, "session", "log in with a token first")
        holder = await self._guard.holder_by(session.token, scope)
        session.used = now
        if now - session.stored > STORED_S:
            session.stored = now
            content = msgspec.msgpack.encode(session)
            self._store.write(lambda connection, now_s: self._store.keep(connection, {name: content}))
        return Visitor(holder, session.word, known_by_token=True)

    async def _session(self, name: str) -> Session | None:
        """Returns a session by its name in the store."""
        if name and name not in self._sessions:
            content = await run_in_threadpool(self._store.value, name)
            if content is not None:
                self._sessions[name] = msgspec.msgpack.decode(content, type=Session)
        return self._sessions.get(name)

    def require_word(self, visitor: Visitor, given: str) -> None:
        """Raises RefusedError unless a form carries its visitor's word."""
        if not hmac.compare_digest(visitor.word.encode(), given.encode()):
            raise RefusedError(403, "form", "this form is out of date; load the page again and repeat")

    async def open(self, request: Request, response: Response, token: str) -> None:
        """Opens a session for a token and sets its cookie.

        Raises:
            RefusedError: The token is void.
            StoreError: The store cannot be written now.
        """
        await self._guard.holder_of(token, "read")
        now, cookie = time.time(), secrets.token_urlsafe(32)
        session = Session(hash_of(token), secrets.token_urlsafe(24), now, now)
        gone = await run_in_threadpool(self._store.do, self._opening(_NAME + hash_of(cookie).hex(), session))
        for name in gone:
            self._sessions.pop(name, None)
        response.set_cookie(
            _cookie(request), cookie, max_age=int(IDLE_S), httponly=True, samesite="lax",
            secure=request.url.scheme == "https",
        )  # fmt: skip

    def _opening(self, name: str, session: Session) -> Change[list[str]]:
        """Returns the change that stores a session; it returns the names of those that make room for it."""

        def change(connection: Connection, now_s: float) -> list[str]:
            used = {}
            for row in connection.execute(f"SELECT name, value FROM meta WHERE name LIKE '{_NAME}%'"):
                content: Any = self._store.database.unpacked(row["value"])
                used[row["name"]] = msgspec.msgpack.decode(content, type=Session).used
            last = sorted(used, key=lambda one: used[one])
            gone = [one for n, one in enumerate(last) if n <= len(last) - MOST_SESSIONS or idle(used[one])]
            connection.executemany("DELETE FROM meta WHERE name = ?", [(one,) for one in gone])
            self._store.keep(connection, {name: msgspec.msgpack.encode(session)})
            return gone

        def idle(used: float) -> bool:
            return session.used - used > IDLE_S + STORED_S

        return change

    async def close(self, request: Request, response: Response) -> None:
        """Ends a session and takes its cookie back.

        Raises:
            StoreError: The store cannot be written now.
        """
        name = _name(request)

        def change(connection: Connection, now_s: float) -> None:
            connection.execute("DELETE FROM meta WHERE name = ?", (name,))

        await run_in_threadpool(self._store.do, change)
        self._sessions.pop(name, None)
        response.delete_cookie(_cookie(request))


def _name(request: Request) -> str:
    """Returns the name of a request's session in the table ``meta``; empty where it has no cookie."""
    cookie = request.cookies.get(_cookie(request), "")
    return _NAME + hash_of(cookie).hex() if cookie else ""


def _cookie(request: Request) -> str:
    """Returns the cookie's name; cookies of one host are shared by its ports, so it names the port."""
    return f"noonward_{request.url.port or request.url.scheme}"
