"""Slow, plain-Python oracle of the `on-arrival` protocol, and the paper-exact workload and baselines of setting 2.

It shares no code with `noonward`: the compiled engine is tested against it. Part 1 is the event simulator, part 2 the
accounting, part 3 the fleet, the workload stream and the policies of `docs/dvfs-training.md`. `full_table()`
runs all rows of that sheet over the seven days (about ten seconds); the tests run one day.
"""

import functools
import heapq
import math
import random
from collections import OrderedDict, deque
from dataclasses import dataclass, field

# ---------------------------------------------------------------- 1. the simulator

ORACLE = -1
BUDGETS_S = 30 * 86400.0  # periods of budgets begin until then
SEND, FINISH, WITHHOLD, HOUR, JOIN, ARRIVE, LAPSE = range(-1, 6)


@dataclass(frozen=True)
class Site:
    """One site: GPUs, sleep power, clocks and the coefficients of its power and time laws.

    Args:
        gpus: Number of GPUs.
        free_w: Power of a GPU that runs nothing (sleep), in watts.
        clocks: Clock levels, ascending, as fractions of the maximum clock.
        power: (a, b, g) of P(n, f) = n (a f^3 + b f + g), in watts.
        time: (a, b, g) of T(1, f) = a + b/f and T(n, f) = (a + b/f + g n) / n for n >= 2, in seconds a unit.
        pue: Facility energy over IT energy, >= 1.
        more: (power, time) of further job classes; time None for a class whose work is its run time in seconds.
        barred: Classes that may not run here.
    """

    gpus: int
    free_w: float
    clocks: tuple
    power: tuple
    time: tuple
    pue: float = 1.0
    more: tuple = ()
    barred: frozenset = frozenset()

    def takes(self, job):
        """Whether a job may run here and fits at all."""
        return job.class_ not in self.barred and job.gpus_min <= self.gpus

    def power_w(self, n, level, class_=0):
        a, b, g = self.more[class_ - 1][0] if class_ else self.power
        f = self.clocks[level]
        return n * (a * f**3 + b * f + g)

    def unit_s(self, n, level, class_=0):
        time = self.more[class_ - 1][1] if class_ else self.time
        if time is None:
            return 1.0
        a, b, g = time
        f = self.clocks[level]
        return a + b / f if n == 1 else (a + b / f + g * n) / n

    def unit_j(self, n, level, class_=0):
        return self.power_w(n, level, class_) * self.unit_s(n, level, class_)

    def best_level(self, n, class_=0):
        """Level of least energy a unit at n GPUs (Eq. 2); the lowest clock on a tie."""
        return min(range(len(self.clocks)), key=lambda level: self.unit_j(n, level, class_))


@dataclass
class Job:
    """One job, and what became of it.

    Args:
        arrival_s: Arrival at the ingress.
        origin: Index of the ingress.
        work: Size in units, > 0.
        gpus_min: Fewest GPUs it starts on.
        gpus_max: Most GPUs it starts on.
        deadline_s: Absolute latest time its start, plus the return of its result, may come to; inf for none.
        move_gb: Data that travels to the site with it.
        result_gb: Data that travels back.
        preset_site: Site of a routing drawn with the workload; None for none.
        class_: Index of its class.
        tenant: Index of its tenant, where there are quotas.
        priority: Those of a higher one come first.
    """

    arrival_s: float
    origin: int
    work: float
    gpus_min: int = 1
    gpus_max: int = 8
    deadline_s: float = math.inf
    move_gb: float = 0.0
    result_gb: float = 0.0
    preset_site: int | None = None
    class_: int = 0
    tenant: int = 0
    priority: int = 0
    index: int = -1
    moves: int = 0
    status: str = "in transit"
    site: int = -1
    gpus: int = 0
    level: int = -1
    reach_s: float = math.nan
    start_s: float = math.nan
    finish_s: float = math.nan
    latest_start_s: float = math.inf
    asked: tuple = ()


@dataclass
class State:
    """What a policy may look at: the time, and busy GPUs, queue (FIFO of Jobs) and hourly caps of each site.

    `feasible` lists, while a job is routed, the sites it fits into and reaches by its latest start there.
    """

    sites: list
    caps: list | None
    now_s: float = 0.0
    busy: list = field(default_factory=list)
    withheld: list = field(default_factory=list)
    queues: list = field(default_factory=list)
    feasible: list = field(default_factory=list)

    def free(self, s):
        """GPUs a start at site s may take now: min(gpus, cap of the hour) - busy - withheld, never below 0."""
        limit = self.sites[s].gpus
        if self.caps is not None:
            limit = min(limit, math.floor(self.caps[s][int(self.now_s // 3600)]))
        return max(0, limit - (self.sites[s].gpus - self.shown_free(s)))

    def shown_free(self, s):
        """GPUs that are neither busy nor withheld."""
        return max(0, self.sites[s].gpus - self.busy[s] - self.withheld[s])


class Simulator:
    """The on-arrival protocol, event by event.

    Events in order of time; at one instant finishes, then turns of the hour, joins, arrivals and lapses, each in the
    order of the jobs. A lapse falls on the job's latest start: whatever starts it at that instant comes before.

    Args:
        sites: List of Site.
        latency_s: latency_s[ingress][site].
        jobs: Iterable of Job by ascending arrival. The next job is drawn only after the last one was routed.
        route: route(state, job) -> (site, gpus, level or ORACLE, earliest_start_s), called once, at the arrival, if any
            site is feasible; else the job is overdue at once.
        link_s_per_gb: link_s_per_gb[ingress][site]; None for 0.
        home_site: home_site[ingress], between which and the ingress everything travels at once; None for the site of
            the same index, but with the latency given.
        caps: caps[site][hour], the most GPUs busy after a start in that hour; None for none. Running jobs stay.
        allocate: allocate(state, job, site, free) -> (gpus, level or ORACLE) at the start, instead of what route asked.
        finished: finished(state, job, energy a unit in J), before the freed GPUs go to the queue.
        ledger: Told of travels, starts and finishes (reference.ledger); None for none.
        late_until_s: Time until which jobs may start after their latest start; -inf where they are dropped then.
        queued: Whether a link carries the data of one job at a time, in the order of arrival.
        withheld: withheld[site] = [(time_s, GPUs that no job may take from then on), ...], from time 0; None for none.
        quotas: reference.tenants.Quotas; None for none.
        last_s: Time after which no event is taken: journeys that would begin later cost nothing.
    """

    def __init__(
        self,
        sites,
        latency_s,
        jobs,
        route,
        *,
        link_s_per_gb=None,
        home_site=None,
        caps=None,
        allocate=None,
        finished=None,
        ledger=None,
        late_until_s=-math.inf,
        queued=False,
        withheld=None,
        quotas=None,
        last_s=math.inf,
    ):
        self.queued, self.links, self.last_s = queued, {}, last_s
        self.late_until_s = late_until_s
        self.state = State(sites, caps, busy=[0] * len(sites), queues=[OrderedDict() for _ in sites])
        self.sites, self.latency_s, self.link_s_per_gb, self.home_site = sites, latency_s, link_s_per_gb, home_site
        self.route, self.allocate, self.finished, self.ledger = route, allocate, finished, ledger
        self.source, self.seen, self.events = iter(jobs), [], []
        self.quotas = quotas
        if quotas is not None:
            quotas.jobs, quotas.clock = self.seen, lambda: self.state.now_s
        self.best = functools.cache(lambda s, n, class_: sites[s].best_level(n, class_))
        self.state.withheld = [0 if withheld is None else withheld[s][0][1] for s in range(len(sites))]
        for s, steps in enumerate(withheld or ()):
            for time_s, gpus in steps[1:]:
                heapq.heappush(self.events, (time_s, WITHHOLD, s, gpus))
        if caps is not None:
            for hour in range(1, len(caps[0])):
                self.push(hour * 3600.0, HOUR, None)
        if quotas is not None and any(tenant.budget for tenant in quotas.tenants):
            for time_s in quotas.budgets.turns_s(BUDGETS_S):
                self.push(time_s, HOUR, None)
        self.push_next_arrival()

    def push(self, time_s, kind, job):
        heapq.heappush(self.events, (time_s, kind, -1 if job is None else job.index, job))

    def push_next_arrival(self):
        job = next(self.source, None)
        if job is not None:
            job.index = len(self.seen)
            self.seen.append(job)
            self.push(job.arrival_s, ARRIVE, job)

    def travel_s(self, job, s, size_gb):
        if self.home_site is not None and self.home_site[job.origin] == s:
            return 0.0
        seconds_per_gb = self.link_s_per_gb[job.origin][s] if self.link_s_per_gb is not None else 0.0
        return self.latency_s[job.origin][s] + size_gb * seconds_per_gb

    def latest_start_s(self, job, s):
        at_home = s == (job.origin if self.home_site is None else self.home_site[job.origin])
        back_s = 0.0 if at_home or job.result_gb == 0.0 else self.travel_s(job, s, job.result_gb)
        return max(job.deadline_s - back_s, self.late_until_s)

    def data_s(self, job, s):
        """How long a job's data take on a link that queues; 0 where none does."""
        at_home = self.home_site is not None and self.home_site[job.origin] == s
        return 0.0 if at_home or not self.queued else job.move_gb * self.link_s_per_gb[job.origin][s]

    def begins_s(self, job, s):
        """When a job that is sent now would begin to travel: after all data before it, one job after the other."""
        if not self.data_s(job, s):
            return self.state.now_s
        line = self.links.get((job.origin, s), ())
        begin_s = self.state.now_s
        for n, (other, _, end_s) in enumerate(line):
            begin_s = end_s if n == 0 else begin_s + self.data_s(other, s)
        return begin_s

    def send(self, job, earliest_start_s):
        """Puts a job in the line of its link, or on its way where the link is free."""
        if not self.data_s(job, job.site):
            self.travel(job, self.state.now_s, earliest_start_s)
            return
        line = self.links.setdefault((job.origin, job.site), deque())
        line.append((job, earliest_start_s, None))
        if len(line) == 1:
            self.begin(line)

    def begin(self, line):
        """Begins with the data of the first job of a link's line."""
        job, earliest_start_s, _ = line[0]
        end_s = self.state.now_s + self.data_s(job, job.site)
        line[0] = (job, earliest_start_s, end_s)
        self.travel(job, self.state.now_s, earliest_start_s)
        self.push(end_s, SEND, job)

    def through(self, job):
        """Takes a job whose data are through out of the line, and begins with the next."""
        line = self.links[job.origin, job.site]
        assert line.popleft()[0] is job
        if line:
            self.begin(line)

    def travel(self, job, begin_s, earliest_start_s):
        self.push(max(begin_s + self.travel_s(job, job.site, job.move_gb), earliest_start_s), JOIN, job)

    def arrive(self, job):
        reaches_s = [self.begins_s(job, s) + self.travel_s(job, s, job.move_gb) for s in range(len(self.sites))]
        self.state.feasible = [
            s for s, site in enumerate(self.sites) if site.takes(job) and reaches_s[s] <= self.latest_start_s(job, s)
        ]
        if not self.state.feasible or (self.quotas is not None and self.quotas.refuses(job, self.state.now_s)):
            job.status = "overdue"
        else:
            job.site, gpus, level, earliest_start_s = self.route(self.state, job)
            assert job.site in self.state.feasible, job
            job.asked = gpus, level
            job.latest_start_s = self.latest_start_s(job, job.site)
            begin_s = self.begins_s(job, job.site)
            self.send(job, earliest_start_s)
            if self.ledger is not None and begin_s <= self.last_s:
                self.ledger.move(job, job.origin, job.site, begin_s)
        self.push_next_arrival()

    def start_from_queue(self, s):
        queue, state = self.state.queues[s], self.state
        while queue:
            job, free = next(iter(queue.values())), state.free(s)
            if self.quotas is not None:
                job = self.quotas.first(queue.values(), state.now_s)
                if job is None:
                    return
                room = self.quotas.room(job.tenant)
                free = free if free < job.gpus_min else min(free, room)
            if free < job.gpus_min:
                return
            gpus, level = job.asked if self.allocate is None else self.allocate(state, job, s, free)
            job.gpus = min(free, gpus, job.gpus_max)
            assert job.gpus >= job.gpus_min, (job, gpus)
            job.level = self.best(s, job.gpus, job.class_) if level == ORACLE else level
            job.status, job.start_s = "running", state.now_s
            job.finish_s = state.now_s + job.work * self.sites[s].unit_s(job.gpus, job.level, job.class_)
            del queue[id(job)]
            state.busy[s] += job.gpus
            self.push(job.finish_s, FINISH, job)
            if self.ledger is not None:
                self.ledger.start(job)

    def join(self, job):
        job.status, job.reach_s = "queued", self.state.now_s
        self.state.queues[job.site][id(job)] = job
        self.start_from_queue(job.site)
        if job.status == "queued" and job.latest_start_s < math.inf:
            self.push(job.latest_start_s, LAPSE, job)

    def finish(self, job):
        job.status = "done"
        self.state.busy[job.site] -= job.gpus
        if self.ledger is not None:
            self.ledger.result(job, self.state.now_s)
        if self.finished is not None:
            self.finished(self.state, job, self.sites[job.site].unit_j(job.gpus, job.level, job.class_))
        for s in [job.site] if self.quotas is None else range(len(self.sites)):
            self.start_from_queue(s)

    def lapse(self, job):
        if job.status == "queued":
            job.status = "overdue"
            del self.state.queues[job.site][id(job)]
            self.start_from_queue(job.site)

    def take(self):
        """Takes the next event."""
        self.state.now_s, kind, index, job = heapq.heappop(self.events)
        if kind == WITHHOLD:
            self.state.withheld[index] = job
            self.start_from_queue(index)
        elif kind == HOUR:
            for s in range(len(self.sites)):
                self.start_from_queue(s)
        else:
            {ARRIVE: self.arrive, JOIN: self.join, FINISH: self.finish, LAPSE: self.lapse, SEND: self.through}[kind](
                job
            )

    def settled(self):
        """Whether no job is left to arrive, travel, wait or run (turns of the hour and void lapses may be left)."""
        void = all(
            kind in (HOUR, SEND, WITHHOLD) or (kind == LAPSE and job.status != "queued")
            for _, kind, _, job in self.events
        )
        return void and all(job.status in ("done", "overdue") for job in self.seen)


def simulate(sites, latency_s, jobs, route, horizon_s, *, queue_times_s=(), drained=False, **options):
    """Runs the on-arrival protocol and returns `(jobs, queue_lengths)`.

    Args:
        sites: As Simulator, and so are `latency_s`, `jobs`, `route` and `options`.
        horizon_s: Events after it are not processed. With caps an event may fall on the horizon itself, so a horizon of
            whole hours takes one hour more of them.
        queue_times_s: Times, ascending, at which to count the jobs queued at each site (events at that time included).
        drained: Run on after the horizon until every job is done or overdue.

    Returns:
        The jobs in order of arrival, each with its status ("done", "overdue", "running", "queued" or "in transit") and
        the times it got to (`finish_s` of a running job lies past the horizon), and queue_lengths[i][site].
    """
    last_s = math.inf if drained else horizon_s
    simulator = Simulator(sites, latency_s, jobs, route, last_s=last_s, **options)
    events, queue_times, queue_lengths = simulator.events, list(queue_times_s), []
    while queue_times or events:
        time_s = events[0][0] if events else math.inf
        if queue_times and time_s > queue_times[0]:
            queue_times.pop(0)
            queue_lengths.append([len(queue) for queue in simulator.state.queues])
            continue
        if simulator.settled() if drained else time_s > horizon_s:
            break
        simulator.take()
    return [job for job in simulator.seen if drained or job.arrival_s <= horizon_s], queue_lengths


# ---------------------------------------------------------------- 2. the accounting


def energy_j(sites, jobs, horizon_s):
    """Facility energy over [0, horizon]: sum over sites of pue (P of running jobs + free GPUs x sleep power), exact."""
    total = [site.gpus * site.free_w * horizon_s for site in sites]
    for job in jobs:
        if job.gpus:
            site = sites[job.site]
            net_w = site.power_w(job.gpus, job.level) - job.gpus * site.free_w
            total[job.site] += net_w * (min(job.finish_s, horizon_s) - job.start_s)
    return math.fsum(site.pue * joules for site, joules in zip(sites, total, strict=True))


def exact_units(jobs, horizon_s):
    """Units processed by the horizon; a running job counts pro rata."""
    return math.fsum(
        job.work * min(1.0, (horizon_s - job.start_s) / (job.finish_s - job.start_s)) for job in jobs if job.gpus
    )


def paper_units(sites, jobs, horizon_s, tick_s=20.0):
    """Units as the paper counts them: rate x 20 s at each tick in (start, end], rate x (finish mod 20) at the finish.

    In all rate x (finish - 20 floor(start / 20)): a job also counts the part of its first tick before its start.
    """
    total = []
    for job in jobs:
        if job.gpus:
            end_s = min(job.finish_s, horizon_s)
            counted_s = tick_s * (end_s // tick_s - job.start_s // tick_s)
            if job.status == "done":
                counted_s += job.finish_s % tick_s
            total.append(counted_s / sites[job.site].unit_s(job.gpus, job.level))
    return math.fsum(total)


def summary(sites, jobs, queue_lengths, horizon_s):
    """The sheet's figures of one run; time in system is finish - arrival of the completed jobs, p99 interpolated."""
    times = sorted(job.finish_s - job.arrival_s for job in jobs if job.status == "done")
    rank = 0.99 * (len(times) - 1)
    low, high = times[math.floor(rank)], times[math.ceil(rank)]
    joules = energy_j(sites, jobs, horizon_s)
    return {
        "arrived": len(jobs),
        "completed": len(times),
        "energy_j": joules,
        "j_per_unit": joules / exact_units(jobs, horizon_s),
        "j_per_unit_paper": joules / paper_units(sites, jobs, horizon_s),
        "queue": [sum(row) for row in queue_lengths],
        "mean_time_s": math.fsum(times) / len(times),
        "p99_time_s": low + (high - low) * (rank - math.floor(rank)),
    }


# ---------------------------------------------------------------- 3. setting 2: fleet, stream, policies

DAY_S = 86400.0
CLOCKS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SITES = [
    Site(16, 28, CLOCKS, (75, 80, 110), (0.0045, 0.032, 0.0012)),
    Site(32, 28, CLOCKS, (65, 60, 90), (0.0050, 0.038, 0.0014)),
    Site(256, 25, CLOCKS, (55, 40, 70), (0.0060, 0.045, 0.0018)),
    Site(16, 35, CLOCKS, (90, 85, 120), (0.0042, 0.030, 0.0011)),
    Site(128, 8, CLOCKS, (45, 20, 40), (0.0065, 0.060, 0.0022)),
    Site(16, 35, CLOCKS, (95, 90, 125), (0.0040, 0.029, 0.0010)),
    Site(512, 12, CLOCKS, (50, 35, 65), (0.0062, 0.050, 0.0019)),
    Site(512, 10, CLOCKS, (40, 25, 50), (0.0068, 0.055, 0.0023)),
]
LATENCY_S = [
    [ms / 1000 for ms in row]
    for row in (
        (12, 70, 140, 110, 150, 150, 190, 180),
        (70, 10, 90, 120, 230, 208, 110, 190),
        (142, 90, 10, 20, 198, 190, 172, 90),
        (132, 120, 40, 10, 170, 220, 202, 60),
        (170, 228, 200, 170, 8, 60, 348, 138),
        (130, 210, 190, 218, 76, 8, 310, 206),
        (190, 110, 150, 180, 330, 328, 12, 250),
        (182, 170, 90, 60, 120, 188, 252, 10),
    )
]


def paper_stream(rng, horizon_s, *, choose):
    """Yields the jobs of the paper: first gaps in ingress order, then at each arrival size, [site], the next gap."""
    due = [(rng.expovariate(0.02), i) for i in range(8)]
    heapq.heapify(due)
    while due[0][0] <= horizon_s:
        arrival_s, origin = due[0]
        work = max(0.1, rng.lognormvariate(math.log(50000), 0.4))
        preset_site = rng.choice(range(8)) if choose else None
        yield Job(arrival_s, origin, work, preset_site=preset_site)
        heapq.heapreplace(due, (arrival_s + rng.expovariate(0.02), origin))


def preset(gpus, level):
    """Routing of the baselines: the site drawn with the workload, min(free, gpus) at the start."""
    return lambda state, job: (job.preset_site, gpus, level, 0.0)


class UCB1:
    """Clock by UCB1 for each site: untried arms in ascending clock, then argmax of mean + sqrt(2 ln t / N), ties first.

    t counts the selections of all sites, this one and those of untried arms included; N and the mean count completions.
    """

    def __init__(self, sites):
        self.counts = [[0] * len(site.clocks) for site in sites]
        self.means = [[0.0] * len(site.clocks) for site in sites]
        self.t = 0

    def allocate(self, state, job, site, free):
        self.t += 1
        counts, means = self.counts[site], self.means[site]
        if 0 in counts:
            return min(free, 8), counts.index(0)
        scores = [m + math.sqrt(2 * math.log(self.t) / c) for m, c in zip(means, counts, strict=True)]
        return min(free, 8), scores.index(max(scores))

    def finished(self, state, job, energy):
        counts, means = self.counts[job.site], self.means[job.site]
        counts[job.level] += 1
        means[job.level] += (-energy - means[job.level]) / counts[job.level]


def _free_sites(state):
    sites = [s for s in range(len(state.sites)) if state.free(s) > 0]
    return sites or list(range(len(state.sites)))


def random_free(rng):
    """Uniform among the sites with a free GPU (all if there is none), n uniform in 1..8, f*."""
    return lambda state, job: (rng.choice(_free_sites(state)), rng.randint(1, 8), ORACLE, 0.0)


def most_free(state, job):
    """The site with the most free GPUs, the first on ties; n = 1, f*."""
    return max(range(len(state.sites)), key=state.free), 1, ORACLE, 0.0


def greedy(gpus):
    """Least E_unit(n, f*) - free_w n T(n, f*) at n = min(free, gpus) among the sites with a free GPU, ties first.

    With no free GPU anywhere it compares all sites at n = gpus (never needed over the sheet's seven days).
    """

    @functools.cache
    def net_j(site, n):
        level = site.best_level(n)
        return site.unit_j(n, level) - site.free_w * n * site.unit_s(n, level)

    def route(state, job):
        def cost(s):
            return net_j(state.sites[s], min(state.free(s), gpus) or gpus)

        return min(_free_sites(state), key=cost), gpus, ORACLE, 0.0

    return route


def run(route, *, choose, days=7, policy=None):
    """Runs one policy on the paper-exact stream (seed 123): (summary, jobs, queue lengths at the end of every day)."""
    horizon_s = days * DAY_S
    jobs, queue_lengths = simulate(
        SITES,
        LATENCY_S,
        paper_stream(random.Random(123), horizon_s, choose=choose),
        route,
        horizon_s,
        allocate=policy and policy.allocate,
        finished=policy and policy.finished,
        queue_times_s=[day * DAY_S for day in range(1, days + 1)],
    )
    return summary(SITES, jobs, queue_lengths, horizon_s), jobs, queue_lengths


def policies():
    """Every row of the sheet: name -> keyword arguments of `run`. The random row's own generator is not the sheet's."""
    return {
        "DP": {"route": preset(8, CLOCKS.index(0.6)), "choose": True},
        "UCB1": {"route": preset(8, ORACLE), "choose": True, "policy": UCB1(SITES)},
        "JointNF": {"route": preset(1, ORACLE), "choose": True},
        "random free": {"route": random_free(random.Random(123)), "choose": False},
        "most free, n=1": {"route": most_free, "choose": False},
        "greedy, n=1": {"route": greedy(1), "choose": False},
        "greedy, n=8": {"route": greedy(8), "choose": False},
        "uniform, n=8": {"route": preset(8, ORACLE), "choose": True},
    }


def full_table():
    """Yields (name, summary) of every policy over the sheet's seven days."""
    for name, arguments in policies().items():
        yield name, run(**arguments)[0]
