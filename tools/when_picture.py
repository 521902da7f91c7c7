"""Writes docs/images/when.svg: what the command of docs/answers.md prints for a job, on generated prices.

python tools/when_picture.py
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import numpy as np
import typer

from noonward.cli.main import app
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals

ROOT = Path(__file__).parents[1]
LETTER_PX, LINE_PX, EDGE_PX = 8.4, 19, 16
NO_BREAK = "\u00a0"
"""A blank that drawings keep."""


def printed(words: list[str]) -> list[str]:
    """Returns the lines that a command prints in a folder with prices.csv: two months of three zones; without notes."""
    before = Path.cwd()
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            start = datetime(2022, 5, 1, tzinfo=UTC)
            write_generated_signals(
                generate_signals(("CA-ON", "SG", "PL"), start, 60 * 24, np.random.default_rng(0)), Path("prices.csv")
            )
            with contextlib.redirect_stdout(out):
                typer.main.get_command(app).main(words, prog_name="noonward", standalone_mode=False)
        finally:
            os.chdir(before)
    lines = [line.rstrip() for line in out.getvalue().splitlines() if not line.startswith("note: ")]
    return lines[: max(n for n, line in enumerate(lines) if line) + 1]


def picture() -> str:
    """Returns the drawing: the command in two lines, and what it prints."""
    page = (ROOT / "docs/answers.md").read_text(encoding="utf-8")
    found = re.search(r"^noonward (when .*)$", page, re.MULTILINE)
    assert found is not None
    first, second = found[1].split(" --by ")
    lines = [f"$ noonward {first} \\", f"    --by {second}", *printed(shlex.split(found[1]))]
    width, height = 2 * EDGE_PX + LETTER_PX * max(map(len, lines)), 2 * EDGE_PX + LINE_PX * len(lines)
    rows = "\n".join(
        f'<text x="{EDGE_PX}" y="{EDGE_PX + LINE_PX * (n + 0.75):.0f}" textLength="{LETTER_PX * len(line):.0f}">'
        f"{escape(line).replace(' ', NO_BREAK)}</text>"
        for n, line in enumerate(lines)
        if line
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'font-family="monospace" font-size="14" fill="#e6e6e6">\n'
        f'<rect width="100%" height="100%" rx="6" fill="#262626"/>\n{rows}\n</svg>\n'
    )


if __name__ == "__main__":
    (ROOT / "docs/images/when.svg").write_text(picture(), encoding="utf-8")
