"""Writes docs/cli*.md, the reference of the command line, from what ``--help`` prints.

python tools/cli_reference.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from noonward.cli.help import PANELS
from noonward.cli.main import app

DOCS = Path(__file__).parents[1] / "docs"
HEAD = """# Command line

Each page shows what `--help` prints; `python tools/cli_reference.py` writes them.

Exit codes: 0 done; 1 internal error: please report it; 2 your input (the message says what is wrong, what is allowed
and what to do); 130 interrupted: the same command continues from what was recorded.

Environment variables:

| variable | what it sets |
|---|---|
| `NOONWARD_ADDRESS`, `NOONWARD_TOKEN` | address of a live service, and the token to use it with |
| `NOONWARD_EDGE_FOLDER` | folder of an edge service |
| `NOONWARD_VTN_SECRET` | secret of the client that `noonward data events` asks as |
| `NOONWARD_CACHE_DIR` | folder of compiled functions |
| `NOONWARD_FORECASTS` | folder of forecasts made by `noonward fit-forecast` |
| `NOONWARD_JOB`, `NOONWARD_GPUS` | set for a job of the live service: its number, and its number of GPUs |
| `NOONWARD_TASK`, `NOONWARD_TASKS` | set for a task of an array: its number from 0 on, and how many there are |
"""
WIDTH = 100


def sections(group: Any, words: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """Returns a section per command of a group, with the text of its help.

    Args:
        group: Group of commands.
        words: Words that lead to it.
        names: Names of the commands in it.
    """
    out = []
    for name in names:
        command, path = group.commands[name], (*words, name)
        if getattr(command, "commands", None):
            out += sections(command, path, tuple(command.commands))
            continue
        context = command.make_context(
            " ".join(path), [], resilient_parsing=True, help_option_names=["--help", "-h"], terminal_width=WIDTH
        )
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        out.append(f"## `{' '.join(path)}`\n\n```text\n{text}\n```\n")
    return out


def pages() -> dict[str, str]:
    """Returns the pages by name: an overview, and a page per panel of ``noonward --help``."""
    root: Any = typer.main.get_command(app)
    out, overview = {}, [HEAD]
    for panel, names in PANELS.items():
        page = f"cli-{panel.lower().replace(' ', '-')}.md"
        lines = [f"| `noonward {name}` | {root.commands[name].get_short_help_str(100)} |" for name in names]
        overview.append("\n".join([f"## [{panel}]({page})\n", "| command | what it does |", "|---|---|", *lines, ""]))
        body = "\n".join(sections(root, ("noonward",), names))
        out[page] = f"# Command line: {panel}\n\n[All commands](cli.md)\n\n{body}"
    return {"cli.md": "\n".join(overview), **out}


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
