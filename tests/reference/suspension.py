"""Slow, plain oracle of jobs that are suspended, resized, preempted and capped under protocol `each-slot`.

It is written from docs/suspension.md.

It walks slot by slot like `reference.each_slot`, whose queues, masks and moves it takes over, and keeps every stretch
of a job (run at one power, stop, load, lost run) in a plain list that the ledger sums up.
"""

import math
from dataclasses import asdict, dataclass, field, replace

from reference import each_slot
from reference.ledger import Ledger


@dataclass(frozen=True)
class Freedom:
    """What may be done with running jobs of a class; fields as the scenario's keys.

    `caps` lists (share of power, share of throughput) of each power cap below full power, in falling order; `elastic`
    (GPUs, speed-up) of each gang that a job may be resized to, ascending; `preempts` the classes it may displace.
    """

    interruptible: bool = True
    caps: tuple = ()
    elastic: tuple = ()
    stop_s: float = 0.0
    dark_s: float = 0.0
    load_s: float = 0.0
    stop_power: float = 0.0
    load_power: float = 0.0
    min_run_s: float = 0.0
    most_suspensions: int | None = None
    requeue: bool = False
    preempts: tuple = ()
    every_s: float = 3600.0
    moves: bool = False
    gb: float = 0.0

    def spec(self):
        """The scenario's block."""
        said = asdict(self)
        own = (
            {name: said.pop(name) for name in ("min_run_s", "most_suspensions")}
            if self.interruptible or self.requeue
            else {}
        )
        interruptible, caps, elastic = (said.pop(name) for name in ("interruptible", "caps", "elastic"))
        own["moves"] = self.moves
        own["requeue"], own["preempts"] = self.requeue, tuple(f"class{c}" for c in self.preempts)
        if elastic:
            own["elastic"] = dict(zip(("gpus", "speedup"), zip(*elastic, strict=True), strict=True))
        if caps:
            power, throughput = zip(*reversed(((1.0, 1.0), *caps)), strict=True)
            own["caps"] = {"power": power, "throughput": throughput}
        checkpoint = {
            name: said[name] for name in ("stop_s", "dark_s", "load_s", "stop_power", "load_power", "every_s", "gb")
        }
        own = {name: value for name, value in own.items() if value is not None}
        return {"interruptible": interruptible, "checkpoint": checkpoint, **own}

    def cap(self, cap):
        """(Share of power, share of throughput) of a cap; 0 is full power."""
        return ((1.0, 1.0), *self.caps)[cap]


NONE = Freedom(interruptible=False, every_s=0.0)


@dataclass
class Stretch:
    """A stretch of constant power of a job."""

    job: object
    kind: str  # run, stop, load, lost, kill, redo, crash or fail
    begin_s: float
    end_s: float
    watts: float
    rate: float = 1.0
    capped: bool = False
    gpus: int = 0
    site: int = -1

    def __post_init__(self):
        if self.site < 0:
            self.site = self.job.site


@dataclass
class Question(each_slot.Question):
    """A step about running jobs: `asked[site]` is one that may be suspended, preempted or capped, or -1.

    `may_suspend[site]` says whether the former.
    """

    may_suspend: list = field(default_factory=list)


@dataclass
class Life:
    """What the oracle keeps of a job that has started."""

    state: str  # run, stop, dark, queued or load
    until_s: float  # end of a stop, darkness or load
    began_s: float = math.nan  # of the present run
    stretch_s: float = math.nan  # when it began to run at its present power
    left: float = 0.0  # work left then, or at the suspension
    ran_s: float = 0.0  # before, each stretch as long as it would have been at full power
    cap: int = 0  # its present power cap, or that after its load
    rate: float = 1.0
    own: int = 0  # gang it started on
    speed: float = 1.0  # on its present gang, over that
    lift_s: float = math.inf  # when its slack will be used up
    suspensions: int = 0
    failures: int = 0
    paid_late_s: float = 0.0


@dataclass
class Run(each_slot.Run):
    """A run in which jobs are suspended, resumed and capped."""

    freedoms: dict = field(default_factory=dict)
    lives: dict = field(default_factory=dict)
    order: list = field(default_factory=list)  # running jobs of classes with freedoms, as they began to run
    stretches: list = field(default_factory=list)
    hours_known: int = 0
    levers: tuple = ()
    wants_freed: bool = False
    freed: set = field(default_factory=set)  # sites at which GPUs have become free since running jobs were asked about

    failures: list | None = None  # per job: work at which it fails, and GPU-seconds between failures of hardware

    def rules(self, class_):
        """Freedom of a class; one that states none begins again from its start when it fails."""
        return self.freedoms.get(class_, NONE)

    def fails(self, job, life):
        """(When a running job fails by its own fault, when its hardware does) if it runs on as it does."""
        if self.failures is None:
            return math.inf, math.inf
        at, gpu_s = self.failures[job.index]
        before = [x for x in self.stretches if x.job is job and x.kind in ("run", "redo") and x.end_s <= life.stretch_s]
        ran_gpu_s = sum(x.gpus * (x.end_s - x.begin_s) for x in before)
        crash_s = life.stretch_s + max(0.0, sum(gpu_s[: 1 + life.failures]) - ran_gpu_s) / job.gpus
        to_go = max(0.0, life.left - (job.work - at))
        return life.stretch_s + to_go * self.unit_s(job) / life.rate, crash_s

    def fail(self, job, life):
        fault_s, crash_s = self.fails(job, life)
        life.failures += 1
        if fault_s > crash_s and life.failures < len(self.failures[job.index][1]):
            self.kill(job, "crash")
            return
        self.end_stretch(job, life, self.now_s)
        for stretch in self.stretches:
            if stretch.job is job and stretch.kind == "run":
                stretch.kind = "lost"
        self.freed.add(job.site)
        self.stretches.append(Stretch(job, "fail", self.now_s, self.now_s, 0.0, 0.0, gpus=job.gpus))
        self.order = [other for other in self.order if other != job.index]
        job.status, job.finish_s, life.state = "failed", self.now_s, "failed"

    @property
    def resizes(self):
        return "resize" in self.levers

    def question(self, asked):
        whole = super().question(asked)
        whole.claimed = [self.claimed(self.jobs[i], s) if i >= 0 else 0 for s, i in enumerate(asked)]
        return whole

    def claimed(self, asked, s):
        """GPUs of jobs that wait at a site, may start there, and may displace a job."""
        waiting = [self.jobs[index] for index in self.queues[s]]
        return sum(
            self.least(job)
            for job in waiting
            if "preempt" in self.levers
            and job.class_ in self.freedoms
            and asked.class_ in self.rules(job.class_).preempts
            and self.may_start(job, s)
        )

    def least(self, job):
        """Smallest gang that a job may start or be resumed on."""
        if not self.suspended(job):
            return job.gpus_min
        own, listed = self.lives[job.index].own, dict(self.rules(job.class_).elastic)
        return min(listed) if self.resizes and own in listed and job.gpus_min == job.gpus_max else own

    def lacking(self, asked, s):
        """GPUs that they lack: neither free nor of jobs that stop."""
        lives = ((self.jobs[index], life) for index, life in self.lives.items())
        stopping = sum(job.gpus for job, life in lives if life.state == "stop" and job.site == s)
        return max(0, self.claimed(asked, s) - self.free(s) - stopping)

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
        return job.deadline_s + life.ran_s - self.rules(job.class_).load_s

    def may_start(self, job, s):
        """A suspended job fits if one of its gangs does."""
        if not self.suspended(job):
            return super().may_start(job, s)
        site = self.plant.sites[s]
        fits = job.class_ not in site.barred and self.least(job) <= site.gpus
        return fits and self.now_s <= self.latest_start_s(job, s)

    def may_move(self, job, s, d):
        """A suspended job, if its class moves, to a site at which it runs as fast as where it stands."""
        if not self.suspended(job):
            return super().may_move(job, s, d)
        here, there = self.plant.sites[s], self.plant.sites[d]
        wanted = "move" in self.levers and self.rules(job.class_).moves
        if s == d or not wanted or job.class_ in there.barred or self.least(job) > there.gpus:
            return False
        own = self.lives[job.index].own
        if job.level >= len(there.clocks):
            return False
        alike = here.unit_s(own, job.level, job.class_) == there.unit_s(own, job.level, job.class_)
        return alike and self.join_s(job, s, d) <= self.latest_start_s(job, d)

    def gang_fits(self, job, s):
        room = self.room_for(job, s)
        return self.resume_gang(job, room) > 0 if self.suspended(job) else room >= job.gpus_min

    def pausable(self, job):
        """Whether a job's class may be suspended by this scheduler."""
        freedom = self.rules(job.class_)
        return bool(("suspend" in self.levers and freedom.interruptible) or (self.resizes and freedom.elastic))

    def owed(self, job):
        """Whether a job was stopped and is to be given GPUs again."""
        life = self.lives.get(job.index)
        waits = life is not None and life.suspensions > 0 and life.state in ("stop", "dark", "queued")
        return waits and job.status != "overdue" and self.pausable(job)

    def slot_before(self, time_s):
        slots = time_s if math.isinf(time_s) else math.floor(time_s / self.plant.slot_s) * self.plant.slot_s
        return max(slots, self.now_s)

    def latest_s(self, job):
        """Until when a suspended job is to be resumed so as to use no more than its slack."""
        return self.stand_still_until_s(job, self.lives[job.index]) - self.home_s(job)

    def reservation(self, job):
        """(From, until): when a suspended job, resumed at the last moment, holds the gang that it started on."""
        life = self.lives[job.index]
        due_s = self.slot_before(self.latest_s(job))
        return due_s, due_s + self.rules(job.class_).load_s + life.left * self.unit_s(job)

    def longest(self, job, begin_s, left_s, slack_s):
        """Latest end of a run that begins at a time, at full power or under a cap for as long as slack is left."""
        caps = self.rules(job.class_).caps if "cap" in self.levers and job.class_ in self.freedoms else ()
        if not caps:
            return begin_s + left_s
        return begin_s + min(left_s + max(0.0, slack_s), left_s / caps[-1][1])

    def holding(self, s):
        """(Job, until when) of all that hold GPUs of a site, by what is known now."""
        for index, life in self.lives.items():
            job = self.jobs[index]
            if job.site != s or life.state not in ("run", "stop", "load"):
                continue
            whole_s = life.left * self.unit_s(job)
            if life.state == "stop":
                yield job, life.until_s
            elif life.state == "load":
                slack_s = job.deadline_s + life.ran_s - self.home_s(job) - life.until_s
                yield job, self.longest(job, life.until_s, whole_s / life.speed, slack_s)
            elif "cap" in self.levers and self.rules(job.class_).caps:
                left_s = (whole_s - life.rate * (self.now_s - life.stretch_s)) / life.speed
                yield job, self.longest(job, self.now_s, left_s, self.slack_left_s(job, life, self.now_s))
            else:
                yield job, job.finish_s

    def respected(self, job, s):
        """Reservations of the suspended jobs of a site that a job leaves room for: (from, until, GPUs)."""
        for index, life in self.lives.items():
            other = self.jobs[index]
            if other is job or not self.owed(other) or other.site != s:
                continue
            displaces = "preempt" in self.levers and other.class_ in self.rules(job.class_).preempts
            begin_s, end_s = self.reservation(other)
            first = not self.owed(job) or (self.latest_s(other), index) < (self.latest_s(job), job.index)
            if first and not (displaces and job.class_ in self.freedoms):
                yield begin_s, end_s, life.own

    def room_between(self, job, s, from_s, until_s):
        """GPUs that a job could hold all the time between two times."""
        kept, held = list(self.respected(job, s)), list(self.holding(s))
        whole = self.free(s) + sum(other.gpus for other, _ in held)
        times = [from_s, *(begin_s for begin_s, _, _ in kept if from_s < begin_s < until_s)]
        return min(
            whole
            - sum(other.gpus for other, end_s in held if other is not job and end_s > time_s)
            - sum(gpus for begin_s, end_s, gpus in kept if begin_s <= time_s < end_s)
            for time_s in times
        )

    def room_for(self, job, s):
        """GPUs that a job may start on: no more than leaves every suspended one room when it is due."""
        room, site = super().room_for(job, s), self.plant.sites[s]
        waits = any(self.jobs[index].site == s and self.owed(self.jobs[index]) for index in self.lives)
        if not waits or job.class_ in site.barred or self.least(job) > site.gpus:
            return room
        if self.owed(job):
            end_s = self.reservation(job)[1]
        else:
            life, gpus = self.lives.get(job.index), self.least(job)
            work = job.work if life is None else life.left
            seconds = max(work * site.unit_s(gpus, level, job.class_) for level in range(len(site.clocks)))
            end_s = self.longest(job, self.now_s, seconds, self.in_time_s(job, life, s) - self.now_s)
        return min(room, max(0, self.room_between(job, s, self.now_s, end_s)))

    def in_time_s(self, job, life, s):
        back_s = self.link_s(job.origin, s, job.result_gb) if job.result_gb > 0 else 0.0
        return self.stand_still_until_s(job, life) - back_s

    def gets_back(self, job):
        """Whether a running job finds its gang free when it is due, if it is suspended now."""
        life, freedom, s = self.lives[job.index], self.rules(job.class_), job.site
        ran_s = life.rate * (self.now_s - life.stretch_s) - (self.unsaved_s(job) if freedom.requeue else 0.0)
        latest_s = job.deadline_s + life.ran_s + ran_s - freedom.load_s
        due_s = max(self.slot_before(latest_s - self.home_s(job)), self.back_s(freedom))
        if math.isinf(due_s):
            return True
        until_s = due_s + freedom.load_s + life.left * self.unit_s(job) - ran_s
        return self.room_between(job, s, due_s, until_s) >= life.own

    def resume_gang(self, job, most):
        """Gang that a suspended job is resumed on where it may take so many GPUs; 0 for none."""
        life, freedom = self.lives[job.index], self.rules(job.class_)
        listed = dict(freedom.elastic) if job.gpus_min == job.gpus_max else {}
        if life.own not in listed or not self.resizes:
            return life.own if life.own <= most else 0
        gpus = max((n for n in listed if n <= most), default=0)
        if gpus == 0:
            return 0
        slack_s = self.stand_still_until_s(job, life) - self.home_s(job) - self.now_s
        left_s = life.left * self.unit_s(job)
        in_time = gpus >= life.own or slack_s + left_s >= left_s * listed[life.own] / listed[gpus]
        return gpus if in_time else 0

    def mask(self, job, s):
        row = [True]
        for d in range(len(self.plant.sites)):
            here = self.may_start(job, s) and self.gang_fits(job, s)
            row.append(here if d == s else self.may_move(job, s, d))
        return row

    def unit_s(self, job):
        return self.plant.sites[job.site].unit_s(self.lives[job.index].own, job.level, job.class_)

    def full_w(self, job):
        return self.plant.sites[job.site].power_w(job.gpus, job.level, job.class_)

    def begin_run(self, job, life, time_s):
        life.state, life.began_s = "run", time_s
        if job.class_ in self.freedoms:
            self.order.append(job.index)
        self.begin_stretch(job, life, time_s, life.cap)

    def home_s(self, job):
        return self.link_s(job.origin, job.site, job.result_gb) if job.result_gb > 0 else 0.0

    def slack_left_s(self, job, life, now_s):
        """How long a running job may still stand still: to its latest start, moved on by what it has run."""
        ran_s = life.rate * (now_s - life.stretch_s)
        left_s = life.left * self.unit_s(job) - ran_s
        return job.deadline_s + life.ran_s + ran_s - self.home_s(job) - now_s + left_s - left_s / life.speed

    def begin_stretch(self, job, life, time_s, cap):
        """Runs on under a cap, which is lifted when the slack is used up: it takes 1 - rate of every second."""
        share, rate = self.rules(job.class_).cap(cap) if job.class_ in self.freedoms else (1.0, 1.0)
        life.cap, life.rate, life.stretch_s, life.lift_s = cap, rate * life.speed, time_s, math.inf
        whole_s = life.left * self.unit_s(job) / life.speed
        job.finish_s = end_s = time_s + whole_s / rate
        if rate < 1:
            capped_s = self.slack_left_s(job, life, time_s) / (1 - rate)
            if capped_s < whole_s / rate:
                end_s = life.lift_s = time_s + capped_s
                job.finish_s = end_s + whole_s - rate * capped_s
        watts = share * self.full_w(job)
        self.stretches.append(Stretch(job, "run", time_s, end_s, watts, life.rate, cap > 0, job.gpus))

    def end_stretch(self, job, life, time_s):
        """Cuts the present stretch off; one of no length is left out."""
        running = next(x for x in reversed(self.stretches) if x.job is job and x.kind == "run")
        running.end_s = time_s
        ran_s = life.rate * (time_s - life.stretch_s)
        life.left = max(0.0, life.left - ran_s / self.unit_s(job))
        life.ran_s += ran_s
        return running

    def change_cap(self, job, life, time_s, cap):
        if self.end_stretch(job, life, time_s).begin_s == time_s:
            self.stretches.remove(next(x for x in reversed(self.stretches) if x.job is job))
        self.begin_stretch(job, life, time_s, cap)

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
                    event = min((job.finish_s, 0, job.index), (life.lift_s, 8, job.index))
                    fails_s = min(self.fails(job, life))
                    events.append((fails_s, 9, job.index) if fails_s <= event[0] else event)
                elif life is not None and life.state in ("stop", "dark", "load"):
                    events.append((life.until_s, {"dark": 2, "stop": 5, "load": 6}[life.state], job.index))
            events = [event for event in events if event[0] <= until_s]
            if not events:
                return
            time_s, kind, index = min(events)
            job, life = self.jobs[index], self.lives.get(index)
            if kind == 9:
                held_s, self.now_s = self.now_s, time_s
                self.fail(job, life)
                self.now_s = held_s
            elif kind == 0:
                job.status, life.state = "done", "done"
                self.freed.add(job.site)
                self.order = [other for other in self.order if other != index]
                self.ledger.result(job, time_s)
            elif kind == 5:
                life.state, life.until_s = "dark", time_s + self.rules(job.class_).dark_s
                self.freed.add(job.site)
            elif kind == 6:
                self.begin_run(job, life, time_s)
            elif kind == 8:
                self.change_cap(job, life, time_s, 0)
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

    def carry_out(self, job, s, choice, gpus, level, cap=-1):
        if choice != 1 + s:
            super().carry_out(job, s, choice, gpus, level)
            if choice > 0 and self.suspended(job):
                life = self.lives[job.index]
                life.state, life.until_s = "dark", self.joins_s[job.index]
            return
        life = self.lives.get(job.index)
        if life is None:
            super().carry_out(job, s, choice, gpus, level)
            life = self.lives[job.index] = Life("run", math.nan, left=job.work, cap=max(0, cap), own=job.gpus)
            self.begin_run(job, life, self.now_s)
            life.paid_late_s = max(0.0, self.now_s - job.deadline_s)
            return
        self.queues[s].remove(job.index)
        freedom, listed = self.rules(job.class_), dict(self.rules(job.class_).elastic)
        room = self.room_for(job, s)
        job.gpus = self.resume_gang(job, min(gpus or room, room))
        life.speed = listed[job.gpus] / listed[life.own] if job.gpus != life.own else 1.0
        late_s = self.now_s - self.stand_still_until_s(job, life)
        if late_s > 0:
            self.ledger.late_gpu_h += job.gpus_min * (late_s - life.paid_late_s) / 3600
            life.paid_late_s = late_s
        job.status, end_s, load_w = "running", self.now_s + freedom.load_s, freedom.load_power * self.full_w(job)
        self.stretches.append(Stretch(job, "load", self.now_s, end_s, load_w, 0.0, gpus=job.gpus))
        life.state, life.until_s, life.cap = "load", end_s, max(0, cap)
        if freedom.load_s == 0:
            self.begin_run(job, life, end_s)
        else:
            job.finish_s = end_s + life.left * self.unit_s(job) / life.speed

    def may_suspend(self, job):
        return self.pausable(job) and self.may_stop(job) and self.gets_back(job)

    def may_preempt(self, job):
        return self.lacking(job, job.site) > 0 and self.may_stop(job)

    def checkpoint_s(self, job):
        """When a running job wrote its last checkpoint; its start or resumption where it has written none."""
        life, every_s = self.lives[job.index], self.rules(job.class_).every_s
        return life.began_s + (math.floor((self.now_s - life.began_s) / every_s) * every_s if every_s else 0.0)

    def unsaved(self, job):
        """(Stretch, begin of what is not saved of it) since the last checkpoint; the last one goes on now."""
        saved_s = self.checkpoint_s(job)
        runs = [x for x in self.stretches if x.job is job and x.kind == "run"]
        return [(x, max(x.begin_s, saved_s)) for x in runs if min(x.end_s, self.now_s) > saved_s]

    def unsaved_s(self, job):
        return sum(x.rate * (min(x.end_s, self.now_s) - from_s) for x, from_s in self.unsaved(job))

    def may_stop(self, job):
        life, freedom = self.lives[job.index], self.rules(job.class_)
        if freedom.most_suspensions is not None and life.suspensions >= freedom.most_suspensions:
            return False
        if self.now_s - life.began_s < freedom.min_run_s or job.finish_s - self.now_s < 1.0:
            return False
        ran_s = life.ran_s + life.rate * (self.now_s - life.stretch_s)
        ran_s -= self.unsaved_s(job) if freedom.requeue else 0.0
        until_s = job.deadline_s + ran_s - freedom.load_s - self.home_s(job)
        return self.back_s(freedom) <= max(until_s, self.plant.late_until_s)

    def back_s(self, freedom):
        """When a job that is suspended now could be resumed at the earliest."""
        slot_s, stop_s = self.plant.slot_s, 0.0 if freedom.requeue else freedom.stop_s
        return max(math.ceil((self.now_s + stop_s + freedom.dark_s) / slot_s) * slot_s, self.now_s + slot_s)

    def may_cap(self, job):
        life = self.lives[job.index]
        if "cap" not in self.levers or not self.rules(job.class_).caps or job.finish_s - self.now_s < 1.0:
            return False
        return life.cap > 0 or self.slack_left_s(job, life, self.now_s) >= 1.0

    def suspend(self, job):
        life, freedom = self.lives[job.index], self.rules(job.class_)
        if freedom.requeue:
            self.kill(job)
            return
        job.move_gb += freedom.gb * (freedom.moves and life.suspensions == 0)
        self.end_stretch(job, life, self.now_s)
        end_s, stop_w = self.now_s + freedom.stop_s, freedom.stop_power * self.full_w(job)
        self.stretches.append(Stretch(job, "stop", self.now_s, end_s, stop_w, 0.0, gpus=job.gpus))
        life.cap, life.rate, life.lift_s = 0, 1.0, math.inf
        life.suspensions += 1
        self.order = [other for other in self.order if other != job.index]
        job.status, job.finish_s = "in transit", math.nan
        life.state, life.until_s = "stop", end_s
        if freedom.stop_s == 0:
            life.state, life.until_s = "dark", self.now_s + freedom.dark_s
            self.freed.add(job.site)

    def kill(self, job, kind="kill"):
        """Stops a job at once: what it did since its last checkpoint is done again."""
        life, freedom = self.lives[job.index], self.rules(job.class_)
        unsaved, again_s = self.unsaved(job), self.unsaved_s(job)
        self.end_stretch(job, life, self.now_s)
        for x, from_s in unsaved:
            if from_s == x.begin_s:
                x.kind = "redo"
            else:
                self.stretches.append(replace(x, kind="redo", begin_s=from_s))
                x.end_s = from_s
        life.left += again_s / self.unit_s(job)
        life.ran_s -= again_s
        self.stretches.append(Stretch(job, kind, self.now_s, self.now_s, 0.0, 0.0, gpus=job.gpus))
        life.cap, life.rate, life.lift_s = 0, 1.0, math.inf
        life.suspensions += 1
        self.order = [other for other in self.order if other != job.index]
        job.status, job.finish_s = "in transit", math.nan
        life.state, life.until_s = "dark", self.now_s + freedom.dark_s
        self.freed.add(job.site)

    def before_queues(self, answer):
        """Asks all sites at once about their running jobs, one of each site a step, as they began.

        At the turn of an hour, and where GPUs have become free if that is wanted, about those that may be suspended or
        capped; in any slot about those that may be preempted.
        """
        turned = self.now_s % 3600 == 0 and self.now_s / 3600 < self.hours_known
        sites = range(len(self.plant.sites))
        left = [[i for i in self.order if self.jobs[i].site == s] for s in sites]
        asks, self.freed = [turned or (self.wants_freed and s in self.freed) for s in sites], set()
        while True:
            asked = [self.next_to_ask(left[s], asks[s]) for s in sites]
            if max(asked) < 0:
                return
            self.pay(self.now_s)
            whole = self.question([-1] * len(asked))
            whole.asked, may_suspend = asked, []
            whole.claimed = [self.claimed(self.jobs[i], s) if i >= 0 else 0 for s, i in enumerate(asked)]
            for job in (self.jobs[index] if index >= 0 else None for index in asked):
                may_suspend.append(job is not None and (self.may_suspend(job) or self.may_preempt(job)))
            claimed = whole.__dict__.pop("claimed")
            whole = Question(**vars(whole), may_suspend=may_suspend)
            whole.claimed = claimed
            for s, said in enumerate(answer(whole)):
                if asked[s] < 0 or said is None:
                    continue
                job = self.jobs[asked[s]]
                if said == "suspend":
                    self.suspend(job)
                elif said != self.lives[job.index].cap:
                    self.change_cap(job, self.lives[job.index], self.now_s, said)

    def next_to_ask(self, left, turned):
        """Takes jobs from a site's list until one may be asked about; returns it, or -1."""
        while left:
            job = self.jobs[left.pop(0)]
            if (turned and (self.may_suspend(job) or self.may_cap(job))) or self.may_preempt(job):
                return job.index
        return -1

    def pay(self, time_s):
        self.ledger.stretches = self.stretches
        self.ledger.own = {index: life.own for index, life in self.lives.items()}
        super().pay(time_s)


class SegmentLedger(Ledger):
    """The slow ledger over stretches instead of whole runs; only runs whose work is not lost earn, by what they do."""

    stretches, own = (), None
    capped_gpu_s = slowed_gpu_s = 0.0

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
        self.capped_gpu_s = self.slowed_gpu_s = 0.0
        window_end_s = min(time_s, self.window_s)
        for s, site in enumerate(self.sites):
            self._book(self.free[s], s, site.gpus * site.free_w, 0.0, window_end_s)
        for stretch in self.stretches:
            begin_s, end_s, job = stretch.begin_s, min(stretch.end_s, time_s), stretch.job
            if end_s <= begin_s:
                continue
            s = stretch.site
            own = self.own[job.index]
            if stretch.kind in ("run", "lost", "redo"):
                self.capped_gpu_s += stretch.gpus * (end_s - begin_s) * stretch.capped
                self.slowed_gpu_s += (end_s - begin_s) * (stretch.gpus - own * stretch.rate)
            if stretch.kind == "run":
                self.busy[s]["gpu_s"] += own * (end_s - begin_s) * stretch.rate
            elif stretch.kind in ("stop", "load"):
                self.overhead[s]["gpu_s"] += stretch.gpus * (end_s - begin_s)
                self._book(self.overhead[s], s, stretch.watts, begin_s, end_s)
            self._book(self.busy[s], s, stretch.watts, begin_s, end_s)
            until_s = min(end_s, self.window_s)
            if until_s > begin_s:
                self._book(self.free[s], s, -stretch.gpus * self.sites[s].free_w, begin_s, until_s)


def simulate(plant, jobs, answer, ledger, freedoms, hours_known, *, levers, failures=None, freed=False):
    """Runs the protocol with questions about running jobs.

    Of a `Question` about running jobs the answer is, per site, None (run on), "suspend", or the cap to run on under; of
    others a fourth item may be the cap of a job that starts or is resumed.

    Args:
        plant: Plant.
        jobs: Jobs by ascending arrival.
        answer: As in `each_slot.simulate`, and as said above.
        ledger: SegmentLedger.
        freedoms: Freedom per class that has some.
        hours_known: Hours of signals; 0 without.
        levers: What is done with running jobs: `suspend`, `resize`, `cap`, `preempt`, `move`.
        failures: Per job the work at which it fails by its own fault and the GPU-seconds between failures of hardware.
        freed: Whether running jobs are asked about where GPUs have become free, too.

    Returns:
        Run.
    """
    run = Run(plant, jobs, ledger, queues=[[] for _ in plant.sites], freedoms=freedoms, hours_known=hours_known)
    run.levers, run.failures, run.wants_freed = levers, failures, freed
    each_slot.play(run, answer)
    return run
