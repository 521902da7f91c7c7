r"""Writes the results tables of README.md and docs/ from what ``compare`` or ``reproduce fine-tuning`` printed.

    noonward compare fine-tuning --no-report --json > packaged.json
    python tools/results_tables.py fine-tuning packaged.json docs/results.md

    noonward compare fine-tuning --set jobs.knowledge.run_time=learned --set jobs.knowledge.limit.to=4 \
        --policies bid-price-neural,bid-price-regression,patient,cheapest-feasible,masac,local-fcfs \
        --no-bound --no-report --json > learned.json
    python tools/results_tables.py short-fine-tuning packaged.json README.md --learned learned.json

    noonward reproduce fine-tuning --json > reproduced.json
    python tools/results_tables.py reproduce-generated reproduced.json docs/results.md

The table ``reproduce-generated`` (``reproduce-real``) is made from the figures that end in ``@generated`` (``@real``).
A name that begins with ``short-`` gives the README's table: seven rows, four columns. Its share *with run times
learned* is of the bound and the baseline of the other file: the environments are the same.
A table stands between the lines ``<!-- results NAME -->`` and ``<!-- end of results -->``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

END = "<!-- end of results -->"
HEAD = (
    "| policy | utility, USD | change against local FCFS | share of possible improvement | GPU-hours | done | dropped "
    "| job energy cost, USD per GPU-hour | gCO2 per GPU-hour | migrations |",
    "|---|---|---|---|---|---|---|---|---|---|",
)
SHORT_HEAD = (
    "| policy | utility against local FCFS | share of possible improvement | with run times learned |",
    "|---|---|---|---|",
)
SHORT_ROWS = ("bid-price-neural", "bid-price-regression", "patient", "cheapest-feasible", "masac", "local-fcfs")
"""Policies of the short table, below the bound."""


def percent(figure: dict[str, Any]) -> str:
    """Returns a fraction in percent with its interval."""
    value, low, high = (100 * figure[key] for key in ("value", "low", "high"))
    return f"{value:+.1f}% [{low:+.1f}, {high:+.1f}]"


def share(figure: dict[str, Any]) -> str:
    """Returns a share in percent."""
    return f"{100 * figure['value']:.0f}%"


def table(figures: dict[str, dict[str, Any]]) -> list[str]:
    """Returns the lines of the table, best policy first, the bound on top."""
    base, bound, known = (figures[f"utility_usd/{name}"]["value"] for name in ("local-fcfs", "bound", "best-known"))
    rows = [
        f"| *upper bound* | *{bound:.0f}* | *{100 * (bound / base - 1):+.1f}%* | *100%* | | | | | | |",
        f"| *best schedule known* | *{known:.0f}* | *{100 * (known / base - 1):+.1f}%* "
        f"| *{100 * (known - base) / (bound - base):.0f}%* | | | | | | |",
    ]
    policies = [name.partition("/")[2] for name in figures if name.startswith("gpu_hours/")]
    for policy in sorted(policies, key=lambda name: -figures[f"utility_usd/{name}"]["value"]):
        plain = {
            name: figures[f"{name}/{policy}"]["value"]
            for name in (
                "gpu_hours", "completed_jobs", "overdue_jobs", "usd_per_gpu_hour", "g_per_gpu_hour", "migrations"
            )
        }  # fmt: skip
        cells = (
            f"`{policy}`",
            f"{figures[f'utility_usd/{policy}']['value']:.0f}",
            "–" if policy == "local-fcfs" else percent(figures[f"gain_over_local-fcfs/{policy}"]),
            "–" if policy == "local-fcfs" else share(figures[f"improvement_share/{policy}"]),
            f"{plain['gpu_hours']:,.0f}",
            f"{plain['completed_jobs']:,.0f}",
            f"{plain['overdue_jobs']:,.0f}",
            f"{plain['usd_per_gpu_hour']:.4f}",
            f"{plain['g_per_gpu_hour']:.1f}",
            f"{plain['migrations']:,.0f}",
        )
        rows.append("| " + " | ".join(cells) + " |")
    return [*HEAD, *rows]


def short_table(figures: dict[str, dict[str, Any]], learned: dict[str, dict[str, Any]]) -> list[str]:
    """Returns the lines of the README's table: the bound, and the policies of ``SHORT_ROWS``.

    Args:
        figures: Figures where run times are known.
        learned: Those of the same environments where they are learned; of a policy that has none the cell is empty.
    """
    base, bound = (figures[f"utility_usd/{name}"]["value"] for name in ("local-fcfs", "bound"))
    rows = [f"| *upper bound* | *{100 * (bound / base - 1):+.1f}%* | *100%* | |"]
    for policy in SHORT_ROWS:
        base_row, told = policy == "local-fcfs", learned.get(f"utility_usd/{policy}")
        cells = (
            f"`{policy}`",
            "baseline" if base_row else percent(figures[f"gain_over_local-fcfs/{policy}"]),
            "0%" if base_row else share(figures[f"improvement_share/{policy}"]),
            "" if told is None else f"{100 * (told['value'] - base) / (bound - base):.0f}%",
        )
        rows.append("| " + " | ".join(cells) + " |")
    return [*SHORT_HEAD, *rows]


def main() -> None:
    """Replaces the table in every file named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="name of the table, as in its first line")
    parser.add_argument("figures", type=Path, help="what 'noonward compare ... --json' printed")
    parser.add_argument("pages", type=Path, nargs="+", help="files to write the table into")
    parser.add_argument("--learned", type=Path, help="the same with run times learned, for the short table")
    given = parser.parse_args()
    content = json.loads(given.figures.read_text(encoding="utf-8"))
    kind = given.name.removeprefix("reproduce-") if given.name.startswith("reproduce-") else ""
    named = ((*figure["name"].partition("@"), figure) for figure in content["figures"])
    figures = {name: figure for name, _, of, figure in named if of == kind}
    if given.name.startswith("short-"):
        if given.learned is None:
            parser.error("the short table needs --learned FILE")
        learned = json.loads(given.learned.read_text(encoding="utf-8"))["figures"]
        lines = short_table(figures, {figure["name"]: figure for figure in learned})
    else:
        lines = table(figures)
    begin = f"<!-- results {given.name} -->"
    for page in given.pages:
        before, _, rest = page.read_text(encoding="utf-8").partition(begin)
        _, end, after = rest.partition(END)
        if not end:
            raise SystemExit(f"{page} has no lines '{begin}' and '{END}'")
        page.write_text("".join((before, begin, "\n", "\n".join(lines), "\n", END, after)), encoding="utf-8")


if __name__ == "__main__":
    main()
