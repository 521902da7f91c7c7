"""Events from a VTN of OpenADR 3: what ``GET /events`` returns, page by page, as a file that scenarios read.

A VTN is the side that publishes events: a utility or an aggregator. Requests follow OpenADR 3.0 and 3.1: OAuth 2.0 by
client credentials, the token's address stated or asked for at ``GET /auth/server`` (3.1), ``programID``, ``targets``,
``skip`` and ``limit``. Without credentials it is asked anonymously, as public servers allow. OpenADR 3.1 demands HTTPS;
plain HTTP is used with this machine alone.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urljoin, urlsplit

from noonward.errors import DataError, ScenarioError

PAGE: Final = 50
"""Events asked for at once: the most that OpenADR 3 lets a client ask for."""
MOST_PAGES: Final = 1000
TIMEOUT_S: Final = 30.0
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


Ask = Callable[[str, Mapping[str, str], Mapping[str, str] | None], Any]
"""Asks an address, with headers and perhaps a form that is posted; returns its answer, as JSON."""


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """What a VTN knows a client by.

    Attributes:
        client: Client id.
        secret: Its secret.
        token_url: Where tokens are issued; None: the VTN says it.
        scope: Scopes to ask for, separated by spaces; empty: none.
    """

    client: str
    secret: str
    token_url: str | None = None
    scope: str = ""

    def __repr__(self) -> str:
        """Returns a text without the secret."""
        return f"Credentials(client={self.client!r})"


def fetch_events(
    url: str, credentials: Credentials | None = None, *, program: str | None = None, targets: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Returns the event objects of a VTN, in its order.

    Args:
        url: Its base address, such as ``https://vtn.example.com/openadr3/3.1.0``.
        credentials: What it knows the client by; None: it is asked anonymously.
        program: Id of the program whose events are wanted; None: all.
        targets: Targets that events must name.

    Raises:
        ScenarioError: The address is neither HTTPS nor on this machine.
        DataError: The VTN does not answer, refuses, or answers something else than lists of events.
    """
    base = base_of(url)
    return events_at(base, asked, None if credentials is None else token_at(base, asked, credentials), program, targets)


def base_of(url: str) -> str:
    """Returns a VTN's base address, from which paths are joined.

    Raises:
        ScenarioError: It is neither HTTPS nor on this machine.
    """
    require_https(url)
    return url.rstrip("/") + "/"


def events_at(
    base: str, ask: Ask, token: str | None = None, program: str | None = None, targets: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Returns the event objects of a VTN, asked for page by page.

    Args:
        base: Its base address (``base_of``).
        ask: Asks an address.
        token: Access token (``token_at``); None: it is asked anonymously.
        program: Id of the program whose events are wanted; None: all.
        targets: Targets that events must name.

    Raises:
        DataError: It answers something else than lists of events.
    """
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    wanted: list[tuple[str, str]] = [("targets", each) for each in targets]
    if program is not None:
        wanted.append(("programID", program))
    found: list[dict[str, Any]] = []
    for page in range(MOST_PAGES):
        query = urlencode([*wanted, ("skip", str(PAGE * page)), ("limit", str(PAGE))])
        answer = ask(urljoin(base, f"events?{query}"), headers, None)
        if not isinstance(answer, list) or not all(isinstance(each, dict) for each in answer):
            raise DataError(
                f"{base}events returned no list of event objects; give the base address of an OpenADR 3 VTN"
            )
        found += answer
        if len(answer) < PAGE:
            return found
    raise DataError(f"{base}events has more than {MOST_PAGES * PAGE:,} events; name a program or targets")


def token_at(base: str, ask: Ask, credentials: Credentials) -> str:
    """Returns an access token.

    Args:
        base: The VTN's base address.
        ask: Asks an address.
        credentials: What it knows the client by.

    Raises:
        DataError: No token is issued.
    """
    token_url = credentials.token_url
    if token_url is None:
        said = ask(urljoin(base, "auth/server"), {}, None)
        token_url = said.get("tokenURL") if isinstance(said, dict) else None
        if not isinstance(token_url, str):
            raise DataError(f"{base}auth/server names no tokenURL; give --token-url")
    form = {
        "grant_type": "client_credentials", "client_id": credentials.client, "client_secret": credentials.secret,
        **({"scope": credentials.scope} if credentials.scope else {}),
    }  # fmt: skip
    require_https(token_url)
    said = ask(token_url, {}, form)
    token = said.get("access_token") if isinstance(said, dict) else None
    if not isinstance(token, str):
        raise DataError(f"{token_url} returned no access_token; check the client's id and secret")
    return token


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a token goes to the stated address alone."""

    def redirect_request(self, *_: Any) -> None:
        """Refuses."""
        return


def require_https(url: str) -> None:
    """Raises ScenarioError for an address that is neither HTTPS nor on this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise ScenarioError(f"{url} is not HTTPS, which OpenADR 3.1 demands; give an address that begins with https://")


def asked(url: str, headers: Mapping[str, str], form: Mapping[str, str] | None) -> Any:
    """Returns what an address answers, as JSON; a form is posted."""
    data = None if form is None else urlencode(form).encode()
    request = urllib.request.Request(url, data=data, headers={"Accept": "application/json", **headers})
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        error.close()
        hint = "; check the client's id and secret" if error.code in (400, 401, 403) else ""
        raise DataError(f"{url} answered {error.code} ({error.reason}){hint}") from None
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        raise DataError(f"{url} does not answer ({error}); check the address and whether the VTN runs") from None
    except ValueError:
        raise DataError(f"{url} returned no JSON; give the base address of an OpenADR 3 VTN") from None
