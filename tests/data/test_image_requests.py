"""Image requests: drawn by the laws of a real trace, or read from a file."""

import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from noonward.data.edge.environments import build_edge_environment
from noonward.data.edge.sessions import draw_loads, draw_requests, request_laws
from noonward.data.edge.trace import load_requests
from noonward.data.scenarios.load import load_scenario, with_files
from noonward.engine.edge.engine import run_edge_environment
from noonward.errors import DataError, ScenarioError
from noonward.ledger.edge import settle_edge
from noonward.schedule.edge.rules import PatientReuse

REAL = Path(os.environ.get("NOONWARD_DATA", "absent")) / "genai_requests.parquet"
HITS = {1: 0.25, 2: 0.43, 4: 0.66, 8: 0.85, 16: 0.95}
"""Shares of requests whose model is among the last few used, in the trace."""


def least_recently_used(models, slots):
    """Share of requests whose model is in a cache of some slots."""
    kept, hits = [], 0
    for model in models:
        if model in kept:
            kept.remove(model)
            hits += 1
        kept.append(model)
        del kept[:-slots]
    return hits / len(models)


@pytest.fixture(scope="module")
def days():
    """Requests of 23 days."""
    source = load_scenario("edge-inference-real").tasks.model_copy(update={"hours": 552.0, "start_hour": 0.0})
    return draw_requests(source, np.random.default_rng(0))


def test_requests_come_at_the_rate_and_in_the_hours_of_the_trace(days):
    assert len(days) / (552 * 3600) == pytest.approx(0.0135, rel=0.05)
    assert (np.diff(days.arrival_s_K) >= 0).all()
    share = np.bincount((days.arrival_s_K // 3600 % 24).astype(int), minlength=24) / len(days)
    assert share == pytest.approx(np.array(request_laws()["share_of_day_by_hour"]), abs=0.02)


def test_models_come_again_as_in_the_trace(days):
    for slots, hits in HITS.items():
        assert least_recently_used(days.model_K.tolist(), slots) == pytest.approx(hits, abs=0.05)
    assert np.bincount(days.model_K).argmax() == 0
    alone = np.random.default_rng(1).permutation(days.model_K)
    assert least_recently_used(alone.tolist(), 1) < 0.18  # without sessions


def test_images_and_steps_have_the_shares_of_the_trace(days):
    images, steps = request_laws()["images"], request_laws()["steps"]
    for count, share in zip(images["count"], images["share"], strict=True):
        assert (days.images_K == count).mean() == pytest.approx(share, abs=0.03)
    assert (days.steps_K == 30).mean() == pytest.approx(steps["share"][steps["count"].index(30.0)], abs=0.02)


def test_loads_have_warm_and_cold_modes():
    load_s = draw_loads(np.zeros(20_000, np.int64), np.random.default_rng(0))
    assert (load_s < 10).mean() == pytest.approx(0.36, abs=0.02)
    assert ((load_s > 14) & (load_s < 30)).mean() > 0.2
    adapters = np.random.default_rng(1).choice([0, 1], 20_000, p=[0.835, 0.165])
    modes, adapter = request_laws()["model_load"], request_laws()["adapter_load"]
    mean_s = np.average(np.array(modes["median_s"]) * np.exp(np.square(modes["sigma"]) / 2), weights=modes["share"])
    mean_s += 0.165 * adapter["median_s"] * np.exp(adapter["sigma"] ** 2 / 2)
    assert draw_loads(adapters, np.random.default_rng(0)).mean() == pytest.approx(mean_s, rel=0.03)


@pytest.fixture
def trace(tmp_path):
    """Two busy hours around an empty one."""
    rng = np.random.default_rng(3)
    at_s = np.r_[np.sort(rng.uniform(0, 3600, 20)), np.sort(rng.uniform(7200, 10800, 30))]
    table = {
        "arrival_s": at_s[::-1],
        "base_model": [["a", "b", None][n % 3] for n in range(50)],
        "num_images": [[1.0, 3.0, 8.0, None][n % 4] for n in range(50)],
        "num_inference_steps": [30.0] * 50,
    }
    path = tmp_path / "requests.parquet"
    pl.DataFrame(table).write_parquet(path)
    return path


def test_a_trace_is_run_window_by_window(trace):
    scenario = with_files(load_scenario("edge-inference-real", ["tasks.hours=1"]), jobs=trace)
    first, second = (build_edge_environment(scenario, n, 0) for n in range(2))
    assert (len(first.tasks), len(second.tasks)) == (20, 30)
    assert second.tasks.stamp_s_K[-1] < 3600
    assert set(first.tasks.gang_K.tolist()) <= {1, 4}  # 3 and 8 images: the largest gang
    assert settle_edge(run_edge_environment(first, PatientReuse())).images == 20
    with pytest.raises(ScenarioError, match="has 2 windows of 1 h with at least 16 requests"):
        build_edge_environment(scenario, 2, 0)
    slow = load_scenario("edge-inference-real", [f"tasks={json.dumps(scenario.tasks.model_dump(mode='json'))}"])
    slower = slow.model_copy(update={"tasks": slow.tasks.model_copy(update={"time_scale": 2.0})})
    stamps = build_edge_environment(slower, 0, 0).tasks.stamp_s_K
    assert stamps == pytest.approx(2 * first.tasks.stamp_s_K, abs=0.2)


def test_wrong_files_are_refused(tmp_path, trace):
    pl.read_parquet(trace).with_columns(num_images=pl.lit(0.5)).write_parquet(tmp_path / "few.parquet")
    with pytest.raises(
        DataError, match=r"few.parquet, row 1, column 'num_images': the value 0.5 is not allowed; give a number"
    ):
        load_requests(tmp_path / "few.parquet")
    with pytest.raises(ScenarioError, match="takes no files of signals"):
        with_files(load_scenario("edge-inference-real"), signals=[trace])


@pytest.mark.skipif(not REAL.is_file(), reason="needs the trace: set NOONWARD_DATA to its folder")
def test_the_real_trace_runs():
    requests = load_requests(REAL)
    assert len(requests) == 26823
    for slots, hits in HITS.items():
        assert least_recently_used(requests.model_K.tolist(), slots) == pytest.approx(hits, abs=0.01)
    scenario = with_files(load_scenario("edge-inference-real"), jobs=REAL)
    assert len(build_edge_environment(scenario, 5, 0).tasks) >= 16
