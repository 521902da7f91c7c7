"""Runs on whole slots and what they earn: the primal side of the utility bound.

A booking holds a gang at the slot instants its run covers, so that integer GPUs never exceed a site's at any instant
(starts, the only moments at which use rises, are slot instants). Axes as in ``kernels``; T slots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.kernels import least_intensity, run_value
from noonward.compiled import kernel


class SlotOptions(NamedTuple):
    """What a booking needs to know of the options, on whole slots and over direct links.

    Attributes:
        first_J: First option of every job, one more than there are jobs.
        site_O: Site.
        gpus_O: Gang, GPUs.
        home_O: Site of the job's ingress, or -1.
        run_s_O: Run time, s.
        slots_O: Slot instants a run covers.
        low_O: First start, slot.
        high_O: Last start, slot; below ``low_O`` where there is none.
        ready_O: First slot at or after the arrival.
        travel_O: Slots between departure and earliest start, 0 at home.
        revenue_usd_O: Revenue, USD.
        power_w_O: Facility power of the gang, W.
        saved_w_O: Facility power of its GPUs when free, W.
        fixed_usd_O: USD of migration and retrieval that no hour changes.
        move_kwh_O: kWh of the migration.
        return_kwh_O: kWh of the retrieval.
        weight_cumulative_SP: Running integral of price + mu carbon, USD/MWh x s.
        part_s: How long a price holds, s.
        carbon_SH: Carbon intensity, g/kWh.
        usd_per_g: Carbon price, USD per gram.
        slot_s: Slot, s.
        window_s: Window over which free GPUs are charged, s.
    """

    first_J: I8
    site_O: I8
    gpus_O: I8
    home_O: I8
    run_s_O: F8
    slots_O: I8
    low_O: I8
    high_O: I8
    ready_O: I8
    travel_O: I8
    revenue_usd_O: F8
    power_w_O: F8
    saved_w_O: F8
    fixed_usd_O: F8
    move_kwh_O: F8
    return_kwh_O: F8
    weight_cumulative_SP: F8
    part_s: float
    carbon_SH: F8
    usd_per_g: float
    slot_s: float
    window_s: float


@kernel(allocates=False)
def start_value(table: SlotOptions, option: int, slot: int, leaving_g_per_kwh: float) -> float:
    """Returns what a start earns, USD: running value - migration at its best departure - retrieval at its end.

    Args:
        table: Options.
        option: Option.
        slot: Slot of the start.
        leaving_g_per_kwh: Mean intensity of both ends at the best departure; not read where nothing migrates.
    """
    start_s = slot * table.slot_s
    end_s = start_s + table.run_s_O[option]
    site = table.site_O[option]
    usd = run_value(
        table.weight_cumulative_SP[site],
        start_s,
        end_s,
        table.window_s,
        table.revenue_usd_O[option],
        table.power_w_O[option],
        table.saved_w_O[option],
        table.part_s,
    )
    grams = 0.0
    if table.move_kwh_O[option] > 0:
        grams += table.move_kwh_O[option] * leaving_g_per_kwh
    if table.return_kwh_O[option] > 0:
        grams += table.return_kwh_O[option] * least_intensity(table.carbon_SH, table.home_O[option], site, end_s, end_s)
    return float(usd - table.fixed_usd_O[option] - table.usd_per_g * grams)


@kernel()
def departures(table: SlotOptions, option_J: I8, slot_J: I8) -> F8:
    """Returns the first departure of least carbon of every migrated job, s; NaN for jobs that stay at home."""
    depart_s_J = np.full(len(option_J), np.nan)
    for j in range(len(option_J)):
        o = option_J[j]
        if o < 0 or table.home_O[o] == table.site_O[o]:
            continue
        best = np.inf
        for slot in range(table.ready_O[o], slot_J[j] - table.travel_O[o] + 1):
            time_s = slot * table.slot_s
            intensity = least_intensity(table.carbon_SH, table.home_O[o], table.site_O[o], time_s, time_s)
            if intensity < best:
                best = intensity
                depart_s_J[j] = time_s
    return depart_s_J
