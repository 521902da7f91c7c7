"""``reproduce dvfs-training --ablations``: the ablation study of CHSAC-AF, beside baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from noonward.bound.cluster_energy import environment_energy_bound
from noonward.data.splits import split_seed
from noonward.evaluate.compare import compare
from noonward.evaluate.comparison import Comparison
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean
from noonward.evaluate.table import UNDEFINED, TextTable, number_by_seed
from noonward.runtime.executor import Executor, Progress, map_runs
from noonward.runtime.runs import environment_of
from noonward.studies.dvfs_training.controls import frontier_energy
from noonward.studies.dvfs_training.short_training import (
    ABLATIONS,
    DRAW,
    LIMIT_S,
    SETTINGS,
    WORLD,
    Ablation,
    Reached,
    ShortTraining,
    window_scenario,
)

SEEDS: Final = 3
"""Training seeds of each."""
WINDOWS: Final = 3
"""Validation windows that all policies are compared in."""
WINDOW_H: Final = 48
"""Hours of such a window."""
TRADEOFFS: Final = (0, 1, 2, 4, 7, 10, 15, 20, 30, 50, 100, 200, 300)
"""Weights W of ``greedy-tradeoff(watts=W)``, J per second in system: the control at every mean time."""
CONTROLS: Final = (
    *(f"greedy-tradeoff(watts={watts})" for watts in TRADEOFFS),
    *("greedy-energy(gpus=1)", "random-free", "jointnf"),
)
SHOWN: Final[tuple[str, ...]] = ("greedy-tradeoff(watts=10)", "greedy-energy(gpus=1)", "random-free", "jointnf")
"""Controls that the table shows."""


@dataclass(frozen=True, kw_only=True)
class Ablated:
    """What the trainings reached. Axes: K training seeds, E windows.

    Attributes:
        ablations: What was changed in each.
        reached: What each seed reached, by ablation.
        controls: Rules in the same windows.
        bound_of: Least energy per unit at the mean time of a control per window, J, by control.
    """

    ablations: tuple[Ablation, ...]
    reached: dict[str, list[Reached]]
    controls: Comparison
    bound_of: dict[str, list[float]]

    def above_tradeoff(self, joules_E: Sequence[float], time_s_E: Sequence[float]) -> float:
        """Returns how far energy per unit lies above ``greedy-tradeoff`` at equal mean time, a fraction.

        The control at a mean time is the lower convex hull of all weights in the same window. NaN where the mean time
        lies below that of every weight.

        Args:
            joules_E: Energy per unit, J.
            time_s_E: Mean time over all arrivals, s.
        """
        names = [name for name in self.controls.records if name.startswith("greedy-tradeoff")]
        return float(np.sum(joules_E) / frontier_energy(self.controls, names, time_s_E).sum() - 1.0)

    def rows(self) -> list[tuple[str, str, dict[str, list[float]]]]:
        """Returns name, words and figures, a number a training seed, of every training and of some controls."""
        out = []
        for each in self.ablations:
            found = self.reached[each.name]
            own = {"multiplier": [k.multiplier for k in found], "entropy": [k.entropy for k in found]}
            figures = [
                self._figures(k.joules_per_unit_E, k.mean_time_so_far_s_E, k.mean_time_in_system_s_E, k.bound_E)
                for k in found
            ]
            out.append((each.name, each.says, {**_columns(figures), **own}))
        for name in SHOWN:
            if name in self.controls.records:
                joules_E, time_s_E, done_time_s_E = (
                    self.controls.values(name, field).tolist()
                    for field in ("joules_per_unit", "mean_time_so_far_s", "mean_time_in_system_s")
                )
                figures = [self._figures(joules_E, time_s_E, done_time_s_E, self.bound_of[name])]
                out.append((name, "a rule", _columns(figures)))
        return out

    def _figures(
        self,
        joules_E: Sequence[float],
        time_s_E: Sequence[float],
        done_time_s_E: Sequence[float],
        bound_E: Sequence[float],
    ) -> dict[str, float]:
        """Returns the figures of one policy, over all windows."""
        return {
            "j_per_unit_exact": float(np.mean(joules_E)),
            "mean_time_so_far_s": float(np.mean(time_s_E)),
            "over_limit": float(np.mean(done_time_s_E) / LIMIT_S - 1.0),
            "above_bound": float(np.sum(joules_E) / np.sum(bound_E) - 1.0),
            "above_tradeoff": self.above_tradeoff(joules_E, time_s_E),
        }

    def metrics(self) -> list[Metric]:
        """Returns the metrics for ``--json``, ``ablation/QUANTITY/NAME``; intervals are over training seeds."""
        return [
            Metric.of(f"ablation/{name}/{of}", mean(values), _UNITS[name])
            for of, _, figures in self.rows()
            for name, values in figures.items()
        ]


_UNITS: Final = {
    "j_per_unit_exact": "J/unit",
    "mean_time_so_far_s": "s",
    "over_limit": "fraction",
    "above_bound": "fraction",
    "above_tradeoff": "fraction",
    "multiplier": "J/unit",
    "entropy": "nats",
}


def _columns(figures: list[dict[str, float]]) -> dict[str, list[float]]:
    """Returns figures by name, a number a training seed."""
    return {name: [each[name] for each in figures] for name in figures[0]}


def study_ablations(
    out: Path,
    *,
    seeds: int = SEEDS,
    windows: int = WINDOWS,
    window_h: float = WINDOW_H,
    settings: Sequence[str] = SETTINGS,
    world: Sequence[str] = WORLD,
    ablations: Sequence[Ablation] = ABLATIONS,
    controls: Sequence[str] = CONTROLS,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Ablated:
    """Trains every ablation from some seeds and compares what was learned in validation windows, beside controls.

    Args:
        out: Folder of all records. Trainings that are kept there are not made again.
        seeds: Training seeds of each.
        windows: Windows that all are compared in.
        window_h: Hours of each.
        settings: Settings of all trainings.
        world: Settings of the scenario that they train in.
        ablations: Trainings.
        controls: Rules beside them.
        progress: Called once per training and once per run of a control.
        executor: Where trainings and runs are carried out; by default here, one after the other.
    """
    folder = out / "reproduce-dvfs-training" / "ablations"
    specs = [
        ShortTraining(
            ablation=ablation, seed=seed, settings=tuple(settings), world=tuple(world), windows=windows,
            window_h=window_h, folder=folder,
        )
        for seed in range(seeds)
        for ablation in ablations
    ]  # fmt: skip
    seed = split_seed("validation", DRAW)
    compared = compare(
        window_scenario(window_h), controls, environments=windows, seed=seed, out=out, bound=False,
        progress=progress, executor=executor,
    )  # fmt: skip
    found = map_runs(specs, executor, progress)
    reached: dict[str, list[Reached]] = {each.name: [] for each in ablations}
    for spec, each in zip(specs, found, strict=True):
        reached[spec.ablation.name].append(each)
    bound_of = {
        name: [
            environment_energy_bound(environment_of(window_scenario(window_h), e, seed), time_s)
            for e, time_s in enumerate(compared.values(name, "mean_time_so_far_s").tolist())
        ]
        for name in SHOWN
        if name in compared.records
    }
    return Ablated(ablations=tuple(ablations), reached=reached, controls=compared, bound_of=bound_of)


def ablations_table(found: Ablated) -> TextTable:
    """Returns a row per training, with the spread over training seeds, then the controls."""
    rows = []
    for name, says, figures in found.rows():
        above = figures["above_tradeoff"]
        rows.append(
            (
                name,
                says,
                number_by_seed(mean(figures["j_per_unit_exact"]), 3),
                number_by_seed(mean(figures["mean_time_so_far_s"]), 0),
                number_by_seed(_scaled(figures["above_bound"]), 2),
                number_by_seed(_scaled(above), 2),
                ", ".join(UNDEFINED if np.isnan(each) else f"{100 * each:.2f}" for each in above),
                number_by_seed(_scaled(figures["over_limit"]), 1),
                number_by_seed(mean(figures["multiplier"]), 2) if "multiplier" in figures else UNDEFINED,
                number_by_seed(mean(figures["entropy"]), 2) if "entropy" in figures else UNDEFINED,
            )
        )
    return TextTable(
        title="Ablations: one correction removed at a time",
        header=(
            "training", "correction removed", "energy per unit, exact (J/unit)", "mean time, all arrivals (s)",
            "above the bound at that time (%)", "above greedy-tradeoff at that time (%)", "by seed (%)",
            "mean time above the limit (%)", "multiplier (J/unit)", "entropy (nats)",
        ),
        rows=tuple(rows),
        caption=f"Short trainings under a mean time of at most {LIMIT_S:,.0f} s, compared in validation windows; mean "
        "± standard deviation over training seeds. The bound is the least energy per unit of any scheduler with that "
        "mean time; greedy-tradeoff at a mean time is the lower convex hull over its weights. Rules know no limit.",
    )  # fmt: skip


def _scaled(fractions: Sequence[float]) -> Estimate:
    """Returns the mean of fractions, in percent."""
    return mean(100.0 * np.asarray(fractions))
