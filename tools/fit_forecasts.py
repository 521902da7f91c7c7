"""Fits the packaged weights of the regression forecasts (``noonward.forecasts.regression``).

    python tools/fit_forecasts.py SIGNALS.parquet STANDIN.parquet OUT.json

SIGNALS holds hourly signals, STANDIN fills prices SIGNALS leaves unknown (both in the tidy format of docs/data.md).

Training uses the calibrated zones in the training months alone (``noonward.data.splits``): the real hours of 2021 and
2022 and generated draws of the statistics ``w2022``. Stretches never cross into another month: neither a target nor a
feature lies in a month of validation or test. Every sample is an hour of issue with one to seven days of history; its
unit is the mean distance of the last 24 hours from their median, its zero their mean, so that every zone has the same
weight. Per lead: ridge regression of the value ahead on the features with Huber's loss (a residual beyond HUBER units
has the influence of one of HUBER units; no value is clipped), weights that sum to 1. Errors are measured on the
validation months, for the five zones of ``fine-tuning``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import numpy as np

from noonward.data.signals.calibration import load_calibration
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import load_signals
from noonward.data.splits import MONTHS, Split, split_seed
from noonward.forecasts.regression import DAY_H, FEATURES, SignalName, features
from noonward.model.signals import Signals

YEARS = (2021, 2022)
LEADS = 48
EVERY_H = 11
HISTORY_DAYS = (1, 2, 2, 3, 3, 4, 7)
DRAWS: dict[Split, int] = {"train": 2, "validation": 4}
RIDGE, HUBER, ROUNDS = 0.02, 3.0, 6
FARTHEST = 20.0
LEAST_UNIT = 0.05
OWN_ZONES = ("AU-SA", "AU-WA", "CA-ON", "PL", "SG")
SHOWN_LEADS = (1, 3, 6, 12, 18, 24, 36, 48)


def stretches(part: Split, years: tuple[int, ...]) -> list[tuple[datetime, int]]:
    """Returns the (start, hours) of the longest runs of consecutive months of one part."""
    out: list[tuple[datetime, int]] = []
    for year in years:
        for month in MONTHS[part]:
            start = datetime(year, month, 1, tzinfo=UTC)
            hours = ((start + timedelta(days=32)).replace(day=1) - start) // timedelta(hours=1)
            if out and out[-1][0] + timedelta(hours=out[-1][1]) == start:
                out[-1] = (out[-1][0], out[-1][1] + hours)
            else:
                out.append((start, hours))
    return out


def real(paths: list[Path], zones: tuple[str, ...], part: Split, years: tuple[int, ...] = YEARS) -> Iterator[Signals]:
    """Yields the real signals of one part, stretch by stretch, as far as the files reach."""
    signals = load_signals(paths, zones=zones)
    for start, hours in stretches(part, years):
        left = (signals.end - start) // timedelta(hours=1)
        if left > 0:
            yield signals.window(start, min(hours, left))


def generated(
    zones: tuple[str, ...], part: Split, draws: range | None = None, calibration: str = "w2022"
) -> Iterator[Signals]:
    """Yields generated signals of one part, stretch by stretch."""
    for draw in range(DRAWS[part]) if draws is None else draws:
        for start, hours in stretches(part, (2022,)):
            rng = np.random.default_rng(split_seed(part, draw))
            yield generate_signals(zones, start, hours, rng, calibration)


def samples(signals: Iterator[Signals], name: SignalName, seed: int) -> tuple[np.ndarray, ...]:
    """Returns features (N, 24, features), values ahead (N, leads), units (N) and zones (N) of some signals."""
    rng = np.random.default_rng(seed)
    parts: list[tuple[np.ndarray, np.ndarray, float, str]] = []
    for one in signals:
        value_ZH = one.price_usd_per_mwh_ZH if name == "price" else one.carbon_g_per_kwh_ZH
        first = max(HISTORY_DAYS) * DAY_H
        for zone, value_H in zip(one.zones, value_ZH, strict=True):
            for issue in range(first + int(rng.integers(EVERY_H)), one.hours - LEADS, EVERY_H):
                history_h = DAY_H * int(rng.choice(HISTORY_DAYS))
                seen_H = value_H[issue + 1 - history_h : issue + 1]
                ahead_L = value_H[issue + 1 : issue + 1 + LEADS]
                if not (np.isfinite(seen_H).all() and np.isfinite(ahead_L).all()):
                    continue
                unit = float(np.abs(seen_H[-DAY_H:] - np.median(seen_H[-DAY_H:])).mean())
                feature_PF = features(seen_H[None], np.array([history_h - 1]))[0, 0]
                parts.append((feature_PF, ahead_L, unit, zone))
    return tuple(np.array(column) for column in zip(*parts, strict=True))


def fit(feature_NPF: np.ndarray, ahead_NL: np.ndarray, unit_N: np.ndarray) -> np.ndarray:
    """Returns weights (leads, features) that sum to 1 per lead, by ridge regression with Huber's loss.

    Per lead: least sum of huber((y - c - sum_f w_f (x_f - c)) / u) plus a ridge on w, with c the last day's mean, whose
    own weight is what the others leave to 1; solved by reweighted least squares.
    """
    mean = FEATURES.index("mean")
    others = [f for f in range(len(FEATURES)) if f != mean]
    unit_N = np.maximum(unit_N, LEAST_UNIT * np.median(unit_N))
    zero_N = feature_NPF[:, 0, mean]
    out = np.empty((ahead_NL.shape[1], len(FEATURES)))
    for lead in range(1, len(out) + 1):
        x = (feature_NPF[:, lead % DAY_H][:, others] - zero_N[:, None]) / unit_N[:, None]
        x = np.clip(x, -FARTHEST, FARTHEST)
        y = (ahead_NL[:, lead - 1] - zero_N) / unit_N
        pull_N = np.ones(len(y))
        for _ in range(ROUNDS):
            squares = (x * pull_N[:, None]).T @ x / len(y) + RIDGE * np.eye(len(others))
            weight = np.linalg.solve(squares, (x * pull_N[:, None]).T @ y / len(y))
            pull_N = np.minimum(1.0, HUBER / np.maximum(np.abs(y - x @ weight), 1e-9))
        out[lead - 1, others] = np.round(weight, 4)
        out[lead - 1, mean] = np.round(1.0 - out[lead - 1, others].sum(), 4)
    return out


def errors(found: tuple[np.ndarray, ...], weight_LF: np.ndarray) -> dict[str, dict[str, list[float]]]:
    """Returns per zone the mean absolute errors of regression and persistence at the leads that are shown."""
    feature_NPF, ahead_NL, _, zone_N = found
    out: dict[str, dict[str, list[float]]] = {}
    for zone in OWN_ZONES:
        own = zone_N == zone
        pair: dict[str, list[float]] = {"regression": [], "persistence": []}
        for lead in SHOWN_LEADS:
            feature_NF, right_N = feature_NPF[own, lead % DAY_H], ahead_NL[own, lead - 1]
            pair["regression"].append(float(np.abs(feature_NF @ weight_LF[lead - 1] - right_N).mean()))
            pair["persistence"].append(float(np.abs(feature_NF[:, FEATURES.index("day")] - right_N).mean()))
        out[zone] = {kind: [float(f"{value:.4g}") for value in values] for kind, values in pair.items()}
    return out


def main() -> None:
    """Fits both signals and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("signals", type=Path, help="tidy table of signals")
    parser.add_argument("standin", type=Path, help="table that fills unknown prices")
    parser.add_argument("out", type=Path, help="JSON file to write")
    given = parser.parse_args()
    zones = tuple(load_calibration("w2022").zones)
    paths = [given.signals, given.standin]
    signals: dict[str, Any] = {}
    for seed, name in enumerate(get_args(SignalName)):
        of_train = [
            samples(real(paths, zones, "train"), name, seed),
            samples(generated(zones, "train"), name, seed),
        ]
        feature_NPF, ahead_NL, unit_N = (np.concatenate(columns) for columns in list(zip(*of_train, strict=True))[:3])
        weight_LF = fit(feature_NPF, ahead_NL, unit_N)
        signals[name] = {
            "samples": {"real": len(of_train[0][0]), "generated": len(of_train[1][0])},
            "validation_error": {
                "real": errors(samples(real(paths, OWN_ZONES, "validation"), name, seed), weight_LF),
                "generated": errors(samples(generated(OWN_ZONES, "validation"), name, seed), weight_LF),
            },
            "weights": weight_LF.tolist(),
        }
    table = {
        "about": "Weights of the regression forecasts of prices (USD/MWh) and carbon intensities (gCO2/kWh), a row "
        "per lead from 1 h; no series is contained. Formulas: "
        "noonward.forecasts.regression; made by tools/fit_forecasts.py.",
        "features": FEATURES,
        "made": {
            "zones": zones,
            "months": {part: MONTHS[part] for part in ("train", "validation")},
            "real_years": YEARS,
            "generated": {"calibration": "w2022", "first_seeds": {p: split_seed(p, 0) for p in ("train", "validation")},
                          "draws": DRAWS},
            "history_days": HISTORY_DAYS,
            "ridge": RIDGE,
            "huber": HUBER,
        },
        "validation_error": "Mean absolute error per zone at the leads " + ", ".join(map(str, SHOWN_LEADS)) + " h.",
        "shown_leads": SHOWN_LEADS,
        "signals": signals,
    }  # fmt: skip
    given.out.write_text(json.dumps(table, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
