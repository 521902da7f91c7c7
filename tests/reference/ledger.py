"""Slow oracle of energy, money and carbon: U1..U5 by summation over jobs and hours; both oracles share it."""

import itertools
import math


def hourly(values_H, begin_s, end_s):
    """Integral of hourly values over [begin, end], value x s, hour by hour; the last value holds on."""
    if values_H is None or end_s <= begin_s:
        return 0.0
    parts = []
    for hour in range(int(begin_s // 3600), int(end_s // 3600) + 1):
        seconds = min(end_s, 3600.0 * (hour + 1)) - max(begin_s, 3600.0 * hour)
        parts.append(values_H[min(hour, len(values_H) - 1)] * seconds)
    return math.fsum(parts)


def at_hour(values_H, time_s):
    """Value of the hour a time lies in; the last value holds on."""
    return values_H[min(int(time_s // 3600), len(values_H) - 1)]


def withheld_at(withheld, s, time_s):
    """GPUs of a site that no job may take at a time; withheld[site] = [(time_s, GPUs from then on), ...] or None."""
    return 0 if withheld is None else [gpus for from_s, gpus in withheld[s] if from_s <= time_s][-1]


class Ledger:
    """What a run earned and cost so far (MASAC, Eqs. 2-7).

    U1 = sum over jobs of alpha n hours - cost of the energy of busy GPUs; U2 = cost of the energy of free GPUs, within
    the window; U3 = carbon price x carbon of both; U4 = cost + carbon of the jobs' journeys; U5 = the same of results.

    Args:
        sites: List of Site.
        homes: homes[ingress] = site or -1; a link at home is free.
        usd_per_gb: usd_per_gb[ingress][site].
        kwh_per_gb: kwh_per_gb[ingress][site].
        price: price[site][hour], USD/MWh; None without signals.
        carbon: carbon[site][hour], g/kWh; None without signals.
        alpha: USD per GPU-hour.
        mu: USD per tonne of CO2.
        window_s: Time up to which free GPUs are charged.
        late_usd: Price of an hour that a job starts late, per GPU of its smallest gang.
        withheld: As in `withheld_at`; GPUs that are withheld, and on which no job runs any more, draw nothing.
    """

    def __init__(
        self, sites, homes, usd_per_gb, kwh_per_gb, price, carbon, alpha, mu, window_s, late_usd=0.0, withheld=None
    ):
        self.withheld = withheld
        self.sites, self.homes, self.usd_per_gb, self.kwh_per_gb = sites, homes, usd_per_gb, kwh_per_gb
        self.price, self.carbon = price or [None] * len(sites), carbon or [None] * len(sites)
        self.alpha, self.mu, self.window_s = alpha, mu, window_s
        self.late_usd, self.late_gpu_h = late_usd, 0.0
        self.now_s, self.open, self.known = 0.0, [], {}
        self.busy = [dict.fromkeys(("gpu_s", "kwh", "usd", "kg"), 0.0) for _ in sites]
        self.free = [dict.fromkeys(("kwh", "usd", "kg"), 0.0) for _ in sites]
        self.moved, self.returned = (dict.fromkeys(("kwh", "usd", "kg"), 0.0) for _ in range(2))

    def start(self, job):
        """Opens the account of a job that starts, and counts how late it is."""
        self.open.append(job)
        self.late_gpu_h += job.gpus_min * max(0.0, job.start_s - job.deadline_s) / 3600

    def move(self, job, ingress, s, now_s):
        """Books a job's journey, if it has data to carry over a link."""
        if self.homes[ingress] != s and job.move_gb > 0:
            job.moves += 1
            self._transfer(self.moved, job.move_gb, ingress, s, now_s)

    def result(self, job, now_s):
        """Books the journey of a job's result."""
        if self.homes[job.origin] != job.site:
            self._transfer(self.returned, job.result_gb, job.origin, job.site, now_s)

    def _transfer(self, account, size_gb, ingress, s, now_s):
        kwh = size_gb * self.kwh_per_gb[ingress][s]
        account["kwh"] += kwh
        account["usd"] += size_gb * self.usd_per_gb[ingress][s]
        if self.carbon[s] is not None:
            ends = [s if self.homes[ingress] < 0 else self.homes[ingress], s]
            account["kg"] += kwh * sum(at_hour(self.carbon[end], now_s) for end in ends) / 2 / 1000

    def _book(self, account, s, watts, begin_s, end_s):
        """Books constant IT power at a site."""
        facility_w = watts * self.sites[s].pue
        if (s, begin_s, end_s) not in self.known:  # one that has ended is asked for again and again
            self.known[s, begin_s, end_s] = [hourly(of[s], begin_s, end_s) for of in (self.price, self.carbon)]
        price, carbon = self.known[s, begin_s, end_s]
        account["kwh"] += facility_w * (end_s - begin_s) / 3.6e6
        account["usd"] += facility_w * price / 3.6e9
        account["kg"] += facility_w * carbon / 3.6e9

    def run_to(self, time_s):
        """Charges everything between the last call and a time."""
        window_end_s = min(time_s, self.window_s)
        if window_end_s > self.now_s:
            for s, site in enumerate(self.sites):
                self._book(self.free[s], s, site.gpus * site.free_w, self.now_s, window_end_s)
                if self.withheld is not None:
                    self._book_off(s, site, window_end_s)
        for job in self.open:
            begin_s, end_s = max(self.now_s, job.start_s), min(time_s, job.finish_s)
            if end_s <= begin_s:
                continue
            site = self.sites[job.site]
            self.busy[job.site]["gpu_s"] += job.gpus * (end_s - begin_s)
            watts = site.power_w(job.gpus, job.level, job.class_)
            self._book(self.busy[job.site], job.site, watts, begin_s, end_s)
            if min(end_s, self.window_s) > begin_s:  # its GPUs were not free
                freed_w = -job.gpus * site.free_w
                self._book(self.free[job.site], job.site, freed_w, begin_s, min(end_s, self.window_s))
        self.open = [job for job in self.open if job.finish_s > time_s]
        self.now_s = time_s

    def _book_off(self, s, site, end_s):
        """Takes from a site's free GPUs those that are off from the last call to a time: withheld and without a job."""
        mine = [job for job in self.open if job.site == s]
        times = {self.now_s, end_s, *(from_s for from_s, _ in self.withheld[s])}
        times |= {time_s for job in mine for time_s in (job.start_s, job.finish_s)}
        for begin_s, stop_s in itertools.pairwise(sorted(t for t in times if self.now_s <= t <= end_s)):
            taken = sum(job.gpus for job in mine if job.start_s <= begin_s and job.finish_s >= stop_s)
            off = min(withheld_at(self.withheld, s, begin_s), site.gpus - taken)
            self._book(self.free[s], s, -off * site.free_w, begin_s, stop_s)

    def utility_usd(self):
        """U1 - U2 - U3 - U4 - U5, less the price of lateness."""
        usd_per_kg = self.mu / 1000
        u1 = sum(self.alpha * account["gpu_s"] / 3600 - account["usd"] for account in self.busy)
        u2 = sum(account["usd"] for account in self.free)
        u3 = usd_per_kg * sum(account["kg"] for account in self.busy + self.free)
        u4 = self.moved["usd"] + usd_per_kg * self.moved["kg"]
        u5 = self.returned["usd"] + usd_per_kg * self.returned["kg"]
        return u1 - u2 - u3 - u4 - u5 - self.late_usd * self.late_gpu_h


def over_cap_gpu_s(jobs, site, caps_H, end_s):
    """GPU-seconds of a site above its capacity curve up to a time, by a sweep over starts, finishes and hours."""
    mine = [job for job in jobs if job.site == site and job.start_s == job.start_s]
    times = {0.0, end_s, *(3600.0 * hour for hour in range(len(caps_H) + 1))}
    times |= {min(time_s, end_s) for job in mine for time_s in (job.start_s, job.finish_s)}
    times = sorted(time_s for time_s in times if time_s <= end_s)
    total = 0.0
    for begin_s, stop_s in itertools.pairwise(times):
        busy = sum(job.gpus for job in mine if job.start_s <= begin_s and job.finish_s >= stop_s)
        hour = int(begin_s // 3600)
        if hour < len(caps_H):
            total += max(0.0, busy - caps_H[hour]) * (stop_s - begin_s)
    return total
