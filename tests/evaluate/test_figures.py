import dataclasses
import re

import numpy as np
import pytest

from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.energy_objective import energy_figures
from noonward.evaluate.report.cluster_figures import arrivals_IH, routing_shares, utilisation_map
from noonward.evaluate.report.energy_figures import energy_latency_figure, latency_figure, power_figure
from noonward.evaluate.report.figure_style import (
    INK,
    policy_styles,
    time_ticks,
    utc_hours,
    utilisation_SH,
    window_hours,
)
from noonward.evaluate.report.utility_figures import (
    gain_figure,
    money_figure,
    money_parts,
    outcome_figure,
)

CATEGORIES = {"policy", "site", "ingress"}


@pytest.fixture(scope="module")
def figures(money, energy, frontier):
    return [*money.objective.figures(money), *energy_figures(energy, frontier)]


def axes(figure, letter):
    """The drawn axes of a kind."""
    found = figure.select_xaxes() if letter == "x" else figure.select_yaxes()
    return [axis for axis in found if axis.visible is not False]


def marks(figure, kind="markers"):
    """Named traces that draw marks."""
    return [trace for trace in figure.data if trace.type == "scatter" and trace.mode == kind and trace.name]


def first_only(comparison):
    records = {policy: records[:1] for policy, records in comparison.records.items()}
    return dataclasses.replace(comparison, records=records, bounds=comparison.bounds[:1])


def test_every_axis_carries_name_and_unit(figures):
    for figure in figures:
        for letter in "xy":
            titles = {}
            for axis in axes(figure.plot, letter):
                titles.setdefault(axis.domain, set()).add(axis.title.text)
            for domain, texts in titles.items():
                named = {text for text in texts if text}
                assert named, f"{figure.name}: no title on {letter} axis at {domain}"
                for text in named:
                    assert text in CATEGORIES or re.search(r"[a-z].*\(.+\)$", text), f"{figure.name}: {text!r}"


def test_titles_of_axes_have_room_above_the_titles_of_the_next_row(figures):
    plot = next(figure.plot for figure in figures if figure.name == "outcomes")
    height = plot.layout.height - plot.layout.margin.t - plot.layout.margin.b
    gap = plot.layout.yaxis.domain[0] - plot.layout.yaxis3.domain[1]
    assert gap * height >= 75  # ticks, the axis title and a panel title, 25 px each


def test_every_figure_has_words_and_a_name_of_its_own(figures):
    for figure in figures:
        assert len(figure.title) > 10
        assert figure.caption.endswith(".")
        assert "better" in figure.caption or figure.name in {"utilisation-map", "signals", "routing"}
    names = [figure.name for figure in figures if figure.name != "utilisation"]
    assert len(set(names)) == len(names)


def test_every_policy_stands_in_every_comparing_figure(money, energy, figures):
    for n, figure in enumerate(figures):
        if figure.name != "signals":
            text = figure.plot.to_json()
            assert all(policy in text for policy in (money if n < 6 else energy).records), figure.name


def test_policies_keep_their_colour_and_the_reference_is_dark(money):
    styles = policy_styles(money)
    assert styles["local-fcfs"].color == INK
    assert len({style.color for style in styles.values()}) == len(styles)
    shown = {trace.name: trace.marker.color for trace in marks(gain_figure(money).plot) if trace.name in styles}
    assert shown == {policy: style.color for policy, style in styles.items()}


@pytest.mark.parametrize("name", ["fine-tuning", "dvfs-training", "tiny"])
def test_a_packaged_scenarios_policies_are_told_apart_by_colour(money, name):
    policies = load_scenario(name).policies
    styles = policy_styles(dataclasses.replace(money, reference=policies[0], records={key: [] for key in policies}))
    assert len({style.color for style in styles.values()}) == len(policies)


def test_time_axes_have_few_ticks_and_none_at_the_end(money):
    record = money.records["random"][0]
    for hours in (1, 12, 48, 168, 2000):
        ticks = time_ticks(record, hours)
        assert 1 <= len(ticks) <= 4
        assert ticks[0] == utc_hours(record, 1)[0]
        assert ticks[-1] < utc_hours(record, hours + 1)[-1]


def test_gains_have_the_comparisons_values_and_intervals(money):
    traces = [trace for trace in marks(gain_figure(money).plot) if trace.xaxis == "x"]
    found = {trace.name: trace for trace in traces}
    for policy in money.records:
        estimate, trace = money.gain(policy), found[policy]
        assert trace.x[0] == pytest.approx(100 * estimate.value)
        assert trace.error_x.array[0] == pytest.approx(100 * (estimate.high - estimate.value))
        assert trace.error_x.arrayminus[0] == pytest.approx(100 * (estimate.value - estimate.low))
    assert sum(trace.error_x.array[0] > 0 for trace in found.values()) >= 3
    assert {"upper bound", "best known schedule"} < set(found)


def test_a_fleet_that_minimizes_cost_shows_what_of_it_is_saved(money):
    scenario = money.scenario.model_copy(update={"goal": "least-cost"})
    found = dataclasses.replace(money, scenario=scenario)
    base = found.values(found.reference, "total_usd")
    traces = {trace.name: trace for trace in marks(gain_figure(found).plot) if trace.xaxis == "x"}
    for policy in found.records:
        saved = (base - found.values(policy, "total_usd")).sum() / base.sum()
        assert traces[policy].x[0] == pytest.approx(100 * saved)
    shares = {trace.name: trace.x[0] for trace in marks(gain_figure(found).plot) if trace.xaxis == "x2"}
    assert shares["lower bound"] == pytest.approx(100.0)
    bars = [trace for trace in money_figure(found).plot.data if trace.type == "bar"]
    assert "revenue (U1)" not in {trace.name for trace in bars}
    assert outcome_figure(found).title.startswith("Total cost, ")


def test_one_environment_shows_no_spread(money):
    traces = marks(gain_figure(first_only(money)).plot)
    assert traces
    assert not any(trace.error_x.visible for trace in traces)
    assert any(trace.error_x.visible for trace in marks(gain_figure(money).plot))


def test_parts_of_the_money_sum_to_the_utility(money):
    for records in money.records.values():
        for record in records:
            parts = money_parts(money, record.ledger)
            assert parts.sum() == pytest.approx(record.ledger.utility_usd)
            assert parts[0] > 0 > parts[1]


def test_money_figure_stacks_what_was_earned_and_paid(money):
    figure = money_figure(money).plot
    left = [trace for trace in figure.data if trace.type == "bar" and trace.xaxis == "x"]
    policies = list(left[0].y)
    sums = np.sum([trace.x for trace in left], axis=0)
    assert sums == pytest.approx([money.mean(policy, "utility_usd").value for policy in policies])
    right = [trace for trace in figure.data if trace.type == "bar" and trace.xaxis == "x2"]
    assert np.sum([trace.x for trace in right], axis=0)[policies.index(money.reference)] == 0


def test_utilisation_is_a_share_of_the_gpus_and_its_map_is_the_records(money):
    figure = utilisation_map(money, environment=1).plot
    record = money.records["random"][1]
    share_SH = utilisation_SH(record)
    assert share_SH.shape == (2, 12)
    assert 0 < share_SH.max() <= 100 + 1e-9
    shown = next(trace for trace in figure.data if trace.hovertemplate.startswith("random,"))
    assert np.array_equal(shown.z, share_SH)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_maps_of_few_policies_label_the_lowest_panels(money, count):
    policies = ["local-fcfs", "random", "price-greedy"][:count]
    few = dataclasses.replace(money, records={policy: money.records[policy] for policy in policies})
    shown = axes(utilisation_map(few).plot, "x")
    assert len(shown) == count
    assert sum(axis.title.text == "time (UTC)" for axis in shown) == min(count, 2)


def test_plane_holds_exact_energy_against_the_mean_that_the_bound_holds_for(energy, frontier):
    figure = energy_latency_figure(energy, frontier).plot
    for trace in marks(figure):
        assert trace.x[0] == pytest.approx(energy.mean(trace.name, "mean_time_so_far_s").value)
        assert trace.y[0] == pytest.approx(energy.mean(trace.name, "joules_per_unit").value)
        assert trace.error_y.array[0] > 0
    line = next(trace for trace in figure.data if "frontier" in (trace.name or ""))
    assert np.array_equal(line.x, frontier.mean_time_s_P)
    assert not any("frontier" in (t.name or "") for t in energy_latency_figure(energy).plot.data)


def test_policies_that_leave_work_behind_are_drawn_open(energy):
    def symbols(limit):
        changed = {
            policy: [
                dataclasses.replace(r, ledger=dataclasses.replace(r.ledger, unfinished=int(limit * r.ledger.jobs)))
                for r in records
            ]
            for policy, records in energy.records.items()
        }
        figure = energy_latency_figure(dataclasses.replace(energy, records=changed)).plot
        return [trace.marker.symbol for trace in marks(figure)]

    assert all(symbol.endswith("-open") for symbol in symbols(0.03))
    assert not any(symbol.endswith("-open") for symbol in symbols(0.01))


def test_power_is_the_ledgers_energy_over_time(energy):
    lines = {trace.name: trace for trace in marks(power_figure(energy).plot, "lines")}
    for policy in energy.records:
        assert np.mean(lines[policy].y) * 3 == pytest.approx(energy.mean(policy, "energy_kwh").value)


def test_latency_curves_end_at_the_share_of_jobs_that_finished(energy):
    lines = [t for t in marks(latency_figure(energy).plot, "lines") if t.xaxis == "x"]
    for trace in lines:
        shares = [100 * r.ledger.done / r.ledger.jobs for r in energy.records[trace.name]]
        assert trace.y[-1] == pytest.approx(np.mean(shares))
        assert (np.diff(trace.y) >= 0).all()
    assert len(lines) == len(energy.records)


def test_traffic_shares_sum_to_all_of_an_ingress_points_jobs(energy):
    shares = routing_shares(energy.records["dp"][0])
    assert shares.shape == (8, 8)
    assert shares.sum(axis=1) == pytest.approx(100)
    assert shares.max() < 40


def test_arrivals_are_those_of_every_ingress_point(money, energy):
    for comparison in (money, energy):
        record = first_record(comparison)
        arrivals = arrivals_IH(record, window_hours(record))
        assert arrivals.shape[0] == len(record.manifest["ingress"])
        assert arrivals.sum() == record.jobs.height


def first_record(comparison):
    """Record of the reference policy in the first environment."""
    return comparison.records[comparison.reference][0]
