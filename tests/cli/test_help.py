"""Help: every command is in a panel, has a short summary and examples that it understands."""

import shlex

import pytest
import typer

from noonward.cli.help import EXAMPLES, PANELS, commands_of
from noonward.cli.main import app
from noonward.cli.options import duration

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


def test_durations_take_a_unit_or_a_number_of_the_option_s_own() -> None:
    hours, seconds = duration(3600.0), duration(1.0)
    assert [hours(text) for text in ("6h", "90m", "2d", "36s", "6")] == [6.0, 1.5, 48.0, 0.01, 6.0]
    assert [seconds(text) for text in ("6h", "90m", "45s", "45", 45.0)] == [21600.0, 5400.0, 45.0, 45.0, 45.0]


@pytest.mark.parametrize("text", ["", "six", "6x", "-1h", "nan", "inf", "h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a duration; write it as 6h"):
        duration(1.0)(text)


def test_a_duration_below_the_least_is_refused() -> None:
    assert duration(3600.0, 36.0)("36s") == 0.01
    with pytest.raises(typer.BadParameter, match="of at least 36 s"):
        duration(3600.0, 36.0)("35s")


def test_a_duration_reaches_the_command(noonward) -> None:
    answer = noonward("when", "--gpus", 1, "--hours", "6y", "--by", "2026-11-24", "--zones", "DE")
    assert answer.code == 2
    assert "'6y' is not a duration" in answer.err
