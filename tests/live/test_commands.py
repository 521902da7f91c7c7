"""Commands of clusters: their wait ends, whatever becomes of them."""

import os
import subprocess

import pytest

from noonward.live.executors import commands


def test_a_command_that_may_not_be_killed_is_not_waited_for(monkeypatch):
    left = []

    def kill(process):
        left.append(process)
        raise PermissionError

    monkeypatch.setattr(subprocess.Popen, "kill", kill)
    with pytest.raises(subprocess.TimeoutExpired):
        commands.ran(["sleep", "600"], "", os.environ, 0.01)
    (process,) = left
    assert process.poll() is None
    process.terminate()


def test_a_command_gives_its_exit_code_and_what_it_printed():
    words = ["/bin/sh", "-c", "read said; echo $said; echo complaint >&2; exit 3"]
    assert commands.ran(words, "hello\n", os.environ, 60.0) == (3, "hello\n", "complaint\n")
