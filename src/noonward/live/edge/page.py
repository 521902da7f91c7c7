"""The page of a service: what runs, what was made, and who worked when; one HTML file that loads nothing."""

from __future__ import annotations

import base64
from collections.abc import Sequence, Set
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from noonward.units import HOUR_S

IMAGES: Final = 24
"""Images that are shown, the newest."""
SHOWN_S: Final = HOUR_S
"""Longest stretch of time that the timeline shows, s."""
COLORS: Final = {1: "#88ccee", 2: "#44aa99", 4: "#332288", 8: "#882255"}
"""Colours of runs by gang size."""
OTHER, LOAD, FAILED = "#999933", "#ddaa33", "#cc3311"
"""Colours of runs of other gangs, of loads, and of launches that failed."""
LEFT, WIDTH, ROW, BAR = 80, 1060, 26, 20
"""Left end and width of the timeline, height of a row and of a bar within it, pixels."""
_CSS: Final = """
:root { color-scheme: light; } * { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #222; font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans',
  Arial, sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; } h2 { font-size: 20px; margin: 36px 0 6px; }
p { max-width: 100ch; margin: 6px 0; } .caption { color: #444; font-size: 14px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 3px 18px; margin: 12px 0; font-size: 14px; }
dt { color: #5b6470; } dd { margin: 0; }
.notes { border-left: 5px solid #d08700; background: #fff7e6; padding: 8px 16px; margin: 16px 0; font-size: 14px; }
.notes ul { margin: 2px 0; padding-left: 20px; } .scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 12.5px; line-height: 1.35; font-variant-numeric: tabular-nums;
  min-width: 60%; }
th, td { padding: 5px 8px; text-align: right; white-space: nowrap; border-bottom: 1px solid #e3e6ea; }
th { vertical-align: bottom; border-bottom: 2px solid #8a929e; font-weight: 600; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
td.prompt { white-space: normal; min-width: 16ch; max-width: 40ch; text-align: left; overflow-wrap: anywhere; }
tr.failed td { color: #a3220c; } th .unit { display: block; font-weight: 400; color: #5b6470; }
.images { display: flex; flex-wrap: wrap; gap: 14px; }
figure { margin: 0; width: 150px; } figure img { width: 150px; height: 150px; object-fit: cover; display: block; }
figcaption { font-size: 12px; line-height: 1.35; color: #444; overflow-wrap: anywhere; }
.timeline { min-width: 700px; max-width: 100%; height: auto; }
svg text { font: 12px system-ui, 'DejaVu Sans', Arial, sans-serif; fill: #222; }
.key { font-size: 13px; color: #444; }
.key span { display: inline-block; width: 12px; height: 12px; margin: 0 5px 0 14px; vertical-align: -1px; }
footer { margin-top: 36px; color: #5b6470; font-size: 13px; }
"""


def page(status: dict[str, Any], folder: Path) -> str:
    """Returns the page of a service as HTML.

    Args:
        status: ``noonward.live.edge.status.status``.
        folder: The service's folder, with its images.
    """
    title = f"{status['scenario']}: image generation on {len(status['servers'])} servers"
    body = "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            _facts(status),
            _notes(status["notes"]),
            _images(status["tasks"], folder),
            _timeline(status),
            _servers(status["servers"]),
            _expected(status["expected"]),
            _tasks(status),
            f"<footer>State of {_time(status['now_unix_s'])}. Made by noonward. This file loads nothing from the "
            "network.</footer>",
        ]
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<style>{_CSS}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


LOADS: Final = {
    "keep": "a server keeps its model when its gang changes",
    "reload-on-regroup": "every new gang loads its model again",
}
"""What the load policies do."""


def _facts(status: dict[str, Any]) -> str:
    counts, mean_s, reloads = status["counts"], status["mean_response_s"], status["reload_rate"]
    facts = {
        "Policy": status["policy"],
        "Models": ", ".join(_model(model) for model in status["models"]),
        "Gangs": f"{status['parallelism']} exchange of keys and values; {LOADS[status['load_policy']]}",
        "Tasks": ", ".join(f"{count} {state}" for state, count in counts.items()),
        "Mean response": "–" if mean_s is None else f"{mean_s:.2f} s from submission to image",
        "Gangs formed": "–" if reloads is None else f"for {reloads:.0%} of the images; the others reused one",
        "Energy": f"{status['energy_j']:,.0f} J, estimated from the servers' powers; not metered",
    }
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items()) + "</dl>"


def _model(model: dict[str, Any]) -> str:
    return model["name"] if model["text"] else f"{model['name']} (without text encoder: prompts are not understood)"


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in reversed(notes))
    return f'<div class="notes"><strong>Notes</strong><ul>{items}</ul></div>' if items else ""


def _images(tasks: Sequence[dict[str, Any]], folder: Path) -> str:
    """Returns the newest images, their files within the page."""
    figures = []
    for task in [task for task in tasks if task["state"] == "done"][-IMAGES:][::-1]:
        file = folder / "images" / f"{task['id']}.png"
        if not file.is_file():
            continue
        data = base64.b64encode(file.read_bytes()).decode()
        about = f"seed {task['seed']}, {task['attempts'][-1]['steps']} steps, gang of {task['gang']}"
        figures.append(
            f'<figure><img src="data:image/png;base64,{data}" alt="{escape(task["prompt"][:200])}"><figcaption>'
            f"{escape(task['id'])}: {escape(task['prompt'][:80])}<br>{about}</figcaption></figure>"
        )
    return f'<h2>Images</h2>\n<div class="images">{"".join(figures)}</div>' if figures else ""


def _timeline(status: dict[str, Any]) -> str:
    """Returns who worked when, as a drawing."""
    attempts = [(task, attempt) for task in status["tasks"] for attempt in task["attempts"]]
    if not attempts:
        return ""
    end, servers = status["now_unix_s"], len(status["servers"])
    begin = max(min(attempt["launched_unix_s"] for _, attempt in attempts), end - SHOWN_S)
    scale = WIDTH / max(end - begin, 1e-9)
    rows = "".join(
        f'<text x="0" y="{n * ROW + 15}">server {n}</text>'
        f'<rect x="{LEFT}" y="{n * ROW}" width="{WIDTH}" height="{BAR}" fill="#f2f4f7"/>'
        for n in range(servers)
    )
    bars = "".join(_bars(task, attempt, begin, end, scale) for task, attempt in attempts)
    bottom = servers * ROW
    ticks = "".join(
        f'<text x="{LEFT + share * WIDTH:.0f}" y="{bottom + 14}" text-anchor="{anchor}">'
        f"{_clock(begin + share * (end - begin))}</text>"
        for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    )
    sizes = sorted({task["gang"] for task, _ in attempts})
    key = [(LOAD, "load"), *((COLORS.get(size, OTHER), f"gang of {size}") for size in sizes)]
    key += [(FAILED, "failed")] if any(attempt["error"] for _, attempt in attempts) else []
    legend = "".join(f'<span style="background:{color}"></span>{name}' for color, name in key)
    width, height = LEFT + WIDTH, bottom + 22
    drawing = (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" class="timeline" role="img" '
        f'aria-label="timeline of the servers">{rows}{bars}{ticks}</svg>'
    )
    return (
        "<h2>Who worked when</h2>\n<p class='caption'>Launches of every server, in UTC; a gang shows on all of its "
        f'servers.</p>\n<p class="key">{legend}</p>\n<div class="scroll">{drawing}</div>'
    )


def _bars(task: dict[str, Any], attempt: dict[str, Any], begin: float, end: float, scale: float) -> str:
    """Returns a launch as bars of all its servers: its load, then the rest."""
    launched, ended = attempt["launched_unix_s"], attempt["ended_unix_s"] or end
    turn = min(launched + attempt["load_s"], ended)
    color = FAILED if attempt["error"] else COLORS.get(task["gang"], OTHER)
    what = f"{task['id']}, gang of {task['gang']}, {attempt['steps']} steps: {ended - launched:.2f} s"
    out = []
    for first, last, fill in ((launched, turn, LOAD), (turn, ended, color)):
        first = max(first, begin)
        if last <= first:
            continue
        x, width = LEFT + (first - begin) * scale, max((last - first) * scale, 1)
        out += [
            f'<rect x="{x:.1f}" y="{n * ROW}" width="{width:.1f}" height="{BAR}" fill="{fill}" stroke="#fff">'
            f"<title>{escape(what)}</title></rect>"
            for n in attempt["servers"]
        ]
    return "".join(out)


def _servers(servers: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            str(server["server"]),
            server["state"],
            server["task"] or "–",
            server["model"] or "–",
            server["device"] or "–",
            server["host"] or "–",
            "–" if server["rss_mb"] is None else f"{server['rss_mb']:,.0f}",
            str(server["starts"]),
        ]
        for server in servers
    ]
    header = ["server", "state", "task", "model", "device", "host", "memory (MB)", "starts"]
    return "<h2>Servers</h2>\n" + _table(header, rows, text={1, 2, 3, 4, 5})


def _expected(expected: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            str(each["gang"]),
            f"{each['load_s']:.3f}",
            "the scenario" if each["loads"] == 0 else _count(each["loads"], "load"),
            f"{each['step_s']:.4f}",
            "the scenario" if each["runs"] == 0 else _count(each["runs"], "run"),
        ]
        for each in expected
    ]
    return (
        "<h2>Expected times</h2>\n<p class='caption'>What the scheduler expects, by gang size: the scenario's values "
        "until a gang of that size has been measured. A step includes its share of forming the gang and of "
        "decoding.</p>\n" + _table(["gang", "load (s)", "from", "step (s)", "from"], rows, text={2, 4})
    )


def _tasks(status: dict[str, Any]) -> str:
    """Returns the table of all tasks, the newest first."""
    if not status["tasks"]:
        return ""
    header = "task,state,prompt,gang,servers,steps,load (s),join (s),steps (s),response (s),energy (J),launches,reason"
    newest = status["tasks"][::-1]
    rows = [_task(task, status["progress"].get(task["id"])) for task in newest]
    marks = ["failed" if task["state"] == "failed" else "" for task in newest]
    return "<h2>Tasks</h2>\n" + _table(header.split(","), rows, text={1, 4}, prompt={2, 12}, marks=marks)


def _task(task: dict[str, Any], step: int | None) -> list[str]:
    """Returns the row of a task, which has done a step if it runs."""
    last = task["attempts"][-1] if task["attempts"] else None
    state = task["state"] if step is None or last is None else f"step {step} of {last['steps']}"
    launched = (
        [
            " ".join(map(str, last["servers"])),
            str(last["steps"]),
            *(f"{last[name]:.2f}" for name in ("load_s", "join_s", "run_s")),
        ]
        if last
        else ["–"] * 5
    )
    return [
        task["id"],
        state,
        task["prompt"],
        str(task["gang"]),
        *launched,
        "–" if task["response_s"] is None else f"{task['response_s']:.2f}",
        f"{task['energy_j']:,.0f}",
        str(len(task["attempts"])),
        task["reason"] or "",
    ]


def _table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    text: Set[int],
    prompt: Set[int] = frozenset(),
    marks: Sequence[str] = (),
) -> str:
    """Returns a table; ``text`` and ``prompt`` are the columns set to the left, the latter with line breaks."""
    kind = ["prompt" if i in prompt else "text" if i in text else "" for i in range(len(header))]
    heads = "".join(f'<th class="{"text" if kind[i] else ""}">{escape(cell)}</th>' for i, cell in enumerate(header))
    body = "".join(
        f'<tr class="{marks[r] if marks else ""}">'
        + "".join(f'<td class="{kind[i]}">{escape(cell)}</td>' for i, cell in enumerate(row))
        + "</tr>"
        for r, row in enumerate(rows)
    )
    return f"<div class='scroll'><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _clock(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%H:%M:%S")
