"""The edge world in plain Python, tick by tick, after the rules of the public simulator (A tick is 0.1 s).

Shares no code with the package. Servers, gangs and queue are lists and dictionaries.
"""

import math
from dataclasses import dataclass, field


@dataclass
class Server:
    left: int = 0  # ticks until idle
    gang: int | None = None


@dataclass
class World:
    """A run: ``choose`` is asked whenever an idle gang fits a visible task, and answers a place or None."""

    servers: int
    tasks: list[dict]  # stamp_t, gang, model, load_s, step_s in order of arrival
    steps: float
    tick_s: float = 0.1
    first_t: int = 10
    limit_t: int | None = None
    places: int = 10
    fragmenting: bool = True
    now_t: int = 0
    done: list[dict] = field(default_factory=list)

    def __post_init__(self):
        self.server = [Server() for _ in range(self.servers)]
        self.gangs = {}  # number -> (set of servers, model)
        self.number = 0
        self.queue = []
        self.coming = list(enumerate(self.tasks))
        self.now_t = self.first_t

    def idle(self, n):
        return self.server[n].left <= 0

    def idle_gangs(self):
        """Idle gangs by their lowest server."""
        found = [(min(members), g) for g, (members, _) in self.gangs.items() if all(self.idle(n) for n in members)]
        return [g for _, g in sorted(found)]

    def reusable(self, task):
        for g in self.idle_gangs():
            members, model = self.gangs[g]
            if len(members) == task["gang"] and model == task["model"]:
                return g
        return None

    def fits(self, task):
        return sum(self.idle(n) for n in range(self.servers)) >= task["gang"]

    def dissolve(self, g):
        members, _ = self.gangs.pop(g)
        for n in members:
            self.server[n].gang = None

    def pick(self, size):
        """Servers of a new gang."""
        idle = [n for n in range(self.servers) if self.idle(n)]
        if self.fragmenting:
            return idle[:size]
        picked = [n for n in idle if self.server[n].gang is None][:size]
        while len(picked) < size:
            missing = size - len(picked)
            sizes = [(len(self.gangs[g][0]), min(self.gangs[g][0]), g) for g in self.idle_gangs()]
            sizes = [each for each in sizes if not set(self.gangs[each[2]][0]) & set(picked)]
            small = [each for each in sizes if each[0] <= missing]
            g = min(small, key=lambda each: (-each[0], each[1]))[2] if small else min(sizes)[2]
            picked += sorted(self.gangs[g][0])[:missing]
        return picked

    def launch(self, q):
        k, task = self.queue.pop(q)
        g = self.reusable(task)
        loads = g is None
        if loads:
            members = self.pick(task["gang"])
            for broken in {self.server[n].gang for n in members} - {None}:
                self.dissolve(broken)
            self.number += 1
            g = self.number
            self.gangs[g] = (set(members), task["model"])
            for n in members:
                self.server[n].gang = g
        duration = self.steps * task["step_s"] + (task["load_s"] if loads else 0.0)
        for n in self.gangs[g][0]:
            self.server[n].left = math.ceil(duration / self.tick_s - 1e-9)
        self.done.append(
            {"task": k, "start_t": self.now_t, "loaded": loads, "duration_s": duration, "servers": self.gangs[g][0]}
        )

    def take_arrivals(self):
        while self.coming and (self.coming[0][1]["stamp_t"] < self.now_t):
            self.queue.append(self.coming.pop(0))

    def visible(self):
        return [task for _, task in self.queue[: self.places]]

    def run(self, choose):
        self.take_arrivals()
        while self.coming or self.queue:
            if self.limit_t is not None and self.now_t > self.limit_t:
                break
            q = choose(self) if any(self.fits(task) for task in self.visible()) else None
            if q is not None:
                self.launch(q)
                continue
            for one in self.server:
                one.left -= 1
            self.now_t += 1
            self.take_arrivals()
        return sorted(self.done, key=lambda each: each["task"])


def fifo(world):
    return 0 if world.fits(world.queue[0][1]) else None


def first_fit(world):
    return next((q for q, task in enumerate(world.visible()) if world.fits(task)), None)


def reuse_first(world):
    for q, task in enumerate(world.visible()):
        if world.reusable(task) is not None:
            return q
    return first_fit(world)


def patient(world):
    """Patient reuse, written from its rules."""
    tasks = world.visible()
    for q, task in enumerate(tasks):
        if world.reusable(task) is not None:
            return q
    best, most = None, 0.0
    classes = {}
    for q, task in enumerate(tasks):
        classes.setdefault((task["gang"], task["model"]), []).append(q)
    for (size, model), places in classes.items():
        task = tasks[places[0]]
        if not world.fits(task):
            continue
        busy = [
            max(world.server[n].left for n in members)
            for members, loaded in world.gangs.values()
            if len(members) == size and loaded == model
        ]
        if any(0 < left < 1.25 * task["load_s"] / world.tick_s for left in busy):
            continue
        index = (len(places) + 0.5) / (task["load_s"] + world.steps * task["step_s"] * len(places))
        if index > most:
            best, most = places[0], index
    return best
