"""The error tree: everything a user's mistake can raise.

```
NoonwardError                  base of all; the command line prints it and exits with 2
├── ScenarioError              a scenario file or option is wrong (what, value, unit, allowed, what to do)
├── DataError                  a file's content is wrong (file, row, column)
│   ├── RowError               some rows of it are wrong (their lines; an import may leave them out)
│   └── SignalRangeError       a price or carbon intensity was asked outside the hours that are known
├── FileError                  a file or folder cannot be written, or another process uses it (path, why, what to do)
├── InfeasibleActionError      a scheduler answered something the engine cannot do (job, site, reason)
├── SchedulerError             the code of a user's scheduler raised an error (file, line, message)
├── ConformanceError           a scheduler breaks a rule of the interface (which, where, what to do)
├── InfeasiblePlanError        no plan satisfies the constraints (class, hour, cluster, what would do)
└── MissingExtraError          an optional dependency is not installed (names the extra)
```
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

MOST_LISTED: Final = 40
"""Known words that a hint lists, at most."""
NEAR: Final = 5
"""Words that it names instead."""


class NoonwardError(Exception):
    """Base of every error that a user's input can cause."""


class ScenarioError(NoonwardError):
    """A scenario file, option or argument is wrong."""


class DataError(NoonwardError):
    """The content of a data file is wrong."""


class RowError(DataError):
    """Some rows of a data file are wrong.

    Attributes:
        lines: Their lines in the file, counted from 1.
        why: What is wrong with the first of them, as a phrase.
    """

    def __init__(self, message: str, lines: Iterable[int], why: str) -> None:
        super().__init__(message)
        self.lines = tuple(lines)
        self.why = why


class SignalRangeError(DataError):
    """A signal was asked outside the hours it covers."""


class FileError(NoonwardError):
    """A file or folder cannot be written, or another process uses it."""


class InfeasibleActionError(NoonwardError):
    """A scheduler answered with an action the engine cannot carry out."""


class SchedulerError(NoonwardError):
    """The code of a user's scheduler raised an error.

    Args:
        message: File, line, the line's text and the error.
        trace: The whole traceback.
    """

    def __init__(self, message: str, trace: str = "") -> None:
        self.trace = trace
        super().__init__(message)

    def __reduce__(self) -> tuple[type[SchedulerError], tuple[str, str]]:
        """Returns how it is made again, in another process."""
        return SchedulerError, (str(self), self.trace)


class ConformanceError(NoonwardError):
    """A scheduler breaks a rule of the interface."""


class InfeasiblePlanError(NoonwardError):
    """No plan satisfies the constraints."""


class MissingExtraError(NoonwardError):
    """An optional dependency is missing.

    Args:
        module: The module that could not be imported.
        extra: The extra of this package that brings it.
    """

    def __init__(self, module: str, extra: str) -> None:
        self.module, self.extra = module, extra
        super().__init__(
            f"module {module!r} is not installed; it comes with the extra {extra!r}: pip install 'noonward[{extra}]', "
            f"in a clone '.[{extra}]'"
        )

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        """Returns how it is made again, in another process."""
        return MissingExtraError, (self.module, self.extra)


def nearest(name: str, known: Iterable[str], *, list_all: bool | None = None) -> str:
    """Returns a hint that names the known word nearest to a misspelt one.

    Args:
        name: What the user wrote.
        known: The words that would have been understood.
        list_all: Name all known words: always (True), never (False), or where none is near and they are few (None).

    Returns:
        ``"did you mean 'x'?"``, ``"known: a, b, c"``, both with a space between them, the least different of many, or
        nothing. Upper and lower case are alike.

    Example:
        >>> nearest("revenu", ["revenue", "carbon"])
        "did you mean 'revenue'?"
        >>> nearest("revenu", ["revenue", "carbon"], list_all=True)
        "did you mean 'revenue'? Known: carbon, revenue"
        >>> nearest("north", [f"FR{n}" for n in range(50)] + ["NO", "NO-NO1", "SE"])
        'the nearest of 53 known: NO, NO-NO1, FR9, FR8, FR7'
    """
    words = sorted(known)
    plain = {word.casefold(): word for word in words}
    close = difflib.get_close_matches(name.casefold(), plain, n=1)
    listed = ", ".join(words)
    if close:
        return f"did you mean {plain[close[0]]!r}?" + (f" Known: {listed}" if list_all else "")
    if list_all is None and len(words) > MOST_LISTED:
        few = difflib.get_close_matches(name.casefold(), plain, n=NEAR, cutoff=0.0)
        return f"the nearest of {len(words)} known: {', '.join(plain[word] for word in few)}"
    return "" if list_all is False else f"known: {listed}"
