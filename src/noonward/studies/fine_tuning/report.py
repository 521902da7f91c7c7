"""The report of ``reproduce fine-tuning``: the paper's claims beside ours, results, training, Figs. 3 to 6."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from noonward.evaluate.comparison import Comparison, summary_rows
from noonward.evaluate.learned import seed_gains
from noonward.evaluate.metrics import Metric
from noonward.evaluate.report.cluster_figures import signals_figure, utilisation_bars, utilisation_map
from noonward.evaluate.report.figure_style import after
from noonward.evaluate.report.page import write_tables
from noonward.evaluate.report.utility_figures import gain_figure, money_figure, outcome_figure
from noonward.evaluate.statistics import Estimate
from noonward.evaluate.table import UNDEFINED, Figure, TextTable, percent
from noonward.schedule.policies import make_scheduler, policies
from noonward.studies.fine_tuning.reproduce import BEST_LEARNED, PAPER_POLICIES, FineTuning, Half
from noonward.studies.fine_tuning.training_figures import training_figures

GOOD_SITES: Final = "sites with low prices and clean power"
"""Sites whose use is better, in words."""
_TEST_CLAIMS = (
    ("utility of MASAC over local FCFS (%)", "gain_over_local-fcfs/masac", "+28.6"),
    ("its share of possible improvement (%)", "improvement_share/masac", "not given"),
    ("share of that gain that is revenue from GPU-hours (%)", "revenue_share_of_gain/masac", "mainly"),
    ("GPU-hours of MASAC over the least of S0 to S3 (%)", "masac_gpu_hours_over/least", "up to +15.6"),
    ("utility of MASAC over MADQN (%)", "masac_gain_over_madqn", "above"),
    ("utility of price greedy over local FCFS (%)", "gain_over_local-fcfs/price-greedy", "above"),
    ("utility of carbon greedy over local FCFS (%)", "gain_over_local-fcfs/carbon-greedy", "above"),
    ("utility of MADQN over local FCFS (%)", "gain_over_local-fcfs/madqn", "above"),
)
"""Claim, metric, and what the paper says (Sec. IV.B)."""
_TRAINING_CLAIMS = (
    ("epochs until MASAC's step reward converges", "converged_epoch/masac", "10", 1.0),
    ("epochs until MADQN's step reward converges", "converged_epoch/madqn", "40", 1.0),
    ("MADQN's step reward as a share of MASAC's (%)", "step_reward_madqn_over_masac", "50", 100.0),
    (
        "fluctuation of MASAC's validation reward, last fifth (%)",
        "validation_fluctuation/masac",
        "stable",
        100.0,
    ),
    (
        "fluctuation of MADQN's validation reward, last fifth (%)",
        "validation_fluctuation/madqn",
        "severe",
        100.0,
    ),
    ("MASAC's migration cost per step, change over training (%)", "migration_change_in_training/masac", "falls", 100.0),
    (
        "MASAC's migration cost per validation run, change over training (%)",
        "migration_change_in_validation/masac",
        "falls",
        100.0,
    ),
)


def claims_tables(found: FineTuning) -> list[TextTable]:
    """Returns the paper's claims beside our results: in test environments, and in training where it was logged."""
    metrics = {metric.name: metric for metric in found.metrics()}
    tables = []
    rows = []
    for claim, name, paper in _TEST_CLAIMS:
        cells = [metrics.get(f"{name}@{half.name}") for half in found.halves]
        if any(cells):
            rows.append((claim, paper, *(_percent(cell) for cell in cells)))
    if rows:
        tables.append(
            TextTable(
                title="The paper's claims in test environments",
                header=("claim", "the paper", *(f"{half.name} environments" for half in found.halves)),
                rows=tuple(rows),
                caption="Paired over the environments, 95% intervals in brackets; a learned policy counts with the "
                "mean over its training seeds in each environment.",
            )
        )
    rows = [
        (claim, paper, _scaled(metrics[name], scale))
        for claim, name, paper, scale in _TRAINING_CLAIMS
        if name in metrics
    ]
    if rows:
        tables.append(
            TextTable(
                title="The paper's claims about training",
                header=("claim", "the paper", "here"),
                rows=tuple(rows),
                caption="Means over training seeds, 95% intervals in brackets. Converged: the first epoch from which "
                "five epochs average 95% of the way from the first epoch to the mean of the last tenth; not defined "
                "where the reward did not rise. Fluctuation: standard deviation over the mean. Curves of "
                "seeds that were trained longer are cut to the shortest.",
            )
        )
    return tables


def seeds_table(found: FineTuning) -> TextTable | None:
    """Returns the learned policies' change of utility seed by seed, or None without any."""
    rows = []
    for half in found.halves:
        for each in found.learned.values():
            gains = 100 * seed_gains(half.runs, each)
            spread = f"{gains.std(ddof=1):.1f}" if len(gains) > 1 else UNDEFINED
            listed = ", ".join(f"{gain:+.1f}" for gain in gains)
            rows.append((each.name, half.name, str(len(gains)), f"{gains.mean():+.1f}", spread, listed))
    if not rows:
        return None
    return TextTable(
        title="How much training seeds differ",
        header=("policy", "environments", "seeds", "mean change (%)", "standard deviation (%)", "by seed (%)"),
        rows=tuple(rows),
        caption="Change of utility against local FCFS over all environments, for each training seed by itself.",
    )


def results_table(half: Half) -> TextTable:
    """Returns the results on one kind of test environments."""
    summary = summary_rows(half.policies)
    return TextTable(
        title=f"Results in {half.name} test environments",
        header=("policy", *(f"{column.title} ({column.unit})" for column in summary.columns)),
        rows=tuple((row.name, *row.cells) for row in summary.rows),
        caption=summary.caption,
    )


def findings(found: FineTuning) -> list[str]:
    """Returns the findings as sentences, with the numbers of the metrics."""
    values = {metric.name: metric for metric in found.metrics()}
    out = []
    for half in found.halves:
        out += _masac_findings(half, values)
        best = next((name for name in half.policies.ranked() if not foresees(name)), half.policies.reference)
        gain, share = half.policies.gain(best), half.policies.improvement_share(best)
        rule = _best_rule(half)
        more = values.get(f"improvement_share_more/{rule}@{half.name}")
        if more is not None and rule != half.policies.reference:
            out.append(
                f"{BEST_LEARNED} less {rule}, the best rule here that does not know the future, in shares of the gap "
                f"in {half.name} environments: {_percent(more)} points."
            )
        out.append(
            f"Best in {half.name} environments without knowing the future: {best}, "
            f"{percent(gain, signed=True)}% over local FCFS, {percent(share)}% of the possible improvement."
        )
    return out


def _best_rule(half: Half) -> str:
    """Returns the best policy that neither learned nor knows the future."""
    rules = {policy.name for policy in policies(trained=False, kind="cluster")}
    found = half.policies
    return next((name for name in found.ranked() if name in rules and not foresees(name)), found.reference)


def _masac_findings(half: Half, values: dict[str, Metric]) -> list[str]:
    """Returns how MASAC does on one kind of environments, and what drives where it differs from the paper."""
    found, at = half.policies, f"@{half.name}"
    if "masac" not in found.records:
        return []
    gain, hours = (values[f"{name}{at}"] for name in ("gain_over_local-fcfs/masac", "masac_gpu_hours_over/local-fcfs"))
    most = max(found.records, key=lambda policy: found.mean(policy, "gpu_hours").value)
    room = found.mean(most, "gpu_hours").value / found.mean("local-fcfs", "gpu_hours").value - 1
    out = [
        f"MASAC against local FCFS in {half.name} environments: {_percent(gain)}% utility (the paper: +28.6%), "
        f"{_percent(hours)}% GPU-hours.",
        f"What drives it: of all policies here {most} runs most GPU-hours, {100 * room:.1f}% more than local FCFS. "
        "Revenue grows with GPU-hours alone; what is gained beyond comes from cheaper and cleaner energy.",
    ]
    share = values[f"revenue_share_of_gain/masac{at}"]
    if share.value is not None:
        out[1] += f" Revenue from GPU-hours is {100 * share.value:.0f}% of MASAC's gain (the paper: mainly)."
    madqn = values.get(f"masac_less_madqn_usd{at}")
    if madqn is not None and madqn.value is not None:
        more = "more" if madqn.value > 0 else "less"
        apart = madqn.low is not None and madqn.high is not None and madqn.low * madqn.high > 0
        steps = [found.mean(policy, "steps").value for policy in ("masac", "madqn")]
        out.append(
            f"MASAC earns {abs(madqn.value):.1f} USD {more} than MADQN per {half.name} environment"
            + ("" if apart else ", a difference that cannot be distinguished from zero")
            + f"; it takes {steps[0]:,.0f} decision steps, MADQN {steps[1]:,.0f}."
        )
    return out


def _estimate(metric: Metric | None) -> Estimate:
    if metric is None or metric.value is None:
        return Estimate(float("nan"))
    return Estimate(metric.value, metric.low, metric.high)


def _percent(metric: Metric | None) -> str:
    """Returns a metric in percent with its interval."""
    return percent(_estimate(metric), signed=True)


def _scaled(metric: Metric, scale: float) -> str:
    """Returns a metric in another unit with its interval."""
    if metric.value is None:
        return UNDEFINED
    text = f"{scale * metric.value:.1f}"
    if metric.low is None or metric.high is None:
        return text
    return f"{text} [{scale * metric.low:.1f}, {scale * metric.high:.1f}]"


def foresees(policy: str) -> bool:
    """Returns whether a policy is shown a forecast made from the truth, as it is or with an error: nobody has that."""
    forecast = make_scheduler(policy).needs.forecast
    return forecast is not None and forecast.kind in ("perfect", "noisy")


def chosen(comparison: Comparison) -> Comparison:
    """Returns the paper's policies of a comparison and the best of the others, for figures hour by hour."""
    others = [name for name in comparison.ranked() if name not in PAPER_POLICIES and not foresees(name)]
    kept = [*(name for name in PAPER_POLICIES if name in comparison.records), *others[:1]]
    return dataclasses.replace(comparison, records={name: comparison.records[name] for name in kept})


def figures(found: FineTuning) -> list[Figure]:
    """Returns Figs. 3 to 6, the gains, and where the money goes, for each kind of test environments."""
    out = []
    for half in found.halves:
        out.append(_of(half, gain_figure(half.policies), "Gains"))
    out += training_figures(list(found.learned.values()), found.rules_in_validation)
    first = " Of a learned policy the first training seed is shown."
    first = first if any(len(each.members) > 1 for each in found.learned.values()) else ""
    for half in found.halves:
        out += [
            _of(half, after(signals_figure(half.days), "MASAC, Fig. 3"), "Arrivals, prices and carbon over five days"),
            _of(
                half,
                after(utilisation_map(chosen(half.policies)), "MASAC, Fig. 5"),
                "Utilization hour by hour in one environment",
                first,
            ),
            _of(half, utilisation_bars(half.policies, GOOD_SITES), "Mean utilization of the sites", first),
            _of(half, after(outcome_figure(half.policies), "MASAC, Fig. 6"), "Utility, GPU-hours, cost and carbon"),
            _of(half, money_figure(half.policies), "Where the money comes from and goes"),
        ]
    return out


def _of(half: Half, figure: Figure, title: str, more: str = "") -> Figure:
    """Returns a figure whose title says which environments it shows."""
    return dataclasses.replace(
        figure,
        name=f"{figure.name}-{half.name}",
        title=f"{title}: {half.name} test environments",
        caption=figure.caption + more,
    )


def write_fine_tuning(found: FineTuning, path: Path, *, command: str) -> Path:
    """Writes the report, one HTML file that loads nothing from anywhere.

    Args:
        found: Reproduction.
        path: File; its folder is made.
        command: The command that made it.
    """
    first = found.halves[0].policies
    count = len(first.bounds)
    lead = (
        "Zhang, Xu, Lim and Niyato: Sustainable AIGC Workload Scheduling of Geo-Distributed Data Centers: A "
        f"Multi-Agent Reinforcement Learning Approach. Rules and learned policies over {count} test environments "
        f"{'each' if len(found.halves) > 1 else ''} ({' and '.join(half.name for half in found.halves)}), the same for "
        "every policy, until every job is done or dropped, held against an upper bound."
    ).replace("  ", " ")
    notes = [*found.notes, *(note for half in found.halves for note in half.policies.notes)]
    seeds = seeds_table(found)
    tables = [
        *claims_tables(found),
        *(results_table(half) for half in found.halves),
        *([] if seeds is None else [seeds]),
    ]
    return write_tables(
        "Fine-tuning jobs over regional data centers: the paper's comparison",
        lead,
        tables,
        figures(found),
        path,
        notes=list(dict.fromkeys(notes)),
        findings=findings(found),
        command=command,
    )
