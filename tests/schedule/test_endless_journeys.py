"""A journey that takes longer than any run is one that nobody makes: no crash, and the same run as over a link that
is merely too slow.
"""

import json
import subprocess
import sys

import pytest

POLICIES = (
    *("local-fcfs", "random", "cheapest-feasible", "cheapest-unclaimed", "price-greedy"),
    *("booked-perfect", "booked-noisy", "bid-price-perfect", "bid-price-noisy"),
)
DATA = "jobs.kinds.text-generation.data={low_gb: 1e18, high_gb: 1e18}"
MODEL = "jobs.kinds.text-generation.model={low_gb: 1e18, high_gb: 1e18}"
CASES = {
    "merely too slow": ["network.throughput_gb_per_min=1e-6"],
    "link": ["network.throughput_gb_per_min=1e-19"],
    "slowest link": ["network.throughput_gb_per_min=1e-30"],
    "latency": ["network.latency_ms=1e18"],
    "data": [DATA],
    "model and result": [MODEL],
    "link and data": ["network.throughput_gb_per_min=1e-30", DATA],
}
CODE = """
import json, sys
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.ledger.ledger import settle
from noonward.schedule.policies import make_scheduler
for case, settings in json.loads(sys.argv[1]).items():
    environment = build_environment(load_scenario("tiny", settings))
    for policy in json.loads(sys.argv[2]):
        ledger = settle(run(environment, make_scheduler(policy)))
        print(json.dumps([case, policy, ledger.done, ledger.moves, ledger.energy_kwh]), flush=True)
"""
Results = dict[str, dict[str, tuple[int, int, float]]]
ENDS = ("drained", "window")


@pytest.fixture(scope="module")
def all_results() -> Results:
    """Jobs done, moves and energy by case and policy, from a process of its own: a crash is what is tested for."""
    cases = {f"{name}, {end}": [*settings, f"end={end}"] for end in ENDS for name, settings in CASES.items()}
    words = [sys.executable, "-c", CODE, json.dumps(cases), json.dumps(POLICIES)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"exit code {done.returncode} after {lines[-1:]}\n{done.stderr}"
    out: Results = {}
    for case, policy, *values in map(json.loads, lines):
        out.setdefault(case, {})[policy] = (values[0], values[1], values[2])
    return out


@pytest.fixture(params=ENDS)
def results(request: pytest.FixtureRequest, all_results: Results) -> Results:
    """The cases of one end of the window."""
    return {name: all_results[f"{name}, {request.param}"] for name in CASES}


@pytest.mark.parametrize("case", CASES)
def test_nobody_makes_an_endless_journey(results: Results, case: str) -> None:
    assert set(results[case]) == set(POLICIES)
    for policy, (done, moves, _) in results[case].items():
        assert moves == 0, policy
        assert done > 0, policy


@pytest.mark.parametrize("case", ["link", "slowest link", "latency"])
def test_an_endless_link_is_as_good_as_one_that_is_too_slow(results: Results, case: str) -> None:
    assert results[case] == results["merely too slow"]
