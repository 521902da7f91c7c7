"""Slow, plain-Python oracle of suspension under protocol `each-slot`, written from docs/suspension.md.

It walks slot by slot like `reference.each_slot`, whose queues, masks and moves it takes over, and keeps every stretch
of a job (run, stop, load, lost run) in a plain list that the ledger sums up.
"""

import math
from dataclasses import asdict, dataclass, field

from reference import each_slot
from reference.ledger import Ledger


@dataclass(frozen=True)
class Freedom:
    """What may be done with running jobs of an interruptible class; fields as the scenario's keys."""

    stop_s: float = 0.0
    dark_s: float = 0.0
    load_s: float = 0.0
    stop_power: float = 0.0
    load_power: float = 0.0
    min_run_s: float = 0.0
    most_suspensions: int | None = None

    def spec(self):
        """The scenario's block."""
        said = asdict(self)
        own = {name: said.pop(name) for name in ("min_run_s", "most_suspensions")}
        return {"interruptible": True, "checkpoint": said, **{k: v for k, v in own.items() if v is not None}}


@dataclass
class Stretch:
    """A stretch of constant power of a job."""

    job: object
    kind: str  # run, stop, load or lost
    begin_s: float
    end_s: float
    watts: float


@dataclass
class Question(each_slot.Question):
    """A step about running jobs: `asked[site]` is one that may be suspended, or -1."""


@dataclass
class Life:
    """What the oracle keeps of a job that has started."""

    state: str  # run, stop, dark, queued or load
    until_s: float  # end of a stop, darkness or load
    began_s: float = math.nan  # of the present run
    left: float = 0.0  # work left when the present run began, or at the suspension
    ran_s: float = 0.0  # in all earlier runs
    suspensions: int = 0
    paid_late_s: float = 0.0


@dataclass
class Run(each_slot.Run):
    """A run in which jobs are suspended and resumed."""

    freedoms: dict = field(default_factory=dict)
    lives: dict = field(default_factory=dict)
    order: list = field(default_factory=list)  # running jobs of interruptible classes, as they began to run
    stretches: list = field(default_factory=list)
    hours_known: int = 0

    def free(self, s):
        holds = ("run", "stop", "load")
        return self.plant.sites[s].gpus - sum(
            j.gpus for j in self.jobs if j.index in self.lives and self.lives[j.index].state in holds and j.site == s
        )

    def suspended(self, job):
        return job.index in self.lives and self.lives[job.index].suspensions > 0

    def latest_start_s(self, job, s):
        back_s = self.link_s(job.origin, s, job.result_gb) if job.result_gb > 0 else 0.0
        return max(self.stand_still_until_s(job, self.lives.get(job.index)) - back_s, self.plant.late_until_s)

    def stand_still_until_s(self, job, life):
        """Deadline of the start; of a suspended job later by what it ran, earlier by its load."""
        if life is None or life.suspensions == 0:
            return job.deadline_s
        return job.deadline_s + life.ran_s - self.freedoms[job.class_].load_s

    def may_move(self, job, s, d):
        return not self.suspended(job) and super().may_move(job, s, d)

    def gang_fits(self, job, s):
        return self.room(s) >= (job.gpus if self.suspended(job) else job.gpus_min)

    def mask(self, job, s):
        row = [True]
        for d in range(len(self.plant.sites)):
            here = self.may_start(job, s) and self.gang_fits(job, s)
            row.append(here if d == s else self.may_move(job, s, d))
        return row

    def unit_s(self, job):
        return self.plant.sites[job.site].unit_s(job.gpus, job.level, job.class_)

    def full_w(self, job):
        return self.plant.sites[job.site].power_w(job.gpus, job.level, job.class_)

    def begin_run(self, job, life, time_s):
        life.state, life.began_s = "run", time_s
        job.finish_s = time_s + life.left * self.unit_s(job)
        self.stretches.append(Stretch(job, "run", time_s, job.finish_s, self.full_w(job)))
        if job.class_ in self.freedoms:
            self.order.append(job.index)

    def take(self, until_s):
        """Takes events one by one, the earliest first: at one instant finishes, joins, arrivals, stops, loads."""
        while True:
            events = []
            for job in self.jobs:
                life = self.lives.get(job.index)
                if job.status == "planned":
                    events.append((job.arrival_s, 3, job.index))
                elif job.status == "in transit" and life is None:
                    events.append((self.joins_s[job.index], 2, job.index))
                elif life is not None and job.status == "running" and life.state == "run":
                    events.append((job.finish_s, 0, job.index))
                elif life is not None and life.state in ("stop", "dark", "load"):
                    events.append((life.until_s, {"dark": 2, "stop": 5, "load": 6}[life.state], job.index))
            events = [event for event in events if event[0] <= until_s]
            if not events:
                return
            time_s, kind, index = min(events)
            job, life = self.jobs[index], self.lives.get(index)
            if kind == 0:
                job.status, life.state = "done", "done"
                self.order = [other for other in self.order if other != index]
                self.ledger.result(job, time_s)
            elif kind == 5:
                life.state, life.until_s = "dark", time_s + self.freedoms[job.class_].dark_s
            elif kind == 6:
                self.begin_run(job, life, time_s)
            else:
                if kind == 3:
                    job.site = self.plant.homes[job.origin]
                if life is None:
                    job.reach_s = time_s
                else:
                    life.state = "queued"
                job.status = "queued"
                self.queues[job.site].append(index)

    def drop_overdue(self):
        super().drop_overdue()
        for job in self.jobs:
            if job.status == "overdue" and self.suspended(job):
                for stretch in self.stretches:
                    if stretch.job is job and stretch.kind == "run":
                        stretch.kind = "lost"

    def carry_out(self, job, s, choice, gpus, level):
        if choice != 1 + s:
            super().carry_out(job, s, choice, gpus, level)
            return
        life = self.lives.get(job.index)
        if life is None:
            super().carry_out(job, s, choice, gpus, level)
            life = self.lives[job.index] = Life("run", math.nan, left=job.work)
            self.begin_run(job, life, self.now_s)
            life.paid_late_s = max(0.0, self.now_s - job.deadline_s)
            return
        self.queues[s].remove(job.index)
        freedom = self.freedoms[job.class_]
        late_s = self.now_s - self.stand_still_until_s(job, life)
        if late_s > 0:
            self.ledger.late_gpu_h += job.gpus_min * (late_s - life.paid_late_s) / 3600
            life.paid_late_s = late_s
        job.status, end_s = "running", self.now_s + freedom.load_s
        self.stretches.append(Stretch(job, "load", self.now_s, end_s, freedom.load_power * self.full_w(job)))
        life.state, life.until_s = "load", end_s
        if freedom.load_s == 0:
            self.begin_run(job, life, end_s)
        else:
            job.finish_s = end_s + life.left * self.unit_s(job)

    def may_suspend(self, job):
        life, freedom, slot_s = self.lives[job.index], self.freedoms[job.class_], self.plant.slot_s
        ran_s = self.now_s - life.began_s
        if freedom.most_suspensions is not None and life.suspensions >= freedom.most_suspensions:
            return False
        if ran_s < freedom.min_run_s or job.finish_s - self.now_s < 1.0:
            return False
        back_s = max(math.ceil((self.now_s + freedom.stop_s + freedom.dark_s) / slot_s) * slot_s, self.now_s + slot_s)
        home_s = self.link_s(job.origin, job.site, job.result_gb) if job.result_gb > 0 else 0.0
        until_s = job.deadline_s + life.ran_s + ran_s - freedom.load_s - home_s
        return back_s <= max(until_s, self.plant.late_until_s)

    def suspend(self, job):
        life, freedom = self.lives[job.index], self.freedoms[job.class_]
        ran_s = self.now_s - life.began_s
        running = next(x for x in reversed(self.stretches) if x.job is job and x.kind == "run")
        running.end_s = self.now_s
        end_s = self.now_s + freedom.stop_s
        self.stretches.append(Stretch(job, "stop", self.now_s, end_s, freedom.stop_power * self.full_w(job)))
        life.left -= ran_s / self.unit_s(job)
        life.ran_s += ran_s
        life.suspensions += 1
        self.order.remove(job.index)
        job.status, job.finish_s = "in transit", math.nan
        life.state, life.until_s = "stop", end_s
        if freedom.stop_s == 0:
            life.state, life.until_s = "dark", self.now_s + freedom.dark_s

    def before_queues(self, answer):
        """At the turn of an hour, asks all sites at once about their running jobs that may be suspended.

        One job of each site a step, as they began.
        """
        if self.now_s % 3600 != 0 or self.now_s / 3600 >= self.hours_known:
            return
        sites = range(len(self.plant.sites))
        asked_of = [[i for i in self.order if self.jobs[i].site == s and self.may_suspend(self.jobs[i])] for s in sites]
        for turn in range(max(map(len, asked_of))):
            asked = [asked_of[s][turn] if turn < len(asked_of[s]) else -1 for s in sites]
            self.pay(self.now_s)
            whole = self.question([-1] * len(asked))
            whole.asked = asked
            for s, suspends in enumerate(answer(Question(**vars(whole)))):
                if asked[s] >= 0 and suspends:
                    self.suspend(self.jobs[asked[s]])

    def pay(self, time_s):
        self.ledger.stretches = self.stretches
        super().pay(time_s)


class SegmentLedger(Ledger):
    """The slow ledger over stretches instead of whole runs; only runs whose work is not lost earn."""

    stretches = ()

    def __init__(self, *args):
        super().__init__(*args)
        self.overhead = [dict.fromkeys(("gpu_s", "kwh", "usd", "kg"), 0.0) for _ in self.sites]

    def start(self, job):
        self.late_gpu_h += job.gpus_min * max(0.0, job.start_s - job.deadline_s) / 3600

    def run_to(self, time_s):
        super().run_to(time_s)  # no account is open: free GPUs alone
        zero = (dict.fromkeys(("gpu_s", "kwh", "usd", "kg"), 0.0) for _ in range(2 * len(self.sites)))
        self.busy, self.overhead = ([next(zero) for _ in self.sites] for _ in range(2))
        self.free = [dict.fromkeys(("kwh", "usd", "kg"), 0.0) for _ in self.sites]
        window_end_s = min(time_s, self.window_s)
        for s, site in enumerate(self.sites):
            self._book(self.free[s], s, site.gpus * site.free_w, 0.0, window_end_s)
        for stretch in self.stretches:
            begin_s, end_s, job = stretch.begin_s, min(stretch.end_s, time_s), stretch.job
            if end_s <= begin_s:
                continue
            s = job.site
            if stretch.kind == "run":
                self.busy[s]["gpu_s"] += job.gpus * (end_s - begin_s)
            elif stretch.kind in ("stop", "load"):
                self.overhead[s]["gpu_s"] += job.gpus * (end_s - begin_s)
                self._book(self.overhead[s], s, stretch.watts, begin_s, end_s)
            self._book(self.busy[s], s, stretch.watts, begin_s, end_s)
            until_s = min(end_s, self.window_s)
            if until_s > begin_s:
                self._book(self.free[s], s, -job.gpus * self.sites[s].free_w, begin_s, until_s)


def simulate(plant, jobs, answer, ledger, freedoms, hours_known):
    """Runs the protocol with questions about running jobs.

    Args:
        plant: Plant.
        jobs: Jobs by ascending arrival.
        answer: As in `each_slot.simulate`; of a `Question` about running jobs it returns per site whether to suspend.
        ledger: SegmentLedger.
        freedoms: Freedom per interruptible class.
        hours_known: Hours of signals; 0 without.

    Returns:
        Run.
    """
    run = Run(plant, jobs, ledger, queues=[[] for _ in plant.sites], freedoms=freedoms, hours_known=hours_known)
    each_slot.play(run, answer)
    return run
