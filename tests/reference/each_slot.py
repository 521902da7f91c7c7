"""Slow, plain-Python oracle of protocol `each-slot` (MASAC, Sec. II), written from the specification.

It shares no code with `noonward`. It walks slot by slot and scans all jobs at every turn: no event heap, no linked
lists, no running integrals.
"""

import math
from dataclasses import dataclass, field

from reference import ledger
from reference.on_arrival import ORACLE

FINISH, JOIN, ARRIVE = range(3)


@dataclass
class Question:
    """One decision step: what all sites are asked at once, and what they see.

    `asked[site]` is a job's index or -1; `mask[site]` says for every choice (0 = hold, 1 + d) whether it is feasible.
    """

    now_s: float
    asked: list
    mask: list
    free: list
    waiting: list
    waiting_gpus: list


@dataclass
class Plant:
    """What stands still during a run.

    Args:
        sites: List of Site.
        homes: homes[ingress] = site; every site has one ingress.
        latency_s: latency_s[ingress][site]; like every link, it counts only away from home.
        s_per_gb: s_per_gb[ingress][site].
        slot_s: Length of a slot.
        window_s: End of the window.
        drained: Run on until every job is done or overdue.
        caps: caps[site][hour] that no start may exceed; None for none.
        late_until_s: Time until which jobs may start after their latest start; -inf where they are dropped then.
        withheld: withheld[site] = [(time_s, GPUs that no job may take from then on), ...], from time 0; None for none.
        quotas: reference.tenants.Quotas; None for none.
        connections: connections[site] = [(time_s, kW that no start may exceed from then on), ...], from time 0, or
            None for a site without a limit; None for none at all.
    """

    sites: list
    homes: list
    latency_s: list
    s_per_gb: list
    slot_s: float
    window_s: float
    drained: bool
    caps: list | None = None
    late_until_s: float = -math.inf
    withheld: list | None = None
    quotas: object | None = None
    connections: list | None = None


@dataclass
class Run:
    """A run: jobs by index, queues of job indices by site, and what the steps paid."""

    plant: Plant
    jobs: list
    ledger: object
    queues: list = field(default_factory=list)
    joins_s: dict = field(default_factory=dict)
    rewards: list = field(default_factory=list)
    booked_usd: float = 0.0
    now_s: float = 0.0
    ended_s: float = math.nan

    def link_s(self, ingress, s, size_gb):
        plant = self.plant
        if plant.homes[ingress] == s:
            return 0.0
        return plant.latency_s[ingress][s] + size_gb * plant.s_per_gb[ingress][s]

    def latest_start_s(self, job, s):
        """Eq. 7b: the result must be able to travel home within the slack; or later, where jobs may be late."""
        in_time_s = job.deadline_s - (self.link_s(job.origin, s, job.result_gb) if job.result_gb > 0 else 0.0)
        return max(in_time_s, self.plant.late_until_s)

    def free(self, s):
        taken = sum(j.gpus for j in self.jobs if j.status == "running" and j.site == s)
        return max(0, self.plant.sites[s].gpus - taken - ledger.withheld_at(self.plant.withheld, s, self.now_s))

    def room(self, s):
        """GPUs that may start now: free ones, and no more than the hour's cap leaves (Eq. 7c)."""
        free, caps = self.free(s), self.plant.caps
        if caps is None:
            return free
        return min(free, math.floor(caps[s][int(self.now_s // 3600)]) - (self.plant.sites[s].gpus - free))

    def room_for(self, job, s):
        """The same for a job: no more than its tenant may take, nor than the connection carries."""
        room, quotas = self.room(s), self.plant.quotas
        if quotas is not None:
            room = min(room, quotas.room(job.tenant))
        return max((n for n in range(room + 1) if n == 0 or self.carries(job, s, n)), default=0)

    def carries(self, job, s, n):
        """Whether n more GPUs of a job, at the clock that draws most, lift a site's power to no more than allowed."""
        steps, site = (self.plant.connections or {s: None})[s], self.plant.sites[s]
        if steps is None:
            return True
        here = [j for j in self.jobs if j.status == "running" and j.site == s]
        watts = sum(site.power_w(j.gpus, j.level, j.class_) for j in here) + self.free(s) * site.free_w
        added_w = max(site.power_w(n, level, job.class_) for level in range(len(site.clocks))) - n * site.free_w
        limit_w = math.floor(1000 * [kw for from_s, kw in steps if from_s <= self.now_s][-1])
        return added_w <= 0 or (watts + added_w) * site.pue <= limit_w * (1 + 1e-9)

    def join_s(self, job, s, d):
        """First slot boundary at or after the journey from s to d, at the earliest the next slot."""
        slot_s = self.plant.slot_s
        arrives_s = self.now_s + self.link_s(self.plant.homes.index(s), d, job.move_gb)
        return max(math.ceil(arrives_s / slot_s) * slot_s, self.now_s + slot_s)

    def may_start(self, job, s):
        """Whether a job fits into a site at all and is still in time there."""
        return self.plant.sites[s].takes(job) and self.now_s <= self.latest_start_s(job, s)

    def may_move(self, job, s, d):
        return s != d and self.plant.sites[d].takes(job) and self.join_s(job, s, d) <= self.latest_start_s(job, d)

    def mask(self, job, s):
        row = [True]
        for d in range(len(self.plant.sites)):
            here = self.may_start(job, s) and self.room_for(job, s) >= job.gpus_min
            row.append(here if d == s else self.may_move(job, s, d))
        return row

    def take(self, until_s):
        """Takes finishes, joins and arrivals up to a time: by time, in that order at one instant, then by job."""
        events = []
        for job in self.jobs:
            if job.status == "running" and job.finish_s <= until_s:
                events.append((job.finish_s, FINISH, job.index))
            elif job.status == "in transit" and job.index in self.joins_s and self.joins_s[job.index] <= until_s:
                events.append((self.joins_s[job.index], JOIN, job.index))
            elif job.status == "planned" and job.arrival_s <= until_s:
                events.append((job.arrival_s, ARRIVE, job.index))
        for time_s, kind, index in sorted(events):
            job = self.jobs[index]
            if kind == FINISH:
                job.status = "done"
                self.ledger.result(job, time_s)
                continue
            if kind == ARRIVE:
                job.site = self.plant.homes[job.origin]
                if self.plant.quotas is not None and self.plant.quotas.refuses(job, time_s):
                    job.status, job.site = "overdue", -1
                    continue
            job.status, job.reach_s = "queued", time_s
            self.queues[job.site].append(index)

    def drop_overdue(self):
        sites = range(len(self.plant.sites))
        for s in sites:
            for index in list(self.queues[s]):
                job = self.jobs[index]
                if not self.may_start(job, s) and not any(self.may_move(job, s, d) for d in sites):
                    job.status = "overdue"
                    self.queues[s].remove(index)

    def carry_out(self, job, s, choice, gpus, level):
        if choice == 0:
            return
        self.queues[s].remove(job.index)
        d = choice - 1
        if d != s:
            job.status, job.site = "in transit", d
            self.joins_s[job.index] = self.join_s(job, s, d)
            self.ledger.move(job, self.plant.homes.index(s), d, self.now_s)
            return
        site = self.plant.sites[s]
        job.gpus = min(job.gpus_max, gpus or job.gpus_max, self.room_for(job, s))
        job.level = site.best_level(job.gpus, job.class_) if level == ORACLE else level
        job.status, job.start_s = "running", self.now_s
        job.finish_s = self.now_s + job.work * site.unit_s(job.gpus, job.level, job.class_)
        self.ledger.start(job)

    def pending(self, s):
        """The jobs that a site is asked about in this slot, in order."""
        quotas, queue = self.plant.quotas, self.queues[s]
        if quotas is None:
            return list(queue)
        return [job.index for job in quotas.ordered([self.jobs[index] for index in queue], self.now_s)]

    def asked(self, pending):
        """Takes the next job of every site out of what is pending; -1 for none, or where it waits for the next step."""
        quotas, out = self.plant.quotas, []
        planned = [] if quotas is None else [0] * len(quotas.tenants)
        for s, queue in enumerate(pending):
            while queue and quotas is not None and quotas.used_up(self.jobs[queue[0]].tenant, self.now_s):
                queue.pop(0)
            job = self.jobs[queue[0]] if queue else None
            if job is None or (quotas is not None and quotas.deferred(job, planned)):
                out.append(-1)
                continue
            out.append(queue.pop(0))
            if quotas is not None and self.mask(job, s)[1 + s]:
                planned[job.tenant] += min(job.gpus_max, self.room_for(job, s))
        return out

    def before_queues(self, answer):
        """Asks what is asked in a slot before its queues: here nothing."""

    def pay(self, time_s):
        """Books the growth of the utility since the last question."""
        self.ledger.run_to(time_s)
        utility_usd = self.ledger.utility_usd()
        self.rewards.append(utility_usd - self.booked_usd)
        self.booked_usd = utility_usd

    def question(self, asked):
        sites = range(len(self.plant.sites))
        return Question(
            now_s=self.now_s,
            asked=asked,
            mask=[self.mask(self.jobs[index], s) if index >= 0 else None for s, index in enumerate(asked)],
            free=[self.free(s) for s in sites],
            waiting=[len(self.queues[s]) for s in sites],
            waiting_gpus=[sum(self.jobs[index].gpus_min for index in self.queues[s]) for s in sites],
        )


def simulate(plant, jobs, answer, ledger):
    """Runs the protocol.

    Args:
        plant: Plant.
        jobs: Jobs (reference.on_arrival.Job) by ascending arrival.
        answer: answer(question) -> (choice, gpus or 0, level or ORACLE) per site, called at every decision step.
        ledger: reference.ledger.Ledger.

    Returns:
        Run, with a reward per question and one for the end.
    """
    run = Run(plant, jobs, ledger, queues=[[] for _ in plant.sites])
    play(run, answer)
    return run


def play(run, answer):
    """Runs the protocol from its first slot to its end."""
    plant, jobs, sites = run.plant, run.jobs, range(len(run.plant.sites))
    for index, job in enumerate(jobs):
        job.index, job.status = index, "planned"
    if plant.quotas is not None:
        plant.quotas.jobs, plant.quotas.clock = jobs, lambda: run.now_s
    slot = 0
    while True:
        time_s = slot * plant.slot_s
        if not plant.drained and time_s >= plant.window_s:
            run.take(plant.window_s)
            run.now_s = run.ended_s = plant.window_s
            if time_s == plant.window_s:
                run.drop_overdue()
            break
        run.take(time_s)
        run.now_s = time_s
        run.drop_overdue()
        run.before_queues(answer)
        pending = [run.pending(s) for s in sites]
        while any(pending):
            asked = run.asked(pending)
            if max(asked) < 0:
                continue
            run.pay(time_s)
            answers = answer(run.question(asked))
            for s in sorted(sites, key=lambda s: answers[s] is not None and answers[s][0] != 1 + s):  # starts first
                if asked[s] >= 0:
                    run.carry_out(jobs[asked[s]], s, *answers[s])
        if plant.drained and all(job.status in ("done", "overdue", "failed") for job in jobs):
            run.ended_s = max(time_s, plant.window_s)
            break
        slot += 1
    run.pay(run.ended_s)
