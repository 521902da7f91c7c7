"""Figures in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """Lines of the text format.

    Args:
        prefix: What all names begin with.
    """

    def __init__(self, prefix: str = "noonward_") -> None:
        self._prefix = prefix
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self._lines) + "\n"

    def add(self, name: str, kind: str, words: str, values: Mapping[str, float]) -> None:
        """Adds a figure with a value for each of some labels (``labels``); none without values."""
        if values:
            whole = f"{self._prefix}{name}"
            self._lines.extend((f"# HELP {whole} {words}", f"# TYPE {whole} {kind}"))
            self._lines.extend(f"{whole}{labels} {value:.10g}" for labels, value in values.items())


def labels(**given: str) -> str:
    r"""Returns labels as Prometheus reads them.

    Example:
        >>> labels(site='a "b"', le="0.1")
        '{site="a \\"b\\"",le="0.1"}'
    """
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, value in given.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
