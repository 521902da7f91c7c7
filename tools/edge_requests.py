"""Sends requests for images to a service over HTTP, and counts what became of each.

    python tools/edge_requests.py FOLDER --requests 1000 --batch 4

Starts a service of two workers in an empty folder with two models of random weights that two backends draw: PixArt by
its own code, a Flux pipeline by diffusers. Every request has a prompt, seed and model of its own; it is answered if the
image's file names its prompt, seed and task. Lost: without that answer. Twice: drawn twice, or asked once and made two
tasks of.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import io
import json
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noonward.live.edge.client import Client, start_service, stop_service
from noonward.live.edge.model_folder import read_model_folder
from noonward.live.edge.service import ADDRESS
from noonward.live.edge.settings import Settings, edge_scenario
from noonward.live.edge.small_model import write_small_flux, write_small_model

CHANGES = ("servers.count=2", "tasks.sizes=[1,2]", "steps=2", "steps_max=2", "steps_min=1", "quality_goal=0")
CHANGES += ("quality_min=0",)
SIZE = "64x64"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a request came to.

    Attributes:
        prompt: What was asked for; no other request has the same.
        task: Id of the task by which it was answered; empty if it was not.
        own: Whether the image is the one that was asked for.
    """

    prompt: str
    task: str
    own: bool


def count(answers: Sequence[Answer], tasks: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Returns how many requests were acknowledged (became a task), answered, lost, and done twice.

    Args:
        answers: One for each request.
        tasks: Records of all tasks of the service.
    """
    asked = Counter(task["prompt"] for task in tasks)
    drawn = Counter(task["prompt"] for task in tasks for each in task["attempts"] if each["error"] is None)
    named = Counter(answer.task for answer in answers if answer.task)
    twice = {answer.prompt for answer in answers if asked[answer.prompt] > 1 or drawn[answer.prompt] > 1}
    twice |= {answer.prompt for answer in answers if named[answer.task] > 1}
    return {
        "acknowledged": sum(asked[answer.prompt] > 0 for answer in answers),
        "answered": sum(answer.own for answer in answers),
        "lost": sum(not answer.own for answer in answers),
        "twice": len(twice),
    }


def ask(port: int, token: str, model: str, number: int) -> Answer:
    """Asks for an image; returns what came of it."""
    from PIL import Image

    prompt, seed = f"boat {number}", 10_000 + number
    body = {"prompt": prompt, "seed": seed, "model": model, "size": SIZE}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/images/generations", json.dumps(body), headers)
        response = connection.getresponse()
        content = json.loads(response.read())
        if response.status != 200:
            print(f"{prompt}: {content}", flush=True)
            return Answer(prompt=prompt, task="", own=False)
        (found,) = content["data"]
        with Image.open(io.BytesIO(base64.b64decode(found["b64_json"]))) as image:
            words: Any = image.text  # type: ignore[attr-defined]
        own = (words["prompt"], words["seed"], words["task"]) == (prompt, str(seed), found["id"])
        return Answer(prompt=prompt, task=found["id"], own=own)
    except (OSError, http.client.HTTPException, ValueError) as error:
        print(f"{prompt}: {error!r}", flush=True)
        return Answer(prompt=prompt, task="", own=False)
    finally:
        connection.close()


def main() -> None:
    """Runs it and prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=32, help="requests that are open at a time")
    parser.add_argument("--batch", type=int, default=1, help="most images drawn at once")
    asked = parser.parse_args()
    models = {"small": write_small_model, "flux": write_small_flux}
    folders = {name: asked.folder / "models" / name for name in models}
    for name, write in models.items():
        write(folders[name])
    settings = Settings(
        setting=edge_scenario("edge-inference", CHANGES),
        policy="patient-reuse",
        models=tuple(read_model_folder(folder) for folder in folders.values()),
        batch=asked.batch,
    )
    client: Client = start_service(asked.folder, settings)
    try:
        while any(server["state"] == "starting" for server in client.status()["servers"]):
            time.sleep(0.3)
        address = json.loads((asked.folder / ADDRESS).read_text(encoding="utf-8"))
        names = [list(models)[number % 2] for number in range(asked.requests)]
        begin = time.monotonic()
        with ThreadPoolExecutor(asked.connections) as pool:
            pending = [
                pool.submit(ask, address["port"], address["token"], name, number) for number, name in enumerate(names)
            ]
            answers = [each.result() for each in pending]
        took_s = time.monotonic() - begin
        tasks = client.status()["tasks"]
        launches = {(a["launched_unix_s"], *a["servers"]) for task in tasks for a in task["attempts"]}
        by_model = Counter(task["model"] for task in tasks if task["state"] == "done")
        found = ", ".join(f"{name} {number}" for name, number in count(answers, tasks).items())
        print(f"{asked.requests} requests in {took_s:.0f} s: {found}; {len(launches)} launches; done {dict(by_model)}")
    finally:
        stop_service(asked.folder)


if __name__ == "__main__":
    main()
