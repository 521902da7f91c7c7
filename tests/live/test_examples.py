"""The example files of the live service: the systemd unit and the container file, as far as they can be tried here."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer

from noonward.cli.main import app
from noonward.live.config import LiveConfig

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "live"


def understood(words):
    """Returns whether the command line takes words, without running them."""
    assert words[0].rsplit("/", 1)[-1] == "noonward"
    command = typer.main.get_command(app).commands[words[1]]
    command.make_context("noonward", list(words[2:]))
    return True


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here")
def test_systemd_takes_the_unit(tmp_path):
    text = (EXAMPLES / "noonward.service").read_text()
    start = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)[1]
    unit = tmp_path / "noonward.service"
    unit.write_text(text.replace(start.split()[0], "/bin/true"))  # the program need not be installed there
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(text + "NoSuchSetting=1\n")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "NoSuchSetting" in done.stderr  # what it does not know, it says


def test_the_unit_starts_what_there_is():
    text = (EXAMPLES / "noonward.service").read_text()
    assert understood(re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)[1].split())


def test_the_container_file_names_what_there_is():
    lines = (EXAMPLES / "Containerfile").read_text().replace("\\\n", "").splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    for _, given in [step for step in steps if step[0] == "COPY"]:
        *sources, _ = given.split()
        assert all((ROOT / source).exists() for source in sources)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.search(r"'/source\[(.*)\]'", " ".join(given for _, given in steps))[1]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    words = [json.loads(given) for name, given in steps if name == "CMD"]
    assert understood(words[-1])
    exposed = next(given for name, given in steps if name == "EXPOSE")
    assert int(exposed) == LiveConfig.model_fields["port"].default
    names = [name for name, _ in steps]
    assert names.index("USER") < names.index("CMD")  # nothing runs as root
    assert steps[0][0] == "FROM"
    assert not steps[0][1].endswith((":latest", "python"))
