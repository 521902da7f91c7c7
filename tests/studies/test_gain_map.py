"""The map of gains: cells are run once and read back, pairs are compared with the paper's, the page and the command."""

import json
import math

import pytest

from command_line import CommandLine
from noonward.data.scenarios.load import load_scenario
from noonward.studies.fine_tuning import gain_map
from noonward.studies.fine_tuning.gain_map import Cell, Earned, GainMap, cells, map_gains
from noonward.studies.fine_tuning.gain_map_report import map_findings, map_table, pair_figure, write_gain_map

TWO = (
    Cell(name="low", varied="demand and power", demand=0.5, settings=("jobs.demand=0.5",)),
    Cell(name="high", varied="demand and power", demand=1.5, settings=("jobs.demand=1.5",)),
)
RULES = ("local-fcfs", "price-greedy", "carbon-greedy", "cheapest-feasible")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def found(folder):
    return map_gains(environments=2, out=folder, scenario="tiny", policies=RULES, over=TWO)


def test_a_map_has_every_policy_and_the_bound_in_every_cell(found):
    assert found.policies == RULES
    for cell in TWO:
        best = found.utility_usd_E(cell, "bound")
        for policy in RULES:
            assert (found.utility_usd_E(cell, policy) <= best + 1e-9).all()
    low, high = (found.gpu_hours_E(cell, "local-fcfs").sum() for cell in TWO)
    assert high > low  # settings reach the scenario


def test_what_was_computed_is_read_back_and_what_was_cut_short_is_not(found, folder, monkeypatch):
    place = folder / "reproduce-fine-tuning-map-seed0" / "low" / "001.json"
    written = place.read_text()
    place.write_text(written[:100])
    ran = []
    engine = gain_map.run
    monkeypatch.setattr(gain_map, "run", lambda *args, **more: ran.append(args) or engine(*args, **more))
    again = map_gains(environments=2, out=folder, scenario="tiny", policies=RULES, over=TWO)
    assert len(ran) == len(RULES)  # one environment of four
    assert place.read_text() == written
    assert again.metrics() == found.metrics()


def pair(gain, hours, spread=0.01):
    """A map of one cell in which masac gains about this much; S0 has most GPU-hours of the others, S1 least."""
    earned = tuple(
        Earned(
            utility_usd={"local-fcfs": 100.0, "price-greedy": 110.0, "masac": 100 * (1 + gain + d), "bound": 150.0},
            gpu_hours={"local-fcfs": 1200.0, "price-greedy": 1000.0, "masac": 1000 * (1 + hours + d)},
            of={},
        )
        for d in (-spread, 0.0, spread)
    )  # fmt: skip
    names = ("local-fcfs", "price-greedy", "masac")
    return GainMap(cells=TWO[:1], policies=names, earned={"low": earned}, members={name: (name,) for name in names})


def test_gains_are_over_local_fcfs_and_gpu_hours_over_the_least_of_the_others():
    one = pair(0.25, 0.10)
    assert one.gain(TWO[0], "masac").value == pytest.approx(0.25)
    assert one.more_hours(TWO[0], "masac").value == pytest.approx(0.10)
    assert one.improvement_share(TWO[0], "masac").value == pytest.approx(0.5)
    assert one.distance(TWO[0], "masac") == pytest.approx(0.056)


@pytest.mark.parametrize(("gain", "hours", "holds"), [(0.286, 0.156, True), (0.286, 0.30, False), (0.4, 0.156, False)])
def test_the_pair_holds_only_where_both_numbers_lie_within_the_intervals(gain, hours, holds):
    one = pair(gain, hours)
    assert one.holds_pair(TWO[0], "masac") is holds
    assert ("●" in map_table(one).rows[0][2]) is holds
    assert ("in 1 of 1 cells" in map_findings(one)[0]) is holds


def test_a_change_over_a_loss_is_not_defined_and_not_drawn():
    one = pair(0.286, 0.156)
    for each in one.earned["low"]:
        each.utility_usd["local-fcfs"] = -1.0
    assert math.isnan(one.gain(TWO[0], "masac").value)
    assert not one.holds_pair(TWO[0], "masac")
    assert map_table(one).rows[0][2].startswith("–")
    assert pair_figure(one).plot.data[0].x == ()


def test_every_cell_is_a_scenario_of_its_own():
    digests = {load_scenario("fine-tuning", list(cell.settings)).digest for cell in cells()}
    assert len(digests) == len(cells()) == len({cell.name for cell in cells()})


def test_the_page_shows_table_and_figure(found, tmp_path):
    page = write_gain_map(found, tmp_path / "report.html", environments=2, seed=0, command="noonward x").read_text()
    assert "cheapest-feasible" in page
    assert "noonward x" in page
    assert len(pair_figure(found).plot.data) > 0


def test_the_command_prints_the_map(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    noonward = CommandLine(monkeypatch, capsys)
    monkeypatch.setattr(gain_map, "cells", lambda: list(TWO))
    changed = {"scenario": "tiny", "policies": RULES}
    monkeypatch.setattr(map_gains, "__kwdefaults__", map_gains.__kwdefaults__ | changed)
    answer = noonward("reproduce", "fine-tuning", "--map", "-n", 1, "--workers", 1, "--json")
    assert answer.code == 0, answer.err
    names = [figure["name"] for figure in json.loads(answer.out)["figures"]]
    assert "map/low/gain/cheapest-feasible" in names
    assert noonward("reproduce", "fine-tuning", "--map", "--ablations").code == 2
    assert noonward("reproduce", "fine-tuning", "--map", "--policies", "masac").code == 2
