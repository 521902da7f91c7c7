"""``noonward doctor``: what works on this machine."""

import json
import re
import tomllib
from pathlib import Path

from noonward.cli import doctor


def test_what_works_is_listed(noonward):
    answer = noonward("doctor", "--json")
    found = {each["what"]: each for each in json.loads(answer.out)}
    assert answer.code == 0
    assert found["a small run"]["state"] == "ok"
    assert {f"extra {name}" for name, _, _ in doctor.EXTRAS} <= set(found)


def test_extras_and_their_modules_are_those_of_the_package():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert {name for name, _, _ in doctor.EXTRAS} == set(extras) - {"recipes", "docs", "dev", "oracles"}
    for name, modules, _ in doctor.EXTRAS:
        assert set(modules) <= {re.split(r"[\[><=]", requirement)[0] for requirement in extras[name]}


def test_an_extra_that_is_absent_is_no_problem_and_says_how_to_install_it(noonward, monkeypatch):
    monkeypatch.setattr(doctor, "EXTRAS", (("odd", ("noonward_odd",), "nothing"),))
    answer = noonward("doctor")
    assert answer.code == 0
    assert "python -m pip install 'noonward[odd]' (missing: noonward_odd)" in answer.out


def test_a_cache_that_cannot_be_written_is_a_problem(noonward, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NOONWARD_CACHE_DIR", str(tmp_path / "file"))
    answer = noonward("doctor")
    assert answer.code == 1
    assert "set NOONWARD_CACHE_DIR" in answer.out
