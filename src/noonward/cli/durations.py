"""How durations are written on the command line: ``6h``, ``90m``, ``45s``, ``2d``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import typer

from noonward.units import DAY_S, HOUR_S, MINUTE_S

UNITS_S = {
    "s": 1.0,
    "m": MINUTE_S,
    "min": MINUTE_S,
    "h": HOUR_S,
    "d": DAY_S,
    "day": DAY_S,
    "days": DAY_S,
}
"""Seconds of the units that a duration may be written in."""
NAMES = {1.0: "seconds", MINUTE_S: "minutes", HOUR_S: "hours"}
"""Units that the name of an option may state, by their seconds."""


def duration(
    unit_s: float, *, bare: bool = False, endless: bool = False, least_s: float = 0.0, option: str | None = None
) -> Callable[[str | float], float]:
    """Returns a parser of durations: ``6h``, ``90m`` or ``90min``, ``45s``, ``2d`` or ``2days``.

    Args:
        unit_s: Unit in which the parser answers, s; one of ``NAMES``.
        bare: Whether a number without a unit is taken, in that unit. Only for options whose name states it
            (``--hours``). Zero never needs a unit.
        endless: Whether ``inf`` is taken.
        least_s: Shortest duration that is allowed, s.
        option: Option to name in messages, if the parser is called outside of the option's own declaration.

    Returns:
        The parser. It raises ``typer.BadParameter`` for any other text; a number is an option's default, in its unit.

    Example:
        >>> duration(3600.0)("90m"), duration(60.0)("1 day"), duration(3600.0, bare=True)("2.5")
        (1.5, 1440.0, 2.5)
    """

    def parse(text: str | float) -> float:
        if not isinstance(text, str):  # an option's default
            return text
        if endless and text.strip().lower() == "inf":
            return math.inf
        written = re.fullmatch(r"((?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)\s*([a-z]*)", text.strip().lower())
        value = math.nan if written is None else float(written[1])
        unit = "" if written is None else written[2]
        if not unit and (bare or value == 0):
            seconds = unit_s
        else:
            seconds = UNITS_S.get(unit, math.nan)
        if not least_s <= value * seconds < math.inf:
            least = f" of at least {least_s:g} s" if least_s else ""
            also = f", or as a number of {NAMES[unit_s]}" if bare else ""
            also += "; inf: no limit" if endless else ""
            raise typer.BadParameter(
                f"{text!r} is not a duration{least}; write it with its unit, as 6h, 90m, 45s or 2d{also}",
                param_hint=option and f"'{option}'",
            )
        return value * seconds / unit_s

    return parse
