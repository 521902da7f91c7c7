"""Text files: what is detected of them, from their beginning alone where that is enough."""

from pathlib import Path

import pytest

from noonward.data.jobs.dated import is_log
from noonward.data.signals.formats import is_published
from noonward.data.text_table import HEAD_BYTES, read_head, read_text_file, separator_of
from noonward.errors import DataError

SACCT = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_beginning_shows_the_names_whatever_the_encoding_and_the_length(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "file.csv"
    path.write_bytes(("Zeit;Preis [€/MWh]\n" + "€;1\n" * HEAD_BYTES).encode(encoding))
    head = read_head(path)
    assert head.names() == ["zeit", "preis [€/mwh]"]
    assert len(head.text) < HEAD_BYTES < len(read_text_file(path).text)


def test_formats_are_detected_from_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(SACCT + "1|2022-10-01T00:00:00|||0|\n" * 100_000)
    assert path.stat().st_size > 2 * HEAD_BYTES
    assert is_log(path)
    assert not is_published(read_head(path))
    path.write_bytes(b"\xff\x00\x81" * 1000)
    assert not is_log(path)


def test_separators_within_quotes_do_not_count() -> None:
    assert separator_of('"a,b,c";"d"') == ";"
    assert separator_of("a\tb,c\td") == "\t"


def test_lines_are_those_of_the_file_also_where_a_field_holds_several(tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_text('a,b\n"one\ntwo",1\n\nx,much\n')
    table = read_text_file(path).table()
    assert table.frame["line"].to_list() == [3, 5]
    with pytest.raises(DataError, match="line 5, column 'b': the value 'much' is not a number"):
        table.numbers("b", "USD")
