"""Notes of many environments in few lines: those that differ in their numbers alone become one, with ranges."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

NUMBER: Final = re.compile(r"(\d{4}-\d\d-\d\d(?: \d\d:\d\d)?|\d[\d,]*(?:\.\d+)?)")
"""A day, with or without its time, or a number."""
MANY: Final = 3
"""Notes of one wording from which on they become one."""


def grouped(notes: Iterable[str], case: str = "environment") -> tuple[str, ...]:
    """Returns notes, each once; three or more that differ in their numbers alone as one that says the ranges.

    Args:
        notes: Notes.
        case: What an environment is called.

    Example:
        >>> grouped([f"{n} of 64 GPUs were busy" for n in (3, 14, 9)] + ["a note", "a note"])
        ('in 3 environments: 3 to 14 of 64 GPUs were busy', 'a note')
    """
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for note in dict.fromkeys(notes):
        parts = NUMBER.split(note)
        alike.setdefault(tuple(parts[::2]), []).append(parts)
    told: list[str] = []
    for each in alike.values():
        if len(each) < MANY:
            told += ["".join(parts) for parts in each]
            continue
        columns = zip(*each, strict=True)
        told.append(f"in {len(each)} {case}s: {''.join(_range(column) for column in columns)}")
    return tuple(told)


def _range(texts: tuple[str, ...]) -> str:
    """Returns the least and the greatest of numbers or days as text; the one text where all are the same."""
    if len(set(texts)) == 1:
        return texts[0]
    ordered = sorted(texts, key=lambda text: (0.0, text) if "-" in text else (float(text.replace(",", "")), text))
    return f"{ordered[0]} to {ordered[-1]}"
