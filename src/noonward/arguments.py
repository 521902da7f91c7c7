"""Arguments by annotation: what values an argument takes is said once, in the signature that takes it.

A word is a ``Literal``; a number is ``Annotated[int, Field(ge=1, description="GPUs")]``: pydantic's ``Field`` with the
range, and the unit, or what is counted, as its description. A union of such is either.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from noonward.errors import ScenarioError

P = ParamSpec("P")
R = TypeVar("R")
_KINDS: Final = {int: "a whole number", float: "a number", str: "a name", bool: "true or false"}
_BOUNDS: Final = {"ge": "of at least", "gt": "above", "le": "at most", "lt": "below"}


def allowed(hint: Any) -> str:
    """Returns what values an annotation allows, in words.

    Example:
        >>> from pydantic import Field
        >>> allowed(Annotated[int, Field(ge=1, le=64, description="GPUs")])
        'a whole number from 1 to 64 (GPUs)'
        >>> allowed(Annotated[float, Field(gt=0)]), allowed(Literal["daily", "hourly"])
        ('a number above 0', 'one of daily, hourly')
    """
    base, fields = _parts(hint)
    if get_origin(base) is Literal:
        return f"one of {', '.join(map(str, get_args(base)))}"
    if get_origin(base) in (Union, types.UnionType):
        words = " or ".join(allowed(part) for part in get_args(base))
    else:
        words = _KINDS.get(base, repr(base))
    bounds = _bounds(fields)
    if set(bounds) == {"ge", "le"}:
        words += f" from {bounds['ge']:g} to {bounds['le']:g}"
    elif bounds:
        words += " " + " and ".join(f"{_BOUNDS[name]} {bound:g}" for name, bound in bounds.items())
    units = [field.description for field in fields if field.description]
    return f"{words} ({units[0]})" if units else words


def _parts(hint: Any) -> tuple[Any, list[FieldInfo]]:
    """Returns the type of an annotation and what pydantic's fields say of it."""
    if get_origin(hint) is not Annotated:
        return hint, []
    return hint.__origin__, [mark for mark in hint.__metadata__ if isinstance(mark, FieldInfo)]


def _bounds(fields: list[FieldInfo]) -> dict[str, float]:
    """Returns the bounds that fields state, by name."""
    marks = [mark for field in fields for mark in field.metadata]
    return {name: getattr(mark, name) for name in _BOUNDS for mark in marks if hasattr(mark, name)}


def example(hint: Any) -> Any:
    """Returns a value that an annotation allows: the first word, or a number at an end of its range.

    Example:
        >>> from pydantic import Field
        >>> example(Annotated[float, Field(gt=0, le=0.5)]), example(Literal["daily", "hourly"])
        (0.5, 'daily')
    """
    base, fields = _parts(hint)
    if get_origin(base) is Literal:
        return get_args(base)[0]
    bounds = _bounds(fields)
    return base(bounds.get("ge", bounds.get("le", bounds.get("gt", 0) + 1)))


@functools.cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


def read(name: str, text: str, hint: Any) -> Any:
    """Returns the value that a text gives.

    Args:
        name: Name of the argument, for the message.
        text: Text.
        hint: Annotation.

    Raises:
        ValueError: It is no such value; the message says what is allowed.
    """
    try:
        return _adapter(hint).validate_strings(text)
    except ValidationError:
        raise ValueError(f"{name} is {text!r}; allowed: {allowed(hint)}") from None


def check(name: str, value: Any, hint: Any) -> None:
    """Raises ScenarioError unless an annotation allows a value; the message says what is allowed.

    Args:
        name: Name of the argument, for the message.
        value: Value.
        hint: Annotation.
    """
    try:
        _adapter(hint).validate_python(value, strict=True)
    except ValidationError:
        raise ScenarioError(f"{name} is {value!r}; allowed: {allowed(hint)}") from None


def checked(call: Callable[P, R]) -> Callable[P, R]:
    """Lets a function or constructor check those of its arguments that are ``Annotated``, as ``check`` does."""
    signature = inspect.signature(call)

    @functools.cache
    def hints() -> dict[str, Any]:
        parameters = inspect.signature(call, eval_str=True).parameters
        return {name: each.annotation for name, each in parameters.items() if get_origin(each.annotation) is Annotated}

    @functools.wraps(call)
    def checking(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs).arguments
        for name, hint in hints().items():
            if name in given:
                check(name, given[name], hint)
        return call(*args, **kwargs)

    return checking
