"""The grid events that have been announced by now: what a scheduler knows of events, and nothing before its notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from noonward.model.cluster.event import SiteEvent


class Announced:
    """Grid events by the clock of a run: each is shown from its notice on.

    The clock is that of the engine, or of a live service, so that no scheduler can ask for what is not yet known.

    Args:
        events: All events of the run.
        clock: Returns the time now, s; needed where there are events.

    Example:
        >>> from noonward.model.cluster.event import GridEvent
        >>> now = [0.0]
        >>> event = GridEvent(start_s=7200, end_s=10800, notice_s=3600, baseline_kw=100, target_kw=75)
        >>> announced = Announced([SiteEvent(site="a", event=event)], lambda: now[0])
        >>> len(announced.events)
        0
        >>> now[0] = 3600.0
        >>> [each.site for each in announced.events]
        ['a']
    """

    def __init__(self, events: Sequence[SiteEvent] = (), clock: Callable[[], float] | None = None) -> None:
        assert clock is not None or not events, "events are known by a clock"
        self._events, self._clock = tuple(events), clock

    @property
    def events(self) -> tuple[SiteEvent, ...]:
        """The events that are known now, past ones included, in the order they were given in."""
        if self._clock is None:
            return ()
        now_s = self._clock()
        return tuple(each for each in self._events if each.event.known_s <= now_s)
