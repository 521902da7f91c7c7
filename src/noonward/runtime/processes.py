"""An executor of processes on this machine: started when they pay, replaced when they die, ended within a second.

It is our own rather than loky's because results come one by one with the notices of their worker, a spec whose worker
died runs again in another one, and the first error by position is the one that is raised, as in a serial run.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from noonward.compiled import compilations
from noonward.notices import listening, tell
from noonward.runtime.carry_out import (
    TRIES,
    carry_out,
    cores,
    first_error,
    lost,
    new_call,
    next_of,
    packed,
    portable_error,
    single_threaded,
    unpacked,
)
from noonward.runtime.executor import Spec
from noonward.runtime.work import Work, measured

START_S: Final = 1.5
"""Seconds that starting workers takes until they run: a new Python with its imports and compiled functions."""
NOTICE: Final = b"notice"
"""How messages begin that are a worker's notice, not an answer; a pickle never begins so."""
LISTEN_S: Final = 0.2
"""Seconds for which answers are waited for at a time, so that an interrupt is seen meanwhile."""
LAST_S: Final = 2.0
"""Seconds that workers are given to write the last checkpoints of their runs."""
PATIENCE_S: Final = 1.0
"""Seconds of work after which it is decided whether workers pay."""


@dataclass(eq=False)
class _Worker:
    """A process and what it does.

    Attributes:
        process: Process.
        pipe: Connection to it.
        place: Position of the spec it carries out, or None.
        group: Group of that spec or of its last one.
    """

    process: Any
    pipe: Connection
    place: int | None = None
    group: object = None


class Processes:
    """Carries out specs in processes of this machine.

    The first specs run in this process. Workers start once the rest, at the pace so far, takes so long that they save
    time; small jobs never pay for them. Specs that compile functions run here too, until the first group is done:
    workers would all compile the same. A worker that dies is replaced and its spec runs again. Specs that are not
    portable run here.

    Args:
        workers: Processes; by default one a core.
        patience_s: Seconds of work here before workers start.
        start_s: Seconds that starting workers takes; 0 starts them whenever two specs are left after ``patience_s``.
    """

    def __init__(self, workers: int | None = None, *, patience_s: float = PATIENCE_S, start_s: float = START_S) -> None:
        self.size = workers or cores()
        self.patience_s, self.start_s = patience_s, start_s
        self.work = Work(offered=self.size)
        self._workers: list[_Worker] = []
        self._starting = threading.Lock()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers]

    def each(self, specs: Sequence[Spec]) -> Iterator[tuple[int, Any]]:
        """Yields (position, result) of every spec, in the order they finish."""
        todo = [place for place, spec in enumerate(specs) if spec.portable]
        with self.work.under_way():
            try:
                for place in (place for place, spec in enumerate(specs) if not spec.portable):
                    yield place, self._run_here(specs[place])
                yield from self._here(specs, todo)
                yield from self._apart(specs, todo)
            finally:
                if any(worker.place is not None for worker in self._workers):
                    self.close()

    def close(self) -> None:
        """Ends the workers; runs under way that can be continued are given ``LAST_S`` to write a last checkpoint."""
        with self._starting:
            busy = [worker for worker in self._workers if worker.place is not None]
            for worker in busy:
                worker.process.terminate()
            until_s = time.monotonic() + LAST_S
            for worker in busy:
                worker.process.join(max(0.0, until_s - time.monotonic()))
            for worker in self._workers:
                worker.process.kill()
            for worker in self._workers:
                worker.process.join()
                _hear_out(worker)
                worker.pipe.close()
            self._workers = []

    def _run_here(self, spec: Spec) -> Any:
        """Carries out a spec in this process."""
        tell("progress", spec.label)
        found, cost = measured(spec.run)
        self.work.add(cost)
        return found

    def _here(self, specs: Sequence[Spec], todo: list[int]) -> Iterator[tuple[int, Any]]:
        """Carries out specs in this process until workers are there or nothing is left."""
        if not todo or self._workers:
            return
        pace = _Pace(len(todo), first_group=specs[todo[0]].group)
        timer = threading.Timer(self.patience_s, self._start_if_it_pays, (pace,))
        timer.daemon = True
        timer.start()
        try:
            while todo and not self._ready():
                place = todo.pop(0)
                pace.begin(specs[place].group)
                found = self._run_here(specs[place])
                pace.end()
                yield place, found
                if time.monotonic() - pace.began >= self.patience_s:
                    self._start_if_it_pays(pace)
        finally:
            timer.cancel()
            pace.over = True

    def _start_if_it_pays(self, pace: _Pace) -> None:
        """Starts the workers if they save time."""
        with self._starting:
            saved = pace.rest_s() * (1 - 1 / self.size)
            if self._workers or self.size < 2 or pace.over or pace.left < 1 or pace.compiles() or saved < self.start_s:
                return
            self._workers = [_started() for _ in range(min(self.size, pace.left))]

    def _ready(self) -> bool:
        """Returns whether a worker has said that it is there."""
        return any(worker.pipe.poll() for worker in self._workers)

    def _apart(self, specs: Sequence[Spec], todo: list[int]) -> Iterator[tuple[int, Any]]:
        """Carries out the rest in the workers."""
        call = new_call()
        tries: dict[int, int] = {}
        errors: dict[int, BaseException] = {}
        while self._workers and len(self._workers) < min(self.size, len(todo)):  # an earlier call needed fewer
            self._workers.append(_started())
        idle = list(self._workers)
        while todo or any(worker.place is not None for worker in self._workers):
            for worker in list(idle):
                if todo:
                    idle.remove(worker)
                    self._give(worker, specs, todo, errors, call)
            ready = wait([worker.pipe for worker in self._workers if worker.place is not None], LISTEN_S)
            for worker in [worker for worker in self._workers if worker.pipe in ready]:
                place = worker.place
                try:
                    answer = worker.pipe.recv_bytes()
                except (EOFError, OSError):
                    idle.append(self._replaced(worker))
                    if place is not None:
                        self._try_again(place, worker, specs, todo, tries, errors)
                    continue
                if not answer:
                    continue  # the worker says that it is there
                if answer.startswith(NOTICE):
                    kind, about = pickle.loads(answer[len(NOTICE) :])
                    if kind == "within" and place is not None:  # of several runs at once, which one
                        kind, about = "progress", f"{specs[place].label}: {about}"
                    tell(kind, about)
                    continue
                worker.place = None
                idle.append(worker)
                try:
                    found, cost = unpacked(answer)
                except Exception as error:
                    errors[place or 0] = error
                    todo[:] = [other for other in todo if other < min(errors)]
                    continue
                self.work.add(cost)
                yield place or 0, found
        first_error(errors)

    def _give(
        self, worker: _Worker, specs: Sequence[Spec], todo: list[int], errors: dict[int, BaseException], call: str
    ) -> None:
        """Sends the next spec to an idle worker."""
        taken = {other.group for other in self._workers if other.place is not None}
        place = next_of(todo, specs, worker.group, taken)
        worker.place, worker.group = place, specs[place].group
        try:
            worker.pipe.send_bytes(packed(specs[place], call))
            tell("progress", specs[place].label)
        except OSError:
            pass  # it died meanwhile, which reading from it shows
        except Exception as error:  # a spec that cannot be pickled
            worker.place = None
            errors[place] = portable_error(error)

    def _replaced(self, worker: _Worker) -> _Worker:
        """Returns a new worker in the place of one that died."""
        worker.process.join()
        worker.pipe.close()
        fresh = _started()
        self._workers[self._workers.index(worker)] = fresh
        return fresh

    def _try_again(
        self,
        place: int,
        worker: _Worker,
        specs: Sequence[Spec],
        todo: list[int],
        tries: dict[int, int],
        errors: dict[int, BaseException],
    ) -> None:
        """Puts back the spec of a worker that died, unless it has cost too many."""
        tries[place] = tries.get(place, 0) + 1
        if tries[place] < TRIES:
            todo.insert(0, place)
            return
        errors[place] = lost(specs[place], f"exit code {worker.process.exitcode}")
        todo[:] = [other for other in todo if other < min(errors)]


class _Pace:
    """How fast specs run here, and what that says about the rest."""

    def __init__(self, count: int, first_group: object) -> None:
        self.began = self._last = time.monotonic()
        self.left, self.first_group, self.group = count, first_group, first_group
        self.over = False
        self._spent: list[float] = []
        self._compiled = compilations()

    def begin(self, group: object) -> None:
        """A spec begins."""
        self.group, self._last = group, time.monotonic()
        self.left -= 1

    def end(self) -> None:
        """The spec is done."""
        now = time.monotonic()
        self._spent.append(now - self._last)
        self._last = now

    def compiles(self) -> bool:
        """Returns whether functions were compiled here and the first group, which needs them all, is not done."""
        return compilations() > self._compiled and self.group == self.first_group

    def rest_s(self) -> float:
        """Returns the seconds the rest takes, at the pace of the last specs and of the one that runs."""
        some = [*self._spent[-8:], time.monotonic() - self._last]
        return self.left * sum(some) / max(1, len(some) - 1)


def _hear_out(worker: _Worker) -> None:
    """Passes on what a worker that has ended said last."""
    try:
        while worker.pipe.poll():
            answer = worker.pipe.recv_bytes()
            if answer.startswith(NOTICE):
                tell(*pickle.loads(answer[len(NOTICE) :]))
    except (EOFError, OSError):
        return


def _started() -> _Worker:
    """Starts a worker."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    with single_threaded():
        process.start()
    theirs.close()
    return _Worker(process, mine)


def _work(pipe: Connection) -> None:
    """Carries out specs until the connection closes, and passes on notices.

    An interrupt is left to the caller, who ends this process: SIGTERM has a run write a last checkpoint if it can.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import noonward.runtime.runs  # noqa: F401  # imported before it says that it is there

    def pass_on(kind: str, about: str) -> None:
        pipe.send_bytes(NOTICE + pickle.dumps((kind, about)))

    try:
        pipe.send_bytes(b"")
        with listening(pass_on):
            while True:
                pipe.send_bytes(carry_out(pipe.recv_bytes()))
    except (EOFError, OSError):
        return  # the caller has gone
