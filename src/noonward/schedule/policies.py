"""Policies by name: the registry in use, schedulers of one's own beside the package's, and files of trained ones."""

from __future__ import annotations

import copyreg
import functools
import importlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.decision.scheduler import Scheduler
from noonward.errors import FileError, ScenarioError
from noonward.model.cluster.setting import Protocol
from noonward.schedule.families import Role
from noonward.schedule.registry import Policy, Registry

NETS: Final = "NOONWARD_NETS"
"""Environment variable: a folder with nets of further training seeds (``use_nets``)."""


@functools.cache
def _packaged() -> Registry:
    """Returns the registry that this process uses unless it is told otherwise; made when it is first asked for.

    Raises:
        FileError: The folder that NETS names holds no nets.
    """
    # Imported when asked for: the catalogues bring every rule, and numba with them.
    from noonward.schedule.cluster import catalogue as cluster
    from noonward.schedule.edge import catalogue as edge

    folders = [Path(given)] if (given := os.environ.get(NETS)) else []
    if not all((folder / "cluster").is_dir() or (folder / "edge").is_dir() for folder in folders):
        raise FileError(
            f"{given} holds no folder 'cluster' or 'edge' with nets of further training seeds; give the folder "
            "studies-data/nets of the repository, or one of your own with files of 'noonward train --export' in them"
        )
    registry = Registry()
    cluster.add_policies(registry, *(folder / "cluster" for folder in folders), find=find_policy)
    edge.add_policies(registry, *(folder / "edge" for folder in folders))
    return registry


def use_nets(folder: Path) -> None:
    """Lets this process, and those that it starts, know the trained policies of a folder beside the packaged ones.

    Args:
        folder: Folder with the folders ``cluster`` and ``edge``, as ``studies-data/nets`` of the repository.

    Raises:
        FileError: It holds none of them.
        DataError: A file is damaged or of another format.
    """
    os.environ[NETS] = str(folder)
    _packaged.cache_clear()
    _packaged()


_IN_USE: ContextVar[Registry | None] = ContextVar("registry in use", default=None)


def default_registry() -> Registry:
    """Returns the registry in use: the package's policies and those registered since, or what ``using`` names."""
    return _IN_USE.get() or _packaged()


@contextmanager
def using(registry: Registry) -> Iterator[Registry]:
    """Puts another registry in use for a while, e.g. a copy in which a test registers policies of its own.

    Example:
        >>> with using(default_registry().copy()):
        ...     register("mine", lambda: make_scheduler("random"), "A policy that is gone afterwards.")
        >>> "mine" in [policy.name for policy in policies()]
        False
    """
    token = _IN_USE.set(registry)
    try:
        yield registry
    finally:
        _IN_USE.reset(token)


def register(
    name: str,
    make: Callable[[], Any],
    summary: str = "",
    *,
    family: str | None = None,
    roles: Collection[Role] = (),
    kind: str = "cluster",
) -> None:
    """Adds a scheduler of your own to this process's registry.

    Args:
        name: Its name; must be new among policies of its kind.
        make: A class or function that returns a fresh scheduler.
        summary: What it does, in a line; by default the first line of the docstring of ``make``.
        family: Family it is listed with; by default it stands alone.
        roles: What it is in a comparison.
        kind: Kind of scenarios that it runs in.

    Raises:
        ValueError: The name is taken or is no name, or a role is unknown.
    """
    said = summary or (make.__doc__ or "").strip().split("\n")[0]
    policy = Policy(name=name, make=make, summary=said, family=family or name, roles=frozenset(roles), kind=kind)
    default_registry().add(policy)


def policies(
    protocol: Protocol | None = None,
    *,
    trained: bool | None = None,
    role: Role | None = None,
    family: str | None = None,
    kind: str | None = None,
) -> list[Policy]:
    """Returns the registered policies that have names of their own; see ``Registry.policies``."""
    return default_registry().policies(protocol, trained=trained, role=role, family=family, kind=kind)


def find_policy(name: str, kind: str | None = None) -> Policy:
    """Returns a policy by its name, by ``module:Class`` for one of your own, or by a trained policy's file.

    A policy that has a short name is returned under it. Files and modules are not opened before it is made; making one
    of your own runs its module's code: for names that a file gives, use ``registered_policies``.

    A policy is pickled as its name, and found again where it is read.

    Args:
        name: Name.
        kind: Kind of scenarios it is for, where several kinds share the name.

    Raises:
        ScenarioError: There is no such policy, or an argument is wrong.

    Example:
        >>> find_policy("plan(curves=hard)").name, find_policy("mine:Policy").name
        ('plan-hard', 'mine:Policy')
    """
    registry = default_registry()
    if registry.knows(name):
        return registry.find(name, kind)
    if name.endswith(".npz"):
        make: Callable[[], Any] = functools.partial(_of_file, name)
    elif ":" in name:
        make = functools.partial(_of_module, name)
    else:
        try:
            return registry.find(name)
        except ScenarioError as error:
            raise ScenarioError(f"{error} (or give module:Class)") from None
    about = "not one of the registered policies"
    return Policy(name=name, make=make, summary=about, family=name, kind=kind or "cluster", registered=False)


copyreg.pickle(Policy, lambda policy: (find_policy, (policy.name, policy.kind)))


def make_scheduler(name: str, kind: str | None = None) -> Any:
    """Returns a fresh scheduler by its name, by ``module:Class`` for one of your own, or by a trained policy's file.

    Args:
        name: Name.
        kind: Kind of scenarios it is for (``cluster``: a ``Scheduler``, ``edge``: an ``EdgeScheduler``), where several
            kinds share the name.

    Raises:
        ScenarioError: There is no such policy, module or class, an argument is wrong, or the class cannot be made
            without arguments.
        DataError: A file ``.npz`` holds no trained policy.

    Example:
        >>> type(make_scheduler("local-fcfs")).__name__, make_scheduler("greedy-energy(gpus=12)").gpus
        ('LocalFcfs', 12)
    """
    return find_policy(name, kind).make()


def _of_file(name: str) -> Any:
    """Returns the scheduler of a trained policy's file."""
    from noonward.schedule.policy_files import load_policy

    return load_policy(Path(name))


def _of_module(name: str) -> Any:
    """Returns a scheduler of your own by ``module:Class``."""
    module, _, attribute = name.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)()
    except Exception as error:  # whatever a user's module does when it is imported
        raise ScenarioError(
            f"policy {name!r} cannot be loaded: {type(error).__name__}: {error}; give an importable module:Class "
            "that is made without arguments"
        ) from error
    if not isinstance(made, Scheduler | EdgeScheduler):
        raise ScenarioError(
            f"policy {name!r} is no Scheduler; derive it from noonward.Scheduler (edge scenarios: "
            "noonward.decision.edge.scheduler.EdgeScheduler)"
        )
    return made


def registered_policies(names: Iterable[str], where: str, kind: str | None = None) -> list[Policy]:
    """Returns the policies that a file names.

    Files are data: they cannot name modules to be imported.

    Args:
        names: Names.
        where: Where they stand, for the message.
        kind: Kind of scenarios they are for.

    Raises:
        ScenarioError: A name is not that of a registered policy.
    """
    policies = []
    for name in names:
        try:
            if ":" in name or ".npz" in name:  # also of a policy that another one rests on: it is made to be checked
                raise ScenarioError(f"policy {name!r} names code or a file")
            policies.append(default_registry().find(name, kind))
        except ScenarioError as error:
            raise ScenarioError(
                f"{where}: {error}; a file may name registered policies only: give module:Class or a policy's file on "
                "the command line (--policies), or register it in Python (noonward.register)"
            ) from None
    return policies
