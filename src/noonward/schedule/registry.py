"""The registry of schedulers: policies by name, in families, with roles, and with arguments given in their names."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.decision.scheduler import Scheduler
from noonward.errors import ScenarioError, nearest
from noonward.model.cluster.setting import Protocol
from noonward.schedule.families import Family, Role, Value, given_arguments

if TYPE_CHECKING:
    from noonward.schedule.cluster.packaged_policies import PolicyFile

Entry = TypeVar("Entry")
_CALL = re.compile(r"([^()\s]+)\s*\((.*)\)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A registered scheduler.

    Attributes:
        name: Name on the command line and in reports; policies of different kinds may share one.
        make: Makes a fresh scheduler: a ``Scheduler`` for kind ``cluster``, an ``EdgeScheduler`` for ``edge``.
        summary: What it does, in a line.
        family: Family it belongs to; its own name if it stands alone.
        roles: What it is in a comparison.
        kind: Kind of scenarios that it runs in.
        trained: Packaged file it runs, or None for one that is not trained.
        packaged: Whether it comes with this package, so that its records stay valid while the package's code does.
    """

    name: str
    make: Callable[[], Any]
    summary: str
    family: str
    roles: frozenset[Role] = frozenset()
    kind: str = "cluster"
    trained: PolicyFile | None = field(default=None, repr=False)
    packaged: bool = False

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        """Protocols of kind ``cluster`` that it answers; none for another kind."""
        made = self.make()
        return made.needs.protocols if isinstance(made, Scheduler) else ()


class Registry:
    """Policies by kind and name, in the order they were added.

    A name that policies of several kinds share means that of the kind which is asked for; where no kind is asked for,
    or that kind has none of the name, it means the one that was added first.
    """

    def __init__(self) -> None:
        self._policies: dict[tuple[str, str], Policy] = {}
        self._families: dict[tuple[str, str], Family] = {}
        self._listed: dict[tuple[str, str], str] = {}
        """Listed name of a policy by its kind and its name with arguments."""

    def copy(self) -> Registry:
        """Returns a registry of the same policies, to which others can be added."""
        other = Registry()
        other._policies, other._families = dict(self._policies), dict(self._families)
        other._listed = dict(self._listed)
        return other

    def add(self, policy: Policy) -> None:
        """Adds a policy.

        Raises:
            ValueError: The name is taken, or is no name (it holds brackets, commas or blanks).
        """
        name = policy.name
        if (policy.kind, name) in self._policies:
            raise ValueError(f"a policy named {name!r} is registered already; choose another name")
        if not name or re.search(r"[()\s,]", name):
            raise ValueError(f"a policy cannot be named {name!r}; choose a name without brackets, commas and blanks")
        unknown = set(policy.roles) - set(get_args(Role))
        if unknown:
            raise ValueError(f"policy {name!r}: unknown role {min(unknown)!r}; {nearest(min(unknown), get_args(Role))}")
        self._policies[policy.kind, name] = policy

    def add_family(self, family: Family) -> None:
        """Adds a family, whose policies can then be named with arguments.

        Raises:
            ValueError: The name is taken by another family.
        """
        if (family.kind, family.name) in self._families:
            raise ValueError(f"a family named {family.name!r} is registered already; choose another name")
        self._families[family.kind, family.name] = family

    def add_member(
        self, name: str, family: str, given: Mapping[str, Value] | None = None, *, kind: str = "cluster"
    ) -> None:
        """Adds a short name for a policy of a family: it is listed, and stands for the policy in all reports.

        Args:
            name: Short name, e.g. ``greedy-energy-4``.
            family: Family.
            given: Arguments that are not defaults.
            kind: Kind of scenarios of the family.
        """
        of = self._families[kind, family]
        values = of.values(given or {})
        self.add(self._made(of, values, name))
        self._listed[kind, of.written(values)] = name

    def policies(
        self,
        protocol: Protocol | None = None,
        *,
        trained: bool | None = None,
        role: Role | None = None,
        family: str | None = None,
        kind: str | None = None,
    ) -> list[Policy]:
        """Returns the policies that have names of their own, in the order they were added.

        Args:
            protocol: Only those that answer it.
            trained: Only trained ones (True: they run at the sites they were trained for) or only others (False).
            role: Only those of a role.
            family: Only those of a family.
            kind: Only those of a kind of scenarios.
        """
        return [
            each
            for each in self._policies.values()
            if (trained is None or trained == (each.trained is not None))
            and (role is None or role in each.roles)
            and (family is None or family == each.family)
            and (kind is None or kind == each.kind)
            and (protocol is None or protocol in each.protocols)
        ]

    def families(self) -> list[Family]:
        """Returns the families whose policies can be named with arguments."""
        return list(self._families.values())

    def knows(self, name: str) -> bool:
        """Returns whether a name is that of a policy or of a family of any kind, whatever its arguments."""
        call = _CALL.fullmatch(name)
        first = call[1] if call else name
        return any(first == known for _, known in (*self._families, *self._policies))

    def find(self, name: str, kind: str | None = None) -> Policy:
        """Returns a policy by its name, which may give arguments: ``greedy-energy(gpus=4)``.

        A policy that has a short name is returned under it.

        Args:
            name: Name.
            kind: Kind of scenarios whose policy is meant where several kinds share the name.

        Raises:
            ScenarioError: There is no such policy, or an argument is unknown, missing or out of its range.

        Example:
            >>> default_registry().find("greedy-energy( gpus = 4 )").name
            'greedy-energy-4'
            >>> default_registry().find("random").kind, default_registry().find("random", "edge").kind
            ('cluster', 'edge')
        """
        policy = _of_kind(self._policies, name, kind)
        if policy is not None:
            return policy
        call = _CALL.fullmatch(name.strip())
        first, text = (call[1], call[2]) if call else (name, "")
        family = _of_kind(self._families, first, kind)
        if family is None:
            if _of_kind(self._policies, first, kind) is not None:
                raise ScenarioError(f"policy {first!r} takes no arguments; it was given ({text}); write {first!r}")
            known = dict.fromkeys(known for _, known in (*self._policies, *self._families))
            close = nearest(first, known, list_all=False) or "'noonward policies' lists those there are"
            raise ScenarioError(f"unknown policy {name!r}; {close}")
        try:
            values = family.values(given_arguments(family, text))
        except ValueError as error:
            raise ScenarioError(f"policy {name!r}: {error}") from None
        written = family.written(values)
        if (family.kind, written) in self._listed:
            return self._policies[family.kind, self._listed[family.kind, written]]
        return self._made(family, values, written)

    @staticmethod
    def _made(family: Family, values: Mapping[str, Value], name: str) -> Policy:
        return Policy(
            name=name,
            make=functools.partial(family.make, **values),
            summary=family.describe(**values),
            family=family.name,
            roles=family.roles(**values) if callable(family.roles) else family.roles,
            kind=family.kind,
            packaged=family.packaged,
        )


def _of_kind(table: Mapping[tuple[str, str], Entry], name: str, kind: str | None) -> Entry | None:
    """Returns the entry of a name: that of a kind if it has one, else the one that was added first, else None."""
    if kind is not None and (kind, name) in table:
        return table[kind, name]
    return next((entry for (_, known), entry in table.items() if known == name), None)


@functools.cache
def _packaged() -> Registry:
    """Returns the registry that this process uses unless it is told otherwise; made when it is first asked for."""
    from noonward.schedule.cluster import catalogue as cluster
    from noonward.schedule.edge import catalogue as edge

    registry = Registry()
    cluster.add_policies(registry)
    edge.add_policies(registry)
    return registry


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


def canonical_name(name: str, kind: str | None = None) -> str:
    """Returns the name that reports show for a policy: the short one where it has one.

    Names of files and of one's own classes stay as they are.

    Args:
        name: Name.
        kind: Kind of scenarios it is for.

    Raises:
        ScenarioError: Its arguments are not those it takes.

    Example:
        >>> canonical_name("greedy-tradeoff(watts=30)"), canonical_name("mine:Policy")
        ('greedy-tradeoff-30', 'mine:Policy')
    """
    registry = default_registry()
    return registry.find(name, kind).name if registry.knows(name) else name


def make_scheduler(name: str, kind: str | None = None) -> Any:
    """Returns a fresh scheduler by its name, by ``module:Class`` for one of your own, or by a trained policy's file.

    Loading a class runs its module's code: for names that a file gives, use ``require_registered`` first.

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
    registry = default_registry()
    if registry.knows(name):
        return registry.find(name, kind).make()
    if name.endswith(".npz"):
        return load_policy(Path(name))
    if ":" not in name:
        try:
            return registry.find(name).make()
        except ScenarioError as error:
            raise ScenarioError(f"{error} (or give module:Class)") from None
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


def require_registered(names: Iterable[str], where: str, kind: str | None = None) -> None:
    """Raises ScenarioError unless every name that a file gives is that of a registered policy.

    Files are data: they cannot name modules to be imported. Nothing is imported here.

    Args:
        names: Names.
        where: Where they stand, for the message.
        kind: Kind of scenarios they are for.
    """
    for name in names:
        try:
            default_registry().find(name, kind)
        except ScenarioError as error:
            raise ScenarioError(
                f"{where}: {error}; a file may name registered policies only: give module:Class or a policy's file on "
                "the command line (--policies), or register it in Python (noonward.register)"
            ) from None


def load_policy(path: str | Path) -> Any:
    """Returns the scheduler of a trained policy's file: a ``Scheduler``, or an ``EdgeScheduler`` for edge scenarios.

    Raises:
        DataError: There is no such file, or it holds no trained policy.
    """
    from noonward.schedule import net_file
    from noonward.schedule.cluster.choices.file import HEAD as CHOICES
    from noonward.schedule.cluster.choices.policy import ChoicePolicy
    from noonward.schedule.cluster.trained_policy import TrainedPolicy
    from noonward.schedule.edge.trained_policy import EdgePolicy

    meta = net_file.read_meta(Path(path))
    if meta.get("kind") == "edge":
        return EdgePolicy(path)
    return ChoicePolicy.of_file(path) if meta.get("head") == CHOICES else TrainedPolicy(path)
