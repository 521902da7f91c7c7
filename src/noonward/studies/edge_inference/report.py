"""The report of ``reproduce edge-inference``: findings, tables, figures."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from noonward.evaluate.report.page import write_tables
from noonward.evaluate.statistics import mean
from noonward.studies.edge_inference.figures import study_figures
from noonward.studies.edge_inference.published import PAPER
from noonward.studies.edge_inference.reproduce import LEARNED, EdgeInference, cell_scenario
from noonward.studies.edge_inference.tables import study_tables, values_below

BEST: Final = (
    *("patient-reuse", "lookahead", "sampled-lookahead", "queue-lookahead", "priced-lookahead"),
    "priced-sampled-lookahead",
)
"""The best rules, whose share of the possible improvement the report states."""


def write_edge_inference(found: EdgeInference, path: Path, *, command: str) -> Path:
    """Writes the report, one HTML file that loads nothing from anywhere.

    Args:
        found: Results.
        path: File; its folder is made.
        command: The command that made it.
    """
    rates = {servers: [rate for n, rate in found.cells if n == servers] for servers, _ in found.cells}
    cells = ", ".join(
        f"{servers} servers at {', '.join(f'{rate:.2f}' for rate in some)}/s" for servers, some in rates.items()
    )
    lead = (
        f"EAT's comparison in the values of its public simulator, {found.episodes} episodes a cell, the same for every "
        f"policy; rules give 24 steps (quality .264). Cells: {cells}. Episodes run until every image is finished."
    )
    records = [record for each in found.cells.values() for some in each.records.values() for record in some]
    notes = sorted({note for record in records for note in record.manifest["notes"]})
    return write_tables(
        "Image generation on edge servers (EAT)",
        lead,
        study_tables(found),
        study_figures(found),
        path,
        command=command,
        notes=notes,
        findings=findings(found),
    )


def findings(found: EdgeInference) -> list[str]:
    """Returns what was found, a sentence or two each."""
    out = [*_best(found), *_learned(found), *_quality(found)]
    if found.missing:
        out.append(f"Without a row, because no trained file of them is packaged: {', '.join(found.missing)}.")
    below = [each for each in values_below(found) if each[0] == "EAT"]
    impossible = [each for each in below if each[2] < each[6]]
    if below:
        where = ", ".join(
            f"{cell[0]} servers at {cell[1]:.2f}/s ({value:.1f} s, bound {bound:.1f} s at {floor})"
            for _, cell, value, _, floor, bound, _ in below
        )
        out.append(
            f"The paper's EAT lies below the bound that holds at its quality in {len(below)} of {len(found.cells)} "
            f"cells: {where}; in {len(impossible)} of them even below the bound for images of 5 steps. No scheduler "
            "reaches these values in the public simulator."
        )
    above = [cell for cell in found.cells if PAPER["response_s"]["EAT"][cell] > _response(found, "reuse-first", cell)]
    if above:
        out.append(
            f"In {len(above)} of {len(found.cells)} cells the paper's EAT is slower than reuse-first, a rule of two "
            "lines: the oldest task that finds its model loaded, else the oldest whose gang is idle."
        )
    gap = [_gap_of_beam(found, cell) for cell in found.cells]
    known = [value for value in gap if value is not None]
    if known:
        out.append(
            f"The schedule of the clairvoyant beam lies {100 * min(known):.0f} to {100 * max(known):.0f}% above the "
            "bound: at most so much of the gap is the bound's own."
        )
    return out


def _response(found: EdgeInference, policy: str, cell: tuple[int, float]) -> float:
    estimate = found.estimate("response_s", policy, cell)
    return float("nan") if estimate is None else estimate.value


def _gap_of_beam(found: EdgeInference, cell: tuple[int, float]) -> float | None:
    bound, beam = found.estimate("response_s", "bound", cell), found.estimate("response_s", "beam", cell)
    return None if bound is None or beam is None else beam.value / bound.value - 1


def _best(found: EdgeInference) -> list[str]:
    """Returns what the best rules close of the gap."""
    out = []
    for policy in BEST:
        shares = [found.estimate("improvement_share", policy, cell) for cell in found.cells]
        known = [share.value for share in shares if share is not None]
        saved = [1 - _response(found, policy, cell) / _response(found, "reuse-first", cell) for cell in found.cells]
        if known and policy in found.policies and "reuse-first" in found.policies:
            out.append(
                f"{policy} responds {100 * min(saved):.0f} to {100 * max(saved):.0f}% sooner than reuse-first and "
                f"closes {100 * min(known):.0f} to {100 * max(known):.0f}% of the possible improvement over it."
            )
    return out


def _learned(found: EdgeInference) -> list[str]:
    """Returns how each learned policy stands against the rules, paired, where it is there."""
    out = []
    for policy in [name for name in found.policies if name in LEARNED]:
        others, better, worse = [], [], []
        for other in ("reuse-first", "patient-reuse", "lookahead", "priced-lookahead"):
            pairs = [
                mean(each.values(policy, "response_s") - each.values(other, "response_s"))
                for each in found.cells.values()
                if {policy, other} <= set(each.records)
            ]
            if pairs:
                others.append(other)
                better.append(str(sum(each.high is not None and each.high < 0 for each in pairs)))
                worse.append(str(sum(each.low is not None and each.low > 0 for each in pairs)))
        if others:
            out.append(
                f"{policy} responds sooner than {', '.join(others)} in {', '.join(better)} of {len(found.cells)} "
                f"cells, and later in {', '.join(worse)}, paired and beyond the 95% interval."
            )
    return out


def _quality(found: EdgeInference) -> list[str]:
    """Returns which policies miss the goal of the mean quality, and where."""
    goal = cell_scenario(next(iter(found.cells))).quality_goal
    means = {
        name: [found.estimate("quality", name, cell) for cell, each in found.cells.items() if name in each.records]
        for name in found.policies
    }
    missed = {name: sum(each is not None and each.value < goal for each in some) for name, some in means.items()}
    said = [f"{name} in {count} of {len(means[name])} cells" for name, count in missed.items() if count]
    return [f"Below a mean quality of {goal:g}: {', '.join(said)}."] if said else []
