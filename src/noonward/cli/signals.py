"""``noonward data show``: prices and carbon intensities of files as pictures."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.options import FirstDay, LastDay, print_notes

if TYPE_CHECKING:
    from noonward.model.signals import Signals


def show(
    files: Annotated[
        list[Path], typer.Argument(help="Signal files; a later one fills what earlier ones leave unknown.")
    ],
    zones: Annotated[str | None, typer.Option(help="Comma-separated zones. [default: all]")] = None,
    first: FirstDay = None,
    last: LastDay = None,
    format: Annotated[str | None, typer.Option(help="Format of all files (see 'noonward import --formats').")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the picture as a page (.html) or a drawing (.svg).")
    ] = None,
) -> None:
    """Show prices and carbon over time, and on an average day."""
    from noonward.cli.options import split_names
    from noonward.data.signals.load import load_signals
    from noonward.evaluate.report.signal_charts import require_ending, write_signal_charts

    if out is not None:
        require_ending(out)
    wanted = split_names(zones)
    loaded = _window(load_signals(files, format, zones=None if wanted is None else tuple(wanted)), first, last)
    if out is not None:
        write_signal_charts(loaded, out)
    _print(loaded)
    print_notes(loaded.notes)
    if out is not None:
        print(f"picture: {out}")


def _window(signals: Signals, first: datetime | None, last: datetime | None) -> Signals:
    """Returns the days asked for.

    Raises:
        ScenarioError: The last day is before the first.
        SignalRangeError: The files do not hold them.
    """
    from datetime import UTC, timedelta

    from noonward.errors import ScenarioError

    begin = signals.start if first is None else first.replace(tzinfo=UTC)
    end = signals.end if last is None else last.replace(tzinfo=UTC) + timedelta(days=1)
    if end <= begin:
        raise ScenarioError(f"--to {end - timedelta(days=1):%Y-%m-%d} is before {begin:%Y-%m-%d}; give a later day")
    return signals.window(begin, int((end - begin) / timedelta(hours=1)))


def _print(signals: Signals) -> None:
    """Prints one line per zone and quantity: the series, its average day, its minimum, mean and maximum."""
    import numpy as np
    from rich.console import Console

    from noonward.cli.strips import in_columns, scale, spread, strip
    from noonward.evaluate.report.signal_charts import usual_day

    console = Console()
    wide = min(console.width, 160) if console.is_terminal else 140
    label = max(map(len, signals.zones))
    columns = min(signals.hours, max(24, wide - label - 56))
    span = f"{signals.start:%Y-%m-%d %H:%M} to {signals.end:%Y-%m-%d %H:%M} UTC"
    print(f"{span}, {signals.hours} hours; a column is {signals.hours / columns:.3g} h, a blank is unknown")
    for what, unit, value_ZH in (
        ("price", "USD/MWh", signals.price_usd_per_mwh_ZH),
        ("carbon intensity", "g CO2/kWh", signals.carbon_g_per_kwh_ZH),
    ):
        if np.isnan(value_ZH).all():
            print(f"\n{what}: unknown throughout")
            continue
        course_ZC = np.array([in_columns(value_H, columns) for value_H in value_ZH])
        day_ZP = np.array([usual_day(value_H, signals.start.hour) for value_H in value_ZH])
        print(f"\n{f'{what}, {unit}':<{label + 2 + columns}}  {'average day':<24}  {'min':>7} {'mean':>7} {'max':>7}")
        for zone, value_H, course_C, day_P in zip(signals.zones, value_ZH, course_ZC, day_ZP, strict=True):
            finite = value_H[np.isfinite(value_H)]
            figures = [f"{each:>7,.0f}" for each in (finite.min(), finite.mean(), finite.max())] if len(finite) else []
            drawn = strip(course_C, *scale(course_ZC))
            day = strip(day_P, *scale(day_ZP))
            print(f"{zone:>{label}}  {drawn}  {day}  {' '.join(figures) or 'unknown'}")
        ends = [f"{signals.start:%Y-%m-%d}", f"{signals.end:%Y-%m-%d}"]
        print(" " * (label + 2) + f"{spread(ends, columns):<{columns}}  {spread(['0 h', '12', '24 UTC'], 24)}")
