"""The README's path for one's own fleet: its commands, which tests/cli/test_tour.py runs on files that it writes."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def fleet_commands() -> list[str]:
    """Returns the commands of the README's section on one's own fleet."""
    section = README.read_text(encoding="utf-8").partition("\n## What would my fleet save?\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [line for line in block.splitlines() if line]
