"""What depends on a scenario's kind: building, running, settling and recording; each call goes to the kind's part."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from noonward.errors import DataError, ScenarioError
from noonward.ledger.folder import MANIFEST
from noonward.model.kinds import CLUSTER, AnyScenario, find_kind


def build_environment(scenario: AnyScenario, index: int = 0, seed: int = 0) -> Any:
    """Returns one draw of a scenario: an ``Environment`` for one of kind ``cluster``.

    Args:
        scenario: Scenario.
        index: Number of the draw, at least 0.
        seed: Seed.

    Raises:
        ScenarioError: The scenario's parts do not fit.
        DataError: A file's content is wrong, or signals do not reach far enough.
    """
    return find_kind(scenario.kind).part("environment")(scenario, index, seed)


def build_environments(scenario: AnyScenario, count: int, seed: int = 0) -> Iterator[Any]:
    """Yields the first environments of a scenario.

    Raises:
        ScenarioError: The count is not positive, or as ``build_environment``.
    """
    if count < 1:
        raise ScenarioError(f"{count} environments were asked for; ask for at least 1")
    for index in range(count):
        yield build_environment(scenario, index, seed)


def check_fit(environment: Any, scheduler: Any, name: str) -> None:
    """Raises ScenarioError unless a scheduler can answer what an environment asks."""
    find_kind(environment.kind).part("check_fit")(environment, scheduler, name)


def remarks(environment: Any, scheduler: Any) -> tuple[str, ...]:
    """Returns what a reader of a scheduler's results in an environment must know."""
    notes: tuple[str, ...] = find_kind(environment.kind).part("remarks")(environment, scheduler)
    return notes


def run(environment: Any, scheduler: Any, *, seed: int = 0, **options: Any) -> Any:
    """Runs an environment under a scheduler and returns what became of it.

    Args:
        environment: What to run.
        scheduler: Who answers.
        seed: Seed of the policy's random streams.
        **options: Options of the kind's own run function (``noonward.engine.run.run`` for kind ``cluster``).

    Raises:
        ScenarioError: Scheduler and environment do not fit.
        InfeasibleActionError: The scheduler gave an infeasible answer.
    """
    return find_kind(environment.kind).part("run")(environment, scheduler, seed=seed, **options)


def settle(outcome: Any) -> Any:
    """Returns the ledger of a run: energy, money and carbon."""
    return find_kind(outcome.environment.kind).part("settle")(outcome)


def environment_digest(environment: Any) -> str:
    """Returns a digest of everything a run reads of its environment: equal for runs that are paired."""
    return str(find_kind(environment.kind).part("digest")(environment))


def record_files(
    outcome: Any, *, policy: str, seed: int, scenario_digest: str, code: str | None = None, notes: Sequence[str] = ()
) -> dict[str, bytes]:
    """Returns the content of a run's record by file name.

    Args:
        outcome: The run.
        policy: Name of the policy.
        seed: Seed of the policy's streams.
        scenario_digest: ``digest`` of the scenario.
        code: Digest of the sources that the run rests on; by default that of the whole package.
        notes: What a reader must know beside the environment's notes.
    """
    write = find_kind(outcome.environment.kind).part("record_files")
    files: dict[str, bytes] = write(
        outcome, policy=policy, seed=seed, scenario_digest=scenario_digest, code=code, notes=notes
    )
    return files


def read_record(folder: Path) -> Any:
    """Returns a run from its folder: a ``Record`` for one of kind ``cluster``.

    Raises:
        DataError: The folder is no complete record, is damaged, or is of another format.
    """
    try:
        kind = json.loads((folder / MANIFEST).read_text(encoding="utf-8")).get("kind", CLUSTER.name)
    except (OSError, ValueError, AttributeError, RecursionError):
        kind = CLUSTER.name  # whose reader says what is wrong
    try:
        read = find_kind(kind).part("read_record")
    except ScenarioError as error:
        raise DataError(f"{folder} is a run record of an unknown kind: {error}; run the policy again") from error
    return read(folder)
