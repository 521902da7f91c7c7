"""Help: every command is in a panel, has a short summary and examples that it understands."""

import re
import shlex
from typing import Any

import pytest
import typer

from noonward.cli.help import EXAMPLES, PANELS, commands_of
from noonward.cli.main import _built, app

ROOT = typer.main.get_command(app)
COMMANDS = dict(commands_of(ROOT))


def test_every_command_is_in_one_panel() -> None:
    assert sorted(name for names in PANELS.values() for name in names) == sorted(ROOT.commands)


def test_a_command_that_is_built_alone_is_the_same_as_among_all() -> None:
    def texts(commands: list[tuple[str, Any]]) -> dict[str, str]:
        return {words: each.get_help(typer.Context(each, info_name=words)) for words, each in commands}

    build = _built.__wrapped__  # what was built is kept, and keeps what it was first asked for help with
    whole = texts(list(commands_of(build())))
    for word in ROOT.commands:
        alone = build(word)
        assert list(alone.commands) == [word]
        own = {words: text for words, text in whole.items() if words.split()[0] == word}
        assert texts(list(commands_of(alone))) == own
    assert list(build("no-command").commands) == list(build("--version").commands) == list(ROOT.commands)


def test_every_command_has_examples_and_no_example_is_left_over() -> None:
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("words", EXAMPLES)
def test_a_command_understands_its_examples(words: str) -> None:
    for line in EXAMPLES[words]:
        assert line.startswith(words)
        given = shlex.split(line)[len(words.split()) :]
        COMMANDS[words].make_context("noonward", given)


def test_summaries_fit_eighty_columns(noonward) -> None:
    for words in ((), ("live",), ("live", "token"), ("reproduce",), ("scenario",), ("data",), ("edge",)):
        lines = noonward(*words, "-h").out.splitlines()
        assert max(map(len, lines)) <= 80
        assert not [line for line in lines if line.endswith("...") and "Usage" not in line]


@pytest.mark.parametrize("words", COMMANDS)
def test_help_names_no_types_of_python(noonward, words: str) -> None:
    shown = noonward(*words.split(), "-h").out
    assert not [name for name in ("<str>", "<int", "<float", "<list[", "<path>") if name in shown]
    assert "Examples:" in shown
    assert not re.search(r"[{}]|\[\[", shown.splitlines()[0])
    assert shown.splitlines()[0].partition("[OPTIONS]")[2].isupper() or shown.splitlines()[0].endswith("[OPTIONS]")
    assert "[default: (" not in shown


def test_a_duration_reaches_the_command(noonward) -> None:
    answer = noonward("when", "--gpus", 1, "--hours", "6y", "--by", "2026-11-24", "--zones", "DE")
    assert answer.code == 2
    assert "'6y' is not a duration" in answer.err


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("plan", "capacity-plan"),
        ("warmup", "compile"),
        ("data signals", "data check"),
        ("data jobs", "data check"),
        ("signals show", "data show"),
        ("scenario validate", "scenario check"),
    ],
)
def test_former_names_of_commands_still_work(noonward, former: str, now: str) -> None:
    shown, expected = (noonward(*words.split(), "-h") for words in (former, now))
    assert (shown.code, expected.code) == (0, 0)
    assert shown.out.splitlines()[2:] == expected.out.splitlines()[2:]
    assert former.split()[0] in ("data", "scenario") or former not in noonward("-h").out.split()


@pytest.mark.parametrize(
    "command",
    [("when", "--gpus", 1, "--hours", "6h", "--by", "2026-11-24", "--now", "2026-11-23"), ("advise", "--slurm")],
)
def test_a_scenario_is_an_argument_or_an_option_and_not_both(noonward, command: tuple[object, ...]) -> None:
    answers = [noonward(*command, *given) for given in (("no.yaml",), ("--fleet", "no.yaml"))]
    assert [("no.yaml does not exist" in each.err, each.code) for each in answers] == [(True, 2)] * 2
    twice = noonward(*command, "no.yaml", "--fleet", "own.yaml")
    assert (twice.code, "the scenario is given twice (no.yaml, --fleet own.yaml)" in twice.err) == (2, True)
