"""Computes the packaged statistics table of the signal generator from hourly series of real zones.

    python tools/calibrate_signals.py SIGNALS.parquet STANDIN.parquet ZONES.json OUT.json

SIGNALS is a tidy table (timestamp, zone, carbon_intensity_g_per_kwh, price_usd_per_mwh), STANDIN one that fills the
price hours SIGNALS leaves unknown, ZONES.json maps each zone to its standard UTC offset in hours. Needs scipy.
The formulas are in ``noonward.data.signals.generate``; this tool estimates their parameters:

* profile: mean by month and UTC hour, spikes winsorised (they belong to the curves); weekend step: winsorised mean of
  the rest on local weekend days less the others;
* spread by hour: (p90 - p10) of the rest by UTC hour over the root mean square of all hours;
* residual curve of a month and quarter of the UTC day: monotone piecewise linear fit of the residuals over
  spread against their normal scores, with the cell's mean;
* memory and correlation: a first fit to the normal scores (non-negative least squares on the components'
  autocorrelations; Pearson correlation), then a few rounds that draw from the table, measure autocorrelation and
  winsorised correlation of the drawn residuals as on the real ones, and move the targets by the difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import nnls
from scipy.stats import norm, rankdata

from noonward.data.signals.calibration import read_calibration
from noonward.data.signals.generate import draw_signals, innovation_correlation

WINDOWS = {
    "w2022": (datetime(2022, 1, 1, tzinfo=UTC), datetime(2023, 1, 1, tzinfo=UTC)),
    "train": (datetime(2021, 1, 1, tzinfo=UTC), datetime(2023, 7, 1, tzinfo=UTC)),
}
SCORE_KNOTS = [-2.4, -1.4, -0.7, 0.0, 0.7, 1.4, 2.0, 2.4, 2.8]
ROUNDS, DRAWS = 6, 6
COMPONENTS = [
    {"tau_h": tau, "period_h": period}
    for tau, period in [(0.4, 0), (2, 0), (8, 0), (30, 0), (120, 0), (700, 0), (40, 24), (400, 24), (100, 12)]
]
SHRINK = 0.8
LAGS = np.r_[1:49, 60, 72, 84, 96, 120, 144, 168, 192, 240, 336]
SOURCES = {
    "carbon": "Electricity Maps, lifecycle carbon intensity; Open Database License (ODbL) 1.0. These statistics are "
    "derived from that database.",
    "price": {
        "DE ES FR NL PL": "ENTSO-E Transparency Platform, day-ahead prices, EUR (DE: the DE-LU zone)",
        "AU-NSW AU-SA AU-VIC": "AEMO, National Electricity Market regional reference price, AUD",
        "AU-WA": "stand-in: a model fitted on 551 real hours of AEMO's WEM balancing price and on AEMO's published "
        "monthly statistics; not market data",
        "CA-ON": "IESO, Hourly Ontario Energy Price, CAD",
        "SG": "EMC, Uniform Singapore Energy Price, SGD, first half-hour of each hour only",
        "KR": "KPX, system marginal price, KRW",
        "US-CAL-CISO": "CAISO, NP15 day-ahead, USD",
        "US-NY-NYIS": "NYISO, Capital day-ahead, USD",
        "US-TEX-ERCO": "ERCOT, hub average, USD",
    },
    "currency": "local prices over the IRS yearly average exchange rate of the UTC year",
}


def autocorrelation(score: np.ndarray, lags: np.ndarray) -> np.ndarray:
    """Returns the autocorrelation at some lags over pairs of known hours."""
    known = np.where(np.isnan(score), 0.0, score)
    mask = (~np.isnan(score)).astype(float)
    variance = (known**2).sum() / mask.sum()
    return np.array([(known[k:] * known[:-k]).sum() / (mask[k:] * mask[:-k]).sum() / variance for k in lags])


def memory_basis(lags: np.ndarray) -> np.ndarray:
    """Returns the components' autocorrelations at some lags, shape ``(lags, components)``."""
    columns = []
    for c in COMPONENTS:
        wave = np.cos(2 * np.pi * lags / c["period_h"]) if c["period_h"] else 1.0
        columns.append(np.exp(-lags / c["tau_h"]) * wave)
    return np.array(columns).T


def fit_memory(aim_SL: np.ndarray) -> np.ndarray:
    """Returns each series' shares of variance per component for aimed autocorrelations at LAGS, rows summing to 1.

    The second pass shrinks towards the mean shares: series that share their memory can be correlated more strongly.
    """
    weight = np.where(np.isin(LAGS, [1, 24]), 6.0, np.where(LAGS <= 24, 1.0, 0.7))
    unit = np.eye(len(COMPONENTS))
    rows = np.vstack([memory_basis(LAGS) * weight[:, None], 100.0 * np.ones(len(COMPONENTS)), SHRINK * unit])
    centre, shrink = np.zeros(len(COMPONENTS)), 0.0
    for _ in range(2):
        rows[-len(COMPONENTS) :] = shrink * unit
        share = np.array([nnls(rows, np.r_[aim * weight, 100.0, shrink * centre])[0] for aim in aim_SL])
        centre, shrink = share.mean(axis=0), SHRINK
    share[share < 0.002] = 0.0
    return share / share.sum(axis=1, keepdims=True)


def fit_curve(score: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Returns a monotone piecewise linear curve (values at SCORE_KNOTS) near value(score) and with its mean.

    Least squares with weights that fall with the distance from the median, so that a spike does not lift the hours
    below it; what the mean then lacks is put on the outermost knot.
    """
    knots = np.array(SCORE_KNOTS)
    steps = np.clip((score[:, None] - knots[:-1]) / np.diff(knots), 0, 1)
    design = np.hstack([np.ones((len(value), 1)), -np.ones((len(value), 1)), steps])
    low, middle, high = np.quantile(value, [0.25, 0.5, 0.75])
    scale = high - low
    weight = scale / (scale + np.abs(value - middle))
    rise, _ = nnls(design * weight[:, None], value / scale * weight)
    curve = scale * (rise[0] - rise[1] + np.r_[0.0, np.cumsum(rise[2:])])
    lack = value.mean() - np.interp(score, knots, curve).mean()
    end = -1 if lack > 0 else 0
    curve[end] += lack / np.interp(score, knots, np.eye(len(knots))[end]).mean()
    return curve


def calm_profile(value: np.ndarray, month: np.ndarray, hour: np.ndarray) -> np.ndarray:
    """Returns means by month and hour of values winsorised at 3 interquartile ranges around their hours' medians."""
    profile = np.empty((12, 24))
    for m, d in np.ndindex(12, 4):
        part = [value[(month == m + 1) & (hour == h)] for h in range(6 * d, 6 * d + 6)]
        middle = [np.nanmedian(one) for one in part]
        low, high = np.nanquantile(np.concatenate([one - c for one, c in zip(part, middle, strict=True)]), [0.25, 0.75])
        reach = 3 * (high - low)
        for h, (one, c) in enumerate(zip(part, middle, strict=True)):
            profile[m, 6 * d + h] = c + np.nanmean(np.clip(one - c, low - reach, high + reach))
    return profile


def fit_series(
    value: np.ndarray, month: np.ndarray, hour: np.ndarray, weekend: np.ndarray
) -> tuple[dict[str, Any], np.ndarray]:
    """Returns one series' table and its normal scores (NaN where unknown)."""
    known = ~np.isnan(value)
    profile = calm_profile(value, month, hour)
    rest = value - profile[month - 1, hour]
    low, high = np.nanquantile(rest, [0.005, 0.995])
    tame = np.clip(rest, low, high)
    step = np.nanmean(tame[weekend]) - np.nanmean(tame[~weekend])
    rest = rest - step * (weekend - 2 / 7)
    width = np.array([np.subtract(*np.nanquantile(rest[hour == h], [0.9, 0.1])) for h in range(24)])
    width = width / np.sqrt(np.mean(width**2))
    unit = rest / width[hour]
    score = np.full(len(value), np.nan)
    curves = np.empty((12, 4, len(SCORE_KNOTS)))
    for m, d in np.ndindex(12, 4):
        here = known & (month == m + 1) & (hour // 6 == d)
        rank = rankdata(unit[here], method="ordinal")
        score[here] = norm.ppf((rank - 0.5) / here.sum())
        curves[m, d] = fit_curve(score[here], unit[here])
    centred = value - np.nanmean(value)
    acf1, acf24 = autocorrelation(centred, np.array([1, 24]))
    table = {
        "hours": int(known.sum()),
        "mean": float(np.nanmean(value)),
        "std": float(np.nanstd(value)),
        "autocorrelation_1h": float(acf1),
        "autocorrelation_24h": float(acf24),
        "negative_share": float((value[known] < 0).mean()),
        "minimum": float(np.nanmin(value)),
        "maximum": float(np.nanmax(value)),
        "profile": profile,
        "weekend_step": float(step),
        "hour_spread": width,
        "residual_curve": curves,
    }
    return table, score


def hourly_means(value_SH: np.ndarray, month: np.ndarray, hour: np.ndarray) -> np.ndarray:
    """Returns every hour's mean over the known hours of its month and hour of day, shape ``(S, H)``."""
    mean_SH = np.empty_like(value_SH)
    for m, h in np.ndindex(12, 24):
        here = (month == m + 1) & (hour == h)
        mean_SH[:, here] = np.nanmean(value_SH[:, here], axis=1, keepdims=True)
    return mean_SH


def measure(rest_SH: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns autocorrelation (series, LAGS) and correlation (series, series) of residuals winsorised at 0.5 %."""
    low, high = np.nanquantile(rest_SH, [0.005, 0.995], axis=1)
    tame_SH = np.clip(rest_SH, low[:, None], high[:, None])
    return np.array([autocorrelation(one, LAGS) for one in tame_SH]), correlation(tame_SH)


def correlation(value_SH: np.ndarray) -> np.ndarray:
    """Returns the Pearson correlation over hours known to both; 0 where there are none."""
    return np.ma.corrcoef(np.ma.masked_invalid(value_SH)).filled(0.0)


def settle(payload: dict[str, Any], window: str, value_SH: np.ndarray, score_SH: np.ndarray, start: datetime) -> None:
    """Puts memory shares and correlation into the payload, such that draws show the real series' dependence."""
    zones = tuple(entry["zone"] for entry in payload["zones"])
    table = payload["windows"][window]
    stamp = np.datetime64(start.replace(tzinfo=None), "h") + np.arange(value_SH.shape[1])
    month, hour = stamp.astype("datetime64[M]").astype(int) % 12 + 1, stamp.astype(int) % 24
    mean_SH = hourly_means(value_SH, month, hour)
    real_memory, real_corr = measure(value_SH - mean_SH)
    aim_memory = np.array([autocorrelation(score, LAGS) for score in score_SH])
    aim_corr = correlation(score_SH)
    table["residual_correlation_lower"] = [rounded(real_corr[i, :i], 2) for i in range(len(real_corr))]
    for turn in range(ROUNDS + 1):
        share = fit_memory(aim_memory)
        for row in range(len(share)):
            entry = table["series"][zones[row % len(zones)]][("price", "carbon")[row // len(zones)]]
            entry["memory_share"] = rounded(share[row], 3)
        table["correlation_lower"] = [rounded(aim_corr[i, :i], 3) for i in range(len(aim_corr))]
        seen_memory, seen_corr = np.zeros_like(aim_memory), np.zeros_like(aim_corr)
        for draw in range(DRAWS):
            rng = np.random.default_rng(draw)
            drawn = draw_signals(read_calibration(payload, window), zones, start, value_SH.shape[1], rng)
            both = np.vstack([drawn.price_usd_per_mwh_ZH, drawn.carbon_g_per_kwh_ZH])
            memory, corr = measure(np.where(np.isnan(value_SH), np.nan, both) - mean_SH)
            seen_memory, seen_corr = seen_memory + memory / DRAWS, seen_corr + corr / DRAWS
        off_memory, off_corr = (np.sqrt(np.mean(d**2)) for d in (seen_memory - real_memory, seen_corr - real_corr))
        sys.stdout.write(f"{window} round {turn}: rms off, memory {off_memory:.4f}, correlation {off_corr:.4f}\n")
        aim_memory = share @ memory_basis(LAGS).T + 0.7 * (real_memory - seen_memory)
        overlap = np.sqrt(share) @ np.sqrt(share).T
        reached = innovation_correlation(np.sqrt(share), aim_corr) * overlap
        aim_corr = np.clip(reached + 0.7 * (real_corr - seen_corr), -0.99, 0.99)


def rounded(value: Any, digits: int = 4) -> Any:
    """Rounds every number to some significant digits, at most 2 decimals from 1 on, else 3."""
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [rounded(item, digits) for item in value]
    if isinstance(value, float | np.floating):
        short = round(float(f"{float(value):.{digits}g}"), 3 if abs(value) < 1 else 2)
        return int(short) if short == int(short) else short
    return value


def main() -> None:
    """Reads the series, fits every window and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("signals", type=Path, help="tidy Parquet table of signals")
    parser.add_argument("standin", type=Path, help="Parquet table that fills unknown prices")
    parser.add_argument("zones", type=Path, help="JSON file: zone to UTC offset, h")
    parser.add_argument("out", type=Path, help="JSON file to write")
    given = parser.parse_args()
    zones: dict[str, float] = json.loads(given.zones.read_text())
    names = {"timestamp", "zone", "carbon_intensity_g_per_kwh", "price_usd_per_mwh"}
    frame = pl.read_parquet(given.signals, columns=sorted(names)).with_columns(pl.col("zone").cast(pl.String))
    frame = frame.filter(pl.col("zone").is_in(list(zones)))
    fill = pl.read_parquet(given.standin).select("timestamp", "zone", fill="price_usd_per_mwh")
    frame = frame.join(fill, on=["timestamp", "zone"], how="left").with_columns(
        pl.coalesce("price_usd_per_mwh", "fill").alias("price_usd_per_mwh")
    )
    payload: dict[str, Any] = {
        "about": "Statistics of hourly electricity prices (USD/MWh) and lifecycle carbon intensities (gCO2eq/kWh); "
        "UTC; no series is contained. Formulas: noonward.data.signals.generate.",
        "sources": SOURCES,
        "axes": "profile: month, hour; residual_curve: month, quarter of the UTC day, knot; correlations (rows below "
        "the diagonal): prices in zone order, then carbon intensities; correlation: of the normal scores, "
        "residual_correlation: of the real residuals winsorised at 0.5 % and 99.5 %",
        "score_knots": SCORE_KNOTS,
        "components": COMPONENTS,
        "zones": [{"zone": zone, "utc_offset_h": offset} for zone, offset in zones.items()],
        "stand_ins": {"AU-WA": ["price"]},
        "windows": {},
    }
    for window, (start, end) in WINDOWS.items():
        part = frame.filter(pl.col("timestamp").is_between(start, end, closed="left")).sort("zone", "timestamp")
        series: dict[str, Any] = {zone: {} for zone in zones}
        values, scores = [], []
        for variable, column in (("price", "price_usd_per_mwh"), ("carbon", "carbon_intensity_g_per_kwh")):
            for zone, offset in zones.items():
                own = part.filter(pl.col("zone") == zone)
                stamp = own["timestamp"]
                value = own[column].cast(pl.Float64).fill_null(np.nan).to_numpy()
                local = stamp.dt.offset_by(f"{round(offset * 60)}m").dt.weekday().to_numpy() >= 6
                table, score = fit_series(value, stamp.dt.month().to_numpy(), stamp.dt.hour().to_numpy(), local)
                series[zone][variable] = rounded(table, 3)
                series[zone][variable].update(
                    {name: rounded(table[name], 6) for name in ("mean", "std", "minimum", "maximum")}
                )
                values.append(value)
                scores.append(score)
        span = {"first_hour": f"{start:%Y-%m-%dT%HZ}", "end": f"{end:%Y-%m-%dT%HZ}"}
        payload["windows"][window] = {**span, "series": series}
        settle(payload, window, np.array(values), np.array(scores), start)
    given.out.write_text(json.dumps(payload, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
