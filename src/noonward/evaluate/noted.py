"""Notes of many environments in few lines, each wording once: numbers that differ become ranges."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

NUMBER: Final = re.compile(r"(\d{4}-\d\d-\d\d(?: \d\d:\d\d)?|\d[\d,]*(?:\.\d+)?)")
"""A day, with or without its time, or a number."""


def grouped(notes_E: Sequence[Iterable[str]], case: str = "environment") -> tuple[str, ...]:
    """Returns the notes of environments, each wording once.

    Notes that differ in their numbers alone become one with their ranges; where an environment has several of a
    wording, the first of each environment become one, then the second ones. A note that not all environments have says
    how many do.

    Args:
        notes_E: Notes of each environment.
        case: What an environment is called.

    Example:
        >>> grouped([["a note", "3 of 64 GPUs were busy"], ["a note", "9 of 64 GPUs were busy"], ["a note", "this"]])
        ('a note', 'in 2 of 3 environments: 3 to 9 of 64 GPUs were busy', 'in 1 of 3 environments: this')
    """
    alike: dict[tuple[int, tuple[str, ...]], list[list[str]]] = {}
    for notes in notes_E:
        seen: Counter[tuple[str, ...]] = Counter()
        for note in dict.fromkeys(notes):
            parts = NUMBER.split(note)
            wording = tuple(parts[::2])
            alike.setdefault((seen[wording], wording), []).append(parts)
            seen[wording] += 1
    told: list[str] = []
    for each in alike.values():
        note = "".join(_range(texts) for texts in zip(*each, strict=True))
        everywhere = len(each) == len(notes_E)
        where = f"in {len(each)}{'' if everywhere else f' of {len(notes_E)}'} {case}s: "
        told.append(note if everywhere and note == "".join(each[0]) else where + note)
    return tuple(told)


def _range(texts: tuple[str, ...]) -> str:
    """Returns the least and the greatest of numbers or days as text; the one text where all are the same."""
    if len(set(texts)) == 1:
        return texts[0]
    ordered = sorted(texts, key=lambda text: (0.0, text) if "-" in text else (float(text.replace(",", "")), text))
    return f"{ordered[0]} to {ordered[-1]}"
