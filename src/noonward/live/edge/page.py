"""The page of a service: what runs, what was made, and who worked when; over HTTP, or as one file that loads nothing.

Templates and styles are those of ``noonward serve``; the file carries styles and images within itself.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup
from starlette.responses import HTMLResponse

from noonward.live.web.html import STATIC, Html
from noonward.live.web.sessions import Visitor
from noonward.units import HOUR_S

IMAGES: Final = 24
"""Images that are shown, the newest."""
SHOWN_S: Final = HOUR_S
"""Longest stretch of time that the timeline shows, s."""
COLORED: Final = (1, 2, 4, 8)
"""Gang sizes whose runs have a color of their own."""
LEFT, WIDTH, ROW, BAR = 80, 1060, 26, 20
"""Left end and width of the timeline, height of a row and of a bar within it, pixels."""
LOADS: Final = {
    "keep": "a server keeps its model when its gang changes",
    "reload-on-regroup": "every new gang loads its model again",
}
"""What the load policies do."""


def page_file(html: Html, status: dict[str, Any], folder: Path) -> str:
    """Returns the page of a service as one HTML file that loads nothing.

    Args:
        html: Templates.
        status: ``noonward.live.edge.status.status``.
        folder: The service's folder, with its images.
    """

    def source(name: str) -> str | None:
        file = folder / "images" / f"{name}.png"
        return f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}" if file.is_file() else None

    style = Markup((STATIC / "style.css").read_text(encoding="utf-8"))
    return html.text("images.html", style=style, visitor=None, **_content(status, source))


def shown_page(html: Html, status: dict[str, Any], visitor: Visitor) -> HTMLResponse:
    """Returns the page of a service to a visitor; its images are asked for one by one."""
    return html.page("images.html", style="", visitor=visitor, **_content(status, lambda name: f"/images/{name}.png"))


def _content(status: dict[str, Any], source: Callable[[str], str | None]) -> dict[str, Any]:
    """Returns what the template shows; ``source`` gives the address of an image, None if it is gone."""
    done = [task for task in status["tasks"] if task["state"] == "done"][-IMAGES:][::-1]
    images = [(task, where) for task in done if (where := source(task["id"])) is not None]
    return {
        "title": f"{status['scenario']}: image generation on {len(status['servers'])} servers",
        "facts": _facts(status),
        "notes": status["notes"][::-1],
        "images": images,
        "timeline": _timeline(status),
        "servers": status["servers"],
        "expected": status["expected"],
        "measured": _measured,
        "tasks": status["tasks"][::-1],
        "progress": status["progress"],
        "now": datetime.fromtimestamp(status["now_unix_s"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
    }


def _facts(status: dict[str, Any]) -> list[tuple[str, str]]:
    counts, mean_s, reloads = status["counts"], status["mean_response_s"], status["reload_rate"]
    return [
        ("Policy", status["policy"]),
        ("Models", ", ".join(_model(model) for model in status["models"])),
        ("Gangs", f"{status['parallelism']} exchange of keys and values; {LOADS[status['load_policy']]}"),
        ("Tasks", ", ".join(f"{count} {state}" for state, count in counts.items())),
        ("Mean response", "–" if mean_s is None else f"{mean_s:.2f} s from submission to image"),
        ("Gangs formed", "–" if reloads is None else f"for {reloads:.0%} of the images; the others reused one"),
        ("Energy", f"{status['energy_j']:,.0f} J, estimated from the servers' powers; not metered"),
    ]


def _model(model: dict[str, Any]) -> str:
    return model["name"] if model["text"] else f"{model['name']} (without text encoder: prompts are not understood)"


def _measured(count: int, noun: str) -> str:
    """Returns where an expected time comes from."""
    return "the scenario" if count == 0 else f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _timeline(status: dict[str, Any]) -> dict[str, Any] | None:
    """Returns who worked when, as bars; None if nothing was launched."""
    attempts = [(task, attempt) for task in status["tasks"] for attempt in task["attempts"]]
    if not attempts:
        return None
    end = status["now_unix_s"]
    begin = max(min(attempt["launched_unix_s"] for _, attempt in attempts), end - SHOWN_S)
    sizes = sorted({task["gang"] for task, _ in attempts})
    key = [("load", "load"), *((_color(size), f"gang of {size}") for size in sizes)]
    ticks = ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    return {
        "left": LEFT,
        "width": LEFT + WIDTH,
        "height": len(status["servers"]) * ROW + 22,
        "row": ROW,
        "bar": BAR,
        "bars": [bar for task, attempt in attempts for bar in _bars(task, attempt, begin, end)],
        "ticks": [(LEFT + x * WIDTH, anchor, _clock(begin + x * (end - begin))) for x, anchor in ticks],
        "key": key + ([("failed", "failed")] if any(attempt["error"] for _, attempt in attempts) else []),
    }


def _bars(task: dict[str, Any], attempt: dict[str, Any], begin: float, end: float) -> list[dict[str, Any]]:
    """Returns a launch as bars of all its servers: its load, then the rest."""
    scale = WIDTH / max(end - begin, 1e-9)
    launched, ended = attempt["launched_unix_s"], attempt["ended_unix_s"] or end
    turn = min(launched + attempt["load_s"], ended)
    kind = "failed" if attempt["error"] else _color(task["gang"])
    words = f"{task['id']}, gang of {task['gang']}, {attempt['steps']} steps: {ended - launched:.2f} s"
    bars = []
    for first, last, fill in ((launched, turn, "load"), (turn, ended, kind)):
        first = max(first, begin)
        if last > first:
            x, width = LEFT + (first - begin) * scale, max((last - first) * scale, 1)
            bars += [{"x": x, "y": n * ROW, "width": width, "kind": fill, "words": words} for n in attempt["servers"]]
    return bars


def _color(size: int) -> str:
    """Returns the class of the style that colors the runs of a gang size."""
    return f"gang-{size}" if size in COLORED else "gang"


def _clock(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%H:%M:%S")
