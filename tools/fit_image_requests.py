"""Fits the laws of image requests on a trace and writes ``src/noonward/data/tables/image_requests.json``.

    python tools/fit_image_requests.py REQUESTS.parquet SAMPLES.parquet [OUT.json]

Requests have the columns arrival_s, user_group, base_model, num_lora, num_images and num_inference_steps; samples have
metric and value (ms), with the metrics base_model_load_ms and lora_load_ms (Alibaba's GenAI trace v2026).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

GAP_S = 900.0
"""A longer gap begins a new session of a user."""
SPLIT_S = 10.0
"""Loads below are of a model that was in the host's memory already (warm)."""


def sessions(requests: pl.DataFrame) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the law of sessions, and how often a request keeps its session's model and images."""
    ordered = requests.sort("user_group", "arrival_s", maintain_order=True)
    user, at_s = ordered["user_group"].to_physical().to_numpy(), ordered["arrival_s"].to_numpy().astype(float)
    model, images = ordered["base_model"].to_physical().to_numpy(), ordered["num_images"].to_numpy()
    new = np.r_[True, (user[1:] != user[:-1]) | (np.diff(at_s) > GAP_S)]
    length = np.diff(np.r_[np.flatnonzero(new), len(new)])
    gap_s = np.diff(at_s)[~new[1:]]
    gap_s = gap_s[gap_s > 0]
    longer = np.log(length[length >= 2])
    kept = {"models": kept_share(model, new), "images": kept_share(images, new)}
    law = {
        "single": float((length == 1).mean()),
        "length_log_mean": float(longer.mean()),
        "length_sigma": float(longer.std()),
        "mean_length": law_mean(float((length == 1).mean()), float(longer.mean()), float(longer.std())),
        "gap_median_s": float(np.median(gap_s)),
        "gap_sigma": float(np.log(gap_s).std()),
    }
    return law, kept


def kept_share(value_K: np.ndarray, new_K: np.ndarray) -> float:
    """Returns how often a request keeps its session's value, beside drawing the same again by chance."""
    same = float((value_K[1:] == value_K[:-1])[~new_K[1:]].mean())
    share = np.unique(value_K, return_counts=True)[1] / len(value_K)
    chance = float((share**2).sum())
    return (same - chance) / (1 - chance)


def law_mean(single: float, log_mean: float, sigma: float) -> float:
    """Returns the mean length of sessions that the law draws."""
    drawn = np.exp(np.random.default_rng(0).normal(log_mean, sigma, 1_000_000))
    return single + (1 - single) * float(np.maximum(2, np.round(drawn)).mean())


def zipf_mandelbrot(count_M: np.ndarray) -> tuple[float, float]:
    """Returns exponent and shift of the largest likelihood, by a grid refined three times."""
    count_M = np.sort(count_M)[::-1].astype(float)
    rank_M = np.arange(1, len(count_M) + 1)
    best, low, high = (1.0, 0.0), np.array([0.3, 0.0]), np.array([4.0, 12.0])
    for _ in range(4):
        scores = {}
        for exponent in np.linspace(low[0], high[0], 41):
            for shift in np.linspace(low[1], high[1], 41):
                log_M = -exponent * np.log(rank_M + shift)
                scores[float(exponent), float(shift)] = float(count_M @ (log_M - np.log(np.exp(log_M).sum())))
        best = max(scores, key=scores.__getitem__)
        width = (high - low) / 10
        low, high = np.maximum(np.array(best) - width, [0.05, 0.0]), np.array(best) + width
    return best


def modes(value_s: np.ndarray, start_s: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns shares, medians and log standard deviations of a lognormal mixture (expectation maximisation)."""
    log = np.log(value_s)
    mean, sigma, share = np.log(start_s), np.full(len(start_s), 0.3), np.full(len(start_s), 1 / len(start_s))
    for _ in range(300):
        density = share / sigma * np.exp(-0.5 * ((log[:, None] - mean) / sigma) ** 2)
        weight = density / density.sum(axis=1, keepdims=True)
        total = weight.sum(axis=0)
        mean, share = (weight * log[:, None]).sum(axis=0) / total, total / len(log)
        sigma = np.sqrt((weight * (log[:, None] - mean) ** 2).sum(axis=0) / total)
    return share, np.exp(mean), sigma


def shares(series: pl.Series, fewest: float = 0.0) -> dict[str, list[float]]:
    """Returns values and their shares; values of a share below ``fewest`` are left out."""
    table = series.drop_nulls().value_counts().sort(series.name)
    share = table["count"].to_numpy() / table["count"].sum()
    kept = share >= fewest
    return {"count": table[series.name].to_numpy()[kept].tolist(), "share": rounded(share[kept] / share[kept].sum())}


def rounded(values: Any, digits: int = 4) -> list[float]:
    """Returns values with a few significant digits."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, dtype=float)]


def main() -> None:
    """Reads, fits, writes."""
    requests, samples = pl.read_parquet(sys.argv[1]), pl.read_parquet(sys.argv[2])
    out = Path(sys.argv[3]) if len(sys.argv) > 3 else Path("src/noonward/data/tables/image_requests.json")
    requests = requests.drop_nulls(["num_images", "num_inference_steps", "base_model"]).sort("arrival_s")
    requests = requests.with_columns(pl.col("num_images").replace({3.0: 2.0, 5.0: 4.0}).cast(pl.Int64))
    session, kept = sessions(requests)
    models = requests["base_model"].value_counts()["count"].to_numpy()
    exponent, shift = zipf_mandelbrot(models)
    hour = (requests["arrival_s"].to_numpy() // 3600) % 24
    load_s = samples.filter(pl.col("metric") == "base_model_load_ms")["value"].to_numpy() / 1000
    load_s = load_s[load_s > 0]
    warm_s, cold_s = load_s[load_s < SPLIT_S], load_s[load_s >= SPLIT_S]
    warm = modes(warm_s, [3.0])
    cold = modes(cold_s, [22.0, 39.0])
    share = np.r_[warm[0] * len(warm_s), cold[0] * len(cold_s)] / len(load_s)
    adapter_s = samples.filter(pl.col("metric") == "lora_load_ms")["value"].to_numpy() / 1000
    adapter_s = adapter_s[adapter_s > 0]
    laws = {
        "about": "Laws of image requests, fitted by tools/fit_image_requests.py on Alibaba's GenAI trace v2026 "
        f"({len(requests):,} requests of 23 days; {len(load_s):,} model loads).",
        "sessions": {name: rounded([value])[0] for name, value in session.items()},
        "models": {
            "count": len(models),
            "exponent": round(exponent, 3),
            "shift": round(shift, 3),
            "kept": round(kept["models"], 3),
        },
        "images": {**shares(requests["num_images"]), "kept": round(kept["images"], 3)},
        "steps": shares(requests["num_inference_steps"], 0.001),
        "adapters": shares(requests["num_lora"]),
        "share_of_day_by_hour": rounded(np.bincount(hour.astype(int), minlength=24) / len(hour)),
        "model_load": {
            "share": rounded(share),
            "median_s": rounded(np.r_[warm[1], cold[1]]),
            "sigma": rounded(np.r_[warm[2], cold[2]]),
        },
        "adapter_load": {
            "median_s": rounded([np.median(adapter_s)])[0],
            "sigma": rounded([np.log(adapter_s).std()])[0],
        },
    }
    out.write_text(json.dumps(laws, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
