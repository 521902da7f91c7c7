"""Scores forecasts by zone, quantity and range of leads on recorded hours: which one is the closest where.

Usage: python tools/score_forecasts.py SIGNALS.parquet

SIGNALS.parquet holds the recorded hours that the packaged nets were trained on (docs/lab/fine-tuning.md). Printed for
the validation months, and for the test months: mean absolute errors over those of the packaged net 0, and in how many
zones another forecast is closer.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import numpy as np
import polars as pl

from noonward.arrays import F8
from noonward.data.splits import MONTHS, Split
from noonward.forecasts.forecast import Forecast
from noonward.forecasts.learned import KINDS, find_net
from noonward.model.signals import CARBON_NAME, PRICE_NAME, Signals

YEARS = (2021, 2022, 2023)
HISTORY_D, LEADS, STEP_H = 29, 49, 5
COLUMNS = ("price_usd_per_mwh", "carbon_intensity_g_per_kwh")
PARTS: tuple[Split, ...] = ("validation", "test")
QUANTITIES = ("price", "carbon")
LAST_LEADS_H = (6, 24)


def main() -> None:
    """Measures and prints."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    frame = pl.read_parquet(sys.argv[1]).with_columns(pl.col("zone").cast(pl.String))
    for part in PARTS:
        error_ZNKB = np.array(
            [errors(frame.filter(pl.col("zone") == zone).sort("timestamp"), part) for zone in find_net(0).zones]
        )
        error_ZNKB = error_ZNKB[np.isfinite(error_ZNKB).all(axis=(1, 2, 3))]
        print(f"{part} months, {len(error_ZNKB)} zones; errors over the net's, leads to 6, 24 and {LEADS - 1} h")
        for k, quantity in enumerate(QUANTITIES):
            over_ZNB = error_ZNKB[:, :, k] / error_ZNKB[:, :1, k]
            for n, kind in enumerate(KINDS[1:], start=1):
                closer = (over_ZNB[:, n] < 1.0).sum(axis=0).tolist()
                print(f"  {quantity} {kind}", over_ZNB[:, n].mean(axis=0).round(3).tolist(), "closer in zones", closer)


def errors(hours: pl.DataFrame, part: Split) -> F8:
    """Returns the mean absolute errors, (KINDS, QUANTITIES, ranges of leads); NaN where nothing is known."""
    total_NKB, count_KB = np.zeros((len(KINDS), 2, len(LAST_LEADS_H) + 1)), np.zeros((2, len(LAST_LEADS_H) + 1))
    for year in YEARS:
        for month in MONTHS[part]:
            first = datetime(year, month, 1, tzinfo=UTC)
            span = hours.filter(
                pl.col("timestamp").is_between(
                    pl.lit(first).dt.offset_by(f"-{HISTORY_D}d"), pl.lit(first).dt.offset_by("33d"), closed="left"
                )
            )
            value_KZH = np.stack([span[name].cast(pl.Float64).to_numpy() for name in COLUMNS])[:, None]
            if span.height < (HISTORY_D + 33) * 24 or np.isnan(value_KZH).any():
                continue
            history_h = HISTORY_D * 24
            issue_I = np.arange(history_h, history_h + 30 * 24, STEP_H)

            zone, values = hours["zone"][0], dict(zip((PRICE_NAME, CARBON_NAME), value_KZH, strict=True))
            signals = Signals(start=span["timestamp"][0], zones=(zone,), value_ZH=values)
            true_KIL = value_KZH[:, 0][:, issue_I[:, None] + np.arange(LEADS)]
            for n, kind in enumerate(KINDS):
                forecaster = Forecast(kind).forecaster(signals, history_h, np.random.default_rng(0))
                error_KL = np.abs(forecaster.values(value_KZH, issue_I, LEADS)[:, :, 0] - true_KIL).sum(axis=1)
                for band in range(len(LAST_LEADS_H) + 1):
                    of_band_L = (np.searchsorted(LAST_LEADS_H, np.arange(LEADS)) == band) & (np.arange(LEADS) > 0)
                    total_NKB[n, :, band] += error_KL[:, of_band_L].sum(axis=1)
                    count_KB[:, band] += len(issue_I) * of_band_L.sum() if n == 0 else 0
    return total_NKB / np.where(count_KB > 0, count_KB, np.nan)


if __name__ == "__main__":
    main()
