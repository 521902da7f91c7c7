"""Learned forecasts: a net that predicts the error of the regression forecast, zone by zone.

The regression (:mod:`noonward.forecasts.regression`) is one table for every zone. The net adds what such a table cannot
hold: what is usual in this zone at this hour of the day and week, the shape of the last two days, and the other signal.
Its inputs are what is known of a zone at the hour of issue, in that zone's own unit. Its outputs are the regression's
errors at every lead, in the same unit. ``noonward fit-forecast`` (``noonward.learn.forecast_fit``) trains one for zones
of your own, which is then known by its name; three are packaged, known by their training seeds. NumPy alone runs it, in
double precision: differences in the order of sums from CPU to CPU vanish when the result is rounded.

Its files are its own, not those of policies (``schedule.net_file``), which come after forecasts: as well as layers
they hold the zones and scales of the inputs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.blas import one_thread
from noonward.errors import DataError, ScenarioError, SignalRangeError
from noonward.files import stored_arrays, whole_file
from noonward.forecasts.forecaster import Forecaster
from noonward.forecasts.persistence import PersistenceForecaster
from noonward.forecasts.regression import FEATURES, USUAL_DAYS, features, regressed, standing_in
from noonward.model.precision import rounded_signals
from noonward.units import DAY_H

LEADS: Final = 48
"""Leads the net answers for, hours from 1; later ones repeat the last day."""
LEAST_UNIT: Final = (1.0, 2.0)
"""Least unit of prices, USD/MWh, and of carbon intensities, gCO2/kWh."""
FARTHEST: Final = 8.0
"""Values count up to this many units from the last day's mean."""
KNOWN_H: Final = DAY_H * USUAL_DAYS
INPUTS: Final = 2 * (3 * DAY_H + 2) + 1 + 4 + 7
"""Inputs of a net but the zones: of both signals three days, level and unit; hours known, time of day, weekday."""
KINDS: Final = ("learned", "regression", "persistence")
"""Forecasts that a fit measures on the hours it holds out; of each zone, quantity and lead the closest is taken."""
SEEDS: Final = 3
"""Training seeds whose nets are packaged."""
MEAN: Final = "mean"
"""Name of the mean of the packaged nets' forecasts."""
SMALL: Final = tuple(f"small-seed{seed}" for seed in range(SEEDS))
"""Names of the packaged small nets, which imitate that mean."""
_USUAL: Final = FEATURES.index("usual")


@dataclass(frozen=True)
class ForecastNet:
    """A net of linear layers with the hidden function x / (1 + exp(-1.702 x)).

    Attributes:
        zones: Zones it knows; one input per zone, 1 for the zone that is forecast.
        mean_F: Mean of the inputs in training.
        spread_F: Standard deviation of the inputs in training.
        weights: Weights of the layers, [in, out]; the last layer has 2 x LEADS outputs, prices first.
        biases: Biases of the layers, [out].
        record: How it was made.
    """

    zones: tuple[str, ...]
    mean_F: F8
    spread_F: F8
    weights: tuple[F8, ...]
    biases: tuple[F8, ...]
    record: dict[str, Any]

    def __call__(self, input_BF: F8) -> F8:
        """Returns the regression's errors in units, [B, 2, LEADS]: prices and carbon intensities."""
        x_BW = (input_BF - self.mean_F) / self.spread_F
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if layer:
                with np.errstate(over="ignore"):  # far below 0 the quotient is -0
                    x_BW = x_BW / (1.0 + np.exp(-1.702 * x_BW))
            x_BW = x_BW @ weight + bias
        return np.asarray(x_BW.reshape(-1, 2, LEADS))


@dataclass(frozen=True)
class MeanNet:
    """Several nets of the same zones, whose outputs are averaged.

    Attributes:
        nets: The nets.
    """

    nets: tuple[ForecastNet, ...]

    @property
    def zones(self) -> tuple[str, ...]:
        """Zones they know."""
        return self.nets[0].zones

    @property
    def record(self) -> dict[str, Any]:
        """How the first was made; the others differ in their training seed."""
        return self.nets[0].record

    def __call__(self, input_BF: F8) -> F8:
        """Returns the mean of what the nets return."""
        return np.asarray(sum(net(input_BF) for net in self.nets) / len(self.nets))


@dataclass(frozen=True)
class Known:
    """What is known of some zones at some hours of issue. Axes: I hours of issue, Z zones, F inputs.

    Attributes:
        input_IZF: Inputs of the net, without a unit.
        unit_KIZ: Mean distance of the last day's values from their median, for prices, USD/MWh, and carbon
            intensities, gCO2/kWh.
    """

    input_IZF: F8
    unit_KIZ: F8


def known(value_KZH: F8, issue_I: I8, start: datetime, place_Z: Sequence[int], places: int) -> Known:
    """Returns what is known of zones at some hours of issue.

    Inputs, for prices and for carbon intensities in units from the last day's mean: the last 24 hours; the 24 hours
    before (where unknown: the last 24 once more); and the mean of each hour of the day, from the hour of issue on, over
    the days of the last week that are known. Then, of both signals, the last day's mean (over 100 USD/MWh and 200
    gCO2/kWh) and the logarithm of the unit. Last the share of a week that is known without a break (in all zones), the
    UTC hour of the day (two harmonics) and the weekday of the hour of issue, and the zone.

    Args:
        value_KZH: Prices and carbon intensities per zone and hour; the 24 hours up to each hour of issue are known.
        issue_I: Hours of issue, positions in the last axis, at least 23.
        start: UTC time of the first hour.
        place_Z: Position of each zone among those the net knows.
        places: Number of zones that the net knows.
    """
    zones, shape = value_KZH.shape[1], (len(issue_I), value_KZH.shape[1])
    parts: list[F8] = []
    levels: list[F8] = []
    units: list[F8] = []
    back = issue_I[:, None] - np.arange(2 * DAY_H)[::-1]
    for value_ZH, least in zip(value_KZH, LEAST_UNIT, strict=True):
        both_IZP = np.where(back >= 0, value_ZH[:, np.maximum(back, 0)], np.nan).swapaxes(0, 1)
        last_IZP, before_IZP = both_IZP[..., DAY_H:], both_IZP[..., :DAY_H]
        before_IZP = np.where(np.isfinite(before_IZP).all(-1, keepdims=True), before_IZP, last_IZP)
        usual_IZP = features(value_ZH, issue_I)[..., _USUAL]
        zero_IZ1 = last_IZP.mean(-1, keepdims=True)
        unit_IZ = np.abs(last_IZP - np.median(last_IZP, -1, keepdims=True)).mean(-1)
        unit_IZ = np.maximum(unit_IZ, least)
        parts += [
            np.clip((part - zero_IZ1) / unit_IZ[..., None], -FARTHEST, FARTHEST)
            for part in (last_IZP, before_IZP, usual_IZP)
        ]
        levels += [zero_IZ1[..., 0] / (100.0 * least), np.log(unit_IZ)]
        units.append(unit_IZ)
    hour_I = start.hour + issue_I
    turn_I = 2 * np.pi * hour_I / DAY_H
    calendar_IC = np.stack([np.sin(turn_I), np.cos(turn_I), np.sin(2 * turn_I), np.cos(2 * turn_I)], axis=-1)
    weekday_IW = np.eye(7)[(start.weekday() + hour_I // DAY_H) % 7]
    share_IZ = np.repeat(_hours_known(value_KZH, issue_I)[:, None] / KNOWN_H, zones, axis=1)
    of_issue_IC = np.concatenate([calendar_IC, weekday_IW], axis=1)
    input_IZF = np.concatenate(
        [
            *parts,
            np.stack([*levels, share_IZ], axis=-1),
            np.broadcast_to(of_issue_IC[:, None], (*shape, of_issue_IC.shape[1])),
            np.broadcast_to(np.eye(places)[list(place_Z)], (*shape, places)),
        ],
        axis=-1,
    )
    return Known(input_IZF, np.stack(units))


def _hours_known(value_KZH: F8, issue_I: I8) -> I8:
    """Returns for how many hours up to each hour of issue all is known without a break, at most a week."""
    unknown_H = np.isnan(value_KZH).any(axis=(0, 1))
    hour_H = np.arange(value_KZH.shape[2])
    last_unknown_H = np.maximum.accumulate(np.where(unknown_H, hour_H, -1))
    return np.minimum(issue_I - last_unknown_H[issue_I], KNOWN_H)


class LearnedForecaster(Forecaster):
    """Adds a net's correction to the regression, where that came closer on hours that the fit held out.

    A net by ``noonward fit-forecast`` knows the errors of ``KINDS`` on these hours: for each zone, quantity and range
    of leads the forecast of the least error is taken. The packaged nets are taken throughout: in the validation months
    none of the others was closer for any zone and quantity (docs/lab/fine-tuning.md).

    Args:
        net: The net.
        zones: Zones of the signals, in order.
        start: UTC time of the signals' first hour.
        value_KZH: Signals up to the run's first hour.

    Raises:
        ScenarioError: A zone is not among those that the net was trained on.
        SignalRangeError: Of the 24 hours up to the run's first one is unknown.
    """

    def __init__(self, net: ForecastNet | MeanNet, zones: tuple[str, ...], start: datetime, value_KZH: F8) -> None:
        require_zones(net, zones)
        known_h = int(_hours_known(value_KZH, np.array([value_KZH.shape[2] - 1]))[0])
        if known_h < DAY_H:
            raise SignalRangeError(
                f"a learned forecast needs the {DAY_H} hours up to the window's first, but {known_h} are known; start "
                "the window later or use another forecast"
            )
        self._net = net
        self._place_Z = [net.zones.index(zone) for zone in zones]
        self._start = start
        self._kind_KZL = closest_KZL(net.record, zones)

    def values(self, value_KZH: F8, issue_I: I8, leads: int) -> F8:
        """Returns the corrected sums, rounded."""
        value_KIZL = regressed(value_KZH, issue_I, leads)
        regression_KIZL = rounded_signals(value_KIZL) if self._kind_KZL.any() else None
        seen = known(value_KZH, issue_I, self._start, self._place_Z, len(self._net.zones))
        hours, zones, inputs = seen.input_IZF.shape
        with one_thread():
            error_IZKL = self._net(seen.input_IZF.reshape(-1, inputs)).reshape(hours, zones, 2, LEADS)
        lead_L = [standing_in(lead, LEADS) - 1 for lead in range(1, leads)]
        value_KIZL[..., 1:] += np.moveaxis(error_IZKL[..., lead_L], 2, 0) * seen.unit_KIZ[..., None]
        value_KIZL[..., 1:] = rounded_signals(value_KIZL[..., 1:])
        if regression_KIZL is None:
            return value_KIZL
        kind_KZL = np.zeros((*self._kind_KZL.shape[:2], leads), np.int64)
        kind_KZL[..., 1:] = self._kind_KZL[..., lead_L]
        same = PersistenceForecaster(value_KZH.shape[2]).values(value_KZH, issue_I, leads)
        out_KIZL: F8 = np.choose(kind_KZL[:, None], (value_KIZL, regression_KIZL, same))
        return out_KIZL


def closest_KZL(record: Mapping[str, Any], zones: Sequence[str]) -> I8:
    """Returns the place in ``KINDS`` of the closest forecast on the hours that a fit held out, by quantity and zone.

    Leads from 1; those between two that were measured take the later one's. All 0, the net's, where nothing was
    measured.

    Args:
        record: How the net was made.
        zones: Zones, in order.
    """
    out_KZL = np.zeros((2, len(zones), LEADS), np.int64)
    for k, name in enumerate(("price", "carbon")):
        for z, zone in enumerate(zones):
            error_of = record.get(f"held_out_error_{name}", {}).get(zone)
            if error_of is None:
                continue
            closest_B = np.argmin([error_of[kind] for kind in KINDS], axis=0)
            out_KZL[k, z] = closest_B[np.searchsorted(record["shown_leads"], np.arange(1, LEADS + 1))]
    return out_KZL


def require_zones(net: ForecastNet | MeanNet, zones: Iterable[str]) -> None:
    """Raises ScenarioError if a net was not trained on some of the zones."""
    unknown = [zone for zone in dict.fromkeys(zones) if zone not in net.zones]
    if unknown:
        raise ScenarioError(
            f"the learned forecast was not trained on the zones {', '.join(unknown)}; it knows "
            f"{', '.join(net.zones)}. Take a policy that plans by the regression forecast, which serves any zone, "
            "as bid-price-regression"
        )


def net_path(net: int | str) -> Path:
    """Returns the file of a net: of a packaged one by its training seed or its name, or of your own by its name.

    Your own lie in the folder ``forecasts``, or in the one that the environment variable NOONWARD_FORECASTS names.
    """
    if isinstance(net, str) and net not in SMALL:
        return Path(os.environ.get("NOONWARD_FORECASTS", "forecasts")) / f"{net}.npz"
    return Path(__file__).parent / "tables" / f"forecast_net_{net if isinstance(net, str) else f'seed{net}'}.npz"


def find_net(net: int | str) -> ForecastNet | MeanNet:
    """Returns a net by its training seed or its name: packaged, ``mean`` of those of the training seeds, or your own.

    Raises:
        ScenarioError: There is no net of the name.
        DataError: Its file is damaged.
    """
    path = net_path(net)
    if isinstance(net, int):
        return packaged_net(net)
    if net in SMALL:
        return packaged_net(net)
    if net == MEAN:
        return MeanNet(tuple(packaged_net(seed) for seed in range(SEEDS)))
    if not path.is_file():
        known = sorted(file.stem for file in path.parent.glob("*.npz"))
        raise ScenarioError(
            f"there is no forecast named {net!r} in {path.parent}; there are: {', '.join(known) or 'none'}; make one "
            "by 'noonward fit-forecast', or say where they lie by the environment variable NOONWARD_FORECASTS"
        )
    return _own_net(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _own_net(path: Path, changed: int) -> ForecastNet:
    return read_net(path)


@cache
def packaged_record(net: int | str = 0) -> dict[str, Any]:
    """Returns how a packaged net was made; argument as in ``packaged_net``."""
    with np.load(net_path(net), allow_pickle=False) as content:
        record: dict[str, Any] = json.loads(str(content["record"]))
    return record


@cache
def packaged_net(net: int | str = 0) -> ForecastNet:
    """Returns the packaged net of a training seed, 0 to 2 (the same configuration, trained again), or of ``SMALL``."""
    return read_net(net_path(net))


def read_net(path: Path) -> ForecastNet:
    """Returns the net of a file that ``write_net`` wrote.

    Raises:
        DataError: The file is missing or damaged, or its parts do not fit.
    """
    try:
        content = stored_arrays(path)
        record = json.loads(str(content["record"]))
        layers = range(sum(name.startswith("weight_") for name in content))
        net = ForecastNet(
            zones=tuple(record["zones"]),
            mean_F=_numbers(content["mean_F"]),
            spread_F=_numbers(content["spread_F"]),
            weights=tuple(_numbers(content[f"weight_{layer}"]) for layer in layers),
            biases=tuple(_numbers(content[f"bias_{layer}"]) for layer in layers),
            record=record,
        )
    except (DataError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _no_forecast(path, error) from error
    wrong = _misfit(net)
    if wrong:
        raise _no_forecast(path, wrong)
    return net


def _numbers(array: NDArray[Any]) -> F8:
    """Returns an array in double precision.

    Raises:
        TypeError: It holds other things than floating-point numbers.
    """
    if not np.issubdtype(array.dtype, np.floating):
        raise TypeError(f"an array is of type {array.dtype}")
    return array.astype(np.float64)


def _no_forecast(path: Path, why: object) -> DataError:
    """Returns the error for a file that holds no forecast."""
    return DataError(f"{path} holds no forecast ({why}); make it again with 'noonward fit-forecast'")


def _misfit(net: ForecastNet) -> str:
    """Returns what of a net does not fit the rest or is of a wrong type; nothing if all does."""
    record, months = net.record, net.record.get("months", {})
    if not net.zones or not all(isinstance(zone, str) for zone in net.zones):
        return "its 'zones' are no list of names"
    if not isinstance(months, dict) or not all(
        isinstance(listed, list) and all(type(month) is int for month in listed) for listed in months.values()
    ):
        return "its 'months' are no lists of numbers"
    if "fitted_until" in record:
        try:
            aware = datetime.fromisoformat(record["fitted_until"]).tzinfo is not None
        except (TypeError, ValueError):
            aware = False
        if not aware:
            return "its 'fitted_until' is no time with its distance from UTC"
    try:
        closest_KZL(record, net.zones)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return "its errors on held-out hours are not those of its zones, forecasts and leads"
    ins = INPUTS + len(net.zones)
    if net.mean_F.shape != (ins,) or net.spread_F.shape != (ins,) or not (net.spread_F > 0).all():
        return f"its inputs have no mean and spread above 0 each; {len(net.zones)} zones make {ins} inputs"
    last = len(net.weights) - 1
    for layer, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        outs = 2 * LEADS if layer == last else weight.shape[-1] if weight.ndim else 0
        if weight.shape != (ins, outs) or bias.shape != (outs,):
            return (
                f"layer {layer} has weights of shape {weight.shape} and biases of shape {bias.shape}, expected "
                f"({ins}, {outs}) and ({outs},)"
            )
        ins = outs
    arrays = (net.mean_F, net.spread_F, *net.weights, *net.biases)
    if last < 0 or not all(np.isfinite(array).all() for array in arrays):
        return "it holds a value that is not finite, or no layer"
    return ""


def write_net(net: ForecastNet, path: Path) -> None:
    """Writes a net to a file, whole or not at all; weights in half precision."""
    arrays: dict[str, Any] = {}
    for layer, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        arrays[f"weight_{layer}"], arrays[f"bias_{layer}"] = weight.astype(np.float16), bias.astype(np.float16)
    with whole_file(path) as file:
        np.savez_compressed(
            file, record=np.array(json.dumps(net.record)), mean_F=net.mean_F, spread_F=net.spread_F, **arrays
        )
