import importlib.util
import json
from importlib.resources import files
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from noonward.data.jobs.calibration import load_workload_calibration
from noonward.data.jobs.kernels import CELL_S, burst_factors
from noonward.data.jobs.load import load_job_trace
from noonward.data.local_time import zone_timezones

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = REPOSITORY.parent / "shared"
TABLE = load_workload_calibration()


def test_weights_have_mean_one_and_shares_sum_to_one():
    assert TABLE.hour_weight_H.shape == (24,)
    assert TABLE.weekday_weight_D.shape == (7,)
    assert TABLE.hour_weight_H.mean() == pytest.approx(1, abs=1e-4)
    assert TABLE.weekday_weight_D.mean() == pytest.approx(1, abs=1e-4)
    assert TABLE.gpus_share_G.sum() == pytest.approx(1)
    assert (TABLE.gpus_share_G @ TABLE.gpus_G) == pytest.approx(TABLE.mean_gpus, rel=1e-4)


def test_quantiles_ascend_and_cover_every_gpu_count():
    assert (np.diff(TABLE.duration_s_KQ, axis=1) >= 0).all()
    assert TABLE.duration_s_KQ.shape == (len(TABLE.group_low_K), len(TABLE.probability_Q))
    assert TABLE.duration_s_KQ.min() >= 300
    assert TABLE.probability_Q[[0, -1]].tolist() == [0, 1]
    assert TABLE.group_low_K[0] == TABLE.gpus_G[0] == 1


def test_the_licence_and_the_source_are_stated_inside():
    assert "CC BY 4.0" in TABLE.source["trace"]
    assert "MIT" in TABLE.source["by_way_of"]


def test_arrival_weight_is_hour_weight_times_weekday_weight_monday_first():
    sunday_23h = (6 * 24 + 23.99) * 3600.0
    weight = TABLE.arrival_weight(np.array([0.0, sunday_23h]))
    assert weight[0] == TABLE.hour_weight_H[0] * TABLE.weekday_weight_D[0]
    assert weight[1] == TABLE.hour_weight_H[23] * TABLE.weekday_weight_D[6]
    assert TABLE.weekday_weight_D[5:].max() < TABLE.weekday_weight_D[:5].min()


def test_draws_have_the_means_of_the_trace():
    rng = np.random.default_rng(3)
    gpus = TABLE.draw_gpus(200_000, rng)
    duration_s = TABLE.draw_duration_s(gpus, rng)
    assert gpus.mean() == pytest.approx(TABLE.mean_gpus, rel=0.03)
    assert duration_s.mean() == pytest.approx(TABLE.mean_duration_s, rel=0.03)


@pytest.mark.parametrize(("gpus", "group"), [(1, 0), (3, 2), (7, 4), (8, 5), (24, 7), (400, 8)])
def test_a_duration_comes_from_its_gangs_group(gpus, group):
    duration_s = TABLE.draw_duration_s(np.full(20_000, gpus), np.random.default_rng(4))
    wanted = TABLE.duration_s_KQ[group, [25, 50, 75]]
    np.testing.assert_allclose(np.quantile(duration_s, [0.25, 0.5, 0.75]), wanted, rtol=0.12)


def test_burst_factors_reproduce_the_traces_overdispersion_in_blocks_of_every_length():
    cells = 400_000
    factor = burst_factors(TABLE.burst_period_s_L, TABLE.burst_cv2_L, cells, np.random.default_rng(5))
    assert factor.mean() == pytest.approx(1, abs=0.03)
    for period_s, cv2 in zip(TABLE.burst_period_s_L, TABLE.block_cv2_L, strict=True):
        width = int(period_s / CELL_S)
        block = factor[: cells // width * width].reshape(-1, width).mean(axis=1)
        assert block.var() == pytest.approx(cv2, rel=0.15)


def test_every_packaged_time_zone_exists():
    zones = zone_timezones()
    assert len(zones) > 100
    for name in zones.values():
        assert ZoneInfo(name).key == name


@pytest.mark.skipif(not (SHARED / "data/jobs_pai.parquet").exists(), reason="the PAI trace is not on this machine")
def test_the_packaged_table_is_what_the_trace_gives():
    spec = importlib.util.spec_from_file_location("calibrate_workload", REPOSITORY / "tools/calibrate_workload.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    packaged = json.loads((files("noonward.data") / "tables/workload_calibration.json").read_text())
    assert tool.calibrate(load_job_trace(SHARED / "data/jobs_pai.parquet"), tool.SOURCE) == packaged
