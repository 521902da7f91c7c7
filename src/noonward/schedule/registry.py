"""The registry of schedulers: policies by name, in families, with roles, and with arguments given in their names."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from noonward.arguments import example
from noonward.decision.scheduler import Scheduler
from noonward.errors import ScenarioError, nearest
from noonward.model.cluster.setting import Protocol
from noonward.notices import tell
from noonward.schedule.families import Family, Role, Value
from noonward.schedule.trained_files import PolicyFile

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
        registered: Whether it is in a registry; False for one that is named by ``module:Class`` or by its file.
        foresees: Whether it knows future jobs or signals; None: its roles and needs say so (``clairvoyant``).
    """

    name: str
    make: Callable[[], Any]
    summary: str
    family: str
    roles: frozenset[Role] = frozenset()
    kind: str = "cluster"
    trained: PolicyFile | None = field(default=None, repr=False)
    packaged: bool = False
    registered: bool = True
    foresees: bool | None = None

    @property
    def portable(self) -> bool:
        """Whether another process finds it by its name: not if this program alone registered it."""
        return self.packaged or not self.registered

    @functools.cached_property
    def sample(self) -> Any:
        """One of it, made to be asked what it needs; it never runs."""
        return self.make()

    @functools.cached_property
    def clairvoyant(self) -> bool:
        """Whether it knows future jobs or signals: by its role, or one of your own by what it says it needs."""
        if self.foresees is not None:
            return self.foresees
        if self.packaged or "clairvoyant" in self.roles:
            return "clairvoyant" in self.roles
        needs = getattr(self.sample, "needs", None)
        forecast = getattr(needs, "forecast", None)
        return bool(getattr(needs, "foresight", False) or (forecast is not None and forecast.foresight))

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
        self._former: dict[str, str] = {}
        """Name of a policy by a name that it used to have."""

    def copy(self) -> Registry:
        """Returns a registry of the same policies, to which others can be added."""
        other = Registry()
        other._policies, other._families = dict(self._policies), dict(self._families)
        other._listed, other._former = dict(self._listed), dict(self._former)
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
            name: Short name, e.g. ``plan-hard``.
            family: Family.
            given: Arguments that are not defaults.
            kind: Kind of scenarios of the family.
        """
        of = self._families[kind, family]
        values = of.values(given or {})
        self.add(self._made(of, values, name))
        self._listed[kind, of.written(values)] = name

    def add_former_name(self, former: str, name: str) -> None:
        """Lets a policy be found by a name that it used to have; who listens is told of the new one (``renamed``).

        Raises:
            ValueError: The former name is that of another policy.
        """
        if self.knows(former):
            raise ValueError(f"a policy named {former!r} is registered already; it cannot be a former name")
        self._former[former] = name

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
        return any(first == known for _, known in (*self._families, *self._policies)) or first in self._former

    def find(self, name: str, kind: str | None = None) -> Policy:
        """Returns a policy by its name, which may give arguments: ``greedy-energy(gpus=4)``.

        A policy that has a short name is returned under it, also if it is asked for by a former name.

        Args:
            name: Name.
            kind: Kind of scenarios whose policy is meant where several kinds share the name.

        Raises:
            ScenarioError: There is no such policy, or an argument is unknown, missing or out of its range.

        Example:
            >>> from noonward.schedule.policies import default_registry
            >>> default_registry().find("greedy-energy( gpus = 4 )").name
            'greedy-energy(gpus=4)'
            >>> default_registry().find("random").kind, default_registry().find("random", "edge").kind
            ('cluster', 'edge')
        """
        if name in self._former:
            tell("renamed", f"policy {name!r} is now named {self._former[name]!r}")
            name = self._former[name]
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
            close = self._meant(first, kind) or nearest(first, known, list_all=False)
            close = close or "'noonward policies' lists those there are"
            raise ScenarioError(f"unknown policy {name!r}; {close}")
        try:
            values = family.values(family.read(text))
        except ValueError as error:
            raise ScenarioError(f"policy {name!r}: {error}") from None
        written = family.written(values)
        if (family.kind, written) in self._listed:
            return self._policies[family.kind, self._listed[family.kind, written]]
        return self._made(family, values, written)

    def _meant(self, name: str, kind: str | None) -> str:
        """Returns what to do about ``FAMILY-NUMBER`` and ``POLICY-seedNUMBER``; empty for other names."""
        first, _, number = name.rpartition("-")
        if re.fullmatch(r"seed\d+", number) and _of_kind(self._policies, first, kind) is not None:
            return (
                "nets of further training seeds lie in studies-data/nets of the repository; name the folder by the "
                "environment variable NOONWARD_NETS (reproduce: --nets)"
            )
        family = _of_kind(self._families, first, kind)
        if family is None or len(family.arguments) != 1 or not number.isdigit():
            return ""
        return f"write {first}({next(iter(family.arguments))}={number})"

    def example(self, family: Family) -> Policy:
        """Returns some policy of a family: with the first value that each argument without a default allows."""
        values = family.values(
            {name: example(each.annotation) for name, each in family.arguments.items() if each.default is each.empty}
        )
        return self._made(family, values, family.written(values))

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
