"""Draws a figure for a paper from the file that ``noonward compare --csv`` writes: paired changes with 95% intervals.

    noonward compare tiny --csv results.csv
    python examples/paper_figure.py results.csv figure.svg

One row per policy, the best first: a dot per environment, and the mean with its interval (Student's t). SVG is a vector
format; Inkscape or a browser turns it into PDF.
"""

import sys
from html import escape
from pathlib import Path

import polars as pl

from noonward.evaluate.statistics import mean

COLUMN, UNIT, BASELINE = "utility_usd", "USD", "local-fcfs"
WIDTH, LEFT, RIGHT, ROW, TOP = 640, 170, 20, 34, 14


def changes(path):
    """Returns the paired differences against the baseline, one list per policy, the best first."""
    runs = pl.read_csv(path).select("policy", "environment", COLUMN)
    base = runs.filter(pl.col("policy") == BASELINE).select("environment", base=COLUMN)
    paired = runs.join(base, on="environment").with_columns(change=pl.col(COLUMN) - pl.col("base"))
    others = paired.filter(pl.col("policy") != BASELINE).sort("environment")
    found = {str(name): rows["change"].to_list() for (name,), rows in others.group_by("policy", maintain_order=True)}
    return dict(sorted(found.items(), key=lambda each: -sum(each[1])))


def drawn(found):
    """Returns the figure as SVG text."""
    means = {policy: mean(values) for policy, values in found.items()}
    seen = [x for values in found.values() for x in values] + [e for m in means.values() for e in (m.low, m.high)]
    low, high = min(0.0, *seen), max(0.0, *seen)
    bottom = TOP + ROW * len(found)

    def x(value):
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    step = 10.0 ** len(str(int(high - low))) / 10
    step = step if (high - low) / step >= 3 else step / 2
    ticks = [n * step for n in range(round(low / step), round(high / step) + 1) if low <= n * step <= high]
    parts = [f'<line x1="{x(0):.1f}" y1="{TOP}" x2="{x(0):.1f}" y2="{bottom}" stroke="#222"/>']
    for tick in ticks:
        parts.append(f'<line x1="{x(tick):.1f}" y1="{bottom}" x2="{x(tick):.1f}" y2="{bottom + 5}" stroke="#222"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{bottom + 20}" text-anchor="middle">{tick:g}</text>')
    parts.append(f'<line x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}" stroke="#222"/>')
    for row, (policy, values) in enumerate(found.items()):
        y, m = TOP + ROW * (row + 0.5), means[policy]
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(policy)}</text>')
        parts += [f'<circle cx="{x(v):.1f}" cy="{y:.1f}" r="3" fill="#9db9d3"/>' for v in values]
        parts.append(
            f'<line x1="{x(m.low):.1f}" y1="{y:.1f}" x2="{x(m.high):.1f}" y2="{y:.1f}" stroke="#222" stroke-width="2"/>'
        )
        parts.append(f'<circle cx="{x(m.value):.1f}" cy="{y:.1f}" r="5" fill="#222"/>')
    axis = f"change of utility per environment against {BASELINE} ({UNIT})"
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{bottom + 42}" text-anchor="middle">{axis}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 52}" font-family="sans-serif" '
    return head + 'font-size="13">\n<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    results, figure = (Path(each) for each in sys.argv[1:])
    figure.write_text(drawn(changes(results)), encoding="utf-8")
