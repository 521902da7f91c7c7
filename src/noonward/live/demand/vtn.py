"""A VTN of OpenADR 3 that a service speaks with: a token is asked for where it is needed, pauses follow failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urljoin

from noonward.data.vtn import Credentials, base_of, events_at, token_at
from noonward.errors import DataError
from noonward.live.demand.settings import EventSettings
from noonward.live.grid.feed_source import read_key
from noonward.live.grid.feeds.feed import Call
from noonward.live.grid.sources import SourceError
from noonward.live.grid.web import Web

T = TypeVar("T")

NAME: Final = "OpenADR"
"""What events from a VTN are said to be told by; their keys begin with it."""


class Vtn:
    """The VTN that a configuration names.

    Args:
        settings: What the configuration says, with ``openadr``.
        now_s: The service's time, s.
        what: What is asked for or told, for messages.

    Raises:
        ScenarioError: The VTN's address is neither HTTPS nor on this machine.
        FileError: The file with the secret cannot be read.
        MissingExtraError: The extra ``live`` is not installed.
    """

    def __init__(self, settings: EventSettings, now_s: Callable[[], float], what: str) -> None:
        assert settings.openadr is not None, "a VTN has an address"
        self._settings, self._base = settings, base_of(settings.openadr)
        self._web = Web(f"{what} at VTN {settings.openadr}", self._base, now_s, settings.quota_per_hour)
        self._token: str | None = None
        self._credentials: Credentials | None = None
        if settings.client is not None and settings.secret_file is not None:
            secret = read_key(settings.secret_file)
            self._credentials = Credentials(
                client=settings.client, secret=secret, token_url=settings.token_url, scope=settings.scope
            )

    def require_ready(self) -> None:
        """Raises SourceError during the pause after a failure."""
        self._web.require_ready()

    def events(self, read: Callable[[list[dict[str, Any]]], T]) -> T:
        """Returns what is read from its event objects.

        Args:
            read: Reads them; raises DataError where they are none.

        Raises:
            SourceError: It does not answer, answers with what are no events, or a pause or the quota forbids to ask.
        """
        settings = self._settings
        return self._asked(
            lambda: read(events_at(self._base, self._ask, self._token, settings.program, settings.targets))
        )

    def report(self, said: Mapping[str, Any]) -> None:
        """Sends it a report object.

        Raises:
            SourceError: It does not take it, or a pause or the quota forbids to send.
        """

        def send() -> None:
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token}"
            self._web.get(Call(path=urljoin(self._base, "reports"), headers=headers, content=json.dumps(said)))

        self._asked(send)

    def _asked(self, ask: Callable[[], T]) -> T:
        """Returns what asking returns, with a token; after a failure it asks for another one, for it may have expired.

        Raises:
            SourceError: It does not answer as it should, or a pause or the quota forbids to ask.
        """
        self.require_ready()
        try:
            if self._credentials is not None and self._token is None:
                self._token = token_at(self._base, self._ask, self._credentials)
            found = ask()
        except SourceError:
            self._token = None
            raise
        except DataError as error:
            self._token = None
            raise self._web.failed(str(error)) from error
        self._web.succeeded()
        return found

    def _ask(self, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None) -> Any:
        """Returns what an address answers, as JSON."""
        text = self._web.get(Call(path=url, headers={"Accept": "application/json", **headers}, form=form))
        try:
            return json.loads(text)
        except ValueError as error:
            raise DataError(f"{url} returned no JSON; give the base address of an OpenADR 3 VTN") from error
