"""Training, validation and test: months of the signals and seeds of the draws that never mix."""

from __future__ import annotations

from typing import Final, Literal

from noonward.errors import ScenarioError
from noonward.model.cluster.scenario import Scenario, SinusoidalSignals

Split = Literal["train", "validation", "test"]

MONTHS: Final[dict[Split, tuple[int, ...]]] = {
    "train": (1, 2, 5, 7, 8, 11),
    "validation": (4, 10),
    "test": (3, 6, 9, 12),
}
"""Months whose windows each part may use: every season is in training, none of the test's months."""
FIRST_SEED: Final[dict[Split, int]] = {"train": 10_000, "validation": 20_000, "test": 0}
"""First seed of each part's environments; each part has 10,000."""
SEEDS: Final = 10_000


def split_scenario(scenario: Scenario, part: Split) -> Scenario:
    """Returns a scenario whose windows lie in the months of one part; without signals, the scenario itself.

    Args:
        scenario: Scenario; months it leaves out already stay out.
        part: ``train``, ``validation`` or ``test``.

    Raises:
        ScenarioError: No month is left.

    Example:
        >>> from noonward.data.scenarios.load import load_scenario
        >>> split_scenario(load_scenario("fine-tuning"), "test").signals.months
        (3, 6, 9, 12)
    """
    if scenario.signals is None or isinstance(scenario.signals, SinusoidalSignals):
        return scenario
    months = tuple(month for month in scenario.signals.months if month in MONTHS[part])
    if not months:
        raise ScenarioError(
            f"scenario {scenario.name!r} has signals of the months {scenario.signals.months}, none of which is for "
            f"{part} ({', '.join(map(str, MONTHS[part]))}); widen signals.months"
        )
    return scenario.model_copy(update={"signals": scenario.signals.model_copy(update={"months": months})})


def split_seed(part: Split, seed: int) -> int:
    """Returns the seed of a part's environments.

    Args:
        part: ``train``, ``validation`` or ``test``.
        seed: Number of the draw of environments, 0 to 9,999.

    Raises:
        ScenarioError: The number is out of range.

    Example:
        >>> split_seed("train", 2)
        10002
    """
    if not 0 <= seed < SEEDS:
        raise ScenarioError(f"seed {seed} of {part} environments; it must be from 0 to {SEEDS - 1}")
    return FIRST_SEED[part] + seed
