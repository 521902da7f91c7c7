"""The service: one process that holds controller and workers, and answers requests over HTTP on this machine.

``noonward edge up`` starts it in the background. It writes its address into its folder, and takes it away when it ends.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from noonward.errors import NoonwardError
from noonward.files import locked_folder, write_text
from noonward.live.clock import SystemClock
from noonward.live.edge.controller import Controller
from noonward.live.edge.page import page_file
from noonward.live.edge.status import status
from noonward.live.edge.tasks import ImageTask, TaskStore
from noonward.live.edge.web import WebServer
from noonward.live.logs import configure_logs
from noonward.live.store.store import Store
from noonward.live.tokens import make_token
from noonward.live.web.html import Html

ADDRESS: Final = "service.json"
"""File of the service's address within its folder."""
SETTINGS: Final = "settings.json"
"""File of what the service was started with."""
PAGE: Final = "index.html"
"""Page of the folder."""
PAGE_S: Final = 5.0
"""The page is written at most once in so many seconds."""
FAULT_S: Final = 1.0
"""Seconds until what was due is tried again after it failed."""
COMMANDS: Final = "commands"
"""Name of the token that ``noonward edge`` uses: a new one at every start, in the file of the address."""
ANSWER_S: Final = 30.0
"""Seconds within which the controller must answer a request."""


class Service:
    """Runs a controller in this thread until it is stopped.

    Args:
        folder: The service's folder.
        store: Its store.
        make: Makes the controller, given a function that puts functions into this thread, its tasks and a clock.
    """

    def __init__(self, folder: Path, store: Store, make: Callable[..., Controller]) -> None:
        self._folder, self._store, self._html = folder, store, Html()
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        now = datetime.now(UTC)
        start = now.replace(minute=0, second=0, microsecond=0)
        base_s, begin = (now - start).total_seconds(), time.monotonic()
        self._clock = lambda: base_s + time.monotonic() - begin
        self.controller = make(self._inbox.put, TaskStore(store, folder), self._clock, start)
        self._written_s = -1e9
        self._watched: dict[str, list[Future[dict[str, Any]]]] = {}
        self.controller.task_list.on_end = self._ended

    def run(self) -> None:
        """Serves until ``stop`` is called or a signal ends it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._inbox.put(self.stop))
        known = bool(self._store.read("SELECT 1 FROM tokens WHERE name = ?", COMMANDS))
        token = make_token(self._store, COMMANDS, "admin", replace=known)
        web = WebServer(self._store, self._folder, self._answer, self.watch)
        web.start()
        address = {"pid": os.getpid(), "port": web.port, "token": token, "version": 1}
        place = self._folder / ADDRESS
        try:
            write_private(place, json.dumps(address))
            while not self._stopping:
                self._turn()
        finally:
            place.unlink(missing_ok=True)
            web.shutdown()
            self.controller.stop()
            self._write_page()

    def stop(self) -> None:
        """Ends ``run`` after what it does now."""
        self._stopping = True

    def _turn(self) -> None:
        """Does what is due, then waits for what comes next and does all that has come.

        What raises is noted: no request, record or page ends the service.
        """
        due_s = self._clock() + FAULT_S
        with self._noted("what was due"):
            due_s = self.controller.tick()
        if self.controller.notes.changed and self._clock() - self._written_s >= PAGE_S:
            self.controller.notes.changed = False
            self._written_s = self._clock()
            self._write_page()
        try:
            work = self._inbox.get(timeout=max(0.0, due_s - self._clock()))
            while True:
                with self._noted("an answer"):
                    work()
                work = self._inbox.get_nowait()
        except queue.Empty:
            pass

    @contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        """Notes what is raised, and goes on."""
        try:
            yield
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}, line {last.lineno}"
            self.controller.notes.add(f"{what} was not done: {type(error).__name__}: {error} ({place})")
            sys.stderr.write(traceback.format_exc())

    def _write_page(self) -> None:
        with self._noted("the page"):
            write_text(self._folder / PAGE, page_file(self._html, status(self.controller), self._folder))

    def _answer(self, name: str, content: dict[str, Any]) -> Any:
        """Answers a request in the controller's thread; called in any other."""
        answer: Future[Any] = Future()

        def work() -> None:
            try:
                answer.set_result(self._carry_out(name, content))
            except Exception as error:
                answer.set_exception(error)

        self._inbox.put(work)
        return answer.result(timeout=ANSWER_S)

    def _carry_out(self, name: str, content: dict[str, Any]) -> Any:
        if name == "submit":
            return self.controller.submit(**content).as_dict()
        if name == "task":
            return self.controller.task(content["id"]).as_dict()
        if name == "cancel":
            return self.controller.cancel(content["id"], only_of=content.get("only_of")).as_dict()
        if name == "stop":
            self.stop()
            return {}
        return status(self.controller)

    def watch(self, name: str) -> Future[dict[str, Any]]:
        """Returns a future that holds a task's record once it is done or failed; called in any thread."""
        end: Future[dict[str, Any]] = Future()

        def work() -> None:
            task = self.controller.tasks.get(name)
            if task is not None and task.state in ("queued", "running"):
                self._watched.setdefault(name, []).append(end)
            elif end.set_running_or_notify_cancel():
                try:
                    end.set_result(self.controller.task(name).as_dict())
                except NoonwardError as error:
                    end.set_exception(error)

        self._inbox.put(work)
        return end

    def _ended(self, task: ImageTask) -> None:
        """Tells those who wait for a task."""
        for end in self._watched.pop(task.id, []):
            if end.set_running_or_notify_cancel():
                end.set_result(task.as_dict())


def write_private(path: Path, content: str) -> None:
    """Replaces a file by one that its owner alone can read."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
    part.replace(path)


def main(folder: Path) -> int:
    """Runs the service of a folder, as ``noonward edge up`` has written its settings; returns the exit code."""
    from noonward.live.edge.settings import controller_maker, read_settings

    configure_logs("text", "warning", requests=False)
    try:
        with locked_folder(folder, "edge service"), closing(Store(folder, SystemClock())) as store:
            store.require_mode("images")
            Service(folder, store, controller_maker(read_settings(folder / SETTINGS))).run()
    except NoonwardError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except Exception:
        sys.stderr.write(traceback.format_exc())
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
