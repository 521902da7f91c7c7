"""How far the replay of a log differs from the log: jobs that start later, elsewhere or not at all."""

from __future__ import annotations

import polars as pl

from noonward.decision.brief import REPLAY_SLOT_S
from noonward.evaluate.answer import lasting
from noonward.evaluate.comparison import Comparison
from noonward.schedule.cluster.what_happened import WHAT_HAPPENED


def replay_notes(comparison: Comparison) -> list[str]:
    """Returns what must be known of a comparison's replay of a log; nothing where there is none."""
    if WHAT_HAPPENED not in comparison.records:
        return []
    columns = ["arrival_s", "start_s", "site", "recorded_start_s", "recorded_site"]
    tables = [
        pl.read_parquet(record.folder / "jobs.parquet", columns=columns) for record in comparison.records[WHAT_HAPPENED]
    ]
    jobs = pl.concat([table.with_columns(pl.col("site", "recorded_site").cast(pl.String)) for table in tables])
    slot_s = min(comparison.scenario.slot_s, REPLAY_SLOT_S)
    later_s = jobs["start_s"] - pl.select(pl.max_horizontal(jobs["arrival_s"], jobs["recorded_start_s"])).to_series()
    late_s = later_s.fill_nan(None).drop_nulls().to_numpy()
    late_s = late_s[late_s >= slot_s - 1e-6]
    moved = jobs.filter(pl.col("start_s").is_finite() & (pl.col("site") != pl.col("recorded_site"))).height
    never = jobs.filter(~pl.col("start_s").is_finite()).height
    count = jobs.height
    others = f"the other policies decide every {comparison.scenario.slot_s:g} s"
    rule = f"a job of the log starts in the first second with room at or after its recorded start; {others}"
    sentences = [f"what-happened replays the log: {rule}"]
    if len(late_s):
        sentences.append(
            f"what-happened: {len(late_s):,} of {count:,} jobs start later than recorded, "
            f"{lasting(float(late_s.mean()))} on average and {lasting(float(late_s.max()))} at most: the fleet as "
            "described has no room for them then, "
            "or their data arrives later"
        )
    if moved:
        sentences.append(f"what-happened: {moved:,} of {count:,} jobs run at another site than recorded")
    if never:
        sentences.append(f"what-happened: {never:,} of {count:,} jobs do not start at all in the fleet as described")
    return sentences
