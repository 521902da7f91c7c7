"""Durations in words, for pages and for answers about jobs."""

from __future__ import annotations


def hours(seconds: float | None) -> str:
    """Returns a duration in words.

    Example:
        >>> hours(59.0), hours(3600.0), hours(90.0 * 3600), hours(None)
        ('59 s', '60 min', '90.0 h', '–')
    """
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
