"""Families of policies: policies that differ in arguments alone, which their names may give."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from noonward.files import SLUG

Value = int | float | str
"""Value of an argument in a policy's name."""
Role = Literal["rule", "planner", "learned", "control", "published", "clairvoyant", "recorded"]
"""What a policy is in a comparison.

``rule``: a fixed rule of what is known now; ``planner``: plans with forecasts or sampled jobs; ``learned``: trained;
``control``: a simple policy that others are held against; ``published``: as a paper describes it; ``clairvoyant``:
reads future jobs or true future signals, so it is a benchmark that nobody can run; ``recorded``: replays what happened.
"""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument that the name of a policy may give, as ``gpus`` in ``greedy-energy(gpus=4)``.

    Attributes:
        name: Name.
        kind: Type of its value; ``number or name``: a whole number within the range, or any name.
        unit: Unit, or what the value counts; empty for words.
        low: Least value (numbers).
        high: Largest value (numbers).
        above: Whether the value must be above ``low``, not equal to it.
        words: Values allowed (words).
        default: Value where the name gives none; None: the name must give it.
    """

    name: str
    kind: Literal["whole number", "number", "word", "number or name"]
    unit: str = ""
    low: float = 0.0
    high: float = math.inf
    above: bool = False
    words: tuple[str, ...] = ()
    default: Value | None = None

    @property
    def allowed(self) -> str:
        """What values it takes, in words.

        Example:
            >>> Argument(name="gpus", kind="whole number", unit="GPUs", low=1, high=64).allowed
            'a whole number from 1 to 64 (GPUs)'
        """
        if self.kind == "word":
            return f"one of {', '.join(self.words)}"
        unit = f" ({self.unit})" if self.unit else ""
        if self.kind == "number or name":
            return f"a whole number from {self.low:g} to {self.high:g}{unit}, or the name of your own"
        if self.high < math.inf:
            return f"a {self.kind} from {self.low:g} to {self.high:g}{unit}"
        return f"a {self.kind} {'above' if self.above else 'of at least'} {self.low:g}{unit}"

    def read(self, text: str) -> Value:
        """Returns the value that a name gives.

        Raises:
            ValueError: The text is no such value; the message says what is allowed.
        """
        value: Value
        try:
            if self.kind == "number or name":
                return self._number_or_name(text)
            value = text if self.kind == "word" else int(text) if self.kind == "whole number" else float(text)
        except ValueError:
            raise ValueError(f"{self.name} is {text!r}; allowed: {self.allowed}") from None
        fits = value in self.words if isinstance(value, str) else self._within(value)
        if not fits:
            raise ValueError(f"{self.name} is {text!r}; allowed: {self.allowed}")
        return value

    def _number_or_name(self, text: str) -> Value:
        """Returns a whole number within the range, or a name; raises ValueError where the text is neither."""
        if text.isdigit() and self._within(int(text)):
            return int(text)
        if text.isdigit() or not SLUG.fullmatch(text):
            raise ValueError(text)
        return text

    def _within(self, value: float) -> bool:
        return math.isfinite(value) and self.low <= value <= self.high and not (self.above and value == self.low)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Policies that differ in arguments alone.

    Attributes:
        name: Name, which a name with arguments begins with.
        arguments: Arguments.
        make: Makes a fresh scheduler of the family's kind from the arguments, given by name.
        describe: Says in a line what a policy of the family does, from the same arguments.
        roles: Roles of its policies, or what returns them from the same arguments.
        kind: Kind of scenarios that its policies run in.
        check: Raises ValueError where arguments, each within its range, do not go together.
        packaged: As ``Policy.packaged``.
    """

    name: str
    arguments: tuple[Argument, ...]
    make: Callable[..., Any]
    describe: Callable[..., str]
    roles: frozenset[Role] | Callable[..., frozenset[Role]] = frozenset()
    kind: str = "cluster"
    check: Callable[..., None] | None = None
    packaged: bool = False

    def values(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """Returns the value of every argument, defaults included, in the family's order.

        Raises:
            ValueError: An argument without default is not given, or the arguments do not go together.
        """
        values = {argument.name: given.get(argument.name, argument.default) for argument in self.arguments}
        for argument in self.arguments:
            if values[argument.name] is None:
                raise ValueError(f"argument {argument.name} is missing; give {argument.allowed}")
        complete = {name: value for name, value in values.items() if value is not None}
        if self.check is not None:
            self.check(**complete)
        return complete

    def written(self, values: Mapping[str, Value]) -> str:
        """Returns the name with arguments that gives some values: those that are not defaults."""
        said = [(a.name, values[a.name]) for a in self.arguments if values[a.name] != a.default]
        listed = ", ".join(f"{name}={v if isinstance(v, str) else format(v, '.15g')}" for name, v in said)
        return f"{self.name}({listed})" if listed else self.name


def given_arguments(family: Family, text: str) -> dict[str, Value]:
    """Returns the arguments that the text between a name's brackets gives.

    Raises:
        ValueError: It is not of the form ``name=value, name=value``, or gives something that the family does not take.
    """
    known = {argument.name: argument for argument in family.arguments}
    given: dict[str, Value] = {}
    for part in text.split(",") if text.strip() else ():
        name, equals, value = (each.strip() for each in part.partition("="))
        takes = "; ".join(f"{argument.name}: {argument.allowed}" for argument in family.arguments)
        if not equals:
            raise ValueError(f"{part.strip()!r} is not of the form name=value; it takes {takes}")
        if name not in known:
            raise ValueError(f"there is no argument {name!r}; it takes {takes}")
        if name in given:
            raise ValueError(f"argument {name} is given twice; give it once")
        given[name] = known[name].read(value)
    return given
