"""Where grid events come from beside operators: a file, or a VTN of OpenADR 3 that is asked again and again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from noonward.data.events import read_events
from noonward.data.openadr import stated_objects
from noonward.data.text_table import read_text_file
from noonward.data.vtn import Credentials, base_of, events_at, token_at
from noonward.errors import DataError
from noonward.files import version_of
from noonward.live.demand.events import EventBook, Known
from noonward.live.demand.settings import EventSettings, not_firm
from noonward.live.grid.feed_source import read_key
from noonward.live.grid.feeds.feed import Call
from noonward.live.grid.sources import SourceError
from noonward.live.grid.web import Web
from noonward.model.cluster.stated_events import EventFile, StatedEvent

PAUSE: Final = 0.999
"""Share of the pause between two looks after which it is over, so that steps of a loop do not miss it."""


class EventSource:
    """Reads a file of events, or asks a VTN, as often as the configuration says.

    Events that are known stay in force while the source cannot be read.

    Args:
        settings: What the configuration says, with ``openadr`` or ``path``.
        book: Grid events of the service.
        now_s: The service's time, s.

    Raises:
        ScenarioError: The VTN's address is neither HTTPS nor on this machine.
        FileError: The file with the secret cannot be read.
        MissingExtraError: The extra ``live`` is not installed.
    """

    def __init__(self, settings: EventSettings, book: EventBook, now_s: Callable[[], float]) -> None:
        self._settings, self._book, self._now_s = settings, book, now_s
        self._looked_s = -float("inf")
        self._taken: tuple[int, int] | None = None
        self._token: str | None = None
        self._vtn: Web | None = None
        self._credentials: Credentials | None = None
        if settings.openadr is not None:
            self._base = base_of(settings.openadr)
            self._vtn = Web(f"VTN {settings.openadr}", self._base, now_s, settings.quota_per_hour)
            if settings.client is not None and settings.secret_file is not None:
                secret = read_key(settings.secret_file)
                self._credentials = Credentials(
                    client=settings.client, secret=secret, token_url=settings.token_url, scope=settings.scope
                )

    @property
    def name(self) -> str:
        """What events are said to be told by."""
        return "OpenADR" if self._vtn is not None else str(self._settings.path)

    @property
    def every_s(self) -> float:
        """Time between two looks, s."""
        return self._settings.poll_s

    def look(self) -> bool:
        """Takes what the source says, if it is time to look; returns whether an event is new, changed or cancelled.

        Raises:
            DataError: The source says what is no event, or an event cannot be taken; the others are.
            FileError: The file cannot be read.
            SourceError: The VTN does not answer, or a pause or the quota forbids to ask now.
        """
        if self._now_s() - self._looked_s < PAUSE * self._settings.poll_s:
            return False
        self._looked_s = self._now_s()
        if self._vtn is not None:
            return self._book.take(self.name, self._of_vtn(self._vtn)) > 0
        assert self._settings.path is not None, "a source has an address or a file"
        return self._take_file(self._settings.path)

    def _take_file(self, path: Path) -> bool:
        """Takes what the file says, if it has changed; returns whether an event is new, changed or cancelled."""
        version = version_of(path, "check the path in events")
        if version == self._taken:
            return False
        changed = self._book.take(self.name, self._of_file(path))
        self._taken = version
        return changed > 0

    def _of_file(self, path: Path) -> list[Known]:
        """Returns the events of the file."""
        if path.suffix == ".json":
            text = read_text_file(path)
            said = text.json("save what GET /events of a VTN returns: a list of event objects")
            return self._known(said if isinstance(said, list) else [said], text.name)
        stated = read_events(EventFile(path=path, timezone=self._settings.timezone))
        for each in stated:
            _require_firm(each)
        return [Known(key=f"{each.site} {each.start}", event=each) for each in stated]

    def _of_vtn(self, web: Web) -> list[Known]:
        """Returns the events of the VTN."""
        settings = self._settings
        web.require_ready()
        try:
            if self._credentials is not None and self._token is None:
                self._token = token_at(self._base, self._ask, self._credentials)
            objects = events_at(self._base, self._ask, self._token, settings.program, settings.targets)
            found = self._known(objects, self.name)
        except SourceError:
            self._token = None  # it may have expired
            raise
        except DataError as error:
            self._token = None
            raise web.failed(str(error)) from error
        web.succeeded()
        return found

    def _ask(self, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None) -> Any:
        """Returns what an address answers, as JSON."""
        assert self._vtn is not None, "only a VTN is asked"
        text = self._vtn.get(Call(path=url, headers={"Accept": "application/json", **headers}, form=form))
        try:
            return json.loads(text)
        except ValueError as error:
            raise DataError(f"{url} returned no JSON; give the base address of an OpenADR 3 VTN") from error

    def _known(self, objects: Sequence[Any], name: str) -> list[Known]:
        """Returns what event objects state."""
        stated = stated_objects(objects, self._settings.contracts, name, created=False)
        return [Known(key=" ".join(map(str, key)), event=event) for key, event in stated.items()]


def _require_firm(event: StatedEvent) -> None:
    """Raises DataError for an event without a time, or whose baseline is to be measured."""
    if event.start is None:
        raise DataError(f"the event at {event.site!r} has start_h, which a service does not know; give its time")
    unfirm = not_firm(f"the event at {event.site!r}", event.baseline)
    if unfirm:
        raise DataError(unfirm)
