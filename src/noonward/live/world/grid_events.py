"""Grid events as a live service is told of them: what its scheduler reads of them, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from noonward.decision.announced import Announced
from noonward.model.cluster.event import GridEvent, SiteEvent


def site_event(
    site: str,
    start_s: float,
    end_s: float,
    known_s: float,
    baseline_kw: float,
    target_kw: float,
    ramp_s: float,
    usd_per_mwh: float,
    penalty_usd_per_mwh: float,
) -> SiteEvent:
    """Returns an event as engine and schedulers take it; times are s since the service's start."""
    event = GridEvent(
        start_s=start_s,
        end_s=end_s,
        notice_s=max(start_s - known_s, 0.0),
        baseline_kw=baseline_kw,
        target_kw=target_kw,
        ramp_s=ramp_s,
        usd_per_mwh=usd_per_mwh,
        penalty_usd_per_mwh=penalty_usd_per_mwh,
    )
    return SiteEvent(site=site, event=event)


class ToldEvents(Announced):
    """Grid events by the clock of a service's books, which learn of one event after another.

    Args:
        clock: Returns the time up to which the books have been told, s.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__((), clock)
        self._now_s = clock
        self._of: dict[int, SiteEvent] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._of

    def open_numbers(self) -> list[int]:
        """Returns the numbers of the events that have not ended."""
        return [number for number, each in self._of.items() if each.event.end_s > self._now_s()]

    def turned(self, since_s: float, until_s: float) -> set[str]:
        """Returns the sites at which an event begins or ends after a time, up to another one, s."""
        return {
            each.site
            for each in self._events
            if since_s < each.event.start_s <= until_s or since_s < each.event.end_s <= until_s
        }

    def add(self, number: int, site: str, *told: float) -> None:
        """Adds an event (``site_event``), and forgets those that have ended."""
        kept = self.open_numbers()
        self._of = {each: self._of[each] for each in kept} | {number: site_event(site, *told)}
        self._events = tuple(self._of.values())

    def remove(self, number: int) -> None:
        """Removes an event."""
        del self._of[number]
        self._events = tuple(self._of.values())

    def clear(self) -> None:
        """Forgets all events."""
        self._of, self._events = {}, ()
