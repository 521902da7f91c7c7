"""Workers that do nothing by themselves: a test says when a call returns, a worker dies, and what time it is."""

from datetime import UTC, datetime

import numpy as np

from noonward.live.clock import SystemClock
from noonward.live.edge.controller import Controller
from noonward.live.edge.model_folder import ModelFolder
from noonward.live.edge.orders import Beat, Facts, Limits, Part
from noonward.live.edge.plan import Plan
from noonward.live.edge.tasks import TaskStore
from noonward.live.edge.workers import WorkerDiedError
from noonward.live.store.store import Store
from noonward.model.edge.scenario import EdgeScenario
from noonward.schedule.edge.rules import FirstFit

START = datetime(2030, 1, 1, tzinfo=UTC)
PART = Part(join_s=0.1, prompt_s=0.2, run_s=3.0, decode_s=0.3, sent_bytes=1000, pngs=())
MODELS = (
    ModelFolder(name="tiny", path="/models/tiny", rows=32, text=False),
    ModelFolder(name="other", path="/models/other", rows=32, text=True),
)


def setting(servers=4, **changes):
    """Returns a scenario of servers that load in 10 s and take a second a step."""
    content = {
        "kind": "edge",
        "name": "bench",
        "servers": {"count": servers, "zone": "SG", "idle_w": 60, "load_w": 100, "active_w": 300},
        "gang_times": {size: {"load_s": 10, "step_s": 1} for size in (1, 2, 4) if size <= servers},
        "tasks": {"source": "paper", "rate_per_s": 0.05, "sizes": (1,)},
        "steps": 20,
        **changes,
    }
    return EdgeScenario(**content)


STORES = []
"""Stores that are open; closed after each test (conftest.py)."""


def opened(folder):
    """Returns the store of a folder."""
    STORES.append(Store(folder, SystemClock()))
    return STORES[-1]


class FakeWorkers:
    """Keeps every call until the test answers it."""

    def __init__(self) -> None:
        self.pending, self.killed, self.started, self.closed = [], [], [], False
        self.silent = set()
        """Workers that hang: they answer nothing."""
        self.used_s = {}
        """CPU seconds that workers have used."""
        self.gone, self.restarts = None, []

    def start(self, n, reply):
        self.started.append(n)
        self.silent.discard(n)
        self.pending.append((n, "facts", (), reply))

    def call(self, n, name, *arguments, reply):
        self.pending.append((n, name, arguments, reply))

    def kill(self, n):
        self.killed.append(n)

    def cpu_s(self, n):
        return self.used_s.get(n)

    def outage(self):
        return self.gone

    def restart(self, reply):
        self.pending.clear()
        self.restarts.append(reply)

    def close(self):
        self.closed = True

    def calls(self, *names):
        """Returns (server, name) of the calls that are not answered."""
        return [(n, name) for n, name, _, _ in self.pending if not names or name in names]

    def take(self, n, name):
        """Takes away the oldest call of a name to a worker; returns its arguments and reply."""
        for i, call in enumerate(self.pending):
            if call[:2] == (n, name):
                return self.pending.pop(i)[2:]
        raise AssertionError(f"worker {n} was not called {name}; pending: {self.calls()}")

    def answer(self, n, name, answer):
        """Answers a call."""
        self.take(n, name)[1](answer)

    def die(self, n):
        """Ends all calls of a worker as a death does."""
        dead = [call for call in self.pending if call[0] == n]
        self.pending = [call for call in self.pending if call[0] != n]
        for _, _, _, reply in dead:
            reply(WorkerDiedError("died"))


class Bench:
    """A controller with fake workers and a clock that a test moves."""

    def __init__(self, folder, scheduler=None, of=None, **plan) -> None:
        self.now_s = 0.0
        self.workers = FakeWorkers()
        self.store = TaskStore(opened(folder), folder)
        given = Plan(setting=of or setting(), models=MODELS, limits=plan.pop("limits", Limits()), **plan)
        self.controller = Controller(
            given,
            scheduler or FirstFit(),
            self.workers,
            self.store,
            lambda: self.now_s,
            START,
            np.random.default_rng(0),
        )

    def ready(self):
        """Answers every worker's start, and decides."""
        for n, name in self.workers.calls("facts"):
            self.workers.answer(n, name, Facts(pid=100 + n, host="127.0.0.1", node="here", device="cpu"))
        self.controller.tick()
        return self

    def beats(self, **told):
        """Answers the health checks of all workers that do not hang."""
        answer = Beat(**{"attempt": 0, "step": 0, "rss_mb": 1, "descriptors": 1, "groups": 0, "model": "", **told})
        for n, name in self.workers.calls("beat"):
            if n not in self.workers.silent:
                self.workers.answer(n, name, answer)

    def pass_s(self, seconds, step_s=0.5):
        """Lets time pass; workers that do not hang answer their health checks."""
        until = self.now_s + seconds
        while self.now_s < until - 1e-9:
            self.now_s = min(until, self.now_s + step_s)
            self.controller.tick()
            self.beats()

    def pass_until_due(self):
        """Lets time pass until the controller wants to be called; workers that do not hang answer."""
        self.now_s = max(self.now_s, self.controller.tick())
        self.controller.tick()
        self.beats()

    def submit(self, gang=1, **given):
        """Submits a task and decides."""
        task = self.controller.submit(prompt="a boat", gang=gang, **given)
        self.controller.tick()
        return task

    def load(self, *members, seconds=0.0):
        """Answers the loads of a gang, and has it meet if it must."""
        for n in members:
            self.workers.answer(n, "load", seconds)
        for n, name in self.workers.calls("meet"):  # none where the gang's process group stands
            self.workers.answer(n, name, ("127.0.0.1", 5))

    def draw(self, *members):
        """Answers the runs of a gang."""
        for rank, n in enumerate(members):
            run = self.controller.servers[n].run
            pngs = () if rank else tuple(f"png {i}".encode() if i else b"png" for i in range(len(run.tasks)))
            self.workers.answer(n, "generate", Part(**{**vars(PART), "pngs": pngs}))
        self.controller.tick()

    def idle(self):
        """Returns the servers that are free."""
        return [n for n, server in enumerate(self.controller.servers) if server.state == "ready" and server.run is None]
