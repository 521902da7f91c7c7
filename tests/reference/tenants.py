"""Slow, plain-Python oracle of tenants: quotas, budgets and whose turn it is, written from docs/tenants.md.

It shares no code with `noonward`: it scans all jobs at every question and adds up past use run by run.
"""

import math
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass
class Tenant:
    """A tenant: guarantee, cohort (None: none), limits (None: none), weight, and what a scenario says of its budget."""

    gpus: int
    cohort: str | None = None
    borrow: int | None = None
    lend: int | None = None
    weight: float = 1.0
    budget: dict = field(default_factory=dict)

    def spec(self):
        """What a scenario says of it."""
        limits = {"borrow": self.borrow, "lend": self.lend} if self.cohort else {}
        said = {"gpus": self.gpus, "cohort": self.cohort, "weight": self.weight, **limits}
        return said | ({"budget": self.budget} if self.budget else {})

    @property
    def lendable(self):
        if self.cohort is None:
            return 0
        return self.gpus if self.lend is None else min(self.gpus, self.lend)


class Budgets:
    """What runs use and periods of the calendar, hour by hour.

    Args:
        start: Second 0.
        sites: Sites, which say what a job draws.
        price: price[site][hour], USD/MWh, the last value holds on; None without signals.
        carbon: carbon[site][hour], g/kWh.
    """

    def __init__(self, start, sites, price, carbon):
        self.start, self.sites, self.price, self.carbon = start, sites, price, carbon

    def begins_s(self, period, now_s):
        """When the period that now lies in began."""
        if period == "window":
            return -math.inf
        day = (self.start + timedelta(seconds=now_s)).replace(hour=0, minute=0, second=0, microsecond=0)
        if period == "week":
            day -= timedelta(days=day.weekday())
        elif period == "month":
            day = day.replace(day=1)
        return (day - self.start).total_seconds()

    def turns_s(self, until_s):
        """Midnights up to a time: whenever a period may begin."""
        first = self.begins_s("day", 0.0)
        return [first + 86400.0 * n for n in range(1, math.ceil((until_s - first) / 86400.0) + 1)]

    def used(self, job, from_s, to_s, hour=None):
        """USD, kWh, kg of a job's run between two times, at the signals of their hours, or at those of one hour."""
        site = self.sites[job.site]
        mw = site.power_w(job.gpus, job.level, job.class_) * site.pue / 1e6
        out = {"usd": 0.0, "kwh": 0.0, "kg": 0.0}
        while from_s < to_s:
            end_s = min(to_s, (from_s // 3600.0 + 1) * 3600.0)
            mwh = mw * (end_s - from_s) / 3600.0
            out["kwh"] += 1000.0 * mwh
            if self.price is not None:
                at = min(int(from_s // 3600.0) if hour is None else hour, len(self.price[job.site]) - 1)
                out["usd"] += mwh * self.price[job.site][at]
                out["kg"] += mwh * self.carbon[job.site][at]
            from_s = end_s
        return out


class Quotas:
    """Quotas and budgets over jobs that have `status`, `gpus`, `start_s`, `finish_s`, `gpus_min` and `tenant`.

    Args:
        tenants: Tenants.
        half_life_s: Half-life of past use, s; None for the order in which jobs joined.
        slot_s: Length of a slot, s.
        budgets: Budgets.
    """

    def __init__(self, tenants, half_life_s, slot_s, budgets=None):
        self.tenants, self.half_life_s, self.slot_s, self.budgets = tenants, half_life_s, slot_s, budgets
        self.jobs, self.clock = [], lambda: 0.0

    def used_up(self, t, now_s):
        """Whether a tenant's budget is used up by the jobs that began in this period."""
        said = self.tenants[t].budget
        if not said:
            return False
        since_s, total = self.budgets.begins_s(said.get("period", "month"), now_s), {"usd": 0.0, "kwh": 0.0, "kg": 0.0}
        for job in self.jobs:
            if job.tenant == t and not math.isnan(job.start_s) and job.start_s >= since_s:
                hour = int(job.start_s // 3600.0) if job.status == "running" else None
                for name, value in self.budgets.used(job, job.start_s, job.finish_s, hour).items():
                    total[name] += value
        return any(name in said and round(value, 6) >= round(said[name], 6) for name, value in total.items())

    def refuses(self, job, now_s):
        """Whether a job that arrives now is refused."""
        return self.tenants[job.tenant].budget.get("at_limit") == "refuse" and self.used_up(job.tenant, now_s)

    def used(self, t):
        return sum(job.gpus for job in self.jobs if job.tenant == t and job.status == "running")

    def room(self, t, planned=None):
        """GPUs that a tenant may take now, where some are planned for tenants already."""
        if self.used_up(t, self.clock()):
            return 0
        planned = planned or [0] * len(self.tenants)
        mine = self.tenants[t]
        used = [self.used(u) + planned[u] for u in range(len(self.tenants))]
        if mine.cohort is None:
            return max(0, mine.gpus - used[t])
        others = [u for u in range(len(self.tenants)) if self.tenants[u].cohort == mine.cohort]
        pool = sum(self.tenants[u].lendable for u in others)
        taken = sum(max(0, used[u] - (self.tenants[u].gpus - self.tenants[u].lendable)) for u in others)
        kept = mine.gpus - mine.lendable
        limit = math.inf if mine.borrow is None else mine.gpus + mine.borrow - max(used[t], kept)
        return max(0, max(0, kept - used[t]) + min(pool - taken, limit))

    def average(self, t, now_s):
        """GPUs held on average, older use counting less: the integral of g(u) d(2^-((now - u) / half-life)) to now."""
        total = 0.0
        for job in self.jobs:
            if job.tenant == t and not math.isnan(job.start_s) and job.start_s < now_s:
                until_s = min(job.finish_s, now_s)
                total += job.gpus * (self.left(now_s - until_s) - self.left(now_s - job.start_s))
        return total

    def left(self, seconds):
        if seconds == 0.0:
            return 1.0
        return 0.5 ** (seconds / self.half_life_s) if self.half_life_s else 0.0

    def share(self, t, now_s, charged):
        left = self.left(self.slot_s)
        use = left * self.average(t, now_s) + (1 - left) * (self.used(t) + charged)
        return round(use / self.tenants[t].weight, 6)

    def key(self, job, now_s, charged=0):
        """What turns go by: the least first."""
        borrows = self.used(job.tenant) + charged + job.gpus_min > self.tenants[job.tenant].gpus
        share = 0.0 if self.half_life_s is None else self.share(job.tenant, now_s, charged)
        return (borrows, share, -job.priority, job.reach_s, job.index)

    def ordered(self, queue, now_s):
        """A queue (jobs in the order in which they joined) in the order of turns."""
        queue = sorted(queue, key=lambda job: -job.priority)
        left = [[job for job in queue if job.tenant == t] for t in range(len(self.tenants))]
        charged, out = [0] * len(self.tenants), []
        while any(left):
            job = min((own[0] for own in left if own), key=lambda job: self.key(job, now_s, charged[job.tenant]))
            charged[job.tenant] += job.gpus_min
            out.append(left[job.tenant].pop(0))
        return out

    def first(self, queue, now_s):
        """The job of a queue that starts next, or None: jobs beyond their tenant's quota are passed over."""
        good = [job for job in queue if self.room(job.tenant) >= job.gpus_min]
        return min(good, key=lambda job: self.key(job, now_s), default=None)

    def deferred(self, job, planned):
        """Whether a site is asked about a job in the next step: others asked in this one may take what it may."""
        near = [planned[u] for u in range(len(planned)) if self.tenants[u].cohort == self.tenants[job.tenant].cohort]
        if self.tenants[job.tenant].cohort is None:
            near = [planned[job.tenant]]
        if self.tenants[job.tenant].budget and planned[job.tenant]:
            return True
        return any(near) and self.room(job.tenant, planned) < job.gpus_max
