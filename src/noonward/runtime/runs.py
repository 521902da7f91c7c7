"""Specs of recorded runs: one policy in one environment, run unless its record is there, and recorded."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from noonward.errors import DataError, NoonwardError, SchedulerError
from noonward.files import file_name
from noonward.ledger.folder import MANIFEST, write_files
from noonward.ledger.record import Record
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import Scenario
from noonward.model.kinds import find_kind
from noonward.notices import tell
from noonward.runtime.by_kind import build_environment, environment_digest, read_record, record_files, remarks, run
from noonward.runtime.rests_on import run_digest
from noonward.runtime.shared import shared
from noonward.schedule.registry import Policy

PACKAGE: Final = Path(__file__).parents[1]
"""Folder of this package."""
_LIBRARY: Final = sysconfig.get_path("stdlib")


@dataclass(frozen=True)
class Draw:
    """An environment by what it is drawn from: all runs in it share it (``noonward.runtime.shared``).

    Attributes:
        scenario: Scenario.
        index: Number of the environment.
        seed: Seed.
    """

    scenario: Scenario
    index: int
    seed: int

    @property
    def key(self) -> Hashable:
        """All that the environment depends on."""
        return self.scenario.model_dump_json(), self.index, self.seed

    def make(self) -> Environment:
        """Builds the environment."""
        environment: Environment = build_environment(self.scenario, self.index, self.seed)
        return environment


def environment_of(scenario: Scenario, index: int, seed: int) -> Environment:
    """Returns an environment; the last ones are kept, so that all policies of one share what is built once."""
    draw = Draw(scenario, index, seed)
    environment: Environment = shared(draw.key, draw.make)
    return environment


def _is_own(file: str) -> bool:
    """Returns whether a traceback's file is a user's: neither of this package nor of an installed one."""
    place = Path(file)
    installed = {"site-packages", "dist-packages"} & set(place.parts) or place.is_relative_to(_LIBRARY)
    return not (file.startswith("<") or installed or place.is_relative_to(PACKAGE))


@contextmanager
def blaming(policy: str, *, packaged: bool) -> Iterator[None]:
    """Turns an error inside a user's own scheduler into one that says in which file and line it happened.

    Args:
        policy: Policy's name.
        packaged: Whether it belongs to this package: its errors are defects of ours and stay as they are.

    Raises:
        SchedulerError: Code outside this package, at the deepest, raised an error that is none of ours.
    """
    try:
        yield
    except NoonwardError:
        raise
    except Exception as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
        if packaged or not own:
            raise
        where, trace = own[-1], "".join(traceback.format_exception(error))
        raise SchedulerError(
            f"policy {policy!r} failed at {where.filename}, line {where.lineno}, in {where.name}: {where.line}\n"
            f"  {type(error).__name__}: {error}\n  mend that line; --traceback shows the full traceback",
            trace,
        ) from error


@dataclass(frozen=True)
class RecordedRun:
    """A run with its record.

    Attributes:
        scenario: Scenario.
        index: Number of the environment.
        seed: Seed of environment and policy.
        policy: Policy.
        folder: Folder of all records of the comparison; a record that lies there already is taken where it is of the
            same world, policy and version.
        notes: Notes of the environment in place of its own; None: its own.
    """

    scenario: Scenario
    index: int
    seed: int
    policy: Policy
    folder: Path
    notes: tuple[str, ...] | None = None

    @property
    def label(self) -> str:
        """Policy and environment."""
        return f"{self.policy.name}, environment {self.index}"

    @property
    def group(self) -> Hashable:
        """Runs in one environment share it."""
        return self.scenario.name, self.index

    @property
    def shares(self) -> Draw:
        """The environment."""
        return Draw(self.scenario, self.index, self.seed)

    @property
    def portable(self) -> bool:
        """Whether another process knows kind and policy: not if this program alone registered them."""
        return find_kind(self.scenario.kind).portable and self.policy.portable

    @property
    def place(self) -> Path:
        """Folder of the record."""
        return self.folder / file_name(self.policy.name) / f"{self.index:03d}"

    def environment(self) -> Environment:
        """Returns the environment."""
        drawn = environment_of(self.scenario, self.index, self.seed)
        return drawn if self.notes is None else replace(drawn, notes=self.notes)

    def run(self) -> dict[str, bytes] | None:
        """Returns the record's files; None where the record that lies there stands."""
        environment = self.environment()
        scheduler = self.policy.make()
        code = run_digest(find_kind(self.scenario.kind), self.policy, scheduler)
        if self._stands(environment, code):
            return None
        with blaming(self.policy.name, packaged=self.policy.packaged):
            outcome = run(environment, scheduler, seed=self.seed, **self._options(code))
        return record_files(
            outcome,
            policy=self.policy.name,
            seed=self.seed,
            scenario_digest=self.scenario.digest,
            code=code,
            notes=remarks(environment, scheduler),
        )

    def keep(self, found: dict[str, bytes] | None) -> Record:
        """Writes the record, if there is a new one, and returns it."""
        if found is not None:
            write_files(found, self.place)
        self._checkpoint.unlink(missing_ok=True)
        record: Record = read_record(self.place)
        return record

    @property
    def _checkpoint(self) -> Path:
        """File that holds the run while it is under way, beside the folder of its record."""
        return self.place.with_suffix(".checkpoint")

    def _options(self, code: str) -> dict[str, Any]:
        """Returns the options of the run: where it is kept while it is under way.

        A run is kept like its record: under a packaged policy alone, and where the folder of all records is, which a
        worker on another machine may not reach.

        Args:
            code: ``run_digest``.
        """
        if not (find_kind(self.scenario.kind).resumes and self.policy.packaged and self.folder.is_dir()):
            return {}
        from noonward.engine.checkpoint import Checkpoint

        about = {"policy": self.policy.name, "scenario": self.scenario.digest, "version": code}
        return {"checkpoint": Checkpoint(self._checkpoint, about=about, strict=False)}

    def _stands(self, environment: Environment, code: str) -> bool:
        """Returns whether the record that lies there is of the same world, policy and version.

        A policy of one's own, code or trained file, may have changed since it was recorded: it runs again.
        """
        try:
            manifest = read_record(self.place).manifest
        except DataError as error:
            if (self.place / MANIFEST).is_file() and self.policy.packaged:
                tell("record", str(error))
            return False
        return bool(
            self.policy.packaged
            and manifest["environment_digest"] == environment_digest(environment)
            and manifest["scenario_digest"] == self.scenario.digest
            and manifest["policy"] == self.policy.name
            and manifest["policy_seed"] == self.seed
            and manifest["versions"]["code"] == code
        )
