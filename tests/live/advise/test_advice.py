"""Advice: arithmetic that can be done by hand, running jobs, what the policy leaves as it is, what does not fit."""

from datetime import UTC, datetime, timedelta
from math import ceil, cos, pi

import pytest

from noonward.data.scenarios.load import scenario_from
from noonward.errors import DataError, ScenarioError, SignalRangeError
from noonward.live.advise import advice
from noonward.live.advise.advice import Options, advise
from noonward.live.advise.squeue import QueuedJob

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SITES = [
    {"name": "solo", "zone": "A", "gpu_type": "card", "gpus": 8, "pue": 1.5},
    {"name": "duo", "zone": "B", "gpu_type": "card", "gpus": 4, "pue": 1.5},
]
OPTIONS = Options(policy="booked-persistence", reference="local-fcfs", now=NOON)


def scenario(sites=1, **changed):
    """Sites with the same price and carbon every day: highest at 18 h, lowest at 6 h; a GPU draws 20 W or 120 W."""
    content = {
        "name": "own", "protocol": "each-slot", "slot_s": 300, "window_h": 24, "end": "drained",
        "goal": "least-cost", "baseline": "local-fcfs",
        "fleet": {
            "gpu_types": {
                "card": {"idle_w": 20, "classes": {"job": {"power": {"constant_w": 120}, "time": "duration"}}}
            },
            "sites": SITES[:sites],
        },
        "network": {"throughput_gb_per_min": 1, "usd_per_gb": 0, "kwh_per_gb": 0},
        "signals": {
            "source": "sinusoidal", "price_usd_per_mwh": 50, "carbon_g_per_kwh": 200, "amplitude": 1.0,
            "peak_hours": {site["zone"]: 18 for site in SITES[:sites]},
        },
        "jobs": {
            "source": "fine-tuning", "count": 5, "origin_shares": {site["name"]: 1 for site in SITES[:sites]},
            "gpus_cap": 4, "demand": 0.5,
            "kinds": {"job": {"share": 1, "data": {"low_gb": 0, "high_gb": 0}, "model": {"low_gb": 0, "high_gb": 0}}},
        },
        "economics": {"revenue_usd_per_gpu_hour": 2, "carbon_usd_per_t": 100},
        **changed,
    }  # fmt: skip
    return scenario_from(content, "test")


def job(number="1", **changed):
    given = {
        "id": number, "name": "a", "running": False, "gpus": 8, "left_s": 3600.0, "cluster": None, "partition": "p",
        "command": None, "not_now": "",
    }  # fmt: skip
    return QueuedJob(**{**given, **changed})


def price(hour):
    return 50 * (1 + cos(2 * pi * (hour - 18) / 24))


def test_a_job_waits_for_the_cheapest_hour_and_saves_what_arithmetic_says():
    (row,) = advise(scenario(), [job()], OPTIONS).rows
    assert (row.site, row.start) == ("solo", datetime(2026, 3, 2, 6, tzinfo=UTC))
    mwh = 8 * (120 - 20) * 1.5 / 1e6  # an hour of eight GPUs beyond their idle power
    assert row.saved_usd == pytest.approx(mwh * (price(12) - price(6)), abs=1e-9)
    assert row.saved_kg == pytest.approx(4 * mwh * (price(12) - price(6)), abs=1e-9)
    assert row.reason == "18.0 h later: 0 instead of 50 USD/MWh, 0 instead of 200 g/kWh"
    assert not row.moved


def test_a_job_starts_at_most_so_much_later_than_otherwise():
    (row,) = advise(scenario(), [job()], Options(**{**vars(OPTIONS), "later_h": 0.0})).rows
    assert row.start == NOON
    assert row.reason == "as it would run anyway"
    assert row.saved_usd == 0.0
    (row,) = advise(scenario(), [job()], Options(**{**vars(OPTIONS), "later_h": 4.0})).rows
    assert row.start <= datetime(2026, 3, 1, 16, tzinfo=UTC)


def test_the_promise_holds_where_the_scenario_lets_jobs_be_late():
    jobs = [job("1", gpus=5, left_s=1800.0), job("2", left_s=1800.0), job("3", gpus=4, left_s=9000.0), job("4", gpus=2)]
    options = Options(**{**vars(OPTIONS), "later_h": 0.5, "policy": "cheapest-feasible"})
    rows = advise(scenario(lateness={"rule": "wait"}), jobs, options).rows
    assert rows == advise(scenario(), jobs, options).rows
    assert None in {row.start for row in rows}  # one that cannot keep it gets no advice


def test_running_jobs_hold_their_gpus_until_their_time_limit():
    holding = job("2", running=True, left_s=7200.0)
    (row,) = advise(scenario(), [holding, job()], Options(**{**vars(OPTIONS), "later_h": 0.0})).rows
    assert row.start == datetime(2026, 3, 1, 14, tzinfo=UTC)
    half = Options(**{**vars(OPTIONS), "later_h": 0.0, "run_share": 0.5})
    (row,) = advise(scenario(), [holding, job()], half).rows
    assert (row.start, row.run_s) == (datetime(2026, 3, 1, 13, tzinfo=UTC), 1800.0)
    endless = advise(scenario(), [job("2", running=True, left_s=None), job()], OPTIONS)
    assert endless.rows[0].site is None
    assert "no time limit" in endless.notes[-1]
    with pytest.raises(DataError, match="running jobs hold 16 GPUs at solo, which has 8"):
        advise(scenario(), [job("1", running=True), job("2", running=True)], OPTIONS)


def test_a_waiting_job_without_a_limit_is_left_out_and_the_others_are_advised():
    found = advise(scenario(), [job("1", left_s=None), job("2")], OPTIONS)
    assert [(row.job.id, row.site) for row in found.rows] == [("1", None), ("2", "solo")]
    assert found.rows[0].reason == "it has no time limit, and nothing else says how long it runs"
    assert "1 waiting jobs have no time limit" in found.notes[-1]
    both = advise(scenario(), [job("1", left_s=None), job("2")], with_(run_h=1.0))
    assert [row.site for row in both.rows] == ["solo", "solo"]


def test_two_queues_of_two_sites():
    jobs = [job("1", gpus=4, cluster="duo"), job("2", gpus=4, partition="solo"), job("3", not_now="its owner holds it")]
    with pytest.raises(ScenarioError, match="say whose queue it is"):
        advise(scenario(2), jobs, OPTIONS)
    held = job("3", not_now="its owner holds it", cluster="duo")
    rows = advise(scenario(2), [*jobs[:2], held], OPTIONS).rows
    assert [row.home for row in rows] == ["duo", "solo", "duo"]
    assert [row.reason for row in rows][2] == "its owner holds it"
    assert all(row.site == "solo" for row in advise(scenario(2), [job("1", gpus=8)], with_(at="duo")).rows)


def with_(**changed):
    return Options(**{**vars(OPTIONS), **changed})


@pytest.mark.parametrize(
    ("jobs", "options", "words"),
    [
        ([job(gpus=9)], OPTIONS, "job 1 asks for 9 GPUs; the largest site of the fleet has 8"),
        ([job()], with_(at="nowhere"), "--at names the unknown site 'nowhere'"),
        ([job()], with_(class_="dance"), "unknown class 'dance'"),
        ([job()], with_(policy="nonsense"), "nonsense"),
        ([job()], with_(policy="booked-perfect"), "reads the future"),
        ([job()], with_(policy="bid-price-persistence"), "plans for jobs to come"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(jobs, options, words):
    with pytest.raises((DataError, ScenarioError), match=words):
        advise(scenario(), jobs, options)


def test_signals_that_do_not_reach_the_time_of_the_queue_are_refused(tmp_path):
    rows = [f"2026-03-01T{hour:02}:00:00Z,A,10,20" for hour in range(12)]
    head = "timestamp,zone,price_usd_per_mwh,carbon_intensity_g_per_kwh\n"
    (tmp_path / "s.csv").write_text(head + "\n".join(rows) + "\n")
    files = {"source": "files", "paths": [str(tmp_path / "s.csv")]}
    with pytest.raises(SignalRangeError, match="bring the signal files up to date"):
        advise(scenario(signals=files), [job()], OPTIONS)


def test_an_empty_queue_gives_no_rows():
    assert advise(scenario(), [], OPTIONS).rows == []


def own_log(path, **knowledge):
    """A scenario with a log in which every other job took an hour, and the others two."""
    rows = ["job_id,submit_time,duration_s,gpus,origin,user,name,limit_s,state"]
    for n in range(200):
        submitted = datetime.fromtimestamp(NOON.timestamp() - 86400 + 60 * n, UTC)
        rows.append(f"{n},{submitted:%Y-%m-%dT%H:%M:%SZ},{3600 * (1 + n % 2)},8,solo,ann,a,14400,done")
    path.write_text("\n".join(rows) + "\n")
    return scenario(jobs={"source": "table", "path": str(path), "slack_h": 6, "knowledge": knowledge})


def test_learned_run_times_are_booked_by_the_quantile_and_weighed_by_the_mean(tmp_path, monkeypatch):
    own, asked = own_log(tmp_path / "log.csv", run_time="learned", quantile=0.9), []
    played = advice.simulated_fates
    monkeypatch.setattr(advice, "simulated_fates", lambda *given: asked.append(given[2]) or played(*given))
    jobs = [job(number, user="ann", left_s=14400.0, limit_s=14400.0) for number in "12"]
    first, second = advise(own, jobs, with_(later_h=0.0)).rows
    mean_s = 5400
    assert first.run_s == pytest.approx(second.run_s) == pytest.approx(mean_s, rel=0.1)
    assert (first.start, second.start) == (NOON, NOON + timedelta(seconds=300 * ceil(first.run_s / 300)))
    for one in [*asked[0], *asked[1]]:
        assert one.work == one.told[0] == pytest.approx(mean_s, rel=0.1)
        assert one.told[1] == pytest.approx(7200, rel=0.1)


@pytest.mark.parametrize(("run_time", "run_s"), [("class-mean", 5400.0), ("limit", 14400.0)])
def test_class_means_and_limits_are_told_as_a_service_tells_them(tmp_path, run_time, run_s):
    own = own_log(tmp_path / "log.csv", run_time=run_time)
    holding = job("2", running=True, left_s=9000.0, limit_s=14400.0)
    told = advise(own, [holding, job("1", left_s=14400.0, limit_s=14400.0)], with_(later_h=0.0))
    (row,) = told.rows
    # A running job of 5,400 s has outlived the class mean; its limit is 9,000 s away.
    begins_s = 5400 if run_time == "class-mean" else 9000
    assert ((row.start - NOON).total_seconds(), row.run_s) == (begins_s, run_s)
    said = {"class-mean": "the mean of its class in 200 jobs of the log", "limit": "as long as its time limit"}
    assert said[run_time] in told.notes[-1]
