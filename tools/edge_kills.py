"""Kills parts of a running image service with SIGKILL under load, and counts what became of every acknowledged task.

    python tools/edge_kills.py FOLDER

Starts a service of two workers with the small model in an empty folder, submits tasks one after the other, kills a
worker, Ray's raylet, Ray's head (``gcs_server``) and the service itself in turn, starts the service again, and waits.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from pathlib import Path

import psutil

from noonward.errors import NoonwardError
from noonward.live.edge.client import Client, clear, start_service, stop_service
from noonward.live.edge.model_folder import read_model_folder
from noonward.live.edge.settings import Settings, edge_scenario
from noonward.live.edge.small_model import write_small_model

CHANGES = ("servers.count=2", "tasks.sizes=[1,2]", "steps=6", "steps_max=6", "steps_min=1", "quality_goal=0")
CHANGES += ("quality_min=0",)
WAIT_S = 900.0


class Load:
    """Submits a task every so often, in a thread, to whatever service is up in a folder."""

    def __init__(self, folder: Path, every_s: float) -> None:
        self.folder, self.every_s = folder, every_s
        self.acknowledged: list[str] = []
        self.refused = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.submit, daemon=True)

    def submit(self) -> None:
        """Submits until it is told to end."""
        while not self.ended.wait(self.every_s):
            try:
                gang = 1 + len(self.acknowledged) % 2
                self.acknowledged.append(Client(self.folder).submit({"prompt": "a boat", "gang": gang})["id"])
            except (NoonwardError, OSError):
                self.refused += 1


def until(condition: object, folder: Path) -> None:
    """Waits until a condition on the service's status holds."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            if condition(Client(folder).status()):  # type: ignore[operator]
                return
        except NoonwardError:
            pass
        time.sleep(0.3)
    raise SystemExit("it did not come about in time")


def main() -> None:
    """Runs it and prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two tasks")
    asked = parser.parse_args()
    folder = asked.folder
    small = folder / "models" / "small"
    write_small_model(small)
    settings = Settings(
        setting=edge_scenario("edge-inference", CHANGES), policy="patient-reuse", models=(read_model_folder(small),)
    )
    start_service(folder, settings)
    load = Load(folder, asked.every)
    load.thread.start()
    for name in ("worker", "raylet", "gcs_server", "service"):
        until(lambda status: status["counts"]["running"] and status["progress"], folder)
        begin = time.monotonic()
        status = Client(folder).status()
        done = status["counts"]["done"]
        if name == "worker":
            os.kill(next(server["pid"] for server in status["servers"] if server["task"]), signal.SIGKILL)
        elif name == "service":
            os.kill(Client(folder).pid, signal.SIGKILL)
            clear(folder)
            start_service(folder, settings)
        else:
            children = psutil.Process(Client(folder).pid).children(recursive=True)
            next(process for process in children if process.name() == name).kill()
        until(lambda status, done=done: status["counts"]["done"] > done, folder)
        print(f"{name} killed; the next image was done after {time.monotonic() - begin:.0f} s", flush=True)
    load.ended.set()
    load.thread.join()
    until(lambda status: not status["counts"]["queued"] and not status["counts"]["running"], folder)
    tasks = {task["id"]: task for task in Client(folder).status()["tasks"]}
    lost = [name for name in load.acknowledged if tasks.get(name, {}).get("state") != "done"]
    twice = [name for name, task in tasks.items() if sum(each["error"] is None for each in task["attempts"]) > 1]
    twice += [name for name in set(load.acknowledged) if load.acknowledged.count(name) > 1]
    print(
        f"acknowledged {len(load.acknowledged)}, refused {load.refused}, lost {len(lost)}, answered twice {len(twice)}"
    )
    stop_service(folder)


if __name__ == "__main__":
    main()
