"""Writes the samples of terminal output in README.md and docs/ from what the commands print.

    python tools/readme_samples.py README.md docs/tutorial.md

A sample is a code block of language ``text`` below a line ``<!-- sample: COMMAND, N lines -->`` or
``<!-- sample: COMMAND, N lines from WORDS -->``: the first N lines that are not empty, without trailing blanks, from
the first line that holds the words on; a line of more than 120 characters is cut to 78.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

SAMPLE = re.compile(
    r"(<!-- sample: (?P<command>[^\n]+), (?P<lines>\d+) lines(?: from (?P<words>[^\n]+))? -->\n```text\n)"
    r"(?P<text>.*?)(?=```)",
    re.DOTALL,
)
LONGEST, CUT = 120, 78


def sample(printed: str, match: re.Match[str]) -> str:
    """Returns the part of what a command printed that a page shows.

    Args:
        printed: Output of the command.
        match: Match of ``SAMPLE`` in the page.
    """
    kept = [line.rstrip() for line in printed.splitlines() if line.strip()]
    words = match["words"]
    begin = next((n for n, line in enumerate(kept) if words in line), len(kept)) if words else 0
    shown = kept[begin : begin + int(match["lines"])]
    return "".join((line[:CUT].rstrip() if len(line) > LONGEST else line) + "\n" for line in shown)


def output(command: str) -> str:
    """Returns what a ``noonward`` command prints in an empty folder.

    Args:
        command: The command as a page shows it.

    Raises:
        SystemExit: It fails.
    """
    program = [sys.executable, "-m", "noonward.cli.main", *shlex.split(command)[1:]]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "COLUMNS": "80"}
        done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def main() -> None:
    """Rewrites the samples of every file named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path, nargs="+", help="files with samples")
    for page in parser.parse_args().pages:
        text = page.read_text(encoding="utf-8")
        text = SAMPLE.sub(lambda match: match[1] + sample(output(match["command"]), match), text)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
