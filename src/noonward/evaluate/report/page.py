"""The report of a comparison: one HTML file that needs no network, made from run records."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

import yaml

from noonward.evaluate.answer import headline, verdict_of
from noonward.evaluate.comparison import Comparison, case_noun, cases_told, summary_rows
from noonward.evaluate.metrics import Metric
from noonward.evaluate.table import UNDEFINED, Column, Figure, Summary, TextTable
from noonward.files import write_text
from noonward.ledger.record import Record

_CSS: Final = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #222; font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans',
  Arial, sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; }
h2 { font-size: 20px; margin: 36px 0 6px; }
p, ul { max-width: 100ch; margin: 6px 0; }
.answer { font-size: 21px; line-height: 1.35; margin: 14px 0 6px; padding: 12px 16px; background: #eef5ee;
  border-left: 5px solid #2e7d32; max-width: none; }
.answer.open { background: #f3f4f6; border-left-color: #8a929e; }
.lead { font-size: 17px; color: #444; margin-bottom: 14px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 3px 18px; margin: 12px 0; font-size: 14px; }
dt { color: #5b6470; } dd { margin: 0; }
.notes { border-left: 5px solid #d08700; background: #fff7e6; padding: 8px 16px; margin: 16px 0; max-width: none; }
.notes ul { margin: 2px 0; padding-left: 20px; }
.scroll { overflow-x: auto; background: linear-gradient(90deg, #fff 30%, #fff0) 0 0 / 40px 100%,
  linear-gradient(270deg, #fff 30%, #fff0) 100% 0 / 40px 100%, linear-gradient(90deg, #0003, #0000) 0 0 / 12px 100%,
  linear-gradient(270deg, #0003, #0000) 100% 0 / 12px 100%; background-repeat: no-repeat;
  background-attachment: local, local, scroll, scroll; }
table { border-collapse: collapse; font-size: 12.5px; line-height: 1.35; font-variant-numeric: tabular-nums;
  min-width: 60%; }
th, td { padding: 5px 6px; text-align: right; white-space: nowrap; border-bottom: 1px solid #e3e6ea; }
th { vertical-align: bottom; white-space: normal; border-bottom: 2px solid #8a929e; font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
th .unit { font-weight: 400; color: #5b6470; white-space: nowrap; }
tr.bound td { color: #5b6470; font-style: italic; }
tr.reference td { background: #eef0f4; } tr.reference td:first-child { font-weight: 600; }
.nb { white-space: nowrap; }
.caption { color: #444; font-size: 14px; }
.figure { margin: 0; break-inside: avoid; } .figure .scroll > div { min-width: 760px; }
code, pre { font: 13px/1.45 ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; }
pre { background: #f5f6f8; padding: 10px 14px; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: 12px 0; } summary { cursor: pointer; }
footer { margin-top: 36px; color: #5b6470; font-size: 13px; }
@media (max-width: 600px) { main { padding: 16px 14px 32px; } h1 { font-size: 22px; } .answer { font-size: 18px; }
  td:first-child, th:first-child { white-space: normal; min-width: 8em; max-width: 40vw; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: 8px; overflow-wrap: anywhere; } }
@media print { main { padding: 0; max-width: none; } .figure .scroll > div { min-width: 0; }
  table { font-size: 10px; width: 100%; }
  th, td { padding: 3px 4px; } h2, .caption { break-after: avoid; } tr { break-inside: avoid; }
  details, .modebar { display: none; } }
"""
_ARROWS: Final = {"up": "&nbsp;↑", "down": "&nbsp;↓", "none": ""}


def write_report(
    comparison: Comparison,
    path: Path,
    *,
    command: str | None = None,
    figures: Sequence[Figure] | None = None,
    tables: Sequence[TextTable] = (),
) -> Path:
    """Writes a comparison as one HTML file that loads nothing from anywhere.

    Args:
        comparison: Comparison.
        path: File; its folder is made.
        command: The command that made the comparison; by default one that gives the same for a packaged scenario.
        figures: Figures, the most telling first; by default those that suit the comparison.
        tables: Further tables, shown after the first figure.

    Returns:
        The file.
    """
    figures = comparison.objective.figures(comparison) if figures is None else figures
    body = "\n".join(
        [
            _head(comparison),
            _results(comparison),
            _beyond(comparison),
            *_figures(figures[:1], 0),
            *(table_html(table) for table in (*tables, *comparison.objective.tables(comparison))),
            *_figures(figures[1:], 1),
            _policies(comparison),
            _again(comparison, command or default_command(comparison)),
        ]
    )
    return write_page(f"{comparison.scenario.name}: {len(comparison.records)} policies compared", body, path)


def write_figures(
    title: str, lead: str, metrics: Sequence[Metric], figures: Sequence[Figure], path: Path, *, command: str
) -> Path:
    """Writes metrics and figures as one HTML file that loads nothing from anywhere.

    Args:
        title: What was reproduced.
        lead: What a reader must know first.
        metrics: Values, shown as a table with their intervals and references.
        figures: Figures.
        path: File; its folder is made.
        command: The command that made it.

    Returns:
        The file.
    """
    rows = tuple(
        (
            metric.name,
            UNDEFINED if metric.value is None else f"{metric.value:.4g}",
            UNDEFINED if metric.low is None else f"{metric.low:.4g} to {metric.high:.4g}",
            UNDEFINED if metric.reference is None else f"{metric.reference:.4g}",
            metric.unit,
        )
        for metric in metrics
    )
    table = TextTable(
        title="Results",
        header=("figure", "value", "95% interval", "reference", "unit"),
        rows=rows,
        caption="References are the paper's values, or what is promised.",
    )
    return write_tables(title, lead, [table], figures, path, command=command)


def write_tables(
    title: str,
    lead: str,
    tables: Sequence[TextTable],
    figures: Sequence[Figure],
    path: Path,
    *,
    command: str,
    notes: Sequence[str] = (),
    findings: Sequence[str] = (),
    figures_first: bool = False,
) -> Path:
    """Writes tables and figures as one HTML file that loads nothing from anywhere.

    Args:
        title: What was reproduced.
        lead: What a reader must know first.
        tables: Tables.
        figures: Figures.
        path: File; its folder is made.
        command: The command that made it.
        notes: Notes on the data.
        findings: What was found, a sentence or two each.
        figures_first: Whether figures stand above the tables.

    Returns:
        The file.
    """
    parts = [[table_html(table) for table in tables], _figures(figures, 0)]
    found = "".join(f"<li>{prose(each)}</li>" for each in findings)
    body = [
        f"<h1>{escape(title)}</h1>\n<p>{prose(lead)}</p>",
        notes_html(notes),
        f"<h2>Findings</h2>\n<ul>{found}</ul>" if found else "",
        *itertools.chain(*(parts[::-1] if figures_first else parts)),
        f"<h2>How to reproduce this</h2>\n<pre>{escape(command)}</pre>",
    ]
    return write_page(title, "\n".join(part for part in body if part), path)


def lead_html(sentences: Sequence[str]) -> str:
    """Returns what follows a headline: the first sentence large, what it rests on as a list."""
    return f"<p class='lead'>{prose(' '.join(sentences[:1]))}</p>" + list_html(sentences[1:])


def list_html(sentences: Sequence[str]) -> str:
    """Returns sentences as a list; nothing without any."""
    items = "".join(f"<li>{prose(each)}</li>" for each in sentences)
    return f"<ul>{items}</ul>" if items else ""


def notes_html(notes: Sequence[str]) -> str:
    """Returns notes on the data as a box; nothing without any."""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<div class="notes"><strong>About the data</strong><ul>{items}</ul></div>' if items else ""


def write_page(title: str, body: str, path: Path, css: str = "") -> Path:
    """Writes a page with a title, a body of HTML and further style, and returns its path."""
    write_text(
        path,
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<style>{_CSS}{css}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n",
    )
    return path


def default_command(comparison: Comparison) -> str:
    """Returns the command that makes a comparison of a packaged scenario again."""
    policies = ",".join(comparison.records)
    words = ["noonward", "compare", comparison.scenario.name, "--policies", policies]
    return shlex.join([*words, "--environments", str(len(comparison.bounds)), "--seed", str(comparison.seed)])


def prose(sentence: str) -> str:
    """Returns a sentence as HTML; no line breaks before a percent sign."""
    return escape(sentence).replace(" %", "&nbsp;%")


def _first(comparison: Comparison) -> list[Record]:
    """Returns the reference policy's records: they tell what the environments are."""
    return comparison.records[comparison.reference]


def _count(count: int, noun: str) -> str:
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{count} {noun if count == 1 else plural}"


def _head(comparison: Comparison) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{html}</dd>" for name, html in _facts(comparison))
    what = f"{_count(len(comparison.records), 'policy')} in {cases_told(comparison, len(comparison.bounds))}"
    return (
        f"<h1>{escape(comparison.scenario.name)}: {what}</h1>\n{_answer(comparison)}\n"
        f"<p class='lead'>{escape(comparison.scenario.description)}</p>\n{notes_html(comparison.notes)}\n"
        f"<dl>{facts}</dl>"
    )


def _answer(comparison: Comparison) -> str:
    """Returns what to do, in large letters, and what it costs and rests on."""
    first, *rest = headline(comparison)
    told = len(comparison.records) > 1 and verdict_of(comparison).kind in ("adopt", "keep", "limits")
    return f"<p class='answer{'' if told else ' open'}'>{prose(first)}</p>\n{lead_html(rest)}"


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Returns what was compared: names and HTML."""
    scenario, records = comparison.scenario, _first(comparison)
    paired = f"; every policy faces the same {case_noun(scenario)}s" if comparison.paired else ""
    setting = [(name, escape(text)) for name, text in comparison.objective.facts(comparison)]
    return [
        ("Scenario", escape(f"{scenario.name} (digest {scenario.digest})")),
        *setting,
        ("Environments", _environments(comparison)),
        ("Seed", f"{comparison.seed}{paired}"),
        ("Versions", escape(_listed(records[0].manifest["versions"]))),
        ("Machine", escape(_listed(records[0].manifest["machine"]))),
    ]


def _listed(said: Mapping[str, str]) -> str:
    """Returns names and values in a line."""
    return ", ".join(f"{name} {value}" for name, value in said.items())


def _environments(comparison: Comparison) -> str:
    """Returns the environments in HTML: how many, and what each is."""
    records = _first(comparison)
    listed = " · ".join(
        f"<span class='nb'>{escape(f'{i}: {comparison.objective.name_environment(comparison, record)}')}</span>"
        for i, record in enumerate(records)
    )
    return f"{cases_told(comparison, len(records))}. {listed}"


def summary_html(comparison: Comparison) -> str:
    """Returns headline and results table as HTML for a notebook."""
    words = " ".join(headline(comparison))
    summary = summary_rows(comparison)
    notes = "".join(f"<br>note: {escape(note)}" for note in comparison.notes)
    return (
        f"<p><b>{prose(words)}</b></p><div style='overflow-x:auto'><table>{_header(summary.columns)}{_body(summary)}"
        f"</table></div><p style='font-size:85%'>{prose(summary.caption)}{notes}</p>"
    )


def _results(comparison: Comparison) -> str:
    summary = summary_rows(comparison)
    meaning = f" {comparison.objective.meaning}" if comparison.objective.meaning else ""
    return (
        f"<h2>Results</h2>\n<p class='caption'>{prose(summary.caption)} Arrows say which way is better.{meaning}</p>\n"
        f"<div class='scroll'><table id='results'>{_header(summary.columns)}{_body(summary)}</table></div>"
    )


def _header(columns: Sequence[Column]) -> str:
    cells = "".join(
        f"<th>{escape(c.title)}{_ARROWS[c.better]}<span class='unit' style='display:block'>{escape(c.unit)}</span></th>"
        for c in columns
    )
    return f"<thead><tr><th>Policy</th>{cells}</tr></thead>"


def _body(summary: Summary) -> str:
    rows = []
    for row in summary.rows:
        name = f"{row.name} (baseline)" if row.kind == "baseline" else row.name
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
        rows.append(f"<tr class='{row.kind}'><td>{escape(name)}</td>{cells}</tr>")
    return f"<tbody>{''.join(rows)}</tbody>"


def _beyond(comparison: Comparison) -> str:
    """Returns what the bound is and how tight, and what no policy can change."""
    items = "".join(f"<li>{prose(sentence)}</li>" for sentence in comparison.objective.limits(comparison))
    return f"<h2>What no policy can change</h2>\n<ul>{items}</ul>" if items else ""


def _figures(figures: Sequence[Figure], first: int) -> list[str]:
    return [
        f"<section class='figure'>\n<h2>{escape(figure.title)}</h2>\n"
        f"<p class='caption'>{prose(figure.caption)}</p>\n<div class='scroll'>"
        f"{_div(figure, inline=first + i == 0)}</div>\n</section>"
        for i, figure in enumerate(figures)
    ]


def _div(figure: Figure, *, inline: bool) -> str:
    """Returns a figure's HTML, plotly's program within it if asked for."""
    return str(
        figure.plot.to_html(
            full_html=False,
            include_plotlyjs=inline,
            div_id=f"figure-{figure.name}",
            config={"displaylogo": False, "responsive": True, "modeBarButtons": [["toImage"]]},
        )
    )


def table_html(table: TextTable) -> str:
    """Returns a table as HTML, with its title and caption."""
    return f"<h2>{escape(table.title)}</h2>\n<p class='caption'>{prose(table.caption)}</p>\n{bare_table_html(table)}"


def bare_table_html(table: TextTable) -> str:
    """Returns a table as HTML without title and caption; it scrolls where it is too wide."""
    header = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<div class='scroll'><table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table></div>"


def folded_parts(comparison: Comparison, command: str) -> list[tuple[str, str]]:
    """Returns titles and HTML of what stands folded below a page for a meeting."""
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{html}</dd>" for name, html in _facts(comparison))
    tables = "".join(table_html(table) for table in comparison.objective.tables(comparison))
    return [
        ("All policies in numbers", _results(comparison) + tables),
        ("The upper bound, and what no policy can change", _beyond(comparison) or "<p>No bound was looked for.</p>"),
        ("What was compared", f"<dl>{facts}</dl>{_policies(comparison)}"),
        ("How to reproduce this", _again(comparison, command)),
    ]


def _policies(comparison: Comparison) -> str:
    items = "".join(
        f"<dt><code>{escape(name)}</code></dt><dd>{escape(comparison.policies[name].summary)}</dd>"
        for name in comparison.records
    )
    return f"<h2>The policies</h2>\n<dl>{items}</dl>"


def _again(comparison: Comparison, command: str) -> str:
    content = yaml.safe_dump(comparison.scenario.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return (
        "<h2>How to reproduce this</h2>\n"
        "<p>The same version, scenario and seed give the same numbers. Runs are recorded in "
        f"<code>{escape(str(comparison.folder))}</code>; every chart here is made from those records.</p>\n"
        f"<pre>{escape(command)}</pre>\n"
        f"<details><summary>The scenario, complete</summary><pre>{escape(content)}</pre></details>\n"
        "<footer>Made by noonward. This file loads nothing from the network.</footer>"
    )
