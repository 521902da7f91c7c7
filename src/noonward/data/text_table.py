"""Text files as their publishers write them: encoding, separator, header line and decimal sign are detected."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import itertools
import json
import math
import re
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from noonward.data.table import Table
from noonward.errors import DataError, RowError, nearest

SEPARATORS: Final = (",", ";", "\t", "|")
MISSING: Final = ("", "-", "n/e", "n/a", "na", "nan", "null", "none")
"""Words for a missing value, in lower case."""
HEAD_BYTES: Final = 262_144
"""Bytes of a file by which its format is detected."""
_HEAD_LINES: Final = 40
_GZIP: Final = b"\x1f\x8b"
_COMMA_DECIMAL: Final = r"^[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+$"
_POINT_DECIMAL: Final = r"^[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?([eE][+-]?\d+)?$"
_ONE_COMMA: Final = r"^[+-]?\d{1,3},\d{3}$"


def plain_name(name: str) -> str:
    """Returns a column's name for comparisons: lower case, single blanks, no subscripts, no blanks around.

    Example:
        >>> plain_name(" Carbon  Intensity gCO₂eq/kWh (LCA)")
        'carbon intensity gco2eq/kwh (lca)'
    """
    return " ".join(name.replace("₂", "2").strip().lower().split())


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A text file in memory.

    Attributes:
        path: The file.
        text: Its content, without a byte order mark.
        encoding: How it was decoded.
    """

    path: Path
    text: str
    encoding: str

    @property
    def name(self) -> str:
        """Name of the file, for messages."""
        return self.path.name

    @functools.cached_property
    def head(self) -> list[str]:
        """The first lines."""
        return [line.rstrip("\r\n") for line in io.StringIO(self.text[:200_000], newline="").readlines()[:_HEAD_LINES]]

    @functools.cached_property
    def start(self) -> str:
        """The first characters that are not blank."""
        return self.text[:2000].lstrip()

    def header(self, line: int = 0) -> list[str]:
        """Returns the names in a line, the separator detected; empty where there is none."""
        if line >= len(self.head):
            return []
        text = self.head[line]
        return [name.strip() for name in next(csv.reader([text], delimiter=separator_of(text)), [])]

    def names(self, line: int = 0) -> list[str]:
        """Returns the names in a line as ``plain_name`` gives them."""
        return [plain_name(name) for name in self.header(line)]

    def without(self, lines: Collection[int]) -> TextFile:
        """Returns the file with some lines left empty, so that the others keep their numbers (from 1)."""
        gone = set(lines)
        kept = [
            "\n" if number in gone else line
            for number, line in enumerate(io.StringIO(self.text, newline="").readlines(), start=1)
        ]
        return TextFile(path=self.path, text="".join(kept), encoding=self.encoding)

    def repeated_headers(self) -> list[int]:
        """Returns the lines that repeat the first one, where that names columns: dumps put together have such."""
        first = self.head[0].strip() if self.head else ""
        if len(self.header()) < 2 or first[:1] in "{[<;" or self.text.count(first) < 2:
            return []
        lines = io.StringIO(self.text, newline="")
        return [n for n, line in enumerate(lines, start=1) if n > 1 and line.strip("\ufeff \t\r\n") == first]

    def json(self, advice: str) -> Any:
        """Returns what the file says in JSON.

        Args:
            advice: What to do where it is none.

        Raises:
            DataError: It is no JSON.
        """
        try:
            return json.loads(self.text)
        except ValueError as error:
            raise DataError(f"{self.name} is not valid JSON ({error}); {advice}") from error

    def refuse_lengths(self, wrong: Sequence[tuple[int, int]], allowed: str, advice: str) -> None:
        """Raises RowError if lines have a wrong number of fields.

        Args:
            wrong: Line and number of fields of each such line.
            allowed: What says how many there are, and the number.
            advice: What to do.
        """
        if wrong:
            why = f"{wrong[0][1]} fields, but {allowed}"
            raise RowError(f"{self.name}, line {wrong[0][0]}: {why}; {advice}", [line for line, _ in wrong], why)

    def table(self, *, header_line: int = 0, skip_after: int = 0) -> TextTable:
        """Returns the file's rows.

        Args:
            header_line: Line of the names, from 0.
            skip_after: Lines after it that hold no data.

        Raises:
            DataError: A name stands twice, a row has more fields than the header, or there is no row.
        """
        names = [name.strip() for name in self.header(header_line)]
        while names and not names[-1]:
            names.pop()
        twice = sorted({name for name in names if name and names.count(name) > 1})
        if twice:
            raise DataError(f"{self.name}: the column {twice[0]!r} stands twice in the header; rename or remove one")
        columns = [name or f"column {n + 1}" for n, name in enumerate(names)]
        width, first = len(columns), header_line + 1 + skip_after
        lines = itertools.islice(io.StringIO(self.text, newline=""), first, None)
        reader = csv.reader(lines, delimiter=separator_of(self.head[header_line]))
        numbers, rows, long = [], [], []
        try:
            for row in reader:
                if not any(field.strip() for field in row):
                    continue
                if len(row) > width and any(field.strip() for field in row[width:]):
                    long.append((first + reader.line_num, len(row)))
                    continue
                numbers.append(first + reader.line_num)
                rows.append([field.strip() for field in row[:width]] + [""] * (width - len(row)))
        except csv.Error as error:
            raise DataError(
                f"{self.name}, line {first + reader.line_num}, cannot be read ({error}); export the file again"
            ) from error
        advice = "put values that hold the separator in double quotes, or export the file again"
        self.refuse_lengths(long, f"the header has {width}", advice)
        if not rows:
            if self.start[:1] in "{[":
                raise DataError(
                    f"{self.name} is JSON of no format that is known; noonward import --formats lists those that are"
                )
            raise DataError(f"{self.name} holds a header and no row of data; export it again")
        return text_table(self, columns, rows, numbers)


@dataclass(frozen=True, kw_only=True)
class TextTable(Table):
    """A table of text: all columns are text without blanks around them, and ``line`` is the line of the row.

    Attributes:
        file: Where it is from.
    """

    file: TextFile

    @property
    def name(self) -> str:
        """Name of the file, for messages."""
        return self.file.name

    @property
    def lines(self) -> pl.Series:
        """Line of each row."""
        return self.frame["line"]

    def column(self, *names: str) -> str:
        """Returns the first column of some names (compared by ``plain_name``).

        Raises:
            DataError: There is none.
        """
        found = self.find(*names)
        if found is None:
            known = [name for name in self.frame.columns if name != "line"]
            raise DataError(
                f"{self.file.name}: there is no column {' or '.join(map(repr, names))}; "
                f"{nearest(names[0], known, list_all=True)}"
            )
        return found

    def find(self, *names: str) -> str | None:
        """Returns the first column of some names, or None."""
        present = {plain_name(name): name for name in self.frame.columns}
        return next((present[plain_name(name)] for name in names if plain_name(name) in present), None)

    def filter(self, keep: pl.Expr | pl.Series) -> TextTable:
        """Returns the table with some rows."""
        return TextTable(file=self.file, frame=self.frame.filter(keep))

    def numbers(self, column: str, unit: str, *, decimal: str | None = None, inf: bool = False) -> pl.Series:
        """Returns a column as numbers; null where it is missing (``MISSING``).

        Args:
            column: Column.
            unit: Unit, for messages.
            decimal: ``.`` or ``,``; None: detected.
            inf: Whether ``inf`` is one, as the package writes it.

        Raises:
            DataError: A value is no number, or the decimal sign cannot be detected.
        """
        text = self.frame[column].fill_null("").str.replace_all("[\u00a0\u202f\u2009 ]", "").str.replace("\u2212", "-")
        missing = text.str.to_lowercase().is_in(list(MISSING))
        endless = text.str.to_lowercase().is_in(["inf"]) if inf else missing & ~missing
        sign = decimal or self._decimal(column, text.filter(~missing & ~endless))
        if sign == ",":
            plain = text.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
            shape = _COMMA_DECIMAL + r"|^[+-]?(\d+|\d{1,3}(\.\d{3})+)$"
        else:
            plain, shape = text.str.replace_all(",", "", literal=True), _POINT_DECIMAL
        plain = pl.select(pl.when(~missing & text.str.contains(shape)).then(plain)).to_series()
        value = plain.cast(pl.Float64, strict=False)
        self.refuse(
            (value.is_null() & ~missing & ~endless) | value.is_infinite().fill_null(value=False),
            column,
            f"is not a number; give {unit}, with {sign!r} as the decimal sign, or leave it empty where it is unknown",
        )
        return value.set(endless, math.inf)

    def _decimal(self, column: str, text: pl.Series) -> str:
        """Returns the decimal sign of some texts."""
        commas = text.filter(text.str.contains(",", literal=True))
        if not commas.len():
            return "."
        if commas.str.contains(_ONE_COMMA).all() and not text.str.contains(".", literal=True).any():
            row = self.frame.filter(self.frame[column].is_in([commas[0]]))
            raise DataError(
                f"{self.file.name}, line {row['line'][0] if row.height else '?'}, column {column!r}: {commas[0]!r} may "
                "be a decimal comma or a thousands comma, and no other value says which; give --decimal , or "
                "--decimal ."
            )
        return "," if commas.str.contains(_COMMA_DECIMAL).mean() > 0.5 else "."  # type: ignore[operator]


def text_table(
    file: TextFile, columns: Sequence[str], rows: Sequence[Sequence[str]], lines: Sequence[int]
) -> TextTable:
    """Returns rows of text as a table.

    Args:
        file: Where they are from.
        columns: Names of the fields.
        rows: Rows of as many fields.
        lines: Line of each row.
    """
    fields = zip(*rows, strict=True) if rows else [()] * len(columns)
    frame = pl.DataFrame(
        {name: list(values) for name, values in zip(columns, fields, strict=True)},
        schema=dict.fromkeys(columns, pl.String),
    )
    return TextTable(file=file, frame=frame.insert_column(0, pl.Series("line", lines, dtype=pl.Int64)))


def read_text_file(path: Path, encoding: str | None = None) -> TextFile:
    """Reads a text file.

    A byte order mark decides; else UTF-8, and where the bytes are not UTF-8, Windows-1252.

    Args:
        path: The file, plain or packed by gzip.
        encoding: Name of its encoding, as Python knows it; None: detected.

    Raises:
        DataError: There is no such file, it is empty, damaged or binary, or it is not text of the encoding told.
    """
    if not path.is_file():
        raise DataError(f"there is no file {path}; check the path")
    content = path.read_bytes()
    if content[:2] == _GZIP:
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path.name} cannot be unpacked ({error}); download it again") from error
    if not content.strip():
        raise DataError(f"{path.name} is empty; export it again")
    if content[:2] == b"PK":
        raise DataError(f"{path.name} is a packed file or a workbook; unpack it, or save the sheet as CSV")
    tried = (encoding,) if encoding else _encodings(content)
    for name in tried:
        try:
            text = content.decode(name)
        except LookupError as error:
            raise DataError(f"encoding {name!r} is unknown; give a name such as utf-8, cp1252 or cp932") from error
        except UnicodeDecodeError:
            continue
        if "\x00" in text:
            break
        return TextFile(path=path, text=text.removeprefix("\ufeff"), encoding=name)
    raise DataError(
        f"{path.name} is not text in {' or '.join(tried)}; save it as UTF-8, or state its encoding (noonward import "
        "--encoding cp932)"
    )


def read_head(path: Path) -> TextFile:
    """Returns the beginning of a text file, by which its format is detected; what is no text becomes other characters.

    Args:
        path: An existing file.
    """
    with path.open("rb") as file:
        content = file.read(HEAD_BYTES)
    if content[:2] == _GZIP:
        content = zlib.decompressobj(wbits=31).decompress(content, HEAD_BYTES)
    encoding = _encodings(content)[0]
    return TextFile(
        path=path, text=content.decode(encoding, errors="replace").removeprefix("\ufeff"), encoding=encoding
    )


def _encodings(content: bytes) -> Sequence[str]:
    """Returns the encodings to try, the likeliest first."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return ("utf-16",)
    return ("utf-8-sig", "cp1252")


def separator_of(line: str) -> str:
    """Returns the character that separates the fields of a header, found outside of quotes.

    Example:
        >>> separator_of('"MTU; local";"Price, EUR";Currency')
        ';'
    """
    bare = re.sub(r'"[^"]*"', "", line)
    return max(SEPARATORS, key=bare.count)
