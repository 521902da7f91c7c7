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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urljoin, urlsplit

from noonward.errors import DataError, ScenarioError

PAGE: Final = 50
"""Events asked for at once: the most that OpenADR 3 lets a client ask for."""
MOST_PAGES: Final = 1000
TIMEOUT_S: Final = 30.0
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


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
    base = url.rstrip("/") + "/"
    headers = {} if credentials is None else {"Authorization": f"Bearer {_token(base, credentials)}"}
    wanted: list[tuple[str, str]] = [("targets", each) for each in targets]
    if program is not None:
        wanted.append(("programID", program))
    found: list[dict[str, Any]] = []
    for page in range(MOST_PAGES):
        query = urlencode([*wanted, ("skip", str(PAGE * page)), ("limit", str(PAGE))])
        answer = _asked(urljoin(base, f"events?{query}"), headers)
        if not isinstance(answer, list) or not all(isinstance(each, dict) for each in answer):
            raise DataError(
                f"{base}events returned no list of event objects; give the base address of an OpenADR 3 VTN"
            )
        found += answer
        if len(answer) < PAGE:
            return found
    raise DataError(f"{base}events has more than {MOST_PAGES * PAGE:,} events; name a program or targets")


def _token(base: str, credentials: Credentials) -> str:
    """Returns an access token."""
    token_url = credentials.token_url
    if token_url is None:
        said = _asked(urljoin(base, "auth/server"), {})
        token_url = said.get("tokenURL") if isinstance(said, dict) else None
        if not isinstance(token_url, str):
            raise DataError(f"{base}auth/server names no tokenURL; give --token-url")
    form = {
        "grant_type": "client_credentials", "client_id": credentials.client, "client_secret": credentials.secret,
        **({"scope": credentials.scope} if credentials.scope else {}),
    }  # fmt: skip
    said = _asked(token_url, {}, urlencode(form).encode())
    token = said.get("access_token") if isinstance(said, dict) else None
    if not isinstance(token, str):
        raise DataError(f"{token_url} returned no access_token; check the client's id and secret")
    return token


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a token goes to the stated address alone."""

    def redirect_request(self, *_: Any) -> None:
        """Refuses."""
        return


def _asked(url: str, headers: dict[str, str], form: bytes | None = None) -> Any:
    """Returns what an address answers, as JSON; a form is posted."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise ScenarioError(f"{url} is not HTTPS, which OpenADR 3.1 demands; give an address that begins with https://")
    request = urllib.request.Request(url, data=form, headers={"Accept": "application/json", **headers})
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
