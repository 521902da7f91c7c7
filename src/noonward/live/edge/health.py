"""Health of the workers: starts them, checks them, kills those that hang, and says when one is gone.

A worker is asked for its health every ``beat_s``. The lease counts from its last sign of life: an answer, or CPU time
that its process has used. At half of it a silent worker is killed, which turns a hang into a death; the other half is
left to its gang's members to leave it. A worker that starts is given ``start_s``, again and again as long as it uses
CPU time. So a healthy worker that a busy machine makes slow is not killed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from noonward.live.edge.gang_run import GangRun
from noonward.live.edge.orders import Beat, Limits
from noonward.live.edge.server import Server
from noonward.live.edge.workers import WorkerDiedError, Workers

START_S: Final = 30.0
"""Expected seconds to start a worker, until one has been started."""


class WorkerHealth:
    """Keeps the workers of some servers alive.

    Args:
        servers: Servers; their workers are started by ``start``.
        workers: The workers' processes.
        limits: How long it waits for them.
        clock: Returns the seconds since second 0.
        on_start: Called with server and expected time of its readiness, s, when a worker begins to start.
        on_ready: Called when a worker is ready.
        on_death: Called with server, what it worked at, and why it is gone, once another worker is starting.
        on_beat: Called with server and answer when a worker has answered.
    """

    def __init__(
        self,
        servers: list[Server],
        workers: Workers,
        limits: Limits,
        clock: Callable[[], float],
        on_start: Callable[[int, float], None],
        on_ready: Callable[[], None],
        on_death: Callable[[int, GangRun | None, str], None],
        on_beat: Callable[[int, Beat], None],
    ) -> None:
        self._servers, self._workers, self._limits, self._clock = servers, workers, limits, clock
        self._on_start, self._on_ready, self._on_death = on_start, on_ready, on_death
        self._on_beat = on_beat
        self._start_s = START_S

    def check(self, now_s: float) -> float:
        """Sends checks that are due, kills workers that hang or do not start; returns when it is due again, s."""
        due_s = [now_s + self._limits.beat_s]
        for n, server in enumerate(self._servers):
            self._check_server(n, server, now_s)
            if server.state == "ready":
                due_s.append(server.asked_s + (self._silence_s if server.beat_due else self._limits.beat_s))
        return min(due_s)

    @property
    def _silence_s(self) -> float:
        """Seconds for which a health check may stay unanswered."""
        return self._limits.lease_s / 2 - self._limits.beat_s

    def _check_server(self, n: int, server: Server, now_s: float) -> None:
        """Sends a health check where one is due; kills a worker that does not answer or does not start."""
        limits = self._limits
        if server.state == "starting" and now_s - server.asked_s > limits.start_s:
            if self._works(n, server):
                server.asked_s = now_s
                return
            self.kill(n, f"was not ready within {now_s - server.since_s:.0f} s")
        elif server.state == "ready" and server.beat_due and now_s - server.asked_s >= self._silence_s:
            if self._works(n, server):
                server.asked_s = now_s
                return
            self.kill(n, f"did not answer for {now_s - server.heard_s:.1f} s (lease {limits.lease_s:g} s)")
        elif server.state == "ready" and not server.beat_due and now_s - server.asked_s >= limits.beat_s:
            server.beat_due, server.asked_s, server.cpu_s = True, now_s, self._workers.cpu_s(n)
            self._workers.call(n, "beat", reply=functools.partial(self._heard, n, server.life))

    def _works(self, n: int, server: Server) -> bool:
        """Returns whether a worker has used CPU time since this was last asked."""
        before_s, server.cpu_s = server.cpu_s, self._workers.cpu_s(n)
        return server.cpu_s is not None and server.cpu_s != before_s

    def start(self, n: int) -> None:
        """Starts the worker of a server."""
        server, now_s = self._servers[n], self._clock()
        server.state, server.since_s, server.facts, server.beat = "starting", now_s, None, None
        server.asked_s = now_s
        server.cpu_s, server.group, server.reason = None, 0, None
        server.life += 1
        self._on_start(n, now_s + self._start_s)
        self._workers.start(n, functools.partial(self._started, n, server.life))

    def kill(self, n: int, reason: str) -> None:
        """Kills a worker and treats it as dead."""
        self._workers.kill(n)
        self.died(n, self._servers[n].life, f"{reason} and was killed")

    def died(self, n: int, life: int, reason: str) -> None:
        """Records that a worker is gone, unless it is known already, and starts another one in its place."""
        server = self._servers[n]
        if server.life != life or server.state == "lost":
            return
        run, server.run = server.run, None
        server.failed_starts = server.failed_starts + 1 if server.state == "starting" else 0
        if server.failed_starts >= self._limits.starts:
            server.state, server.reason, server.life = "lost", reason, life + 1
        else:
            self.start(n)
        self._on_death(n, run, f"the worker of server {n} {reason}")

    def suspend(self) -> list[GangRun]:
        """Takes in that all workers are gone and none can be started; returns what they worked at.

        Answers of calls to them are ignored from now on; ``start`` is to be called once workers can be started again.
        """
        runs = {server.run.number: server.run for server in self._servers if server.run is not None}
        for server in self._servers:
            server.state, server.life, server.run = "waiting", server.life + 1, None
            server.facts, server.beat, server.failed_starts, server.group = None, None, 0, 0
        return list(runs.values())

    def _started(self, n: int, life: int, answer: Any) -> None:
        """Takes in that a worker is ready, or has failed to start."""
        server, now_s = self._servers[n], self._clock()
        if server.life != life or server.state != "starting":
            return
        if isinstance(answer, Exception):
            self.died(n, life, f"failed to start: {answer}")
            return
        self._start_s = now_s - server.since_s
        server.state, server.facts, server.failed_starts = "ready", answer, 0
        server.heard_s, server.asked_s, server.beat_due = now_s, now_s, False
        self._on_ready()

    def _heard(self, n: int, life: int, answer: Any) -> None:
        """Takes in the answer to a health check."""
        server = self._servers[n]
        if isinstance(answer, WorkerDiedError):
            self.died(n, life, str(answer))
        elif server.life == life and server.state == "ready":
            server.heard_s, server.beat_due = self._clock(), False
            if isinstance(answer, Beat):
                server.beat = answer
                self._on_beat(n, answer)
