"""Trains the small nets of learned forecasts (``noonward.forecasts.learned``): each imitates the mean of the others.

    python tools/imitate_forecasts.py SIGNALS.parquet STANDIN.parquet FOLDER

SIGNALS and STANDIN are those of ``tools/fit_forecasts.py``. A small net is fitted to what the three packaged nets say
on average at hours of the training months: every real hour of 2021 to 2023, and every third hour of seven generated
draws of the statistics ``w2022``. Three nets, of the training seeds 0 to 2, are written to FOLDER. How far they and the
mean are from the truth is measured on the validation months and printed, as shares of the regression's mean absolute
error.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fit_forecasts import generated, real

from noonward.data.splits import MONTHS
from noonward.forecasts.learned import LEADS, MEAN, SEEDS, find_net, net_path, packaged_net, write_net
from noonward.learn.forecast_fit import FitSettings, Samples, fit_net, fit_samples
from noonward.model.signals import Signals

YEARS = (2021, 2022, 2023)
DRAWS = range(3, 10)
SETTINGS = FitSettings(hidden=(256, 256), passes=4, rate=2e-3, dropout=0.0, huber=20.0)
SHOWN = 8192


def samples(stretches: Iterable[Signals], every_h: int) -> Samples:
    """Returns the samples of some stretches."""
    found = [fit_samples(one, replace(SETTINGS, every_h=every_h, seed=k)) for k, one in enumerate(stretches)]
    return joined(found)


def joined(found: Iterable[Samples]) -> Samples:
    """Returns samples as one."""
    parts = list(found)
    return Samples(np.concatenate([one.input_BF for one in parts]), np.concatenate([one.error_BL for one in parts]))


def said(net: Any, input_BF: np.ndarray) -> np.ndarray:
    """Returns what a net says, (B, 2 x leads)."""
    parts = [net(input_BF[first : first + SHOWN]) for first in range(0, len(input_BF), SHOWN)]
    return np.concatenate(parts).reshape(len(input_BF), -1).astype(np.float32)


def main() -> None:
    """Trains, writes and measures the nets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("signals", "standin", "folder"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    paths, zones = [given.signals, given.standin], packaged_net().zones
    train = joined([samples(real(paths, zones, "train", YEARS), 1), samples(generated(zones, "train", DRAWS), 3)])
    mean = find_net(MEAN)
    taught = Samples(train.input_BF, said(mean, train.input_BF))
    record = {
        "about": "Small net of the learned forecasts, which imitates the mean of the others; no series is contained. "
        "Made by tools/imitate_forecasts.py.",
        "zones": list(zones),
        "months": {part: list(MONTHS[part]) for part in ("train", "validation")},
        "real_years": list(YEARS),
        "generated": {"calibrations": ["w2022"], "draws": {"train": len(DRAWS)}},
        "samples": len(train.input_BF),
        "settings": dict(vars(SETTINGS)),
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
    }
    held_out = {
        "real": samples(real(paths, zones, "validation", YEARS), 6),
        "generated": samples(generated(zones, "validation", range(2)), 12),
    }
    nets = [
        fit_net(taught, zones, replace(SETTINGS, seed=seed), {**record, "seed": seed}, print) for seed in range(SEEDS)
    ]
    for seed, net in enumerate(nets):
        write_net(net, given.folder / net_path(f"small-seed{seed}").name)
    for kind, one in held_out.items():
        for name, net in (("mean", mean), *((f"small {seed}", net) for seed, net in enumerate(nets))):
            left_BL = np.abs(one.error_BL - said(net, one.input_BF))
            shares = [
                left_BL[:, k].sum() / np.abs(one.error_BL[:, k]).sum() for k in (slice(LEADS), slice(LEADS, None))
            ]
            print(f"{kind}, {name}: price {shares[0]:.4f}, carbon intensity {shares[1]:.4f} of the regression's error")


if __name__ == "__main__":
    main()
