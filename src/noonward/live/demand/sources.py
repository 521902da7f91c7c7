"""Where grid events come from beside operators: a file, or a VTN of OpenADR 3 that is asked again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from noonward.data.events import read_events
from noonward.data.openadr import stated_objects
from noonward.data.text_table import read_text_file
from noonward.errors import DataError
from noonward.files import version_of
from noonward.live.demand.events import EventBook, Known
from noonward.live.demand.settings import EventSettings
from noonward.live.demand.vtn import NAME, Vtn
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
        self._vtn = None if settings.openadr is None else Vtn(settings, now_s, "grid events")

    @property
    def name(self) -> str:
        """What events are said to be told by."""
        return NAME if self._vtn is not None else str(self._settings.path)

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
            return self._book.take(self.name, self._vtn.events(lambda said: self._known(said, self.name))) > 0
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
            _require_time(each)
        return [Known(key=f"{each.site} {each.start}", event=each) for each in stated]

    def _known(self, objects: Sequence[Any], name: str) -> list[Known]:
        """Returns what event objects state."""
        stated = stated_objects(objects, self._settings.contracts, name, created=False)
        return [Known(key=" ".join(map(str, key)), event=event) for key, event in stated.items()]


def _require_time(event: StatedEvent) -> None:
    """Raises DataError for an event without a time."""
    if event.start is None:
        raise DataError(f"the event at {event.site!r} has start_h, which a service does not know; give its time")
