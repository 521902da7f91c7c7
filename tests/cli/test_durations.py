"""Durations on the command line: one way to write them, and no number whose unit must be guessed."""

import pytest
import typer
from typer.main import get_command

from noonward.cli.durations import duration
from noonward.cli.help import commands_of
from noonward.cli.main import app
from noonward.units import HOUR_S, MINUTE_S

UNITS = ("second", "minute", "hour", "-h", "seconds", "minutes", "hours")


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("90m", 90), ("90min", 90), ("1.5h", 90), ("1 day", 1440), ("2days", 2880), ("2d", 2880), ("30s", 0.5), ("0", 0)],
)
def test_a_duration_states_its_unit(text, minutes):
    assert duration(MINUTE_S)(text) == minutes


@pytest.mark.parametrize("text", ["10", "soon", "-1h", "nan", "inf", "1e400h", "6 weeks", "h", ""])
def test_anything_else_is_refused_with_what_to_write(text):
    with pytest.raises(typer.BadParameter, match="is not a duration; write it with its unit, as 6h, 90m, 45s or 2d"):
        duration(MINUTE_S)(text)


def test_a_shortest_duration_is_named():
    assert duration(1.0, least_s=36)("36s") == 36
    with pytest.raises(typer.BadParameter, match="'35s' is not a duration of at least 36 s"):
        duration(1.0, least_s=36)("35s")


def test_no_limit_is_a_duration_where_the_option_has_it():
    assert duration(HOUR_S, endless=True)("inf") == float("inf")


def test_a_number_alone_is_taken_only_by_options_whose_name_states_its_unit():
    taken = set()
    for words, command in commands_of(get_command(app)):
        for option in command.params:
            parser = option.type_descriptor.parameter_info.parser
            if parser is None:
                continue
            try:
                parser("7")
            except typer.BadParameter:
                continue
            taken.add((words, option.name))
            stated = " ".join(option.opts)
            assert "work" in stated or any(unit in stated for unit in UNITS), (words, option.opts)
    assert ("when", "hours") in taken
    assert not any(name == "notice" for _, name in taken)
