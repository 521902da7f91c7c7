"""``noonward edge``: a service that generates images on edge servers, in the background of this machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noonward.cli.durations import duration
from noonward.cli.options import Interrupted, Json, Settings

if TYPE_CHECKING:
    from rich.table import Table

    from noonward.live.edge.client import Client
    from noonward.live.edge.model_folder import ModelFolder

app = typer.Typer(
    name="edge", help="Generate images on edge servers: a service on Ray.", no_args_is_help=True, rich_markup_mode=None
)
SMALL = "small"
"""Name of the model of random weights that needs no download."""
Folder = Annotated[Path, typer.Option("--folder", help="The service's folder: settings, tasks, images, page, log.")]
DEFAULT_FOLDER = Path("runs/edge")


@app.command()
def up(
    name: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A scenario of kind 'edge', packaged or a .yaml file.")
    ] = "edge-inference",
    policy: Annotated[str, typer.Option(help="Who decides: see 'noonward policies --kind edge'.")] = "patient-reuse",
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="[NAME=]FOLDER",
            help="Folder of a PixArt model or of a Flux, Qwen-Image or Stable Diffusion 3 pipeline in the layout of "
            "diffusers; repeat it for several. By default 'small': random weights, which draw nothing.",
        ),
    ] = None,
    settings: Settings = None,
    parallelism: Annotated[
        str, typer.Option(help="Exchange among the servers of a task: synchronous (exact) or displaced (DistriFusion).")
    ] = "synchronous",
    warm_up: Annotated[int, typer.Option(min=1, help="First steps of displaced that exchange at once.")] = 4,
    guidance: Annotated[
        float | None, typer.Option(min=0, help="Classifier-free guidance; 4.5 with a text encoder, else 1 (none).")
    ] = None,
    precision: Annotated[str, typer.Option(help="Weights: float32, bfloat16 or float16.")] = "float32",
    load_policy: Annotated[
        str,
        typer.Option(help="keep: a worker keeps its model when gangs change; reload-on-regroup: as in the EAT paper."),
    ] = "keep",
    tries: Annotated[
        int, typer.Option(min=1, help="Launches of a task that may fail before it does; lost workers do not count.")
    ] = 2,
    lease: Annotated[
        float,
        typer.Option(
            parser=duration(1.0),
            metavar="DURATION",
            help="Time without answer and CPU time after which a worker counts as hung; above 2s. [default: 8s]",
            show_default=False,
        ),
    ] = 8.0,
    ray: Annotated[str, typer.Option(metavar="ADDRESS", help="A Ray cluster, or 'local' for this machine.")] = "local",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU a server if there are enough.")] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Workers, instead of the scenario's servers; on this machine by default no more than it has GPUs, or "
            "cores.",
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="Most images of equal requests (model, gang, size, steps) drawn at once.")
    ] = 1,
    retain: Annotated[
        float,
        typer.Option(
            parser=duration(1.0),
            metavar="DURATION",
            help="How long finished tasks are kept. [default: 30d]",
            show_default=False,
        ),
    ] = 30 * 86_400.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the policy.")] = 0,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Start the service in the background."""
    from noonward.live.edge.client import require_extra, start_service, stop_service
    from noonward.live.edge.orders import Drawing, Limits
    from noonward.live.edge.settings import Settings as ServiceSettings
    from noonward.live.edge.settings import edge_scenario, edge_scheduler, with_servers, workers_for

    require_extra()
    _one_of("--parallelism", parallelism, "synchronous", "displaced")
    _one_of("--precision", precision, "float32", "bfloat16", "float16")
    _one_of("--load-policy", load_policy, "keep", "reload-on-regroup")
    _one_of("--device", device, "auto", "cpu", "cuda")
    setting = edge_scenario(name, settings or ())
    count, why = workers_for(setting.servers.count, workers, ray, device)
    setting = with_servers(setting, count)
    edge_scheduler(policy)
    given = ServiceSettings(
        setting=setting,
        policy=policy,
        models=tuple(_model(each, folder) for each in model or [SMALL]),
        drawing=Drawing(
            parallelism=parallelism,  # type: ignore[arg-type]
            warm_up=warm_up,
            guidance=guidance,
            precision=precision,  # type: ignore[arg-type]
        ),
        limits=Limits(lease_s=lease),
        load_policy=load_policy,  # type: ignore[arg-type]
        tries=tries,
        batch=batch,
        retain_s=retain,
        ray=ray,
        device=device,  # type: ignore[arg-type]
        seed=seed,
    )
    print(f"starting {count} workers{why}; folder: {folder}", file=sys.stderr)
    try:
        client = start_service(folder, given)
        try:
            ready = _await_workers(client)
        except BaseException:
            stop_service(folder)
            raise
    except KeyboardInterrupt:
        print("interrupted; the service is stopped", file=sys.stderr)
        raise Interrupted from None
    print(f"{ready} workers are ready; page: {folder / 'index.html'}, or {client.page_address} with a token")
    print(f"submit a task: noonward edge submit 'a lighthouse at dusk' --gang 2 --wait --folder {folder}")


@app.command()
def submit(
    prompt: Annotated[str, typer.Argument(help="What to draw.")],
    gang: Annotated[int, typer.Option(min=1, help="Servers that draw it together.")] = 1,
    image_seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of the image; by default its number.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Name of the model; by default the first.")] = None,
    steps_max: Annotated[
        float | None, typer.Option(help="Maximum number of inference steps; the policy may choose fewer.")
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(parser=duration(1.0), metavar="DURATION", help="Time within which it must be done: 10m."),
    ] = None,
    negative: Annotated[str | None, typer.Option(help="What not to draw; it needs guidance.")] = None,
    guidance: Annotated[
        float | None, typer.Option(min=1, help="Classifier-free guidance, 1 for none; by default the service's.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="WIDTHxHEIGHT", help="Pixels of the image; by default the model's own.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Images, with seeds one after the other.")] = 1,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until they are done.")] = False,
    folder: Folder = DEFAULT_FOLDER,
    json: Json = False,
) -> None:
    """Submit a task to the service."""
    from json import dumps

    from noonward.errors import NoonwardError
    from noonward.live.edge.client import Client

    client = Client(folder)
    content = {"prompt": prompt, "gang": gang, "model": model, "steps_max": steps_max, "deadline_s": deadline}
    content |= {"negative": negative, "guidance": guidance, "size": size}
    seeds = [None if image_seed is None else image_seed + i for i in range(count)]
    tasks = [client.submit({**content, "seed": each}) for each in seeds]
    if wait:
        try:
            tasks = _await_tasks(client, [task["id"] for task in tasks])
        except KeyboardInterrupt:
            print("interrupted; the service goes on with the tasks: noonward edge status", file=sys.stderr)
            raise Interrupted from None
    if json:
        print(dumps({"tasks": tasks}))
    else:
        for task in tasks:
            print(_outcome(task, folder))
    failed = [task for task in tasks if task["state"] == "failed"]
    if failed:
        raise NoonwardError(f"{len(failed)} of {len(tasks)} tasks failed: {failed[0]['reason']}")


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    page: Annotated[Path | None, typer.Option(help="Write the page to this .html file.")] = None,
    folder: Folder = DEFAULT_FOLDER,
    json: Json = False,
) -> None:
    """Show servers, queue and tasks of the service."""
    from json import dumps

    from noonward.files import write_text
    from noonward.live.edge.client import Client
    from noonward.live.edge.page import page_file
    from noonward.live.web.html import Html

    client = Client(folder)
    if watch:
        _watch(client)
        return
    found = client.status()
    if page is not None:
        write_text(page, page_file(Html(), found, folder))
    if json:
        print(dumps(found))
        return
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    for table in _tables(found):
        console.print(table)
    print(f"page: {page or folder / 'index.html'}")


@app.command()
def cancel(
    names: Annotated[list[str], typer.Argument(metavar="ID", help="Tasks, such as image-000001.")],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Cancel tasks that wait or run."""
    from noonward.live.edge.client import Client

    client = Client(folder)
    for name in names:
        print(_outcome(client.cancel(name), folder))


@app.command()
def down(folder: Folder = DEFAULT_FOLDER) -> None:
    """Stop the service; open tasks are kept in its folder."""
    from noonward.live.edge.client import stop_service

    killed = stop_service(folder)
    left = f"; {killed} processes had to be killed" if killed else ""
    print(f"the service is down{left}; its records and page: {folder / 'index.html'}")


def _one_of(option: str, value: str, *allowed: str) -> None:
    """Raises ScenarioError unless an option has one of its values."""
    from noonward.errors import ScenarioError, nearest

    if value not in allowed:
        raise ScenarioError(f"{option} {value!r}; {nearest(value, allowed)}")


def _model(word: str, folder: Path) -> ModelFolder:
    """Returns the model of an option --model; writes the small one where it is asked for."""
    from noonward.live.edge.model_folder import read_model_folder
    from noonward.live.edge.small_model import write_small_model

    if word == SMALL:
        place = folder / "models" / SMALL
        if not place.is_dir():
            print(f"writing a small model of random weights to {place}", file=sys.stderr)
            write_small_model(place)
        return read_model_folder(place)
    name, equals, path = word.rpartition("=")
    return read_model_folder(Path(path), name if equals else None)


def _await_workers(client: Client) -> int:
    """Waits until every worker is ready or lost; returns how many are ready."""
    from rich.console import Console

    from noonward.errors import NoonwardError

    console = Console(stderr=True)
    with console.status("workers start"):
        while True:
            servers = client.status()["servers"]
            states = [server["state"] for server in servers]
            ready = sum(state not in ("starting", "lost") for state in states)
            if "starting" not in states:
                break
            time.sleep(0.3)
    if ready == 0:
        raise NoonwardError(f"no worker could be started: {servers[0]['reason']}")
    return ready


def _await_tasks(client: Client, names: list[str]) -> list[dict[str, Any]]:
    """Shows tasks step by step until they are done or failed; returns their records."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.fields[name]}"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        bars = {name: shown.add_task("queued", name=name, total=1) for name in names}
        while True:
            status = client.status()
            tasks = [task for task in status["tasks"] if task["id"] in bars]
            for task in tasks:
                steps = task["attempts"][-1]["steps"] if task["attempts"] else 1
                done = steps if task["state"] == "done" else status["progress"].get(task["id"], 0)
                state = f"{task['state']}, step {done} of {steps}" if task["state"] == "running" else task["state"]
                shown.update(bars[task["id"]], completed=done, total=steps, description=state)
            if all(task["state"] in ("done", "failed") for task in tasks):
                return tasks
            time.sleep(0.2)


def _outcome(task: dict[str, Any], folder: Path) -> str:
    """Returns a line about a task."""
    if task["state"] == "done":
        last = task["attempts"][-1]
        return (
            f"{task['id']}: {folder / 'images' / (task['id'] + '.png')}, {task['response_s']:.2f} s, {last['steps']} "
            f"steps on servers {', '.join(map(str, last['servers']))}, about {task['energy_j']:,.0f} J"
        )
    if task["state"] == "failed":
        return f"{task['id']}: failed: {task['reason']}"
    return f"{task['id']}: {task['state']}"


def _watch(client: Client) -> None:
    """Shows the tables again and again."""
    from rich.console import Group
    from rich.live import Live

    with Live(refresh_per_second=4) as live:
        try:
            while True:
                live.update(Group(*_tables(client.status(), newest=12)))
                time.sleep(0.5)
        except KeyboardInterrupt:
            raise Interrupted from None


def _tables(found: dict[str, Any], newest: int = 20) -> list[Table]:
    """Returns servers and the newest tasks as tables."""
    from rich.table import Table

    servers = Table("server", "state", "task", "model", "device", "memory (MB)", title="servers", title_justify="left")
    for server in found["servers"]:
        memory = "–" if server["rss_mb"] is None else f"{server['rss_mb']:,.0f}"
        cells = (server["task"] or "–", server["model"] or "–", server["device"] or "–", memory)
        servers.add_row(str(server["server"]), server["state"], *cells)
    counts = ", ".join(f"{count} {state}" for state, count in found["counts"].items())
    tasks = Table(
        "task", "state", "gang", "steps", "response (s)", "prompt or reason", title=counts, title_justify="left"
    )
    for task in found["tasks"][-newest:]:
        steps = str(task["attempts"][-1]["steps"]) if task["attempts"] else "–"
        if task["id"] in found["progress"]:
            steps = f"{found['progress'][task['id']]} of {steps}"
        response = "–" if task["response_s"] is None else f"{task['response_s']:.2f}"
        tasks.add_row(
            task["id"], task["state"], str(task["gang"]), steps, response, (task["reason"] or task["prompt"])[:70]
        )
    return [servers, tasks]
