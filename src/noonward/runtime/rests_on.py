"""What a recorded run and a stored bound rest on: this package as it is installed, libraries, and files of your own.

Every source, table and net of the package counts (``noonward.sources.package_digest``), so a record never outlives what
made it, whatever the arguments of its policy name; compiled functions alone are kept by what each of them imports.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from noonward.forecasts.learned import MEAN, net_path
from noonward.ledger.machine import versions
from noonward.model.kinds import Kind
from noonward.schedule.registry import Policy
from noonward.sources import PACKAGE, digest, file_of, package_digest


def installed_digest(further: Iterable[Path] = (), about: str = "") -> str:
    """Returns the digest of this package and its libraries, and of further files.

    Args:
        further: Files; those of this package count already.
        about: Text that counts too.
    """
    own = {path for path in further if not path.is_relative_to(PACKAGE)}
    return digest(own, package_digest() + json.dumps(versions()) + about)


def run_digest(kind: Kind, policy: Policy, scheduler: object) -> str:
    """Returns the digest of what a recorded run rests on.

    Args:
        kind: Kind of the scenario.
        policy: Policy.
        scheduler: What it made.
    """
    files = [*_kind_files(kind), *_class_files(type(scheduler))]
    files += [] if policy.trained is None else [policy.trained.path]
    forecast = getattr(getattr(scheduler, "needs", None), "forecast", None)
    if forecast is not None and forecast.by_net and isinstance(forecast.net, str):
        files += [net_path(forecast.net)] if forecast.net != MEAN else []
    return installed_digest(files)


def bound_digest(kind: Kind, objective: Any) -> str:
    """Returns the digest of what a stored bound rests on.

    Args:
        kind: Kind of the scenario.
        objective: The scenario's objective (``noonward.evaluate.comparison.Objective``).
    """
    files = [*_kind_files(kind), *_class_files(type(objective))]
    return installed_digest(files, f"{type(objective).__module__}.{type(objective).__qualname__}")


def _kind_files(kind: Kind) -> list[Path]:
    """Returns the files of a kind's parts."""
    parts = [getattr(kind, part.name) for part in dataclasses.fields(kind) if part.name != "name"]
    files = []
    for part in parts:
        files += [file_of(part.partition(":")[0])] if isinstance(part, str) else _class_files(part)
    return files


def _class_files(made: Any) -> list[Path]:
    """Returns the file of a class or function; none for one that was typed at a prompt."""
    try:
        path = Path(inspect.getfile(made))
    except (TypeError, OSError):
        return []
    return [path] if path.is_file() else []
