"""Sweeps over a run in the order of time: queues and power per site, and both spread over hours."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I4, I8
from noonward.compiled import kernel
from noonward.units import HOUR_S, WATT_SECONDS_PER_KWH


@kernel(allocates=False)
def sweep_queues(
    reach_s_W: F8,
    start_s_W: F8,
    site_W: I8,
    joins_W: I8,
    leaves_L: I8,
    ended_s: float,
    waiting_S: I8,
    longest_S: I8,
    waited_s_S: F8,
    total_3: I8,
) -> None:
    """Counts the jobs that wait per site; one that leaves when another joins has left before it.

    The jobs that join may be given part by part, each time with what the call before left.

    Args:
        reach_s_W: When each job W joined its queue, s.
        start_s_W: When it left, at least ``reach_s_W``, or NaN for never.
        site_W: Where.
        joins_W: Jobs in the order they joined.
        leaves_L: Those that left, in the order they left.
        ended_s: When the run ended, s.
        waiting_S: Room for counts; zeros.
        longest_S: Receives the most that waited at once.
        waited_s_S: Receives the time that all waited up to the run's end, s.
        total_3: Receives how many of those that left have been counted, how many wait at all sites together, and the
            most that did; zeros.
    """
    left, total, longest = total_3[0], total_3[1], total_3[2]
    for j in joins_W:
        s = site_W[j]
        until_s = ended_s if np.isnan(start_s_W[j]) else min(start_s_W[j], ended_s)
        waited_s_S[s] += max(0.0, until_s - reach_s_W[j])
        if start_s_W[j] <= reach_s_W[j]:
            continue
        while left < leaves_L.shape[0] and start_s_W[leaves_L[left]] <= reach_s_W[j]:
            k = leaves_L[left]
            if start_s_W[k] > reach_s_W[k]:
                waiting_S[site_W[k]] -= 1
                total -= 1
            left += 1
        waiting_S[s] += 1
        total += 1
        longest_S[s] = max(longest_S[s], waiting_S[s])
        longest = max(longest, total)
    total_3[0], total_3[1], total_3[2] = left, total, longest


@kernel(inline=True, allocates=False)
def _hold(s: int, time_s: float, power_w_S: F8, since_s_S: F8, cap_w_S: F8, out_S4: F8) -> None:
    """Lets a site draw its power up to a time: adds to joules, peak, seconds above the cap and seconds."""
    seconds = time_s - since_s_S[s]
    if seconds > 0.0:
        out_S4[s, 0] += power_w_S[s] * seconds
        out_S4[s, 1] = max(out_S4[s, 1], power_w_S[s])
        if power_w_S[s] > cap_w_S[s]:
            out_S4[s, 2] += seconds
        out_S4[s, 3] += seconds
        since_s_S[s] = time_s


@kernel(allocates=False)
def sweep_power(
    site_K: I4,
    from_s_K: F8,
    to_s_K: F8,
    change_w_K: F8,
    begins_K: I8,
    ends_K: I8,
    window_s: float,
    power_w_S: F8,
    since_s_S: F8,
    cap_w_S: F8,
    out_S4: F8,
    taken_2: I8,
    until: int,
) -> None:
    """Follows the facility power of all sites through the window.

    That may be done part by part, each time with what the call before left.

    Args:
        site_K: Site of each power segment.
        from_s_K: Begin, s.
        to_s_K: End, s.
        change_w_K: Its power less what its GPUs draw free, W.
        begins_K: Segments in the order they begin.
        ends_K: Segments in the order they end.
        window_s: End of the window, s.
        power_w_S: Power at second 0; overwritten.
        since_s_S: Zeros; overwritten.
        cap_w_S: Limit of the power, W; infinite for none.
        out_S4: Receives joules, highest power W, seconds above the limit, and seconds.
        taken_2: Receives how many begins and ends have been taken; zeros.
        until: Begins to take in all; if that is all of them, the rest of the window is followed too.
    """
    count = site_K.shape[0]
    begun, ended = taken_2[0], taken_2[1]
    while begun < until or (until == count and ended < count):
        if begun < count and from_s_K[begins_K[begun]] <= to_s_K[ends_K[ended]]:
            k = begins_K[begun]
            time_s, change_w = from_s_K[k], change_w_K[k]
            begun += 1
        else:
            k = ends_K[ended]
            time_s, change_w = to_s_K[k], -change_w_K[k]
            ended += 1
        if time_s >= window_s:
            break
        _hold(site_K[k], time_s, power_w_S, since_s_S, cap_w_S, out_S4)
        power_w_S[site_K[k]] += change_w
    taken_2[0], taken_2[1] = begun, ended
    if until == count:
        for s in range(power_w_S.shape[0]):
            _hold(s, window_s, power_w_S, since_s_S, cap_w_S, out_S4)


@kernel(allocates=False)
def spread_power(site_K: I4, from_s_K: F8, to_s_K: F8, gpus_K: I4, watts_K: F8, out_SH2: F8) -> None:
    """Spreads segments over hours: GPU-hours and kWh per site and hour."""
    for k in range(site_K.shape[0]):
        time = from_s_K[k]
        hour = int(time / HOUR_S)
        while time < to_s_K[k]:
            until = min(to_s_K[k], (hour + 1) * HOUR_S)
            out_SH2[site_K[k], hour, 0] += gpus_K[k] * (until - time) / HOUR_S
            out_SH2[site_K[k], hour, 1] += watts_K[k] * (until - time) / WATT_SECONDS_PER_KWH
            time = until
            hour += 1


@kernel(allocates=False)
def count_waiting(reach_s_W: F8, start_s_W: F8, site_W: I8, change_SH: I8) -> None:
    """Counts joins less leaves per site between the hours' starts; ``change_SH`` has one more column than hours."""
    last = change_SH.shape[1] - 1
    for j in range(reach_s_W.shape[0]):
        change_SH[site_W[j], int(min(np.ceil(reach_s_W[j] / HOUR_S), last))] += 1
        if not np.isnan(start_s_W[j]):
            change_SH[site_W[j], int(min(np.ceil(start_s_W[j] / HOUR_S), last))] -= 1


@kernel(allocates=False)
def count_arrivals(arrival_s_J: F8, origin_J: I8, home_I: I8, out_SH: I8) -> None:
    """Counts arrivals per site and hour by the home of their ingress point; points without a home do not count."""
    for j in range(arrival_s_J.shape[0]):
        home, hour = home_I[origin_J[j]], int(arrival_s_J[j] / HOUR_S)
        if home >= 0 and hour < out_SH.shape[1]:
            out_SH[home, hour] += 1
