"""What generated prices and carbon intensities are expected to be, hour by hour, as their generator would know it."""

from __future__ import annotations

import math
from datetime import timedelta

import numpy as np

from noonward.arrays import F8
from noonward.compiled import kernel
from noonward.data.environments import HISTORY_H
from noonward.data.signals.calibration import load_calibration
from noonward.data.signals.generate import ScorePaths, calendar, draw_scores, generate_signals
from noonward.errors import ScenarioError
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import GeneratedSignals
from noonward.model.precision import CARBON_DECIMALS, PRICE_DECIMALS, range_on_grid
from noonward.seeding import stream

_NOT_ITS_OWN = "the environment's signals were not drawn for it; build it from its scenario with generated signals"


def expected_signals(environment: Environment, source: GeneratedSignals) -> F8:
    """Returns what every signal is expected to be, given all that the generator drew until an hour.

    The normal score of an hour, given the hidden parts (``ScorePaths``) at an earlier one, is normal with mean
    ``sum_c sqrt(share_c) r_c^k (a cos + b sin)`` and variance ``sum_c share_c (1 - r_c^(2 k))``, k the hours between
    them. The expectation of the value, a piecewise linear function of the score cut to the market's range, is then
    exact, but for the rounding to what markets publish. Who sees the signals alone knows less than this.

    Args:
        environment: Environment drawn from a scenario with generated signals.
        source: The scenario's signals.

    Returns:
        Price in USD/MWh, then carbon intensity in g/kWh, of shape (2, T, S, H): at hour T of the run, of hour H at
        site S. Hours up to T hold what was drawn.
    """
    known = environment.signals
    if known is None or environment.start - timedelta(hours=HISTORY_H) != known.start:
        raise ScenarioError(_NOT_ITS_OWN)
    table, zones, hours = load_calibration(source.calibration), known.zones, environment.hours
    parts = [table.zone(zone) for zone in zones]
    series = [part.price for part in parts] + [part.carbon for part in parts]
    drawn = known.price_usd_per_mwh_ZH.shape[1]

    def world() -> np.random.Generator:
        return stream(environment.seed, "world", environment.index)

    again = generate_signals(zones, known.start, drawn, world(), source.calibration)
    if any(not np.array_equal(again.value_ZH[name], value_ZH) for name, value_ZH in known.value_ZH.items()):
        raise ScenarioError(_NOT_ITS_OWN)
    paths = draw_scores(table, zones, series, drawn, world())
    offset_h_S = np.array([part.utc_offset / timedelta(hours=1) for part in parts] * 2)
    month_H, hour_H, weekend_SH = calendar(known.start, drawn, offset_h_S)
    out_RTH = np.empty((len(series), hours, hours))
    mean_RTH, spread_RTH = _scores_given(paths, HISTORY_H, hours)
    real_RH = np.concatenate([known.price_usd_per_mwh_ZH, known.carbon_g_per_kwh_ZH])[:, HISTORY_H : HISTORY_H + hours]
    for row, one in enumerate(series):
        decimals = PRICE_DECIMALS if row < len(zones) else CARBON_DECIMALS
        low, high = range_on_grid(one.minimum, one.maximum, decimals)
        for h in range(hours):
            at = HISTORY_H + h
            plain = one.profile_MH[month_H[at], hour_H[at]] + one.weekend_step * (weekend_SH[row, at] - 2 / 7)
            curve_K = one.residual_curve_MDK[month_H[at], hour_H[at] // 6]
            knot_K, value_K = _cut(table.score_knots_K, plain + one.hour_spread_H[hour_H[at]] * curve_K, low, high)
            out_RTH[row, :h, h] = mean_on_curve(mean_RTH[row, :h, h], spread_RTH[row, :h, h], knot_K, value_K)
            out_RTH[row, h:, h] = real_RH[row, h]
    at_site = [zones.index(site.zone) for site in environment.fleet.sites]
    return np.ascontiguousarray(out_RTH.reshape(2, len(zones), hours, hours)[:, at_site].swapaxes(1, 2))


def _scores_given(paths: ScorePaths, first: int, hours: int) -> tuple[F8, F8]:
    """Returns mean and standard deviation of every series' score at hour H given the hidden parts at hour T, (R, T, H).

    Args:
        paths: Hidden parts.
        first: Hour of the draw that counts as 0.
        hours: Hours.
    """
    count = len(paths.swings_C)
    mixed_PTR = np.einsum("pts,rs->ptr", paths.part_PHS[:, first : first + hours], paths.mix_SS, optimize=True)
    lead_TH = np.maximum(np.arange(hours)[None] - np.arange(hours)[:, None], 0)
    mean_RTH = np.zeros((len(paths.root_SC), hours, hours))
    variance_RTH = np.zeros_like(mean_RTH)
    second_C = count + np.cumsum(paths.swings_C) - 1
    for c in range(count):
        phase_H = paths.phase_CH[c, first : first + hours]
        kept_TH = paths.rate_P[c] ** lead_TH
        path_RTH = mixed_PTR[c].T[:, :, None] * np.cos(phase_H)
        if paths.swings_C[c]:
            path_RTH = path_RTH + mixed_PTR[second_C[c]].T[:, :, None] * np.sin(phase_H)
        root_R = paths.root_SC[:, c, None, None]
        mean_RTH += root_R * kept_TH * path_RTH
        variance_RTH += root_R**2 * (1.0 - kept_TH**2)
    return mean_RTH, np.sqrt(variance_RTH)


def _cut(knot_K: F8, value_K: F8, low: float, high: float) -> tuple[F8, F8]:
    """Returns a non-decreasing piecewise linear curve cut to a range, with knots where it enters and leaves it."""
    more = [
        knot_K[k] + (edge - value_K[k]) / (value_K[k + 1] - value_K[k]) * (knot_K[k + 1] - knot_K[k])
        for edge in (low, high)
        for k in range(len(knot_K) - 1)
        if value_K[k] < edge < value_K[k + 1]
    ]
    all_K = np.sort(np.concatenate([knot_K, more]))
    return all_K, np.clip(np.interp(all_K, knot_K, value_K), low, high)


@kernel()
def mean_on_curve(mean_N: F8, spread_N: F8, knot_K: F8, value_K: F8) -> F8:
    """Returns the expectation of a piecewise linear function, flat outside its knots, of normal variables.

    ``value_0 + sum_k slope_k (E (X - knot_k)+ - E (X - knot_(k+1))+)`` with
    ``E (X - a)+ = s phi(d) + (m - a) Phi(d)``, ``d = (m - a) / s``.

    Args:
        mean_N: Means m.
        spread_N: Standard deviations s, above 0.
        knot_K: Knots, increasing.
        value_K: Values at the knots.
    """
    out_N = np.empty(len(mean_N))
    for n in range(len(mean_N)):
        total, before = value_K[0], 0.0
        for k in range(len(knot_K)):
            d = (mean_N[n] - knot_K[k]) / spread_N[n]
            density = math.exp(-0.5 * d * d) / math.sqrt(2.0 * math.pi)
            above = spread_N[n] * density + (mean_N[n] - knot_K[k]) * 0.5 * (1.0 + math.erf(d / math.sqrt(2.0)))
            if k and knot_K[k] > knot_K[k - 1]:
                total += (value_K[k] - value_K[k - 1]) / (knot_K[k] - knot_K[k - 1]) * (before - above)
            before = above
        out_N[n] = total
    return out_N
