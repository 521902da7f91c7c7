"""The benchmark of submissions over HTTP: what it names, and that it counts what the service stored."""

import pytest

from noonward.bench import live_http
from noonward.errors import ScenarioError


def test_it_measures_a_service_of_its_own(monkeypatch):
    monkeypatch.setattr(live_http, "BATCHES", 1)
    monkeypatch.setattr(live_http, "BATCH", 50)
    steps = []
    found = {m.name: m for m in live_http.bench_http(steps.append, seconds=0.5, rate_per_s=200.0)}
    assert list(found) == [
        "live/http_jobs_per_s", "live/http_p99_ms", "live/rss_growth_mib_per_1e6_jobs", "live/http_batch_jobs_per_s",
    ]  # fmt: skip
    assert 0 < found["live/http_jobs_per_s"].value <= 210
    assert found["live/http_p99_ms"].value > 0
    assert len(steps) == 2


def test_many_sites_with_jobs_that_wait_tell_how_long_a_round_of_decisions_takes(monkeypatch):
    """A service over five sites of some hundred GPUs, of which those that wait would take 16,000."""
    monkeypatch.setattr(live_http, "BATCHES", 1)
    monkeypatch.setattr(live_http, "BATCH", 50)
    more = {"seconds": 0.5, "rate_per_s": 100.0, "slot_s": 1.0}
    found = {m.name: m.value for m in live_http.bench_http(lambda step: None, sites=5, waiting=250, **more)}
    assert 0 < found["live/round_p50_s"] <= found["live/round_p90_s"] <= found["live/round_p99_s"]
    assert 0 < found["live/http_jobs_per_s"] <= 105


def test_it_decides_as_often_as_it_is_told(monkeypatch):
    asked = []

    def served(content, *, slot_s):
        asked.append(slot_s)
        raise KeyboardInterrupt

    monkeypatch.setattr(live_http, "served", served)
    for given in ({}, {"slot_s": 20.0}):
        with pytest.raises(KeyboardInterrupt):
            live_http.bench_http(lambda step: None, **given)
    assert asked == [3600.0, 20.0]


def test_it_decides_by_the_policy_that_is_named(monkeypatch):
    decides = []

    def served(content, *, slot_s):
        decides.append(content["policy"])
        raise KeyboardInterrupt

    monkeypatch.setattr(live_http, "served", served)
    for given in ({}, {"sites": 3}, {"sites": 3, "policy": "patient"}, {"policy": "patient"}):
        with pytest.raises(KeyboardInterrupt):
            live_http.bench_http(lambda step: None, **given)
    assert decides == ["local-fcfs", "cheapest-unclaimed", "patient", "patient"]


def test_jobs_that_would_wait_for_an_hour_are_refused():
    with pytest.raises(ScenarioError, match=r"every 3600 s; let it decide at least every 600 s, e\.g\. --every 20s"):
        live_http.bench_http(lambda step: None, waiting=10)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("nonsense", "unknown policy 'nonsense'"),
        ("dp", "does not answer the protocol each-slot"),
        ("bid-price-perfect", "ended before it was ready"),
    ],
)
def test_a_policy_that_a_service_cannot_ask_is_refused(policy, words):
    with pytest.raises(ScenarioError, match=words):
        live_http.bench_http(lambda step: None, policy=policy)


def test_what_is_not_stored_is_an_error(monkeypatch):
    monkeypatch.setitem(live_http._JOB, "class", "nowhere")
    with pytest.raises(RuntimeError, match="422"):
        live_http.bench_http(lambda step: None, seconds=0.1, rate_per_s=100.0)
