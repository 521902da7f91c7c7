"""Exchange rates as the user states them: one number, one a currency, or a table by day."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

import polars as pl

from noonward.data.text_table import read_text_file
from noonward.errors import DataError

Rates = dict[str, tuple[tuple[date, float], ...]]
"""US dollars for a unit of a currency from each day on, by currency."""

_NEAR_A_DOLLAR: Final = ("EUR", "GBP", "CHF", "AUD", "CAD", "NZD", "SGD")
"""Currencies whose unit is worth about a dollar, so that a rate in cents is told from one in dollars."""


def read_rates(stated: Sequence[str], currency: str | None = None) -> Rates:
    """Returns the rates that some texts state.

    Args:
        stated: Each ``EUR=1.08``, a number (the rate of ``currency``), or the path of a CSV file with the columns
            ``day`` (YYYY-MM-DD), ``currency`` and ``usd``: US dollars for a unit of it from that day on.
        currency: Currency that a bare number is the rate of.

    Raises:
        DataError: A text is none of these, a rate is not above 0, or a file has other columns.

    Example:
        >>> read_rates(["EUR=1.08"])["EUR"][0][1]
        1.08
    """
    rates: Rates = {}
    for text in stated:
        match = re.fullmatch(r"([A-Za-z]{3})=(.+)", text)
        if match:
            rates[match[1].upper()] = ((date.min, _rate(match[2], text, match[1].upper())),)
        elif Path(text).suffix.lower() == ".csv":
            rates |= _table(Path(text))
        elif currency is not None:
            rates[currency.upper()] = ((date.min, _rate(text, text, currency.upper())),)
        else:
            if re.fullmatch(r"[A-Za-z]{3}", text):
                raise DataError(
                    f"--fx {text!r} does not say the rate; write US dollars for one: --fx {text.upper()}=1.08"
                )
            raise DataError(
                f"--fx {text!r} does not say of which currency; write --fx EUR={text}, or add --currency EUR"
            )
    return rates


def _rate(number: str, text: str, currency: str) -> float:
    try:
        rate = float(number)
    except ValueError:
        raise DataError(
            f"--fx {text!r}: {number!r} is not a number; give US dollars for one unit, e.g. EUR=1.08"
        ) from None
    if not 0 < rate < 1e6:
        raise DataError(f"--fx {text!r}: a rate must be above 0 and below 1,000,000 US dollars for one unit")
    if currency in _NEAR_A_DOLLAR and not 0.2 < rate < 5:
        raise DataError(
            f"--fx {text!r}: one {currency} has never been worth {rate:g} US dollars; give dollars for one unit, such "
            f"as {currency}=1.1"
        )
    return rate


def _table(path: Path) -> Rates:
    """Returns the rates of a file."""
    table = read_text_file(path).table()
    day, currency, usd = (table.column(name) for name in ("day", "currency", "usd"))
    days = table.frame[day].str.to_date("%Y-%m-%d", strict=False)
    table.refuse(days.is_null(), day, "is not a day; write it as in 2024-03-31")
    value = table.numbers(usd, "US dollars for one unit")
    table.refuse(value.is_null() | (value <= 0), usd, "is not above 0; give US dollars for one unit")
    frame = pl.DataFrame({"currency": table.frame[currency].str.to_uppercase(), "day": days, "usd": value}).sort("day")
    return {
        str(code): tuple(zip(group["day"].to_list(), group["usd"].to_list(), strict=True))
        for (code,), group in frame.group_by("currency")
    }
