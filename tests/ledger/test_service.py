"""Latency per class, queues and power of a run: by hand, and against a plain count on random queues."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.two_jobs import HOUR_S, played
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.ledger.ledger import settle
from noonward.ledger.service import Service, measure_service
from noonward.ledger.sweep import sweep_power, sweep_queues
from noonward.model.limits import Constraints
from noonward.schedule.policies import make_scheduler
from noonward.sorting import time_order

quick = settings(deadline=None, derandomize=True)


def test_two_jobs_by_hand():
    limits = Constraints(power_cap_w={"a": 1000.0, "b": 200.0}, latency_target_s={"c": 2 * HOUR_S})
    service = measure_service(played(constraints=limits))
    # Job 0 waits from 0:00 to 0:30 at a, job 1 from 0:10 to 1:30 at b; job 0 is done after 1:30, job 1 after 2:30.
    assert service.longest_queue == 2
    assert [service.sites[name].longest_queue for name in "ab"] == [1, 1]
    assert service.sites["a"].mean_queue == pytest.approx(0.5 / 2.5)
    assert service.sites["b"].mean_queue == pytest.approx((80 / 60) / 2.5)
    only = service.classes["c"]
    assert (only.jobs, only.done, only.within_target) == (2, 2, 0.5)
    assert only.mean_time_in_system_s == pytest.approx(2 * HOUR_S)
    # Site a: 2 x 100 W free, 1000 + 100 W from 0:30 to 1:30, PUE 1.5; b: 100 W free, 1000 W from 1:30 on, PUE 2.
    a, b = service.sites["a"], service.sites["b"]
    assert (a.peak_power_w, a.mean_power_w, a.over_cap_share) == pytest.approx((1650.0, (300 + 1650) / 2, 0.5))
    assert (b.peak_power_w, b.mean_power_w, b.over_cap_share) == pytest.approx((2000.0, 0.75 * 200 + 0.25 * 2000, 0.25))


def test_without_limits_nothing_is_judged():
    service = measure_service(played())
    assert service.classes["c"].within_target is None
    assert service.sites["a"].over_cap_share is None


def test_jobs_beyond_their_target_when_the_run_ends_count_as_missing_it():
    scenario = load_scenario("dvfs-training", ["window_h=3"])
    for target_s, judged in ((1.0, "all"), (1e9, "done")):
        environment = build_environment(
            scenario.model_copy(update={"constraints": Constraints(latency_target_s={"training": target_s})})
        )
        training = measure_service(run(environment, make_scheduler("greedy-energy(gpus=4)"))).classes["training"]
        assert training.within_target == (0.0 if judged == "all" else 1.0)
        assert training.done < training.jobs


def test_a_service_is_read_back_as_it_was():
    service = measure_service(played())
    assert Service.from_dict(service.as_dict()) == service


@pytest.mark.parametrize("policy", ["uniform", "greedy-tradeoff(watts=300)"])
def test_mean_power_is_the_ledgers_energy(policy):
    outcome = run(build_environment(load_scenario("dvfs-mixed", ["window_h=3"])), make_scheduler(policy))
    service, ledger = measure_service(outcome), settle(outcome)
    mean_w = sum(site.mean_power_w for site in service.sites.values())
    assert mean_w * 3 / 1000 == pytest.approx(ledger.energy_kwh, rel=1e-9)
    assert all(site.peak_power_w >= site.mean_power_w > 0 for site in service.sites.values())
    assert sum(one.done for one in service.classes.values()) == ledger.done
    assert max(site.longest_queue for site in service.sites.values()) <= service.longest_queue


@quick
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 1)), max_size=12),
    st.integers(1, 30),
)
def test_queues_are_those_counted_at_every_time(jobs, ended):
    reach = np.array([float(at) for at, _, _ in jobs])
    start = np.array([float(at + wait) if wait < 9 else np.nan for at, wait, _ in jobs])
    site = np.array([s for _, _, s in jobs], np.int64)
    left = np.flatnonzero(~np.isnan(start))
    longest, waited = np.zeros(2, np.int64), np.zeros(2)
    total = np.zeros(3, np.int64)
    sweep_queues(
        reach, start, site, time_order(reach), left[time_order(start[left])], float(ended), np.zeros(2, np.int64),
        longest, waited, total,
    )  # fmt: skip
    waiting = [  # a job waits from its reach to before its start
        [
            sum(at <= t and not by <= t for at, by, q in zip(reach, start, site, strict=True) if q == s)
            for t in range(40)
        ]
        for s in (0, 1)
    ]
    assert longest.tolist() == [max(each) for each in waiting]
    assert total[2] == max(map(sum, zip(*waiting, strict=True)))
    assert waited.tolist() == [sum(each[:ended]) for each in waiting]


@quick
@given(st.lists(st.floats(0, 1e9) | st.integers(0, 3).map(float), max_size=40))
def test_times_are_ordered_as_a_stable_sort_orders_them(times):
    assert time_order(np.array(times)).tolist() == np.argsort(times, kind="stable").tolist()


segments = st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(1, 9), st.integers(1, 5))


@quick
@given(st.lists(segments, min_size=1, max_size=10), st.integers(1, 12))
def test_power_is_that_counted_second_by_second(parts, window):
    site, begin, length, watts = (np.array(column) for column in zip(*parts, strict=True))
    end = begin + length
    cap_w, free_w = np.array([6.0, np.inf]), np.array([2.0, 3.0])
    out = np.zeros((2, 4))
    sweep_power(
        site, begin.astype(float), end.astype(float), watts.astype(float), time_order(begin.astype(float)),
        time_order(end.astype(float)), float(window), free_w.copy(), np.zeros(2), cap_w, out, np.zeros(2, np.int64),
        len(site),
    )  # fmt: skip
    for s in (0, 1):
        power = [free_w[s] + watts[(site == s) & (begin <= t) & (end > t)].sum() for t in range(window)]
        assert out[s].tolist() == [sum(power), max(power), sum(w > cap_w[s] for w in power), window]
