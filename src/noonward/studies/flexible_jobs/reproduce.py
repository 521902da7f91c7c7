"""``reproduce flexible-jobs``: suspension, resizing and their overheads, held against what others published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noonward.errors import ScenarioError
from noonward.evaluate.metrics import Metric
from noonward.evaluate.table import TextTable
from noonward.studies.flexible_jobs.carbonscaler import ScalerFound, hold_against_carbonscaler
from noonward.studies.flexible_jobs.emerald import FieldFound, hold_against_field_test
from noonward.studies.flexible_jobs.gaia import AT_ONCE, GaiaFound, hold_against_gaia

LARGEST_ERROR: Final = 0.03
"""Largest error of a job's energy that the model is meant to have."""
GAIA_LEFT_OUT: Final = (
    "GAIA's suspension, for want of --gaia FILE (github.com/umassos/GAIA, src/cluster_traces/pai_1k.csv)"
)
SCALER_LEFT_OUT: Final = (
    "CarbonScaler's schedules, for want of --carbonscaler FILE (github.com/umassos/CarbonScaler, src/profiles/)"
)
APS_LEFT_OUT: Final = (
    "the field test, for want of --aps FILE (github.com/ai-emerald/emerald-ai-demo-may-2025, the power of jobs by "
    "minute as CSV)"
)


@dataclass(frozen=True, kw_only=True)
class FlexibleStudy:
    """What was found.

    Attributes:
        gaia: Carbon of GAIA's jobs, or None where its file was not given.
        scaler: Comparison of schedules, one per profile.
        field: Energy of the field test's jobs.
        left_out: Which parts were left out, and what they need.
    """

    gaia: GaiaFound | None
    scaler: tuple[ScalerFound, ...]
    field: tuple[FieldFound, ...]
    left_out: tuple[str, ...]

    def metrics(self) -> list[Metric]:
        """Returns the metrics for ``--json``; those of parts left out are not in it."""
        out = []
        if self.gaia is not None:
            out.append(Metric.of("gaia/carbon_relative_error", self.gaia.relative_error, "fraction", 0.0))
            for name, grams in self.gaia.engine_g.items():
                out.append(Metric.of(f"gaia/carbon_g/{name}", grams, "g", self.gaia.published_g[name]))
                out.append(Metric.of(f"gaia/suspensions/{name}", self.gaia.suspensions[name], "suspensions"))
        if self.scaler:
            most = max(each.difference for each in self.scaler)
            out.append(Metric.of("carbonscaler/schedule_difference", float(most), "nodes", 0.0))
            for each in self.scaler:
                out.append(Metric.of(f"carbonscaler/schedules/{each.name}", float(each.schedules), "schedules"))
                out.append(Metric.of(f"carbonscaler/saved/{each.name}", each.saved, "fraction"))
        if self.field:
            largest = max(abs(job.error) for job in self.field)
            out.append(Metric.of("aps/largest_job_energy_error", largest, "fraction", LARGEST_ERROR))
            for job in self.field:
                out.append(Metric.of(f"aps/energy_kwh/{job.name}", job.modelled_kwh, "kWh", job.measured_kwh))
        return out


def reproduce_flexible(
    gaia: Path | None, carbonscaler: Sequence[Path], aps: Path | None, signals: list[Path], *, seed: int = 0
) -> FlexibleStudy:
    """Compares the engine, the marginal greedy and the model of overheads with what others published.

    Args:
        gaia: GAIA's table of jobs, or None.
        carbonscaler: CarbonScaler's profiles.
        aps: The field test's table of power, or None.
        signals: Files that hold the carbon intensity of GAIA's region; none: it is generated.
        seed: Seed of the generator.

    Raises:
        ScenarioError: No file was given.
        DataError: A file is wrong.
        SignalRangeError: The signal files do not hold the hours.
    """
    if gaia is None and not carbonscaler and aps is None:
        raise ScenarioError(f"nothing to compare with. Left out: {GAIA_LEFT_OUT}; {SCALER_LEFT_OUT}; {APS_LEFT_OUT}")
    parts = ((gaia is None, GAIA_LEFT_OUT), (not carbonscaler, SCALER_LEFT_OUT), (aps is None, APS_LEFT_OUT))
    return FlexibleStudy(
        gaia=None if gaia is None else hold_against_gaia(gaia, signals, seed),
        scaler=tuple(hold_against_carbonscaler(profile, signals, seed) for profile in carbonscaler),
        field=() if aps is None else tuple(hold_against_field_test(aps)),
        left_out=tuple(words for absent, words in parts if absent),
    )


def flexible_table(study: FlexibleStudy) -> TextTable:
    """Returns what was found, one row per policy, profile or job."""
    rows = []
    if study.gaia is not None:
        for name, grams in study.gaia.engine_g.items():
            known = study.gaia.published_g[name]
            saved = 1.0 - grams / study.gaia.engine_g[AT_ONCE]
            rows.append(
                (f"GAIA, {name}", f"{grams:,.2f} g", f"{known:,.2f} g", f"{grams / known - 1:+.1e}", f"{saved:.1%}")
            )
    for each in study.scaler:
        rows.append(
            (
                f"CarbonScaler, {each.name}",
                f"{each.schedules} schedules",
                f"{each.schedules} schedules",
                f"{each.difference} nodes",
                f"{each.saved:.1%}",
            )
        )
    for job in study.field:
        rows.append(
            (
                f"field test, {job.name}",
                f"{job.modelled_kwh:.2f} kWh",
                f"{job.measured_kwh:.2f} kWh",
                f"{job.error:+.1%}",
                "",
            )
        )
    where = "" if study.gaia is None or study.gaia.real else " (generated intensities)"
    return TextTable(
        title="jobs that bend, against what others published",
        header=("what", "ours", "theirs", "difference", "carbon saved"),
        rows=tuple(rows),
        caption=(
            f"GAIA: emissions of its jobs by our engine and by its definitions{where}. CarbonScaler: nodes by which "
            "schedules differ. Field test: each job's energy by our model of stops and resumes, and as measured. "
            "Carbon saved: against running at once, unbroken and on one node."
        ),
    )
