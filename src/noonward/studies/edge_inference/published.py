"""What the EAT paper reports: Tables IX to XII, at fifteen arrival rates of 4, 8 and 12 servers."""

from __future__ import annotations

from typing import Final

Cell = tuple[int, float]
"""Servers, and arrivals per second."""
RATES: Final[dict[int, tuple[float, ...]]] = {
    4: (0.01, 0.03, 0.05, 0.07, 0.09),
    8: (0.06, 0.08, 0.10, 0.12, 0.14),
    12: (0.11, 0.13, 0.15, 0.17, 0.19),
}
"""Arrivals per second, by servers."""
CELLS: Final[tuple[Cell, ...]] = tuple((servers, rate) for servers, rates in RATES.items() for rate in rates)
"""Columns of the paper's tables."""
PAPER_NAME: Final = {
    "eat": "EAT",
    "eat-a": "EAT-A",
    "eat-d": "EAT-D",
    "eat-da": "EAT-DA",
    "ppo": "PPO",
    "genetic": "Genetic",
    "harmony": "Harmony",
    "random": "Random",
    "greedy": "Greedy",
    "eat-published": "EAT",
}
"""The paper's name of a policy; ``eat-published`` is EAT with the faults of the authors' public code."""
_QUALITY: Final = {
    "EAT": ".256 .264 .262 .262 .262 .260 .261 .261 .261 .262 .264 .262 .260 .260 .262",
    "EAT-A": ".259 .262 .265 .265 .264 .261 .261 .262 .265 .264 .265 .265 .265 .265 .265",
    "EAT-D": ".255 .255 .249 .243 .245 .255 .254 .253 .251 .250 .261 .265 .264 .262 .262",
    "EAT-DA": ".260 .261 .263 .264 .263 .270 .269 .270 .269 .270 .269 .269 .270 .269 .270",
    "PPO": ".228 .228 .228 .228 .228 .228 .228 .228 .228 .228 .228 .228 .228 .228 .228",
    "Genetic": ".202 .216 .188 .189 .203 .201 .224 .224 .219 .219 .199 .224 .222 .223 .223",
    "Harmony": ".214 .214 .204 .198 .203 .185 .196 .196 .202 .202 .211 .183 .177 .177 .211",
    "Random": ".197 .193 .192 .194 .195 .193 .192 .190 .200 .187 .189 .190 .197 .190 .186",
    "Greedy": ".270 .270 .270 .270 .270 .270 .270 .270 .270 .270 .270 .270 .270 .270 .270",
}
_RESPONSE: Final = {
    "EAT": "30.3 21.4 39.7 52.5 100.9 50.0 56.9 76.1 84.0 91.1 27.2 36.5 38.7 36.7 41.5",
    "EAT-A": "32.8 21.0 55.7 79.8 101.1 49.6 73.3 89.9 100.0 102.9 36.0 41.0 41.0 55.4 43.0",
    "EAT-D": "72.8 64.2 111.1 135.5 158.4 70.9 69.0 101.0 122.3 121.7 42.8 43.0 43.1 49.9 48.6",
    "EAT-DA": "57.0 39.1 95.0 133.0 170.3 74.3 79.7 96.0 110.0 131.2 46.0 46.3 46.1 50.3 47.2",
    "PPO": "65.0 71.7 127.3 147.1 155.9 80.0 84.2 105.0 96.8 96.8 45.4 44.3 42.7 49.4 49.4",
    "Genetic": "36.5 36.4 43.4 46.5 70.5 35.5 37.0 37.0 40.5 40.5 25.6 24.7 24.6 26.6 25.9",
    "Harmony": "41.3 39.4 51.6 58.4 78.7 41.1 33.7 33.7 39.2 39.2 29.9 24.8 23.2 26.1 29.3",
    "Random": "47.9 48.7 56.1 57.9 62.4 49.0 51.5 52.5 53.4 59.3 30.2 35.1 34.7 33.6 37.9",
    "Greedy": "64.1 86.6 154.2 176.1 182.8 91.7 105.6 117.2 128.6 131.1 51.4 53.5 53.9 59.9 56.3",
}
_RELOAD: Final = {
    "EAT": ".605 .547 .633 .594 .625 .761 .634 .604 .570 .651 .375 .430 .328 .411 .430",
    "EAT-A": ".629 .573 .667 .636 .605 .719 .653 .695 .617 .581 .473 .430 .386 .419 .460",
    "EAT-D": ".673 .717 .673 .791 .639 .844 .756 .706 .694 .713 .556 .537 .506 .531 .534",
    "EAT-DA": ".734 .675 .700 .700 .794 .774 .750 .719 .719 .833 .533 .519 .566 .512 .591",
    "PPO": ".723 .675 .655 .736 .697 .812 .750 .688 .734 .713 .625 .531 .487 .531 .562",
    "Genetic": ".761 .813 .850 .654 .767 .769 .846 .846 .897 .917 .635 .521 .521 .593 .614",
    "Harmony": ".739 .819 .726 .717 .873 .917 .846 .806 .844 .814 .700 .557 .545 .614 .700",
    "Random": ".775 .868 .802 .786 .905 .887 .909 .870 .843 .854 .648 .626 .586 .564 .602",
    "Greedy": ".551 .542 .586 .504 .516 .594 .578 .578 .527 .550 .468 .411 .398 .403 .448",
}


def _table(rows: dict[str, str]) -> dict[str, dict[Cell, float]]:
    return {name: dict(zip(CELLS, map(float, row.split()), strict=True)) for name, row in rows.items()}


PAPER: Final = {
    "quality": _table(_QUALITY),
    "response_s": _table(_RESPONSE),
    "reload_rate": _table(_RELOAD),
}
"""Tables IX, X and XI: value by quantity, policy and cell."""
DECISION_MS: Final = {
    "Greedy": 23.8,
    "EAT": 11.2,
    "EAT-A": 9.88,
    "EAT-DA": 1.18,
    "PPO": 1.08,
    "Random": 0.0,
    "Genetic": 0.0,
    "Harmony": 0.0,
}
"""Table XII, ms a decision; 0 stands for "about 0"; EAT-D is not given."""


def paper_value(quantity: str, policy: str, cell: Cell) -> float | None:
    """Returns the paper's value of one of our policies, None where it has none."""
    row = PAPER[quantity].get(PAPER_NAME.get(policy, ""))
    return None if row is None else row[cell]
