"""Your own scenario, from what ``noonward init`` is told: its text, checked, and its job table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import yaml

from noonward.data.scenarios.load import scenario_from
from noonward.data.scenarios.own_fleet import OwnFleet
from noonward.data.scenarios.own_jobs import dated_rows, own_jobs, with_classes
from noonward.data.scenarios.own_text import scenario_text
from noonward.data.scenarios.own_window import own_window
from noonward.files import write_table
from noonward.model.cluster.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Written:
    """Your own scenario.

    Attributes:
        text: Its YAML, commented.
        scenario: The same, validated.
        jobs: Job table whose places and classes were made those of the fleet, or None where the table is as it was.
        notes: What was decided.
    """

    text: str
    scenario: Scenario
    jobs: pl.DataFrame | None
    notes: tuple[str, ...]

    def tried_with(self, path: Path) -> Scenario:
        """Returns the scenario with its job table written to a place of its own, to try it before anything is kept.

        Args:
            path: Place of the table; used only if the table is a new one.
        """
        if self.jobs is None:
            return self.scenario
        write_table(path, self.jobs)
        return self.scenario.model_copy(update={"jobs": self.scenario.jobs.model_copy(update={"path": path})})


def write_own_fleet(asked: OwnFleet, folder: Path, policies: Sequence[str] = ()) -> Written:
    """Returns your own scenario.

    Args:
        asked: What it is made from.
        folder: Folder that the file will lie in; paths are written relative to it where they lie below.
        policies: Policies to compare; none: none are written.

    Raises:
        ScenarioError: The parts do not fit.
        DataError: A file cannot be read.
    """
    notes: list[str] = []
    asked = with_classes(asked, notes)
    table = own_jobs(asked, notes)
    rows = dated_rows(asked)
    if asked.by_type and rows is not None:
        frame = rows.table.frame if table is None else table
        asked = replace(asked, bound_classes=frozenset(frame["class"].unique().to_list()))
    first, hours = own_window(asked, notes)
    starts = rows is not None and rows.start_s_J is not None and not np.isnan(rows.start_s_J).all()
    text = scenario_text(asked, folder, table is not None, starts, first, hours, policies)
    scenario = scenario_from(yaml.safe_load(text), f"{asked.name}.yaml", folder)
    return Written(text=text, scenario=scenario, jobs=table, notes=tuple(notes))
