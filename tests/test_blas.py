"""Threads of linear algebra: one in draws, runs and nets, as many as before afterwards."""

from datetime import UTC, datetime

import numpy as np
import pytest

from noonward import blas
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.data.signals.generate import generate_signals
from noonward.engine.run import run
from noonward.forecasts.forecaster import price_and_carbon
from noonward.forecasts.learned import LearnedForecaster, packaged_net
from noonward.schedule.policies import make_scheduler

START = datetime(2022, 4, 1, tzinfo=UTC)


@pytest.fixture
def threads(monkeypatch):
    """A library that notes the numbers of threads it is set to, and how many it has."""
    held = [4]
    monkeypatch.setattr(blas, "_threads", lambda: (lambda: held[-1], held.append))
    return held


def test_one_thread_lasts_as_long_as_the_block_also_where_it_fails(threads):
    with blas.one_thread():
        assert threads[-1] == 1
    assert threads[-1] == 4
    with pytest.raises(KeyError), blas.one_thread():
        raise KeyError
    assert threads[-1] == 4


def test_another_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(blas, "_threads", lambda: None)
    with blas.one_thread():
        assert np.dot([1.0], [2.0]) == 2.0


def test_the_packaged_openblas_is_found_and_set():
    found = blas._threads()
    if found is None:
        pytest.skip("NumPy uses another library than OpenBLAS here")
    read, _ = found
    before = read()
    with blas.one_thread():
        assert read() == 1
    assert read() == before


def test_draws_and_runs_compute_in_one_thread(threads):
    environment = build_environment(load_scenario("tiny"))
    assert threads == [4, 1, 4]
    run(environment, make_scheduler("local-fcfs"))
    assert threads == [4, 1, 4, 1, 4]


def test_a_net_is_evaluated_in_one_thread(threads):
    seen = []

    class Net:
        zones, record = packaged_net().zones, packaged_net().record

        def __call__(self, input_BF):
            seen.append(threads[-1])
            return packaged_net()(input_BF)

    signals = generate_signals(("DE", "FR"), START, 60, np.random.default_rng(0))
    value_KZH = price_and_carbon(signals)
    LearnedForecaster(Net(), signals.zones, START, value_KZH).values(value_KZH, np.array([50]), 10)
    assert (seen, threads[-1]) == ([1], 4)
