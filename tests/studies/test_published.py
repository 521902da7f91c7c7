"""What published prices earn: the fleet, pairs, shares, the table and the command."""

import json

import numpy as np
import pytest

from command_line import CommandLine
from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.statistics import ratio
from noonward.model.markets import day_ahead_market
from noonward.studies.fine_tuning.published import (
    PARTS,
    POLICIES,
    ZONES,
    european,
    published_table,
    runs_of,
    study_published,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The fleet of fine-tuning with few jobs."""
    path = tmp_path_factory.mktemp("scenario") / "small.yaml"
    path.write_text("extends: fine-tuning\nname: small\nwindow_h: 12\njobs: {count: 80}\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def found(folder, small):
    steps = []
    study = study_published(environments=2, out=folder, scenario=small, progress=lambda *step: steps.append(step))
    assert len(steps) == runs_of(2)
    return study


def test_the_fleet_is_that_of_the_paper_in_zones_with_a_day_ahead_market():
    paper, made = load_scenario("fine-tuning"), european(load_scenario("fine-tuning"))
    assert made.fleet.site_names == ZONES
    assert [site.gpus for site in made.fleet.sites] == [site.gpus for site in paper.fleet.sites]
    assert list(made.jobs.origin_shares.values()) == list(paper.jobs.origin_shares.values())
    assert all(day_ahead_market(site.zone).name == "sdac" for site in made.fleet.sites)


def test_windows_of_validation_and_test_lie_in_their_months(found):
    for part, allowed in (("test", {3, 6, 9, 12}), ("validation", {4, 10})):
        assert set(found.by_part[part].scenario.signals.months) == allowed


def test_points_are_the_paired_difference_of_the_shares_of_the_gap(found):
    for part in PARTS:
        first, second = (
            found.improvement_share(part, policy).value
            for policy in ("bid-price-published-learned", "bid-price-learned")
        )
        assert found.gained(part, "bid_price_learned").value == pytest.approx(100 * (first - second), abs=1e-9)
        comparison = found.by_part[part]
        learned_E, published_E, perfect_E = (
            comparison.values(name, "utility_usd")
            for name in ("bid-price-learned", "bid-price-published-learned", POLICIES[3])
        )
        assert found.distance_closed(part) == ratio(published_E - learned_E, perfect_E - learned_E)
        assert found.better(part, "bid_price_learned") == np.sum(published_E > learned_E)


def test_metrics_and_table_hold_both_parts(found):
    names = [metric.name for metric in found.metrics()]
    assert "published/points_over_bid_price_learned" in names
    assert "published/points_over_bid_price_learned@validation" in names
    table = published_table(found, 2, real=False)
    assert table.header == ("policy", "test months", "validation months")
    assert "generated" in table.caption


def test_the_command_reads_back_what_was_recorded(found, folder, small, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    noonward = CommandLine(monkeypatch, capsys)
    monkeypatch.setattr(study_published, "__kwdefaults__", {**study_published.__kwdefaults__, "scenario": small})
    told = ("reproduce", "fine-tuning", "--published", "-n", 2, "--out", folder, "--workers", 1)
    answer = json.loads(noonward(*told, "--json").out)
    printed = {figure["name"]: figure["value"] for figure in answer["figures"]}
    measured = {metric.name: metric.value for metric in found.metrics()}
    former = {name.replace("improvement_share", "gap_closed"): value for name, value in measured.items()}
    assert printed == measured | former
    assert "bid-price-published-learned over bid-price-learned, points" in " ".join(noonward(*told).out.split())
    assert noonward("reproduce", "fine-tuning", "--published", "--knowledge").code == 2
    assert noonward("reproduce", "fine-tuning", "--published", "--jobs", "jobs.csv").code == 2
