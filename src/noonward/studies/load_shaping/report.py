"""The report of ``reproduce load-shaping``."""

from __future__ import annotations

from pathlib import Path

from noonward.evaluate.report.page import write_figures
from noonward.studies.load_shaping.figures import load_shaping_figures
from noonward.studies.load_shaping.reproduce import TRAINING, VALIDATION, LoadShaping


def write_load_shaping(found: LoadShaping, path: Path, *, draws: int, seed: int, command: str) -> Path:
    """Writes the report, one HTML file that loads nothing from anywhere.

    Args:
        found: Results.
        path: File; its folder is made.
        draws: Draws of days.
        seed: Seed of the draws.
        command: The command that made it.
    """
    return write_figures(
        "Day-ahead plans with probabilistic guarantees",
        f"Load shapes: {found.source}. {draws} draws of {TRAINING} training and {VALIDATION} validation days, seed "
        f"{seed}. Costs are those of the realised load, as a fraction above the plan that knows the day.",
        found.metrics(),
        load_shaping_figures(found),
        path,
        command=command,
    )
