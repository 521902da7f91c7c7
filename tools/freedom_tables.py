"""Prints the tables of docs/freedoms-value.md from what 'noonward bound --freedom' printed, and draws its picture.

    python tools/freedom_tables.py FIGURES.json
    python tools/freedom_tables.py FIGURES.json --picture docs/images/freedoms-value.svg

FIGURES.json is the output of ``noonward bound SCENARIO --freedom LIST --policies LIST --loads LIST --json``.
"""

from __future__ import annotations

import argparse
import json
from html import escape
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 330, 60, 46, 52
COLORS = {"between-bounds": "#c6dbef", "found": "#6baed6", "policy": "#08306b"}
WORDS = {
    "between-bounds": "by the bounds",
    "found": "best schedule known",
    "policy": "best policy, over the best without",
}


class Figures:
    """What the command printed: figures by name, loads, freedoms and policies in order."""

    def __init__(self, path: Path) -> None:
        listed = json.loads(path.read_text(encoding="utf-8"))["figures"]
        self.of: dict[str, dict[str, Any]] = {each["name"]: each for each in listed}
        parts = [name.split("@") for name in self.of if name.startswith("utility_usd/") and name.count("@") == 2]
        self.loads = list(dict.fromkeys(load for _, _, load in parts))
        self.freedoms = [name for name in dict.fromkeys(name for _, name, _ in parts) if name != "none"]
        known = ("bound", "best-known")
        rows = dict.fromkeys(row.partition("/")[2] for row, _, _ in parts)
        self.policies = [name for name in rows if name not in known]

    def cell(self, name: str, digits: int = 1) -> str:
        """Returns a share in percent with its interval; a dash where nothing changes or nothing is known."""
        figure = self.of.get(name, {"value": None})
        if figure["value"] is None or figure["value"] == figure["low"] == 0:
            return "–"
        value, low, high = (f"{100 * figure[key]:.{digits}f}" for key in ("value", "low", "high"))
        return f"{value} [{low}, {high}]"

    def best_policy(self, freedom: str, load: str) -> float:
        """Returns what the best policy with a freedom earns more than the best one without, as a share of the bill."""
        best = [
            max(self.of[f"utility_usd/{policy}@{name}@{load}"]["value"] for policy in self.policies)
            for name in (freedom, "none")
        ]
        usd, share = (self.of[f"{kind}/most@{freedom}@{load}"]["value"] for kind in ("worth_usd", "worth_of_bill"))
        return (best[0] - best[1]) * share / usd


def worth_table(told: Figures) -> list[str]:
    """Returns what each freedom adds, share of the bill: to bound, best schedule known, and policies that use it."""
    cases = [(freedom, load) for load in told.loads for freedom in told.freedoms]
    using = [
        each for each in told.policies if any(told.cell(f"worth_of_bill/{each}@{f}@{load}") != "–" for f, load in cases)
    ]
    head = ["load", "freedom", "bound", "best schedule known", "best policies", *(f"`{each}`" for each in using)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for load in told.loads:
        for n, freedom in enumerate(told.freedoms):
            names = ["between-bounds", "found", *using]
            cells = [told.cell(f"worth_of_bill/{each}@{freedom}@{load}") for each in names]
            cells.insert(2, f"{100 * told.best_policy(freedom, load) + 0.0:.1f}")
            lines.append("| " + " | ".join(["" if n else load.partition("=")[2], freedom, *cells]) + " |")
    return lines


def share_table(told: Figures) -> list[str]:
    """Returns the share of the possible improvement with the last freedom: best schedule known, and policies."""
    freedom, rows = told.freedoms[-1], ["best-known", *told.policies[1:]]
    lines = ["| schedule | " + " | ".join(each.partition("=")[2] for each in told.loads) + " |"]
    lines.append("|---" * (1 + len(told.loads)) + "|")
    for row in rows:
        cells = [told.cell(f"improvement_share/{row}@{freedom}@{load}", 0) for load in told.loads]
        lines.append(f"| {'best schedule known' if row == 'best-known' else f'`{row}`'} | " + " | ".join(cells) + " |")
    return lines


def picture(told: Figures) -> str:
    """Returns bars by load and freedom: worth by the bounds, by the schedules, and of the best policy."""
    groups = [(load, freedom) for load in told.loads for freedom in told.freedoms]
    bars = [
        (told.of[f"worth_of_bill/between-bounds@{freedom}@{load}"]["value"],
         told.of.get(f"worth_of_bill/found@{freedom}@{load}", {"value": 0.0})["value"] or 0.0,
         told.best_policy(freedom, load))
        for load, freedom in groups
    ]  # fmt: skip
    step, highest = (WIDTH - LEFT - 10) / len(groups), max(max(each) for each in bars)
    scale = (HEIGHT - TOP - BOTTOM) / highest
    base = HEIGHT - BOTTOM
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        'font-family="sans-serif" font-size="12" fill="#222222" role="img" '
        'aria-label="What freedoms of jobs are worth">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for n, (kind, words) in enumerate(WORDS.items()):
        x = LEFT + 200 * n
        out.append(f'<rect x="{x}" y="10" width="12" height="12" fill="{COLORS[kind]}"/>')
        out.append(f'<text x="{x + 18}" y="20">{escape(words)}</text>')
    for share in range(0, int(100 * highest) + 1, 5):
        y = base - share / 100 * scale
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share}%</text>')
    out.append(f'<text x="14" y="{TOP + (base - TOP) / 2:.0f}" text-anchor="middle" '
               f'transform="rotate(-90 14 {TOP + (base - TOP) / 2:.0f})">share of the bill</text>')  # fmt: skip
    for n, ((load, freedom), values) in enumerate(zip(groups, bars, strict=True)):
        x, wide = LEFT + step * n + 3, (step - 8) / 3
        for k, (kind, value) in enumerate(zip(COLORS, values, strict=True)):
            out.append(f'<rect x="{x + k * wide:.1f}" y="{base - value * scale:.1f}" width="{wide:.1f}" '
                       f'height="{value * scale:.1f}" fill="{COLORS[kind]}"/>')  # fmt: skip
        middle = x + 1.5 * wide
        out.append(f'<text x="{middle:.1f}" y="{base + 15}" text-anchor="middle" font-size="10">{freedom}</text>')
        if n % len(told.freedoms) == 0:
            centre = LEFT + step * (n + len(told.freedoms) / 2)
            label = f"load {load.partition('=')[2]}"
            out.append(f'<text x="{centre:.1f}" y="{base + 36}" text-anchor="middle" font-weight="bold">{label}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> None:
    """Prints the tables, or writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path, help="what 'noonward bound ... --json' printed")
    parser.add_argument("--picture", type=Path, help="SVG file to write in place of the tables")
    given = parser.parse_args()
    told = Figures(given.figures)
    if given.picture is not None:
        given.picture.write_text(picture(told), encoding="utf-8")
        return
    print("\n".join([*worth_table(told), "", *share_table(told)]))


if __name__ == "__main__":
    main()
