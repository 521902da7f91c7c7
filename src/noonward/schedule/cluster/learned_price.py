"""A learned price of capacity as the start of bid prices: what a net says the coming hours' GPUs are worth."""

from __future__ import annotations

from functools import cache

import numpy as np

from noonward.arrays import F8
from noonward.decision.cluster.view import ClusterView
from noonward.schedule.cluster.choices.file import ChoiceNets, read_choice_policy
from noonward.schedule.cluster.choices.layout import PRICE_INPUTS
from noonward.schedule.cluster.choices.prices import PRICED_H, write_costs, write_net_prices
from noonward.schedule.cluster.packaged_policies import price_path
from noonward.units import DAY_H, HOUR_S


@cache
def packaged_price(seed: int) -> LearnedPrice:
    """Returns the learned price of the packaged ``masac-credit`` of a training seed, 0 to 2."""
    return LearnedPrice(read_choice_policy(price_path(seed))[0])


class LearnedPrice:
    """Prices of capacity from forecasts alone (``choices.prices``), for any sites.

    Args:
        nets: Nets of a choice-scoring policy, of which the price net is used.
    """

    def __init__(self, nets: ChoiceNets) -> None:
        parts = zip(nets.price_weights, nets.price_biases, strict=True)
        self._weight_W = np.concatenate([part.ravel() for pair in parts for part in pair])
        self._hidden = nets.price_weights[0].shape[2]

    def __call__(self, view: ClusterView, window_h: float, start_hour: float) -> F8:
        """Returns the prices of the hours ahead at every site, USD per GPU-hour, [S, PRICED_H].

        Args:
            view: View.
            window_h: Length of the window, h; infinite for a service.
            start_hour: Hour of day of second 0, UTC.
        """
        sites, now_h = len(view.site_S), float(view.now_s // HOUR_S)
        table_XY, price_SH = np.zeros((4 * sites + 1, PRICED_H + DAY_H)), np.zeros((sites, PRICED_H))
        write_costs(view, table_XY)
        x_I, y_I, z_I = (np.zeros(width, np.float32) for width in (PRICE_INPUTS, self._hidden, 1))
        hour_of_day = start_hour + now_h
        write_net_prices(
            view, table_XY, self._weight_W, 0, self._hidden, window_h - now_h, hour_of_day, x_I, y_I, z_I, price_SH
        )
        return price_SH
