"""What a recorded run and a stored bound rest on: digests that change with every source, table and library they use.

A digest covers the import closure (``noonward.sources``) of the parts of the scenario's kind and of the policy's class,
the packaged tables of those parts, the file of a trained policy or of a forecast of your own, and the versions of the
libraries. Files that put these together, such as the catalogue of policies, count without what they import: they name
far more than one run uses.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from noonward.forecasts.learned import MEAN, net_path
from noonward.ledger.machine import versions
from noonward.model.kinds import Kind
from noonward.schedule.policies import default_registry
from noonward.sources import PACKAGE, closure, digest, file_of, tables_of

RUN_PARTS: Final = ("scenario", "environment", "check_fit", "remarks", "run", "settle", "digest", "record_files")
"""Parts of a kind that a recorded run uses."""
JOINING: Final = ("runtime/runs.py", "runtime/by_kind.py", "schedule/policies.py", "schedule/registry.py")
"""Files of this package, beside the catalogues of policies, that put a run together and count by themselves."""
BOUND_PARTS: Final = ("scenario", "environment", "digest")
"""Parts of a kind that a bound uses, beside the modules its objective names."""


def run_digest(kind: Kind, policy: str, scheduler: object) -> str:
    """Returns the digest of what a recorded run rests on.

    Args:
        kind: Kind of the scenario.
        policy: Name of the policy.
        scheduler: The policy.
    """
    registry = default_registry()
    trained = registry.find(policy, kind.name).trained if registry.knows(policy) else None
    joining = [PACKAGE / file for file in JOINING]
    joining += PACKAGE.glob("schedule/**/catalogue*.py")
    roots = [*_files_of(kind, RUN_PARTS), *_class_files(type(scheduler))]
    further = [] if trained is None else [trained.path]
    forecast = getattr(getattr(scheduler, "needs", None), "forecast", None)
    if forecast is not None and forecast.kind == "learned" and isinstance(forecast.net, str) and forecast.net != MEAN:
        further.append(net_path(forecast.net))
    changed = tuple(path.stat().st_mtime_ns for path in further)
    return _digest(frozenset(roots), frozenset(joining), tuple(further), changed)


def bound_digest(kind: Kind, objective: Any) -> str:
    """Returns the digest of what a stored bound rests on.

    The objective's own file counts whole, unless its bound is apart (``Objective.bound_apart``): then only the source
    of its ``compute_bound`` does.

    Args:
        kind: Kind of the scenario.
        objective: The scenario's objective (``noonward.evaluate.comparison.Objective``).
    """
    named = [file_of(module) for module in objective.bound_modules]
    own = _class_files(type(objective))
    roots = [*_files_of(kind, BOUND_PARTS), *(named or own)]
    if named and objective.bound_apart:
        return _digest(frozenset(roots), frozenset(), text=inspect.getsource(type(objective).compute_bound))
    return _digest(frozenset(roots), frozenset(own))


def _files_of(kind: Kind, parts: Iterable[str]) -> list[Path]:
    """Returns the files of some parts of a kind."""
    found = []
    for name in parts:
        said = getattr(kind, name)
        if isinstance(said, str):
            found.append(file_of(said.partition(":")[0]))
        else:
            found += _class_files(said)
    return found


def _class_files(made: Any) -> list[Path]:
    """Returns the file of a class or function; none for one that was typed at a prompt."""
    try:
        path = Path(inspect.getfile(made))
    except (TypeError, OSError):
        return []
    return [path] if path.is_file() else []


@functools.cache
def _digest(
    roots: frozenset[Path],
    joining: frozenset[Path],
    further: tuple[Path, ...] = (),
    changed: tuple[int, ...] = (),
    text: str = "",
) -> str:
    """Returns the digest of the closure of some files, of their tables, and of files that count by themselves.

    Args:
        roots: Files.
        joining: Files of this package that count by themselves.
        further: Files of trained policies and forecasts.
        changed: When these were changed: they may be replaced while the program runs.
        text: Source of a function that counts without the rest of its file.
    """
    files = closure(roots)
    return digest({*files, *tables_of(files), *joining, *further}, json.dumps(versions()) + text)
