"""How the command line starts, asks and stops a service."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from noonward.errors import FileError, MissingExtraError, NoonwardError
from noonward.files import make_folder, write_text
from noonward.live.edge.service import ADDRESS, SETTINGS
from noonward.live.edge.settings import Settings

LOG: Final = "service.log"
"""What the service writes to its error stream."""
FOLDER_VARIABLE: Final = "NOONWARD_EDGE_FOLDER"
"""Environment variable by which every process of a service is known."""
STOP_S: Final = 30.0
"""Seconds that a service has to stop before it is killed."""
MODULES: Final = (
    "ray", "torch", "diffusers", "transformers", "PIL", "psutil", "msgspec", "starlette", "uvicorn", "httptools",
    "jinja2",
)  # fmt: skip
"""What the extra brings."""

_children: dict[Path, subprocess.Popen[bytes]] = {}
"""Services that this process has started, by folder: a child that ends must be waited for."""


def require_extra() -> None:
    """Raises MissingExtraError unless all that the runtime needs is installed."""
    for module in MODULES:
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(module, "edge")


class Client:
    """A service, by its folder.

    Args:
        folder: The service's folder.

    Raises:
        NoonwardError: No service is up there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            address = json.loads((folder / ADDRESS).read_text(encoding="utf-8"))
            self.pid, self._port, self._token = int(address["pid"]), int(address["port"]), str(address["token"])
        except FileNotFoundError:
            raise NoonwardError(
                f"no service is up in {folder}; start one by 'noonward edge up', or give --folder"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise NoonwardError(f"{folder / ADDRESS} is damaged: {error}; run 'noonward edge down'") from error

    def status(self) -> dict[str, Any]:
        """Returns the service's state (``noonward.live.edge.status``)."""
        return self._ask("GET", "/status")

    def submit(self, content: dict[str, Any]) -> dict[str, Any]:
        """Submits a task; returns its record."""
        return self._ask("POST", "/tasks", content)

    def task(self, name: str) -> dict[str, Any]:
        """Returns the record of a task."""
        return self._ask("GET", f"/tasks/{name}")

    def cancel(self, name: str) -> dict[str, Any]:
        """Cancels a task; returns its record."""
        return self._ask("DELETE", f"/tasks/{name}")

    def stop(self) -> None:
        """Asks the service to stop."""
        self._ask("POST", "/stop", {})

    @property
    def page_address(self) -> str:
        """Address of the service's page, for a browser on this machine that logs in with a token."""
        return f"http://127.0.0.1:{self._port}"

    def _ask(self, method: str, path: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        body = None if content is None else json.dumps(content)
        try:
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not _is_alive(self.pid):
                why = _last_words(self._folder)
                raise NoonwardError(
                    f"the service in {self._folder} has ended: {why}; 'noonward edge down' clears what is left"
                ) from error
            raise NoonwardError(
                f"the service in {self._folder} does not answer: {error!r}; 'noonward edge down' clears what is left"
            ) from error
        finally:
            connection.close()
        if response.status != 200:
            raise NoonwardError(answer["message"])
        return answer


def start_service(folder: Path, settings: Settings, wait_s: float = 240.0) -> Client:
    """Starts a service in the background; returns once it answers.

    Args:
        folder: Its folder.
        settings: What it is started with.
        wait_s: Longest wait.

    Raises:
        FileError: A service is up there already.
        NoonwardError: It did not start; the message says why.
    """
    make_folder(folder)
    if (folder / ADDRESS).exists():
        raise FileError(
            f"a service is up in {folder}, or was killed there; end it by 'noonward edge down', or give --folder"
        )
    write_text(folder / SETTINGS, settings.as_text())
    with (folder / LOG).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "noonward.live.edge.service", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, FOLDER_VARIABLE: str(folder.resolve())},
        )
    _children[folder.resolve()] = process
    try:
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            if process.poll() is not None:
                raise NoonwardError(f"the service did not start: {_last_words(folder)}")
            if (folder / ADDRESS).exists():
                return Client(folder)
            time.sleep(0.1)
        raise NoonwardError(f"the service did not answer within {wait_s:g} s; see {folder / LOG}")
    except BaseException:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        clear(folder)
        raise


def stop_service(folder: Path) -> int:
    """Stops a service and ends whatever is left of it; returns how many processes had to be killed.

    Raises:
        NoonwardError: There was none.
    """
    left = processes_of(folder)
    if not left and not (folder / ADDRESS).exists():
        raise NoonwardError(f"no service is up in {folder}; give the folder of one by --folder")
    with contextlib.suppress(NoonwardError):
        Client(folder).stop()
        until = time.monotonic() + STOP_S
        while processes_of(folder) and time.monotonic() < until:
            time.sleep(0.1)
    return clear(folder)


def clear(folder: Path) -> int:
    """Kills all processes of a service's folder and takes its address away; returns how many there were.

    Raises:
        NoonwardError: Some are still there after ``STOP_S``.
    """
    killed: set[int] = set()
    until = time.monotonic() + STOP_S
    while left := processes_of(folder):  # one that is being killed may have started another
        if time.monotonic() > until:
            raise NoonwardError(f"processes {left} of the service in {folder} do not end; look at what they wait for")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed.update(left)
        time.sleep(0.05)
    (folder / ADDRESS).unlink(missing_ok=True)
    child = _children.pop(folder.resolve(), None)
    if child is not None:
        child.wait()
    return len(killed)


def processes_of(folder: Path) -> list[int]:
    """Returns the processes of a service on this machine: the service, Ray's, and the workers."""
    import psutil

    wanted, found = str(folder.resolve()), []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(FOLDER_VARIABLE) == wanted and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def _is_alive(pid: int) -> bool:
    """Returns whether a process of this machine runs."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _last_words(folder: Path) -> str:
    """Returns why a service ended, from its log."""
    lines = (folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    errors = [i for i, line in enumerate(lines) if line.startswith("error: ")]
    if errors:
        return " ".join(line.strip() for line in lines[errors[-1] :]).removeprefix("error: ")
    return f"{lines[-1] if lines else 'it said nothing'}; see {folder / LOG}"
