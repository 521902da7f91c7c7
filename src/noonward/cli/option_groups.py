"""Options that several commands share, stated once: a decorator adds them to a command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import Parameter, Signature, signature
from types import SimpleNamespace
from typing import Any, get_type_hints


def option_groups(**groups: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that replaces parameters of a command by groups of options.

    Args:
        groups: By parameter of the command: a function whose own parameters are the options, annotated for Typer. The
            command gets what it returns. ``without`` leaves options of a group out.

    Returns:
        The decorator. The command takes its parameters by keyword; the options stand where the parameter stood.

    Raises:
        TypeError: The command has no such parameter.
        ValueError: Two options have the same name.

    Example:
        >>> def place(site: str = "north", rack: int = 1) -> str:
        ...     return f"{site}/{rack}"
        >>> @option_groups(at=place)
        ... def show(*, job: int, at: str) -> None:
        ...     print(job, at)
        >>> list(signature(show).parameters)
        ['job', 'site', 'rack']
        >>> show(job=7, rack=2)
        7 north/2
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = {name: dict(_parameters(group)) for name, group in groups.items()}
        replaced: list[Parameter] = []
        for name, parameter in _parameters(command, leave_out=groups):
            replaced += options.pop(name).values() if name in groups else [parameter]
        if options:
            raise TypeError(f"{command.__name__} has no parameter {next(iter(options))!r} to replace by options")

        @wraps(command)
        def run(**given: Any) -> None:
            for name, group in groups.items():
                own = {each: given.pop(each) for each in signature(group).parameters if each in given}
                given[name] = group(**own)
            command(**given)

        shown = Signature([each.replace(kind=Parameter.KEYWORD_ONLY) for each in replaced])
        run.__signature__ = shown  # type: ignore[attr-defined]
        run.__annotations__ = {name: each.annotation for name, each in shown.parameters.items()}
        return run

    return decorate


def without(group: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Returns a group of options that lacks some of them; those keep their defaults.

    Raises:
        TypeError: The group has no such option.
    """
    parameters = dict(_parameters(group))
    for name in names:
        if parameters.pop(name, None) is None:
            raise TypeError(f"{group.__name__} has no option {name!r} to leave out")

    @wraps(group)
    def fewer(**given: Any) -> Any:
        return group(**given)

    fewer.__signature__ = Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return fewer


def _parameters(function: Callable[..., Any], leave_out: Any = ()) -> Iterator[tuple[str, Parameter]]:
    """Yields a function's parameters with their annotations resolved, except those of the names to leave out."""
    inner: Any = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    stated = {name: text for name, text in inner.__annotations__.items() if name not in (*leave_out, "return")}
    types = get_type_hints(SimpleNamespace(__annotations__=stated), inner.__globals__, include_extras=True)
    for name, parameter in signature(function).parameters.items():
        yield name, parameter.replace(annotation=types.get(name, parameter.annotation))
