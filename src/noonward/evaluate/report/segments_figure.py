"""The figure of what became of jobs that were suspended, preempted, resized, capped or moved, or that failed."""

from __future__ import annotations

from typing import Final

import numpy as np
import plotly.graph_objects as go
import polars as pl

from noonward.evaluate.comparison import Comparison
from noonward.evaluate.report.figure_style import lay_out
from noonward.evaluate.table import Figure
from noonward.ledger.record import Record

MOST_JOBS: Final = 12
"""Jobs that are drawn."""
PHASES: Final = {
    "runs": "#0072b2",
    "runs under a power cap": "#56b4e9",
    "writes its checkpoint": "#e69f00",
    "loads it": "#f0d060",
    "work that was lost or done again": "#b03030",
}
"""Phases that hold GPUs, and their colors; where nothing is drawn, the job holds none."""
PHASE_OF: Final = {
    "run": "runs",
    "stop": "writes its checkpoint",
    "load": "loads it",
    "lost": "work that was lost or done again",
    "redo": "work that was lost or done again",
}
"""Phase by kind of segment; the others take no time."""


def segments_figures(comparison: Comparison, environment: int = 0) -> list[Figure]:
    """Returns the figure of the jobs with most segments in one environment; none where no job has several.

    Drawn for the policy with most segments there.

    Args:
        comparison: Comparison.
        environment: Number of the environment.
    """
    tables = {policy: _phases(comparison.records[policy][environment]) for policy in comparison.ranked()}
    policy = max(tables, key=lambda name: len(tables[name]))
    table = tables[policy]
    if table.is_empty():
        return []
    return [_figure(comparison.records[policy][environment], policy, table, environment)]


def _phases(record: Record) -> pl.DataFrame:
    """Returns the segments that take time of the jobs that have several, with their phases."""
    segments = record.segments
    if segments is None:
        return pl.DataFrame(schema={"job": pl.Int64})
    held = segments.filter(pl.col("kind").is_in(list(PHASE_OF)) & (pl.col("to_s") > pl.col("from_s")))
    several = held.group_by("job").len().filter(pl.col("len") > 1)["job"]
    return held.filter(pl.col("job").is_in(several.to_list())).with_columns(
        pl.when((pl.col("kind") == "run") & (pl.col("cap") > 0))
        .then(pl.lit("runs under a power cap"))
        .otherwise(pl.col("kind").replace_strict(PHASE_OF))
        .alias("phase")
    )


def _figure(record: Record, policy: str, table: pl.DataFrame, environment: int) -> Figure:
    """Draws the jobs with most segments, in the order of their starts: a bar per phase, at a height per job."""
    busiest = table.group_by("job").len().sort("len", "job", descending=[True, False])["job"].head(MOST_JOBS)
    shown = table.filter(pl.col("job").is_in(busiest.to_list())).sort("job", "from_s")
    begin = np.datetime64(record.manifest["start"].replace("Z", "").split("+")[0], "ms")
    firsts = shown.group_by("job", maintain_order=True).agg(pl.col("from_s").first()).sort("from_s", "job")
    names = {job: f"job {job}" for job in firsts["job"].to_list()}
    figure = go.Figure()
    for phase, color in PHASES.items():
        part = shown.filter(pl.col("phase") == phase)
        if part.is_empty():
            continue
        from_s, seconds = part["from_s"].to_numpy(), (part["to_s"] - part["from_s"]).to_numpy()
        hover = [f"{site}, {gpus} GPUs" for site, gpus in part.select("site", "gpus").iter_rows()]
        figure.add_bar(
            y=[names[job] for job in part["job"].to_list()], x=1e3 * seconds, orientation="h", name=phase,
            base=begin + (1e3 * from_s).astype("timedelta64[ms]"), marker={"color": color}, customdata=hover,
            hovertemplate=f"%{{y}} {phase}: %{{customdata}}, from %{{base}}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="overlay", bargap=0.35)
    figure.update_xaxes(type="date", title="time (UTC)", tickformat="%H:%M\n%d %b")
    figure.update_yaxes(categoryorder="array", categoryarray=list(names.values()), autorange="reversed", title="job")
    for job, before, after, at_s in _changes(shown):
        figure.add_annotation(
            x=begin + np.timedelta64(round(1e3 * at_s), "ms"), y=names[job], text=after, showarrow=False,
            yshift=14, xanchor="left", hovertext=f"from {before}",
        )  # fmt: skip
    lay_out(figure, 150 + 34 * len(names), legend="above")
    caption = (
        f"{policy}, environment {environment}: the {len(names)} jobs with most phases, numbered by their order of "
        "arrival. Where no bar is drawn, a job holds no GPUs. A label says where a job continues with another number "
        "of GPUs or at another site."
    )
    return Figure(
        name="segments", title="Jobs that were stopped or capped, phase by phase", caption=caption, plot=figure
    )


def _changes(shown: pl.DataFrame) -> list[tuple[int, str, str, float]]:
    """Returns (job, what before, what then, when in s) of every change of site or number of GPUs."""
    out, before = [], None
    for row in shown.select("job", "site", "gpus", "from_s").iter_rows(named=True):
        if before is not None and before["job"] == row["job"]:
            if before["site"] != row["site"]:
                out.append((row["job"], before["site"], row["site"], row["from_s"]))
            elif before["gpus"] != row["gpus"]:
                out.append((row["job"], f"{before['gpus']} GPUs", f"{row['gpus']} GPUs", row["from_s"]))
        before = row
    return out
