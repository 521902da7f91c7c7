"""Slow oracle of jobs that may be stopped, resized or capped: every life on whole slots, every combination tried.

Lives are made of slots: in each a job is off, or runs in one mode (a gang under a cap). A checkpoint is written right
after a run, a load ends right where the next one begins; between both the job is dark for a while.
"""

import math

import numpy as np

from reference.cluster_utility import plain_idle, plain_integral

TICK_S = 600.0
"""All times are multiples of this."""
IDLE_W = 8.0
ACTIVE_W = 80.0


def modes_of(freedom, own, asked):
    """(rate, power share, gang) of every mode."""
    gangs = [(1.0, own)]
    if freedom.elastic is not None and asked & {"elastic"} and own in freedom.elastic.gpus:
        base = freedom.elastic.speedup[freedom.elastic.gpus.index(own)]
        pairs = zip(freedom.elastic.gpus, freedom.elastic.speedup, strict=True)
        gangs = [(speedup / base, gpus) for gpus, speedup in pairs]
    caps = [(1.0, 1.0)]
    if freedom.caps is not None and asked & {"caps"}:
        caps = list(zip(freedom.cap_curve.power, freedom.cap_curve.throughput, strict=True))
    return [(speed * throughput, power, gpus) for speed, gpus in gangs for power, throughput in caps]


def patterns(slots, units, modes, stops, gangs_free):
    """All tuples of a mode per slot (None: off) that do the work in the last of them, from every first slot on."""
    out = []

    def extend(done, left, may_stop):
        if left <= 1e-9:
            out.append(tuple(done))
            return
        if len(done) == slots:
            return
        started = any(mode is not None for mode in done)
        if not started or may_stop:
            extend([*done, None], left, may_stop)
        for mode in modes:
            before = done[-1] if done else None
            if before is not None and before[2] != mode[2] and not gangs_free:
                continue
            extend([*done, mode], left - mode[0], may_stop)

    extend([], units, stops)
    return out


def lives(env, j, asked):
    """All (value in USD, site, use by tick) of a job, None among them."""
    jobs, slot = env.jobs, env.slot_s
    freedom = env.fleet.freedoms["tune"]
    home, own, run_s = int(jobs.origin_J[j]), int(jobs.gpus_min_J[j]), float(jobs.work_J[j])
    paused = freedom.checkpoint
    ready = math.ceil(jobs.arrival_s_J[j] / slot)
    ticks = int(400 * 3600 / TICK_S)
    out = [(0.0, -1, np.zeros(ticks, np.int64))]
    for site, place in enumerate(env.fleet.sites):
        back_s = 0.0 if jobs.result_gb_J[j] == 0 else math.inf
        travel = 0 if site == home else max(1, math.ceil(env.links.latency_s_IS[home, site] / slot))
        first = ready + travel
        latest = math.floor((jobs.arrival_s_J[j] + jobs.slack_s_J[j] - back_s) / slot)
        if latest < first:
            continue
        slots = latest - first + math.ceil(run_s / slot)
        modes = modes_of(freedom, own, asked)
        may_stop = freedom.interruptible and "suspend" in asked
        for pattern in set(patterns(slots, run_s / slot, modes, may_stop, "elastic" in asked)):
            begun = next(i for i, mode in enumerate(pattern) if mode is not None)
            if first + begun > latest or max(mode[2] for mode in pattern if mode is not None) > place.gpus:
                continue
            found = carried_out(env, place, site, pattern, first, run_s, paused, own)
            if found is not None:
                out.append(found)
    return out


def carried_out(env, place, site, pattern, first, run_s, paused, own):
    """(value, site, use by tick) of a pattern with all that stopping and resuming takes; None if dark is too short."""
    slot, left = env.slot_s, run_s
    segments, free_from_s, before = [], -math.inf, None
    for i, mode in enumerate(pattern):
        begin_s = (first + i) * slot
        if mode is not None:
            share = min(1.0, left / (mode[0] * slot))
            if before is None and segments:
                if begin_s - paused.load_s < free_from_s + paused.dark_s:
                    return None
                segments.append((begin_s - paused.load_s, begin_s, paused.load_power * ACTIVE_W * mode[2], mode[2]))
            segments.append((begin_s, begin_s + share * slot, mode[1] * ACTIVE_W * mode[2], mode[2]))
            left -= share * mode[0] * slot
        elif before is not None:
            free_from_s = begin_s + paused.stop_s
            segments.append((begin_s, free_from_s, paused.stop_power * ACTIVE_W * before[2], before[2]))
        before = mode
    usd = env.economics.revenue_usd_per_gpu_hour * own * run_s / 3600
    price, carbon = env.signals.price_usd_per_mwh_ZH[site], env.signals.carbon_g_per_kwh_ZH[site]
    mu = env.economics.carbon_usd_per_t / 1e6
    use = np.zeros(int(400 * 3600 / TICK_S), np.int64)
    for from_s, to_s, watts, gpus in segments:
        for rate, values in ((1e-3, price), (mu, carbon)):
            usd -= rate * watts * place.pue / 1000 * plain_integral(values, from_s, to_s) / 3600
            idle = plain_integral(values, min(from_s, env.window_s), min(to_s, env.window_s))
            usd += rate * IDLE_W * gpus * place.pue / 1000 * idle / 3600
        use[int(from_s / TICK_S) : math.ceil(to_s / TICK_S - 1e-9)] += gpus
    return float(usd), site, use


def brute_force(env, asked):
    """Best utility over all combinations of the jobs' lives."""
    menus = [sorted(lives(env, j, asked), key=lambda life: -life[0]) for j in range(len(env.jobs))]
    most = [*np.cumsum([menu[0][0] for menu in menus][::-1])[::-1].tolist(), 0.0]
    free = [np.full(int(400 * 3600 / TICK_S), site.gpus) for site in env.fleet.sites]
    best = -math.inf

    def extend(j, usd):
        nonlocal best
        if usd + most[j] <= best:
            return
        if j == len(menus):
            best = usd
            return
        for value, site, use in menus[j]:
            if usd + value + most[j + 1] <= best:
                break
            if site < 0:
                extend(j + 1, usd + value)
            elif (free[site] >= use).all():
                free[site] -= use
                extend(j + 1, usd + value)
                free[site] += use

    extend(0, 0.0)
    return plain_idle(env) + best


def moving_lives(env, j):
    """All (value in USD, use by site and tick) of a job that may be stopped and resumed at any site, none among them.

    Every slot it is off, or on at a site; stops, loads and journeys take their time, and every change of site the time
    of its link. Nothing but energy costs anything, and all sites are as fast.
    """
    jobs, slot, freedom = env.jobs, env.slot_s, env.fleet.freedoms["tune"]
    paused, home, own = freedom.checkpoint, int(jobs.origin_J[j]), int(jobs.gpus_min_J[j])
    units, sites = round(float(jobs.work_J[j]) / slot), range(len(env.fleet.sites))
    ready, ticks = math.ceil(jobs.arrival_s_J[j] / slot), int(400 * 3600 / TICK_S)
    latest = math.floor((jobs.arrival_s_J[j] + jobs.slack_s_J[j]) / slot)
    usd = env.economics.revenue_usd_per_gpu_hour * own * float(jobs.work_J[j]) / 3600
    out = [(0.0, np.zeros((len(sites), ticks), np.int64))]

    def joins_s(leaves_s, a, b):
        arrives_s = leaves_s + env.links.latency_s_IS[a, b]
        return max(math.ceil(arrives_s / slot) * slot, leaves_s + slot) if a != b else leaves_s

    def follow(t, left, at, since_s, segments):
        """Goes on at slot `t`: `at` is where it runs, or where and since when (`since_s`) it is free to leave."""
        if left == 0:
            out.append(settled(segments))
            return
        if t >= latest + units:
            return
        if since_s is None:  # it runs
            follow(t + 1, left - 1, at, None, [*segments, (at, t * slot, (t + 1) * slot, 1.0)])
            stop_s = t * slot + paused.stop_s
            stopped = [*segments, (at, t * slot, stop_s, paused.stop_power)]
            follow(t + 1, left, at, stop_s + paused.dark_s, stopped)
            return
        follow(t + 1, left, at, since_s, segments)
        for s in sites:
            leaves_s = math.ceil(since_s / slot) * slot if s != at else since_s
            load_s = t * slot - paused.load_s
            if segments and load_s >= joins_s(leaves_s, at, s):
                loads = [*segments, (s, load_s, t * slot, paused.load_power)]
                follow(t + 1, left - 1, s, None, [*loads, (s, t * slot, (t + 1) * slot, 1.0)])
            elif not segments and t * slot >= joins_s(since_s, at, s) and t <= latest:
                follow(t + 1, left - 1, s, None, [(s, t * slot, (t + 1) * slot, 1.0)])

    def settled(segments):
        value, use = usd, np.zeros((len(sites), ticks), np.int64)
        for s, from_s, to_s, share in segments:
            place = env.fleet.sites[s]
            price, carbon = env.signals.price_usd_per_mwh_ZH[s], env.signals.carbon_g_per_kwh_ZH[s]
            for rate, values in ((1e-3, price), (env.economics.carbon_usd_per_t / 1e6, carbon)):
                value -= rate * share * ACTIVE_W * own * place.pue / 1000 * plain_integral(values, from_s, to_s) / 3600
                idle = plain_integral(values, min(from_s, env.window_s), min(to_s, env.window_s))
                value += rate * IDLE_W * own * place.pue / 1000 * idle / 3600
            use[s, int(from_s / TICK_S) : math.ceil(to_s / TICK_S - 1e-9)] += own
        return float(value), use

    follow(ready, units, home, ready * slot, [])
    return out


def brute_force_moving(env):
    """Best utility over all combinations of the lives of jobs that may move."""
    menus = [sorted(moving_lives(env, j), key=lambda life: -life[0]) for j in range(len(env.jobs))]
    most = [*np.cumsum([menu[0][0] for menu in menus][::-1])[::-1].tolist(), 0.0]
    gpus = np.array([[site.gpus] for site in env.fleet.sites])
    free, best = np.repeat(gpus, int(400 * 3600 / TICK_S), axis=1), -math.inf

    def extend(j, usd):
        nonlocal best
        if usd + most[j] <= best:
            return
        if j == len(menus):
            best = usd
            return
        for value, use in menus[j]:
            if usd + value + most[j + 1] <= best:
                break
            if (free >= use).all():
                free[:] -= use
                extend(j + 1, usd + value)
                free[:] += use

    extend(0, 0.0)
    return plain_idle(env) + best
