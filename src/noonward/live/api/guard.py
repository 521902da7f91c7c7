"""Before a request is answered: size, origin, token, scope."""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request

from noonward.live.api.rates import Rate
from noonward.live.store.store import Store
from noonward.live.tokens import Holder, Scope, any_tokens, hash_of, holder_by, is_loopback

MOST_BYTES: Final = 16 * 2**20
"""Largest body of a request."""
MOST_BODIES: Final = 256 * 2**20
"""Memory that the bodies which arrive at one time may take together, bytes."""
BODY_S: Final = 60.0
"""How long a body may take to arrive, s."""
KNOWN_S: Final = 2.0
"""How long an answer about a token is kept, s: a revoked one is refused after that."""
MOST_KNOWN: Final = 1000
"""Tokens whose answers are kept."""
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts by which a browser or a program on this machine names it."""
T = TypeVar("T")


class JobNumber(Convertor[int]):
    """A job's number in a path: at most 18 digits, so that it is one of the store; others name nothing."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        """Returns the number."""
        return int(value)

    def to_string(self, value: int) -> str:
        """Returns the number as text."""
        return str(value)


register_url_convertor("job", JobNumber())


class RefusedError(Exception):
    """A request that is refused.

    Args:
        status: HTTP status.
        code: Word for programs.
        message: What is wrong and what to do.
        after_s: When it may be tried again, s from now; None: this does not help.
    """

    def __init__(self, status: int, code: str, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.after_s = status, code, message, after_s


class _Recent(Generic[T]):
    """Answers of the store that are kept for ``KNOWN_S``; requests that come together wait for one look.

    Args:
        look: Reads the store, in another thread.
    """

    def __init__(self, look: Callable[[str], T]) -> None:
        self._look = look
        self._looks: dict[str, tuple[float, asyncio.Future[T]]] = {}

    async def of(self, key: str) -> T:
        """Returns the answer about a key."""
        at, found = self._looks.get(key, (-math.inf, None))
        if found is None or time.monotonic() - at > KNOWN_S:
            if len(self._looks) > MOST_KNOWN:
                self._looks.clear()
            found = asyncio.ensure_future(run_in_threadpool(self._look, key))
            self._looks[key] = (time.monotonic(), found)
        if found.done() and not found.cancelled() and found.exception() is None:
            return found.result()
        try:
            return await asyncio.shield(found)
        except BaseException:
            self._looks.pop(key, None)
            raise


class Guard:
    """Knows who asks. What it reads of the store, it reads in another thread: others are answered meanwhile.

    A service that needs no tokens, and has none, is open to whoever asks from this machine, as its administrator; the
    host that a request names must then be this machine too, so that no page of another site can reach it by a name that
    points here.

    Args:
        store: Store with the tokens.
        needs_tokens: Whether nobody is answered where there are no tokens.
        requests_per_s: Requests per second that each token may make on average; None: any number.
        jobs_per_s: Jobs per second that each token may submit on average; None: any number.

    Attributes:
        store: Store with the tokens.
    """

    def __init__(
        self,
        store: Store,
        *,
        needs_tokens: bool,
        requests_per_s: float | None = None,
        jobs_per_s: float | None = None,
    ) -> None:
        self.store, self._needs_tokens = store, needs_tokens
        self.requests, self.jobs = Rate(requests_per_s), Rate(jobs_per_s)
        self._holders = _Recent(lambda hashed: holder_by(store, bytes.fromhex(hashed)))
        self._free = _Recent(lambda _: not any_tokens(store))

    async def holder(self, request: Request, scope: Scope) -> Holder:
        """Returns who asks.

        Raises:
            RefusedError: No valid token, too little scope, or a foreign page.
        """
        self.refuse_foreign(request)
        if await self.is_open(request):
            return Holder("loopback", "admin")
        return await self.holder_of(bearer_of(request), scope)

    async def holder_of(self, token: str, scope: Scope) -> Holder:
        """Returns who holds a token.

        Raises:
            RefusedError: It is void, allows too little, or asks too often.
        """
        return await self.holder_by(hash_of(token), scope)

    async def holder_by(self, hashed: bytes, scope: Scope) -> Holder:
        """Returns who holds the token of a hash.

        Raises:
            RefusedError: It is void, allows too little, or asks too often.
        """
        holder = await self._holders.of(hashed.hex())
        if holder is None:
            raise RefusedError(401, "token", "the token is void or has expired; ask the administrator for a new one")
        if not holder.may(scope):
            raise RefusedError(403, "scope", f"this needs a token of scope {scope}; {holder.name} has {holder.scope}")
        self._charge(self.requests, holder, 1, "requests_per_s", "requests")
        return holder

    def charge_jobs(self, holder: Holder, jobs: int) -> None:
        """Counts jobs that are submitted.

        Raises:
            RefusedError: They are too many per second.
        """
        self._charge(self.jobs, holder, jobs, "jobs_per_s", "jobs")

    @staticmethod
    def _charge(rate: Rate, holder: Holder, amount: int, key: str, what: str) -> None:
        if after_s := rate.take(holder.name, amount):
            raise RefusedError(
                429, "rate", f"{holder.name} may make {rate.per_s:g} {what} per second on average ({key}); try again "
                f"in {after_s:.3g} s", after_s,
            )  # fmt: skip

    async def is_open(self, request: Request) -> bool:
        """Returns whether there are no tokens, so that whoever asks from this machine is administrator.

        Raises:
            RefusedError: There are none, and the request comes from or names another host than this machine.
        """
        if self._needs_tokens:
            return False
        free = await self._free.of("")
        if free and (request.client is None or not is_loopback(request.client.host)):
            raise RefusedError(403, "host", "without tokens this service answers its own machine alone; make tokens")
        name = _host(request.headers.get("host", ""))
        if free and name not in LOOPBACK:
            raise RefusedError(403, "host", f"this service answers as localhost alone, not as {name!r}; or make tokens")
        return free

    def refuse_foreign(self, request: Request) -> None:
        """Refuses what a page of another site sends through a visitor's browser."""
        origin = request.headers.get("origin")
        if origin is None or request.method in ("GET", "HEAD"):
            return
        if not hmac.compare_digest(_host(origin.split("://")[-1]), _host(request.headers.get("host", ""))):
            raise RefusedError(403, "origin", f"requests from pages of {origin} are refused")


def bearer_of(request: Request) -> str:
    """Returns the token that a request carries.

    Raises:
        RefusedError: It carries none.
    """
    words = request.headers.get("authorization", "").split(" ", 1)
    if len(words) != 2 or words[0].lower() != "bearer":
        raise RefusedError(401, "token", "a token is needed: send 'Authorization: Bearer TOKEN'")
    return words[1].strip()


class Bodies:
    """The bodies that arrive just now: together they may take so much memory, whoever sends them.

    Args:
        most_bytes: How much, bytes.
    """

    def __init__(self, most_bytes: int = MOST_BODIES) -> None:
        self._most, self.bytes = most_bytes, 0

    def grow(self, size: int) -> None:
        """Counts bytes that have arrived; ``RefusedError`` where all bodies are too large together."""
        if self.bytes + size > self._most:
            raise RefusedError(503, "busy", "many large bodies arrive at once; send this one again in a while", 5.0)
        self.bytes += size

    def drop(self, size: int) -> None:
        """Forgets bytes of a body that was read or refused."""
        self.bytes -= size


async def body_of(request: Request, kind: str = "application/json") -> bytes:
    """Returns the body of a request.

    Args:
        request: Request.
        kind: Content type that it must have.

    Raises:
        RefusedError: It is too large or too slow, of another content type, or all that arrive are too large together.
    """
    bodies: Bodies = request.app.state.bodies
    said_kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if said_kind != kind:
        raise RefusedError(415, "content-type", f"send 'Content-Type: {kind}' and a body of that type")
    said = request.headers.get("content-length", "0")
    parts: list[bytes] = []
    size = held = 0
    if said.isdigit() and int(said) > MOST_BYTES:
        raise RefusedError(
            413, "size", f"the body has {said} bytes; at most {MOST_BYTES} are taken: send smaller batches"
        )
    try:
        async with asyncio.timeout(BODY_S):
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part, more = message.get("body", b""), message.get("more_body", False)
                size += len(part)
                if size > MOST_BYTES:
                    raise RefusedError(413, "size", f"the body has more than {MOST_BYTES} bytes: send smaller batches")
                bodies.grow(len(part))
                held += len(part)
                parts.append(part)
    except TimeoutError:
        raise RefusedError(408, "slow", f"the body did not arrive within {BODY_S:g} s; send it again") from None
    finally:
        bodies.drop(held)
    return b"".join(parts)


def decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """Returns what a body holds.

    Raises:
        RefusedError: It is not JSON, not UTF-8, nested too deeply, or not as the interface says.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise RefusedError(422, "invalid", f"the body is not as the interface says: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(400, "json", f"the body is not JSON: {error}") from None


def _host(text: str) -> str:
    """Returns the host of a header without its port.

    Example:
        >>> _host("localhost:8470"), _host("[::1]:80")
        ('localhost', '::1')
    """
    if text.startswith("["):
        return text[1:].split("]")[0].lower()
    return text.rsplit(":", 1)[0].lower() if text.count(":") == 1 else text.lower()
