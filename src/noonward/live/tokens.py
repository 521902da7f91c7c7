"""Access tokens: who may read, submit or administer; only their hashes are stored."""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

from noonward.errors import ScenarioError, nearest
from noonward.live.store.database import Connection
from noonward.live.store.store import Store

Scope = Literal["read", "submit", "admin"]
"""What a token allows; each allows what stands before it."""
RANK: Final = {scope: rank for rank, scope in enumerate(get_args(Scope))}
MARK: Final = "nwt_"
"""How tokens begin, so that scanners for secrets find them."""


@dataclass(frozen=True)
class Holder:
    """Who asks."""

    name: str
    scope: Scope

    def may(self, scope: Scope) -> bool:
        """Returns whether it may do what needs a scope."""
        return RANK[self.scope] >= RANK[scope]

    @property
    def only_own(self) -> str | None:
        """The owner whose jobs alone it may change and read whole; None: it may all."""
        return None if self.may("admin") else self.name


def new_token() -> str:
    """Returns a token of 256 random bits."""
    return MARK + secrets.token_urlsafe(32)


def make_token(store: Store, name: str, scope: str, days: int | None = None, *, replace: bool = False) -> str:
    """Stores a new token and returns it; it is shown this once.

    Args:
        store: Store.
        name: Name of its holder.
        scope: ``read``, ``submit`` or ``admin``.
        days: Days until it expires; None: never.
        replace: Replace the token of this name, which then is void (rotation).

    Raises:
        ScenarioError: The scope is unknown, the name is taken, or there is none to replace.
    """
    if scope not in RANK:
        raise ScenarioError(f"unknown scope {scope!r}; {nearest(scope, RANK)}")
    known = store.read("SELECT scope FROM tokens WHERE name = ?", name)
    if known and not replace:
        raise ScenarioError(f"there is a token named {name!r} already; choose another name, or rotate it")
    if replace and not known:
        raise ScenarioError(f"there is no token named {name!r} to rotate")
    token = new_token()
    now = datetime.now(UTC)
    expires = None if days is None else (now + timedelta(days=days)).isoformat()

    def change(connection: Connection, now_s: float) -> None:
        connection.execute(
            "INSERT INTO tokens (name, scope, hash, made_at, expires_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) "
            "DO UPDATE SET hash = excluded.hash, made_at = excluded.made_at, expires_at = excluded.expires_at",
            (name, known[0]["scope"] if replace else scope, hash_of(token), now.isoformat(), expires),
        )

    store.do(change)
    return token


def revoke_token(store: Store, name: str) -> None:
    """Makes a token void.

    Raises:
        ScenarioError: There is none of this name, or nobody else could administer the service.
    """
    known = store.read("SELECT scope FROM tokens WHERE name = ?", name)
    if not known:
        raise ScenarioError(f"there is no token named {name!r}; 'noonward live token list' lists them")
    now = datetime.now(UTC)
    others = store.read("SELECT expires_at FROM tokens WHERE scope = 'admin' AND name <> ?", name)
    if known[0]["scope"] == "admin" and not any(
        row["expires_at"] is None or datetime.fromisoformat(row["expires_at"]) > now for row in others
    ):
        raise ScenarioError(
            f"no other valid token than {name!r} may administer the service; replace it ('noonward live token rotate "
            f"{name}': the old one is void at once), or add another one of scope admin first"
        )
    store.do(lambda connection, now_s: connection.execute("DELETE FROM tokens WHERE name = ?", (name,)) and None)


def holder_of(store: Store, token: str) -> Holder | None:
    """Returns who holds a token, or None if it is void or has expired."""
    return holder_by(store, hash_of(token))


def holder_by(store: Store, hashed: bytes) -> Holder | None:
    """Returns who holds the token of a hash, or None if it is void or has expired."""
    rows = store.read("SELECT * FROM tokens WHERE hash = ?", hashed)
    if not rows:
        return None
    expires = rows[0]["expires_at"]
    if expires is not None and datetime.fromisoformat(expires) <= datetime.now(UTC):
        return None
    return Holder(rows[0]["name"], rows[0]["scope"])


def any_tokens(store: Store) -> bool:
    """Returns whether the store holds a token: then every request needs one."""
    return bool(store.read("SELECT 1 FROM tokens LIMIT 1"))


@functools.lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Returns whether an address, or ``localhost``, is that of the machine itself.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("10.0.0.1"), is_loopback("example.org")
        (True, True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hash_of(secret: str) -> bytes:
    """Returns what is kept of a token or a cookie: they have 256 random bits, so one round of SHA-256 keeps them."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
