"""``noonward fit-forecast``: a forecast of your own zones, learned from two years of their hours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.options import Json
from noonward.cli.progress import progress_bar

if TYPE_CHECKING:
    from noonward.learn.forecast_fit import FittedForecast


def fit_forecast(
    name: Annotated[str, typer.Argument(help="Name of the forecast, e.g. mine: net=mine in the name of a policy.")],
    signals: Annotated[
        list[Path],
        typer.Option("--signals", help="Signal file (see 'noonward import'); repeat it.", show_default=False),
    ],
    zones: Annotated[str | None, typer.Option(help="Zones, separated by commas. [default: all of the files]")] = None,
    passes: Annotated[int, typer.Option(min=1, max=1000, help="Passes over the samples.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of network and samples.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing forecast.")] = False,
    json: Json = False,
) -> None:
    """Fit a learned forecast to the hours of your zones.

    Prints its error on held-out hours beside those of simpler forecasts.
    """
    from noonward.cli.options import split_names
    from noonward.data.signals.load import load_signals
    from noonward.errors import MissingExtraError, ScenarioError
    from noonward.files import SLUG
    from noonward.forecasts.learned import MEAN, SMALL, net_path, write_net

    if not SLUG.fullmatch(name) or name.isdigit():
        raise ScenarioError(
            f"a forecast cannot be named {name!r}; use letters, digits, dots, dashes and underscores, not digits alone"
        )
    if name in (MEAN, *SMALL):
        raise ScenarioError(f"{name!r} names a packaged forecast; choose another name")
    place = net_path(name)
    if place.exists() and not force:
        raise ScenarioError(f"{place} exists; choose another name, or replace it with --force")
    for path in signals:
        if not path.is_file():
            raise ScenarioError(f"file {path} does not exist; check the path")
    try:
        from noonward.learn.forecast_fit import FitSettings
        from noonward.learn.forecast_fit import fit_forecast as fit
    except ImportError as error:
        raise MissingExtraError(error.name or "torch", "train") from error
    wanted = split_names(zones)
    if wanted is not None and not wanted:
        raise ScenarioError("--zones names no zone; write --zones DE,FR, or leave it out for all of the files")
    hours = load_signals(signals, zones=None if wanted is None else tuple(dict.fromkeys(wanted)))
    with progress_bar(passes + 2, name, unit="steps", results=place.parent) as step:
        fitted = fit(hours, FitSettings(passes=passes, seed=seed), step)
    write_net(fitted.net, place)
    if json:
        _print_json(fitted, place)
    else:
        _print_errors(fitted, place, name)


def _print_errors(found: FittedForecast, place: Path, name: str) -> None:
    """Prints a table of the held-out errors and how the forecast is used."""
    from rich.table import Table

    from noonward.cli.options import print_table
    from noonward.forecasts.learned import KINDS
    from noonward.learn.forecast_fit import SHOWN_LEADS

    record = found.net.record
    print(
        f"fitted on {record['samples']:,} samples of {record['fitted_from'][:10]} to {record['fitted_until'][:10]}; "
        f"mean absolute errors on the hours held out, to {record['held_out_until'][:10]}:"
    )
    table = Table("zone", "signal", "forecast", *(f"{lead} h" for lead in SHOWN_LEADS))
    for k, what in enumerate(("price, USD/MWh", "carbon, g/kWh")):
        for z, zone in enumerate(found.net.zones):
            least_L = found.error_KFZL[k, :, z].argmin(axis=0)
            for f, kind in enumerate(KINDS):
                measured = zip(found.error_KFZL[k, f, z], least_L, strict=True)
                errors = [f"{value:.3g}{'*' if least == f else ''}" for value, least in measured]
                table.add_row(zone if f == 0 else "", what if f == 0 else "", kind, *errors)
    print_table(table)
    print("*: the closest, which the forecast takes for this zone, signal and leads up to this one")
    print(f"written: {place}")
    print(f"use it by name: --policies 'bid-price(forecast=learned, net={name})'")


def _print_json(found: FittedForecast, place: Path) -> None:
    """Prints the errors as figures: mean over the zones by signal, forecast and lead."""
    from noonward.evaluate.metrics import Metric, to_json
    from noonward.forecasts.learned import KINDS
    from noonward.learn.forecast_fit import NAMES, SHOWN_LEADS

    units = ("USD/MWh", "gCO2/kWh")
    metrics = [
        Metric.of(f"held_out_error/{zone}/{NAMES[k]}/{kind}/{lead}h", float(found.error_KFZL[k, f, z, at]), units[k])
        for k in range(2)
        for z, zone in enumerate(found.net.zones)
        for f, kind in enumerate(KINDS)
        for at, lead in enumerate(SHOWN_LEADS)
    ]
    print(to_json(metrics, file=str(place)))
