"""Words that readers do not know stay out of README, docs and help texts."""

import re
from pathlib import Path

import pytest
import typer

from noonward.cli.help import commands_of
from noonward.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
INSTEAD = {
    r"share of the gap|of what is possible|gap closed|points of the gap": "share of possible improvement",
    r"duality gap": "optimality gap",
    r"beyond chance|beyond the (95% )?interval": "significant",
    r"\bjourneys?\b": "transfer (data), migration (job)",
    r"\banew\b": "again",
    r"\[ours\]": "[assumption]",
    r"\b(beside|choices of|of|is|are) ours\b": "here, [assumption]",
    r"\bstand-ins?\b": "synthetic, proxy, simulated",
    r"\boracles?\b": "energy-optimal frequency, perfect foresight",
    r"(energy-optimal|maximum|and|site,|gang,) clocks?\b|\bclock (levels?|scaling)": "GPU frequency",
    r"\b(local|own|another) clock\b": "time zone, local time",
    r"\bkept libraries\b": "maintained libraries",
    r"\bso many (GPUs|jobs|hours)\b": "that many, this many",
    r"defect of ours": "internal error",
    r"\b(least and (its )?most|least to most)\b": "minimum and maximum",
    r"\bof the gap\b": "of the possible improvement",
    r"\d %": "28.6%, without a blank",
    r"behind the horizon": "beyond the horizon",
    r"print-outs?\b": "readings",
    r"fits its sites alone": "works only for the sites it was trained on",
    r"in earnest|without a word|heads of requests": "plain words",
    r"\b(one|a) (row|line|file) an? (job|policy|run|zone|case|site|source|epoch|command|week|environment)": "per",
    r"behaviour|neighbour|colour|labelled|(normal|optim|minim|penal|util)is(e|ation)|licences?\b": "US spelling",
}
"""Regular expressions, and what to write instead."""


def prose(text: str) -> str:
    """Returns a page without code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def found_in(text: str) -> list[str]:
    """Returns each phrase of a text that has a better word."""
    return [
        f"{match[0]!r}: write {better!r}"
        for phrase, better in INSTEAD.items()
        for match in re.finditer(phrase, text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_written_in_plain_words(page: Path) -> None:
    assert found_in(prose(page.read_text(encoding="utf-8"))) == []


def test_help_is_written_in_plain_words() -> None:
    for words, command in commands_of(typer.main.get_command(app)):
        texts = [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]
        assert found_in("\n".join(texts)) == [], words


def test_the_words_are_found() -> None:
    assert found_in("It closes 80% of what is possible, beyond chance.") == [
        "'of what is possible': write 'share of possible improvement'",
        "'beyond chance': write 'significant'",
    ]
    assert found_in(prose("`journey_s` is\n```\nanew\n```\n")) == []
