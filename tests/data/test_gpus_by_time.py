"""GPUs that change with time: steps and files of a scenario, what they withhold, and what becomes of it."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.gpus_by_time import gpu_steps
from noonward.data.scenarios.load import load_scenario, scenario_from, with_settings
from noonward.decision.brief import Brief
from noonward.engine.run import run
from noonward.errors import DataError, ScenarioError
from noonward.ledger.ledger import settle
from noonward.ledger.record import environment_digest, hour_table
from noonward.ledger.service import power_totals
from noonward.model.cluster.withheld import GpuFile, StandingJobs, Withheld
from noonward.schedule.policies import make_scheduler
from reference.small_worlds import plain

START = "2022-12-25"
STEPS = "[{from: 2022-12-25, gpus: 4}, {from: '2022-12-25T02:30', gpus: 1}, {from: '2022-12-25T06:00', gpus: 3}]"


def tiny(*settings: str):
    return load_scenario("tiny", [f"start={START}", *settings])


def test_steps_are_withheld_gpus_of_the_most_there_are():
    scenario = tiny(f"fleet.sites.0.gpus={STEPS}")
    assert scenario.fleet.sites[0].gpus == 4
    steps = build_environment(scenario).withheld
    assert (steps.from_s_K.tolist(), steps.gpus_KS.tolist()) == ([0.0, 9000.0, 21600.0], [[0, 0], [3, 0], [1, 0]])
    assert build_environment(tiny()).withheld is None
    assert build_environment(tiny("fleet.sites.0.gpus=[{from: 2020-01-01, gpus: 4}]")).withheld is None
    later = build_environment(with_settings(scenario, ["start=2022-12-26"])).withheld
    assert (later.from_s_K.tolist(), later.gpus_KS.tolist()) == ([0.0], [[1, 0]])
    before = build_environment(with_settings(scenario, ["start=2022-12-20"])).withheld
    assert before.gpus_KS[0].tolist() == [0, 0]  # the first step holds before it, too


def test_a_scenario_with_steps_says_them_again():
    scenario = tiny(f"fleet.sites.0.gpus={STEPS}")
    again = scenario_from(scenario.model_dump(mode="json", by_alias=True))
    assert again.fleet == scenario.fleet
    assert again.digest == scenario.digest != tiny().digest
    digests = {environment_digest(build_environment(each)) for each in (scenario, tiny("fleet.sites.0.gpus=4"))}
    assert len(digests) == 2


def test_a_file_is_read_and_its_clock_is_told(tmp_path: Path):
    path = tmp_path / "gpus.csv"
    path.write_text("time,gpus\n2022-12-25T00:00,4\n2022-12-25T01:00,4\n2022-12-25T03:30,1\n2022-12-25T07:00,3\n")
    steps = gpu_steps(GpuFile(path=path, timezone="+01:00"))
    assert [(step.from_, step.gpus) for step in steps] == [
        (datetime(2022, 12, 24, 23, tzinfo=UTC), 4),
        (datetime(2022, 12, 25, 2, 30, tzinfo=UTC), 1),
        (datetime(2022, 12, 25, 6, tzinfo=UTC), 3),
    ]
    scenario = tiny(f"fleet.sites.0.gpus={{path: {path}, timezone: '+01:00'}}")
    assert scenario.fleet.sites[0].gpus == 4
    of_file, stated = (
        build_environment(scenario).withheld,
        build_environment(tiny(f"fleet.sites.0.gpus={STEPS}")).withheld,
    )
    np.testing.assert_array_equal(of_file.gpus_KS, stated.gpus_KS)
    np.testing.assert_array_equal(of_file.from_s_K, stated.from_s_K)
    path.write_text("time,gpus\n2022-12-25T00:00Z,4\n")
    assert tiny(f"fleet.sites.0.gpus={path}").fleet.sites[0].gpus == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time,gpus\n2022-12-25T00:00Z,4\n2022-12-25T00:00Z,3\n", "line 3: this time is not after the one before"),
        ("time,gpus\n2022-12-25T00:00Z,1.5\n", "is no whole number of GPUs"),
        ("time,gpus\n2022-12-25T00:00Z,-1\n", "is no whole number of GPUs"),
        ("time,gpus\n2022-12-25T00:00Z,0\n", "no row has a GPU"),
        ("time,gpus\nnever,4\n", "never"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path: Path, text: str, says: str):
    path = tmp_path / "gpus.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        tiny(f"fleet.sites.0.gpus={path}")


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ("[]", "holds no step"),
        ("[{from: 2022-12-26, gpus: 3}, {from: 2022-12-25, gpus: 4}]", "do not ascend"),
        ("[{from: 2022-12-25, gpus: 0}]", "no step of gpus has a GPU"),
        ("[{from: 2022-12-25, gpus: -1}]", "gpus"),
    ],
)
def test_steps_that_make_no_sense_are_refused(steps: str, says: str):
    with pytest.raises(ScenarioError, match=says):
        tiny(f"fleet.sites.0.gpus={steps}")


def four_jobs(withheld: Withheld | None, *, free_w: float = 0.0):
    """Four GPUs; four jobs of an hour with a GPU each arrive at second 0 and may wait for ten hours."""
    world = plain([4], [{"gpus": 1, "work": 3600.0, "slack_s": 36000.0} for _ in range(4)], price=[[100.0]])
    environment = world.environment()
    if free_w:
        environment = with_free_power(environment, free_w)
    return environment if withheld is None else replace(environment, withheld=withheld)


def with_free_power(environment, watts):
    fleet = environment.fleet
    kinds = {name: kind.model_copy(update={"idle_w": watts}) for name, kind in fleet.gpu_types.items()}
    return replace(environment, fleet=fleet.model_copy(update={"gpu_types": kinds}))


def test_jobs_start_within_what_is_left_and_run_on_when_it_shrinks():
    steps = Withheld.of([(0.0, 0, 2), (1800.0, 0, 2), (7200.0, 0, -1)], np.array([4]))
    outcome = run(four_jobs(steps), make_scheduler("local-fcfs"))
    # Two start at once and run on; nothing may start from 1,800 s on; from 7,200 s on one GPU is there.
    assert outcome.job_J["start_s"].tolist() == [0.0, 0.0, 7200.0, 10800.0]
    assert outcome.job_J["finish_s"].tolist() == [3600.0, 3600.0, 10800.0, 14400.0]


def test_withheld_gpus_draw_nothing_once_their_jobs_have_ended():
    """Free power 10 W a GPU; 2 of 4 withheld at 0, all from 1,800 s on, 3 from 7,200 s on, for a window of 4 h."""
    steps = Withheld.of([(0.0, 0, 2), (1800.0, 0, 2), (7200.0, 0, -1)], np.array([4]))
    environment = four_jobs(steps, free_w=10.0)
    window_h = environment.window_s / 3600
    ledger = settle(run(environment, make_scheduler("local-fcfs")))
    # Jobs run 2 x 0 to 1 h, then 2 to 3 h, 3 to 4 h on the one GPU there is: none is ever free within 4 h.
    free_gpu_h = max(0.0, window_h - 4.0)
    assert ledger.free_kwh == pytest.approx(free_gpu_h * 10.0 / 1000)
    assert ledger.fixed_kwh == pytest.approx((0.5 * 2 + 1.5 * 0 + (window_h - 2.0) * 1) * 10.0 / 1000)
    whole = settle(run(four_jobs(None, free_w=10.0), make_scheduler("local-fcfs")))
    assert whole.fixed_kwh == pytest.approx(4 * window_h * 10.0 / 1000)
    assert ledger.job_kwh == whole.job_kwh


def test_hours_and_power_follow_what_is_withheld():
    steps = Withheld.of([(0.0, 0, 2), (1800.0, 0, 2), (7200.0, 0, -1)], np.array([4]))
    environment = four_jobs(steps, free_w=10.0)
    outcome = run(environment, make_scheduler("local-fcfs"))
    table = hour_table(outcome)
    assert table["gpus"].to_list()[:4] == [1.0, 0.0, 1.0, 1.0]
    assert table["free_kwh"].sum() == pytest.approx(settle(outcome).free_kwh)
    joules, peak_w, _, seconds = power_totals(outcome, np.array([np.inf]))[0]
    ledger = settle(outcome)
    assert joules == pytest.approx((ledger.job_kwh + ledger.free_kwh) * 3.6e6)
    assert peak_w == pytest.approx(200.0)  # two jobs of 100 W, no free GPU
    assert seconds == environment.window_s


def test_standing_jobs_hold_their_gpus_and_are_a_line_of_their_own():
    environment = four_jobs(None)
    standing = StandingJobs(
        site_J=np.array([0, 0]), gpus_J=np.array([2, 1]), end_s_J=np.array([5400.0, 1800.0]),
        told_end_s_J=np.array([5400.0, 1800.0]), power_w_J=np.array([200.0, 100.0]),
    )  # fmt: skip
    outcome = run(replace(environment, standing=standing), make_scheduler("local-fcfs"))
    assert outcome.job_J["start_s"].tolist() == [0.0, 1800.0, 3600.0, 5400.0]
    ledger, alone = settle(outcome), settle(run(environment, make_scheduler("local-fcfs")))
    assert ledger.standing_kwh == pytest.approx(0.2 * 1.5 + 0.1 * 0.5)
    assert ledger.standing_usd == pytest.approx(0.1 * ledger.standing_kwh)
    assert (ledger.job_kwh, ledger.energy_usd) == (alone.job_kwh, pytest.approx(alone.energy_usd))
    assert "standing_kwh" not in alone.as_dict()
    assert type(ledger).from_dict(ledger.as_dict()) == ledger


@pytest.mark.parametrize("policy", ["booked-perfect", "bid-price-perfect"])
def test_planners_know_what_was_announced(policy: str):
    """The GPUs of the cheap hours are withheld: a planner that knows it never waits for them."""
    scenario = tiny("jobs.count=40", "jobs.slack_ratio=8", f"fleet.sites.0.gpus={STEPS}", f"fleet.sites.1.gpus={STEPS}")
    environment = build_environment(scenario)
    surprised = Brief.of(environment, make_scheduler(policy).needs)
    assert surprised.withheld is environment.withheld
    told = settle(run(environment, make_scheduler(policy)))

    class Untold(type(make_scheduler(policy))):  # type: ignore[misc]
        def reset(self, brief, rng):
            super().reset(replace(brief, withheld=None), rng)

    scheduler = make_scheduler(policy)
    scheduler.__class__ = Untold
    untold = settle(run(environment, scheduler))
    assert told.utility_usd > untold.utility_usd
    assert told.overdue <= untold.overdue


def test_withheld_gpus_are_summed_and_averaged():
    steps = Withheld.of([(-50.0, 0, 2), (5400.0, 0, 1), (7200.0, 0, -3), (100.0, 1, 9)], np.array([4, 5]))
    assert steps.from_s_K.tolist() == [0.0, 100.0, 5400.0, 7200.0]
    assert steps.gpus_KS.tolist() == [[2, 0], [2, 5], [3, 5], [0, 5]]
    assert steps.mean_SH(0, 3)[0].tolist() == [2.0, 2.5, 0.0]
    assert steps.most(0.0, 3600.0, 3).tolist() == [[2, 3, 0], [5, 5, 5]]
    assert steps.at(np.array([0.0, 5399.0, 5400.0])).tolist() == [[2, 0], [2, 5], [3, 5]]
    assert Withheld.of(steps.changes, np.array([4, 5])).gpus_KS.tolist() == steps.gpus_KS.tolist()
    assert Withheld.of([(0.0, 0, 0)], np.array([4])) is None
