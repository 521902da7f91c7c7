"""What a command says on the error stream: functions it compiles, damaged files it makes again, renamed policies."""

from __future__ import annotations

import sys
import time
from typing import Final

EVERY_S: Final = 5.0
"""Seconds between two lines of progress."""


class CompileNotice:
    """Says how many functions are compiled and for how long, which damaged files were dropped, and new names."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._said = 0.0
        self._functions = 0
        self._renamed: set[str] = set()

    def __call__(self, kind: str, about: str) -> None:
        """Receives a notice of ``noonward.notices``."""
        if kind == "damaged":
            print(f"{about} was damaged: its folder is dropped, its functions are compiled again", file=sys.stderr)
            return
        if kind == "record":
            print(f"{about.removesuffix('; run the policy again')}: it is run again", file=sys.stderr)
            return
        if kind in ("checkpoint", "memory"):
            print(about, file=sys.stderr, flush=True)
            return
        if kind == "renamed" and about not in self._renamed:
            self._renamed.add(about)
            print(f"note: {about}", file=sys.stderr)
        if kind not in ("compile", "part"):
            return
        now = time.monotonic()
        if self._began is None:
            print(
                "compiling functions, once per version and kind of policy (about a minute of CPU time)",
                file=sys.stderr,
            )
            self._began = self._said = now
        if now - self._said >= EVERY_S:
            print(f"  {self._functions} functions compiled in {now - self._began:.0f} s", file=sys.stderr)
            self._said = now
        self._functions += 1
