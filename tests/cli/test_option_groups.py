"""Groups of options: stated once, added to commands where they stood."""

from inspect import Parameter, signature
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from noonward.cli.option_groups import option_groups, without


def place(
    site: Annotated[str, typer.Option(help="Where.")] = "north",
    rack: Annotated[int, typer.Option("--rack", "-r")] = 1,
) -> str:
    return f"{site}/{rack}"


def test_options_stand_where_the_parameter_stood():
    @option_groups(at=place)
    def show(*, first: int = 0, at: str, last: int = 0) -> None: ...

    shown = signature(show).parameters
    assert list(shown) == ["first", "site", "rack", "last"]
    assert all(each.kind is Parameter.KEYWORD_ONLY for each in shown.values())


def test_the_command_gets_what_the_group_returns():
    app = typer.Typer()

    @app.command()
    @option_groups(at=place)
    def show(*, at: str, loud: bool = False) -> None:
        typer.echo(at.upper() if loud else at)

    assert CliRunner().invoke(app, ["--site", "south", "-r", "7"]).output == "south/7\n"
    assert CliRunner().invoke(app, ["--loud"]).output == "NORTH/1\n"


def test_an_option_left_out_keeps_its_default():
    group = without(place, "rack")
    assert list(signature(group).parameters) == ["site"]
    assert group(site="south") == "south/1"


def test_names_that_are_not_there_are_refused():
    with pytest.raises(TypeError, match="place has no option 'shelf' to leave out"):
        without(place, "shelf")
    with pytest.raises(TypeError, match="show has no parameter 'at' to replace"):

        @option_groups(at=place)
        def show(*, job: int) -> None: ...


def test_two_options_of_one_name_are_refused():
    with pytest.raises(ValueError, match="duplicate parameter name: 'site'"):

        @option_groups(at=place)
        def show(*, site: str, at: str) -> None: ...
