"""Splits: months and seeds of training, validation and test never meet, and windows stay within their months."""

from datetime import timedelta
from itertools import combinations

import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import FIRST_SEED, MONTHS, SEEDS, split_scenario, split_seed
from noonward.errors import ScenarioError
from noonward.model.cluster.scenario import SignalFiles


def test_no_month_and_no_seed_is_in_two_parts() -> None:
    for one, other in combinations(MONTHS, 2):
        assert not set(MONTHS[one]) & set(MONTHS[other])
        assert abs(FIRST_SEED[one] - FIRST_SEED[other]) >= SEEDS
    assert sorted(month for months in MONTHS.values() for month in months) == list(range(1, 13))


@pytest.mark.parametrize("part", MONTHS)
def test_generated_windows_start_in_the_months_of_their_part(part) -> None:
    scenario = split_scenario(load_scenario("fine-tuning", ["jobs.count=5"]), part)
    for index in range(8):
        assert build_environment(scenario, index, split_seed(part, 0)).start.month in MONTHS[part]


def test_windows_of_files_lie_in_the_months_asked_for_to_their_last_hour(tmp_path) -> None:
    import polars as pl

    base = load_scenario("tiny")
    zones = [site.zone for site in base.fleet.sites]
    hours = pl.datetime_range(pl.datetime(2022, 1, 1), pl.datetime(2022, 12, 31, 23), "1h", time_zone="UTC", eager=True)
    table = pl.concat(
        pl.DataFrame({"timestamp": hours}).with_columns(
            zone=pl.lit(zone), price_usd_per_mwh=pl.lit(30.0), carbon_intensity_g_per_kwh=pl.lit(200.0)
        )
        for zone in dict.fromkeys(zones)
    )
    table.write_parquet(tmp_path / "signals.parquet")
    files = SignalFiles(source="files", paths=(tmp_path / "signals.parquet",))
    scenario = split_scenario(base.model_copy(update={"signals": files, "window_h": 72}), "test")
    for index in range(40):
        start = build_environment(scenario, index, 0).start
        assert start.month in MONTHS["test"]
        assert (start + timedelta(hours=71)).month in MONTHS["test"]


def test_bad_input_is_named() -> None:
    scenario = load_scenario("fine-tuning", ["signals.months=[3]"])
    with pytest.raises(ScenarioError, match=r"none of which is for train"):
        split_scenario(scenario, "train")
    with pytest.raises(ScenarioError, match=r"seed 10000 of test"):
        split_seed("test", 10_000)
