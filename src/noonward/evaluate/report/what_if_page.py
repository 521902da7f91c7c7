"""The report of trade-off curves or a sensitivity: words, pictures and tables on one static page without JavaScript."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final, Literal

from noonward.evaluate.answer import spoken
from noonward.evaluate.report import page
from noonward.evaluate.report.charts import BAD, GOOD, QUIET, STYLE, Bar, Line, Point, bar_chart, line_chart
from noonward.evaluate.what_if.study import Case, Curve, Study
from noonward.evaluate.what_if.words import words

CARBON_COLOR = "#1d5fa8"


HEADS: Final = {
    "trade-off": ("Trade-off", "What {} trades: cost, carbon and delay"),
    "sensitivity": ("Sensitivity", "What the saving of {} depends on"),
}
"""Title of the page and headline, by name of the study."""
WRAPPED: Final = "td:first-child { white-space: normal; min-width: 11em; }"
"""Style by which a long first column breaks its lines before a table outgrows the page."""


def write_what_if_page(study: Study, path: Path, command: str | None = None) -> Path:
    """Writes a study's report as one HTML file that loads nothing, and returns its path.

    Args:
        study: Study.
        path: File; its folder is made.
        command: The command that made it; None: one that makes it again for a packaged scenario.
    """
    first, *rest = words(study)
    scenario = study.scenario
    title, what = HEADS[study.name]
    drawn = [_drawn(*each) for each in what_if_charts(study)]
    beside = f"<section><h2>In words</h2>{page.list_html(rest)}</section>" if len(drawn) == 1 and rest else ""
    line = command or shlex.join(["noonward", study.name, scenario.name, "--policy", study.policy])
    body = [
        f"<p class='caption'>{escape(': '.join(filter(None, (scenario.name, scenario.description))))}</p>",
        f"<h1>{page.prose(what.format(study.policy))}</h1>",
        f"<p class='lead'>{page.prose(first)}</p>",
        "" if beside else page.list_html(rest),
        page.notes_html(study.notes),
        f"<div class='pair'>{''.join(drawn)}{beside}</div>",
        *(page.table_html(table) for table in study.tables()),
        f"<p class='caption'>{page.prose(method(study))}</p>",
        f"<details><summary>How to reproduce this</summary><pre>{escape(line)}</pre></details>",
        "<footer>Made by noonward. This file loads nothing from the network.</footer>",
    ]
    return page.write_page(
        f"{title}: {scenario.name}", "\n".join(part for part in body if part), path, css=STYLE + WRAPPED
    )


def study_html(study: Study) -> str:
    """Returns words, drawings and tables as HTML for a notebook."""
    drawn = "".join(f"<div style='max-width:520px'>{svg}</div>" for _, _, svg in what_if_charts(study))
    tables = "".join(page.table_html(table) for table in study.tables())
    notes = "".join(f"<br>note: {escape(note)}" for note in study.notes)
    return f"<p><b>{page.prose(' '.join(words(study)))}</b></p>{drawn}{tables}<p style='font-size:85%'>{notes}</p>"


def method(study: Study) -> str:
    """Returns how a study's figures are made."""
    count = f"{study.environments} environment{'s' * (study.environments != 1)}"
    return (
        f"Every case runs {study.policy} on the same windows and jobs ({count}, seed {study.seed}); "
        f"{spoken(study.today)} runs once, on the scenario as it is. Cost is what energy and transfers are paid with, "
        "without a price on carbon; a saving is what today's policy would have paid for as many GPU-hours, less the "
        "bill. With any slack, a job may start in the first time step after its arrival."
    )


def what_if_charts(study: Study) -> list[tuple[str, str, str]]:
    """Returns title, caption and drawing of every curve, or of a sensitivity."""
    charts = []
    for curve in study.curves:
        charts.append(_carbon_chart(study, curve) if curve.name == "carbon" else _slack_chart(study, curve))
    if study.cases:
        charts.append(_bars(study))
    return charts


def _carbon_chart(study: Study, curve: Curve) -> tuple[str, str, str]:
    today = Point(
        name=spoken(study.today),
        x=1000 * study.per_gpu_hour(study.reference, "usd").value,
        y=1000 * study.per_gpu_hour(study.reference, "kg").value,
        color="#222",
    )
    served, left_out = study.served(curve)
    lines = []

    def per_1000(cases: Sequence[Case]) -> list[tuple[float, ...]]:
        return [tuple(1000 * study.per_gpu_hour(case, what).value for case in cases) for what in ("usd", "kg")]

    prices = [case.title.removesuffix(" USD/t") for case in curve.cases]
    usd, kg = per_1000(curve.cases)
    text_of = dict(zip(prices, _apart(prices, usd, kg, today), strict=True))
    for name, color, cases in ((study.policy, GOOD, served), ("leaves jobs out", QUIET, left_out)):
        if cases:
            usd, kg = per_1000(cases)
            texts = tuple(text_of[case.title.removesuffix(" USD/t")] for case in cases)
            lines.append(Line(name=name, x=usd, y=kg, color=color, texts=texts))
    caption = (
        f"Each point is {study.policy} under one carbon price (the number beside it, USD/t), per 1,000 GPU-hours. Down "
        "and left is better; points that nearly lie on each other are named together."
    )
    axes = "cost (USD per 1,000 GPU-hours)", "emissions (kg CO2 per 1,000 GPU-hours)"
    return "Cost against carbon", caption, line_chart(lines, *axes, points=[today])


def _apart(texts: Sequence[str], x: tuple[float, ...], y: tuple[float, ...], today: Point) -> tuple[str, ...]:
    """Returns texts of points, those of a point that nearly lies on the one before joined to that one's."""
    spans = [max([*each, at]) - min([*each, at]) or 1.0 for each, at in ((x, today.x), (y, today.y))]
    out = list(texts)
    last = 0
    for n in range(1, len(texts)):
        far = math.hypot((x[n] - x[last]) / spans[0], (y[n] - y[last]) / spans[1])
        if far < 0.09:
            out[last], out[n] = f"{out[last].split(' to ')[0]} to {texts[n]}", ""
        else:
            last = n
    return tuple(out)


def _slack_chart(study: Study, curve: Curve) -> tuple[str, str, str]:
    finite = [case.at for case in curve.cases if math.isfinite(case.at)]
    end = 1.25 * max(finite) if finite and max(finite) > 0 else 1.0
    x = tuple(case.at if math.isfinite(case.at) else end for case in curve.cases)
    lines = []
    drawn: tuple[tuple[Literal["usd", "kg"], str, str], ...] = (
        ("usd", "cost saved", GOOD),
        ("kg", "emissions avoided", CARBON_COLOR),
    )
    for what, name, color in drawn:
        savings = [study.saved(case, what) for case in curve.cases]
        low, high = (
            tuple(None if (each := getattr(estimate, side)) is None else 100 * each for estimate in savings)
            for side in ("low", "high")
        )
        y = tuple(100 * estimate.value for estimate in savings)
        lines.append(Line(name=name, x=x, y=y, color=color, texts=("",) * len(x), low=low, high=high))
    ends = [*finite, *([end] if len(finite) < len(x) else [])]
    names = {end: "no limit"} if len(finite) < len(x) else {}
    chart = line_chart(
        lines,
        "slack of every job (h)" if not curve.of_own else curve.quantity,
        f"per GPU-hour, against {spoken(study.today)} (%)",
        ticks_x=_few(ends),
        name_x=lambda value: names.get(value, f"{value:.0%}" if curve.of_own else f"{value:g}"),
        from_zero=True,
    )
    caption = f"What {study.policy} saves if jobs may wait that long after they arrive. Lines are 95% intervals."
    return "Saving against allowed delay", caption, chart


def _few(values: list[float]) -> list[float]:
    """Returns values that lie far enough apart to be named on an axis."""
    out: list[float] = []
    for value in sorted(values, reverse=True):
        if not out or out[-1] - value >= 0.07 * max(values):
            out.append(value)
    return out[::-1]


def _bars(study: Study) -> tuple[str, str, str]:
    bars = []
    for case in (study.base, *study.cases):
        saved = study.saved(case)
        bars.append(
            Bar(
                name=case.title.partition(":")[0],
                value=100 * saved.value,
                low=None if saved.low is None else 100 * saved.low,
                high=None if saved.high is None else 100 * saved.high,
                text=f"{100 * saved.value:+.1f}%",
                color=GOOD if case is study.base else BAD if saved.value < 0 else "#7fb183",
            )
        )
    caption = (
        f"Cost that {study.policy} saves per GPU-hour against {spoken(study.today)}, one change at a time. Lines are "
        "95% intervals."
    )
    return "What the saving depends on", caption, bar_chart(bars, "%")


def _drawn(title: str, caption: str, svg: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p class='caption'>{page.prose(caption)}</p>{svg}</section>"
