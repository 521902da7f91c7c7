"""``reproduce dvfs-training --sweep``: other arrival rates, fleets and laws of size, against the bound (Sec. VII)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import plotly.graph_objects as go

from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import split_seed
from noonward.evaluate.compare import compare
from noonward.evaluate.comparison import Comparison
from noonward.evaluate.energy_objective import environment_bounds
from noonward.evaluate.metrics import Metric
from noonward.evaluate.report.figure_style import SITE_COLORS, SYMBOLS, lay_out, whiskers
from noonward.evaluate.report.page import write_tables
from noonward.evaluate.statistics import Estimate, ratio
from noonward.evaluate.table import Figure, TextTable, number, percent
from noonward.runtime.executor import Executor

if TYPE_CHECKING:
    from noonward.model.cluster.scenario import Scenario

SCENARIO: Final = "dvfs-training"
SWEPT: Final = 3
"""Environments of a point."""
WINDOW_H: Final = 48
"""Hours of an environment."""
MEAN_WORK: Final = 50000.0 * math.exp(0.4**2 / 2)
"""Mean work of a job, units: that of the packaged law, which all laws of the sweep have."""
POLICIES: Final = (
    "jointnf",
    "random-free",
    "greedy-energy(gpus=1)",
    "greedy-energy(gpus=8)",
    "greedy-tradeoff(watts=100)",
    "chsac-af",
)
"""The paper's best baseline, controls along the frontier, and the learned policy (its first training seed)."""
TAIL: Final = 1.8
"""Exponent of the Pareto law."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A set of parameters of the sweep.

    Attributes:
        name: Name, fit for a figure's name.
        says: What differs from the packaged scenario, in words.
        settings: Settings of the scenario.
        gpus: GPUs of every site in place of the scenario's, or empty.
    """

    name: str
    says: str
    settings: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()

    def scenario(self, window_h: float = WINDOW_H) -> Scenario:
        """Returns the scenario."""
        found: Scenario = load_scenario(SCENARIO, [f"window_h={window_h:g}", *self.settings])
        return found.model_copy(update={"fleet": found.fleet.with_gpus(self.gpus)}) if self.gpus else found


def points() -> list[Point]:
    """Returns the sweep: arrival rate from half to twice, fleet shares, and laws of size of the same mean."""
    out = [
        Point(
            name=f"rate-{factor:g}",
            says=f"{factor:g} x the paper's arrivals",
            settings=(f"jobs.rate_per_s={0.02 * factor:g}",),
        )
        for factor in (0.5, 1.0, 1.5, 2.0)
    ]
    out += [
        Point(name="fleet-equal", says="186 GPUs at every site", gpus=(186,) * 8),
        Point(
            name="fleet-swapped",
            says="large and small sites swapped: 512 H100-SXM5 and H200, 16 A30 and A10",
            gpus=(128, 256, 32, 512, 16, 512, 16, 16),
        ),
    ]
    for sigma in (0.0, 1.0):
        median = MEAN_WORK / math.exp(sigma**2 / 2)
        says = f"log-normal sizes, sigma {sigma:g}" if sigma else "all jobs of the same size"
        settings = (f"jobs.sigma={sigma:g}", f"jobs.median_work={median:.6g}")
        out.append(Point(name=f"size-sigma-{sigma:g}", says=says, settings=settings))
    least = MEAN_WORK * (TAIL - 1) / TAIL
    work = f"{{law: pareto, work_min: {least:.6g}, tail: {TAIL:g}}}"
    pareto = f"jobs={{source: mixed, classes: {{training: {{rate_per_s: 0.02, work: {work}}}}}}}"
    out.append(Point(name="size-pareto", says=f"Pareto sizes, exponent {TAIL:g}", settings=(pareto,)))
    return out


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What policies do at every point.

    Attributes:
        points: Points.
        found: Comparison by point.
        least: Least energy per unit at each policy's own mean time per environment, J, by point and policy.
    """

    points: tuple[Point, ...]
    found: Mapping[str, Comparison]
    least: dict[tuple[str, str], Sequence[float]]

    def above_bound(self, point: Point, policy: str) -> Estimate:
        """Returns how far a policy's energy per unit lies above the bound at its own mean time, as a fraction."""
        energy_E = self.found[point.name].values(policy, "joules_per_unit")
        least_E = self.least[point.name, policy]
        return ratio(energy_E - least_E, least_E)

    def completed(self, point: Point, policy: str) -> Estimate:
        """Returns completed jobs over those of the policy that completes most, paired, as a fraction."""
        found = self.found[point.name]
        most = max(found.records, key=lambda name: found.mean(name, "done").value)
        return ratio(found.values(policy, "done"), found.values(most, "done"))

    def metrics(self) -> list[Metric]:
        """Returns the metrics for ``--json``: ``sweep/POINT/QUANTITY/POLICY``."""
        out = []
        for point in self.points:
            found = self.found[point.name]
            for policy in found.records:
                name = f"sweep/{point.name}"
                time = found.mean(policy, "mean_time_so_far_s")
                out += [
                    Metric.of(f"{name}/j_per_unit_exact/{policy}", found.mean(policy, "joules_per_unit"), "J/unit"),
                    Metric.of(f"{name}/mean_time_so_far_s/{policy}", time, "s"),
                    Metric.of(f"{name}/above_bound/{policy}", self.above_bound(point, policy), "fraction"),
                    Metric.of(f"{name}/completed_share/{policy}", self.completed(point, policy), "fraction"),
                ]
        return out


def sweep(
    out: Path,
    *,
    environments: int = SWEPT,
    policies: Sequence[str] = POLICIES,
    over: Sequence[Point] | None = None,
    window_h: float = WINDOW_H,
    progress: Callable[[str], None] | None = None,
    executor: Executor | None = None,
) -> Sweep:
    """Runs policies at every point over environments that no training sees, held against the bound.

    Args:
        out: Folder of all records; what is recorded already is kept.
        environments: Environments of a point.
        policies: Policies. Learned ones were trained at the packaged scenario's parameters alone.
        over: Points; by default all.
        window_h: Hours of an environment.
        progress: Called once per run and bound.
        executor: Where runs are carried out; by default here, one after the other.
    """
    chosen = tuple(points() if over is None else over)
    found = {
        point.name: compare(
            point.scenario(window_h),
            policies,
            environments=environments,
            seed=split_seed("test", 0),
            out=out,
            progress=progress,
            executor=executor,
        )
        for point in chosen
    }
    least = {
        (name, policy): environment_bounds(each, policy).tolist()
        for name, each in found.items()
        for policy in each.records
    }
    return Sweep(points=chosen, found=found, least=least)


def sweep_table(found: Sweep) -> TextTable:
    """Returns a row per point and policy."""
    rows = []
    for point in found.points:
        each = found.found[point.name]
        for policy in each.records:
            rows.append(
                (
                    point.name,
                    policy,
                    number(each.mean(policy, "joules_per_unit"), 3),
                    number(each.mean(policy, "mean_time_so_far_s"), 0),
                    percent(found.above_bound(point, policy), digits=2),
                    percent(found.completed(point, policy)),
                )
            )
    says = "; ".join(f"{point.name}: {point.says}" for point in found.points)
    return TextTable(
        title="Other arrival rates, fleets and laws of size",
        header=(
            "parameters", "policy", "energy per unit, exact (J/unit)", "mean time, all arrivals (s)",
            "above the bound at that time (%)", "completed jobs, share of the most (%)",
        ),
        rows=tuple(rows),
        caption=f"{says}. All else is as in the paper; the mean size is always the same. The bound is the least energy "
        "per unit of any scheduler with that mean time in system.",
    )  # fmt: skip


def sweep_figure(found: Sweep) -> Figure:
    """Draws how far every policy lies above the bound, a point a set of parameters."""
    figure = go.Figure()
    names = [point.name for point in found.points]
    policies = list(dict.fromkeys(policy for each in found.found.values() for policy in each.records))
    for n, policy in enumerate(policies):
        above = [found.above_bound(point, policy) for point in found.points]
        color = SITE_COLORS[n % len(SITE_COLORS)]
        figure.add_scatter(
            x=names, y=[100 * each.value for each in above], mode="markers", name=policy,
            marker={"color": color, "symbol": SYMBOLS[n % len(SYMBOLS)], "size": 10},
            error_y=whiskers(above, color, 100.0),
        )  # fmt: skip
    lay_out(figure, 460, legend="right")
    figure.update_xaxes(title_text="parameters")
    figure.update_yaxes(title_text="energy above the bound at the policy's mean time (%)", type="log", dtick=1)
    return Figure(
        name="sweep",
        title="Distance to the bound under other parameters",
        caption="Energy per unit above the least that any scheduler with the same mean time in system needs; lower is "
        "better. Whiskers: 95% intervals.",
        plot=figure,
    )


def write_sweep(found: Sweep, path: Path, *, environments: int, command: str) -> Path:
    """Writes the page, one HTML file that loads nothing from anywhere.

    Args:
        found: Sweep.
        path: File; its folder is made.
        environments: Environments of a point.
        command: The command that made it.
    """
    return write_tables(
        "CHSAC-AF's setting under other parameters",
        "The paper leaves other workloads and fleets to future work (Sec. VII). Here arrival rate, fleet shares and "
        f"the law of size vary, one at a time: {environments} environments of {WINDOW_H} h that no training sees.",
        [sweep_table(found)],
        [sweep_figure(found)],
        path,
        command=command,
    )
