"""Families of policies: policies that differ in arguments alone, which their names may give."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from noonward.arguments import allowed, read

Value = int | float | str
"""Value of an argument in a policy's name."""
Role = Literal["rule", "planner", "learned", "control", "published", "clairvoyant", "recorded"]
"""What a policy is in a comparison.

``rule``: a fixed rule of what is known now; ``planner``: plans with forecasts or sampled jobs; ``learned``: trained;
``control``: a simple policy that others are held against; ``published``: as a paper describes it; ``clairvoyant``:
reads future jobs or true future signals, so it is a benchmark that nobody can run; ``recorded``: replays what happened.
"""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Policies that differ in arguments alone.

    Attributes:
        name: Name, which a name with arguments begins with.
        make: Makes a fresh scheduler of the family's kind. Its signature says what a name may give: each parameter is
            annotated with its values and its unit (``noonward.arguments``); one without a default must be given.
        describe: Says in a line what a policy of the family does, from the same arguments.
        roles: Roles of its policies, or what returns them from the same arguments.
        kind: Kind of scenarios that its policies run in.
        check: Raises ValueError where arguments, each within its range, do not go together.
        packaged: As ``Policy.packaged``.
    """

    name: str
    make: Callable[..., Any]
    describe: Callable[..., str]
    roles: frozenset[Role] | Callable[..., frozenset[Role]] = frozenset()
    kind: str = "cluster"
    check: Callable[..., None] | None = None
    packaged: bool = False

    @functools.cached_property
    def arguments(self) -> dict[str, inspect.Parameter]:
        """What a name may give, by name, in the order of the signature."""
        return dict(inspect.signature(self.make, eval_str=True).parameters)

    def allowed(self, name: str) -> str:
        """Returns what values an argument takes, in words."""
        return allowed(self.arguments[name].annotation)

    def values(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """Returns the value of every argument, defaults included, in the family's order.

        Raises:
            ValueError: An argument without default is not given, or the arguments do not go together.
        """
        values = {name: given.get(name, each.default) for name, each in self.arguments.items()}
        for name, value in values.items():
            if value is inspect.Parameter.empty:
                raise ValueError(f"argument {name} is missing; give {self.allowed(name)}")
        if self.check is not None:
            self.check(**values)
        return values

    def written(self, values: Mapping[str, Value]) -> str:
        """Returns the name with arguments that gives some values: those that are not defaults."""
        given = [(name, values[name]) for name, each in self.arguments.items() if values[name] != each.default]
        listed = ", ".join(f"{name}={v if isinstance(v, str) else format(v, '.15g')}" for name, v in given)
        return f"{self.name}({listed})" if listed else self.name

    def read(self, text: str) -> dict[str, Value]:
        """Returns the arguments that the text between a name's brackets gives.

        Raises:
            ValueError: It is not of the form ``name=value, name=value``, or gives something that the family does not
                take.
        """
        given: dict[str, Value] = {}
        for part in _parts(text) if text.strip() else ():
            name, equals, value = (each.strip() for each in part.partition("="))
            takes = "; ".join(f"{each}: {self.allowed(each)}" for each in self.arguments)
            if not equals:
                raise ValueError(f"{part.strip()!r} is not of the form name=value; it takes {takes}")
            if name not in self.arguments:
                raise ValueError(f"there is no argument {name!r}; it takes {takes}")
            if name in given:
                raise ValueError(f"argument {name} is given twice; give it once")
            given[name] = read(name, value, self.arguments[name].annotation)
        return given


def _parts(text: str) -> list[str]:
    """Returns the parts of a text between commas; those between brackets are of a name within.

    Example:
        >>> _parts("base=bid-price(rounds=4, samples=2), levers=cap")
        ['base=bid-price(rounds=4, samples=2)', ' levers=cap']
    """
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
