"""Trains a net of the learned forecasts (``noonward.forecasts.learned``); needs torch.

    python tools/fit_forecast_net.py SIGNALS.parquet STANDIN.parquet OUT.npz [--seed SEED]

SIGNALS holds hourly signals, STANDIN fills prices SIGNALS leaves unknown (both in the tidy format of docs/data.md).

Training uses the calibrated zones in the training months alone (``noonward.data.splits``): the real hours of 2021 to
2023 and generated draws of both packaged statistics. Stretches never cross into another month: neither a target nor an
input lies in a month of validation or test. A sample is an hour of issue with one to seven days known before it. The
loss is Huber's, of the error in units of the zone's last day. Errors are measured on the validation months against the
regression's; the number of passes was chosen there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fit_forecasts as source
import numpy as np
import torch

from noonward.data.signals.calibration import CALIBRATIONS, load_calibration
from noonward.data.splits import MONTHS, Split, split_seed
from noonward.forecasts.learned import LEADS, known
from noonward.forecasts.regression import regressed
from noonward.model.signals import Signals

YEARS = (2021, 2022, 2023)
DRAWS: dict[Split, int] = {"train": 36, "validation": 4}
HOURS_KNOWN = (24, 30, 36, 49, 49, 49, 55, 61, 68, 75, 85, 96, 108, 120, 144, 168, 168, 168)
"""Hours known up to the hour of issue: windows of the packaged generator begin with 49, those of files with 168."""
EVERY_H: dict[str, int] = {"real": 2, "generated": 5}
REAL_COUNTS = 2
"""How often a real sample counts beside a generated one."""
HIDDEN = (512, 512)
DROPOUT = 0.1
DECAY = 0.01
RATE = 1e-3
BATCH = 512
HUBER = 1.0
"""Errors above this many units count by their size, below by their square."""
FARTHEST = 20.0
"""Errors count up to this many units."""
PASSES = 4


def generated(zones: tuple[str, ...], part: Split, seed: int = 0) -> Iterator[Signals]:
    """Yields generated signals of one part, stretch by stretch; in training draws of both statistics."""
    draws = range(seed * DRAWS[part], (seed + 1) * DRAWS[part])
    for calibration in CALIBRATIONS if part == "train" else CALIBRATIONS[:1]:
        yield from source.generated(zones, part, draws, calibration)


def samples(signals: Iterator[Signals], every_h: int, zones: tuple[str, ...], seed: int = 0) -> tuple[np.ndarray, ...]:
    """Returns the samples of some signals.

    Inputs (B, F), errors of the regression in units (B, 2 x leads), its forecasts and the truth (B, 2, leads), units
    (B, 2), zones (B).
    """
    rng = np.random.default_rng(seed)
    out: list[tuple[np.ndarray, ...]] = []
    for one in signals:
        value_KZH = np.stack([one.price_usd_per_mwh_ZH, one.carbon_g_per_kwh_ZH])
        for issue in range(max(HOURS_KNOWN) + int(rng.integers(every_h)), one.hours - LEADS, every_h):
            known_h = int(rng.choice(HOURS_KNOWN))
            first = issue + 1 - known_h
            ok = np.isfinite(value_KZH[:, :, first : issue + 1 + LEADS]).all((0, 2))
            if not ok.any():
                continue
            seen_KZH, at = value_KZH[:, ok, first : issue + 1], np.array([known_h - 1])
            places = [zones.index(zone) for zone, fine in zip(one.zones, ok, strict=True) if fine]
            found = known(seen_KZH, at, one.time_of(first), places, len(zones))
            said_ZKL = regressed(seen_KZH, at, LEADS + 1)[:, 0, :, 1:].swapaxes(0, 1)
            true_ZKL = value_KZH[:, ok, issue + 1 : issue + 1 + LEADS].swapaxes(0, 1)
            unit_ZK = found.unit_KIZ[:, 0].T
            error = ((true_ZKL - said_ZKL) / unit_ZK[:, :, None]).clip(-FARTHEST, FARTHEST).reshape(len(places), -1)
            out.append((found.input_IZF[0], error, said_ZKL, true_ZKL, unit_ZK, np.array(places)))
    parts = [np.concatenate(each) for each in zip(*out, strict=True)]
    return (*(each.astype(np.float32) for each in parts[:-1]), parts[-1])


class Hidden(torch.nn.Module):
    """The hidden function of ``ForecastNet``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns x / (1 + exp(-1.702 x))."""
        return x * torch.sigmoid(1.702 * x)


def make_net(inputs: int) -> torch.nn.Sequential:
    """Returns an untrained net that says almost nothing."""
    sizes = (inputs, *HIDDEN, 2 * LEADS)
    layers: list[torch.nn.Module] = []
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        layers += [] if layer == 0 else [Hidden(), torch.nn.Dropout(DROPOUT)]
        layers.append(torch.nn.Linear(fan_in, fan_out))
    with torch.no_grad():
        layers[-1].weight.mul_(0.1)  # type: ignore[operator, union-attr]
    return torch.nn.Sequential(*layers)


def train(
    net: torch.nn.Sequential,
    input_BF: torch.Tensor,
    error_BL: torch.Tensor,
    passes: int = PASSES,
    after: Callable[[float], None] = lambda loss: None,
) -> None:
    """Fits a net in place; ``after`` is told the mean loss of every pass."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=DECAY)
    batches = len(input_BF) // BATCH
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, passes * batches)
    for _ in range(passes):
        net.train()
        order = torch.randperm(len(input_BF))
        total = 0.0
        for rows in order[: batches * BATCH].view(batches, BATCH):
            loss = torch.nn.functional.smooth_l1_loss(net(input_BF[rows]), error_BL[rows], beta=HUBER)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        net.eval()
        after(total / batches)


def errors(net: torch.nn.Sequential, scale: tuple[Any, Any], found: tuple[np.ndarray, ...]) -> dict[str, Any]:
    """Returns per signal and zone the mean absolute error over that of the regression at the leads that are shown."""
    input_BF, _, said_BKL, true_BKL, unit_BK, zone_B = found
    with torch.no_grad():
        answer = net((torch.tensor(input_BF) - scale[0]) / scale[1]).numpy().reshape(said_BKL.shape)
    ours_BKL = np.abs(said_BKL + answer * unit_BK[:, :, None] - true_BKL)
    theirs_BKL = np.abs(said_BKL - true_BKL)
    at = [lead - 1 for lead in source.SHOWN_LEADS]
    out: dict[str, Any] = {}
    for which, name in enumerate(("price", "carbon")):
        out[name] = {}
        for place, zone in enumerate(source.OWN_ZONES):
            own = zone_B == place
            share = ours_BKL[own, which].mean(0)[at] / theirs_BKL[own, which].mean(0)[at]
            out[name][zone] = [float(f"{value:.3g}") for value in share]
    return out


def main() -> None:
    """Trains the net and writes it with its record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("signals", type=Path, help="tidy table of signals")
    parser.add_argument("standin", type=Path, help="table that fills unknown prices")
    parser.add_argument("out", type=Path, help="file .npz to write")
    parser.add_argument("--seed", type=int, default=0, help="of the net, the batches and the generated draws")
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    others = tuple(zone for zone in load_calibration("w2022").zones if zone not in source.OWN_ZONES)
    zones = (*source.OWN_ZONES, *others)
    paths = [given.signals, given.standin]
    of_real = samples(source.real(paths, zones, "train", YEARS), EVERY_H["real"], zones, given.seed)
    of_generated = samples(generated(zones, "train", given.seed), EVERY_H["generated"], zones, given.seed)
    print(f"{len(of_real[0]):,} real and {len(of_generated[0]):,} generated samples", flush=True)
    of_validation = {
        "real": samples(source.real(paths, source.OWN_ZONES, "validation", YEARS), 5, zones),
        "generated": samples(generated(source.OWN_ZONES, "validation"), 7, zones),
    }
    input_BF, error_BL = (torch.tensor(np.concatenate([a] * REAL_COUNTS + [b]))
                          for a, b in zip(of_real[:2], of_generated[:2], strict=True))  # fmt: skip
    scale = (input_BF.mean(0), input_BF.std(0) + 1e-3)
    net = make_net(input_BF.shape[1])
    curve: list[dict[str, Any]] = []
    began = time.monotonic()

    def after(loss: float) -> None:
        """Measures the errors after a pass and says how long it will take."""
        shares = {kind: errors(net, scale, found) for kind, found in of_validation.items()}
        means = {
            f"validation_{name}_{kind}": round(float(np.mean(list(of_zone.values()))), 4)
            for kind, share in shares.items()
            for name, of_zone in share.items()
        }
        curve.append({"loss": round(loss, 4), **means})
        left_s = (time.monotonic() - began) * (PASSES / len(curve) - 1)
        print(f"pass {len(curve)} of {PASSES}, {left_s:.0f} s left: {curve[-1]}", flush=True)

    train(net, (input_BF - scale[0]) / scale[1], error_BL, PASSES, after)
    record = {
        "about": "Net of the learned forecasts; no series is contained. What it is fed: noonward.forecasts.learned; "
        "made by tools/fit_forecast_net.py.",
        "zones": zones,
        "months": {part: MONTHS[part] for part in ("train", "validation")},
        "real_years": YEARS,
        "generated": {"calibrations": CALIBRATIONS, "draws": DRAWS,
                      "first_seeds": {"train": split_seed("train", given.seed * DRAWS["train"]),
                                      "validation": split_seed("validation", 0)}},
        "samples": {"real": len(of_real[0]), "generated": len(of_generated[0])},
        "known_h": HOURS_KNOWN,
        "seed": given.seed,
        "settings": {"hidden": HIDDEN, "dropout": DROPOUT, "decay": DECAY, "rate": RATE, "batch": BATCH,
                     "huber": HUBER, "passes": PASSES, "real_counts": REAL_COUNTS},
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "shown_leads": source.SHOWN_LEADS,
        "curve": curve,
        "validation_error_over_regression": {kind: errors(net, scale, found) for kind, found in of_validation.items()},
    }  # fmt: skip
    layers = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
    arrays = {f"weight_{i}": layer.weight.detach().numpy().T for i, layer in enumerate(layers)}
    arrays |= {f"bias_{i}": layer.bias.detach().numpy() for i, layer in enumerate(layers)}
    with given.out.open("wb") as file:
        np.savez_compressed(
            file,
            record=np.array(json.dumps(record)),
            mean_F=scale[0].numpy(),
            spread_F=scale[1].numpy(),
            **{name: np.ascontiguousarray(array).astype(np.float16) for name, array in arrays.items()},
        )


if __name__ == "__main__":
    main()
