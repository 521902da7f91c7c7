"""Where a task's environments come from: a scenario, packaged or in a file, with changed values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where environments come from.

    Attributes:
        scenario: A packaged scenario or a YAML file.
        settings: Changed values of the scenario, ``key=value``.
        signals: Files of prices and carbon intensities instead of the scenario's own.
        jobs: Job table or trace instead of the scenario's own.
    """

    scenario: str
    settings: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    jobs: str | None = None

    def resolved(self) -> Source:
        """Returns the same source with absolute paths, so that a run can be resumed from any folder."""
        path = Path(self.scenario)
        return replace(
            self,
            scenario=str(path.resolve()) if path.is_file() else self.scenario,
            signals=tuple(str(Path(each).resolve()) for each in self.signals),
            jobs=None if self.jobs is None else str(Path(self.jobs).resolve()),
        )
