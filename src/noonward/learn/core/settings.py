"""Checks of an algorithm's settings, and settings given as text."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar, get_type_hints

from noonward.errors import ScenarioError, nearest

C = TypeVar("C")
_IN_WORDS: Final[dict[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "a word",
}


def between(config: Any, low: float, high: float, *names: str) -> None:
    """Raises ScenarioError unless fields lie within [low, high]."""
    for name in names:
        value = getattr(config, name)
        if not low <= value <= high:
            raise ScenarioError(f"{name} is {value}; it must be from {low:g} to {high:g}")


def at_least(config: Any, low: float, *names: str) -> None:
    """Raises ScenarioError unless fields are numbers of at least ``low``."""
    for name in names:
        value = getattr(config, name)
        if not low <= value < float("inf"):
            raise ScenarioError(f"{name} is {value}; it must be at least {low:g} and finite")


def one_of(config: Any, name: str, allowed: Iterable[str]) -> None:
    """Raises ScenarioError unless a field is one of some words."""
    words = tuple(allowed)
    if getattr(config, name) not in words:
        raise ScenarioError(f"{name} is {getattr(config, name)!r}; {nearest(str(getattr(config, name)), words)}")


def check_steps(config: Any) -> None:
    """Checks the fields that every algorithm with a replay has."""
    at_least(config, 1, "batch", "capacity")
    between(config, 0.0, 1.0, "gamma", "target_rate")
    check_nets(config)


def check_nets(config: Any) -> None:
    """Checks the fields that every algorithm has."""
    one_of(config, "precision", ("float32", "bf16", "float64"))
    if not config.hidden or min(config.hidden) < 1:
        raise ScenarioError(f"hidden is {config.hidden}; give at least one layer of at least one unit, as [256, 256]")


def build(kind: type[C], values: Mapping[str, Any]) -> C:
    """Returns settings from values by name.

    Args:
        kind: Dataclass of the settings.
        values: Values by name; lists become tuples, whole numbers become floats where the field is one.

    Raises:
        ScenarioError: A name is unknown or a value has the wrong type or is out of range.
    """
    hints = get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    out = {}
    for name, value in values.items():
        if name not in known:
            raise ScenarioError(f"unknown setting {name!r}; {nearest(name, known)}")
        out[name] = typed(name, value, hints[name])
    return kind(**out)


def typed(name: str, value: Any, hint: Any) -> Any:
    """Returns a value as its field wants it."""
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (bool, int, float, str):
        if type(value) is not hint or (hint is float and not math.isfinite(value)):
            raise ScenarioError(f"{name} is {value!r}; it must be {_IN_WORDS[hint]}")
        return value
    if hint == tuple[int, ...]:
        if not isinstance(value, list | tuple) or any(type(each) is not int for each in value):
            raise ScenarioError(f"{name} is {value!r}; it must be a list of whole numbers, as [256, 256]")
        return tuple(value)
    return value


def parse_setting(text: str) -> tuple[str, Any]:
    """Returns name and value of ``name=value``; the value is JSON, or a bare word.

    Raises:
        ScenarioError: There is no ``=``.

    Example:
        >>> parse_setting("hidden=[64, 64]"), parse_setting("precision=bf16")
        (('hidden', [64, 64]), ('precision', 'bf16'))
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ScenarioError(f"setting {text!r} is not of the form name=value, as gamma=0.99")
    try:
        return name.strip(), json.loads(value)
    except json.JSONDecodeError:
        return name.strip(), value.strip()
