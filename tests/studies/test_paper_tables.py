import dataclasses
import math

import polars as pl
import pytest

from noonward.ledger.record import Record
from noonward.studies.dvfs_training.tables import (
    DAYS,
    PUBLISHED,
    j_per_unit_paper,
    paper_metrics,
    paper_units,
    queues_at,
    table_ii,
    table_iii,
)

NAN = math.nan


def made(record, folder, horizon_s, **columns):
    """A record of hand-made jobs that used 1 kWh."""
    pl.DataFrame(columns).write_parquet(folder / "jobs.parquet")
    ledger = dataclasses.replace(record.ledger, job_kwh=0.75, free_kwh=0.25)
    return Record(folder=folder, manifest={"ended_s": horizon_s}, ledger=ledger, service=record.service)


@pytest.fixture
def some(energy):
    return energy.records["dp"][0]


def test_papers_counter_by_hand(some, tmp_path):
    columns = {"start_s": [25.0, 50.0, NAN], "finish_s": [65.0, 200.0, NAN], "units_per_s": [2.0, 3.0, NAN]}
    record = made(some, tmp_path, 110.0, **columns)
    done = 2.0 * (65 - 20)  # from the tick before its start to its end
    running = 3.0 * 20 * (5 - 2)  # ticks 60, 80, 100
    assert paper_units(record) == done + running
    assert j_per_unit_paper(record) == pytest.approx(3.6e6 / (done + running))


def test_papers_counter_is_exact_for_starts_on_a_tick_and_above_otherwise(some, tmp_path):
    on_tick = made(some, tmp_path, 100.0, start_s=[40.0], finish_s=[75.0], units_per_s=[2.0])
    assert paper_units(on_tick) == 70.0
    between = made(some, tmp_path, 100.0, start_s=[59.0], finish_s=[75.0], units_per_s=[2.0])
    assert paper_units(between) == 70.0 > 2.0 * 16


def test_no_work_has_no_energy_per_unit(some, tmp_path):
    record = made(some, tmp_path, 100.0, start_s=[NAN], finish_s=[NAN], units_per_s=[NAN])
    assert math.isnan(j_per_unit_paper(record))


def test_queue_counts_jobs_that_reached_a_site_and_have_not_started(some, tmp_path):
    day = 86400.0
    columns = {
        "reach_s": [1.0, day, day + 1, 5.0, NAN],
        "start_s": [2.0, NAN, NAN, day + 5, NAN],
    }
    record = made(some, tmp_path, 2 * day, **columns)
    assert queues_at(record, [1, 2]) == [2, 2]


def test_published_baselines_are_reproduced_to_the_printed_digit(published):
    metrics = {metric.name: metric for metric in paper_metrics(published)}
    for policy in ("dp", "ucb1", "jointnf"):
        assert metrics[f"completed_jobs/{policy}"].value == PUBLISHED[policy].completed
        assert f"{metrics[f'j_per_unit_paper/{policy}'].value:.2f}" == f"{PUBLISHED[policy].joules_per_unit:.2f}"
        for day, queue in zip(DAYS, PUBLISHED[policy].queue, strict=True):
            assert metrics[f"queue_day_{day}/{policy}"].value == queue == metrics[f"queue_day_{day}/{policy}"].reference
    assert metrics["j_per_unit_exact/dp"].value == pytest.approx(11.98, abs=0.005)


def test_tables_hold_ours_beside_the_papers(published):
    two, three = table_ii(published), table_iii(published)
    assert two.rows[0] == ("dp", "60,595", "60,595", "11.80", "11.80", "11.98")
    assert three.rows[0][1:] == three.rows[1][1:]
    assert three.rows[1][0] == "DP, paper"
    assert {len(row) for row in (*two.rows, two.header)} == {6}
    assert {len(row) for row in (*three.rows, three.header)} == {7}


def test_other_policies_and_other_draws_are_told_apart(energy, published):
    rows = {row[0]: row for row in table_ii(energy).rows}
    assert rows["greedy-energy(gpus=2)"][2] == "–"
    assert list(rows) == ["dp", "jointnf", "greedy-energy(gpus=2)"]
    assert "other draws" in table_ii(energy).caption
    assert "other draws" not in table_ii(published).caption
