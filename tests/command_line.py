"""Runs the command line within the test's process, as a user's shell would: arguments in, exit code and text out.

Runs are carried out in that process too, unless workers are asked for: tests run side by side already.
"""

import os
import re
import sys
from dataclasses import dataclass

import pytest

from noonward.cli.main import main
from noonward.runtime import processes
from noonward.schedule import policies

BEGINS = re.compile(r".*: (starting|(counting|[\d,]+) [a-z ]+(; results go to .*)?)\n")
"""Lines in which a long command says that it begins (``noonward.cli.progress``)."""


@dataclass(frozen=True)
class Answer:
    """What a command left: exit code, standard output, standard error, and what a long one said there as it began."""

    code: int
    out: str
    err: str
    began: str = ""


class CommandLine:
    """Calls ``noonward`` with arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Answer:
        """Runs a command; arguments are turned into text."""
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["noonward", *map(str, arguments)])
            patch.setattr(sys, "path", list(sys.path))
            self._capsys.readouterr()
            nets = os.environ.get(policies.NETS, "")
            patch.setenv(policies.NETS, nets)
            patch.setattr(processes, "cores", lambda: 1)
            with pytest.raises(SystemExit) as left:
                main()
            if os.environ[policies.NETS] != nets:  # what a command makes known is gone with its process
                policies._packaged.cache_clear()
        out, err = self._capsys.readouterr()
        lines = err.splitlines(keepends=True)
        began = "".join(line for line in lines if BEGINS.fullmatch(line))
        err = "".join(line for line in lines if not BEGINS.fullmatch(line))
        return Answer(code=int(left.value.code or 0), out=out, err=err, began=began)
