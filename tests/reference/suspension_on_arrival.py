"""Slow, plain oracle of jobs that are suspended, resized and capped under protocol `on-arrival`.

It is written from docs/suspension.md. What a stop, a load or a cap does to a job it takes over from
`reference.suspension`; questions, queues and the order of events are here. It scans all jobs for the next event.
"""

import math
from dataclasses import dataclass, field

from noonward.decision.cluster.view import ASK_ALLOCATE, ASK_FINISHED, ASK_ROUTE, ASK_RUNNING
from reference import suspension
from reference.on_arrival import ORACLE

FINISH, HOUR, REACH, ARRIVE, STOPPED, LOADED, LAPSE, LIFT, PART = range(9)
"""Events at one instant, in this order, then in that of the jobs."""


@dataclass
class Run(suspension.Run):
    """A run in which the dispatcher is asked at the moment of every change.

    `ask(run, kind, job, s, mask)` returns (choice, gpus or 0, level or ORACLE, earliest start or 0) of ASK_ROUTE, (gpus
    or 0, level or ORACLE) of ASK_ALLOCATE, and of ASK_RUNNING None, ("suspend", time before which it is not resumed, or
    0), or ("cap", cap).
    """

    ask: object = None
    wants: tuple = ()  # of "allocate", "finished"
    earliest_s: dict = field(default_factory=dict)
    asked_for: dict = field(default_factory=dict)  # gang and clock of the route's answer
    left: dict = field(default_factory=dict)  # per site that asks, the running jobs it has not asked about
    changed: set = field(default_factory=set)
    hour: int = 0  # last hour and part of one that has begun
    part: int = 0

    def slot_before(self, time_s):
        return max(time_s, self.now_s)

    def back_s(self, freedom):
        return self.now_s + (0.0 if freedom.requeue else freedom.stop_s) + freedom.dark_s

    def question(self, kind, job, s, mask=None):
        self.pay(self.now_s)
        return self.ask(self, kind, job, s, mask)

    def events(self):
        """(Time, kind, job's index) of the next event of every job, and of the hours."""
        for job in self.jobs:
            life = self.lives.get(job.index)
            if job.status == "planned":
                yield job.arrival_s, ARRIVE, job.index
            elif job.status == "in transit" and life is None:
                yield self.joins_s[job.index], REACH, job.index
            elif job.status == "queued":
                latest_s = self.latest_start_s(job, job.site)
                if latest_s < math.inf:
                    yield latest_s, LAPSE, job.index
            elif life is not None and life.state == "run":
                yield min((job.finish_s, FINISH, job.index), (life.lift_s, LIFT, job.index))
            elif life is not None and life.state in ("stop", "dark", "load"):
                yield life.until_s, {"dark": REACH, "stop": STOPPED, "load": LOADED}[life.state], job.index
        if self.plant.caps is not None and self.hour + 1 < len(self.plant.caps[0]):
            yield 3600.0 * (self.hour + 1), HOUR, 0
        if self.part + 1 < self.hours_known:
            yield 3600.0 * (self.part + 1), PART, 0

    def play(self):
        """Runs to the end."""
        window_s, drained = self.plant.window_s, self.plant.drained
        while True:
            time_s, kind, index = min(self.events(), default=(math.inf, PART, 0))
            over = all(job.status in ("done", "overdue") for job in self.jobs)
            if not drained and time_s > window_s:
                self.now_s = self.ended_s = window_s
                break
            if over and (drained or math.isinf(time_s)):
                self.now_s = self.ended_s = max(self.now_s, window_s)
                break
            self.now_s = time_s
            self.take_one(kind, self.jobs[index])
            self.about_running()
        self.pay(self.ended_s)

    def take_one(self, kind, job):
        life = self.lives.get(job.index)
        if kind == HOUR:
            self.hour += 1
            for s in range(len(self.plant.sites)):
                self.start_from_queue(s)
        elif kind == PART:
            self.part += 1
            self.changed.update(range(len(self.plant.sites)))
        elif kind == ARRIVE:
            self.arrive(job)
        elif kind == REACH:
            self.reach(job, life)
        elif kind == FINISH:
            self.finish(job, life)
        elif kind == STOPPED:
            life.state, life.until_s = "dark", self.now_s + self.rules(job.class_).dark_s
            self.free_up(job.site)
            self.start_from_queue(job.site)
        elif kind == LOADED:
            self.begin_run(job, life, self.now_s)
            self.start_from_queue(job.site)
        elif kind == LIFT:
            self.change_cap(job, life, self.now_s, 0)
            self.start_from_queue(job.site)
        else:
            self.lapse(job)

    def free_up(self, s):
        if self.wants_freed:
            self.changed.add(s)

    def arrive(self, job):
        sites = range(len(self.plant.sites))
        reaches_s = [self.now_s + self.link_s(job.origin, s, job.move_gb) for s in sites]
        feasible = [self.plant.sites[s].takes(job) and reaches_s[s] <= self.latest_start_s(job, s) for s in sites]
        if not any(feasible):
            job.status = "overdue"
            return
        choice, gpus, level, earliest_s = self.question(ASK_ROUTE, job, -1, [False, *feasible])
        job.site, job.status = choice - 1, "in transit"
        self.asked_for[job.index] = gpus, level
        self.joins_s[job.index] = max(reaches_s[job.site], earliest_s)
        self.ledger.move(job, job.origin, job.site, self.now_s)

    def reach(self, job, life):
        """A job joins its queue; one that has run goes before those that have not, in order of due time."""
        if life is not None and self.earliest_s[job.index] > self.now_s:
            life.until_s = self.earliest_s[job.index]
            return
        queue = self.queues[job.site]
        job.status, place = "queued", len(queue)
        if life is None:
            job.reach_s = self.now_s
        else:
            life.state = "queued"
            place = sum(
                self.suspended(other) and self.latest_s(other) <= self.latest_s(job)
                for other in (self.jobs[index] for index in queue)
            )
        queue.insert(place, job.index)
        self.start_from_queue(job.site)

    def finish(self, job, life):
        job.status, life.state = "done", "done"
        self.order = [other for other in self.order if other != job.index]
        self.ledger.result(job, self.now_s)
        self.free_up(job.site)
        if "finished" in self.wants:
            self.question(ASK_FINISHED, job, job.site)
        self.start_from_queue(job.site)

    def lapse(self, job):
        job.status = "overdue"
        self.queues[job.site].remove(job.index)
        for stretch in self.stretches:
            if stretch.job is job and stretch.kind == "run":
                stretch.kind = "lost"
        self.start_from_queue(job.site)

    def start_from_queue(self, s):
        """Starts or resumes the first of a queue, and so on, until one does not fit."""
        while self.queues[s]:
            job = self.jobs[self.queues[s][0]]
            if not self.gang_fits(job, s):
                return
            gpus, level = self.asked_for[job.index] if not self.suspended(job) else (0, ORACLE)
            if "allocate" in self.wants:
                gpus, level = self.question(ASK_ALLOCATE, job, s)
            if self.suspended(job):
                suspension.Run.carry_out(self, job, s, 1 + s, gpus, level)
            else:
                suspension.Run.carry_out(self, job, s, 1 + s, gpus, level, 0)

    def about_running(self):
        """Asks about the running jobs of all sites where something has changed, one after the other."""
        while True:
            s, job = self.next_running()
            if job is None:
                return
            said = self.question(ASK_RUNNING, job, s, [True, self.may_suspend(job)])
            if said is None:
                continue
            what, value = said
            if what == "suspend":
                self.suspend(job)
                self.earliest_s[job.index] = min(value, self.latest_start_s(job, s)) if value > 0 else 0.0
                if self.lives[job.index].state == "dark":
                    self.free_up(s)
                self.start_from_queue(s)
            elif value != self.lives[job.index].cap:
                self.change_cap(job, self.lives[job.index], self.now_s, value)

    def next_running(self):
        """(Site, job) that is asked about next; a site where something has changed again begins anew after its last."""
        for s in range(len(self.plant.sites)):
            while s in self.left or s in self.changed:
                if s not in self.left:
                    self.changed.remove(s)
                    self.left[s] = [index for index in self.order if self.jobs[index].site == s]
                while self.left[s]:
                    job = self.jobs[self.left[s].pop(0)]
                    just = self.lives[job.index].began_s == self.now_s
                    if not just and (self.may_suspend(job) or self.may_cap(job)):
                        return s, job
                del self.left[s]
        return -1, None


def simulate(plant, jobs, ask, ledger, freedoms, hours_known, *, levers, wants=(), freed=False):
    """Runs the protocol; arguments as in `suspension.simulate`, and as said above.

    Returns:
        Run.
    """
    run = Run(plant, jobs, ledger, queues=[[] for _ in plant.sites], freedoms=freedoms, hours_known=hours_known)
    run.levers, run.wants_freed, run.ask, run.wants = levers, freed, ask, wants
    for index, job in enumerate(jobs):
        job.index, job.status = index, "planned"
    run.play()
    return run
