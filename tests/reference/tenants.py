"""Slow, plain-Python oracle of tenants: quotas in cohorts and whose turn it is, written from docs/tenants.md.

It shares no code with `noonward`: it scans all jobs at every question and integrates past use run by run.
"""

import math
from dataclasses import dataclass


@dataclass
class Tenant:
    """A tenant: guarantee, cohort (None: none), limits (None: none) and weight."""

    gpus: int
    cohort: str | None = None
    borrow: int | None = None
    lend: int | None = None
    weight: float = 1.0

    def spec(self):
        """What a scenario says of it."""
        limits = {"borrow": self.borrow, "lend": self.lend} if self.cohort else {}
        return {"gpus": self.gpus, "cohort": self.cohort, "weight": self.weight, **limits}

    @property
    def lendable(self):
        if self.cohort is None:
            return 0
        return self.gpus if self.lend is None else min(self.gpus, self.lend)


class Quotas:
    """Quotas over a list of jobs that have `status`, `gpus`, `start_s`, `finish_s`, `gpus_min` and `tenant`.

    Args:
        tenants: Tenants.
        half_life_s: Half-life of past use, s; None for the order in which jobs joined.
        slot_s: Length of a slot, s.
    """

    def __init__(self, tenants, half_life_s, slot_s):
        self.tenants, self.half_life_s, self.slot_s = tenants, half_life_s, slot_s
        self.jobs = []

    def used(self, t):
        return sum(job.gpus for job in self.jobs if job.tenant == t and job.status == "running")

    def room(self, t, planned=None):
        """GPUs that a tenant may take now, where some are planned for tenants already."""
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
        return (borrows, share, job.reach_s, job.index)

    def ordered(self, queue, now_s):
        """A queue (jobs in the order in which they joined) in the order of turns."""
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
        return any(near) and self.room(job.tenant, planned) < job.gpus_max
