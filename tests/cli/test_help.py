"""Help: every command is in a panel, has a short summary and examples that it understands."""

import shlex

import pytest
import typer

from noonward.cli.help import EXAMPLES, PANELS, commands_of
from noonward.cli.main import app

ROOT = typer.main.get_command(app)
COMMANDS = dict(commands_of(ROOT))


def test_every_command_is_in_one_panel() -> None:
    assert sorted(name for names in PANELS.values() for name in names) == sorted(ROOT.commands)


def test_every_command_has_examples_and_no_example_is_left_over() -> None:
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("words", EXAMPLES)
def test_a_command_understands_its_examples(words: str) -> None:
    for line in EXAMPLES[words]:
        assert line.startswith(words)
        given = shlex.split(line)[len(words.split()) :]
        COMMANDS[words].make_context("noonward", given)


def test_summaries_fit_eighty_columns(noonward) -> None:
    for words in ((), ("live",), ("live", "token"), ("reproduce",), ("scenario",), ("data",), ("signals",), ("edge",)):
        lines = noonward(*words, "-h").out.splitlines()
        assert max(map(len, lines)) <= 80
        assert not [line for line in lines if line.endswith("...") and "Usage" not in line]


@pytest.mark.parametrize("words", COMMANDS)
def test_help_names_no_types_of_python(noonward, words: str) -> None:
    shown = noonward(*words.split(), "-h").out
    assert not [name for name in ("<str>", "<int", "<float", "<list[", "<path>") if name in shown]
    assert "Examples:" in shown


def test_a_duration_reaches_the_command(noonward) -> None:
    answer = noonward("when", "--gpus", 1, "--hours", "6y", "--by", "2026-11-24", "--zones", "DE")
    assert answer.code == 2
    assert "'6y' is not a duration" in answer.err
