"""What a job asks of the cluster that runs it, whatever the site: limits, environment, folders, queue."""

from __future__ import annotations

import operator
import re
from typing import Annotated, Final

import msgspec

from noonward.errors import DataError
from noonward.model.spec import LARGEST

Path = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Word = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.@+-]{1,200}$")]
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OWN: Final = "NOONWARD_"
"""How the names of the variables begin that the service sets itself."""
MOST_VARIABLES: Final = 1000


class Terms(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a job asks of its cluster. A site whose executor cannot give it does not run the job."""

    time_limit_s: Annotated[float, msgspec.Meta(gt=0, le=LARGEST)] | None = None
    """Longest run time, s: the cluster ends the job after it. None: the site's limit."""
    environment: dict[str, str] = {}
    """Variables of its command, in addition to those that the service sets."""
    workdir: Path | None = None
    """Folder in which it runs, at the site; None: the site's."""
    output: Path | None = None
    """File for what it prints, at the site; None: the site's."""
    image: Path | None = None
    """Container image in which it runs; None: the site's, or none."""
    partition: Word | None = None
    """Partition; None: the site's."""
    qos: Word | None = None
    """Quality of service by its name at the cluster; None: the cluster's default."""
    account: Word | None = None
    """Account that is charged; None: the default one."""
    exclusive: bool = False
    """Whether it gets its nodes alone."""
    tasks: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """Tasks of an array: so many jobs, each with its number in NOONWARD_TASK, and this one in NOONWARD_TASKS."""
    task: Annotated[int, msgspec.Meta(ge=0, lt=10_000)] | None = None
    """Number of one task, from 0 on; None: all of them."""


EVERY: Final = frozenset(Terms.__struct_fields__) - {"task", "tasks"}
"""Terms that an executor must be able to pass on; tasks are jobs of their own anywhere."""
NONE: Final = Terms()
"""Those of a job that states none."""
_NAMES: Final = Terms.__struct_fields__
_values: Final = operator.attrgetter(*_NAMES)
_NO_VALUES: Final = _values(NONE)


def stated(terms: Terms) -> frozenset[str]:
    """Returns the names of the terms that a job states.

    Example:
        >>> sorted(stated(Terms(qos="high", exclusive=True)))
        ['exclusive', 'qos']
    """
    values = _values(terms)
    if values == _NO_VALUES:  # most jobs
        return frozenset()
    return EVERY & {name for name, *pair in zip(_NAMES, values, _NO_VALUES, strict=True) if pair[0] != pair[1]}


def require_valid(terms: Terms, title: str) -> None:
    """Raises DataError where a term cannot be passed on to any cluster.

    Args:
        terms: Terms of a job.
        title: What messages call the job.
    """
    for name, value in terms.environment.items():
        if not _VARIABLE.fullmatch(name):
            raise DataError(
                f"{title}: environment names {name!r}; a variable has letters, digits and _, and begins with no digit"
            )
        if name.startswith(OWN):
            raise DataError(f"{title}: environment names {name}; the service sets the variables {OWN}* itself")
        if "\x00" in value:
            raise DataError(f"{title}: environment: {name} holds a NUL character; leave it out")
    if len(terms.environment) > MOST_VARIABLES:
        raise DataError(
            f"{title}: environment has {len(terms.environment)} variables; at most {MOST_VARIABLES} are taken"
        )
    if terms.workdir is not None and not terms.workdir.startswith("/"):
        raise DataError(f"{title}: workdir {terms.workdir!r} is not absolute; give a path that begins with /")
    if terms.task is not None and (terms.tasks is None or terms.task >= terms.tasks):
        raise DataError(f"{title}: task is {terms.task}; it needs tasks, and is below that number")
    for what in ("workdir", "output", "image"):
        text = getattr(terms, what)
        if text is not None and (set(text) & set("\x00\n\r") or text.startswith("-")):
            raise DataError(f"{title}: {what} {text!r} is not one line, or begins with -; give a plain name")
