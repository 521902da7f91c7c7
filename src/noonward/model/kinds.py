"""Kinds of scenarios: which there are, and where the parts of each are found. A part is imported when it is used."""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any, Final, Protocol

from noonward.errors import ScenarioError, nearest


class AnyScenario(Protocol):
    """What scenarios of every kind have; a kind's own model has more."""

    @property
    def kind(self) -> str:
        """Name of the kind."""

    @property
    def name(self) -> str:
        """Name."""

    @property
    def description(self) -> str:
        """What the scenario is, in a sentence or two."""

    @property
    def baseline(self) -> str | None:
        """Policy that comparisons are made against."""

    @property
    def policies(self) -> tuple[str, ...]:
        """Policies that ``compare`` runs if none are named."""

    @property
    def digest(self) -> str:
        """Digest of everything that a run depends on."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of scenarios. Every part but the name is an object, or says where it is: ``module:name``.

    Attributes:
        name: Value of ``kind`` in scenario files.
        scenario: The scenario's model, a pydantic model with the fields of ``AnyScenario``; ``kind`` is a literal.
        with_files: ``(scenario, signals, jobs) -> content``: the content of the scenario's file when it takes signals
            (a list of paths, perhaps empty) and jobs (a path or None) from files.
        environment: ``(scenario, index, seed) -> environment``; the environment has ``kind``, ``index``, ``notes``.
        check_fit: ``(environment, scheduler, name)``; raises ScenarioError where the two do not fit.
        remarks: ``(environment, scheduler) -> notes``: what a reader of the scheduler's results must know.
        run: ``(environment, scheduler, *, seed) -> outcome``; the outcome has ``environment``.
        resumes: Whether it also takes ``checkpoint`` (``noonward.engine.checkpoint.Checkpoint``).
        settle: ``outcome -> ledger``; the ledger has ``as_dict()``.
        digest: ``environment -> str``, equal for environments in which every run gives the same.
        record_files: ``(outcome, *, policy, seed, scenario_digest, code, notes) -> {file name: content}``; among them
            ``manifest.json`` with ``kind`` (``noonward.ledger.record`` says what else it holds). ``code`` is the
            digest of the sources that the run rests on.
        read_record: ``folder -> record``; the record has ``folder``, ``manifest`` and ``ledger``. It raises DataError
            where the folder is damaged (``noonward.ledger.folder.read_json_files`` finds that out).
        describe: ``environment -> str``: what a check of the scenario prints.
        objective: ``scenario -> noonward.evaluate.comparison.Objective``.
    """

    name: str
    scenario: Any
    with_files: Any
    environment: Any
    check_fit: Any
    remarks: Any
    run: Any
    settle: Any
    digest: Any
    record_files: Any
    read_record: Any
    describe: Any
    objective: Any
    resumes: bool = False

    @property
    def portable(self) -> bool:
        """Whether other processes know the kind: it comes with this package."""
        return self in PACKAGED

    def part(self, name: str) -> Any:
        """Returns a part, imported if it is given by where it is.

        Example:
            >>> find_kind("cluster").part("scenario").__name__
            'Scenario'
        """
        said = getattr(self, name)
        if not isinstance(said, str):
            return said
        module, _, attribute = said.partition(":")
        return getattr(importlib.import_module(module), attribute)


CLUSTER = Kind(
    name="cluster",
    scenario="noonward.model.cluster.scenario:Scenario",
    with_files="noonward.data.scenarios.load:content_with_files",
    environment="noonward.data.environments:build_environment",
    check_fit="noonward.runtime.cluster_kind:check_fit",
    remarks="noonward.runtime.cluster_kind:remarks",
    run="noonward.engine.run:run",
    settle="noonward.ledger.ledger:settle",
    digest="noonward.ledger.record:environment_digest",
    record_files="noonward.ledger.record:record_files",
    read_record="noonward.ledger.record:read_record",
    describe="noonward.data.environments:describe_environment",
    objective="noonward.evaluate.cluster_objectives:objective_of",
    resumes=True,
)
"""Jobs on GPUs at several sites."""
EDGE = Kind(
    name="edge",
    scenario="noonward.model.edge.scenario:EdgeScenario",
    with_files="noonward.runtime.edge_kind:content_with_files",
    environment="noonward.data.edge.environments:build_edge_environment",
    check_fit="noonward.runtime.edge_kind:check_fit",
    remarks="noonward.runtime.edge_kind:remarks",
    run="noonward.engine.edge.engine:run_edge_environment",
    settle="noonward.ledger.edge:settle_edge",
    digest="noonward.ledger.edge_record:edge_environment_digest",
    record_files="noonward.ledger.edge_record:edge_record_files",
    read_record="noonward.ledger.edge_record:read_edge_record",
    describe="noonward.data.edge.environments:describe_edge_environment",
    objective="noonward.evaluate.edge_objective:objective_of",
)
"""Image tasks on gangs of edge servers."""
PACKAGED: Final = (CLUSTER, EDGE)
"""Kinds that come with this package."""


@functools.cache
def kinds() -> dict[str, Kind]:
    """Returns the kinds by name; another one is added by ``add_kind``."""
    return {kind.name: kind for kind in PACKAGED}


def add_kind(kind: Kind) -> None:
    """Adds a kind of scenarios to this process.

    Raises:
        ValueError: The name is taken.
    """
    if kind.name in kinds():
        raise ValueError(f"a kind of scenarios named {kind.name!r} is there already; choose another name")
    kinds()[kind.name] = kind


def find_kind(name: object) -> Kind:
    """Returns a kind by its name.

    Raises:
        ScenarioError: There is none of that name.
    """
    known = kinds()
    if not isinstance(name, str) or name not in known:
        raise ScenarioError(f"unknown kind of scenario {name!r}; {nearest(str(name), known)}")
    return known[name]
