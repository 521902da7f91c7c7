"""Tables of the study: IX to XII beside ours, shares of the gap, values below the bound, energy per image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noonward.evaluate.statistics import Estimate, mean
from noonward.evaluate.table import UNDEFINED, TextTable, number, percent
from noonward.studies.edge_inference.published import (
    DECISION_MS,
    PAPER,
    PAPER_NAME,
    Cell,
    paper_value,
)
from noonward.studies.edge_inference.reproduce import ENDS, TIMED, EdgeInference

_QUANTITIES: Final = (
    ("response_s", "Response, s (Table X)", lambda e: number(e, 1), lambda v: f"{v:.1f}"),
    ("quality", "Quality (Table IX)", lambda e: number(e, 3), lambda v: f"{v:.3f}"),
    ("reload_rate", "Launches that load (Table XI)", lambda e: number(e, 2), lambda v: f"{v:.2f}"),
)


def study_tables(found: EdgeInference) -> list[TextTable]:
    """Returns all tables."""
    tables: list[TextTable] = []
    by_servers: dict[int, list[Cell]] = {}
    for cell in found.cells:
        by_servers.setdefault(cell[0], []).append(cell)
    for quantity, title, ours, papers in _QUANTITIES:
        tables += [_quantity(found, cells, quantity, title, ours, papers) for cells in by_servers.values()]
    tables += [gap_table(found, cells) for cells in by_servers.values()]
    tables += [below_table(found), decision_table(found), energy_table(found)]
    return tables


def _header(cells: list[Cell]) -> tuple[str, ...]:
    return ("policy", *(f"{rate:.2f}/s" for _, rate in cells))


def _quantity(
    found: EdgeInference,
    cells: list[Cell],
    quantity: str,
    title: str,
    ours: Callable[[Estimate], str],
    papers: Callable[[float], str],
) -> TextTable:
    """Returns our values of a quantity with their intervals, and the paper's in brackets."""
    rows = []
    for policy in (*(ENDS if quantity == "response_s" else ()), *found.policies):
        cells_text = []
        for cell in cells:
            estimate, known = found.estimate(quantity, policy, cell), paper_value(quantity, policy, cell)
            text = UNDEFINED if estimate is None else ours(estimate)
            cells_text.append(text if known is None else f"{text} ({papers(known)})")
        rows.append((ENDS.get(policy, policy), *cells_text))
    absent = [name for name in PAPER[quantity] if name not in {PAPER_NAME.get(policy) for policy in found.policies}]
    rows += [(f"{name} (paper)", *(f"({papers(PAPER[quantity][name][cell])})" for cell in cells)) for name in absent]
    return TextTable(
        title=f"{title}, {cells[0][0]} servers",
        header=_header(cells),
        rows=tuple(rows),
        caption=f"Mean ± half of the 95% interval over {found.episodes} episodes; the paper's value in brackets.",
    )


def gap_table(found: EdgeInference, cells: list[Cell]) -> TextTable:
    """Returns the share of the gap from reuse-first to the bound that every policy closes."""
    rows = []
    for policy in ("beam", *found.policies):
        estimates = [found.estimate("improvement_share", policy, cell) for cell in cells]
        rows.append((ENDS.get(policy, policy), *(UNDEFINED if e is None else percent(e) for e in estimates)))
    return TextTable(
        title=f"Share of possible improvement over reuse-first, %, {cells[0][0]} servers",
        header=_header(cells),
        rows=tuple(rows),
        caption="Paired over the episodes, with the 95% interval; 100 is the bound, for 24 steps. A policy that gives "
        "fewer steps closes more of it with worse images.",
    )


def values_below(found: EdgeInference) -> list[tuple[str, Cell, float, float, str, float, float]]:
    """Returns the paper's responses below a bound that holds at their quality.

    Returns:
        (paper's policy, cell, its response, its quality, floor, bound if all images have the floor's quality, bound at
        any quality); the floor is the highest whose quality is not above the paper's.
    """
    out = []
    for name, row in PAPER["response_s"].items():
        for cell in found.cells:
            floors = {floor: mean(values_E).value for floor, values_E in found.floors[cell].items()}
            quality = PAPER["quality"][name][cell]
            reached = [floor for floor in floors if _quality_of(floor) <= quality]
            floor = max(reached, key=_quality_of)
            if row[cell] < floors[floor]:
                out.append((name, cell, row[cell], quality, floor, floors[floor], floors["any quality"]))
    return out


def _quality_of(floor: str) -> float:
    """Returns the quality of a floor's images; 0 for any quality."""
    return 0.0 if floor == "any quality" else float(floor.split()[1])


def below_table(found: EdgeInference) -> TextTable:
    """Returns the paper's values that lie below the bound."""
    rows = tuple(
        (
            name,
            f"{cell[0]} servers, {cell[1]:.2f}/s",
            f"{value:.1f}",
            f"{quality:.3f}",
            f"{bound:.1f} ({floor})",
            f"{least:.1f}",
        )
        for name, cell, value, quality, floor, bound, least in values_below(found)
    )
    return TextTable(
        title="The paper's responses below the bound",
        header=("policy", "where", "paper, s", "its quality", "bound at no more quality, s", "bound at any quality, s"),
        rows=rows or (("none", *[UNDEFINED] * 5),),
        caption="No scheduler reaches them in the public simulator with images that all have that quality; those below "
        "the last column not even with images of 5 steps. The paper's own episodes may differ by some seconds.",
    )


def decision_table(found: EdgeInference) -> TextTable:
    """Returns the CPU time of a decision (Table XII)."""
    rows = []
    for policy, spent_ms in found.decision_ms.items():
        known = DECISION_MS.get(PAPER_NAME.get(policy, ""))
        rows.append((policy, f"{spent_ms:.3f}", UNDEFINED if known is None else f"{known:g}" if known else "about 0"))
    return TextTable(
        title="Time of a decision, ms (Table XII)",
        header=("policy", "ours, CPU ms", "paper, ms"),
        rows=tuple(rows),
        caption=f"{TIMED[0]} servers, {TIMED[1]:.2f}/s, asked from Python; in the compiled loop rules take "
        "microseconds. Ours is asked only when something can be launched.",
    )


def energy_table(found: EdgeInference) -> TextTable:
    """Returns energy, cost and emissions per image at the middle rate of each number of servers."""
    by_servers: dict[int, list[Cell]] = {}
    for cell in found.cells:
        by_servers.setdefault(cell[0], []).append(cell)
    middle = [cells[len(cells) // 2] for cells in by_servers.values()]
    rows = []
    for policy in found.policies:
        texts = []
        for cell in middle:
            some = [found.estimate(name, policy, cell) for name in ("joules_per_image", "usd_per_image", "g_per_image")]
            scaled = zip(some, (1.0, 1000.0, 1.0), ("{:,.0f}", "{:.3f}", "{:.3f}"), strict=True)
            texts += [UNDEFINED if e is None else form.format(scale * e.value) for e, scale, form in scaled]
        rows.append((policy, *texts))
    units = ("J/image", "USD/1000 images", "gCO2/image")
    return TextTable(
        title="Energy, cost and emissions of an image",
        header=("policy", *(f"{unit}, {cell[0]} servers, {cell[1]:.2f}/s" for cell in middle for unit in units)),
        rows=tuple(rows),
        caption="Loads and runs beyond what the servers draw idle. The servers' powers are ours: no paper gives them.",
    )
