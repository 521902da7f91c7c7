"""Fits a net of learned forecasts (``noonward.forecasts.learned``) to the hours of any zones, and measures it; torch.

The last fifth of the hours is held out: no target of training lies in it. A sample is an hour of issue with one to
seven days known before it. The loss is Huber's, of the regression's error in units of the zone's last day.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import numpy as np
import torch

from noonward.arrays import F8
from noonward.errors import DataError
from noonward.forecasts.forecaster import price_and_carbon
from noonward.forecasts.learned import KINDS, LEADS, ForecastNet, LearnedForecaster, known
from noonward.forecasts.persistence import PersistenceForecaster
from noonward.forecasts.regression import regressed
from noonward.model.signals import Signals
from noonward.units import DAY_H

LEAST_DAYS: Final = 730
"""Fewest days of hours: a year's seasons twice, so that those held out have been seen."""
LEAST_KNOWN: Final = 0.8
"""Least share of the hours that must be known in every zone."""
HELD_OUT: Final = 0.2
"""Share of the hours that is held out, at the end."""
HOURS_KNOWN: Final = (24, 30, 36, 49, 49, 49, 55, 61, 68, 75, 85, 96, 108, 120, 144, 168, 168, 168)
"""Hours known up to the hour of issue of a sample."""
SHOWN_LEADS: Final = (1, 3, 6, 12, 18, 24, 36, 48)
"""Leads that errors are reported at, h."""
FARTHEST: Final = 20.0
"""Errors count up to this many units."""
NAMES: Final = ("price", "carbon")


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """How a net is fitted.

    Attributes:
        passes: Passes over the samples.
        every_h: Hours from one hour of issue to the next.
        hidden: Widths of the hidden layers.
        batch: Samples a step.
        rate: First learning rate; it falls to 0 along a cosine.
        dropout: Share of hidden outputs that are left out at random.
        decay: Weight decay.
        huber: Errors above this many units count by their size, below by their square.
        seed: Seed of net, samples and steps.
    """

    passes: int = 4
    every_h: int = 2
    hidden: tuple[int, ...] = (512, 512)
    batch: int = 512
    rate: float = 1e-3
    dropout: float = 0.1
    decay: float = 0.01
    huber: float = 1.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class FittedForecast:
    """A net with its errors on the hours held out.

    Attributes:
        net: The net.
        error_KFZL: Mean absolute error: K price (USD/MWh) and carbon intensity (g/kWh), F learned, regression and
            persistence, Z zones, L ``SHOWN_LEADS``.
    """

    net: ForecastNet
    error_KFZL: F8


@dataclass(frozen=True)
class Samples:
    """Inputs (B, F) and errors of the regression in units (B, 2 x leads)."""

    input_BF: np.ndarray
    error_BL: np.ndarray


def fit_forecast(
    signals: Signals, settings: FitSettings | None = None, progress: Callable[[str], None] | None = None
) -> FittedForecast:
    """Fits a net to the first four fifths of some hours and measures it on the rest.

    Args:
        signals: Prices and carbon intensities of the zones; unknown hours are NaN.
        settings: How it is fitted.
        progress: Told what is done.

    Raises:
        DataError: There are fewer than two years of hours, or too few of a zone are known.
    """
    settings, say = settings or FitSettings(), progress or (lambda _: None)
    require_hours(signals)
    split = int(signals.hours * (1 - HELD_OUT)) // DAY_H * DAY_H
    train = signals.window(signals.start, split)
    say("samples")
    found = fit_samples(train, settings)
    record: dict[str, Any] = {
        "about": "Net of learned forecasts; made by noonward fit-forecast.",
        "zones": list(signals.zones),
        "fitted_from": signals.start.isoformat(),
        "fitted_until": (signals.start + timedelta(hours=split)).isoformat(),
        "held_out_until": signals.end.isoformat(),
        "samples": len(found.input_BF),
        "settings": dict(vars(settings)),
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "shown_leads": list(SHOWN_LEADS),
    }
    net = fit_net(found, signals.zones, settings, record, say)
    say("held-out hours")
    error_KFZL = held_out_errors(net, signals, split)
    for k, name in enumerate(NAMES):
        record[f"held_out_error_{name}"] = {
            zone: {kind: [float(f"{value:.4g}") for value in error_KFZL[k, f, z]] for f, kind in enumerate(KINDS)}
            for z, zone in enumerate(signals.zones)
        }
    return FittedForecast(net=net, error_KFZL=error_KFZL)


def fit_net(
    found: Samples,
    zones: tuple[str, ...],
    settings: FitSettings,
    record: dict[str, Any],
    say: Callable[[str], None],
) -> ForecastNet:
    """Returns a net that is fitted to some samples, its weights in half precision.

    Args:
        found: Samples.
        zones: Zones it is to know.
        settings: How it is fitted.
        record: How it is made.
        say: Told what is done.
    """
    torch.manual_seed(settings.seed)
    input_BF = torch.tensor(found.input_BF)
    mean_F, spread_F = input_BF.mean(0), input_BF.std(0) + 1e-3
    module = make_net(input_BF.shape[1], settings)
    train_net(module, (input_BF - mean_F) / spread_F, torch.tensor(found.error_BL), settings, say)
    layers = [layer for layer in module if isinstance(layer, torch.nn.Linear)]
    half = [layer.weight.detach().numpy().T.astype(np.float16) for layer in layers]
    return ForecastNet(
        zones=zones,
        mean_F=mean_F.numpy().astype(np.float64),
        spread_F=spread_F.numpy().astype(np.float64),
        weights=tuple(weight.astype(np.float64) for weight in half),
        biases=tuple(layer.bias.detach().numpy().astype(np.float16).astype(np.float64) for layer in layers),
        record=record,
    )


def require_hours(signals: Signals) -> None:
    """Raises DataError unless there are two years of hours, most of them known in every zone."""
    if signals.hours < LEAST_DAYS * DAY_H:
        raise DataError(
            f"a forecast needs {LEAST_DAYS} days of hours; the files hold {signals.hours / DAY_H:.0f} days "
            f"({signals.start:%Y-%m-%d} to {signals.end:%Y-%m-%d}): give more of them"
        )
    for name, value_ZH in zip(("price", "carbon intensity"), price_and_carbon(signals), strict=True):
        for zone, share in zip(signals.zones, np.isfinite(value_ZH).mean(axis=1), strict=True):
            if share < LEAST_KNOWN:
                raise DataError(
                    f"the {name} of {zone} is known in {share:.0%} of the hours; "
                    f"a forecast needs at least {100 * LEAST_KNOWN:g}%: complete the files, or leave the zone out"
                )


def fit_samples(signals: Signals, settings: FitSettings) -> Samples:
    """Returns the samples of some hours: of every zone that is known around an hour of issue."""
    rng = np.random.default_rng(settings.seed)
    value_KZH, places = price_and_carbon(signals), len(signals.zones)
    inputs, errors = [], []
    for issue in range(max(HOURS_KNOWN) + int(rng.integers(settings.every_h)), signals.hours - LEADS, settings.every_h):
        known_h = int(rng.choice(HOURS_KNOWN))
        first = issue + 1 - known_h
        zone_Z = np.flatnonzero(np.isfinite(value_KZH[:, :, first : issue + 1 + LEADS]).all((0, 2)))
        if not len(zone_Z):
            continue
        seen_KZH, at = value_KZH[:, zone_Z, first : issue + 1], np.array([known_h - 1])
        found = known(seen_KZH, at, signals.time_of(first), zone_Z.tolist(), places)
        said_ZKL = regressed(seen_KZH, at, LEADS + 1)[:, 0, :, 1:].swapaxes(0, 1)
        true_ZKL = value_KZH[:, zone_Z, issue + 1 : issue + 1 + LEADS].swapaxes(0, 1)
        unit_ZK = found.unit_KIZ[:, 0].T
        inputs.append(found.input_IZF[0].astype(np.float32))
        error = ((true_ZKL - said_ZKL) / unit_ZK[:, :, None]).clip(-FARTHEST, FARTHEST)
        errors.append(error.reshape(len(zone_Z), -1).astype(np.float32))
    if not inputs:
        raise DataError(
            f"no stretch of {max(HOURS_KNOWN) + LEADS} hours is known without a gap in any zone; complete the files "
            "(noonward import --fill-gaps)"
        )
    return Samples(np.concatenate(inputs), np.concatenate(errors))


class Hidden(torch.nn.Module):
    """The hidden function of ``ForecastNet``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns x / (1 + exp(-1.702 x))."""
        return x * torch.sigmoid(1.702 * x)


def make_net(inputs: int, settings: FitSettings) -> torch.nn.Sequential:
    """Returns an untrained net that says almost nothing."""
    layers: list[torch.nn.Module] = []
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise((inputs, *settings.hidden, 2 * LEADS))):
        layers += [] if layer == 0 else [Hidden(), torch.nn.Dropout(settings.dropout)]
        layers.append(torch.nn.Linear(fan_in, fan_out))
    last = layers[-1]
    assert isinstance(last, torch.nn.Linear)
    with torch.no_grad():
        last.weight.mul_(0.1)
    return torch.nn.Sequential(*layers)


def train_net(
    net: torch.nn.Sequential,
    input_BF: torch.Tensor,
    error_BL: torch.Tensor,
    settings: FitSettings,
    say: Callable[[str], None],
) -> None:
    """Fits a net in place."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=settings.rate, weight_decay=settings.decay)
    size = min(settings.batch, len(input_BF))
    batches = len(input_BF) // size
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.passes * batches)
    for number in range(1, settings.passes + 1):
        net.train()
        total = 0.0
        for rows in torch.randperm(len(input_BF))[: batches * size].view(batches, size):
            loss = torch.nn.functional.smooth_l1_loss(net(input_BF[rows]), error_BL[rows], beta=settings.huber)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        net.eval()
        say(f"pass {number} of {settings.passes}, loss {total / batches:.4f}")


def held_out_errors(net: ForecastNet, signals: Signals, split: int, every_h: int = 5) -> F8:
    """Returns the mean absolute errors on the hours from a split on; axes as in ``FittedForecast.error_KFZL``.

    Every forecast knows the week before its hour of issue; hours around which something is unknown are left out.
    """
    week = max(HOURS_KNOWN)
    value_KZH = price_and_carbon(signals)
    errors: list[list[F8]] = [[] for _ in signals.zones]
    for issue in range(max(split, week), signals.hours - LEADS, every_h):
        first = issue + 1 - week
        for z in np.flatnonzero(np.isfinite(value_KZH[:, :, first : issue + 1 + LEADS]).all((0, 2))):
            seen_KZH = value_KZH[:, z : z + 1, first : issue + 1]
            errors[z].append(_errors(net, signals, seen_KZH, int(z), first, value_KZH[:, z, issue + 1 :]))
    for zone, found in zip(signals.zones, errors, strict=True):
        if not found:
            raise DataError(
                f"no stretch of {week + LEADS} hours of {zone} is known without a gap in the last fifth of the hours, "
                "which is held out; complete the files (noonward import --fill-gaps)"
            )
    return np.stack([np.mean(found, axis=0) for found in errors], axis=2)


def _errors(net: ForecastNet, signals: Signals, seen_KZH: F8, z: int, first: int, ahead_KH: F8) -> F8:
    """Returns the absolute errors of one hour of issue in one zone: price and carbon, forecasts, shown leads."""
    at, leads = np.array([seen_KZH.shape[2] - 1]), max(SHOWN_LEADS) + 1
    shown = np.array(SHOWN_LEADS)
    learned = LearnedForecaster(net, (signals.zones[z],), signals.time_of(first), seen_KZH)
    said: Sequence[F8] = (
        learned.values(seen_KZH, at, leads),
        regressed(seen_KZH, at, leads),
        PersistenceForecaster(seen_KZH.shape[2] - 1).values(seen_KZH, at, leads),
    )
    return np.stack([np.abs(each[:, 0, 0, shown] - ahead_KH[:, shown - 1]) for each in said], axis=1)
